//! Key generation's multiplications on a backend's device.

use blstrs::{G1Affine, G2Affine, Scalar};
use group::prime::PrimeCurveAffine;
use rayon::prelude::*;
use splitprover_core::abi::Backend;
use splitprover_core::{BackendError, PointRecord};

use super::{FixedBase, multiple};

/// The fixed-base extension of an open backend.
#[derive(Debug)]
pub struct BackendFixedBase<'b>(&'b Backend);

impl<'b> BackendFixedBase<'b> {
    /// Multiplies on `backend`; a few products are compared with the group's own first.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] if the backend doesn't offer it, [`BackendError::Device`] if its products are wrong, and what
    /// the backend says.
    pub fn new(backend: &'b Backend) -> Result<Self, BackendError> {
        let fixed_base = Self(backend);
        let scalars = [Scalar::from(0), Scalar::from(1), -Scalar::from(2)];
        let mut g1 = [0; 3 * G1Affine::BYTES];
        let mut g2 = [0; 3 * G2Affine::BYTES];
        fixed_base.mul_g1(&scalars, &mut g1)?;
        fixed_base.mul_g2(&scalars, &mut g2)?;
        if is_right::<G1Affine>(&scalars, &g1) && is_right::<G2Affine>(&scalars, &g2) {
            Ok(fixed_base)
        } else {
            let name = &backend.info().name;
            Err(BackendError::device("fixed-base multiplication", format!("backend {name} gives wrong multiples")))
        }
    }

    fn unsupported(&self) -> BackendError {
        BackendError::Unsupported(format!("backend {} doesn't make keys: no fixed-base extension", self.0.info().name))
    }
}

/// Has all threads take the pages of fresh memory, so that the one that copies a device's products doesn't: that would be slower than
/// the device.
fn touch(records: &mut [u8]) {
    records.par_chunks_mut(1 << 21).for_each(|part| part.fill(0));
}

fn is_right<C: PointRecord>(scalars: &[Scalar], records: &[u8]) -> bool {
    let mut expected = vec![0; C::BYTES];
    scalars.iter().zip(records.chunks_exact(C::BYTES)).all(|(scalar, record)| {
        multiple::<C>(scalar).write_record(&mut expected);
        record == expected
    })
}

impl FixedBase for BackendFixedBase<'_> {
    fn mul_g1(&self, scalars: &[Scalar], records: &mut [u8]) -> Result<(), BackendError> {
        touch(records);
        let done = self.0.fixed_base_g1(&G1Affine::generator(), scalars, records);
        done.unwrap_or_else(|| Err(self.unsupported()))
    }

    fn mul_g2(&self, scalars: &[Scalar], records: &mut [u8]) -> Result<(), BackendError> {
        touch(records);
        let done = self.0.fixed_base_g2(&G2Affine::generator(), scalars, records);
        done.unwrap_or_else(|| Err(self.unsupported()))
    }

    fn batch(&self) -> usize {
        1 << 20
    }
}
