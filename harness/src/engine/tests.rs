//! The engine against planted backends: no job lost, no byte leaked, and the rules of order and memory kept at every instant.

mod faults;
mod keys;
mod safe_points;
mod strange;
mod stress;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use splitprover_core::{HBasis, HostMemory, Inputs, PreparedVerifyingKey};

use super::job::JobPhase;
use super::planted::{Plant, device};
use super::*;
use crate::setup::{CpuFixedBase, Resources, Shape, Synthetic, Trapdoor, generate};

const LOG2: u32 = 6;
const GRACE: Duration = Duration::from_secs(60);
/// How long a call may take before it counts as hung, where others must not: a sound one may have to wait for a processor.
const PATIENCE: Duration = Duration::from_secs(5);

fn circuit(log2: u32) -> Synthetic {
    Synthetic::new(Shape::Mixed, log2).unwrap()
}

fn key_of(log2: u32) -> Arc<ProvingKey> {
    let (memory, basis) = (HostMemory::default(), HBasis::OddLagrange);
    let resources = Resources { memory: &memory, fixed_base: &CpuFixedBase::new(1 << log2), progress: &|_, _, _| {} };
    generate(&circuit(log2), basis, &Trapdoor::from_seed(5, basis), &resources).unwrap().key
}

fn key() -> Arc<ProvingKey> {
    static KEY: OnceLock<Arc<ProvingKey>> = OnceLock::new();
    KEY.get_or_init(|| key_of(LOG2)).clone()
}

/// A key that no engine has.
pub(super) fn engine_key() -> EngineKey {
    let host = Host::new(1 << 30, false);
    let permit = host.budget.acquire_fixed(&[0], &|| false).unwrap();
    Keys::default().add(0, &key(), 0, permit, &host).unwrap()
}

fn partition_of(log2: u32, seed: u64) -> Arc<dyn Source> {
    Arc::new(SyntheticSource { circuit: circuit(log2), seed, evaluations: true, delay: Duration::ZERO })
}

fn partition(seed: u64) -> Arc<dyn Source> {
    partition_of(LOG2, seed)
}

fn partitions(count: u64) -> Vec<Arc<dyn Source>> {
    (0..count).map(partition).collect()
}

/// What a partition holds to the byte, three evaluation vectors and a witness: small buffers are never longer than asked for.
fn exact() -> Footprint {
    use crate::setup::ConstraintSystem;
    let (rows, variables) = (circuit(LOG2).num_constraints() + 2, circuit(LOG2).num_variables());
    Footprint { evaluations: 3 * 32 * rows as u64, witness: 32 * variables as u64, transient: 0 }
}

fn config() -> Config {
    Config { host_budget: Some(64 << 20), record: true, synthesis_workers: 4, ..Config::default() }
}

fn engine(config: Config, devices: Vec<DeviceSpec>) -> Engine {
    Engine::new(config, &key(), 0, devices).unwrap()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn bytes_of(status: &Status, class: MemoryClass) -> u64 {
    status.memory.iter().find(|entry| entry.class == class.name()).unwrap().bytes
}

fn clean(engine: Engine) {
    let report = engine.shutdown(GRACE);
    assert!(report.is_clean(), "{report:?}");
}

/// What the histories must show, whatever happened.
fn check_histories(engine: &Engine) {
    let status = engine.status();
    assert_eq!(status.evaluations_beyond_start_peak_bytes, 0);
    assert!(engine.beyond_start_history().is_empty());
    assert!(status.budget.peak <= status.budget.limit);
    // At every instant: all classes together within the limit, and evaluations only for partitions that aren't started.
    let (marks, mut at) = (engine.marks(), 0);
    let (mut now, mut unstarted) = ([0u64; MemoryClass::ALL.len()], 0u64);
    let each = exact().evaluations;
    for event in engine.ledger_history() {
        while at < marks.len() && marks[at].at <= event.at {
            match marks[at].step {
                Step::SynthesisBegins => unstarted += 1,
                Step::Started => unstarted -= 1,
                // Failed attempts may or may not have inputs: not with these marks.
                _ => {}
            }
            at += 1;
        }
        now[event.class as usize] = event.bytes;
        assert!(now.iter().sum::<u64>() <= status.budget.limit);
        let failures = marks.iter().filter(|mark| matches!(mark.step, Step::Failed | Step::Hung)).count() as u64;
        let evaluations = now[MemoryClass::Evaluations as usize];
        assert!(evaluations <= (unstarted + failures) * each, "{evaluations} bytes for {unstarted} partitions");
    }
}

/// A source that tells when it is run.
struct Observed {
    seed: u64,
    before: Arc<Before>,
}

type Before = dyn Fn(&Synthesis<'_>) -> Result<(), SourceError> + Send + Sync;

fn observer(count: &Arc<AtomicU64>) -> Arc<Before> {
    let count = count.clone();
    Arc::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    })
}

impl Source for Observed {
    fn footprint(&self) -> Footprint {
        exact()
    }
    fn synthesize(&self, synthesis: &Synthesis<'_>) -> Result<Inputs, SourceError> {
        (self.before)(synthesis)?;
        partition(self.seed).synthesize(synthesis)
    }
}

#[test]
fn every_proof_of_every_job_comes_out_verified_and_nothing_is_left() {
    let engine = engine(config(), vec![device("one", &Arc::default()), device("two", &Arc::default())]);
    let jobs: Vec<_> = (0..5).map(|_| engine.submit(JobSpec::new(partitions(4))).unwrap()).collect();
    let verifier = PreparedVerifyingKey::new(key().verifying_key());
    for job in &jobs {
        let proofs = job.wait().unwrap();
        assert_eq!(proofs.len(), 4);
        for (seed, proof) in proofs.iter().enumerate() {
            // The partitions are in order: each has its own output.
            let witness = circuit(LOG2).witness(seed as u64, &HostMemory::default()).unwrap();
            assert_eq!(proof.public, witness[1..2]);
            assert_eq!(verifier.verify(&proof.proof, &proof.public), Ok(true));
            assert!(proof.attempts == 1 && proof.in_work <= proof.latency);
        }
        assert!(job.latency().is_some() && job.status().phase == JobPhase::Done);
    }
    check_histories(&engine);
    let finished = engine.marks().iter().filter(|mark| mark.step == Step::Finished).count();
    assert_eq!((finished, engine.status().partitions.proved), (20, 20));
    until("jobs are counted", || engine.status().jobs_done == 5);
    clean(engine);
}

#[test]
fn cancelling_and_deadlines_stop_a_job_where_it_stands_and_no_other() {
    let gated = Arc::<Plant>::default();
    gated.gate_starts.store(true, Ordering::SeqCst);
    let engine = engine(config(), vec![device("gated", &gated)]);
    let cancelled = engine.submit(JobSpec::new(partitions(20))).unwrap();
    let late = engine.submit(JobSpec::new(partitions(20)).deadline(Duration::from_millis(30))).unwrap();
    let other = engine.submit(JobSpec::new(partitions(3)).deadline(GRACE)).unwrap();
    until("calls are under way", || engine.status().partitions.starting == 2);
    cancelled.cancel();
    assert_eq!(late.wait().unwrap_err(), JobError::Deadline);
    // Two of the cancelled job's partitions are in calls that haven't returned.
    assert_eq!(cancelled.status().phase, JobPhase::Failed("cancelled".into()));
    gated.open_gate();
    assert_eq!((cancelled.wait().unwrap_err(), other.wait().unwrap().len()), (JobError::Cancelled, 3));
    // A job that is done stays done.
    other.cancel();
    assert_eq!(other.wait().unwrap().len(), 3);
    clean(engine);
}

#[test]
fn a_running_synthesis_hears_of_the_cancellation() {
    let engine = engine(config(), vec![device("sound", &Arc::default())]);
    let begun = Arc::new(AtomicU64::new(0));
    let count = begun.clone();
    let before = Arc::new(move |synthesis: &Synthesis<'_>| {
        count.fetch_add(1, Ordering::SeqCst);
        synthesis.sleep(Duration::from_secs(3600))
    });
    let job = engine.submit(JobSpec::new(vec![Arc::new(Observed { seed: 1, before })])).unwrap();
    until("synthesis has begun", || begun.load(Ordering::SeqCst) == 1);
    job.cancel();
    assert_eq!(job.wait().unwrap_err(), JobError::Cancelled);
    clean(engine);
}

#[test]
fn higher_priority_then_the_oldest_job_then_the_first_partition() {
    let order: Arc<Mutex<Vec<u64>>> = Arc::default();
    let source = |seed: u64| -> Arc<dyn Source> {
        let order = order.clone();
        let before = Arc::new(move |_: &Synthesis<'_>| {
            lock(&order).push(seed);
            // The first one waits until all jobs are there.
            if seed == 0 {
                std::thread::sleep(Duration::from_millis(300));
            }
            Ok(())
        });
        Arc::new(Observed { seed, before })
    };
    let engine = engine(Config { synthesis_workers: 1, ..config() }, vec![device("sound", &Arc::default())]);
    let first = engine.submit(JobSpec::new(vec![source(0)])).unwrap();
    until("the first one has begun", || !lock(&order).is_empty());
    let specs = [(vec![10, 11], 0), (vec![20, 21], 0), (vec![30], 7)];
    let jobs: Vec<_> = specs
        .map(|(seeds, priority)| JobSpec::new(seeds.into_iter().map(source).collect()).priority(priority))
        .into_iter()
        .map(|spec| engine.submit(spec).unwrap())
        .collect();
    jobs.iter().chain([&first]).for_each(|job| drop(job.wait().unwrap()));
    assert_eq!(*lock(&order), [0, 30, 10, 11, 20, 21]);
    clean(engine);
}

#[test]
fn what_is_synthesised_waits_with_its_worker_and_does_not_pile_up() {
    for (work_permit, capacity) in [
        (WorkPermit::ThroughSend, Capacity::Workers),
        (WorkPermit::BeforeSend, Capacity::Workers),
        (WorkPermit::ThroughSend, Capacity::Unbounded),
    ] {
        let gated = Arc::<Plant>::default();
        gated.gate_starts.store(true, Ordering::SeqCst);
        let config = Config { synthesis_workers: 3, device_workers: 2, work_permit, capacity, ..config() };
        let bounded = work_permit == WorkPermit::ThroughSend && capacity == Capacity::Workers;
        let engine = engine(config, vec![device("gated", &gated)]);
        let synthesized = Arc::new(AtomicU64::new(0));
        let source: Arc<dyn Source> = Arc::new(Observed { seed: 1, before: observer(&synthesized) });
        let job = engine.submit(JobSpec::new(vec![source; 30])).unwrap();
        // Three workers, two in the hand-over, two in calls.
        let settled = if bounded { 7 } else { 30 };
        until("it settles", || synthesized.load(Ordering::SeqCst) == settled);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(synthesized.load(Ordering::SeqCst), settled);
        gated.open_gate();
        assert_eq!(job.wait().unwrap().len(), 30);
        assert!(!bounded || engine.handover_peak() <= 2);
        clean(engine);
    }
}

#[test]
fn memory_is_promised_before_it_is_used_and_what_never_fits_is_refused_at_once() {
    // Room for three partitions beside the device's own.
    let budget = 3 * exact().total() + 2 * (64 << 10);
    let config = Config { host_budget: Some(budget), synthesis_workers: 12, ..config() };
    let engine = engine(config, vec![device("sound", &Arc::default())]);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, peak) = (running.clone(), most.clone());
    let before = Arc::new(move |_: &Synthesis<'_>| {
        peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(2));
        now.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    });
    let source: Arc<dyn Source> = Arc::new(Observed { seed: 1, before });
    assert_eq!(engine.submit(JobSpec::new(vec![source.clone(); 30])).unwrap().wait().unwrap().len(), 30);
    assert!((2..=3).contains(&most.load(Ordering::SeqCst)));
    check_histories(&engine);
    let large = SyntheticSource { circuit: circuit(14), seed: 1, evaluations: true, delay: Duration::ZERO };
    let refused = engine.submit(JobSpec::new(vec![source, Arc::new(large)]));
    assert!(matches!(refused, Err(SubmitError::NeverFits { partition: 1, .. })));
    clean(engine);
    let small = Config { host_budget: Some(100 << 10), ..Config::default() };
    let refused = Engine::new(small, &key(), 0, vec![device("sound", &Arc::default())]);
    assert!(matches!(refused, Err(EngineError::Device(DeviceError::Budget(BudgetError::NeverFits { .. })))));
}

#[test]
fn dropping_an_engine_ends_its_jobs() {
    let engine = engine(config(), vec![device("sound", &Arc::default())]);
    // Slow ones: on a busy machine workers could be done with a thousand quick ones before `submit` returns here.
    let slow = |seed| -> Arc<dyn Source> {
        Arc::new(SyntheticSource { circuit: circuit(LOG2), seed, evaluations: true, delay: Duration::from_millis(50) })
    };
    let job = engine.submit(JobSpec::new((0..1000).map(slow).collect())).unwrap();
    drop(engine);
    let end = job.wait();
    assert!(matches!(end, Err(JobError::ShutDown)), "{:?}", end.map(|proofs| proofs.len()));
}

#[test]
fn buffers_are_recycled_within_the_budget() {
    // Evaluations that fill this domain are just large enough for maps of their own; the witness isn't.
    const LARGE: u32 = 15;
    let key = key_of(LARGE);
    let source = SyntheticSource { circuit: circuit(LARGE), seed: 1, evaluations: true, delay: Duration::ZERO };
    let each = source.footprint().total();
    let device = device("sound", &Arc::default());
    let budget = 2 * (64 << 10) + 2 * each + Premade::set_aside(&source.footprint());
    let config = Config { host_budget: Some(budget), synthesis_workers: 2, ..config() };
    let engine = Engine::new(config, &key, 0, vec![device]).unwrap();
    let memory = engine.set_aside(Premade::set_aside(&source.footprint())).unwrap();
    let premade = Arc::new(Premade::new(&source, 1 << LARGE, Duration::ZERO, &memory).unwrap());
    let sources = (0..5).map(|_| Arc::new(premade.clone()) as Arc<dyn Source>).collect();
    drop(premade);
    assert_eq!(engine.submit(JobSpec::new(sources)).unwrap().wait().unwrap().len(), 5);
    let pool = engine.status().pool;
    assert!(pool.reused + pool.made_pageable == 15 && pool.made_pageable <= 6, "{pool:?}");
    assert!(engine.status().memory_peak_bytes <= engine.status().budget.limit);
    assert_eq!(engine.status().evaluations_beyond_start_peak_bytes, 0);
    engine.trim();
    assert_eq!(engine.status().pool.idle_bytes, 0);
    clean(engine);
}

#[test]
fn the_status_says_the_same_in_json_and_prometheus_text() {
    let engine = engine(config(), vec![device("a \"quoted\" name", &Arc::default())]);
    engine.submit(JobSpec::new(partitions(3))).unwrap().wait().unwrap();
    let status = engine.status();
    let json = serde_json::to_value(&status).unwrap();
    assert_eq!((json["partitions"]["proved"].as_u64(), json["budget"]["limit"].as_u64()), (Some(3), Some(64 << 20)));
    let text = status.to_prometheus();
    assert!(text.contains("splitprover_proofs_total 3\n"));
    assert!(text.contains("splitprover_device_proofs_total{device=\"0\",name=\"a \\\"quoted\\\" name\"} 3\n"));
    // Every line is a comment or a name, perhaps labels, and a number.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("splitprover_") && value.parse::<f64>().is_ok(), "{line}");
    }
    assert!(status.line().starts_with("3 proved"));
    clean(engine);
}

/// What the peer's history is about: with inputs held until finish, proofs in flight take the memory that synthesis needs.
#[cfg(feature = "bench-hold")]
#[test]
fn twelve_workers_go_on_in_a_budget_in_which_held_inputs_stop_them() {
    for hold in [Hold::None, Hold::Finish] {
        let gated = Arc::<Plant>::default();
        gated.gate_finishes.store(true, Ordering::SeqCst);
        let budget = 12 * exact().total() + 2 * (64 << 10);
        let config =
            Config { host_budget: Some(budget), synthesis_workers: 12, in_flight: 30, finishers: 30, hold, ..config() };
        let engine = engine(config, vec![device("gated", &gated)]);
        let synthesized = Arc::new(AtomicU64::new(0));
        let source: Arc<dyn Source> = Arc::new(Observed { seed: 1, before: observer(&synthesized) });
        let jobs: Vec<_> = (0..15).map(|_| engine.submit(JobSpec::new(vec![source.clone(); 2])).unwrap()).collect();
        // No finish has returned. All thirty are started, or twelve fill the budget and nothing goes on.
        let expected = if hold == Hold::None { 30 } else { 12 };
        until("it settles", || {
            synthesized.load(Ordering::SeqCst) == expected && gated.finishes.load(Ordering::SeqCst) == expected
        });
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(synthesized.load(Ordering::SeqCst), expected, "{hold:?}");
        let status = engine.status();
        let evaluations = status.memory.iter().find(|class| class.class == "evaluations").unwrap().bytes;
        assert_eq!(evaluations, status.evaluations_beyond_start_bytes);
        assert_eq!(evaluations > 0, hold == Hold::Finish);
        gated.open_gate();
        jobs.iter().for_each(|job| assert_eq!(job.wait().unwrap().len(), 2));
        let status = engine.status();
        assert!(status.memory_peak_bytes <= budget && status.evaluations_beyond_start_bytes == 0);
        clean(engine);
    }
}
