use splitprover_misuse::*;
use std::sync::Mutex;
use std::sync::mpsc::Sender;

struct Backend(Mutex<Sender<Option<Lent<'static>>>>);

impl SplitProver for Backend {
    type Pending = Sums;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Sums, BackendError> {
        self.0.lock().unwrap().send(Some(inputs.witness).and(None)).unwrap();
        Ok(Sums)
    }
}

fn main() {}
