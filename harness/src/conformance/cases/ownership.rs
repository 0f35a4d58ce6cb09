//! The inputs are gone once `start` returns: the bytes, the pages, the copies; on success, on error, and when parts of a proof
//! are dropped or forgotten.

use std::time::{Duration, Instant};

use splitprover_core::key::Storage;
use splitprover_core::{BackendError, Disposal, HostMemory, MemoryClass, SplitProver};

use super::{form, forms};
use crate::conformance::Capability;
use crate::conformance::case::{Case, Context, Failure, Group, PLANTED, Panic, ensure, finish, inputs_gone};
use crate::conformance::material::{Assignment, Density, Form, Material, Plan, Witness, sums_of_logs};
use crate::conformance::process::Footprint;

pub(super) fn cases<P: SplitProver>() -> Vec<Case<P>> {
    let case = |name: &str, body: fn(&Context<'_, P>) -> Result<(), Failure>| Case::new(Group::Ownership, name, body);
    vec![
        case("account", account),
        case("poison", |context| after_disposal(context, Disposal::Poison))
            .crash_means("an input was read after start had returned"),
        case("guard", |context| after_disposal(context, Disposal::Guard))
            .crash_means("an input was read after start had returned"),
        case("early-release", early_release).requires(&[Capability::EarlyRelease]),
        case("hand-back", hand_back).requires(&[Capability::Accounting]),
        case("refused-inputs-come-back", refused_inputs_come_back),
        case("panic", panic),
        case("dropped-in-flight", dropped_in_flight),
        case("forgotten-in-flight", forgotten_in_flight),
        case("retention", retention).isolated().seconds(400),
    ]
}

fn small<P: SplitProver>(context: &Context<'_, P>, log2: u32) -> Result<(Material, Vec<Assignment>), Failure> {
    let mut rng = context.rng();
    let material = Material::new(Plan::of_log2(log2), &mut rng)?;
    let assignments = forms(context, &material.plan)
        .iter()
        .flat_map(|&form| [Witness::Dense, Witness::Bits].map(|witness| material.assign(witness, form, &mut rng)))
        .collect();
    Ok((material, assignments))
}

/// The ledgers read zero for evaluations and witness when `start` returns: of the inputs, and of what the backend charges.
fn account<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignments) = small(context, 7)?;
    let instance = context.open()?;
    let key = instance.load(&material)?;
    for assignment in &assignments {
        let started = instance.start(&key, assignment)?;
        inputs_gone(instance.memory.ledger()).map_err(|e| e.context("the backend's own charges"))?;
        finish(started, &material, assignment)?;
    }
    drop((key, instance.prover));
    let left = instance.memory.ledger().now().total();
    ensure!(left == 0, "{left} bytes are still charged after key and instance were dropped");
    Ok(())
}

/// Inputs are overwritten, or become inaccessible, when they go. Whoever reads them later computes garbage, or dies.
fn after_disposal<P: SplitProver>(context: &Context<'_, P>, disposal: Disposal) -> Result<(), Failure> {
    let instance = context.open()?;
    // Heap blocks and maps of their own.
    for log2 in [5, 10] {
        let (material, assignments) = small(context, log2)?;
        let key = instance.load(&material)?;
        for assignment in &assignments {
            let started = instance.start_in(&key, assignment, disposal)?;
            std::thread::sleep(Duration::from_millis(20));
            finish(started, &material, assignment)?;
        }
    }
    // A straggler gets its chance before the process ends.
    std::thread::sleep(Duration::from_millis(300));
    Ok(())
}

/// The backend itself has released every vector when its `start` returns.
fn early_release<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignments) = small(context, 7)?;
    let instance = context.open()?;
    let key = instance.load(&material)?;
    for assignment in &assignments {
        let (started, at_return) = instance.start_watched(&key, assignment)?;
        for class in [MemoryClass::Evaluations, MemoryClass::Witness] {
            let left = at_return[class];
            ensure!(left == 0, "the backend's start returned with {left} bytes of class {} not released", class.name());
        }
        finish(started, &material, assignment)?;
    }
    Ok(())
}

/// When the first allocation of `start` is refused, the inputs come back whole and are good for another instance.
fn hand_back<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignments) = small(context, 7)?;
    let (instance, other) = (context.open()?, context.open()?);
    let (key, other_key) = (instance.load(&material)?, other.load(&material)?);
    for assignment in &assignments {
        let inputs = assignment.inputs(&HostMemory::default())?;
        instance.memory.ledger().refuse_after(0);
        let result = instance.start_raw(&key, inputs);
        // Nothing was charged and nothing refused: then the refusal is used up here.
        drop(instance.memory.ledger().charge(MemoryClass::Backend, 0));
        let Err(error) = result else { continue };
        typed(&error.source)?;
        let Some(inputs) = error.inputs else {
            return Err("start failed at its first allocation, and the inputs did not come back".into());
        };
        ensure!(assignment.matches(&inputs), "the inputs that came back were changed");
        finish(other.start_raw(&other_key, *inputs)?, &material, assignment)?;
        finish(instance.start(&key, assignment)?, &material, assignment)?;
    }
    Ok(())
}

/// An error that names a cause; a panic isn't one.
pub(super) fn typed(error: &BackendError) -> Result<(), Failure> {
    let panicked = matches!(error, BackendError::Panicked(_) | BackendError::Poisoned(_));
    ensure!(!panicked, "a refusal became a panic: {error}");
    Ok(())
}

/// Inputs that don't fit the key, and keys of another instance, are refused; the inputs come back, and the instance is as
/// good as before.
fn refused_inputs_come_back<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let mut rng = context.rng();
    let material = Material::new(Plan::of_log2(6), &mut rng)?;
    let other = Material::new(Plan { variables: 65, ..Plan::of_log2(6) }, &mut rng)?;
    let larger = Material::new(Plan { rows: 65, variables: 64, ..Plan::of_log2(7) }.bellman(), &mut rng)?;
    let (instance, stranger) = (context.open()?, context.open()?);
    let own_key = instance.load(&material)?;
    let stranger_key = stranger.load(&material)?;
    let good = material.assign(Witness::Dense, form(context, &material.plan), &mut rng);
    let altered = |alter: fn(&mut Assignment), rng: &mut _| {
        let mut assignment = material.assign(Witness::Dense, Form::GivenWithC, rng);
        alter(&mut assignment);
        assignment
    };
    let short = altered(|assignment| assignment.witness.truncate(assignment.witness.len() - 1), &mut rng);
    let first = altered(|assignment| assignment.witness[0] = assignment.witness[1], &mut rng);
    let uneven = altered(
        |assignment| {
            if let Some((_, b, with_c)) = &mut assignment.evaluations {
                b.pop();
                *with_c = false;
            }
        },
        &mut rng,
    );
    for (what, key, assignment) in [
        ("a witness that is too long", &own_key, other.assign(Witness::Dense, Form::Given, &mut rng)),
        ("a witness that is too short", &own_key, short),
        ("a witness whose value 0 isn't 1", &own_key, first),
        ("evaluations of two lengths", &own_key, uneven),
        ("evaluations longer than the domain", &own_key, larger.assign(Witness::Dense, Form::Given, &mut rng)),
        ("a key of another instance", &stranger_key, material.assign(Witness::Dense, Form::Given, &mut rng)),
    ] {
        let inputs = assignment.inputs(&HostMemory::default())?;
        match instance.start_raw(key, inputs) {
            Ok(_) => return Err(Failure(format!("{what} was accepted"))),
            Err(error) => {
                let whole = error.inputs.as_ref().is_some_and(|inputs| assignment.matches(inputs));
                ensure!(whole, "{what} was refused ({}), and the inputs did not come back whole", error.source);
            }
        }
        instance.prove(&own_key, &material, &good)?;
    }
    Ok(())
}

/// A panic around the backend's `start` ends as an error. Inputs that weren't touched come back, others are gone; what the
/// backend had in hand is dropped while the stack unwinds, and its other instances don't notice.
fn panic<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignments) = small(context, 7)?;
    let other = context.open()?;
    let other_key = other.load(&material)?;
    for assignment in &assignments {
        for at in [Panic::Before, Panic::After] {
            let instance = context.open()?;
            let key = instance.load(&material)?;
            let memory = HostMemory::default();
            instance.plant(at);
            let Err(error) = instance.start_raw(&key, assignment.inputs(&memory)?) else {
                return Err("a panic in start was lost".into());
            };
            let planted = matches!(&error.source, BackendError::Panicked(reason) if reason.contains(PLANTED));
            ensure!(planted, "a panic in start became another error: {}", error.source);
            match &error.inputs {
                Some(inputs) => ensure!(assignment.matches(inputs), "inputs came back changed after a panic"),
                None => {
                    ensure!(at == Panic::After, "untouched inputs did not come back after a panic");
                    inputs_gone(memory.ledger())?;
                }
            }
            drop((error, key, instance));
            inputs_gone(memory.ledger())?;
            other.prove(&other_key, &material, assignment)?;
        }
    }
    Ok(())
}

/// Proofs dropped in flight leave nothing behind, and the instance goes on.
fn dropped_in_flight<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignments) = small(context, 9)?;
    let instance = context.open()?;
    let key = instance.load(&material)?;
    instance.prove(&key, &material, &assignments[0])?;
    let charged = instance.memory.ledger().now();
    for assignment in &assignments {
        drop(instance.start(&key, assignment)?);
        // Others in flight aren't disturbed.
        let (kept, dropped) = (instance.start(&key, assignment)?, instance.start(&key, assignment)?);
        drop(dropped);
        finish(kept, &material, assignment)?;
    }
    // Dropping may cancel work that ends a little later.
    let grown = || {
        let now = instance.memory.ledger().now();
        let classes = [MemoryClass::Evaluations, MemoryClass::Witness, MemoryClass::Backend];
        classes.into_iter().find(|&class| now[class] > charged[class])
    };
    let deadline = Instant::now() + Duration::from_secs(5);
    while let Some(class) = grown() {
        ensure!(Instant::now() < deadline, "dropped proofs left bytes of class {} charged", class.name());
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A forgotten proof costs its own memory, not the inputs', and not the instance.
fn forgotten_in_flight<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignments) = small(context, 7)?;
    let instance = context.open()?;
    let key = instance.load(&material)?;
    for assignment in &assignments {
        std::mem::forget(instance.start(&key, assignment)?);
        inputs_gone(instance.memory.ledger())?;
        instance.prove(&key, &material, assignment)?;
    }
    Ok(())
}

/// Resident memory with proofs in flight: no more than the backend declares, and a little.
fn retention<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    const MIB: u64 = 1 << 20;
    let mut rng = context.rng();
    // Few bases, so that the time goes into nothing but what is measured; all of the domain.
    let few = Density::First(500);
    let plan = Plan {
        a: few,
        b: few,
        l: few,
        h: few,
        storage: Storage::Compact,
        matrices: false,
        ..Plan::of_log2(context.scale.retention_log2)
    };
    let material = Material::new(plan, &mut rng)?;
    let rows = |rng: &mut _| Witness::Small.values(plan.rows, rng);
    let mut witness = Witness::Small.values(plan.variables, &mut rng);
    witness[0] = blstrs::Scalar::from(1);
    let zero = blstrs::Scalar::from(0);
    let assignment = Assignment {
        witness,
        evaluations: Some((rows(&mut rng), rows(&mut rng), true)),
        // Not compared: other cases do that, at sizes where the answer is cheaper.
        expected: sums_of_logs(zero, zero, zero),
        what: "retention".into(),
    };
    let instance = context.open()?;
    let key = instance.load(&material)?;
    let declared = instance.declared(&material);
    // Threads touch their stacks and allocators their heaps once, and not all of them in the first proof.
    for _ in 0..4 {
        instance.start(&key, &assignment)?.finish_sums()?;
    }

    let input_bytes = 32 * (plan.variables + 3 * plan.rows) as u64;
    let slack = (8 * MIB).max(input_bytes / 10);
    let before = Footprint::now()?.resident;
    let mut in_flight = Vec::new();
    for count in 1..=2u64 {
        in_flight.push(instance.start(&key, &assignment)?);
        let grown = Footprint::now()?.resident.saturating_sub(before);
        let allowed = count * declared + slack;
        ensure!(
            grown <= allowed,
            "{count} in flight: {} MiB held; {} MiB for each proof are declared (retained_host_bytes), its inputs have {} MiB",
            grown / MIB,
            declared / MIB,
            input_bytes / MIB
        );
    }
    for started in in_flight {
        started.finish_sums()?;
    }
    // A worker may hand over its sums a moment before it has freed its scratch.
    let deadline = Instant::now() + Duration::from_secs(5);
    let grown = loop {
        let grown = Footprint::now()?.resident.saturating_sub(before);
        if grown <= slack || Instant::now() > deadline {
            break grown;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    ensure!(grown <= slack, "{} MiB are still resident after all proofs were finished", grown / MIB);
    Ok(())
}
