//! Whether the points of a key are on their curves: what is asked of every record when a key is opened for the first time.
//!
//! With AVX-512 IFMA, eight records are looked at together, and the scalar check of [`PointRecord`] only decides what they
//! leave open; without, it decides everything. Both give the same answers.

use blstrs::{G1Affine, G2Affine};
use splitprover_core::PointRecord;

use crate::field::Arithmetic;
#[cfg(target_arch = "x86_64")]
use crate::field::ifma::{
    Fq, Fq2,
    on_curve::{Judge, Verdict},
    run_checked,
};
#[cfg(target_arch = "x86_64")]
use crate::field::{Kernel, LANES};

/// A group whose records can be checked many at a time: [`G1Affine`] or [`G2Affine`].
pub trait CurveCheck: PointRecord {
    /// Checks records that lie one after the other, without alignment: each must be infinity (all bytes zero) or pass
    /// [`check_record`](PointRecord::check_record). Runs on the calling thread.
    ///
    /// Returns which records aren't infinity: bit i mod 64 of word ⌊i/64⌋ is for record i, bits beyond the last are clear.
    ///
    /// # Errors
    /// The index of the first faulty record. What is wrong with it, `check_record` says.
    ///
    /// # Panics
    /// If `records` isn't a whole number of records, or the processor hasn't the arithmetic.
    fn check_records(arithmetic: Arithmetic, records: &[u8]) -> Result<Vec<u64>, usize>;
}

impl CurveCheck for G1Affine {
    fn check_records(arithmetic: Arithmetic, records: &[u8]) -> Result<Vec<u64>, usize> {
        match arithmetic {
            #[cfg(target_arch = "x86_64")]
            Arithmetic::Avx512Ifma => run_checked(Eights::<Self, Fq>::new(records)),
            _ => one_by_one::<Self>(arithmetic, records),
        }
    }
}

impl CurveCheck for G2Affine {
    fn check_records(arithmetic: Arithmetic, records: &[u8]) -> Result<Vec<u64>, usize> {
        match arithmetic {
            #[cfg(target_arch = "x86_64")]
            Arithmetic::Avx512Ifma => run_checked(Eights::<Self, Fq2>::new(records)),
            _ => one_by_one::<Self>(arithmetic, records),
        }
    }
}

/// How many records there are.
fn count<C: PointRecord>(records: &[u8]) -> usize {
    assert!(records.len().is_multiple_of(C::BYTES), "a whole number of records");
    records.len() / C::BYTES
}

fn one_by_one<C: PointRecord>(arithmetic: Arithmetic, records: &[u8]) -> Result<Vec<u64>, usize> {
    assert!(arithmetic.is_supported(), "the processor has no {arithmetic:?}");
    let mut finite = vec![0; count::<C>(records).div_ceil(64)];
    for (index, record) in records.chunks_exact(C::BYTES).enumerate() {
        if record.iter().any(|&byte| byte != 0) {
            C::check_record(record).map_err(|_| index)?;
            finite[index / 64] |= 1 << (index % 64);
        }
    }
    Ok(finite)
}

/// Checks records on lanes.
#[cfg(target_arch = "x86_64")]
struct Eights<'a, C, J> {
    records: &'a [u8],
    of: std::marker::PhantomData<(C, J)>,
}

#[cfg(target_arch = "x86_64")]
impl<'a, C: PointRecord, J> Eights<'a, C, J> {
    fn new(records: &'a [u8]) -> Self {
        Self { records, of: std::marker::PhantomData }
    }
}

#[cfg(target_arch = "x86_64")]
impl<C: PointRecord, J: Judge> Kernel for Eights<'_, C, J> {
    type Output = Result<Vec<u64>, usize>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let count = count::<C>(self.records);
        let mut finite = vec![0; count.div_ceil(64)];
        // The last few records, made eight with infinities.
        let mut padded = [0; LANES * 192];
        for first in (0..count).step_by(LANES) {
            let here = LANES.min(count - first);
            let bytes = &self.records[first * C::BYTES..(first + here) * C::BYTES];
            let eight = if here == LANES {
                bytes
            } else {
                padded[..bytes.len()].copy_from_slice(bytes);
                &padded[..LANES * C::BYTES]
            };
            let mut lanes = [eight; LANES];
            for lane in 0..LANES {
                lanes[lane] = &eight[lane * C::BYTES..(lane + 1) * C::BYTES];
            }
            let Verdict { infinite, good } = J::judge(lanes);
            // LANES divides 64, so the eight bits belong to one word.
            finite[first / 64] |= u64::from(!infinite) << (first % 64);
            let mut open = !(infinite | good);
            while open != 0 {
                let lane = open.trailing_zeros() as usize;
                if C::check_record(lanes[lane]).is_err() {
                    return Err(first + lane);
                }
                open &= open - 1;
            }
        }
        Ok(finite)
    }
}
