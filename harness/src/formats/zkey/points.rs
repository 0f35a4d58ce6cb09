//! The point sections: every record is checked when a key is first opened, and its density map made on the way.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rayon::prelude::*;
use splitprover_backend_cpu::Arithmetic;
use splitprover_backend_cpu::curve_check::CurveCheck;
use splitprover_core::point::PointFault;
use splitprover_core::{Bitmap, PointTable};

use crate::formats::error::{FormatResult, Place};

/// Records per parallel piece of work; a multiple of 64, so that pieces fill whole words of the density map.
const PIECE: usize = 4096;

/// Told (bytes done, bytes in all) while points are checked, from any thread.
pub type Progress<'a> = dyn Fn(u64, u64) + Sync + 'a;

/// Counts the bytes of all tables together.
pub(super) struct Meter<'a> {
    pub(super) progress: Option<&'a Progress<'a>>,
    pub(super) done: AtomicU64,
    pub(super) total: u64,
}

impl Meter<'_> {
    fn add(&self, bytes: usize) {
        if let Some(progress) = self.progress {
            let before = self.done.fetch_add(bytes as u64, Ordering::Relaxed);
            progress(before.saturating_add(bytes as u64), self.total);
        }
    }
}

/// Checks every record of a table, which lies at `offset` of the file: coordinates below q, on the curve, and if `deep` in the
/// subgroup. Returns which records aren't infinity.
pub(super) fn check_table<C: CurveCheck>(
    table: &PointTable<C>,
    deep: bool,
    meter: &Meter<'_>,
    place: &Place,
    offset: u64,
) -> FormatResult<Bitmap> {
    // The lowest faulty piece: later ones needn't be looked at, and the same fault is reported every time.
    let faulty = AtomicUsize::new(usize::MAX);
    let piece_bytes = PIECE.saturating_mul(C::BYTES);
    let arithmetic = Arithmetic::detect();
    let pieces: Vec<Result<Vec<u64>, Fault>> = table
        .as_bytes()
        .par_chunks(piece_bytes)
        .enumerate()
        .map(|(piece, bytes)| {
            if faulty.load(Ordering::Relaxed) < piece {
                return Ok(Vec::new());
            }
            let words = check_piece::<C>(arithmetic, bytes, deep).map_err(|Fault { index, fault }| {
                faulty.fetch_min(piece, Ordering::Relaxed);
                Fault { index: piece.saturating_mul(PIECE).saturating_add(index), fault }
            });
            meter.add(bytes.len());
            let first = piece.saturating_mul(PIECE);
            table.wont_need(first..first.saturating_add(PIECE));
            words
        })
        .collect();
    let mut words = Vec::with_capacity(table.len().div_ceil(64));
    for piece in pieces {
        let piece = piece.map_err(|Fault { index, fault }| {
            let at = offset.saturating_add((index as u64).saturating_mul(C::BYTES as u64));
            match fault {
                Some(fault) => {
                    place.unexpected(at, format!("point {index}"), format!("a point of {}", C::GROUP), fault)
                }
                None => place.changed(),
            }
        })?;
        words.extend(piece);
    }
    Bitmap::from_words(words, table.len()).ok_or_else(|| place.changed())
}

/// A faulty record.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    index: usize,
    /// What is wrong with it; `None` if nothing is, on second sight.
    fault: Option<PointFault>,
}

/// Checks some records; bit i of the result says that record i isn't infinity. The first faulty one is reported.
fn check_piece<C: CurveCheck>(arithmetic: Arithmetic, records: &[u8], deep: bool) -> Result<Vec<u64>, Fault> {
    let checked = C::check_records(arithmetic, records);
    if deep {
        let on_curve = checked.as_ref().err().copied().unwrap_or(usize::MAX);
        let outside = records.chunks_exact(C::BYTES).take(on_curve).position(|record| {
            let finite = record.iter().any(|&byte| byte != 0);
            finite && !C::from_record_unchecked(record).in_subgroup()
        });
        if let Some(index) = outside {
            return Err(Fault { index, fault: Some(PointFault::OutsideSubgroup) });
        }
    }
    checked.map_err(|index| {
        let fault = records.chunks_exact(C::BYTES).nth(index).and_then(|record| C::check_record(record).err());
        Fault { index, fault }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use blstrs::G1Affine;
    use group::prime::PrimeCurveAffine;
    use splitprover_core::PointRecord;

    use super::*;

    /// Five points: of which number 1 is infinity, and those of these numbers off the curve or outside the subgroup.
    fn piece(off_curve: Option<usize>, outside: Option<usize>) -> Vec<u8> {
        let torsion = (1u8..).find_map(|x| {
            let mut bytes = [0; 48];
            (bytes[0], bytes[47]) = (0x80, x);
            Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(&bytes))
        });
        let mut records = vec![0; 5 * G1Affine::BYTES];
        for (index, record) in records.chunks_exact_mut(G1Affine::BYTES).enumerate() {
            match index {
                1 => continue,
                _ if Some(index) == outside => torsion.unwrap().write_record(record),
                _ => G1Affine::generator().write_record(record),
            }
            if Some(index) == off_curve {
                record[0] ^= 1;
            }
        }
        records
    }

    #[test]
    fn the_first_fault_of_either_kind_is_reported() {
        let check = |records: &[u8], deep| check_piece::<G1Affine>(Arithmetic::detect(), records, deep);
        let fault = |index, fault| Err(Fault { index, fault: Some(fault) });
        assert_eq!(check(&piece(None, None), true), Ok(vec![0b11101]));
        assert_eq!(check(&piece(None, Some(2)), false), Ok(vec![0b11101]));
        assert_eq!(check(&piece(None, Some(2)), true), fault(2, PointFault::OutsideSubgroup));
        assert_eq!(check(&piece(Some(3), Some(2)), true), fault(2, PointFault::OutsideSubgroup));
        assert_eq!(check(&piece(Some(2), Some(3)), true), fault(2, PointFault::OffCurve));
        assert_eq!(check(&piece(Some(3), Some(2)), false), fault(3, PointFault::OffCurve));
    }
}
