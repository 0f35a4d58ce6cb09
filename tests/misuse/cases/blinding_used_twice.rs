// One blinding serves two proofs, which would tell their witnesses apart.
use splitprover_misuse::*;

pub fn caller(key: &ProvingKey, sums: &[QuerySums; 2], blinding: Blinding, fresh: Blinding) {
    let first = Proof::assemble(key, &sums[0], blinding);
    let second = Proof::assemble(key, &sums[1], blinding);
    assert_eq!(first.is_ok(), second.is_ok());
}

fn main() {}
