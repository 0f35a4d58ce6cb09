//! bellman's proofs: A ‖ B ‖ C in zcash's compressed encoding, 192 bytes, and several of them one after the other, as Filecoin
//! keeps the partitions of a proof.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use splitprover_core::Proof;

use super::error::{FormatResult, Place};
use super::source::{FileSource, Source};

/// Files of more proofs are refused.
const MAX_PROOFS: usize = 1 << 20;

/// Whether a file begins as such a proof does: with the flag of a compressed point, which no text has.
pub fn is_compact(path: &Path) -> bool {
    let mut first = [0];
    let is_file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    is_file && File::open(path).is_ok_and(|mut file| file.read_exact(&mut first).is_ok()) && first >= [0x80]
}

/// Reads one or more proofs. Their points are in the subgroup.
///
/// # Errors
/// [`FormatError`](super::FormatError) names the first point that isn't as it should be.
pub fn read_proofs(path: &Path) -> FormatResult<Vec<Proof>> {
    let place = Place::file(path);
    let source = FileSource::open(&place, path)?;
    let size = usize::try_from(check_size(&place, source.size())?).map_err(|_| place.changed())?;
    let mut bytes = vec![0; size];
    source.read_at(&mut bytes, 0).map_err(|e| place.read_failed(e))?;
    source.check_unchanged(&place)?;
    read(&place, &bytes)
}

/// Reads one or more proofs from memory. `name` stands in messages.
///
/// # Errors
/// As [`read_proofs`].
pub fn proofs_from_bytes(name: &Path, bytes: &[u8]) -> FormatResult<Vec<Proof>> {
    let place = Place::file(name);
    check_size(&place, bytes.len() as u64)?;
    read(&place, bytes)
}

fn check_size(place: &Place, size: u64) -> FormatResult<u64> {
    let each = Proof::BYTES as u64;
    let most = each.saturating_mul(MAX_PROOFS as u64);
    if size == 0 || !size.is_multiple_of(each) || size > most {
        let expected = format!("a multiple of {each} bytes, and at most {MAX_PROOFS} proofs");
        return Err(place.unexpected(None, "file size", expected, size));
    }
    Ok(size)
}

fn read(place: &Place, bytes: &[u8]) -> FormatResult<Vec<Proof>> {
    let (proofs, _) = bytes.as_chunks::<{ Proof::BYTES }>();
    proofs
        .iter()
        .zip(0u64..)
        .map(|(bytes, index)| {
            let at = index.saturating_mul(Proof::BYTES as u64);
            Proof::from_bytes(bytes).map_err(|e| {
                let into = match e.point {
                    "A" => 0,
                    "B" => 48,
                    _ => 144,
                };
                let what = format!("proof {index}, point {}", e.point);
                place.unexpected(at.saturating_add(into), what, "a compressed point of the subgroup", e.fault)
            })
        })
        .collect()
}
