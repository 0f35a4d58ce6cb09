//! What an engine is told: workers, memory, patience, and for measurements the switches of the past.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use splitprover_core::MemoryLedger;
use splitprover_core::abi::Backend;

/// How many finished partitions may wait between synthesis and devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capacity {
    /// As many as there are device workers: each has the next one ready.
    #[default]
    Workers,
    /// This many.
    Fixed(usize),
    /// Any number, as before the hand-over had a bound. For measurements.
    Unbounded,
}

/// When a synthesis worker is free for its next partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkPermit {
    /// When the hand-over has taken the last one.
    #[default]
    ThroughSend,
    /// As soon as the last one is synthesised: what is finished piles up before the hand-over. For measurements.
    BeforeSend,
}

/// How long evaluations and witness live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// Until they have been read, `start`'s return at the latest.
    #[default]
    None,
    /// Until the proof is finished. For measurements; only in builds with the feature `bench-hold`.
    Finish,
}

/// Settings of an engine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Partitions synthesised at a time (pw).
    pub synthesis_workers: usize,
    /// Calls of `start` at a time on each device (gw).
    pub device_workers: usize,
    /// Calls of `finish` at a time.
    pub finishers: usize,
    /// Proofs started and not finished at a time on each device.
    pub in_flight: usize,
    /// Bound of the hand-over.
    pub capacity: Capacity,
    /// Keys loaded at a time on each device. One more, and the key that has been idle longest is unloaded; so it is where there is no
    /// room, whatever this says.
    pub loaded_keys: usize,
    /// Bytes of host memory, everything counted; `None`: nine tenths of the [limit](super::limits::host_limit).
    pub host_budget: Option<u64>,
    /// Whether buffers are kept for the next partition.
    pub pools: bool,
    /// Whether these are page-locked, where the device offers it.
    pub pinned: bool,
    /// How long one call of `start` or `finish` may take before it counts as hung.
    pub hang_after: Duration,
    /// How long opening a device, or loading a key with the wait for room, may take before it counts as hung.
    pub open_within: Duration,
    /// How often a partition is tried before its job fails.
    pub attempts: u32,
    /// After how many failures in a row a device is quarantined.
    pub quarantine_after: u32,
    /// Whether the ledger's changes and the partitions' steps are recorded, for pictures and tests.
    pub record: bool,
    /// When a synthesis worker is free.
    pub work_permit: WorkPermit,
    /// How long inputs live.
    pub hold: Hold,
    /// A pause before each `finish`: stands in for work on the CPU that other provers do there. For measurements.
    pub finish_delay: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            synthesis_workers: 2,
            device_workers: 2,
            finishers: 4,
            in_flight: 8,
            capacity: Capacity::default(),
            loaded_keys: usize::MAX,
            host_budget: None,
            pools: true,
            pinned: true,
            hang_after: Duration::from_secs(600),
            open_within: Duration::from_secs(1800),
            attempts: 5,
            quarantine_after: 3,
            record: false,
            work_permit: WorkPermit::default(),
            hold: Hold::default(),
            finish_delay: Duration::ZERO,
        }
    }
}

/// Opens a device; its host memory is to be charged to the ledger.
pub type Opener = Arc<dyn Fn(&MemoryLedger) -> Result<Backend, String> + Send + Sync>;

/// A device and how it is used.
#[derive(Clone)]
pub struct DeviceSpec {
    pub(crate) name: String,
    pub(crate) open: Opener,
    pub(crate) working_bytes: u64,
    pub(crate) retained_bytes: Option<u64>,
    pub(crate) vram_limit: Option<u64>,
    pub(crate) vram_per_proof: u64,
    pub(crate) fallback: bool,
}

impl DeviceSpec {
    /// A device named `name`. `open` is called once, and again after a panic.
    pub fn new(
        name: impl Into<String>,
        open: impl Fn(&MemoryLedger) -> Result<Backend, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            open: Arc::new(open),
            working_bytes: 0,
            retained_bytes: None,
            vram_limit: None,
            vram_per_proof: 0,
            fallback: false,
        }
    }

    /// Host memory that each call of `start` takes for itself. What turns out to be more is added while the budget has it.
    #[must_use]
    pub fn working_bytes(mut self, bytes: u64) -> Self {
        self.working_bytes = bytes;
        self
    }

    /// Host memory that a proof in flight holds, in place of what the backend declares.
    #[must_use]
    pub fn retained_bytes(mut self, bytes: u64) -> Self {
        self.retained_bytes = Some(bytes);
        self
    }

    /// Device memory: the most that may be used, and what a proof in flight needs beside what stays allocated with the key.
    #[must_use]
    pub fn vram(mut self, limit: u64, per_proof: u64) -> Self {
        (self.vram_limit, self.vram_per_proof) = (Some(limit), per_proof);
        self
    }

    /// Used only when no other device is left.
    #[must_use]
    pub fn fallback(mut self) -> Self {
        self.fallback = true;
        self
    }
}

impl fmt::Debug for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceSpec({}, fallback: {})", self.name, self.fallback)
    }
}
