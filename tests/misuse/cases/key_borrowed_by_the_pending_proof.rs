// The pending proof borrows the loaded key, so that dropping the key would leave it dangling.
use splitprover_misuse::*;

struct Backend;

struct Later(&'static [u8]);

impl PendingSums for Later {
    fn finish(self) -> Result<QuerySums, BackendError> {
        let _ = self.0.len();
        Err(BackendError::Cancelled)
    }
}

impl SplitProver for Backend {
    type Pending = Later;
    rest_of_the_backend!(Vec<u8>);

    fn start<'i>(&self, key: &Vec<u8>, inputs: LentInputs<'i>) -> Result<Later, BackendError> {
        drop(inputs);
        Ok(Later(key))
    }
}

fn main() {}
