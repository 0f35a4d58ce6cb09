//! Many multiples of the generators: the bulk of key generation.
//!
//! Every point of a development key is a known scalar times G1's or G2's generator. With tables of small multiples of 2^(wj)·G a
//! product is a sum of ⌈256 / w⌉ table entries, one for each signed digit of the scalar, and the sums of thousands of
//! products are carried out side by side so that they share inversions.
//!
//! [`FixedBase`] is what key generation asks for; [`CpuFixedBase`] answers here, [`BackendFixedBase`] has a device answer.

mod affine;
mod backend;
mod field;

use std::sync::OnceLock;

use blst::{blst_fp, blst_fp2};
use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};
use rayon::prelude::*;
use splitprover_core::{BackendError, PointRecord};

use self::affine::{Affine, BatchAdder};
pub use self::backend::BackendFixedBase;
use self::field::Coordinate;

/// Multiplies the generators of G1 and G2 by many scalars.
pub trait FixedBase: Sync {
    /// Writes the record of scalar·generator of G1 for each scalar, 96 bytes each; zero gives infinity, all zeros.
    ///
    /// # Errors
    /// [`BackendError`] if a device fails.
    ///
    /// # Panics
    /// If `records` hasn't 96 bytes for each scalar.
    fn mul_g1(&self, scalars: &[Scalar], records: &mut [u8]) -> Result<(), BackendError>;

    /// The same in G2, 192 bytes each.
    ///
    /// # Errors
    /// [`BackendError`] if a device fails.
    ///
    /// # Panics
    /// If `records` hasn't 192 bytes for each scalar.
    fn mul_g2(&self, scalars: &[Scalar], records: &mut [u8]) -> Result<(), BackendError>;

    /// How many scalars a call should get for full speed. Callers split longer sequences to show progress.
    fn batch(&self) -> usize;
}

/// Products per unit of parallel work: enough to share an inversion, few enough for their accumulators to stay in the cache.
const BLOCK: usize = 1024;

/// The reference: tables for both generators, made on first use, and rayon's current pool.
pub struct CpuFixedBase {
    window: u32,
    g1: OnceLock<Table<blst_fp>>,
    g2: OnceLock<Table<blst_fp2>>,
}

impl CpuFixedBase {
    /// Tables that suit about `products` multiplications in each group.
    pub fn new(products: usize) -> Self {
        // A table costs 2^(w−1) additions a window, a product one. From 2^16 entries on they fall out of the cache.
        let additions = |w: u32| windows(w) * (products + (1 << (w - 1)));
        let window = (4..=14).min_by_key(|&w| additions(w)).unwrap_or(8);
        Self { window, g1: OnceLock::new(), g2: OnceLock::new() }
    }
}

impl std::fmt::Debug for CpuFixedBase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CpuFixedBase(windows of {} bits)", self.window)
    }
}

impl FixedBase for CpuFixedBase {
    fn mul_g1(&self, scalars: &[Scalar], records: &mut [u8]) -> Result<(), BackendError> {
        let table = self.g1.get_or_init(|| {
            let bases = window_bases(G1Projective::generator(), self.window);
            Table::new(self.window, bases.iter().map(|p: &G1Affine| g1_coordinates(p)).collect())
        });
        table.mul_many(scalars, records);
        Ok(())
    }

    fn mul_g2(&self, scalars: &[Scalar], records: &mut [u8]) -> Result<(), BackendError> {
        let table = self.g2.get_or_init(|| {
            let bases = window_bases(G2Projective::generator(), self.window);
            Table::new(self.window, bases.iter().map(|p: &G2Affine| g2_coordinates(p)).collect())
        });
        table.mul_many(scalars, records);
        Ok(())
    }

    fn batch(&self) -> usize {
        64 * BLOCK
    }
}

/// Digits of a scalar in signed windows of `window` bits. A scalar has 255 bits; digits in −2^(w−1) ..= 2^(w−1) carry into the
/// next window, and the last one must take a carry: so 256 bits are covered.
fn windows(window: u32) -> usize {
    256usize.div_ceil(window as usize)
}

/// 2^(wj)·G for each window j.
fn window_bases<P>(generator: P, window: u32) -> Vec<P::AffineRepr>
where
    P: Curve + Group,
    P::AffineRepr: PrimeCurveAffine,
{
    let bases: Vec<P> = std::iter::successors(Some(generator), |base| Some((0..window).fold(*base, |p, _| p.double())))
        .take(windows(window))
        .collect();
    let mut affine = vec![P::AffineRepr::identity(); bases.len()];
    P::batch_normalize(&bases, &mut affine);
    affine
}

fn g1_coordinates(point: &G1Affine) -> Affine<blst_fp> {
    let raw: &blst::blst_p1_affine = point.as_ref();
    Affine { x: raw.x, y: raw.y }
}

fn g2_coordinates(point: &G2Affine) -> Affine<blst_fp2> {
    let raw: &blst::blst_p2_affine = point.as_ref();
    Affine { x: raw.x, y: raw.y }
}

/// k·2^(wj)·G for 1 ≤ k ≤ 2^(w−1) and each window j.
struct Table<F> {
    window: u32,
    multiples: Vec<Vec<Affine<F>>>,
}

impl<F: Coordinate> Table<F> {
    /// Builds the table from the bases 2^(wj)·G.
    fn new(window: u32, bases: Vec<Affine<F>>) -> Self {
        let multiples = bases.into_par_iter().map(|base| multiples(base, 1 << (window - 1))).collect();
        Self { window, multiples }
    }

    fn mul_many(&self, scalars: &[Scalar], records: &mut [u8]) {
        let record = 2 * F::BYTES;
        assert_eq!(records.len(), scalars.len() * record, "a record for each scalar");
        scalars.par_chunks(BLOCK).zip(records.par_chunks_mut(BLOCK * record)).for_each_init(
            || (vec![[0; 32]; BLOCK], vec![Affine::INFINITY; BLOCK], vec![0; BLOCK], BatchAdder::with_capacity(BLOCK)),
            |(bytes, sums, carries, adder), (scalars, records)| {
                let (bytes, sums, carries) =
                    (&mut bytes[..scalars.len()], &mut sums[..scalars.len()], &mut carries[..scalars.len()]);
                for (bytes, scalar) in bytes.iter_mut().zip(scalars) {
                    *bytes = scalar.to_bytes_le();
                }
                sums.fill(Affine::INFINITY);
                carries.fill(0);
                for (j, multiples) in self.multiples.iter().enumerate() {
                    for (i, (bytes, carry)) in bytes.iter().zip(carries.iter_mut()).enumerate() {
                        let digit;
                        (digit, *carry) = signed_digit(bytes, j as u32 * self.window, self.window, *carry);
                        if digit != 0 {
                            let Affine { x, y } = multiples[digit.unsigned_abs() as usize - 1];
                            adder.add(sums, i, Affine { x, y: y.negate_if(digit < 0) });
                        }
                    }
                    adder.finish(sums);
                }
                for (sum, out) in sums.iter().zip(records.chunks_exact_mut(record)) {
                    sum.write(out);
                }
            },
        );
    }
}

/// P, 2P, …, `count`·P: from the first k multiples the next k come by adding the k-th to each.
fn multiples<F: Coordinate>(base: Affine<F>, count: usize) -> Vec<Affine<F>> {
    let mut all = Vec::with_capacity(count);
    all.push(base);
    let mut adder = BatchAdder::with_capacity(count / 2);
    while all.len() < count {
        let (known, last) = (all.len(), all[all.len() - 1]);
        all.extend_from_within(..known.min(count - known));
        let fresh = &mut all[known..];
        for target in 0..fresh.len() {
            adder.add(fresh, target, last);
        }
        adder.finish(fresh);
    }
    all
}

/// The `width` bits from bit `start` of a little-endian number plus the carry, as a digit in −2^(width−1) ..= 2^(width−1) and
/// the carry into the next window. `width` is at most 16.
fn signed_digit(bytes: &[u8; 32], start: u32, width: u32, carry: i32) -> (i32, i32) {
    let first = (start / 8) as usize;
    let word = (first..(first + 3).min(32)).rev().fold(0u32, |word, i| word << 8 | u32::from(bytes[i]));
    let bits = (word >> (start % 8) & ((1 << width) - 1)) as i32 + carry;
    if bits > 1 << (width - 1) { (bits - (1 << width), 1) } else { (bits, 0) }
}

/// The record of one multiple of the generator, by the group's own multiplication: for the few points of a key's header.
pub(crate) fn multiple<C: PointRecord>(scalar: &Scalar) -> C {
    (C::generator() * *scalar).to_affine()
}

#[cfg(test)]
mod tests {
    use ff::{Field, PrimeField};
    use rand_core::OsRng;

    use super::*;

    fn edges_and_randoms(count: usize) -> Vec<Scalar> {
        let mut scalars = vec![
            Scalar::ZERO,
            Scalar::ONE,
            -Scalar::ONE,
            Scalar::from(2),
            -Scalar::from(2),
            Scalar::TWO_INV,
            Scalar::from(u64::MAX),
        ];
        // Around every power of two: all carries, digits at both ends of their range.
        for log2 in 1..255u64 {
            let power = Scalar::from(2).pow_vartime([log2]);
            scalars.extend([power - Scalar::ONE, power, power + Scalar::ONE, -power]);
        }
        scalars.extend((0..count).map(|_| Scalar::random(OsRng)));
        scalars
    }

    #[test]
    fn digits_add_up_to_the_scalar() {
        for scalar in edges_and_randoms(50) {
            for window in 1..=16 {
                let (mut sum, mut weight, mut carry) = (Scalar::ZERO, Scalar::ONE, 0);
                for j in 0..windows(window) as u32 {
                    let digit;
                    (digit, carry) = signed_digit(&scalar.to_bytes_le(), j * window, window, carry);
                    assert!(digit.unsigned_abs() <= 1 << (window - 1));
                    let magnitude = Scalar::from(u64::from(digit.unsigned_abs()));
                    sum += weight * if digit < 0 { -magnitude } else { magnitude };
                    weight = weight.shl(window as usize);
                }
                assert_eq!((sum, carry), (scalar, 0), "windows of {window} bits");
            }
        }
    }

    #[test]
    fn products_equal_the_groups_own() {
        let scalars = edges_and_randoms(1500);
        for products in [1, 1 << 12] {
            let tables = CpuFixedBase::new(products);
            let (mut g1, mut g2) = (vec![1; scalars.len() * 96], vec![1; scalars.len() * 192]);
            tables.mul_g1(&scalars, &mut g1).unwrap();
            tables.mul_g2(&scalars, &mut g2).unwrap();
            for (scalar, (g1, g2)) in scalars.iter().zip(g1.chunks_exact(96).zip(g2.chunks_exact(192))) {
                assert_eq!(G1Affine::from_record_unchecked(g1), multiple(scalar));
                assert_eq!(G2Affine::from_record_unchecked(g2), multiple(scalar));
            }
        }
    }

    #[test]
    fn no_scalars_give_no_records() {
        CpuFixedBase::new(0).mul_g1(&[], &mut []).unwrap();
    }
}
