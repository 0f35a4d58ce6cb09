//! The point sections: every record is checked when a key is first opened, and its density map made on the way.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rayon::prelude::*;
use splitprover_core::point::PointFault;
use splitprover_core::{Bitmap, PointRecord, PointTable};

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

/// A fault, by the record's index.
struct Fault {
    index: usize,
    fault: PointFault,
}

/// Checks every record of a table, which lies at `offset` of the file: coordinates below q, on the curve, and if `deep` in the
/// subgroup. Returns which records aren't infinity.
pub(super) fn check_table<C: PointRecord>(
    table: &PointTable<C>,
    deep: bool,
    meter: &Meter<'_>,
    place: &Place,
    offset: u64,
) -> FormatResult<Bitmap> {
    // The lowest faulty piece: later ones needn't be looked at, and the same fault is reported every time.
    let faulty = AtomicUsize::new(usize::MAX);
    let piece_bytes = PIECE.saturating_mul(C::BYTES);
    let pieces: Vec<Result<Vec<u64>, Fault>> = table
        .as_bytes()
        .par_chunks(piece_bytes)
        .enumerate()
        .map(|(piece, bytes)| {
            if faulty.load(Ordering::Relaxed) < piece {
                return Ok(Vec::new());
            }
            let first = piece.saturating_mul(PIECE);
            let words = bytes
                .chunks(C::BYTES.saturating_mul(64))
                .enumerate()
                .map(|(word, bytes)| {
                    density_word::<C>(bytes, deep).map_err(|(bit, fault)| {
                        faulty.fetch_min(piece, Ordering::Relaxed);
                        Fault { index: first.saturating_add(word.saturating_mul(64)).saturating_add(bit), fault }
                    })
                })
                .collect();
            meter.add(bytes.len());
            words
        })
        .collect();
    let mut words = Vec::with_capacity(table.len().div_ceil(64));
    for piece in pieces {
        let piece = piece.map_err(|Fault { index, fault }| {
            let at = offset.saturating_add((index as u64).saturating_mul(C::BYTES as u64));
            place.unexpected(at, format!("point {index}"), format!("a point of {}", C::GROUP), fault)
        })?;
        words.extend(piece);
    }
    Bitmap::from_words(words, table.len()).ok_or_else(|| place.changed())
}

/// Checks up to 64 records; bit i of the result says that record i isn't infinity.
fn density_word<C: PointRecord>(records: &[u8], deep: bool) -> Result<u64, (usize, PointFault)> {
    let mut word = 0;
    for (bit, record) in records.chunks_exact(C::BYTES).enumerate() {
        if record.iter().all(|&byte| byte == 0) {
            continue;
        }
        word |= 1u64.wrapping_shl(bit as u32);
        C::check_record(record).map_err(|fault| (bit, fault))?;
        if deep && !C::from_record_unchecked(record).in_subgroup() {
            return Err((bit, PointFault::OutsideSubgroup));
        }
    }
    Ok(word)
}
