//! The cases, one file per group.

mod abi;
mod between;
mod concurrency;
mod correctness;
mod determinism;
mod faults;
mod ownership;
mod soak;

use splitprover_core::SplitProver;

use super::case::{Case, Context, Scale};
use super::material::{Form, Plan};
use super::subject::Capability;

/// All cases at this scale, in the order in which they run: what is wrong shows in the simplest case first.
pub(crate) fn all<P: SplitProver>(scale: Scale) -> Vec<Case<P>> {
    let mut cases = abi::cases();
    cases.extend(between::cases());
    cases.extend(correctness::cases(scale));
    cases.extend(determinism::cases());
    cases.extend(ownership::cases());
    cases.extend(concurrency::cases());
    cases.extend(faults::cases());
    cases.extend(soak::cases());
    cases
}

/// The forms in which a backend of these capabilities takes evaluations for a key of this plan.
fn forms<P: SplitProver>(context: &Context<'_, P>, plan: &Plan) -> &'static [Form] {
    if plan.matrices && context.has(Capability::Matrices) {
        &[Form::Matrices, Form::Given, Form::GivenWithC]
    } else {
        &[Form::Given, Form::GivenWithC]
    }
}

/// The first of [`forms`].
fn form<P: SplitProver>(context: &Context<'_, P>, plan: &Plan) -> Form {
    forms(context, plan)[0]
}
