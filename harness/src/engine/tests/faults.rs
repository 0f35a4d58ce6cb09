//! Planted faults: no job lost, no byte leaked, clean shutdown.

use super::*;

#[test]
fn no_fault_loses_a_job_or_a_byte() {
    type Fault = fn(&mut Plant);
    let faults: [(&str, Fault); 8] = [
        ("every second start fails", |p| p.start_fails = 2),
        ("every third start fails late", |p| p.start_fails_late = 3),
        ("every third start panics", |p| p.start_panics = 3),
        ("every second finish fails", |p| p.finish_fails = 2),
        ("every third finish panics", |p| p.finish_panics = 3),
        ("a sum is wrong", |p| p.sums_are_wrong = 20),
        ("starts take memory", |p| p.takes = 1 << 16),
        ("everything", |p| {
            (p.start_fails, p.start_fails_late, p.start_panics) = (5, 7, 11);
            (p.finish_fails, p.finish_panics, p.sums_are_wrong) = (5, 7, 20);
        }),
    ];
    for (name, fault) in faults {
        let mut plant = Plant::default();
        fault(&mut plant);
        let plant = Arc::new(plant);
        // A device that fails every second time has failures in a row with luck alone.
        let config = Config { quarantine_after: 1000, attempts: 1000, ..config() };
        let engine = engine(config, vec![device("planted", &plant)]);
        let jobs: Vec<_> = (0..4).map(|_| engine.submit(JobSpec::new(partitions(6))).unwrap()).collect();
        for job in jobs {
            assert_eq!(job.wait().unwrap_or_else(|error| panic!("{name}: {error}")).len(), 6);
        }
        let status = engine.status();
        assert_eq!(status.partitions.proved, 24, "{name}");
        match name {
            "every second start fails" => assert!(status.partitions.handed_on > 0),
            "every third start panics" => assert!(plant.instances.load(Ordering::SeqCst) > 1),
            "every second finish fails" => assert!(status.partitions.synthesized_again > 0),
            _ => {}
        }
        check_histories(&engine);
        clean(engine);
    }
}

#[test]
fn a_failed_start_hands_its_inputs_to_the_other_device_which_is_not_blamed() {
    let (broken, sound) = (Arc::new(Plant { start_fails: 1, ..Plant::default() }), Arc::default());
    let synthesized = Arc::new(AtomicU64::new(0));
    let engine = engine(config(), vec![device("broken", &broken), device("sound", &sound)]);
    let source: Arc<dyn Source> = Arc::new(Observed { seed: 1, before: observer(&synthesized) });
    let proofs = engine.submit(JobSpec::new(vec![source; 12])).unwrap().wait().unwrap();
    assert!(proofs.iter().all(|proof| proof.device == 1));
    assert_eq!(synthesized.load(Ordering::SeqCst), 12, "nothing was synthesised twice");
    let status = engine.status();
    if status.devices[0].failed >= 3 {
        assert!(status.devices[0].quarantined.as_deref().is_some_and(|why| why.contains("3 failures in a row")));
    }
    assert!(status.devices[1].quarantined.is_none());
    clean(engine);
}

#[test]
fn a_device_that_keeps_failing_is_quarantined_and_only_an_explicit_fallback_steps_in() {
    let broken = || Arc::new(Plant { start_fails: 1, ..Plant::default() });
    let config = || Config { attempts: 100, ..config() };
    let without = engine(config(), vec![device("broken", &broken())]);
    let job = without.submit(JobSpec::new(partitions(3))).unwrap();
    assert!(matches!(job.wait(), Err(JobError::NoDevice(reason)) if reason.contains("broken: 3 failures")));
    assert!(matches!(without.submit(JobSpec::new(partitions(1))), Err(SubmitError::NoDevice(_))));
    clean(without);

    let fallback = device("spare", &Arc::default()).fallback();
    let with = engine(config(), vec![device("broken", &broken()), fallback]);
    let proofs = with.submit(JobSpec::new(partitions(3))).unwrap().wait().unwrap();
    assert!(proofs.iter().all(|proof| proof.device == 1));
    assert!(with.status().devices[0].quarantined.is_some() && with.status().devices[1].fallback);
    clean(with);

    // A fall-back has nothing to do while the device works.
    let spare = Arc::<Plant>::default();
    let idle = engine(config(), vec![device("sound", &Arc::default()), device("spare", &spare).fallback()]);
    idle.submit(JobSpec::new(partitions(6))).unwrap().wait().unwrap();
    assert_eq!(spare.starts.load(Ordering::SeqCst), 0);
    clean(idle);
}

#[test]
fn failures_with_proofs_in_between_are_not_in_a_row() {
    let plant = Arc::new(Plant { start_fails: 2, ..Plant::default() });
    let config = Config { quarantine_after: 3, attempts: 100, device_workers: 1, in_flight: 1, ..config() };
    let engine = engine(config, vec![device("every second time", &plant)]);
    assert_eq!(engine.submit(JobSpec::new(partitions(10))).unwrap().wait().unwrap().len(), 10);
    let status = &engine.status().devices[0];
    assert!(status.failed >= 9 && status.quarantined.is_none(), "{status:?}");
    clean(engine);
}

#[test]
fn a_hung_call_loses_its_partition_to_another_device_and_its_bytes_stay_stuck_until_it_returns() {
    for in_finish in [false, true] {
        let hanging = match in_finish {
            false => Plant { start_hangs_at: 1, ..Plant::default() },
            true => Plant { finish_hangs_at: 1, ..Plant::default() },
        };
        let hanging = Arc::new(hanging);
        let config = Config { hang_after: PATIENCE, device_workers: 1, ..config() };
        let engine = engine(config, vec![device("hanging", &hanging), device("sound", &Arc::default())]);
        let job = engine.submit(JobSpec::new(partitions(8))).unwrap();
        assert_eq!(job.wait().unwrap().len(), 8);
        let status = engine.status();
        let calls = if in_finish { &hanging.finishes } else { &hanging.starts };
        if calls.load(Ordering::SeqCst) == 0 {
            // The other device was faster eight times over; nothing hung.
            clean(engine);
            continue;
        }
        assert_eq!((status.hung_calls, status.devices[0].hung), (1, 1));
        assert!(status.devices[0].quarantined.as_deref().is_some_and(|why| why.contains("has not returned")));
        let stuck = status.memory.iter().find(|class| class.class == "stuck").unwrap().bytes;
        assert_eq!((stuck > 0, status.budget.stuck > 0), (!in_finish, !in_finish), "finish holds no inputs");
        // It comes back after all.
        hanging.open_gate();
        until("the call has returned", || engine.status().hung_calls == 0 && engine.status().budget.stuck == 0);
        assert_eq!(engine.submit(JobSpec::new(partitions(2))).unwrap().wait().unwrap().len(), 2);
        clean(engine);
    }
}

#[test]
fn shutting_down_leaves_a_hung_call_behind_after_the_grace_period_and_says_so() {
    let hanging = Arc::new(Plant { start_hangs_at: 1, ..Plant::default() });
    let config = Config { hang_after: Duration::from_millis(50), ..config() };
    let engine = engine(config, vec![device("hanging", &hanging)]);
    let job = engine.submit(JobSpec::new(partitions(1))).unwrap();
    assert!(matches!(job.wait(), Err(JobError::NoDevice(_))));
    let report = engine.shutdown(Duration::from_millis(50));
    assert_eq!((report.hung, report.leaked_bytes, report.reserved_bytes), (1, 0, 0));
    assert!(report.stuck_bytes == exact().total() && !report.is_clean());
    hanging.open_gate();
}

#[test]
fn proofs_in_flight_that_are_dropped_may_panic_or_hang() {
    for hangs in [false, true] {
        let plant = Plant { drop_panics: u64::from(!hangs), drop_hangs_at: u64::from(hangs), ..Plant::default() };
        let plant = Arc::new(plant);
        let limit = if hangs { PATIENCE } else { GRACE };
        let config = Config { finish_delay: Duration::MAX, hang_after: limit, ..config() };
        let engine = engine(config, vec![device("faulty", &plant)]);
        let job = engine.submit(JobSpec::new(partitions(2))).unwrap();
        until("both are in flight", || engine.status().partitions.in_flight == 2);
        job.cancel();
        assert_eq!(job.wait_for(GRACE).expect("it is over").unwrap_err(), JobError::Cancelled);
        assert_eq!(engine.status().devices[0].quarantined.is_some(), hangs);
        plant.open_gate();
        until("the call has returned", || engine.status().hung_calls == 0);
        if !hangs {
            // The instance is broken, and a new one is opened for the next partition.
            let next = engine.submit(JobSpec::new(partitions(1))).unwrap();
            until("it is in flight", || engine.status().partitions.in_flight == 1);
            assert_eq!(plant.instances.load(Ordering::SeqCst), 2);
            next.cancel();
        }
        clean(engine);
    }
}

#[test]
fn an_instance_whose_opening_hangs_after_a_panic_keeps_no_partition() {
    let plant = Arc::new(Plant { start_panics: 1, open_hangs_at: 2, ..Plant::default() });
    let config = Config { open_within: PATIENCE, ..config() };
    let engine = engine(config, vec![device("faulty", &plant), device("sound", &Arc::default())]);
    let jobs: Vec<_> = (0..4).map(|_| engine.submit(JobSpec::new(partitions(4))).unwrap()).collect();
    for job in jobs {
        assert_eq!(job.wait_for(GRACE).expect("no partition waits for the opening").unwrap().len(), 4);
    }
    if plant.starts.load(Ordering::SeqCst) > 0 {
        until("it is taken for hung", || engine.status().devices[0].quarantined.is_some());
    }
    plant.open_gate();
    until("the call has returned", || engine.status().hung_calls == 0);
    clean(engine);
}

#[test]
fn a_device_that_is_refused_memory_gets_what_partitions_yield() {
    // Each start takes twice what its device has; the rest of the budget is full of partitions.
    let plant = Arc::new(Plant { takes: 160 << 10, ..Plant::default() });
    let budget = 2 * (64 << 10) + 4 * partition(0).footprint().total();
    let config = Config { host_budget: Some(budget), synthesis_workers: 8, attempts: 8, ..config() };
    let engine = engine(config, vec![device("hungry", &plant)]);
    assert_eq!(engine.submit(JobSpec::new(partitions(12))).unwrap().wait().unwrap().len(), 12);
    assert!(engine.status().devices[0].quarantined.is_none());
    check_histories(&engine);
    clean(engine);
}

#[test]
fn a_bad_witness_is_its_jobs_fault_and_wrong_sums_are_the_devices() {
    struct Bad;
    impl Source for Bad {
        fn footprint(&self) -> Footprint {
            partition(1).footprint()
        }
        fn synthesize(&self, synthesis: &Synthesis<'_>) -> Result<Inputs, SourceError> {
            let mut witness = circuit(LOG2).witness(1, synthesis.memory())?;
            // Gate 4 makes a bit that is checked.
            witness[7] += splitprover_core::Scalar::from(5);
            let evaluations =
                crate::setup::ConstraintSystem::evaluations(&circuit(LOG2), &witness, synthesis.memory())?;
            Ok(Inputs::with_evaluations(witness, evaluations))
        }
    }
    let sound = engine(config(), vec![device("sound", &Arc::default())]);
    for _ in 0..4 {
        let error = sound.submit(JobSpec::new(vec![Arc::new(Bad)])).unwrap().wait().unwrap_err();
        assert!(matches!(&error, JobError::Partition { reason, .. } if reason.contains("does not verify")), "{error}");
    }
    assert_eq!(
        (sound.status().devices[0].failed, sound.submit(JobSpec::new(partitions(1))).unwrap().wait().is_ok()),
        (0, true)
    );
    clean(sound);

    let wrong = Arc::new(Plant { sums_are_wrong: 1, ..Plant::default() });
    let engine = engine(config(), vec![device("wrong", &wrong), device("sound", &Arc::default())]);
    for _ in 0..20 {
        engine.submit(JobSpec::new(partitions(4))).unwrap().wait().unwrap();
    }
    let status = engine.status();
    assert_eq!(status.devices[0].finished, 0);
    assert_eq!(status.devices[0].failed, wrong.finishes.load(Ordering::SeqCst).min(status.devices[0].failed));
    clean(engine);
}

#[test]
fn synthesis_that_fails_or_panics_fails_its_job_alone() {
    let engine = engine(config(), vec![device("sound", &Arc::default())]);
    let failing = Arc::new(Observed { seed: 1, before: Arc::new(|_| Err(SourceError::Failed("no file".into()))) });
    let panicking = Arc::new(Observed { seed: 1, before: Arc::new(|_| panic!("planted")) });
    let sources: [(Arc<dyn Source>, &str); 2] = [(failing, "no file"), (panicking, "synthesis panicked: planted")];
    for (source, expected) in sources {
        let error = engine.submit(JobSpec::new(vec![source])).unwrap().wait().unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(engine.submit(JobSpec::new(Vec::new())).unwrap().wait().unwrap().is_empty());
    assert!(engine.submit(JobSpec::new(partitions(2))).unwrap().wait().is_ok());
    clean(engine);
}
