//! From encoded points to the records of a key, checked to be on their curve on the way: what opening a `.params` key for the
//! first time consists of.
//!
//! With AVX-512 IFMA, eight points are decoded together, and the caller's own decoder only decides what that leaves open; without, it
//! decides everything.

use blstrs::{G1Affine, G2Affine};
use splitprover_core::point::FP_BYTES;

use crate::curve_check::CurveCheck;
use crate::field::Arithmetic;
#[cfg(target_arch = "x86_64")]
use crate::field::ifma::{Fq, Fq2, decode::Decode, on_curve::Verdict, run_checked};
#[cfg(target_arch = "x86_64")]
use crate::field::{Kernel, LANES};

/// A group whose points can be decoded many at a time: [`G1Affine`] or [`G2Affine`].
pub trait BigEndian: CurveCheck {
    /// Decodes points that lie one after the other into as many records, neither aligned. A point is x‖y, each a plain big-endian
    /// integer of 48 bytes; in G2, c1‖c0 of each. Runs on the calling thread.
    ///
    /// `one` decodes one point into one record, and says whether it is what it should be. It is asked about every point that isn't
    /// certainly finite, on the curve and its coordinates below q: a point with a flag in its highest bits, for one.
    ///
    /// # Errors
    /// The index of the first point that `one` refuses. Records from there on mean nothing.
    ///
    /// # Panics
    /// If `encoded` isn't a whole number of points, `records` isn't as long, or the processor hasn't the arithmetic.
    fn decode_records(
        arithmetic: Arithmetic,
        encoded: &[u8],
        records: &mut [u8],
        one: &mut dyn FnMut(&[u8], &mut [u8]) -> bool,
    ) -> Result<(), usize>;
}

impl BigEndian for G1Affine {
    fn decode_records(
        arithmetic: Arithmetic,
        encoded: &[u8],
        records: &mut [u8],
        one: &mut dyn FnMut(&[u8], &mut [u8]) -> bool,
    ) -> Result<(), usize> {
        match arithmetic {
            #[cfg(target_arch = "x86_64")]
            Arithmetic::Avx512Ifma => run_checked(Eights::<Self, Fq>::new(encoded, records, &[0, 1], one)),
            _ => one_by_one::<Self>(arithmetic, encoded, records, one),
        }
    }
}

impl BigEndian for G2Affine {
    fn decode_records(
        arithmetic: Arithmetic,
        encoded: &[u8],
        records: &mut [u8],
        one: &mut dyn FnMut(&[u8], &mut [u8]) -> bool,
    ) -> Result<(), usize> {
        match arithmetic {
            #[cfg(target_arch = "x86_64")]
            Arithmetic::Avx512Ifma => run_checked(Eights::<Self, Fq2>::new(encoded, records, &[1, 0, 3, 2], one)),
            _ => one_by_one::<Self>(arithmetic, encoded, records, one),
        }
    }
}

fn require_lengths<C: CurveCheck>(encoded: &[u8], records: &[u8]) {
    assert!(encoded.len().is_multiple_of(C::BYTES), "a whole number of points");
    assert_eq!(encoded.len(), records.len(), "a record for each point");
}

fn one_by_one<C: CurveCheck>(
    arithmetic: Arithmetic,
    encoded: &[u8],
    records: &mut [u8],
    one: &mut dyn FnMut(&[u8], &mut [u8]) -> bool,
) -> Result<(), usize> {
    assert!(arithmetic.is_supported(), "the processor has no {arithmetic:?}");
    require_lengths::<C>(encoded, records);
    let pairs = encoded.chunks_exact(C::BYTES).zip(records.chunks_exact_mut(C::BYTES));
    pairs.enumerate().try_for_each(|(index, (encoded, record))| one(encoded, record).then_some(()).ok_or(index))
}

/// Decodes points on lanes.
#[cfg(target_arch = "x86_64")]
struct Eights<'a, C, F> {
    encoded: &'a [u8],
    records: &'a mut [u8],
    /// Which coordinate (or component of one) of an encoded point is which of its record.
    order: &'static [usize],
    one: &'a mut dyn FnMut(&[u8], &mut [u8]) -> bool,
    of: std::marker::PhantomData<(C, F)>,
}

#[cfg(target_arch = "x86_64")]
impl<'a, C: CurveCheck, F> Eights<'a, C, F> {
    fn new(
        encoded: &'a [u8],
        records: &'a mut [u8],
        order: &'static [usize],
        one: &'a mut dyn FnMut(&[u8], &mut [u8]) -> bool,
    ) -> Self {
        require_lengths::<C>(encoded, records);
        Self { encoded, records, order, one, of: std::marker::PhantomData }
    }
}

/// An integer of 48 bytes, turned round.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn reverse(from: &[u8], to: &mut [u8]) {
    const WORDS: usize = FP_BYTES / 8;
    let (from, to) = (from.as_chunks::<8>().0, to.as_chunks_mut::<8>().0);
    for word in 0..WORDS {
        to[word] = u64::from_be_bytes(from[WORDS - 1 - word]).to_le_bytes();
    }
}

#[cfg(target_arch = "x86_64")]
impl<C: CurveCheck, F: Decode> Kernel for Eights<'_, C, F> {
    type Output = Result<(), usize>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { encoded, records, order, one, .. } = self;
        let count = encoded.len() / C::BYTES;
        let mut eight = [0; LANES * 192];
        let eight = &mut eight[..LANES * C::BYTES];
        for first in (0..count).step_by(LANES) {
            let here = LANES.min(count - first);
            let range = first * C::BYTES..(first + here) * C::BYTES;
            let (encoded, records) = (&encoded[range.clone()], &mut records[range]);
            // Lanes beyond the last point keep what they had.
            for point in 0..here {
                let (encoded, record) = (&encoded[point * C::BYTES..], &mut eight[point * C::BYTES..]);
                for (at, &coordinate) in order.iter().enumerate() {
                    reverse(&encoded[coordinate * FP_BYTES..][..FP_BYTES], &mut record[at * FP_BYTES..][..FP_BYTES]);
                }
            }
            let reduced = F::decode(eight);
            let mut lanes = [&eight[..]; LANES];
            for lane in 0..LANES {
                lanes[lane] = &eight[lane * C::BYTES..(lane + 1) * C::BYTES];
            }
            let Verdict { good, .. } = F::judge(lanes);
            records.copy_from_slice(&eight[..here * C::BYTES]);
            let mut open = !(good & reduced) & (0xff >> (LANES - here));
            while open != 0 {
                let lane = open.trailing_zeros() as usize;
                let point = lane * C::BYTES..(lane + 1) * C::BYTES;
                if !one(&encoded[point.clone()], &mut records[point]) {
                    return Err(first + lane);
                }
                open &= open - 1;
            }
        }
        Ok(())
    }
}
