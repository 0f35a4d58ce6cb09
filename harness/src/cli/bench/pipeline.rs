//! `bench pipeline`: many partitions of many jobs through the engine.
//!
//! What is measured: proofs per second, latencies, memory by class over time, the process's resident memory, how busy workers and devices
//! are. The switches `--hold`, `--permit` and `--queue` bring back, one by one, what a prover did that ran out of memory: inputs
//! that live until `finish`, workers that are free before the hand-over has taken their work, a hand-over without bound.
//! `--finish-delay` stands in for work on the CPU that it did in `finish`; nothing is computed then. `--sweep` measures them one after
//! the other, `--scaling` one device beside all; `--project` says what a size would need that isn't at hand.

mod measure;
mod picture;
mod project;
mod table;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::json;
use splitprover_core::{HBasis, HostMemory, MemoryClass, ProvingKey};

use super::super::backend::{self, Choice};
use super::super::key_file::open_zkey_for;
use super::super::setup::{ShapeName, failure};
use super::super::{Failure, print, print_json};
use super::key_maker;
use crate::engine::{Capacity, DeviceSpec, Hold, WorkPermit, limits};
use crate::formats::{Residency, write_files};
use crate::setup::{Resources, Synthetic, Trapdoor, generate};
use measure::{Outcome, Plan, Setting};

/// Their histories are kept.
const MOST_PARTITIONS: usize = 1_000_000;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    #[command(flatten)]
    backend: Choice,
    /// Devices of the backend, by number, with commas; instead of --device
    #[arg(long, value_delimiter = ',', value_name = "N,N")]
    devices: Vec<usize>,
    /// What steps in when no device is left: nothing, or the CPU, which is far slower
    #[arg(long, value_enum, default_value_t = Fallback::None)]
    fallback: Fallback,
    /// The synthetic circuit's shape
    #[arg(long, value_enum, default_value_t = ShapeName::Porep)]
    synthetic: ShapeName,
    /// The circuit's domain has 2^LOG2 rows
    #[arg(long, required_unless_present = "project")]
    log2: Option<u32>,
    /// The circuit's key (.zkey), as `setup --synthetic` makes it; without, it is made in memory, on the device where that can
    #[arg(long)]
    zkey: Option<PathBuf>,
    /// Circuits, each with a key of its own, that jobs are for in turn
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64), conflicts_with = "zkey")]
    keys: u64,
    /// Keys loaded at a time on each device, at most
    #[arg(long)]
    loaded_keys: Option<usize>,
    /// Partitions of each job
    #[arg(long, default_value_t = 10)]
    partitions: usize,
    /// Jobs, all submitted at once
    #[arg(long, default_value_t = 15)]
    jobs: usize,
    /// Partitions synthesised at a time
    #[arg(long, default_value_t = 2)]
    pw: usize,
    /// Calls of `start` at a time on each device
    #[arg(long, default_value_t = 2)]
    gw: usize,
    /// Threads that serve each device; 0: as many as there are cores
    #[arg(long)]
    gt: Option<usize>,
    /// Calls of `finish` at a time
    #[arg(long)]
    finishers: Option<usize>,
    /// Proofs started and not finished at a time on each device
    #[arg(long)]
    in_flight: Option<usize>,
    /// Host memory for everything: bytes, or with a unit, as in 96GiB; without, nine tenths of what the machine or the container has
    #[arg(long, value_parser = backend::bytes)]
    budget: Option<u64>,
    /// Synthesise each partition, or copy inputs made beforehand
    #[arg(long, value_enum, default_value_t = SourceKind::Real)]
    source: SourceKind,
    /// Leave the evaluations to the device, which has the matrices
    #[arg(long)]
    no_evaluations: bool,
    /// A pause before each synthesis, in milliseconds
    #[arg(long, default_value_t = 0, value_name = "MS")]
    source_delay: u64,
    /// How long inputs live. `finish` needs a build with the feature bench-hold
    #[arg(long, value_enum, default_value_t = HoldName::None)]
    hold: HoldName,
    /// When a synthesis worker is free for its next partition
    #[arg(long, value_enum, default_value_t = PermitName::ThroughSend)]
    permit: PermitName,
    /// Bound of the hand-over: `workers`, `unbounded`, or a number
    #[arg(long, default_value = "workers", value_parser = capacity)]
    queue: Capacity,
    /// A pause before each `finish`, in milliseconds: stands in for work on the CPU
    #[arg(long, default_value_t = 0, value_name = "MS")]
    finish_delay: u64,
    /// Measure the switches --hold, --permit and --queue one after the other: each alone and all together, or in every combination,
    /// there also without --finish-delay
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "alone", value_name = "WHICH")]
    #[arg(conflicts_with_all = ["hold", "permit", "queue"])]
    sweep: Option<Sweep>,
    /// Measure on the first of --devices alone, then on all of them
    #[arg(long)]
    scaling: bool,
    /// Measure nothing: say how much memory the circuit of 2^LOG2 rows would need
    #[arg(long, value_name = "LOG2")]
    project: Option<u32>,
    /// The machine that --project is for; without, 755 GiB
    #[arg(long, value_parser = backend::bytes, requires = "project")]
    memory: Option<u64>,
    /// No recycled buffers
    #[arg(long)]
    no_pools: bool,
    /// Recycled buffers in ordinary memory, although the device offers page-locked ones
    #[arg(long)]
    pageable: bool,
    /// Seconds after which a call into a backend counts as hung
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    hang_after: u64,
    /// Seconds to wait at the end for calls that don't return
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    grace: u64,
    /// Seed of the first partition's witness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where a picture goes (.svg): memory by class over time, with starts and finishes
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Where everything goes, with histories (.json)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Where the status goes every second, in the text format of Prometheus
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Tell of each step on standard error
    #[arg(long)]
    trace: bool,
    /// Print JSON, without histories
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sweep {
    /// None, each switch alone, all together
    Alone,
    /// Every combination
    Every,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Fallback {
    /// Jobs fail
    None,
    /// The CPU backend
    Cpu,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SourceKind {
    /// From a seed each
    Real,
    /// Copied
    Premade,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HoldName {
    /// Until they have been read
    None,
    /// Until the proof is finished
    Finish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PermitName {
    /// When the hand-over has taken the last one
    ThroughSend,
    /// When the last one is synthesised
    BeforeSend,
}

fn capacity(text: &str) -> Result<Capacity, String> {
    match text {
        "workers" => Ok(Capacity::Workers),
        "unbounded" => Ok(Capacity::Unbounded),
        number => number.parse().map(Capacity::Fixed).map_err(|_| "expected workers, unbounded or a number".into()),
    }
}

impl Arguments {
    /// What is measured, one after the other.
    fn settings(&self) -> Vec<Setting> {
        let all = self.device_numbers().len();
        let switched =
            self.switched(Setting { finish_delay: ms(self.finish_delay), devices: all, ..Setting::default() });
        if !self.scaling {
            return switched;
        }
        switched.iter().flat_map(|setting| [1, all].map(|devices| Setting { devices, ..*setting })).collect()
    }

    fn switched(&self, ours: Setting) -> Vec<Setting> {
        let on = Setting { hold: Hold::Finish, permit: WorkPermit::BeforeSend, queue: Capacity::Unbounded, ..ours };
        match self.sweep {
            Some(Sweep::Alone) => {
                vec![
                    ours,
                    Setting { hold: on.hold, ..ours },
                    Setting { permit: on.permit, ..ours },
                    Setting { queue: on.queue, ..ours },
                    on,
                ]
            }
            Some(Sweep::Every) => {
                let delays =
                    if self.finish_delay > 0 { vec![ours.finish_delay, Duration::ZERO] } else { vec![Duration::ZERO] };
                let mut settings = Vec::new();
                for finish_delay in delays {
                    for hold in [ours.hold, on.hold] {
                        for permit in [ours.permit, on.permit] {
                            settings.extend([ours.queue, on.queue].map(|queue| Setting {
                                hold,
                                permit,
                                queue,
                                finish_delay,
                                ..ours
                            }));
                        }
                    }
                }
                settings
            }
            None => {
                let hold = if self.hold == HoldName::Finish { Hold::Finish } else { Hold::None };
                let permit = match self.permit {
                    PermitName::ThroughSend => WorkPermit::ThroughSend,
                    PermitName::BeforeSend => WorkPermit::BeforeSend,
                };
                vec![Setting { hold, permit, queue: self.queue, ..ours }]
            }
        }
    }

    /// Proofs in flight at a time on each device.
    fn in_flight(&self) -> usize {
        // With a pause in it a finish takes long, and the prover of the past had no bound there.
        self.in_flight.unwrap_or(if self.finish_delay > 0 { 32 } else { self.gw.saturating_mul(4) })
    }

    fn device_numbers(&self) -> Vec<usize> {
        if self.devices.is_empty() { vec![self.backend.device_index()] } else { self.devices.clone() }
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let log2 = match (arguments.project, arguments.log2) {
        (Some(log2), _) => return project::run(arguments, log2),
        (None, Some(log2)) => log2,
        (None, None) => return Err(Failure::Usage("--log2 or --project says which size".into())),
    };
    // Before minutes of measuring, not after.
    for (option, path) in
        [("picture", &arguments.picture), ("report", &arguments.report), ("metrics", &arguments.metrics)]
    {
        let folder = path.as_deref().and_then(|path| path.parent()).filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(Failure::Usage(format!("--{option}: there is no folder {}", folder.display())));
        }
    }
    if arguments.jobs.checked_mul(arguments.partitions).is_none_or(|count| count > MOST_PARTITIONS) {
        return Err(Failure::Usage(format!("--jobs and --partitions make more than {MOST_PARTITIONS} partitions")));
    }
    log_steps(arguments.trace);
    let settings = arguments.settings();
    if !cfg!(feature = "bench-hold") && settings.iter().any(|setting| setting.hold == Hold::Finish) {
        return Err(Failure::Usage("--hold finish and --sweep need a build with --features bench-hold".into()));
    }
    let circuit = Synthetic::new(arguments.synthetic.into(), log2).map_err(|e| Failure::Usage(e.to_string()))?;
    let choice = match arguments.gt {
        Some(threads) => arguments.backend.with_threads(threads),
        None => arguments.backend.clone(),
    };
    let devices: Vec<_> = arguments.device_numbers().into_iter().map(|index| choice.on_device(index)).collect();
    let first = key(arguments, &circuit, &devices[0], 1)?;
    let mut specs = Vec::new();
    for device in &devices {
        specs.push(device_spec(device, &first.0)?);
    }
    let fallback = (arguments.fallback == Fallback::Cpu).then(|| reference_spec(&first.0).fallback());
    let mut keys = vec![first];
    for seed in 2..=arguments.keys {
        keys.push(key(arguments, &circuit, &devices[0], seed)?);
    }
    let key_bytes = keys.iter().map(|(_, bytes)| bytes).sum();
    let plan = Plan { arguments, circuit, keys, devices: specs, fallback, budget: budget(arguments, key_bytes)? };
    if !arguments.json {
        print(&plan.headline());
    }
    let mut outcomes = Vec::new();
    for setting in settings {
        let outcome = measure::measure(&plan, setting)?;
        if !arguments.json {
            print(&outcome.details());
        }
        let hung = outcome.hung;
        outcomes.push(outcome);
        if hung.calls > 0 {
            break;
        }
    }
    if outcomes.len() > 1 && !arguments.json {
        print(&table::table(&outcomes));
    }
    if arguments.scaling && !arguments.json {
        print(&table::scaling(&outcomes));
    }
    write(&plan, &outcomes)?;
    // What came out is told; but threads are left behind.
    outcomes.last().map_or(Ok(()), |outcome| outcome.hung.as_failure())
}

fn write(plan: &Plan<'_>, outcomes: &[Outcome]) -> Result<(), Failure> {
    let arguments = plan.arguments;
    let document = |histories: bool| {
        let results: Vec<_> = outcomes.iter().map(|outcome| outcome.json(histories)).collect();
        json!({"bench": "pipeline", "plan": plan.json(), "results": results})
    };
    if let Some(path) = &arguments.report {
        write_files(&[(path, document(true).to_string().as_bytes())])?;
    }
    if let Some(path) = &arguments.picture {
        let picture = picture::draw(&plan.headline(), outcomes)
            .map_err(|reason| Failure::Backend(format!("{}: {reason}", path.display())))?;
        write_files(&[(path, picture.as_bytes())])?;
    }
    if arguments.json {
        print_json(&document(false));
    }
    Ok(())
}

/// Warnings of the engine are never silent; with `--trace` every step is told.
fn log_steps(trace: bool) {
    use tracing_subscriber::EnvFilter;
    use tracing_subscriber::fmt::format::FmtSpan;
    let filter = EnvFilter::new(if trace { "warn,splitprover_harness=debug" } else { "warn" });
    let events = if trace { FmtSpan::CLOSE } else { FmtSpan::NONE };
    // Somebody who calls this as a library may have one already.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_span_events(events)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
}

/// A key, and what it takes of host memory beside mapped files.
fn key(
    arguments: &Arguments,
    circuit: &Synthetic,
    device: &Choice,
    seed: u64,
) -> Result<(Arc<ProvingKey>, u64), Failure> {
    let expected = crate::engine::SyntheticSource::shape(circuit);
    let (key, bytes) = match &arguments.zkey {
        Some(path) => (open_zkey_for(path, false, false, Residency::Long)?.key.clone(), 0),
        None => {
            let memory = HostMemory::default();
            let maker = backend::open(device, &Default::default())?;
            let fixed_base = key_maker(&maker, 1 << circuit.log2())?;
            let progress = super::super::progress::Progress::new("key generation");
            let resources = Resources {
                memory: &memory,
                fixed_base: &*fixed_base,
                progress: &|_, done, total| progress.update(done as u64, total as u64),
            };
            let basis = HBasis::OddLagrange;
            let key = generate(circuit, basis, &Trapdoor::from_seed(seed, basis), &resources).map_err(failure)?.key;
            (key, memory.ledger().now()[MemoryClass::Key])
        }
    };
    if key.shape() != expected {
        let (found, path) = (key.shape(), arguments.zkey.as_deref().unwrap_or("the key made here".as_ref()));
        let reason = format!("the key is for {found:?}, the circuit is {expected:?}");
        return Err(Failure::Mismatch(format!("{}: {reason}", path.display())));
    }
    Ok((key, bytes))
}

/// What the CPU backend takes for itself: it copies evaluations that don't fill the domain, or computes them; and its workers' stacks and
/// heaps.
fn reference_bytes(key: &ProvingKey) -> u64 {
    3 * 32 * key.shape().domain_size() as u64 + (16 << 20)
}

fn device_spec(choice: &Choice, key: &ProvingKey) -> Result<DeviceSpec, Failure> {
    let info = backend::device(choice)?;
    let choice = choice.clone();
    let opened = choice.clone();
    let spec = DeviceSpec::new(info.name.clone(), move |ledger| {
        backend::open(&opened, ledger).map_err(|error| error.to_string())
    });
    Ok(if info.kind == "cpu" {
        spec.working_bytes(reference_bytes(key)).retained_bytes(0)
    } else {
        match choice.vram_limit().or(Some(info.memory_bytes).filter(|&bytes| bytes > 0)) {
            Some(limit) => spec.vram(limit, 0),
            None => spec,
        }
    })
}

fn reference_spec(key: &ProvingKey) -> DeviceSpec {
    let open = |ledger: &_| backend::reference(ledger).map_err(|error| error.to_string());
    DeviceSpec::new("cpu, as a fall-back", open).working_bytes(reference_bytes(key)).retained_bytes(0)
}

fn budget(arguments: &Arguments, key_bytes: u64) -> Result<u64, Failure> {
    match (arguments.budget, limits::host_limit()) {
        (Some(bytes), Some(limit)) if bytes > limit.bytes => {
            let what = if limit.container { "this container may use" } else { "this machine has" };
            Err(Failure::Usage(format!("--budget {bytes}: {what} {} bytes", limit.bytes)))
        }
        (Some(bytes), _) => Ok(bytes),
        // What the process has already, beside the key, isn't there for the engine.
        (None, Some(limit)) => {
            Ok((limit.bytes / 10 * 9).saturating_sub(limits::resident_bytes().saturating_sub(key_bytes)))
        }
        (None, None) => Err(Failure::Usage("the system does not say how much memory there is: give --budget".into())),
    }
}

/// Milliseconds as a duration.
fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
