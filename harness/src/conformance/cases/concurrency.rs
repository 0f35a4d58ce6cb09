//! Proofs that overlap: started from several threads, finished out of order and elsewhere, with keys and instances that die
//! before them.

use splitprover_core::SplitProver;

use super::{form, forms};
use crate::conformance::case::{Case, Context, Failure, Group, ensure, finish};
use crate::conformance::material::{Assignment, Material, Plan, Witness};

pub(super) fn cases<P: SplitProver>() -> Vec<Case<P>> {
    let case = |name: &str, body: fn(&Context<'_, P>) -> Result<(), Failure>| Case::new(Group::Concurrency, name, body);
    vec![
        case("finish-out-of-order", finish_out_of_order),
        case("finish-on-another-thread", finish_on_another_thread),
        case("overlapping-starts", overlapping_starts),
        case("two-keys", two_keys),
        case("two-instances", two_instances),
        case("key-dropped-in-flight", key_dropped_in_flight),
        case("instance-dropped-in-flight", instance_dropped_in_flight),
    ]
}

fn several<P: SplitProver>(
    context: &Context<'_, P>,
    log2: u32,
    count: usize,
) -> Result<(Material, Vec<Assignment>), Failure> {
    let mut rng = context.rng();
    let material = Material::new(Plan::of_log2(log2), &mut rng)?;
    let forms = forms(context, &material.plan);
    let assignments = (0..count).map(|i| material.assign(Witness::Dense, forms[i % forms.len()], &mut rng)).collect();
    Ok((material, assignments))
}

fn finish_out_of_order<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignments) = several(context, 8, 5)?;
    let instance = context.open()?;
    let key = instance.load(&material)?;
    for order in [[4, 3, 2, 1, 0], [2, 0, 4, 1, 3]] {
        let mut started = Vec::new();
        for assignment in &assignments {
            started.push(Some(instance.start(&key, assignment)?));
        }
        for i in order {
            let proof = started[i].take().ok_or("an order names each proof once")?;
            finish(proof, &material, &assignments[i]).map_err(|e| e.context(format_args!("proof {i}")))?;
        }
    }
    Ok(())
}

/// What a thread of the suite came to.
fn joined(result: std::thread::Result<Result<(), Failure>>) -> Result<(), Failure> {
    result.unwrap_or_else(|_| Err("a thread of the case panicked".into()))
}

fn finish_on_another_thread<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignments) = several(context, 8, 4)?;
    let instance = context.open()?;
    let key = instance.load(&material)?;
    let mut started = Vec::new();
    for assignment in &assignments {
        started.push(instance.start(&key, assignment)?);
    }
    std::thread::scope(|scope| {
        let material = &material;
        let threads: Vec<_> = started
            .into_iter()
            .zip(&assignments)
            .map(|(started, assignment)| scope.spawn(move || finish(started, material, assignment)))
            .collect();
        threads.into_iter().try_for_each(|thread| joined(thread.join()))
    })
}

fn overlapping_starts<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignments) = several(context, 8, 8)?;
    let instance = context.open()?;
    let key = instance.load(&material)?;
    std::thread::scope(|scope| {
        let (instance, key, material) = (&instance, &key, &material);
        let threads: Vec<_> = assignments
            .chunks(2)
            .map(|mine| {
                scope.spawn(move || {
                    for _ in 0..3 {
                        let first = instance.start(key, &mine[0])?;
                        let second = instance.start(key, &mine[1])?;
                        finish(second, material, &mine[1])?;
                        finish(first, material, &mine[0])?;
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| joined(thread.join()))
    })
}

/// Keys of different sizes, bases and roots, loaded into one instance and used in turn.
fn two_keys<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (instance, mut rng) = (context.open()?, context.rng());
    let small = Material::new(Plan { variables: 30, ..Plan::of_log2(4) }, &mut rng)?;
    let large = Material::new(Plan::of_log2(9).bellman(), &mut rng)?;
    let (small_key, large_key) = (instance.load(&small)?, instance.load(&large)?);
    let mut pairs = Vec::new();
    for (material, key) in [(&small, &small_key), (&large, &large_key), (&small, &small_key), (&large, &large_key)] {
        let assignment = material.assign(Witness::Dense, form(context, &material.plan), &mut rng);
        pairs.push((instance.start(key, &assignment)?, material, assignment));
    }
    for (started, material, assignment) in pairs.into_iter().rev() {
        finish(started, material, &assignment)?;
    }
    // One key goes; the other is as good as before.
    drop(large_key);
    let assignment = small.assign(Witness::Bits, form(context, &small.plan), &mut rng);
    instance.prove(&small_key, &small, &assignment)
}

fn two_instances<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignments) = several(context, 8, 2)?;
    let (first, second) = (context.open()?, context.open()?);
    let (first_key, second_key) = (first.load(&material)?, second.load(&material)?);
    let of_first = first.start(&first_key, &assignments[0])?;
    let of_second = second.start(&second_key, &assignments[1])?;
    finish(of_first, &material, &assignments[0])?;
    drop((first_key, first));
    finish(of_second, &material, &assignments[1])?;
    second.prove(&second_key, &material, &assignments[0])
}

fn key_dropped_in_flight<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignments) = several(context, 10, 2)?;
    let instance = context.open()?;
    let key = instance.load(&material)?;
    let started = [instance.start(&key, &assignments[0])?, instance.start(&key, &assignments[1])?];
    drop(key);
    // Something else takes the memory that the key may have left.
    let other = Material::new(Plan::of_log2(10).bellman(), &mut context.rng())?;
    let _other_key = instance.load(&other)?;
    started.into_iter().zip(&assignments).try_for_each(|(started, assignment)| finish(started, &material, assignment))
}

fn instance_dropped_in_flight<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignments) = several(context, 10, 2)?;
    let instance = context.open()?;
    let key = instance.load(&material)?;
    let memory = instance.memory.clone();
    let started = [instance.start(&key, &assignments[0])?, instance.start(&key, &assignments[1])?];
    drop(instance);
    drop(key);
    for (started, assignment) in started.into_iter().zip(&assignments) {
        finish(started, &material, assignment)?;
    }
    let left = memory.ledger().now().total();
    ensure!(left == 0, "{left} bytes are still charged after key, instance and proofs are gone");
    Ok(())
}
