// Foreign memory is claimed to be valid without an `unsafe` that vouches for it.
use splitprover_misuse::*;
use std::ptr::NonNull;

pub struct Pool(Box<[u64; 8]>);

impl ForeignMemory for Pool {
    fn as_mut_ptr(&self) -> NonNull<u8> {
        NonNull::from(&*self.0).cast()
    }
    fn len_bytes(&self) -> usize {
        0
    }
    fn pool(&self) -> u64 {
        0
    }
}

fn main() {}
