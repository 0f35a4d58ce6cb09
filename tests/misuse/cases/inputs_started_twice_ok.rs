use splitprover_misuse::*;

pub fn caller<P: SplitProver>(prover: &Prover<P>, key: &LoadedKey<P>, inputs: Inputs) {
    let first = prover.start(key, inputs);
    let second = first.as_ref().map(|_| ());
    assert_eq!(first.is_ok(), second.is_ok());
}

fn main() {}
