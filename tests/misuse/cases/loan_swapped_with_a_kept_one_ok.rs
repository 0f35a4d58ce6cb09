use splitprover_misuse::*;
use std::sync::Mutex;

struct Backend(Mutex<Option<Lent<'static>>>);

impl SplitProver for Backend {
    type Pending = Sums;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Sums, BackendError> {
        let LentInputs { mut witness, .. } = inputs;
        if let Some(kept) = self.0.lock().unwrap().as_mut() {
            std::mem::swap(&mut witness.len(), &mut kept.len());
        }
        witness.make_mut();
        Ok(Sums)
    }
}

fn main() {}
