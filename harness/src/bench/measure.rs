//! Warm-up, repetitions, medians.

use std::time::Instant;

use serde::Serialize;
use splitprover_core::{Inputs, LoadedKey, Prover, QuerySums, SplitProver};

use super::workload::WorkloadError;

/// Times of one step over several runs, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The middle one; of an even number, the mean of the two in the middle.
    pub median_ms: f64,
    /// The least.
    pub min_ms: f64,
    /// The greatest.
    pub max_ms: f64,
    /// How many there were, without the warm-up.
    pub runs: usize,
}

impl Summary {
    /// Of at least one time; of none, zeros.
    pub fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let at = |i: usize| times.get(i).copied().unwrap_or(0.0);
        let last = times.len().saturating_sub(1);
        let median_ms = (at(last / 2) + at(times.len() / 2)) / 2.0;
        Self { median_ms, min_ms: at(0), max_ms: at(last), runs: times.len() }
    }
}

/// The steps of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// Until `start` has returned, and the inputs are gone.
    pub start: Summary,
    /// From the call of `start` to the end: the sums, or the verified proof.
    pub total: Summary,
}

/// What a run ends with.
#[derive(Clone, Copy, Debug)]
pub enum Ending<'a> {
    /// The four sums, which must be these.
    Sums(&'a QuerySums),
    /// A proof, which core verifies before it gives it out.
    Proof,
}

/// Runs `runs` times after one warm-up; inputs are made outside the measured time, and every result is checked.
///
/// # Errors
/// [`WorkloadError`]: whatever the backend reports, or a sum that is wrong.
pub fn measure<P: SplitProver>(
    prover: &Prover<P>,
    key: &LoadedKey<P>,
    runs: usize,
    ending: Ending<'_>,
    mut inputs: impl FnMut() -> Result<Inputs, WorkloadError>,
) -> Result<Measurement, WorkloadError> {
    let (mut starts, mut totals) = (Vec::new(), Vec::new());
    for run in 0..=runs {
        let given = inputs()?;
        let clock = Instant::now();
        let in_flight = prover.start(key, given)?;
        let started = milliseconds(clock);
        let sums = match ending {
            Ending::Proof => {
                in_flight.finish()?;
                None
            }
            Ending::Sums(expected) => Some((expected, in_flight.finish_sums()?)),
        };
        let total = milliseconds(clock);
        if let Some((expected, sums)) = sums {
            check(expected, &sums)?;
        }
        if run > 0 {
            starts.push(started);
            totals.push(total);
        }
    }
    Ok(Measurement { start: Summary::of(starts), total: Summary::of(totals) })
}

/// Two proofs in flight at a time: from the first call of `start` to the second verified proof.
///
/// # Errors
/// As [`measure`].
pub fn measure_pair<P: SplitProver>(
    prover: &Prover<P>,
    key: &LoadedKey<P>,
    runs: usize,
    mut inputs: impl FnMut() -> Result<Inputs, WorkloadError>,
) -> Result<Summary, WorkloadError> {
    let mut times = Vec::new();
    for run in 0..=runs {
        let (first, second) = (inputs()?, inputs()?);
        let clock = Instant::now();
        let first = prover.start(key, first)?;
        let second = prover.start(key, second)?;
        let second = std::thread::scope(|scope| {
            let other = scope.spawn(|| second.finish().map(drop));
            let mine = first.finish().map(drop);
            mine.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        second?;
        if run > 0 {
            times.push(milliseconds(clock));
        }
    }
    Ok(Summary::of(times))
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn check(expected: &QuerySums, found: &QuerySums) -> Result<(), WorkloadError> {
    let wrong = [
        ("a", expected.a == found.a),
        ("b_g1", expected.b_g1 == found.b_g1),
        ("b_g2", expected.b_g2 == found.b_g2),
        ("hl", expected.hl == found.hl),
    ];
    match wrong.iter().find(|(_, equal)| !equal) {
        Some((sum, _)) => Err(WorkloadError::WrongSum(sum)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_names_the_middle_and_the_ends() {
        let summary = Summary::of(vec![3.0, 1.0, 2.0]);
        assert_eq!(summary, Summary { median_ms: 2.0, min_ms: 1.0, max_ms: 3.0, runs: 3 });
        assert_eq!(Summary::of(vec![4.0, 1.0, 3.0, 2.0]).median_ms, 2.5);
        assert_eq!(Summary::of(Vec::new()).runs, 0);
    }
}
