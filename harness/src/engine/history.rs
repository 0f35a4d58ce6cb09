//! What happened when: steps of partitions, and evaluations that outlived `start`. Times are the ledger's, so that both can be laid
//! over the [ledger's own history](splitprover_core::MemoryLedger::history).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use splitprover_core::MemoryLedger;

/// A step of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Its memory has been promised; synthesis begins.
    SynthesisBegins,
    /// The inputs are made; the hand-over begins.
    SynthesisEnds,
    /// The hand-over has taken it; its worker is free.
    HandedOver,
    /// `start` is called.
    StartBegins,
    /// `start` has returned a proof in flight.
    Started,
    /// The proof is verified.
    Finished,
    /// An attempt failed.
    Failed,
    /// A call is taken for hung.
    Hung,
}

/// A step, and when it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// Time since the engine's ledger was made.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub at: Duration,
    /// What.
    pub step: Step,
    /// Number of the job, in the order in which jobs were submitted.
    pub job: u64,
    /// Number of the partition within its job.
    pub partition: u32,
    /// Number of the device, where there is one.
    pub device: Option<usize>,
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

#[derive(Debug, Default)]
struct State {
    marks: Vec<Mark>,
    beyond: u64,
    beyond_peak: u64,
    beyond_history: Vec<(Duration, u64)>,
}

/// Keeps the marks.
#[derive(Debug)]
pub(crate) struct Recorder {
    ledger: MemoryLedger,
    on: bool,
    state: Mutex<State>,
}

impl Recorder {
    pub(crate) fn new(ledger: &MemoryLedger, on: bool) -> Self {
        Self { ledger: ledger.clone(), on, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn mark(&self, step: Step, job: u64, partition: u32, device: Option<usize>) {
        if self.on {
            let mut state = self.state();
            state.marks.push(Mark { at: self.ledger.elapsed(), step, job, partition, device });
        }
    }

    /// Evaluations that exist although their `start` has returned: more, or less.
    pub(crate) fn beyond_start(&self, change: i64) {
        if change != 0 {
            let mut state = self.state();
            state.beyond = state.beyond.saturating_add_signed(change);
            state.beyond_peak = state.beyond_peak.max(state.beyond);
            let now = (self.ledger.elapsed(), state.beyond);
            if self.on {
                state.beyond_history.push(now);
            }
        }
    }

    /// Bytes of evaluations beyond `start`: now, and at most.
    pub(crate) fn beyond(&self) -> (u64, u64) {
        let state = self.state();
        (state.beyond, state.beyond_peak)
    }

    pub(crate) fn marks(&self) -> Vec<Mark> {
        self.state().marks.clone()
    }

    pub(crate) fn beyond_history(&self) -> Vec<(Duration, u64)> {
        self.state().beyond_history.clone()
    }
}
