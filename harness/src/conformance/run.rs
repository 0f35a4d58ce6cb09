//! Runs the suite: chooses cases, hands them to workers, judges.

use std::time::{Duration, Instant};

use splitprover_core::SplitProver;

use super::case::{Case, Group, Scale};
use super::cases;
use super::report::{CaseReport, Report, Verdict};
use super::subject::Subject;
use super::worker::{self, Outcome, Reentry, Worker};

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only these groups; empty: all.
    pub groups: Vec<Group>,
    /// Only these cases, by `group/name` or name; empty: all.
    pub cases: Vec<String>,
    /// Seed of all randomness.
    pub seed: u64,
    /// Sizes.
    pub scale: Scale,
    /// A time limit for each case instead of its own.
    pub time_limit: Option<Duration>,
    /// How a worker process gets here.
    pub reentry: Reentry,
    /// The command that runs this suite, without options: for the line that says how to repeat a case.
    pub command: String,
}

impl Default for Options {
    /// The whole suite with a fresh seed.
    fn default() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self {
            groups: Vec::new(),
            cases: Vec::new(),
            // Short enough to type.
            seed: (now.as_nanos() as u64 ^ u64::from(std::process::id())) & 0xffff_ffff,
            scale: Scale::default(),
            time_limit: None,
            reentry: Reentry::default(),
            command: String::new(),
        }
    }
}

impl Options {
    fn selects<P: SplitProver>(&self, case: &Case<P>) -> bool {
        let group = self.groups.is_empty() || self.groups.contains(&case.group);
        let named = |name: &String| *name == case.name || *name == case.id();
        group && (self.cases.is_empty() || self.cases.iter().any(named))
    }

    fn repeat(&self, case: &str) -> Option<String> {
        if self.command.is_empty() {
            return None;
        }
        let (default, scale) = (Scale::default(), self.scale);
        let mut command = format!("{} --case {case} --seed {}", self.command, self.seed);
        for (option, value, usual) in [
            ("--max-log2", scale.max_log2, default.max_log2),
            ("--retention-log2", scale.retention_log2, default.retention_log2),
            ("--soak", scale.soak_proofs, default.soak_proofs),
        ] {
            if value != usual {
                command += &format!(" {option} {value}");
            }
        }
        Some(command)
    }
}

/// Names of all cases at a scale, as `group/name`, in the order in which they run.
pub fn case_names(scale: Scale) -> Vec<String> {
    // The list is the same for every backend; any type will do.
    cases::all::<super::Nothing>(scale).iter().map(Case::id).collect()
}

/// Runs the suite, and calls `progress` after each case.
///
/// Cases run in worker processes: this program started again, as [`Options::reentry`] says. **In such a worker this function
/// doesn't return**, so a program calls it before it does or prints anything that must happen once.
pub fn run<P: SplitProver>(subject: &Subject<P>, options: &Options, mut progress: impl FnMut(&CaseReport)) -> Report {
    if worker::requested() {
        worker::serve(subject);
    }
    let mut report =
        Report { subject: subject.name().into(), seed: options.seed, scale: options.scale, cases: Vec::new() };
    let mut workers = Workers { idle: None, options };
    let mut shut = None;
    for case in cases::all::<P>(options.scale).iter().filter(|case| options.selects(case)) {
        let done = judge(subject, case, shut.as_deref(), &mut workers);
        if case.gate && !done.verdict.is_good() {
            shut = Some(done.id());
        }
        progress(&done);
        report.cases.push(done);
    }
    workers.retire();
    report
}

/// `shut` names a gate that failed.
fn judge<P>(subject: &Subject<P>, case: &Case<P>, shut: Option<&str>, workers: &mut Workers<'_>) -> CaseReport
where
    P: SplitProver,
{
    let begin = Instant::now();
    let missing: Vec<_> = case.requires.iter().filter(|&&c| !subject.has(c)).map(|c| c.name()).collect();
    let (verdict, output) = if let Some(gate) = shut {
        (Verdict::Skipped { reason: format!("{gate} failed") }, None)
    } else if missing.is_empty() {
        workers.run(case)
    } else {
        (
            Verdict::Skipped { reason: format!("needs what the backend is declared to lack: {}", missing.join(", ")) },
            None,
        )
    };
    let verdict = match (subject.known(&case.id()), verdict) {
        (Some(known), Verdict::Passed) => Verdict::UnexpectedPass { reason: known.reason.clone() },
        (Some(known), bad) if !bad.is_good() => {
            let message = bad.message().unwrap_or_default();
            Verdict::KnownFailure { reason: known.reason.clone(), message: format!("{} ({message})", bad.word()) }
        }
        (_, verdict) => verdict,
    };
    let bad = !verdict.is_good();
    CaseReport {
        group: case.group,
        name: case.name.clone(),
        verdict,
        seconds: begin.elapsed().as_secs_f64(),
        output: output.filter(|output| bad && !output.is_empty()),
        repeat: workers.options.repeat(&case.id()).filter(|_| bad),
    }
}

/// One worker is kept from case to case, because opening a device is slow.
struct Workers<'o> {
    idle: Option<Worker>,
    options: &'o Options,
}

impl Workers<'_> {
    fn run<P>(&mut self, case: &Case<P>) -> (Verdict, Option<String>)
    where
        P: SplitProver,
    {
        if case.isolated {
            self.retire();
        }
        let worker = match self.idle.take() {
            Some(worker) => Ok(worker),
            None => Worker::start(&self.options.reentry),
        };
        let mut worker = match worker {
            Ok(worker) => worker,
            Err(error) => {
                return (Verdict::Failed { message: format!("no worker process: {error}") }, None);
            }
        };
        let limit = self.options.time_limit.unwrap_or(case.time_limit);
        let verdict = match worker.run(&case.id(), self.options.seed, self.options.scale, limit) {
            Outcome::Passed => Verdict::Passed,
            Outcome::Failed(message) => Verdict::Failed { message },
            Outcome::TimedOut => Verdict::TimedOut { limit_s: limit.as_secs_f64() },
            Outcome::Died(how) => {
                let message = match case.crash_means {
                    Some(meaning) => format!("{how}: {meaning}"),
                    None => how,
                };
                Verdict::Crashed { message }
            }
        };
        // A worker that has seen a failure may be in any state.
        if verdict == Verdict::Passed && !case.isolated {
            self.idle = Some(worker);
            return (verdict, None);
        }
        let errors = worker.put_away();
        (verdict, Some(errors))
    }

    fn retire(&mut self) {
        if let Some(worker) = self.idle.take() {
            worker.put_away();
        }
    }
}
