use splitprover_misuse::*;
use std::sync::{Arc, Mutex};

struct Backend(Stash);

type Stash = Arc<Mutex<Option<Lent<'static>>>>;

struct Later(Stash);

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
        let later = Later(self.0.clone());
        *later.0.lock().unwrap() = Some(inputs.witness).and(None);
        Ok(later)
    }
}

fn main() {}
