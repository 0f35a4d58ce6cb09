//! The arithmetic of the kernel headers, compiled as plain C++, against blst: random values and the edges of every limb.

use std::path::Path;
use std::process::Command;

use blst::{blst_fp, blst_fp2, blst_fr};
use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective};
use ff::Field;
use group::Group;
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

/// A field operation of the library: its number, operands and room for the result. Unsafe to call, because both must have the lengths that the
/// operation reads and writes; the one caller, below, allocates them.
type Operation = unsafe extern "C" fn(i32, *const u8, *mut u8);

struct Library(libloading::Library);

impl Library {
    /// The headers as a shared library, or none where there is no C++ compiler.
    fn build() -> Option<Self> {
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        if !Command::new(&compiler).arg("--version").output().is_ok_and(|output| output.status.success()) {
            println!("skipped, no C++ compiler");
            return None;
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let name = format!("arithmetic-{}-{:?}.so", std::process::id(), std::thread::current().id());
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name.replace(['(', ')'], ""));
        let output = Command::new(compiler)
            .args(["-std=c++17", "-O2", "-Wall", "-Wno-unknown-pragmas", "-fPIC", "-shared", "-I"])
            .arg(root.join("kernels"))
            .arg("-o")
            .arg(&target)
            .arg(root.join("tests/arithmetic.cpp"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // SAFETY: the library was just built from sources that have no initialisers.
        let library = unsafe { libloading::Library::new(&target) }.unwrap();
        std::fs::remove_file(target).unwrap();
        Some(Self(library))
    }

    /// Calls a function of the library on operands laid out one after the other.
    fn call<T: Copy>(&self, name: &str, op: i32, operands: &[T]) -> T {
        // The library reads up to four operands.
        let mut padded = operands.to_vec();
        padded.resize(4, operands[0]);
        let mut out = operands[0];
        // SAFETY: the function has this type, reads at most four operands and writes one.
        unsafe {
            let function = self.0.get::<Operation>(name.as_bytes()).unwrap();
            function(op, padded.as_ptr().cast(), std::ptr::from_mut(&mut out).cast());
        }
        out
    }
}

const P: [u64; 6] = [
    0xb9fe_ffff_ffff_aaab,
    0x1eab_fffe_b153_ffff,
    0x6730_d2a0_f6b0_f624,
    0x6477_4b84_f385_12bf,
    0x4b1b_a7b6_434b_acd7,
    0x1a01_11ea_397f_e69a,
];
const R: [u64; 4] = [0xffff_ffff_0000_0001, 0x53bd_a402_fffe_5bfe, 0x3339_d808_09a1_d805, 0x73ed_a753_299d_7d48];

/// Canonical limbs below `modulus`: random, or with limbs of zeros and ones, or near either end.
fn limbs<const N: usize>(rng: &mut ChaCha20Rng, modulus: [u64; N]) -> [u64; N] {
    loop {
        let kind = rng.next_u32() % 4;
        let mut limbs: [u64; N] = std::array::from_fn(|_| match (kind, rng.next_u32() % 4) {
            (0, 0) => 0,
            (0, 1) => u64::MAX,
            (0, 2) => u64::from(u32::MAX),
            (0, _) => u64::from(u32::MAX) << 32,
            _ => rng.next_u64(),
        });
        match kind {
            1 => {
                limbs = [0; N];
                limbs[0] = u64::from(rng.next_u32() % 3);
            }
            2 => {
                limbs = modulus;
                limbs[0] -= 1 + u64::from(rng.next_u32() % 3).min(modulus[0] - 1);
            }
            _ => limbs[N - 1] %= modulus[N - 1] + 1,
        }
        if limbs.iter().rev().lt(modulus.iter().rev()) {
            return limbs;
        }
    }
}

fn fp(rng: &mut ChaCha20Rng) -> blst_fp {
    blst_fp { l: limbs(rng, P) }
}

fn fp2(rng: &mut ChaCha20Rng) -> blst_fp2 {
    blst_fp2 { fp: [fp(rng), fp(rng)] }
}

/// A value of `$type` that `$function` writes.
macro_rules! blst {
    ($type:ident, $function:ident($($argument:expr),*)) => {{
        let mut out = $type::default();
        // SAFETY: all arguments are references to values of the function's types.
        unsafe { blst::$function(&mut out, $($argument),*) };
        out
    }};
}

#[test]
fn base_field_operations_agree_with_blst() {
    let Some(library) = Library::build() else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    for round in 0..3000 {
        let [x, y, z, w] = std::array::from_fn(|_| fp(&mut rng));
        let call = |op| library.call("sp_fp", op, &[x, y, z, w]);
        let (xy, zw) = (blst!(blst_fp, blst_fp_mul(&x, &y)), blst!(blst_fp, blst_fp_mul(&z, &w)));
        assert_eq!(call(0), blst!(blst_fp, blst_fp_add(&x, &y)), "{x:?} + {y:?}");
        assert_eq!(call(1), blst!(blst_fp, blst_fp_sub(&x, &y)), "{x:?} - {y:?}");
        assert_eq!(call(2), blst!(blst_fp, blst_fp_cneg(&x, true)), "-{x:?}");
        assert_eq!(call(3), xy, "{x:?} * {y:?}");
        assert_eq!(call(4), blst!(blst_fp, blst_fp_sqr(&x)), "{x:?} squared");
        if round % 50 == 0 {
            assert_eq!(call(5), blst!(blst_fp, blst_fp_eucl_inverse(&x)), "1 / {x:?}");
        }
        assert_eq!(call(6), blst!(blst_fp, blst_fp_add(&xy, &zw)), "{x:?} * {y:?} + {z:?} * {w:?}");
        assert_eq!(call(7), blst!(blst_fp, blst_fp_sub(&xy, &zw)), "{x:?} * {y:?} - {z:?} * {w:?}");
    }
}

#[test]
fn scalar_field_operations_agree_with_blst() {
    let Some(library) = Library::build() else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(2);
    for round in 0..3000 {
        let [x, y] = std::array::from_fn(|_| blst_fr { l: limbs(&mut rng, R) });
        let call = |op| library.call("sp_fr", op, &[x, y]);
        assert_eq!(call(0), blst!(blst_fr, blst_fr_add(&x, &y)), "{x:?} + {y:?}");
        assert_eq!(call(1), blst!(blst_fr, blst_fr_sub(&x, &y)), "{x:?} - {y:?}");
        assert_eq!(call(2), blst!(blst_fr, blst_fr_cneg(&x, true)), "-{x:?}");
        assert_eq!(call(3), blst!(blst_fr, blst_fr_mul(&x, &y)), "{x:?} * {y:?}");
        assert_eq!(call(4), blst!(blst_fr, blst_fr_sqr(&x)), "{x:?} squared");
        if round % 50 == 0 {
            assert_eq!(call(5), blst!(blst_fr, blst_fr_eucl_inverse(&x)), "1 / {x:?}");
        }
        let mut plain = [0u64; 4];
        // SAFETY: `plain` has room for four limbs.
        unsafe { blst::blst_uint64_from_fr(plain.as_mut_ptr(), &x) };
        assert_eq!(call(6).l, plain, "{x:?} out of Montgomery form");
        assert_eq!(call(7), x, "{x:?} out of Montgomery form and back");
    }
}

#[test]
fn extension_field_operations_agree_with_blst() {
    let Some(library) = Library::build() else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    for round in 0..2000 {
        let [x, y, z, w] = std::array::from_fn(|_| fp2(&mut rng));
        let call = |op| library.call("sp_fp2", op, &[x, y, z, w]);
        let (xy, zw) = (blst!(blst_fp2, blst_fp2_mul(&x, &y)), blst!(blst_fp2, blst_fp2_mul(&z, &w)));
        assert_eq!(call(0), blst!(blst_fp2, blst_fp2_add(&x, &y)), "{x:?} + {y:?}");
        assert_eq!(call(1), blst!(blst_fp2, blst_fp2_sub(&x, &y)), "{x:?} - {y:?}");
        assert_eq!(call(2), blst!(blst_fp2, blst_fp2_cneg(&x, true)), "-{x:?}");
        assert_eq!(call(3), xy, "{x:?} * {y:?}");
        assert_eq!(call(4), blst!(blst_fp2, blst_fp2_sqr(&x)), "{x:?} squared");
        if round % 50 == 0 {
            assert_eq!(call(5), blst!(blst_fp2, blst_fp2_eucl_inverse(&x)), "1 / {x:?}");
        }
        let squares = x.fp.map(|c| blst!(blst_fp, blst_fp_sqr(&c)));
        let norm = blst!(blst_fp, blst_fp_add(&squares[0], &squares[1]));
        assert_eq!(call(6), blst_fp2 { fp: [norm, blst_fp::default()] }, "norm of {x:?}");
        assert_eq!(call(7), blst!(blst_fp2, blst_fp2_sub(&xy, &zw)), "{x:?} * {y:?} - {z:?} * {w:?}");
    }
}

/// Sums of all pairs of `points`, which hold infinity, equal and opposite points. An affine infinity is all zero in both libraries.
fn sums_agree<A, C>(library: &Library, name: &str, points: &[C])
where
    A: Copy + PartialEq + std::fmt::Debug + From<C>,
    C: Group,
{
    for &p in points {
        for &q in points {
            let call = |op| library.call(name, op, &[A::from(p), A::from(q)]);
            assert_eq!(call(0), A::from(p + q), "{p:?} + {q:?}");
            assert_eq!(call(1), A::from(p.double()), "2 {p:?}");
            assert_eq!(call(2), A::from(p + q + q.double()), "{p:?} + 3 {q:?}");
        }
    }
}

fn some_points<C: Group>() -> Vec<C>
where
    C::Scalar: Field,
{
    let mut rng = ChaCha20Rng::seed_from_u64(4);
    let mut points = vec![C::identity(), C::generator(), -C::generator()];
    for _ in 0..4 {
        let p = C::random(&mut rng);
        // With -3q and -2q among the sums, opposite operands with denominators appear too.
        points.extend([p, -p, p.double(), -p.double(), -(p.double() + p)]);
    }
    points
}

#[test]
fn g1_sums_agree_with_blst_for_equal_opposite_and_infinite_points() {
    let Some(library) = Library::build() else { return };
    sums_agree::<G1Affine, G1Projective>(&library, "sp_g1", &some_points());
}

#[test]
fn g2_sums_agree_with_blst_for_equal_opposite_and_infinite_points() {
    let Some(library) = Library::build() else { return };
    sums_agree::<G2Affine, G2Projective>(&library, "sp_g2", &some_points());
}
