use splitprover_misuse::*;

pub fn caller<P: SplitProver>(prover: &Prover<P>, key: &LoadedKey<P>, inputs: Inputs) {
    let started = prover.start(key, inputs);
    assert!(started.is_ok());
}

fn main() {}
