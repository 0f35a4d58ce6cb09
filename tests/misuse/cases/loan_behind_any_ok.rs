use splitprover_misuse::*;
use std::any::Any;

struct Backend;

impl SplitProver for Backend {
    type Pending = Sums;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Sums, BackendError> {
        let anything: Box<dyn Any> = Box::new(inputs.witness.len());
        drop(anything);
        Ok(Sums)
    }
}

fn main() {}
