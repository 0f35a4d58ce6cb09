//! Cases run in worker processes: this program, started again, that reaches the same [`run`](super::run).
//!
//! The suite's own process never calls a backend. A worker reads commands from its standard input and answers on its
//! standard output, one marked line each; whatever else a backend writes there is passed over. A worker that dies or hangs is
//! a failed case and nothing more. Never a fork: a forked child can't use a GPU.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use splitprover_core::SplitProver;

use super::case::{Context, Scale};
use super::cases;
use super::subject::Subject;

/// Set in a worker's environment.
const VARIABLE: &str = "SPLITPROVER_CONFORMANCE_WORKER";
/// Settings of the GNU C library.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// Exact figures of what is allocated: nothing stays in caches of threads, and a block worth counting is a map of its own. Without
/// the second, the library raises its threshold to the largest block that was ever freed, and twice as much stays resident at the
/// top of each thread's heap, where `malloc_trim` doesn't reach.
const EXACT: &str = "glibc.malloc.tcache_count=0:glibc.malloc.mmap_threshold=262144";
/// Begins a line that the suite reads.
const MARK: &str = "splitprover-conformance: ";
/// Lines of standard error that are kept.
const KEPT_LINES: usize = 12;

/// How to start this program again so that it reaches [`run`](super::run) with the same subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reentry {
    /// Arguments.
    pub arguments: Vec<OsString>,
    /// Variables added to the environment.
    pub environment: Vec<(OsString, OsString)>,
}

impl Default for Reentry {
    /// This process's own arguments.
    fn default() -> Self {
        Self { arguments: std::env::args_os().skip(1).collect(), environment: Vec::new() }
    }
}

impl Reentry {
    /// For a function of the standard test harness, by its full name (`module::function`).
    pub fn of_test(name: &str) -> Self {
        let arguments = ["--exact", name, "--nocapture", "--include-ignored", "--test-threads=1"];
        Self { arguments: arguments.map(OsString::from).to_vec(), environment: Vec::new() }
    }

    /// The same with a variable in the environment.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }
}

#[derive(Serialize, Deserialize)]
struct Request {
    case: String,
    seed: u64,
    scale: Scale,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Ready,
    Passed,
    Failed(String),
}

/// Whether this process is a worker.
pub(super) fn requested() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// A worker's life: cases from standard input until it ends.
pub(super) fn serve<P: SplitProver>(subject: &Subject<P>) -> ! {
    answer(&Answer::Ready);
    for line in std::io::stdin().lines() {
        let request = line.ok().and_then(|line| serde_json::from_str::<Request>(&line).ok());
        let Some(Request { case, seed, scale }) = request else { break };
        let found = cases::all::<P>(scale).into_iter().find(|c| c.id() == case);
        let result = match &found {
            None => Answer::Failed(format!("there is no case {case}")),
            Some(found) => {
                let context = Context::new(subject, scale, seed, &case);
                match catch_unwind(AssertUnwindSafe(|| (found.body)(&context))) {
                    Ok(Ok(())) => Answer::Passed,
                    Ok(Err(failure)) => Answer::Failed(failure.0),
                    Err(_) => Answer::Failed("a panic came through to the case".into()),
                }
            }
        };
        answer(&result);
    }
    std::process::exit(0);
}

fn answer(answer: &Answer) {
    let json = serde_json::to_string(answer).unwrap_or_default();
    // The test harness may have written half a line.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "\n{MARK}{json}").and_then(|()| out.flush());
}

/// What a worker made of a case.
pub(super) enum Outcome {
    Passed,
    Failed(String),
    TimedOut,
    /// The process ended: how.
    Died(String),
}

/// A worker, seen from the suite.
pub(super) struct Worker {
    child: Child,
    /// `None` once closed, which ends the worker.
    commands: Option<ChildStdin>,
    answers: Receiver<Answer>,
    errors: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

impl Worker {
    pub(super) fn start(reentry: &Reentry) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        if std::env::var_os(TUNABLES).is_none() {
            command.env(TUNABLES, EXACT);
        }
        let mut child = command
            .args(&reentry.arguments)
            .envs(reentry.environment.iter().map(|(name, value)| (name, value)))
            .env(VARIABLE, "1")
            // What a panic says is worth keeping; where it came from, a debugger tells.
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (commands, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (sender, answers) = channel();
        let errors = Arc::new(Mutex::new(VecDeque::new()));
        let kept = errors.clone();
        let readers = vec![
            std::thread::spawn(move || {
                each_line(stdout, |line| {
                    let answer = line.strip_prefix(MARK).and_then(|json| serde_json::from_str(json).ok());
                    // Nobody listens any more if the worker is being put away.
                    let _ = answer.map(|answer| sender.send(answer));
                });
            }),
            std::thread::spawn(move || {
                each_line(stderr, |line| {
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    if kept.len() == KEPT_LINES {
                        kept.pop_front();
                    }
                    kept.push_back(line.to_owned());
                });
            }),
        ];
        Ok(Self { child, commands, answers, errors, readers })
    }

    /// Runs a case, for so long. After anything but a pass, put the worker away.
    pub(super) fn run(&mut self, case: &str, seed: u64, scale: Scale, limit: Duration) -> Outcome {
        let request = serde_json::to_string(&Request { case: case.into(), seed, scale }).unwrap_or_default();
        if let Some(commands) = &mut self.commands {
            // A worker that is dead already shows below.
            let _ = writeln!(commands, "{request}").and_then(|()| commands.flush());
        }
        let deadline = Instant::now() + limit;
        let mut reached = false;
        loop {
            match self.answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Answer::Ready) => reached = true,
                Ok(Answer::Passed) => return Outcome::Passed,
                Ok(Answer::Failed(message)) => return Outcome::Failed(message),
                Err(RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    return Outcome::TimedOut;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    // Standard output is closed; the process has ended, or is about to.
                    while Instant::now() < deadline {
                        if let Ok(Some(status)) = self.child.try_wait() {
                            let so_far = if reached { "" } else { " (it may not have reached the suite)" };
                            return Outcome::Died(ending(status) + so_far);
                        }
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    let _ = self.child.kill();
                    return Outcome::TimedOut;
                }
            }
        }
    }

    /// Ends the process, gently if it can, and returns the last lines of its standard error.
    pub(super) fn put_away(mut self) -> String {
        self.commands = None;
        let deadline = Instant::now() + Duration::from_secs(5);
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.wait();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.iter().map(|line| format!("{line}\n")).collect()
    }
}

fn each_line(stream: Option<impl Read>, mut line: impl FnMut(&str)) {
    let Some(stream) = stream else { return };
    let mut reader = BufReader::new(stream);
    let mut bytes = Vec::new();
    // A backend may write anything.
    while matches!(reader.read_until(b'\n', &mut bytes), Ok(count) if count > 0) {
        line(String::from_utf8_lossy(&bytes).trim_end());
        bytes.clear();
    }
}

fn ending(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let name = match signal {
            4 => " (SIGILL)",
            6 => " (SIGABRT)",
            7 => " (SIGBUS)",
            8 => " (SIGFPE)",
            9 => " (SIGKILL)",
            11 => " (SIGSEGV)",
            _ => "",
        };
        return format!("killed by signal {signal}{name}");
    }
    match status.code() {
        Some(code) => format!("the process ended with exit code {code}"),
        None => "the process ended".into(),
    }
}
