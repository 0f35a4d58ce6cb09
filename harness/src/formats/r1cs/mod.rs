//! circom's `.r1cs`: the constraints A·w ∘ B·w = C·w of a circuit.
//!
//! | section | what |
//! |---|---|
//! | 1 | prime, numbers of wires, outputs, inputs, labels, constraints |
//! | 2 | for each constraint three linear combinations: u32 count, then (u32 wire, 32 plain bytes) |
//! | 3 | a label for each wire; not needed to prove |
//!
//! Wire 0 is the constant 1; outputs and public inputs follow. The file is mapped, and looked at whole when it is opened: after
//! that the constraints can be iterated over without errors. (One that changes after that gives fewer or other constraints;
//! [`R1csFile::check_unchanged`] tells.)

mod write;

use std::path::Path;
use std::sync::Arc;

use blstrs::Scalar;
use ff::Field;
use rayon::prelude::*;
use splitprover_core::{CsrMatrix, SharedBytes};

use super::container::{Container, Cursor, Format, Section};
use super::error::{FormatResult, Place};
use super::field::{R_BYTES, is_below, limbs, scalar_from_plain};
use super::json::scalar_text;
use super::map::MappedFile;
use super::zkey::check_prime;

pub use write::{r1cs_to_bytes, write_r1cs};

const HEADER: u32 = 1;
const CONSTRAINTS: u32 = 2;
const LABELS: u32 = 3;
const CUSTOM_GATES: u32 = 4;
const CUSTOM_GATE_USES: u32 = 5;

/// Bytes of a term: wire and coefficient.
const TERM: usize = 36;
/// Bytes of a label.
const LABEL: usize = 8;
/// Bytes of section 1.
const HEADER_BYTES: u64 = 64;
/// Constraints per parallel piece of work.
const BLOCK: usize = 1024;

static FORMAT: Format = Format {
    magic: *b"r1cs",
    version: 1,
    sections: &[
        (HEADER, "header"),
        (CONSTRAINTS, "constraints"),
        (LABELS, "labels"),
        (CUSTOM_GATES, "custom gates"),
        (CUSTOM_GATE_USES, "uses of custom gates"),
    ],
};

/// The sizes that section 1 gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R1csHeader {
    /// All wires, with the constant 1 as wire 0.
    pub num_wires: u32,
    /// Public outputs: wires 1 ..= `num_outputs`.
    pub num_outputs: u32,
    /// Public inputs: the wires after the outputs.
    pub num_public_inputs: u32,
    /// Private inputs of the source. The compiler may have dropped some from the wires.
    pub num_private_inputs: u32,
    /// Signals of the source.
    pub num_labels: u64,
    /// Constraints.
    pub num_constraints: u32,
}

impl R1csHeader {
    /// Outputs and public inputs together: what a verifier sees.
    pub fn num_public(&self) -> usize {
        (self.num_outputs as usize).saturating_add(self.num_public_inputs as usize)
    }
}

/// One of the three linear combinations of a constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Left factor.
    A,
    /// Right factor.
    B,
    /// Product.
    C,
}

/// A linear combination, as it lies in the file.
#[derive(Clone, Copy, Debug)]
pub struct Combination<'a>(&'a [[u8; TERM]]);

impl<'a> Combination<'a> {
    /// (wire, coefficient) of each term. A wire may come more than once; its terms add up.
    pub fn terms(self) -> impl Iterator<Item = (u32, Scalar)> + 'a {
        self.0.iter().map(|term| {
            let (wire, value) = split_term(term);
            // Checked when the file was opened.
            (wire, scalar_from_plain(value).unwrap_or(Scalar::ZERO))
        })
    }

    /// The value for an assignment; wires beyond it count as zero.
    #[allow(clippy::arithmetic_side_effects, reason = "field arithmetic can't overflow")]
    fn value(self, witness: &[Scalar]) -> Scalar {
        self.terms().fold(Scalar::ZERO, |sum, (wire, coefficient)| match witness.get(wire as usize) {
            Some(value) if coefficient == Scalar::ONE => sum + value,
            Some(value) => sum + *value * coefficient,
            None => sum,
        })
    }
}

fn split_term(term: &[u8; TERM]) -> (u32, &[u8; 32]) {
    let [w0, w1, w2, w3, value @ ..] = term;
    (u32::from_le_bytes([*w0, *w1, *w2, *w3]), value)
}

/// A constraint A·w ∘ B·w = C·w.
#[derive(Clone, Copy, Debug)]
pub struct Constraint<'a> {
    /// Left factor.
    pub a: Combination<'a>,
    /// Right factor.
    pub b: Combination<'a>,
    /// Product.
    pub c: Combination<'a>,
}

impl<'a> Constraint<'a> {
    /// One of the three.
    pub fn side(&self, side: Side) -> Combination<'a> {
        match side {
            Side::A => self.a,
            Side::B => self.b,
            Side::C => self.c,
        }
    }
}

/// A constraint that an assignment breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenConstraint {
    /// Its index, from 0.
    pub index: usize,
    /// A·w.
    pub a: Scalar,
    /// B·w.
    pub b: Scalar,
    /// C·w, which isn't `a`·`b`.
    pub c: Scalar,
}

impl std::fmt::Display for BrokenConstraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { index, a, b, c } = self;
        let (a, b, c) = (scalar_text(a), scalar_text(b), scalar_text(c));
        write!(f, "constraint {index} is broken: ({a}) * ({b}) is not {c}")
    }
}

/// An opened `.r1cs`.
#[derive(Debug)]
pub struct R1csFile {
    header: R1csHeader,
    /// Section 2.
    constraints: SharedBytes,
    /// Where every [`BLOCK`]-th constraint begins in it.
    blocks: Vec<usize>,
    /// Section 3, where there is one.
    labels: Option<SharedBytes>,
    map: Option<Arc<MappedFile>>,
}

impl R1csFile {
    /// Maps and checks a constraint system.
    ///
    /// # Errors
    /// [`FormatError`](super::FormatError) says where the file isn't as it should be.
    pub fn open(path: &Path) -> FormatResult<Self> {
        let map = MappedFile::open(path)?;
        let mut file = map.unless_changed(Self::read(path, SharedBytes::new(map.clone())))?;
        file.map = Some(map);
        Ok(file)
    }

    /// Reads a constraint system from memory. `name` stands in messages.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(name: &Path, bytes: impl Into<SharedBytes>) -> FormatResult<Self> {
        Self::read(name, bytes.into())
    }

    fn read(path: &Path, bytes: SharedBytes) -> FormatResult<Self> {
        let place = Place::file(path);
        let container = Container::read(&*bytes, &FORMAT, &place)?;
        let header = read_header(&container, &bytes)?;
        // Whoever uses the constraints has something for each wire. Labels alone are eight bytes a wire; a file without them
        // has terms, but for the wires that occur nowhere.
        if u64::from(header.num_wires) > bytes.len() as u64 {
            let place = container.place(HEADER);
            let expected = format!("at most as many as the file has bytes, {}", bytes.len());
            return Err(place.unexpected(None, "number of wires", expected, header.num_wires));
        }
        for kind in [CUSTOM_GATES, CUSTOM_GATE_USES] {
            refuse_custom_gates(&container, &bytes, kind)?;
        }
        let section = container.section(CONSTRAINTS)?;
        let place = container.place(CONSTRAINTS);
        let constraints = slice(&bytes, section, &place)?;
        let blocks = index_blocks(&constraints, section, header.num_constraints, &place)?;
        let faults: Vec<_> =
            blocks.par_iter().filter_map(|&at| check_block(&constraints, at, section, header, &place).err()).collect();
        if let Some(fault) = faults.into_iter().next() {
            return Err(fault);
        }
        let labels = read_labels(&container, &bytes, header)?;
        Ok(Self { header, constraints, blocks, labels, map: None })
    }

    /// The sizes.
    pub fn header(&self) -> R1csHeader {
        self.header
    }

    /// The label of each wire, where the file has them.
    pub fn labels(&self) -> Option<Vec<u64>> {
        let (labels, _) = self.labels.as_ref()?.as_chunks::<LABEL>();
        Some(labels.iter().map(|label| u64::from_le_bytes(*label)).collect())
    }

    /// Fails if the file has changed since it was opened. A system in memory doesn't change.
    ///
    /// # Errors
    /// [`Problem::Changed`](super::Problem::Changed).
    pub fn check_unchanged(&self) -> FormatResult<()> {
        self.map.as_ref().map_or(Ok(()), |map| map.check_unchanged())
    }

    /// The constraints from the block number `block` on.
    fn block_onwards(&self, block: usize) -> impl Iterator<Item = Constraint<'_>> {
        let at = self.blocks.get(block).copied().unwrap_or(self.constraints.len());
        let mut rest = self.constraints.get(at..).unwrap_or_default();
        let left = (self.header.num_constraints as usize).saturating_sub(block.saturating_mul(BLOCK));
        (0..left).map_while(move |_| next_constraint(&mut rest))
    }

    /// The constraints.
    pub fn constraints(&self) -> impl Iterator<Item = Constraint<'_>> {
        self.block_onwards(0)
    }

    /// The entries of a matrix, (constraint, wire, coefficient), constraint by constraint.
    pub fn entries(&self, side: Side) -> impl Iterator<Item = (u32, u32, Scalar)> + '_ {
        (0u32..).zip(self.constraints()).flat_map(move |(row, constraint)| {
            constraint.side(side).terms().map(move |(wire, coefficient)| (row, wire, coefficient))
        })
    }

    /// The matrices A, B and C.
    ///
    /// # Errors
    /// If there are 2^32 terms or more, or the file changed.
    pub fn matrices(&self, path: &Path) -> FormatResult<[CsrMatrix; 3]> {
        let (rows, columns) = (self.header.num_constraints as usize, self.header.num_wires as usize);
        let build = |side| {
            CsrMatrix::from_entries(rows, columns, || self.entries(side))
                .map_err(|e| Place::file(path).unexpected(None, "constraints", "three matrices", e))
        };
        let (a, (b, c)) = rayon::join(|| build(Side::A), || rayon::join(|| build(Side::B), || build(Side::C)));
        Ok([a?, b?, c?])
    }

    /// The first constraint that an assignment breaks. Wires beyond the assignment count as zero.
    #[allow(clippy::arithmetic_side_effects, reason = "field arithmetic can't overflow")]
    pub fn first_broken(&self, witness: &[Scalar]) -> Option<BrokenConstraint> {
        (0..self.blocks.len()).into_par_iter().find_map_first(|block| {
            let first = block.saturating_mul(BLOCK);
            self.block_onwards(block).take(BLOCK).enumerate().find_map(|(i, constraint)| {
                let [a, b, c] = [constraint.a, constraint.b, constraint.c].map(|side| side.value(witness));
                (a * b != c).then(|| BrokenConstraint { index: first.saturating_add(i), a, b, c })
            })
        })
    }
}

fn slice(bytes: &SharedBytes, section: Section, place: &Place) -> FormatResult<SharedBytes> {
    let from = usize::try_from(section.offset).ok();
    let to = section.offset.checked_add(section.size).and_then(|to| usize::try_from(to).ok());
    from.zip(to).and_then(|(from, to)| bytes.slice(from..to)).ok_or_else(|| place.changed())
}

fn read_header(container: &Container, bytes: &[u8]) -> FormatResult<R1csHeader> {
    let section = container.section(HEADER)?;
    let place = container.place(HEADER);
    let header = container.copy(bytes, section, 4096)?;
    let mut cursor = Cursor::new(&header, section.offset, &place);
    check_prime(&mut cursor, &place, "the prime", &R_BYTES)?;
    let at = cursor.offset();
    let header = R1csHeader {
        num_wires: cursor.u32("number of wires")?,
        num_outputs: cursor.u32("number of outputs")?,
        num_public_inputs: cursor.u32("number of public inputs")?,
        num_private_inputs: cursor.u32("number of private inputs")?,
        num_labels: cursor.u64("number of labels")?,
        num_constraints: cursor.u32("number of constraints")?,
    };
    cursor.end()?;
    if header.num_public() >= header.num_wires as usize {
        let expected = format!("more than the {} outputs and public inputs", header.num_public());
        return Err(place.unexpected(at, "number of wires", expected, header.num_wires));
    }
    Ok(header)
}

/// Custom gates are constraints of their own kind, which Groth16 doesn't have. A circuit without them may say so.
fn refuse_custom_gates(container: &Container, bytes: &[u8], kind: u32) -> FormatResult<()> {
    let Some(section) = container.find(kind) else { return Ok(()) };
    let place = container.place(kind);
    let content = slice_of(bytes, section);
    let count = Cursor::new(content, section.offset, &place).u32("number of custom gates")?;
    if count != 0 || section.size != 4 {
        let found = format!("{count} in {} bytes", section.size);
        return Err(place.unexpected(section.offset, "custom gates", "none: groth16 has no such constraints", found));
    }
    Ok(())
}

fn slice_of(bytes: &[u8], section: Section) -> &[u8] {
    let from = usize::try_from(section.offset).ok().and_then(|from| bytes.get(from..));
    from.zip(usize::try_from(section.size).ok()).and_then(|(from, size)| from.get(..size)).unwrap_or_default()
}

fn read_labels(container: &Container, bytes: &SharedBytes, header: R1csHeader) -> FormatResult<Option<SharedBytes>> {
    if container.find(LABELS).is_none() {
        return Ok(None);
    }
    let size = u64::from(header.num_wires).checked_mul(LABEL as u64);
    let why = format!("a label for each of the {} wires", header.num_wires);
    let section = container.section_of_size(LABELS, size, &why)?;
    let place = container.place(LABELS);
    let labels = slice(bytes, section, &place)?;
    let (values, _) = labels.as_chunks::<LABEL>();
    let bad = values.par_iter().position_first(|label| u64::from_le_bytes(*label) >= header.num_labels);
    if let Some(wire) = bad {
        let at = section.offset.saturating_add((wire as u64).saturating_mul(LABEL as u64));
        let found = values.get(wire).map_or(0, |label| u64::from_le_bytes(*label));
        let expected = format!("less than the {} labels", header.num_labels);
        return Err(place.unexpected(at, format!("label of wire {wire}"), expected, found));
    }
    Ok(Some(labels))
}

/// Takes a combination off the front; `None` if the bytes end before it does.
fn next_combination<'a>(rest: &mut &'a [u8]) -> Option<Combination<'a>> {
    let (count, after) = rest.split_first_chunk::<4>()?;
    let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
    let (terms, after) = after.split_at_checked(count.checked_mul(TERM)?)?;
    *rest = after;
    Some(Combination(terms.as_chunks().0))
}

fn next_constraint<'a>(rest: &mut &'a [u8]) -> Option<Constraint<'a>> {
    Some(Constraint { a: next_combination(rest)?, b: next_combination(rest)?, c: next_combination(rest)? })
}

fn offset_in(section: Section, bytes: &[u8], rest: &[u8]) -> u64 {
    section.offset.saturating_add(bytes.len().saturating_sub(rest.len()) as u64)
}

/// Walks over all constraints, looking only at their lengths.
fn index_blocks(bytes: &[u8], section: Section, count: u32, place: &Place) -> FormatResult<Vec<usize>> {
    let mut blocks = Vec::new();
    let mut rest = bytes;
    for index in 0..count {
        if (index as usize).is_multiple_of(BLOCK) {
            blocks.push(bytes.len().saturating_sub(rest.len()));
        }
        let before = rest;
        if next_constraint(&mut rest).is_none() {
            let at = offset_in(section, bytes, before);
            let found = format!("{} bytes to the end of the section", before.len());
            return Err(place.unexpected(at, format!("constraint {index} of {count}"), "a whole constraint", found));
        }
    }
    if !rest.is_empty() {
        let at = offset_in(section, bytes, rest);
        let expected = format!("nothing after {count} constraints");
        return Err(place.unexpected(at, "end of the section", expected, format!("{} bytes more", rest.len())));
    }
    Ok(blocks)
}

/// Checks the wires and coefficients of up to [`BLOCK`] constraints.
fn check_block(bytes: &[u8], at: usize, section: Section, header: R1csHeader, place: &Place) -> FormatResult<()> {
    let mut rest = bytes.get(at..).unwrap_or_default();
    for _ in 0..BLOCK.saturating_mul(3) {
        if rest.is_empty() {
            break;
        }
        let first = offset_in(section, bytes, rest).saturating_add(4);
        let combination = next_combination(&mut rest).ok_or_else(|| place.changed())?;
        for (i, term) in combination.0.iter().enumerate() {
            let (wire, value) = split_term(term);
            let at = first.saturating_add((i as u64).saturating_mul(TERM as u64));
            if wire >= header.num_wires {
                let expected = format!("less than the {} wires", header.num_wires);
                return Err(place.unexpected(at, "wire", expected, wire));
            }
            // Almost all coefficients differ from r in the highest limb.
            if limbs::<4>(value).last() >= limbs::<4>(&R_BYTES).last() && !is_below(value, &R_BYTES) {
                return Err(place.unexpected(at.saturating_add(4), "coefficient", "less than r", "r or more"));
            }
        }
    }
    Ok(())
}
