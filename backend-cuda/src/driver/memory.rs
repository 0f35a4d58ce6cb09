//! Device memory and page-locked host memory, with their owners.
//!
//! The driver takes half a second to page-lock a GiB, on one thread and under a lock that other calls wait for. Most of that is the
//! faults of fresh pages, so large buffers are mapped and populated here, by several threads and in huge pages where the system has such,
//! and only then registered with the driver.

use std::sync::atomic::Ordering;

use memmap2::{Advice, MmapMut, MmapOptions};

use super::{Call, Context, CudaError};

/// From this length on a buffer is mapped and registered.
const MAPPED_FROM: usize = 16 << 20;

/// Threads that populate a buffer. Several buffers are often made at the same time.
const POPULATING: usize = 4;

/// An address in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DevicePtr(pub(super) u64);

impl DevicePtr {
    /// The address that no allocation has; kernels take it as "absent".
    pub const NULL: Self = Self(0);

    /// The address `bytes` further on.
    #[must_use]
    #[allow(
        clippy::should_implement_trait,
        reason = "bytes, as a pointer's `add` is of elements: an operator would hide that"
    )]
    pub fn add(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    /// The address as a number.
    #[must_use]
    pub fn address(self) -> u64 {
        self.0
    }
}

/// An allocation in device memory, freed on drop.
pub struct DeviceBuf {
    context: Context,
    ptr: DevicePtr,
    bytes: u64,
}

impl DeviceBuf {
    /// Allocates `bytes` (at least one), aligned to 256 bytes. The contents are undefined.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`] when the card or the context's limit is exhausted.
    pub fn alloc(context: &Context, bytes: u64) -> Result<Self, CudaError> {
        let inner = &context.0;
        let bytes = bytes.max(1);
        let out_of_memory = || CudaError::OutOfMemory {
            wanted: bytes,
            held: inner.device_bytes.load(Ordering::Relaxed),
            limit: inner.limit.load(Ordering::Relaxed),
        };
        context.gate(Call::Allocate)?;
        let limit = inner.limit.load(Ordering::Relaxed);
        let fits = |held: u64| held.checked_add(bytes).filter(|&total| total <= limit);
        inner.device_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map_err(|_| out_of_memory())?;
        match context.api().allocate(bytes) {
            Ok(ptr) => Ok(Self { context: context.clone(), ptr: DevicePtr(ptr), bytes }),
            Err(error) => {
                inner.device_bytes.fetch_sub(bytes, Ordering::Relaxed);
                Err(if matches!(&error, CudaError::Driver { code: 2, .. }) { out_of_memory() } else { error })
            }
        }
    }

    /// Where it begins.
    #[must_use]
    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// How long it is, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for DeviceBuf {
    fn drop(&mut self) {
        self.context.api().free(self.ptr.0);
        self.context.0.device_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for DeviceBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceBuf({:#x}, {} bytes)", self.ptr.0, self.bytes)
    }
}

/// A page-locked allocation in host memory, zeroed at birth and freed on drop.
pub struct PinnedBuf {
    context: Context,
    ptr: *mut u8,
    bytes: usize,
    /// What `ptr` points to, if it was mapped here and registered; else the driver allocated it. Never read or written through this.
    mapping: Option<MmapMut>,
}

/// Fresh zeroed pages, in memory already as far as the system does that on request; registering would bring them in otherwise, only slower.
fn populated(bytes: usize) -> Option<MmapMut> {
    let mapping = MmapOptions::new().len(bytes).map_anon().ok()?;
    let _ = mapping.advise(Advice::HugePage);
    // A child must not share the pages: copied on the next write here, they would leave the card with the old ones.
    let _ = mapping.advise(Advice::DontFork);
    // Whole huge pages for each thread.
    let part = bytes.div_ceil(POPULATING).next_multiple_of(2 << 20);
    std::thread::scope(|scope| {
        for begin in (0..bytes).step_by(part) {
            let mapping = &mapping;
            let populate = move || mapping.advise_range(Advice::PopulateWrite, begin, part.min(bytes - begin));
            // Where there is no thread to be had the pages come later.
            let _ = std::thread::Builder::new().spawn_scoped(scope, populate);
        }
    });
    Some(mapping)
}

// SAFETY: the memory is plain bytes owned by this value alone; nothing about it is tied to the thread that allocated it.
unsafe impl Send for PinnedBuf {}
// SAFETY: `&PinnedBuf` gives out shared byte slices and the address; writes through it need `&mut` or `unsafe`.
unsafe impl Sync for PinnedBuf {}

impl PinnedBuf {
    /// Allocates `bytes` (at least one).
    ///
    /// # Errors
    /// [`CudaError::OutOfPinnedMemory`] when the system gives no more.
    pub fn alloc(context: &Context, bytes: usize) -> Result<Self, CudaError> {
        let bytes = bytes.max(1);
        context.gate(Call::AllocatePinned)?;
        let mapping = if bytes >= MAPPED_FROM && context.api().can_register() { populated(bytes) } else { None };
        if let Some(mut mapping) = mapping
            && context.api().register_pinned(&mut mapping).is_ok()
        {
            context.0.pinned_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            let ptr = mapping.as_mut_ptr();
            return Ok(Self { context: context.clone(), ptr, bytes, mapping: Some(mapping) });
        }
        let ptr = context.api().allocate_pinned(bytes).map_err(|error| match error {
            CudaError::Driver { code: 2, .. } => CudaError::OutOfPinnedMemory { wanted: bytes as u64 },
            other => other,
        })?;
        // SAFETY: the driver just gave us `bytes` writable bytes at `ptr`, and no other reference to them exists.
        unsafe { ptr.write_bytes(0, bytes) };
        context.0.pinned_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(Self { context: context.clone(), ptr, bytes, mapping: None })
    }

    /// The contents. The caller sees to it that no copy from the device is writing them.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `ptr` is valid for `bytes` initialised bytes while `self` lives (zeroed at birth).
        unsafe { std::slice::from_raw_parts(self.ptr, self.bytes) }
    }

    /// The contents, to write. The caller sees to it that no copy is reading or writing them.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` excludes other references.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.bytes) }
    }

    /// Where it begins.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// How long it is, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for PinnedBuf {
    fn drop(&mut self) {
        match self.mapping.take() {
            // Unregistered first, then unmapped.
            Some(mapping) => {
                if !self.context.api().unregister_pinned(mapping) {
                    // Still there, so still counted.
                    return;
                }
            }
            None => self.context.api().free_pinned(self.ptr, self.bytes),
        }
        self.context.0.pinned_bytes.fetch_sub(self.bytes as u64, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for PinnedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedBuf({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn populated_pages_are_zero_to_the_last_byte_and_writable() {
        for bytes in [MAPPED_FROM, MAPPED_FROM + 1, (18 << 20) - 1] {
            let mut mapping = populated(bytes).expect("a few MiB");
            assert_eq!(mapping.len(), bytes);
            assert!(mapping.iter().all(|&byte| byte == 0));
            mapping.fill(7);
        }
    }
}
