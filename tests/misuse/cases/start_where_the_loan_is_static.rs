// A bound on `start` asks for loans that last for ever.
use splitprover_misuse::*;

struct Backend;

impl SplitProver for Backend {
    type Pending = Sums;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Sums, BackendError>
    where
        'i: 'static,
    {
        drop(inputs);
        Ok(Sums)
    }
}

fn main() {}
