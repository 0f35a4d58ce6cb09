// `start` accepts only loans that last for ever, which could be kept.
use splitprover_misuse::*;

struct Backend;

impl SplitProver for Backend {
    type Pending = Sums;
    rest_of_the_backend!();

    fn start(&self, _key: &(), inputs: LentInputs<'static>) -> Result<Sums, BackendError> {
        drop(inputs);
        Ok(Sums)
    }
}

fn main() {}
