//! Recycled buffers. Idle ones are within the budget: they are on the ledger as a class of their own, and the first to go when
//! somebody needs the room.
//!
//! A buffer keeps its bytes on the ledger from its birth to its end; on its way out of the pool and back only their class changes.
//! Fresh pages cost a fault each, page-locked ones much more than that, so a partition of the same circuit gets what its forerunner
//! has left.

use std::sync::{Mutex, MutexGuard, PoisonError};

use splitprover_core::host_buf::{ForeignMemory, pageable};
use splitprover_core::memory::Charge;
use splitprover_core::{MemoryClass, MemoryLedger};

/// Page-locked buffers are taken for a request if they are no more than this much longer.
const SLACK: usize = 64 << 10;

/// Makes a page-locked buffer for a device; `None`: it has none to offer.
pub(crate) type PinnedMaker = Box<dyn Fn(usize, usize) -> Option<Box<dyn ForeignMemory>> + Send + Sync>;

struct Idle {
    memory: Box<dyn ForeignMemory>,
    /// The device whose buffers these are; `None`: pageable.
    device: Option<usize>,
    charge: Charge,
}

/// Which idle buffers may be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evict {
    Any,
    /// Those that aren't a backend's.
    Pageable,
}

/// How often a buffer was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PoolStatus {
    /// Idle buffers.
    pub idle_buffers: usize,
    /// Their bytes.
    pub idle_bytes: u64,
    /// Requests served by an idle buffer.
    pub reused: u64,
    /// Requests for which a buffer was made, page-locked.
    pub made_pinned: u64,
    /// Requests for which a buffer was made, pageable.
    pub made_pageable: u64,
    /// Buffers freed because somebody needed the room.
    pub evicted: u64,
}

#[derive(Default)]
struct State {
    idle: Vec<Idle>,
    status: PoolStatus,
    closed: bool,
}

pub(crate) struct Pools {
    ledger: MemoryLedger,
    pinned: std::sync::OnceLock<PinnedMaker>,
    state: Mutex<State>,
}

impl Pools {
    pub(crate) fn new(ledger: &MemoryLedger) -> Self {
        Self { ledger: ledger.clone(), pinned: std::sync::OnceLock::new(), state: Mutex::default() }
    }

    /// From now on buffers for a device are page-locked where it has such.
    pub(crate) fn set_pinned(&self, maker: PinnedMaker) {
        let _ = self.pinned.set(maker);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer for a partition that will probably go to `device`, charged to nobody; whose buffer it is.
    pub(crate) fn take(&self, bytes: usize, device: Option<usize>) -> Option<(Box<dyn ForeignMemory>, Option<usize>)> {
        let fits = |idle: &Idle| (bytes..=bytes + SLACK).contains(&idle.memory.len_bytes());
        let found = {
            let mut state = self.state();
            // The latest first: its pages are the warmest.
            let at = state
                .idle
                .iter()
                .rposition(|idle| fits(idle) && idle.device.is_some() && idle.device == device)
                .or_else(|| state.idle.iter().rposition(|idle| fits(idle) && idle.device.is_none()));
            at.map(|at| {
                state.status.reused += 1;
                state.idle.remove(at)
            })
        };
        if let Some(Idle { memory, device, charge }) = found {
            // The taker charges it next, within its permit.
            drop(charge);
            return Some((memory, device));
        }
        // Room first, so that there is never more than the ledger allows.
        while self.ledger.limit().is_some_and(|limit| self.ledger.now().total().saturating_add(bytes as u64) > limit)
            && self.evict(bytes as u64, Evict::Any)
        {}
        let pinned = device.and_then(|device| self.pinned.get().and_then(|make| make(bytes, device)));
        let mut state = self.state();
        if let Some(memory) = pinned {
            state.status.made_pinned += 1;
            return Some((memory, device));
        }
        state.status.made_pageable += 1;
        drop(state);
        pageable(bytes).ok().map(|memory| (memory, None))
    }

    /// Takes back a buffer with its bytes on the ledger.
    pub(crate) fn accept(&self, memory: Box<dyn ForeignMemory>, device: Option<usize>, mut charge: Charge) {
        let mut state = self.state();
        if !state.closed {
            charge.reclassify(MemoryClass::PoolIdle);
            state.idle.push(Idle { memory, device, charge });
            return;
        }
        drop(state);
        // First the memory, so that the ledger never shows less than there is.
        drop(memory);
        drop(charge);
    }

    /// Frees idle buffers, the oldest first, until `bytes` are freed; whether any was.
    pub(crate) fn evict(&self, bytes: u64, which: Evict) -> bool {
        let mut freed = 0;
        while freed < bytes {
            let oldest = {
                let mut state = self.state();
                let Some(at) = state.idle.iter().position(|idle| which == Evict::Any || idle.device.is_none()) else {
                    break;
                };
                state.status.evicted += 1;
                state.idle.remove(at)
            };
            freed += oldest.charge.bytes();
            let Idle { memory, charge, .. } = oldest;
            drop(memory);
            drop(charge);
        }
        freed > 0
    }

    /// Frees the idle buffers of a device whose instance goes.
    pub(crate) fn forget(&self, device: usize) {
        let gone: Vec<_> = {
            let mut state = self.state();
            let (gone, kept) =
                std::mem::take(&mut state.idle).into_iter().partition(|idle| idle.device == Some(device));
            state.idle = kept;
            gone
        };
        for Idle { memory, charge, .. } in gone {
            drop(memory);
            drop(charge);
        }
    }

    /// Frees everything, and keeps nothing any more.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.evict(u64::MAX, Evict::Any);
    }

    pub(crate) fn status(&self) -> PoolStatus {
        let state = self.state();
        let idle_bytes = state.idle.iter().map(|idle| idle.charge.bytes()).sum();
        PoolStatus { idle_buffers: state.idle.len(), idle_bytes, ..state.status }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 1 << 20;

    #[test]
    fn buffers_are_used_again_stay_on_the_ledger_and_make_room() {
        let ledger = MemoryLedger::new(Some(3 * SIZE as u64));
        let pools = Pools::new(&ledger);
        let used = |(memory, device): (Box<dyn ForeignMemory>, _)| {
            let charge = ledger.charge(MemoryClass::Witness, memory.len_bytes() as u64).unwrap();
            (memory, device, charge)
        };
        let (first, second) = (used(pools.take(SIZE, None).unwrap()), used(pools.take(SIZE, Some(0)).unwrap()));
        let address = second.0.as_ptr();
        for (memory, device, charge) in [first, second] {
            pools.accept(memory, device, charge);
        }
        assert_eq!((ledger.now()[MemoryClass::PoolIdle], ledger.now().total()), (2 * SIZE as u64, 2 * SIZE as u64));
        let again = used(pools.take(SIZE, None).unwrap());
        assert_eq!(again.0.as_ptr(), address);
        // A buffer of another size: the idle one has to go.
        let large = used(pools.take(2 * SIZE, None).unwrap());
        assert_eq!((pools.status().idle_buffers, pools.status().evicted, pools.status().reused), (0, 1, 1));
        assert_eq!(ledger.now().total(), 3 * SIZE as u64);
        pools.accept(large.0, large.1, large.2);
        pools.close();
        pools.accept(again.0, again.1, again.2);
        assert_eq!((ledger.now().total(), pools.status().idle_buffers), (0, 0));
    }

    #[test]
    fn page_locked_buffers_belong_to_their_device() {
        let ledger = MemoryLedger::new(None);
        let pools = Pools::new(&ledger);
        // Device 1 has none to offer.
        pools.set_pinned(Box::new(|bytes, device| (device == 0).then(|| pageable(bytes + 4096).unwrap())));
        let take = |device| {
            let (memory, owner) = pools.take(SIZE, device).unwrap();
            let charge = ledger.charge(MemoryClass::Witness, memory.len_bytes() as u64).unwrap();
            pools.accept(memory, owner, charge);
            owner
        };
        assert_eq!((take(Some(0)), take(Some(1)), take(Some(0)), take(Some(1))), (Some(0), None, Some(0), None));
        assert_eq!((pools.status().reused, pools.status().made_pinned, pools.status().made_pageable), (2, 1, 1));
        pools.forget(0);
        assert_eq!((pools.status().idle_buffers, ledger.now().total()), (1, SIZE as u64));
    }
}
