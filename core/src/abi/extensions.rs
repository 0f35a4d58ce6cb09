//! Extensions: optional tables found by name. A plug-in that has none is complete.
//!
//! An extension's name ends in its version; a change of layout is a new name. Within one name, tables grow at their end as
//! [rule 1](super::types) says.

use super::types::{SpError, SpInstance, SpPinned, SpStatus, SpStr};
use std::ffi::c_void;

/// Name of [`SpPinnedTable`].
pub const SP_EXT_PINNED: &str = "splitprover.pinned.0";
/// Name of [`SpFixedBaseTable`].
pub const SP_EXT_FIXED_BASE: &str = "splitprover.fixed_base.0";
/// Name of [`SpStatisticsTable`].
pub const SP_EXT_STATISTICS: &str = "splitprover.statistics.0";

/// Name of [`SpKernelsTable`].
pub const SP_EXT_KERNELS: &str = "splitprover.kernels.0";

/// A pinned buffer, as `allocate` describes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpPinnedBuffer {
    /// Size of this struct in bytes; set by the host, which also owns the memory.
    pub struct_size: u64,
    /// What `free` takes.
    pub handle: *mut SpPinned,
    /// First byte: zeroed or at least initialised memory, aligned to 64 bytes, the host's alone until `free`.
    pub data: *mut u8,
    /// Bytes; at least what was asked for.
    pub len: u64,
    /// A number by which the plug-in recognises the pool in [`SpVector::pool`](super::types::SpVector::pool).
    pub pool: u64,
}

/// Pinned allocation: host buffers that are born where the device reads fastest.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpPinnedTable {
    /// Size of this struct in bytes, as its maker knows it.
    pub struct_size: u64,
    /// Makes a buffer of at least `bytes`. The host accounts for it while it uses it; idle buffers of the pool are the
    /// plug-in's to account for.
    pub allocate: Option<
        unsafe extern "C" fn(
            instance: *mut SpInstance,
            bytes: u64,
            out: *mut SpPinnedBuffer,
            error: *mut *mut SpError,
        ) -> SpStatus,
    >,
    /// Takes a buffer back. Any thread. The host frees all buffers before it closes the instance.
    pub free: Option<unsafe extern "C" fn(handle: *mut SpPinned)>,
}

/// Writes `count` point records, `out[i] = scalars[i]·base`: a record of the group, and scalars of four limbs.
pub type SpFixedBase = Option<
    unsafe extern "C" fn(
        instance: *mut SpInstance,
        base: *const u8,
        scalars: *const u64,
        count: u64,
        out: *mut u8,
        error: *mut *mut SpError,
    ) -> SpStatus,
>;

/// Fixed-base multiplication on the device, for key generation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpFixedBaseTable {
    /// Size of this struct in bytes, as its maker knows it.
    pub struct_size: u64,
    /// In G1: records of 96 bytes.
    pub g1: SpFixedBase,
    /// In G2: records of 192 bytes.
    pub g2: SpFixedBase,
}

/// Called once for each figure.
pub type SpStatisticVisitor = Option<unsafe extern "C" fn(ctx: *mut c_void, name: SpStr, value: f64)>;

/// Figures that an instance keeps about itself, for people to read.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpStatisticsTable {
    /// Size of this struct in bytes, as its maker knows it.
    pub struct_size: u64,
    /// Calls `visit` for each figure. A name ends in its unit: "kernel_ms".
    pub visit: Option<
        unsafe extern "C" fn(
            instance: *mut SpInstance,
            visit: SpStatisticVisitor,
            ctx: *mut c_void,
            error: *mut *mut SpError,
        ) -> SpStatus,
    >,
}

/// Called with one line of a report.
pub type SpLineVisitor = Option<unsafe extern "C" fn(ctx: *mut c_void, line: SpStr)>;

/// Kernels compiled ahead of time, where there is no device: images are built, caches are filled.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpKernelsTable {
    /// Size of this struct in bytes, as its maker knows it.
    pub struct_size: u64,
    /// Compiles all kernels for an architecture, named as the vendor does ("sm_90"), into the kernel cache at `folder`. Needs
    /// no instance and no device. Calls `visit` with a line for each thing that was built.
    pub build: Option<
        unsafe extern "C" fn(
            arch: SpStr,
            folder: SpStr,
            visit: SpLineVisitor,
            ctx: *mut c_void,
            error: *mut *mut SpError,
        ) -> SpStatus,
    >,
}
