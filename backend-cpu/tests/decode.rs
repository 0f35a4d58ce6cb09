//! Decoding of many points at a time against decoding one by one: every fault in every lane, and whatever chance brings.

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::Field;
use group::Curve;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use splitprover_backend_cpu::Arithmetic;
use splitprover_backend_cpu::decode::BigEndian;
use splitprover_core::point::{FP_BYTES, FP_MODULUS};

trait Encoded: BigEndian {
    fn encode(&self) -> Vec<u8>;
    fn decode(bytes: &[u8]) -> Option<Self>;
}

impl Encoded for G1Affine {
    fn encode(&self) -> Vec<u8> {
        self.to_uncompressed().to_vec()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Self::from_uncompressed_unchecked(bytes.try_into().expect("96 bytes")).into()
    }
}

impl Encoded for G2Affine {
    fn encode(&self) -> Vec<u8> {
        self.to_uncompressed().to_vec()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Self::from_uncompressed_unchecked(bytes.try_into().expect("192 bytes")).into()
    }
}

/// The reference: a finite point on the curve without flags.
fn one<C: Encoded>(encoded: &[u8], record: &mut [u8]) -> bool {
    let point = C::decode(encoded).filter(|point| encoded[0] & 0xe0 == 0 && !bool::from(point.is_identity()));
    point.inspect(|point| point.write_record(record)).is_some()
}

/// Decodes with every arithmetic, `offset` bytes away from an aligned address. Returns the result, and how many points lanes have left
/// open.
fn decode<C: Encoded>(encoded: &[u8], offset: usize) -> (Result<Vec<u8>, usize>, usize) {
    let mut buffer = vec![0xff; offset];
    buffer.extend(encoded);
    let expected = encoded
        .chunks_exact(C::BYTES)
        .enumerate()
        .map(|(index, encoded)| {
            let mut record = vec![0; C::BYTES];
            one::<C>(encoded, &mut record).then_some(record).ok_or(index)
        })
        .collect::<Result<Vec<_>, _>>()
        .map(|records| records.concat());
    let mut open = 0;
    for arithmetic in Arithmetic::supported() {
        let (mut records, mut asked) = (vec![0x77; buffer.len()], 0);
        let mut count = |encoded: &[u8], record: &mut [u8]| {
            asked += 1;
            one::<C>(encoded, record)
        };
        let result = C::decode_records(arithmetic, &buffer[offset..], &mut records[offset..], &mut count);
        let result = result.map(|()| records[offset..].to_vec());
        assert!(result == expected, "{arithmetic:?}: {:?} and {:?}", result.err(), expected.err());
        if arithmetic == Arithmetic::Avx512Ifma {
            open = asked;
        }
    }
    (expected, open)
}

fn points<C: Encoded>(rng: &mut ChaCha8Rng, count: usize) -> Vec<Vec<u8>>
where
    C::Curve: Curve<AffineRepr = C>,
{
    (0..count).map(|_| (C::generator() * Scalar::random(&mut *rng)).to_affine().encode()).collect()
}

/// Adds q to a coordinate. What doesn't fit into 384 bits is left out.
fn add_modulus(coordinate: &mut [u8]) {
    let mut carry = 0u128;
    for (chunk, q) in coordinate.rchunks_exact_mut(8).zip(FP_MODULUS) {
        let sum = u128::from(u64::from_be_bytes(chunk.try_into().expect("8 bytes"))) + u128::from(q) + carry;
        chunk.copy_from_slice(&(sum as u64).to_be_bytes());
        carry = sum >> 64;
    }
}

type Spoil = fn(&mut [u8], usize, &mut ChaCha8Rng);

/// Ways to spoil a point, by coordinate or component of one.
const SPOILS: [Spoil; 11] = [
    |point, _, _| point[0] |= 0x80,
    |point, _, _| point[0] |= 0x40,
    |point, _, _| point[0] |= 0x20,
    |point, at, _| add_modulus(&mut point[at * FP_BYTES..][..FP_BYTES]),
    |point, at, _| point[at * FP_BYTES..][..FP_BYTES].fill(0),
    |point, at, _| point[at * FP_BYTES..][..FP_BYTES].fill(0xff),
    |point, at, rng| point[at * FP_BYTES + 1 + rng.next_u32() as usize % (FP_BYTES - 1)] ^= 1 << (rng.next_u32() % 8),
    |point, _, _| point.fill(0),
    |point, _, _| {
        // Infinity, as it is encoded.
        point.fill(0);
        point[0] = 0x40;
    },
    |point, at, _| {
        // q instead of zero.
        let coordinate = &mut point[at * FP_BYTES..][..FP_BYTES];
        coordinate.fill(0);
        add_modulus(coordinate);
    },
    |point, _, _| {
        let half = point.len() / 2;
        point.rotate_left(half);
    },
];

fn every_fault_in_every_lane<C: Encoded>()
where
    C::Curve: Curve<AffineRepr = C>,
{
    let mut rng = ChaCha8Rng::from_entropy();
    let good = points::<C>(&mut rng, 19);
    for length in 0..=good.len() {
        let (decoded, open) = decode::<C>(&good[..length].concat(), length % 9);
        assert!(decoded.is_ok());
        assert_eq!(open, 0, "lanes are certain of random points");
    }
    for length in [1, 7, 8, 9, 19] {
        for spoil in SPOILS {
            for position in 0..length {
                let mut encoded = good[..length].concat();
                let component = rng.next_u32() as usize % (C::BYTES / FP_BYTES);
                spoil(&mut encoded[position * C::BYTES..(position + 1) * C::BYTES], component, &mut rng);
                assert_eq!(decode::<C>(&encoded, position % 8).0, Err(position));
            }
        }
    }
}

#[test]
fn points_become_records_and_every_fault_is_found_in_every_lane() {
    every_fault_in_every_lane::<G1Affine>();
    every_fault_in_every_lane::<G2Affine>();
}

#[test]
fn the_first_of_several_faults_is_reported() {
    let mut rng = ChaCha8Rng::from_entropy();
    let mut encoded = points::<G1Affine>(&mut rng, 30);
    for (later, earlier) in [(29, 23), (22, 17), (15, 8), (7, 0)] {
        encoded[later].fill(0);
        encoded[earlier][0] |= 0x80;
        assert_eq!(decode::<G1Affine>(&encoded.concat(), 3).0, Err(earlier));
    }
}

#[test]
fn the_curve_is_checked_and_the_subgroup_is_not() {
    let mut rng = ChaCha8Rng::from_entropy();
    let mut outside = Vec::new();
    while outside.len() < 11 {
        let mut bytes = [0; 48];
        rng.fill_bytes(&mut bytes);
        bytes[0] = bytes[0] & 0x2f | 0x80;
        if let Some(point) = Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(&bytes)) {
            outside.push(point.encode());
        }
    }
    let (decoded, open) = decode::<G1Affine>(&outside.concat(), 0);
    assert!(decoded.is_ok() && open == 0);
}

#[test]
fn coordinates_at_the_ends_of_the_field_are_decoded() {
    // x = 0 has y = ±2. Otherwise the least and the largest x that are on the curve.
    let with_x = |x: [u8; 48]| {
        let mut bytes = x;
        bytes[0] |= 0x80;
        Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(&bytes))
    };
    let mut largest = [0; 48];
    add_modulus(&mut largest);
    let mut encoded = Vec::new();
    for distance in 0..40u8 {
        let mut small = [0; 48];
        small[47] = distance;
        let mut large = largest;
        large[47] -= distance + 1;
        encoded.extend([small, large].into_iter().filter_map(with_x).flat_map(|point| [point, -point]));
    }
    assert!(encoded.len() > 20);
    let encoded: Vec<_> = encoded.iter().map(Encoded::encode).collect();
    assert!(decode::<G1Affine>(&encoded.concat(), 5).0.is_ok());
}
