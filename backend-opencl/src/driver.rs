//! The one layer through which every OpenCL call of this backend goes.
//!
//! It promises three things to the modules above it:
//!
//! * **Probing before use.** The loader's library is looked for when devices are listed, and what is missing is said in one line.
//! * **Owners.** Contexts, queues, buffers, programs and kernels are released by `Drop`, whatever the error path, and never panic there.
//! * **One gate.** Each call passes [`Faults`], so that a test can make the k-th of them fail, or lose the device.
//!
//! Host memory is only ever read or written by *blocking* transfers: when [`Queue::write`] or [`Queue::read`] returns, the device is
//! done with the slice, so no loan can outlive its call. Nothing is created over host memory (`CL_MEM_USE_HOST_PTR`).
#![allow(unsafe_code)]

mod error;
mod fault;
mod memory;
mod program;
mod queue;

pub use error::OpenClError;
pub use fault::{Call, FaultPlan, Faults};
pub use memory::Buffer;
pub use program::{Kernel, Program};
pub use queue::{Arg, Queue};

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use opencl3::device::{
    CL_DEVICE_TYPE_ACCELERATOR, CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU, Device, get_device_ids,
};
use opencl3::platform::platform::{CL_PLATFORM_NAME, CL_PLATFORM_VERSION, get_platform_data, get_platform_ids};
use opencl3::types::{cl_context, cl_device_id};

/// A device as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// Its platform's number, in the loader's order.
    pub platform: usize,
    /// Its platform's name.
    pub platform_name: String,
    /// Its platform's version, which tells two releases of one driver apart.
    pub platform_version: String,
    /// Its number within the platform.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// Who makes it.
    pub vendor: String,
    /// Version of its driver.
    pub driver: String,
    /// "cpu", "gpu", "accelerator" or "device".
    pub kind: &'static str,
    /// Bytes of device memory.
    pub memory: u64,
    /// Bytes of the largest buffer.
    pub max_allocation: u64,
    /// Bytes of local memory of a work group.
    pub local_memory: u64,
    /// Work items of the largest work group.
    pub max_work_group: usize,
    /// Compute units.
    pub units: u32,
    /// Whether device memory is host memory, on the host's account.
    pub host_memory: bool,
    id: usize,
}

impl DeviceDescription {
    fn read(platform: &Platform, number: usize, id: cl_device_id) -> Result<Self, OpenClError> {
        let device = Device::new(id);
        let failed =
            |error: opencl3::error_codes::ClError| OpenClError::Call { function: "clGetDeviceInfo", code: error.0 };
        let kind = device.dev_type().map_err(failed)?;
        let is = |what| kind & what != 0;
        let kinds =
            [(CL_DEVICE_TYPE_CPU, "cpu"), (CL_DEVICE_TYPE_GPU, "gpu"), (CL_DEVICE_TYPE_ACCELERATOR, "accelerator")];
        let name = device.name().map_err(failed)?.trim().to_owned();
        for (lacking, reason) in [
            (!device.available().map_err(failed)?, "its driver says that it isn't available"),
            (!device.compiler_available().map_err(failed)?, "it has no compiler"),
            (!device.endian_little().map_err(failed)?, "it is big-endian"),
        ] {
            if lacking {
                return Err(OpenClError::Unfit { device: name, reason: reason.to_owned() });
            }
        }
        Ok(Self {
            platform: platform.number,
            platform_name: platform.name.clone(),
            platform_version: platform.version.clone(),
            number,
            vendor: device.vendor().map_err(failed)?.trim().to_owned(),
            driver: device.driver_version().map_err(failed)?.trim().to_owned(),
            kind: kinds.into_iter().find(|&(what, _)| is(what)).map_or("device", |(_, name)| name),
            memory: device.global_mem_size().map_err(failed)?,
            max_allocation: device.max_mem_alloc_size().map_err(failed)?,
            local_memory: device.local_mem_size().map_err(failed)?,
            max_work_group: device.max_work_group_size().map_err(failed)?,
            units: device.max_compute_units().map_err(failed)?,
            host_memory: is(CL_DEVICE_TYPE_CPU),
            name,
            id: id as usize,
        })
    }

    pub(crate) fn raw(&self) -> cl_device_id {
        self.id as cl_device_id
    }

    /// Whether the compiler knows NVIDIA's inline PTX.
    #[must_use]
    pub fn is_nvidia(&self) -> bool {
        self.vendor.contains("NVIDIA") && self.platform_name.contains("NVIDIA")
    }
}

struct Platform {
    number: usize,
    name: String,
    version: String,
}

/// All devices of all platforms that can run the kernels, in the loader's order, CPUs among them.
///
/// # Errors
/// [`OpenClError::NoOpenCl`] if there is no loader, no platform, or no device on any of them, with the reason.
pub fn probe() -> Result<Vec<DeviceDescription>, OpenClError> {
    // One at a time: PoCL 3.1 crashes when a thread asks for a device's name while another one's first question still sets it up.
    static PROBING: Mutex<()> = Mutex::new(());
    let _turn = PROBING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = opencl3_loader() {
        return Err(OpenClError::NoOpenCl { reason: error });
    }
    let none = |reason: &str| OpenClError::NoOpenCl { reason: reason.to_owned() };
    // A loader without drivers says so by an error (−1001).
    let platforms = get_platform_ids().map_err(|_| none("the loader libOpenCL.so.1 knows no driver"))?;
    let mut devices = Vec::new();
    let mut refused = None;
    for (number, &id) in platforms.iter().enumerate() {
        let text = |what| get_platform_data(id, what).map(text_of).unwrap_or_default();
        let platform = Platform { number, name: text(CL_PLATFORM_NAME), version: text(CL_PLATFORM_VERSION) };
        // A platform that can't list its devices doesn't hide the others.
        for (number, id) in get_device_ids(id, CL_DEVICE_TYPE_ALL).unwrap_or_default().into_iter().enumerate() {
            match DeviceDescription::read(&platform, number, id) {
                Ok(device) => devices.push(device),
                Err(error) => refused = Some(error),
            }
        }
    }
    match (devices.is_empty(), refused) {
        (true, Some(error)) => Err(error),
        (true, None) if platforms.is_empty() => Err(none("the loader libOpenCL.so.1 knows no driver")),
        (true, None) => Err(none("its drivers have no devices")),
        _ => Ok(devices),
    }
}

/// Looks for the loader's library. The binding loads it on its first call, and remembers.
fn opencl3_loader() -> Result<(), String> {
    match get_platform_ids() {
        Err(opencl3::error_codes::DLOPEN_RUNTIME_LOAD_FAILED) => {
            Err("libOpenCL.so.1 is not on the library path (package ocl-icd-libopencl1 on Debian)".into())
        }
        Err(opencl3::error_codes::DLOPEN_FUNCTION_NOT_AVAILABLE) => {
            Err("libOpenCL.so.1 has no function clGetPlatformIDs: it is no OpenCL loader".into())
        }
        _ => Ok(()),
    }
}

fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).trim_matches(|c: char| c == '\0' || c.is_whitespace()).to_owned()
}

/// A context of our own on one device. Cheap to clone; released when the last object made in it is gone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    raw: cl_context,
    device: DeviceDescription,
    faults: Faults,
    /// Bytes of device memory that this context may hold.
    limit: AtomicU64,
    /// Bytes of the largest buffer: the device's limit, or a smaller one for tests.
    max_allocation: AtomicU64,
    bytes: AtomicU64,
    objects: AtomicU64,
}

// SAFETY: OpenCL objects may be used from any thread; only setting arguments of one kernel object is not thread-safe, and `Kernel` locks.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// What a context holds at the moment: for tests of leaks and for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Bytes of device memory.
    pub bytes: u64,
    /// Queues, programs and kernels.
    pub objects: u64,
}

impl Context {
    /// A context on `device`, with faults as `faults` has them armed.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(device: &DeviceDescription, faults: Faults) -> Result<Self, OpenClError> {
        faults.pass(Call::CreateContext)?;
        let raw =
            opencl3::context::context::create_context(&[device.raw()], std::ptr::null(), None, std::ptr::null_mut())
                .map_err(|code| OpenClError::Call { function: Call::CreateContext.function(), code })?;
        Ok(Self(Arc::new(Inner {
            raw,
            faults,
            limit: AtomicU64::new(u64::MAX),
            max_allocation: AtomicU64::new(device.max_allocation),
            bytes: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            device: device.clone(),
        })))
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &DeviceDescription {
        &self.0.device
    }

    /// The switch for injected faults.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// Caps the device memory that this context may hold. Allocations beyond it fail as out of memory.
    pub fn set_memory_limit(&self, bytes: u64) {
        self.0.limit.store(bytes, Ordering::Relaxed);
    }

    /// Makes buffers smaller than the device would allow.
    pub fn set_max_allocation(&self, bytes: u64) {
        self.0.max_allocation.store(bytes.min(self.0.device.max_allocation), Ordering::Relaxed);
    }

    /// Bytes of the largest buffer.
    #[must_use]
    pub fn max_allocation(&self) -> u64 {
        self.0.max_allocation.load(Ordering::Relaxed)
    }

    /// Device memory that this context may still take. OpenCL doesn't say what others hold, so this is nine tenths of all of it, or the limit,
    /// less what this context holds.
    #[must_use]
    pub fn available_memory(&self) -> u64 {
        let most = (self.0.device.memory / 10 * 9).min(self.0.limit.load(Ordering::Relaxed));
        most.saturating_sub(self.0.bytes.load(Ordering::Relaxed))
    }

    /// What this context holds now.
    #[must_use]
    pub fn live(&self) -> Live {
        Live { bytes: self.0.bytes.load(Ordering::Relaxed), objects: self.0.objects.load(Ordering::Relaxed) }
    }

    fn gate(&self, call: Call) -> Result<(), OpenClError> {
        self.0.faults.pass(call)
    }
}

/// The result of a call as an error of ours.
fn checked<T>(call: Call, result: Result<T, i32>) -> Result<T, OpenClError> {
    result.map_err(|code| match code {
        // Drivers allocate when a buffer is first used, and say so only then.
        opencl3::error_codes::CL_MEM_OBJECT_ALLOCATION_FAILURE => {
            OpenClError::OutOfMemory { wanted: 0, held: 0, limit: u64::MAX }
        }
        code => OpenClError::Call { function: call.function(), code },
    })
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the context was created by `Context::new` and is released once. Objects made in it hold the `Arc`.
        let _ = unsafe { opencl3::context::context::release_context(self.raw) };
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("device", &self.0.device.name).field("live", &self.live()).finish()
    }
}
