// The caller keeps a view of the witness while a proof takes it.
use splitprover_misuse::*;

pub fn caller<P: SplitProver>(prover: &Prover<P>, key: &LoadedKey<P>, inputs: Inputs) {
    let view: &[Scalar] = inputs.witness();
    let len = view.len();
    let started = prover.start(key, inputs);
    assert_eq!(view.len(), len);
}

fn main() {}
