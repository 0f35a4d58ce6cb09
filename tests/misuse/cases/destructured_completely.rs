// A backend names every field of its inputs, and would break when one is added.
use splitprover_misuse::*;

struct Backend;

impl SplitProver for Backend {
    type Pending = Sums;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Sums, BackendError> {
        let LentInputs { witness, evaluations } = inputs;
        drop((witness, evaluations));
        Ok(Sums)
    }
}

fn main() {}
