//! The extensions' tables and entries.

use std::ffi::c_void;
use std::path::Path;

use blstrs::{G1Affine, G2Affine, Scalar};

use super::super::extensions::*;
use super::super::plugin::{BackendPlugin, FixedBase};
use super::super::types::*;
use super::super::{quietly, slice, text, write_sized};
use super::{Shims, argument, entry, handle, take};
use crate::error::BackendError;
use crate::host_buf::ForeignMemory;
use crate::point::PointRecord;

/// A group of which [`FixedBase`] makes multiples.
trait Multiples: PointRecord {
    fn write(fixed: &dyn FixedBase, base: &Self, scalars: &[Scalar], out: &mut [u8]) -> Result<(), BackendError>;
}

impl Multiples for G1Affine {
    fn write(fixed: &dyn FixedBase, base: &Self, scalars: &[Scalar], out: &mut [u8]) -> Result<(), BackendError> {
        fixed.g1(base, scalars, out)
    }
}

impl Multiples for G2Affine {
    fn write(fixed: &dyn FixedBase, base: &Self, scalars: &[Scalar], out: &mut [u8]) -> Result<(), BackendError> {
        fixed.g2(base, scalars, out)
    }
}

impl<P: BackendPlugin> Shims<P> {
    const PINNED: SpPinnedTable = SpPinnedTable {
        struct_size: size_of::<SpPinnedTable>() as u64,
        allocate: Some(Self::allocate),
        free: Some(free),
    };

    const FIXED_BASE: SpFixedBaseTable = SpFixedBaseTable {
        struct_size: size_of::<SpFixedBaseTable>() as u64,
        g1: Some(Self::fixed_base::<G1Affine>),
        g2: Some(Self::fixed_base::<G2Affine>),
    };

    const STATISTICS: SpStatisticsTable =
        SpStatisticsTable { struct_size: size_of::<SpStatisticsTable>() as u64, visit: Some(Self::statistics) };

    const KERNELS: SpKernelsTable =
        SpKernelsTable { struct_size: size_of::<SpKernelsTable>() as u64, build: Some(Self::build_kernels) };

    pub(super) unsafe extern "C" fn extension(name: SpStr) -> *const c_void {
        // SAFETY: see `Shims`.
        match unsafe { text(name) }.as_str() {
            SP_EXT_PINNED => std::ptr::from_ref(&Self::PINNED).cast(),
            SP_EXT_FIXED_BASE => std::ptr::from_ref(&Self::FIXED_BASE).cast(),
            SP_EXT_STATISTICS => std::ptr::from_ref(&Self::STATISTICS).cast(),
            SP_EXT_KERNELS if P::kernels().is_some() => std::ptr::from_ref(&Self::KERNELS).cast(),
            _ => std::ptr::null(),
        }
    }

    unsafe extern "C" fn allocate(
        instance: *mut SpInstance,
        bytes: u64,
        out: *mut SpPinnedBuffer,
        error: *mut *mut SpError,
    ) -> SpStatus {
        let body = || {
            // SAFETY: see `Shims`.
            let opened = unsafe { Self::instance(instance) }?;
            let bytes = usize::try_from(bytes).map_err(|_| argument("a size overflows"))?;
            if out.is_null() {
                return Err(argument("no place for the buffer"));
            }
            let memory = opened.guarded(|| {
                let pinned = P::pinned(&opened.prover);
                pinned.ok_or_else(|| BackendError::Unsupported("pinned allocation".into()))?.allocate(bytes)
            })?;
            let buffer = SpPinnedBuffer {
                struct_size: 0,
                data: memory.as_mut_ptr().as_ptr(),
                len: memory.len_bytes() as u64,
                pool: memory.pool(),
                handle: handle(memory),
            };
            // SAFETY: see `Shims`.
            unsafe { write_sized(out, &buffer) };
            Ok(())
        };
        // SAFETY: see `Shims`.
        unsafe { entry(error, body) }
    }

    unsafe extern "C" fn fixed_base<C: Multiples>(
        instance: *mut SpInstance,
        base: *const u8,
        scalars: *const u64,
        count: u64,
        out: *mut u8,
        error: *mut *mut SpError,
    ) -> SpStatus {
        let body = || {
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
                C::write(fixed, &base, scalars, out)
            })
        };
        // SAFETY: see `Shims`.
        unsafe { entry(error, body) }
    }

    unsafe extern "C" fn statistics(
        instance: *mut SpInstance,
        visit: SpStatisticVisitor,
        ctx: *mut c_void,
        error: *mut *mut SpError,
    ) -> SpStatus {
        let body = || {
            let visit = visit.ok_or_else(|| argument("no visitor"))?;
            // SAFETY: see `Shims`.
            let opened = unsafe { Self::instance(instance) }?;
            for statistic in opened.guarded(|| Ok(P::statistics(&opened.prover)))? {
                // SAFETY: the host's function with the host's argument; the string lives during the call.
                unsafe { visit(ctx, SpStr::new(&statistic.name), statistic.value) };
            }
            Ok(())
        };
        // SAFETY: see `Shims`.
        unsafe { entry(error, body) }
    }

    unsafe extern "C" fn build_kernels(
        arch: SpStr,
        folder: SpStr,
        visit: SpLineVisitor,
        ctx: *mut c_void,
        error: *mut *mut SpError,
    ) -> SpStatus {
        let body = || {
            // SAFETY: strings that live during the call.
            let (arch, folder) = unsafe { (text(arch), text(folder)) };
            let builder = P::kernels().ok_or_else(|| BackendError::Unsupported("kernels ahead of time".into()))?;
            builder.build(&arch, Path::new(&folder), &mut |line| {
                if let Some(visit) = visit {
                    // SAFETY: the host's function with the host's argument; the string lives during the call.
                    unsafe { visit(ctx, SpStr::new(line)) };
                }
            })
        };
        // SAFETY: see `Shims`.
        unsafe { entry(error, body) }
    }
}

/// # Safety
/// `raw` is null or a handle of `allocate`, which isn't used again.
unsafe extern "C" fn free(raw: *mut SpPinned) {
    quietly((), || {
        // SAFETY: by the caller's promise.
        drop(unsafe { take::<Box<dyn ForeignMemory>, _>(raw, "no buffer") });
    });
}
