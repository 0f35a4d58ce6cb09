//! The dry device: host memory that plays device memory, so that host code runs where there is no card.
//!
//! It checks what a card would only punish: copies and fills must lie inside one live allocation, launches must have a legal shape.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;

use super::{CudaError, DeviceInfo};

pub(super) struct DryDevice {
    info: DeviceInfo,
    emulated: bool,
    live: Mutex<BTreeMap<u64, u64>>,
    libraries: Mutex<Vec<libloading::Library>>,
}

/// An emulated kernel: grid, block, pointers to the arguments.
type Emulated = unsafe extern "C" fn(*const u32, *const u32, *mut *mut c_void);

/// Device memory: aligned no more than the system's allocator aligns anyway, so that zeroing a large block costs nothing until it's used.
fn layout(bytes: u64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(bytes).ok()?, 16).ok()
}

/// Page-locked memory, whose owners expect more alignment.
fn pinned_layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, 256).ok()
}

fn refused(call: &'static str, reason: String) -> CudaError {
    CudaError::Driver { call, code: 1, reason }
}

impl DryDevice {
    pub(super) fn new(vram: u64, emulated: bool) -> Self {
        let info = DeviceInfo {
            ordinal: 0,
            name: "dry device".into(),
            capability: 90,
            memory: vram,
            // An emulated launch costs time for every thread, busy or not.
            multiprocessors: if emulated { 2 } else { 132 },
            shared_per_block: 227 * 1024,
            clock_khz: 0,
            driver: 13000,
        };
        Self { info, emulated, live: Mutex::default(), libraries: Mutex::default() }
    }

    pub(super) fn is_emulated(&self) -> bool {
        self.emulated
    }

    /// `image` is the path of a library of emulated kernels, or empty where launches do nothing.
    pub(super) fn load_module(&self, image: &[u8]) -> Result<usize, CudaError> {
        if image.is_empty() {
            return Ok(0);
        }
        let path = String::from_utf8_lossy(image).into_owned();
        // SAFETY: the library was built by `emulator` from this crate's own sources; its initialisers do nothing of note.
        let library =
            unsafe { libloading::Library::new(&path) }.map_err(|e| refused("cuModuleLoadData", e.to_string()))?;
        let mut libraries = self.libraries.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        libraries.push(library);
        Ok(libraries.len())
    }

    /// The address of an emulated kernel; zero in a module without an image.
    pub(super) fn find_function(&self, module: usize, name: &str) -> Result<usize, CudaError> {
        let libraries = self.libraries.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(library) = module.checked_sub(1).and_then(|index| libraries.get(index)) else { return Ok(0) };
        // SAFETY: only the address is taken; `launch` calls it with the signature that `emulator` generates.
        let symbol = unsafe { library.get::<Emulated>(format!("emu_{name}").as_bytes()) };
        symbol.map(|symbol| *symbol as usize).map_err(|e| refused("cuModuleGetFunction", e.to_string()))
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
        let layout = pinned_layout(bytes).ok_or_else(exhausted)?;
        // SAFETY: callers never ask for zero bytes (`PinnedBuf::alloc` rounds up to one).
        let ptr = unsafe { alloc_zeroed(layout) };
        if ptr.is_null() { Err(exhausted()) } else { Ok(ptr) }
    }

    pub(super) fn free_pinned(&self, ptr: *mut u8, bytes: usize) {
        if let Some(layout) = pinned_layout(bytes) {
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

    /// Checks the shape and, where `function` is an emulated kernel, runs it.
    ///
    /// # Safety
    /// `function` came from `find_function` and `args` match that kernel.
    pub(super) unsafe fn launch(
        &self,
        function: usize,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        args: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        let threads = block.iter().try_fold(1u32, |all, &one| all.checked_mul(one)).unwrap_or(u32::MAX);
        let legal = (1..=1024).contains(&threads)
            && block[2] <= 64
            && (1..=0x7fff_ffff).contains(&grid[0])
            && grid[1..].iter().all(|side| (1..=65535).contains(side))
            && shared <= self.info.shared_per_block;
        if !legal {
            return Err(refused(
                "cuLaunchKernel",
                format!("grid {grid:?}, block {block:?}, {shared} bytes of shared memory"),
            ));
        }
        if function != 0 {
            // SAFETY: the address is that of a function of this very type, in a library that is never unloaded before `self`.
            let kernel = unsafe { std::mem::transmute::<usize, Emulated>(function) };
            // SAFETY: our caller's promise for the arguments.
            unsafe { kernel(grid.as_ptr(), block.as_ptr(), args.as_mut_ptr()) };
        }
        Ok(())
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
