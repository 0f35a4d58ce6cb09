//! The entries of a Rust plug-in: from C arguments to trait methods, with every panic caught on the way.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use blstrs::Scalar;

use super::backend::DeviceInfo;
use super::error::{error_destroy, error_info, store};
use super::extensions::*;
use super::lend::RebuiltLoan;
use super::plugin::{BackendPlugin, Host, open_arguments};
use super::types::*;
use super::{key, slice, write_sized};
use crate::error::BackendError;
use crate::host_buf::ForeignMemory;
use crate::key::CircuitShape;
use crate::point::PointRecord;
use crate::prover::{PendingSums, SplitProver, describe};

type KeyOf<P> = <<P as BackendPlugin>::Prover as SplitProver>::Key;
type PendingOf<P> = <<P as BackendPlugin>::Prover as SplitProver>::Pending;

/// Behind an [`SpInstance`]: an `Arc`, which keys and pending proofs share.
struct Opened<P: BackendPlugin> {
    prover: P::Prover,
    host: Host,
    /// Set once, by the first panic.
    poisoned: OnceLock<String>,
}

/// Behind an [`SpLoadedKey`].
struct Loaded<P: BackendPlugin> {
    key: KeyOf<P>,
    instance: Arc<Opened<P>>,
}

/// Behind an [`SpPending`].
struct InFlight<P: BackendPlugin> {
    pending: PendingOf<P>,
    instance: Arc<Opened<P>>,
}

impl<P: BackendPlugin> Opened<P> {
    fn usable(&self) -> Result<(), BackendError> {
        match self.poisoned.get() {
            Some(reason) => Err(BackendError::Poisoned(reason.clone())),
            None => Ok(()),
        }
    }

    /// Runs a body; a panic becomes an error and poisons the instance.
    fn guarded<T>(&self, body: impl FnOnce() -> Result<T, BackendError>) -> Result<T, BackendError> {
        guarded(body).inspect_err(|error| {
            if let BackendError::Panicked(reason) = error {
                let _ = self.poisoned.set(format!("a panic: {reason}"));
            }
        })
    }
}

/// Runs a body; a panic becomes an error.
fn guarded<T>(body: impl FnOnce() -> Result<T, BackendError>) -> Result<T, BackendError> {
    // Unwind safety: after a panic an instance is never used again.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| Err(BackendError::Panicked(describe(payload))))
}

fn argument(what: &str) -> BackendError {
    BackendError::device("argument across the plug-in boundary", what)
}

/// # Safety
/// `error` is null or points to a writable pointer.
unsafe fn status(result: Result<(), BackendError>, error: *mut *mut SpError) -> SpStatus {
    match result {
        Ok(()) => SP_OK,
        // SAFETY: by the caller's promise.
        Err(failure) => unsafe { store(error, failure) },
    }
}

/// Hands a value to the host as a handle.
///
/// # Safety
/// `out` is null or points to a writable pointer.
unsafe fn hand_out<H>(
    out: *mut *mut H,
    make: impl FnOnce() -> Result<*mut H, BackendError>,
) -> Result<(), BackendError> {
    if out.is_null() {
        return Err(argument("no place for the handle"));
    }
    let handle = make()?;
    // SAFETY: not null, and writable by the caller's promise.
    unsafe { out.write(handle) };
    Ok(())
}

/// The functions for one plug-in. Every one of them has the same conditions, those of [`super::types`]: handles are alive and
/// this plug-in's own, structs give their size, pointers to write to are null or writable, and everything is as its field says.
struct Shims<P>(std::marker::PhantomData<P>);

impl<P: BackendPlugin> Shims<P> {
    const TABLE: SpBackendTable = SpBackendTable {
        struct_size: size_of::<SpBackendTable>() as u64,
        abi_version: SP_ABI_VERSION,
        reserved: 0,
        name: SpStr::new(P::NAME),
        vendor: SpStr::new(P::VENDOR),
        version: SpStr::new(P::VERSION),
        build: SpStr::new(P::BUILD),
        curve: SpStr::new(SP_CURVE),
        scalar_layout: SpStr::new(SP_SCALAR_LAYOUT),
        point_layout: SpStr::new(SP_POINT_LAYOUT),
        devices: Some(Self::devices),
        open: Some(Self::open),
        close: Some(Self::close),
        load_key: Some(Self::load_key),
        unload_key: Some(Self::unload_key),
        start: Some(Self::start),
        finish: Some(Self::finish),
        drop_pending: Some(Self::drop_pending),
        retained_host_bytes: Some(Self::retained_host_bytes),
        error_info: Some(error_info),
        error_destroy: Some(error_destroy),
        extension: Some(Self::extension),
    };

    const PINNED: SpPinnedTable = SpPinnedTable {
        struct_size: size_of::<SpPinnedTable>() as u64,
        allocate: Some(Self::allocate),
        free: Some(free),
    };

    const FIXED_BASE: SpFixedBaseTable = SpFixedBaseTable {
        struct_size: size_of::<SpFixedBaseTable>() as u64,
        g1: Some(Self::fixed_base_g1),
        g2: Some(Self::fixed_base_g2),
    };

    const STATISTICS: SpStatisticsTable =
        SpStatisticsTable { struct_size: size_of::<SpStatisticsTable>() as u64, visit: Some(Self::statistics) };

    unsafe fn instance<'a>(instance: *mut SpInstance) -> Result<&'a Opened<P>, BackendError> {
        // SAFETY: a handle of `open` that is alive, so the inside of an `Arc<Opened<P>>`.
        let opened = unsafe { instance.cast::<Opened<P>>().as_ref() }.ok_or_else(|| argument("no instance"))?;
        opened.usable()?;
        Ok(opened)
    }

    unsafe extern "C" fn devices(
        host: *const SpHost,
        visit: SpDeviceVisitor,
        ctx: *mut c_void,
        error: *mut *mut SpError,
    ) -> SpStatus {
        let result = guarded(|| {
            let visit = visit.ok_or_else(|| argument("no visitor"))?;
            // SAFETY: valid during this call, and closed before it ends.
            let host = unsafe { Host::new(host, 0) };
            let devices = guarded(|| P::devices(&host));
            host.close();
            for DeviceInfo { name, kind, driver, memory_bytes, free_bytes } in devices? {
                let device = SpDevice {
                    struct_size: size_of::<SpDevice>() as u64,
                    name: SpStr::new(&name),
                    kind: SpStr::new(&kind),
                    driver: SpStr::new(&driver),
                    memory_bytes,
                    free_bytes,
                };
                // SAFETY: the host's function with the host's argument; the strings live during the call.
                unsafe { visit(ctx, &device) };
            }
            Ok(())
        });
        // SAFETY: see `Shims`.
        unsafe { status(result, error) }
    }

    unsafe extern "C" fn open(args: *const SpOpen, out: *mut *mut SpInstance, error: *mut *mut SpError) -> SpStatus {
        let result = guarded(|| {
            let make = || {
                // SAFETY: see `Shims`.
                let (device, options, host) =
                    unsafe { open_arguments(args) }.ok_or_else(|| argument("no arguments"))?;
                let prover = guarded(|| P::open(device, &options, host.clone())).inspect_err(|_| host.close())?;
                let opened = Arc::new(Opened::<P> { prover, host, poisoned: OnceLock::new() });
                Ok(Arc::into_raw(opened).cast_mut().cast::<SpInstance>())
            };
            // SAFETY: see `Shims`.
            unsafe { hand_out(out, make) }
        });
        // SAFETY: see `Shims`.
        unsafe { status(result, error) }
    }

    unsafe extern "C" fn close(instance: *mut SpInstance, error: *mut *mut SpError) -> SpStatus {
        let result = guarded(|| {
            if instance.is_null() {
                return Err(argument("no instance"));
            }
            // SAFETY: `open` made the handle from an `Arc`, and the host gives it up with this call.
            let opened = unsafe { Arc::from_raw(instance.cast_const().cast::<Opened<P>>()) };
            let host = opened.host.clone();
            // The prover's destructor may still give memory back, so the host is closed after it.
            let dropped = guarded(|| {
                drop(opened);
                Ok(())
            });
            host.close();
            dropped
        });
        // SAFETY: see `Shims`.
        unsafe { status(result, error) }
    }

    unsafe extern "C" fn load_key(
        instance: *mut SpInstance,
        view: *const SpKey,
        out: *mut *mut SpLoadedKey,
        error: *mut *mut SpError,
    ) -> SpStatus {
        let result = guarded(|| {
            // SAFETY: see `Shims`.
            let opened = unsafe { Self::instance(instance) }?;
            let make = || {
                opened.guarded(|| {
                    // SAFETY: see `Shims`.
                    let key = unsafe { key::rebuild(view) }?;
                    let key = opened.prover.load_key(&key)?;
                    // SAFETY: the handle is alive, and `Arc::from_raw` of it takes over the count just added.
                    let instance = unsafe {
                        let raw = instance.cast_const().cast::<Opened<P>>();
                        Arc::increment_strong_count(raw);
                        Arc::from_raw(raw)
                    };
                    Ok(Box::into_raw(Box::new(Loaded::<P> { key, instance })).cast::<SpLoadedKey>())
                })
            };
            // SAFETY: see `Shims`.
            unsafe { hand_out(out, make) }
        });
        // SAFETY: see `Shims`.
        unsafe { status(result, error) }
    }

    unsafe extern "C" fn unload_key(key: *mut SpLoadedKey, error: *mut *mut SpError) -> SpStatus {
        let result = guarded(|| {
            if key.is_null() {
                return Err(argument("no key"));
            }
            // SAFETY: `load_key` made the handle from a `Box`, and the host gives it up with this call.
            let Loaded { key, instance } = *unsafe { Box::from_raw(key.cast::<Loaded<P>>()) };
            instance.guarded(|| {
                drop(key);
                Ok(())
            })
        });
        // SAFETY: see `Shims`.
        unsafe { status(result, error) }
    }

    unsafe extern "C" fn start(
        instance: *mut SpInstance,
        key: *mut SpLoadedKey,
        inputs: *const SpInputs,
        out: *mut *mut SpPending,
        error: *mut *mut SpError,
    ) -> SpStatus {
        let result = guarded(|| {
            // SAFETY: see `Shims`.
            let opened = unsafe { Self::instance(instance) }?;
            // SAFETY: a handle of `load_key` that is alive.
            let loaded = unsafe { key.cast::<Loaded<P>>().as_ref() }.ok_or_else(|| argument("no key"))?;
            if !std::ptr::eq(opened, Arc::as_ptr(&loaded.instance)) {
                return Err(BackendError::ForeignKey);
            }
            let make = || {
                // SAFETY: see `Shims`; the loan is dropped at the end of this closure, panic or not.
                let mut loan = unsafe { RebuiltLoan::new(inputs) }?;
                let pending = opened.guarded(|| opened.prover.start(&loaded.key, loan.lend()))?;
                let instance = loaded.instance.clone();
                Ok(Box::into_raw(Box::new(InFlight::<P> { pending, instance })).cast::<SpPending>())
            };
            // SAFETY: see `Shims`.
            unsafe { hand_out(out, make) }
        });
        // SAFETY: see `Shims`.
        unsafe { status(result, error) }
    }

    unsafe extern "C" fn finish(pending: *mut SpPending, out: *mut SpSums, error: *mut *mut SpError) -> SpStatus {
        let result = guarded(|| {
            if pending.is_null() {
                return Err(argument("no pending proof"));
            }
            // SAFETY: `start` made the handle from a `Box`, and the host gives it up with this call.
            let InFlight { pending, instance } = *unsafe { Box::from_raw(pending.cast::<InFlight<P>>()) };
            let sums = instance.guarded(|| pending.finish())?;
            let mut records = SpSums { struct_size: 0, a: [0; 96], b_g1: [0; 96], b_g2: [0; 192], hl: [0; 96] };
            sums.a.write_record(&mut records.a);
            sums.b_g1.write_record(&mut records.b_g1);
            sums.b_g2.write_record(&mut records.b_g2);
            sums.hl.write_record(&mut records.hl);
            // SAFETY: see `Shims`.
            unsafe { write_sized(out, &records) };
            Ok(())
        });
        // SAFETY: see `Shims`.
        unsafe { status(result, error) }
    }

    unsafe extern "C" fn drop_pending(pending: *mut SpPending, error: *mut *mut SpError) -> SpStatus {
        let result = guarded(|| {
            if pending.is_null() {
                return Err(argument("no pending proof"));
            }
            // SAFETY: as in `finish`.
            let InFlight { pending, instance } = *unsafe { Box::from_raw(pending.cast::<InFlight<P>>()) };
            instance.guarded(|| {
                drop(pending);
                Ok(())
            })
        });
        // SAFETY: see `Shims`.
        unsafe { status(result, error) }
    }

    unsafe extern "C" fn retained_host_bytes(
        instance: *mut SpInstance,
        shape: *const SpShape,
        out: *mut u64,
        error: *mut *mut SpError,
    ) -> SpStatus {
        let result = guarded(|| {
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
            let bytes = opened.guarded(|| Ok(opened.prover.retained_host_bytes(&shape)))?;
            if out.is_null() {
                return Err(argument("no place for the result"));
            }
            // SAFETY: not null, see `Shims`.
            unsafe { out.write(bytes) };
            Ok(())
        });
        // SAFETY: see `Shims`.
        unsafe { status(result, error) }
    }

    unsafe extern "C" fn extension(name: SpStr) -> *const c_void {
        // SAFETY: see `Shims`.
        match unsafe { super::text(name) }.as_str() {
            SP_EXT_PINNED => std::ptr::from_ref(&Self::PINNED).cast(),
            SP_EXT_FIXED_BASE => std::ptr::from_ref(&Self::FIXED_BASE).cast(),
            SP_EXT_STATISTICS => std::ptr::from_ref(&Self::STATISTICS).cast(),
            _ => std::ptr::null(),
        }
    }

    unsafe extern "C" fn allocate(
        instance: *mut SpInstance,
        bytes: u64,
        out: *mut SpPinnedBuffer,
        error: *mut *mut SpError,
    ) -> SpStatus {
        let result = guarded(|| {
            // SAFETY: see `Shims`.
            let opened = unsafe { Self::instance(instance) }?;
            let bytes = usize::try_from(bytes).map_err(|_| argument("a size overflows"))?;
            let memory = opened.guarded(|| {
                P::pinned(&opened.prover)
                    .ok_or_else(|| BackendError::Unsupported("pinned allocation".into()))?
                    .allocate(bytes)
            })?;
            if out.is_null() {
                return Err(argument("no place for the buffer"));
            }
            let buffer = SpPinnedBuffer {
                struct_size: 0,
                data: memory.as_mut_ptr().as_ptr(),
                len: memory.len_bytes() as u64,
                pool: memory.pool(),
                handle: Box::into_raw(Box::new(memory)).cast(),
            };
            // SAFETY: see `Shims`.
            unsafe { write_sized(out, &buffer) };
            Ok(())
        });
        // SAFETY: see `Shims`.
        unsafe { status(result, error) }
    }

    unsafe extern "C" fn fixed_base_g1(
        instance: *mut SpInstance,
        base: *const u8,
        scalars: *const u64,
        count: u64,
        out: *mut u8,
        error: *mut *mut SpError,
    ) -> SpStatus {
        // SAFETY: see `Shims`.
        let result = guarded(|| unsafe {
            Self::fixed_base(instance, base, scalars, count, out, |fixed, base, scalars, out| {
                fixed.g1(base, scalars, out)
            })
        });
        // SAFETY: see `Shims`.
        unsafe { status(result, error) }
    }

    unsafe extern "C" fn fixed_base_g2(
        instance: *mut SpInstance,
        base: *const u8,
        scalars: *const u64,
        count: u64,
        out: *mut u8,
        error: *mut *mut SpError,
    ) -> SpStatus {
        // SAFETY: see `Shims`.
        let result = guarded(|| unsafe {
            Self::fixed_base(instance, base, scalars, count, out, |fixed, base, scalars, out| {
                fixed.g2(base, scalars, out)
            })
        });
        // SAFETY: see `Shims`.
        unsafe { status(result, error) }
    }

    unsafe fn fixed_base<C: PointRecord>(
        instance: *mut SpInstance,
        base: *const u8,
        scalars: *const u64,
        count: u64,
        out: *mut u8,
        body: impl FnOnce(&dyn super::FixedBase, &C, &[Scalar], &mut [u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        // SAFETY: see `Shims`.
        let opened = unsafe { Self::instance(instance) }?;
        // SAFETY: a record; a `Scalar` is four limbs.
        let (base, scalars) = unsafe { (slice(base, C::BYTES as u64), slice(scalars.cast::<Scalar>(), count)) };
        let (Some(base), Some(scalars)) = (base, scalars) else { return Err(argument("no base or no scalars")) };
        C::check_record(base).map_err(|fault| argument(&fault.to_string()))?;
        let base = C::from_record_unchecked(base);
        let bytes = scalars.len().checked_mul(C::BYTES).filter(|&bytes| bytes <= isize::MAX as usize);
        let bytes = bytes.ok_or_else(|| argument("a size overflows"))?;
        let out = match (bytes, out.is_null()) {
            (0, _) => &mut [],
            (_, true) => return Err(argument("no place for the points")),
            // SAFETY: not null, and `count` records are the host's for this call.
            (_, false) => unsafe { std::slice::from_raw_parts_mut(out, bytes) },
        };
        opened.guarded(|| {
            let fixed = P::fixed_base(&opened.prover);
            let fixed = fixed.ok_or_else(|| BackendError::Unsupported("fixed-base multiplication".into()))?;
            body(fixed, &base, scalars, out)
        })
    }

    unsafe extern "C" fn statistics(
        instance: *mut SpInstance,
        visit: SpStatisticVisitor,
        ctx: *mut c_void,
        error: *mut *mut SpError,
    ) -> SpStatus {
        let result = guarded(|| {
            let visit = visit.ok_or_else(|| argument("no visitor"))?;
            // SAFETY: see `Shims`.
            let opened = unsafe { Self::instance(instance) }?;
            for statistic in opened.guarded(|| Ok(P::statistics(&opened.prover)))? {
                // SAFETY: the host's function with the host's argument; the string lives during the call.
                unsafe { visit(ctx, SpStr::new(&statistic.name), statistic.value) };
            }
            Ok(())
        });
        // SAFETY: see `Shims`.
        unsafe { status(result, error) }
    }
}

/// # Safety
/// `handle` is null or one of `allocate`, which isn't used again.
unsafe extern "C" fn free(handle: *mut SpPinned) {
    if !handle.is_null() {
        // SAFETY: `allocate` made it from a `Box`, and it is freed once.
        super::quietly((), || drop(unsafe { Box::from_raw(handle.cast::<Box<dyn ForeignMemory>>()) }));
    }
}

/// The table of a Rust backend. Static: valid for ever.
pub fn table<P: BackendPlugin>() -> &'static SpBackendTable {
    &Shims::<P>::TABLE
}

/// What [`export_backend!`](crate::export_backend) puts behind `sp_negotiate`.
///
/// # Safety
/// As [`SpNegotiate`] says: `out` is null or points to a writable pointer.
pub unsafe fn negotiate<P: BackendPlugin>(
    min: u32,
    max: u32,
    _host: *const SpHost,
    out: *mut *const SpBackendTable,
) -> SpStatus {
    if out.is_null() {
        return SP_ERR_ARGUMENT;
    }
    // SAFETY: not null, and writable by the caller's promise. A host of another version may look at the version.
    unsafe { out.write(table::<P>()) };
    if min <= SP_ABI_VERSION && max >= SP_ABI_VERSION_MIN && min <= max { SP_OK } else { SP_ERR_VERSION }
}
