//! The dry device: host memory that plays device memory, so that host code runs where there is no card.
//!
//! It checks what a card would only punish: copies and fills must lie inside one live allocation, launches must have a legal shape.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::sync::Mutex;

use super::{CudaError, DeviceInfo};

pub(super) struct DryDevice {
    info: DeviceInfo,
    live: Mutex<BTreeMap<u64, u64>>,
}

fn layout(bytes: u64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(bytes).ok()?, 256).ok()
}

fn refused(call: &'static str, reason: String) -> CudaError {
    CudaError::Driver { call, code: 1, reason }
}

impl DryDevice {
    pub(super) fn new(vram: u64) -> Self {
        let info = DeviceInfo {
            ordinal: 0,
            name: "dry device".into(),
            capability: 90,
            memory: vram,
            multiprocessors: 132,
            shared_per_block: 227 * 1024,
            driver: 13000,
        };
        Self { info, live: Mutex::default() }
    }

    pub(super) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn live(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, u64>> {
        self.live.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn memory_info(&self) -> (u64, u64) {
        let held: u64 = self.live().values().sum();
        (self.info.memory.saturating_sub(held), self.info.memory)
    }

    pub(super) fn allocate(&self, bytes: u64) -> Result<u64, CudaError> {
        let exhausted = || CudaError::Driver { call: "cuMemAlloc", code: 2, reason: "out of memory".into() };
        let mut live = self.live();
        let held: u64 = live.values().sum();
        let layout = layout(bytes).filter(|_| held.saturating_add(bytes) <= self.info.memory).ok_or_else(exhausted)?;
        // SAFETY: callers never ask for zero bytes (`DeviceBuf::alloc` rounds up to one).
        let ptr = unsafe { alloc_zeroed(layout) };
        if ptr.is_null() {
            return Err(exhausted());
        }
        live.insert(ptr as u64, bytes);
        Ok(ptr as u64)
    }

    pub(super) fn free(&self, ptr: u64) {
        if let Some(layout) = self.live().remove(&ptr).and_then(layout) {
            // SAFETY: the map held `ptr`, so `allocate` made it with this very layout and nobody has freed it.
            unsafe { dealloc(ptr as *mut u8, layout) };
        }
    }

    pub(super) fn allocate_pinned(&self, bytes: usize) -> Result<*mut u8, CudaError> {
        let exhausted = || CudaError::Driver { call: "cuMemHostAlloc", code: 2, reason: "out of memory".into() };
        let layout = layout(bytes as u64).ok_or_else(exhausted)?;
        // SAFETY: callers never ask for zero bytes (`PinnedBuf::alloc` rounds up to one).
        let ptr = unsafe { alloc_zeroed(layout) };
        if ptr.is_null() { Err(exhausted()) } else { Ok(ptr) }
    }

    pub(super) fn free_pinned(&self, ptr: *mut u8, bytes: usize) {
        if let Some(layout) = layout(bytes as u64) {
            // SAFETY: `PinnedBuf` hands back what `allocate_pinned` gave it, once, with the same size.
            unsafe { dealloc(ptr, layout) };
        }
    }

    fn check(&self, call: &'static str, start: u64, bytes: u64) -> Result<(), CudaError> {
        let inside = self
            .live()
            .range(..=start)
            .next_back()
            .is_some_and(|(&base, &length)| start.checked_add(bytes).is_some_and(|end| end <= base + length));
        if inside {
            Ok(())
        } else {
            Err(refused(call, format!("{bytes} bytes at {start:#x} aren't in one allocation")))
        }
    }

    /// Copies after checking that each of `device_sides` begins a range of `bytes` inside one live allocation.
    ///
    /// # Safety
    /// A side that isn't named in `device_sides` must be valid host memory.
    pub(super) unsafe fn copy(
        &self,
        to: *mut u8,
        from: *const u8,
        bytes: u64,
        device_sides: &[u64],
    ) -> Result<(), CudaError> {
        for &side in device_sides {
            self.check("cuMemcpyAsync", side, bytes)?;
        }
        // SAFETY: checked above, or our caller's promise; `copy` allows overlap.
        unsafe { std::ptr::copy(from, to, bytes as usize) };
        Ok(())
    }

    pub(super) fn fill(&self, to: u64, value: u8, bytes: u64) -> Result<(), CudaError> {
        self.check("cuMemsetD8Async", to, bytes)?;
        // SAFETY: the range lies in a live allocation of ours.
        unsafe { (to as *mut u8).write_bytes(value, bytes as usize) };
        Ok(())
    }

    pub(super) fn launch(&self, grid: [u32; 3], block: [u32; 3], shared: u32) -> Result<(), CudaError> {
        let threads = block.iter().try_fold(1u32, |all, &one| all.checked_mul(one)).unwrap_or(u32::MAX);
        let legal = (1..=1024).contains(&threads)
            && block[2] <= 64
            && (1..=0x7fff_ffff).contains(&grid[0])
            && grid[1..].iter().all(|side| (1..=65535).contains(side))
            && shared <= self.info.shared_per_block;
        if legal {
            Ok(())
        } else {
            Err(refused("cuLaunchKernel", format!("grid {grid:?}, block {block:?}, {shared} bytes of shared memory")))
        }
    }
}

impl Drop for DryDevice {
    fn drop(&mut self) {
        let leaked: Vec<u64> = self.live().keys().copied().collect();
        for ptr in leaked {
            self.free(ptr);
        }
    }
}
