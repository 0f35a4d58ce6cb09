//! What a measurement says, in words, in JSON and as a table.

use std::time::Duration;

use serde_json::{Value, json};
use splitprover_core::MemoryClass;

use super::measure::{Outcome, Sample};
use crate::engine::{Mark, Step};

const MIB: f64 = (1u64 << 20) as f64;

/// The value below which a share of the (ascending) values lies.
fn quantile(ascending: &[f64], share: f64) -> f64 {
    let last = ascending.len().saturating_sub(1);
    ascending.get((share * last as f64).round() as usize).copied().unwrap_or(0.0)
}

/// The most partitions at one time between two kinds of steps.
fn most_between(marks: &[Mark], begin: &[Step], end: &[Step]) -> i64 {
    let (mut now, mut most) = (0i64, 0);
    for mark in marks {
        if begin.contains(&mark.step) {
            now += 1;
            most = most.max(now);
        } else if end.contains(&mark.step) {
            now -= 1;
        }
    }
    most
}

/// Time in which a device had at least one partition between two kinds of steps, as a share of the time from the first start to
/// the last proof.
fn busy_share(marks: &[Mark], device: usize, end: &[Step]) -> f64 {
    let of_device: Vec<_> = marks.iter().filter(|mark| mark.device == Some(device)).collect();
    let (Some(first), Some(last)) = (of_device.first(), of_device.last()) else { return 0.0 };
    let (mut under_way, mut since, mut busy) = (0i64, Duration::ZERO, Duration::ZERO);
    for mark in &of_device {
        if mark.step == Step::StartBegins {
            if under_way == 0 {
                since = mark.at;
            }
            under_way += 1;
        } else if end.contains(&mark.step) {
            under_way -= 1;
            if under_way == 0 {
                busy += mark.at - since;
            }
        }
    }
    busy.as_secs_f64() / (last.at - first.at).as_secs_f64().max(1e-9)
}

/// Proofs per second from the one in the middle to the last: page-locking the first buffers and filling the pipeline take seconds
/// that a service spends once. Zero with fewer than two proofs.
fn later_half_per_second(marks: &[Mark]) -> f64 {
    let mut ends: Vec<_> = marks.iter().filter(|mark| mark.step == Step::Finished).map(|mark| mark.at).collect();
    ends.sort_unstable();
    let middle = ends.len() / 2;
    let (Some(&since), Some(&last)) = (ends.get(middle), ends.last()) else { return 0.0 };
    (ends.len() - 1 - middle) as f64 / (last - since).as_secs_f64().max(1e-9)
}

impl Outcome {
    fn proofs_per_second(&self) -> f64 {
        self.proofs as f64 / self.wall.as_secs_f64().max(1e-9)
    }

    /// The most resident memory, and the most on the ledger, each above what there was before the first partition.
    fn growth(&self) -> (u64, u64) {
        let most = |value: fn(&Sample) -> u64| {
            self.samples.iter().map(value).max().unwrap_or(0).saturating_sub(value(&self.base))
        };
        (most(|sample| sample.resident), most(|sample| sample.ledger))
    }

    /// The ledger before the first partition, and the most that resident memory has grown since: how far its curve goes up.
    pub(super) fn ledger_and_growth(&self) -> u64 {
        self.base.ledger + self.growth().0
    }

    /// The most of the second and of the last quarter of the samples: equal where memory is flat.
    fn quarters(&self, value: fn(&Sample) -> u64) -> (u64, u64) {
        let quarter = self.samples.len() / 4;
        let most = |part: &[Sample]| part.iter().map(value).max().unwrap_or(0);
        (most(&self.samples[quarter..2 * quarter]), most(&self.samples[3 * quarter..]))
    }

    /// Synthesised and not yet in `start`, at most.
    fn waiting_peak(&self) -> i64 {
        most_between(&self.marks, &[Step::SynthesisEnds], &[Step::StartBegins])
    }

    /// With inputs on the host because they are synthesised, wait, or are in `start`, at most.
    fn unstarted_peak(&self) -> i64 {
        most_between(&self.marks, &[Step::SynthesisBegins], &[Step::Started])
    }

    fn loaded_keys(&self) -> Vec<&[u64]> {
        self.status.devices.iter().map(|device| &device.keys[..]).collect()
    }

    /// The devices' busy shares, in per cent: time with a proof in `start` or in flight.
    pub(super) fn busy(&self) -> String {
        let used = self.status.devices.iter().zip(self.shares()).filter(|(device, _)| device.started > 0);
        let shares: Vec<_> =
            used.map(|(device, (_, flight))| format!("device {} {:.0} %", device.index, 100.0 * flight)).collect();
        shares.join(", ")
    }

    fn shares(&self) -> Vec<(f64, f64)> {
        let device = |index| {
            let in_start = busy_share(&self.marks, index, &[Step::Started, Step::Failed]);
            (in_start, busy_share(&self.marks, index, &[Step::Finished, Step::Failed]))
        };
        (0..self.status.devices.len()).map(device).collect()
    }

    /// A few lines for people.
    pub(super) fn details(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / MIB;
        let times = |seconds: &[f64]| {
            let [median, ninety, last] = [0.5, 0.9, 1.0].map(|share| quantile(seconds, share));
            format!("{median:.3} / {ninety:.3} / {last:.3} s")
        };
        let classes: Vec<_> = self
            .status
            .memory
            .iter()
            .filter(|class| class.peak_bytes > 0)
            .map(|class| format!("{} {:.0}", class.class, mib(class.peak_bytes)))
            .collect();
        let (resident, ledger) = self.growth();
        let (resident_then, resident_last) = self.quarters(|sample| sample.resident);
        let (ledger_then, ledger_last) = self.quarters(|sample| sample.ledger);
        let bound = self.bound.map_or_else(String::new, |bound| {
            let promised = mib(self.status.budget.peak);
            format!("promised at most {promised:.1} MiB; the formula says {:.1} at most\n  ", mib(bound))
        });
        let keys = match self.status.keys.len() {
            0 | 1 => String::new(),
            keys => format!("{keys} keys; loaded at the end: {:?}\n  ", self.loaded_keys()),
        };
        let devices: Vec<_> = self
            .status
            .devices
            .iter()
            .zip(self.shares())
            .map(|(device, (start, flight))| {
                let proofs = device.finished;
                let (start, flight) = (100.0 * start, 100.0 * flight);
                format!(
                    "{}: {proofs} proofs, in start {start:.1} % of the time, with a proof {flight:.1} %",
                    device.name
                )
            })
            .collect();
        format!(
            "{}\n  {} proofs in {:.2} s: {:.3} per second, {:.3} in the later half; all verified\n  latency, median / 90 % / most: partition {}, job {}\n  \
             peak on the ledger {:.1} of {:.1} MiB; by class: {}\n  evaluations beyond start: {:.1} MiB at most\n  \
             resident above the start: {:.1} MiB, ledger {:.1}, ratio {:.3}; second and last quarter: resident {:.1}, {:.1}, ledger \
             {:.1}, {:.1}\n  workers with a partition: {:.2} on average; synthesised and waiting: {} at most, unstarted: {}\n  \
             buffers: {} reused, {} made page-locked, {} pageable\n  {bound}{keys}{}\n",
            self.setting.name(),
            self.proofs,
            self.wall.as_secs_f64(),
            self.proofs_per_second(),
            later_half_per_second(&self.marks),
            times(&self.partition_seconds),
            times(&self.job_seconds),
            mib(self.status.memory_peak_bytes),
            mib(self.budget),
            classes.join(", "),
            mib(self.status.evaluations_beyond_start_peak_bytes),
            mib(resident),
            mib(ledger),
            resident as f64 / ledger.max(1) as f64,
            mib(resident_then),
            mib(resident_last),
            mib(ledger_then),
            mib(ledger_last),
            self.mean_workers,
            self.waiting_peak(),
            self.unstarted_peak(),
            self.status.pool.reused,
            self.status.pool.made_pinned,
            self.status.pool.made_pageable,
            devices.join("\n  "),
        )
    }

    /// Everything for machines.
    pub(super) fn json(&self, histories: bool) -> Value {
        let quantiles = |seconds: &[f64]| json!({"p50": quantile(seconds, 0.5), "p90": quantile(seconds, 0.9), "p99": quantile(seconds, 0.99), "max": quantile(seconds, 1.0)});
        let (resident, ledger) = self.growth();
        let mut value = json!({
            "setting": self.setting.name(),
            "devices": self.setting.devices,
            "proofs": self.proofs,
            "seconds": self.wall.as_secs_f64(),
            "proofs_per_second": self.proofs_per_second(),
            "later_half_per_second": later_half_per_second(&self.marks),
            "partition_seconds": quantiles(&self.partition_seconds),
            "job_seconds": quantiles(&self.job_seconds),
            "resident_growth_bytes": resident,
            "ledger_growth_bytes": ledger,
            "mean_workers": self.mean_workers,
            "waiting_peak": self.waiting_peak(),
            "unstarted_peak": self.unstarted_peak(),
            "handover_peak": self.handover_peak,
            "promised_peak_bytes": self.status.budget.peak,
            "formula_bytes": self.bound,
            "hung_calls": self.hung.calls,
            "device_shares": self.shares().iter().map(|(start, flight)| json!({"in_start": start, "with_a_proof": flight})).collect::<Vec<_>>(),
            "status": self.status,
        });
        if histories {
            let ledger = self.history.iter().map(|e| json!([e.at.as_secs_f64(), e.class.name(), e.bytes]));
            let samples = self.samples.iter().map(|s| json!([s.at.as_secs_f64(), s.resident, s.ledger]));
            value["ledger_history"] = ledger.collect();
            value["samples"] = samples.collect();
            value["marks"] = json!(self.marks);
        }
        value
    }
}

/// The settings side by side.
pub(super) fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "\n| setting | proofs/s | later half | partition p50, p99 s | job p50 s | ledger peak, MiB | evaluations peak | beyond start | waiting | unstarted | workers | resident / ledger | busy |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for outcome in outcomes {
        let evaluations = outcome.status.memory.iter().find(|class| class.class == MemoryClass::Evaluations.name());
        let (resident, ledger) = outcome.growth();
        text += &format!(
            "| {} | {:.3} | {:.3} | {:.2}, {:.2} | {:.2} | {:.0} | {:.0} | {:.0} | {} | {} | {:.1} | {:.3} | {} |\n",
            outcome.setting.name(),
            outcome.proofs_per_second(),
            later_half_per_second(&outcome.marks),
            quantile(&outcome.partition_seconds, 0.5),
            quantile(&outcome.partition_seconds, 0.99),
            quantile(&outcome.job_seconds, 0.5),
            outcome.status.memory_peak_bytes as f64 / MIB,
            evaluations.map_or(0, |class| class.peak_bytes) as f64 / MIB,
            outcome.status.evaluations_beyond_start_peak_bytes as f64 / MIB,
            outcome.waiting_peak(),
            outcome.unstarted_peak(),
            outcome.mean_workers,
            resident as f64 / ledger.max(1) as f64,
            outcome.busy(),
        );
    }
    text
}

/// How much faster all devices are than the first alone, for each pair of settings: over the whole run and in the later half.
pub(super) fn scaling(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for pair in outcomes.chunks_exact(2) {
        let [one, all] = [0, 1].map(|at| pair[at].proofs_per_second());
        let [one_later, all_later] = [0, 1].map(|at| later_half_per_second(&pair[at].marks));
        text += &format!(
            "{} devices: {all:.3} proofs/s, one {one:.3}: {:.2} times; in the later half {all_later:.3} and {one_later:.3}: {:.2} times\n",
            pair[1].setting.devices,
            all / one.max(1e-9),
            all_later / one_later.max(1e-9),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_values_are_values() {
        assert_eq!((quantile(&[], 0.5), quantile(&[7.0], 0.99)), (0.0, 7.0));
        let values: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.9, 0.99, 1.0].map(|share| quantile(&values, share)), [0.0, 50.0, 90.0, 99.0, 100.0]);
    }

    #[test]
    fn shares_and_peaks_come_from_the_marks() {
        let mark = |at, step, device| Mark { at: Duration::from_secs(at), step, job: 0, partition: 0, device };
        let marks = [
            mark(0, Step::SynthesisEnds, None),
            mark(0, Step::SynthesisEnds, None),
            mark(1, Step::StartBegins, Some(0)),
            mark(2, Step::StartBegins, Some(0)),
            mark(3, Step::Started, Some(0)),
            mark(4, Step::Started, Some(0)),
            mark(7, Step::StartBegins, Some(0)),
            mark(8, Step::Started, Some(0)),
            mark(11, Step::Finished, Some(0)),
        ];
        assert_eq!(busy_share(&marks, 0, &[Step::Started]), 0.4);
        assert_eq!(busy_share(&marks, 1, &[Step::Started]), 0.0);
        assert_eq!(most_between(&marks, &[Step::SynthesisEnds], &[Step::StartBegins]), 2);
    }

    #[test]
    fn the_later_half_starts_at_the_proof_in_the_middle() {
        let end =
            |at| Mark { at: Duration::from_secs(at), step: Step::Finished, job: 0, partition: 0, device: Some(0) };
        assert_eq!(later_half_per_second(&[10, 11, 12, 14, 16].map(end)), 0.5);
        assert_eq!(later_half_per_second(&[16, 14, 12, 11, 10].map(end)), 0.5);
        assert_eq!((later_half_per_second(&[end(3)]), later_half_per_second(&[])), (0.0, 0.0));
    }
}
