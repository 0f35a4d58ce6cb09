use splitprover_misuse::*;
use std::sync::Mutex;

struct Backend<'p>(Mutex<Option<Lent<'p>>>);

impl SplitProver for Backend<'static> {
    type Pending = Sums;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Sums, BackendError> {
        drop(inputs);
        drop(self.0.lock());
        Ok(Sums)
    }
}

fn main() {}
