//! bellman's proofs: A ‖ B ‖ C in zcash's compressed encoding, 192 bytes, and several of them one after the other, as Filecoin
//! keeps the partitions of a proof.

use std::path::Path;

use splitprover_core::Proof;

use super::error::{FormatResult, Place};
use super::source::{FileSource, Source, first_bytes};

/// Files of more proofs are refused.
const MAX_PROOFS: usize = 1 << 20;

/// Bytes that are read at a time: whole proofs.
const PIECE: usize = Proof::BYTES * 1024;

/// Whether a file begins as such a proof does: with the flag of a compressed point, which no text has.
pub fn is_compact(path: &Path) -> bool {
    first_bytes(path).is_some_and(|[first]| first >= 0x80)
}

/// Reads one or more proofs. Their points are in the subgroup.
///
/// # Errors
/// [`FormatError`](super::FormatError) names the first point that isn't as it should be.
pub fn read_proofs(path: &Path) -> FormatResult<Vec<Proof>> {
    let place = Place::file(path);
    let source = FileSource::open(&place, path)?;
    let size = check_size(&place, source.size())?;
    // Piece by piece: a file that is large and bad is refused before it is in memory.
    let (mut proofs, mut bytes, mut at) = (Vec::new(), Vec::new(), 0);
    while at < size {
        let piece = size.saturating_sub(at).min(PIECE as u64);
        bytes.resize(usize::try_from(piece).map_err(|_| place.changed())?, 0);
        source.read_at(&mut bytes, at).map_err(|e| place.read_failed(e))?;
        read(&place, &bytes, &mut proofs)?;
        at = at.saturating_add(piece);
    }
    source.check_unchanged(&place)?;
    Ok(proofs)
}

/// Reads one or more proofs from memory. `name` stands in messages.
///
/// # Errors
/// As [`read_proofs`].
pub fn proofs_from_bytes(name: &Path, bytes: &[u8]) -> FormatResult<Vec<Proof>> {
    let place = Place::file(name);
    check_size(&place, bytes.len() as u64)?;
    let mut proofs = Vec::new();
    read(&place, bytes, &mut proofs)?;
    Ok(proofs)
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

/// Reads the proofs that follow those that have been read.
fn read(place: &Place, bytes: &[u8], proofs: &mut Vec<Proof>) -> FormatResult<()> {
    let (encoded, _) = bytes.as_chunks::<{ Proof::BYTES }>();
    for bytes in encoded {
        let index = proofs.len() as u64;
        let proof = Proof::from_bytes(bytes).map_err(|e| {
            let into = match e.point {
                "A" => 0,
                "B" => 48,
                _ => 144,
            };
            let at = index.saturating_mul(Proof::BYTES as u64).saturating_add(into);
            let what = format!("proof {index}, point {}", e.point);
            place.unexpected(at, what, "a compressed point of the subgroup", e.fault)
        })?;
        proofs.push(proof);
    }
    Ok(())
}
