//! Sections 1 and 2 (protocol, sizes, the scheme's constants), 10 (contributions), and our mark of development keys.

use blstrs::{G1Affine, G2Affine};
use splitprover_core::PointRecord;
use splitprover_core::point::PointFault;

use crate::formats::container::{Container, Cursor, Section};
use crate::formats::error::{FormatResult, Place};
use crate::formats::field::{Q_BYTES, R_BYTES, curve_of_prime};
use crate::formats::source::Source;

use super::kind;

/// Size of section 2 over BLS12-381.
const GROTH_HEADER_BYTES: usize = 964;

/// What section 2 says.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) num_variables: u32,
    pub(crate) num_public: u32,
    pub(crate) domain_log2: u32,
    pub(crate) alpha_g1: G1Affine,
    pub(crate) beta_g1: G1Affine,
    pub(crate) beta_g2: G2Affine,
    pub(crate) gamma_g2: G2Affine,
    pub(crate) delta_g1: G1Affine,
    pub(crate) delta_g2: G2Affine,
}

/// Fails unless section 1 says groth16.
pub(super) fn check_protocol(container: &Container, source: &(impl Source + ?Sized)) -> FormatResult<()> {
    let section = container.section_of_size(kind::PROTOCOL, Some(4), "one number")?;
    let place = container.place(kind::PROTOCOL);
    let bytes = container.copy(source, section, 4)?;
    match Cursor::new(&bytes, section.offset, &place).u32("protocol")? {
        1 => Ok(()),
        other => {
            let name = match other {
                2 => " (plonk)",
                10 => " (fflonk)",
                _ => "",
            };
            Err(place.unexpected(section.offset, "protocol", "1 (groth16)", format!("{other}{name}")))
        }
    }
}

/// A length and a prime, which must be this curve's.
pub(crate) fn check_prime(cursor: &mut Cursor<'_>, place: &Place, name: &str, prime: &[u8]) -> FormatResult<()> {
    let at = cursor.offset();
    let length = cursor.u32(&format!("length of {name}"))?;
    let expected = prime.len();
    // A BN254 field has 32 bytes where ours has 48: the curve is the better message than the length.
    let usable = usize::try_from(length).ok().filter(|&length| (1..=64).contains(&length) && length <= cursor.left());
    let Some(usable) = usable else {
        return Err(place.unexpected(at, format!("length of {name}"), format!("{expected} bytes"), length));
    };
    let found = cursor.take(usable, name)?;
    if usable == expected && found == prime {
        return Ok(());
    }
    if usable % 8 != 0 || found.starts_with(prime) {
        return Err(place.unexpected(at, format!("length of {name}"), format!("{expected} bytes"), length));
    }
    Err(place.other_curve(at, curve_of_prime(found)))
}

/// Reads and checks section 2.
pub(super) fn read_header(container: &Container, source: &(impl Source + ?Sized)) -> FormatResult<Header> {
    let section = container.section(kind::HEADER)?;
    let place = container.place(kind::HEADER);
    let bytes = container.copy(source, section, 4096)?;
    let mut cursor = Cursor::new(&bytes, section.offset, &place);
    check_prime(&mut cursor, &place, "q", &Q_BYTES)?;
    check_prime(&mut cursor, &place, "r", &R_BYTES)?;
    if bytes.len() != GROTH_HEADER_BYTES {
        return Err(place.unexpected(section.offset, "section size", GROTH_HEADER_BYTES, bytes.len()));
    }
    let num_variables = cursor.u32("number of variables")?;
    let at = cursor.offset();
    let num_public = cursor.u32("number of public inputs")?;
    if num_public >= num_variables {
        let expected = format!("less than the {num_variables} variables");
        return Err(place.unexpected(at, "number of public inputs", expected, num_public));
    }
    let at = cursor.offset();
    let domain_size = cursor.u32("domain size")?;
    let limit = splitprover_core::domain::MAX_LOG2;
    if !domain_size.is_power_of_two() || domain_size.trailing_zeros() > limit {
        let expected = format!("a power of two up to 2^{limit}");
        return Err(place.unexpected(at, "domain size", expected, domain_size));
    }
    Ok(Header {
        num_variables,
        num_public,
        domain_log2: domain_size.trailing_zeros(),
        alpha_g1: fixed_point(&mut cursor, &place, "alpha in G1")?,
        beta_g1: fixed_point(&mut cursor, &place, "beta in G1")?,
        beta_g2: fixed_point(&mut cursor, &place, "beta in G2")?,
        gamma_g2: fixed_point(&mut cursor, &place, "gamma in G2")?,
        delta_g1: fixed_point(&mut cursor, &place, "delta in G1")?,
        delta_g2: fixed_point(&mut cursor, &place, "delta in G2")?,
    })
}

/// A point that must be on the curve, in the subgroup and not infinity.
fn fixed_point<C: PointRecord>(cursor: &mut Cursor<'_>, place: &Place, what: &str) -> FormatResult<C> {
    let at = cursor.offset();
    let record = cursor.take(C::BYTES, what)?;
    let refuse = |fault: PointFault| place.unexpected(at, what, "a point of the subgroup, not infinity", fault);
    C::check_record(record).map_err(refuse)?;
    let point = C::from_record_unchecked(record);
    point.check().map_err(refuse)?;
    if point.is_identity().into() {
        return Err(refuse(PointFault::Infinity));
    }
    Ok(point)
}

/// One contribution to the key's ceremony.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contribution {
    /// Its name, where it has one.
    pub name: Option<String>,
    /// Whether it is a random beacon.
    pub beacon: bool,
    /// BLAKE2b transcript hash.
    pub transcript: [u8; 64],
}

/// Section 10: who contributed to the key. Its points aren't checked here; `snarkjs zkey verify` does that against the
/// powers of tau.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contributions {
    /// BLAKE2b hash of the circuit's parameters.
    pub circuit_hash: [u8; 64],
    /// In the order they were made.
    pub list: Vec<Contribution>,
    /// The section as it was read.
    bytes: Vec<u8>,
}

impl Contributions {
    /// The section's bytes, to write it again.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Points of a contribution: δ after it, and the three of its proof of knowledge.
const CONTRIBUTION_POINTS: usize = 3 * 96 + 192;

/// Section 10 is refused beyond this size: ceremonies have had thousands of contributions, of some 600 bytes.
const CONTRIBUTIONS_LIMIT: usize = 64 << 20;

/// Reads section 10, if there is one.
pub(super) fn read_contributions(
    container: &Container,
    source: &(impl Source + ?Sized),
) -> FormatResult<Option<Contributions>> {
    let Some(section) = container.find(kind::CONTRIBUTIONS) else { return Ok(None) };
    let place = container.place(kind::CONTRIBUTIONS);
    let bytes = container.copy(source, section, CONTRIBUTIONS_LIMIT)?;
    let mut cursor = Cursor::new(&bytes, section.offset, &place);
    let circuit_hash = cursor.array("circuit hash")?;
    let count = cursor.u32("number of contributions")?;
    // Not reserved: the count is only as good as the bytes that follow.
    let mut list = Vec::new();
    for index in 0..count {
        list.push(read_contribution(&mut cursor, &place, index)?);
    }
    cursor.end()?;
    Ok(Some(Contributions { circuit_hash, list, bytes }))
}

fn read_contribution(cursor: &mut Cursor<'_>, place: &Place, index: u32) -> FormatResult<Contribution> {
    let what = format!("contribution {index}");
    cursor.take(CONTRIBUTION_POINTS, &what)?;
    let transcript = cursor.array(&what)?;
    let at = cursor.offset();
    let beacon = match cursor.u32(&what)? {
        0 => false,
        1 => true,
        other => return Err(place.unexpected(at, format!("type of {what}"), "0 or 1 (beacon)", other)),
    };
    let length = cursor.u32(&what)?;
    let at = cursor.offset();
    let parameters = cursor.take(usize::try_from(length).unwrap_or(usize::MAX), &what)?;
    let mut parameters = Cursor::new(parameters, at, place);
    let mut name = None;
    while parameters.left() > 0 {
        let at = parameters.offset();
        let [tag] = parameters.array(&what)?;
        match tag {
            1 | 3 => {
                let [length] = parameters.array::<1>(&what)?;
                let value = parameters.take(usize::from(length), &what)?;
                if tag == 1 {
                    name = Some(String::from_utf8_lossy(value).into_owned());
                }
            }
            2 => {
                parameters.take(1, &what)?;
            }
            other => {
                let expected = "1 (name), 2 (iterations) or 3 (beacon hash)";
                return Err(place.unexpected(at, format!("parameter of {what}"), expected, other));
            }
        }
    }
    Ok(Contribution { name, beacon, transcript })
}

/// The mark of a key that was made for development, from a known trapdoor.
///
/// A section of our own, which other readers skip: u32 version 1, u32 flags (bit 0: insecure; bit 1: the H section is in
/// bellman's monomial basis and the domain has bellman's root of unity), then UTF-8 text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevelopmentMark {
    /// The trapdoor is known: whoever made the key can forge proofs.
    pub insecure: bool,
    /// H is τ^i·Z(τ)/δ for i < n − 1, and rows belong to powers of bellman's root.
    pub monomial_h: bool,
    /// Where the key comes from.
    pub text: String,
}

/// Text of a mark is at most this long.
pub(super) const MARK_TEXT_LIMIT: usize = 4096;

pub(super) const MARK_VERSION: u32 = 1;
pub(super) const MARK_INSECURE: u32 = 1;
pub(super) const MARK_MONOMIAL: u32 = 2;

/// Reads the mark, if there is one.
pub(super) fn read_mark(
    container: &Container,
    source: &(impl Source + ?Sized),
) -> FormatResult<Option<DevelopmentMark>> {
    let Some(section) = container.find(kind::MARK) else { return Ok(None) };
    let place = container.place(kind::MARK);
    let Section { offset, .. } = section;
    let bytes = container.copy(source, section, MARK_TEXT_LIMIT.saturating_add(8))?;
    let mut cursor = Cursor::new(&bytes, offset, &place);
    let version = cursor.u32("version of the mark")?;
    if version != MARK_VERSION {
        return Err(place.unexpected(offset, "version of the mark", MARK_VERSION, version));
    }
    let at = cursor.offset();
    let flags = cursor.u32("flags")?;
    if flags & !(MARK_INSECURE | MARK_MONOMIAL) != 0 {
        return Err(place.unexpected(at, "flags", "bits 0 and 1 only", format!("{flags:#x}")));
    }
    let at = cursor.offset();
    let text = cursor.take(cursor.left(), "text")?;
    let text = std::str::from_utf8(text).map_err(|e| place.unexpected(at, "text", "UTF-8", e))?.to_owned();
    Ok(Some(DevelopmentMark { insecure: flags & MARK_INSECURE != 0, monomial_h: flags & MARK_MONOMIAL != 0, text }))
}
