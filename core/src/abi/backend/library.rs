//! A backend's table, checked, and what can be asked before a device is open.

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::error::check;
use super::super::host::{HostContext, LogSink};
use super::super::plugin::BackendPlugin;
use super::super::types::*;
use super::super::{copy_sized, quietly, shims, text};
use super::{Backend, Instance};
use crate::error::BackendError;
use crate::memory::MemoryLedger;

/// Why a plug-in's table isn't used. Each names both sides.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NegotiationError {
    /// No common version.
    #[error("the plug-in speaks ABI {theirs}, this host {}", version_text(SP_ABI_VERSION))]
    Version {
        /// The plug-in's highest version, or "another version" if it doesn't say.
        theirs: String,
    },
    /// `sp_negotiate` failed.
    #[error("sp_negotiate returned status {0}")]
    Refused(SpStatus),
    /// `sp_negotiate` succeeded without a table.
    #[error("sp_negotiate gave no table")]
    NoTable,
    /// The table is shorter than its version's.
    #[error("the table has {found} bytes, ABI {} has {expected}", version_text(SP_ABI_VERSION_MIN))]
    ShortTable {
        /// Its `struct_size`.
        found: u64,
        /// The least size.
        expected: u64,
    },
    /// Another curve or layout.
    #[error("{what}: the plug-in has {theirs:?}, this host {ours:?}")]
    Layout {
        /// "curve", "scalar layout" or "point layout".
        what: &'static str,
        /// What the table says.
        theirs: String,
        /// What this side has.
        ours: &'static str,
    },
    /// A required entry is null.
    #[error("the table has no entry {0}")]
    MissingEntry(&'static str),
}

fn version_text(version: u32) -> String {
    format!("{}.{}", version >> 16, version & 0xffff)
}

/// What a backend says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendInfo {
    /// Short name.
    pub name: String,
    /// Who makes it.
    pub vendor: String,
    /// Its version.
    pub version: String,
    /// What tells builds apart; may be empty.
    pub build: String,
    /// The ABI version in use, "0.1".
    pub abi: String,
}

/// A device, as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// What users know it by.
    pub name: String,
    /// "cpu", "cuda", …
    pub kind: String,
    /// Version of its driver; may be empty.
    pub driver: String,
    /// Memory in bytes; 0: not known.
    pub memory_bytes: u64,
    /// Memory that is free now; 0: not known.
    pub free_bytes: u64,
}

impl DeviceInfo {
    /// A device of which no more is known.
    pub fn new(name: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { name: name.into(), kind: kind.into(), driver: String::new(), memory_bytes: 0, free_bytes: 0 }
    }
}

/// How to open a device.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    device: u32,
    threads: u32,
    values: Vec<(String, String)>,
    ledger: MemoryLedger,
    log: LogSink,
}

impl OpenOptions {
    /// Device number `device`, all cores, no options, a ledger of its own, no log.
    pub fn new(device: usize) -> Self {
        Self { device: u32::try_from(device).unwrap_or(u32::MAX), ..Self::default() }
    }

    /// The number of the device.
    pub fn device(&self) -> usize {
        self.device as usize
    }

    /// How many threads the instance may keep busy; 0: as many as there are cores.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = u32::try_from(threads).unwrap_or(u32::MAX);
        self
    }

    /// An option of the backend's own, as text.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.values.push((name.into(), value.into()));
        self
    }

    /// Where the backend's host memory is counted, and may be refused.
    #[must_use]
    pub fn ledger(mut self, ledger: MemoryLedger) -> Self {
        self.ledger = ledger;
        self
    }

    /// Where its log lines go.
    #[must_use]
    pub fn log(mut self, log: LogSink) -> Self {
        self.log = log;
        self
    }
}

/// A backend's table, checked: what can be asked before a device is open. Clones are the same library.
#[derive(Clone)]
pub struct BackendLibrary(pub(super) Arc<Library>);

pub(super) struct Library {
    pub(super) table: Table,
    negotiate: SpNegotiate,
    pub(super) info: BackendInfo,
    /// Pools of pinned memory: number on this side, number on the plug-in's.
    pub(super) pools: Mutex<Vec<(u64, u64)>>,
}

/// A plug-in's table, with its required entries unwrapped.
pub(super) struct Table {
    pub(super) raw: SpBackendTable,
    pub(super) devices:
        unsafe extern "C" fn(*const SpHost, SpDeviceVisitor, *mut c_void, *mut *mut SpError) -> SpStatus,
    pub(super) open: unsafe extern "C" fn(*const SpOpen, *mut *mut SpInstance, *mut *mut SpError) -> SpStatus,
    pub(super) close: unsafe extern "C" fn(*mut SpInstance, *mut *mut SpError) -> SpStatus,
    pub(super) load_key:
        unsafe extern "C" fn(*mut SpInstance, *const SpKey, *mut *mut SpLoadedKey, *mut *mut SpError) -> SpStatus,
    pub(super) unload_key: unsafe extern "C" fn(*mut SpLoadedKey, *mut *mut SpError) -> SpStatus,
    pub(super) start: unsafe extern "C" fn(
        *mut SpInstance,
        *mut SpLoadedKey,
        *const SpInputs,
        *mut *mut SpPending,
        *mut *mut SpError,
    ) -> SpStatus,
    pub(super) finish: unsafe extern "C" fn(*mut SpPending, *mut SpSums, *mut *mut SpError) -> SpStatus,
    pub(super) drop_pending: unsafe extern "C" fn(*mut SpPending, *mut *mut SpError) -> SpStatus,
}

// SAFETY: a copy of static data whose entries may be called from any thread.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl BackendLibrary {
    /// A backend that is linked in. It goes through the same table as a loaded one.
    pub fn in_process<P: BackendPlugin>() -> Self {
        // SAFETY: this crate's own entry point, table and entries.
        unsafe { Self::negotiate(shims::negotiate::<P>) }.expect("this crate's own table is complete")
    }

    /// Asks a plug-in for its table, and checks it.
    ///
    /// # Errors
    /// [`NegotiationError`] names what doesn't fit.
    ///
    /// # Safety
    /// `negotiate` is the `sp_negotiate` of a library that keeps the rules of this ABI and stays loaded for ever.
    pub unsafe fn negotiate(negotiate: SpNegotiate) -> Result<Self, NegotiationError> {
        let host = HostContext::new(LogSink::default(), MemoryLedger::default());
        let mut raw: *const SpBackendTable = std::ptr::null();
        // SAFETY: `raw` is writable, the host's table lives during the call.
        let status = unsafe { negotiate(SP_ABI_VERSION_MIN, SP_ABI_VERSION, host.table(), &mut raw) };
        if status == SP_ERR_VERSION {
            // SAFETY: if there is a table, its first 16 bytes are size and version in every version.
            let theirs = unsafe { copy_sized(raw, 16) };
            let theirs = theirs.map_or_else(|| "another version".to_owned(), |t| version_text(t.abi_version));
            return Err(NegotiationError::Version { theirs });
        }
        if status != SP_OK {
            return Err(NegotiationError::Refused(status));
        }
        // SAFETY: by the caller's promise a static table.
        unsafe { Self::from_table(raw, negotiate) }
    }

    /// # Safety
    /// `raw` is null or a static table that begins with its size, whose entries keep the rules.
    unsafe fn from_table(raw: *const SpBackendTable, negotiate: SpNegotiate) -> Result<Self, NegotiationError> {
        if raw.is_null() {
            return Err(NegotiationError::NoTable);
        }
        let expected = size_of::<SpBackendTable>();
        // SAFETY: by the caller's promise; never a reference to the plug-in's struct, only a copy of what both know.
        let Some(raw) = (unsafe { copy_sized(raw, expected) }) else {
            // SAFETY: not null, so eight bytes of size.
            let found = unsafe { raw.cast::<u64>().read() };
            return Err(NegotiationError::ShortTable { found, expected: expected as u64 });
        };
        if raw.abi_version < SP_ABI_VERSION_MIN {
            return Err(NegotiationError::Version { theirs: version_text(raw.abi_version) });
        }
        for (what, theirs, ours) in [
            ("curve", raw.curve, SP_CURVE),
            ("scalar layout", raw.scalar_layout, SP_SCALAR_LAYOUT),
            ("point layout", raw.point_layout, SP_POINT_LAYOUT),
        ] {
            // SAFETY: static strings of the plug-in.
            let theirs = unsafe { text(theirs) };
            if theirs != ours {
                return Err(NegotiationError::Layout { what, theirs, ours });
            }
        }
        let missing = NegotiationError::MissingEntry;
        let table = Table {
            devices: raw.devices.ok_or(missing("devices"))?,
            open: raw.open.ok_or(missing("open"))?,
            close: raw.close.ok_or(missing("close"))?,
            load_key: raw.load_key.ok_or(missing("load_key"))?,
            unload_key: raw.unload_key.ok_or(missing("unload_key"))?,
            start: raw.start.ok_or(missing("start"))?,
            finish: raw.finish.ok_or(missing("finish"))?,
            drop_pending: raw.drop_pending.ok_or(missing("drop_pending"))?,
            raw,
        };
        // SAFETY: static strings of the plug-in.
        let info = unsafe {
            BackendInfo {
                name: text(raw.name),
                vendor: text(raw.vendor),
                version: text(raw.version),
                build: text(raw.build),
                abi: version_text(raw.abi_version.min(SP_ABI_VERSION)),
            }
        };
        Ok(Self(Arc::new(Library { table, negotiate, info, pools: Mutex::default() })))
    }

    /// The plug-in's `sp_negotiate`, for whoever wants its table as it is: the conformance suite does.
    pub fn entry_point(&self) -> SpNegotiate {
        self.0.negotiate
    }

    /// What the backend says of itself.
    pub fn info(&self) -> &BackendInfo {
        &self.0.info
    }

    /// The devices, in the order in which [`OpenOptions::new`] counts.
    ///
    /// # Errors
    /// What the backend says: a missing vendor library, for instance.
    pub fn devices(&self, log: LogSink) -> Result<Vec<DeviceInfo>, BackendError> {
        /// # Safety
        /// `ctx` is the vector below, `device` null or a device as the ABI describes it.
        unsafe extern "C" fn visit(ctx: *mut c_void, device: *const SpDevice) {
            quietly((), || {
                // SAFETY: by the caller's promise.
                let (devices, device) =
                    unsafe { (ctx.cast::<Mutex<Vec<DeviceInfo>>>().as_ref(), copy_sized(device, 8)) };
                let (Some(devices), Some(device)) = (devices, device) else { return };
                // SAFETY: strings that live during the call.
                let info = unsafe {
                    DeviceInfo {
                        name: text(device.name),
                        kind: text(device.kind),
                        driver: text(device.driver),
                        memory_bytes: device.memory_bytes,
                        free_bytes: device.free_bytes,
                    }
                };
                devices.lock().unwrap_or_else(PoisonError::into_inner).push(info);
            });
        }
        let host = HostContext::new(log, MemoryLedger::default());
        let devices: Mutex<Vec<DeviceInfo>> = Mutex::default();
        self.0.call(|error| {
            let ctx = std::ptr::from_ref(&devices).cast_mut().cast();
            // SAFETY: host table and vector live during the call.
            unsafe { (self.0.table.devices)(host.table(), Some(visit), ctx, error) }
        })?;
        Ok(devices.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens a device.
    ///
    /// # Errors
    /// What the backend says.
    pub fn open(&self, options: &OpenOptions) -> Result<Backend, BackendError> {
        let host = HostContext::new(options.log.clone(), options.ledger.clone());
        let values: Vec<_> = options
            .values
            .iter()
            .map(|(key, value)| SpOption { key: SpStr::new(key), value: SpStr::new(value) })
            .collect();
        let args = SpOpen {
            struct_size: size_of::<SpOpen>() as u64,
            host: host.table(),
            device: options.device,
            threads: options.threads,
            options: values.as_ptr(),
            num_options: values.len() as u64,
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: arguments and options live during the call, the host's table until `close` has returned (see `Instance`).
        self.0.call(|error| unsafe { (self.0.table.open)(&args, &mut handle, error) })?;
        let handle = NonNull::new(handle).ok_or_else(|| broken("open succeeded without an instance"))?;
        Ok(Backend(Arc::new(Instance { handle, library: self.0.clone(), host })))
    }
}

impl fmt::Debug for BackendLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackendLibrary({} {})", self.0.info.name, self.0.info.version)
    }
}

pub(super) fn broken(what: &str) -> BackendError {
    BackendError::device("the plug-in breaks the ABI", what)
}

impl Library {
    /// Calls an entry with a place for its error.
    pub(super) fn call(&self, entry: impl FnOnce(*mut *mut SpError) -> SpStatus) -> Result<(), BackendError> {
        let mut error = std::ptr::null_mut();
        let status = entry(&mut error);
        // SAFETY: the handle, if any, is what this plug-in has just stored.
        unsafe { check(&self.table.raw, status, error) }
    }

    /// An extension's table, or `None`.
    ///
    /// # Safety
    /// `T` is the `#[repr(C)]` struct that belongs to the name.
    pub(super) unsafe fn extension<T: Copy>(&self, name: &str) -> Option<T> {
        let lookup = self.table.raw.extension?;
        // SAFETY: the string lives during the call; what comes back is null or a static table that begins with its size.
        unsafe { copy_sized(lookup(SpStr::new(name)).cast::<T>(), 16) }
    }

    /// This side's number for a pool of the plug-in's.
    pub(super) fn pool(&self, theirs: u64) -> u64 {
        // Numbers of pools that backends give themselves are small.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&(ours, _)) = pools.iter().find(|pool| pool.1 == theirs) {
            return ours;
        }
        let ours = NEXT.fetch_add(1, Ordering::Relaxed);
        pools.push((ours, theirs));
        ours
    }
}
