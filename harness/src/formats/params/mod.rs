//! bellperson's `.params`: a Groth16 proving key of bellman's kind, as Filecoin uses them.
//!
//! The file has no magic, no version and no curve: it is recognised by its name. All numbers are big-endian, points are
//! uncompressed in zcash's encoding (x‖y, 96 bytes in G1, 192 in G2 with the coordinates c1‖c0; the three highest bits of the
//! first byte are flags).
//!
//! | section | what |
//! |---|---|
//! | 1 | α in G1, β in G1, β in G2, γ in G2, δ in G1, δ in G2: 864 bytes |
//! | 2 | u32 count, IC: the constant 1 and the public inputs |
//! | 3 | u32 count, H: τ^i·Z(τ)/δ for i < n − 1 |
//! | 4 | u32 count, L: the private variables |
//! | 5 | u32 count, A: variables that occur in A, the constant 1 and all public inputs first |
//! | 6, 7 | u32 count, B in G1 and in G2: variables that occur in B |
//!
//! (The numbers are ours: they stand in messages.)
//!
//! # What is missing in it
//! Which variables occur in A and B, and the constraints themselves, come from the circuit. So a [`ParamsFile`] is half a key, and
//! [`ParamsFile::key`] joins it with a [`Circuit`], whose counts and densities must be those of the file. There is no room to say that a
//! key's trapdoor is known, either; so development keys have a γ of their own, and [`ParamsFile::is_insecure`] knows it.
//!
//! # Conversion
//! Provers read points as [records](splitprover_core::point): Montgomery form, little-endian. At the first opening every point
//! is decoded, checked to be on the curve and written as a record to a file in the user's cache, which the key is then a view of.
//! A [stamp](super::Stamps) remembers which conversion belongs to the file, so that a second opening maps it and decodes nothing;
//! a file that was moved or touched is recognised by the hash of its contents. Without a cache the records are kept in
//! anonymous memory.

mod cache;
mod circuit;
mod circuit_file;
mod layout;
mod points;
mod write;

use std::path::Path;
use std::sync::Arc;

use blstrs::{G1Affine, G2Affine};
use group::prime::PrimeCurveAffine;
use splitprover_core::point::PointFault;
use splitprover_core::{
    Bitmap, CircuitShape, Domain, HBasis, PointRecord, PointTable, ProvingKey, ProvingKeyParts, Query, RootOfUnity,
    SharedBytes, VerifyingKey,
};

use super::error::{FormatResult, Place};
use super::map::MappedFile;
use super::zkey::{OpenOptions, PointsChecked};

pub use circuit::Circuit;
use layout::{Layout, Table};
pub use write::{params_to_bytes, write_params};

/// Section numbers.
mod kind {
    pub(super) const CONSTANTS: u32 = 1;
    pub(super) const IC: u32 = 2;
    pub(super) const H: u32 = 3;
    pub(super) const L: u32 = 4;
    pub(super) const A: u32 = 5;
    pub(super) const B_G1: u32 = 6;
    pub(super) const B_G2: u32 = 7;

    pub(super) fn name(kind: u32) -> &'static str {
        match kind {
            CONSTANTS => "constants",
            IC => "IC",
            H => "H",
            L => "L",
            A => "A",
            B_G1 => "B in G1",
            _ => "B in G2",
        }
    }
}

/// Whether a file's name says that it is one: it ends in `.params`.
pub fn is_params(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("params"))
}

/// The numbers of points in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The constant 1 and the public inputs.
    pub ic: usize,
    /// One less than the rows of the domain.
    pub h: usize,
    /// Private variables.
    pub l: usize,
    /// Variables that occur in A.
    pub a: usize,
    /// Variables that occur in B.
    pub b: usize,
}

/// An opened `.params` file: a key without its circuit.
#[derive(Debug)]
pub struct ParamsFile {
    verifying_key: VerifyingKey,
    beta_g1: G1Affine,
    delta_g1: G1Affine,
    shape: CircuitShape,
    counts: Counts,
    tables: Tables,
    /// How the points came to be trusted.
    pub points_checked: PointsChecked,
    /// Why no conversion was kept although one was wanted: the next opening converts again.
    pub not_cached: Option<String>,
    place: Place,
    map: Option<Arc<MappedFile>>,
    /// What `tables` are a view of.
    conversion: Arc<MappedFile>,
}

/// The converted points.
#[derive(Debug)]
struct Tables {
    h: PointTable<G1Affine>,
    l: PointTable<G1Affine>,
    a: PointTable<G1Affine>,
    b_g1: PointTable<G1Affine>,
    b_g2: PointTable<G2Affine>,
}

impl ParamsFile {
    /// Maps, checks and converts a key file; from the second time on it maps what was converted.
    ///
    /// With [`OpenOptions::deep`] every point is checked to be in the subgroup, and β and δ to be the same in both groups. Stamps
    /// and conversions are kept in the folder of [`OpenOptions::stamps`].
    ///
    /// # Errors
    /// [`FormatError`](super::FormatError) says where the file isn't as it should be.
    pub fn open(path: &Path, options: OpenOptions<'_>) -> FormatResult<Self> {
        let map = MappedFile::open(path)?;
        let file = map.unless_changed(Self::read(path, &SharedBytes::new(map.clone()), options, Some(&map)))?;
        // Whatever of the file has been read isn't needed any more.
        map.let_go(0..usize::MAX);
        Ok(file)
    }

    /// Reads a key from memory. `name` stands in messages.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(name: &Path, bytes: impl Into<SharedBytes>, options: OpenOptions<'_>) -> FormatResult<Self> {
        Self::read(name, &bytes.into(), options, None)
    }

    fn read(
        path: &Path,
        bytes: &SharedBytes,
        options: OpenOptions<'_>,
        map: Option<&Arc<MappedFile>>,
    ) -> FormatResult<Self> {
        let place = Place::file(path);
        let layout = Layout::read(bytes, &place)?;
        let Constants { verifying_key, beta_g1, delta_g1 } = read_constants(bytes, &layout, &place)?;
        if options.deep {
            check_pairs(&verifying_key, beta_g1, delta_g1, &place)?;
        }
        let folder = map.and_then(|_| options.stamps.folder());
        let converted = match (map, folder) {
            (Some(map), Some(folder)) => cache::open(&folder, path, map, bytes, &layout, options)?,
            _ => {
                let contents = points::Contents { bytes, layout: &layout, map: map.map(|map| &**map) };
                cache::convert_in_memory(contents, options, &place)?
            }
        };
        if let Some(map) = map {
            map.check_unchanged()?;
        }
        let tables = Tables {
            h: table(&converted.points, &layout, 0, &place)?,
            l: table(&converted.points, &layout, 1, &place)?,
            a: table(&converted.points, &layout, 2, &place)?,
            b_g1: table(&converted.points, &layout, 3, &place)?,
            b_g2: table(&converted.points, &layout, 4, &place)?,
        };
        let counts = layout.counts();
        let shape = CircuitShape {
            num_public: counts.ic.saturating_sub(1),
            num_variables: counts.ic.saturating_add(counts.l),
            domain_log2: layout.domain_log2,
        };
        Ok(Self {
            verifying_key,
            beta_g1,
            delta_g1,
            shape,
            counts,
            tables,
            points_checked: converted.points_checked,
            not_cached: converted.not_cached,
            place,
            map: map.cloned(),
            conversion: converted.map,
        })
    }

    /// The sizes that follow from the numbers of points.
    pub fn shape(&self) -> CircuitShape {
        self.shape
    }

    /// The numbers of points.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The verifying key.
    pub fn verifying_key(&self) -> &VerifyingKey {
        &self.verifying_key
    }

    /// Whether the key is [marked](crate::setup::is_marked) as a development key, whose proofs anyone can forge. One that was exported from
    /// snarkjs's format isn't.
    pub fn is_insecure(&self) -> bool {
        crate::setup::is_marked(&self.verifying_key)
    }

    /// Fails if the file, or its conversion, has changed since it was opened. A key in memory doesn't change.
    ///
    /// # Errors
    /// [`Problem::Changed`](super::Problem::Changed).
    pub fn check_unchanged(&self) -> FormatResult<()> {
        self.conversion.check_unchanged()?;
        self.map.as_ref().map_or(Ok(()), |map| map.check_unchanged())
    }

    /// The whole key: the file's points with the circuit's constraints and densities.
    ///
    /// `root` is the family of roots of unity to whose powers the rows belong, which the file doesn't say. It is
    /// [`RootOfUnity::bellman`], unless the file was made from snarkjs's key.
    ///
    /// # Errors
    /// If the circuit's public inputs, variables, rows or densities aren't the file's: then it is another circuit.
    pub fn key(&self, circuit: &Circuit, root: RootOfUnity) -> FormatResult<Arc<ProvingKey>> {
        circuit.check(self.shape, self.counts, &self.place)?;
        let domain = Domain::new(self.shape.domain_log2, root)
            .ok_or_else(|| self.place.unexpected(None, "domain size", "a supported one", self.shape.domain_log2))?;
        fn query<C: PointRecord>(
            table: &PointTable<C>,
            density: &Arc<Bitmap>,
            place: &Place,
            what: &str,
        ) -> FormatResult<Query<C>> {
            if density.count_ones() == density.len() && table.len() == density.len() {
                return Ok(Query::full(table.clone()));
            }
            Query::compact(table.clone(), density.clone())
                .ok_or_else(|| place.unexpected(None, what, density.count_ones(), table.len()))
        }
        let parts = ProvingKeyParts {
            domain,
            h_basis: HBasis::Monomial,
            verifying_key: self.verifying_key.clone(),
            beta_g1: self.beta_g1,
            delta_g1: self.delta_g1,
            a: query(&self.tables.a, circuit.density_a(), &self.place, "points of A")?,
            b_g1: query(&self.tables.b_g1, circuit.density_b(), &self.place, "points of B in G1")?,
            b_g2: query(&self.tables.b_g2, circuit.density_b(), &self.place, "points of B in G2")?,
            l: Query::full(self.tables.l.clone()),
            h: Query::full(self.tables.h.clone()),
            matrices: Some(circuit.matrices().clone()),
        };
        let key = ProvingKey::new(parts);
        Ok(Arc::new(key.map_err(|e| self.place.unexpected(None, "key", "sizes that agree", e))?))
    }
}

/// The converted records of one of the five big tables.
fn table<C: PointRecord>(
    points: &SharedBytes,
    layout: &Layout,
    index: usize,
    place: &Place,
) -> FormatResult<PointTable<C>> {
    let range = layout.tables.get(index).map(Table::converted);
    range.and_then(|range| points.slice(range)).and_then(PointTable::new).ok_or_else(|| place.changed())
}

struct Constants {
    verifying_key: VerifyingKey,
    beta_g1: G1Affine,
    delta_g1: G1Affine,
}

/// Sections 1 and 2: all in the subgroup, none infinity.
fn read_constants(bytes: &[u8], layout: &Layout, place: &Place) -> FormatResult<Constants> {
    let here = place.section(kind::CONSTANTS, kind::name(kind::CONSTANTS));
    fn fixed<C: points::Encoding>(bytes: &[u8], at: &mut usize, what: &str, place: &Place) -> FormatResult<C> {
        let from = *at;
        *at = from.saturating_add(C::BYTES);
        let bytes = bytes.get(from..*at).ok_or_else(|| place.changed())?;
        let point = points::decode::<C>(bytes).and_then(|point| match point.in_subgroup() {
            true => Ok(point),
            false => Err(points::Fault::Point(PointFault::OutsideSubgroup)),
        });
        let expected = format!("a point of the subgroup of {}, not infinity", C::GROUP);
        point.map_err(|fault| place.unexpected(from as u64, what, expected, fault))
    }
    let mut at = 0;
    let alpha_g1 = fixed::<G1Affine>(bytes, &mut at, "alpha in G1", &here)?;
    let beta_g1 = fixed::<G1Affine>(bytes, &mut at, "beta in G1", &here)?;
    let beta_g2 = fixed::<G2Affine>(bytes, &mut at, "beta in G2", &here)?;
    let gamma_g2 = fixed::<G2Affine>(bytes, &mut at, "gamma in G2", &here)?;
    let delta_g1 = fixed::<G1Affine>(bytes, &mut at, "delta in G1", &here)?;
    let delta_g2 = fixed::<G2Affine>(bytes, &mut at, "delta in G2", &here)?;

    let here = place.section(kind::IC, kind::name(kind::IC));
    let mut at = layout.ic.start;
    // As many as the file has bytes for: the layout was checked against its size.
    let mut ic = Vec::with_capacity(layout.ic.len() / G1Affine::BYTES);
    while at < layout.ic.end {
        let what = format!("point {}", ic.len());
        ic.push(fixed::<G1Affine>(bytes, &mut at, &what, &here)?);
    }
    let verifying_key = VerifyingKey::new(alpha_g1, beta_g2, gamma_g2, delta_g2, ic)
        .map_err(|e| place.unexpected(None, "verifying key", "points of the subgroup", e))?;
    Ok(Constants { verifying_key, beta_g1, delta_g1 })
}

/// Fails unless β and δ stand in the same ratio in both groups. (bellperson's generators are random, so no generator of ours is
/// of use here.)
fn check_pairs(key: &VerifyingKey, beta_g1: G1Affine, delta_g1: G1Affine, place: &Place) -> FormatResult<()> {
    if blstrs::pairing(&beta_g1, &key.delta_g2()) == blstrs::pairing(&delta_g1, &key.beta_g2()) {
        return Ok(());
    }
    let place = place.section(kind::CONSTANTS, kind::name(kind::CONSTANTS));
    Err(place.unexpected(None, "beta and delta", "the same ratio in G1 and G2", "different ones"))
}

/// Whether a point is the group's neutral element.
fn is_infinity<C: PrimeCurveAffine>(point: &C) -> bool {
    point.is_identity().into()
}
