//! A device: its instance, its health, its places for proofs in flight.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use splitprover_core::abi::Backend;
use splitprover_core::{BackendError, MemoryClass, Prover, SplitProver};

use super::account::{FixedAccount, Host};
use super::budget::{Budget, BudgetError, Permit};
use super::config::{Config, DeviceSpec};
use super::keys::{EngineKey, KeyEntry, LoadCount, Loaded, LoadedKeys};
use super::status::DeviceStatus;

/// Index of device memory in a device's own budget.
const VRAM: usize = 0;
/// How often one who waits for a key looks again. Keys change rarely, and their loading takes far longer.
const WAIT: Duration = Duration::from_millis(5);

/// Why a key isn't there.
enum NoKey {
    Budget(BudgetError),
    Backend(BackendError),
}

/// A backend that is open, and the keys that it has loaded.
pub(crate) struct Instance {
    pub(crate) keys: LoadedKeys,
    pub(crate) prover: Prover<Backend>,
    /// Device memory that it holds without any key, where it says so.
    _vram: Option<Permit>,
}

/// Why a key isn't loaded.
pub(crate) enum NotLoaded {
    /// Nobody waits for it any more.
    GivenUp,
    /// The device can't take this key, even alone.
    Unfit(String),
    /// Something else went wrong.
    Failed(BackendError),
}

#[derive(Default)]
struct State {
    instance: Option<Arc<Instance>>,
    /// Keys that it can't take, and why.
    unfit: HashMap<u64, String>,
    quarantined: Option<String>,
    failures_in_a_row: u32,
    starting: usize,
    in_flight: usize,
    started: u64,
    finished: u64,
    failed: u64,
    hung: u64,
    busy: Duration,
    busy_since: Option<Instant>,
}

/// A device in an engine.
pub(crate) struct Device {
    pub(crate) index: usize,
    pub(crate) spec: DeviceSpec,
    pub(crate) account: Arc<FixedAccount>,
    /// Device memory, and places for proofs in flight.
    pub(crate) places: Budget,
    /// Calls of `start` at a time.
    workers: u64,
    /// Keys that take room on it.
    loaded: LoadCount,
    state: Mutex<State>,
    /// Held while a new instance is opened.
    reopening: Mutex<()>,
    /// Held while a key is loaded.
    loading: Mutex<()>,
    /// A key waits for others to be idle: nothing is started meanwhile, so that they will be.
    crowded: AtomicBool,
    opened: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    /// Opens the device and loads the key, within the budget.
    pub(crate) fn open(
        index: usize,
        spec: DeviceSpec,
        host: &Arc<Host>,
        key: &EngineKey,
        config: &Config,
    ) -> Result<Arc<Self>, DeviceError> {
        let working = spec.working_bytes.saturating_mul(config.device_workers as u64);
        // Nobody else is there yet, so nothing is waited for.
        let permit = host.budget.acquire_fixed(&[working], &|| false)?;
        let account = FixedAccount::new(host, permit);
        let places = Budget::new(&[
            ("device", spec.vram_limit.unwrap_or(u64::MAX)),
            ("in flight", config.in_flight.max(1) as u64),
        ]);
        let device = Self {
            index,
            spec,
            account,
            places,
            workers: config.device_workers.min(config.in_flight) as u64,
            loaded: LoadCount::default(),
            state: Mutex::default(),
            reopening: Mutex::new(()),
            loading: Mutex::new(()),
            crowded: AtomicBool::new(false),
            opened: Instant::now(),
        };
        let instance = device.instantiate()?;
        match device.try_load(&instance, &key.0, 1, &|| false) {
            Ok(_) => {}
            Err(NoKey::Budget(error)) => return Err(error.into()),
            Err(NoKey::Backend(error)) => return Err(device.cannot_open(format!("the proving key: {error}"))),
        }
        let shape = key.key().shape();
        let retained =
            device.spec.retained_bytes.unwrap_or_else(|| instance.prover.backend().retained_host_bytes(&shape));
        let retained = retained.saturating_mul(config.in_flight.max(1) as u64);
        // What it took at its opening is in the permit already: it has grown with it.
        let more = host.budget.acquire_fixed(&[retained], &|| false)?;
        device.account.add(more);
        device.places.check(&device.demand())?;
        lock(&device.state).instance = Some(instance);
        Ok(Arc::new(device))
    }

    fn cannot_open(&self, reason: String) -> DeviceError {
        DeviceError::Open { name: self.spec.name.clone(), reason }
    }

    fn instantiate(&self) -> Result<Arc<Instance>, DeviceError> {
        // The application's code. Its panic must not end a worker.
        let opened = catch_unwind(AssertUnwindSafe(|| (self.spec.open)(&self.account.ledger())));
        let opened = opened.unwrap_or_else(|_| Err("opening it panicked".into()));
        let backend = opened.map_err(|reason| self.cannot_open(reason))?;
        let prover = Prover::new(backend);
        let vram = match device_bytes(prover.backend()) {
            None => None,
            Some(bytes) => Some(self.places.acquire_fixed(&[bytes, 0], &|| false)?),
        };
        Ok(Arc::new(Instance { keys: LoadedKeys::default(), prover, _vram: vram }))
    }

    /// Loads a key where there is room for it and for so many proofs beside it.
    fn try_load(
        &self,
        instance: &Instance,
        entry: &Arc<KeyEntry>,
        proofs: u64,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Arc<Loaded>, NoKey> {
        let before = device_bytes(instance.prover.backend());
        let key = instance.prover.load_key(entry.key.clone()).map_err(NoKey::Backend)?;
        let vram = match (before, device_bytes(instance.prover.backend())) {
            (Some(before), Some(after)) => {
                let bytes = after.saturating_sub(before);
                let beside = self.spec.vram_per_proof.saturating_mul(proofs);
                self.places.check(&[bytes.saturating_add(beside), 0]).map_err(NoKey::Budget)?;
                Some(self.places.acquire_fixed(&[bytes, 0], give_up).map_err(NoKey::Budget)?)
            }
            _ => None,
        };
        Ok(instance.keys.add(Loaded::new(key, entry, vram, &self.loaded)))
    }

    /// A key for use, if it is loaded and no other one waits for room.
    pub(crate) fn at_hand(&self, instance: &Instance, key: u64) -> Option<Arc<Loaded>> {
        if self.crowded.load(Ordering::SeqCst) { None } else { instance.keys.get(key) }
    }

    /// A key for use, loaded if it isn't. Other keys are unloaded if it takes that and they are idle, which is waited for.
    pub(crate) fn load(
        &self,
        instance: &Instance,
        entry: &Arc<KeyEntry>,
        most: usize,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Arc<Loaded>, NotLoaded> {
        // One at a time; who waits for another's loading sees when that hangs.
        let _one_at_a_time = loop {
            match self.loading.try_lock() {
                Ok(guard) => break guard,
                Err(TryLockError::Poisoned(guard)) => break guard.into_inner(),
                Err(TryLockError::WouldBlock) if give_up() => return Err(NotLoaded::GivenUp),
                Err(TryLockError::WouldBlock) => std::thread::sleep(WAIT),
            }
        };
        if let Some(loaded) = instance.keys.get(entry.number) {
            return Ok(loaded);
        }
        loop {
            while instance.keys.len() >= most.max(1) {
                self.make_room(instance, self.loaded.get(), give_up)?;
            }
            let before = self.loaded.get();
            // Each device worker may have a place, and keeps it while it waits for work.
            match self.try_load(instance, entry, self.workers, give_up) {
                Ok(loaded) => {
                    tracing::debug!(device = self.spec.name, key = entry.number, "key loaded");
                    return Ok(loaded);
                }
                Err(NoKey::Budget(BudgetError::GivenUp)) => return Err(NotLoaded::GivenUp),
                Err(
                    NoKey::Budget(_) | NoKey::Backend(BackendError::DeviceMemory { .. } | BackendError::HostMemory(_)),
                ) if before > 0 => {
                    self.make_room(instance, before, give_up)?;
                }
                Err(NoKey::Budget(error)) => return Err(NotLoaded::Unfit(error.to_string())),
                Err(NoKey::Backend(error)) => {
                    return Err(match error {
                        BackendError::DeviceMemory { .. } | BackendError::Unsupported(_) | BackendError::Inputs(_) => {
                            NotLoaded::Unfit(error.to_string())
                        }
                        error => NotLoaded::Failed(error),
                    });
                }
            }
        }
    }

    /// Unloads the key that has been idle longest; waits until there is one, or until there are fewer than `before` by themselves: those
    /// that nobody needs go at any time, and so do those of a retired instance.
    fn make_room(&self, instance: &Instance, before: usize, give_up: &dyn Fn() -> bool) -> Result<(), NotLoaded> {
        let room = loop {
            if give_up() {
                break Err(NotLoaded::GivenUp);
            }
            if let Some(idle) = instance.keys.take_idle() {
                self.unload(idle);
                break Ok(());
            }
            if self.loaded.get() < before {
                break Ok(());
            }
            self.crowded.store(true, Ordering::SeqCst);
            std::thread::sleep(WAIT);
        };
        self.crowded.store(false, Ordering::SeqCst);
        room
    }

    fn unload(&self, loaded: Arc<Loaded>) {
        let before = self.account.held();
        drop(loaded);
        self.account.release(before.saturating_sub(self.account.held()));
    }

    /// Whether keys are loaded that nobody will need any more.
    pub(crate) fn forgotten_keys(&self) -> Vec<Arc<Loaded>> {
        let Some(instance) = self.instance() else { return Vec::new() };
        std::iter::from_fn(|| instance.keys.take_forgotten()).collect()
    }

    /// Unloads keys that were taken out.
    pub(crate) fn unload_all(&self, keys: Vec<Arc<Loaded>>) {
        keys.into_iter().for_each(|loaded| self.unload(loaded));
    }

    /// The device can't take a key.
    pub(crate) fn mark_unfit(&self, key: u64, reason: String) {
        tracing::warn!(device = self.spec.name, key, reason, "a device can't take a key");
        self.state().unfit.insert(key, reason);
    }

    /// Whether it may be given partitions of a key.
    pub(crate) fn can_prove(&self, key: u64) -> bool {
        let state = self.state();
        state.quarantined.is_none() && !state.unfit.contains_key(&key)
    }

    /// Why it can't.
    pub(crate) fn why_not(&self, key: u64) -> Option<String> {
        let state = self.state();
        state.quarantined.clone().or_else(|| state.unfit.get(&key).cloned())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// What a proof in flight takes of [`places`](Self::places).
    pub(crate) fn demand(&self) -> [u64; 2] {
        [self.spec.vram_per_proof, 1]
    }

    pub(crate) fn instance(&self) -> Option<Arc<Instance>> {
        self.state().instance.clone()
    }

    pub(crate) fn is_usable(&self) -> bool {
        self.state().quarantined.is_none()
    }

    /// Not used any more; whether it was until now.
    pub(crate) fn quarantine(&self, reason: String) -> bool {
        let mut state = self.state();
        if state.quarantined.is_some() {
            return false;
        }
        tracing::error!(device = self.spec.name, reason, "quarantined");
        state.quarantined = Some(reason);
        drop(state);
        // Some may wait for a place here with a partition that others can have.
        self.places.wake();
        true
    }

    /// A call of `start` begins.
    pub(crate) fn begins(&self) {
        let mut state = self.state();
        state.starting += 1;
        if state.busy_since.is_none() {
            state.busy_since = Some(Instant::now());
        }
    }

    /// `start` has given a proof in flight.
    pub(crate) fn started(&self) {
        let mut state = self.state();
        state.starting -= 1;
        state.in_flight += 1;
        state.started += 1;
    }

    /// `start` has failed, or was taken for hung and has come back.
    pub(crate) fn not_started(&self) {
        let mut state = self.state();
        state.starting -= 1;
        state.rests();
    }

    /// A proof isn't in flight any more.
    pub(crate) fn landed(&self) {
        let mut state = self.state();
        state.in_flight -= 1;
        state.rests();
    }

    /// A proof is verified.
    pub(crate) fn succeeded(&self) {
        let mut state = self.state();
        state.finished += 1;
        state.failures_in_a_row = 0;
    }

    /// A failure that is the device's; whether it is quarantined because of it.
    pub(crate) fn failed(&self, reason: &str, limit: u32) -> bool {
        let in_a_row = {
            let mut state = self.state();
            state.failed += 1;
            state.failures_in_a_row += 1;
            state.failures_in_a_row
        };
        tracing::warn!(device = self.spec.name, reason, in_a_row, "a device failed");
        in_a_row >= limit.max(1) && self.quarantine(format!("{in_a_row} failures in a row, the last one: {reason}"))
    }

    pub(crate) fn hung(&self) {
        self.state().hung += 1;
    }

    /// An instance that panicked isn't used any more; whether it was until now.
    pub(crate) fn retire(&self, broken: &Arc<Instance>) -> bool {
        let mut state = self.state();
        let current = state.instance.as_ref().is_some_and(|instance| Arc::ptr_eq(instance, broken));
        if current {
            state.instance = None;
        }
        current
    }

    /// In place of an instance that was [retired](Self::retire), a new one. If that fails, the device is quarantined.
    pub(crate) fn reopen(&self, host: &Host) {
        let _one_at_a_time = lock(&self.reopening);
        // Its page-locked buffers keep an instance open.
        host.pools.forget(self.index);
        match self.instantiate() {
            Ok(instance) => {
                tracing::warn!(device = self.spec.name, "opened again after a panic");
                self.state().instance = Some(instance);
            }
            Err(error) => {
                self.quarantine(format!("could not be opened again: {error}"));
            }
        }
    }

    /// Closes the instance, once the last proof in flight is gone.
    pub(crate) fn close(&self) {
        let instance = self.state().instance.take();
        drop(instance);
    }

    pub(crate) fn status(&self) -> DeviceStatus {
        let places = self.places.accounts();
        let held = self.account.held();
        let state = self.state();
        let busy = state.busy + state.busy_since.map_or(Duration::ZERO, |since| since.elapsed());
        DeviceStatus {
            index: self.index,
            name: self.spec.name.clone(),
            fallback: self.spec.fallback,
            quarantined: state.quarantined.clone(),
            starting: state.starting,
            in_flight: state.in_flight,
            started: state.started,
            finished: state.finished,
            failed: state.failed,
            hung: state.hung,
            busy_seconds: busy.as_secs_f64(),
            busy_share: busy.as_secs_f64() / self.opened.elapsed().as_secs_f64().max(1e-9),
            host_bytes: held,
            device_bytes: places[VRAM].reserved,
            device_limit: self.spec.vram_limit,
            keys: state.instance.as_ref().map_or_else(Vec::new, |instance| instance.keys.numbers()),
            unfit_keys: {
                let mut keys: Vec<_> = state.unfit.iter().map(|(key, reason)| (*key, reason.clone())).collect();
                keys.sort_unstable();
                keys
            },
        }
    }
}

impl State {
    fn rests(&mut self) {
        if self.starting + self.in_flight == 0
            && let Some(since) = self.busy_since.take()
        {
            self.busy += since.elapsed();
        }
    }
}

/// Device memory that a backend holds, if it keeps that figure.
fn device_bytes(backend: &Backend) -> Option<u64> {
    let figures = backend.statistics().ok()?;
    figures.iter().find(|figure| figure.name == "device memory held, bytes").map(|figure| figure.value as u64)
}

/// Why a device can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// It couldn't be opened, or didn't take the key.
    #[error("device {name}: {reason}")]
    Open {
        /// The device.
        name: String,
        /// What it said.
        reason: String,
    },
    /// It doesn't fit the budget.
    #[error(transparent)]
    Budget(#[from] BudgetError),
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The device's: another one may do better.
    Device,
    /// The instance's, which is to be replaced.
    Instance,
    /// The instance was broken before: nobody's this time.
    Before,
    /// The device doesn't do what this partition asks for; another one may.
    Unfit,
    /// Host memory was refused.
    Memory,
    /// The inputs': no device will do better.
    Inputs,
}

impl Fault {
    pub(crate) fn of(error: &BackendError) -> Self {
        match error {
            BackendError::HostMemory(memory) if memory.class == MemoryClass::PoolIdle => Self::Device,
            BackendError::HostMemory(_) => Self::Memory,
            BackendError::Inputs(_) => Self::Inputs,
            BackendError::Unsupported(_) => Self::Unfit,
            BackendError::Panicked(_) => Self::Instance,
            BackendError::Poisoned(_) => Self::Before,
            _ => Self::Device,
        }
    }
}
