//! F_r in AVX2 lanes, for transforms.
//!
//! Five limbs; the Montgomery radix is 2^255. Data stay in blst's form x·2^256: constants are kept as c·2^255, so that data times
//! constant is data again; only the product of two data is off, by 2, which its user folds into a constant.
//!
//! r is 0.906·2^255: nothing is left above it, so that values and limbs both limit growth. *Stored* values are those of
//! [`reduce`](super::reduce): at most 0.5001r, tight limbs, the top one at most 0.907·2^50. Constants are balanced too, with strict limbs.
//! A stored value times a constant is at most 0.727r, top limb 1.32·2^50. A product's factors need limbs whose product is at most
//! 2^102: with a constant, the other's may be 2^52.

use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use blst::blst_fr;
use blstrs::Scalar;
use ff::{Field, PrimeField};

use super::{
    HALF, LIFT, LOW_BITS, Limbs, Prime, ROUND, ROUND_LIMB, WIDTH, add, add_bits, add_limbs, as_bits, balanced, extract,
    left, load_words, low, multiply_add, neg_inverse, quotient_limb, reduce, right, run_checked, signed, simd, splat,
    splat_bits, start, store_words, sub_limbs, unsigned,
};
use crate::field::{Kernel, LANES, R, ScalarLanes, Vectors, Words, negate_plain};

const LIMBS: usize = 5;

/// The scalar field's prime.
pub(super) struct Order;

impl Prime<LIMBS> for Order {
    const LIMBS: [f64; LIMBS] = balanced(&R);
    const NEG_INV: f64 = neg_inverse(R[0]);
}

montgomery!(mul_call, Order, 5, columns_of_5, (1, 0), one_product(a, b));

/// a·b/2^255.
#[inline(always)]
fn mul(a: &Limbs<LIMBS>, b: &Limbs<LIMBS>) -> Limbs<LIMBS> {
    let mut r = MaybeUninit::uninit();
    // The call initialises what it is given. Taken limb by limb: see `base`.
    simd!({
        mul_call(&mut r, a, b);
        let [[a, b, c, d, e], [f, g, h, i, j]] = r.assume_init_ref();
        [[*a, *b, *c, *d, *e], [*f, *g, *h, *i, *j]]
    })
}

#[inline(always)]
fn reduced(a: &Limbs<LIMBS>) -> Limbs<LIMBS> {
    reduce::<Order, LIMBS>(a)
}

/// Eight elements of F_r.
#[derive(Clone, Copy)]
pub(crate) struct Fr(Limbs<LIMBS>);

/// A constant times 2^255 in strict limbs, at most r/2.
pub(crate) type FrConstant = [f64; LIMBS];

impl Vectors for Fr {
    fn run<K: Kernel>(kernel: K) -> K::Output {
        run_checked(kernel)
    }
}

/// A word array as two blocks.
#[inline(always)]
fn sixteens(words: &Words) -> [&[u8; 16]; 2] {
    let first = words.as_ptr();
    // SAFETY: 16 bytes of the 32 that `words` has, from its start and from its middle; bytes have no alignment.
    unsafe { [&*first.cast(), &*first.add(2).cast()] }
}

impl ScalarLanes for Fr {
    type Constant = FrConstant;
    // Limbs of 2^50 grow by 2^50 in each step, values of r/2 by 0.727r: what `reduce` takes is at most 7·2^50 then.
    const PRODUCT_STEPS: usize = 3;

    fn data_product() -> Scalar {
        // (x·2^256)(y·2^256)/2^255 = 2xy·2^256.
        Scalar::ONE.double()
    }

    fn constant(c: &Scalar) -> FrConstant {
        // c·2^256 is how the scalar is held.
        let words = blst_fr::from(c * Scalar::TWO_INV).l;
        let negated = negate_plain(words);
        // Of an element and its negative, the smaller one: compared as integers, from the top word.
        if words.iter().rev().gt(negated.iter().rev()) {
            balanced::<LIMBS>(&negated).map(|limb| -limb)
        } else {
            balanced(&words)
        }
    }

    #[inline(always)]
    fn splat(c: &FrConstant) -> Self {
        let mut r = [[splat(0.0); LIMBS]; 2];
        for j in 0..LIMBS {
            r[0][j] = splat(c[j]);
            r[1][j] = r[0][j];
        }
        Self(r)
    }

    #[inline(always)]
    fn constants(c: &[FrConstant; LANES]) -> Self {
        let mut r = [[splat(0.0); LIMBS]; 2];
        for x in 0..2 {
            for j in 0..LIMBS {
                r[x][j] = simd!(_mm256_setr_pd(c[4 * x][j], c[4 * x + 1][j], c[4 * x + 2][j], c[4 * x + 3][j]));
            }
        }
        Self(r)
    }

    #[inline(always)]
    fn load(values: [&Words; LANES]) -> Self {
        let mut r = [[splat(0.0); LIMBS]; 2];
        for x in 0..2 {
            let words = load_words([
                sixteens(values[4 * x]),
                sixteens(values[4 * x + 1]),
                sixteens(values[4 * x + 2]),
                sixteens(values[4 * x + 3]),
            ]);
            for j in 0..LIMBS - 1 {
                r[x][j] = unsigned(extract(&words, (WIDTH * j) as i32), 0.0);
            }
            // 52 bits are left.
            r[x][LIMBS - 1] = unsigned(right(words[3], 12), 0.0);
        }
        Self(reduced(&r))
    }

    #[inline(always)]
    fn store(self) -> [Words; LANES] {
        let mut out = [[0; 4]; LANES];
        for (x, out) in out.chunks_exact_mut(4).enumerate() {
            // Plus r, so that it isn't negative; as integers, with unsigned carries.
            let mut limbs = [splat_bits(0); LIMBS];
            let mut carry = splat_bits(0);
            for j in 0..LIMBS {
                let limb = as_bits(add(self.0[x][j], splat(ROUND)));
                let lift = if j == 0 { LIFT } else { LIFT - (LIFT >> WIDTH) };
                let limb = add_bits(limb, splat_bits(Order::LIMBS[j] as i64 + lift - LOW_BITS));
                let limb = add_bits(limb, carry);
                carry = simd!(_mm256_srli_epi64::<{ WIDTH as i32 }>(limb));
                limbs[j] = if j == LIMBS - 1 { add_bits(limb, splat_bits(-LIFT)) } else { low(limb) };
            }
            let [l0, l1, l2, l3, l4] = limbs;
            let words = simd!([
                _mm256_or_si256(l0, left(l1, 51)),
                _mm256_or_si256(right(l1, 13), left(l2, 38)),
                _mm256_or_si256(right(l2, 26), left(l3, 25)),
                _mm256_or_si256(right(l3, 39), left(l4, 12)),
            ]);
            store_words(words, out, 0);
        }
        out
    }

    #[inline(always)]
    fn mul(self, factor: Self) -> Self {
        Self(mul(&reduced(&self.0), &factor.0))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(sub_limbs(&self.0, &other.0))
    }

    #[inline(always)]
    fn difference_first<const LEVEL: usize>(u: Self, v: Self, w: Self) -> (Self, Self) {
        // Before the first step values are stored; products are at most 0.953r after it, with a top limb of 1.73·2^50. The second
        // step reduces what it takes, so that the third one's differences are at most 1.46r, top limb 2.64·2^50.
        let (sum, difference) = (add_limbs(&u.0, &v.0), sub_limbs(&u.0, &v.0));
        if LEVEL == 1 {
            (Self(reduced(&sum)), Self(mul(&reduced(&difference), &w.0)))
        } else {
            (Self(sum), Self(mul(&difference, &w.0)))
        }
    }

    #[inline(always)]
    fn product_first(u: Self, v: Self, w: Self) -> (Self, Self) {
        let product = mul(&reduced(&v.0), &w.0);
        (Self(add_limbs(&u.0, &product)), Self(sub_limbs(&u.0, &product)))
    }

    #[inline(always)]
    fn reduce(self) -> Self {
        Self(reduced(&self.0))
    }
}
