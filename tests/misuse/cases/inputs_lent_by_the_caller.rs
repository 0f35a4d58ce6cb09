// The caller lends inputs to a backend itself, and keeps them.
use splitprover_misuse::*;

pub fn caller<P: SplitProver>(prover: &Prover<P>, key: &LoadedKey<P>, mut inputs: Inputs) {
    let unused = &mut inputs;
    let _ = unused;
    let started = prover.start(key, inputs.lend());
    assert!(started.is_ok());
}

fn main() {}
