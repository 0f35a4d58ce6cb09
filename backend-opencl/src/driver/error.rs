//! What can go wrong between this backend and a device, one variant per thing a user would do differently.

use std::fmt;

use splitprover_core::BackendError;
use splitprover_core::memory::OutOfHostMemory;

/// An OpenCL failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenClError {
    /// No OpenCL loader could be found, or it knows no platform.
    NoOpenCl {
        /// What is missing, in the loader's words.
        reason: String,
    },
    /// There is no such device.
    NoDevice {
        /// The index or name asked for.
        wanted: String,
        /// How many devices there are.
        present: usize,
    },
    /// A device that can't run these kernels.
    Unfit {
        /// The device's name.
        device: String,
        /// What it lacks.
        reason: String,
    },
    /// The device's compiler refused a program.
    Build {
        /// The program.
        program: &'static str,
        /// The compiler's log.
        log: String,
    },
    /// The device, or its compiler, computes wrongly.
    SelfTest {
        /// The device's name.
        device: String,
        /// The case that came out wrong.
        case: String,
    },
    /// Device memory ran out, or the limit set for it did.
    OutOfMemory {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes that this context held at that moment.
        held: u64,
        /// The limit; `u64::MAX` when none is set.
        limit: u64,
    },
    /// Host memory could not be had, or the account refused it.
    HostMemory(OutOfHostMemory),
    /// Any other failing call.
    Call {
        /// The function.
        function: &'static str,
        /// Its status.
        code: i32,
    },
    /// The request can't be planned within the memory there is.
    DoesNotFit {
        /// What was to be placed.
        what: &'static str,
        /// Bytes needed at least.
        need: u64,
        /// Bytes there.
        have: u64,
    },
    /// What was asked for can't be done with what was given.
    Unusable(String),
    /// The work was cancelled.
    Cancelled,
}

impl OpenClError {
    /// Whether the context is unusable after this error, so that its owner must open the device again.
    ///
    /// The specification doesn't say. Drivers report a lost device by these codes: not available, invalid context, invalid queue; NVIDIA's
    /// −9999 is an illegal access in a kernel, after which it answers −36 to everything.
    #[must_use]
    pub fn is_sticky(&self) -> bool {
        match self {
            Self::Call { function, code } => {
                matches!(code, -2 | -14 | -34 | -36 | -9999)
                    // Out of resources: for a launch it may mean too large a work group, while waiting that a kernel died.
                    || *code == -5 && matches!(*function, "clFinish" | "clEnqueueReadBuffer")
            }
            _ => false,
        }
    }

    /// The error as the contract has it.
    #[must_use]
    pub fn into_backend(self, what: &'static str, available: u64) -> BackendError {
        match self {
            Self::OutOfMemory { wanted, .. } => BackendError::DeviceMemory { what, requested: wanted, available },
            Self::DoesNotFit { what, need, have } => {
                BackendError::DeviceMemory { what, requested: need, available: have }
            }
            Self::HostMemory(error) => BackendError::HostMemory(error),
            Self::Cancelled => BackendError::Cancelled,
            Self::Unusable(reason) => BackendError::Unsupported(reason),
            other => BackendError::device(what, other),
        }
    }
}

impl fmt::Display for OpenClError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOpenCl { reason } => write!(f, "no OpenCL here: {reason}"),
            Self::NoDevice { wanted, present } => {
                write!(f, "no OpenCL device {wanted}: {present} devices are there, listed by `splitprover backends`")
            }
            Self::Unfit { device, reason } => write!(f, "{device} can't be used: {reason}"),
            Self::Build { program, log } => write!(f, "the device's compiler refused program {program}: {log}"),
            Self::SelfTest { device, case } => write!(
                f,
                "{device} computes wrongly and is not used: {case} differs from the CPU's result (a fault of its compiler or driver)"
            ),
            Self::OutOfMemory { wanted, held, limit } if *limit != u64::MAX => {
                write!(f, "out of device memory: {wanted} bytes wanted, {held} held, limit {limit}")
            }
            Self::OutOfMemory { wanted, held, .. } => {
                write!(f, "out of device memory: {wanted} bytes wanted, {held} held")
            }
            Self::HostMemory(error) => error.fmt(f),
            Self::Call { function, code } => {
                write!(f, "{function} failed with error {code} ({})", opencl3::error_codes::error_text(*code))
            }
            Self::DoesNotFit { what, need, have } => {
                write!(f, "{what} needs at least {need} bytes of device memory and {have} are available")
            }
            Self::Unusable(reason) => f.write_str(reason),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for OpenClError {}

impl From<OutOfHostMemory> for OpenClError {
    fn from(error: OutOfHostMemory) -> Self {
        Self::HostMemory(error)
    }
}
