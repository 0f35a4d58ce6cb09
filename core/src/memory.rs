//! The memory ledger: how many bytes of each class exist, now, at peak, and over time.
//!
//! Every [`HostBuf`](crate::HostBuf) is charged to a ledger from its birth to its release, so "no evaluations exist after
//! `start`" is a number that can be read, tested and plotted. A ledger may have a limit; a charge beyond it is refused.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What host memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MemoryClass {
    /// Evaluation vectors a, b, c.
    Evaluations,
    /// The witness.
    Witness,
    /// Key material held on the host. Mapped files aren't counted.
    Key,
    /// Rings and buffers on the way to a device.
    Staging,
    /// What a backend keeps for its own work.
    Backend,
    /// Idle buffers of a pool.
    PoolIdle,
    /// Lent to a call that doesn't return: nobody can say when it will be free again.
    Stuck,
}

impl MemoryClass {
    /// All classes, in the order of their indices.
    pub const ALL: [Self; 7] =
        [Self::Evaluations, Self::Witness, Self::Key, Self::Staging, Self::Backend, Self::PoolIdle, Self::Stuck];

    /// The name used in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Evaluations => "evaluations",
            Self::Witness => "witness",
            Self::Key => "key",
            Self::Staging => "staging",
            Self::Backend => "backend",
            Self::PoolIdle => "pool_idle",
            Self::Stuck => "stuck",
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// Host memory that could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no host memory: {requested} bytes of class {} ({reason})", .class.name())]
pub struct OutOfHostMemory {
    /// What it was for.
    pub class: MemoryClass,
    /// Bytes asked for.
    pub requested: u64,
    /// Why it was refused.
    pub reason: String,
}

/// One change of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerEvent {
    /// Time since the ledger was made.
    pub at: Duration,
    /// The class that changed.
    pub class: MemoryClass,
    /// Bytes of that class after the change.
    pub bytes: u64,
}

/// Bytes by class at one moment; index with [`MemoryClass`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerSnapshot([u64; MemoryClass::ALL.len()]);

impl LedgerSnapshot {
    /// Sum over all classes.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl std::ops::Index<MemoryClass> for LedgerSnapshot {
    type Output = u64;

    fn index(&self, class: MemoryClass) -> &u64 {
        &self.0[class.index()]
    }
}

/// Where a ledger's charges go as well: the account of a host that this part of the process works for.
pub trait Upstream: Send + Sync {
    /// Asks for `bytes` more of a class; the reason, if it is refused.
    ///
    /// # Errors
    /// Why the bytes can't be had.
    fn charge(&self, class: MemoryClass, bytes: u64) -> Result<(), String>;
    /// Gives `bytes` of a class back.
    fn give_back(&self, class: MemoryClass, bytes: u64);
}

struct State {
    now: LedgerSnapshot,
    peak: LedgerSnapshot,
    peak_total: u64,
    limit: Option<u64>,
    refuse_in: Option<u64>,
    history: Option<Vec<LedgerEvent>>,
    upstream: Option<Arc<dyn Upstream>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("now", &self.now).field("peak", &self.peak).field("limit", &self.limit).finish()
    }
}

/// A shared account of host memory. Clones are the same ledger.
#[derive(Clone, Debug)]
pub struct MemoryLedger {
    state: Arc<Mutex<State>>,
    epoch: Instant,
}

impl Default for MemoryLedger {
    fn default() -> Self {
        Self::new(None)
    }
}

impl MemoryLedger {
    /// An empty ledger; with a limit, charges beyond it are refused.
    pub fn new(limit: Option<u64>) -> Self {
        Self::build(limit, None)
    }

    /// A ledger whose charges are also made upstream, which may refuse them.
    pub fn forwarding(upstream: Arc<dyn Upstream>) -> Self {
        Self::build(None, Some(upstream))
    }

    fn build(limit: Option<u64>, upstream: Option<Arc<dyn Upstream>>) -> Self {
        let state = State {
            now: LedgerSnapshot::default(),
            peak: LedgerSnapshot::default(),
            peak_total: 0,
            limit,
            refuse_in: None,
            history: None,
            upstream,
        };
        Self { state: Arc::new(Mutex::new(state)), epoch: Instant::now() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock, and the numbers are right at every moment in between.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts (or restarts) recording every change.
    pub fn record_history(&self) {
        self.state().history = Some(Vec::new());
    }

    /// The changes since [`record_history`](Self::record_history); empty if nothing was recorded.
    pub fn history(&self) -> Vec<LedgerEvent> {
        self.state().history.clone().unwrap_or_default()
    }

    /// Bytes by class now.
    pub fn now(&self) -> LedgerSnapshot {
        self.state().now
    }

    /// Time since the ledger was made: what [`LedgerEvent::at`] counts.
    pub fn elapsed(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Each class's own peak.
    pub fn peak(&self) -> LedgerSnapshot {
        self.state().peak
    }

    /// The peak of the sum over all classes.
    pub fn peak_total(&self) -> u64 {
        self.state().peak_total
    }

    /// The limit of the sum over all classes.
    pub fn limit(&self) -> Option<u64> {
        self.state().limit
    }

    /// For tests: the charge after `skip` successful ones from now is refused, once.
    pub fn refuse_after(&self, skip: u64) {
        self.state().refuse_in = Some(skip);
    }

    /// Charges `bytes` to a class until the result is dropped.
    ///
    /// # Errors
    /// [`OutOfHostMemory`] if the limit would be passed.
    pub fn charge(&self, class: MemoryClass, bytes: u64) -> Result<Charge, OutOfHostMemory> {
        let mut charge = Charge { ledger: self.clone(), class, bytes: 0 };
        charge.grow(bytes)?;
        Ok(charge)
    }

    fn take(&self, class: MemoryClass, bytes: u64) -> Result<(), OutOfHostMemory> {
        let refused = |reason: String| Err(OutOfHostMemory { class, requested: bytes, reason });
        {
            let mut state = self.state();
            if state.refuse_in == Some(0) {
                state.refuse_in = None;
                return refused("refused for a test".into());
            }
            let total = state.now.total().checked_add(bytes);
            match (state.limit, total) {
                (Some(limit), Some(total)) if total > limit => {
                    return refused(format!("{} of {limit} bytes in use", total - bytes));
                }
                (_, None) => return refused("the sum overflows".into()),
                _ => {}
            }
            if let Some(upstream) = &state.upstream
                && let Err(reason) = upstream.charge(class, bytes)
            {
                return refused(reason);
            }
            state.refuse_in = state.refuse_in.map(|left| left - 1);
            self.add(&mut state, class, bytes);
        }
        Ok(())
    }

    fn give_back(&self, class: MemoryClass, bytes: u64) {
        let mut state = self.state();
        state.now.0[class.index()] -= bytes;
        self.note(&mut state, class);
        if let Some(upstream) = &state.upstream {
            upstream.give_back(class, bytes);
        }
    }

    fn add(&self, state: &mut State, class: MemoryClass, bytes: u64) {
        let i = class.index();
        state.now.0[i] += bytes;
        state.peak.0[i] = state.peak.0[i].max(state.now.0[i]);
        state.peak_total = state.peak_total.max(state.now.total());
        self.note(state, class);
    }

    fn note(&self, state: &mut State, class: MemoryClass) {
        let event = LedgerEvent { at: self.epoch.elapsed(), class, bytes: state.now[class] };
        if let Some(history) = &mut state.history {
            history.push(event);
        }
    }
}

/// Bytes charged to a ledger; dropping it gives them back.
#[derive(Debug)]
pub struct Charge {
    ledger: MemoryLedger,
    class: MemoryClass,
    bytes: u64,
}

impl Charge {
    /// The class charged.
    pub fn class(&self) -> MemoryClass {
        self.class
    }

    /// The bytes charged.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Charges `more` bytes to the same class.
    ///
    /// # Errors
    /// [`OutOfHostMemory`] as for [`MemoryLedger::charge`]; the charge is as it was.
    pub fn grow(&mut self, more: u64) -> Result<(), OutOfHostMemory> {
        self.ledger.take(self.class, more)?;
        self.bytes += more;
        Ok(())
    }

    /// Gives bytes back, at most all; the number given back.
    pub fn shrink(&mut self, less: u64) -> u64 {
        let less = less.min(self.bytes);
        self.ledger.give_back(self.class, less);
        self.bytes -= less;
        less
    }

    /// Moves `bytes` of these, at most all, to a charge of their own. The ledger doesn't change.
    #[must_use]
    pub fn split_off(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { ledger: self.ledger.clone(), class: self.class, bytes }
    }

    /// Moves the bytes to another class: a buffer that goes from a pool to a use, or back. Moving isn't refused by a limit.
    /// Upstream sees it as bytes given back and charged again; if it refuses, they stay in their class, here too.
    pub fn reclassify(&mut self, class: MemoryClass) {
        let mut state = self.ledger.state();
        if let Some(upstream) = &state.upstream {
            upstream.give_back(self.class, self.bytes);
            if upstream.charge(class, self.bytes).is_err() {
                // What was just given back fits; somebody else may have been quicker, then the books differ until the drop.
                let _ = upstream.charge(self.class, self.bytes);
                return;
            }
        }
        state.now.0[self.class.index()] -= self.bytes;
        self.ledger.note(&mut state, self.class);
        self.ledger.add(&mut state, class, self.bytes);
        drop(state);
        self.class = class;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.ledger.give_back(self.class, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_are_counted_by_class_and_given_back() {
        let ledger = MemoryLedger::new(None);
        ledger.record_history();
        let witness = ledger.charge(MemoryClass::Witness, 100).unwrap();
        let mut pool = ledger.charge(MemoryClass::PoolIdle, 50).unwrap();
        assert_eq!((ledger.now()[MemoryClass::Witness], ledger.now().total()), (100, 150));
        drop(witness);
        pool.reclassify(MemoryClass::Witness);
        assert_eq!((ledger.now()[MemoryClass::Witness], ledger.now()[MemoryClass::PoolIdle]), (50, 0));
        drop(pool);
        assert_eq!(ledger.now().total(), 0);
        assert_eq!((ledger.peak()[MemoryClass::Witness], ledger.peak_total()), (100, 150));
        let bytes: Vec<_> = ledger.history().iter().map(|e| (e.class, e.bytes)).collect();
        use MemoryClass::{PoolIdle, Witness};
        assert_eq!(bytes, [(Witness, 100), (PoolIdle, 50), (Witness, 0), (PoolIdle, 0), (Witness, 50), (Witness, 0)]);
    }

    #[test]
    fn a_forwarding_ledger_asks_upstream_and_tells_it_everything() {
        struct Account(MemoryLedger, Mutex<Vec<Charge>>);
        impl Upstream for Account {
            fn charge(&self, class: MemoryClass, bytes: u64) -> Result<(), String> {
                let charge = self.0.charge(class, bytes).map_err(|e| e.to_string())?;
                self.1.lock().unwrap().push(charge);
                Ok(())
            }
            fn give_back(&self, class: MemoryClass, bytes: u64) {
                let mut charges = self.1.lock().unwrap();
                let at = charges.iter().position(|c| c.class == class && c.bytes == bytes).unwrap();
                charges.remove(at);
            }
        }
        let host = MemoryLedger::new(Some(100));
        let ledger = MemoryLedger::forwarding(Arc::new(Account(host.clone(), Mutex::default())));
        let mut charge = ledger.charge(MemoryClass::Staging, 60).unwrap();
        assert!(ledger.charge(MemoryClass::Backend, 41).is_err());
        charge.reclassify(MemoryClass::PoolIdle);
        assert_eq!((host.now()[MemoryClass::PoolIdle], host.now().total(), ledger.now().total()), (60, 60, 60));
        host.refuse_after(0);
        charge.reclassify(MemoryClass::Backend);
        assert_eq!((host.now()[MemoryClass::PoolIdle], ledger.now()[MemoryClass::PoolIdle]), (60, 60));
        drop(charge);
        assert_eq!((host.now().total(), ledger.now().total()), (0, 0));
    }

    #[test]
    fn a_charge_grows_within_the_limit_and_shrinks() {
        let ledger = MemoryLedger::new(Some(100));
        let mut charge = ledger.charge(MemoryClass::Backend, 10).unwrap();
        assert!(charge.grow(91).is_err() && charge.bytes() == 10);
        charge.grow(90).unwrap();
        assert_eq!((charge.shrink(60), ledger.now().total()), (60, 40));
        assert_eq!((charge.shrink(60), ledger.now().total()), (40, 0));
    }

    #[test]
    fn a_charge_that_is_split_is_given_back_in_parts() {
        let ledger = MemoryLedger::new(Some(100));
        let mut charge = ledger.charge(MemoryClass::Witness, 100).unwrap();
        let mut part = charge.split_off(30);
        assert_eq!((charge.bytes(), part.bytes(), ledger.now().total()), (70, 30, 100));
        part.reclassify(MemoryClass::Stuck);
        drop(charge.split_off(u64::MAX));
        assert_eq!((charge.bytes(), ledger.now()[MemoryClass::Witness], ledger.now().total()), (0, 0, 30));
        drop((charge, part));
        assert_eq!(ledger.now().total(), 0);
    }

    #[test]
    fn the_limit_and_planted_refusals_hold() {
        let ledger = MemoryLedger::new(Some(100));
        let first = ledger.charge(MemoryClass::Key, 60).unwrap();
        assert_eq!(ledger.charge(MemoryClass::Key, 41).unwrap_err().requested, 41);
        assert!(ledger.charge(MemoryClass::Key, u64::MAX).is_err());
        drop(first);
        ledger.refuse_after(1);
        assert!(ledger.charge(MemoryClass::Key, 100).is_ok());
        assert!(ledger.charge(MemoryClass::Key, 1).is_err());
        assert!(ledger.charge(MemoryClass::Key, 1).is_ok());
        // A charge that the limit refuses isn't a successful one.
        ledger.refuse_after(1);
        assert!(ledger.charge(MemoryClass::Key, 101).is_err());
        assert!(ledger.charge(MemoryClass::Key, 1).is_ok());
        assert!(ledger.charge(MemoryClass::Key, 1).unwrap_err().reason.contains("test"));
        assert_eq!(ledger.now().total(), 0);
    }
}
