//! Keys and proofs.

use std::sync::Arc;

use super::super::lend::RebuiltLoan;
use super::super::plugin::BackendPlugin;
use super::super::types::*;
use super::super::{key, write_sized};
use super::{Opened, Shims, argument, entry, hand_out, handle, take};
use crate::error::BackendError;
use crate::key::CircuitShape;
use crate::point::PointRecord;
use crate::prover::{PendingSums, SplitProver};

type KeyOf<P> = <<P as BackendPlugin>::Prover as SplitProver>::Key;
type PendingOf<P> = <<P as BackendPlugin>::Prover as SplitProver>::Pending;

/// Behind an [`SpLoadedKey`].
struct Loaded<P: BackendPlugin> {
    key: KeyOf<P>,
    /// What inputs must fit. The host's key itself isn't kept here, so that a backend may let go of it.
    shape: CircuitShape,
    matrices: bool,
    instance: Arc<Opened<P>>,
}

/// Behind an [`SpPending`].
struct InFlight<P: BackendPlugin> {
    pending: PendingOf<P>,
    instance: Arc<Opened<P>>,
}

impl<P: BackendPlugin> Shims<P> {
    pub(super) unsafe extern "C" fn load_key(
        instance: *mut SpInstance,
        view: *const SpKey,
        out: *mut *mut SpLoadedKey,
        error: *mut *mut SpError,
    ) -> SpStatus {
        let body = || {
            // SAFETY: see `Shims`.
            let opened = unsafe { Self::instance(instance) }?;
            let make = || {
                // SAFETY: see `Shims`.
                let view = unsafe { key::rebuild(view) }?;
                let (shape, matrices) = (view.shape(), view.matrices().is_some());
                let key = opened.prover.load_key(&view)?;
                // SAFETY: the handle is alive, and `Arc::from_raw` of it takes over the count just added.
                let instance = unsafe {
                    let raw = instance.cast_const().cast::<Opened<P>>();
                    Arc::increment_strong_count(raw);
                    Arc::from_raw(raw)
                };
                Ok(handle(Loaded::<P> { key, shape, matrices, instance }))
            };
            // SAFETY: see `Shims`.
            unsafe { hand_out(out, || opened.guarded(make)) }
        };
        // SAFETY: see `Shims`.
        unsafe { entry(error, body) }
    }

    pub(super) unsafe extern "C" fn unload_key(key: *mut SpLoadedKey, error: *mut *mut SpError) -> SpStatus {
        let body = || {
            // SAFETY: a handle of `load_key`, which the host gives up with this call.
            let Loaded::<P> { key, instance, .. } = unsafe { take(key, "no key") }?;
            instance.drop_guarded(key)
        };
        // SAFETY: see `Shims`.
        unsafe { entry(error, body) }
    }

    pub(super) unsafe extern "C" fn start(
        instance: *mut SpInstance,
        key: *mut SpLoadedKey,
        inputs: *const SpInputs,
        out: *mut *mut SpPending,
        error: *mut *mut SpError,
    ) -> SpStatus {
        let body = || {
            // SAFETY: see `Shims`.
            let opened = unsafe { Self::instance(instance) }?;
            // SAFETY: a handle of `load_key` that is alive.
            let loaded = unsafe { key.cast::<Loaded<P>>().as_ref() }.ok_or_else(|| argument("no key"))?;
            if !std::ptr::eq(opened, Arc::as_ptr(&loaded.instance)) {
                return Err(BackendError::ForeignKey);
            }
            let make = || {
                // SAFETY: see `Shims`; the loan is dropped at the end of this closure, panic or not.
                let mut loan = unsafe { RebuiltLoan::new(inputs, &loaded.shape, loaded.matrices) }?;
                let pending = opened.guarded(|| opened.prover.start(&loaded.key, loan.lend()))?;
                Ok(handle(InFlight::<P> { pending, instance: loaded.instance.clone() }))
            };
            // SAFETY: see `Shims`.
            unsafe { hand_out(out, make) }
        };
        // SAFETY: see `Shims`.
        unsafe { entry(error, body) }
    }

    pub(super) unsafe extern "C" fn finish(
        pending: *mut SpPending,
        out: *mut SpSums,
        error: *mut *mut SpError,
    ) -> SpStatus {
        let body = || {
            // SAFETY: a handle of `start`, which the host gives up with this call.
            let InFlight::<P> { pending, instance } = unsafe { take(pending, "no pending proof") }?;
            let sums = instance.guarded(|| pending.finish())?;
            let mut records = SpSums { struct_size: 0, a: [0; 96], b_g1: [0; 96], b_g2: [0; 192], hl: [0; 96] };
            sums.a.write_record(&mut records.a);
            sums.b_g1.write_record(&mut records.b_g1);
            sums.b_g2.write_record(&mut records.b_g2);
            sums.hl.write_record(&mut records.hl);
            // SAFETY: see `Shims`.
            unsafe { write_sized(out, &records) };
            Ok(())
        };
        // SAFETY: see `Shims`.
        unsafe { entry(error, body) }
    }

    pub(super) unsafe extern "C" fn drop_pending(pending: *mut SpPending, error: *mut *mut SpError) -> SpStatus {
        let body = || {
            // SAFETY: as in `finish`.
            let InFlight::<P> { pending, instance } = unsafe { take(pending, "no pending proof") }?;
            instance.drop_guarded(pending)
        };
        // SAFETY: see `Shims`.
        unsafe { entry(error, body) }
    }

    pub(super) unsafe extern "C" fn retained_host_bytes(
        instance: *mut SpInstance,
        shape: *const SpShape,
        out: *mut u64,
        error: *mut *mut SpError,
    ) -> SpStatus {
        let body = || {
            // SAFETY: see `Shims`.
            let opened = unsafe { Self::instance(instance) }?;
            // SAFETY: see `Shims`.
            let shape = unsafe { shape.as_ref() }.ok_or_else(|| argument("no shape"))?;
            let fits = |n: u64| usize::try_from(n).map_err(|_| argument("a size overflows"));
            let shape = CircuitShape {
                num_public: fits(shape.num_public)?,
                num_variables: fits(shape.num_variables)?,
                domain_log2: shape.domain_log2,
            };
            // SAFETY: see `Shims`.
            unsafe { hand_out(out, || opened.guarded(|| Ok(opened.prover.retained_host_bytes(&shape)))) }
        };
        // SAFETY: see `Shims`.
        unsafe { entry(error, body) }
    }
}
