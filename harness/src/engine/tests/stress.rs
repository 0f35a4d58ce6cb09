//! Random faults on random engines: whatever happens, every job ends, and nothing is left.
//!
//! `SPLITPROVER_STRESS=SECONDS` goes on for so long with new seeds; a failure names its seed, and `SPLITPROVER_STRESS_SEED` repeats it.

use rand_chacha::ChaCha8Rng;
use rand_core::{OsRng, RngCore, SeedableRng};

use super::*;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

struct Dice(ChaCha8Rng);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    /// In one of `n` cases.
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Every how many calls a fault comes; mostly never.
    fn fault(&mut self) -> u64 {
        if self.one_in(3) { 2 + self.below(12) } else { 0 }
    }

    fn plant(&mut self, hangs: bool) -> Plant {
        let at = |dice: &mut Self| if hangs && dice.one_in(4) { 1 + dice.below(6) } else { 0 };
        Plant {
            start_fails: self.fault(),
            start_fails_late: self.fault(),
            start_panics: self.fault(),
            finish_fails: self.fault(),
            finish_panics: self.fault(),
            drop_panics: self.fault(),
            sums_are_wrong: if self.one_in(3) { 5 + self.below(20) } else { 0 },
            start_unsupported: if self.one_in(6) { 20 } else { 0 },
            load_fails: if self.one_in(3) { 3 + self.below(5) } else { 0 },
            load_panics: if self.one_in(3) { 3 + self.below(5) } else { 0 },
            room_for_keys: self.below(3),
            takes: if self.one_in(3) { 100 << 10 } else { 0 },
            start_hangs_at: at(self),
            finish_hangs_at: at(self),
            drop_hangs_at: at(self),
            // The first opening is the engine's own.
            open_hangs_at: Some(at(self)).filter(|&at| at > 1).unwrap_or(0),
            load_hangs_at: Some(at(self)).filter(|&at| at > 1).unwrap_or(0),
            ..Plant::default()
        }
    }
}

fn round(seed: u64) {
    let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed));
    let hangs = dice.one_in(2);
    let plants: Vec<_> = (0..1 + dice.below(3)).map(|_| Arc::new(dice.plant(hangs))).collect();
    let mut devices: Vec<_> = plants.iter().enumerate().map(|(i, p)| device(&format!("device {i}"), p)).collect();
    if dice.one_in(2) {
        devices.push(device("spare", &Arc::default()).fallback());
    }
    let count = devices.len() as u64;
    let limit = Duration::from_millis(if hangs { 300 } else { 60_000 });
    let config = Config {
        synthesis_workers: 1 + dice.below(6) as usize,
        device_workers: 1 + dice.below(3) as usize,
        finishers: 1 + dice.below(3) as usize,
        in_flight: 1 + dice.below(5) as usize,
        host_budget: Some((192 << 10) * count + (1 + dice.below(8)) * partition_of(7, 0).footprint().total()),
        hang_after: limit,
        open_within: limit,
        attempts: 1 + dice.below(8) as u32,
        quarantine_after: 1 + dice.below(6) as u32,
        loaded_keys: 1 + dice.below(3) as usize,
        pools: dice.one_in(2),
        ..config()
    };
    let patient = config.attempts;
    let engine = engine(config, devices);
    let other = engine.add_key(&key_of_other(), 100).unwrap();
    let jobs: Vec<_> = (0..2 + dice.below(8))
        .filter_map(|_| {
            let (partitions, named) = (1 + dice.below(6), dice.one_in(3));
            let log2 = if named { 7 } else { LOG2 };
            let spec = JobSpec::new((0..partitions).map(|seed| partition_of(log2, seed)).collect());
            let spec = spec.priority(dice.below(3) as i32);
            let spec = if named { spec.key(&other) } else { spec };
            let spec = if dice.one_in(6) { spec.deadline(Duration::from_millis(dice.below(300))) } else { spec };
            std::thread::sleep(Duration::from_millis(dice.below(10)));
            // Nobody may be left already.
            let job = engine.submit(spec).ok()?;
            if dice.one_in(6) {
                std::thread::sleep(Duration::from_millis(dice.below(30)));
                job.cancel();
            }
            Some((job, partitions as usize))
        })
        .collect();
    drop(other);
    let in_the_middle = dice.one_in(4);
    if !in_the_middle {
        for (job, partitions) in &jobs {
            match job.wait_for(GRACE).unwrap_or_else(|| panic!("a job was lost: {:#?}", engine.status())) {
                Ok(proofs) => assert_eq!(proofs.len(), *partitions),
                Err(JobError::Partition { reason, attempt, .. }) => {
                    assert!(!reason.contains("lost within"), "{reason}");
                    assert!(attempt <= patient.max(1), "{attempt} of {patient} attempts");
                }
                Err(_) => {}
            }
        }
        let status = engine.status();
        assert_eq!(status.evaluations_beyond_start_peak_bytes, 0);
        assert!(status.memory_peak_bytes <= status.budget.limit && status.budget.peak <= status.budget.limit);
    }
    for plant in &plants {
        plant.open_gate();
    }
    let report = engine.shutdown(GRACE);
    assert!(report.is_clean(), "{report:?}");
    assert!(jobs.iter().all(|(job, _)| job.wait_for(GRACE).is_some()), "a job was lost at the end");
    // What was loaded and opened is gone as well.
    for plant in &plants {
        assert_eq!(plant.loaded.load(Ordering::SeqCst), 0);
    }
}

fn key_of_other() -> Arc<ProvingKey> {
    static KEY: OnceLock<Arc<ProvingKey>> = OnceLock::new();
    KEY.get_or_init(|| key_of(7)).clone()
}

#[test]
fn random_faults_lose_no_job_and_no_byte() {
    let (begin, seconds) = (Instant::now(), variable("SPLITPROVER_STRESS").unwrap_or(0));
    let mut rounds = 0;
    while rounds < 12 || begin.elapsed() < Duration::from_secs(seconds) {
        let seed = variable("SPLITPROVER_STRESS_SEED").unwrap_or_else(|| OsRng.next_u64());
        let outcome = std::panic::catch_unwind(|| round(seed));
        assert!(outcome.is_ok(), "SPLITPROVER_STRESS_SEED={seed} after {rounds} rounds");
        rounds += 1;
    }
    println!("{rounds} rounds");
}
