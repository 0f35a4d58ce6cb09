//! The driver itself, or the dry stand-in: the only place that calls cudarc's driver bindings.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys;
use memmap2::MmapMut;

use super::{CudaError, Priority, dry::DryDevice};

/// CUDA 12.5 brought `cuCtxCreate_v4`; CUBINs of a later 12 or of 13 for an architecture that the driver knows load from there on.
const OLDEST_DRIVER: i32 = 12050;
/// NVRTC 13 compiles for Turing and later.
const OLDEST_CARD: u32 = 75;

/// A card as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its index among the devices that this process sees.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Compute capability, as 10 x major + minor.
    pub capability: u32,
    /// Total device memory in bytes.
    pub memory: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory that one block may ask for, in bytes.
    pub shared_per_block: u32,
    /// Highest clock of the multiprocessors, in kHz; 0 where the driver doesn't say.
    pub clock_khz: u32,
    /// CUDA version of the driver, as 1000 x major + 10 x minor.
    pub driver: i32,
}

impl DeviceInfo {
    /// The architecture that CUBINs for this card are built for, such as `sm_90`.
    #[must_use]
    pub fn arch(&self) -> String {
        format!("sm_{}", self.capability)
    }
}

/// Loads and starts the driver, and lists the cards; never panics.
///
/// # Errors
/// [`CudaError::NoDriver`], [`CudaError::DriverUnusable`] or [`CudaError::OldDriver`]. A driver that sees no card gives an empty list.
pub fn probe() -> Result<Vec<DeviceInfo>, CudaError> {
    let driver = start_driver()?;
    let mut count: c_int = 0;
    // SAFETY: the driver is initialised and `count` is writable.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    (0..u32::try_from(count).unwrap_or(0)).map(|ordinal| describe(ordinal, driver).map(|(_, info)| info)).collect()
}

/// Initialises the driver once per process; later calls repeat the verdict. Returns the driver's CUDA version.
fn start_driver() -> Result<i32, CudaError> {
    static VERDICT: OnceLock<Result<i32, CudaError>> = OnceLock::new();
    VERDICT
        .get_or_init(|| {
            let mut reason = String::from("libcuda.so.1 isn't there");
            let found =
                cudarc::get_lib_name_candidates("cuda").iter().chain([&"libcuda.so.1".to_owned()]).any(|name| {
                    // SAFETY: loading the vendor's driver library runs its initialisers, which is what any CUDA program does.
                    match unsafe { libloading::Library::new(name) } {
                        Ok(library) => {
                            // SAFETY: only the symbol's presence is looked at; it's never called through this type.
                            let complete = unsafe { library.get::<*const c_void>(b"cuCtxCreate_v4").is_ok() };
                            // cudarc loads it again by the same name; keep it mapped so that the two can't differ.
                            std::mem::forget(library);
                            if !complete {
                                reason =
                                    format!("{name} lacks cuCtxCreate_v4; it's older than CUDA 12.5 or no CUDA driver");
                            }
                            true
                        }
                        Err(error) => {
                            if name == "libcuda.so.1" {
                                reason = super::error::loader_words(&error);
                            }
                            false
                        }
                    }
                });
            if !found || reason.contains("lacks") {
                return Err(CudaError::NoDriver { reason });
            }
            // SAFETY: the library is loaded, so cudarc's loader finds it; cuInit takes no pointers.
            let status = unsafe { sys::cuInit(0) };
            if status == sys::CUresult::CUDA_ERROR_NO_DEVICE {
                return Err(CudaError::NoDevice { wanted: 0, present: 0 });
            }
            if status != sys::CUresult::CUDA_SUCCESS {
                return Err(CudaError::DriverUnusable { code: status as u32, reason: words(status) });
            }
            let mut have: c_int = 0;
            // SAFETY: `have` is writable.
            check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut have) })?;
            if have < OLDEST_DRIVER {
                return Err(CudaError::OldDriver { have, need: OLDEST_DRIVER });
            }
            Ok(have)
        })
        .clone()
}

fn describe(ordinal: u32, driver: i32) -> Result<(sys::CUdevice, DeviceInfo), CudaError> {
    use sys::CUdevice_attribute as A;
    let mut device: sys::CUdevice = 0;
    let mut name = [0u8; 256];
    let mut memory = 0usize;
    // SAFETY: the driver is initialised, the ordinal was checked by our callers (a wrong one is an error status), and every output
    // points to a local of the documented type and length.
    unsafe {
        check("cuDeviceGet", sys::cuDeviceGet(&mut device, ordinal as c_int))?;
        check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr().cast(), 255, device))?;
        check("cuDeviceTotalMem", sys::cuDeviceTotalMem_v2(&mut memory, device))?;
    }
    let attribute = |which| -> Result<u32, CudaError> {
        let mut value: c_int = 0;
        // SAFETY: as above.
        check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) })?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let info = DeviceInfo {
        ordinal,
        name: CStr::from_bytes_until_nul(&name).map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
        capability: 10 * attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
            + attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        memory: memory as u64,
        multiprocessors: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_per_block: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        clock_khz: attribute(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE).unwrap_or(0),
        driver,
    };
    Ok((device, info))
}

fn check(call: &'static str, status: sys::CUresult) -> Result<(), CudaError> {
    if status == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(CudaError::Driver { call, code: status as u32, reason: words(status) })
}

fn words(status: sys::CUresult) -> String {
    let driver_error = cudarc::driver::result::DriverError(status);
    driver_error.error_string().map_or_else(|_| format!("{status:?}"), |text| text.to_string_lossy().into_owned())
}

/// Handles cross this module's border as plain numbers, so that the owners outside need no opinion about raw pointers.
pub(super) enum Api {
    Card { context: sys::CUcontext, info: DeviceInfo },
    Dry(DryDevice),
}

// SAFETY: a CUDA context may be used from any thread that makes it current, which `Api::enter` does before every call.
unsafe impl Send for Api {}
// SAFETY: the driver's functions are thread-safe; the dry device locks its state.
unsafe impl Sync for Api {}

impl Api {
    pub(super) fn open(ordinal: u32) -> Result<Self, CudaError> {
        let driver = start_driver()?;
        let mut count: c_int = 0;
        // SAFETY: the driver is initialised and `count` is writable.
        check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
        let present = u32::try_from(count).unwrap_or(0);
        if ordinal >= present {
            return Err(CudaError::NoDevice { wanted: ordinal, present });
        }
        let (device, info) = describe(ordinal, driver)?;
        if info.capability < OLDEST_CARD {
            return Err(CudaError::OldCard { name: info.name, have: info.capability, need: OLDEST_CARD });
        }
        let mut context: sys::CUcontext = std::ptr::null_mut();
        // Threads that wait for the card sleep: the host has other work to do.
        let flags = sys::CUctx_flags_enum::CU_CTX_SCHED_BLOCKING_SYNC as c_uint;
        // SAFETY: `context` is writable, no parameters are passed, and the device handle is the driver's own.
        check("cuCtxCreate", unsafe { sys::cuCtxCreate_v4(&mut context, std::ptr::null_mut(), flags, device) })?;
        Ok(Self::Card { context, info })
    }

    pub(super) fn dry(vram: u64, emulated: bool) -> Self {
        Self::Dry(DryDevice::new(vram, emulated))
    }

    pub(super) fn is_emulated(&self) -> bool {
        matches!(self, Self::Dry(dry) if dry.is_emulated())
    }

    pub(super) fn info(&self) -> &DeviceInfo {
        match self {
            Self::Card { info, .. } => info,
            Self::Dry(dry) => dry.info(),
        }
    }

    pub(super) fn is_dry(&self) -> bool {
        matches!(self, Self::Dry(_))
    }

    /// Makes the context current on this thread.
    fn enter(context: sys::CUcontext) -> Result<(), CudaError> {
        // SAFETY: the context is alive as long as `self`, which every caller borrows.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })
    }

    pub(super) fn memory_info(&self) -> Result<(u64, u64), CudaError> {
        match self {
            Self::Card { context, .. } => {
                Self::enter(*context)?;
                let (mut free, mut total) = (0usize, 0usize);
                // SAFETY: both outputs are writable.
                check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
                Ok((free as u64, total as u64))
            }
            Self::Dry(dry) => Ok(dry.memory_info()),
        }
    }

    pub(super) fn allocate(&self, bytes: u64) -> Result<u64, CudaError> {
        match self {
            Self::Card { context, .. } => {
                Self::enter(*context)?;
                let mut ptr: sys::CUdeviceptr = 0;
                // SAFETY: `ptr` is writable.
                check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&mut ptr, bytes as usize) })?;
                Ok(ptr)
            }
            Self::Dry(dry) => dry.allocate(bytes),
        }
    }

    pub(super) fn free(&self, ptr: u64) {
        match self {
            Self::Card { context, .. } => {
                // A failure here means that the context is lost, and the memory with it.
                if Self::enter(*context).is_ok() {
                    // SAFETY: `ptr` came from `allocate` and is freed once, by its owner's `Drop`.
                    let _ = unsafe { sys::cuMemFree_v2(ptr) };
                }
            }
            Self::Dry(dry) => dry.free(ptr),
        }
    }

    pub(super) fn allocate_pinned(&self, bytes: usize) -> Result<*mut u8, CudaError> {
        match self {
            Self::Card { context, .. } => {
                Self::enter(*context)?;
                let mut ptr: *mut c_void = std::ptr::null_mut();
                // SAFETY: `ptr` is writable.
                check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut ptr, bytes, 0) })?;
                Ok(ptr.cast())
            }
            Self::Dry(dry) => dry.allocate_pinned(bytes),
        }
    }

    pub(super) fn free_pinned(&self, ptr: *mut u8, bytes: usize) {
        match self {
            Self::Card { context, .. } => {
                // Unlike device memory, this must be given back even when the context can't be made current; the driver takes the
                // address alone.
                let _ = Self::enter(*context);
                // SAFETY: `ptr` came from `allocate_pinned` and is freed once, by its owner's `Drop`.
                let _ = unsafe { sys::cuMemFreeHost(ptr.cast()) };
            }
            Self::Dry(dry) => dry.free_pinned(ptr, bytes),
        }
    }

    /// Whether [`Self::register_pinned`] makes sense: the driver that only pretends has nothing to lock pages for.
    pub(super) fn can_register(&self) -> bool {
        matches!(self, Self::Card { .. })
    }

    /// Page-locks a mapping for this context, until [`Self::unregister_pinned`].
    pub(super) fn register_pinned(&self, mapping: &mut MmapMut) -> Result<(), CudaError> {
        match self {
            Self::Card { context, .. } => {
                Self::enter(*context)?;
                let (ptr, bytes) = (mapping.as_mut_ptr().cast(), mapping.len());
                // SAFETY: the range is a mapping of its own, which stays until `unregister_pinned` has taken it, or, if this fails,
                // isn't registered at all.
                check("cuMemHostRegister", unsafe { sys::cuMemHostRegister_v2(ptr, bytes, 0) })
            }
            Self::Dry(_) => {
                Err(CudaError::Driver { call: "cuMemHostRegister", code: 801, reason: "not supported".into() })
            }
        }
    }

    /// Takes back what [`Self::register_pinned`] has locked, and unmaps it. Whether that was done.
    pub(super) fn unregister_pinned(&self, mut mapping: MmapMut) -> bool {
        if let Self::Card { context, .. } = self {
            // As for `free_pinned`: without its context too.
            let _ = Self::enter(*context);
            // SAFETY: `register_pinned` has registered this very range, and it is handed over here once.
            if unsafe { sys::cuMemHostUnregister(mapping.as_mut_ptr().cast()) } == sys::CUresult::CUDA_SUCCESS {
                return true;
            }
            // Only a lost context refuses, and its registrations may be with the driver still: the pages stay mapped rather than go to
            // somebody else while a card could write to them.
            std::mem::forget(mapping);
            return false;
        }
        true
    }

    pub(super) fn create_stream(&self, priority: Priority) -> Result<usize, CudaError> {
        match self {
            Self::Card { context, .. } => {
                Self::enter(*context)?;
                let (mut least, mut greatest): (c_int, c_int) = (0, 0);
                let mut stream: sys::CUstream = std::ptr::null_mut();
                let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as c_uint;
                // SAFETY: all outputs are writable.
                unsafe {
                    check("cuCtxGetStreamPriorityRange", sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest))?;
                    // The greater the priority, the lower the number. A card with two of them has no more than those.
                    let level = match priority {
                        Priority::Normal => least,
                        Priority::High if least - greatest > 1 => greatest + 1,
                        Priority::High | Priority::Urgent => greatest,
                    };
                    check("cuStreamCreateWithPriority", sys::cuStreamCreateWithPriority(&mut stream, flags, level))?;
                }
                Ok(stream as usize)
            }
            Self::Dry(_) => Ok(1),
        }
    }

    pub(super) fn destroy_stream(&self, stream: usize) {
        if let Self::Card { context, .. } = self {
            let _ = Self::enter(*context);
            // SAFETY: the handle came from `create_stream` and is destroyed once, by its owner's `Drop`.
            let _ = unsafe { sys::cuStreamDestroy_v2(stream as sys::CUstream) };
        }
    }

    pub(super) fn synchronise(&self, stream: usize) -> Result<(), CudaError> {
        let Self::Card { context, .. } = self else { return Ok(()) };
        Self::enter(*context)?;
        // SAFETY: the handle is alive: its owner is borrowed by our caller. Likewise in the functions below.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream as sys::CUstream) })
    }

    pub(super) fn stream_is_idle(&self, stream: usize) -> Result<bool, CudaError> {
        let Self::Card { context, .. } = self else { return Ok(true) };
        Self::enter(*context)?;
        // SAFETY: see `synchronise`.
        match unsafe { sys::cuStreamQuery(stream as sys::CUstream) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            status => check("cuStreamQuery", status).map(|()| true),
        }
    }

    pub(super) fn create_event(&self, timed: bool) -> Result<usize, CudaError> {
        let Self::Card { context, .. } = self else { return Ok(1) };
        Self::enter(*context)?;
        let blocking = sys::CUevent_flags_enum::CU_EVENT_BLOCKING_SYNC as c_uint;
        let untimed = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as c_uint;
        let mut event: sys::CUevent = std::ptr::null_mut();
        // SAFETY: `event` is writable.
        check("cuEventCreate", unsafe {
            sys::cuEventCreate(&mut event, if timed { blocking } else { blocking | untimed })
        })?;
        Ok(event as usize)
    }

    pub(super) fn destroy_event(&self, event: usize) {
        if let Self::Card { context, .. } = self {
            let _ = Self::enter(*context);
            // SAFETY: the handle came from `create_event` and is destroyed once, by its owner's `Drop`.
            let _ = unsafe { sys::cuEventDestroy_v2(event as sys::CUevent) };
        }
    }

    pub(super) fn record_event(&self, event: usize, stream: usize) -> Result<(), CudaError> {
        let Self::Card { context, .. } = self else { return Ok(()) };
        Self::enter(*context)?;
        // SAFETY: see `synchronise`.
        check("cuEventRecord", unsafe { sys::cuEventRecord(event as sys::CUevent, stream as sys::CUstream) })
    }

    pub(super) fn wait_event(&self, stream: usize, event: usize) -> Result<(), CudaError> {
        let Self::Card { context, .. } = self else { return Ok(()) };
        Self::enter(*context)?;
        // SAFETY: see `synchronise`.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(stream as sys::CUstream, event as sys::CUevent, 0) })
    }

    pub(super) fn synchronise_event(&self, event: usize) -> Result<(), CudaError> {
        let Self::Card { context, .. } = self else { return Ok(()) };
        Self::enter(*context)?;
        // SAFETY: see `synchronise`.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(event as sys::CUevent) })
    }

    pub(super) fn elapsed(&self, from: usize, to: usize) -> Result<f32, CudaError> {
        let Self::Card { context, .. } = self else { return Ok(0.0) };
        Self::enter(*context)?;
        let mut milliseconds = 0f32;
        // SAFETY: see `synchronise`; the output is writable.
        let status = unsafe { sys::cuEventElapsedTime_v2(&mut milliseconds, from as sys::CUevent, to as sys::CUevent) };
        check("cuEventElapsedTime", status)?;
        Ok(milliseconds)
    }

    /// # Safety
    /// See [`super::Stream::upload`].
    pub(super) unsafe fn copy_to_device(
        &self,
        to: u64,
        from: *const u8,
        bytes: u64,
        stream: usize,
    ) -> Result<(), CudaError> {
        match self {
            Self::Card { context, .. } => {
                Self::enter(*context)?;
                // SAFETY: our caller's promise.
                let status =
                    unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes as usize, stream as sys::CUstream) };
                check("cuMemcpyHtoDAsync", status)
            }
            // SAFETY: our caller's promise for the host side; the dry device checks its own.
            Self::Dry(dry) => unsafe { dry.copy(to as *mut u8, from, bytes, &[to]) },
        }
    }

    /// # Safety
    /// See [`super::Stream::download`].
    pub(super) unsafe fn copy_to_host(
        &self,
        to: *mut u8,
        from: u64,
        bytes: u64,
        stream: usize,
    ) -> Result<(), CudaError> {
        match self {
            Self::Card { context, .. } => {
                Self::enter(*context)?;
                // SAFETY: our caller's promise.
                let status =
                    unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from, bytes as usize, stream as sys::CUstream) };
                check("cuMemcpyDtoHAsync", status)
            }
            // SAFETY: as above.
            Self::Dry(dry) => unsafe { dry.copy(to, from as *const u8, bytes, &[from]) },
        }
    }

    /// # Safety
    /// See [`super::Stream::copy`].
    pub(super) unsafe fn copy_on_device(&self, to: u64, from: u64, bytes: u64, stream: usize) -> Result<(), CudaError> {
        match self {
            Self::Card { context, .. } => {
                Self::enter(*context)?;
                // SAFETY: our caller's promise.
                let status = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes as usize, stream as sys::CUstream) };
                check("cuMemcpyDtoDAsync", status)
            }
            // SAFETY: both sides are the dry device's own, and checked there.
            Self::Dry(dry) => unsafe { dry.copy(to as *mut u8, from as *const u8, bytes, &[to, from]) },
        }
    }

    /// # Safety
    /// See [`super::Stream::fill`].
    pub(super) unsafe fn fill(&self, to: u64, value: u8, bytes: u64, stream: usize) -> Result<(), CudaError> {
        match self {
            Self::Card { context, .. } => {
                Self::enter(*context)?;
                // SAFETY: our caller's promise.
                let status = unsafe { sys::cuMemsetD8Async(to, value, bytes as usize, stream as sys::CUstream) };
                check("cuMemsetD8Async", status)
            }
            Self::Dry(dry) => dry.fill(to, value, bytes),
        }
    }

    pub(super) fn load_module(&self, cubin: &[u8]) -> Result<usize, CudaError> {
        let context = match self {
            Self::Card { context, .. } => context,
            Self::Dry(dry) => return dry.load_module(cubin),
        };
        Self::enter(*context)?;
        let mut module: sys::CUmodule = std::ptr::null_mut();
        // SAFETY: `module` is writable and `cubin` outlives the call. The driver reads an ELF image's length from its header; callers
        // hand over images whose header and hash `kernels` has checked.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&mut module, cubin.as_ptr().cast()) })?;
        Ok(module as usize)
    }

    pub(super) fn unload_module(&self, module: usize) {
        if let Self::Card { context, .. } = self {
            let _ = Self::enter(*context);
            // SAFETY: the handle came from `load_module` and is unloaded once, by its owner's `Drop`.
            let _ = unsafe { sys::cuModuleUnload(module as sys::CUmodule) };
        }
    }

    pub(super) fn find_function(&self, module: usize, name: &str) -> Result<usize, CudaError> {
        let context = match self {
            Self::Card { context, .. } => context,
            Self::Dry(dry) => return dry.find_function(module, name),
        };
        Self::enter(*context)?;
        let text = CString::new(name).unwrap_or_default();
        let mut function: sys::CUfunction = std::ptr::null_mut();
        // SAFETY: see `synchronise`; the name is NUL-terminated and the output writable.
        let status = unsafe { sys::cuModuleGetFunction(&mut function, module as sys::CUmodule, text.as_ptr()) };
        check("cuModuleGetFunction", status).map_err(|error| match error {
            CudaError::Driver { call, code, reason } => {
                CudaError::Driver { call, code, reason: format!("kernel {name}: {reason}") }
            }
            other => other,
        })?;
        Ok(function as usize)
    }

    pub(super) fn allow_shared_memory(&self, function: usize, bytes: u32) -> Result<(), CudaError> {
        let Self::Card { context, .. } = self else { return Ok(()) };
        Self::enter(*context)?;
        let which = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: see `synchronise`.
        let status = unsafe { sys::cuFuncSetAttribute(function as sys::CUfunction, which, bytes as c_int) };
        check("cuFuncSetAttribute", status)
    }

    /// # Safety
    /// See [`super::Function::launch`].
    pub(super) unsafe fn launch(
        &self,
        function: usize,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        stream: usize,
        args: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        match self {
            Self::Card { context, .. } => {
                Self::enter(*context)?;
                // SAFETY: our caller's promise; the driver copies the arguments before it returns.
                let status = unsafe {
                    sys::cuLaunchKernel(
                        function as sys::CUfunction,
                        grid[0],
                        grid[1],
                        grid[2],
                        block[0],
                        block[1],
                        block[2],
                        shared,
                        stream as sys::CUstream,
                        args.as_mut_ptr(),
                        std::ptr::null_mut(),
                    )
                };
                check("cuLaunchKernel", status)
            }
            // SAFETY: our caller's promise, too.
            Self::Dry(dry) => unsafe { dry.launch(function, grid, block, shared, args) },
        }
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        if let Self::Card { context, .. } = self {
            // SAFETY: the context came from `cuCtxCreate`; every object made in it holds this `Api` alive, so none is left.
            let _ = unsafe { sys::cuCtxDestroy_v2(*context) };
        }
    }
}
