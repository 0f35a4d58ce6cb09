//! The one layer through which every CUDA driver call of this backend goes.
//!
//! It promises four things to the modules above it:
//!
//! * **Probing before binding.** cudarc panics when a library is missing; [`probe`] looks first and says in one line what is wrong.
//! * **Owners.** Contexts, streams, events, modules, device and pinned memory are freed by `Drop`, whatever the error path.
//! * **One gate.** Each call passes [`Faults`], so that a test can make the k-th of them fail, or lose the whole context.
//! * **A dry driver.** [`Context::dry`] runs the same host code with host memory in place of device memory and launches that do
//!   nothing: copies are checked against the live allocations, sums are meaningless. It is for tests of orchestration only, and no
//!   user-facing path opens one.
//!
//! Nothing here synchronises the whole device.

mod api;
mod dry;
mod error;
mod fault;
mod memory;
mod module;
mod stream;

pub use api::{DeviceInfo, probe};
pub use error::CudaError;
pub(crate) use error::loader_words;
pub use fault::{Call, FaultPlan, Faults};
pub use memory::{DeviceBuf, DevicePtr, PinnedBuf};
pub use module::{Arg, Function, Module};
pub use stream::{Event, Priority, Stream};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::Api;

/// A CUDA context of our own on one device. Cheap to clone; destroyed when the last object made in it is gone.
///
/// It isn't the device's primary context: its limits, memory and life are its own. A fault of the hardware or of a kernel is another
/// matter: the driver documents that a process which has met one (an illegal address, say) can't use that card any more, in whatever
/// context, until it is started again; seen so with driver 580. Every call then returns an error that [`CudaError::is_sticky`] knows.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    api: Api,
    faults: Faults,
    /// Bytes of device memory this context may hold.
    limit: AtomicU64,
    device_bytes: AtomicU64,
    pinned_bytes: AtomicU64,
    objects: AtomicU64,
}

/// What a context holds at the moment: for tests of leaks and for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Bytes of device memory allocated and not yet freed.
    pub device_bytes: u64,
    /// Bytes of page-locked host memory allocated and not yet freed.
    pub pinned_bytes: u64,
    /// Streams, events and modules.
    pub objects: u64,
}

impl Context {
    /// Opens device `ordinal` as the driver numbers them.
    ///
    /// # Errors
    /// Says in one line what is missing: the driver library, a driver that works, the device, or a card of compute capability 7.5 or later.
    pub fn open(ordinal: u32) -> Result<Self, CudaError> {
        Ok(Self::from_api(Api::open(ordinal)?))
    }

    /// A context without a card, with `vram` bytes of pretended device memory. See the module's notes.
    #[must_use]
    pub fn dry(vram: u64) -> Self {
        Self::from_api(Api::dry(vram, false))
    }

    /// A dry context whose launches run the kernels on the CPU, for tests: see `emulator`.
    #[cfg(any(test, feature = "emulator"))]
    #[must_use]
    pub fn emulated(vram: u64) -> Self {
        Self::from_api(Api::dry(vram, true))
    }

    /// Whether launches run on the CPU.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.0.api.is_emulated()
    }

    fn from_api(api: Api) -> Self {
        Self(Arc::new(Inner {
            api,
            faults: Faults::default(),
            limit: AtomicU64::new(u64::MAX),
            device_bytes: AtomicU64::new(0),
            pinned_bytes: AtomicU64::new(0),
            objects: AtomicU64::new(0),
        }))
    }

    /// The card: name, compute capability, memory, multiprocessors.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        self.0.api.info()
    }

    /// Whether this is a [dry](Self::dry) context, whose results mean nothing.
    #[must_use]
    pub fn is_dry(&self) -> bool {
        self.0.api.is_dry()
    }

    /// The switch for injected faults.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// Caps the device memory this context may hold, its present holdings included. Allocations beyond it fail as out of memory.
    pub fn set_memory_limit(&self, bytes: u64) {
        self.0.limit.store(bytes, Ordering::Relaxed);
    }

    /// Device memory that can still be allocated: what the driver reports free, and no more than the limit leaves.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn available_memory(&self) -> Result<u64, CudaError> {
        self.gate(Call::MemoryInfo)?;
        let (free, _total) = self.0.api.memory_info()?;
        let left = self.0.limit.load(Ordering::Relaxed).saturating_sub(self.0.device_bytes.load(Ordering::Relaxed));
        Ok(free.min(left))
    }

    /// What this context holds now.
    #[must_use]
    pub fn live(&self) -> Live {
        Live {
            device_bytes: self.0.device_bytes.load(Ordering::Relaxed),
            pinned_bytes: self.0.pinned_bytes.load(Ordering::Relaxed),
            objects: self.0.objects.load(Ordering::Relaxed),
        }
    }

    /// Counts the call, and fails it if a test asked for that.
    fn gate(&self, call: Call) -> Result<(), CudaError> {
        self.0.faults.pass(call)
    }

    fn api(&self) -> &Api {
        &self.0.api
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("device", self.info()).field("live", &self.live()).finish()
    }
}
