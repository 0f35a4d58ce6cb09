//! Checks of many records at a time against the scalar check: every fault in every lane, and whatever chance brings.

use blst::{blst_fp, blst_fp_add, blst_fp_from_uint64, blst_fp_mul, blst_fp_sqr, blst_fp_sqrt};
use blstrs::{G1Affine, G2Affine, Scalar};
use ff::Field;
use group::Curve;
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use splitprover_backend_cpu::Arithmetic;
use splitprover_backend_cpu::curve_check::CurveCheck;
use splitprover_core::PointRecord;
use splitprover_core::point::{FP_BYTES, FP_MODULUS, PointFault};

/// What the check promises, record by record.
fn expected<C: CurveCheck>(records: &[u8]) -> Result<Vec<u64>, usize> {
    let mut finite = vec![0; (records.len() / C::BYTES).div_ceil(64)];
    for (index, record) in records.chunks_exact(C::BYTES).enumerate() {
        C::check_record(record).map_err(|_| index)?;
        if record != vec![0; C::BYTES] {
            finite[index / 64] |= 1 << (index % 64);
        }
    }
    Ok(finite)
}

/// Checks records at an address that is `offset` away from an aligned one, with every arithmetic.
fn check<C: CurveCheck>(records: &[u8], offset: usize) -> Result<Vec<u64>, usize> {
    let mut buffer = vec![0xff; offset];
    buffer.extend(records);
    let expected = expected::<C>(records);
    for arithmetic in Arithmetic::supported() {
        assert_eq!(C::check_records(arithmetic, &buffer[offset..]), expected, "{arithmetic:?}");
    }
    expected
}

/// A random point of the subgroup, as a record.
fn point<C: CurveCheck>(rng: &mut ChaCha8Rng) -> Vec<u8>
where
    C::Curve: Curve<AffineRepr = C>,
{
    let mut record = vec![0; C::BYTES];
    (C::generator() * Scalar::random(rng)).to_affine().write_record(&mut record);
    record
}

/// Adds q to a coordinate.
fn add_modulus(coordinate: &mut [u8]) {
    let mut carry = 0;
    for (chunk, q) in coordinate.chunks_exact_mut(8).zip(FP_MODULUS) {
        let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        let sum = u128::from(word) + u128::from(q) + carry;
        chunk.copy_from_slice(&(sum as u64).to_le_bytes());
        carry = sum >> 64;
    }
    assert_eq!(carry, 0, "2^384 is above 9q");
}

/// Ways to spoil the record of a point, by coordinate or component of one.
#[derive(Clone, Copy, Debug)]
enum Spoil {
    /// The same value, written as one larger by q.
    PlusModulus,
    /// Zero, written as q.
    Modulus,
    /// q with its lowest bit flipped: as close below as can be.
    BelowModulus,
    /// 2^384 − 1.
    AllOnes,
    Zero,
    One,
    FlippedBit,
    /// Infinity but for one bit.
    NotQuiteInfinity,
    /// Infinity, each coordinate written as q.
    InfinityAsModulus,
    /// A point of another curve y² = x³ + b.
    OtherCurve,
    /// x and y exchanged.
    Exchanged,
}

const SPOILS: [Spoil; 11] = [
    Spoil::PlusModulus,
    Spoil::Modulus,
    Spoil::BelowModulus,
    Spoil::AllOnes,
    Spoil::Zero,
    Spoil::One,
    Spoil::FlippedBit,
    Spoil::NotQuiteInfinity,
    Spoil::InfinityAsModulus,
    Spoil::OtherCurve,
    Spoil::Exchanged,
];

impl Spoil {
    fn apply(self, record: &mut [u8], component: usize, rng: &mut ChaCha8Rng) {
        let at = component * FP_BYTES;
        let random = rng.next_u32() as usize;
        let half = record.len() / 2;
        let coordinate = &mut record[at..at + FP_BYTES];
        match self {
            Self::PlusModulus => add_modulus(coordinate),
            Self::Modulus | Self::BelowModulus => {
                coordinate.fill(0);
                add_modulus(coordinate);
                coordinate[0] ^= u8::from(matches!(self, Self::BelowModulus));
            }
            Self::AllOnes => coordinate.fill(0xff),
            Self::Zero => coordinate.fill(0),
            Self::One => {
                coordinate.fill(0);
                coordinate[0] = 1;
            }
            Self::FlippedBit => coordinate[random / 8 % FP_BYTES] ^= 1 << (random % 8),
            Self::NotQuiteInfinity => {
                record.fill(0);
                record[at + random / 8 % FP_BYTES] = 1 << (random % 8);
            }
            Self::InfinityAsModulus => {
                record.fill(0);
                record.chunks_exact_mut(FP_BYTES).for_each(add_modulus);
            }
            Self::OtherCurve => {
                // (4x, 8y) satisfies y² = x³ + 64·b.
                for (i, coordinate) in record.chunks_exact_mut(FP_BYTES).enumerate() {
                    let mut value = read(coordinate);
                    for _ in 0..if i * FP_BYTES < half { 2 } else { 3 } {
                        value = add(&value, &value);
                    }
                    write(&value, coordinate);
                }
            }
            Self::Exchanged => record.rotate_left(half),
        }
    }
}

fn read(coordinate: &[u8]) -> blst_fp {
    let mut l = [0; 6];
    for (word, chunk) in l.iter_mut().zip(coordinate.chunks_exact(8)) {
        *word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
    }
    blst_fp { l }
}

fn write(value: &blst_fp, coordinate: &mut [u8]) {
    for (chunk, word) in coordinate.chunks_exact_mut(8).zip(value.l) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
}

fn add(a: &blst_fp, b: &blst_fp) -> blst_fp {
    let mut r = blst_fp::default();
    // SAFETY: all three are valid, initialised elements.
    unsafe { blst_fp_add(&mut r, a, b) };
    r
}

fn every_fault_in_every_lane<C: CurveCheck>()
where
    C::Curve: Curve<AffineRepr = C>,
{
    let mut rng = ChaCha8Rng::from_entropy();
    let good: Vec<Vec<u8>> =
        (0..20).map(|i| if i % 7 == 4 { vec![0; C::BYTES] } else { point::<C>(&mut rng) }).collect();
    for length in 0..=good.len() {
        let records = good[..length].concat();
        assert!(check::<C>(&records, length % 9).is_ok());
        for spoil in SPOILS {
            for position in 0..length {
                let mut records = records.clone();
                let component = rng.next_u32() as usize % (C::BYTES / FP_BYTES);
                let record = &mut records[position * C::BYTES..(position + 1) * C::BYTES];
                record.copy_from_slice(&good[0]);
                spoil.apply(record, component, &mut rng);
                assert_eq!(check::<C>(&records, position % 8), Err(position), "{spoil:?} of component {component}");
            }
        }
    }
}

#[test]
fn every_fault_is_found_in_every_lane() {
    every_fault_in_every_lane::<G1Affine>();
    every_fault_in_every_lane::<G2Affine>();
}

#[test]
fn every_component_is_looked_at() {
    fn components<C: CurveCheck>()
    where
        C::Curve: Curve<AffineRepr = C>,
    {
        let mut rng = ChaCha8Rng::from_entropy();
        let records: Vec<u8> = (0..8).flat_map(|_| point::<C>(&mut rng)).collect();
        for component in 0..C::BYTES / FP_BYTES {
            for bit in 0..8 * FP_BYTES {
                let mut records = records.clone();
                let lane = (bit + component) % 8;
                records[lane * C::BYTES + component * FP_BYTES + bit / 8] ^= 1 << (bit % 8);
                assert_eq!(check::<C>(&records, 4), Err(lane), "bit {bit} of component {component}");
            }
        }
    }
    components::<G1Affine>();
    components::<G2Affine>();
}

#[test]
fn the_curve_is_checked_and_the_subgroup_is_not() {
    let mut rng = ChaCha8Rng::from_entropy();
    fn random<C: CurveCheck>(mut decompress: impl FnMut() -> Option<C>) {
        let mut records = Vec::new();
        while records.len() < 19 * C::BYTES {
            let Some(point) = decompress() else { continue };
            assert!(!point.in_subgroup());
            let mut record = vec![0; C::BYTES];
            point.write_record(&mut record);
            records.extend(record);
        }
        assert_eq!(check::<C>(&records, 1), Ok(vec![(1 << 19) - 1]));
    }
    random(|| {
        let mut bytes = [0; 48];
        rng.fill_bytes(&mut bytes);
        bytes[0] = bytes[0] & 0x2f | 0x80;
        Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(&bytes))
    });
    let mut rng = ChaCha8Rng::from_entropy();
    random(|| {
        let mut bytes = [0; 96];
        rng.fill_bytes(&mut bytes);
        (bytes[0], bytes[48]) = (bytes[0] & 0x2f | 0x80, bytes[48] & 0x0f);
        Option::<G2Affine>::from(G2Affine::from_compressed_unchecked(&bytes))
    });
}

#[test]
fn coordinates_just_below_the_modulus_pass_on_the_curve() {
    let mut four = blst_fp::default();
    // SAFETY: the words are six, as the function reads.
    unsafe { blst_fp_from_uint64(&mut four, [4, 0, 0, 0, 0, 0].as_ptr()) };
    let mut records = Vec::new();
    for k in 1.. {
        let mut x = blst_fp { l: FP_MODULUS };
        x.l[0] -= k;
        let (mut y, mut cube) = (blst_fp::default(), blst_fp::default());
        // SAFETY: all are valid, initialised elements; x is reduced.
        let on_curve = unsafe {
            blst_fp_sqr(&mut cube, &x);
            blst_fp_mul(&mut cube, &cube, &x);
            blst_fp_sqrt(&mut y, &add(&cube, &four))
        };
        if on_curve {
            let mut record = vec![0; 96];
            write(&x, &mut record[..48]);
            write(&y, &mut record[48..]);
            records.extend(record);
        }
        if records.len() == 11 * 96 {
            break;
        }
    }
    assert_eq!(check::<G1Affine>(&records, 3), Ok(vec![(1 << 11) - 1]));
    records[5 * 96..][..48].fill(0);
    add_modulus(&mut records[5 * 96..][..48]);
    assert_eq!(check::<G1Affine>(&records, 3), Err(5));
    assert_eq!(G1Affine::check_record(&records[5 * 96..6 * 96]), Err(PointFault::CoordinateRange));
}

#[test]
fn density_words_are_filled_in_order() {
    let mut rng = ChaCha8Rng::from_entropy();
    for length in [63, 64, 65, 127, 128, 130, 200] {
        let point = point::<G1Affine>(&mut rng);
        let records: Vec<u8> =
            (0..length).flat_map(|_| if rng.next_u32() & 1 == 0 { vec![0; 96] } else { point.clone() }).collect();
        assert!(check::<G1Affine>(&records, 4).is_ok());
    }
}

#[test]
#[should_panic(expected = "a whole number of records")]
fn half_a_record_is_refused() {
    let _ = G1Affine::check_records(Arithmetic::detect(), &[0; 100]);
}

/// Records, of which some are infinity and some spoilt.
fn mixture<C: CurveCheck>(kinds: &[u8], seed: u64) -> Vec<u8>
where
    C::Curve: Curve<AffineRepr = C>,
{
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut records = Vec::new();
    for &kind in kinds {
        let mut record = point::<C>(&mut rng);
        if kind < 40 {
            record.fill(0);
        } else if let Some(&spoil) = SPOILS.get(usize::from(kind - 40)) {
            let component = rng.next_u32() as usize % (C::BYTES / FP_BYTES);
            spoil.apply(&mut record, component, &mut rng);
        }
        records.extend(record);
    }
    records
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn many_at_a_time_agree_with_one_by_one(
        kinds in prop::collection::vec(any::<u8>(), 0..40),
        offset in 0..64usize,
        seed in any::<u64>(),
    ) {
        let _ = check::<G1Affine>(&mixture::<G1Affine>(&kinds, seed), offset);
        let _ = check::<G2Affine>(&mixture::<G2Affine>(&kinds, seed), offset);
    }
}
