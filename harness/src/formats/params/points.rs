//! From encoded points to records, and back: every point is decoded and checked once, in parallel.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use blstrs::{G1Affine, G2Affine};
use rayon::prelude::*;
use splitprover_core::PointRecord;
use splitprover_core::point::{FP_BYTES, PointFault};

use super::super::error::{FormatError, Place};
use super::super::field::Q_BYTES;
use super::super::zkey::OpenOptions;
use super::layout::{Layout, Table};
use super::{is_infinity, kind};

/// Points per parallel piece of work.
const PIECE: usize = 4096;

/// The flags of zcash's encoding, in a point's first byte.
const COMPRESSED: u8 = 0x80;
const INFINITY: u8 = 0x40;
const SIGN: u8 = 0x20;

/// What is wrong with an encoded point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A flag that an uncompressed, finite point doesn't have.
    Flag(&'static str),
    Point(PointFault),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "the flag for {flag} points"),
            Self::Point(fault) => fault.fmt(f),
        }
    }
}

/// A point with zcash's uncompressed encoding, which is as long as its record.
pub(super) trait Encoding: PointRecord {
    /// Decodes; `None` unless coordinates are below q and the point on the curve. Flags have been looked at.
    fn from_uncompressed_bytes(bytes: &[u8]) -> Option<Self>;
    /// Encodes into [`BYTES`](PointRecord::BYTES) bytes.
    fn put_uncompressed(&self, out: &mut Vec<u8>);
}

impl Encoding for G1Affine {
    fn from_uncompressed_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().and_then(|bytes| Self::from_uncompressed_unchecked(bytes).into())
    }

    fn put_uncompressed(&self, out: &mut Vec<u8>) {
        out.extend(self.to_uncompressed());
    }
}

impl Encoding for G2Affine {
    fn from_uncompressed_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().and_then(|bytes| Self::from_uncompressed_unchecked(bytes).into())
    }

    fn put_uncompressed(&self, out: &mut Vec<u8>) {
        out.extend(self.to_uncompressed());
    }
}

/// Decodes a point that must be finite and on the curve.
pub(super) fn decode<C: Encoding>(bytes: &[u8]) -> Result<C, Fault> {
    let flags = bytes.first().copied().unwrap_or_default();
    for (flag, name) in [(COMPRESSED, "compressed"), (INFINITY, "infinite"), (SIGN, "negative")] {
        if flags & flag != 0 {
            return Err(Fault::Flag(name));
        }
    }
    match C::from_uncompressed_bytes(bytes) {
        Some(point) if is_infinity(&point) => Err(Fault::Point(PointFault::Infinity)),
        Some(point) => Ok(point),
        None => {
            let reduced = |bytes: &[u8]| bytes.iter().lt(Q_BYTES.iter().rev());
            let fault = match bytes.chunks_exact(FP_BYTES).all(reduced) {
                true => PointFault::OffCurve,
                false => PointFault::CoordinateRange,
            };
            Err(Fault::Point(fault))
        }
    }
}

/// Decodes points into records of the same number; the index of the first that is faulty, and its fault.
fn convert<C: Encoding>(source: &[u8], records: &mut [u8], deep: bool) -> Result<(), (usize, Fault)> {
    let pairs = source.chunks_exact(C::BYTES).zip(records.chunks_exact_mut(C::BYTES));
    for (index, (encoded, record)) in pairs.enumerate() {
        let point: C = decode(encoded).map_err(|fault| (index, fault))?;
        if deep && !point.in_subgroup() {
            return Err((index, Fault::Point(PointFault::OutsideSubgroup)));
        }
        point.write_record(record);
    }
    Ok(())
}

/// A part of a table that one task converts.
struct Piece<'a> {
    table: &'a Table,
    /// Number of its first point.
    first: usize,
    /// Where its points lie in the file.
    source: Range<usize>,
    /// Where its records go.
    target: usize,
}

fn pieces(layout: &Layout) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    for table in &layout.tables {
        for first in (0..table.count).step_by(PIECE) {
            let begin = first.saturating_mul(table.point);
            let end = first.saturating_add(PIECE).min(table.count).saturating_mul(table.point);
            pieces.push(Piece {
                table,
                first,
                source: table.source.start.saturating_add(begin)..table.source.start.saturating_add(end),
                target: table.target.saturating_add(begin),
            });
        }
    }
    pieces
}

/// Why a conversion didn't come about.
pub(super) enum Unconverted {
    /// A point is faulty: piece number, section, offset in the file, point number, fault.
    Faulty { piece: usize, kind: u32, offset: u64, index: usize, fault: Fault },
    /// The records couldn't be written.
    Write(io::Error),
    /// The file isn't as long as it was.
    Shorter,
}

/// Converts all tables of a file, handing the records to `write` in pieces, with where they go. The first fault in the file's
/// order is the one that is reported.
pub(super) fn convert_all(
    bytes: &[u8],
    layout: &Layout,
    options: OpenOptions<'_>,
    write: &(dyn Fn(u64, &[u8]) -> io::Result<()> + Sync),
) -> Result<(), Unconverted> {
    let done = AtomicU64::new(0);
    let total = layout.tables.iter().fold(0u64, |sum, table| sum.saturating_add(table.source.len() as u64));
    // The lowest faulty piece: later ones needn't be looked at.
    let faulty = AtomicUsize::new(usize::MAX);
    let failures: Vec<Unconverted> = pieces(layout)
        .into_par_iter()
        .enumerate()
        .filter_map(|(number, piece)| {
            if faulty.load(Ordering::Relaxed) < number {
                return None;
            }
            let Some(source) = bytes.get(piece.source.clone()) else { return Some(Unconverted::Shorter) };
            let mut records = vec![0; source.len()];
            let converted = match piece.table.kind {
                kind::B_G2 => convert::<G2Affine>(source, &mut records, options.deep),
                _ => convert::<G1Affine>(source, &mut records, options.deep),
            };
            if let Err((index, fault)) = converted {
                faulty.fetch_min(number, Ordering::Relaxed);
                let into = index.saturating_mul(piece.table.point);
                let offset = piece.source.start.saturating_add(into) as u64;
                let index = piece.first.saturating_add(index);
                return Some(Unconverted::Faulty { piece: number, kind: piece.table.kind, offset, index, fault });
            }
            if let Err(error) = write(piece.target as u64, &records) {
                faulty.store(0, Ordering::Relaxed);
                return Some(Unconverted::Write(error));
            }
            if let Some(progress) = options.progress {
                let before = done.fetch_add(source.len() as u64, Ordering::Relaxed);
                progress(before.saturating_add(source.len() as u64), total);
            }
            None
        })
        .collect();
    let order = |failure: &Unconverted| match failure {
        Unconverted::Faulty { piece, .. } => *piece,
        Unconverted::Shorter => usize::MAX.saturating_sub(1),
        Unconverted::Write(_) => usize::MAX,
    };
    failures.into_iter().min_by_key(order).map_or(Ok(()), Err)
}

impl Unconverted {
    /// The error of a file that can't be converted.
    pub(super) fn error(self, place: &Place) -> FormatError {
        match self {
            Self::Faulty { kind, offset, index, fault, .. } => {
                let group = if kind == kind::B_G2 { G2Affine::GROUP } else { G1Affine::GROUP };
                let expected = format!("a point of {group}, uncompressed and not infinity");
                let place = place.section(kind, kind::name(kind));
                place.unexpected(offset, format!("point {index}"), expected, fault)
            }
            Self::Write(error) => place.io("cannot keep its points in memory", error),
            Self::Shorter => place.changed(),
        }
    }
}

/// The encoding of records, as many as there are.
pub(super) fn encode_records<C: Encoding>(records: &[u8]) -> Vec<u8> {
    let pieces: Vec<Vec<u8>> = records
        .par_chunks(C::BYTES.saturating_mul(64))
        .map(|records| {
            let mut out = Vec::with_capacity(records.len());
            records
                .chunks_exact(C::BYTES)
                .for_each(|record| C::from_record_unchecked(record).put_uncompressed(&mut out));
            out
        })
        .collect();
    pieces.concat()
}
