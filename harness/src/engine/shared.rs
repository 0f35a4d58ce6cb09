//! What the engine's threads share, and the watch over them.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::account::{FixedAccount, Host};
use super::budget::BudgetError;
use super::config::Config;
use super::device::Device;
use super::handover::Handover;
use super::history::Step;
use super::job::{Job, JobError, JobIds, Rank, Task};
use super::keys::Keys;
use super::watchdog::{CallKind, Watchdog};
use super::workers::{self, Ready, Started};

/// How often deadlines and calls under way are looked at.
const TICK: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(super) struct Counters {
    pub(super) working: AtomicUsize,
    pub(super) synthesizing: AtomicUsize,
    pub(super) home: AtomicUsize,
    pub(super) proved: AtomicU64,
    pub(super) handed_on: AtomicU64,
    pub(super) synthesized_again: AtomicU64,
}

#[derive(Default)]
pub(super) struct Jobs {
    pub(super) live: Vec<Arc<Job>>,
    pub(super) done: u64,
    pub(super) failed: u64,
}

/// Time that synthesis workers have spent with a partition, added up.
#[derive(Default)]
pub(super) struct Workload {
    pub(super) working: usize,
    pub(super) since: Option<Instant>,
    pub(super) worker_seconds: f64,
}

pub(crate) struct Shared {
    pub(super) config: Config,
    pub(super) host: Arc<Host>,
    pub(super) devices: Vec<Arc<Device>>,
    pub(super) keys: Keys,
    pub(super) tasks: Handover<Rank, Task>,
    pub(super) ready: Handover<Rank, Ready>,
    pub(super) finishing: Handover<Rank, Started>,
    pub(super) watchdog: Watchdog,
    pub(super) ids: JobIds,
    pub(super) jobs: Mutex<Jobs>,
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(super) workload: Mutex<Workload>,
    /// What an application has set aside.
    pub(super) aside: Mutex<Vec<Arc<FixedAccount>>>,
    pub(super) counters: Counters,
    pub(super) stopping: AtomicBool,
    /// Whether somebody has been told that a fall-back has stepped in.
    pub(super) fallen_back: AtomicBool,
    /// Set when the last device is gone.
    pub(super) dead: OnceLock<String>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(super) fn mark(&self, step: Step, task: &Task, device: Option<usize>) {
        self.host.recorder.mark(step, task.job.id.number(), task.partition, device);
    }

    /// A synthesis worker has got a partition with its memory, or is rid of it.
    pub(super) fn working(&self, change: isize) {
        let mut load = lock(&self.workload);
        if let Some(since) = load.since.replace(Instant::now()) {
            load.worker_seconds += since.elapsed().as_secs_f64() * load.working as f64;
        }
        load.working = load.working.saturating_add_signed(change);
        self.counters.working.store(load.working, Ordering::Relaxed);
    }

    /// The device for which the next partition's buffers are made: those that can have its key, in turn.
    pub(super) fn next_home(&self, key: u64) -> Option<usize> {
        let usable: Vec<_> = self.devices.iter().filter(|d| d.can_prove(key) && !d.spec.fallback).collect();
        let turn = self.counters.home.fetch_add(1, Ordering::Relaxed);
        usable.get(turn % usable.len().max(1)).map(|device| device.index)
    }

    /// Whether a device may take a partition, and how gladly.
    pub(super) fn preference(&self, device: &Device, ready: &Ready) -> Option<u32> {
        let key = ready.task.job.key;
        // One without an instance is being opened again, and asks anew when it is there.
        if !self.serves(device, key) || device.instance().is_none() {
            return None;
        }
        let others = || self.devices.iter().filter(|other| other.index != device.index && self.serves(other, key));
        if ready.task.avoids(device.index) && others().any(|other| !ready.task.avoids(other.index)) {
            return None;
        }
        // Another device's page-locked buffers are slower to read here.
        Some(u32::from(ready.account.device().is_some_and(|home| home != device.index)))
    }

    /// Whether a device takes partitions of a key now: a fall-back only when no other is left for it.
    fn serves(&self, device: &Device, key: u64) -> bool {
        let others = || self.devices.iter().any(|other| !other.spec.fallback && other.can_prove(key));
        device.can_prove(key) && (!device.spec.fallback || !others())
    }

    /// Why no device takes partitions of a key, if none does.
    pub(super) fn why_none(&self, key: u64) -> Option<String> {
        let reasons = self.devices.iter().map(|device| Some(format!("{}: {}", device.spec.name, device.why_not(key)?)));
        Some(reasons.collect::<Option<Vec<_>>>()?.join("; "))
    }

    /// A device's health may have changed: others may have to step in, or nobody is left, for all keys or for some.
    pub(super) fn devices_changed(&self) {
        if !self.devices.iter().any(|device| device.is_usable()) {
            let reason = self.why_none(u64::MAX).unwrap_or_default();
            let _ = self.dead.set(reason.clone());
            self.stop_all(&JobError::NoDevice(reason));
        } else {
            let live = lock(&self.jobs).live.clone();
            let mut stopped = false;
            for job in &live {
                if let Some(reason) = self.why_none(job.key) {
                    stopped |= job.stop(JobError::NoDevice(reason));
                }
            }
            if stopped {
                self.sweep();
            }
            let keys = live.iter().map(|job| job.key).chain([u64::MAX]).collect::<Vec<_>>();
            let steps_in = |device: &Device| device.spec.fallback && keys.iter().any(|&key| self.serves(device, key));
            if let Some(fallback) = self.devices.iter().find(|device| steps_in(device))
                && !self.fallen_back.swap(true, Ordering::SeqCst)
            {
                tracing::warn!(
                    device = fallback.spec.name,
                    "FALL-BACK: no other device is left; proofs will take far longer"
                );
            }
        }
        self.ready.wake();
    }

    /// Asks for memory, again while keys that nobody needs any more are on their way out.
    pub(super) fn while_keys_leave<T>(&self, ask: impl Fn() -> Result<T, BudgetError>) -> Result<T, BudgetError> {
        loop {
            // In this order: what leaves between the two questions is seen by the next.
            let leaving = self.keys.are_leaving() && self.watchdog.hung() == 0 && !self.is_stopping();
            match ask() {
                Err(BudgetError::NeverFits { .. }) if leaving => std::thread::sleep(Duration::from_millis(2)),
                answer => return answer,
            }
        }
    }

    /// The most that a partition needs which isn't proved yet.
    pub(super) fn largest_partition(&self) -> u64 {
        lock(&self.jobs).live.iter().map(|job| job.largest).max().unwrap_or(0)
    }

    pub(super) fn stop_all(&self, reason: &JobError) {
        let live = lock(&self.jobs).live.clone();
        for job in live {
            job.stop(reason.clone());
        }
        self.sweep();
    }

    /// Lets go of what belongs to jobs that were stopped, wherever it waits.
    pub(super) fn sweep(&self) {
        let waiting = self.tasks.remove(|task| task.job.is_stopped());
        let ready = self.ready.remove(|ready| ready.task.job.is_stopped());
        drop((waiting, ready));
        self.host.budget.wake();
        self.devices.iter().for_each(|device| device.places.wake());
    }

    pub(super) fn synthesize_again(&self, task: Task) {
        self.counters.synthesized_again.fetch_add(1, Ordering::Relaxed);
        // A queue that is closed drops it: the engine is being shut down, and its job knows.
        drop(self.tasks.push(task.rank(), task));
    }

    pub(super) fn spawn(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> std::io::Result<()> {
        let shared = self.clone();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || body(&shared))?;
        let mut threads = lock(&self.threads);
        // Short-lived ones come and go.
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// Deadlines, and calls that don't return.
    pub(super) fn watch(self: &Arc<Self>) {
        while !self.is_stopping() {
            std::thread::sleep(TICK);
            self.tick();
        }
    }

    fn tick(self: &Arc<Self>) {
        let now = Instant::now();
        let late: Vec<_> = {
            let mut jobs = lock(&self.jobs);
            let (over, live): (Vec<_>, Vec<_>) = std::mem::take(&mut jobs.live).into_iter().partition(|j| j.is_over());
            jobs.live = live;
            for job in over {
                if job.is_stopped() { jobs.failed += 1 } else { jobs.done += 1 }
            }
            jobs.live.iter().filter(|job| job.is_overdue(now)).cloned().collect()
        };
        let mut stopped = false;
        for job in late {
            stopped |= job.stop(JobError::Deadline);
        }
        if stopped {
            self.sweep();
        }
        // Proofs in flight of jobs that were stopped needn't wait for a finisher.
        for started in self.finishing.remove(|started| started.task.job.is_stopped()) {
            workers::abandon(self, started);
        }
        for device in &self.devices {
            self.unload_forgotten(device);
        }
        for (call, task) in self.watchdog.overdue() {
            let device = &self.devices[call.device];
            let seconds = call.elapsed().as_secs();
            let reason = format!("a call of {} has not returned for {seconds} s", call.kind.name());
            if let Some(account) = &call.account {
                account.mark_stuck();
            }
            device.hung();
            device.quarantine(reason.clone());
            if call.kind == CallKind::Finish && self.spawn("finish", workers::finisher).is_err() {
                tracing::error!("no thread could be started in place of one that hangs");
            }
            if let Some(mut task) = task.filter(|task| !task.job.is_stopped()) {
                self.mark(Step::Hung, &task, Some(call.device));
                task.avoid(call.device);
                if task.attempts >= self.config.attempts.max(1) {
                    task.fail(reason);
                } else {
                    self.synthesize_again(task);
                }
            }
            self.devices_changed();
        }
    }

    /// Keys that nobody will need any more go, in a thread of their own: that is the backend's code.
    fn unload_forgotten(self: &Arc<Self>, device: &Arc<Device>) {
        let keys = device.forgotten_keys();
        if keys.is_empty() {
            return;
        }
        let call = self.watchdog.begin(CallKind::Unload, device.index, self.config.open_within, None, None);
        let (device, ending) = (device.clone(), call.clone());
        let spawned = self.spawn("unload", move |shared| {
            device.unload_all(keys);
            let _ = shared.watchdog.end(&ending);
        });
        if spawned.is_err() {
            // The closure is gone, and the keys with it.
            let _ = self.watchdog.end(&call);
        }
    }
}
