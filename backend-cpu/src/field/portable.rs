//! Lanes as arrays, worked on by blst's assembly, one element after the other.

use blst::{
    blst_fp, blst_fp_add, blst_fp_cneg, blst_fp_inverse, blst_fp_mul, blst_fp_mul_by_3, blst_fp_sqr, blst_fp_sub,
    blst_fp2, blst_fp2_add, blst_fp2_cneg, blst_fp2_inverse, blst_fp2_mul, blst_fp2_mul_by_3, blst_fp2_sqr,
    blst_fp2_sub, blst_fr, blst_fr_add, blst_fr_mul, blst_fr_sub,
};

use blstrs::Scalar;
use ff::Field;

use super::{BaseLanes, Kernel, LANES, Lanes, ScalarLanes, Vectors, Words};

/// Reads a base field element's 48 little-endian bytes.
pub(crate) fn read_fp(bytes: &[u8]) -> blst_fp {
    let mut l = [0; 6];
    for (limb, chunk) in l.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        *limb = u64::from_le_bytes(word);
    }
    blst_fp { l }
}

fn read_fp2(bytes: &[u8]) -> blst_fp2 {
    blst_fp2 { fp: [read_fp(&bytes[..48]), read_fp(&bytes[48..96])] }
}

/// A field that blst knows, as safe functions on values.
pub(crate) trait BlstField: Copy + PartialEq + Send + Sync + 'static {
    const ZERO: Self;
    const ONE: Self;
    const RECORD: usize;
    fn read(bytes: &[u8]) -> Self;
    fn components(self) -> [blst_fp; 2];
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn sqr(self) -> Self;
    fn triple(self) -> Self;
    fn neg(self) -> Self;
    fn inv(self) -> Self;
    /// The norm over F_q: the element itself there.
    fn norm(self) -> blst_fp;
    /// The inverse, from the norm's.
    fn inverse(self, of_norm: blst_fp) -> Self;
}

macro_rules! blst_field {
    ($t:ty, $zero:expr, $one:expr, $record:literal, $read:path, $components:expr,
     $norm:expr, $inverse:expr,
     $add:ident $sub:ident $mul:ident $sqr:ident $triple:ident $cneg:ident $inv:ident) => {
        impl BlstField for $t {
            const ZERO: Self = $zero;
            const ONE: Self = $one;
            const RECORD: usize = $record;
            #[inline]
            fn read(bytes: &[u8]) -> Self {
                $read(bytes)
            }
            #[inline]
            fn components(self) -> [blst_fp; 2] {
                ($components)(self)
            }
            #[inline]
            fn add(self, b: Self) -> Self {
                let mut r = Self::ZERO;
                // SAFETY: three valid, initialised elements; blst reads both operands before it writes.
                unsafe { $add(&mut r, &self, &b) };
                r
            }
            #[inline]
            fn sub(self, b: Self) -> Self {
                let mut r = Self::ZERO;
                // SAFETY: as in `add`.
                unsafe { $sub(&mut r, &self, &b) };
                r
            }
            #[inline]
            fn mul(self, b: Self) -> Self {
                let mut r = Self::ZERO;
                // SAFETY: as in `add`.
                unsafe { $mul(&mut r, &self, &b) };
                r
            }
            #[inline]
            fn sqr(self) -> Self {
                let mut r = Self::ZERO;
                // SAFETY: two valid, initialised elements.
                unsafe { $sqr(&mut r, &self) };
                r
            }
            #[inline]
            fn triple(self) -> Self {
                let mut r = Self::ZERO;
                // SAFETY: two valid, initialised elements.
                unsafe { $triple(&mut r, &self) };
                r
            }
            #[inline]
            fn neg(self) -> Self {
                let mut r = Self::ZERO;
                // SAFETY: two valid, initialised elements.
                unsafe { $cneg(&mut r, &self, true) };
                r
            }
            fn inv(self) -> Self {
                let mut r = Self::ZERO;
                // SAFETY: two valid, initialised elements.
                unsafe { $inv(&mut r, &self) };
                r
            }
            #[inline]
            fn norm(self) -> blst_fp {
                ($norm)(self)
            }
            #[inline]
            fn inverse(self, of_norm: blst_fp) -> Self {
                ($inverse)(self, of_norm)
            }
        }
    };
}

const FP_ZERO: blst_fp = blst_fp { l: [0; 6] };

/// 1 in blst's representation: R = 2^384 mod q.
pub(crate) const FP_ONE: blst_fp = blst_fp {
    l: [
        0x7609_0000_0002_fffd,
        0xebf4_000b_c40c_0002,
        0x5f48_9857_53c7_58ba,
        0x77ce_5853_7052_5745,
        0x5c07_1a97_a256_ec6d,
        0x15f6_5ec3_fa80_e493,
    ],
};

blst_field!(blst_fp, FP_ZERO, FP_ONE, 96, read_fp, |a| [a, FP_ZERO],
    |a| a, |_, of_norm| of_norm,
    blst_fp_add blst_fp_sub blst_fp_mul blst_fp_sqr blst_fp_mul_by_3 blst_fp_cneg blst_fp_inverse);
blst_field!(blst_fp2, blst_fp2 { fp: [FP_ZERO; 2] }, blst_fp2 { fp: [FP_ONE, FP_ZERO] }, 192, read_fp2, |a: blst_fp2| a.fp,
    |a: blst_fp2| a.fp[0].sqr().add(a.fp[1].sqr()),
    |a: blst_fp2, of_norm| blst_fp2 { fp: [a.fp[0].mul(of_norm), a.fp[1].neg().mul(of_norm)] },
    blst_fp2_add blst_fp2_sub blst_fp2_mul blst_fp2_sqr blst_fp2_mul_by_3 blst_fp2_cneg blst_fp2_inverse);

/// Eight elements, one after the other. Everything is always fully reduced.
#[derive(Clone, Copy)]
pub(crate) struct Array<T>([T; LANES]);

impl<T: BlstField> Array<T> {
    fn map(self, f: impl Fn(T) -> T) -> Self {
        Self(self.0.map(f))
    }

    fn zip(self, other: Self, f: impl Fn(T, T) -> T) -> Self {
        let mut r = self;
        for (r, b) in r.0.iter_mut().zip(other.0) {
            *r = f(*r, b);
        }
        r
    }
}

impl<T> Vectors for Array<T> {
    fn run<K: Kernel>(kernel: K) -> K::Output {
        kernel.run()
    }
}

impl<T: BlstField> Lanes for Array<T> {
    type Base = Array<blst_fp>;
    type Norm = Array<blst_fp>;
    type Cell = T;
    const ZERO: T = T::ZERO;
    const RECORD: usize = T::RECORD;

    fn gather(cells: [&T; LANES]) -> Self {
        Self(cells.map(|&c| c))
    }

    fn scatter(self) -> [T; LANES] {
        self.0
    }

    fn gather_records(records: [&[u8]; LANES]) -> (Self, Self) {
        let half = T::RECORD / 2;
        (Self(records.map(|r| T::read(&r[..half]))), Self(records.map(|r| T::read(&r[half..2 * half]))))
    }

    fn prefetch_record(_record: &[u8]) {}

    fn unit() -> Self {
        Self([T::ONE; LANES])
    }

    fn select(mask: u8, a: Self, b: Self) -> Self {
        let mut r = b;
        for lane in 0..LANES {
            if mask >> lane & 1 == 1 {
                r.0[lane] = a.0[lane];
            }
        }
        r
    }

    fn zero_where(self, mask: u8) -> Self {
        Self::select(mask, Self([T::ZERO; LANES]), self)
    }

    fn negate_where(self, mask: u8) -> Self {
        let mut r = self;
        for lane in 0..LANES {
            if mask >> lane & 1 == 1 {
                r.0[lane] = r.0[lane].neg();
            }
        }
        r
    }

    fn literal_zeros(self) -> u8 {
        self.zeros()
    }

    fn diff(self, other: Self) -> Self {
        self.zip(other, T::sub)
    }

    fn sum(self, other: Self) -> Self {
        self.zip(other, T::add)
    }

    fn double(self) -> Self {
        self.zip(self, T::add)
    }

    fn triple_square(self) -> Self {
        self.map(|a| a.sqr().triple())
    }

    fn mul(&self, other: &Self) -> Self {
        self.zip(*other, T::mul)
    }

    fn sqr_sub(&self, sum: &Self) -> Self {
        self.zip(*sum, |a, b| a.sqr().sub(b))
    }

    fn mul_sub(&self, factor: &Self, other: &Self) -> Self {
        self.mul(factor).diff(*other)
    }

    fn reduce(self) -> Self {
        self
    }

    fn zeros_of_diff(self) -> u8 {
        self.zeros()
    }

    fn zeros(self) -> u8 {
        let mut mask = 0;
        for (lane, a) in self.0.iter().enumerate() {
            mask |= u8::from(*a == T::ZERO) << lane;
        }
        mask
    }

    fn norm(&self) -> Array<blst_fp> {
        Array(self.0.map(T::norm))
    }

    fn times_norm(&self, norm: &Array<blst_fp>, product: &Array<blst_fp>) -> Array<blst_fp> {
        product.mul(norm)
    }

    fn inverse(&self, of_norm: &Array<blst_fp>) -> Self {
        let mut r = *self;
        for (r, of_norm) in r.0.iter_mut().zip(of_norm.0) {
            *r = r.inverse(of_norm);
        }
        r
    }

    fn cell_to_blst(x: &T, y: &T) -> [[blst_fp; 2]; 2] {
        [x.components(), y.components()]
    }
}

impl BaseLanes for Array<blst_fp> {
    fn invert(&self) -> Self {
        let mut prefix = self.0;
        for i in 1..LANES {
            prefix[i] = prefix[i - 1].mul(self.0[i]);
        }
        let mut inverse = prefix[LANES - 1].inv();
        for i in (1..LANES).rev() {
            prefix[i] = inverse.mul(prefix[i - 1]);
            inverse = inverse.mul(self.0[i]);
        }
        prefix[0] = inverse;
        Self(prefix)
    }
}

/// Eight scalars, always fully reduced.
#[derive(Clone, Copy)]
pub(crate) struct ScalarArray([blst_fr; LANES]);

#[inline]
pub(super) fn fr_mul(a: &blst_fr, b: &blst_fr) -> blst_fr {
    let mut r = blst_fr { l: [0; 4] };
    // SAFETY: three valid, initialised elements.
    unsafe { blst_fr_mul(&mut r, a, b) };
    r
}

fn fr_add(a: &blst_fr, b: &blst_fr) -> blst_fr {
    let mut r = blst_fr { l: [0; 4] };
    // SAFETY: three valid, initialised elements.
    unsafe { blst_fr_add(&mut r, a, b) };
    r
}

fn fr_sub(a: &blst_fr, b: &blst_fr) -> blst_fr {
    let mut r = blst_fr { l: [0; 4] };
    // SAFETY: three valid, initialised elements.
    unsafe { blst_fr_sub(&mut r, a, b) };
    r
}

impl ScalarArray {
    fn zip(self, other: Self, f: impl Fn(&blst_fr, &blst_fr) -> blst_fr) -> Self {
        let mut r = self;
        for (r, b) in r.0.iter_mut().zip(&other.0) {
            *r = f(r, b);
        }
        r
    }
}

impl Vectors for ScalarArray {
    fn run<K: Kernel>(kernel: K) -> K::Output {
        kernel.run()
    }
}

impl ScalarLanes for ScalarArray {
    type Constant = blst_fr;
    const PRODUCT_STEPS: usize = usize::MAX;

    fn data_product() -> Scalar {
        Scalar::ONE
    }

    fn constant(c: &Scalar) -> blst_fr {
        (*c).into()
    }

    fn splat(c: &blst_fr) -> Self {
        Self([*c; LANES])
    }

    fn constants(c: &[blst_fr; LANES]) -> Self {
        Self(*c)
    }

    fn load(values: [&Words; LANES]) -> Self {
        Self(values.map(|&l| blst_fr { l }))
    }

    fn store(self) -> [Words; LANES] {
        self.0.map(|x| x.l)
    }

    fn mul(self, factor: Self) -> Self {
        self.zip(factor, fr_mul)
    }

    fn sub(self, other: Self) -> Self {
        self.zip(other, fr_sub)
    }

    fn difference_first<const LEVEL: usize>(u: Self, v: Self, w: Self) -> (Self, Self) {
        (u.zip(v, fr_add), u.zip(v, fr_sub).mul(w))
    }

    fn product_first(u: Self, v: Self, w: Self) -> (Self, Self) {
        let v = v.mul(w);
        (u.zip(v, fr_add), u.zip(v, fr_sub))
    }

    fn reduce(self) -> Self {
        self
    }
}
