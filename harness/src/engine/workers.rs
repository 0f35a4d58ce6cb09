//! What the threads do: synthesise, start, finish.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use splitprover_core::abi::Backend;
use splitprover_core::{BackendError, FinishError, InFlight, Inputs, StartError};
use tracing::{debug, info_span, warn};

use super::account::PartitionAccount;
use super::budget::Permit;
use super::config::{Hold, WorkPermit};
use super::device::{Device, Fault, Instance, NotLoaded};
use super::history::Step;
use super::job::Task;
use super::keys::{EngineKey, Loaded};
use super::pools::Evict;
use super::shared::Shared;
use super::source::{SourceError, Synthesis};
use super::watchdog::CallKind;

/// A synthesised partition.
pub(crate) struct Ready {
    // In the order in which they must go: the vectors before their account.
    pub(crate) inputs: Box<Inputs>,
    pub(crate) account: Arc<PartitionAccount>,
    pub(crate) task: Task,
}

/// A proof in flight.
pub(crate) struct Started {
    in_flight: InFlight<Backend>,
    account: Arc<PartitionAccount>,
    place: Permit,
    key: Arc<Loaded>,
    instance: Arc<Instance>,
    device: Arc<Device>,
    pub(crate) task: Task,
}

/// Synthesises partitions, one after the other.
pub(crate) fn synthesis_worker(shared: &Arc<Shared>) {
    while let Some(mut task) = shared.tasks.receive(&|_| Some(0)) {
        let give_up = || task.job.is_stopped() || shared.is_stopping();
        if give_up() {
            continue;
        }
        let demand = task.source.footprint().total();
        let permit = match shared.host.budget.acquire(&[demand], &give_up) {
            Ok(permit) => permit,
            Err(super::BudgetError::GivenUp) => continue,
            Err(error) => {
                task.fail(error);
                continue;
            }
        };
        task.began = Instant::now();
        let account = PartitionAccount::new(&shared.host, permit, shared.next_home(task.job.key));
        shared.working(1);
        if let Some(ready) = synthesize(shared, task, account) {
            hand_over(shared, ready);
        }
        shared.working(-1);
    }
}

fn synthesize(shared: &Arc<Shared>, task: Task, account: Arc<PartitionAccount>) -> Option<Ready> {
    let _span = info_span!("synthesize", job = %task.job.id, partition = task.partition).entered();
    shared.mark(Step::SynthesisBegins, &task, None);
    shared.counters.synthesizing.fetch_add(1, Ordering::SeqCst);
    let memory = account.memory(shared.config.pools);
    let (job, source) = (task.job.clone(), task.source.clone());
    let stopped = || job.is_stopped() || shared.is_stopping();
    let synthesis = Synthesis::new(&memory, &stopped);
    // A source is the application's code. It may take as long as it likes, only not the engine's end with it; and its panic is
    // its job's failure, not the worker's.
    let call = shared.watchdog.begin(CallKind::Synthesis, 0, Duration::MAX, Some(task), Some(account.clone()));
    let made = catch_unwind(AssertUnwindSafe(|| source.synthesize(&synthesis)));
    shared.counters.synthesizing.fetch_sub(1, Ordering::SeqCst);
    let Ok(Some(task)) = shared.watchdog.end(&call) else { return None };
    drop(call);
    match made {
        Ok(Ok(inputs)) => {
            account.seal();
            shared.mark(Step::SynthesisEnds, &task, None);
            Some(Ready { inputs: Box::new(inputs), account, task })
        }
        Ok(Err(SourceError::Stopped)) if stopped() => None,
        Ok(Err(error)) => {
            task.fail(format_args!("synthesis: {error}"));
            None
        }
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            task.fail(format_args!("synthesis panicked: {}", text.as_deref().unwrap_or("no message")));
            None
        }
    }
}

fn hand_over(shared: &Arc<Shared>, ready: Ready) {
    let (job, rank, partition) = (ready.task.job.clone(), ready.task.rank(), ready.task.partition);
    let sent = match shared.config.work_permit {
        WorkPermit::ThroughSend => shared.ready.send(rank, ready, &|| job.is_stopped() || shared.is_stopping()),
        WorkPermit::BeforeSend => {
            put_back(shared, ready);
            Ok(())
        }
    };
    // One that comes back belongs to a job that was stopped, or to an engine that is.
    if sent.is_ok() {
        shared.host.recorder.mark(Step::HandedOver, job.id.number(), partition, None);
    }
}

/// Starts proofs on one device.
pub(crate) fn device_worker(shared: &Arc<Shared>, device: &Arc<Device>) {
    loop {
        // A place first: inputs aren't taken that can't be started yet.
        let Ok(place) = device.places.acquire(&device.demand(), &|| shared.is_stopping()) else { return };
        let Some(ready) = shared.ready.receive(&|ready| shared.preference(device, ready)) else { return };
        if ready.task.job.is_stopped() {
            continue;
        }
        let Some(instance) = device.instance() else {
            // Somebody is opening it again.
            put_back(shared, ready);
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let ended = match device.at_hand(&instance, ready.task.job.key) {
            Some(key) => start(shared, device, instance, key, ready, place),
            None => load(shared, device, instance, ready, place),
        };
        if ended.is_err() {
            return;
        }
    }
}

/// Loads a partition's key, then starts it.
fn load(
    shared: &Arc<Shared>,
    device: &Arc<Device>,
    instance: Arc<Instance>,
    ready: Ready,
    place: Permit,
) -> Result<(), Abandoned> {
    let Ready { inputs, account, task } = ready;
    let (job, entry) = (task.job.clone(), task.key.clone());
    let _span = info_span!("load_key", key = job.key, device = device.index).entered();
    let limit = shared.config.open_within;
    let call = shared.watchdog.begin(CallKind::Load, device.index, limit, Some(task), Some(account.clone()));
    let give_up = || job.is_stopped() || shared.is_stopping() || !device.is_usable();
    let result = device.load(&instance, &entry, shared.config.loaded_keys, &give_up);
    let Ok(Some(mut task)) = shared.watchdog.end(&call) else {
        warn!(device = device.spec.name, "a call taken for hung has returned");
        drop((result, inputs));
        return Err(Abandoned);
    };
    drop(call);
    match result {
        Ok(key) => return start(shared, device, instance, key, Ready { inputs, account, task }, place),
        Err(NotLoaded::GivenUp) => put_back(shared, Ready { inputs, account, task }),
        Err(NotLoaded::Unfit(reason)) => {
            device.mark_unfit(job.key, reason);
            put_back(shared, Ready { inputs, account, task });
            shared.devices_changed();
        }
        Err(NotLoaded::Failed(error)) => {
            task.attempts += 1;
            failed(shared, device, &instance, Attempt { inputs: Some(inputs), account, task }, &error);
        }
    }
    Ok(())
}

/// Loads a key before the first partition that needs it.
pub(crate) fn load_ahead(shared: &Arc<Shared>, device: &Arc<Device>, key: &EngineKey) {
    let Some(instance) = device.instance() else { return };
    let call = shared.watchdog.begin(CallKind::Load, device.index, shared.config.open_within, None, None);
    let give_up = || shared.is_stopping() || !device.is_usable();
    let result = device.load(&instance, &key.0, shared.config.loaded_keys, &give_up);
    if shared.watchdog.end(&call).is_err() {
        return;
    }
    match result {
        Ok(_) | Err(NotLoaded::GivenUp) => {}
        Err(NotLoaded::Unfit(reason)) => {
            device.mark_unfit(key.number(), reason);
            shared.devices_changed();
        }
        // The first partition that needs it tries again, and says what is wrong.
        Err(NotLoaded::Failed(error)) => {
            warn!(device = device.spec.name, key = key.number(), %error, "a key could not be loaded ahead");
        }
    }
}

fn put_back(shared: &Shared, ready: Ready) {
    let job = ready.task.job.clone();
    // A queue that is closed drops it: the engine is being shut down, and its job knows.
    drop(shared.ready.push(ready.task.rank(), ready));
    if job.is_stopped() {
        // Perhaps after everything that waits was let go of, and with no device left that would look at it.
        shared.sweep();
    }
}

/// The worker's call was taken for hung; it ends.
pub(crate) struct Abandoned;

fn start(
    shared: &Arc<Shared>,
    device: &Arc<Device>,
    instance: Arc<Instance>,
    key: Arc<Loaded>,
    ready: Ready,
    place: Permit,
) -> Result<(), Abandoned> {
    let Ready { inputs, account, mut task } = ready;
    task.attempts += 1;
    let _span = info_span!("start", job = %task.job.id, partition = task.partition, device = device.index).entered();
    shared.mark(Step::StartBegins, &task, Some(device.index));
    let limit = shared.config.hang_after;
    let call = shared.watchdog.begin(CallKind::Start, device.index, limit, Some(task), Some(account.clone()));
    device.begins();
    let result = call_start(&instance, &key, *inputs, shared.config.hold);
    let Ok(Some(task)) = shared.watchdog.end(&call) else {
        warn!(device = device.spec.name, "a call taken for hung has returned");
        device.not_started();
        drop(result);
        return Err(Abandoned);
    };
    match result {
        Ok(in_flight) => {
            account.started();
            device.started();
            shared.mark(Step::Started, &task, Some(device.index));
            let rank = task.rank();
            let started = Started { in_flight, account, place, key, instance, device: device.clone(), task };
            if let Err(started) = shared.finishing.push(rank, started) {
                abandon(shared, started);
            }
        }
        Err(StartError { source, inputs }) => {
            device.not_started();
            shared.mark(Step::Failed, &task, Some(device.index));
            drop(place);
            failed(shared, device, &instance, Attempt { inputs, account, task }, &source);
        }
    }
    Ok(())
}

/// An attempt that failed.
struct Attempt {
    /// `None` if they are gone, in part at least.
    inputs: Option<Box<Inputs>>,
    account: Arc<PartitionAccount>,
    task: Task,
}

/// Whose fault it was, and what becomes of the partition.
fn failed(
    shared: &Arc<Shared>,
    device: &Arc<Device>,
    instance: &Arc<Instance>,
    attempt: Attempt,
    error: &BackendError,
) {
    let Attempt { inputs, account, mut task } = attempt;
    let fault = Fault::of(error);
    debug!(%error, ?fault, whole = inputs.is_some(), "an attempt failed");
    if fault == Fault::Memory {
        account.yield_to(&device.account, inputs);
        drop(account);
        shared.host.pools.evict(u64::MAX, Evict::Any);
        return again(shared, task, error, None);
    }
    let whole = inputs.map(|inputs| (inputs, account));
    match fault {
        Fault::Inputs => task.fail(error),
        Fault::Before => {
            task.attempts -= 1;
            let retired = device.retire(instance);
            again(shared, task, error, whole);
            if retired {
                reopen(shared, device);
            }
        }
        Fault::Unfit | Fault::Memory => {
            task.avoid(device.index);
            again(shared, task, error, whole);
        }
        Fault::Device | Fault::Instance => {
            task.avoid(device.index);
            blame(shared, device, instance, error, fault, || again(shared, task, error, whole));
        }
    }
}

fn call_start(instance: &Instance, key: &Loaded, inputs: Inputs, hold: Hold) -> Result<InFlight<Backend>, StartError> {
    match hold {
        #[cfg(feature = "bench-hold")]
        Hold::Finish => instance.prover.start_holding(&key.key, inputs),
        _ => instance.prover.start(&key.key, inputs),
    }
}

/// A failure is the device's: it is counted, and a broken instance replaced. In between `hand_on` takes care of the partition:
/// opening a device may take long, or hang.
fn blame(
    shared: &Arc<Shared>,
    device: &Arc<Device>,
    instance: &Arc<Instance>,
    error: &BackendError,
    fault: Fault,
    hand_on: impl FnOnce(),
) {
    let quarantined = device.failed(&error.to_string(), shared.config.quarantine_after);
    let retired = fault == Fault::Instance && device.retire(instance);
    shared.devices_changed();
    hand_on();
    if retired && !quarantined {
        reopen(shared, device);
    }
}

/// Opens a device again, in a thread of its own: nobody's work waits for that, least of all another device's before a finisher.
fn reopen(shared: &Arc<Shared>, device: &Arc<Device>) {
    let opened = device.clone();
    let spawned = shared.spawn("open", move |shared| {
        let limit = shared.config.open_within;
        let call = shared.watchdog.begin(CallKind::Open, opened.index, limit, None, None);
        opened.reopen(&shared.host);
        let _ = shared.watchdog.end(&call);
        shared.devices_changed();
    });
    if let Err(error) = spawned {
        device.quarantine(format!("could not be opened again: {error}"));
        shared.devices_changed();
    }
}

/// Another attempt: with the inputs where they are whole, else from the source, under a new permit.
fn again(
    shared: &Arc<Shared>,
    task: Task,
    error: &dyn std::fmt::Display,
    whole: Option<(Box<Inputs>, Arc<PartitionAccount>)>,
) {
    if task.job.is_stopped() {
        return;
    }
    if task.attempts >= shared.config.attempts.max(1) {
        task.fail(error);
        return;
    }
    match whole {
        Some((inputs, account)) => {
            shared.counters.handed_on.fetch_add(1, Ordering::Relaxed);
            put_back(shared, Ready { inputs, account, task });
        }
        None => shared.synthesize_again(task),
    }
}

/// A proof in flight that nobody wants goes, in a thread of its own: a backend may wait here for its device, or hang.
pub(crate) fn abandon(shared: &Arc<Shared>, started: Started) {
    let spawned = shared.spawn("abandon", move |shared| {
        let Started { in_flight, account, place, key, instance, device, task } = started;
        let limit = shared.config.hang_after;
        let call = shared.watchdog.begin(CallKind::Drop, device.index, limit, Some(task), Some(account.clone()));
        drop(in_flight);
        device.landed();
        let task = shared.watchdog.end(&call);
        drop(call);
        // When a job is over, nothing of it is left.
        drop((account, place));
        drop(task);
        // The last of an instance that was retired, perhaps: the backend's code again, which nobody waits for.
        drop((key, instance));
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "no thread could be started to drop a proof in flight");
    }
}

/// Finishes proofs.
pub(crate) fn finisher(shared: &Arc<Shared>) {
    while let Some(started) = shared.finishing.receive(&|_| Some(0)) {
        let stopped = || started.task.job.is_stopped() || shared.is_stopping();
        pause(shared.config.finish_delay, &stopped);
        if stopped() {
            abandon(shared, started);
        } else if finish(shared, started).is_err() {
            return;
        }
    }
}

fn pause(time: Duration, stopped: &dyn Fn() -> bool) {
    let begin = Instant::now();
    loop {
        let left = time.saturating_sub(begin.elapsed());
        if left.is_zero() || stopped() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
}

fn finish(shared: &Arc<Shared>, started: Started) -> Result<(), Abandoned> {
    let Started { in_flight, account, place, key, instance, device, task } = started;
    let _span = info_span!("finish", job = %task.job.id, partition = task.partition, device = device.index).entered();
    let limit = shared.config.hang_after;
    let public = in_flight.public().to_vec();
    let call = shared.watchdog.begin(CallKind::Finish, device.index, limit, Some(task), Some(account.clone()));
    let result = in_flight.finish();
    device.landed();
    let Ok(Some(mut task)) = shared.watchdog.end(&call) else { return Err(Abandoned) };
    drop(call);
    // Before the job learns of it: when a job is over, nothing of it is left. Key and instance may be the last of one that was retired;
    // their end is the backend's code, so the partition isn't to wait for it.
    drop((account, place));
    let _until_the_end = key;
    let step = if result.is_ok() { Step::Finished } else { Step::Failed };
    shared.mark(step, &task, Some(device.index));
    match result {
        Ok(proof) => {
            device.succeeded();
            for suspect in std::mem::take(&mut task.suspects) {
                // The same inputs gave a proof now, so that device's sums were wrong.
                let reason = "sums that did not verify, while another attempt's did";
                shared.devices[suspect].failed(reason, shared.config.quarantine_after);
                shared.devices_changed();
            }
            shared.counters.proved.fetch_add(1, Ordering::Relaxed);
            task.deliver(proof, public, device.index);
        }
        Err(FinishError::ProofInvalid) => {
            // Either the witness is bad, then it is so on every device; or this device computes wrongly.
            task.suspects.push(device.index);
            task.avoid(device.index);
            let agreed = task.suspects.iter().any(|other| *other != device.index) || task.suspects.len() > 2;
            if agreed {
                task.fail(FinishError::ProofInvalid);
            } else {
                again(shared, task, &FinishError::ProofInvalid, None);
            }
        }
        Err(error) => {
            let (as_backend, fault) = match error {
                FinishError::Backend(error) => {
                    let fault = Fault::of(&error);
                    (error, fault)
                }
                error => (BackendError::device("finish", error), Fault::Device),
            };
            let fault = if fault == Fault::Instance { fault } else { Fault::Device };
            task.avoid(device.index);
            blame(shared, &device, &instance, &as_backend, fault, || again(shared, task, &as_backend, None));
        }
    }
    Ok(())
}
