//! Equal inputs give equal sums: within an instance, and across instances.

use splitprover_core::{QuerySums, SplitProver};

use super::form;
use crate::conformance::case::{Case, Context, Failure, Group, ensure};
use crate::conformance::material::{Assignment, Material, Plan, Witness};

pub(super) fn cases<P: SplitProver>() -> Vec<Case<P>> {
    vec![
        Case::new(Group::Determinism, "repeated-proofs", repeated_proofs),
        Case::new(Group::Determinism, "across-instances", across_instances),
    ]
}

fn material<P: SplitProver>(context: &Context<'_, P>) -> Result<(Material, Assignment), Failure> {
    let mut rng = context.rng();
    let material = Material::new(Plan::of_log2(8), &mut rng)?;
    let assignment = material.assign(Witness::Dense, form(context, &material.plan), &mut rng);
    Ok((material, assignment))
}

fn agree(first: &QuerySums, other: &QuerySums, which: &str) -> Result<(), Failure> {
    let wrong = first.differences(other);
    ensure!(wrong.is_empty(), "{which} gave other sums for the same inputs: {}", wrong.join(", "));
    Ok(())
}

fn repeated_proofs<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignment) = material(context)?;
    let instance = context.open()?;
    let key = instance.load(&material)?;
    let first = instance.start(&key, &assignment)?.finish_sums()?;
    for i in 2..=24 {
        agree(&first, &instance.start(&key, &assignment)?.finish_sums()?, &format!("proof {i}"))?;
    }
    Ok(())
}

fn across_instances<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignment) = material(context)?;
    let sums = || {
        let instance = context.open()?;
        Ok::<_, Failure>(instance.start(&instance.load(&material)?, &assignment)?.finish_sums()?)
    };
    let first = sums()?;
    for i in 2..=4 {
        agree(&first, &sums()?, &format!("instance {i}"))?;
    }
    Ok(())
}
