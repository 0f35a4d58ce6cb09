//! Keys whose parts do not fit together.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use group::prime::PrimeCurveAffine;
use splitprover_core::point::PointFault;
use splitprover_core::{Bitmap, G1Affine, HBasis, KeyError, PointTable, ProvingKey, ProvingKeyParts, Query};
use splitprover_tests::naive::Setup;

/// On the curve and outside the subgroup: small x coordinates hit the curve half of the time, the subgroup hardly ever.
fn outside_the_subgroup() -> G1Affine {
    (1u8..)
        .find_map(|x| {
            let mut bytes = [0; 48];
            (bytes[0], bytes[47]) = (0x80, x);
            Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(&bytes))
        })
        .unwrap()
}

#[test]
fn a_key_whose_parts_do_not_fit_together_is_refused() {
    let parts = || Setup::random(3, HBasis::Monomial, 1, 1, 4).key.parts().clone();
    let refused = |change: &dyn Fn(&mut ProvingKeyParts)| {
        let mut parts = parts();
        change(&mut parts);
        ProvingKey::new(parts).unwrap_err()
    };
    let point = |part, fault| KeyError::Point { part, fault };
    assert!(ProvingKey::new(parts()).is_ok());
    assert_eq!(refused(&|p| p.delta_g1 = outside_the_subgroup()), point("delta in G1", PointFault::OutsideSubgroup));
    assert_eq!(refused(&|p| p.beta_g1 = outside_the_subgroup()), point("beta in G1", PointFault::OutsideSubgroup));
    assert_eq!(refused(&|p| p.beta_g1 = G1Affine::identity()), point("beta in G1", PointFault::Infinity));
    assert_eq!(refused(&|p| p.delta_g1 = G1Affine::identity()), point("delta in G1", PointFault::Infinity));

    let (variables, n) = (parts().a.num_variables(), parts().domain.size());
    let query = |len: usize| Query::full(PointTable::from_points(&vec![G1Affine::generator(); len]));
    let length = |part, found, expected| KeyError::Length { part, found, expected };
    assert_eq!(refused(&|p| p.b_g1 = query(variables - 1)), length("B query in G1", variables - 1, variables));
    assert_eq!(refused(&|p| p.l = query(variables - 1)), length("L query", variables - 1, variables - 2));
    assert_eq!(refused(&|p| p.h = query(n)), length("H query", n, n - 1));
    assert_eq!(refused(&|p| p.a = query(1)), KeyError::Variables { num_variables: 1, num_public: 1 });
    assert!(
        Query::compact(PointTable::from_points(&[G1Affine::generator()]), Arc::new(Bitmap::from_fn(3, |_| true)))
            .is_none()
    );
    assert!(
        Query::spread(PointTable::from_points(&[G1Affine::generator()]), Arc::new(Bitmap::from_fn(3, |_| true)))
            .is_none()
    );
}

#[test]
fn records_out_of_range_panic_rather_than_wrap() {
    let table = PointTable::from_points(&[G1Affine::generator(); 2]);
    for index in [2, usize::MAX / 96 + 1, usize::MAX] {
        assert!(catch_unwind(AssertUnwindSafe(|| table.get(index))).is_err(), "{index}");
        let check = catch_unwind(AssertUnwindSafe(|| table.check(index..index)));
        assert_eq!(check.is_ok(), index == 2, "{index}");
    }
}
