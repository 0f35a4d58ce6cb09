//! What can go wrong between this backend and the card, one variant per thing a user would do differently.

use std::fmt;
use std::path::PathBuf;

/// A CUDA failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CudaError {
    /// No driver library could be loaded: no NVIDIA driver on this machine, or not on the loader's path.
    NoDriver {
        /// The loader's own words.
        reason: String,
    },
    /// The driver library is there and refuses to start: a stub for linking, or a driver without its kernel module.
    DriverUnusable {
        /// The driver's code.
        code: u32,
        /// Its name and explanation.
        reason: String,
    },
    /// The driver is older than this backend's kernels need.
    OldDriver {
        /// Version reported, as 1000 x major + 10 x minor.
        have: i32,
        /// Version wanted, likewise.
        need: i32,
    },
    /// The driver works and there is no such device.
    NoDevice {
        /// The index asked for.
        wanted: u32,
        /// How many there are.
        present: u32,
    },
    /// The card's compute capability is under what the kernels need.
    OldCard {
        /// The card's name.
        name: String,
        /// Its compute capability, as 10 x major + minor.
        have: u32,
        /// The least this backend takes, likewise.
        need: u32,
    },
    /// A kernel had to be compiled and the run-time compiler isn't there.
    NoCompiler {
        /// The kernel family wanted.
        family: &'static str,
        /// The architecture wanted.
        arch: String,
        /// The loader's own words.
        reason: String,
    },
    /// The run-time compiler refused a kernel.
    Compile {
        /// The kernel family.
        family: &'static str,
        /// The architecture.
        arch: String,
        /// The compiler's log.
        log: String,
    },
    /// The kernel cache can't be used.
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// Device memory ran out, or the limit set for it did.
    OutOfMemory {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes this context held at that moment.
        held: u64,
        /// The limit set; `u64::MAX` when none is.
        limit: u64,
    },
    /// Page-locked host memory ran out.
    OutOfPinnedMemory {
        /// Bytes asked for.
        wanted: u64,
    },
    /// Host memory could not be had, or the account refused it.
    HostMemory(splitprover_core::memory::OutOfHostMemory),
    /// Any other failing driver call.
    Driver {
        /// The driver function.
        call: &'static str,
        /// Its status.
        code: u32,
        /// The status in words.
        reason: String,
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
    Unusable(&'static str),
    /// The work was cancelled.
    Cancelled,
    /// An earlier failure left the context in an unknown state; it must be opened again.
    Poisoned,
}

impl CudaError {
    /// Whether the context is unusable after this error, so that its owner must open another.
    #[must_use]
    pub fn is_sticky(&self) -> bool {
        match self {
            Self::Poisoned => true,
            // Illegal address, launch timeout, hardware stack error, illegal instruction, misaligned address, invalid address space,
            // invalid program counter, launch failure, lost or unavailable device, uncorrectable ECC: the driver documents that the
            // context can't be used afterwards.
            Self::Driver { code, .. } => {
                matches!(code, 46 | 201 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 999)
            }
            _ => false,
        }
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver { reason } => write!(f, "no CUDA driver: {reason}"),
            Self::DriverUnusable { code, reason } => {
                write!(
                    f,
                    "the CUDA driver library doesn't start (error {code}, {reason}): is it a stub, or is its kernel module missing?"
                )
            }
            Self::OldDriver { have, need } => write!(
                f,
                "the CUDA driver supports CUDA {}.{} and these kernels need {}.{}",
                have / 1000,
                have % 1000 / 10,
                need / 1000,
                need % 1000 / 10
            ),
            Self::NoDevice { wanted, present } => write!(f, "no CUDA device {wanted}: the driver sees {present}"),
            Self::OldCard { name, have, need } => write!(
                f,
                "{name} has compute capability {}.{}; at least {}.{} is needed",
                have / 10,
                have % 10,
                need / 10,
                need % 10
            ),
            Self::NoCompiler { family, arch, reason } => write!(
                f,
                "kernel family {family} isn't in the cache for {arch} and NVRTC can't be loaded to build it: {reason}"
            ),
            Self::Compile { family, arch, log } => write!(f, "NVRTC refused kernel family {family} for {arch}: {log}"),
            Self::Cache { path, reason } => write!(f, "kernel cache {}: {reason}", path.display()),
            Self::OutOfMemory { wanted, held, limit } if *limit != u64::MAX => {
                write!(f, "out of device memory: {wanted} bytes wanted, {held} held, limit {limit}")
            }
            Self::OutOfMemory { wanted, held, .. } => {
                write!(f, "out of device memory: {wanted} bytes wanted, {held} held")
            }
            Self::OutOfPinnedMemory { wanted } => write!(f, "out of page-locked host memory: {wanted} bytes wanted"),
            Self::HostMemory(error) => error.fmt(f),
            Self::Driver { call, code, reason } => write!(f, "{call} failed with error {code}: {reason}"),
            Self::DoesNotFit { what, need, have } => {
                write!(f, "{what} needs at least {need} bytes of device memory and {have} are available")
            }
            Self::Unusable(reason) => f.write_str(reason),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Poisoned => f.write_str("the CUDA context was lost in an earlier failure; open the device again"),
        }
    }
}

impl std::error::Error for CudaError {}

impl From<splitprover_core::memory::OutOfHostMemory> for CudaError {
    fn from(error: splitprover_core::memory::OutOfHostMemory) -> Self {
        Self::HostMemory(error)
    }
}

/// What the system's loader said; the error itself only says which step failed.
pub(crate) fn loader_words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
