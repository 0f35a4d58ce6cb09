//! From snarkjs's H basis to bellman's.
//!
//! In snarkjs's basis a proof has Σᵢ (a·b − c)(g·ω^i)·Hᵢ, and there a·b − c = h·Z = −2·h. With h(g·ω^i) = Σⱼ hⱼ·g^j·ω^(ij) that is
//! Σⱼ hⱼ·Tⱼ for Tⱼ = −2·g^j·Σᵢ ω^(ij)·Hᵢ: a Fourier transform of the bases. h has degree n − 2 at most, so the last of the n is dropped.
//! The root of unity stays what it was: in snarkjs's keys it isn't bellman's.

use std::sync::Arc;

use blstrs::{G1Affine, G1Projective, Scalar};
use ff::Field;
use group::Curve;
use group::prime::PrimeCurveAffine;
use rayon::prelude::*;
use splitprover_core::{HBasis, PointTable, ProvingKey, ProvingKeyParts, Query};

use super::error::SetupError;

/// The same key with H in bellman's basis. For a domain of n rows this takes n·log₂(n)/2 multiplications in G1: seconds for
/// thousands of rows, many minutes for a million.
///
/// `progress` is told the layers of the transform that are done, and how many there are.
///
/// # Errors
/// [`SetupError::Key`] if the key's sizes don't agree, which those of a [`ProvingKey`] do.
pub fn monomial_h(key: &ProvingKey, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<Arc<ProvingKey>, SetupError> {
    if key.h_basis() == HBasis::Monomial {
        return Ok(Arc::new(key.clone()));
    }
    let domain = key.domain();
    let mut points = vec![G1Projective::from(G1Affine::identity()); domain.size()];
    for (variable, index) in key.h().dense() {
        points[variable] = key.h().table().get(index).into();
    }
    transform(&mut points, domain.omega(), progress);
    points.truncate(domain.size() - 1);

    let (g, minus_two) = (domain.odd_coset_shift(), -Scalar::from(2));
    points.par_iter_mut().enumerate().for_each(|(j, point)| *point *= minus_two * g.pow_vartime([j as u64]));
    let mut affine = vec![G1Affine::identity(); points.len()];
    affine.par_chunks_mut(1024).zip(points.par_chunks(1024)).for_each(|(affine, points)| {
        G1Projective::batch_normalize(points, affine);
    });
    let h = Query::from_infinities(PointTable::from_points(&affine));
    let parts = ProvingKeyParts { h_basis: HBasis::Monomial, h, ..key.parts().clone() };
    Ok(Arc::new(ProvingKey::new(parts)?))
}

/// Σᵢ ω^(ij)·Pᵢ for each j, in place: radix 2, decimation in time.
fn transform(points: &mut [G1Projective], omega: Scalar, progress: &(dyn Fn(usize, usize) + Sync)) {
    let n = points.len();
    let layers = n.trailing_zeros();
    if layers > 0 {
        for i in 0..n {
            let j = i.reverse_bits() >> (usize::BITS - layers);
            if i < j {
                points.swap(i, j);
            }
        }
    }
    let mut twiddles = Vec::with_capacity(n / 2);
    twiddles.extend(std::iter::successors(Some(Scalar::ONE), |x| Some(x * omega)).take(n / 2));
    for layer in 0..layers {
        progress(layer as usize, layers as usize);
        let half = 1 << layer;
        let stride = n / (2 * half);
        points.par_chunks_mut(2 * half).for_each(|block| {
            let (low, high) = block.split_at_mut(half);
            low.par_iter_mut().zip(high).enumerate().for_each(|(j, (low, high))| {
                if j > 0 {
                    *high *= twiddles[j * stride];
                }
                let sum = *low + *high;
                *high = *low - *high;
                *low = sum;
            });
        });
    }
    progress(layers as usize, layers as usize);
}

#[cfg(test)]
mod tests {
    use group::Group;
    use rand_core::OsRng;
    use splitprover_core::{Domain, RootOfUnity};

    use super::*;

    #[test]
    fn the_transform_is_the_sum_that_defines_it() {
        for log2 in 0..6 {
            let omega = Domain::new(log2, RootOfUnity::snarkjs()).unwrap().omega();
            let scalars: Vec<_> = (0..1 << log2).map(|_| Scalar::random(OsRng)).collect();
            let mut points: Vec<_> = scalars.iter().map(|x| G1Projective::generator() * x).collect();
            transform(&mut points, omega, &|_, _| {});
            for (j, point) in points.iter().enumerate() {
                let terms = scalars.iter().enumerate().map(|(i, x)| x * omega.pow_vartime([(i * j) as u64]));
                assert_eq!(*point, G1Projective::generator() * terms.sum::<Scalar>(), "{j} of 2^{log2}");
            }
        }
    }
}
