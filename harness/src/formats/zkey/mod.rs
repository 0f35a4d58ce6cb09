//! snarkjs's `.zkey`: a Groth16 proving key with its constraint matrices.
//!
//! The point sections stay in the file: the [`ProvingKey`] is a view of its map. What is read at every opening: the table of
//! sections, the header, IC, the coefficients. What is read once, in parallel, and then spared by a [stamp](super::Stamps):
//! every record of the point sections, checked to be on the curve.
//!
//! | section | what |
//! |---|---|
//! | 1 | protocol, 1 = groth16 |
//! | 2 | q, r, sizes, α β γ δ |
//! | 3 | IC |
//! | 4 | coefficients of the matrices A and B |
//! | 5, 6, 7 | A, B in G1, B in G2: a record for each variable, infinity where the variable doesn't occur |
//! | 8 | C, here L: a record for each private variable |
//! | 9 | H |
//! | 10 | contributions |

mod coefficients;
mod header;
mod points;
mod write;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use blstrs::{G1Affine, G2Affine, Scalar};
use group::prime::PrimeCurveAffine;
use splitprover_backend_cpu::curve_check::CurveCheck;
use splitprover_core::{
    Bitmap, ByteOwner, Domain, HBasis, HostBuf, HostMemory, Matrices, PointRecord, PointTable, ProvingKey,
    ProvingKeyParts, Query, RootOfUnity, SharedBytes, VerifyingKey,
};

use super::container::{Container, Format, Section};
use super::error::{FormatError, FormatResult, Place};
use super::map::{MappedFile, Residency};
use super::stamp::{Stamp, Stamps};

pub(super) use header::check_prime;
pub use header::{Contribution, Contributions, DevelopmentMark};
pub use points::Progress;
pub use write::{Extras, write_zkey, zkey_to_bytes};

/// Section types.
pub(super) mod kind {
    pub(crate) const PROTOCOL: u32 = 1;
    pub(crate) const HEADER: u32 = 2;
    pub(crate) const IC: u32 = 3;
    pub(crate) const COEFFICIENTS: u32 = 4;
    pub(crate) const A: u32 = 5;
    pub(crate) const B_G1: u32 = 6;
    pub(crate) const B_G2: u32 = 7;
    pub(crate) const L: u32 = 8;
    pub(crate) const H: u32 = 9;
    pub(crate) const CONTRIBUTIONS: u32 = 10;
    /// Ours: the mark of a development key.
    pub(crate) const MARK: u32 = 0x5350_4b31;
}

pub(super) static FORMAT: Format = Format {
    magic: *b"zkey",
    version: 1,
    sections: &[
        (kind::PROTOCOL, "protocol"),
        (kind::HEADER, "groth16 header"),
        (kind::IC, "IC"),
        (kind::COEFFICIENTS, "coefficients"),
        (kind::A, "A"),
        (kind::B_G1, "B in G1"),
        (kind::B_G2, "B in G2"),
        (kind::L, "C"),
        (kind::H, "H"),
        (kind::CONTRIBUTIONS, "contributions"),
        (kind::MARK, "development mark"),
    ],
};

/// How a key is opened.
#[derive(Clone, Copy, Default)]
pub struct OpenOptions<'a> {
    /// Checks all points although a stamp says that they have been.
    pub recheck: bool,
    /// Checks that all points are in the subgroup, and β and δ the same in both groups. Slow; implies `recheck`.
    pub deep: bool,
    /// Where stamps are kept.
    pub stamps: Stamps<'a>,
    /// How long the pages of a file stay with the process once they have been read.
    pub residency: Residency,
    /// Told about the progress of the point checks.
    pub progress: Option<&'a Progress<'a>>,
}

impl std::fmt::Debug for OpenOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { recheck, deep, stamps, residency, progress } = self;
        let progress = progress.is_some();
        f.debug_struct("OpenOptions")
            .field("recheck", recheck)
            .field("deep", deep)
            .field("stamps", stamps)
            .field("residency", residency)
            .field("progress", &progress)
            .finish()
    }
}

/// How the points of a key came to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointsChecked {
    /// A stamp says that they were checked when the file was opened before.
    ByStamp,
    /// Now: on the curve.
    OnCurve,
    /// Now: in the subgroup.
    InSubgroup,
}

/// An opened `.zkey`.
#[derive(Debug)]
pub struct ZkeyFile {
    /// The key, a view of the file's map.
    pub key: Arc<ProvingKey>,
    /// Records in section 4.
    pub num_coefficients: usize,
    /// The sections in file order.
    pub sections: Vec<Section>,
    /// Section 10, where there is one.
    pub contributions: Option<Contributions>,
    /// The mark of a development key, where there is one.
    pub mark: Option<DevelopmentMark>,
    /// How the points came to be trusted.
    pub points_checked: PointsChecked,
    /// Why no stamp was written although one was wanted: the next opening checks the points again.
    pub not_stamped: Option<String>,
    map: Option<Arc<MappedFile>>,
}

impl ZkeyFile {
    /// Maps and checks a key file.
    ///
    /// # Errors
    /// [`FormatError`] says where the file isn't as it should be.
    pub fn open(path: &Path, options: OpenOptions<'_>) -> FormatResult<Self> {
        let map = MappedFile::open_for(path, options.residency)?;
        map.unless_changed(Self::read(path, SharedBytes::new(map.clone()), options, Some(map.clone())))
    }

    /// Reads a key from memory. `name` stands in messages.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(name: &Path, bytes: impl Into<SharedBytes>, options: OpenOptions<'_>) -> FormatResult<Self> {
        Self::read(name, bytes.into(), options, None)
    }

    /// Whether whoever made the key can forge proofs: it is marked as a development key.
    pub fn is_insecure(&self) -> bool {
        self.mark.as_ref().is_some_and(|mark| mark.insecure)
    }

    /// Reads a witness for this key: as [`read_wtns`](super::read_wtns), with as many values as the key has variables.
    ///
    /// # Errors
    /// As [`read_wtns`](super::read_wtns); a witness for another circuit is refused.
    pub fn read_witness(&self, path: &Path, memory: &HostMemory) -> FormatResult<HostBuf<Scalar>> {
        super::read_wtns_of_length(path, memory, self.key.shape().num_variables)
    }

    /// Fails if the file has changed since it was opened. A key in memory doesn't change.
    ///
    /// # Errors
    /// [`Problem::Changed`](super::Problem::Changed).
    pub fn check_unchanged(&self) -> FormatResult<()> {
        self.map.as_ref().map_or(Ok(()), |map| map.check_unchanged())
    }

    fn read(
        path: &Path,
        bytes: SharedBytes,
        options: OpenOptions<'_>,
        map: Option<Arc<MappedFile>>,
    ) -> FormatResult<Self> {
        let place = Place::file(path);
        let container = Container::read(&*bytes, &FORMAT, &place)?;
        header::check_protocol(&container, &*bytes)?;
        let header = header::read_header(&container, &*bytes)?;
        let mark = header::read_mark(&container, &*bytes)?;
        let contributions = header::read_contributions(&container, &*bytes)?;

        let monomial = mark.as_ref().is_some_and(|mark| mark.monomial_h);
        let (h_basis, root) = match monomial {
            true => (HBasis::Monomial, RootOfUnity::bellman()),
            false => (HBasis::OddLagrange, RootOfUnity::snarkjs()),
        };
        let domain = Domain::new(header.domain_log2, root)
            .ok_or_else(|| place.unexpected(None, "domain size", "a supported one", header.domain_log2))?;
        let tables = Tables::find(&container, &bytes, &header, monomial)?;
        let verifying_key = read_verifying_key(&container, &header, &tables.ic)?;
        let coefficients = container.section(kind::COEFFICIENTS)?;
        let coefficient_place = container.place(kind::COEFFICIENTS);
        let coefficient_bytes = slice(&bytes, coefficients, &coefficient_place)?;
        let (matrices, num_coefficients) = coefficients::read_matrices(
            &coefficient_bytes,
            coefficients,
            &coefficient_place,
            header.num_variables,
            header.domain_log2,
        )?;
        coefficient_bytes.wont_need();
        if options.deep {
            check_pairs(&header, &container)?;
        }
        let folder = map.as_ref().zip(options.stamps.folder());
        let stamp = folder.and_then(|(map, folder)| Stamp::new(&folder, path, map.identity(), container.sections()));
        let stamped = match &stamp {
            Some(stamp) if !options.recheck && !options.deep => stamp.read(tables.lengths()),
            _ => None,
        };
        let (densities, points_checked) = match stamped {
            Some(densities) => (densities, PointsChecked::ByStamp),
            None if options.deep => (tables.check(&container, options)?, PointsChecked::InSubgroup),
            None => (tables.check(&container, options)?, PointsChecked::OnCurve),
        };
        if let Some(map) = &map {
            map.check_unchanged()?;
            // A page that is read brings its neighbours, those of parts that had been let go of among them.
            map.wont_need(0..usize::MAX);
        }
        let not_stamped = match &stamp {
            Some(stamp) if points_checked != PointsChecked::ByStamp => stamp.write(&densities).err(),
            _ => None,
        };
        let parts = tables.into_parts(densities, verifying_key, &header, domain, h_basis, matrices, &place)?;
        let key = ProvingKey::new(parts).map_err(|e| place.unexpected(None, "key", "sizes that agree", e))?;
        Ok(Self {
            key: Arc::new(key),
            num_coefficients,
            sections: container.sections().to_vec(),
            contributions,
            mark,
            points_checked,
            not_stamped,
            map,
        })
    }
}

/// Which records of the point sections aren't infinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Densities {
    pub(super) a: Bitmap,
    pub(super) b_g1: Bitmap,
    pub(super) b_g2: Bitmap,
    pub(super) l: Bitmap,
    pub(super) h: Bitmap,
}

/// A point section of the right size.
struct Table<C> {
    section: Section,
    records: PointTable<C>,
}

struct Tables {
    ic: Table<G1Affine>,
    a: Table<G1Affine>,
    b_g1: Table<G1Affine>,
    b_g2: Table<G2Affine>,
    l: Table<G1Affine>,
    h: Table<G1Affine>,
}

fn slice(bytes: &SharedBytes, section: Section, place: &Place) -> FormatResult<SharedBytes> {
    let from = usize::try_from(section.offset).ok();
    let to = section.offset.checked_add(section.size).and_then(|to| usize::try_from(to).ok());
    from.zip(to).and_then(|(from, to)| bytes.slice(from..to)).ok_or_else(|| place.changed())
}

impl Tables {
    fn find(container: &Container, bytes: &SharedBytes, header: &header::Header, monomial: bool) -> FormatResult<Self> {
        let variables = u64::from(header.num_variables);
        let public = u64::from(header.num_public).saturating_add(1);
        let domain = 1u64.wrapping_shl(header.domain_log2);
        fn table<C: PointRecord>(
            container: &Container,
            bytes: &SharedBytes,
            kind: u32,
            count: u64,
            of: &str,
        ) -> FormatResult<Table<C>> {
            let size = count.checked_mul(C::BYTES as u64);
            let why = format!("{count} points of {} bytes, {of}", C::BYTES);
            let section = container.section_of_size(kind, size, &why)?;
            let place = container.place(kind);
            let records = PointTable::new(slice(bytes, section, &place)?).ok_or_else(|| place.changed())?;
            Ok(Table { section, records })
        }
        let (h, of_h) = match monomial {
            true => (domain.saturating_sub(1), "the domain size less one"),
            false => (domain, "the domain size"),
        };
        Ok(Self {
            ic: table(container, bytes, kind::IC, public, "the public inputs and one")?,
            a: table(container, bytes, kind::A, variables, "the variables")?,
            b_g1: table(container, bytes, kind::B_G1, variables, "the variables")?,
            b_g2: table(container, bytes, kind::B_G2, variables, "the variables")?,
            l: table(container, bytes, kind::L, variables.saturating_sub(public), "the private variables")?,
            h: table(container, bytes, kind::H, h, of_h)?,
        })
    }

    /// Records of each table: A, B in G1, B in G2, L, H.
    fn lengths(&self) -> [usize; 5] {
        [
            self.a.records.len(),
            self.b_g1.records.len(),
            self.b_g2.records.len(),
            self.l.records.len(),
            self.h.records.len(),
        ]
    }

    /// Looks at every record.
    fn check(&self, container: &Container, options: OpenOptions<'_>) -> FormatResult<Densities> {
        let sections = [self.a.section, self.b_g1.section, self.b_g2.section, self.l.section, self.h.section];
        let meter = points::Meter {
            progress: options.progress,
            done: AtomicU64::new(0),
            total: sections.iter().fold(0, |sum: u64, section| sum.saturating_add(section.size)),
        };
        fn check<C: CurveCheck>(
            table: &Table<C>,
            container: &Container,
            deep: bool,
            meter: &points::Meter<'_>,
        ) -> FormatResult<Bitmap> {
            let Section { kind, offset, .. } = table.section;
            points::check_table(&table.records, deep, meter, &container.place(kind), offset)
        }
        Ok(Densities {
            a: check(&self.a, container, options.deep, &meter)?,
            b_g1: check(&self.b_g1, container, options.deep, &meter)?,
            b_g2: check(&self.b_g2, container, options.deep, &meter)?,
            l: check(&self.l, container, options.deep, &meter)?,
            h: check(&self.h, container, options.deep, &meter)?,
        })
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a key")]
    fn into_parts(
        self,
        densities: Densities,
        verifying_key: VerifyingKey,
        header: &header::Header,
        domain: Domain,
        h_basis: HBasis,
        matrices: Matrices,
        place: &Place,
    ) -> FormatResult<ProvingKeyParts> {
        fn query<C: PointRecord>(table: Table<C>, density: Bitmap, place: &Place) -> FormatResult<Query<C>> {
            Query::spread(table.records, Arc::new(density)).ok_or_else(|| place.changed())
        }
        Ok(ProvingKeyParts {
            domain,
            h_basis,
            verifying_key,
            beta_g1: header.beta_g1,
            delta_g1: header.delta_g1,
            a: query(self.a, densities.a, place)?,
            b_g1: query(self.b_g1, densities.b_g1, place)?,
            b_g2: query(self.b_g2, densities.b_g2, place)?,
            l: query(self.l, densities.l, place)?,
            h: query(self.h, densities.h, place)?,
            matrices: Some(Arc::new(matrices)),
        })
    }
}

/// α, β, γ, δ and IC, every point in the subgroup.
fn read_verifying_key(
    container: &Container,
    header: &header::Header,
    ic: &Table<G1Affine>,
) -> FormatResult<VerifyingKey> {
    let place = container.place(kind::IC);
    let points = ic
        .records
        .as_bytes()
        .chunks_exact(G1Affine::BYTES)
        .enumerate()
        .map(|(index, record)| {
            G1Affine::check_record(record).map_err(|fault| bad_ic(&place, ic.section, index, &fault))?;
            Ok(G1Affine::from_record_unchecked(record))
        })
        .collect::<FormatResult<Vec<_>>>()?;
    let faulty = points.clone();
    VerifyingKey::new(header.alpha_g1, header.beta_g2, header.gamma_g2, header.delta_g2, points).map_err(|e| {
        // The header's points have been checked, so it is one of IC's.
        let found =
            faulty.iter().enumerate().find_map(|(index, point)| point.check().err().map(|fault| (index, fault)));
        match found {
            Some((index, fault)) => bad_ic(&place, ic.section, index, &fault),
            None => place.unexpected(ic.section.offset, "verifying key", "points of the subgroup", e),
        }
    })
}

fn bad_ic(place: &Place, section: Section, index: usize, fault: &dyn std::fmt::Display) -> FormatError {
    let at = section.offset.saturating_add((index as u64).saturating_mul(G1Affine::BYTES as u64));
    place.unexpected(at, format!("point {index}"), "a point of the subgroup of G1", fault)
}

/// Fails unless β and δ have the same logarithm in both groups.
fn check_pairs(header: &header::Header, container: &Container) -> FormatResult<()> {
    let place = container.place(kind::HEADER);
    for (name, g1, g2) in [("beta", header.beta_g1, header.beta_g2), ("delta", header.delta_g1, header.delta_g2)] {
        if blstrs::pairing(&g1, &G2Affine::generator()) != blstrs::pairing(&G1Affine::generator(), &g2) {
            let what = format!("{name} in G1 and G2");
            return Err(place.unexpected(None, what, "the same logarithm", "different ones"));
        }
    }
    Ok(())
}
