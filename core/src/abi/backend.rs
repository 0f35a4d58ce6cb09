//! A host's side: one type for every backend, whether it was linked in or loaded.

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use blstrs::{G1Affine, G2Affine, Scalar};

use super::error::check;
use super::extensions::*;
use super::host::{HostContext, LogLevel, LogSink};
use super::key::KeyOwner;
use super::lend::Loan;
use super::plugin::{BackendPlugin, Statistic};
use super::types::*;
use super::{copy_sized, quietly, text};
use crate::error::BackendError;
use crate::host_buf::ForeignMemory;
use crate::inputs::LentInputs;
use crate::key::{CircuitShape, ProvingKey};
use crate::memory::{MemoryClass, MemoryLedger};
use crate::point::PointRecord;
use crate::proof::QuerySums;
use crate::prover::{PendingSums, SplitProver};

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
pub struct BackendLibrary(Arc<Library>);

struct Library {
    table: Table,
    info: BackendInfo,
    /// Pools of pinned memory: number on this side, number on the plug-in's.
    pools: Mutex<Vec<(u64, u64)>>,
}

/// A plug-in's table, with its required entries unwrapped.
struct Table {
    raw: SpBackendTable,
    devices: unsafe extern "C" fn(*const SpHost, SpDeviceVisitor, *mut c_void, *mut *mut SpError) -> SpStatus,
    open: unsafe extern "C" fn(*const SpOpen, *mut *mut SpInstance, *mut *mut SpError) -> SpStatus,
    close: unsafe extern "C" fn(*mut SpInstance, *mut *mut SpError) -> SpStatus,
    load_key: unsafe extern "C" fn(*mut SpInstance, *const SpKey, *mut *mut SpLoadedKey, *mut *mut SpError) -> SpStatus,
    unload_key: unsafe extern "C" fn(*mut SpLoadedKey, *mut *mut SpError) -> SpStatus,
    start: unsafe extern "C" fn(
        *mut SpInstance,
        *mut SpLoadedKey,
        *const SpInputs,
        *mut *mut SpPending,
        *mut *mut SpError,
    ) -> SpStatus,
    finish: unsafe extern "C" fn(*mut SpPending, *mut SpSums, *mut *mut SpError) -> SpStatus,
    drop_pending: unsafe extern "C" fn(*mut SpPending, *mut *mut SpError) -> SpStatus,
}

// SAFETY: a copy of static data whose entries may be called from any thread.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl BackendLibrary {
    /// A backend that is linked in. It goes through the same table as a loaded one.
    pub fn in_process<P: BackendPlugin>() -> Self {
        // SAFETY: this crate's own table and entries.
        unsafe { Self::from_table(super::table::<P>()) }.expect("this crate's own table is complete")
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
        unsafe { Self::from_table(raw) }
    }

    /// # Safety
    /// `raw` is null or a static table that begins with its size, whose entries keep the rules.
    unsafe fn from_table(raw: *const SpBackendTable) -> Result<Self, NegotiationError> {
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
        Ok(Self(Arc::new(Library { table, info, pools: Mutex::default() })))
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

fn broken(what: &str) -> BackendError {
    BackendError::device("the plug-in breaks the ABI", what)
}

impl Library {
    /// Calls an entry with a place for its error.
    fn call(&self, entry: impl FnOnce(*mut *mut SpError) -> SpStatus) -> Result<(), BackendError> {
        let mut error = std::ptr::null_mut();
        let status = entry(&mut error);
        // SAFETY: the handle, if any, is what this plug-in has just stored.
        unsafe { check(&self.table.raw, status, error) }
    }

    /// An extension's table, or `None`.
    ///
    /// # Safety
    /// `T` is the `#[repr(C)]` struct that belongs to the name.
    unsafe fn extension<T: Copy>(&self, name: &str) -> Option<T> {
        let lookup = self.table.raw.extension?;
        // SAFETY: the string lives during the call; what comes back is null or a static table that begins with its size.
        unsafe { copy_sized(lookup(SpStr::new(name)).cast::<T>(), 16) }
    }

    /// This side's number for a pool of the plug-in's.
    fn pool(&self, theirs: u64) -> u64 {
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

/// A backend instance on one device: a [`SplitProver`] over the table. Clones are the same instance, which is closed with the
/// last of its clones, keys, pending proofs and pinned buffers.
#[derive(Clone)]
pub struct Backend(Arc<Instance>);

struct Instance {
    handle: NonNull<SpInstance>,
    library: Arc<Library>,
    host: Box<HostContext>,
}

// SAFETY: entries may be called from any thread at any time.
unsafe impl Send for Instance {}
// SAFETY: as above.
unsafe impl Sync for Instance {}

impl Instance {
    fn note(&self, what: &str, result: Result<(), BackendError>) {
        if let Err(error) = result {
            self.host.log().line(LogLevel::Error, &self.library.info.name, &format!("{what}: {error}"));
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the handle of `open`, ended once; keys, pending proofs and buffers hold the instance, so they are gone.
        let result = self.library.call(|error| unsafe { (self.library.table.close)(self.handle.as_ptr(), error) });
        self.note("close", result);
        for (class, bytes) in self.host.outstanding() {
            let message = format!("closed with {bytes} bytes of class {} on its account", class.name());
            self.host.log().line(LogLevel::Warn, &self.library.info.name, &message);
        }
    }
}

impl Backend {
    /// Opens a device of a backend that is linked in.
    ///
    /// # Errors
    /// What the backend says.
    pub fn in_process<P: BackendPlugin>(options: &OpenOptions) -> Result<Self, BackendError> {
        BackendLibrary::in_process::<P>().open(options)
    }

    /// What the backend says of itself.
    pub fn info(&self) -> &BackendInfo {
        &self.0.library.info
    }

    /// Host memory that the backend has on its account now, by class.
    pub fn accounted(&self) -> Vec<(MemoryClass, u64)> {
        self.0.host.outstanding()
    }

    /// A pinned buffer of at least `bytes`; `None` if the backend has none to offer. Give it to
    /// [`HostMemory::foreign`](crate::HostMemory::foreign).
    ///
    /// # Errors
    /// What the backend says.
    pub fn pinned(&self, bytes: usize) -> Option<Result<Box<dyn ForeignMemory>, BackendError>> {
        // SAFETY: the struct of that name.
        let table = unsafe { self.0.library.extension::<SpPinnedTable>(SP_EXT_PINNED) }?;
        let (allocate, free) = (table.allocate?, table.free?);
        let mut buffer = SpPinnedBuffer {
            struct_size: size_of::<SpPinnedBuffer>() as u64,
            handle: std::ptr::null_mut(),
            data: std::ptr::null_mut(),
            len: 0,
            pool: 0,
        };
        let handle = self.0.handle.as_ptr();
        // SAFETY: a live instance and a struct with its size.
        let result = self.0.library.call(|error| unsafe { allocate(handle, bytes as u64, &mut buffer, error) });
        if matches!(result, Err(BackendError::Unsupported(_))) {
            return None;
        }
        Some(result.and_then(|()| {
            let pinned = Pinned {
                handle: buffer.handle,
                free,
                data: NonNull::new(buffer.data).unwrap_or(NonNull::dangling()),
                len: usize::try_from(buffer.len).unwrap_or(0),
                pool: self.0.library.pool(buffer.pool),
                _instance: self.0.clone(),
            };
            if buffer.data.is_null() || !(buffer.data as usize).is_multiple_of(64) || pinned.len < bytes {
                return Err(broken("a pinned buffer that is null, misaligned or too short"));
            }
            Ok(Box::new(pinned) as Box<dyn ForeignMemory>)
        }))
    }

    /// Writes the record of `scalars[i]·base` for all i, in G1; `None` if the backend doesn't do it.
    ///
    /// # Errors
    /// What the backend says; after an error the records are undefined.
    ///
    /// # Panics
    /// If `records` hasn't 96 bytes for each scalar.
    pub fn fixed_base_g1(
        &self,
        base: &G1Affine,
        scalars: &[Scalar],
        records: &mut [u8],
    ) -> Option<Result<(), BackendError>> {
        // SAFETY: the struct of that name.
        let table = unsafe { self.0.library.extension::<SpFixedBaseTable>(SP_EXT_FIXED_BASE) }?;
        self.fixed_base(table.g1?, base, scalars, records)
    }

    /// Writes the record of `scalars[i]·base` for all i, in G2; `None` if the backend doesn't do it.
    ///
    /// # Errors
    /// What the backend says; after an error the records are undefined.
    ///
    /// # Panics
    /// If `records` hasn't 192 bytes for each scalar.
    pub fn fixed_base_g2(
        &self,
        base: &G2Affine,
        scalars: &[Scalar],
        records: &mut [u8],
    ) -> Option<Result<(), BackendError>> {
        // SAFETY: the struct of that name.
        let table = unsafe { self.0.library.extension::<SpFixedBaseTable>(SP_EXT_FIXED_BASE) }?;
        self.fixed_base(table.g2?, base, scalars, records)
    }

    fn fixed_base<C: PointRecord>(
        &self,
        entry: unsafe extern "C" fn(
            *mut SpInstance,
            *const u8,
            *const u64,
            u64,
            *mut u8,
            *mut *mut SpError,
        ) -> SpStatus,
        base: &C,
        scalars: &[Scalar],
        records: &mut [u8],
    ) -> Option<Result<(), BackendError>> {
        assert_eq!(records.len(), scalars.len() * C::BYTES, "a record for each scalar");
        let mut record = vec![0; C::BYTES];
        base.write_record(&mut record);
        let handle = self.0.handle.as_ptr();
        let (scalars, count) = (scalars.as_ptr().cast::<u64>(), scalars.len() as u64);
        // SAFETY: a live instance, a record, `count` scalars of four limbs, room for `count` records.
        let result = self
            .0
            .library
            .call(|error| unsafe { entry(handle, record.as_ptr(), scalars, count, records.as_mut_ptr(), error) });
        match result {
            Err(BackendError::Unsupported(_)) => None,
            result => Some(result),
        }
    }

    /// Figures that the instance keeps about itself.
    ///
    /// # Errors
    /// What the backend says.
    pub fn statistics(&self) -> Result<Vec<Statistic>, BackendError> {
        /// # Safety
        /// `ctx` is the vector below, the string readable.
        unsafe extern "C" fn visit(ctx: *mut c_void, name: SpStr, value: f64) {
            quietly((), || {
                // SAFETY: by the caller's promise.
                let (figures, name) = unsafe { (ctx.cast::<Mutex<Vec<Statistic>>>().as_ref(), text(name)) };
                if let Some(figures) = figures {
                    figures.lock().unwrap_or_else(PoisonError::into_inner).push(Statistic { name, value });
                }
            });
        }
        // SAFETY: the struct of that name.
        let table = unsafe { self.0.library.extension::<SpStatisticsTable>(SP_EXT_STATISTICS) };
        let Some(entry) = table.and_then(|t| t.visit) else { return Ok(Vec::new()) };
        let figures: Mutex<Vec<Statistic>> = Mutex::default();
        self.0.library.call(|error| {
            let ctx = std::ptr::from_ref(&figures).cast_mut().cast();
            // SAFETY: a live instance, and the vector lives during the call.
            unsafe { entry(self.0.handle.as_ptr(), Some(visit), ctx, error) }
        })?;
        Ok(figures.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backend({})", self.0.library.info.name)
    }
}

/// A pinned buffer of a backend.
struct Pinned {
    handle: *mut SpPinned,
    free: unsafe extern "C" fn(*mut SpPinned),
    data: NonNull<u8>,
    len: usize,
    pool: u64,
    _instance: Arc<Instance>,
}

// SAFETY: plain memory that this value alone has; `free` may be called from any thread.
unsafe impl Send for Pinned {}
// SAFETY: a shared reference gives no access but through the buffer that owns it.
unsafe impl Sync for Pinned {}

// SAFETY: the backend promises initialised memory of that length, the host's alone until `free`; address and alignment were
// checked in `Backend::pinned`.
unsafe impl ForeignMemory for Pinned {
    fn as_mut_ptr(&self) -> NonNull<u8> {
        self.data
    }

    fn len_bytes(&self) -> usize {
        self.len
    }

    fn pool(&self) -> u64 {
        self.pool
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the handle of `allocate`, freed once, with the instance still open.
        unsafe { (self.free)(self.handle) }
    }
}

/// A key that a [`Backend`] has loaded.
#[derive(Debug)]
pub struct BackendKey(Arc<Loaded>);

struct Loaded {
    handle: NonNull<SpLoadedKey>,
    instance: Arc<Instance>,
    /// What the plug-in's views point to.
    _views: Arc<KeyOwner>,
}

// SAFETY: entries may be called from any thread at any time.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a key loaded by {}", self.instance.library.info.name)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let library = &self.instance.library;
        // SAFETY: the handle of `load_key`, ended once; pending proofs hold the key, so they are gone.
        let result = library.call(|error| unsafe { (library.table.unload_key)(self.handle.as_ptr(), error) });
        self.instance.note("unload_key", result);
    }
}

/// A proof in flight on a [`Backend`].
#[derive(Debug)]
pub struct BackendPending {
    /// `None` once `finish` has ended it.
    handle: Option<NonNull<SpPending>>,
    key: Arc<Loaded>,
}

// SAFETY: `finish` and `drop_pending` may be called from any thread.
unsafe impl Send for BackendPending {}

impl SplitProver for Backend {
    type Key = BackendKey;
    type Pending = BackendPending;

    fn load_key(&self, key: &Arc<ProvingKey>) -> Result<BackendKey, BackendError> {
        let library = &self.0.library;
        let views = KeyOwner::new(key.clone());
        let view = views.view();
        let mut handle = std::ptr::null_mut();
        // SAFETY: a live instance; the view lives during the call, what it points to as long as `views`.
        library.call(|error| unsafe { (library.table.load_key)(self.0.handle.as_ptr(), &view, &mut handle, error) })?;
        let handle = NonNull::new(handle).ok_or_else(|| broken("load_key succeeded without a key"))?;
        Ok(BackendKey(Arc::new(Loaded { handle, instance: self.0.clone(), _views: views })))
    }

    fn start<'i>(&self, key: &BackendKey, inputs: LentInputs<'i>) -> Result<BackendPending, BackendError> {
        if !Arc::ptr_eq(&self.0, &key.0.instance) {
            return Err(BackendError::ForeignKey);
        }
        let library = &self.0.library;
        let loan = Loan::new(inputs);
        let pools = library.pools.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let view = loan.view(|number| pools.iter().find(|pool| pool.0 == number).map(|pool| pool.1));
        let mut handle = std::ptr::null_mut();
        // SAFETY: live handles of this instance; loan and view stay in this frame during the call.
        library.call(|error| unsafe {
            (library.table.start)(self.0.handle.as_ptr(), key.0.handle.as_ptr(), &view, &mut handle, error)
        })?;
        let handle = NonNull::new(handle).ok_or_else(|| broken("start succeeded without a pending proof"))?;
        Ok(BackendPending { handle: Some(handle), key: key.0.clone() })
    }

    fn retained_host_bytes(&self, shape: &CircuitShape) -> u64 {
        let library = &self.0.library;
        let Some(entry) = library.table.raw.retained_host_bytes else { return 0 };
        let shape = SpShape {
            num_public: shape.num_public as u64,
            num_variables: shape.num_variables as u64,
            domain_log2: shape.domain_log2,
            reserved: 0,
        };
        let mut bytes = 0;
        // SAFETY: a live instance; shape and result live during the call.
        let result = library.call(|error| unsafe { entry(self.0.handle.as_ptr(), &shape, &mut bytes, error) });
        match result {
            Ok(()) => bytes,
            // Whoever budgets by this must not take a failure for nothing.
            Err(_) => u64::MAX,
        }
    }
}

impl PendingSums for BackendPending {
    fn finish(mut self) -> Result<QuerySums, BackendError> {
        let library = &self.key.instance.library;
        let Some(handle) = self.handle.take() else { return Err(BackendError::Cancelled) };
        // Sums that the plug-in doesn't write are out of range, and so found out.
        let mut sums = SpSums {
            struct_size: size_of::<SpSums>() as u64,
            a: [0xff; 96],
            b_g1: [0xff; 96],
            b_g2: [0xff; 192],
            hl: [0xff; 96],
        };
        // SAFETY: the handle of `start`, ended once; the sums live during the call.
        library.call(|error| unsafe { (library.table.finish)(handle.as_ptr(), &mut sums, error) })?;
        Ok(QuerySums {
            a: G1Affine::from_record_unchecked(&sums.a),
            b_g1: G1Affine::from_record_unchecked(&sums.b_g1),
            b_g2: G2Affine::from_record_unchecked(&sums.b_g2),
            hl: G1Affine::from_record_unchecked(&sums.hl),
        })
    }
}

impl Drop for BackendPending {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            let library = &self.key.instance.library;
            // SAFETY: the handle of `start`, ended once.
            let result = library.call(|error| unsafe { (library.table.drop_pending)(handle.as_ptr(), error) });
            self.key.instance.note("drop_pending", result);
        }
    }
}
