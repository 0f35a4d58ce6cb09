// The scalars of a blinding are read, to be logged.
use splitprover_misuse::*;

pub fn caller(blinding: &Blinding) -> String {
    format!("{:?}", blinding.r)
}

fn main() {}
