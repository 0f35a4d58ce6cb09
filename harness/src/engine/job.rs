//! Jobs: what is asked for, and what comes of it.

use std::cmp::Reverse;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rand_core::{OsRng, RngCore};
use serde::Serialize;
use splitprover_core::{Proof, Scalar};

use super::keys::{EngineKey, KeyEntry};
use super::source::Source;

/// Names a job, for all time: 64 random bits of the engine and a number that the engine counts up. Nobody but an engine makes one, so two
/// jobs can't have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId {
    engine: u64,
    number: u64,
}

impl JobId {
    /// The number among the engine's jobs, from 0.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.engine, self.number)
    }
}

/// Makes the ids of one engine.
#[derive(Debug)]
pub(crate) struct JobIds {
    engine: u64,
    next: AtomicU64,
}

impl JobIds {
    pub(crate) fn new() -> Self {
        let mut bytes = [0; 8];
        // Without randomness ids are still unique within the process's engines: the time and the address tell them apart.
        if OsRng.try_fill_bytes(&mut bytes).is_err() {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            bytes = (now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 32)).to_le_bytes();
        }
        Self { engine: u64::from_le_bytes(bytes), next: AtomicU64::new(0) }
    }

    /// The engine's own part of the ids.
    pub(crate) fn engine(&self) -> u64 {
        self.engine
    }

    pub(crate) fn next(&self) -> JobId {
        JobId { engine: self.engine, number: self.next.fetch_add(1, Ordering::Relaxed) }
    }
}

/// A job to submit: its partitions and how urgent it is.
#[derive(Clone)]
pub struct JobSpec {
    pub(crate) partitions: Vec<Arc<dyn Source>>,
    pub(crate) priority: i32,
    pub(crate) deadline: Option<Duration>,
    pub(crate) key: Option<EngineKey>,
}

impl JobSpec {
    /// A job of these partitions, for the key that the engine was made with. Without partitions it is done at once.
    pub fn new(partitions: Vec<Arc<dyn Source>>) -> Self {
        Self { partitions, priority: 0, deadline: None, key: None }
    }

    /// The key that its partitions are for, in place of the engine's first.
    #[must_use]
    pub fn key(mut self, key: &EngineKey) -> Self {
        self.key = Some(key.clone());
        self
    }

    /// Higher priorities go first; among equals, the oldest job.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// The job fails if it isn't done in this time.
    #[must_use]
    pub fn deadline(mut self, within: Duration) -> Self {
        self.deadline = Some(within);
        self
    }
}

impl fmt::Debug for JobSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobSpec({} partitions, priority {})", self.partitions.len(), self.priority)
    }
}

/// A partition's proof. It has been verified.
#[derive(Clone, Debug)]
pub struct PartitionProof {
    /// The proof.
    pub proof: Proof,
    /// The public inputs, without the constant 1.
    pub public: Vec<Scalar>,
    /// Number of the device that made it.
    pub device: usize,
    /// How many attempts it took.
    pub attempts: u32,
    /// From submission to the verified proof.
    pub latency: Duration,
    /// From the beginning of synthesis to the verified proof, in the last attempt.
    pub in_work: Duration,
}

/// Why a job came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// Its deadline has passed.
    #[error("the deadline has passed")]
    Deadline,
    /// A partition can't be proved.
    #[error("partition {partition}, attempt {attempt}: {reason}")]
    Partition {
        /// Its number.
        partition: u32,
        /// The last attempt, counted from 1.
        attempt: u32,
        /// What went wrong then.
        reason: String,
    },
    /// No device is left to prove on.
    #[error("no usable device is left: {0}")]
    NoDevice(String),
    /// The engine was shut down first.
    #[error("the engine was shut down")]
    ShutDown,
}

#[derive(Debug)]
struct State {
    proofs: Vec<Option<PartitionProof>>,
    missing: usize,
    /// Partitions that some thread still works on.
    live: usize,
    done_at: Option<Duration>,
}

/// A job in an engine.
pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) priority: i32,
    pub(crate) submitted: Instant,
    /// Number of its key.
    pub(crate) key: u64,
    /// What its largest partition needs.
    pub(crate) largest: u64,
    deadline: Option<Instant>,
    state: Mutex<State>,
    changed: Condvar,
    /// Set once, by the first reason.
    stopped: OnceLock<JobError>,
}

/// Where a partition stands in every queue: higher priority, then the oldest job, then the first partition.
pub(crate) type Rank = (Reverse<i32>, u64, u32);

impl Job {
    pub(crate) fn new(id: JobId, spec: &JobSpec, key: u64, largest: u64) -> Arc<Self> {
        let count = spec.partitions.len();
        let (now, proofs) = (Instant::now(), vec![None; count]);
        Arc::new(Self {
            id,
            priority: spec.priority,
            submitted: now,
            key,
            largest,
            deadline: spec.deadline.and_then(|within| now.checked_add(within)),
            state: Mutex::new(State { proofs, missing: count, live: count, done_at: None }),
            changed: Condvar::new(),
            stopped: OnceLock::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its partitions needn't be worked on any more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.get().is_some()
    }

    /// Stops it; whether this was the first reason. A job that is done stays done.
    pub(crate) fn stop(&self, reason: JobError) -> bool {
        let state = self.state();
        let first = state.missing > 0 && self.stopped.set(reason).is_ok();
        drop(state);
        self.changed.notify_all();
        first
    }

    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }

    fn deliver(&self, partition: u32, proof: PartitionProof) {
        let mut state = self.state();
        let slot = &mut state.proofs[partition as usize];
        if slot.is_none() {
            *slot = Some(proof);
            state.missing -= 1;
            if state.missing == 0 {
                state.done_at = Some(self.submitted.elapsed());
            }
        }
    }

    fn leave(&self) {
        self.state().live -= 1;
        self.changed.notify_all();
    }

    /// Whether nobody works on it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.state().live == 0
    }

    pub(crate) fn status(&self) -> JobStatus {
        let state = self.state();
        let partitions = state.proofs.len();
        let phase = match self.stopped.get() {
            Some(reason) => JobPhase::Failed(reason.to_string()),
            None if state.missing == 0 => JobPhase::Done,
            None => JobPhase::Running,
        };
        JobStatus { id: self.id.to_string(), partitions, proved: partitions - state.missing, phase }
    }
}

/// How far a job is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobStatus {
    /// Its id.
    pub id: String,
    /// Its partitions.
    pub partitions: usize,
    /// Proofs made.
    pub proved: usize,
    /// Where it stands.
    pub phase: JobPhase,
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobPhase {
    /// Under way.
    Running,
    /// All proofs are made.
    Done,
    /// It came to nothing, and why.
    Failed(String),
}

/// A submitted job. Dropping the handle doesn't cancel it.
#[derive(Clone)]
pub struct JobHandle {
    pub(crate) job: Arc<Job>,
    pub(crate) wake: Arc<dyn Fn() + Send + Sync>,
}

impl JobHandle {
    /// Its id.
    pub fn id(&self) -> JobId {
        self.job.id
    }

    /// How far it is.
    pub fn status(&self) -> JobStatus {
        self.job.status()
    }

    /// Stops it at the next safe point: what waits is dropped, what is being synthesised is dropped when that ends, what is on a device
    /// when the call returns.
    pub fn cancel(&self) {
        self.job.stop(JobError::Cancelled);
        (self.wake)();
    }

    /// Waits until it is done, or has failed and nobody works on it any more. The proofs, in the order of the partitions.
    ///
    /// A source that doesn't return is waited for: it is the application's own code.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn wait(&self) -> Result<Vec<PartitionProof>, JobError> {
        let state = self.job.state();
        let state = self.job.changed.wait_while(state, |state| state.live > 0);
        self.outcome(&state.unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`wait`](Self::wait), for so long; `None`: it isn't over yet.
    pub fn wait_for(&self, time: Duration) -> Option<Result<Vec<PartitionProof>, JobError>> {
        let state = self.job.state();
        let waited = self.job.changed.wait_timeout_while(state, time, |state| state.live > 0);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (state.live == 0).then(|| self.outcome(&state))
    }

    fn outcome(&self, state: &State) -> Result<Vec<PartitionProof>, JobError> {
        match self.job.stopped.get() {
            Some(reason) => Err(reason.clone()),
            None => Ok(state.proofs.iter().flatten().cloned().collect()),
        }
    }

    /// Time from submission to the last proof.
    pub fn latency(&self) -> Option<Duration> {
        self.job.state().done_at
    }
}

impl fmt::Debug for JobHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobHandle({})", self.job.id)
    }
}

/// One partition on its way through the engine. There is one of these for each partition that isn't proved, whoever has it: if it is
/// dropped, the job is told.
pub(crate) struct Task {
    pub(crate) job: Arc<Job>,
    pub(crate) partition: u32,
    pub(crate) source: Arc<dyn Source>,
    /// Its key, which stays as long as a partition needs it.
    pub(crate) key: Arc<KeyEntry>,
    /// Attempts begun.
    pub(crate) attempts: u32,
    /// Devices that failed it, a bit each: others first.
    pub(crate) avoid: u64,
    /// Devices whose sums didn't verify: to blame, if another attempt's do.
    pub(crate) suspects: Vec<usize>,
    pub(crate) began: Instant,
    over: bool,
}

impl Task {
    pub(crate) fn new(job: &Arc<Job>, partition: u32, source: Arc<dyn Source>, key: &EngineKey) -> Self {
        Self {
            job: job.clone(),
            partition,
            source,
            key: key.0.clone(),
            attempts: 0,
            avoid: 0,
            suspects: Vec::new(),
            began: Instant::now(),
            over: false,
        }
    }

    pub(crate) fn rank(&self) -> Rank {
        (Reverse(self.job.priority), self.job.id.number, self.partition)
    }

    pub(crate) fn avoids(&self, device: usize) -> bool {
        self.avoid >> device.min(63) & 1 == 1
    }

    pub(crate) fn avoid(&mut self, device: usize) {
        self.avoid |= 1 << device.min(63);
    }

    /// It is proved.
    pub(crate) fn deliver(mut self, proof: Proof, public: Vec<Scalar>, device: usize) {
        let proof = PartitionProof {
            proof,
            public,
            device,
            attempts: self.attempts,
            latency: self.job.submitted.elapsed(),
            in_work: self.began.elapsed(),
        };
        self.over = true;
        self.job.deliver(self.partition, proof);
    }

    /// It can't be proved, and so its job can't.
    pub(crate) fn fail(mut self, reason: impl fmt::Display) {
        self.over = true;
        let (partition, attempt, reason) = (self.partition, self.attempts, reason.to_string());
        tracing::error!(job = %self.job.id, partition, attempt, reason, "a partition failed, and its job with it");
        self.job.stop(JobError::Partition { partition, attempt, reason });
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.over && !self.job.is_stopped() {
            // A thread that ended without a word. The job must not wait for ever.
            let reason = "lost within the engine".to_owned();
            self.job.stop(JobError::Partition { partition: self.partition, attempt: self.attempts, reason });
        }
        self.job.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::source::{Footprint, SourceError, Synthesis};
    use crate::engine::tests::engine_key;

    struct Nothing;

    impl Source for Nothing {
        fn footprint(&self) -> Footprint {
            Footprint::default()
        }
        fn synthesize(&self, _: &Synthesis<'_>) -> Result<splitprover_core::Inputs, SourceError> {
            Err(SourceError::Failed("nothing".into()))
        }
    }

    fn job(partitions: usize) -> (JobHandle, Vec<Task>) {
        let source: Arc<dyn Source> = Arc::new(Nothing);
        let (spec, key) = (JobSpec::new(vec![source.clone(); partitions]), engine_key());
        let job = Job::new(JobIds::new().next(), &spec, 0, 0);
        let tasks = (0..partitions as u32).map(|i| Task::new(&job, i, source.clone(), &key)).collect();
        (JobHandle { job, wake: Arc::new(|| {}) }, tasks)
    }

    #[test]
    fn ids_differ_within_and_between_engines() {
        let (first, second) = (JobIds::new(), JobIds::new());
        let ids: std::collections::HashSet<_> =
            (0..100).flat_map(|_| [first.next().to_string(), second.next().to_string()]).collect();
        assert_eq!(ids.len(), 200);
    }

    #[test]
    fn a_job_without_partitions_is_done() {
        let (handle, _) = job(0);
        assert!(handle.wait().unwrap().is_empty() && handle.status().phase == JobPhase::Done);
        assert!(handle.wait_for(Duration::ZERO).is_some_and(|outcome| outcome.is_ok()));
    }

    #[test]
    fn a_dropped_partition_fails_its_job_and_the_first_reason_stays() {
        let (handle, mut tasks) = job(2);
        drop(tasks.pop());
        handle.cancel();
        assert!(!handle.job.is_over() && handle.wait_for(Duration::from_millis(1)).is_none());
        drop(tasks);
        assert!(matches!(handle.wait(), Err(JobError::Partition { partition: 1, .. })));
    }

    #[test]
    fn ranks_put_priority_before_age_before_partition() {
        let (old, old_tasks) = job(2);
        let mut urgent = JobSpec::new(vec![]).priority(1);
        urgent.partitions.push(Arc::new(Nothing));
        let urgent = Job::new(JobId { engine: 0, number: 9 }, &urgent, 0, 0);
        let task = Task::new(&urgent, 0, Arc::new(Nothing), &engine_key());
        assert!(task.rank() < old_tasks[0].rank() && old_tasks[0].rank() < old_tasks[1].rank());
        drop((task, old_tasks, old));
    }
}
