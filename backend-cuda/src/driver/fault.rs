//! Faults on demand: the k-th driver call fails, or the context is lost from there on.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::CudaError;

/// The kinds of driver calls a fault can be aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named after what it does")]
pub enum Call {
    Allocate,
    AllocatePinned,
    Copy,
    Fill,
    Launch,
    Synchronise,
    CreateStream,
    CreateEvent,
    RecordEvent,
    WaitEvent,
    LoadModule,
    FindFunction,
    MemoryInfo,
}

impl Call {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::Allocate,
        Self::AllocatePinned,
        Self::Copy,
        Self::Fill,
        Self::Launch,
        Self::Synchronise,
        Self::CreateStream,
        Self::CreateEvent,
        Self::RecordEvent,
        Self::WaitEvent,
        Self::LoadModule,
        Self::FindFunction,
        Self::MemoryInfo,
    ];

    fn function(self) -> &'static str {
        match self {
            Self::Allocate => "cuMemAlloc",
            Self::AllocatePinned => "cuMemHostAlloc",
            Self::Copy => "cuMemcpyAsync",
            Self::Fill => "cuMemsetAsync",
            Self::Launch => "cuLaunchKernel",
            Self::Synchronise => "cuStreamSynchronize",
            Self::CreateStream => "cuStreamCreateWithPriority",
            Self::CreateEvent => "cuEventCreate",
            Self::RecordEvent => "cuEventRecord",
            Self::WaitEvent => "cuStreamWaitEvent",
            Self::LoadModule => "cuModuleLoadData",
            Self::FindFunction => "cuModuleGetFunction",
            Self::MemoryInfo => "cuMemGetInfo",
        }
    }
}

/// Which call is to fail, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// The matching call that fails, counted from 1 at the time of arming.
    pub at: u64,
    /// Only calls of this kind count, if set.
    pub only: Option<Call>,
    /// The context stays lost: every later call fails, too, until [`Faults::disarm`].
    pub lost: bool,
}

/// The state of fault injection of one context: off unless a test arms it.
#[derive(Debug, Default)]
pub struct Faults {
    calls: AtomicU64,
    armed: Mutex<Option<Armed>>,
}

#[derive(Debug)]
struct Armed {
    plan: FaultPlan,
    seen: u64,
    fired: bool,
}

impl Faults {
    /// Arms `plan`, replacing what was armed.
    pub fn arm(&self, plan: FaultPlan) {
        *self.lock() = Some(Armed { plan, seen: 0, fired: false });
    }

    /// Switches injection off. Says whether the fault had fired.
    pub fn disarm(&self) -> bool {
        self.lock().take().is_some_and(|armed| armed.fired)
    }

    /// Driver calls that passed the gate so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn pass(&self, call: Call) -> Result<(), CudaError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut armed = self.lock();
        let Some(armed) = armed.as_mut() else { return Ok(()) };
        if armed.fired {
            return if armed.plan.lost { Err(injected(call, true)) } else { Ok(()) };
        }
        if armed.plan.only.is_none_or(|only| only == call) {
            armed.seen += 1;
            if armed.seen == armed.plan.at {
                armed.fired = true;
                return Err(injected(call, armed.plan.lost));
            }
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Armed>> {
        // A poisoned lock only means that a test panicked between two plain stores.
        self.armed.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn injected(call: Call, lost: bool) -> CudaError {
    match call {
        _ if lost => CudaError::Driver { call: call.function(), code: 719, reason: "injected: context lost".into() },
        Call::Allocate => CudaError::OutOfMemory { wanted: 0, held: 0, limit: u64::MAX },
        Call::AllocatePinned => CudaError::OutOfPinnedMemory { wanted: 0 },
        _ => CudaError::Driver { call: call.function(), code: 1, reason: "injected".into() },
    }
}
