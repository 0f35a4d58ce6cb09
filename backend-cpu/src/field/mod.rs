//! Field arithmetic, eight elements at a time.
//!
//! Batched affine addition and number-theoretic transforms do the same operation on many independent elements, so the code
//! above this module is written once, over [`Lanes`] (the base field F_q and its quadratic extension, for curve points)
//! and [`ScalarLanes`] (F_r, for transforms), and runs on three implementations:
//!
//! * [`portable`]: eight calls of blst's assembly. Works everywhere; the reference.
//! * [`fma`]: twice four lanes of AVX2 registers, with the multiply-add of doubles.
//! * [`ifma`]: the eight lanes of AVX-512 registers with 52-bit multiply-add, where the processor has it.
//!
//! Which one runs is decided once per call by [`Arithmetic`], never inside a loop: generic kernels are
//! `#[inline(always)]` and get compiled into one function with the right target features, [`Vectors::run`].

#[cfg(target_arch = "x86_64")]
pub(crate) mod fma;
#[cfg(target_arch = "x86_64")]
pub(crate) mod ifma;
#[cfg(target_arch = "x86_64")]
pub(crate) mod ifma_scalar;
pub(crate) mod portable;

use blst::{blst_fp, blst_fr, blst_scalar, blst_scalar_from_fr};
use blstrs::Scalar;

/// Elements worked on together.
pub(crate) const LANES: usize = 8;

/// Which implementation of the lane traits to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// blst, one element after the other.
    Portable,
    /// AVX2 with fused multiply-add of doubles, twice four elements at once. x86-64 only.
    Avx2Fma,
    /// AVX-512 with 52-bit integer multiply-add, eight elements at once. x86-64 only.
    Avx512Ifma,
}

impl Arithmetic {
    /// The fastest that this processor has.
    pub fn detect() -> Self {
        Self::supported().last().unwrap_or(Self::Portable)
    }

    /// Whether this processor has it.
    pub fn is_supported(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2Fma => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Ifma => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512ifma")
                    && is_x86_feature_detected!("bmi2")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2Fma | Self::Avx512Ifma => false,
        }
    }

    /// All that this processor has, the fastest last.
    pub fn supported() -> impl Iterator<Item = Self> {
        [Self::Portable, Self::Avx2Fma, Self::Avx512Ifma].into_iter().filter(|a| a.is_supported())
    }
}

/// A computation over lanes, to be compiled with the lanes' target features: mark `run` `#[inline(always)]`, and all that it
/// calls on lanes too.
pub(crate) trait Kernel {
    /// What it computes.
    type Output;
    /// Computes it.
    fn run(self) -> Self::Output;
}

/// Something whose operations need target features.
pub(crate) trait Vectors {
    /// Runs a kernel in a function that has the features.
    ///
    /// Values of the implementing type must only be made by kernels run through here.
    fn run<K: Kernel>(kernel: K) -> K::Output;
}

/// Eight elements of F_q or F_q2 for batched affine addition on the curve y² = x³ + b.
///
/// The representation is the implementation's own, x and y coordinates may even have different scales, as long as the affine
/// addition formulas hold between them. *Reduced* elements are what [`scatter`](Self::scatter) takes and
/// [`gather`](Self::gather) gives; other operations say what they need.
pub(crate) trait Lanes: Copy + Send + Vectors + 'static {
    /// Lanes of the base field: F_q.
    type Base: BaseLanes;
    /// What [`inverse`](Self::inverse) needs besides the element: nothing in F_q, the norm in F_q2.
    type Norm: Copy + Send + 'static;
    /// One reduced element at rest.
    type Cell: Copy + Send + Sync + 'static;
    /// The cell that is literally zero. A point of two zero cells stands for infinity.
    const ZERO: Self::Cell;
    /// Vectors of additions that share an inversion. One takes as long as ten to thirty additions, and what a batch keeps should stay
    /// in the second-level cache: in G1, 3 KiB a vector.
    const BATCH: usize = 256;
    /// Bytes of a point record (two coordinates as `blst_fp` or `blst_fp2` hold them).
    const RECORD: usize;

    /// Loads eight cells.
    fn gather(cells: [&Self::Cell; LANES]) -> Self;
    /// Stores eight reduced elements.
    fn scatter(self) -> [Self::Cell; LANES];
    /// Loads eight affine points (x, y) from records of [`RECORD`](Self::RECORD) bytes. x is reduced, y at most twice that.
    fn gather_records(records: [&[u8]; LANES]) -> (Self, Self);
    /// Asks for the memory of a record to be brought near.
    fn prefetch_record(record: &[u8]);

    /// Some element that is not zero, in all lanes.
    fn unit() -> Self;
    /// Lanes of `a` where the mask is set, else of `b`.
    fn select(mask: u8, a: Self, b: Self) -> Self;
    /// Zero where the mask is set, else `self`.
    fn zero_where(self, mask: u8) -> Self;
    /// Negated where the mask is set. `self` is reduced; the result is at most twice that.
    fn negate_where(self, mask: u8) -> Self;
    /// Lanes of a gathered coordinate that are literally zero.
    fn literal_zeros(self) -> u8;

    /// self − other, a factor for [`mul`](Self::mul); operands up to twice reduced.
    fn diff(self, other: Self) -> Self;
    /// self + other, only to be subtracted in [`sqr_sub`](Self::sqr_sub).
    fn sum(self, other: Self) -> Self;
    /// 2·self as a factor, from at most twice reduced.
    fn double(self) -> Self;
    /// 3·self² as a factor, from a reduced element.
    fn triple_square(self) -> Self;
    /// The product, again a factor. One of the two must be a product itself, or an inverse or unit.
    fn mul(&self, other: &Self) -> Self;
    /// self² − sum, reduced; self is a product.
    fn sqr_sub(&self, sum: &Self) -> Self;
    /// self·factor − other, reduced; self is a product, `other` at most twice reduced.
    fn mul_sub(&self, factor: &Self, other: &Self) -> Self;
    /// The reduced form of an element at most four times reduced; zero stays literally zero.
    fn reduce(self) -> Self;
    /// Lanes of a [`diff`](Self::diff) of *reduced* elements that are zero in the field. Fast where none is.
    fn zeros_of_diff(self) -> u8;
    /// The same for any factor. Slow.
    fn zeros(self) -> u8;
    /// The norm of a difference of reduced elements, or of another factor with limbs no larger: in F_q2 c0² + c1², zero only for zero.
    fn norm(&self) -> Self::Norm;
    /// A product in the base field times the norm, which is the element itself in F_q.
    fn times_norm(&self, norm: &Self::Norm, product: &Self::Base) -> Self::Base;
    /// The inverse of an element from that of its norm.
    fn inverse(&self, of_norm: &Self::Base) -> Self;

    /// x and y cells of a point from its blst coordinates, c0 and c1 (F_q: c1 unused). Infinity is all zeros.
    fn cell_to_blst(x: &Self::Cell, y: &Self::Cell) -> [[blst_fp; 2]; 2];
}

/// Lanes of F_q.
pub(crate) trait BaseLanes: Lanes {
    /// Inverses of eight products, none of which is zero.
    fn invert(&self) -> Self;
}

/// A vector of F_r in memory: Montgomery form (radix 2^256), little-endian words, as `blst_fr` and
/// [`blstrs::Scalar`] hold it, but only below 2r until [`canonical`] makes it so.
pub(crate) type Words = [u64; 4];

/// Eight elements of F_r, for transforms and pointwise products.
///
/// Values come in three states. *Stored*: what [`load`](Self::load) gives, [`store`](Self::store) takes, as words below 1.51r, and
/// [`reduce`](Self::reduce) makes. *Grown*: by butterflies. *Factors*: stored or grown.
pub(crate) trait ScalarLanes: Copy + Send + Vectors + 'static {
    /// A constant at rest, to multiply by.
    type Constant: Copy + Send + Sync + 'static;
    /// How often [`product_first`](Self::product_first) may follow itself before its results are reduced.
    const PRODUCT_STEPS: usize;
    /// xy·DATA_PRODUCT is what the product of two loaded values x and y gives: implementations have another radix.
    fn data_product() -> Scalar;

    /// The constant c with x·c = cx for loaded x.
    fn constant(c: &Scalar) -> Self::Constant;
    /// A constant in all lanes.
    fn splat(c: &Self::Constant) -> Self;
    /// Eight constants.
    fn constants(c: &[Self::Constant; LANES]) -> Self;

    /// Loads the elements at `at(lane)`.
    fn load(values: [&Words; LANES]) -> Self;
    /// Stores eight elements.
    fn store(self) -> [Words; LANES];

    /// The product of two factors, the second of which is a constant or stored.
    fn mul(self, factor: Self) -> Self;
    /// a − b, a factor, from stored values or products.
    fn sub(self, other: Self) -> Self;
    /// (u + v, (u − v)·w) of values that have grown by `LEVEL` (at most 2) such steps since they were stored.
    fn difference_first<const LEVEL: usize>(u: Self, v: Self, w: Self) -> (Self, Self);
    /// (u + v·w, u − v·w) for a constant or stored w.
    fn product_first(u: Self, v: Self, w: Self) -> (Self, Self);
    /// Any value to a stored one.
    fn reduce(self) -> Self;
}

/// r, little-endian words.
const R: Words = [0xffff_ffff_0000_0001, 0x53bd_a402_fffe_5bfe, 0x3339_d808_09a1_d805, 0x73ed_a753_299d_7d48];

/// a − b and whether it wrapped.
#[inline]
fn sub_words(a: Words, b: Words) -> (Words, bool) {
    let (mut difference, mut borrow) = (a, false);
    for (d, b) in difference.iter_mut().zip(b) {
        let (s, b1) = d.overflowing_sub(b);
        let (s, b2) = s.overflowing_sub(u64::from(borrow));
        (*d, borrow) = (s, b1 | b2);
    }
    (difference, borrow)
}

/// a + b modulo 2^256.
#[inline]
fn add_words(a: Words, b: Words) -> Words {
    let (mut sum, mut carry) = (a, false);
    for (s, b) in sum.iter_mut().zip(b) {
        let (t, c1) = s.overflowing_add(b);
        let (t, c2) = t.overflowing_add(u64::from(carry));
        (*s, carry) = (t, c1 | c2);
    }
    sum
}

/// Below r, from a value below 2r.
#[inline]
pub(crate) fn canonical(x: Words) -> Words {
    let (difference, borrow) = sub_words(x, R);
    if borrow { x } else { difference }
}

/// a + b modulo r, of canonical operands.
#[inline]
pub(crate) fn add_mod(a: Words, b: Words) -> Words {
    canonical(add_words(a, b))
}

/// a − b modulo r, of canonical operands.
#[inline]
pub(crate) fn sub_mod(a: Words, b: Words) -> Words {
    let (difference, borrow) = sub_words(a, b);
    if borrow { add_words(difference, R) } else { difference }
}

/// r − k for a plain integer k with 0 < k < r.
pub(crate) fn negate_plain(k: Words) -> Words {
    sub_words(R, k).0
}

/// The Montgomery product of canonical operands.
#[inline]
pub(crate) fn mul_mod(a: &Words, b: &Words) -> Words {
    portable::fr_mul(&blst_fr { l: *a }, &blst_fr { l: *b }).l
}

/// The words of a scalar in Montgomery form.
#[inline]
pub(crate) fn words(x: &Scalar) -> Words {
    blst_fr::from(*x).l
}

/// Scalars as their words, in place.
pub(crate) fn as_words(scalars: &mut [Scalar]) -> &mut [Words] {
    const {
        assert!(size_of::<Scalar>() == size_of::<Words>() && align_of::<Scalar>() == align_of::<Words>());
    }
    // SAFETY: `Scalar` is a transparent wrapper of `blst_fr`, a C struct of four u64; size and alignment are checked above, and
    // every bit pattern is a valid `Words`. The caller treats the scalars as spent: words may be above r.
    unsafe { std::slice::from_raw_parts_mut(scalars.as_mut_ptr().cast(), scalars.len()) }
}

/// A scalar as a plain integer, little-endian words.
pub(crate) fn to_plain(k: &Scalar) -> [u64; 4] {
    let mut plain = blst_scalar::default();
    let fr = blst_fr::from(*k);
    // SAFETY: both are valid, initialised elements.
    unsafe { blst_scalar_from_fr(&mut plain, &fr) };
    let mut words = [0; 4];
    for (word, chunk) in words.iter_mut().zip(plain.b.chunks_exact(8)) {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(chunk);
        *word = u64::from_le_bytes(bytes);
    }
    words
}

/// The scalar that is a plain integer below r.
pub(crate) fn from_plain(k: Words) -> Scalar {
    // The Montgomery product with 2^512 mod r; blst wants canonical operands.
    const R_SQUARED: Words =
        [0xc999_e990_f3f2_9c6d, 0x2b6c_edcb_8792_5c23, 0x05d3_1496_7254_398f, 0x0748_d9d9_9f59_ff11];
    Scalar::from(blst_fr { l: mul_mod(&k, &R_SQUARED) })
}
