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
            assert_ne!(slice.len(), 0);
            reader.join().unwrap();
        });
        Ok(Sums)
    }
}

fn main() {}
