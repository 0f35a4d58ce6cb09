// The mutable slice of a loan is swapped for an empty one that lasts for ever.
use splitprover_misuse::*;

struct Backend;

impl SplitProver for Backend {
    type Pending = Sums;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Sums, BackendError> {
        let LentInputs { mut witness, .. } = inputs;
        let mut slice = witness.make_mut();
        let mut kept: &'static mut [Scalar] = &mut [];
        std::mem::swap(&mut slice, &mut kept);
        let _ = kept.len();
        Ok(Sums)
    }
}

fn main() {}
