// A proof is made of points that nobody has checked.
use splitprover_misuse::*;

pub fn caller(a: G1Affine, b: G2Affine, c: G1Affine) -> Option<Proof> {
    Some(Proof { a, b, c })
}

fn main() {}
