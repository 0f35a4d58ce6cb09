// The caller reads inputs that it has given away.
use splitprover_misuse::*;

pub fn caller<P: SplitProver>(prover: &Prover<P>, key: &LoadedKey<P>, inputs: Inputs) {
    let started = prover.start(key, inputs);
    assert_eq!(inputs.witness().len(), 1);
}

fn main() {}
