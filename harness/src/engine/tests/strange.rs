//! What a stranger might try: settings and sources that make no sense, thousands of jobs, an end in the middle.

use super::*;

#[test]
fn settings_that_make_no_sense_are_refused() {
    let one = || vec![device("sound", &Arc::default())];
    let settings: [fn(&mut Config); 8] = [
        |c| c.synthesis_workers = 0,
        |c| c.device_workers = 0,
        |c| c.finishers = 0,
        |c| c.in_flight = 0,
        |c| c.synthesis_workers = usize::MAX,
        |c| c.device_workers = usize::MAX,
        |c| c.finishers = 1 << 20,
        |c| c.host_budget = Some(0),
    ];
    for (which, set) in settings.into_iter().enumerate() {
        let mut config = config();
        set(&mut config);
        let error = Engine::new(config, &key(), 0, one()).expect_err("refused");
        let by_budget = matches!(error, EngineError::Device(DeviceError::Budget(BudgetError::NeverFits { .. })));
        assert!(if which == 7 { by_budget } else { matches!(error, EngineError::Config(_)) }, "{which}: {error}");
    }
    let error = Engine::new(config(), &key(), u64::MAX, one()).expect_err("refused");
    assert!(matches!(error, EngineError::Budget(BudgetError::NeverFits { .. })), "{error}");
    for devices in [vec![], vec![one().remove(0).fallback()], (0..64).flat_map(|_| one()).collect()] {
        assert!(matches!(Engine::new(config(), &key(), 0, devices), Err(EngineError::Config(_))));
    }
    let cannot = DeviceSpec::new("cannot", |_| Err("it is on fire".into()));
    let panics = DeviceSpec::new("panics", |_| panic!("planted"));
    for (spec, expected) in [(cannot, "cannot: it is on fire"), (panics, "panicked")] {
        let error = Engine::new(config(), &key(), 0, vec![spec]).expect_err("refused");
        assert!(
            matches!(&error, EngineError::Device(DeviceError::Open { .. })) && error.to_string().contains(expected)
        );
    }
}

#[test]
fn the_largest_settings_are_no_trouble() {
    let config = Config {
        host_budget: Some(u64::MAX),
        in_flight: usize::MAX,
        capacity: Capacity::Fixed(usize::MAX),
        hang_after: Duration::MAX,
        open_within: Duration::MAX,
        attempts: u32::MAX,
        quarantine_after: u32::MAX,
        ..config()
    };
    let engine = engine(config, vec![device("sound", &Arc::default())]);
    assert!(engine.set_aside(u64::MAX).is_err());
    let job = engine.submit(JobSpec::new(partitions(2)).priority(i32::MIN).deadline(Duration::MAX)).unwrap();
    assert_eq!(job.wait().unwrap().len(), 2);
    assert!(engine.shutdown(Duration::MAX).is_clean());
    let least = Config { attempts: 0, quarantine_after: 0, capacity: Capacity::Fixed(0), ..super::config() };
    let engine = super::engine(least, vec![device("sound", &Arc::default())]);
    assert_eq!(engine.submit(JobSpec::new(partitions(3))).unwrap().wait().unwrap().len(), 3);
    clean(engine);
}

type Make = fn(&Synthesis<'_>) -> Result<Inputs, SourceError>;

struct Odd(Footprint, Make);

impl Source for Odd {
    fn footprint(&self) -> Footprint {
        self.0
    }
    fn synthesize(&self, synthesis: &Synthesis<'_>) -> Result<Inputs, SourceError> {
        (self.1)(synthesis)
    }
}

#[test]
fn sources_that_lie_fail_their_job_and_nothing_else() {
    let engine = engine(config(), vec![device("sound", &Arc::default())]);
    let sound: Make = |synthesis| partition(1).synthesize(synthesis);
    let large = Footprint { evaluations: 1 << 20, witness: 1 << 20, transient: 0 };
    let odd: [(Footprint, Make, &str); 7] = [
        (Footprint::default(), sound, "its footprint is too small"),
        (Footprint { witness: exact().total() - 1, ..Footprint::default() }, sound, "its footprint is too small"),
        (large, |s| Ok(Inputs::new(s.memory().zeroed(MemoryClass::Witness, 0)?)), "witness has 0 values"),
        (large, |s| partition_of(7, 1).synthesize(s), "witness has"),
        (large, |s| Ok(Inputs::new(s.memory().zeroed(MemoryClass::Witness, 1000)?)), "witness has 1000 values"),
        (large, |_| Err(SourceError::Stopped), "stopped"),
        (large, |_| std::panic::panic_any(7), "synthesis panicked: no message"),
    ];
    for (footprint, make, expected) in odd {
        let job = engine.submit(JobSpec::new(vec![Arc::new(Odd(footprint, make))])).unwrap();
        let error = job.wait().unwrap_err();
        assert!(error.to_string().contains(expected), "{error}, expected: {expected}");
    }
    let never = Footprint { evaluations: u64::MAX, witness: u64::MAX, transient: u64::MAX };
    let refused = engine.submit(JobSpec::new(vec![Arc::new(Odd(never, sound))]));
    assert!(matches!(refused, Err(SubmitError::NeverFits { partition: 0, .. })));
    assert_eq!((engine.status().devices[0].failed, engine.status().devices[0].quarantined.clone()), (0, None));
    assert_eq!(engine.submit(JobSpec::new(partitions(2))).unwrap().wait().unwrap().len(), 2);
    clean(engine);
}

#[test]
fn inputs_of_a_kind_that_a_device_does_not_do_are_not_its_fault() {
    let narrow = Arc::new(Plant { start_unsupported: 1, ..Plant::default() });
    let alone = engine(config(), vec![device("narrow", &narrow)]);
    for _ in 0..2 {
        let error = alone.submit(JobSpec::new(partitions(2))).unwrap().wait().unwrap_err();
        assert!(matches!(&error, JobError::Partition { reason, .. } if reason.contains("not supported")), "{error}");
    }
    assert!(alone.status().devices[0].quarantined.is_none());
    clean(alone);
    let both = engine(config(), vec![device("narrow", &narrow), device("wide", &Arc::default())]);
    assert!(both.submit(JobSpec::new(partitions(6))).unwrap().wait().unwrap().iter().all(|proof| proof.device == 1));
    clean(both);
}

#[test]
fn thousands_of_jobs_whose_handles_are_dropped_are_all_done() {
    let engine = engine(config(), vec![device("sound", &Arc::default())]);
    let synthesized = Arc::new(AtomicU64::new(0));
    for number in 0..3000u64 {
        let count = synthesized.clone();
        let before = Arc::new(move |_: &Synthesis<'_>| {
            count.fetch_add(1, Ordering::SeqCst);
            Err(SourceError::Failed("none".into()))
        });
        let spec = match number % 100 {
            0 => JobSpec::new(Vec::new()),
            1 => JobSpec::new(partitions(1)),
            _ => JobSpec::new(vec![Arc::new(Observed { seed: number, before })]),
        };
        drop(engine.submit(spec.priority(number as i32 % 7)).unwrap());
    }
    until("all have ended", || {
        let status = engine.status();
        (status.jobs_done, status.jobs_failed, status.jobs.len()) == (60, 2940, 0)
    });
    assert_eq!((synthesized.load(Ordering::SeqCst), engine.status().partitions.proved), (2940, 30));
    clean(engine);
}

#[test]
fn an_engine_that_ends_in_the_middle_ends_every_wait_even_for_calls_that_hang() {
    let never = Arc::new(Plant::default());
    never.gate_starts.store(true, Ordering::SeqCst);
    let engine = engine(config(), vec![device("hanging", &never)]);
    let asleep = Arc::new(Mutex::new(()));
    let held = lock(&asleep);
    let sleeper = asleep.clone();
    let before = Arc::new(move |_: &Synthesis<'_>| {
        drop(lock(&sleeper));
        Ok(())
    });
    let jobs = [
        engine.submit(JobSpec::new(partitions(8))).unwrap(),
        // A source that doesn't hear.
        engine.submit(JobSpec::new(vec![Arc::new(Observed { seed: 1, before })]).priority(1)).unwrap(),
    ];
    until("calls are under way", || {
        engine.status().partitions.starting == 2 && engine.status().partitions.synthesizing > 0
    });
    std::thread::scope(|scope| {
        let waiting: Vec<_> = jobs.iter().map(|job| scope.spawn(|| job.wait_for(GRACE))).collect();
        let report = engine.shutdown(Duration::from_millis(100));
        assert_eq!((report.hung, report.leaked_bytes, report.reserved_bytes), (3, 0, 0), "{report:?}");
        assert!(report.stuck_bytes > 0);
        for outcome in waiting {
            assert_eq!(outcome.join().unwrap().expect("it is over").unwrap_err(), JobError::ShutDown);
        }
    });
    never.open_gate();
    drop(held);
    assert!(matches!(jobs[0].status().phase, JobPhase::Failed(_)));
}
