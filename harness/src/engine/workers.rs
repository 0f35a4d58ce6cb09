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
use super::device::{Device, Fault, Instance};
use super::history::Step;
use super::job::Task;
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
        let account = PartitionAccount::new(&shared.host, permit, shared.next_home());
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
    let stopped = || task.job.is_stopped() || shared.is_stopping();
    let synthesis = Synthesis::new(&memory, &stopped);
    // A source is the application's code. Its panic is its job's failure, not the worker's.
    let made = catch_unwind(AssertUnwindSafe(|| task.source.synthesize(&synthesis)));
    shared.counters.synthesizing.fetch_sub(1, Ordering::SeqCst);
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
        WorkPermit::BeforeSend => shared.ready.push(rank, ready),
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
        if start(shared, device, instance, ready, place).is_err() {
            return;
        }
    }
}

fn put_back(shared: &Shared, ready: Ready) {
    // A queue that is closed drops it: the engine is being shut down, and its job knows.
    drop(shared.ready.push(ready.task.rank(), ready));
}

/// The worker's call was taken for hung; it ends.
struct Abandoned;

fn start(
    shared: &Arc<Shared>,
    device: &Arc<Device>,
    instance: Arc<Instance>,
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
    let result = call_start(&instance, *inputs, shared.config.hold);
    let Ok(Some(mut task)) = shared.watchdog.end(&call) else {
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
            let started = Started { in_flight, account, place, instance, device: device.clone(), task };
            if let Err(started) = shared.finishing.push(rank, started) {
                abandon(started);
            }
        }
        Err(StartError { source, inputs }) => {
            device.not_started();
            shared.mark(Step::Failed, &task, Some(device.index));
            drop(place);
            let fault = Fault::of(&source);
            debug!(%source, ?fault, whole = inputs.is_some(), "start failed");
            match fault {
                Fault::Inputs => task.fail(&source),
                Fault::Memory => {
                    account.yield_to(&device.account, inputs);
                    drop(account);
                    shared.host.pools.evict(u64::MAX, Evict::Any);
                    again(shared, task, &source, None);
                }
                Fault::Before => {
                    task.attempts -= 1;
                    reopen(shared, device, &instance);
                    again(shared, task, &source, inputs.map(|inputs| (inputs, account)));
                }
                Fault::Device | Fault::Instance => {
                    blame(shared, device, &instance, &source, fault);
                    task.avoid(device.index);
                    again(shared, task, &source, inputs.map(|inputs| (inputs, account)));
                }
            }
        }
    }
    Ok(())
}

fn call_start(instance: &Instance, inputs: Inputs, hold: Hold) -> Result<InFlight<Backend>, StartError> {
    match hold {
        #[cfg(feature = "bench-hold")]
        Hold::Finish => instance.prover.start_holding(&instance.key, inputs),
        _ => instance.prover.start(&instance.key, inputs),
    }
}

/// A failure is the device's: it is counted, and a broken instance replaced.
fn blame(shared: &Arc<Shared>, device: &Arc<Device>, instance: &Arc<Instance>, error: &BackendError, fault: Fault) {
    let quarantined = device.failed(&error.to_string(), shared.config.quarantine_after);
    if fault == Fault::Instance && !quarantined {
        reopen(shared, device, instance);
    }
    shared.devices_changed();
}

fn reopen(shared: &Arc<Shared>, device: &Arc<Device>, instance: &Arc<Instance>) {
    let call = shared.watchdog.begin(CallKind::Open, device.index, shared.config.open_within, None, None);
    device.reopen(instance, &shared.host);
    let _ = shared.watchdog.end(&call);
    shared.devices_changed();
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

/// A proof in flight that nobody wants. A backend may wait here for its device.
pub(crate) fn abandon(started: Started) {
    let Started { in_flight, account, place, instance, device, task } = started;
    drop(in_flight);
    device.landed();
    drop((account, place, instance, task));
}

/// Finishes proofs.
pub(crate) fn finisher(shared: &Arc<Shared>) {
    while let Some(started) = shared.finishing.receive(&|_| Some(0)) {
        let stopped = || started.task.job.is_stopped() || shared.is_stopping();
        pause(shared.config.finish_delay, &stopped);
        if stopped() {
            abandon(started);
        } else if finish(shared, started).is_err() {
            return;
        }
    }
}

fn pause(time: Duration, stopped: &dyn Fn() -> bool) {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || stopped() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
}

fn finish(shared: &Arc<Shared>, started: Started) -> Result<(), Abandoned> {
    let Started { in_flight, account, place, instance, device, task } = started;
    let _span = info_span!("finish", job = %task.job.id, partition = task.partition, device = device.index).entered();
    let limit = shared.config.hang_after;
    let public = in_flight.public().to_vec();
    let call = shared.watchdog.begin(CallKind::Finish, device.index, limit, Some(task), Some(account.clone()));
    let result = in_flight.finish();
    device.landed();
    let Ok(Some(mut task)) = shared.watchdog.end(&call) else { return Err(Abandoned) };
    drop(call);
    // Before the job learns of it: when a job is over, nothing of it is left.
    drop((account, place));
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
            drop(instance);
            task.deliver(proof, public, device.index);
        }
        Err(FinishError::ProofInvalid) => {
            // Either the witness is bad, then it is so on every device; or this device computes wrongly.
            task.suspects.push(device.index);
            task.avoid(device.index);
            drop(instance);
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
            blame(shared, &device, &instance, &as_backend, fault);
            drop(instance);
            task.avoid(device.index);
            again(shared, task, &as_backend, None);
        }
    }
    Ok(())
}
