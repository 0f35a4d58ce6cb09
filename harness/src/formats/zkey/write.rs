//! Writing a `.zkey`: the sections in snarkjs's order, streamed.

use std::io::{self, Write};
use std::path::Path;

use rayon::prelude::*;
use splitprover_core::key::Storage;
use splitprover_core::{CsrMatrix, HBasis, Matrices, PointRecord, ProvingKey, Query, RootOfUnity};

use crate::formats::error::{FormatResult, Place};
use crate::formats::field::{Q_BYTES, R_BYTES, scalar_to_double_montgomery};
use crate::formats::output::OutputFile;

use super::coefficients::RECORD;
use super::header::{Contributions, DevelopmentMark, MARK_INSECURE, MARK_MONOMIAL, MARK_TEXT_LIMIT, MARK_VERSION};
use super::{FORMAT, kind};

/// Records expanded at a time where a table has to be spread.
const CHUNK: usize = 4096;

/// What goes into a file beside the key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'a> {
    /// Section 10. `None` writes one without contributions: snarkjs's tools want it to be there.
    pub contributions: Option<&'a Contributions>,
    /// The mark of a development key. Its basis is taken from the key.
    pub mark: Option<&'a DevelopmentMark>,
}

/// Writes a key file, which appears whole or not at all.
///
/// A key whose H is in bellman's basis always gets a [mark](DevelopmentMark), without which a reader would take it for
/// snarkjs's.
///
/// # Errors
/// If the key has no matrices, sizes beyond the format's, a domain root that doesn't go with its H basis; if the file can't be
/// written.
pub fn write_zkey(path: &Path, key: &ProvingKey, extras: Extras<'_>) -> FormatResult<()> {
    let file = ZkeyWriter::new(key, extras, &Place::file(path))?;
    let mut output = OutputFile::create(path)?;
    output.fill(|out| file.write(out))?;
    output.commit()
}

/// A key file in memory: what [`write_zkey`] writes.
///
/// # Errors
/// As [`write_zkey`]; `name` stands in messages.
pub fn zkey_to_bytes(name: &Path, key: &ProvingKey, extras: Extras<'_>) -> FormatResult<Vec<u8>> {
    let place = Place::file(name);
    let mut bytes = Vec::new();
    let written = ZkeyWriter::new(key, extras, &place)?.write(&mut bytes);
    written.map_err(|e| place.io("cannot write", e))?;
    Ok(bytes)
}

struct ZkeyWriter<'a> {
    key: &'a ProvingKey,
    matrices: &'a Matrices,
    num_coefficients: u32,
    contributions: Option<&'a Contributions>,
    /// Flags and text.
    mark: Option<(u32, &'a str)>,
}

impl<'a> ZkeyWriter<'a> {
    fn new(key: &'a ProvingKey, extras: Extras<'a>, place: &Place) -> FormatResult<Self> {
        let matrices = key.matrices().ok_or_else(|| place.unexpected(None, "key", "its matrices", "none"))?;
        let entries = matrices.a.num_entries().saturating_add(matrices.b.num_entries());
        let num_coefficients = u32::try_from(entries)
            .map_err(|_| place.unexpected(None, "number of coefficients", "less than 2^32", entries))?;
        let (monomial, root) = match key.h_basis() {
            HBasis::Monomial => (MARK_MONOMIAL, RootOfUnity::bellman()),
            HBasis::OddLagrange => (0, RootOfUnity::snarkjs()),
        };
        if key.domain().root() != root {
            return Err(place.unexpected(None, "root of unity", "the one that goes with the basis of H", "another"));
        }
        let mark = match extras.mark {
            None if monomial == 0 => None,
            None => Some((monomial, "")),
            Some(mark) if mark.text.len() > MARK_TEXT_LIMIT => {
                let expected = format!("at most {MARK_TEXT_LIMIT} bytes");
                return Err(place.unexpected(None, "text of the mark", expected, mark.text.len()));
            }
            Some(mark) => Some((monomial | if mark.insecure { MARK_INSECURE } else { 0 }, mark.text.as_str())),
        };
        Ok(Self { key, matrices, num_coefficients, contributions: extras.contributions, mark })
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let key = self.key;
        out.write_all(&FORMAT.magic)?;
        out.write_all(&FORMAT.version.to_le_bytes())?;
        let sections: u32 = if self.mark.is_some() { 11 } else { 10 };
        out.write_all(&sections.to_le_bytes())?;

        section(out, kind::PROTOCOL, 4)?;
        out.write_all(&1u32.to_le_bytes())?;
        let header = self.header();
        section(out, kind::HEADER, header.len() as u64)?;
        out.write_all(&header)?;
        let ic = key.verifying_key().ic();
        section(out, kind::IC, bytes_of::<blstrs::G1Affine>(ic.len()))?;
        for point in ic {
            write_point(out, point)?;
        }
        let size = u64::from(self.num_coefficients).saturating_mul(RECORD as u64).saturating_add(4);
        section(out, kind::COEFFICIENTS, size)?;
        out.write_all(&self.num_coefficients.to_le_bytes())?;
        write_coefficients(out, self.matrices)?;
        query(out, kind::A, key.a())?;
        query(out, kind::B_G1, key.b_g1())?;
        query(out, kind::B_G2, key.b_g2())?;
        query(out, kind::L, key.l())?;
        query(out, kind::H, key.h())?;
        let none = [0; 68];
        let contributions = self.contributions.map_or(&none[..], |contributions| contributions.bytes());
        section(out, kind::CONTRIBUTIONS, contributions.len() as u64)?;
        out.write_all(contributions)?;
        if let Some((flags, text)) = self.mark {
            section(out, kind::MARK, (text.len() as u64).saturating_add(8))?;
            out.write_all(&MARK_VERSION.to_le_bytes())?;
            out.write_all(&flags.to_le_bytes())?;
            out.write_all(text.as_bytes())?;
        }
        Ok(())
    }

    fn header(&self) -> Vec<u8> {
        let (shape, vk) = (self.key.shape(), self.key.verifying_key());
        let mut bytes = Vec::with_capacity(1024);
        bytes.extend((Q_BYTES.len() as u32).to_le_bytes());
        bytes.extend(Q_BYTES);
        bytes.extend((R_BYTES.len() as u32).to_le_bytes());
        bytes.extend(R_BYTES);
        // `ProvingKey` keeps these below 2^32.
        for size in [shape.num_variables, shape.num_public, shape.domain_size()] {
            bytes.extend((size as u32).to_le_bytes());
        }
        let mut point = |record: &dyn Fn(&mut [u8]), size: usize| {
            let mut buffer = vec![0; size];
            record(&mut buffer);
            bytes.extend(buffer);
        };
        point(&|out| vk.alpha_g1().write_record(out), 96);
        point(&|out| self.key.beta_g1().write_record(out), 96);
        point(&|out| vk.beta_g2().write_record(out), 192);
        point(&|out| vk.gamma_g2().write_record(out), 192);
        point(&|out| self.key.delta_g1().write_record(out), 96);
        point(&|out| vk.delta_g2().write_record(out), 192);
        bytes
    }
}

fn section(out: &mut dyn Write, kind: u32, size: u64) -> io::Result<()> {
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&size.to_le_bytes())
}

fn bytes_of<C: PointRecord>(count: usize) -> u64 {
    (count as u64).saturating_mul(C::BYTES as u64)
}

fn write_point<C: PointRecord>(out: &mut dyn Write, point: &C) -> io::Result<()> {
    let mut record = vec![0; C::BYTES];
    point.write_record(&mut record);
    out.write_all(&record)
}

/// A record for each variable, infinity where it isn't dense.
fn query<C: PointRecord>(out: &mut dyn Write, kind: u32, query: &Query<C>) -> io::Result<()> {
    section(out, kind, bytes_of::<C>(query.num_variables()))?;
    let (Some(density), Storage::Compact) = (query.density(), query.storage()) else {
        return out.write_all(query.table().as_bytes());
    };
    let mut records = query.table().as_bytes().chunks_exact(C::BYTES);
    let infinity = vec![0; C::BYTES];
    let mut dense = density.iter_ones().peekable();
    for variable in 0..query.num_variables() {
        let record = match dense.next_if_eq(&variable) {
            Some(_) => records.next().unwrap_or(&infinity),
            None => &infinity,
        };
        out.write_all(record)?;
    }
    Ok(())
}

/// Row by row, A's entries then B's, as snarkjs writes them.
fn write_coefficients(out: &mut dyn Write, matrices: &Matrices) -> io::Result<()> {
    let encode = |matrix: &CsrMatrix| -> Vec<[u8; 32]> {
        matrix.dictionary().par_iter().map(|value| scalar_to_double_montgomery(*value)).collect()
    };
    let (a, b) = (encode(&matrices.a), encode(&matrices.b));
    let mut chunk = Vec::with_capacity(CHUNK.saturating_mul(RECORD));
    for row in 0..matrices.a.num_rows() {
        for (index, matrix, dictionary) in [(0u32, &matrices.a, &a), (1, &matrices.b, &b)] {
            for (column, coefficient) in row_of(matrix, row) {
                chunk.extend(index.to_le_bytes());
                chunk.extend((row as u32).to_le_bytes());
                chunk.extend(column.to_le_bytes());
                chunk.extend(dictionary.get(*coefficient as usize).copied().unwrap_or_default());
            }
        }
        if chunk.len() >= CHUNK.saturating_mul(RECORD) {
            out.write_all(&chunk)?;
            chunk.clear();
        }
    }
    out.write_all(&chunk)
}

fn row_of(matrix: &CsrMatrix, row: usize) -> impl Iterator<Item = (&u32, &u32)> {
    let range = match matrix.row_offsets().get(row..row.saturating_add(2)) {
        Some(&[from, to]) => from as usize..to as usize,
        _ => 0..0,
    };
    let columns = matrix.columns().get(range.clone()).unwrap_or_default();
    columns.iter().zip(matrix.coefficients().get(range).unwrap_or_default())
}
