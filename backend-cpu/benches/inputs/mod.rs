//! Random inputs whose results can be checked.

use blstrs::Scalar;
use ff::Field;
use group::{Curve, Group};
use rand_chacha::ChaCha8Rng;
use rand_core::{OsRng, RngCore, SeedableRng};
use splitprover_core::{PointRecord, PointTable, Query};

/// A generator of fresh inputs.
pub(crate) fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(OsRng.next_u64())
}

/// Sizes to run, as powers of two.
pub(crate) fn sizes() -> impl Iterator<Item = u32> {
    let largest = std::env::var("SPLITPROVER_BENCH_LOG2").ok().and_then(|v| v.parse().ok()).unwrap_or(14u32);
    [10, 12, 14, 16, 18, 20, 22].into_iter().filter(move |&log2| log2 <= largest)
}

/// What the scalars look like.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// Random field elements.
    Dense,
    /// 63 of 64 are bits, half of them 1.
    Porep,
    /// All 1.
    #[allow(dead_code, reason = "not every benchmark has it")]
    Ones,
}

/// n scalars of a shape.
pub(crate) fn scalars(rng: &mut ChaCha8Rng, shape: Shape, n: usize) -> Vec<Scalar> {
    (0..n)
        .map(|i| match shape {
            Shape::Ones => Scalar::ONE,
            Shape::Porep if i % 64 != 0 => Scalar::from(u64::from(rng.next_u32() & 1)),
            _ => Scalar::random(&mut *rng),
        })
        .collect()
}

/// n points whose discrete logarithms are known: (start + i·step)·G, so that a sum can be checked by one multiplication.
pub(crate) fn points<P>(rng: &mut ChaCha8Rng, n: usize) -> (Query<P::AffineRepr>, Scalar, Scalar)
where
    P: Curve + Group<Scalar = Scalar>,
    P::AffineRepr: PointRecord + Default,
{
    let (start, step) = (Scalar::random(&mut *rng), Scalar::random(&mut *rng));
    let (mut point, difference) = (P::generator() * start, P::generator() * step);
    let projective: Vec<P> = (0..n)
        .map(|_| {
            let this = point;
            point += difference;
            this
        })
        .collect();
    let mut affine = vec![P::AffineRepr::default(); n];
    P::batch_normalize(&projective, &mut affine);
    (Query::full(PointTable::from_points(&affine)), start, step)
}

/// The sum over the points of [`points`], by one multiplication.
pub(crate) fn expected<P: Group<Scalar = Scalar>>(start: Scalar, step: Scalar, scalars: &[Scalar]) -> P {
    let mut exponent = Scalar::ZERO;
    let mut base = start;
    for scalar in scalars {
        exponent += base * scalar;
        base += step;
    }
    P::generator() * exponent
}
