//! F_r in eight AVX-512 lanes, for transforms.
//!
//! Five limbs of 52 bits, lane i of the registers is element i. The Montgomery radix of [`mont_mul`] is 2^260. Data stay in
//! blst's form x·2^256: constants are kept as c·2^260, so that data times constant is data again, whatever the radix of the
//! data; only the product of two data is off, by 2^−4, which its user folds into a constant.
//!
//! 2^260 is 35r, so values may grow to 16r before they are reduced, and a product of a factor below 16r and one below 1.6r
//! is below r + 16·1.6/35·r < 1.75r; with a constant below r it is below 1.46r.

#![allow(clippy::needless_range_loop, reason = "limb j of several operands is how the formulas are written")]

use std::arch::x86_64::*;

use blst::blst_fr;
use blstrs::Scalar;
use ff::{Field, PrimeField};

use super::ifma::run_checked;
use super::{Kernel, LANES, ScalarLanes, Vectors, Words};

const LIMBS: usize = 5;
const MASK: u64 = (1 << 52) - 1;

/// r in 52-bit limbs.
const R: [u64; LIMBS] =
    [0xf_ffff_0000_0001, 0x0_2fff_e5bf_efff, 0x9_a1d8_0553_bda4, 0x7_d483_339d_8080, 0x0_73ed_a753_299d];
/// −r⁻¹ mod 2^52.
const R_NEG_INV: u64 = 0xf_fffe_ffff_ffff;

const fn multiple(k: u64) -> [u64; LIMBS] {
    let mut r = [0; LIMBS];
    let mut carry = 0;
    let mut i = 0;
    while i < LIMBS {
        let t = R[i] as u128 * k as u128 + carry;
        r[i] = (t as u64) & MASK;
        carry = t >> 52;
        i += 1;
    }
    r
}

/// Limb j of 0·r, 1·r, …, 15·r.
const MULTIPLES: [[u64; 16]; LIMBS] = {
    let mut table = [[0; 16]; LIMBS];
    let mut k = 0;
    while k < 16 {
        let m = multiple(k as u64);
        let mut j = 0;
        while j < LIMBS {
            table[j][k] = m[j];
            j += 1;
        }
        k += 1;
    }
    table
};

// As in `ifma`: lanes only exist inside kernels run with the features.
macro_rules! simd {
    ($e:expr) => {{
        // SAFETY: see the comment at the macro.
        #[allow(unused_unsafe)]
        unsafe {
            $e
        }
    }};
}

type Limbs = [__m512i; LIMBS];

#[inline(always)]
fn splat(x: u64) -> __m512i {
    simd!(_mm512_set1_epi64(x as i64))
}

#[inline(always)]
fn zero() -> __m512i {
    simd!(_mm512_setzero_si512())
}

#[inline(always)]
fn add(a: __m512i, b: __m512i) -> __m512i {
    simd!(_mm512_add_epi64(a, b))
}

#[inline(always)]
fn sub(a: __m512i, b: __m512i) -> __m512i {
    simd!(_mm512_sub_epi64(a, b))
}

#[inline(always)]
fn lo(acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
    simd!(_mm512_madd52lo_epu64(acc, a, b))
}

#[inline(always)]
fn hi(acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
    simd!(_mm512_madd52hi_epu64(acc, a, b))
}

#[inline(always)]
fn or(a: __m512i, b: __m512i) -> __m512i {
    simd!(_mm512_or_si512(a, b))
}

#[inline(always)]
fn and(a: __m512i, b: __m512i) -> __m512i {
    simd!(_mm512_and_si512(a, b))
}

/// Propagates carries of signed limbs.
#[inline(always)]
fn tighten(mut a: Limbs) -> Limbs {
    let mask = splat(MASK);
    for j in 0..LIMBS - 1 {
        a[j + 1] = add(a[j + 1], simd!(_mm512_srai_epi64::<52>(a[j])));
        a[j] = simd!(_mm512_and_si512(a[j], mask));
    }
    a
}

/// a + b, loose.
#[inline(always)]
fn add_limbs(a: Limbs, b: Limbs) -> Limbs {
    let mut r = a;
    for j in 0..LIMBS {
        r[j] = add(a[j], b[j]);
    }
    r
}

/// a − b + K·r, loose.
#[inline(always)]
fn sub_offset<const K: usize>(a: Limbs, b: Limbs) -> Limbs {
    let mut r = a;
    for j in 0..LIMBS {
        r[j] = add(sub(a[j], b[j]), splat(MULTIPLES[j][K]));
    }
    r
}

type Columns = [__m512i; 2 * LIMBS];

#[inline(always)]
fn product_row<const I: usize>(columns: &mut Columns, a: &Limbs, b: __m512i) {
    for j in 0..LIMBS {
        columns[I + j] = lo(columns[I + j], a[j], b);
        columns[I + j + 1] = hi(columns[I + j + 1], a[j], b);
    }
}

#[inline(always)]
fn reduction_row<const I: usize>(columns: &mut Columns) {
    let m = lo(zero(), columns[I], splat(R_NEG_INV));
    let carry = simd!(_mm512_srli_epi64::<52>(lo(columns[I], m, splat(R[0]))));
    for j in 1..LIMBS {
        columns[I + j] = lo(columns[I + j], m, splat(R[j]));
    }
    for j in 0..LIMBS {
        columns[I + j + 1] = hi(columns[I + j + 1], m, splat(R[j]));
    }
    columns[I + 1] = add(columns[I + 1], carry);
}

/// a·b/2^260 of tight factors, loose. Written out, as in `ifma`.
#[inline(always)]
fn mont_mul(a: &Limbs, b: &Limbs) -> Limbs {
    let mut columns = [zero(); 2 * LIMBS];
    product_row::<0>(&mut columns, a, b[0]);
    product_row::<1>(&mut columns, a, b[1]);
    product_row::<2>(&mut columns, a, b[2]);
    product_row::<3>(&mut columns, a, b[3]);
    product_row::<4>(&mut columns, a, b[4]);
    reduction_row::<0>(&mut columns);
    reduction_row::<1>(&mut columns);
    reduction_row::<2>(&mut columns);
    reduction_row::<3>(&mut columns);
    reduction_row::<4>(&mut columns);
    let mut r = [zero(); LIMBS];
    r.copy_from_slice(&columns[LIMBS..]);
    r
}

/// Eight elements of F_r. Limbs are loose, except those of constants.
#[derive(Clone, Copy)]
pub(crate) struct Fr(Limbs);

/// A constant times 2^260, canonical, in limbs.
pub(crate) type FrConstant = [u64; LIMBS];

impl Vectors for Fr {
    fn run<K: Kernel>(kernel: K) -> K::Output {
        run_checked(kernel)
    }
}

impl ScalarLanes for Fr {
    type Constant = FrConstant;
    // Values grow by 2r in each step.
    const PRODUCT_STEPS: usize = 7;

    fn data_product() -> Scalar {
        // (x·2^256)(y·2^256)/2^260 = xy·2^−4·2^256.
        Scalar::TWO_INV.square().square()
    }

    fn constant(c: &Scalar) -> FrConstant {
        // c·2^256 is how the scalar is held; four doublings more.
        let mut scaled = *c;
        for _ in 0..4 {
            scaled = scaled.double();
        }
        let words = blst_fr::from(scaled).l;
        let mut limbs = [0; LIMBS];
        for (j, limb) in limbs.iter_mut().enumerate() {
            let (word, shift) = (52 * j / 64, 52 * j % 64);
            let wide = u128::from(words[word]) | words.get(word + 1).map_or(0, |&w| u128::from(w) << 64);
            *limb = (wide >> shift) as u64 & MASK;
        }
        limbs
    }

    #[inline(always)]
    fn splat(c: &FrConstant) -> Self {
        let mut r = [zero(); LIMBS];
        for j in 0..LIMBS {
            r[j] = splat(c[j]);
        }
        Self(r)
    }

    #[inline(always)]
    fn constants(c: &[FrConstant; LANES]) -> Self {
        let mut r = [zero(); LIMBS];
        for j in 0..LIMBS {
            let mut lanes = [0u64; LANES];
            for i in 0..LANES {
                lanes[i] = c[i][j];
            }
            // 64 readable bytes; the load needs no alignment.
            r[j] = simd!(_mm512_loadu_si512(lanes.as_ptr().cast()));
        }
        Self(r)
    }

    #[inline(always)]
    fn load(values: [&Words; LANES]) -> Self {
        // Register i holds elements 2i and 2i + 1.
        let mut pairs = [zero(); 4];
        for i in 0..4 {
            // Each element is 32 readable bytes.
            pairs[i] = simd!(_mm512_inserti64x4::<1>(
                _mm512_castsi256_si512(_mm256_loadu_si256(values[2 * i].as_ptr().cast())),
                _mm256_loadu_si256(values[2 * i + 1].as_ptr().cast()),
            ));
        }
        // Words 0 and 1, then 2 and 3, of four elements each.
        let low = simd!(_mm512_setr_epi64(0, 4, 8, 12, 1, 5, 9, 13));
        let high = simd!(_mm512_setr_epi64(2, 6, 10, 14, 3, 7, 11, 15));
        let (a01, a23) = simd!((
            _mm512_permutex2var_epi64(pairs[0], low, pairs[1]),
            _mm512_permutex2var_epi64(pairs[0], high, pairs[1])
        ));
        let (b01, b23) = simd!((
            _mm512_permutex2var_epi64(pairs[2], low, pairs[3]),
            _mm512_permutex2var_epi64(pairs[2], high, pairs[3])
        ));
        let w0 = simd!(_mm512_shuffle_i64x2::<0b01_00_01_00>(a01, b01));
        let w1 = simd!(_mm512_shuffle_i64x2::<0b11_10_11_10>(a01, b01));
        let w2 = simd!(_mm512_shuffle_i64x2::<0b01_00_01_00>(a23, b23));
        let w3 = simd!(_mm512_shuffle_i64x2::<0b11_10_11_10>(a23, b23));
        let mask = splat(MASK);
        Self([
            simd!(_mm512_and_si512(w0, mask)),
            and(or(simd!(_mm512_srli_epi64::<52>(w0)), simd!(_mm512_slli_epi64::<12>(w1))), mask),
            and(or(simd!(_mm512_srli_epi64::<40>(w1)), simd!(_mm512_slli_epi64::<24>(w2))), mask),
            and(or(simd!(_mm512_srli_epi64::<28>(w2)), simd!(_mm512_slli_epi64::<36>(w3))), mask),
            simd!(_mm512_srli_epi64::<16>(w3)),
        ])
    }

    #[inline(always)]
    fn store(self) -> [Words; LANES] {
        let l = self.0;
        let w0 = or(l[0], simd!(_mm512_slli_epi64::<52>(l[1])));
        let w1 = or(simd!(_mm512_srli_epi64::<12>(l[1])), simd!(_mm512_slli_epi64::<40>(l[2])));
        let w2 = or(simd!(_mm512_srli_epi64::<24>(l[2])), simd!(_mm512_slli_epi64::<28>(l[3])));
        let w3 = or(simd!(_mm512_srli_epi64::<36>(l[3])), simd!(_mm512_slli_epi64::<16>(l[4])));
        let a01 = simd!(_mm512_shuffle_i64x2::<0b01_00_01_00>(w0, w1));
        let b01 = simd!(_mm512_shuffle_i64x2::<0b11_10_11_10>(w0, w1));
        let a23 = simd!(_mm512_shuffle_i64x2::<0b01_00_01_00>(w2, w3));
        let b23 = simd!(_mm512_shuffle_i64x2::<0b11_10_11_10>(w2, w3));
        // Elements 0 and 1, then 2 and 3, of (words 0 and 1 | words 2 and 3).
        let first = simd!(_mm512_setr_epi64(0, 4, 8, 12, 1, 5, 9, 13));
        let second = simd!(_mm512_setr_epi64(2, 6, 10, 14, 3, 7, 11, 15));
        let rows = simd!([
            _mm512_permutex2var_epi64(a01, first, a23),
            _mm512_permutex2var_epi64(a01, second, a23),
            _mm512_permutex2var_epi64(b01, first, b23),
            _mm512_permutex2var_epi64(b01, second, b23),
        ]);
        let mut out = [[0; 4]; LANES];
        for (pair, row) in out.chunks_exact_mut(2).zip(rows) {
            // Two elements are 64 writable bytes; the store needs no alignment.
            simd!(_mm512_storeu_si512(pair.as_mut_ptr().cast(), row));
        }
        out
    }

    #[inline(always)]
    fn mul(self, factor: Self) -> Self {
        Self(mont_mul(&tighten(self.0), &tighten(factor.0)))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(sub_offset::<2>(self.0, other.0))
    }

    #[inline(always)]
    fn difference_first<const LEVEL: usize>(u: Self, v: Self, w: Self) -> (Self, Self) {
        // After `LEVEL` steps values are below 1.6·2^LEVEL·r.
        let difference = match LEVEL {
            0 => sub_offset::<2>(u.0, v.0),
            1 => sub_offset::<4>(u.0, v.0),
            _ => sub_offset::<8>(u.0, v.0),
        };
        (Self(add_limbs(u.0, v.0)), Self(mont_mul(&tighten(difference), &w.0)))
    }

    #[inline(always)]
    fn product_first(u: Self, v: Self, w: Self) -> (Self, Self) {
        let product = mont_mul(&tighten(v.0), &w.0);
        (Self(add_limbs(u.0, product)), Self(sub_offset::<2>(u.0, product)))
    }

    #[inline(always)]
    fn reduce(self) -> Self {
        // The quotient from the top limb, rounded down: ⌊top·⌊2^52/(r/2^208 + 1)⌋/2^52⌋. 35 for 35.3 and a top limb that may
        // be 2^6 too small leave at most 1.25r. At 16r it is 15.
        const RECIPROCAL: u64 = (1 << 52) / (R[4] + 1);
        let tight = tighten(self.0);
        let quotient = hi(zero(), tight[LIMBS - 1], splat(RECIPROCAL));
        let mut r = tight;
        for j in 0..LIMBS {
            // Sixteen words of a table row, in two registers.
            let (low, high) = simd!((
                _mm512_loadu_si512(MULTIPLES[j].as_ptr().cast()),
                _mm512_loadu_si512(MULTIPLES[j].as_ptr().add(8).cast()),
            ));
            r[j] = sub(tight[j], simd!(_mm512_permutex2var_epi64(low, quotient, high)));
        }
        Self(tighten(r))
    }
}
