//! Several keys: jobs name theirs, share it, and get their turn where there is room for one alone.

use super::*;

const OTHER: u32 = 7;

fn other_key() -> Arc<ProvingKey> {
    static KEY: OnceLock<Arc<ProvingKey>> = OnceLock::new();
    KEY.get_or_init(|| key_of(OTHER)).clone()
}

fn others(count: u64) -> Vec<Arc<dyn Source>> {
    (0..count).map(|seed| partition_of(OTHER, seed)).collect()
}

fn verified(key: &ProvingKey, job: &JobHandle) -> usize {
    let verifier = PreparedVerifyingKey::new(key.verifying_key());
    let proofs = job.wait().unwrap();
    assert!(proofs.iter().all(|proof| verifier.verify(&proof.proof, &proof.public) == Ok(true)));
    proofs.len()
}

#[test]
fn jobs_name_their_key_share_it_and_it_goes_when_nobody_needs_it() {
    let plants = [200 << 10, 300 << 10].map(|key_takes| Arc::new(Plant { key_takes, ..Plant::default() }));
    let engine =
        Engine::new(config(), &key(), 1000, vec![device("one", &plants[0]), device("two", &plants[1])]).unwrap();
    let before = engine.status().budget.fixed;
    let added = engine.add_key(&other_key(), 500).unwrap();
    assert_eq!((added.number(), engine.add_key(&other_key(), 500).unwrap().number()), (1, 1), "the same key");
    let jobs: Vec<_> = (0..3)
        .map(|_| {
            let first = engine.submit(JobSpec::new(partitions(3))).unwrap();
            (first, engine.submit(JobSpec::new(others(3)).key(&added)).unwrap())
        })
        .collect();
    for (first, other) in &jobs {
        assert_eq!((verified(&key(), first), verified(&other_key(), other)), (3, 3));
    }
    for plant in &plants {
        assert!((1..=2).contains(&plant.loads.load(Ordering::SeqCst)), "each key once");
    }
    let status = engine.status();
    assert_eq!(bytes_of(&status, MemoryClass::Key), 1500);
    assert_eq!(status.keys.iter().map(|key| (key.number, key.host_bytes)).collect::<Vec<_>>(), [(0, 1000), (1, 500)]);
    assert!(status.devices.iter().any(|device| device.keys == [0, 1]));
    assert!(status.to_prometheus().contains("splitprover_key_bytes{key=\"1\"} 500\n"));
    // Jobs that are done don't keep it, nor do their handles.
    drop(added);
    until("the key is gone", || engine.status().keys.len() == 1);
    let status = engine.status();
    assert_eq!((bytes_of(&status, MemoryClass::Key), status.devices[0].keys.clone()), (1000, vec![0]));
    // Starts may have taken a little more than was promised to them.
    until("what devices took for it is back", || engine.status().budget.fixed < before + (100 << 10));
    let wrong = engine.submit(JobSpec::new(others(1))).unwrap().wait().unwrap_err();
    assert!(wrong.to_string().contains("variables"), "{wrong}");
    clean(engine);
}

#[test]
fn a_key_is_loaded_ahead_where_that_is_asked_for() {
    let plant = Arc::<Plant>::default();
    let spare = Arc::<Plant>::default();
    let engine = engine(config(), vec![device("sound", &plant), device("spare", &spare).fallback()]);
    let added = engine.add_key(&other_key(), 0).unwrap();
    assert_eq!(plant.loads.load(Ordering::SeqCst), 1);
    engine.load_ahead(&added).unwrap();
    until("it is loaded", || engine.status().devices[0].keys == [0, 1]);
    assert_eq!(verified(&other_key(), &engine.submit(JobSpec::new(others(2)).key(&added)).unwrap()), 2);
    assert_eq!((plant.loads.load(Ordering::SeqCst), spare.loads.load(Ordering::SeqCst)), (2, 1));
    clean(engine);
}

#[test]
fn where_there_is_room_for_one_key_they_take_turns_and_nobody_starves() {
    // Room as the backend sees it, as a setting, and as device memory.
    let rooms =
        [Plant { room_for_keys: 1, ..Plant::default() }, Plant::default(), Plant { key_vram: 100, ..Plant::default() }];
    for (which, plant) in rooms.into_iter().enumerate() {
        let plant = Arc::new(plant);
        // With the pause there is always a proof of the first key's in flight, unless its starts stop.
        let config = Config {
            loaded_keys: if which == 1 { 1 } else { usize::MAX },
            finish_delay: Duration::from_millis(20),
            ..config()
        };
        let spec = device("small", &plant);
        let engine = engine(config, vec![if which == 2 { spec.vram(170, 20) } else { spec }]);
        let added = engine.add_key(&other_key(), 0).unwrap();
        // Younger jobs of the first key could go on for ever.
        let first = engine.submit(JobSpec::new(partitions(4))).unwrap();
        let other = engine.submit(JobSpec::new(others(1)).key(&added)).unwrap();
        let younger = engine.submit(JobSpec::new(partitions(30))).unwrap();
        assert_eq!((verified(&key(), &first), verified(&other_key(), &other)), (4, 1));
        assert!(younger.status().proved < 30, "the older job had its turn");
        assert_eq!(verified(&key(), &younger), 30);
        assert!(plant.loads.load(Ordering::SeqCst) >= 3);
        if which != 2 {
            assert_eq!(plant.loaded_peak.load(Ordering::SeqCst), 1);
        }
        let status = &engine.status().devices[0];
        assert!(status.keys == [0] && status.quarantined.is_none() && status.failed == 0, "{status:?}");
        assert!(which != 2 || status.device_bytes <= 170);
        clean(engine);
    }
}

#[test]
fn a_key_that_one_device_cannot_take_goes_to_another_and_else_its_jobs_alone_fail() {
    let narrow = || Arc::new(Plant { unsupported_log2: OTHER, ..Plant::default() });
    let both = engine(config(), vec![device("narrow", &narrow()), device("wide", &Arc::default())]);
    let added = both.add_key(&other_key(), 0).unwrap();
    let proofs = both.submit(JobSpec::new(others(8)).key(&added)).unwrap().wait().unwrap();
    assert!(proofs.iter().all(|proof| proof.device == 1));
    assert!(both.status().devices[0].quarantined.is_none());
    clean(both);

    let alone = engine(config(), vec![device("narrow", &narrow())]);
    let added = alone.add_key(&other_key(), 0).unwrap();
    let sound = alone.submit(JobSpec::new(partitions(6))).unwrap();
    let job = alone.submit(JobSpec::new(others(3)).key(&added)).unwrap();
    assert!(matches!(job.wait(), Err(JobError::NoDevice(why)) if why.contains("narrow: not supported")));
    assert_eq!(verified(&key(), &sound), 6);
    let refused = alone.submit(JobSpec::new(others(1)).key(&added));
    assert!(matches!(refused, Err(SubmitError::NoDevice(why)) if why.contains("keys of this size")));
    assert_eq!(alone.status().devices[0].unfit_keys.len(), 1);
    clean(alone);

    // The fall-back steps in for that key, and for no other.
    let spare = Arc::<Plant>::default();
    let with = engine(config(), vec![device("narrow", &narrow()), device("spare", &spare).fallback()]);
    let added = with.add_key(&other_key(), 0).unwrap();
    let other = with.submit(JobSpec::new(others(3)).key(&added)).unwrap().wait().unwrap();
    let first = with.submit(JobSpec::new(partitions(3))).unwrap().wait().unwrap();
    assert!(other.iter().all(|proof| proof.device == 1) && first.iter().all(|proof| proof.device == 0));
    clean(with);
}

#[test]
fn a_key_is_promised_its_bytes_and_leaves_room_for_what_waits() {
    let base = 2 * (64 << 10);
    let gated = Arc::<Plant>::default();
    gated.gate_starts.store(true, Ordering::SeqCst);
    let config = Config { host_budget: Some(base + 2 * exact().total() + 1000), ..config() };
    let engine = engine(config, vec![device("gated", &gated)]);
    assert!(matches!(engine.add_key(&other_key(), 1 << 40), Err(KeyError::Budget(BudgetError::NeverFits { .. }))));
    let source: Arc<dyn Source> = Arc::new(Observed { seed: 1, before: Arc::new(|_| Ok(())) });
    let job = engine.submit(JobSpec::new(vec![source; 2])).unwrap();
    until("they are under way", || engine.status().partitions.starting == 2);
    // It would fit by itself; the partitions that are to be proved wouldn't any more.
    assert!(engine.add_key(&other_key(), exact().total() + 1001).is_err());
    let added = engine.add_key(&other_key(), 1000).unwrap();
    gated.open_gate();
    assert_eq!(verified(&key(), &job), 2);
    // Another one in its place: its bytes are waited for while devices unload it.
    engine.load_ahead(&added).unwrap();
    until("it is loaded", || engine.status().devices[0].keys.len() == 2);
    drop(added);
    // As soon as the thread that has loaded it ahead is gone as well.
    let (next, begin) = (key_of(8), Instant::now());
    let third = loop {
        match engine.add_key(&next, 2 * exact().total() + 1000) {
            Ok(third) => break third,
            Err(error) => assert!(begin.elapsed() < GRACE, "{error}"),
        }
    };
    until("the second one is gone", || engine.status().keys.len() == 2);
    let foreign = engine_key();
    assert!(matches!(engine.submit(JobSpec::new(partitions(1)).key(&foreign)), Err(SubmitError::ForeignKey)));
    drop(third);
    clean(engine);
}

#[test]
fn a_partition_that_waits_for_a_load_which_hangs_ends_with_its_job() {
    let hanging = Arc::new(Plant { load_hangs_at: 2, ..Plant::default() });
    let config = Config { open_within: PATIENCE, device_workers: 3, ..config() };
    let engine = engine(config, vec![device("hanging", &hanging)]);
    let added = engine.add_key(&other_key(), 0).unwrap();
    let job = engine.submit(JobSpec::new(others(6)).key(&added)).unwrap();
    let outcome = job.wait_for(GRACE).expect("nobody waits for ever");
    assert!(matches!(outcome, Err(JobError::NoDevice(why)) if why.contains("load_key")));
    hanging.open_gate();
    clean(engine);
}

#[test]
fn a_partition_whose_key_is_there_does_not_wait_for_a_place_on_a_device_that_hangs() {
    // One place, which a call of finish keeps for ever; the second worker has the next partition.
    let hanging = Arc::new(Plant { finish_hangs_at: 1, ..Plant::default() });
    let config = Config { hang_after: PATIENCE, in_flight: 1, ..config() };
    let engine = engine(config, vec![device("hanging", &hanging), device("spare", &Arc::default()).fallback()]);
    let added = engine.add_key(&other_key(), 0).unwrap();
    let job = engine.submit(JobSpec::new(others(6)).key(&added)).unwrap();
    assert_eq!(job.wait_for(GRACE).expect("nobody waits for ever").unwrap().len(), 6);
    hanging.open_gate();
    clean(engine);
}

#[test]
fn keys_that_go_by_themselves_make_room_for_one_that_waits() {
    // The second key is forgotten while the third looks for room.
    let plant = Arc::new(Plant { room_for_keys: 2, ..Plant::default() });
    let engine = engine(config(), vec![device("small", &plant)]);
    for _ in 0..10 {
        let second = engine.add_key(&other_key(), 0).unwrap();
        assert_eq!(verified(&other_key(), &engine.submit(JobSpec::new(others(1)).key(&second)).unwrap()), 1);
        let third = engine.add_key(&key_of(8), 0).unwrap();
        let job = engine.submit(JobSpec::new(vec![partition_of(8, 1)]).key(&third)).unwrap();
        drop(second);
        job.wait_for(GRACE).expect("it is over").unwrap();
    }
    assert!(engine.status().devices[0].unfit_keys.is_empty());
    clean(engine);
}

#[test]
fn a_load_that_fails_panics_or_hangs_loses_no_job() {
    let faults = [
        Plant { load_fails: 2, ..Plant::default() },
        Plant { load_panics: 2, ..Plant::default() },
        Plant { load_hangs_at: 2, ..Plant::default() },
    ];
    for (which, plant) in faults.into_iter().enumerate() {
        let plant = Arc::new(plant);
        let config = Config { open_within: PATIENCE, loaded_keys: 1, ..config() };
        let engine = engine(config, vec![device("faulty", &plant), device("sound", &Arc::default())]);
        let added = engine.add_key(&other_key(), 0).unwrap();
        for _ in 0..3 {
            let first = engine.submit(JobSpec::new(partitions(4))).unwrap();
            let other = engine.submit(JobSpec::new(others(4)).key(&added)).unwrap();
            assert_eq!((verified(&key(), &first), verified(&other_key(), &other)), (4, 4), "fault {which}");
        }
        plant.open_gate();
        until("nothing hangs", || engine.status().hung_calls == 0);
        clean(engine);
    }
}
