// A loan of somebody's own memory is made outside core.
use splitprover_misuse::*;

pub fn caller<'i>(slot: &'i mut Vec<Scalar>, lent: Lent<'i>) -> Lent<'i> {
    slot.clear();
    Lent(slot)
}

fn main() {}
