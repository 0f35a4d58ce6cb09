// The caller clones inputs, and keeps the copy.
use splitprover_misuse::*;

pub fn caller(inputs: Inputs) {
    let copy = inputs.clone();
    assert_eq!(copy.witness().len(), 1);
}

fn main() {}
