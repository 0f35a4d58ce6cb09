// `start` is async: its future could be dropped half-way, with the loan in it.
use splitprover_misuse::*;

struct Backend;

impl SplitProver for Backend {
    type Pending = Sums;
    rest_of_the_backend!();

    async fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Sums, BackendError> {
        drop(inputs);
        Ok(Sums)
    }
}

fn main() {}
