//! Faults on demand: the k-th OpenCL call fails, or the device is lost from there on.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::OpenClError;

/// The kinds of calls that pass the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named after what it does")]
pub enum Call {
    CreateContext,
    CreateQueue,
    CreateBuffer,
    CreateProgram,
    BuildProgram,
    CreateKernel,
    Write,
    Read,
    Fill,
    SetArgument,
    Launch,
    Flush,
    Finish,
}

impl Call {
    /// The function of the OpenCL interface.
    #[must_use]
    pub fn function(self) -> &'static str {
        match self {
            Self::CreateContext => "clCreateContext",
            Self::CreateQueue => "clCreateCommandQueue",
            Self::CreateBuffer => "clCreateBuffer",
            Self::CreateProgram => "clCreateProgramWithSource",
            Self::BuildProgram => "clBuildProgram",
            Self::CreateKernel => "clCreateKernel",
            Self::Write => "clEnqueueWriteBuffer",
            Self::Read => "clEnqueueReadBuffer",
            Self::Fill => "clEnqueueFillBuffer",
            Self::SetArgument => "clSetKernelArg",
            Self::Launch => "clEnqueueNDRangeKernel",
            Self::Flush => "clFlush",
            Self::Finish => "clFinish",
        }
    }
}

/// Which call is to fail, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// The call that fails, counted from 1 at the time of arming.
    pub at: u64,
    /// The device stays lost: every later call fails, too, until [`Faults::disarm`].
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

    /// Calls that passed the gate so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn pass(&self, call: Call) -> Result<(), OpenClError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut armed = self.lock();
        let Some(armed) = armed.as_mut() else { return Ok(()) };
        let lost = OpenClError::Call { function: call.function(), code: opencl3::error_codes::CL_DEVICE_NOT_AVAILABLE };
        if armed.fired {
            return if armed.plan.lost { Err(lost) } else { Ok(()) };
        }
        armed.seen += 1;
        if armed.seen < armed.plan.at {
            return Ok(());
        }
        armed.fired = true;
        Err(match call {
            _ if armed.plan.lost => lost,
            Call::CreateBuffer => OpenClError::OutOfMemory { wanted: 0, held: 0, limit: u64::MAX },
            _ => OpenClError::Call { function: call.function(), code: opencl3::error_codes::CL_OUT_OF_HOST_MEMORY },
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Armed>> {
        // A poisoned lock only means that a test panicked between two plain stores.
        self.armed.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
