//! What a backend may offer beyond proving: pinned buffers, multiples of a base, figures, kernels ahead of time.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use blstrs::{G1Affine, G2Affine, Scalar};

use super::super::extensions::*;
use super::super::plugin::Statistic;
use super::super::types::*;
use super::super::{quietly, text};
use super::library::{BackendLibrary, broken};
use super::{Backend, Instance};
use crate::error::BackendError;
use crate::host_buf::ForeignMemory;
use crate::point::PointRecord;

impl BackendLibrary {
    /// Compiles all kernels for an architecture, named as the vendor does (`sm_90`), into the kernel cache at `folder`, without a
    /// device; `report` takes a line for each thing built. `None` if the backend doesn't do it.
    ///
    /// # Errors
    /// What the backend says.
    pub fn build_kernels(
        &self,
        arch: &str,
        folder: &str,
        mut report: impl FnMut(String) + Send,
    ) -> Option<Result<(), BackendError>> {
        type Report<'r> = Mutex<&'r mut (dyn FnMut(String) + Send)>;
        /// # Safety
        /// `ctx` is the report below, the string readable.
        unsafe extern "C" fn visit(ctx: *mut c_void, line: SpStr) {
            quietly((), || {
                // SAFETY: by the caller's promise.
                let (report, line) = unsafe { (ctx.cast::<Report<'_>>().as_ref(), text(line)) };
                if let Some(report) = report {
                    report.lock().unwrap_or_else(PoisonError::into_inner)(line);
                }
            });
        }
        // SAFETY: the struct of that name.
        let build = unsafe { self.0.extension::<SpKernelsTable>(SP_EXT_KERNELS) }?.build?;
        let report: Report<'_> = Mutex::new(&mut report);
        let result = self.0.call(|error| {
            let ctx = std::ptr::from_ref(&report).cast_mut().cast();
            // SAFETY: strings and report live during the call.
            unsafe { build(SpStr::new(arch), SpStr::new(folder), Some(visit), ctx, error) }
        });
        if matches!(result, Err(BackendError::Unsupported(_))) { None } else { Some(result) }
    }
}

impl Backend {
    /// A pinned buffer of at least `bytes`; `None` if the backend has none to offer. Give it to
    /// [`HostMemory::foreign`](crate::HostMemory::foreign).
    ///
    /// # Errors
    /// What the backend says.
    pub fn pinned(&self, bytes: usize) -> Option<Result<Box<dyn ForeignMemory>, BackendError>> {
        // SAFETY: the struct of that name.
        let table = unsafe { self.0.library.extension::<SpPinnedTable>(SP_EXT_PINNED) }?;
        let (allocate, free) = (table.allocate?, table.free?);
        let mut buffer = SpPinnedBuffer {
            struct_size: size_of::<SpPinnedBuffer>() as u64,
            handle: std::ptr::null_mut(),
            data: std::ptr::null_mut(),
            len: 0,
            pool: 0,
        };
        let handle = self.0.handle.as_ptr();
        // SAFETY: a live instance and a struct with its size.
        let result = self.0.library.call(|error| unsafe { allocate(handle, bytes as u64, &mut buffer, error) });
        if matches!(result, Err(BackendError::Unsupported(_))) {
            return None;
        }
        Some(result.and_then(|()| {
            let pinned = Pinned {
                handle: buffer.handle,
                free,
                data: NonNull::new(buffer.data).unwrap_or(NonNull::dangling()),
                len: usize::try_from(buffer.len).unwrap_or(0),
                pool: self.0.library.pool(buffer.pool),
                _instance: self.0.clone(),
            };
            if buffer.data.is_null() || !(buffer.data as usize).is_multiple_of(64) || pinned.len < bytes {
                return Err(broken("a pinned buffer that is null, misaligned or too short"));
            }
            Ok(Box::new(pinned) as Box<dyn ForeignMemory>)
        }))
    }

    /// Writes the record of `scalars[i]·base` for all i, in G1; `None` if the backend doesn't do it.
    ///
    /// # Errors
    /// What the backend says; after an error the records are undefined.
    ///
    /// # Panics
    /// If `records` hasn't 96 bytes for each scalar.
    pub fn fixed_base_g1(
        &self,
        base: &G1Affine,
        scalars: &[Scalar],
        records: &mut [u8],
    ) -> Option<Result<(), BackendError>> {
        // SAFETY: the struct of that name.
        let table = unsafe { self.0.library.extension::<SpFixedBaseTable>(SP_EXT_FIXED_BASE) }?;
        self.fixed_base(table.g1, base, scalars, records)
    }

    /// Writes the record of `scalars[i]·base` for all i, in G2; `None` if the backend doesn't do it.
    ///
    /// # Errors
    /// What the backend says; after an error the records are undefined.
    ///
    /// # Panics
    /// If `records` hasn't 192 bytes for each scalar.
    pub fn fixed_base_g2(
        &self,
        base: &G2Affine,
        scalars: &[Scalar],
        records: &mut [u8],
    ) -> Option<Result<(), BackendError>> {
        // SAFETY: the struct of that name.
        let table = unsafe { self.0.library.extension::<SpFixedBaseTable>(SP_EXT_FIXED_BASE) }?;
        self.fixed_base(table.g2, base, scalars, records)
    }

    fn fixed_base<C: PointRecord>(
        &self,
        entry: SpFixedBase,
        base: &C,
        scalars: &[Scalar],
        records: &mut [u8],
    ) -> Option<Result<(), BackendError>> {
        let entry = entry?;
        assert_eq!(records.len(), scalars.len() * C::BYTES, "a record for each scalar");
        let mut record = vec![0; C::BYTES];
        base.write_record(&mut record);
        let handle = self.0.handle.as_ptr();
        let (scalars, count) = (scalars.as_ptr().cast::<u64>(), scalars.len() as u64);
        // SAFETY: a live instance, a record, `count` scalars of four limbs, room for `count` records.
        let result = self
            .0
            .library
            .call(|error| unsafe { entry(handle, record.as_ptr(), scalars, count, records.as_mut_ptr(), error) });
        match result {
            Err(BackendError::Unsupported(_)) => None,
            result => Some(result),
        }
    }

    /// Figures that the instance keeps about itself.
    ///
    /// # Errors
    /// What the backend says.
    pub fn statistics(&self) -> Result<Vec<Statistic>, BackendError> {
        /// # Safety
        /// `ctx` is the vector below, the string readable.
        unsafe extern "C" fn visit(ctx: *mut c_void, name: SpStr, value: f64) {
            quietly((), || {
                // SAFETY: by the caller's promise.
                let (figures, name) = unsafe { (ctx.cast::<Mutex<Vec<Statistic>>>().as_ref(), text(name)) };
                if let Some(figures) = figures {
                    figures.lock().unwrap_or_else(PoisonError::into_inner).push(Statistic { name, value });
                }
            });
        }
        // SAFETY: the struct of that name.
        let table = unsafe { self.0.library.extension::<SpStatisticsTable>(SP_EXT_STATISTICS) };
        let Some(entry) = table.and_then(|t| t.visit) else { return Ok(Vec::new()) };
        let figures: Mutex<Vec<Statistic>> = Mutex::default();
        self.0.library.call(|error| {
            let ctx = std::ptr::from_ref(&figures).cast_mut().cast();
            // SAFETY: a live instance, and the vector lives during the call.
            unsafe { entry(self.0.handle.as_ptr(), Some(visit), ctx, error) }
        })?;
        Ok(figures.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A pinned buffer of a backend.
struct Pinned {
    handle: *mut SpPinned,
    free: unsafe extern "C" fn(*mut SpPinned),
    data: NonNull<u8>,
    len: usize,
    pool: u64,
    _instance: Arc<Instance>,
}

// SAFETY: plain memory that this value alone has; `free` may be called from any thread.
unsafe impl Send for Pinned {}
// SAFETY: a shared reference gives no access but through the buffer that owns it.
unsafe impl Sync for Pinned {}

// SAFETY: the backend promises initialised memory of that length, the host's alone until `free`; address and alignment were
// checked in `Backend::pinned`.
unsafe impl ForeignMemory for Pinned {
    fn as_mut_ptr(&self) -> NonNull<u8> {
        self.data
    }

    fn len_bytes(&self) -> usize {
        self.len
    }

    fn pool(&self) -> u64 {
        self.pool
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the handle of `allocate`, freed once, with the instance still open.
        unsafe { (self.free)(self.handle) }
    }
}
