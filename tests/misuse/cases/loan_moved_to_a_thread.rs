// A spawned thread takes a loan; it may run on after `start`. A scoped one is fine.
use splitprover_misuse::*;

struct Backend;

impl SplitProver for Backend {
    type Pending = Sums;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Sums, BackendError> {
        let witness = inputs.witness;
        std::thread::spawn(move || drop(witness)).join().unwrap();
        Ok(Sums)
    }
}

fn main() {}
