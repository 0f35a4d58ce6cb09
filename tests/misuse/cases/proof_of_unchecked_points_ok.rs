use splitprover_misuse::*;

pub fn caller(a: G1Affine, b: G2Affine, c: G1Affine) -> Option<Proof> {
    Proof::new(a, b, c).ok()
}

fn main() {}
