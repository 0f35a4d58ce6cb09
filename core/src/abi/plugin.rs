//! A plug-in's side in Rust: what an author implements, and the macro that exports it.
//!
//! ```
//! use splitprover_core::abi::{BackendPlugin, DeviceInfo, Host, Options};
//! # use splitprover_core::*;
//! # use std::sync::Arc;
//! # pub struct MyProver;
//! # pub struct MyPending;
//! # impl PendingSums for MyPending {
//! #     fn finish(self) -> Result<QuerySums, BackendError> { Err(BackendError::Cancelled) }
//! # }
//! # impl SplitProver for MyProver {
//! #     type Key = Arc<ProvingKey>;
//! #     type Pending = MyPending;
//! #     fn load_key(&self, key: &Arc<ProvingKey>) -> Result<Self::Key, BackendError> { Ok(key.clone()) }
//! #     fn start<'i>(&self, _: &Self::Key, _: LentInputs<'i>) -> Result<MyPending, BackendError> { Ok(MyPending) }
//! #     fn retained_host_bytes(&self, _: &CircuitShape) -> u64 { 0 }
//! # }
//! struct MyPlugin;
//!
//! impl BackendPlugin for MyPlugin {
//!     const NAME: &'static str = "mine";
//!     const VENDOR: &'static str = "me";
//!     const VERSION: &'static str = "0.1.0";
//!     type Prover = MyProver;
//!
//!     fn devices(_host: &Host) -> Result<Vec<DeviceInfo>, BackendError> {
//!         Ok(vec![DeviceInfo::new("my card", "gpu")])
//!     }
//!
//!     fn open(_device: usize, options: &Options, _host: Host) -> Result<MyProver, BackendError> {
//!         options.only(&["threads"])?;
//!         Ok(MyProver)
//!     }
//! }
//!
//! splitprover_core::export_backend!(MyPlugin);
//! # fn main() {}
//! ```

use std::ffi::c_void;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use blstrs::{G1Affine, G2Affine, Scalar};

use super::backend::DeviceInfo;
use super::error::class_number;
use super::host::LogLevel;
use super::types::*;
use super::{copy_sized, text};
use crate::error::BackendError;
use crate::host_buf::{ForeignMemory, HostMemory};
use crate::memory::{MemoryClass, MemoryLedger, Upstream};
use crate::prover::SplitProver;

/// A backend as a plug-in: names, devices, and how to open one.
pub trait BackendPlugin: 'static {
    /// Short name, as users type it after `--backend`.
    const NAME: &'static str;
    /// Who makes it.
    const VENDOR: &'static str;
    /// Its version.
    const VERSION: &'static str;
    /// Whatever tells two builds apart: a commit, a kernel hash.
    const BUILD: &'static str = "";

    /// The backend.
    type Prover: SplitProver;

    /// Lists the devices, in the order in which [`open`](Self::open) counts. No device is an empty list.
    ///
    /// # Errors
    /// [`BackendError`], if a vendor library is missing: probe for it before you touch its binding.
    fn devices(host: &Host) -> Result<Vec<DeviceInfo>, BackendError>;

    /// Opens device number `device`.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] for an option that isn't known ([`Options::only`] sees to that) or has no such value, and
    /// whatever else is in the way.
    fn open(device: usize, options: &Options, host: Host) -> Result<Self::Prover, BackendError>;

    /// Extension: host buffers that the device reads fastest.
    fn pinned(_prover: &Self::Prover) -> Option<&dyn PinnedAllocator> {
        None
    }

    /// Extension: fixed-base multiplication on the device.
    fn fixed_base(_prover: &Self::Prover) -> Option<&dyn FixedBase> {
        None
    }

    /// Extension: figures that the instance keeps about itself.
    fn statistics(_prover: &Self::Prover) -> Vec<Statistic> {
        Vec::new()
    }

    /// Extension: kernels compiled ahead of time, without a device.
    fn kernels() -> Option<&'static dyn KernelBuilder> {
        None
    }
}

/// Compiles a backend's kernels ahead of time.
pub trait KernelBuilder {
    /// Compiles all kernels for the architecture `arch`, as the vendor names it, into the kernel cache in `folder`; `report`
    /// takes a line for each thing that was built.
    ///
    /// # Errors
    /// [`BackendError`]: no compiler, an architecture it doesn't know, a folder that can't be written.
    fn build(&self, arch: &str, folder: &Path, report: &mut dyn FnMut(&str)) -> Result<(), BackendError>;
}

/// Makes pinned buffers.
pub trait PinnedAllocator {
    /// A buffer of at least `bytes`, initialised. Its [`pool`](ForeignMemory::pool) is what
    /// [`Lent::origin`](crate::Lent::origin) says later, when the buffer comes back as an input.
    ///
    /// # Errors
    /// [`BackendError`] if there is no memory.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn ForeignMemory>, BackendError>;
}

/// Multiplies one base by many scalars, for key generation.
pub trait FixedBase {
    /// `out` takes one record of 96 bytes for each scalar.
    ///
    /// # Errors
    /// [`BackendError`].
    fn g1(&self, base: &G1Affine, scalars: &[Scalar], out: &mut [u8]) -> Result<(), BackendError>;

    /// `out` takes one record of 192 bytes for each scalar.
    ///
    /// # Errors
    /// [`BackendError`].
    fn g2(&self, base: &G2Affine, scalars: &[Scalar], out: &mut [u8]) -> Result<(), BackendError>;
}

/// One figure of an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistic {
    /// What it is; ends in its unit.
    pub name: String,
    /// How much.
    pub value: f64,
}

/// The options that a device is opened with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    values: Vec<(String, String)>,
}

impl Options {
    /// Options from names and values; of two with one name, the last counts.
    pub fn new(values: Vec<(String, String)>) -> Self {
        Self { values }
    }

    /// The value of an option, as text.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of an option that is a number, or a size in bytes.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] if it isn't a decimal number.
    pub fn number(&self, name: &str) -> Result<Option<u64>, BackendError> {
        self.get(name)
            .map(|value| {
                value.parse().map_err(|_| BackendError::Unsupported(format!("option {name}: {value:?} is no number")))
            })
            .transpose()
    }

    /// Refuses options of other names: a misspelt option must not be silently without effect.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] names the first one.
    pub fn only(&self, known: &[&str]) -> Result<(), BackendError> {
        match self.values.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => Err(BackendError::Unsupported(format!("option {name} (known: {})", known.join(", ")))),
        }
    }
}

/// What the host offers: a log, an account for host memory, a share of the processor.
///
/// Clones are the same host. After the instance is closed, the log is silent and the account takes nothing.
#[derive(Clone)]
pub struct Host {
    callbacks: Arc<Callbacks>,
    memory: HostMemory,
    threads: usize,
}

struct Callbacks {
    ctx: *mut c_void,
    log: Option<unsafe extern "C" fn(*mut c_void, u32, SpStr, SpStr)>,
    account: Option<unsafe extern "C" fn(*mut c_void, u32, i64) -> SpStatus>,
    /// Whether the host still listens. Held for reading during a callback, so that the end waits for callbacks.
    open: RwLock<bool>,
}

// SAFETY: the ABI allows the callbacks from any thread while the instance is open.
unsafe impl Send for Callbacks {}
// SAFETY: as above.
unsafe impl Sync for Callbacks {}

impl Callbacks {
    fn while_open<T>(&self, closed: T, body: impl FnOnce() -> T) -> T {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        if *open { body() } else { closed }
    }

    fn account(&self, class: MemoryClass, delta: i64) -> SpStatus {
        let Some(account) = self.account else { return SP_OK };
        // SAFETY: the host is open, so `ctx` is good.
        self.while_open(SP_OK, || unsafe { account(self.ctx, class_number(class), delta) })
    }
}

impl Upstream for Callbacks {
    fn charge(&self, class: MemoryClass, bytes: u64) -> Result<(), String> {
        let delta = i64::try_from(bytes).map_err(|_| "more bytes than there are".to_owned())?;
        if self.account(class, delta) == SP_OK { Ok(()) } else { Err("the host refused".into()) }
    }

    fn give_back(&self, class: MemoryClass, bytes: u64) {
        // What was charged fitted.
        let _ = self.account(class, -(bytes as i64));
    }
}

impl Host {
    /// # Safety
    /// `host` is null or a host's table that stays valid until [`close`](Self::close) is called.
    pub(super) unsafe fn new(host: *const SpHost, threads: u32) -> Self {
        // SAFETY: a struct with its size, by the caller's promise.
        let table = unsafe { copy_sized(host, 24) };
        let callbacks = Arc::new(Callbacks {
            ctx: table.map_or(std::ptr::null_mut(), |t| t.ctx),
            log: table.and_then(|t| t.log),
            account: table.and_then(|t| t.account),
            open: RwLock::new(true),
        });
        let threads = match threads as usize {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let memory = HostMemory::new(MemoryLedger::forwarding(callbacks.clone()));
        Self { callbacks, memory, threads }
    }

    /// Waits for callbacks under way; later ones don't reach the host.
    pub(super) fn close(&self) {
        *self.callbacks.open.write().unwrap_or_else(PoisonError::into_inner) = false;
    }

    /// Sends a line to the host's log. `target` is the part of the backend that speaks.
    pub fn log(&self, level: LogLevel, target: &str, message: &str) {
        if let Some(log) = self.callbacks.log {
            // SAFETY: the host is open, so `ctx` is good, and the strings live during the call.
            self.callbacks.while_open((), || unsafe {
                log(self.callbacks.ctx, level.number(), SpStr::new(target), SpStr::new(message));
            });
        }
    }

    /// Host memory on the host's account: what is made here is counted, and may be refused. Use it for everything that grows
    /// with the circuit.
    pub fn memory(&self) -> &HostMemory {
        &self.memory
    }

    /// How many threads the instance may keep busy.
    pub fn threads(&self) -> usize {
        self.threads
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Host({} threads)", self.threads)
    }
}

/// # Safety
/// `args` is what a host passed to `open`.
pub(super) unsafe fn open_arguments(args: *const SpOpen) -> Option<(usize, Options, Host)> {
    // SAFETY: by the caller's promise, here and below.
    let args = unsafe { copy_sized(args, size_of::<SpOpen>()) }?;
    // SAFETY: as above.
    let options = unsafe { super::slice(args.options, args.num_options) }?;
    // SAFETY: as above.
    let values = options.iter().map(|o| unsafe { (text(o.key), text(o.value)) }).collect();
    // SAFETY: the host's table is valid until `close` returns, and the close entry closes the `Host` first.
    let host = unsafe { Host::new(args.host, args.threads) };
    Some((args.device as usize, Options::new(values), host))
}

/// Exports a [`BackendPlugin`] from a `cdylib`: emits the symbol `sp_negotiate`.
///
/// The crate must unwind on panic, because a panic has to become an error and not the end of the host: this refuses to compile
/// under `panic = "abort"`. Emit it once in a library; a library that other crates link in should leave it to a `cdylib` of its own.
#[macro_export]
macro_rules! export_backend {
    ($plugin:ty) => {
        #[cfg(panic = "abort")]
        ::core::compile_error!("a splitprover backend must be built with panic = \"unwind\"");

        /// Hands out the backend's table.
        ///
        /// # Safety
        /// The arguments are as the ABI says: `host` is null or a host's table, `out` points to a writable pointer.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn sp_negotiate(
            min: u32,
            max: u32,
            host: *const $crate::abi::SpHost,
            out: *mut *const $crate::abi::SpBackendTable,
        ) -> $crate::abi::SpStatus {
            // SAFETY: the caller's promise is the callee's condition.
            unsafe { $crate::abi::negotiate::<$plugin>(min, max, host, out) }
        }
    };
}
