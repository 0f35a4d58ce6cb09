//! From encoded points to records, and back: every point is decoded, checked and hashed once, in parallel, piece by piece while the
//! piece is in the processor's cache.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use blstrs::{G1Affine, G2Affine};
use rayon::prelude::*;
use splitprover_backend_cpu::Arithmetic;
use splitprover_backend_cpu::decode::BigEndian;
use splitprover_core::point::{FP_BYTES, PointFault};
use splitprover_core::{PointRecord, SharedBytes};

use super::super::error::{FormatError, Place};
use super::super::field::Q_BYTES;
use super::super::map::MappedFile;
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
pub(super) trait Encoding: BigEndian {
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
fn convert<C: Encoding>(
    arithmetic: Arithmetic,
    source: &[u8],
    records: &mut [u8],
    deep: bool,
) -> Result<(), (usize, Fault)> {
    let mut fault = None;
    let mut one = |encoded: &[u8], record: &mut [u8]| match decode::<C>(encoded) {
        Ok(point) => {
            point.write_record(record);
            true
        }
        Err(found) => {
            fault = Some(found);
            false
        }
    };
    let decoded = C::decode_records(arithmetic, source, records, &mut one);
    if deep {
        let sound = decoded.err().unwrap_or(usize::MAX);
        let mut points = records.chunks_exact(C::BYTES).take(sound).map(C::from_record_unchecked);
        if let Some(index) = points.position(|point| !point.in_subgroup()) {
            return Err((index, Fault::Point(PointFault::OutsideSubgroup)));
        }
    }
    decoded.map_err(|index| (index, fault.unwrap_or(Fault::Point(PointFault::OffCurve))))
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

/// A file's contents, to be converted or hashed.
#[derive(Clone, Copy)]
pub(super) struct Contents<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) layout: &'a Layout,
    /// Where the bytes are mapped from: pages that have been read are let go of.
    pub(super) map: Option<&'a MappedFile>,
}

/// Hashes of a file's contents and of the records they became.
pub(super) struct Hashes {
    pub(super) source: [u8; 32],
    pub(super) records: [u8; 32],
}

impl Contents<'_> {
    /// The bytes of a piece, and what to do when they have been read.
    fn read<T>(&self, piece: &Piece<'_>, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let result = read(self.bytes.get(piece.source.clone())?);
        if let Some(map) = self.map {
            map.let_go(piece.source.clone());
        }
        Some(result)
    }

    /// The hash of the contents: of everything before the tables, of their counts, and of the pieces' hashes.
    fn hash_of(&self, pieces: &[[u8; 32]]) -> [u8; 32] {
        let [first, ..] = &self.layout.tables;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(first.source.start as u64).to_le_bytes());
        hasher.update(self.bytes.get(..first.source.start).unwrap_or_default());
        for table in &self.layout.tables {
            hasher.update(&(table.count as u64).to_le_bytes());
        }
        hasher.update(pieces.as_flattened());
        hasher.finalize().into()
    }

    /// The hash of the contents, without converting them. `None` if the file isn't as long as it was.
    pub(super) fn hash(&self) -> Option<[u8; 32]> {
        let pieces = pieces(self.layout);
        let hashes: Option<Vec<[u8; 32]>> =
            pieces.par_iter().map(|piece| self.read(piece, |bytes| blake3::hash(bytes).into())).collect();
        Some(self.hash_of(&hashes?))
    }

    /// Converts all tables, handing the records to `write` in pieces, with where they go. The first fault in the file's
    /// order is the one that is reported.
    pub(super) fn convert(
        &self,
        options: OpenOptions<'_>,
        write: &(dyn Fn(u64, &[u8]) -> io::Result<()> + Sync),
    ) -> Result<Hashes, Unconverted> {
        let done = AtomicU64::new(0);
        let total = self.layout.tables.iter().fold(0u64, |sum, table| sum.saturating_add(table.source.len() as u64));
        // The lowest faulty piece: later ones needn't be looked at.
        let faulty = AtomicUsize::new(usize::MAX);
        let arithmetic = Arithmetic::detect();
        // As many buffers as there are threads at work.
        let buffers: Mutex<Vec<Vec<u8>>> = Mutex::default();
        let buffers = || buffers.lock().unwrap_or_else(PoisonError::into_inner);
        // `None`: not looked at.
        let hashes: Vec<Option<Result<[[u8; 32]; 2], Unconverted>>> = pieces(self.layout)
            .into_par_iter()
            .enumerate()
            .map(|(number, piece)| {
                if faulty.load(Ordering::Relaxed) < number {
                    return None;
                }
                let mut records = buffers().pop().unwrap_or_default();
                records.resize(piece.source.len(), 0);
                let read = self.read(&piece, |source| {
                    let converted = match piece.table.kind {
                        kind::B_G2 => convert::<G2Affine>(arithmetic, source, &mut records, options.deep),
                        _ => convert::<G1Affine>(arithmetic, source, &mut records, options.deep),
                    };
                    converted.map(|()| blake3::hash(source).into())
                });
                let result = match read {
                    None => Err(Unconverted::Shorter),
                    Some(Err((index, fault))) => {
                        let into = index.saturating_mul(piece.table.point);
                        let offset = piece.source.start.saturating_add(into) as u64;
                        let index = piece.first.saturating_add(index);
                        Err(Unconverted::Faulty { piece: number, kind: piece.table.kind, offset, index, fault })
                    }
                    Some(Ok(source)) => match write(piece.target as u64, &records) {
                        Ok(()) => Ok([source, blake3::hash(&records).into()]),
                        Err(error) => Err(Unconverted::Write(error)),
                    },
                };
                match &result {
                    Err(Unconverted::Write(_)) => faulty.store(0, Ordering::Relaxed),
                    Err(_) => _ = faulty.fetch_min(number, Ordering::Relaxed),
                    Ok(_) => {
                        if let Some(progress) = options.progress {
                            let bytes = piece.source.len() as u64;
                            progress(done.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes), total);
                        }
                    }
                }
                buffers().push(records);
                Some(result)
            })
            .collect();
        let order = |failure: &Unconverted| match failure {
            Unconverted::Faulty { piece, .. } => *piece,
            Unconverted::Shorter => usize::MAX.saturating_sub(1),
            Unconverted::Write(_) => usize::MAX,
        };
        let (mut source, mut records, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for result in hashes.into_iter().flatten() {
            match result {
                Ok([of_source, of_records]) => {
                    source.push(of_source);
                    records.push(of_records);
                }
                Err(failure) => failures.push(failure),
            }
        }
        match failures.into_iter().min_by_key(order) {
            Some(failure) => Err(failure),
            None => Ok(Hashes { source: self.hash_of(&source), records: blake3::hash(records.as_flattened()).into() }),
        }
    }
}

/// The hash of converted records, as [`Contents::convert`] gives it. `None` if there are fewer.
pub(super) fn hash_records(points: &SharedBytes, layout: &Layout) -> Option<[u8; 32]> {
    let hashes: Option<Vec<[u8; 32]>> = pieces(layout)
        .par_iter()
        .map(|piece| {
            let records = points.slice(piece.target..piece.target.checked_add(piece.source.len())?)?;
            let hash = blake3::hash(&records).into();
            records.wont_need();
            Some(hash)
        })
        .collect();
    Some(blake3::hash(hashes?.as_flattened()).into())
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
