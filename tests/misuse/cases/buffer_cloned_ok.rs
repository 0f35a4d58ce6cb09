use splitprover_misuse::*;

pub fn caller(witness: HostBuf<Scalar>) {
    let copy = witness;
    assert_eq!(copy.len(), 1);
}

fn main() {}
