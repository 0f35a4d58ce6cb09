use splitprover_misuse::*;

struct Backend;

struct Later(Box<dyn FnOnce() -> usize + Send>);

impl PendingSums for Later {
    fn finish(self) -> Result<QuerySums, BackendError> {
        (self.0)();
        Err(BackendError::Cancelled)
    }
}

impl SplitProver for Backend {
    type Pending = Later;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Later, BackendError> {
        let witness = inputs.witness;
        let len = witness.len();
        Ok(Later(Box::new(move || len)))
    }
}

fn main() {}
