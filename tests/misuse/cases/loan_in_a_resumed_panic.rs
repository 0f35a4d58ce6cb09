// A resumed panic carries a loan out of `start` in its payload.
use splitprover_misuse::*;

struct Backend;

impl SplitProver for Backend {
    type Pending = Sums;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Sums, BackendError> {
        std::panic::resume_unwind(Box::new(inputs.witness))
    }
}

fn main() {}
