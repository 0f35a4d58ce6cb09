//! What a benchmark prints: a line for people, a JSON object for machines, and how far from the device's limit it was.

use serde_json::{Value, json};
use splitprover_core::abi::Backend;

use super::super::backend::{self, Choice};
use super::super::{Failure, print, print_json};
use crate::bench::{Measurement, Summary};

/// The least work that a step needs, in operations for which the backend may know its device's limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    /// Name of the figure, as backends report it.
    pub(super) limit: &'static str,
    /// How many of them.
    pub(super) operations: f64,
}

impl Model {
    /// Mixed additions of a Pippenger sum: ⌈256 / c⌉·n for the buckets, and 3·2^(c−1) to weigh those of one window; c so that it is
    /// least. Less work needs additions that cost less.
    pub(super) fn multi_exponentiation(limit: &'static str, log2: u32) -> Self {
        let n = f64::from(log2).exp2();
        let cost = |c: u32| f64::from(256u32.div_ceil(c)) * n + 3.0 * f64::from(c - 1).exp2();
        let operations = (2..=28).map(cost).fold(f64::INFINITY, f64::min);
        Self { limit, operations }
    }

    /// Products in F_r of six transforms of n/2·log n butterflies, and four for each row between them.
    pub(super) fn quotient(log2: u32) -> Self {
        let n = f64::from(log2).exp2();
        Self { limit: "limit of Fr products, 1/s", operations: n * (3.0 * f64::from(log2) + 4.0) }
    }
}

/// Collects what is measured, and prints it.
pub(super) struct Report {
    json: bool,
    head: Value,
    limits: Vec<(String, f64)>,
    results: Vec<Value>,
}

impl Report {
    /// Asks the backend who it is.
    pub(super) fn new(what: &str, json: bool, choice: &Choice, backend: &Backend) -> Result<Self, Failure> {
        let device = backend::device(choice)?;
        let limits = backend.statistics()?.into_iter().map(|figure| (figure.name, figure.value)).collect::<Vec<_>>();
        let info = backend.info();
        let figures: Value = limits.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let head = json!({
            "bench": what,
            "backend": {"name": info.name, "version": info.version, "build": info.build},
            "device": {"name": device.name, "driver": device.driver, "memory_bytes": device.memory_bytes},
            "figures": figures,
            "threads": rayon::current_num_threads(),
        });
        if !json {
            let driver = if device.driver.is_empty() { String::new() } else { format!(", {}", device.driver) };
            print(&format!("{what}: {} {}, {}{driver}\n", info.name, info.version, device.name));
        }
        Ok(Self { json, head, limits, results: Vec::new() })
    }

    fn share(&self, model: Option<Model>, total: Summary) -> Option<(f64, f64)> {
        let model = model?;
        let (_, per_second) = self.limits.iter().find(|(name, _)| name == model.limit)?;
        let limit_ms = 1e3 * model.operations / per_second;
        Some((limit_ms, limit_ms / total.median_ms))
    }

    /// One size. `bytes` go to the device in each run; `checked` says against what each result was held.
    pub(super) fn add(
        &mut self,
        name: &str,
        measured: Measurement,
        pair: Option<Summary>,
        bytes: u64,
        model: Option<Model>,
        checked: &str,
    ) {
        let share = self.share(model, measured.total);
        self.results.push(json!({
            "name": name,
            "start": measured.start,
            "total": measured.total,
            "two_in_flight": pair,
            "bytes_to_device": bytes,
            "limit_ms": share.map(|(ms, _)| ms),
            "share_of_limit": share.map(|(_, share)| share),
            "checked": checked,
        }));
        if self.json {
            return;
        }
        let Measurement { start, total } = measured;
        let rate = bytes as f64 / 1e6 / start.median_ms.max(1e-9);
        let mut line = format!(
            "{name}: {:.3} ms ({:.3} to {:.3}, {} runs); start {:.3} ms, {rate:.1} GB/s of inputs",
            total.median_ms, total.min_ms, total.max_ms, total.runs, start.median_ms
        );
        if let Some((limit, share)) = share {
            line += &format!("; limit {limit:.3} ms, {:.0} % of it reached", 100.0 * share);
        }
        if let Some(pair) = pair {
            line += &format!(
                "; two in flight {:.3} ms, {:.3} of twice one",
                pair.median_ms,
                pair.median_ms / 2.0 / total.median_ms
            );
        }
        print(&format!("{line}; checked: {checked}\n"));
    }

    /// Prints the JSON document, if that was asked for.
    pub(super) fn end(mut self) {
        if self.json {
            self.head["results"] = Value::Array(self.results);
            print_json(&self.head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_takes_the_best_window() {
        // 13 windows of 20 bits at 2^24; 12 of 22 need fewer additions there, and 3·2^21 to weigh them.
        let model = Model::multi_exponentiation("", 24);
        assert_eq!(model.operations, 12.0 * 2f64.powi(24) + 3.0 * 2f64.powi(21));
        assert_eq!(Model::quotient(10).operations, 1024.0 * 34.0);
    }
}
