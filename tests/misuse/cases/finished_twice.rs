// A proof is finished twice.
use splitprover_misuse::*;

pub fn caller<P: SplitProver>(proof: InFlight<P>) {
    let first = proof.finish();
    let second = proof.finish();
    assert_eq!(first.is_ok(), second.is_ok());
}

fn main() {}
