// A leaked box makes the loan last for ever.
use splitprover_misuse::*;

struct Backend;

impl SplitProver for Backend {
    type Pending = Sums;
    rest_of_the_backend!();

    fn start<'i>(&self, _key: &(), inputs: LentInputs<'i>) -> Result<Sums, BackendError> {
        let kept: &'static mut Lent<'_> = Box::leak(Box::new(inputs.witness));
        kept.make_mut();
        Ok(Sums)
    }
}

fn main() {}
