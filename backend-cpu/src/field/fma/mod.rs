//! Montgomery products in AVX2 registers, by the fused multiply-add of doubles.
//!
//! Processors with AVX2 but without AVX-512 IFMA multiply 52-bit integers in one place only: the mantissas of the floating-point
//! units. There they have two 256-bit multiply-adds in each cycle, on every core since Haswell and Zen.
//!
//! **Representation.** An element is `N` limbs of 51 bits, each an integer in a double; a register holds one limb of four
//! elements, and elements are worked on in two halves of four, so that the dependent chains of one half hide behind the other.
//! The Montgomery radix is 2^51N.
//!
//! **Products.** With a·b rounded to a multiple of 2^51 by adding and subtracting a large constant,
//!
//! * h = fma(a, b, 1.5·2^103) is that constant plus a multiple of 2^51, exact to it since |a·b| ≤ 2^102 keeps h in one binade;
//! * l = fma(a, b, (1.5·2^103 + 1.5·2^52) − h) is 1.5·2^52 plus the rest, which lies in [−2^50, 2^50]: also exact.
//!
//! Both halves of the product now are the low mantissa bits of doubles with a known exponent: as *integers*, their bit
//! patterns are a known constant plus ⌊a·b/2^51⌉ and the rest. They are added up with integer additions, and the constants of a
//! whole column are subtracted at its start. Rounding must be to nearest, which Rust guarantees.
//!
//! **Ranges.** Limbs are signed. *Strict* limbs lie in [−2^50, 2^50]: those of products. *Tight* ones may be 2^10 larger: what
//! `reduce` leaves. Sums and differences are not carried at all: the product of any two limbs, and of twice the limbs that are
//! squared, must be at most 2^102, so that products of differences of tight limbs with strict ones need no thought, and the rest is argued
//! where it is used. The top limb has no carry and holds the sign of the whole.

#![allow(clippy::needless_range_loop, reason = "limb j of several operands is how the formulas are written")]

use std::arch::x86_64::*;

use super::Kernel;

#[macro_use]
mod montgomery;
pub(crate) mod base;
pub(crate) mod scalar;
#[cfg(test)]
mod tests;

/// Bits of a limb.
const WIDTH: usize = 51;
const MASK: u64 = (1 << WIDTH) - 1;

/// 2^51.
const LIMB: f64 = (1u64 << WIDTH) as f64;
/// 1.5·2^103: rounds to multiples of 2^51 what is added to it.
const ROUND_LIMB: f64 = 1.5 * LIMB * (1u64 << 52) as f64;
/// 1.5·2^52: rounds to integers.
const ROUND: f64 = 1.5 * (1u64 << 52) as f64;
/// Bit patterns of the last two: multiples of 2^51.
const HIGH_BITS: i64 = 0x4668 << 48;
const LOW_BITS: i64 = 0x4338 << 48;
/// The bit pattern of 2^52: or-ed to an integer below, it makes the double 2^52 + that integer.
const UNSIGNED_BITS: i64 = 0x4330 << 48;
const UNSIGNED: f64 = (1u64 << 52) as f64;

/// Added to columns, so that shifts needn't know of signs.
const LIFT: i64 = 1 << 62;
/// Half a limb: what makes truncation round.
const HALF: i64 = 1 << (WIDTH - 1);

/// Wraps intrinsics. Every use inherits one argument:
// The intrinsics below only need their target features, and vectors of this module are made by kernels alone, which run inside
// `run_with_features`; that function's contract is that the processor has them.
macro_rules! simd {
    ($e:expr) => {{
        // SAFETY: see the comment at the macro: vectors only exist inside `run_with_features`.
        #[allow(unused_unsafe)]
        unsafe {
            $e
        }
    }};
}
pub(crate) use simd;

/// # Safety
/// The processor must have the features.
#[target_feature(enable = "avx2,fma")]
unsafe fn run_with_features<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

/// Runs a kernel with the features switched on, after making sure that they are there.
#[inline]
pub(crate) fn run_checked<K: Kernel>(kernel: K) -> K::Output {
    assert!(super::Arithmetic::Avx2Fma.is_supported(), "this processor has no AVX2 with FMA");
    // SAFETY: just checked.
    unsafe { run_with_features(kernel) }
}

/// Limbs of eight elements: two halves of four.
type Limbs<const N: usize> = [[__m256d; N]; 2];

/// A prime below 2^(51N − 0.1), and what reduction modulo it needs.
trait Prime<const N: usize> {
    /// The prime, in strict limbs.
    const LIMBS: [f64; N];
    /// −1/prime mod 2^51, balanced.
    const NEG_INV: f64;
    /// 1/(the prime's top limb).
    const RECIPROCAL: f64 = 1.0 / Self::LIMBS[N - 1];
}

/// Bits 51j..51(j + 1) of a little-endian integer.
const fn bits(words: &[u64], j: usize) -> u64 {
    let (word, shift) = (WIDTH * j / 64, WIDTH * j % 64);
    let mut limb = if word < words.len() { words[word] >> shift } else { 0 };
    if shift > 64 - WIDTH && word + 1 < words.len() {
        limb |= words[word + 1] << (64 - shift);
    }
    limb & MASK
}

/// A nonnegative integer below 2^51N in strict limbs (but for the top one, which takes the last carry).
const fn balanced<const N: usize>(words: &[u64]) -> [f64; N] {
    let mut limbs = [0.0; N];
    let mut carry = 0;
    let mut j = 0;
    while j < N {
        let mut limb = bits(words, j) as i64 + carry;
        carry = 0;
        if j < N - 1 && limb >= HALF {
            limb -= 1 << WIDTH;
            carry = 1;
        }
        limbs[j] = limb as f64;
        j += 1;
    }
    limbs
}

/// −1/p mod 2^51, balanced, for odd p.
const fn neg_inverse(p: u64) -> f64 {
    // Newton: each step doubles the number of right bits, of which p·1 has three.
    let mut inverse = p;
    let mut i = 0;
    while i < 5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(p.wrapping_mul(inverse)));
        i += 1;
    }
    let value = (inverse.wrapping_neg() & MASK) as i64;
    (if value >= HALF { value - (1 << WIDTH) } else { value }) as f64
}

#[inline(always)]
fn splat(x: f64) -> __m256d {
    simd!(_mm256_set1_pd(x))
}

#[inline(always)]
fn splat_bits(x: i64) -> __m256i {
    simd!(_mm256_set1_epi64x(x))
}

#[inline(always)]
fn as_bits(x: __m256d) -> __m256i {
    simd!(_mm256_castpd_si256(x))
}

#[inline(always)]
fn of_bits(x: __m256i) -> __m256d {
    simd!(_mm256_castsi256_pd(x))
}

#[inline(always)]
fn add(a: __m256d, b: __m256d) -> __m256d {
    simd!(_mm256_add_pd(a, b))
}

#[inline(always)]
fn sub(a: __m256d, b: __m256d) -> __m256d {
    simd!(_mm256_sub_pd(a, b))
}

#[inline(always)]
fn add_bits(a: __m256i, b: __m256i) -> __m256i {
    simd!(_mm256_add_epi64(a, b))
}

/// An integer of 51 bits, as a double plus `offset`.
#[inline(always)]
fn unsigned(x: __m256i, offset: f64) -> __m256d {
    let bits = simd!(_mm256_or_si256(x, splat_bits(UNSIGNED_BITS)));
    sub(of_bits(bits), splat(UNSIGNED - offset))
}

#[inline(always)]
fn low(x: __m256i) -> __m256i {
    simd!(_mm256_and_si256(x, splat_bits(MASK as i64)))
}

/// Adds both halves of a·b, plus their constants, to two neighbouring columns. |a·b| ≤ 2^102.
#[inline(always)]
fn multiply_add(column: &mut __m256i, next: &mut __m256i, a: __m256d, b: __m256d) {
    let high = simd!(_mm256_fmadd_pd(a, b, splat(ROUND_LIMB)));
    let rest = sub(splat(ROUND_LIMB + ROUND), high);
    let low = simd!(_mm256_fmadd_pd(a, b, rest));
    *next = add_bits(*next, as_bits(high));
    *column = add_bits(*column, as_bits(low));
}

/// x·NEG_INV modulo 2^51, balanced, for the low limb of a column.
#[inline(always)]
fn quotient_limb<P: Prime<N>, const N: usize>(column: __m256i) -> __m256d {
    let x = unsigned(low(column), 0.0);
    let high = simd!(_mm256_fmadd_pd(x, splat(P::NEG_INV), splat(ROUND_LIMB)));
    simd!(_mm256_fmadd_pd(x, splat(P::NEG_INV), sub(splat(ROUND_LIMB), high)))
}

/// How many pairs of limbs (i, k − i) a column has.
const fn pairs(n: usize, k: usize) -> usize {
    if k < n { k + 1 } else { (2 * n - 1).saturating_sub(k) }
}

/// What the terms of column k have to have subtracted, with those of the reduction; and what it starts with for the sake of
/// shifts: [`LIFT`], less the carry that the column before has from it; half a limb if the limb is to be balanced.
const fn start(n: usize, (products, squares): (usize, usize), k: usize) -> i64 {
    const fn terms(n: usize, products: usize, squares: usize, k: usize) -> i64 {
        let all = pairs(n, k);
        // And one for the reduction. Of a square, pairs of different limbs count once.
        ((products + 1) * all + squares * all.div_ceil(2)) as i64
    }
    let mut start = LIFT.wrapping_sub(terms(n, products, squares, k).wrapping_mul(LOW_BITS));
    if k > 0 {
        start =
            start.wrapping_sub(terms(n, products, squares, k - 1).wrapping_mul(HIGH_BITS)).wrapping_sub(LIFT >> WIDTH);
    }
    if k >= n { start.wrapping_add(HALF) } else { start }
}

/// The double of an integer minus `lift`, of magnitude below 2^51.
#[inline(always)]
fn signed(x: __m256i, lift: i64) -> __m256d {
    sub(of_bits(add_bits(x, splat_bits(LOW_BITS - lift))), splat(ROUND))
}

// No closures on vectors, here and below: a closure doesn't inherit target features, and intrinsics in it stay calls.

#[inline(always)]
fn triple<const N: usize>(a: &Limbs<N>) -> Limbs<N> {
    let mut r = *a;
    for x in 0..2 {
        for j in 0..N {
            r[x][j] = simd!(_mm256_mul_pd(a[x][j], splat(3.0)));
        }
    }
    r
}

#[inline(always)]
fn add_limbs<const N: usize>(a: &Limbs<N>, b: &Limbs<N>) -> Limbs<N> {
    let mut r = *a;
    for x in 0..2 {
        for j in 0..N {
            r[x][j] = add(a[x][j], b[x][j]);
        }
    }
    r
}

#[inline(always)]
fn sub_limbs<const N: usize>(a: &Limbs<N>, b: &Limbs<N>) -> Limbs<N> {
    let mut r = *a;
    for x in 0..2 {
        for j in 0..N {
            r[x][j] = sub(a[x][j], b[x][j]);
        }
    }
    r
}

#[inline(always)]
fn negate<const N: usize>(a: &Limbs<N>) -> Limbs<N> {
    sub_limbs(&[[splat(0.0); N]; 2], a)
}

/// Any value with limbs up to 2^53 − 2^50·(value/prime + 1), congruent modulo the prime and at most 0.5001 times it, in tight limbs.
///
/// The quotient is the top limb over the prime's, rounded. Lower limbs of up to 2^53 and the prime's own, which are left out, make
/// an error of a few units in a top limb of the prime that is more than 2^23: nothing. Carries go one limb up, all at once: they are
/// at most 4, so that limbs are tight then.
///
/// If the value is zero modulo the prime, the result is literally zero: below the prime, the only multiple is zero itself, and tight
/// limbs of zero vanish from the lowest up, each being a multiple of 2^51.
#[inline(always)]
fn reduce<P: Prime<N>, const N: usize>(a: &Limbs<N>) -> Limbs<N> {
    let mut r = *a;
    for x in 0..2 {
        let quotient = simd!(_mm256_fmadd_pd(a[x][N - 1], splat(P::RECIPROCAL), splat(ROUND)));
        let quotient = sub(quotient, splat(ROUND));
        for j in 0..N {
            r[x][j] = simd!(_mm256_fnmadd_pd(quotient, splat(P::LIMBS[j]), a[x][j]));
        }
        let mut carry = splat(0.0);
        for j in 0..N - 1 {
            let limb = r[x][j];
            let rounded = sub(add(limb, splat(ROUND_LIMB)), splat(ROUND_LIMB));
            r[x][j] = simd!(_mm256_fmadd_pd(carry, splat(1.0 / LIMB), sub(limb, rounded)));
            carry = rounded;
        }
        r[x][N - 1] = simd!(_mm256_fmadd_pd(carry, splat(1.0 / LIMB), r[x][N - 1]));
    }
    r
}

/// All bits of lane i where bit i of the mask is set, for lanes 0..4 and 4..8.
#[inline(always)]
fn wide_mask(mask: u8) -> [__m256d; 2] {
    let all = splat_bits(i64::from(mask));
    let (first, second) = simd!((_mm256_setr_epi64x(1, 2, 4, 8), _mm256_setr_epi64x(16, 32, 64, 128)));
    simd!([
        of_bits(_mm256_cmpeq_epi64(_mm256_and_si256(all, first), first)),
        of_bits(_mm256_cmpeq_epi64(_mm256_and_si256(all, second), second)),
    ])
}

/// The reverse.
#[inline(always)]
fn narrow_mask(mask: [__m256d; 2]) -> u8 {
    simd!((_mm256_movemask_pd(mask[0]) | _mm256_movemask_pd(mask[1]) << 4) as u8)
}

#[inline(always)]
fn equal(a: __m256d, b: __m256d) -> __m256d {
    simd!(_mm256_cmp_pd::<_CMP_EQ_OQ>(a, b))
}

/// Lanes whose limbs are all zero. Fast where no lowest limb is.
#[inline(always)]
fn literal_zeros<const N: usize>(a: &Limbs<N>) -> u8 {
    let zero = splat(0.0);
    let mut masks = [equal(a[0][0], zero), equal(a[1][0], zero)];
    if narrow_mask(masks) == 0 {
        return 0;
    }
    for x in 0..2 {
        for j in 1..N {
            masks[x] = simd!(_mm256_and_pd(masks[x], equal(a[x][j], zero)));
        }
    }
    narrow_mask(masks)
}

#[inline(always)]
fn select<const N: usize>(mask: u8, a: &Limbs<N>, b: &Limbs<N>) -> Limbs<N> {
    let mask = wide_mask(mask);
    let mut r = *b;
    for x in 0..2 {
        for j in 0..N {
            r[x][j] = simd!(_mm256_blendv_pd(b[x][j], a[x][j], mask[x]));
        }
    }
    r
}

#[inline(always)]
fn zero_where<const N: usize>(a: &Limbs<N>, mask: u8) -> Limbs<N> {
    let mask = wide_mask(mask);
    let mut r = *a;
    for x in 0..2 {
        for j in 0..N {
            r[x][j] = simd!(_mm256_andnot_pd(mask[x], a[x][j]));
        }
    }
    r
}

#[inline(always)]
fn negate_where<const N: usize>(a: &Limbs<N>, mask: u8) -> Limbs<N> {
    let mask = wide_mask(mask);
    let mut r = *a;
    for x in 0..2 {
        let sign = simd!(_mm256_and_pd(mask[x], splat(-0.0)));
        for j in 0..N {
            r[x][j] = simd!(_mm256_xor_pd(a[x][j], sign));
        }
    }
    r
}

/// 16 bytes each, one after the other.
#[inline(always)]
fn load_pair(first: &[u8; 16], second: &[u8; 16]) -> __m256i {
    // Both are 16 readable bytes; the loads need no alignment.
    simd!(_mm256_inserti128_si256::<1>(
        _mm256_castsi128_si256(_mm_loadu_si128(first.as_ptr().cast())),
        _mm_loadu_si128(second.as_ptr().cast()),
    ))
}

/// Four words of each, transposed: word i of all.
#[inline(always)]
fn load_words(blocks: [[&[u8; 16]; 2]; 4]) -> [__m256i; 4] {
    let [b0, b1, b2, b3] = blocks;
    let (a, b) = (load_pair(b0[0], b2[0]), load_pair(b1[0], b3[0]));
    let (c, d) = (load_pair(b0[1], b2[1]), load_pair(b1[1], b3[1]));
    simd!([
        _mm256_unpacklo_epi64(a, b),
        _mm256_unpackhi_epi64(a, b),
        _mm256_unpacklo_epi64(c, d),
        _mm256_unpackhi_epi64(c, d),
    ])
}

/// Stores word i of all to word `at + i` of each of four blocks.
#[inline(always)]
fn store_words<const N: usize>(words: [__m256i; 4], blocks: &mut [[u64; N]], at: usize) {
    let [w0, w1, w2, w3] = words;
    let (even, odd) = simd!((_mm256_unpacklo_epi64(w0, w1), _mm256_unpackhi_epi64(w0, w1)));
    let (even_high, odd_high) = simd!((_mm256_unpacklo_epi64(w2, w3), _mm256_unpackhi_epi64(w2, w3)));
    let elements = simd!([
        _mm256_permute2x128_si256::<0x20>(even, even_high),
        _mm256_permute2x128_si256::<0x20>(odd, odd_high),
        _mm256_permute2x128_si256::<0x31>(even, even_high),
        _mm256_permute2x128_si256::<0x31>(odd, odd_high),
    ]);
    for (block, element) in blocks.iter_mut().zip(elements) {
        let words: &mut [u64] = &mut block[at..at + 4];
        // `words` is 32 writable bytes; the store needs no alignment.
        simd!(_mm256_storeu_si256(words.as_mut_ptr().cast(), element));
    }
}

#[inline(always)]
fn left(x: __m256i, by: i32) -> __m256i {
    simd!(_mm256_sll_epi64(x, _mm_cvtsi32_si128(by)))
}

#[inline(always)]
fn right(x: __m256i, by: i32) -> __m256i {
    simd!(_mm256_srl_epi64(x, _mm_cvtsi32_si128(by)))
}

/// Bits first..first + 51 of integers given in words, for a constant `first`; negative positions and those past the end are zeros.
#[inline(always)]
fn extract<const W: usize>(words: &[__m256i; W], first: i32) -> __m256i {
    if first < 0 {
        return low(left(words[0], -first));
    }
    let (word, shift) = ((first / 64) as usize, first % 64);
    let mut r = right(words[word], shift);
    if shift > 64 - WIDTH as i32 && word + 1 < W {
        r = simd!(_mm256_or_si256(r, left(words[word + 1], 64 - shift)));
    }
    low(r)
}
