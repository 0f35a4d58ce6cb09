//! From plain integers to blst's Montgomery form, eight points at a time: what turns encoded points into records.
//!
//! Montgomery products divide by 2^416, so x·2^384 is the product of x and 2^800. For x below q it lies below q + 2^−35·q: one
//! subtraction makes it canonical. Integers of q and more give words without meaning in their own lane, which is refused.

use std::arch::x86_64::*;

use super::on_curve::{Judge, certainly_reduced};
use super::{
    Fq, Fq2, LIMBS, Limbs, MULTIPLES, limbs_of_words, load_words, mont_mul, select, splat, sub, tighten, transpose,
};
use crate::field::LANES;

/// 2^800 mod q in 52-bit limbs.
const TO_MONTGOMERY: [u64; LIMBS] = [
    0x5_5103_9a1d_2c25,
    0xc_857a_9843_73dc,
    0x3_3311_28e8_da66,
    0xb_a38b_82e8_f651,
    0xb_b197_b625_2a29,
    0xc_be4f_4e32_928c,
    0x8_0ef8_1f15_8c5d,
    0xe91f,
];

/// The words of a base field element in each lane.
type Words = [__m512i; 6];

/// Lanes that know how long their group's records are.
pub(crate) trait Decode: Judge {
    /// Changes eight records whose coordinates are plain integers, each in place, into proper ones. Returns the lanes in which
    /// all coordinates are certainly below q; the records of others mean nothing.
    fn decode(records: &mut [u8]) -> u8;
}

/// x·2^384 modulo q, canonical, and the lanes in which x is certainly below q.
#[inline(always)]
fn to_montgomery(x: Words) -> (Words, u8) {
    let mut factor = [splat(0); LIMBS];
    for j in 0..LIMBS {
        factor[j] = splat(TO_MONTGOMERY[j]);
    }
    let product = tighten(mont_mul(&limbs_of_words(&x), &factor));
    let mut difference = product;
    for j in 0..LIMBS {
        difference[j] = sub(product[j], splat(MULTIPLES[j][1]));
    }
    let difference = tighten(difference);
    let below = simd!(_mm512_cmplt_epi64_mask(difference[LIMBS - 1], splat(0)));
    (words_of_limbs(&select(below, product, difference)), certainly_reduced(&x))
}

/// Bits 64·`I`.. of an integer in tight limbs, of 384 bits in all.
#[inline(always)]
fn word<const I: usize>(limbs: &Limbs) -> __m512i {
    let (first, shift) = (64 * I / 52, 64 * I % 52);
    let mut r = simd!(_mm512_srlv_epi64(limbs[first], splat(shift as u64)));
    r = simd!(_mm512_or_si512(r, _mm512_sllv_epi64(limbs[first + 1], splat(52 - shift as u64))));
    if first + 2 < LIMBS && 104 - shift < 64 {
        r = simd!(_mm512_or_si512(r, _mm512_sllv_epi64(limbs[first + 2], splat(104 - shift as u64))));
    }
    r
}

#[inline(always)]
fn words_of_limbs(limbs: &Limbs) -> Words {
    [word::<0>(limbs), word::<1>(limbs), word::<2>(limbs), word::<3>(limbs), word::<4>(limbs), word::<5>(limbs)]
}

/// Eight records as slices.
#[inline(always)]
fn lanes(records: &[u8]) -> [&[u8]; LANES] {
    let length = records.len() / LANES;
    let mut lanes = [records; LANES];
    for lane in 0..LANES {
        lanes[lane] = &records[lane * length..(lane + 1) * length];
    }
    lanes
}

/// Stores word i of each lane at `offset` + 8·i of its record.
#[inline(always)]
fn store_words(records: &mut [u8], offset: usize, words: [__m512i; 8]) {
    let length = records.len() / LANES;
    for (lane, row) in transpose(words).into_iter().enumerate() {
        let block: &mut [u8] = &mut records[lane * length + offset..][..64];
        // `block` is 64 writable bytes; the store needs no alignment.
        simd!(_mm512_storeu_si512(block.as_mut_ptr().cast(), row));
    }
}

impl Decode for Fq {
    #[inline(always)]
    fn decode(records: &mut [u8]) -> u8 {
        // Words 0..8 and 4..12 of each record; x is words 0..6, y words 6..12.
        let of = lanes(records);
        let (w, v) = (load_words(&of, 0), load_words(&of, 32));
        let (x, good_x) = to_montgomery([w[0], w[1], w[2], w[3], w[4], w[5]]);
        let (y, good_y) = to_montgomery([w[6], w[7], v[4], v[5], v[6], v[7]]);
        store_words(records, 0, [x[0], x[1], x[2], x[3], x[4], x[5], y[0], y[1]]);
        store_words(records, 32, [x[4], x[5], y[0], y[1], y[2], y[3], y[4], y[5]]);
        good_x & good_y
    }
}

impl Decode for Fq2 {
    #[inline(always)]
    fn decode(records: &mut [u8]) -> u8 {
        // x.c0, x.c1, y.c0, y.c1: words 0..6, 6..12, 12..18, 18..24.
        let of = lanes(records);
        let (a, b, c) = (load_words(&of, 0), load_words(&of, 64), load_words(&of, 128));
        let (p, good_p) = to_montgomery([a[0], a[1], a[2], a[3], a[4], a[5]]);
        let (q, good_q) = to_montgomery([a[6], a[7], b[0], b[1], b[2], b[3]]);
        let (r, good_r) = to_montgomery([b[4], b[5], b[6], b[7], c[0], c[1]]);
        let (s, good_s) = to_montgomery([c[2], c[3], c[4], c[5], c[6], c[7]]);
        store_words(records, 0, [p[0], p[1], p[2], p[3], p[4], p[5], q[0], q[1]]);
        store_words(records, 64, [q[2], q[3], q[4], q[5], r[0], r[1], r[2], r[3]]);
        store_words(records, 128, [r[4], r[5], s[0], s[1], s[2], s[3], s[4], s[5]]);
        good_p & good_q & good_r & good_s
    }
}
