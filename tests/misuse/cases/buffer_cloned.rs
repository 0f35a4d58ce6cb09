// The caller clones a host buffer.
use splitprover_misuse::*;

pub fn caller(witness: HostBuf<Scalar>) {
    let copy = witness.clone();
    assert_eq!(copy.len(), 1);
}

fn main() {}
