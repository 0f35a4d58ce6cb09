//! Whether points lie on their curve, eight records at a time.
//!
//! [`Judge::judge`] only says which records are *certainly* good: the rest, bad ones and very few good ones, are for the scalar
//! check to decide. So nothing here has to tell faults apart, or to get rare cases right.
//!
//! A record's coordinates are integers x·2^384 and y·2^384 (x and y being field elements, or components of them). Those of y
//! are divided by 2^16 while loading, as everywhere in the [parent](super); Montgomery products divide by 2^416:
//!
//! | | |
//! |---|---|
//! | (y·2^368)²/2^416 | y²·2^320 |
//! | s = (x·2^384)²/2^416 | x²·2^352 |
//! | s·(x·2^384)/2^416 | x³·2^320 |
//!
//! So y² − x³ = 4 is one sum of products, reduced once, that is 4·2^320 = 2^322 modulo q; and in G2, where y² − x³ = 4 + 4i,
//! both components are.
//!
//! **Ranges.** Coordinates below q give sums of products c below 10q², and a reduced value in [c/2^416, q + c/2^416). c/2^416
//! is about q/2^35, above 2^322 = q/2^59 unless coordinates happen to be tiny: so where the equation holds the value is
//! q + 2^322 in all lanes but one in 2^20 or fewer, and these aren't certain. Coordinates of q and more, up to 2^384, give
//! limbs that make no sense, yet columns that don't overflow (products take 52 bits of each limb), in their own lane;
//! [`certainly_reduced`] has that lane refused.

use std::arch::x86_64::*;

use splitprover_core::point::FP_MODULUS;

use super::{
    Columns, Fq, Fq2, LIMBS, Limbs, MASK, add, limbs_of_words, limbs_of_words_div_2_16, load_words, mont_mul,
    mont_reduce, mont_sqr, multiple, product, splat, square, sub_offset, tighten, zero,
};
use crate::field::{LANES, Vectors};

/// What is known of eight records: a bit for each.
#[derive(Clone, Copy)]
pub(crate) struct Verdict {
    /// All bytes are zero.
    pub(crate) infinite: u8,
    /// The coordinates are below q, and satisfy the equation. Clear for records of which that isn't certain.
    pub(crate) good: u8,
}

/// Lanes that know their curve.
pub(crate) trait Judge: Vectors {
    /// Looks at eight records, each as long as a point of the group has bytes.
    fn judge(records: [&[u8]; LANES]) -> Verdict;
}

/// The words of a base field element in each lane.
type Words = [__m512i; 6];

/// Lanes whose integer is below q, but for those, 2^−61 of all, that have q's highest word.
#[inline(always)]
pub(super) fn certainly_reduced(words: &Words) -> u8 {
    simd!(_mm512_cmplt_epu64_mask(words[5], splat(FP_MODULUS[5])))
}

/// Lanes whose integer is zero.
#[inline(always)]
fn zeros(words: &Words) -> u8 {
    let mut bits = words[0];
    for j in 1..6 {
        bits = simd!(_mm512_or_si512(bits, words[j]));
    }
    simd!(_mm512_cmpeq_epi64_mask(bits, zero()))
}

/// q + 2^322.
const EXPECTED: [u64; LIMBS] = {
    let mut r = multiple(1);
    r[322 / 52] += 1 << (322 % 52);
    assert!(r[322 / 52] <= MASK, "tight");
    r
};

/// Lanes in which a tight value is [`EXPECTED`].
#[inline(always)]
fn as_expected(a: &Limbs) -> u8 {
    let mut different = zero();
    for j in 0..LIMBS {
        different = simd!(_mm512_or_si512(different, _mm512_xor_si512(a[j], splat(EXPECTED[j]))));
    }
    simd!(_mm512_cmpeq_epi64_mask(different, zero()))
}

/// 2q − a as a factor, from a loose value of at most 2q.
#[inline(always)]
fn negative(a: Limbs) -> Limbs {
    tighten(sub_offset::<2>([zero(); LIMBS], a))
}

/// a + b as a factor.
#[inline(always)]
fn sum(a: &Limbs, b: &Limbs) -> Limbs {
    let mut r = *a;
    for j in 0..LIMBS {
        r[j] = add(a[j], b[j]);
    }
    tighten(r)
}

/// a − b + 2q as a factor, for b of at most 2q.
#[inline(always)]
fn difference(a: &Limbs, b: &Limbs) -> Limbs {
    tighten(sub_offset::<2>(*a, *b))
}

/// 2·a·b.
#[inline(always)]
fn twice_product(a: &Limbs, b: &Limbs) -> Columns {
    let mut columns = [zero(); 2 * LIMBS];
    product(&mut columns, a, b);
    for j in 0..2 * LIMBS {
        columns[j] = add(columns[j], columns[j]);
    }
    columns
}

impl Judge for Fq {
    #[inline(always)]
    fn judge(records: [&[u8]; LANES]) -> Verdict {
        // Words 0..8 and 4..12 of each record; x is words 0..6, y words 6..12.
        let (w, v) = (load_words(&records, 0), load_words(&records, 32));
        let x = [w[0], w[1], w[2], w[3], w[4], w[5]];
        let y = [w[6], w[7], v[4], v[5], v[6], v[7]];
        let reduced = certainly_reduced(&x) & certainly_reduced(&y);
        let infinite = zeros(&x) & zeros(&y);

        let (x, y) = (limbs_of_words(&x), limbs_of_words_div_2_16(&y));
        let minus_square = negative(mont_sqr(&x));
        let mut columns = square(&y);
        product(&mut columns, &minus_square, &x);
        let good = reduced & as_expected(&tighten(mont_reduce(columns)));
        Verdict { infinite, good }
    }
}

impl Judge for Fq2 {
    #[inline(always)]
    fn judge(records: [&[u8]; LANES]) -> Verdict {
        // x.c0, x.c1, y.c0, y.c1: words 0..6, 6..12, 12..18, 18..24.
        let (a, b, c) = (load_words(&records, 0), load_words(&records, 64), load_words(&records, 128));
        let x0 = [a[0], a[1], a[2], a[3], a[4], a[5]];
        let x1 = [a[6], a[7], b[0], b[1], b[2], b[3]];
        let y0 = [b[4], b[5], b[6], b[7], c[0], c[1]];
        let y1 = [c[2], c[3], c[4], c[5], c[6], c[7]];
        let reduced = certainly_reduced(&x0) & certainly_reduced(&x1) & certainly_reduced(&y0) & certainly_reduced(&y1);
        let infinite = zeros(&x0) & zeros(&x1) & zeros(&y0) & zeros(&y1);

        let (x0, x1) = (limbs_of_words(&x0), limbs_of_words(&x1));
        let (y0, y1) = (limbs_of_words_div_2_16(&y0), limbs_of_words_div_2_16(&y1));
        // s = x² = (x0 + x1)(x0 − x1) + 2·x0·x1·i.
        let s0 = mont_mul(&sum(&x0, &x1), &difference(&x0, &x1));
        let s1 = mont_reduce(twice_product(&x0, &x1));
        let (minus_s0, minus_s1, s1) = (negative(s0), negative(s1), tighten(s1));
        // y² − s·x: (y0 + y1)(y0 − y1) − s0·x0 + s1·x1, and 2·y0·y1 − s0·x1 − s1·x0.
        let mut columns = [zero(); 2 * LIMBS];
        product(&mut columns, &sum(&y0, &y1), &difference(&y0, &y1));
        product(&mut columns, &minus_s0, &x0);
        product(&mut columns, &s1, &x1);
        let good0 = as_expected(&tighten(mont_reduce(columns)));
        let mut columns = twice_product(&y0, &y1);
        product(&mut columns, &minus_s0, &x1);
        product(&mut columns, &minus_s1, &x0);
        let good1 = as_expected(&tighten(mont_reduce(columns)));
        Verdict { infinite, good: reduced & good0 & good1 }
    }
}

#[cfg(test)]
mod tests {
    use blstrs::{G1Affine, G2Affine, Scalar};
    use ff::Field;
    use group::Curve;
    use rand_core::OsRng;
    use splitprover_core::PointRecord;

    use super::*;
    use crate::field::{Arithmetic, Kernel};

    struct Look<'a, J>([&'a [u8]; LANES], std::marker::PhantomData<J>);

    impl<J: Judge> Kernel for Look<'_, J> {
        type Output = Verdict;

        #[inline(always)]
        fn run(self) -> Verdict {
            J::judge(self.0)
        }
    }

    fn certain<C: PointRecord, J: Judge>()
    where
        C::Curve: Curve<AffineRepr = C>,
    {
        for infinite in 0..LANES {
            let mut records = vec![0; LANES * C::BYTES];
            for (lane, record) in records.chunks_exact_mut(C::BYTES).enumerate() {
                if lane != infinite {
                    (C::generator() * Scalar::random(OsRng)).to_affine().write_record(record);
                }
            }
            let lanes = std::array::from_fn(|lane| &records[lane * C::BYTES..(lane + 1) * C::BYTES]);
            let verdict = J::run(Look::<J>(lanes, std::marker::PhantomData));
            assert_eq!((verdict.infinite, verdict.good), (1 << infinite, !(1 << infinite)));
        }
    }

    /// The scalar check would hide it, at a cost, if they weren't.
    #[test]
    fn random_points_are_certainly_good() {
        if Arithmetic::Avx512Ifma.is_supported() {
            certain::<G1Affine, Fq>();
            certain::<G2Affine, Fq2>();
        } else {
            println!("skipped: this processor has no AVX-512 IFMA");
        }
    }
}
