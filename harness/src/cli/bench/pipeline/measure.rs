//! One setting, measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use splitprover_core::ProvingKey;
use splitprover_core::memory::LedgerEvent;

use super::{Arguments, SourceKind, ms};
use crate::cli::Failure;
use crate::cli::progress::StatusLine;
use crate::engine::projection::Pipeline;
use crate::engine::{
    Capacity, Config, DeviceSpec, Engine, EngineError, Hold, JobSpec, Mark, Premade, Source, Status, Step,
    SyntheticSource, WorkPermit, limits,
};
use crate::formats::write_files;
use crate::setup::Synthetic;

/// What all settings have in common.
pub(super) struct Plan<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) circuit: Synthetic,
    /// Keys of the circuit, and what each takes of host memory.
    pub(super) keys: Vec<(Arc<ProvingKey>, u64)>,
    pub(super) devices: Vec<DeviceSpec>,
    /// What steps in when no other device is left.
    pub(super) fallback: Option<DeviceSpec>,
    pub(super) budget: u64,
}

/// Makes the partition of a seed.
type Sources = Box<dyn Fn(u64) -> Arc<dyn Source>>;

/// The switches, and on how many devices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setting {
    pub(super) hold: Hold,
    pub(super) permit: WorkPermit,
    pub(super) queue: Capacity,
    pub(super) finish_delay: Duration,
    pub(super) devices: usize,
}

/// Calls of a backend that didn't return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hung {
    pub(super) calls: usize,
    pub(super) bytes: u64,
}

impl Hung {
    pub(super) fn as_failure(self) -> Result<(), Failure> {
        let Self { calls, bytes } = self;
        if calls == 0 {
            return Ok(());
        }
        Err(Failure::Backend(format!("{calls} calls of a backend do not return, and hold {bytes} bytes")))
    }
}

impl Setting {
    /// Whether the switches are the same.
    fn is_like(&self, other: Self) -> bool {
        (self.hold, self.permit, self.queue) == (other.hold, other.permit, other.queue)
    }

    pub(super) fn name(&self) -> String {
        let hold = if self.hold == Hold::Finish { "finish" } else { "none" };
        let permit = if self.permit == WorkPermit::BeforeSend { "before-send" } else { "through-send" };
        let queue = match self.queue {
            Capacity::Workers => "workers".to_owned(),
            Capacity::Unbounded => "unbounded".to_owned(),
            Capacity::Fixed(capacity) => capacity.to_string(),
        };
        let delay = self.finish_delay.as_millis();
        let delay = if delay > 0 { format!(", finish delay {delay} ms") } else { String::new() };
        let devices = if self.devices > 1 { format!(", {} devices", self.devices) } else { String::new() };
        format!("hold {hold}, permit {permit}, queue {queue}{delay}{devices}")
    }
}

const MIB: f64 = (1u64 << 20) as f64;

impl Plan<'_> {
    pub(super) fn headline(&self) -> String {
        let a = self.arguments;
        let source = match a.source {
            SourceKind::Real => "synthesised",
            SourceKind::Premade => "pre-made",
        };
        let pauses = [("source", a.source_delay), ("finish", a.finish_delay)];
        let pauses =
            pauses.iter().filter(|(_, ms)| *ms > 0).map(|(what, ms)| format!(", {what} delay {ms} ms (a pause)"));
        format!(
            "{} 2^{}, {source}, {} jobs of {} partitions, pw {}, gw {}, {} devices, budget {:.0} MiB{}\n",
            self.circuit.shape().name(),
            self.circuit.log2(),
            a.jobs,
            a.partitions,
            a.pw,
            a.gw,
            self.devices.len(),
            self.budget as f64 / MIB,
            pauses.collect::<String>(),
        ) + &if self.keys.len() > 1 { format!("{} keys, in turn\n", self.keys.len()) } else { String::new() }
    }

    pub(super) fn json(&self) -> Value {
        let a = self.arguments;
        json!({
            "circuit": {"shape": self.circuit.shape().name(), "log2": self.circuit.log2()},
            "source": format!("{:?}", a.source).to_lowercase(),
            "jobs": a.jobs, "partitions": a.partitions, "pw": a.pw, "gw": a.gw, "gt": a.gt,
            "source_delay_ms": a.source_delay, "finish_delay_ms": a.finish_delay,
            "budget_bytes": self.budget, "keys": self.keys.len(),
            "key_bytes": self.keys.iter().map(|(_, bytes)| bytes).sum::<u64>(),
        })
    }

    fn config(&self, setting: Setting) -> Config {
        let a = self.arguments;
        let mut config = Config::default();
        // With a pause in it a finish takes long.
        let finishers = if a.finish_delay > 0 { 32 } else { a.gw.saturating_mul(2).saturating_add(2) };
        config.synthesis_workers = a.pw;
        config.device_workers = a.gw;
        config.finishers = a.finishers.unwrap_or(finishers);
        config.in_flight = a.in_flight();
        config.loaded_keys = a.loaded_keys.unwrap_or(usize::MAX);
        config.capacity = setting.queue;
        config.work_permit = setting.permit;
        config.hold = setting.hold;
        config.finish_delay = setting.finish_delay;
        config.host_budget = Some(self.budget);
        config.pools = !a.no_pools;
        config.pinned = !a.pageable;
        config.hang_after = Duration::from_secs(a.hang_after);
        config.record = true;
        config
    }

    fn sources(&self, engine: &Engine) -> Result<Sources, Failure> {
        let a = self.arguments;
        let (circuit, evaluations) = (self.circuit, !a.no_evaluations);
        let make = move |seed, delay| SyntheticSource { circuit, seed, evaluations, delay };
        let trouble = |reason: String| Failure::Backend(format!("inputs made beforehand: {reason}"));
        Ok(match a.source {
            SourceKind::Real => {
                let delay = ms(a.source_delay);
                Box::new(move |seed| Arc::new(make(seed, delay)))
            }
            SourceKind::Premade => {
                let source = make(a.seed, Duration::ZERO);
                let bytes = Premade::set_aside(&source.footprint());
                let memory = engine.set_aside(bytes).map_err(|e| trouble(e.to_string()))?;
                let rows = self.keys[0].0.shape().domain_size();
                let premade = Premade::new(&source, rows, ms(a.source_delay), &memory);
                let premade = Arc::new(premade.map_err(|e| trouble(e.to_string()))?);
                Box::new(move |_| Arc::new(premade.clone()))
            }
        })
    }
}

/// Memory at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) at: Duration,
    pub(super) resident: u64,
    pub(super) ledger: u64,
}

/// What came out.
pub(super) struct Outcome {
    pub(super) setting: Setting,
    pub(super) proofs: usize,
    /// From the first submission to the last proof.
    pub(super) wall: Duration,
    /// From the beginning of synthesis to the verified proof, ascending.
    pub(super) partition_seconds: Vec<f64>,
    /// From submission to the last proof, ascending.
    pub(super) job_seconds: Vec<f64>,
    pub(super) status: Status,
    pub(super) history: Vec<LedgerEvent>,
    /// Bytes of evaluations whose start has returned.
    pub(super) beyond: Vec<(Duration, u64)>,
    pub(super) marks: Vec<Mark>,
    pub(super) samples: Vec<Sample>,
    /// Before the first partition: key, staging, what was made beforehand.
    pub(super) base: Sample,
    pub(super) handover_peak: usize,
    /// Mean number of synthesis workers with a partition, while there was work.
    pub(super) mean_workers: f64,
    pub(super) budget: u64,
    /// What the formula says, where it holds: the most that is promised.
    pub(super) bound: Option<u64>,
    pub(super) hung: Hung,
}

pub(super) fn measure(plan: &Plan<'_>, setting: Setting) -> Result<Outcome, Failure> {
    let a = plan.arguments;
    let devices = plan.devices.iter().take(setting.devices).chain(&plan.fallback).cloned().collect();
    let (key, bytes) = &plan.keys[0];
    let engine = Engine::new(plan.config(setting), key, *bytes, devices);
    let engine = engine.map_err(|error| match error {
        EngineError::Config(reason) => Failure::Usage(reason),
        error => Failure::Backend(error.to_string()),
    })?;
    let added = plan.keys.iter().map(|(key, bytes)| engine.add_key(key, *bytes));
    let keys = added.collect::<Result<Vec<_>, _>>().map_err(|error| Failure::Backend(error.to_string()))?;
    let source = plan.sources(&engine)?;
    let partition = source(a.seed).footprint();
    let base = sample(&engine);
    let done = AtomicBool::new(false);
    let begin = Instant::now();
    let (results, samples) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&engine, a, &done));
        let submitted: Result<Vec<_>, _> = (0..a.jobs)
            .map(|job| {
                let seed = |partition: usize| a.seed.wrapping_add((job * a.partitions + partition) as u64);
                let spec = JobSpec::new((0..a.partitions).map(|partition| source(seed(partition))).collect());
                engine.submit(spec.key(&keys[job % keys.len()]))
            })
            .collect();
        let results = match submitted {
            Ok(jobs) => jobs.iter().map(|job| Ok((job.wait()?, job.latency()))).collect(),
            Err(error) => Err(Trouble::Submit(error)),
        };
        done.store(true, Ordering::SeqCst);
        (results, watching.join().unwrap_or_default())
    });
    let wall = begin.elapsed();
    drop(source);
    drop(keys);
    let mean_workers = mean_workers(&engine);
    let pipeline =
        Pipeline { synthesis_workers: a.pw as u64, device_workers: a.gw as u64, devices: setting.devices as u64 };
    let ours = Setting { finish_delay: setting.finish_delay, devices: setting.devices, ..Setting::default() };
    let outcome = results.map(|results: Vec<(Vec<_>, Option<Duration>)>| {
        let proofs: Vec<crate::engine::PartitionProof> =
            results.iter().flat_map(|(proofs, _)| proofs.iter().cloned()).collect();
        let status = engine.status();
        let undisturbed = setting.is_like(ours) && status.devices.iter().all(|device| device.failed + device.hung == 0);
        Outcome {
            bound: undisturbed.then(|| pipeline.host_bytes(status.budget.fixed, &partition)),
            hung: Hung { calls: 0, bytes: 0 },
            setting,
            proofs: proofs.len(),
            wall,
            partition_seconds: ascending(proofs.iter().map(|proof| proof.in_work)),
            job_seconds: ascending(results.iter().filter_map(|(_, latency)| *latency)),
            status,
            history: engine.ledger_history(),
            beyond: engine.beyond_start_history(),
            marks: engine.marks(),
            samples,
            base,
            handover_peak: engine.handover_peak(),
            mean_workers,
            budget: plan.budget,
        }
    });
    let report = engine.shutdown(Duration::from_secs(a.grace));
    let hung = Hung { calls: report.hung, bytes: report.stuck_bytes };
    let outcome = outcome.map_err(|error| match hung.as_failure() {
        Err(also) => Failure::Backend(format!("{error}; {also}")),
        Ok(()) => Failure::Backend(error.to_string()),
    })?;
    if hung.calls == 0 && !report.is_clean() {
        return Err(Failure::Backend(format!("memory was left behind: {report:?}")));
    }
    Ok(Outcome { hung, ..outcome })
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Submit(#[from] crate::engine::SubmitError),
    #[error(transparent)]
    Job(#[from] crate::engine::JobError),
}

fn ascending(times: impl Iterator<Item = Duration>) -> Vec<f64> {
    let mut seconds: Vec<_> = times.map(|time| time.as_secs_f64()).collect();
    seconds.sort_by(f64::total_cmp);
    seconds
}

fn sample(engine: &Engine) -> Sample {
    let status = engine.status();
    let ledger = status.memory.iter().map(|class| class.bytes).sum();
    Sample { at: engine.elapsed(), resident: limits::resident_bytes(), ledger }
}

/// Looks at memory twenty times a second, and tells people and machines.
fn watch(engine: &Engine, arguments: &Arguments, done: &AtomicBool) -> Vec<Sample> {
    let (line, mut samples, mut told) = (StatusLine::new(), Vec::new(), None::<Instant>);
    loop {
        let last = done.load(Ordering::SeqCst);
        samples.push(sample(engine));
        if last || told.is_none_or(|told| told.elapsed() >= Duration::from_secs(1)) {
            told = Some(Instant::now());
            let status = engine.status();
            line.show(status.line());
            if let Some(path) = &arguments.metrics
                && let Err(error) = write_files(&[(path, status.to_prometheus().as_bytes())])
            {
                tracing::warn!(%error, "the metrics could not be written");
            }
        }
        if last {
            return samples;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Worker time with a partition over the time in which there was something to synthesise.
fn mean_workers(engine: &Engine) -> f64 {
    let marks = engine.marks();
    let begin = marks.iter().find(|mark| mark.step == Step::SynthesisBegins);
    // The last partition to begin: from then on workers are idle for want of work.
    let end = marks.iter().rev().find(|mark| mark.step == Step::SynthesisBegins);
    let (Some(begin), Some(end)) = (begin, end) else { return 0.0 };
    let (mut workers, mut since, mut area) = (0i64, begin.at, 0.0);
    for mark in marks.iter().filter(|mark| mark.at <= end.at) {
        let change = match mark.step {
            Step::SynthesisBegins => 1,
            Step::HandedOver => -1,
            _ => continue,
        };
        area += (mark.at - since).as_secs_f64() * workers as f64;
        (workers, since) = (workers + change, mark.at);
    }
    area / (end.at - begin.at).as_secs_f64().max(1e-9)
}
