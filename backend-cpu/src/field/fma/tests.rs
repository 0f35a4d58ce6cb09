//! Field routines against blst, at the edges of what limbs and values may be.

use blst::{blst_fp, blst_fp2, blst_fr};
use blstrs::Scalar;
use ff::{Field, PrimeField};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use super::base::{Fq, Fq2, FqCell, limbs_of_fp, words_of_limbs};
use super::scalar::Fr;
use crate::field::portable::{BlstField, read_fp};
use crate::field::{Arithmetic, BaseLanes, Kernel, LANES, Lanes, ScalarLanes, Vectors, Words, canonical, words};

const Q: [u64; 6] = [
    0xb9fe_ffff_ffff_aaab,
    0x1eab_fffe_b153_ffff,
    0x6730_d2a0_f6b0_f624,
    0x6477_4b84_f385_12bf,
    0x4b1b_a7b6_434b_acd7,
    0x1a01_11ea_397f_e69a,
];

/// Whether there is something to test.
fn skipped() -> bool {
    let skipped = !Arithmetic::Avx2Fma.is_supported();
    if skipped {
        println!("skipped: this processor has no AVX2 with FMA");
    }
    skipped
}

fn below(l: [u64; 6]) -> bool {
    l.iter().rev().lt(Q.iter().rev())
}

/// Canonical integers: edges of the field and of limbs, then random ones.
fn integers(rng: &mut ChaCha8Rng, count: usize) -> Vec<blst_fp> {
    let mut all = vec![[0; 6], [1, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0]];
    for less in 1..4 {
        let mut l = Q;
        l[0] -= less;
        all.push(l);
    }
    // (q ± 1)/2.
    let half: Vec<_> = (0..6).map(|i| Q[i] >> 1 | Q.get(i + 1).map_or(0, |w| w << 63)).collect();
    let half: [u64; 6] = half.try_into().unwrap();
    all.push(half);
    all.push([half[0] + 1, half[1], half[2], half[3], half[4], half[5]]);
    // Around single bits at limb edges, and runs of ones.
    for bit in (50..380).step_by(51).chain((51..380).step_by(51)).chain([63, 64, 128, 380]) {
        let mut l = [0; 6];
        l[bit / 64] = 1 << (bit % 64);
        all.push(l);
        let ones: [u64; 6] = std::array::from_fn(|i| match (bit / 64).cmp(&i) {
            std::cmp::Ordering::Greater => u64::MAX,
            std::cmp::Ordering::Equal => (1 << (bit % 64)) - 1,
            std::cmp::Ordering::Less => 0,
        });
        all.push(ones);
    }
    assert!(all.iter().all(|l| below(*l)));
    while all.len() < count {
        let mut l = [0; 6].map(|_: u64| rng.next_u64());
        l[5] %= Q[5];
        all.push(l);
    }
    all.into_iter().map(|l| blst_fp { l }).collect()
}

/// Integer times 2^k modulo q.
fn times_power_of_two(mut x: blst_fp, k: usize) -> blst_fp {
    for _ in 0..k {
        x = x.add(x);
    }
    x
}

/// Runs a closure on lanes. What it calls is compiled without the features and slow: good enough for tests.
struct Run<F>(F);

impl<T, F: FnOnce() -> T> Kernel for Run<F> {
    type Output = T;

    #[inline(always)]
    fn run(self) -> T {
        (self.0)()
    }
}

fn on_lanes<T>(f: impl FnOnce() -> T) -> T {
    Fq::run(Run(f))
}

fn cell(x: &blst_fp) -> FqCell {
    FqCell::from_limbs(limbs_of_fp(x))
}

/// Eight integers as an element each.
fn gather(x: &[blst_fp]) -> Fq {
    let cells: Vec<_> = x.iter().map(cell).collect();
    Fq::gather(std::array::from_fn(|i| &cells[i]))
}

fn scatter(x: Fq) -> [blst_fp; LANES] {
    x.scatter().map(|c| words_of_limbs(&c.limbs()))
}

#[test]
fn integers_survive_the_way_to_limbs_and_back() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for x in integers(&mut rng, 300) {
        let limbs = limbs_of_fp(&x);
        assert!(limbs.iter().all(|l| f64::from_bits(*l).abs() <= (1u64 << 50) as f64));
        assert_eq!(words_of_limbs(&limbs), x);
        // And multiples of q on top, on either side.
        for k in [-8.0, -1.0, 1.0, 7.0] {
            let q = limbs_of_fp(&blst_fp { l: Q }).map(f64::from_bits);
            let shifted: [u64; 8] = std::array::from_fn(|j| (f64::from_bits(limbs[j]) + k * q[j]).to_bits());
            assert_eq!(words_of_limbs(&shifted), x, "{k} q more");
        }
    }
}

#[test]
fn products_and_squares_in_the_base_field_are_those_of_blst() {
    if skipped() {
        return;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let all = integers(&mut rng, 64);
    for shift in 0..all.len() {
        let other: Vec<_> = (0..all.len()).map(|i| all[(i + shift) % all.len()]).collect();
        for (a, b) in all.chunks(LANES).zip(other.chunks(LANES)) {
            let (product, square, fused) = on_lanes(|| {
                let (x, y) = (gather(a), gather(b));
                (scatter(x.mul(&y)), scatter(x.sqr_sub(&y)), scatter(x.mul_sub(&y, &x)))
            });
            for i in 0..LANES {
                // Ours is a·b/2^408, theirs a·b/2^384.
                assert_eq!(times_power_of_two(product[i], 24), a[i].mul(b[i]));
                assert_eq!(times_power_of_two(square[i].add(b[i]), 24), a[i].sqr());
                assert_eq!(times_power_of_two(fused[i].add(a[i]), 24), a[i].mul(b[i]));
            }
        }
    }
}

#[test]
fn factors_may_be_as_large_as_promised() {
    if skipped() {
        return;
    }
    // Limbs of ±2^52 times strict ones of ±2^50, and ±2^51 times ±2^51: the value is whatever the limbs say.
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let value = |limbs: &[f64; 8]| {
        limbs.iter().rev().fold(blst_fp::ZERO, |sum, &limb| {
            let small = blst_fp { l: [limb.abs() as u64, 0, 0, 0, 0, 0] };
            let sum = times_power_of_two(sum, 51);
            if limb < 0.0 { sum.sub(small) } else { sum.add(small) }
        })
    };
    for round in 0..200 {
        for (first, second) in [(52, 50), (51, 51)] {
            let mut limbs = |bits: u32| {
                std::array::from_fn::<f64, 8, _>(|j| {
                    let magnitude = if round % 3 == 0 { 1 << bits } else { rng.next_u64() >> (64 - bits) };
                    // The top limb makes the value: some twenty q.
                    let magnitude = if j == 7 { magnitude >> (bits - 28) } else { magnitude };
                    if rng.next_u32() % 2 == 0 { -(magnitude as f64) } else { magnitude as f64 }
                })
            };
            let (a, b) = (limbs(first), limbs(second));
            let (cell_a, cell_b) = (FqCell::from_limbs(a.map(f64::to_bits)), FqCell::from_limbs(b.map(f64::to_bits)));
            // What is reduced is a few q at most.
            let mut few = a;
            few[7] = (few[7] / 8.0).trunc();
            let cell_few = FqCell::from_limbs(few.map(f64::to_bits));
            let (product, reduced) = on_lanes(|| {
                let (x, y) = (Fq::gather([&cell_a; LANES]), Fq::gather([&cell_b; LANES]));
                (x.mul(&y).scatter(), Fq::gather([&cell_few; LANES]).reduce().scatter())
            });
            for i in 0..LANES {
                let limbs = product[i].limbs().map(f64::from_bits);
                assert!(limbs.iter().all(|l| l.abs() <= (1u64 << 50) as f64), "strict");
                let result = words_of_limbs(&product[i].limbs());
                assert_eq!(times_power_of_two(result, 24), value(&a).mul(value(&b)));
                let limbs = reduced[i].limbs().map(f64::from_bits);
                assert!(limbs.iter().all(|l| l.abs() <= ((1u64 << 50) + 1024) as f64), "tight");
                assert_eq!(words_of_limbs(&reduced[i].limbs()), value(&few));
            }
        }
    }
}

#[test]
fn records_are_loaded_for_the_isomorphic_curve_and_zeros_found() {
    if skipped() {
        return;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let all = integers(&mut rng, 64);
    for shift in [0, 1, 7, 31] {
        let mut records = Vec::new();
        for i in 0..all.len() {
            for x in [all[i], all[(i + shift) % all.len()]] {
                records.extend(x.l.iter().flat_map(|w| w.to_le_bytes()));
            }
        }
        // Off by one byte: records have no alignment.
        records.insert(0, 0);
        let records: Vec<&[u8]> = records[1..].chunks_exact(96).collect();
        for eight in records.chunks_exact(LANES) {
            let eight: [&[u8]; LANES] = eight.try_into().unwrap();
            let (x, y, zeros, negated, equal) = on_lanes(|| {
                let (x, y) = Fq::gather_records(eight);
                let equal = x.diff(gather(&eight.map(|r| read_fp(&r[48..96])))).zeros_of_diff();
                let negated = y.negate_where(0b1010_0101);
                (scatter(x), scatter(y), y.literal_zeros(), scatter(negated.reduce()), equal)
            });
            for i in 0..LANES {
                let (expected_x, expected_y) = (read_fp(&eight[i][..48]), read_fp(&eight[i][48..96]));
                assert_eq!(x[i], expected_x);
                assert_eq!(times_power_of_two(y[i], 12), expected_y);
                assert_eq!(zeros >> i & 1 == 1, expected_y == blst_fp::ZERO);
                assert_eq!(equal >> i & 1 == 1, expected_x == expected_y);
                assert_eq!(negated[i], if 0b1010_0101 >> i & 1 == 1 { y[i].neg() } else { y[i] });
            }
        }
    }
}

#[test]
fn differences_that_are_multiples_of_q_are_zeros() {
    if skipped() {
        return;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let q = limbs_of_fp(&blst_fp { l: Q }).map(f64::from_bits);
    for x in integers(&mut rng, 100) {
        let limbs = limbs_of_fp(&x).map(f64::from_bits);
        for k in [-1.0, 0.0, 1.0] {
            let shifted = FqCell::from_limbs(std::array::from_fn(|j| (limbs[j] + k * q[j]).to_bits()));
            let mut near = shifted.limbs();
            near[5] = (f64::from_bits(near[5]) + 1.0).to_bits();
            let near = FqCell::from_limbs(near);
            let (zeros, none, slow) = on_lanes(|| {
                let (a, b, c) =
                    (Fq::gather([&cell(&x); LANES]), Fq::gather([&shifted; LANES]), Fq::gather([&near; LANES]));
                (b.diff(a).zeros_of_diff(), c.diff(a).zeros_of_diff(), b.diff(a).zeros())
            });
            assert_eq!((zeros, none, slow), (0xff, 0, 0xff), "{k} q");
        }
    }
}

#[test]
fn inverses_in_both_fields_are_those_of_blst() {
    if skipped() {
        return;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let all = integers(&mut rng, 72);
    for eight in all[1..].chunks_exact(LANES) {
        let (inverse, again) = on_lanes(|| {
            let x = gather(eight);
            let inverse = x.invert();
            (scatter(inverse), scatter(inverse.mul(&x)))
        });
        for i in 0..LANES {
            // (v/2^408)⁻¹·2^408 = v⁻¹·2^816, blst's is v⁻¹·2^768.
            assert_eq!(inverse[i], times_power_of_two(eight[i].inv(), 48));
            assert_eq!(again[i], times_power_of_two(blst_fp { l: [1, 0, 0, 0, 0, 0] }, 408));
        }
    }
}

#[test]
fn the_quadratic_extension_is_that_of_blst() {
    if skipped() {
        return;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let all = integers(&mut rng, 64);
    let element = |i: usize| blst_fp2 { fp: [all[i % all.len()], all[(i * 7 + 3) % all.len()]] };
    let cells = |first: usize| -> Vec<_> {
        (0..LANES).map(|i| element(first + i)).map(|e| Fq2::cell(cell(&e.fp[0]), cell(&e.fp[1]))).collect()
    };
    let back = |x: Fq2| x.scatter().map(|c| blst_fp2 { fp: c.limbs().map(|l| words_of_limbs(&l)) });
    let up = |x: blst_fp2, k| blst_fp2 { fp: x.fp.map(|c| times_power_of_two(c, k)) };
    for shift in 0..40 {
        for first in (0..64).step_by(LANES) {
            let (a, b) = (cells(first), cells(first + shift));
            let gather = |cells: &[_]| Fq2::gather(std::array::from_fn(|i| &cells[i]));
            let (product, square, triple, inverse) = on_lanes(|| {
                let (x, y) = (gather(&a), gather(&b));
                // Eight ones where there is no inverse.
                let x_or_one = Fq2::select(x.zeros(), Fq2::unit(), x);
                let inverse = x_or_one.inverse(&x_or_one.norm().mul(&Fq::unit()).invert());
                (back(x.mul(&y)), back(x.sqr_sub(&y)), back(x.triple_square().reduce()), back(inverse))
            });
            for i in 0..LANES {
                let (x, y) = (element(first + i), element(first + shift + i));
                assert_eq!(up(product[i], 24), x.mul(y));
                assert_eq!(up(square[i].add(y), 24), x.sqr());
                assert_eq!(up(triple[i], 24), x.sqr().triple());
                // The norm is |x|²/2^408; multiplied by 1 once more |x|²/2^816, whose inverse is 2^1632/|x|²; times x's conjugate,
                // over 2^408, that is 2^1224/x. blst's is 2^768/x.
                if x != blst_fp2::ZERO {
                    assert_eq!(inverse[i], up(x.inv(), 1224 - 768));
                }
            }
        }
    }
}

fn scalars(rng: &mut ChaCha8Rng, count: usize) -> Vec<Scalar> {
    let mut all = vec![Scalar::ZERO, Scalar::ONE, -Scalar::ONE, -Scalar::TWO_INV, Scalar::TWO_INV, Scalar::from(2)];
    // Small integers as they lie in memory: c·2^256 for c = k/2^256.
    let radix_inverse = Scalar::from(2).pow_vartime([256]).invert().unwrap();
    for bit in [0, 1, 50, 51, 102, 153, 203, 204, 254] {
        all.push(Scalar::from(2).pow_vartime([bit]) * radix_inverse);
        all.push(-all[all.len() - 1]);
    }
    all.resize_with(count, || Scalar::random(&mut *rng));
    all
}

fn scalar(words: Words) -> Scalar {
    Scalar::from(blst_fr { l: canonical(words) })
}

#[test]
fn scalars_are_stored_multiplied_and_grown_as_blst_does() {
    if skipped() {
        return;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let all = scalars(&mut rng, 64);
    let load = |x: &[Scalar]| {
        let words: Vec<_> = x.iter().map(words).collect();
        Fr::load(std::array::from_fn(|i| &words[i]))
    };
    for shift in 0..64 {
        let other: Vec<_> = (0..64).map(|i| all[(i + shift) % 64]).collect();
        for (a, b) in all.chunks(LANES).zip(other.chunks(LANES)) {
            let constants = std::array::from_fn(|i| Fr::constant(&b[i]));
            let (same, product, data, difference) = on_lanes(|| {
                let (x, y) = (load(a), load(b));
                (
                    x.store(),
                    x.mul(Fr::constants(&constants)).reduce().store(),
                    x.mul(y).reduce().store(),
                    x.sub(y).reduce().store(),
                )
            });
            for i in 0..LANES {
                assert_eq!(scalar(same[i]), a[i]);
                assert_eq!(scalar(product[i]), a[i] * b[i]);
                assert_eq!(scalar(data[i]), a[i] * b[i] * Fr::data_product());
                assert_eq!(scalar(difference[i]), a[i] - b[i]);
            }
        }
    }
}

#[test]
fn butterflies_may_follow_each_other_as_often_as_promised() {
    if skipped() {
        return;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let all = scalars(&mut rng, 32);
    for start in 0..200 {
        let pick = |i: usize| all[(start + i * (1 + start / 32)) % 32];
        let (mut u, mut v, w) = (pick(0), pick(1), pick(2));
        let constant = [Fr::constant(&w); LANES];
        let (mut words_u, mut words_v) = (words(&u), words(&v));
        (words_u, words_v) = on_lanes(|| {
            let (mut x, mut y) = (Fr::load([&words_u; LANES]), Fr::load([&words_v; LANES]));
            let w = Fr::constants(&constant);
            for _ in 0..Fr::PRODUCT_STEPS {
                (x, y) = Fr::product_first(x, y, w);
            }
            (x.reduce().store()[start % 8], y.reduce().store()[start % 8])
        });
        for _ in 0..Fr::PRODUCT_STEPS {
            (u, v) = (u + v * w, u - v * w);
        }
        assert_eq!((scalar(words_u), scalar(words_v)), (u, v), "product first");
        (words_u, words_v) = on_lanes(|| {
            let (mut x, mut y) = (Fr::load([&words_u; LANES]), Fr::load([&words_v; LANES]));
            let w = Fr::constants(&constant);
            (x, y) = Fr::difference_first::<0>(x, y, w);
            (x, y) = Fr::difference_first::<1>(x, y, w);
            (x, y) = Fr::difference_first::<2>(x, y, w);
            (x.reduce().store()[start % 8], y.reduce().store()[start % 8])
        });
        for _ in 0..3 {
            (u, v) = (u + v, (u - v) * w);
        }
        assert_eq!((scalar(words_u), scalar(words_v)), (u, v), "difference first");
    }
}
