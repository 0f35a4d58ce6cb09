//! The quotient's scalars: what multiplies the H query, from the evaluation vectors.
//!
//! With A, B, C the polynomials of degree < n that a, b, c are the values of, the proof needs (A·B − C)/Z for Z = xⁿ − 1, in
//! the basis that the key chose:
//!
//! * **odd Lagrange** (snarkjs): the values of A·B − C on the coset g·⟨ω⟩ of odd 2n-th roots, not divided by Z, which is −2
//!   there (the bases have it). Six transforms: to coefficients and to the coset, each of a, b, c.
//! * **monomial** (bellman): the coefficients of the quotient. A·B goes to the same coset and back; since Z is the constant −2
//!   there and deg C < n, the rest is −C/Z coefficient by coefficient. Six transforms too, not seven: c needs one.
//!
//! Divisions by n, −2 and out of the Montgomery form are folded into two constants of the last pointwise step.

use blstrs::Scalar;
use ff::{Field, PrimeField};
use rayon::prelude::*;
use splitprover_core::{Domain, HBasis};

use crate::field::portable::ScalarArray;
use crate::field::{Arithmetic, Kernel, LANES, ScalarLanes, Words, canonical};
use crate::msm::{Picks, magnitude};
use crate::ntt::{Points, Transforms};

/// Elements of one pointwise job.
const JOB: usize = 1 << 10;

/// Replaces a by the quotient's scalars, as magnitudes; b and c are used up. All have n elements; values may be up to 1.51r.
pub(crate) fn quotient(domain: Domain, basis: HBasis, arithmetic: Arithmetic, [a, b, c]: [&mut [Words]; 3]) {
    let transforms = Transforms::new(domain, arithmetic);
    let n = Scalar::from(domain.size() as u64);
    let n_inverse = domain.size_inverse();
    // x·(2^256)⁻¹ in Montgomery form is x, plain.
    let plain = Option::from(Scalar::from(2).pow_vartime([256]).invert()).unwrap_or(Scalar::ONE);
    for values in [&mut *a, &mut *b] {
        transforms.to_coefficients(values, Points::Domain);
        transforms.to_values(values, Points::OddCoset);
    }
    transforms.to_coefficients(c, Points::Domain);
    let mut step =
        Pointwise { arithmetic, product: true, subtrahend: n, factor: n_inverse.square() * plain, last: true };
    match basis {
        HBasis::OddLagrange => {
            transforms.to_values(c, Points::OddCoset);
            // a and b are n times too large, c too: (ab − c·n)/n².
            step.run(a, b, c);
        }
        HBasis::Monomial => {
            let multiply = Pointwise { subtrahend: Scalar::ZERO, factor: Scalar::ONE, last: false, ..step };
            multiply.run(a, b, c);
            transforms.to_coefficients(a, Points::OddCoset);
            // n³ times the coefficients of A·B on the coset, n times those of C: (ab − c·n²)/(−2n³).
            step.product = false;
            step.subtrahend = n.square();
            step.factor = -(n_inverse.square() * n_inverse * Scalar::TWO_INV) * plain;
            step.run(a, b, c);
        }
    }
}

/// Which terms of the H query the result of [`quotient`] makes.
pub(crate) fn picks(domain: Domain, basis: HBasis) -> Picks<'static> {
    match basis {
        HBasis::OddLagrange => Picks::All,
        HBasis::Monomial => Picks::AllReversed { log2: domain.log2() },
    }
}

/// A pointwise step, to a: (a·b or a, minus subtrahend·c) times a factor.
struct Pointwise {
    arithmetic: Arithmetic,
    /// a·b, not a.
    product: bool,
    subtrahend: Scalar,
    factor: Scalar,
    /// The factor takes the values out of the Montgomery form, and they become magnitudes.
    last: bool,
}

impl Pointwise {
    fn run(&self, a: &mut [Words], b: &[Words], c: &[Words]) {
        match self.arithmetic {
            #[cfg(target_arch = "x86_64")]
            Arithmetic::Avx512Ifma => self.run_with::<crate::field::ifma_scalar::Fr>(a, b, c),
            #[cfg(target_arch = "x86_64")]
            Arithmetic::Avx2Fma => self.run_with::<crate::field::fma::scalar::Fr>(a, b, c),
            _ => self.run_with::<ScalarArray>(a, b, c),
        }
    }

    fn run_with<F: ScalarLanes>(&self, a: &mut [Words], b: &[Words], c: &[Words]) {
        // The product of two data has a factor that the other constants have to follow.
        let scale = if self.product { F::data_product() } else { Scalar::ONE };
        let scale_inverse = Option::from(scale.invert()).unwrap_or(Scalar::ONE);
        let subtrahend = F::constant(&(self.subtrahend * scale));
        let factor = F::constant(&(self.factor * scale_inverse));
        a.par_chunks_mut(JOB).zip(b.par_chunks(JOB)).zip(c.par_chunks(JOB)).for_each(|((a, b), c)| {
            F::run(PointwiseJob::<F> { a: &mut *a, b, c, product: self.product, subtrahend, factor });
            for a in a {
                *a = canonical(*a);
                if self.last {
                    *a = magnitude(*a);
                }
            }
        });
    }
}

struct PointwiseJob<'a, F: ScalarLanes> {
    a: &'a mut [Words],
    b: &'a [Words],
    c: &'a [Words],
    product: bool,
    subtrahend: F::Constant,
    factor: F::Constant,
}

impl<F: ScalarLanes> Kernel for PointwiseJob<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (subtrahend, factor) = (F::splat(&self.subtrahend), F::splat(&self.factor));
        for at in (0..self.a.len()).step_by(LANES) {
            let mut value = load::<F>(self.a, at);
            if self.product {
                value = value.mul(load(self.b, at));
            }
            let words = value.sub(load::<F>(self.c, at).mul(subtrahend)).mul(factor).reduce().store();
            for (a, words) in self.a[at..].iter_mut().zip(words) {
                *a = words;
            }
        }
    }
}

/// Eight elements; zeros past the end.
#[inline(always)]
fn load<F: ScalarLanes>(values: &[Words], at: usize) -> F {
    const ZERO: Words = [0; 4];
    let mut lanes = [&ZERO; LANES];
    for (lane, value) in lanes.iter_mut().zip(&values[at..]) {
        *lane = value;
    }
    F::load(lanes)
}

#[cfg(test)]
mod tests {
    use group::Group;
    use group::prime::PrimeCurveAffine;
    use rand_chacha::ChaCha8Rng;
    use rand_core::SeedableRng;
    use splitprover_core::{G1Affine, G1Projective, PointTable, Query, RootOfUnity};

    use super::*;
    use crate::assignment::QueryRecords;
    use crate::field::words;
    use crate::msm::{G1, Magnitude, Part, SIGN, Terms, sum};
    use crate::ntt::reverse_bits;

    fn signed(magnitude: &Magnitude) -> Scalar {
        let mut k = *magnitude;
        k[3] &= !SIGN;
        let bytes: Vec<u8> = k.iter().flat_map(|w| w.to_le_bytes()).collect();
        let k = Scalar::from_bytes_le(&bytes.try_into().unwrap()).unwrap();
        if magnitude[3] & SIGN != 0 { -k } else { k }
    }

    fn run(domain: Domain, basis: HBasis, arithmetic: Arithmetic, [a, b, c]: [&[Scalar]; 3]) -> Vec<Words> {
        let copy = |v: &[Scalar]| v.iter().map(words).collect::<Vec<_>>();
        let (mut a, mut b, mut c) = (copy(a), copy(b), copy(c));
        quotient(domain, basis, arithmetic, [&mut a, &mut b, &mut c]);
        a
    }

    /// The value at x of the polynomial with these values on the domain, by Lagrange's formula.
    fn interpolate(domain: Domain, values: &[Scalar], x: Scalar) -> Scalar {
        let vanishing = x.pow_vartime([domain.size() as u64]) - Scalar::ONE;
        let mut power = Scalar::ONE;
        let mut sum = Scalar::ZERO;
        for value in values {
            sum += value * power * (x - power).invert().unwrap();
            power *= domain.omega();
        }
        sum * vanishing * domain.size_inverse()
    }

    #[test]
    fn both_bases_hold_the_quotient() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for root in [RootOfUnity::snarkjs(), RootOfUnity::bellman()] {
            for log2 in [0, 1, 2, 3, 7, 8, 11] {
                let domain = Domain::new(log2, root).unwrap();
                let n = domain.size();
                let a: Vec<_> = (0..n).map(|_| Scalar::random(&mut rng)).collect();
                let b: Vec<_> = (0..n).map(|_| Scalar::random(&mut rng)).collect();
                let c: Vec<_> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
                let tau = Scalar::random(&mut rng);
                let [at, bt, ct] = [&a, &b, &c].map(|v| interpolate(domain, v, tau));
                let vanishing = tau.pow_vartime([n as u64]) - Scalar::ONE;
                let expected = (at * bt - ct) * vanishing.invert().unwrap();
                for arithmetic in Arithmetic::supported() {
                    let h = run(domain, HBasis::Monomial, arithmetic, [&a, &b, &c]);
                    let value = (0..n).rev().fold(Scalar::ZERO, |sum, j| sum * tau + signed(&h[reverse_bits(j, log2)]));
                    assert_eq!(value, expected, "monomial, 2^{log2}, {arithmetic:?}");
                    assert_eq!(h[n - 1], [0; 4], "the last coefficient has no base");

                    let h = run(domain, HBasis::OddLagrange, arithmetic, [&a, &b, &c]);
                    let shift = domain.odd_coset_shift();
                    for i in [0, n / 2, n - 1] {
                        let x = shift * domain.omega().pow_vartime([i as u64]);
                        let [ax, bx, cx] = [&a, &b, &c].map(|v| interpolate(domain, v, x));
                        assert_eq!(signed(&h[i]), ax * bx - cx, "odd coset point {i}, 2^{log2}, {arithmetic:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn both_bases_give_the_same_point() {
        // Bases of the odd Lagrange form are random points; the monomial ones follow: H_tau[j] = −2·g^j·Σᵢ ω^(ij)·H_odd[i].
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for root in [RootOfUnity::snarkjs(), RootOfUnity::bellman()] {
            for log2 in [1, 2, 5] {
                let domain = Domain::new(log2, root).unwrap();
                let n = domain.size();
                let exponents: Vec<_> = (0..n).map(|_| Scalar::random(&mut rng)).collect();
                let monomial: Vec<_> = (0..n)
                    .map(|j| {
                        let x = domain.omega().pow_vartime([j as u64]);
                        let transformed = exponents.iter().rev().fold(Scalar::ZERO, |sum, h| sum * x + h);
                        -(transformed * domain.odd_coset_shift().pow_vartime([j as u64])).double()
                    })
                    .collect();
                let query = |exponents: &[Scalar]| {
                    let points: Vec<G1Affine> = exponents.iter().map(|e| (G1Affine::generator() * e).into()).collect();
                    Query::full(PointTable::from_points(&points))
                };
                let a: Vec<_> = (0..n).map(|_| Scalar::random(&mut rng)).collect();
                let b: Vec<_> = (0..n).map(|_| Scalar::random(&mut rng)).collect();
                let c: Vec<_> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
                for arithmetic in Arithmetic::supported() {
                    let point = |basis, query: &Query<G1Affine>| {
                        let h = run(domain, basis, arithmetic, [&a, &b, &c]);
                        let part = Part { scalars: &h, picks: picks(domain, basis) };
                        sum::<G1, _>(arithmetic, &QueryRecords::new(query), &Terms { units: &[], parts: &[part] })
                    };
                    let odd = point(HBasis::OddLagrange, &query(&exponents));
                    assert_ne!(odd, G1Projective::identity());
                    assert_eq!(odd, point(HBasis::Monomial, &query(&monomial[..n - 1])), "2^{log2}, {arithmetic:?}");
                }
            }
        }
    }
}
