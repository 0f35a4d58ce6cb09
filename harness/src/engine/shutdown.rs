//! The end of an engine: every wait ends, threads are joined, and what is left behind is told.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use splitprover_core::MemoryClass;

use super::account::HOST;
use super::job::JobError;
use super::shared::lock;
use super::{Engine, workers};

/// How an engine ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Threads in calls that didn't return. They are left behind: a program should end with exit code 4.
    pub hung: usize,
    /// Bytes that such calls hold.
    pub stuck_bytes: u64,
    /// Bytes that exist although nobody should have them any more.
    pub leaked_bytes: u64,
    /// Bytes still promised.
    pub reserved_bytes: u64,
}

impl ShutdownReport {
    /// Whether nothing is left.
    pub fn is_clean(&self) -> bool {
        *self == Self { hung: 0, stuck_bytes: 0, leaked_bytes: 0, reserved_bytes: 0 }
    }
}

impl Engine {
    /// Ends it: jobs that aren't done are stopped, threads end at their next safe point. Calls that don't return within `grace` are
    /// left behind.
    pub fn shutdown(mut self, grace: Duration) -> ShutdownReport {
        self.end(grace)
    }

    fn end(&mut self, grace: Duration) -> ShutdownReport {
        self.shut_down = true;
        let (begin, shared) = (Instant::now(), &self.shared);
        shared.stopping.store(true, Ordering::SeqCst);
        shared.stop_all(&JobError::ShutDown);
        drop(shared.tasks.close());
        drop(shared.ready.close());
        let in_flight = shared.finishing.close();
        for device in &shared.devices {
            device.places.wake();
        }
        in_flight.into_iter().for_each(|started| workers::abandon(shared, started));
        let mut hung = self.join(begin, grace);
        // Whoever waits for a job learns of its end even so.
        for (call, task) in shared.watchdog.give_up_all() {
            if let Some(account) = &call.account {
                account.mark_stuck();
            }
            drop(task);
        }
        shared.host.pools.close();
        if hung == 0 {
            let closing = shared.spawn("close", |shared| shared.devices.iter().for_each(|device| device.close()));
            hung = if closing.is_ok() {
                self.join(begin, grace.max(begin.elapsed() + Duration::from_millis(100)))
            } else {
                1
            };
        }
        let host = &shared.host;
        let now = host.ledger.now();
        let account = host.budget.accounts()[HOST].clone();
        let stuck_bytes = now[MemoryClass::Stuck];
        let aside: u64 = lock(&shared.aside).iter().map(|account| account.held()).sum();
        // Where calls hang the devices stay open, and keep what is theirs.
        let devices: u64 = if hung > 0 { shared.devices.iter().map(|device| device.account.held()).sum() } else { 0 };
        let keys: u64 = shared.keys.bytes().iter().map(|(_, bytes)| bytes).sum();
        let accounted = keys + stuck_bytes + aside + devices;
        ShutdownReport {
            hung,
            stuck_bytes,
            leaked_bytes: now.total().saturating_sub(accounted),
            reserved_bytes: account.reserved - account.fixed - account.stuck,
        }
    }

    /// Waits for all threads, for so long; how many are left.
    fn join(&self, begin: Instant, grace: Duration) -> usize {
        loop {
            let mut threads = lock(&self.shared.threads);
            let (over, left): (Vec<_>, Vec<_>) =
                std::mem::take(&mut *threads).into_iter().partition(|t| t.is_finished());
            *threads = left;
            let left = threads.len();
            drop(threads);
            for thread in over {
                if thread.join().is_err() {
                    tracing::error!("a thread of the engine panicked");
                }
            }
            if left == 0 || begin.elapsed() >= grace {
                return left;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !self.shut_down {
            let report = self.end(Duration::from_secs(10));
            if report.hung > 0 {
                tracing::error!(hung = report.hung, "calls that do not return were left behind");
            }
        }
    }
}
