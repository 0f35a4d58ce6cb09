//! The CPU backend with one fault at a time, chosen by the option `mode` or, where there is none, by the environment variable
//! `SPLITPROVER_MISBEHAVE`. Without either it behaves. With the option `above` the faults of `start` and of pending proofs come with
//! keys of more rows only: a program opens a backend with a proof of a few rows.
//!
//! Several faults need `unsafe` code: the compiler refuses them otherwise. That is the point; the suite is for backends whose
//! authors have it anyway.

mod fault;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use splitprover_backend_cpu::{CpuBackend, CpuPending, CpuPlugin};
use splitprover_core::abi::{BackendPlugin, DeviceInfo, Host, Options};
use splitprover_core::{
    BackendError, CircuitShape, LentInputs, MemoryClass, PendingSums, ProvingKey, QuerySums, SplitProver,
};

use fault::{Kept, Mode, hang, leak};

/// The plug-in.
struct Plugin;

impl BackendPlugin for Plugin {
    const NAME: &'static str = "misbehaving";
    const VENDOR: &'static str = "splitprover";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Prover = Misbehaving;

    fn devices(_: &Host) -> Result<Vec<DeviceInfo>, BackendError> {
        let name = Mode::of_environment()?.map_or("behaving", Mode::name);
        Ok(vec![DeviceInfo::new(name, "cpu")])
    }

    fn open(device: usize, options: &Options, host: Host) -> Result<Misbehaving, BackendError> {
        options.only(&["mode", "above"])?;
        let above = options.get("above").map_or(Ok(0), str::parse);
        let above = above.map_err(|_| BackendError::Unsupported("above takes a number of rows".into()))?;
        let mode = match options.get("mode") {
            Some(name) => Some(Mode::of(name)?),
            None => Mode::of_environment()?,
        };
        let inner = CpuPlugin::open(device, &Options::default(), host.clone())?;
        Ok(Misbehaving { inner, mode, above, host, proofs: AtomicU64::new(0) })
    }
}

/// The CPU backend and its fault.
struct Misbehaving {
    inner: CpuBackend,
    mode: Option<Mode>,
    /// Rows up to which proofs are as they should be.
    above: usize,
    host: Host,
    proofs: AtomicU64,
}

/// A key whose destructor may panic.
struct Key {
    inner: <CpuBackend as SplitProver>::Key,
    shape: CircuitShape,
    mode: Option<Mode>,
}

/// A pending proof and what it keeps.
struct Pending {
    inner: Option<CpuPending>,
    mode: Option<Mode>,
    /// Whether this proof is one of the wrong ones.
    wrong: bool,
    kept: Option<Kept>,
}

impl SplitProver for Misbehaving {
    type Key = Key;
    type Pending = Pending;

    fn load_key(&self, key: &Arc<ProvingKey>) -> Result<Key, BackendError> {
        Ok(Key { inner: self.inner.load_key(key)?, shape: key.shape(), mode: self.mode })
    }

    fn start<'i>(&self, key: &Key, inputs: LentInputs<'i>) -> Result<Pending, BackendError> {
        let number = self.proofs.fetch_add(1, Ordering::Relaxed);
        let mut kept = None;
        let mut wrong = true;
        let mode = self.mode.filter(|_| key.shape.domain_size() > self.above);
        match mode {
            Some(Mode::Keep) => kept = Some(Kept::pointer(&inputs.witness)),
            Some(Mode::LateThread) => kept = Some(Kept::thread(&inputs.witness)),
            Some(Mode::Copy) => kept = Some(Kept::copy(&inputs)),
            Some(Mode::ScribbleThenFail) => {
                if let Err(refused) = self.host.memory().zeroed::<u8>(MemoryClass::Staging, 64) {
                    fault::scribble(&inputs.witness);
                    return Err(refused.into());
                }
            }
            Some(Mode::PanicInStart) => panic!("a planned panic in start"),
            Some(Mode::WrongAbove65536) => wrong = key.shape.domain_size() > 1 << 16,
            Some(Mode::NonDeterministic) => wrong = number % 3 == 2,
            Some(Mode::Slow) => std::thread::sleep(std::time::Duration::from_secs(20)),
            Some(Mode::HangInStart) => hang(),
            _ => {}
        }
        let inner = self.inner.start(&key.inner, inputs)?;
        Ok(Pending { inner: Some(inner), mode, wrong, kept })
    }

    fn retained_host_bytes(&self, shape: &CircuitShape) -> u64 {
        self.inner.retained_host_bytes(shape)
    }
}

impl PendingSums for Pending {
    fn finish(mut self) -> Result<QuerySums, BackendError> {
        let inner = self.inner.take().ok_or(BackendError::Cancelled)?;
        match self.mode {
            Some(Mode::PanicInFinish) => panic!("a planned panic in finish"),
            Some(Mode::HangInFinish) => hang(),
            Some(Mode::LeakPending) => leak(),
            _ => {}
        }
        let mut sums = inner.finish()?;
        let changed = self.kept.take().is_some_and(Kept::changed);
        if let Some(mode) = self.mode
            && self.wrong
        {
            mode.spoil(&mut sums, changed);
        }
        Ok(sums)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.inner.is_some() {
            match self.mode {
                Some(Mode::PanicInDrop) => panic!("a planned panic in a destructor"),
                Some(Mode::LeakPending) => leak(),
                _ => {}
            }
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        assert!(self.mode != Some(Mode::PanicInUnload), "a planned panic in the key's destructor");
    }
}
