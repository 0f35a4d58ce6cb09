// The slot behind a loan is reached, where the buffer could be taken.
use splitprover_misuse::*;

struct Backend;

impl SplitProver for Backend {
    type Pending = Sums;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Sums, BackendError> {
        let LentInputs { witness, .. } = inputs;
        let _ = witness.0;
        Ok(Sums)
    }
}

fn main() {}
