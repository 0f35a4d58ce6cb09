// A lifetime parameter of the prover, bound to be static, names the loan in the pending proof.
use splitprover_misuse::*;
use std::marker::PhantomData;

struct Backend<'p>(PhantomData<fn() -> Lent<'p>>);

struct Held<'l>(Option<Lent<'l>>);

impl PendingSums for Held<'static> {
    fn finish(self) -> Result<QuerySums, BackendError> {
        drop(self.0);
        Err(BackendError::Cancelled)
    }
}

impl<'p> SplitProver for Backend<'p>
where
    'p: 'static,
{
    type Pending = Held<'p>;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Held<'p>, BackendError> {
        Ok(Held(Some(inputs.witness)))
    }
}

fn main() {}
