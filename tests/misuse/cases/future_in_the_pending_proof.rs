// A future carries the loan into the pending proof.
use splitprover_misuse::*;
use std::pin::Pin;

struct Backend;

struct Later(Pin<Box<dyn Future<Output = usize> + Send>>);

impl PendingSums for Later {
    fn finish(self) -> Result<QuerySums, BackendError> {
        drop(self.0);
        Err(BackendError::Cancelled)
    }
}

impl SplitProver for Backend {
    type Pending = Later;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Later, BackendError> {
        let witness = inputs.witness;
        let len = witness.len();
        Ok(Later(Box::pin(async move { witness.len() })))
    }
}

fn main() {}
