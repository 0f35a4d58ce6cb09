// A loan is cloned, to release one of the two and keep the other.
use splitprover_misuse::*;

struct Backend;

impl SplitProver for Backend {
    type Pending = Sums;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Sums, BackendError> {
        inputs.witness.clone().release();
        Ok(Sums)
    }
}

fn main() {}
