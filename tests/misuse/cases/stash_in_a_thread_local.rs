// A thread-local variable keeps a loan.
use splitprover_misuse::*;
use std::cell::Cell;

struct Backend;
thread_local! {
    static STASH: Cell<Option<Lent<'static>>> = const { Cell::new(None) };
}

impl SplitProver for Backend {
    type Pending = Sums;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Sums, BackendError> {
        STASH.set(Some(inputs.witness));
        Ok(Sums)
    }
}

fn main() {}
