// A vector is read after it was released.
use splitprover_misuse::*;

struct Backend;

impl SplitProver for Backend {
    type Pending = Sums;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Sums, BackendError> {
        let LentInputs { witness, .. } = inputs;
        let len = witness.len();
        witness.release();
        assert_ne!(witness.len(), 0);
        Ok(Sums)
    }
}

fn main() {}
