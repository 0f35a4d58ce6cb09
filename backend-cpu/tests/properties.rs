//! Properties of the kernels on inputs that shrink: scalars are drawn from the awkward ones as often as from all.

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::Field;
use group::Curve;
use group::prime::PrimeCurveAffine;
use proptest::prelude::*;
use splitprover_backend_cpu::{Arithmetic, kernels};
use splitprover_core::{Domain, HBasis, PointRecord, PointTable, Query, RootOfUnity};

fn scalar() -> impl Strategy<Value = Scalar> {
    let field = any::<[u64; 4]>().prop_map(|words| {
        words.iter().fold(Scalar::ZERO, |x, &w| (0..64).fold(x, |x, _| x.double()) + Scalar::from(w))
    });
    prop_oneof![
        4 => field,
        2 => Just(Scalar::ZERO),
        2 => Just(Scalar::ONE),
        1 => Just(-Scalar::ONE),
        1 => Just(-Scalar::from(2)),
        2 => any::<u64>().prop_map(Scalar::from),
        2 => (0..64u32).prop_map(|bits| Scalar::from(1u64 << bits) - Scalar::ONE),
    ]
}

/// Small multiples of the generator, so that equal, opposite and infinite bases are common.
fn query<C: PointRecord>(multiples: &[i8]) -> Query<C>
where
    C::Curve: Curve<AffineRepr = C>,
{
    let points: Vec<C> = multiples
        .iter()
        .map(|&m| {
            let magnitude = Scalar::from(u64::from(m.unsigned_abs()));
            (C::generator() * if m < 0 { -magnitude } else { magnitude }).to_affine()
        })
        .collect();
    Query::full(PointTable::from_points(&points))
}

fn domain(log2: u32, snarkjs: bool) -> Domain {
    let root = if snarkjs { RootOfUnity::snarkjs() } else { RootOfUnity::bellman() };
    Domain::new(log2, root).expect("small enough")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn sums_of_colliding_bases_are_one_multiplication(terms in proptest::collection::vec((-3i8..=3, scalar()), 0..200)) {
        let (multiples, scalars): (Vec<_>, Vec<_>) = terms.into_iter().unzip();
        let exponent: Scalar = multiples
            .iter()
            .zip(&scalars)
            .map(|(&m, k)| {
                let product = Scalar::from(u64::from(m.unsigned_abs())) * k;
                if m < 0 { -product } else { product }
            })
            .sum();
        let (g1, g2) = (query::<G1Affine>(&multiples), query::<G2Affine>(&multiples));
        for arithmetic in Arithmetic::supported() {
            let sum = kernels::multi_exponentiation_g1(arithmetic, &g1, &scalars);
            prop_assert_eq!(sum, G1Affine::generator() * exponent);
            let sum = kernels::multi_exponentiation_g2(arithmetic, &g2, &scalars);
            prop_assert_eq!(sum, G2Affine::generator() * exponent);
        }
    }

    #[test]
    fn transforms_are_linear_and_agree_across_arithmetics(
        log2 in 0u32..=10,
        snarkjs in any::<bool>(),
        seed in proptest::collection::vec(scalar(), 3..20),
    ) {
        let domain = domain(log2, snarkjs);
        let n = domain.size();
        let f: Vec<_> = (0..n).map(|i| seed[i % seed.len()] * seed[i % 3]).collect();
        let g: Vec<_> = (0..n).map(|i| seed[(i * 7 + 1) % seed.len()]).collect();
        let combined: Vec<_> = f.iter().zip(&g).map(|(f, g)| f * seed[0] + g).collect();
        let reference = kernels::to_values(Arithmetic::Portable, domain, &combined);
        for arithmetic in Arithmetic::supported() {
            let (f, g) = (kernels::to_values(arithmetic, domain, &f), kernels::to_values(arithmetic, domain, &g));
            let values: Vec<_> = f.iter().zip(&g).map(|(f, g)| f * seed[0] + g).collect();
            prop_assert_eq!(&values, &reference);
        }
    }

    #[test]
    fn both_bases_hold_one_quotient(log2 in 1u32..=9, snarkjs in any::<bool>(), seed in proptest::collection::vec(scalar(), 5..30)) {
        let domain = domain(log2, snarkjs);
        let n = domain.size();
        let a: Vec<_> = (0..n).map(|i| seed[i % seed.len()]).collect();
        let b: Vec<_> = (0..n).map(|i| seed[(i * 3 + 2) % seed.len()]).collect();
        let c: Vec<_> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
        let inputs = || [a.clone(), b.clone(), c.clone()];
        // On the coset the odd basis has −2 times the quotient's values.
        let reference = kernels::quotient(Arithmetic::Portable, domain, HBasis::OddLagrange, inputs());
        for arithmetic in Arithmetic::supported() {
            prop_assert_eq!(&kernels::quotient(arithmetic, domain, HBasis::OddLagrange, inputs()), &reference);
            let mut h = kernels::quotient(arithmetic, domain, HBasis::Monomial, inputs());
            h.push(Scalar::ZERO);
            let mut values = kernels::to_values(arithmetic, domain, &h);
            kernels::to_odd_coset(arithmetic, domain, &mut values);
            let scaled: Vec<_> = values.iter().map(|h| -h.double()).collect();
            prop_assert_eq!(&scaled, &reference);
        }
    }
}
