//! Many points whose discrete logarithms are known, for one addition each.
//!
//! Point i + 1 is point i plus one of a few random steps, and every chunk starts at a random multiple of the generator, so
//! logarithms are full-size scalars and the points have no structure that a backend could meet by chance.

use std::sync::{Mutex, PoisonError};

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use ff::Field;
use group::Curve;
use group::prime::PrimeCurveAffine;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rayon::prelude::*;

const CHUNK: usize = 1024;
const STEPS: usize = 16;

#[derive(Clone, Default)]
struct Points {
    logs: Vec<Scalar>,
    g1: Vec<G1Affine>,
    g2: Vec<G2Affine>,
}

/// A growing sequence of points in both groups with common logarithms: g1(i) = log(i)·G₁, g2(i) = log(i)·G₂.
pub(crate) struct Pool {
    points: Mutex<Points>,
}

/// The first points of a [`Pool`]: index it at will.
pub(crate) struct Taken {
    pub(crate) logs: Vec<Scalar>,
    pub(crate) g1: Vec<G1Affine>,
    pub(crate) g2: Vec<G2Affine>,
}

static SHARED: Pool = Pool { points: Mutex::new(Points { logs: Vec::new(), g1: Vec::new(), g2: Vec::new() }) };

/// `len_g1` points of G1 and `len_g2` of G2, always the same ones.
pub(crate) fn take(len_g1: usize, len_g2: usize) -> Taken {
    let mut points = SHARED.points.lock().unwrap_or_else(PoisonError::into_inner);
    points.grow(len_g1, len_g2);
    let len = len_g1.max(len_g2);
    Taken { logs: points.logs[..len].to_vec(), g1: points.g1[..len_g1].to_vec(), g2: points.g2[..len_g2].to_vec() }
}

impl Points {
    fn grow(&mut self, len_g1: usize, len_g2: usize) {
        let missing = |have: usize, want: usize| have / CHUNK..want.div_ceil(CHUNK);
        let logs = missing(self.logs.len(), len_g1.max(len_g2));
        self.logs.par_extend(logs.into_par_iter().flat_map_iter(|chunk| walk_logs(chunk as u64)));
        let g1 = missing(self.g1.len(), len_g1);
        self.g1.par_extend(g1.into_par_iter().flat_map_iter(|chunk| {
            walk(chunk as u64, |k| G1Affine::generator() * k, |p: &G1Projective, s: &G1Affine| p + s)
        }));
        let g2 = missing(self.g2.len(), len_g2);
        self.g2.par_extend(g2.into_par_iter().flat_map_iter(|chunk| {
            walk(chunk as u64, |k| G2Affine::generator() * k, |p: &G2Projective, s: &G2Affine| p + s)
        }));
    }
}

/// The chunk's first logarithm, its steps, and which step follows each point.
fn itinerary(chunk: u64) -> (Scalar, [Scalar; STEPS], [usize; CHUNK - 1]) {
    let mut rng = ChaCha8Rng::seed_from_u64(chunk ^ 0x706f_6f6c_0000_0000);
    let first = Scalar::random(&mut rng);
    let steps = std::array::from_fn(|_| Scalar::random(&mut rng));
    (first, steps, std::array::from_fn(|_| rng.next_u32() as usize % STEPS))
}

fn walk_logs(chunk: u64) -> Vec<Scalar> {
    let (first, steps, path) = itinerary(chunk);
    let mut log = first;
    std::iter::once(first)
        .chain(path.into_iter().map(|step| {
            log += steps[step];
            log
        }))
        .collect()
}

fn walk<C: Curve>(
    chunk: u64,
    multiple: impl Fn(Scalar) -> C,
    add: impl Fn(&C, &C::AffineRepr) -> C,
) -> Vec<C::AffineRepr>
where
    C::AffineRepr: Clone + Default,
{
    let (first, steps, path) = itinerary(chunk);
    let steps = steps.map(|k| multiple(k).to_affine());
    let mut points = Vec::with_capacity(CHUNK);
    points.push(multiple(first));
    for (i, step) in path.into_iter().enumerate() {
        points.push(add(&points[i], &steps[step]));
    }
    let mut affine = vec![C::AffineRepr::default(); CHUNK];
    C::batch_normalize(&points, &mut affine);
    affine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_the_stated_multiples_and_stay_the_same_when_the_pool_grows() {
        let first = take(3, 2);
        let more = take(CHUNK + 5, CHUNK + 2);
        assert_eq!((more.g1.len(), more.g2.len(), more.logs.len()), (CHUNK + 5, CHUNK + 2, CHUNK + 5));
        assert_eq!((&first.g1[..], &first.g2[..]), (&more.g1[..3], &more.g2[..2]));
        for i in [0, 1, 2, 500, CHUNK - 1, CHUNK, CHUNK + 1] {
            assert_eq!(more.g1[i], G1Affine::from(G1Affine::generator() * more.logs[i]), "G1 point {i}");
            assert_eq!(more.g2[i], G2Affine::from(G2Affine::generator() * more.logs[i]), "G2 point {i}");
        }
    }
}
