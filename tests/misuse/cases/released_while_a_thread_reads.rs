// A vector is released while a scoped thread reads it.
use splitprover_misuse::*;

struct Backend;

impl SplitProver for Backend {
    type Pending = Sums;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Sums, BackendError> {
        let LentInputs { witness, .. } = inputs;
        let slice: &[Scalar] = &witness;
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || slice.len());
            witness.release();
            reader.join().unwrap();
        });
        Ok(Sums)
    }
}

fn main() {}
