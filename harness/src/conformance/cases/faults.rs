//! Host memory is refused at every point in turn: each refusal gives an error that names a cause, or the right sums, and
//! harms nothing.

use splitprover_core::memory::LedgerEvent;
use splitprover_core::{FinishError, HostMemory, MemoryClass, SplitProver};

use super::form;
use super::ownership::typed;
use crate::conformance::Capability;
use crate::conformance::case::{Case, Context, Failure, Group, Instance, compare, ensure};
use crate::conformance::material::{Assignment, Material, Plan, Witness};

pub(super) fn cases<P: SplitProver>() -> Vec<Case<P>> {
    vec![
        Case::new(Group::Faults, "refused-allocations", refused_allocations).requires(&[Capability::Accounting]),
        Case::new(Group::Faults, "accounting-is-used", accounting_is_used).requires(&[Capability::Accounting]),
    ]
}

fn material<P: SplitProver>(context: &Context<'_, P>) -> Result<(Material, Assignment), Failure> {
    let mut rng = context.rng();
    let material = Material::new(Plan::of_log2(7), &mut rng)?;
    let assignment = material.assign(Witness::Dense, form(context, &material.plan), &mut rng);
    Ok((material, assignment))
}

/// Charges in a ledger's history.
fn charges(history: &[LedgerEvent]) -> u64 {
    let mut last = [0; MemoryClass::ALL.len()];
    let mut count = 0;
    for event in history {
        let i = MemoryClass::ALL.iter().position(|&class| class == event.class).unwrap_or(0);
        // Zero bytes change nothing and may be either; counting them costs one more round.
        count += u64::from(event.bytes >= last[i]);
        last[i] = event.bytes;
    }
    count
}

/// The charges of one key and one proof.
fn charges_of_a_proof<P: SplitProver>(
    context: &Context<'_, P>,
    material: &Material,
    assignment: &Assignment,
) -> Result<u64, Failure> {
    let instance = context.open()?;
    instance.memory.ledger().record_history();
    instance.check(material, assignment)?;
    Ok(charges(&instance.memory.ledger().history()))
}

/// A subject that declares accounting and charges nothing would pass every refusal by not noticing it.
fn accounting_is_used<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignment) = material(context)?;
    let count = charges_of_a_proof(context, &material, &assignment)?;
    ensure!(count > 0, "accounting is declared, and a key and a proof charged nothing");
    Ok(())
}

fn refused_allocations<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (material, assignment) = material(context)?;
    let count = charges_of_a_proof(context, &material, &assignment)?;
    for skip in 0..count {
        let instance = context.open()?;
        let ledger = instance.memory.ledger();
        ledger.refuse_after(skip);
        attempt(&instance, &material, &assignment)
            .map_err(|e| e.context(format_args!("with charge {skip} of {count} refused")))?;
        // If the refusal wasn't reached, it must not hit the proof that follows: use it up here.
        ledger.refuse_after(0);
        drop(ledger.charge(MemoryClass::Staging, 0));
        instance
            .check(&material, &assignment)
            .map_err(|e| e.context(format_args!("after charge {skip} of {count} was refused")))?;
    }
    Ok(())
}

/// A proof in which something is refused: an error that isn't a panic, or right sums.
fn attempt<P: SplitProver>(
    instance: &Instance<P>,
    material: &Material,
    assignment: &Assignment,
) -> Result<(), Failure> {
    let key = match instance.prover.load_key(material.key.clone()) {
        Ok(key) => key,
        Err(error) => return typed(&error),
    };
    let started = match instance.start_raw(&key, assignment.inputs(&HostMemory::default())?) {
        Ok(started) => started,
        Err(error) => {
            let whole = error.inputs.as_ref().is_none_or(|inputs| assignment.matches(inputs));
            ensure!(whole, "the inputs that came back were changed");
            return typed(&error.source);
        }
    };
    match started.finish_sums() {
        Ok(sums) => compare(&sums, &assignment.expected, || "a refusal was passed over".into()),
        Err(FinishError::Backend(error)) => typed(&error),
        Err(error) => Err(error.into()),
    }
}
