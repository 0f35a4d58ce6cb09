//! Cancellation at each safe point: a job that is stopped is over as soon as nobody is in a call for it, wherever its partitions wait.

use super::*;

/// It is over by its cancellation, although what it waits for doesn't come.
fn is_cancelled(job: &JobHandle) {
    job.cancel();
    assert_eq!(job.wait_for(GRACE).expect("it is over").unwrap_err(), JobError::Cancelled);
}

fn gated() -> Arc<Plant> {
    let gated = Arc::<Plant>::default();
    gated.gate_starts.store(true, Ordering::SeqCst);
    gated
}

fn one(engine: &Engine, seed: u64) -> JobHandle {
    let source: Arc<dyn Source> = Arc::new(Observed { seed, before: Arc::new(|_| Ok(())) });
    engine.submit(JobSpec::new(vec![source])).unwrap()
}

#[test]
fn in_the_queue_at_the_hand_over_and_in_it() {
    let gated = gated();
    let config = Config { synthesis_workers: 1, device_workers: 1, ..config() };
    let engine = engine(config, vec![device("gated", &gated)]);
    let started = one(&engine, 1);
    until("the first is in start", || engine.status().partitions.starting == 1);
    let ready = one(&engine, 2);
    until("the second waits for a device", || engine.status().partitions.ready == 1);
    let sending = one(&engine, 3);
    let made = |engine: &Engine| engine.marks().iter().filter(|mark| mark.step == Step::SynthesisEnds).count();
    until("the third waits for the hand-over", || made(&engine) == 3);
    let queued = one(&engine, 4);
    until("the fourth waits for a worker", || engine.status().partitions.queued == 1);
    for job in [&queued, &sending, &ready] {
        is_cancelled(job);
    }
    let status = engine.status();
    assert_eq!((status.partitions.queued, status.partitions.ready, status.partitions.starting), (0, 0, 1));
    // Their memory is back: only the first one's is promised.
    until("memory is back", || engine.status().budget.reserved == status.budget.fixed + exact().total());
    // In a call: that is waited for.
    started.cancel();
    assert!(started.wait_for(Duration::from_millis(50)).is_none());
    gated.open_gate();
    is_cancelled(&started);
    assert_eq!(gated.starts.load(Ordering::SeqCst), 1);
    clean(engine);
}

#[test]
fn while_it_waits_for_memory() {
    let gated = gated();
    let config = Config { host_budget: Some(2 * (64 << 10) + exact().total()), ..config() };
    let engine = engine(config, vec![device("gated", &gated)]);
    let started = one(&engine, 1);
    until("the first is in start", || engine.status().partitions.starting == 1);
    let waiting = one(&engine, 2);
    until("the second waits", || engine.status().budget.waiting == 1);
    is_cancelled(&waiting);
    assert_eq!(engine.status().budget.waiting, 0);
    gated.open_gate();
    assert_eq!(started.wait().unwrap().len(), 1);
    clean(engine);
}

#[test]
fn in_flight_before_a_finisher_and_with_one() {
    let plant = Arc::<Plant>::default();
    let config = Config { finish_delay: Duration::MAX, finishers: 1, ..config() };
    let engine = engine(config, vec![device("sound", &plant)]);
    let with = one(&engine, 1);
    until("the first is in flight", || engine.status().partitions.in_flight == 1);
    let before = one(&engine, 2);
    until("the second is in flight", || engine.status().partitions.in_flight == 2);
    is_cancelled(&before);
    is_cancelled(&with);
    assert_eq!((engine.status().partitions.in_flight, plant.finishes.load(Ordering::SeqCst)), (0, 0));
    assert_eq!(plant.drops.load(Ordering::SeqCst), 2);
    clean(engine);
}

#[test]
fn while_its_key_waits_for_room() {
    let gated = gated();
    let plant = Config { loaded_keys: 1, device_workers: 2, ..config() };
    let engine = engine(plant, vec![device("gated", &gated)]);
    let added = engine.add_key(&key_of(7), 0).unwrap();
    let started = one(&engine, 1);
    until("the first is in start", || engine.status().partitions.starting == 1);
    let waiting = engine.submit(JobSpec::new(vec![partition_of(7, 1)]).key(&added)).unwrap();
    until("the second is with a worker", || {
        let marks = engine.marks();
        let handed = |step| marks.iter().filter(|mark| mark.step == step).count();
        handed(Step::HandedOver) == 2 && engine.status().partitions.ready == 0
    });
    is_cancelled(&waiting);
    gated.open_gate();
    assert_eq!(started.wait().unwrap().len(), 1);
    clean(engine);
}

#[test]
fn a_deadline_stops_what_waits_as_a_cancellation_does() {
    let plant = Arc::<Plant>::default();
    let config = Config { finish_delay: Duration::MAX, finishers: 1, ..config() };
    let engine = engine(config, vec![device("sound", &plant)]);
    let jobs: Vec<_> = [0, 1, 50]
        .map(|ms| engine.submit(JobSpec::new(partitions(3)).deadline(Duration::from_millis(ms))).unwrap())
        .into_iter()
        .collect();
    for job in &jobs {
        assert_eq!(job.wait_for(GRACE).expect("it is over").unwrap_err(), JobError::Deadline);
    }
    let never = engine.submit(JobSpec::new(partitions(1)).deadline(Duration::MAX)).unwrap();
    assert!(never.wait_for(Duration::from_millis(100)).is_none());
    is_cancelled(&never);
    until("jobs are counted", || engine.status().jobs_failed == 4);
    clean(engine);
}
