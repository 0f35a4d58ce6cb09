//! The C boundary of plug-ins: what one side makes of arguments that the other side should never pass.
//!
//! Pointers point to memory that is there, because no check could tell if they didn't; everything else is the fuzzer's: sizes,
//! versions, lengths, flags, null pointers, alignment. Blocks are exactly as large as the reader may rely on, so that an address
//! sanitizer sees a read beyond them. Each function knows by a model of its own whether the arguments are good, and that is
//! what must come out.
#![allow(unsafe_code)]

mod negotiate;
mod start;

pub use negotiate::negotiate;
pub use start::start_arguments;

/// The fuzzer's bytes, taken from the front; zeros when they are used up.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_at(self.0.len().min(N));
        self.0 = rest;
        let mut array = [0; N];
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    /// `usual` for most values of a byte, which is then followed by nothing.
    fn mostly<T>(&mut self, usual: T, otherwise: impl FnOnce(&mut Self) -> T) -> T {
        if self.u8() < 192 { usual } else { otherwise(self) }
    }
}

/// The first bytes of a struct that begins with its size: as many as a reader may look at, in 8-aligned memory.
fn block<T: Copy>(value: &T, struct_size: u64) -> Vec<u64> {
    const { assert!(align_of::<T>() == 8 && size_of::<T>().is_multiple_of(8)) };
    let readable = usize::try_from(struct_size).unwrap_or(usize::MAX).clamp(8, size_of::<T>());
    // SAFETY: a struct without padding, as the layout asserts of the ABI say, of whole words.
    let words = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u64>(), size_of::<T>() / 8) };
    words[..readable.div_ceil(8)].to_vec()
}
