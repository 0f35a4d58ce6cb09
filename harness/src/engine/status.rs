//! What an engine is doing: as a snapshot, as JSON, as Prometheus text.

use std::fmt::Write as _;

use serde::Serialize;

use super::job::JobStatus;
use super::pools::PoolStatus;

/// Bytes of a class of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassStatus {
    /// The class.
    pub class: &'static str,
    /// Bytes now.
    pub bytes: u64,
    /// The class's own peak.
    pub peak_bytes: u64,
}

/// The host's budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BudgetStatus {
    /// Bytes that may be promised.
    pub limit: u64,
    /// Bytes promised.
    pub reserved: u64,
    /// Of these, for good.
    pub fixed: u64,
    /// Of these, held by calls that don't return.
    pub stuck: u64,
    /// The most that was promised.
    pub peak: u64,
    /// Partitions that wait for memory.
    pub waiting: usize,
}

/// Partitions by state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PartitionStatus {
    /// In the queue.
    pub queued: usize,
    /// Being synthesised.
    pub synthesizing: usize,
    /// Handed over, waiting for a device.
    pub ready: usize,
    /// In a call of `start`.
    pub starting: usize,
    /// Started, not finished.
    pub in_flight: usize,
    /// Proved and verified.
    pub proved: u64,
    /// Attempts that went on to another instance with the same inputs.
    pub handed_on: u64,
    /// Attempts that were synthesised again.
    pub synthesized_again: u64,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceStatus {
    /// Its number in the engine.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Whether it is used only when no other is left.
    pub fallback: bool,
    /// Why it isn't used any more.
    pub quarantined: Option<String>,
    /// Calls of `start` under way.
    pub starting: usize,
    /// Proofs in flight.
    pub in_flight: usize,
    /// Proofs started.
    pub started: u64,
    /// Proofs finished and verified.
    pub finished: u64,
    /// Failures.
    pub failed: u64,
    /// Calls that were taken for hung.
    pub hung: u64,
    /// Time with a proof in `start` or in flight.
    pub busy_seconds: f64,
    /// The same as a share of the time since it was opened.
    pub busy_share: f64,
    /// Host memory that its backend has taken.
    pub host_bytes: u64,
    /// Device memory promised or held.
    pub device_bytes: u64,
    /// Device memory that there is, where it is known.
    pub device_limit: Option<u64>,
    /// Numbers of the keys that it has loaded.
    pub keys: Vec<u64>,
    /// Numbers of the keys that it can't take, and why.
    pub unfit_keys: Vec<(u64, String)>,
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyStatus {
    /// Its number in the engine.
    pub number: u64,
    /// What it takes of host memory beside mapped files.
    pub host_bytes: u64,
    /// Jobs under way that need it.
    pub jobs: usize,
}

/// Everything, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Jobs under way.
    pub jobs: Vec<JobStatus>,
    /// Jobs that are done.
    pub jobs_done: u64,
    /// Jobs that came to nothing.
    pub jobs_failed: u64,
    /// Partitions by state.
    pub partitions: PartitionStatus,
    /// The host's budget.
    pub budget: BudgetStatus,
    /// The ledger.
    pub memory: Vec<ClassStatus>,
    /// The most that existed at one time, all classes together.
    pub memory_peak_bytes: u64,
    /// Bytes of evaluations whose `start` has returned.
    pub evaluations_beyond_start_bytes: u64,
    /// Their peak.
    pub evaluations_beyond_start_peak_bytes: u64,
    /// Recycled buffers.
    pub pool: PoolStatus,
    /// Keys: those that somebody may need, and those that devices haven't unloaded yet.
    pub keys: Vec<KeyStatus>,
    /// Devices.
    pub devices: Vec<DeviceStatus>,
    /// Calls that don't return.
    pub hung_calls: usize,
}

impl Status {
    /// In the text format of Prometheus, version 0.0.4.
    pub fn to_prometheus(&self) -> String {
        let mut text = Text(String::new());
        text.metric("jobs", "gauge", "Jobs under way", &[("", self.jobs.len() as f64)]);
        text.metric(
            "jobs_total",
            "counter",
            "Jobs that have ended",
            &[("outcome=\"done\"", self.jobs_done as f64), ("outcome=\"failed\"", self.jobs_failed as f64)],
        );
        let PartitionStatus { queued, synthesizing, ready, starting, in_flight, .. } = self.partitions;
        text.metric(
            "partitions",
            "gauge",
            "Partitions under way, by state",
            &[
                ("state=\"queued\"", queued as f64),
                ("state=\"synthesizing\"", synthesizing as f64),
                ("state=\"ready\"", ready as f64),
                ("state=\"starting\"", starting as f64),
                ("state=\"in_flight\"", in_flight as f64),
            ],
        );
        let counters = [
            ("proofs_total", "Verified proofs", self.partitions.proved),
            ("handed_on_total", "Failed starts whose inputs went to another instance", self.partitions.handed_on),
            ("synthesized_again_total", "Attempts synthesised again", self.partitions.synthesized_again),
            ("pool_reused_total", "Requests for a buffer that an idle one served", self.pool.reused),
            ("pool_made_total", "Buffers made", self.pool.made_pinned + self.pool.made_pageable),
        ];
        for (name, help, value) in counters {
            text.metric(name, "counter", help, &[("", value as f64)]);
        }
        let BudgetStatus { limit, reserved, fixed, stuck, peak, waiting } = self.budget;
        text.metric(
            "budget_bytes",
            "gauge",
            "The host's budget",
            &[
                ("what=\"limit\"", limit as f64),
                ("what=\"reserved\"", reserved as f64),
                ("what=\"fixed\"", fixed as f64),
                ("what=\"stuck\"", stuck as f64),
                ("what=\"peak\"", peak as f64),
            ],
        );
        text.metric("budget_waiting", "gauge", "Partitions that wait for memory", &[("", waiting as f64)]);
        let by_class = |value: fn(&ClassStatus) -> u64| -> Vec<(String, f64)> {
            self.memory.iter().map(|class| (format!("class=\"{}\"", class.class), value(class) as f64)).collect()
        };
        text.metric("memory_bytes", "gauge", "Host memory, by class", &by_class(|class| class.bytes));
        text.metric("memory_peak_bytes", "gauge", "Each class's own peak", &by_class(|class| class.peak_bytes));
        let beyond = self.evaluations_beyond_start_bytes as f64;
        text.metric("evaluations_beyond_start_bytes", "gauge", "Evaluations whose start has returned", &[("", beyond)]);
        text.metric("hung_calls", "gauge", "Calls that do not return", &[("", self.hung_calls as f64)]);
        let by_key = |value: fn(&KeyStatus) -> u64| -> Vec<(String, f64)> {
            self.keys.iter().map(|key| (format!("key=\"{}\"", key.number), value(key) as f64)).collect()
        };
        text.metric("key_bytes", "gauge", "Host memory of a key", &by_key(|key| key.host_bytes));
        text.metric("key_jobs", "gauge", "Jobs under way that need a key", &by_key(|key| key.jobs as u64));
        let by_device = |value: fn(&DeviceStatus) -> f64| -> Vec<(String, f64)> {
            let label =
                |device: &DeviceStatus| format!("device=\"{}\",name=\"{}\"", device.index, escaped(&device.name));
            self.devices.iter().map(|device| (label(device), value(device))).collect()
        };
        let usable = |device: &DeviceStatus| f64::from(u8::from(device.quarantined.is_none()));
        text.metric("device_usable", "gauge", "1, or 0 if quarantined", &by_device(usable));
        text.metric("device_in_flight", "gauge", "Proofs in flight", &by_device(|device| device.in_flight as f64));
        text.metric("device_proofs_total", "counter", "Verified proofs", &by_device(|device| device.finished as f64));
        text.metric("device_failures_total", "counter", "Failures", &by_device(|device| device.failed as f64));
        text.metric("device_keys", "gauge", "Keys loaded", &by_device(|device| device.keys.len() as f64));
        let busy = |device: &DeviceStatus| device.busy_seconds;
        text.metric("device_busy_seconds_total", "counter", "Time with a proof on the device", &by_device(busy));
        text.metric(
            "device_memory_bytes",
            "gauge",
            "Device memory in use",
            &by_device(|device| device.device_bytes as f64),
        );
        text.0
    }

    /// A line for a terminal.
    pub fn line(&self) -> String {
        let PartitionStatus { queued, synthesizing, ready, starting, in_flight, proved, .. } = self.partitions;
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        let now: u64 = self.memory.iter().map(|class| class.bytes).sum();
        let devices: Vec<_> = self
            .devices
            .iter()
            .map(|device| match &device.quarantined {
                Some(_) => format!("{} quarantined", device.name),
                None => format!("{} {:.0} %", device.name, 100.0 * device.busy_share),
            })
            .collect();
        format!(
            "{proved} proved, {} jobs left; {queued} queued, {synthesizing} synthesizing, {ready} ready, {starting} starting, \
             {in_flight} in flight; {:.2} of {:.2} GiB, {:.2} promised; {}",
            self.jobs.len(),
            gib(now),
            gib(self.budget.limit),
            gib(self.budget.reserved),
            devices.join(", ")
        )
    }
}

/// A label's value: backslash, quote and newline are escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

struct Text(String);

impl Text {
    fn metric<L: AsRef<str>>(&mut self, name: &str, kind: &str, help: &str, values: &[(L, f64)]) {
        // Writing to a string doesn't fail.
        let _ = writeln!(self.0, "# HELP splitprover_{name} {help}\n# TYPE splitprover_{name} {kind}");
        for (labels, value) in values {
            let _ = match labels.as_ref() {
                "" => writeln!(self.0, "splitprover_{name} {value}"),
                labels => writeln!(self.0, "splitprover_{name}{{{labels}}} {value}"),
            };
        }
    }
}
