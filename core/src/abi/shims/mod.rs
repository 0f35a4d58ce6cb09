//! The entries of a Rust plug-in: from C arguments to trait methods, with every panic caught on the way.
//!
//! Every entry is [`entry`] around a body that answers a `Result`: the body checks what the host passed, and runs the backend's
//! code under [`Opened::guarded`], so that a panic of the *backend* poisons its instance and nothing else.

mod extensions;
mod proof;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use super::backend::DeviceInfo;
use super::error::{error_destroy, error_info, store};
use super::plugin::{BackendPlugin, Host, open_arguments};
use super::types::*;
use crate::error::BackendError;
use crate::prover::describe;

/// Behind an [`SpInstance`]: an `Arc`, which keys and pending proofs share.
struct Opened<P: BackendPlugin> {
    prover: P::Prover,
    host: Host,
    /// Set once, by the first panic.
    poisoned: OnceLock<String>,
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

    /// Runs a value's destructor, as [`guarded`](Self::guarded).
    fn drop_guarded<T>(&self, value: T) -> Result<(), BackendError> {
        self.guarded(|| {
            drop(value);
            Ok(())
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

/// An entry around its body: what goes wrong, panics included, becomes a status and an error handle.
///
/// # Safety
/// `error` is null or points to a writable pointer.
unsafe fn entry(error: *mut *mut SpError, body: impl FnOnce() -> Result<(), BackendError>) -> SpStatus {
    match guarded(body) {
        Ok(()) => SP_OK,
        // SAFETY: by the caller's promise.
        Err(failure) => unsafe { store(error, failure) },
    }
}

/// Makes a value and writes it where the host wants it; makes none if that is nowhere.
///
/// # Safety
/// `out` is null or points to a writable `T`.
unsafe fn hand_out<T>(out: *mut T, make: impl FnOnce() -> Result<T, BackendError>) -> Result<(), BackendError> {
    if out.is_null() {
        return Err(argument("no place for the result"));
    }
    let value = make()?;
    // SAFETY: not null, and writable by the caller's promise.
    unsafe { out.write(value) };
    Ok(())
}

/// A handle to give to the host, until [`take`] gets it back.
fn handle<T, H>(value: T) -> *mut H {
    Box::into_raw(Box::new(value)).cast()
}

/// Takes back what is behind a handle. The handle is gone.
///
/// # Safety
/// `raw` is null, or what [`handle`] made of a `T`, and isn't used again.
unsafe fn take<T, H>(raw: *mut H, what: &str) -> Result<T, BackendError> {
    if raw.is_null() {
        return Err(argument(what));
    }
    // SAFETY: `handle` made it with `Box::into_raw`, and it is given up with this call.
    Ok(*unsafe { Box::from_raw(raw.cast::<T>()) })
}

/// The functions for one plug-in. Every one of them has the same conditions, those of [`super::types`]: handles are alive and
/// this plug-in's own, structs give their size, pointers to write to are null or writable, and everything is as its field says.
struct Shims<P>(PhantomData<P>);

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
        let body = || {
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
        };
        // SAFETY: see `Shims`.
        unsafe { entry(error, body) }
    }

    unsafe extern "C" fn open(args: *const SpOpen, out: *mut *mut SpInstance, error: *mut *mut SpError) -> SpStatus {
        let make = || {
            // SAFETY: see `Shims`.
            let (device, options, host) = unsafe { open_arguments(args) }.ok_or_else(|| argument("no arguments"))?;
            let prover = guarded(|| P::open(device, &options, host.clone())).inspect_err(|_| host.close())?;
            let opened = Arc::new(Opened::<P> { prover, host, poisoned: OnceLock::new() });
            Ok(Arc::into_raw(opened).cast_mut().cast())
        };
        // SAFETY: see `Shims`.
        unsafe { entry(error, || hand_out(out, make)) }
    }

    unsafe extern "C" fn close(instance: *mut SpInstance, error: *mut *mut SpError) -> SpStatus {
        let body = || {
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
        };
        // SAFETY: see `Shims`.
        unsafe { entry(error, body) }
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
pub unsafe extern "C" fn negotiate<P: BackendPlugin>(
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
