// Lent inputs are put together outside core, from others.
use splitprover_misuse::*;

pub fn caller<'i>(inputs: LentInputs<'i>) -> LentInputs<'i> {
    LentInputs { evaluations: None, ..inputs }
}

fn main() {}
