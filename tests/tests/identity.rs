//! The two bases of the H query, and how one follows from the other.
//!
//! With g a 2n-th root of unity, g² = ω: Σᵢ L_(2i+1)(τ)·g^((2i+1)j) interpolates the polynomial that is x^j on odd powers of g and 0 on
//! even ones, which is x^j·(1 − xⁿ)/2. So −2·g^j·Σᵢ ω^(ij)·H_odd[i] = τ^j·(τⁿ − 1)/δ·G, bellman's base number j.

use ff::Field;
use group::prime::PrimeCurveAffine;
use splitprover_core::{Domain, G1Affine, G1Projective, HBasis, HostMemory, RootOfUnity, Scalar};
use splitprover_harness::setup::{CpuFixedBase, Resources, Shape, Synthetic, Trapdoor, generate_over};

/// Σᵢ values[i]·ω^(ij) for each j, by the fast transform in the group.
fn transform(values: &[G1Projective], omega: Scalar) -> Vec<G1Projective> {
    if let [value] = values {
        return vec![*value];
    }
    let half = |offset| transform(&values.iter().skip(offset).step_by(2).copied().collect::<Vec<_>>(), omega.square());
    let (even, odd) = (half(0), half(1));
    let mut out = vec![values[0]; values.len()];
    let mut twiddle = Scalar::ONE;
    for (j, (even, odd)) in even.iter().zip(&odd).enumerate() {
        let odd = odd * twiddle;
        (out[j], out[j + values.len() / 2]) = (even + odd, even - odd);
        twiddle *= omega;
    }
    out
}

fn h_points(log2: u32, root: RootOfUnity, basis: HBasis, trapdoor: &Trapdoor) -> Vec<G1Affine> {
    let memory = HostMemory::default();
    let fixed_base = CpuFixedBase::new(1 << log2);
    let resources = Resources { memory: &memory, fixed_base: &fixed_base, progress: &|_, _, _| {} };
    let circuit = Synthetic::new(Shape::Porep, log2.min(4)).unwrap();
    let domain = Domain::new(log2, root).unwrap();
    let key = generate_over(&circuit, domain, basis, trapdoor, &resources).unwrap().key;
    key.h().dense().map(|(_, record)| key.h().table().get(record)).collect()
}

#[test]
fn the_transform_follows_its_definition() {
    let domain = Domain::new(3, RootOfUnity::snarkjs()).unwrap();
    let values: Vec<_> = (0..8).map(|i| G1Projective::from(G1Affine::generator()) * Scalar::from(i * i + 1)).collect();
    for (j, found) in transform(&values, domain.omega()).iter().enumerate() {
        let terms = values.iter().enumerate().map(|(i, v)| v * domain.omega().pow_vartime([(i * j) as u64]));
        assert_eq!(*found, terms.sum::<G1Projective>());
    }
}

#[test]
fn bellmans_h_follows_from_snarkjss() {
    for (log2, seed) in [(4, 1), (5, 2), (8, 3)] {
        let trapdoor = Trapdoor::from_seed(seed, HBasis::OddLagrange);
        for root in [RootOfUnity::snarkjs(), RootOfUnity::bellman()] {
            let odd = h_points(log2, root, HBasis::OddLagrange, &trapdoor);
            let monomial = h_points(log2, root, HBasis::Monomial, &trapdoor);
            let n = 1 << log2;
            assert_eq!((odd.len(), monomial.len()), (n, n - 1));
            let domain = Domain::new(log2, root).unwrap();
            let odd: Vec<_> = odd.iter().map(G1Projective::from).collect();
            let mut factor = -Scalar::from(2);
            for (j, transformed) in transform(&odd, domain.omega()).iter().take(n - 1).enumerate() {
                assert_eq!(G1Affine::from(transformed * factor), monomial[j], "base {j} of 2^{log2}");
                factor *= domain.odd_coset_shift();
            }
        }
    }
}

#[test]
fn the_monomial_basis_does_not_depend_on_the_root() {
    let trapdoor = Trapdoor::from_seed(9, HBasis::Monomial);
    let [x, y] =
        [RootOfUnity::snarkjs(), RootOfUnity::bellman()].map(|root| h_points(6, root, HBasis::Monomial, &trapdoor));
    assert_eq!(x, y);
    let [x, y] =
        [RootOfUnity::snarkjs(), RootOfUnity::bellman()].map(|root| h_points(6, root, HBasis::OddLagrange, &trapdoor));
    assert_ne!(x, y);
}
