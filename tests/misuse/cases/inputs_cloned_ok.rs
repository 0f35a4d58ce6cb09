use splitprover_misuse::*;

pub fn caller(inputs: Inputs) {
    let copy = inputs;
    assert_eq!(copy.witness().len(), 1);
}

fn main() {}
