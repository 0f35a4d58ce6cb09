//! What the sums must be, computed without any backend.
//!
//! The suite knows the discrete logarithm of every base it makes, so a multi-exponentiation of any length is one dot product
//! in F_r and one multiplication of the generator. Only the quotient's scalars need more: a textbook transform, used in a way
//! that no backend uses (the product a·b on the doubled domain, whose upper half *is* the quotient).

use blstrs::Scalar;
use ff::Field;
use splitprover_core::{Domain, HBasis};

/// Σ xᵢ·yᵢ.
pub(crate) fn dot(x: &[Scalar], y: &[Scalar]) -> Scalar {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// In place: coefficients to values at root⁰, root¹, … (Cooley and Tukey, 1965). `root` has order `values.len()`, a power of
/// two.
fn transform(values: &mut [Scalar], root: Scalar) {
    let n = values.len();
    assert!(n.is_power_of_two(), "{n} values");
    for i in 1..n {
        let j = i.reverse_bits() >> (usize::BITS - n.trailing_zeros());
        if i < j {
            values.swap(i, j);
        }
    }
    let mut half = 1;
    while half < n {
        let step = root.pow_vartime([(n / (2 * half)) as u64]);
        let twiddles: Vec<Scalar> = std::iter::successors(Some(Scalar::ONE), |t| Some(t * step)).take(half).collect();
        for block in values.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for ((x, y), t) in low.iter_mut().zip(high).zip(&twiddles) {
                let product = *y * t;
                *y = *x - product;
                *x += product;
            }
        }
        half *= 2;
    }
}

/// In place: values to coefficients.
fn inverse_transform(values: &mut [Scalar], root: Scalar) {
    let inverse = Option::<Scalar>::from(root.invert()).expect("a root of unity isn't zero");
    transform(values, inverse);
    let scale = Option::<Scalar>::from(Scalar::from(values.len() as u64).invert()).expect("n is below r");
    values.iter_mut().for_each(|x| *x *= scale);
}

/// The scalars of the H query in the key's basis, for evaluations `a` and `b` with c = a∘b. Rows beyond are zero.
///
/// With A·B = C + h·(xⁿ − 1) and deg C, deg h < n, the coefficients n, n + 1, … of A·B are those of h.
pub(crate) fn quotient_scalars(domain: Domain, basis: HBasis, a: &[Scalar], b: &[Scalar]) -> Vec<Scalar> {
    let n = domain.size();
    let doubled = domain.odd_coset_shift();
    let on_doubled_domain = |rows: &[Scalar]| {
        let mut values = rows.to_vec();
        values.resize(n, Scalar::ZERO);
        inverse_transform(&mut values, domain.omega());
        values.resize(2 * n, Scalar::ZERO);
        transform(&mut values, doubled);
        values
    };
    let mut product = on_doubled_domain(a);
    product.iter_mut().zip(on_doubled_domain(b)).for_each(|(x, y)| *x *= y);
    inverse_transform(&mut product, doubled);
    let mut h = product.split_off(n);
    match basis {
        // deg A·B is at most 2n − 2.
        HBasis::Monomial => h.truncate(n - 1),
        // (A·B − C)(g·ωⁱ) = h(g·ωⁱ)·(gⁿ − 1) with gⁿ = −1.
        HBasis::OddLagrange => {
            let mut shift = Scalar::ONE;
            for x in &mut h {
                *x *= shift;
                shift *= doubled;
            }
            transform(&mut h, domain.omega());
            h.iter_mut().for_each(|x| *x = -x.double());
        }
    }
    h
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;
    use splitprover_core::RootOfUnity;

    use super::*;

    #[test]
    fn transforms_agree_with_the_definition_and_invert_each_other() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for log2 in 0..6 {
            let root = RootOfUnity::bellman().of_order(log2).unwrap();
            let coefficients: Vec<_> = (0..1 << log2).map(|_| Scalar::random(&mut rng)).collect();
            let mut values = coefficients.clone();
            transform(&mut values, root);
            for (i, value) in values.iter().enumerate() {
                let x = root.pow_vartime([i as u64]);
                assert_eq!(*value, coefficients.iter().rev().fold(Scalar::ZERO, |sum, c| sum * x + c));
            }
            inverse_transform(&mut values, root);
            assert_eq!(values, coefficients);
        }
    }

    /// The quotient by its definition: (A·B − C)/Z at a random point, A, B and C interpolated by Lagrange's formula.
    #[test]
    fn the_quotient_has_the_right_value_at_a_random_point() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for root in [RootOfUnity::snarkjs(), RootOfUnity::bellman()] {
            for log2 in 0..6 {
                let domain = Domain::new(log2, root).unwrap();
                let n = domain.size();
                let mut rows = |len: usize| (0..len).map(|_| Scalar::random(&mut rng)).collect::<Vec<_>>();
                let (a, b) = (rows(n.div_ceil(2)), rows(n.div_ceil(2)));
                let x = rows(1)[0];
                let z = x.pow_vartime([n as u64]) - Scalar::ONE;
                let at_x = |values: &[Scalar]| -> Scalar {
                    let terms = values.iter().enumerate().map(|(i, value)| {
                        let w = domain.omega().pow_vartime([i as u64]);
                        *value * w * Option::<Scalar>::from((x - w).invert()).unwrap()
                    });
                    terms.sum::<Scalar>() * z * domain.size_inverse()
                };
                let c: Vec<_> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
                let h_at_x = (at_x(&a) * at_x(&b) - at_x(&c)) * Option::<Scalar>::from(z.invert()).unwrap();

                let h = quotient_scalars(domain, HBasis::Monomial, &a, &b);
                assert_eq!(h.len(), n - 1);
                assert_eq!(h.iter().rev().fold(Scalar::ZERO, |sum, c| sum * x + c), h_at_x);

                let odd = quotient_scalars(domain, HBasis::OddLagrange, &a, &b);
                for (i, value) in odd.iter().enumerate() {
                    let y = domain.odd_coset_shift() * domain.omega().pow_vartime([i as u64]);
                    assert_eq!(*value, h.iter().rev().fold(Scalar::ZERO, |sum, c| sum * y + c) * -Scalar::from(2));
                }
            }
        }
    }
}
