//! Keys: several circuits under one budget.
//!
//! An engine is made with one key, and [`Engine::add_key`](super::Engine::add_key) adds others; a job
//! [names its own](super::JobSpec::key). What a key takes of host memory is promised and on the ledger as long as somebody holds an
//! [`EngineKey`], a job needs it, or a device has it loaded. A device loads a key when the first partition that needs it arrives, or
//! [ahead](super::Engine::load_ahead). Where it has no room for one more it unloads the key that has been idle longest, and if none is
//! idle, starts nothing else until one is. A key that a device can't take at all, even alone, goes to the others.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use splitprover_core::abi::Backend;
use splitprover_core::memory::{Charge, OutOfHostMemory};
use splitprover_core::{LoadedKey, MemoryClass, ProvingKey};

use super::account::Host;
use super::budget::{BudgetError, Permit};

/// Why an engine doesn't take a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// With it, either the key or a partition that waits could never have its memory.
    #[error("the key: {0}")]
    Budget(#[from] BudgetError),
    /// The ledger refused it.
    #[error("the key: {0}")]
    Memory(#[from] OutOfHostMemory),
}

/// A key in an engine. Clones are the same one; the key goes when the last of them has gone and no job needs it any more.
#[derive(Clone)]
pub struct EngineKey(pub(crate) Arc<KeyEntry>);

impl EngineKey {
    /// Its number in the engine, from 0.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// The key.
    pub fn key(&self) -> &Arc<ProvingKey> {
        &self.0.key
    }
}

impl fmt::Debug for EngineKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineKey({}, {:?})", self.0.number, self.0.key.shape())
    }
}

/// A key as long as somebody may need it.
pub(crate) struct KeyEntry {
    /// The engine, by the number that its jobs have too.
    pub(crate) engine: u64,
    pub(crate) number: u64,
    pub(crate) key: Arc<ProvingKey>,
    bytes: Arc<KeyBytes>,
}

/// What a key takes of host memory. A device that has it loaded holds on to it.
pub(crate) struct KeyBytes {
    charge: Charge,
    _permit: Permit,
}

/// A key on a device.
pub(crate) struct Loaded {
    // First what the device holds, then what is promised and counted for it.
    pub(crate) key: LoadedKey<Backend>,
    entry: Weak<KeyEntry>,
    number: u64,
    _vram: Option<Permit>,
    _bytes: Arc<KeyBytes>,
    _counted: Counted,
}

impl Loaded {
    pub(crate) fn new(key: LoadedKey<Backend>, entry: &Arc<KeyEntry>, vram: Option<Permit>, count: &LoadCount) -> Self {
        let (bytes, counted) = (entry.bytes.clone(), Counted(count.0.clone()));
        counted.0.fetch_add(1, Ordering::SeqCst);
        Self { key, entry: Arc::downgrade(entry), number: entry.number, _vram: vram, _bytes: bytes, _counted: counted }
    }
}

/// How many keys a device has loaded, those on their way out and those of retired instances too.
#[derive(Debug, Default)]
pub(crate) struct LoadCount(Arc<AtomicUsize>);

impl LoadCount {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The keys that an instance has loaded, the one used last at the end.
#[derive(Default)]
pub(crate) struct LoadedKeys(Mutex<Vec<Arc<Loaded>>>);

impl LoadedKeys {
    fn keys(&self) -> MutexGuard<'_, Vec<Arc<Loaded>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For use: as long as the result lives it isn't idle.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<Loaded>> {
        let mut keys = self.keys();
        let at = keys.iter().position(|loaded| loaded.number == number)?;
        let found = keys.remove(at);
        keys.push(found.clone());
        Some(found)
    }

    pub(crate) fn add(&self, loaded: Loaded) -> Arc<Loaded> {
        let loaded = Arc::new(loaded);
        self.keys().push(loaded.clone());
        loaded
    }

    pub(crate) fn len(&self) -> usize {
        self.keys().len()
    }

    pub(crate) fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<_> = self.keys().iter().map(|loaded| loaded.number).collect();
        numbers.sort_unstable();
        numbers
    }

    fn take_where(&self, wanted: impl Fn(&Loaded) -> bool) -> Option<Arc<Loaded>> {
        let mut keys = self.keys();
        // Others get theirs under this lock, so whoever is alone here stays so.
        let at = keys.iter().position(|loaded| Arc::strong_count(loaded) == 1 && wanted(loaded))?;
        Some(keys.remove(at))
    }

    /// Takes out the key that has been idle longest.
    pub(crate) fn take_idle(&self) -> Option<Arc<Loaded>> {
        self.take_where(|_| true)
    }

    /// Takes out a key that nobody will need any more.
    pub(crate) fn take_forgotten(&self) -> Option<Arc<Loaded>> {
        self.take_where(|loaded| loaded.entry.strong_count() == 0)
    }
}

/// The keys of an engine.
#[derive(Default)]
pub(crate) struct Keys(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    keys: Vec<Known>,
}

struct Known {
    number: u64,
    entry: Weak<KeyEntry>,
    bytes: Weak<KeyBytes>,
}

impl Keys {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same key, if it is there already.
    pub(crate) fn find(&self, key: &Arc<ProvingKey>) -> Option<EngineKey> {
        let entries = self.state().keys.iter().filter_map(|known| known.entry.upgrade()).collect::<Vec<_>>();
        entries.into_iter().find(|entry| Arc::ptr_eq(&entry.key, key)).map(EngineKey)
    }

    /// Adds a key whose bytes have been promised.
    pub(crate) fn add(
        &self,
        engine: u64,
        key: &Arc<ProvingKey>,
        bytes: u64,
        permit: Permit,
        host: &Host,
    ) -> Result<EngineKey, OutOfHostMemory> {
        let charge = host.charge_key(bytes)?;
        let bytes = Arc::new(KeyBytes { charge, _permit: permit });
        let mut state = self.state();
        state.keys.retain(|known| known.bytes.strong_count() > 0);
        let number = state.next;
        state.next += 1;
        let known_bytes = Arc::downgrade(&bytes);
        let entry = Arc::new(KeyEntry { engine, number, key: key.clone(), bytes });
        state.keys.push(Known { number, entry: Arc::downgrade(&entry), bytes: known_bytes });
        Ok(EngineKey(entry))
    }

    /// Whether there are keys that nobody needs and that devices haven't unloaded yet.
    pub(crate) fn are_leaving(&self) -> bool {
        self.state().keys.iter().any(|known| known.entry.strong_count() == 0 && known.bytes.strong_count() > 0)
    }

    /// Number and bytes of each key, those on their way out too.
    pub(crate) fn bytes(&self) -> Vec<(u64, u64)> {
        let bytes = |known: &Known| Some((known.number, known.bytes.upgrade()?.charge.bytes()));
        self.state().keys.iter().filter_map(bytes).collect()
    }
}

impl Host {
    /// Charges a key's bytes to the ledger, where idle buffers make room.
    fn charge_key(&self, bytes: u64) -> Result<Charge, OutOfHostMemory> {
        self.charge(MemoryClass::Key, bytes, super::pools::Evict::Any)
    }
}
