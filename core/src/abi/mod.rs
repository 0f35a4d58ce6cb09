//! Backends across a C boundary: the tables, a plug-in's side of them, and a host's.
//!
//! A backend that is loaded at run time is a shared library with one exported symbol, `sp_negotiate`, which hands out a
//! table of functions ([`SpBackendTable`]). This module holds
//!
//! | module | for whom | what |
//! |---|---|---|
//! | [`types`], [`extensions`] | everybody | the structs, constants and rules; the C header is made from them |
//! | [`plugin`] | who writes a backend in Rust | [`BackendPlugin`] and [`export_backend!`](crate::export_backend) |
//! | [`backend`] | who uses one | [`BackendLibrary`] and [`Backend`], one type for every backend |
//!
//! An in-process backend fills the same table ([`BackendLibrary::in_process`]), so engine, checks and conformance suite know
//! one type: [`Backend`], which is itself a [`SplitProver`](crate::SplitProver). Finding and loading libraries isn't done
//! here: plug-ins link this crate, and don't need a loader.
//!
//! Across the boundary **the host stays the owner** of what it lends. A plug-in in Rust keeps the compile-time rule,
//! because its shim rebuilds [`LentInputs<'i>`](crate::LentInputs) in its own frame; a plug-in in C has the rule in the comments,
//! and the conformance suite.
#![allow(unsafe_code)]

pub mod backend;
mod error;
pub mod extensions;
mod host;
mod key;
mod layout;
mod lend;
pub mod plugin;
mod shims;
pub mod types;

pub use backend::{
    Backend, BackendInfo, BackendKey, BackendLibrary, BackendPending, DeviceInfo, NegotiationError, OpenOptions,
};
pub use extensions::*;
pub use host::{LogLevel, LogSink};
pub use plugin::{BackendPlugin, FixedBase, Host, KernelBuilder, Options, PinnedAllocator, Statistic};
pub use shims::{negotiate, table};
pub use types::*;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::prover::describe;

/// Copies a struct that begins with `struct_size`: the smaller of both sizes, into a zeroed value of this side's layout.
/// `None` if `source` is null or shorter than `least` bytes.
///
/// # Safety
/// `T` is one of the `#[repr(C)]` structs that begin with `struct_size: u64` and for which all zeros are a value. `source` is
/// null, or points to 8 aligned bytes that give a size, and that many bytes are readable.
unsafe fn copy_sized<T: Copy>(source: *const T, least: usize) -> Option<T> {
    if source.is_null() {
        return None;
    }
    // SAFETY: not null, so by the caller's promise eight readable, aligned bytes.
    let theirs = unsafe { source.cast::<u64>().read() };
    let size = usize::try_from(theirs).ok()?.min(size_of::<T>());
    if size < least {
        return None;
    }
    let mut copy = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: `size` is at most both sizes; source and target don't overlap, the target being new. All zeros are a `T` by
    // the caller's promise, so is any prefix of a valid one followed by zeros: the structs are plain data and nullable pointers.
    unsafe {
        std::ptr::copy_nonoverlapping(source.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), size);
        Some(copy.assume_init())
    }
}

/// Writes a struct that begins with `struct_size` to the other side's memory, no more than that side's size.
///
/// # Safety
/// As [`copy_sized`], with `target` writable.
unsafe fn write_sized<T: Copy>(target: *mut T, value: &T) {
    if target.is_null() {
        return;
    }
    // SAFETY: by the caller's promise.
    let theirs = unsafe { target.cast::<u64>().read() };
    let size = usize::try_from(theirs).unwrap_or(0).min(size_of::<T>());
    if size > 8 {
        let bytes = std::ptr::from_ref(value).cast::<u8>();
        // SAFETY: `size` is at most both sizes. The first eight bytes, the target's own size, stay.
        unsafe { std::ptr::copy_nonoverlapping(bytes.add(8), target.cast::<u8>().add(8), size - 8) };
    }
}

/// A foreign string, copied. At most 64 KiB; what isn't UTF-8 is replaced.
///
/// # Safety
/// `text.data` is null or points to `text.len` readable bytes.
unsafe fn text(text: SpStr) -> String {
    if text.data.is_null() || text.len == 0 {
        return String::new();
    }
    let len = text.len.min(1 << 16) as usize;
    // SAFETY: not null, and at least `len` readable bytes by the caller's promise.
    String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(text.data, len) }).into_owned()
}

/// A slice at a foreign pointer; empty if there are no elements, `None` if the pointer can't be one.
///
/// # Safety
/// If `len` isn't 0, `data` is null, misaligned, or points to `len` readable elements that nobody writes during `'a`.
unsafe fn slice<'a, T: Copy>(data: *const T, len: u64) -> Option<&'a [T]> {
    if len == 0 {
        return Some(&[]);
    }
    let len = usize::try_from(len)
        .ok()
        .filter(|len| len.checked_mul(size_of::<T>()).is_some_and(|b| b <= isize::MAX as usize))?;
    if data.is_null() || !data.is_aligned() {
        return None;
    }
    // SAFETY: not null, aligned, a size that fits, and readable by the caller's promise.
    Some(unsafe { std::slice::from_raw_parts(data, len) })
}

/// Runs a callback's body; a panic is swallowed, because nothing may unwind into the other side.
fn quietly<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        // Not simply dropped: the payload's own destructor could panic again.
        describe(payload);
        otherwise
    })
}
