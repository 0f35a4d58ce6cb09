//! A backend for tests: the CPU's, with faults planted where a test wants them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};

use splitprover_backend_cpu::{CpuBackend, CpuOptions};
use splitprover_core::abi::{BackendLibrary, BackendPlugin, DeviceInfo, Host, OpenOptions, Options, Statistic};
use splitprover_core::memory::OutOfHostMemory;
use splitprover_core::{
    BackendError, CircuitShape, G1Affine, HostBuf, LentInputs, MemoryClass, PendingSums, ProvingKey, QuerySums,
    SplitProver,
};

use super::DeviceSpec;

/// What goes wrong, and when: in every n-th call, counted from 1 over all instances; 0: never.
#[derive(Default)]
pub(super) struct Plant {
    pub(super) start_fails: u64,
    /// As `start_fails`, but after the inputs have been released.
    pub(super) start_fails_late: u64,
    pub(super) start_panics: u64,
    pub(super) finish_fails: u64,
    pub(super) finish_panics: u64,
    /// A proof in flight that is dropped.
    pub(super) drop_panics: u64,
    pub(super) sums_are_wrong: u64,
    /// Says that it doesn't do such a thing.
    pub(super) start_unsupported: u64,
    pub(super) load_fails: u64,
    pub(super) load_panics: u64,
    /// Keys for which there is room at one time; 0: for any number.
    pub(super) room_for_keys: u64,
    /// Keys of this size can't be loaded.
    pub(super) unsupported_log2: u32,
    /// Host memory that each key takes and charges, in bytes.
    pub(super) key_takes: usize,
    /// Device memory that each key takes and that shows in the figures; 0: no such figure.
    pub(super) key_vram: u64,
    /// Memory that each start takes and charges, in bytes.
    pub(super) takes: usize,
    /// Only this call waits for the gate.
    pub(super) start_hangs_at: u64,
    pub(super) finish_hangs_at: u64,
    pub(super) drop_hangs_at: u64,
    pub(super) open_hangs_at: u64,
    pub(super) load_hangs_at: u64,
    /// All calls wait for the gate.
    pub(super) gate_starts: AtomicBool,
    pub(super) gate_finishes: AtomicBool,
    pub(super) open: Mutex<bool>,
    pub(super) opened: Condvar,
    pub(super) starts: AtomicU64,
    pub(super) finishes: AtomicU64,
    pub(super) drops: AtomicU64,
    pub(super) instances: AtomicU64,
    pub(super) loads: AtomicU64,
    /// Keys that are loaded, and how many were at most.
    pub(super) loaded: AtomicU64,
    pub(super) loaded_peak: AtomicU64,
}

impl Plant {
    fn hits(every: u64, count: u64) -> bool {
        every > 0 && count.is_multiple_of(every)
    }

    fn wait_for_gate(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_while(open, |open| !*open).unwrap_or_else(PoisonError::into_inner));
    }

    /// Lets everybody through who waits, now and later.
    pub(super) fn open_gate(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }
}

static PLANTS: LazyLock<Mutex<HashMap<String, Arc<Plant>>>> = LazyLock::new(Mutex::default);

/// A device with these faults.
pub(super) fn device(name: &str, plant: &Arc<Plant>) -> DeviceSpec {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
    PLANTS.lock().unwrap_or_else(PoisonError::into_inner).insert(number.clone(), plant.clone());
    DeviceSpec::new(name, move |ledger| {
        let options = OpenOptions::new(0).set("plant", number.as_str()).ledger(ledger.clone());
        BackendLibrary::in_process::<Planted>().open(&options).map_err(|error| error.to_string())
    })
    .retained_bytes(0)
    .working_bytes(64 << 10)
}

struct Planted;

struct PlantedProver {
    cpu: CpuBackend,
    plant: Arc<Plant>,
    memory: splitprover_core::HostMemory,
}

struct PlantedKey {
    inner: <CpuBackend as SplitProver>::Key,
    _bytes: HostBuf<u8>,
    plant: Arc<Plant>,
}

impl Drop for PlantedKey {
    fn drop(&mut self) {
        self.plant.loaded.fetch_sub(1, Ordering::SeqCst);
    }
}

struct PlantedPending {
    /// `None` once it is finished.
    pending: Option<<CpuBackend as SplitProver>::Pending>,
    plant: Arc<Plant>,
}

impl Drop for PlantedPending {
    fn drop(&mut self) {
        if self.pending.is_none() {
            return;
        }
        let plant = &self.plant;
        let count = plant.drops.fetch_add(1, Ordering::SeqCst) + 1;
        if plant.drop_hangs_at == count {
            plant.wait_for_gate();
        }
        assert!(!Plant::hits(plant.drop_panics, count), "planted");
    }
}

impl BackendPlugin for Planted {
    const NAME: &'static str = "planted";
    const VENDOR: &'static str = "tests";
    const VERSION: &'static str = "0";
    type Prover = PlantedProver;

    fn devices(_: &Host) -> Result<Vec<DeviceInfo>, BackendError> {
        Ok(vec![DeviceInfo::new("planted", "cpu")])
    }

    fn open(_: usize, options: &Options, host: Host) -> Result<PlantedProver, BackendError> {
        let number = options.get("plant").unwrap_or_default();
        let plant = PLANTS.lock().unwrap_or_else(PoisonError::into_inner).get(number).cloned();
        let plant = plant.ok_or_else(|| BackendError::Unsupported("no such plant".into()))?;
        if plant.instances.fetch_add(1, Ordering::SeqCst) + 1 == plant.open_hangs_at {
            plant.wait_for_gate();
        }
        let memory = host.memory().clone();
        let cpu = CpuBackend::new(CpuOptions { threads: Some(1), arithmetic: None, memory: memory.clone() })?;
        Ok(PlantedProver { cpu, plant, memory })
    }

    fn statistics(prover: &PlantedProver) -> Vec<Statistic> {
        let Plant { key_vram, loaded, .. } = &*prover.plant;
        let held = (*key_vram > 0).then(|| (10 + key_vram * loaded.load(Ordering::SeqCst)) as f64);
        held.map(|value| Statistic { name: "device memory held, bytes".into(), value }).into_iter().collect()
    }
}

impl SplitProver for PlantedProver {
    type Key = PlantedKey;
    type Pending = PlantedPending;

    fn load_key(&self, key: &Arc<ProvingKey>) -> Result<PlantedKey, BackendError> {
        let plant = &self.plant;
        let count = plant.loads.fetch_add(1, Ordering::SeqCst) + 1;
        if plant.load_hangs_at == count {
            plant.wait_for_gate();
        }
        if key.shape().domain_log2 == plant.unsupported_log2 {
            return Err(BackendError::Unsupported("keys of this size".into()));
        }
        let loaded = plant.loaded.load(Ordering::SeqCst);
        if plant.room_for_keys > 0 && loaded >= plant.room_for_keys {
            return Err(BackendError::DeviceMemory { what: "a key", requested: 1, available: 0 });
        }
        assert!(!Plant::hits(plant.load_panics, count), "planted");
        if Plant::hits(plant.load_fails, count) {
            return Err(BackendError::device("a test", "planted"));
        }
        let bytes = self.memory.zeroed::<u8>(MemoryClass::Backend, plant.key_takes)?;
        let inner = self.cpu.load_key(key)?;
        plant.loaded_peak.fetch_max(plant.loaded.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Ok(PlantedKey { inner, _bytes: bytes, plant: plant.clone() })
    }

    fn start<'i>(&self, key: &PlantedKey, inputs: LentInputs<'i>) -> Result<PlantedPending, BackendError> {
        let plant = &self.plant;
        let count = plant.starts.fetch_add(1, Ordering::SeqCst) + 1;
        if Plant::hits(plant.start_fails, count) {
            return Err(BackendError::DeviceMemory { what: "a test", requested: 1, available: 0 });
        }
        if Plant::hits(plant.start_unsupported, count) {
            return Err(BackendError::Unsupported("this".into()));
        }
        if Plant::hits(plant.start_panics, count) {
            panic!("planted");
        }
        if Plant::hits(plant.start_fails_late, count) {
            inputs.witness.release();
            return Err(BackendError::device("a test", "planted"));
        }
        if plant.start_hangs_at == count || plant.gate_starts.load(Ordering::SeqCst) {
            plant.wait_for_gate();
        }
        let scratch = self.memory.zeroed::<u8>(MemoryClass::Backend, plant.takes)?;
        let pending = self.cpu.start(&key.inner, inputs)?;
        drop(scratch);
        Ok(PlantedPending { pending: Some(pending), plant: plant.clone() })
    }

    fn retained_host_bytes(&self, _: &CircuitShape) -> u64 {
        0
    }
}

impl PendingSums for PlantedPending {
    fn finish(mut self) -> Result<QuerySums, BackendError> {
        let pending = self.pending.take();
        let plant = &self.plant;
        let count = plant.finishes.fetch_add(1, Ordering::SeqCst) + 1;
        if plant.finish_hangs_at == count || plant.gate_finishes.load(Ordering::SeqCst) {
            plant.wait_for_gate();
        }
        if Plant::hits(plant.finish_panics, count) {
            panic!("planted");
        }
        if Plant::hits(plant.finish_fails, count) {
            return Err(BackendError::HostMemory(OutOfHostMemory {
                class: MemoryClass::Backend,
                requested: 1,
                reason: "planted".into(),
            }));
        }
        let sums = pending.ok_or(BackendError::Cancelled)?.finish()?;
        if Plant::hits(plant.sums_are_wrong, count) {
            return Ok(QuerySums { hl: G1Affine::from(blstrs::G1Projective::from(sums.hl) + sums.a), ..sums });
        }
        Ok(sums)
    }
}
