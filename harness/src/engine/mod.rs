//! The engine: many partitions, many jobs, several devices, one memory budget.
//!
//! ```text
//! jobs -> queue -> synthesis workers (pw) -> hand-over -> device workers (gw each) -> in flight -> finishers -> proofs
//!                  |                                      |                                        |
//!                  permit for all its bytes               start: vectors go, bytes go back         verified, else again
//! ```
//!
//! * A [job](JobSpec) has partitions, and a partition is a [source](Source) that can be run again: nobody keeps copies of inputs.
//! * Higher priority first, then the oldest job, then the first partition, in every queue.
//! * **Memory is promised before it is used.** A partition's permit covers its evaluations and its witness; each vector's bytes go
//!   back to the [budget](mod@budget) at the moment when the backend releases it. The ledger, which counts what exists, has the same limit.
//! * **What has been made can't pile up.** A synthesis worker keeps its place until the [hand-over](handover) has taken its
//!   partition, and the hand-over's bound follows the workers that take from it.
//! * A start that fails hands its inputs to another instance. What fails later is synthesised again, under a new permit. A device that
//!   keeps failing is quarantined; one that panicked is opened again; one whose call doesn't return is left behind, and what it was lent is
//!   counted as stuck.
//! * Only verified proofs come out: [`InFlight::finish`](splitprover_core::InFlight::finish) gives no others.
//!
//! | module | what it holds |
//! |---|---|
//! | [`config`] | settings, devices, the switches of the past for measurements |
//! | [`job`], [`source`] | what is asked for and what comes of it; where inputs come from |
//! | [`keys`] | several circuits: keys that devices load when they are needed and unload when there is no room |
//! | [`mod@budget`], [`handover`] | promises of memory; the bounded queue. Model-checked |
//! | `account`, [`pools`] | between ledger and budget; recycled buffers |
//! | `device`, `shared`, `workers`, `watchdog`, `shutdown` | instances and their health; the threads; calls that don't return; the end |
//! | [`limits`] | how much memory this process may use |
//! | [`status`], [`history`], [`projection`] | what is going on; what happened when; what a pipeline would need |

mod account;
pub mod budget;
pub mod config;
mod device;
pub mod handover;
pub mod history;
pub mod job;
pub mod keys;
pub mod limits;
pub mod pools;
pub mod projection;
mod shared;
mod shutdown;
pub mod source;
pub mod status;
mod sync;
mod watchdog;
mod workers;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use splitprover_core::memory::LedgerEvent;
use splitprover_core::{HostMemory, MemoryClass, ProvingKey};

use account::{FixedAccount, HOST, Host};
pub use budget::{Budget, BudgetError};
pub use config::{Capacity, Config, DeviceSpec, Hold, WorkPermit};
use device::Device;
pub use device::DeviceError;
use handover::Handover;
pub use history::{Mark, Step};
use job::{Job, JobIds, Task};
pub use job::{JobError, JobHandle, JobId, JobSpec, PartitionProof};
use keys::Keys;
pub use keys::{EngineKey, KeyError};
use shared::{Counters, Shared, lock};
pub use shutdown::ShutdownReport;
pub use source::{Footprint, Premade, Source, SourceError, Synthesis, SyntheticSource, WitnessFile};
pub use status::Status;
use status::{BudgetStatus, ClassStatus, KeyStatus, PartitionStatus};
use watchdog::Watchdog;

/// More threads of a kind are a mistake.
const MOST_WORKERS: usize = 4096;

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A setting makes no sense.
    #[error("{0}")]
    Config(String),
    /// The fixed part doesn't fit the budget.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// A device can't be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A thread couldn't be started.
    #[error("a thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// Why a job isn't taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// A partition needs more memory than there can ever be.
    #[error("partition {partition}: {source}")]
    NeverFits {
        /// Its number.
        partition: usize,
        /// By how much.
        source: BudgetError,
    },
    /// No device is left, or none that can take the key.
    #[error("no usable device is left: {0}")]
    NoDevice(String),
    /// The key is another engine's.
    #[error("the key belongs to another engine")]
    ForeignKey,
    /// More partitions than can be numbered.
    #[error("{0} partitions are more than a job can have")]
    TooMany(usize),
    /// The engine is being shut down.
    #[error("the engine is being shut down")]
    ShutDown,
}

/// An engine: made with one key, which may be all that it ever needs; [others](Self::add_key) can be added.
///
/// ```
/// use std::sync::Arc;
/// use splitprover_core::abi::OpenOptions;
/// use splitprover_core::{HBasis, HostMemory};
/// use splitprover_harness::engine::{Config, DeviceSpec, Engine, JobSpec, Source, SyntheticSource};
/// use splitprover_harness::loader::Registry;
/// use splitprover_harness::setup::{CpuFixedBase, Resources, Shape, Synthetic, Trapdoor, generate};
///
/// let circuit = Synthetic::new(Shape::Porep, 6)?;
/// let (memory, basis) = (HostMemory::default(), HBasis::OddLagrange);
/// let resources = Resources { memory: &memory, fixed_base: &CpuFixedBase::new(1 << 6), progress: &|_, _, _| {} };
/// let key = generate(&circuit, basis, &Trapdoor::from_seed(1, basis), &resources)?.key;
///
/// let cpu = DeviceSpec::new("cpu", |ledger| {
///     let options = OpenOptions::new(0).threads(1).ledger(ledger.clone());
///     Registry::new().load("cpu").and_then(|cpu| cpu.open(&options)).map_err(|error| error.to_string())
/// });
/// let engine = Engine::new(Config::default(), &key, 0, vec![cpu])?;
/// let partition = |seed| -> Arc<dyn Source> {
///     Arc::new(SyntheticSource { circuit, seed, evaluations: true, delay: Default::default() })
/// };
/// let job = engine.submit(JobSpec::new(vec![partition(1), partition(2)]))?;
/// assert_eq!(job.wait()?.len(), 2);
/// assert!(engine.shutdown(std::time::Duration::from_secs(10)).is_clean());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine {
    shared: Arc<Shared>,
    /// The one that it was made with.
    key: EngineKey,
    shut_down: bool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({} devices)", self.shared.devices.len())
    }
}

impl Engine {
    /// Opens the devices, loads the key into each, and starts the threads. `key_bytes` is what the key takes of host memory beside
    /// mapped files.
    ///
    /// # Errors
    /// [`EngineError`]: settings that make no sense, a fixed part that doesn't fit the budget, a device that can't be used.
    pub fn new(
        config: Config,
        key: &Arc<ProvingKey>,
        key_bytes: u64,
        devices: Vec<DeviceSpec>,
    ) -> Result<Self, EngineError> {
        let refuse = |reason: &str| Err(EngineError::Config(reason.into()));
        if config.synthesis_workers == 0 || config.device_workers == 0 || config.finishers == 0 || config.in_flight == 0
        {
            return refuse("an engine needs at least one worker of each kind and one proof in flight");
        }
        if config.synthesis_workers.max(config.device_workers).max(config.finishers) > MOST_WORKERS {
            return refuse("an engine has at most 4096 workers of a kind: each is a thread");
        }
        if devices.iter().all(|device| device.fallback) || devices.len() > 63 {
            return refuse("an engine needs 1 to 63 devices, one of which isn't a fall-back");
        }
        if config.hold == Hold::Finish && !cfg!(feature = "bench-hold") {
            return refuse("holding inputs until finish takes a build with the feature bench-hold");
        }
        let budget = match config.host_budget {
            Some(bytes) => bytes,
            None => match limits::host_limit() {
                Some(limit) => limit.bytes / 10 * 9,
                None => return refuse("the system does not say how much memory there is: give a budget"),
            },
        };
        let host = Arc::new(Host::new(budget, config.record));
        let (ids, keys) = (JobIds::new(), Keys::default());
        let permit = host.budget.acquire_fixed(&[key_bytes], &|| false)?;
        let key = keys.add(ids.engine(), key, key_bytes, permit, &host);
        let key = key.map_err(|error| EngineError::Config(error.to_string()))?;
        let devices = devices.into_iter().enumerate();
        let devices: Vec<_> =
            devices.map(|(index, spec)| Device::open(index, spec, &host, &key, &config)).collect::<Result<_, _>>()?;
        if config.pools && config.pinned {
            // Weak: devices hold the host, which holds the pools.
            let makers: Vec<_> = devices.iter().map(Arc::downgrade).collect();
            host.pools.set_pinned(Box::new(move |bytes, device| {
                let instance = makers.get(device)?.upgrade()?.instance()?;
                match instance.prover.backend().pinned(bytes)? {
                    Ok(memory) => Some(memory),
                    Err(error) => {
                        tracing::warn!(device, %error, "no page-locked buffer; a pageable one instead");
                        None
                    }
                }
            }));
        }
        let workers = config.device_workers * devices.iter().filter(|device| !device.spec.fallback).count();
        let capacity = match config.capacity {
            Capacity::Workers => Some(workers),
            Capacity::Fixed(capacity) => Some(capacity),
            Capacity::Unbounded => None,
        };
        let shared = Arc::new(Shared {
            host,
            devices,
            keys,
            tasks: Handover::new(None),
            ready: Handover::new(capacity),
            finishing: Handover::new(None),
            watchdog: Watchdog::default(),
            ids,
            jobs: Mutex::default(),
            threads: Mutex::default(),
            workload: Mutex::default(),
            aside: Mutex::default(),
            counters: Counters::default(),
            stopping: AtomicBool::new(false),
            fallen_back: AtomicBool::new(false),
            dead: OnceLock::new(),
            config,
        });
        // From here on dropping the engine ends the threads.
        let engine = Self { shared, key, shut_down: false };
        let shared = &engine.shared;
        for _ in 0..shared.config.synthesis_workers {
            shared.spawn("synthesis", workers::synthesis_worker)?;
        }
        for device in &shared.devices {
            for _ in 0..shared.config.device_workers {
                let device = device.clone();
                shared.spawn("device", move |shared| workers::device_worker(shared, &device))?;
            }
        }
        for _ in 0..shared.config.finishers {
            shared.spawn("finish", workers::finisher)?;
        }
        shared.spawn("watch", Shared::watch)?;
        Ok(engine)
    }

    /// Takes a job.
    ///
    /// # Errors
    /// [`SubmitError`], at once, for a job that could never be done.
    pub fn submit(&self, spec: JobSpec) -> Result<JobHandle, SubmitError> {
        let shared = &self.shared;
        let key = spec.key.as_ref().unwrap_or(&self.key);
        if key.0.engine != shared.ids.engine() {
            return Err(SubmitError::ForeignKey);
        }
        if let Some(reason) = shared.why_none(key.number()) {
            return Err(SubmitError::NoDevice(reason));
        }
        if u32::try_from(spec.partitions.len()).is_err() {
            return Err(SubmitError::TooMany(spec.partitions.len()));
        }
        let mut largest = 0;
        for (partition, source) in spec.partitions.iter().enumerate() {
            let demand = source.footprint().total();
            let fits = shared.while_keys_leave(|| shared.host.budget.check(&[demand]));
            fits.map_err(|source| SubmitError::NeverFits { partition, source })?;
            largest = largest.max(demand);
        }
        let job = Job::new(shared.ids.next(), &spec, key.number(), largest);
        lock(&shared.jobs).live.push(job.clone());
        for (partition, source) in spec.partitions.iter().enumerate() {
            let task = Task::new(&job, partition as u32, source.clone(), key);
            if shared.tasks.push(task.rank(), task).is_err() {
                job.stop(JobError::ShutDown);
                return Err(SubmitError::ShutDown);
            }
        }
        // The last device may have gone meanwhile, after everybody else was told.
        if let Some(reason) = shared.why_none(key.number()) {
            job.stop(JobError::NoDevice(reason));
            shared.sweep();
        }
        let wake = shared.clone();
        Ok(JobHandle { job, wake: Arc::new(move || wake.sweep()) })
    }

    /// Adds a key, beside the one that the engine was made with, for [jobs that name it](JobSpec::key). `key_bytes` is what it takes of
    /// host memory beside mapped files: waited for, if partitions have it. The same key added again is the same key. Devices load it when
    /// its first partition arrives.
    ///
    /// # Errors
    /// [`KeyError`] at once, if the key could never be had beside the others, or if a partition that waits couldn't any more.
    pub fn add_key(&self, key: &Arc<ProvingKey>, key_bytes: u64) -> Result<EngineKey, KeyError> {
        let shared = &self.shared;
        if let Some(known) = shared.keys.find(key) {
            return Ok(known);
        }
        let permit = self.acquire_for_good(key_bytes)?;
        Ok(shared.keys.add(shared.ids.engine(), key, key_bytes, permit, &shared.host)?)
    }

    /// Has every device load a key now, fall-backs left out, and doesn't wait for it. What a device can't take shows in the
    /// [status](Self::status).
    ///
    /// # Errors
    /// If a thread couldn't be started.
    pub fn load_ahead(&self, key: &EngineKey) -> Result<(), std::io::Error> {
        for device in
            self.shared.devices.iter().filter(|device| !device.spec.fallback && device.can_prove(key.number()))
        {
            let (device, key) = (device.clone(), key.clone());
            self.shared.spawn("load", move |shared| workers::load_ahead(shared, &device, &key))?;
        }
        Ok(())
    }

    /// Memory for something that stays. What waits already must still find room beside it.
    fn acquire_for_good(&self, bytes: u64) -> Result<budget::Permit, BudgetError> {
        let (shared, budget) = (&self.shared, &self.shared.host.budget);
        shared.while_keys_leave(|| {
            budget.check(&[bytes.saturating_add(shared.largest_partition())])?;
            budget.acquire_fixed(&[bytes], &|| shared.is_stopping())
        })
    }

    /// Sets bytes of the budget aside for good, and gives memory that is charged to them: for inputs that an application keeps.
    ///
    /// # Errors
    /// [`BudgetError::NeverFits`], also if a partition that waits would never find room any more.
    pub fn set_aside(&self, bytes: u64) -> Result<HostMemory, BudgetError> {
        let permit = self.acquire_for_good(bytes)?;
        let account = FixedAccount::new(&self.shared.host, permit);
        lock(&self.shared.aside).push(account.clone());
        Ok(HostMemory::new(account.ledger()))
    }

    /// What is going on.
    pub fn status(&self) -> Status {
        let shared = &self.shared;
        let (now, peak) = (shared.host.ledger.now(), shared.host.ledger.peak());
        let memory = MemoryClass::ALL
            .map(|class| ClassStatus { class: class.name(), bytes: now[class], peak_bytes: peak[class] })
            .to_vec();
        let budget::Account { limit, reserved, fixed, stuck, peak, .. } = shared.host.budget.accounts()[HOST].clone();
        let devices: Vec<_> = shared.devices.iter().map(|device| device.status()).collect();
        let jobs = lock(&shared.jobs);
        let keys = shared.keys.bytes().into_iter();
        let keys = keys.map(|(number, host_bytes)| KeyStatus {
            number,
            host_bytes,
            jobs: jobs.live.iter().filter(|job| job.key == number && !job.is_over()).count(),
        });
        let keys = keys.collect();
        let (beyond, beyond_peak) = shared.host.recorder.beyond();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Status {
            jobs: jobs.live.iter().filter(|job| !job.is_over()).map(|job| job.status()).collect(),
            jobs_done: jobs.done,
            jobs_failed: jobs.failed,
            partitions: PartitionStatus {
                queued: shared.tasks.len(),
                synthesizing: shared.counters.synthesizing.load(Ordering::Relaxed),
                ready: shared.ready.len(),
                starting: devices.iter().map(|device| device.starting).sum(),
                in_flight: devices.iter().map(|device| device.in_flight).sum(),
                proved: count(&shared.counters.proved),
                handed_on: count(&shared.counters.handed_on),
                synthesized_again: count(&shared.counters.synthesized_again),
            },
            budget: BudgetStatus { limit, reserved, fixed, stuck, peak, waiting: shared.host.budget.waiting() },
            memory,
            memory_peak_bytes: shared.host.ledger.peak_total(),
            evaluations_beyond_start_bytes: beyond,
            evaluations_beyond_start_peak_bytes: beyond_peak,
            pool: shared.host.pools.status(),
            keys,
            devices,
            hung_calls: shared.watchdog.hung(),
        }
    }

    /// Bytes by class, all changes, if [`Config::record`] is set.
    pub fn ledger_history(&self) -> Vec<LedgerEvent> {
        self.shared.host.ledger.history()
    }

    /// The partitions' steps, if [`Config::record`] is set.
    pub fn marks(&self) -> Vec<Mark> {
        self.shared.host.recorder.marks()
    }

    /// Bytes of evaluations whose `start` has returned, all changes, if [`Config::record`] is set.
    pub fn beyond_start_history(&self) -> Vec<(Duration, u64)> {
        self.shared.host.recorder.beyond_history()
    }

    /// Time since the engine's ledger was made: what histories and marks count.
    pub fn elapsed(&self) -> Duration {
        self.shared.host.ledger.elapsed()
    }

    /// The most partitions that have waited in the hand-over.
    pub fn handover_peak(&self) -> usize {
        self.shared.ready.peak()
    }

    /// Time that synthesis workers have spent with a partition, from its permit to its hand-over, added up in seconds.
    pub fn worker_seconds(&self) -> f64 {
        self.shared.working(0);
        lock(&self.shared.workload).worker_seconds
    }

    /// Frees idle buffers.
    pub fn trim(&self) {
        self.shared.host.pools.evict(u64::MAX, pools::Evict::Any);
    }
}

#[cfg(test)]
mod planted;
#[cfg(test)]
mod tests;
