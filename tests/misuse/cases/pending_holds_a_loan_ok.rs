use splitprover_misuse::*;

struct Backend;

struct Held<'l>(Option<Lent<'l>>);

impl PendingSums for Held<'static> {
    fn finish(self) -> Result<QuerySums, BackendError> {
        drop(self.0);
        Err(BackendError::Cancelled)
    }
}

impl SplitProver for Backend {
    type Pending = Held<'static>;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Held<'static>, BackendError> {
        Ok(Held(Some(inputs.witness).and(None)))
    }
}

fn main() {}
