//! What several examples need.

use blstrs::Scalar;
use group::{Curve, Group};
use rand_core::OsRng;
use splitprover_core::{PointRecord, PointTable, Query};

/// A query of `n` random points: a first one, and one more difference each time.
pub(crate) fn query<P>(n: usize) -> Query<P::AffineRepr>
where
    P: Curve + Group<Scalar = Scalar>,
    P::AffineRepr: PointRecord + Default,
{
    let (mut point, difference) = (P::random(OsRng), P::random(OsRng));
    let projective: Vec<P> = (0..n)
        .map(|_| {
            point += difference;
            point
        })
        .collect();
    let mut affine = vec![P::AffineRepr::default(); n];
    P::batch_normalize(&projective, &mut affine);
    Query::full(PointTable::from_points(&affine))
}
