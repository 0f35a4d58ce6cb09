//! Nothing grows: bytes, pages, threads and open files are the same after many proofs, dropped proofs, keys and instances.

use splitprover_core::SplitProver;

use super::form;
use crate::conformance::case::{Case, Context, Failure, Group, Scale, ensure};
use crate::conformance::material::{Assignment, Material, Plan, Witness};
use crate::conformance::process::Footprint;

pub(super) fn cases<P: SplitProver>() -> Vec<Case<P>> {
    let case = |name: &str, body: fn(&Context<'_, P>) -> Result<(), Failure>| {
        Case::new(Group::Soak, name, body).isolated().seconds(300)
    };
    vec![
        case("proofs", proofs),
        case("dropped-proofs", dropped_proofs),
        case("keys", keys),
        case("instances", instances),
    ]
}

fn material<P: SplitProver>(context: &Context<'_, P>) -> Result<(Material, Assignment), Failure> {
    let mut rng = context.rng();
    let material = Material::new(Plan::of_log2(6), &mut rng)?;
    let assignment = material.assign(Witness::Dense, form(context, &material.plan), &mut rng);
    Ok((material, assignment))
}

/// Runs `once` until everything that is allocated once is there, then `count` times in four rounds.
///
/// Caches of threads hold a few kilobytes more or less from one moment to the next; a leak grows in every round.
fn flat(count: u32, what: &str, mut once: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
    const ROUNDS: u32 = 4;
    let each = count.div_ceil(ROUNDS).max(1);
    let mut footprints = Vec::new();
    for _ in 0..=ROUNDS {
        for _ in 0..each {
            once()?;
        }
        // What was cancelled ends a little later.
        std::thread::sleep(std::time::Duration::from_millis(50));
        footprints.push(Footprint::now()?);
    }
    let growth = |pair: &[Footprint]| Some(pair[1].allocated?.saturating_sub(pair[0].allocated?));
    let least = footprints.windows(2).filter_map(growth).min().unwrap_or(0);
    ensure!(
        least < 4 << 10,
        "each {each} {what} leave at least {least} bytes allocated, {} for each",
        least / u64::from(each)
    );
    let (before, after) = (footprints[0], footprints[ROUNDS as usize]);
    let total = each * ROUNDS;
    let resident = after.resident.saturating_sub(before.resident);
    ensure!(resident < 16 << 20, "{total} {what} left {} MiB resident", resident >> 20);
    ensure!(after.threads <= before.threads + 1, "{total} {what}: {} threads became {}", before.threads, after.threads);
    ensure!(after.files <= before.files + 1, "{total} {what}: {} open files became {}", before.files, after.files);
    Ok(())
}

fn proofs<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignment) = material(context)?;
    let instance = context.open()?;
    let key = instance.load(&material)?;
    flat(context.scale.soak_proofs, "proofs", || instance.prove(&key, &material, &assignment))
}

fn dropped_proofs<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignment) = material(context)?;
    let instance = context.open()?;
    let key = instance.load(&material)?;
    flat(context.scale.soak_proofs, "proofs dropped in flight", || {
        drop(instance.start(&key, &assignment)?);
        Ok(())
    })?;
    instance.prove(&key, &material, &assignment)
}

/// Fewer than proofs, because each costs more, and leaks more where it leaks.
fn quarter(scale: Scale) -> u32 {
    scale.soak_proofs.div_ceil(4)
}

fn keys<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignment) = material(context)?;
    let instance = context.open()?;
    flat(quarter(context.scale), "keys loaded and dropped", || instance.check(&material, &assignment))
}

fn instances<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignment) = material(context)?;
    flat(quarter(context.scale), "instances opened and dropped", || context.open()?.check(&material, &assignment))
}
