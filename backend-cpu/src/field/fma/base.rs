//! F_q and F_q2 in AVX2 lanes.
//!
//! **Representation.** Eight limbs; the Montgomery radix is 2^408, blst's is 2^384. As with AVX-512, points are moved to an isomorphic
//! curve instead of converting every coordinate: (x, y) ↦ (u²x, u³y) maps y² = x³ + b to y² = x³ + u⁶b, and the affine addition
//! formulas never mention b. With u = 2^−12 the integer x·2^384 that blst stores *is* the Montgomery form u²x·2^408, untouched;
//! y·2^384 has to be divided by 2^12, a single reduction step while loading.
//!
//! **Ranges.** 2^408 is 2^27 times q, so that products of values of a hundred q still come out at about q/2. *Reduced* means
//! tight limbs and at most 0.5001q, or an x from a record: nonnegative limbs below 2^51 and a value below q. In *factors*, limbs
//! are at most 2^52, and values a few q; a product needs one factor that is a product itself (or the unit), with strict limbs.

use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use blst::blst_fp;

use super::{
    HALF, HIGH_BITS, LIFT, LIMB, LOW_BITS, Limbs, MASK, Prime, ROUND, ROUND_LIMB, WIDTH, add, add_bits, add_limbs,
    as_bits, balanced, bits, equal, extract, literal_zeros, load_words, low, multiply_add, narrow_mask, neg_inverse,
    negate, negate_where, of_bits, quotient_limb, reduce, run_checked, select, signed, simd, splat, splat_bits, start,
    store_words, sub, sub_limbs, triple, unsigned, zero_where,
};
use crate::field::portable::BlstField;
use crate::field::{BaseLanes, Kernel, LANES, Lanes, Vectors};

const LIMBS: usize = 8;

/// q, little-endian words.
const Q_WORDS: [u64; 6] = [
    0xb9fe_ffff_ffff_aaab,
    0x1eab_fffe_b153_ffff,
    0x6730_d2a0_f6b0_f624,
    0x6477_4b84_f385_12bf,
    0x4b1b_a7b6_434b_acd7,
    0x1a01_11ea_397f_e69a,
];

/// The base field's prime.
pub(super) struct Q;

impl Prime<LIMBS> for Q {
    const LIMBS: [f64; LIMBS] = balanced(&Q_WORDS);
    const NEG_INV: f64 = neg_inverse(Q_WORDS[0]);
}

/// 2^k mod q.
const fn power_of_two(k: usize) -> blst_fp {
    let mut l = [1u64, 0, 0, 0, 0, 0];
    let mut i = 0;
    while i < k {
        // Twice a value below q has less than 384 bits; then minus q, unless that is negative.
        let (mut doubled, mut difference) = ([0u64; 6], [0u64; 6]);
        let (mut carry, mut borrow) = (0, false);
        let mut j = 0;
        while j < 6 {
            doubled[j] = l[j] << 1 | carry;
            carry = l[j] >> 63;
            let (t, b1) = doubled[j].overflowing_sub(Q_WORDS[j]);
            let (t, b2) = t.overflowing_sub(borrow as u64);
            difference[j] = t;
            borrow = b1 | b2;
            j += 1;
        }
        l = if borrow { doubled } else { difference };
        i += 1;
    }
    blst_fp { l }
}

/// Makes blst's inverse of an integer v, v⁻¹·2^768, into v⁻¹·2^816 by one blst multiplication.
const TO_INVERSE: blst_fp = power_of_two(384 + 48);
/// A blst multiplication by it multiplies by 2^12.
const TIMES_2_12: blst_fp = power_of_two(384 + 12);

type Fp = Limbs<LIMBS>;

// Products are calls: some two thousand instructions each would make kernels outgrow the instruction cache.
montgomery!(mul_call, Q, 8, columns_of_8, (1, 0), one_product(a, b));
montgomery!(mul_add_call, Q, 8, columns_of_8, (2, 0), two_products(a, b, c, d));
montgomery!(sqr_call, Q, 8, columns_of_8, (0, 1), square(a, twice_a));
montgomery!(sqr_add_call, Q, 8, columns_of_8, (0, 2), two_squares(a, twice_a, b, twice_b));

/// What a call has left in memory, limb by limb. A copy as a whole would be one of wider vectors than were written, which have to wait
/// until these are in the cache.
#[inline(always)]
fn take(r: &Fp) -> Fp {
    let [[a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p]] = r;
    [[*a, *b, *c, *d, *e, *f, *g, *h], [*i, *j, *k, *l, *m, *n, *o, *p]]
}

/// a·b/2^408.
#[inline(always)]
fn mul(a: &Fp, b: &Fp) -> Fp {
    let mut r = MaybeUninit::uninit();
    // Calls initialise what they are given.
    simd!({
        mul_call(&mut r, a, b);
        take(r.assume_init_ref())
    })
}

/// (a·b + c·d)/2^408: two products, one reduction.
#[inline(always)]
fn mul_add(a: &Fp, b: &Fp, c: &Fp, d: &Fp) -> Fp {
    let mut r = MaybeUninit::uninit();
    // As in `mul`.
    simd!({
        mul_add_call(&mut r, a, b, c, d);
        take(r.assume_init_ref())
    })
}

/// a²/2^408 of tight limbs.
#[inline(always)]
fn sqr(a: &Fp) -> Fp {
    let mut r = MaybeUninit::uninit();
    // As in `mul`.
    simd!({
        sqr_call(&mut r, a, &add_limbs(a, a));
        take(r.assume_init_ref())
    })
}

/// (a² + b²)/2^408 of tight limbs.
#[inline(always)]
fn sqr_add(a: &Fp, b: &Fp) -> Fp {
    let mut r = MaybeUninit::uninit();
    // As in `mul`.
    simd!({
        sqr_add_call(&mut r, a, &add_limbs(a, a), b, &add_limbs(b, b));
        take(r.assume_init_ref())
    })
}

/// Lanes in which a difference of reduced values, which lies in (−1.51q, 1.51q), is zero modulo q: −q, 0 or q.
#[inline(always)]
fn zeros_of_diff(a: &Fp) -> u8 {
    // The lowest limb is 0 or that of ±q then, modulo 2^51; a random one agrees once in 2^50.
    let mut maybe = [splat(0.0); 2];
    for x in 0..2 {
        let limb = a[x][0];
        let limb = sub(limb, sub(add(limb, splat(ROUND_LIMB)), splat(ROUND_LIMB)));
        let magnitude = simd!(_mm256_andnot_pd(splat(-0.0), limb));
        let of_q = splat(const { Q::LIMBS[0].abs() });
        maybe[x] = simd!(_mm256_or_pd(equal(magnitude, splat(0.0)), equal(magnitude, of_q)));
    }
    if narrow_mask(maybe) == 0 { 0 } else { zeros(a) }
}

#[inline(always)]
fn zeros(a: &Fp) -> u8 {
    literal_zeros(&reduce::<Q, LIMBS>(a))
}

/// Eight elements of F_q.
#[derive(Clone, Copy)]
pub(crate) struct Fq(Fp);

/// A reduced element at rest: the bit patterns of its limbs, a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct FqCell([u64; LIMBS]);

#[cfg(test)]
impl FqCell {
    pub(super) fn from_limbs(limbs: [u64; LIMBS]) -> Self {
        Self(limbs)
    }

    pub(super) fn limbs(&self) -> [u64; LIMBS] {
        self.0
    }
}

#[cfg(test)]
impl Fq2Cell {
    pub(super) fn limbs(&self) -> [[u64; LIMBS]; 2] {
        [self.c0.0, self.c1.0]
    }
}

#[cfg(test)]
impl Fq2 {
    pub(super) fn cell(c0: FqCell, c1: FqCell) -> Fq2Cell {
        Fq2Cell { c0, c1 }
    }
}

impl FqCell {
    /// Limbs `at`..`at + 4`, as bytes.
    #[inline(always)]
    fn sixteens(&self, at: usize) -> [&[u8; 16]; 2] {
        let limbs: &[u64] = &self.0[at..at + 4];
        // SAFETY: 16 bytes of the 32 that `limbs` has, from its start and from its middle; bytes have no alignment.
        unsafe { [&*limbs.as_ptr().cast(), &*limbs.as_ptr().add(2).cast()] }
    }
}

/// Bytes `at`..`at + 32` of a record.
#[inline(always)]
fn sixteens(record: &[u8], at: usize) -> [&[u8; 16]; 2] {
    let bytes: &[u8] = &record[at..at + 32];
    // SAFETY: as above.
    unsafe { [&*bytes.as_ptr().cast(), &*bytes.as_ptr().add(16).cast()] }
}

/// 32 bytes of four records, transposed.
#[inline(always)]
fn load_bytes(records: [&[u8]; 4], at: usize) -> [__m256i; 4] {
    let [a, b, c, d] = records;
    load_words([sixteens(a, at), sixteens(b, at), sixteens(c, at), sixteens(d, at)])
}

#[inline(always)]
fn gather_cells(cells: [&FqCell; LANES]) -> Fp {
    let mut r = [[splat(0.0); LIMBS]; 2];
    for x in 0..2 {
        for at in [0, 4] {
            let words = load_words([
                cells[4 * x].sixteens(at),
                cells[4 * x + 1].sixteens(at),
                cells[4 * x + 2].sixteens(at),
                cells[4 * x + 3].sixteens(at),
            ]);
            for i in 0..4 {
                r[x][at + i] = of_bits(words[i]);
            }
        }
    }
    r
}

#[inline(always)]
fn scatter_limbs(a: &Fp) -> [[u64; LIMBS]; LANES] {
    let mut out = [[0; LIMBS]; LANES];
    for (x, out) in out.chunks_exact_mut(4).enumerate() {
        for at in [0, 4] {
            let words = [as_bits(a[x][at]), as_bits(a[x][at + 1]), as_bits(a[x][at + 2]), as_bits(a[x][at + 3])];
            store_words(words, out, at);
        }
    }
    out
}

/// k·q in limbs of 51 bits.
const fn multiple(k: u64) -> [i64; LIMBS] {
    let mut r = [0; LIMBS];
    let mut carry = 0;
    let mut j = 0;
    while j < LIMBS {
        let t = bits(&Q_WORDS, j) * k + carry;
        r[j] = (t & MASK) as i64;
        carry = t >> WIDTH;
        j += 1;
    }
    r
}

/// The canonical integer of limbs of at most 2^53 that stand for a value in [−8q, 8q), as blst holds it.
pub(super) fn words_of_limbs(limbs: &[u64; LIMBS]) -> blst_fp {
    let mut value = multiple(8);
    let mut carry = 0;
    for j in 0..LIMBS {
        let t = value[j] + f64::from_bits(limbs[j]) as i64 + carry;
        value[j] = t & MASK as i64;
        carry = t >> WIDTH;
    }
    // Below 16q < 2^408: the last carry is zero.
    for k in [8, 4, 2, 1] {
        let multiple = multiple(k);
        let mut difference = [0; LIMBS];
        let mut borrow = 0;
        for j in 0..LIMBS {
            let t = value[j] - multiple[j] + borrow;
            difference[j] = t & MASK as i64;
            borrow = t >> WIDTH;
        }
        if borrow == 0 {
            value = difference;
        }
    }
    let mut l = [0; 6];
    for (j, &limb) in value.iter().enumerate() {
        let (word, shift) = (WIDTH * j / 64, WIDTH * j % 64);
        l[word] |= (limb as u64) << shift;
        if shift > 64 - WIDTH && word < 5 {
            l[word + 1] |= limb as u64 >> (64 - shift);
        }
    }
    blst_fp { l }
}

/// Strict limbs of a canonical integer.
pub(super) fn limbs_of_fp(x: &blst_fp) -> [u64; LIMBS] {
    balanced(&x.l).map(f64::to_bits)
}

/// Montgomery inverses (radix 2^408) of eight values. By blst: one inversion, 22 multiplications.
fn invert_lanes(cells: &[[u64; LIMBS]; LANES]) -> [FqCell; LANES] {
    let values = cells.each_ref().map(words_of_limbs);
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
fn invert(a: &Fp) -> Fp {
    let inverses = invert_lanes(&scatter_limbs(a));
    gather_cells(inverses.each_ref())
}

/// Limbs of 384-bit integers given in words, as they are: nonnegative.
#[inline(always)]
fn limbs_of_words(words: &[__m256i; 6]) -> [__m256d; LIMBS] {
    let mut r = [splat(0.0); LIMBS];
    for (j, r) in r.iter_mut().enumerate() {
        *r = unsigned(extract(words, (WIDTH * j) as i32), 0.0);
    }
    r
}

/// Limbs of 384-bit integers below q, divided by 2^12 modulo q: a reduction step of the integer times 2^39. Strict, and at most
/// q/2 + q/2^12.
#[inline(always)]
fn limbs_of_words_div_2_12(words: &[__m256i; 6]) -> [__m256d; LIMBS] {
    // A column above the first has the lower half of one product and the upper half of another.
    const START: i64 =
        LIFT.wrapping_add(HALF).wrapping_sub(LOW_BITS).wrapping_sub(HIGH_BITS).wrapping_sub(LIFT >> WIDTH);
    let mut column = add_bits(extract(words, -39), splat_bits(const { LIFT.wrapping_sub(LOW_BITS) }));
    let multiple = quotient_limb::<Q, LIMBS>(column);
    let mut r = [splat(0.0); LIMBS];
    for j in 0..LIMBS {
        let above = extract(words, (WIDTH * (j + 1)) as i32 - 39);
        let mut next = add_bits(above, splat_bits(START));
        multiply_add(&mut column, &mut next, multiple, splat(Q::LIMBS[j]));
        if j > 0 {
            r[j - 1] = unsigned(low(column), -(HALF as f64));
        }
        column = add_bits(next, simd!(_mm256_srli_epi64::<{ WIDTH as i32 }>(column)));
    }
    // The last one has no lower half.
    r[LIMBS - 1] = signed(column, (LIFT + HALF).wrapping_sub(LOW_BITS));
    r
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
    // Second-level caches are smaller here than where there is IFMA.
    const BATCH: usize = 128;

    #[inline(always)]
    fn gather(cells: [&FqCell; LANES]) -> Self {
        Self(gather_cells(cells))
    }

    #[inline(always)]
    fn scatter(self) -> [FqCell; LANES] {
        scatter_limbs(&self.0).map(FqCell)
    }

    #[inline(always)]
    fn gather_records(records: [&[u8]; LANES]) -> (Self, Self) {
        let zero = [[splat(0.0); LIMBS]; 2];
        let (mut x, mut y) = (zero, zero);
        for half in 0..2 {
            let blocks = [records[4 * half], records[4 * half + 1], records[4 * half + 2], records[4 * half + 3]];
            let (a, b, c) = (load_bytes(blocks, 0), load_bytes(blocks, 32), load_bytes(blocks, 64));
            x[half] = limbs_of_words(&[a[0], a[1], a[2], a[3], b[0], b[1]]);
            y[half] = limbs_of_words_div_2_12(&[b[2], b[3], c[0], c[1], c[2], c[3]]);
        }
        (Self(x), Self(y))
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
        let mut limb = [splat(0.0); LIMBS];
        limb[0] = splat(1.0);
        Self([limb; 2])
    }

    #[inline(always)]
    fn select(mask: u8, a: Self, b: Self) -> Self {
        Self(select(mask, &a.0, &b.0))
    }

    #[inline(always)]
    fn zero_where(self, mask: u8) -> Self {
        Self(zero_where(&self.0, mask))
    }

    #[inline(always)]
    fn negate_where(self, mask: u8) -> Self {
        Self(negate_where(&self.0, mask))
    }

    #[inline(always)]
    fn literal_zeros(self) -> u8 {
        literal_zeros(&self.0)
    }

    #[inline(always)]
    fn diff(self, other: Self) -> Self {
        Self(sub_limbs(&self.0, &other.0))
    }

    #[inline(always)]
    fn sum(self, other: Self) -> Self {
        Self(add_limbs(&self.0, &other.0))
    }

    #[inline(always)]
    fn double(self) -> Self {
        self.sum(self)
    }

    #[inline(always)]
    fn triple_square(self) -> Self {
        // Limbs of an x from a record are too large to be doubled, which `sqr` would do.
        Self(triple(&mul(&self.0, &self.0)))
    }

    #[inline(always)]
    fn mul(&self, other: &Self) -> Self {
        Self(mul(&self.0, &other.0))
    }

    #[inline(always)]
    fn sqr_sub(&self, sum: &Self) -> Self {
        Self(reduce::<Q, LIMBS>(&sub_limbs(&sqr(&self.0), &sum.0)))
    }

    #[inline(always)]
    fn mul_sub(&self, factor: &Self, other: &Self) -> Self {
        Self(reduce::<Q, LIMBS>(&sub_limbs(&mul(&self.0, &factor.0), &other.0)))
    }

    #[inline(always)]
    fn reduce(self) -> Self {
        Self(reduce::<Q, LIMBS>(&self.0))
    }

    #[inline(always)]
    fn zeros_of_diff(self) -> u8 {
        zeros_of_diff(&self.0)
    }

    #[inline(always)]
    fn zeros(self) -> u8 {
        zeros(&self.0)
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
        [[words_of_limbs(&x.0), zero], [words_of_limbs(&y.0).mul(TIMES_2_12), zero]]
    }
}

impl BaseLanes for Fq {
    #[inline(always)]
    fn invert(&self) -> Self {
        Self(invert(&self.0))
    }
}

/// Eight elements of F_q2 = F_q[i]/(i² + 1).
#[derive(Clone, Copy)]
pub(crate) struct Fq2 {
    c0: Fp,
    c1: Fp,
}

/// A reduced element of F_q2 at rest.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Fq2Cell {
    c0: FqCell,
    c1: FqCell,
}

impl Fq2 {
    /// (a0 + a1)(a0 − a1) and 2·a0·a1 of strict limbs, which lie in [−2^50, 2^50): at most one of sum and difference is
    /// −2^51, the other smaller.
    #[inline(always)]
    fn sqr(&self) -> Self {
        let (sum, difference) = (add_limbs(&self.c0, &self.c1), sub_limbs(&self.c0, &self.c1));
        Self { c0: mul(&sum, &difference), c1: mul(&add_limbs(&self.c0, &self.c0), &self.c1) }
    }
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
    const BATCH: usize = 64;

    #[inline(always)]
    fn gather(cells: [&Fq2Cell; LANES]) -> Self {
        Self { c0: gather_cells(cells.map(|c| &c.c0)), c1: gather_cells(cells.map(|c| &c.c1)) }
    }

    #[inline(always)]
    fn scatter(self) -> [Fq2Cell; LANES] {
        let (c0, c1) = (scatter_limbs(&self.c0), scatter_limbs(&self.c1));
        let mut out = [Self::ZERO; LANES];
        for (lane, cell) in out.iter_mut().enumerate() {
            *cell = Fq2Cell { c0: FqCell(c0[lane]), c1: FqCell(c1[lane]) };
        }
        out
    }

    #[inline(always)]
    fn gather_records(records: [&[u8]; LANES]) -> (Self, Self) {
        let zero = [[splat(0.0); LIMBS]; 2];
        let (mut x, mut y) = (Self { c0: zero, c1: zero }, Self { c0: zero, c1: zero });
        for half in 0..2 {
            // x.c0, x.c1, y.c0, y.c1: words 0..6, 6..12, 12..18, 18..24.
            let blocks = [records[4 * half], records[4 * half + 1], records[4 * half + 2], records[4 * half + 3]];
            let (a, b, c) = (load_bytes(blocks, 0), load_bytes(blocks, 32), load_bytes(blocks, 64));
            x.c0[half] = limbs_of_words(&[a[0], a[1], a[2], a[3], b[0], b[1]]);
            x.c1[half] = limbs_of_words(&[b[2], b[3], c[0], c[1], c[2], c[3]]);
            let (a, b, c) = (load_bytes(blocks, 96), load_bytes(blocks, 128), load_bytes(blocks, 160));
            y.c0[half] = limbs_of_words_div_2_12(&[a[0], a[1], a[2], a[3], b[0], b[1]]);
            y.c1[half] = limbs_of_words_div_2_12(&[b[2], b[3], c[0], c[1], c[2], c[3]]);
        }
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
        Self { c0: Fq::unit().0, c1: [[splat(0.0); LIMBS]; 2] }
    }

    #[inline(always)]
    fn select(mask: u8, a: Self, b: Self) -> Self {
        Self { c0: select(mask, &a.c0, &b.c0), c1: select(mask, &a.c1, &b.c1) }
    }

    #[inline(always)]
    fn zero_where(self, mask: u8) -> Self {
        Self { c0: zero_where(&self.c0, mask), c1: zero_where(&self.c1, mask) }
    }

    #[inline(always)]
    fn negate_where(self, mask: u8) -> Self {
        Self { c0: negate_where(&self.c0, mask), c1: negate_where(&self.c1, mask) }
    }

    #[inline(always)]
    fn literal_zeros(self) -> u8 {
        let c0 = literal_zeros(&self.c0);
        if c0 == 0 { 0 } else { c0 & literal_zeros(&self.c1) }
    }

    #[inline(always)]
    fn diff(self, other: Self) -> Self {
        Self { c0: sub_limbs(&self.c0, &other.c0), c1: sub_limbs(&self.c1, &other.c1) }
    }

    #[inline(always)]
    fn sum(self, other: Self) -> Self {
        Self { c0: add_limbs(&self.c0, &other.c0), c1: add_limbs(&self.c1, &other.c1) }
    }

    #[inline(always)]
    fn double(self) -> Self {
        self.sum(self)
    }

    #[inline(always)]
    fn triple_square(self) -> Self {
        let square = self.mul(&self);
        Self { c0: triple(&square.c0), c1: triple(&square.c1) }
    }

    #[inline(always)]
    fn mul(&self, other: &Self) -> Self {
        Self {
            c0: mul_add(&self.c0, &other.c0, &negate(&self.c1), &other.c1),
            c1: mul_add(&self.c0, &other.c1, &self.c1, &other.c0),
        }
    }

    #[inline(always)]
    fn sqr_sub(&self, sum: &Self) -> Self {
        self.sqr().diff(*sum).reduce()
    }

    #[inline(always)]
    fn mul_sub(&self, factor: &Self, other: &Self) -> Self {
        self.mul(factor).diff(*other).reduce()
    }

    #[inline(always)]
    fn reduce(self) -> Self {
        Self { c0: reduce::<Q, LIMBS>(&self.c0), c1: reduce::<Q, LIMBS>(&self.c1) }
    }

    #[inline(always)]
    fn zeros_of_diff(self) -> u8 {
        let c0 = zeros_of_diff(&self.c0);
        if c0 == 0 { 0 } else { c0 & zeros_of_diff(&self.c1) }
    }

    #[inline(always)]
    fn zeros(self) -> u8 {
        zeros(&self.c0) & zeros(&self.c1)
    }

    #[inline(always)]
    fn norm(&self) -> Fq {
        // Squares need tight limbs: they are doubled.
        let (c0, c1) = (reduce::<Q, LIMBS>(&self.c0), reduce::<Q, LIMBS>(&self.c1));
        Fq(sqr_add(&c0, &c1))
    }

    #[inline(always)]
    fn times_norm(&self, norm: &Fq, product: &Fq) -> Fq {
        product.mul(norm)
    }

    #[inline(always)]
    fn inverse(&self, of_norm: &Fq) -> Self {
        // 1/(a0 + a1·i) = (a0 − a1·i)/(a0² + a1²).
        Self { c0: mul(&self.c0, &of_norm.0), c1: mul(&negate(&self.c1), &of_norm.0) }
    }

    fn cell_to_blst(x: &Fq2Cell, y: &Fq2Cell) -> [[blst_fp; 2]; 2] {
        [
            [words_of_limbs(&x.c0.0), words_of_limbs(&x.c1.0)],
            [words_of_limbs(&y.c0.0).mul(TIMES_2_12), words_of_limbs(&y.c1.0).mul(TIMES_2_12)],
        ]
    }
}

const _: () = {
    // What `zeros_of_diff` and the ranges above rely on: q's digits are no ties.
    let mut j = 0;
    while j < LIMBS {
        assert!(Q::LIMBS[j] < LIMB / 2.0 && Q::LIMBS[j] > -LIMB / 2.0);
        j += 1;
    }
};
