//! A device: its instance, its health, its places for proofs in flight.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use splitprover_core::abi::Backend;
use splitprover_core::{BackendError, LoadedKey, MemoryClass, Prover, ProvingKey, SplitProver};

use super::account::{FixedAccount, Host};
use super::budget::{Budget, BudgetError, Permit};
use super::config::{Config, DeviceSpec};
use super::status::DeviceStatus;

/// Index of device memory in a device's own budget.
const VRAM: usize = 0;

/// A backend that is open, with the key loaded.
pub(crate) struct Instance {
    pub(crate) key: LoadedKey<Backend>,
    pub(crate) prover: Prover<Backend>,
    /// Device memory that it holds, where it says so.
    _vram: Option<Permit>,
}

#[derive(Default)]
struct State {
    instance: Option<Arc<Instance>>,
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
    key: Arc<ProvingKey>,
    state: Mutex<State>,
    /// Held while a new instance is opened.
    reopening: Mutex<()>,
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
        key: &Arc<ProvingKey>,
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
            key: key.clone(),
            state: Mutex::default(),
            reopening: Mutex::new(()),
            opened: Instant::now(),
        };
        let instance = device.instantiate()?;
        let retained =
            device.spec.retained_bytes.unwrap_or_else(|| instance.prover.backend().retained_host_bytes(&key.shape()));
        let retained = retained.saturating_mul(config.in_flight.max(1) as u64);
        // What it took at its opening is in the permit already: it has grown with it.
        let more = host.budget.acquire_fixed(&[retained], &|| false)?;
        device.account.add(more);
        device.places.check(&device.demand())?;
        lock(&device.state).instance = Some(instance);
        Ok(Arc::new(device))
    }

    fn instantiate(&self) -> Result<Arc<Instance>, DeviceError> {
        let fails = |reason: String| DeviceError::Open { name: self.spec.name.clone(), reason };
        let backend = (self.spec.open)(&self.account.ledger()).map_err(fails)?;
        let prover = Prover::new(backend);
        let key = prover.load_key(self.key.clone()).map_err(|e| fails(format!("the proving key: {e}")))?;
        let vram = match device_bytes(prover.backend()) {
            None => None,
            Some(bytes) => Some(self.places.acquire_fixed(&[bytes, 0], &|| false)?),
        };
        Ok(Arc::new(Instance { key, prover, _vram: vram }))
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
        true
    }

    pub(crate) fn why_quarantined(&self) -> Option<String> {
        self.state().quarantined.clone()
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

    /// In place of an instance that panicked, a new one. If that fails, the device is quarantined.
    pub(crate) fn reopen(&self, broken: &Arc<Instance>, host: &Host) {
        let _one_at_a_time = lock(&self.reopening);
        {
            let mut state = self.state();
            if !state.instance.as_ref().is_some_and(|instance| Arc::ptr_eq(instance, broken)) {
                return;
            }
            state.instance = None;
        }
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
            BackendError::Panicked(_) => Self::Instance,
            BackendError::Poisoned(_) => Self::Before,
            _ => Self::Device,
        }
    }
}
