use splitprover_misuse::*;

pub fn caller(blinding: &Blinding) -> String {
    format!("{:?}", blinding)
}

fn main() {}
