//! Conversions: a key's points as records, in a file of the user's cache or in anonymous memory.
//!
//! A conversion is named by the hash of the contents it was made from, so that copies of a key share one, and a stamp for the
//! key's path says which it is and what the conversion's file looked like when it was written. If both files are as they
//! were, nothing is read but a header. If the stamp doesn't fit, and there is a conversion of the right size, the key's contents are
//! hashed; a conversion of that name is used again once its own hash has been found right. So it is after the machine has been started anew: a conversion isn't waited
//! for until it is on the disk, and a name may outlive a crash that the contents didn't. As with stamps, whoever can write to the user's cache can act as the user.
//!
//! Otherwise the contents are read once: each piece of some thousand points is decoded, checked and hashed, written to the conversion,
//! and hashed as it was written.
//!
//! The file: one page of header (magic; BLAKE3 of the rest of the header; hash of the key file; hash of the records; five counts
//! as u64, little-endian), then the tables H, L, A, B in G1, B in G2, each at a multiple of a page.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use rustix::fs::{MemfdFlags, memfd_create};
use splitprover_core::SharedBytes;

use super::super::container::Section;
use super::super::error::{FormatResult, Place};
use super::super::map::{MappedFile, Residency};
use super::super::output::Temporary;
use super::super::source::FileIdentity;
use super::super::stamp::{Stamp, create_folder};
use super::super::zkey::{OpenOptions, PointsChecked};
use super::layout::{Layout, PAGE};
use super::points::{Contents, Hashes, Unconverted, hash_records};

const MAGIC: [u8; 8] = *b"SPpoint2";
/// Bytes of the header that are used.
const HEADER: usize = 8 + 32 + 32 + 32 + 5 * 8;
/// Bytes that are hashed at a time.
const HASHED: usize = 1 << 20;
/// Bytes of a stamp's payload: the key file's hash, the conversion's identity, and when the machine was started.
const PAYLOAD: usize = 32 + FileIdentity::BYTES + 32;

/// A key's points as records.
pub(super) struct Converted {
    /// The tables, without the header.
    pub(super) points: SharedBytes,
    /// The map that they are a view of.
    pub(super) map: Arc<MappedFile>,
    pub(super) points_checked: PointsChecked,
    /// Why the conversion wasn't kept, or no stamp written.
    pub(super) not_cached: Option<String>,
}

/// A hash of contents: BLAKE3 of the BLAKE3 hashes of pieces of 1 MiB, so that every core can help.
pub(super) fn hash(bytes: &[u8]) -> [u8; 32] {
    let pieces: Vec<[u8; 32]> = bytes.par_chunks(HASHED).map(|piece| blake3::hash(piece).into()).collect();
    blake3::hash(pieces.as_flattened()).into()
}

/// What tells this run of the machine from others; `None` where the system doesn't say.
fn boot() -> Option<[u8; 32]> {
    Some(blake3::hash(&std::fs::read("/proc/sys/kernel/random/boot_id").ok()?).into())
}

/// What a stamp says about a conversion.
fn payload(source: &[u8; 32], conversion: &MappedFile) -> Vec<u8> {
    let identity = conversion.identity().to_bytes();
    source.iter().copied().chain(identity).chain(boot().unwrap_or_default()).collect()
}

fn header(layout: &Layout, source: &[u8; 32], records: &[u8; 32]) -> [u8; HEADER] {
    let counts = layout.tables.iter().flat_map(|table| (table.count as u64).to_le_bytes());
    let rest: Vec<u8> = source.iter().chain(records).copied().chain(counts).collect();
    let checksum: [u8; 32] = blake3::hash(&rest).into();
    let mut header = [0; HEADER];
    let bytes = MAGIC.into_iter().chain(checksum).chain(rest);
    header.iter_mut().zip(bytes).for_each(|(out, byte)| *out = byte);
    header
}

/// A conversion that has been mapped, its header checked.
struct Opened {
    map: Arc<MappedFile>,
    points: SharedBytes,
    /// The hash that the records should have.
    records: [u8; 32],
}

fn open_conversion(path: &Path, layout: &Layout, source: &[u8; 32], residency: Residency) -> Option<Opened> {
    let map = MappedFile::open_for(path, residency).ok()?;
    let bytes = SharedBytes::new(map.clone());
    if bytes.len() != PAGE.checked_add(layout.converted_size)? {
        return None;
    }
    let found = bytes.first_chunk::<HEADER>()?;
    let (_, records) = found.split_first_chunk::<{ 8 + 32 + 32 }>()?;
    let records = *records.first_chunk::<32>()?;
    if *found != header(layout, source, &records) {
        return None;
    }
    let points = bytes.slice(PAGE..bytes.len())?;
    Some(Opened { map, points, records })
}

/// Opens the conversion of a key file, or makes it.
pub(super) fn open(
    folder: &Path,
    path: &Path,
    map: &MappedFile,
    bytes: &[u8],
    layout: &Layout,
    options: OpenOptions<'_>,
) -> FormatResult<Converted> {
    let place = Place::file(path);
    let contents = Contents { bytes, layout, map: Some(map) };
    let sections: Vec<Section> = layout
        .tables
        .iter()
        .map(|table| Section { kind: table.kind, offset: table.source.start as u64, size: table.source.len() as u64 })
        .collect();
    let stamp = Stamp::new(folder, path, map.identity(), &sections);
    let again = !options.recheck && !options.deep;

    let stamped = stamp.as_ref().filter(|_| again).and_then(|stamp| stamp.read_payload(PAYLOAD));
    if let Some(Opened { points, map, .. }) = stamped.and_then(|stamped| {
        let (source, _) = stamped.split_first_chunk::<32>()?;
        let opened = open_conversion(&conversion_path(folder, source), layout, source, options.residency)?;
        (payload(source, &opened.map) == stamped).then_some(opened)
    }) {
        return Ok(Converted { points, map, points_checked: PointsChecked::ByStamp, not_cached: None });
    }

    let put_stamp = |source: &[u8; 32], opened: &Opened| match &stamp {
        Some(stamp) => stamp.write_payload(&payload(source, &opened.map)).err(),
        None => Some("the file has no canonical path".to_owned()),
    };
    if again && has_conversion_of_size(folder, layout) {
        let source = contents.hash().ok_or_else(|| place.changed())?;
        if let Some(opened) = open_conversion(&conversion_path(folder, &source), layout, &source, options.residency)
            && hash_records(&opened.points, layout) == Some(opened.records)
        {
            let not_cached = put_stamp(&source, &opened);
            let Opened { points, map, .. } = opened;
            return Ok(Converted { points, map, points_checked: PointsChecked::ByStamp, not_cached });
        }
    }

    let points_checked = if options.deep { PointsChecked::InSubgroup } else { PointsChecked::OnCurve };
    let kept = match write_conversion(folder, contents, options) {
        Ok(source) => open_conversion(&conversion_path(folder, &source), layout, &source, options.residency)
            .map(|opened| (source, opened))
            .ok_or_else(|| "it can't be read back".to_owned()),
        Err(Unconverted::Write(error)) => Err(error.to_string()),
        Err(faulty) => return Err(faulty.error(&place)),
    };
    match kept {
        Ok((source, opened)) => {
            let not_cached = put_stamp(&source, &opened);
            Ok(Converted { points: opened.points, map: opened.map, points_checked, not_cached })
        }
        Err(reason) => {
            let converted = convert_in_memory(contents, options, &place)?;
            Ok(Converted { not_cached: Some(format!("{}: {reason}", folder.display())), ..converted })
        }
    }
}

fn conversion_path(folder: &Path, source: &[u8; 32]) -> PathBuf {
    folder.join(format!("{}.points", blake3::Hash::from(*source).to_hex()))
}

/// Whether some conversion might be of a file of this layout: if none is, there is no need to know the file's hash beforehand.
fn has_conversion_of_size(folder: &Path, layout: &Layout) -> bool {
    let size = PAGE.saturating_add(layout.converted_size) as u64;
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let named = Path::new(&entry.file_name()).extension().is_some_and(|extension| extension == "points");
        named && entry.metadata().is_ok_and(|metadata| metadata.len() == size)
    })
}

/// Makes a conversion, which appears whole or not at all, and gives the hash of the contents, by which it is named.
fn write_conversion(folder: &Path, contents: Contents<'_>, options: OpenOptions<'_>) -> Result<[u8; 32], Unconverted> {
    create_folder(folder).map_err(Unconverted::Write)?;
    // Of gigabytes, maybe: nothing may be left of it if this process is killed.
    let temporary = Temporary::in_folder(folder, 0o600).map_err(Unconverted::Write)?;
    let file = temporary.file();
    let Hashes { source, records } = write_records(file, PAGE, contents, options)?;
    let keep = || -> io::Result<()> {
        file.write_all_at(&header(contents.layout, &source, &records), 0)?;
        if boot().is_none() { file.sync_data() } else { Ok(()) }
    };
    keep().map_err(Unconverted::Write)?;
    temporary.persist(&conversion_path(folder, &source)).map_err(Unconverted::Write)?;
    Ok(source)
}

/// Sizes a file and writes the converted tables from `base` on.
fn write_records(
    file: &File,
    base: usize,
    contents: Contents<'_>,
    options: OpenOptions<'_>,
) -> Result<Hashes, Unconverted> {
    file.set_len(base.saturating_add(contents.layout.converted_size) as u64).map_err(Unconverted::Write)?;
    contents.convert(options, &|at, records| file.write_all_at(records, at.saturating_add(base as u64)))
}

/// A conversion that lives as long as it is used.
pub(super) fn convert_in_memory(
    contents: Contents<'_>,
    options: OpenOptions<'_>,
    place: &Place,
) -> FormatResult<Converted> {
    let fail = |e| Unconverted::Write(e).error(place);
    let file = memfd_create("splitprover points", MemfdFlags::CLOEXEC).map_err(|e| fail(e.into()))?;
    let file = File::from(file);
    write_records(&file, 0, contents, options).map_err(|e| e.error(place))?;
    let map = MappedFile::anonymous(file, place)?;
    let points_checked = if options.deep { PointsChecked::InSubgroup } else { PointsChecked::OnCurve };
    Ok(Converted { points: SharedBytes::new(map.clone()), map, points_checked, not_cached: None })
}
