// The pending proof holds the slice to which a loan dereferences.
use splitprover_misuse::*;

struct Backend;

struct Later(&'static [Scalar]);

impl PendingSums for Later {
    fn finish(self) -> Result<QuerySums, BackendError> {
        let _ = self.0.len();
        Err(BackendError::Cancelled)
    }
}

impl SplitProver for Backend {
    type Pending = Later;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Later, BackendError> {
        let LentInputs { witness, .. } = inputs;
        assert_eq!(witness.len(), 1);
        Ok(Later(&witness))
    }
}

fn main() {}
