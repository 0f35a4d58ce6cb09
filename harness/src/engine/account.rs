//! Between the ledger and the budget: the account of a partition, and that of a device.
//!
//! Each partition has a ledger of its own, which passes everything on to its [`PartitionAccount`]. That charges the engine's ledger, within
//! the partition's permit; and it sees each vector go, at the very moment when a backend releases it, and gives its bytes back to
//! the budget then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use splitprover_core::host_buf::{BufferPool, ForeignMemory, recycled};
use splitprover_core::memory::{Charge, OutOfHostMemory, Upstream};
use splitprover_core::{HostMemory, Inputs, MemoryClass, MemoryLedger};

use super::budget::{Budget, Permit};
use super::history::Recorder;
use super::pools::{Evict, Pools};

/// Index of the host's account in the budget.
pub(crate) const HOST: usize = 0;

/// The engine's host memory: facts, promises, idle buffers.
pub(crate) struct Host {
    pub(crate) ledger: MemoryLedger,
    pub(crate) budget: Budget,
    pub(crate) pools: Pools,
    pub(crate) recorder: Recorder,
}

impl Host {
    pub(crate) fn new(limit: u64, record: bool) -> Self {
        let ledger = MemoryLedger::new(Some(limit));
        if record {
            ledger.record_history();
        }
        let (budget, pools) = (Budget::new(&[("host", limit)]), Pools::new(&ledger));
        let recorder = Recorder::new(&ledger, record);
        Self { ledger, budget, pools, recorder }
    }

    /// Charges the ledger; idle buffers make room, those that `evict` can free here.
    pub(crate) fn charge(&self, class: MemoryClass, bytes: u64, evict: Evict) -> Result<Charge, OutOfHostMemory> {
        loop {
            match self.ledger.charge(class, bytes) {
                Ok(charge) => return Ok(charge),
                Err(error) if !self.pools.evict(bytes, evict) => return Err(error),
                Err(_) => {}
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Charges of one holder, by the class that it knows them by.
#[derive(Default)]
struct Charges(Vec<(MemoryClass, Charge)>);

impl Charges {
    fn total(&self) -> u64 {
        self.0.iter().map(|(_, charge)| charge.bytes()).sum()
    }

    fn of(&self, class: MemoryClass) -> u64 {
        self.0.iter().filter(|(known, _)| *known == class).map(|(_, charge)| charge.bytes()).sum()
    }

    fn add(&mut self, class: MemoryClass, charge: Charge) {
        self.0.retain(|(_, charge)| charge.bytes() > 0);
        self.0.push((class, charge));
    }

    /// Takes `bytes` of a class out, in as many parts as they were charged in. They belong to one buffer of that size, or to several that
    /// are given back at once.
    fn take(&mut self, class: MemoryClass, mut bytes: u64) -> Vec<Charge> {
        let mut taken = Vec::new();
        // An exact match first, so that a buffer's charge stays in one piece.
        if let Some(at) = self.0.iter().position(|(known, charge)| *known == class && charge.bytes() == bytes) {
            return vec![self.0.swap_remove(at).1];
        }
        for (known, charge) in &mut self.0 {
            if *known == class && bytes > 0 {
                let part = charge.split_off(bytes);
                bytes -= part.bytes();
                taken.push(part);
            }
        }
        self.0.retain(|(_, charge)| charge.bytes() > 0);
        taken
    }
}

struct PartitionState {
    permit: Permit,
    charges: Charges,
    /// Memory on its way home, whose bytes are given back next.
    returning: Vec<(Box<dyn ForeignMemory>, Option<usize>)>,
    /// Synthesis has ended: what goes now goes back to the budget.
    sealed: bool,
    /// Bytes counted as evaluations that outlived `start`.
    beyond: u64,
    stuck: bool,
}

/// The account of one attempt at a partition.
pub(crate) struct PartitionAccount {
    host: Arc<Host>,
    /// The device for which its buffers are made.
    device: Option<usize>,
    state: Mutex<PartitionState>,
}

impl PartitionAccount {
    pub(crate) fn new(host: &Arc<Host>, permit: Permit, device: Option<usize>) -> Arc<Self> {
        let state = PartitionState {
            permit,
            charges: Charges::default(),
            returning: Vec::new(),
            sealed: false,
            beyond: 0,
            stuck: false,
        };
        Arc::new(Self { host: host.clone(), device, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, PartitionState> {
        lock(&self.state)
    }

    /// Where its vectors come from.
    pub(crate) fn memory(self: &Arc<Self>, pooled: bool) -> HostMemory {
        let memory = HostMemory::new(MemoryLedger::forwarding(self.clone()));
        if pooled { memory.drawing_from(Arc::new(Draw(self.clone()))) } else { memory }
    }

    /// The device whose page-locked buffers it draws from.
    pub(crate) fn device(&self) -> Option<usize> {
        self.device
    }

    /// Synthesis is over: only what exists now stays promised, and that until it goes.
    pub(crate) fn seal(&self) {
        let mut state = self.state();
        state.sealed = true;
        let held = state.charges.total();
        state.permit.shrink_to(HOST, held);
    }

    /// A device was refused memory while it had this partition: its vectors go, and of what was promised for them the device gets what
    /// it lacked. So it has the memory the next time, without waiting for partitions that wait for it.
    pub(crate) fn yield_to(&self, device: &FixedAccount, inputs: Option<Box<Inputs>>) {
        self.state().sealed = false;
        drop(inputs);
        let mut device = lock(&device.state);
        let wanted = std::mem::take(&mut device.wanted);
        self.state().permit.donate(HOST, wanted, &mut device.permit);
    }

    /// `start` has returned: evaluations that still exist count as such.
    pub(crate) fn started(&self) {
        let mut state = self.state();
        state.beyond = state.charges.of(MemoryClass::Evaluations);
        self.host.recorder.beyond_start(state.beyond as i64);
    }

    /// The call to which the vectors are lent doesn't return.
    pub(crate) fn mark_stuck(&self) {
        let mut state = self.state();
        state.stuck = true;
        for (_, charge) in &mut state.charges.0 {
            charge.reclassify(MemoryClass::Stuck);
        }
        state.permit.mark_stuck();
    }

    /// Bytes on the account.
    #[cfg(test)]
    fn held(&self) -> u64 {
        self.state().charges.total()
    }
}

impl Upstream for PartitionAccount {
    fn charge(&self, class: MemoryClass, bytes: u64) -> Result<(), String> {
        let mut state = self.state();
        let (held, promised) = (state.charges.total(), state.permit.amounts()[HOST]);
        if held.saturating_add(bytes) > promised {
            return Err(format!("{held} of the partition's {promised} bytes in use: its footprint is too small"));
        }
        let charge = self.host.charge(class, bytes, Evict::Any).map_err(|error| error.to_string())?;
        state.charges.add(class, charge);
        Ok(())
    }

    fn give_back(&self, class: MemoryClass, bytes: u64) {
        let mut state = self.state();
        let parts = state.charges.take(class, bytes);
        if class == MemoryClass::Evaluations && state.beyond > 0 {
            let gone = bytes.min(state.beyond);
            state.beyond -= gone;
            self.host.recorder.beyond_start(-(gone as i64));
        }
        let home = state.returning.iter().position(|(memory, _)| memory.len_bytes() as u64 == bytes);
        let home = home.map(|at| state.returning.swap_remove(at));
        match (home, <[Charge; 1]>::try_from(parts)) {
            (Some((memory, device)), Ok([charge])) => self.host.pools.accept(memory, device, charge),
            // Memory that the pool can't account for is freed.
            (home, parts) => drop((home, parts)),
        }
        if state.sealed {
            let held = state.charges.total();
            state.permit.shrink_to(HOST, held);
        }
    }
}

/// A partition's way to the pools.
struct Draw(Arc<PartitionAccount>);

impl BufferPool for Draw {
    fn take(&self, bytes: usize) -> Option<Box<dyn ForeignMemory>> {
        let account = self.0.clone();
        {
            // What the permit doesn't cover is refused where it is charged; no memory is made for it.
            let state = account.state();
            if state.charges.total().saturating_add(bytes as u64) > state.permit.amounts()[HOST] {
                return None;
            }
        }
        let (memory, device) = account.host.pools.take(bytes, account.device)?;
        // The buffer's bytes are given back right after its memory.
        Some(recycled(memory, move |memory| account.state().returning.push((memory, device))))
    }
}

struct FixedState {
    permit: Permit,
    charges: Charges,
    /// Bytes that were refused last.
    wanted: u64,
    /// What stays promised whatever is given back.
    floor: u64,
}

/// The account of something that stays: what a device's backend takes on the host for itself, or what an application sets aside.
pub(crate) struct FixedAccount {
    host: Arc<Host>,
    state: Mutex<FixedState>,
}

impl FixedAccount {
    /// With a permit for what it is known to need.
    pub(crate) fn new(host: &Arc<Host>, permit: Permit) -> Arc<Self> {
        let floor = permit.amounts()[HOST];
        let state = FixedState { permit, charges: Charges::default(), wanted: 0, floor };
        Arc::new(Self { host: host.clone(), state: Mutex::new(state) })
    }

    /// The ledger that the backend is opened with.
    pub(crate) fn ledger(self: &Arc<Self>) -> MemoryLedger {
        MemoryLedger::forwarding(self.clone())
    }

    /// Adds to the permit.
    pub(crate) fn add(&self, more: Permit) {
        let mut state = lock(&self.state);
        state.floor = state.floor.saturating_add(more.amounts()[HOST]);
        state.permit.absorb(more);
    }

    /// Gives `bytes` of the promise back, as far as they aren't in use or meant to stay: a key has been unloaded.
    pub(crate) fn release(&self, bytes: u64) {
        let mut state = lock(&self.state);
        let kept = state.permit.amounts()[HOST].saturating_sub(bytes);
        let kept = kept.max(state.charges.total()).max(state.floor);
        state.permit.shrink_to(HOST, kept);
    }

    /// Bytes on the account.
    pub(crate) fn held(&self) -> u64 {
        lock(&self.state).charges.total()
    }
}

impl Upstream for FixedAccount {
    fn charge(&self, class: MemoryClass, bytes: u64) -> Result<(), String> {
        if class == MemoryClass::PoolIdle {
            // A second pool behind the engine's would keep what the engine frees.
            return Err("idle buffers are kept by the engine".into());
        }
        let mut state = lock(&self.state);
        let held = state.charges.total().saturating_add(bytes);
        let promised = state.permit.amounts()[HOST];
        let more = held.saturating_sub(promised);
        if more > 0 && !state.permit.try_grow(HOST, more) {
            state.wanted = more;
            return Err(format!("the device has {promised} bytes of the budget and nothing is free"));
        }
        // The backend is in the middle of its accounting: its own buffers can't be freed now.
        let charge = self.host.charge(class, bytes, Evict::Pageable).map_err(|error| error.to_string())?;
        state.charges.add(class, charge);
        Ok(())
    }

    fn give_back(&self, class: MemoryClass, bytes: u64) {
        drop(lock(&self.state).charges.take(class, bytes));
    }
}

#[cfg(test)]
mod tests {
    use splitprover_core::Scalar;
    use splitprover_core::host_buf::MAP_THRESHOLD;

    use super::*;

    const NEVER: &dyn Fn() -> bool = &|| false;
    const VALUES: usize = MAP_THRESHOLD / 32;
    const BYTES: u64 = MAP_THRESHOLD as u64;

    fn reserved(host: &Host) -> u64 {
        host.budget.accounts()[HOST].reserved
    }

    #[test]
    fn a_partition_gives_its_bytes_back_vector_by_vector() {
        for pooled in [false, true] {
            let host = Arc::new(Host::new(10 * BYTES, true));
            let account = PartitionAccount::new(&host, host.budget.acquire(&[4 * BYTES], NEVER).unwrap(), None);
            let memory = account.memory(pooled);
            let zeroed = |class| memory.zeroed::<Scalar>(class, VALUES);
            let (a, b) = (zeroed(MemoryClass::Evaluations).unwrap(), zeroed(MemoryClass::Evaluations).unwrap());
            let witness = zeroed(MemoryClass::Witness).unwrap();
            drop(zeroed(MemoryClass::Staging).unwrap());
            assert_eq!(reserved(&host), 4 * BYTES, "what synthesis gives back it may take again");
            account.seal();
            assert_eq!(reserved(&host), 3 * BYTES);
            drop(a);
            assert_eq!(reserved(&host), 2 * BYTES);
            account.started();
            assert_eq!(host.recorder.beyond(), (BYTES, BYTES));
            drop(b);
            assert_eq!((host.recorder.beyond(), reserved(&host)), ((0, BYTES), BYTES));
            drop(witness);
            let idle = if pooled { 4 * BYTES } else { 0 };
            assert_eq!((reserved(&host), host.ledger.now().total()), (0, idle));
            assert_eq!(host.ledger.now()[MemoryClass::PoolIdle], idle);
            assert!(host.ledger.peak_total() <= 4 * BYTES);
            drop((account, memory));
            host.pools.close();
            assert_eq!((reserved(&host), host.ledger.now().total()), (0, 0));
        }
    }

    #[test]
    fn a_partition_cannot_take_more_than_it_was_promised() {
        let host = Arc::new(Host::new(10 * BYTES, false));
        let account = PartitionAccount::new(&host, host.budget.acquire(&[BYTES], NEVER).unwrap(), None);
        let memory = account.memory(true);
        let error = memory.zeroed::<Scalar>(MemoryClass::Witness, VALUES + 1).unwrap_err();
        assert!(error.reason.contains("footprint"), "{error}");
        assert_eq!((account.held(), host.ledger.now().total()), (0, 0));
        assert!(memory.zeroed::<Scalar>(MemoryClass::Witness, VALUES).is_ok());
    }

    #[test]
    fn stuck_bytes_stay_until_they_come_back() {
        let host = Arc::new(Host::new(10 * BYTES, false));
        let account = PartitionAccount::new(&host, host.budget.acquire(&[2 * BYTES], NEVER).unwrap(), None);
        let memory = account.memory(true);
        let (a, witness) = (
            memory.zeroed::<Scalar>(MemoryClass::Evaluations, VALUES).unwrap(),
            memory.zeroed::<Scalar>(MemoryClass::Witness, VALUES).unwrap(),
        );
        account.seal();
        account.mark_stuck();
        assert_eq!((host.ledger.now()[MemoryClass::Stuck], host.budget.accounts()[HOST].stuck), (2 * BYTES, 2 * BYTES));
        drop(a);
        assert_eq!((host.ledger.now()[MemoryClass::Stuck], host.budget.accounts()[HOST].stuck), (BYTES, BYTES));
        drop(witness);
        host.pools.close();
        assert_eq!((host.ledger.now().total(), host.budget.accounts()[HOST].reserved), (0, 0));
    }

    #[test]
    fn a_device_grows_while_the_budget_has_room_and_keeps_no_pool() {
        let host = Arc::new(Host::new(10, false));
        let account = FixedAccount::new(&host, host.budget.acquire_fixed(&[4], NEVER).unwrap());
        let ledger = account.ledger();
        let within = ledger.charge(MemoryClass::Backend, 4).unwrap();
        let grown = ledger.charge(MemoryClass::Staging, 3).unwrap();
        assert_eq!((reserved(&host), account.held()), (7, 7));
        assert!(ledger.charge(MemoryClass::Backend, 4).is_err());
        assert!(ledger.charge(MemoryClass::PoolIdle, 1).is_err());
        // A partition yields what the device lacked.
        let partition = PartitionAccount::new(&host, host.budget.acquire(&[3], NEVER).unwrap(), None);
        partition.yield_to(&account, None);
        assert_eq!((reserved(&host), host.budget.accounts()[HOST].fixed), (10, 10));
        assert!(ledger.charge(MemoryClass::Backend, 3).is_ok());
        drop((within, grown, partition));
        assert_eq!((reserved(&host), account.held(), host.ledger.now().total()), (10, 0, 0));
    }
}
