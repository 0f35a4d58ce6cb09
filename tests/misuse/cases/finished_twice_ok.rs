use splitprover_misuse::*;

pub fn caller<P: SplitProver>(proof: InFlight<P>) {
    let first = proof.finish();
    let second = first.as_ref().map(|_| ());
    assert_eq!(first.is_ok(), second.is_ok());
}

fn main() {}
