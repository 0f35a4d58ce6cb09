//! F_q and F_q2 in eight AVX-512 lanes.
//!
//! **Representation.** An element is eight limbs of 52 bits, one register each; lane i of the registers is element i. The
//! Montgomery radix of [`mont_mul`] is 2^416, blst's is 2^384. Converting every coordinate would cost two multiplications
//! in eight, so points are moved to an isomorphic curve instead: (x, y) ↦ (u²x, u³y) maps y² = x³ + b to y² = x³ + u⁶b, and
//! the affine addition formulas never mention b. With u = 2^−16, the integer x·2^384 that blst stores *is* the Montgomery
//! form u²x·2^416, untouched; y·2^384 has to be divided by 2^16, a single reduction step while loading.
//!
//! **Ranges.** 416 bits leave 35 above q, so nothing is reduced between operations: *factors* may be anything in [0, 8q), and
//! products come out below q + 2^−28·q. *Reduced* means [0, q + 2^−10·q), and zero may be q: only infinity must be, and is,
//! literally zero.
//!
//! **Limbs.** *Tight* limbs are below 2^52, as multiplication needs; *loose* ones are signed 64-bit integers whose carries
//! haven't been propagated yet.

#![allow(clippy::needless_range_loop, reason = "limb j of several operands is how the formulas are written")]

use std::arch::x86_64::*;

use blst::blst_fp;

use super::portable::BlstField;
use super::{BaseLanes, Kernel, LANES, Lanes, Vectors};

const LIMBS: usize = 8;
const MASK: u64 = (1 << 52) - 1;

/// q in 52-bit limbs.
const Q: [u64; LIMBS] = [
    0xe_ffff_ffff_aaab,
    0xf_eb15_3fff_fb9f,
    0x6_b0f6_241e_abff,
    0x1_2bf6_730d_2a0f,
    0x7_6477_4b84_f385,
    0x1_ba7b_6434_bacd,
    0x1_ea39_7fe6_9a4b,
    0x1_a011,
];
/// −q⁻¹ mod 2^52.
const Q_NEG_INV: u64 = 0x3_fffc_fffc_fffd;

/// k·q in tight limbs.
const fn multiple(k: u64) -> [u64; LIMBS] {
    let mut r = [0; LIMBS];
    let mut carry = 0;
    let mut i = 0;
    while i < LIMBS {
        let t = Q[i] as u128 * k as u128 + carry;
        r[i] = (t as u64) & MASK;
        carry = t >> 52;
        i += 1;
    }
    r
}

/// Limb j of 0·q, 1·q, …, 7·q.
const MULTIPLES: [[u64; 8]; LIMBS] = {
    let mut table = [[0; 8]; LIMBS];
    let mut k = 0;
    while k < 8 {
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

/// 2^448 mod q: makes blst's inverse of an integer v, v⁻¹·2^768, into v⁻¹·2^832 by one blst multiplication.
const TO_INVERSE: blst_fp = blst_fp {
    l: [
        0x42b7_fde3_7dba_9366,
        0x7784_894e_2752_5bc3,
        0xb2b9_1b9d_c1f5_b1e9,
        0x206f_497d_fcaf_b872,
        0x5941_37cc_89a9_b0bb,
        0x0411_cd9d_20d7_e399,
    ],
};
/// 2^400 mod q: a blst multiplication by it multiplies by 2^16.
const TIMES_2_16: blst_fp = blst_fp {
    l: [
        0x5635_0003_480e_6299,
        0x8670_deb2_699e_b128,
        0x0983_e84e_f669_7c98,
        0xe3e8_a053_a4e6_fe97,
        0x385c_20d3_23ec_f271,
        0x156d_a47f_1286_6eb6,
    ],
};

/// Wraps intrinsics. Every use inherits one argument:
// The intrinsics below only need their target features, and values of `Fq` and `Fq2` are made by kernels alone, which run
// inside `run_with_features`; that function's contract is that the processor has them.
macro_rules! simd {
    ($e:expr) => {{
        // SAFETY: see the comment at the macro: lanes only exist inside `run_with_features`.
        #[allow(unused_unsafe)]
        unsafe {
            $e
        }
    }};
}

pub(crate) mod decode;
pub(crate) mod on_curve;

/// # Safety
/// The processor must have the features.
#[target_feature(enable = "avx512f,avx512ifma,bmi2")]
unsafe fn run_with_features<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

/// Runs a kernel with the features switched on, after making sure that they are there.
#[inline]
pub(crate) fn run_checked<K: Kernel>(kernel: K) -> K::Output {
    assert!(super::Arithmetic::Avx512Ifma.is_supported(), "this processor has no AVX-512 IFMA");
    // SAFETY: just checked.
    unsafe { run_with_features(kernel) }
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

/// acc + low 52 bits of a·b.
#[inline(always)]
fn lo(acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
    simd!(_mm512_madd52lo_epu64(acc, a, b))
}

/// acc + high 52 bits of a·b.
#[inline(always)]
fn hi(acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
    simd!(_mm512_madd52hi_epu64(acc, a, b))
}

/// Propagates carries of signed limbs; the top limb keeps what is left.
#[inline(always)]
fn tighten(mut a: Limbs) -> Limbs {
    let mask = splat(MASK);
    for j in 0..LIMBS - 1 {
        a[j + 1] = add(a[j + 1], simd!(_mm512_srai_epi64::<52>(a[j])));
        a[j] = simd!(_mm512_and_si512(a[j], mask));
    }
    a
}

/// Loose difference a − b + K·q.
#[inline(always)]
fn sub_offset<const K: usize>(a: Limbs, b: Limbs) -> Limbs {
    let mut r = a;
    for j in 0..LIMBS {
        r[j] = add(sub(a[j], b[j]), splat(MULTIPLES[j][K]));
    }
    r
}

/// Reduces a loose value in [0, 7.9·q): subtracts ⌊value/q⌋·q, with the quotient taken from the top limb.
///
/// The lower limbs of the loose values met here lie in (−2^54, 2^58), so the top limb is at most 64 too small or 4 too large,
/// in units of 2^364 = q/106513. Subtracting 16 first keeps the quotient from being too large; the result lies in
/// [0, q + 2^−10·q).
#[inline(always)]
fn reduce_loose(a: Limbs) -> Limbs {
    // ⌊2^52/(q/2^364)⌋ rounded down once more.
    const RECIPROCAL: u64 = (1 << 52) / (0x1_a011 + 1);
    // Values whose top limb is below 16 have quotient zero; max keeps the difference from wrapping.
    let top = simd!(_mm512_max_epi64(a[LIMBS - 1], splat(16)));
    let quotient = hi(zero(), sub(top, splat(16)), splat(RECIPROCAL));
    let mut r = a;
    for j in 0..LIMBS {
        let table = simd!(_mm512_loadu_si512(MULTIPLES[j].as_ptr().cast()));
        r[j] = sub(a[j], simd!(_mm512_permutexvar_epi64(quotient, table)));
    }
    tighten(r)
}

/// Columns of a product: column k has weight 2^52k, and is loose.
type Columns = [__m512i; 2 * LIMBS];

/// columns += a·b·2^52I.
#[inline(always)]
fn product_row<const I: usize>(columns: &mut Columns, a: &Limbs, b: __m512i) {
    for j in 0..LIMBS {
        columns[I + j] = lo(columns[I + j], a[j], b);
        columns[I + j + 1] = hi(columns[I + j + 1], a[j], b);
    }
}

/// columns += a·b. Written out: the compiler wouldn't unroll it, and would keep columns in memory.
#[inline(always)]
fn product(columns: &mut Columns, a: &Limbs, b: &Limbs) {
    product_row::<0>(columns, a, b[0]);
    product_row::<1>(columns, a, b[1]);
    product_row::<2>(columns, a, b[2]);
    product_row::<3>(columns, a, b[3]);
    product_row::<4>(columns, a, b[4]);
    product_row::<5>(columns, a, b[5]);
    product_row::<6>(columns, a, b[6]);
    product_row::<7>(columns, a, b[7]);
}

/// Terms a_i·a_j of a square with i < j, in the row of i.
#[inline(always)]
fn square_row<const I: usize>(columns: &mut Columns, a: &Limbs) {
    for j in I + 1..LIMBS {
        columns[I + j] = lo(columns[I + j], a[j], a[I]);
        columns[I + j + 1] = hi(columns[I + j + 1], a[j], a[I]);
    }
}

/// a².
#[inline(always)]
fn square(a: &Limbs) -> Columns {
    let mut columns = [zero(); 2 * LIMBS];
    square_row::<0>(&mut columns, a);
    square_row::<1>(&mut columns, a);
    square_row::<2>(&mut columns, a);
    square_row::<3>(&mut columns, a);
    square_row::<4>(&mut columns, a);
    square_row::<5>(&mut columns, a);
    square_row::<6>(&mut columns, a);
    for i in 0..LIMBS {
        columns[2 * i] = lo(add(columns[2 * i], columns[2 * i]), a[i], a[i]);
        columns[2 * i + 1] = hi(add(columns[2 * i + 1], columns[2 * i + 1]), a[i], a[i]);
    }
    columns
}

/// Clears column I by adding a multiple of q.
#[inline(always)]
fn reduction_row<const I: usize>(columns: &mut Columns) {
    let m = lo(zero(), columns[I], splat(Q_NEG_INV));
    let carry = simd!(_mm512_srli_epi64::<52>(lo(columns[I], m, splat(Q[0]))));
    for j in 1..LIMBS {
        columns[I + j] = lo(columns[I + j], m, splat(Q[j]));
    }
    for j in 0..LIMBS {
        columns[I + j + 1] = hi(columns[I + j + 1], m, splat(Q[j]));
    }
    columns[I + 1] = add(columns[I + 1], carry);
}

/// columns/2^416 modulo q, loose (limbs below 2^58). Below q + columns/2^416.
#[inline(always)]
fn mont_reduce(mut columns: Columns) -> Limbs {
    reduction_row::<0>(&mut columns);
    reduction_row::<1>(&mut columns);
    reduction_row::<2>(&mut columns);
    reduction_row::<3>(&mut columns);
    reduction_row::<4>(&mut columns);
    reduction_row::<5>(&mut columns);
    reduction_row::<6>(&mut columns);
    reduction_row::<7>(&mut columns);
    let mut r = [zero(); LIMBS];
    r.copy_from_slice(&columns[LIMBS..]);
    r
}

/// a·b/2^416 of tight factors, loose. Below q + a·b/2^416.
///
/// The whole product first, then the reduction: its chain of dependent steps is short, and hidden behind the next product.
#[inline(always)]
fn mont_mul(a: &Limbs, b: &Limbs) -> Limbs {
    let mut columns = [zero(); 2 * LIMBS];
    product(&mut columns, a, b);
    mont_reduce(columns)
}

/// a²/2^416 of a tight factor, loose.
#[inline(always)]
fn mont_sqr(a: &Limbs) -> Limbs {
    mont_reduce(square(a))
}

/// (a·b + c·d)/2^416 of tight factors, loose: two products, one reduction.
#[inline(always)]
fn mont_mul_add(a: &Limbs, b: &Limbs, c: &Limbs, d: &Limbs) -> Limbs {
    let mut columns = [zero(); 2 * LIMBS];
    product(&mut columns, a, b);
    product(&mut columns, c, d);
    mont_reduce(columns)
}

/// Lanes in which all limbs equal those of K·q.
#[inline(always)]
fn equals_multiple(a: &Limbs, k: usize) -> u8 {
    let mut mask = 0xff;
    for j in 0..LIMBS {
        mask &= simd!(_mm512_cmpeq_epi64_mask(a[j], splat(MULTIPLES[j][k])));
    }
    mask
}

/// Lanes of a tight value that are q, 2q or 3q: zeros of a difference of reduced elements, which lies in (0, 4q).
#[inline(always)]
fn zeros_of_diff(a: &Limbs) -> u8 {
    let mut maybe = 0;
    for k in 1..4 {
        maybe |= simd!(_mm512_cmpeq_epi64_mask(a[0], splat(MULTIPLES[0][k])));
    }
    // A low limb agrees by chance once in 2^50.
    if maybe == 0 { 0 } else { equals_multiple(a, 1) | equals_multiple(a, 2) | equals_multiple(a, 3) }
}

#[inline(always)]
fn zeros_of_factor(a: &Limbs) -> u8 {
    let mut mask = 0;
    for k in 0..8 {
        mask |= equals_multiple(a, k);
    }
    mask
}

#[inline(always)]
fn literal_zeros(a: &Limbs) -> u8 {
    let maybe = simd!(_mm512_cmpeq_epi64_mask(a[0], zero()));
    if maybe == 0 { 0 } else { equals_multiple(a, 0) }
}

#[inline(always)]
fn select(mask: u8, a: Limbs, b: Limbs) -> Limbs {
    let mut r = b;
    for j in 0..LIMBS {
        r[j] = simd!(_mm512_mask_mov_epi64(b[j], mask, a[j]));
    }
    r
}

/// Transposes 8×8 words: word j of result i is word i of input j.
#[inline(always)]
fn transpose(a: [__m512i; 8]) -> [__m512i; 8] {
    let mut t = a;
    for i in 0..4 {
        t[2 * i] = simd!(_mm512_unpacklo_epi64(a[2 * i], a[2 * i + 1]));
        t[2 * i + 1] = simd!(_mm512_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
    }
    // t[2i + p] holds words p, p+2, p+4, p+6 of inputs 2i and 2i+1 in turn; now 128-bit blocks, then halves.
    let mut s = t;
    for p in 0..2 {
        for h in 0..2 {
            let (x, y) = (t[4 * h + p], t[4 * h + 2 + p]);
            // Words p and p+4 of four inputs, and words p+2 and p+6.
            s[4 * h + p] = simd!(_mm512_shuffle_i64x2::<0b10_00_10_00>(x, y));
            s[4 * h + 2 + p] = simd!(_mm512_shuffle_i64x2::<0b11_01_11_01>(x, y));
        }
    }
    let mut r = s;
    for p in 0..2 {
        let (x, y) = (s[p], s[4 + p]);
        r[p] = simd!(_mm512_shuffle_i64x2::<0b10_00_10_00>(x, y));
        r[p + 4] = simd!(_mm512_shuffle_i64x2::<0b11_01_11_01>(x, y));
        let (x, y) = (s[2 + p], s[6 + p]);
        r[p + 2] = simd!(_mm512_shuffle_i64x2::<0b10_00_10_00>(x, y));
        r[p + 6] = simd!(_mm512_shuffle_i64x2::<0b11_01_11_01>(x, y));
    }
    r
}

/// Bits 52·j − OFFSET of a 384-bit integer given in 64-bit words: limb j of the integer times 2^OFFSET.
#[inline(always)]
fn limb<const OFFSET: i32>(words: &[__m512i; 6], j: i32) -> __m512i {
    let first = 52 * j - OFFSET;
    let mask = splat(MASK);
    if first < 0 {
        let count = splat(-first as u64);
        return simd!(_mm512_and_si512(_mm512_sllv_epi64(words[0], count), mask));
    }
    let (word, shift) = ((first / 64) as usize, (first % 64) as u64);
    let mut r = simd!(_mm512_srlv_epi64(words[word], splat(shift)));
    if shift > 12 && word < 5 {
        r = simd!(_mm512_or_si512(r, _mm512_sllv_epi64(words[word + 1], splat(64 - shift))));
    }
    simd!(_mm512_and_si512(r, mask))
}

/// 384-bit words to limbs, as they are.
#[inline(always)]
fn limbs_of_words(words: &[__m512i; 6]) -> Limbs {
    let mut r = [zero(); LIMBS];
    for (j, r) in r.iter_mut().enumerate() {
        *r = limb::<0>(words, j as i32);
    }
    r
}

/// 384-bit words to limbs, divided by 2^16 modulo q: a reduction step of the integer times 2^36. For a value below q, the
/// result is below q + 2^−16·q.
#[inline(always)]
fn limbs_of_words_div_2_16(words: &[__m512i; 6]) -> Limbs {
    let low = limb::<36>(words, 0);
    let m = lo(zero(), low, splat(Q_NEG_INV));
    let carry = simd!(_mm512_srli_epi64::<52>(lo(low, m, splat(Q[0]))));
    let mut r = [zero(); LIMBS];
    for j in 0..LIMBS {
        let above = limb::<36>(words, j as i32 + 1);
        let above = if j + 1 < LIMBS { lo(above, m, splat(Q[j + 1])) } else { above };
        r[j] = hi(above, m, splat(Q[j]));
    }
    r[0] = add(r[0], carry);
    tighten(r)
}

/// Loads 64-byte blocks at `offset` of eight records, transposed: word i of the blocks.
#[inline(always)]
fn load_words(records: &[&[u8]; LANES], offset: usize) -> [__m512i; 8] {
    let mut rows = [zero(); 8];
    for (row, record) in rows.iter_mut().zip(records) {
        let block: &[u8] = &record[offset..offset + 64];
        // `block` is 64 readable bytes; the load needs no alignment.
        *row = simd!(_mm512_loadu_si512(block.as_ptr().cast()));
    }
    transpose(rows)
}

/// Eight elements of F_q.
#[derive(Clone, Copy)]
pub(crate) struct Fq(Limbs);

/// A reduced element at rest: a cache line of limbs.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct FqCell([u64; LIMBS]);

#[inline(always)]
fn gather_cells(cells: [&FqCell; LANES]) -> Limbs {
    let mut rows = [zero(); 8];
    for (row, cell) in rows.iter_mut().zip(cells) {
        // A cell is 64 bytes, aligned.
        *row = simd!(_mm512_load_si512(cell.0.as_ptr().cast()));
    }
    transpose(rows)
}

#[inline(always)]
fn scatter_cells(limbs: Limbs) -> [FqCell; LANES] {
    let mut out = [FqCell([0; LIMBS]); LANES];
    for (cell, row) in out.iter_mut().zip(transpose(limbs)) {
        // A cell is 64 bytes, aligned.
        simd!(_mm512_store_si512(cell.0.as_mut_ptr().cast(), row));
    }
    out
}

/// The canonical integer of a tight value below 8q, as blst holds it.
fn words_of_limbs(limbs: &[u64; LIMBS]) -> blst_fp {
    let mut value = *limbs;
    for k in [4, 2, 1] {
        let multiple = multiple(k);
        let mut difference = [0; LIMBS];
        let mut borrow = 0i64;
        for j in 0..LIMBS {
            let t = value[j] as i64 - multiple[j] as i64 + borrow;
            difference[j] = t as u64 & MASK;
            borrow = t >> 52;
        }
        if borrow == 0 {
            value = difference;
        }
    }
    let mut l = [0; 6];
    for (i, word) in l.iter_mut().enumerate() {
        let (first, shift) = (64 * i / 52, 64 * i % 52);
        let wide = u128::from(value[first])
            | u128::from(value[first + 1]) << 52
            | value.get(first + 2).map_or(0, |&v| u128::from(v) << 104);
        *word = (wide >> shift) as u64;
    }
    blst_fp { l }
}

/// Limbs of a canonical integer.
fn limbs_of_fp(x: &blst_fp) -> [u64; LIMBS] {
    let mut r = [0; LIMBS];
    for (j, limb) in r.iter_mut().enumerate() {
        let (word, shift) = (52 * j / 64, 52 * j % 64);
        let wide = u128::from(x.l[word]) | x.l.get(word + 1).map_or(0, |&w| u128::from(w) << 64);
        *limb = (wide >> shift) as u64 & MASK;
    }
    r
}

/// Montgomery inverses (radix 2^416) of eight factors. By blst: one inversion, 22 multiplications.
fn invert_lanes(cells: &[FqCell; LANES]) -> [FqCell; LANES] {
    let values = cells.map(|c| words_of_limbs(&c.0));
    let mut prefix = values;
    for i in 1..LANES {
        prefix[i] = prefix[i - 1].mul(values[i]);
    }
    let mut inverse = prefix[LANES - 1].inv().mul(TO_INVERSE);
    for i in (1..LANES).rev() {
        prefix[i] = inverse.mul(prefix[i - 1]);
        inverse = inverse.mul(values[i]);
    }
    prefix[0] = inverse;
    prefix.map(|p| FqCell(limbs_of_fp(&p)))
}

#[inline(always)]
fn invert(a: Limbs) -> Limbs {
    let inverses = invert_lanes(&scatter_cells(a));
    gather_cells(inverses.each_ref())
}

impl Vectors for Fq {
    fn run<K: Kernel>(kernel: K) -> K::Output {
        run_checked(kernel)
    }
}

impl Lanes for Fq {
    type Base = Self;
    type Norm = ();
    type Cell = FqCell;
    const ZERO: FqCell = FqCell([0; LIMBS]);
    const RECORD: usize = 96;

    #[inline(always)]
    fn gather(cells: [&FqCell; LANES]) -> Self {
        Self(gather_cells(cells))
    }

    #[inline(always)]
    fn scatter(self) -> [FqCell; LANES] {
        scatter_cells(self.0)
    }

    #[inline(always)]
    fn gather_records(records: [&[u8]; LANES]) -> (Self, Self) {
        // Words 0..8 and 4..12 of each record; x is words 0..6, y words 6..12.
        let w = load_words(&records, 0);
        let v = load_words(&records, 32);
        let x = [w[0], w[1], w[2], w[3], w[4], w[5]];
        let y = [w[6], w[7], v[4], v[5], v[6], v[7]];
        (Self(limbs_of_words(&x)), Self(limbs_of_words_div_2_16(&y)))
    }

    #[inline(always)]
    fn prefetch_record(record: &[u8]) {
        // Prefetching has no effect on memory.
        simd!(_mm_prefetch::<_MM_HINT_T0>(record.as_ptr().cast()));
        simd!(_mm_prefetch::<_MM_HINT_T0>(record.as_ptr().wrapping_add(64).cast()));
        simd!(_mm_prefetch::<_MM_HINT_T0>(record.as_ptr().wrapping_add(95).cast()));
    }

    #[inline(always)]
    fn unit() -> Self {
        let mut r = [zero(); LIMBS];
        r[0] = splat(1);
        Self(r)
    }

    #[inline(always)]
    fn select(mask: u8, a: Self, b: Self) -> Self {
        Self(select(mask, a.0, b.0))
    }

    #[inline(always)]
    fn zero_where(self, mask: u8) -> Self {
        Self(select(mask, [zero(); LIMBS], self.0))
    }

    #[inline(always)]
    fn negate_where(self, mask: u8) -> Self {
        let negated = tighten(sub_offset::<2>([zero(); LIMBS], self.0));
        // Zero stands for infinity and stays literal.
        Self(select(mask & !literal_zeros(&self.0), negated, self.0))
    }

    #[inline(always)]
    fn literal_zeros(self) -> u8 {
        literal_zeros(&self.0)
    }

    #[inline(always)]
    fn diff(self, other: Self) -> Self {
        Self(tighten(sub_offset::<2>(self.0, other.0)))
    }

    #[inline(always)]
    fn sum(self, other: Self) -> Self {
        let mut r = self.0;
        for j in 0..LIMBS {
            r[j] = add(self.0[j], other.0[j]);
        }
        Self(r)
    }

    #[inline(always)]
    fn double(self) -> Self {
        Self(tighten(self.sum(self).0))
    }

    #[inline(always)]
    fn triple_square(self) -> Self {
        let square = Self(tighten(mont_sqr(&self.0)));
        Self(tighten(square.sum(square).sum(square).0))
    }

    #[inline(always)]
    fn mul(&self, other: &Self) -> Self {
        Self(tighten(mont_mul(&self.0, &other.0)))
    }

    #[inline(always)]
    fn sqr_sub(&self, sum: &Self) -> Self {
        Self(reduce_loose(sub_offset::<3>(mont_sqr(&self.0), sum.0)))
    }

    #[inline(always)]
    fn mul_sub(&self, factor: &Self, other: &Self) -> Self {
        Self(reduce_loose(sub_offset::<3>(mont_mul(&self.0, &factor.0), other.0)))
    }

    #[inline(always)]
    fn reduce(self) -> Self {
        Self(reduce_loose(self.0))
    }

    #[inline(always)]
    fn zeros_of_diff(self) -> u8 {
        zeros_of_diff(&self.0)
    }

    #[inline(always)]
    fn zeros(self) -> u8 {
        zeros_of_factor(&self.0)
    }

    #[inline(always)]
    fn norm(&self) {}

    #[inline(always)]
    fn times_norm(&self, _norm: &(), product: &Self) -> Self {
        product.mul(self)
    }

    #[inline(always)]
    fn inverse(&self, of_norm: &Self) -> Self {
        *of_norm
    }

    fn cell_to_blst(x: &FqCell, y: &FqCell) -> [[blst_fp; 2]; 2] {
        let zero = blst_fp { l: [0; 6] };
        [[words_of_limbs(&x.0), zero], [words_of_limbs(&y.0).mul(TIMES_2_16), zero]]
    }
}

impl BaseLanes for Fq {
    #[inline(always)]
    fn invert(&self) -> Self {
        Self(invert(self.0))
    }
}

/// Eight elements of F_q2 = F_q[i]/(i² + 1).
#[derive(Clone, Copy)]
pub(crate) struct Fq2 {
    c0: Limbs,
    c1: Limbs,
}

/// A reduced element of F_q2 at rest.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Fq2Cell {
    c0: FqCell,
    c1: FqCell,
}

impl Fq2 {
    /// (c0, c1) of the product, loose. Factors are below 8q; see [`mont_mul_add`].
    #[inline(always)]
    fn mul_loose(&self, other: &Self) -> Self {
        // c0 = a0·b0 + a1·(8q − b1), one reduction: a difference becomes a sum.
        let neg = tighten(sub_offset_8(other.c1));
        Self {
            c0: mont_mul_add(&self.c0, &other.c0, &self.c1, &neg),
            c1: mont_mul_add(&self.c0, &other.c1, &self.c1, &other.c0),
        }
    }

    /// (c0, c1) of the square, loose: (a0 + a1)(a0 − a1) and 2·a0·a1.
    #[inline(always)]
    fn sqr_loose(self) -> Self {
        let sum = tighten(Fq(self.c0).sum(Fq(self.c1)).0);
        let difference = tighten(add_8(self.c0, self.c1));
        let twice = Fq(self.c0).double().0;
        Self { c0: mont_mul(&sum, &difference), c1: mont_mul(&twice, &self.c1) }
    }

    #[inline(always)]
    fn tighten(self) -> Self {
        Self { c0: tighten(self.c0), c1: tighten(self.c1) }
    }
}

/// 8q − a, loose.
#[inline(always)]
fn sub_offset_8(a: Limbs) -> Limbs {
    const EIGHT: [u64; LIMBS] = multiple(8);
    let mut r = a;
    for j in 0..LIMBS {
        r[j] = sub(splat(EIGHT[j]), a[j]);
    }
    r
}

/// a + 8q − b, loose.
#[inline(always)]
fn add_8(a: Limbs, b: Limbs) -> Limbs {
    let mut r = sub_offset_8(b);
    for j in 0..LIMBS {
        r[j] = add(r[j], a[j]);
    }
    r
}

impl Vectors for Fq2 {
    fn run<K: Kernel>(kernel: K) -> K::Output {
        run_checked(kernel)
    }
}

impl Lanes for Fq2 {
    type Base = Fq;
    type Norm = Fq;
    type Cell = Fq2Cell;
    const ZERO: Fq2Cell = Fq2Cell { c0: FqCell([0; LIMBS]), c1: FqCell([0; LIMBS]) };
    const RECORD: usize = 192;

    #[inline(always)]
    fn gather(cells: [&Fq2Cell; LANES]) -> Self {
        let mut c0 = [zero(); LIMBS];
        let mut c1 = [zero(); LIMBS];
        for (lane, cell) in cells.iter().enumerate() {
            // Each component is 64 bytes, aligned.
            c0[lane] = simd!(_mm512_load_si512(cell.c0.0.as_ptr().cast()));
            c1[lane] = simd!(_mm512_load_si512(cell.c1.0.as_ptr().cast()));
        }
        Self { c0: transpose(c0), c1: transpose(c1) }
    }

    #[inline(always)]
    fn scatter(self) -> [Fq2Cell; LANES] {
        let mut out = [Self::ZERO; LANES];
        let (c0, c1) = (transpose(self.c0), transpose(self.c1));
        for (lane, cell) in out.iter_mut().enumerate() {
            // Each component is 64 bytes, aligned.
            simd!(_mm512_store_si512(cell.c0.0.as_mut_ptr().cast(), c0[lane]));
            simd!(_mm512_store_si512(cell.c1.0.as_mut_ptr().cast(), c1[lane]));
        }
        out
    }

    #[inline(always)]
    fn gather_records(records: [&[u8]; LANES]) -> (Self, Self) {
        // x.c0, x.c1, y.c0, y.c1: words 0..6, 6..12, 12..18, 18..24.
        let (a, b, c) = (load_words(&records, 0), load_words(&records, 64), load_words(&records, 128));
        let x = Self {
            c0: limbs_of_words(&[a[0], a[1], a[2], a[3], a[4], a[5]]),
            c1: limbs_of_words(&[a[6], a[7], b[0], b[1], b[2], b[3]]),
        };
        let y = Self {
            c0: limbs_of_words_div_2_16(&[b[4], b[5], b[6], b[7], c[0], c[1]]),
            c1: limbs_of_words_div_2_16(&[c[2], c[3], c[4], c[5], c[6], c[7]]),
        };
        (x, y)
    }

    #[inline(always)]
    fn prefetch_record(record: &[u8]) {
        for offset in [0, 64, 128, 191] {
            // Prefetching has no effect on memory.
            simd!(_mm_prefetch::<_MM_HINT_T0>(record.as_ptr().wrapping_add(offset).cast()));
        }
    }

    #[inline(always)]
    fn unit() -> Self {
        Self { c0: Fq::unit().0, c1: [zero(); LIMBS] }
    }

    #[inline(always)]
    fn select(mask: u8, a: Self, b: Self) -> Self {
        Self { c0: select(mask, a.c0, b.c0), c1: select(mask, a.c1, b.c1) }
    }

    #[inline(always)]
    fn zero_where(self, mask: u8) -> Self {
        Self { c0: Fq(self.c0).zero_where(mask).0, c1: Fq(self.c1).zero_where(mask).0 }
    }

    #[inline(always)]
    fn negate_where(self, mask: u8) -> Self {
        Self { c0: Fq(self.c0).negate_where(mask).0, c1: Fq(self.c1).negate_where(mask).0 }
    }

    #[inline(always)]
    fn literal_zeros(self) -> u8 {
        let c0 = literal_zeros(&self.c0);
        if c0 == 0 { 0 } else { c0 & literal_zeros(&self.c1) }
    }

    #[inline(always)]
    fn diff(self, other: Self) -> Self {
        Self { c0: Fq(self.c0).diff(Fq(other.c0)).0, c1: Fq(self.c1).diff(Fq(other.c1)).0 }
    }

    #[inline(always)]
    fn sum(self, other: Self) -> Self {
        Self { c0: Fq(self.c0).sum(Fq(other.c0)).0, c1: Fq(self.c1).sum(Fq(other.c1)).0 }
    }

    #[inline(always)]
    fn double(self) -> Self {
        Self { c0: Fq(self.c0).double().0, c1: Fq(self.c1).double().0 }
    }

    #[inline(always)]
    fn triple_square(self) -> Self {
        let square = self.sqr_loose();
        square.sum(square).sum(square).tighten()
    }

    #[inline(always)]
    fn mul(&self, other: &Self) -> Self {
        self.mul_loose(other).tighten()
    }

    #[inline(always)]
    fn sqr_sub(&self, sum: &Self) -> Self {
        let square = self.sqr_loose();
        Self {
            c0: reduce_loose(sub_offset::<3>(square.c0, sum.c0)),
            c1: reduce_loose(sub_offset::<3>(square.c1, sum.c1)),
        }
    }

    #[inline(always)]
    fn mul_sub(&self, factor: &Self, other: &Self) -> Self {
        let product = self.mul_loose(factor);
        Self {
            c0: reduce_loose(sub_offset::<3>(product.c0, other.c0)),
            c1: reduce_loose(sub_offset::<3>(product.c1, other.c1)),
        }
    }

    #[inline(always)]
    fn reduce(self) -> Self {
        Self { c0: reduce_loose(self.c0), c1: reduce_loose(self.c1) }
    }

    #[inline(always)]
    fn zeros_of_diff(self) -> u8 {
        let c0 = zeros_of_diff(&self.c0);
        if c0 == 0 { 0 } else { c0 & zeros_of_diff(&self.c1) }
    }

    #[inline(always)]
    fn zeros(self) -> u8 {
        zeros_of_factor(&self.c0) & zeros_of_factor(&self.c1)
    }

    #[inline(always)]
    fn norm(&self) -> Fq {
        Fq(tighten(mont_mul_add(&self.c0, &self.c0, &self.c1, &self.c1)))
    }

    #[inline(always)]
    fn times_norm(&self, norm: &Fq, product: &Fq) -> Fq {
        product.mul(norm)
    }

    #[inline(always)]
    fn inverse(&self, of_norm: &Fq) -> Self {
        // 1/(a0 + a1·i) = (a0 − a1·i)/(a0² + a1²).
        let neg = Fq(tighten(sub_offset_8(self.c1)));
        Self { c0: Fq(self.c0).mul(of_norm).0, c1: neg.mul(of_norm).0 }
    }

    fn cell_to_blst(x: &Fq2Cell, y: &Fq2Cell) -> [[blst_fp; 2]; 2] {
        [
            [words_of_limbs(&x.c0.0), words_of_limbs(&x.c1.0)],
            [words_of_limbs(&y.c0.0).mul(TIMES_2_16), words_of_limbs(&y.c1.0).mul(TIMES_2_16)],
        ]
    }
}
