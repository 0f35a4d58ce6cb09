//! Many multiples of one base on the device: what makes development keys of 2^24 rows and more in seconds.
//!
//! The table of window multiples is made on the CPU when a base is first seen, and kept until another takes its place.

use std::sync::{Arc, Mutex, PoisonError};

use group::Curve;
use group::prime::PrimeCurveAffine;
use splitprover_core::abi::FixedBase;
use splitprover_core::point::PointRecord;
use splitprover_core::{BackendError, G1Affine, G1Projective, G2Affine, G2Projective, Scalar};

use crate::device::Instance;
use crate::driver::{CudaError, DeviceBuf, Priority, Stream};
use crate::kernels::Family;
use crate::msm::Group;
use crate::ntt::SCALAR;
use crate::vector::bytes_of_scalars;

/// Bits of a window.
const BITS: u32 = 12;
/// Windows that cover a scalar.
const WINDOWS: u32 = 255_u32.div_ceil(BITS);
/// Products of one launch.
const BATCH: usize = 1 << 20;

/// The fixed-base extension of one card.
pub struct DeviceFixedBase {
    instance: Arc<Instance>,
    g1: Mutex<Option<(G1Affine, DeviceBuf)>>,
    g2: Mutex<Option<(G2Affine, DeviceBuf)>>,
}

impl std::fmt::Debug for DeviceFixedBase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeviceFixedBase")
    }
}

impl DeviceFixedBase {
    pub(crate) fn new(instance: Arc<Instance>) -> Self {
        Self { instance, g1: Mutex::default(), g2: Mutex::default() }
    }

    fn multiply<P, A>(
        &self,
        group: Group,
        base: &A,
        kept: &Mutex<Option<(A, DeviceBuf)>>,
        scalars: &[Scalar],
        out: &mut [u8],
    ) -> Result<(), CudaError>
    where
        P: group::Group + Curve<AffineRepr = A>,
        A: PointRecord + PrimeCurveAffine<Curve = P> + PartialEq,
    {
        let context = &self.instance.context;
        let record = group.point_bytes();
        if out.len() as u64 != record * scalars.len() as u64 {
            return Err(CudaError::Unusable(
                "the records of a fixed-base multiplication have another length than its scalars",
            ));
        }
        if scalars.is_empty() {
            return Ok(());
        }
        let name = if group == Group::G1 { "fixed_base_g1" } else { "fixed_base_g2" };
        let function = self.instance.kernels.function(Family::FixedBase, name)?;
        let stream = Stream::new(context, Priority::Normal)?;
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.as_ref().is_none_or(|(known, _)| known != base) {
            *kept = None;
            let records = window_multiples::<P, A>(base);
            let table = DeviceBuf::alloc(context, records.len() as u64)?;
            // SAFETY: the table is as long as the records.
            unsafe { self.instance.uploader.upload(&stream, table.ptr(), &records)? };
            *kept = Some((*base, table));
        }
        let Some((_, table)) = kept.as_ref() else { return Ok(()) };
        let batch = BATCH.min(scalars.len());
        let device_scalars = DeviceBuf::alloc(context, SCALAR * batch as u64)?;
        let device_out = DeviceBuf::alloc(context, record * batch as u64)?;
        let lanes = if group == Group::G1 { 1 } else { 2 };
        for (scalars, out) in scalars.chunks(batch).zip(out.chunks_mut(batch * record as usize)) {
            let count = scalars.len() as u32;
            let args = [
                table.ptr().into(),
                device_scalars.ptr().into(),
                count.into(),
                BITS.into(),
                WINDOWS.into(),
                device_out.ptr().into(),
            ];
            // Small batches in small blocks: threads without a product cost time, too.
            let threads = if count <= 256 { 32 } else { 128 };
            let blocks = (count.div_ceil(8) * lanes).div_ceil(threads);
            // SAFETY: both buffers hold a batch; the arguments are those of the kernel; `out` is borrowed until the stream is idle.
            let queued = unsafe {
                self.instance
                    .uploader
                    .upload(&stream, device_scalars.ptr(), bytes_of_scalars(scalars))
                    .and_then(|()| function.launch(&stream, [blocks, 1, 1], [threads, 1, 1], 0, &args))
                    .and_then(|()| stream.download(out.as_mut_ptr(), device_out.ptr(), out.len() as u64))
            };
            let done = stream.synchronise();
            queued.and(done)?;
        }
        Ok(())
    }
}

/// The records of d · 2^(`BITS` · j) · base for all windows j and digits d.
fn window_multiples<P, A>(base: &A) -> Vec<u8>
where
    P: group::Group + Curve<AffineRepr = A>,
    A: PointRecord + PrimeCurveAffine<Curve = P>,
{
    let mut records = vec![0u8; (WINDOWS as usize * A::BYTES) << BITS];
    let mut unit = base.to_curve();
    let mut row = vec![P::identity(); 1 << BITS];
    let mut affine = vec![A::identity(); 1 << BITS];
    for window in records.chunks_exact_mut(A::BYTES << BITS) {
        for digit in 1..row.len() {
            row[digit] = row[digit - 1] + unit;
        }
        P::batch_normalize(&row, &mut affine);
        for (record, point) in window.chunks_exact_mut(A::BYTES).zip(&affine) {
            point.write_record(record);
        }
        unit += row[row.len() - 1];
    }
    records
}

impl FixedBase for DeviceFixedBase {
    fn g1(&self, base: &G1Affine, scalars: &[Scalar], out: &mut [u8]) -> Result<(), BackendError> {
        self.instance.usable()?;
        self.multiply::<G1Projective, _>(Group::G1, base, &self.g1, scalars, out)
            .map_err(|error| self.instance.fail("fixed-base multiplication in G1", error))
    }

    fn g2(&self, base: &G2Affine, scalars: &[Scalar], out: &mut [u8]) -> Result<(), BackendError> {
        self.instance.usable()?;
        self.multiply::<G2Projective, _>(Group::G2, base, &self.g2, scalars, out)
            .map_err(|error| self.instance.fail("fixed-base multiplication in G2", error))
    }
}

#[cfg(test)]
mod tests {
    use ff::Field;
    use group::Group as _;
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    use super::*;
    use crate::OpenOptions;
    use crate::driver::Context;

    #[test]
    fn products_equal_the_cpus_in_both_groups() {
        if !crate::emulator::available() {
            println!("skipped, no C++ compiler");
            return;
        }
        let context = Context::emulated(1 << 30);
        let instance = Arc::new(Instance::new(context, OpenOptions { threads: 1, ..OpenOptions::default() }).unwrap());
        let device = DeviceFixedBase::new(instance);
        let mut rng = ChaCha20Rng::seed_from_u64(4);
        let mut scalars = vec![Scalar::ZERO, Scalar::ONE, -Scalar::ONE, Scalar::from(4096), Scalar::ZERO];
        scalars.extend((0..6).map(|_| Scalar::random(&mut rng)));
        for base in [G1Projective::generator(), G1Projective::random(&mut rng)].map(|p| p.to_affine()) {
            let mut out = vec![0x11; 96 * scalars.len()];
            device.g1(&base, &scalars, &mut out).unwrap();
            for (scalar, record) in scalars.iter().zip(out.chunks_exact(96)) {
                assert_eq!(G1Affine::from_record_unchecked(record), (base * scalar).to_affine());
            }
        }
        let base = G2Projective::random(&mut rng).to_affine();
        let mut out = vec![0x11; 192 * scalars.len()];
        device.g2(&base, &scalars, &mut out).unwrap();
        for (scalar, record) in scalars.iter().zip(out.chunks_exact(192)) {
            assert_eq!(G2Affine::from_record_unchecked(record), (base * scalar).to_affine());
        }
        assert!(device.g1(&G1Affine::generator(), &scalars, &mut out).is_err(), "wrong length");
        device.g1(&G1Affine::generator(), &[], &mut []).unwrap();
    }
}
