use splitprover_misuse::*;

pub fn caller<'i>(slot: &'i mut Vec<Scalar>, lent: Lent<'i>) -> Lent<'i> {
    slot.clear();
    lent
}

fn main() {}
