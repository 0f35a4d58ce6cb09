//! Errors across the boundary: an opaque handle that its maker destroys, with a code and texts.

use std::collections::HashSet;
use std::sync::Mutex;

use super::types::*;
use super::{text, write_sized};
use crate::error::BackendError;
use crate::memory::{MemoryClass, OutOfHostMemory};

/// What an error handle of this side points to.
struct Stored {
    code: SpStatus,
    class: u32,
    what: String,
    message: String,
    requested: u64,
    available: u64,
}

/// The number of a class on the wire.
pub(super) fn class_number(class: MemoryClass) -> u32 {
    match class {
        MemoryClass::Evaluations => SP_MEMORY_EVALUATIONS,
        MemoryClass::Witness => SP_MEMORY_WITNESS,
        MemoryClass::Key => SP_MEMORY_KEY,
        MemoryClass::Staging => SP_MEMORY_STAGING,
        // What is stuck is the host's affair; a plug-in charges nothing to it.
        MemoryClass::Backend | MemoryClass::Stuck => SP_MEMORY_BACKEND,
        MemoryClass::PoolIdle => SP_MEMORY_POOL_IDLE,
    }
}

/// The class of a number; `None` if it is none.
pub(super) fn class_of(number: u32) -> Option<MemoryClass> {
    MemoryClass::ALL.into_iter().find(|&class| class_number(class) == number)
}

/// A plug-in's side: stores an error where the host asked for it, and returns its code.
///
/// # Safety
/// `target` is null or points to a writable pointer.
pub(super) unsafe fn store(target: *mut *mut SpError, error: BackendError) -> SpStatus {
    let mut stored = Stored {
        code: SP_ERR_DEVICE,
        class: 0,
        what: String::new(),
        message: String::new(),
        requested: 0,
        available: 0,
    };
    match error {
        BackendError::DeviceMemory { what, requested, available } => {
            stored.code = SP_ERR_DEVICE_MEMORY;
            stored.message = format!("out of device memory: {requested} bytes, {available} available");
            (stored.what, stored.requested, stored.available) = (what.to_owned(), requested, available);
        }
        BackendError::HostMemory(OutOfHostMemory { class, requested, reason }) => {
            stored.code = SP_ERR_HOST_MEMORY;
            (stored.class, stored.requested, stored.message) = (class_number(class), requested, reason);
        }
        BackendError::Device { what, reason } => (stored.what, stored.message) = (what.to_owned(), reason),
        BackendError::Unsupported(message) => (stored.code, stored.message) = (SP_ERR_UNSUPPORTED, message),
        BackendError::Inputs(error) => (stored.code, stored.message) = (SP_ERR_INPUTS, error.to_string()),
        BackendError::Panicked(message) => (stored.code, stored.message) = (SP_ERR_PANICKED, message),
        BackendError::Poisoned(message) => (stored.code, stored.message) = (SP_ERR_POISONED, message),
        BackendError::ForeignKey => stored.code = SP_ERR_FOREIGN_KEY,
        BackendError::Cancelled => stored.code = SP_ERR_CANCELLED,
    }
    let code = stored.code;
    if !target.is_null() {
        // SAFETY: a writable pointer by the caller's promise.
        unsafe { target.write(Box::into_raw(Box::new(stored)).cast()) };
    }
    code
}

/// The entry `error_info` of every Rust plug-in.
///
/// # Safety
/// `error` is null or a handle of [`store`] that is still alive; `out` is null or points to a writable struct of the size it gives.
pub(super) unsafe extern "C" fn error_info(error: *const SpError, out: *mut SpErrorInfo) {
    // SAFETY: a handle of `store`, so a `Stored` that lives until `error_destroy`.
    let Some(stored) = (unsafe { error.cast::<Stored>().as_ref() }) else { return };
    let info = SpErrorInfo {
        struct_size: size_of::<SpErrorInfo>() as u64,
        code: stored.code,
        memory_class: stored.class,
        what: SpStr::new(&stored.what),
        message: SpStr::new(&stored.message),
        requested: stored.requested,
        available: stored.available,
    };
    // SAFETY: by the caller's promise.
    unsafe { write_sized(out, &info) };
}

/// The entry `error_destroy` of every Rust plug-in.
///
/// # Safety
/// `error` is null or a handle of [`store`], which isn't used again.
pub(super) unsafe extern "C" fn error_destroy(error: *mut SpError) {
    if !error.is_null() {
        // SAFETY: `store` made it with `Box::into_raw`, and it is destroyed once.
        drop(unsafe { Box::from_raw(error.cast::<Stored>()) });
    }
}

/// The host's side: turns a status and perhaps a handle into an error, and destroys the handle. `Ok` for [`SP_OK`].
///
/// # Safety
/// `error` is null or a handle that the plug-in of `table` has just stored.
pub(super) unsafe fn check(table: &SpBackendTable, status: SpStatus, error: *mut SpError) -> Result<(), BackendError> {
    let mut info = SpErrorInfo {
        struct_size: size_of::<SpErrorInfo>() as u64,
        code: status,
        memory_class: 0,
        what: SpStr::EMPTY,
        message: SpStr::EMPTY,
        requested: 0,
        available: 0,
    };
    let (mut what, mut message) = (String::new(), String::new());
    if !error.is_null() {
        if let Some(describe) = table.error_info {
            // SAFETY: the plug-in's own handle, and a struct that gives its size.
            unsafe { describe(error, &mut info) };
            // SAFETY: the strings are valid until the handle is destroyed, below.
            (what, message) = unsafe { (text(info.what), text(info.message)) };
        }
        if let Some(destroy) = table.error_destroy {
            // SAFETY: the plug-in's own handle, destroyed once.
            unsafe { destroy(error) };
        }
    }
    if status == SP_OK {
        return Ok(());
    }
    let unnamed = |message: String| if message.is_empty() { format!("status {status}") } else { message };
    Err(match status {
        SP_ERR_DEVICE_MEMORY => BackendError::DeviceMemory {
            what: interned(if what.is_empty() { "the backend" } else { &what }),
            requested: info.requested,
            available: info.available,
        },
        SP_ERR_HOST_MEMORY => BackendError::HostMemory(OutOfHostMemory {
            class: class_of(info.memory_class).unwrap_or(MemoryClass::Backend),
            requested: info.requested,
            reason: unnamed(message),
        }),
        SP_ERR_UNSUPPORTED => BackendError::Unsupported(unnamed(message)),
        SP_ERR_INPUTS => BackendError::device("inputs", unnamed(message)),
        SP_ERR_PANICKED => BackendError::Panicked(unnamed(message)),
        SP_ERR_POISONED => BackendError::Poisoned(unnamed(message)),
        SP_ERR_FOREIGN_KEY => BackendError::ForeignKey,
        SP_ERR_CANCELLED => BackendError::Cancelled,
        SP_ERR_ARGUMENT => BackendError::device("argument across the plug-in boundary", unnamed(message)),
        _ => BackendError::device(interned(if what.is_empty() { "the backend" } else { &what }), unnamed(message)),
    })
}

/// A `'static` copy of a plug-in's term. Terms are few; beyond 256, and for long ones, a general term stands in, so that
/// no plug-in can make this side leak without bound.
fn interned(term: &str) -> &'static str {
    static TERMS: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut terms = TERMS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let terms = terms.get_or_insert_default();
    if let Some(known) = terms.get(term) {
        return known;
    }
    if terms.len() >= 256 || term.len() > 256 {
        return "the backend";
    }
    let leaked: &'static str = Box::leak(term.into());
    terms.insert(leaked);
    leaked
}
