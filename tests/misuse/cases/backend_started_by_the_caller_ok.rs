use splitprover_misuse::*;

pub fn caller<P: SplitProver<Key = ()>>(prover: &Prover<P>, key: &LoadedKey<P>, inputs: Inputs) {
    let started = prover.start(key, inputs);
    assert_eq!((key.key().shape().num_public, started.is_ok()), (0, true));
}

fn main() {}
