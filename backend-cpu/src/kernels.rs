//! The pieces of a proof one by one: for benchmarks, cross-checks and key tools.

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use splitprover_core::{CsrMatrix, Domain, HBasis, Query};

use crate::assignment::{Assignment, QueryRecords};
use crate::field::{Arithmetic, as_words, canonical};
use crate::msm::{Curve, G1, G2, Part, Picks, SIGN, Terms, sum};
use crate::ntt::{Points, Transforms, reverse_bits};

/// Σ scalars\[i\]·Pᵢ over a query, in G1. Scalars of variables that aren't dense are ignored.
///
/// # Panics
/// If there are not as many scalars as the query has variables.
pub fn multi_exponentiation_g1(arithmetic: Arithmetic, query: &Query<G1Affine>, scalars: &[Scalar]) -> G1Projective {
    multi_exponentiation::<G1, G1Affine>(arithmetic, query, scalars)
}

/// The same in G2.
///
/// # Panics
/// If there are not as many scalars as the query has variables.
pub fn multi_exponentiation_g2(arithmetic: Arithmetic, query: &Query<G2Affine>, scalars: &[Scalar]) -> G2Projective {
    multi_exponentiation::<G2, G2Affine>(arithmetic, query, scalars)
}

fn multi_exponentiation<C: Curve, A: splitprover_core::PointRecord>(
    arithmetic: Arithmetic,
    query: &Query<A>,
    scalars: &[Scalar],
) -> C::Projective {
    assert_eq!(scalars.len(), query.num_variables(), "a scalar for each variable");
    let assignment = Assignment::new(scalars);
    let selection = assignment.select(query, 0, 0);
    let part = Part { scalars: &assignment.magnitudes, picks: Picks::Some(&selection.picks) };
    sum::<C, _>(arithmetic, &QueryRecords::new(query), &Terms { units: &selection.units, parts: &[part] })
}

/// From values on the domain to values on its odd coset, in place: two transforms.
///
/// # Panics
/// If `values` isn't as long as the domain.
pub fn to_odd_coset(arithmetic: Arithmetic, domain: Domain, values: &mut [Scalar]) {
    let transforms = Transforms::new(domain, arithmetic);
    let scale = domain.size_inverse();
    let words = as_words(values);
    transforms.to_coefficients(words, Points::Domain);
    transforms.to_values(words, Points::OddCoset);
    finish(values, scale);
}

/// From coefficients to values on the domain, both in natural order.
///
/// # Panics
/// If there are not as many coefficients as the domain has points.
pub fn to_values(arithmetic: Arithmetic, domain: Domain, coefficients: &[Scalar]) -> Vec<Scalar> {
    let mut values: Vec<_> =
        (0..coefficients.len()).map(|position| coefficients[reverse_bits(position, domain.log2())]).collect();
    Transforms::new(domain, arithmetic).to_values(as_words(&mut values), Points::Domain);
    finish(&mut values, ff::Field::ONE);
    values
}

/// Makes scalars out of what a transform leaves, times a constant.
fn finish(values: &mut [Scalar], scale: Scalar) {
    use rayon::prelude::*;
    as_words(values).par_iter_mut().with_min_len(1 << 12).for_each(|w| *w = canonical(*w));
    values.par_iter_mut().with_min_len(1 << 12).for_each(|v| *v *= scale);
}

/// The scalars of the H query for evaluations a, b, c, in the order of its bases.
///
/// # Panics
/// If one of them isn't as long as the domain.
pub fn quotient(
    arithmetic: Arithmetic,
    domain: Domain,
    basis: HBasis,
    [mut a, mut b, mut c]: [Vec<Scalar>; 3],
) -> Vec<Scalar> {
    crate::quotient::quotient(domain, basis, arithmetic, [as_words(&mut a), as_words(&mut b), as_words(&mut c)]);
    let count = if basis == HBasis::Monomial { a.len() - 1 } else { a.len() };
    let words = as_words(&mut a);
    (0..count)
        .map(|i| {
            let position = if basis == HBasis::Monomial { reverse_bits(i, domain.log2()) } else { i };
            let mut magnitude = words[position];
            let negative = magnitude[3] & SIGN != 0;
            magnitude[3] &= !SIGN;
            let k = crate::field::from_plain(magnitude);
            if negative { -k } else { k }
        })
        .collect()
}

/// Matrix times witness: a value for each row.
///
/// # Panics
/// If the witness isn't as long as the matrix is wide.
pub fn matrix_product(matrix: &CsrMatrix, witness: &[Scalar]) -> Vec<Scalar> {
    assert_eq!(witness.len(), matrix.num_columns(), "a value for each column");
    let mut out = vec![<Scalar as ff::Field>::ZERO; matrix.num_rows()];
    crate::sparse::product(matrix, witness, as_words(&mut out));
    out
}
