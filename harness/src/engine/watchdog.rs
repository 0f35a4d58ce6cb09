//! Calls into backends that may never return: who is in one, on whose behalf, and for how long.
//!
//! A thread can't be taken out of foreign code. So a partition isn't on the stack of the thread that calls, but here: when a
//! call takes too long the watchdog takes the partition away and puts it into the queue again, the device is quarantined, and
//! what the call was lent is counted as stuck. The thread, if it ever comes back, finds its partition gone and ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::account::PartitionAccount;
use super::job::Task;

/// What a thread is calling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// A source at work: the application's code, which is never too late.
    Synthesis,
    Start,
    Finish,
    /// Dropping a proof in flight.
    Drop,
    Open,
    Load,
    Unload,
}

impl CallKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Synthesis => "synthesize",
            Self::Start => "start",
            Self::Finish => "finish",
            Self::Drop => "drop",
            Self::Open => "open",
            Self::Load => "load_key",
            Self::Unload => "unload",
        }
    }
}

enum Holder {
    UnderWay(Option<Task>),
    Returned,
    TakenAway,
}

/// A call under way.
pub(crate) struct Call {
    number: usize,
    pub(crate) kind: CallKind,
    pub(crate) device: usize,
    pub(crate) account: Option<Arc<PartitionAccount>>,
    since: Instant,
    limit: Duration,
    holder: Mutex<Holder>,
}

impl Call {
    fn holder(&self) -> MutexGuard<'_, Holder> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long it has taken.
    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

/// The call was taken for hung, and the partition has been given to somebody else.
#[derive(Debug)]
pub(crate) struct TakenAway;

/// All calls.
#[derive(Default)]
pub(crate) struct Watchdog {
    calls: Mutex<HashMap<usize, Arc<Call>>>,
    next: AtomicUsize,
    /// Calls taken for hung that haven't come back.
    hung: AtomicUsize,
}

impl Watchdog {
    fn calls(&self) -> MutexGuard<'_, HashMap<usize, Arc<Call>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call begins.
    pub(crate) fn begin(
        &self,
        kind: CallKind,
        device: usize,
        limit: Duration,
        task: Option<Task>,
        account: Option<Arc<PartitionAccount>>,
    ) -> Arc<Call> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let holder = Mutex::new(Holder::UnderWay(task));
        let call = Arc::new(Call { number, kind, device, account, since: Instant::now(), limit, holder });
        self.calls().insert(number, call.clone());
        call
    }

    /// A call has returned: its partition.
    ///
    /// # Errors
    /// [`TakenAway`], if it took too long.
    pub(crate) fn end(&self, call: &Call) -> Result<Option<Task>, TakenAway> {
        self.calls().remove(&call.number);
        let mut holder = call.holder();
        match std::mem::replace(&mut *holder, Holder::Returned) {
            Holder::UnderWay(task) => Ok(task),
            Holder::Returned | Holder::TakenAway => {
                self.hung.fetch_sub(1, Ordering::SeqCst);
                Err(TakenAway)
            }
        }
    }

    /// Calls that have just become too long, with their partitions.
    pub(crate) fn overdue(&self) -> Vec<(Arc<Call>, Option<Task>)> {
        self.take_away(|call| call.elapsed() > call.limit)
    }

    /// All calls under way, with their partitions: nobody waits for them any more.
    pub(crate) fn give_up_all(&self) -> Vec<(Arc<Call>, Option<Task>)> {
        self.take_away(|_| true)
    }

    fn take_away(&self, wanted: impl Fn(&Call) -> bool) -> Vec<(Arc<Call>, Option<Task>)> {
        let late: Vec<_> = self.calls().values().filter(|call| wanted(call)).cloned().collect();
        late.into_iter()
            .filter_map(|call| {
                let mut holder = call.holder();
                let Holder::UnderWay(task) = &mut *holder else { return None };
                let task = task.take();
                *holder = Holder::TakenAway;
                self.hung.fetch_add(1, Ordering::SeqCst);
                drop(holder);
                Some((call, task))
            })
            .collect()
    }

    /// Calls taken for hung that haven't come back.
    pub(crate) fn hung(&self) -> usize {
        self.hung.load(Ordering::SeqCst)
    }
}
