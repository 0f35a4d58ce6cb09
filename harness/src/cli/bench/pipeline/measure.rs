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
    pub(super) key: Arc<ProvingKey>,
    pub(super) key_bytes: u64,
    pub(super) devices: Vec<DeviceSpec>,
    pub(super) budget: u64,
}

/// Makes the partition of a seed.
type Sources = Box<dyn Fn(u64) -> Arc<dyn Source>>;

/// The switches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setting {
    pub(super) hold: Hold,
    pub(super) permit: WorkPermit,
    pub(super) queue: Capacity,
}

impl Setting {
    pub(super) fn name(&self) -> String {
        let hold = if self.hold == Hold::Finish { "finish" } else { "none" };
        let permit = if self.permit == WorkPermit::BeforeSend { "before-send" } else { "through-send" };
        let queue = match self.queue {
            Capacity::Workers => "workers".to_owned(),
            Capacity::Unbounded => "unbounded".to_owned(),
            Capacity::Fixed(capacity) => capacity.to_string(),
        };
        format!("hold {hold}, permit {permit}, queue {queue}")
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
        )
    }

    pub(super) fn json(&self) -> Value {
        let a = self.arguments;
        json!({
            "circuit": {"shape": self.circuit.shape().name(), "log2": self.circuit.log2()},
            "source": format!("{:?}", a.source).to_lowercase(),
            "jobs": a.jobs, "partitions": a.partitions, "pw": a.pw, "gw": a.gw, "gt": a.gt,
            "source_delay_ms": a.source_delay, "finish_delay_ms": a.finish_delay,
            "budget_bytes": self.budget, "key_bytes": self.key_bytes,
        })
    }

    fn config(&self, setting: Setting) -> Config {
        let a = self.arguments;
        let mut config = Config::default();
        // With a pause in it a finish takes long, and the prover of the past had no bound there.
        let (finishers, in_flight) = if a.finish_delay > 0 { (32, 32) } else { (2 + 2 * a.gw, 4 * a.gw) };
        config.synthesis_workers = a.pw;
        config.device_workers = a.gw;
        config.finishers = a.finishers.unwrap_or(finishers);
        config.in_flight = a.in_flight.unwrap_or(in_flight);
        config.capacity = setting.queue;
        config.work_permit = setting.permit;
        config.hold = setting.hold;
        config.finish_delay = ms(a.finish_delay);
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
                let rows = self.key.shape().domain_size();
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
}

pub(super) fn measure(plan: &Plan<'_>, setting: Setting) -> Result<Outcome, Failure> {
    let a = plan.arguments;
    let engine = Engine::new(plan.config(setting), &plan.key, plan.key_bytes, plan.devices.clone());
    let engine = engine.map_err(|error| match error {
        EngineError::Config(reason) => Failure::Usage(reason),
        error => Failure::Backend(error.to_string()),
    })?;
    let source = plan.sources(&engine)?;
    let base = sample(&engine);
    let done = AtomicBool::new(false);
    let begin = Instant::now();
    let (results, samples) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&engine, a, &done));
        let submitted: Result<Vec<_>, _> = (0..a.jobs)
            .map(|job| {
                let seed = |partition: usize| a.seed.wrapping_add((job * a.partitions + partition) as u64);
                engine.submit(JobSpec::new((0..a.partitions).map(|partition| source(seed(partition))).collect()))
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
    let mean_workers = mean_workers(&engine);
    let outcome = results.map(|results: Vec<(Vec<_>, Option<Duration>)>| {
        let proofs: Vec<crate::engine::PartitionProof> =
            results.iter().flat_map(|(proofs, _)| proofs.iter().cloned()).collect();
        Outcome {
            setting,
            proofs: proofs.len(),
            wall,
            partition_seconds: ascending(proofs.iter().map(|proof| proof.in_work)),
            job_seconds: ascending(results.iter().filter_map(|(_, latency)| *latency)),
            status: engine.status(),
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
    if report.hung > 0 {
        let (hung, stuck) = (report.hung, report.stuck_bytes);
        return Err(Failure::Backend(format!("{hung} calls of a backend do not return, and hold {stuck} bytes")));
    }
    let outcome = outcome.map_err(|error| Failure::Backend(error.to_string()))?;
    if !report.is_clean() {
        return Err(Failure::Backend(format!("memory was left behind: {report:?}")));
    }
    Ok(outcome)
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
