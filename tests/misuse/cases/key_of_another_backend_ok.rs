use splitprover_misuse::*;

pub fn caller<P: SplitProver, Q: SplitProver>(prover: &Prover<P>, key: &LoadedKey<P>, other: &LoadedKey<Q>, inputs: Inputs) {
    assert_eq!(key.key().shape(), other.key().shape());
    let started = prover.start(key, inputs);
    assert!(started.is_ok());
}

fn main() {}
