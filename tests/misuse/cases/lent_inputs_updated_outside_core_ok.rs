use splitprover_misuse::*;

pub fn caller<'i>(inputs: LentInputs<'i>) -> LentInputs<'i> {
    inputs
}

fn main() {}
