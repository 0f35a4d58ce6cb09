//! All four sums, over the shapes and values where provers go wrong.

use splitprover_core::key::Storage;
use splitprover_core::{HBasis, SplitProver};

use super::{form, forms};
use crate::conformance::case::{Case, Context, Failure, Group, Scale, ensure};
use crate::conformance::circuit::Circuit;
use crate::conformance::material::{Bases, Density, Form, Material, Plan, Root, Witness};

pub(super) fn cases<P: SplitProver>(scale: Scale) -> Vec<Case<P>> {
    let case = |name: &str, body: fn(&Context<'_, P>) -> Result<(), Failure>| Case::new(Group::Correctness, name, body);
    let mut cases = vec![case("smallest-circuits", smallest_circuits)];
    for (root, root_name) in [(Root::Snarkjs, "snarkjs"), (Root::Bellman, "bellman"), (Root::Other, "other")] {
        for (basis, basis_name) in [(HBasis::OddLagrange, "odd-lagrange"), (HBasis::Monomial, "monomial")] {
            let name = format!("basis-{basis_name}-root-{root_name}");
            cases.push(Case::new(Group::Correctness, name, move |context| basis_and_root(context, basis, root)));
        }
    }
    cases.extend([
        case("evaluations-from-matrices", evaluations_from_matrices)
            .requires(&[crate::conformance::Capability::Matrices]),
        case("evaluations-given", |context| evaluations(context, Form::Given)),
        case("evaluations-given-with-c", |context| evaluations(context, Form::GivenWithC)),
        case("proofs-verify", proofs_verify),
    ]);
    for witness in Witness::ALL {
        let name = format!("witness-{}", witness.name());
        cases.push(Case::new(Group::Correctness, name, move |context| witness_kind(context, witness)));
    }
    cases.extend([
        case("empty-queries", empty_queries),
        case("density-maps", density_maps),
        case("repeated-bases", repeated_bases),
        case("opposite-bases", opposite_bases),
        case("sums-at-infinity", sums_at_infinity),
        case("unaligned-tables", unaligned_tables),
        case("more-variables-than-rows", more_variables_than_rows),
        case("more-rows-than-variables", more_rows_than_variables),
    ]);
    for log2 in 1..=scale.max_log2 {
        let name = format!("size-2^{log2}");
        let limit = 60 + (120 << log2.saturating_sub(14).min(12));
        cases.push(Case::new(Group::Correctness, name, move |context| size_class(context, log2)).seconds(limit));
    }
    cases.push(case("above-2^16", above_65536).seconds(180));
    cases
}

/// Domains of 1, 2 and 4 rows, one variable and more, no rows and all, private variables or none.
fn smallest_circuits<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (instance, mut rng) = (context.open()?, context.rng());
    for domain_log2 in 0..=2 {
        for (variables, public, rows) in
            [(1, 0, 0), (1, 0, 1), (2, 0, 1), (2, 1, 1), (3, 1, 1), (5, 2, 1 << domain_log2)]
        {
            let snarkjs =
                Plan { variables, public, rows, a: Density::Full, b: Density::Full, ..Plan::of_log2(domain_log2) };
            for plan in [snarkjs, snarkjs.bellman()] {
                let material = Material::new(plan, &mut rng)?;
                let assignment = material.assign(Witness::Dense, form(context, &plan), &mut rng);
                instance.check(&material, &assignment)?;
            }
        }
    }
    Ok(())
}

fn basis_and_root<P: SplitProver>(context: &Context<'_, P>, h_basis: HBasis, root: Root) -> Result<(), Failure> {
    let (instance, mut rng) = (context.open()?, context.rng());
    for log2 in [1, 2, 3, 4, 7] {
        let plan = Plan { h_basis, root, matrices: false, ..Plan::of_log2(log2) };
        let material = Material::new(plan, &mut rng)?;
        instance.check(&material, &material.assign(Witness::Dense, Form::Given, &mut rng))?;
    }
    Ok(())
}

const ROWS: [usize; 6] = [0, 1, 31, 32, 63, 64];

fn evaluations_from_matrices<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (instance, mut rng) = (context.open()?, context.rng());
    for rows in ROWS {
        let snarkjs = Plan { rows, variables: 50, ..Plan::of_log2(6) };
        for plan in [snarkjs, Plan { matrices: true, ..snarkjs.bellman() }] {
            let material = Material::new(plan, &mut rng)?;
            let key = instance.load(&material)?;
            for witness in [Witness::Dense, Witness::Bits] {
                instance.prove(&key, &material, &material.assign(witness, Form::Matrices, &mut rng))?;
            }
        }
    }
    Ok(())
}

/// Evaluations, shorter than the domain or not at all, for keys with matrices and without.
fn evaluations<P: SplitProver>(context: &Context<'_, P>, form: Form) -> Result<(), Failure> {
    let (instance, mut rng) = (context.open()?, context.rng());
    for rows in ROWS {
        let snarkjs = Plan { rows, variables: 50, ..Plan::of_log2(6) };
        for plan in [snarkjs, snarkjs.bellman(), Plan { matrices: false, ..snarkjs }] {
            let material = Material::new(plan, &mut rng)?;
            let key = instance.load(&material)?;
            for witness in [Witness::Dense, Witness::Zeros] {
                instance.prove(&key, &material, &material.assign(witness, form, &mut rng))?;
            }
        }
    }
    Ok(())
}

/// The whole way, with a circuit's own key: blinding, assembly, pairing check.
fn proofs_verify<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (instance, mut rng) = (context.open()?, context.rng());
    for (basis, root, storage) in
        [(HBasis::OddLagrange, Root::Snarkjs, Storage::Spread), (HBasis::Monomial, Root::Bellman, Storage::Compact)]
    {
        let plan = Plan { root, storage, ..Plan::of_log2(5) };
        let circuit = Circuit::new(5, basis, plan, &mut rng)?;
        let key = instance.load(&circuit.material)?;
        for &form in forms(context, &circuit.material.plan) {
            let assignment = circuit.assign(form, &mut rng);
            instance.prove(&key, &circuit.material, &assignment)?;
            let started = instance.start(&key, &assignment)?;
            ensure!(started.public() == &assignment.witness[1..=2], "the public inputs are not the witness's");
            started.finish().map_err(|e| Failure::from(e).context("finish"))?;
        }
    }
    Ok(())
}

fn witness_kind<P: SplitProver>(context: &Context<'_, P>, witness: Witness) -> Result<(), Failure> {
    let (instance, mut rng) = (context.open()?, context.rng());
    // As many variables as the list of edges is long, and more.
    let snarkjs = Plan { variables: 1300, rows: 500, ..Plan::of_log2(9) };
    for plan in [snarkjs, snarkjs.bellman()] {
        let material = Material::new(plan, &mut rng)?;
        instance.check(&material, &material.assign(witness, form(context, &plan), &mut rng))?;
    }
    Ok(())
}

fn empty_queries<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (instance, mut rng) = (context.open()?, context.rng());
    let plain = Plan { variables: 40, ..Plan::of_log2(5) };
    let empty = Density::Empty;
    for shape in [
        Plan { a: empty, ..plain },
        Plan { b: empty, ..plain },
        Plan { l: empty, ..plain },
        Plan { h: empty, ..plain },
        Plan { a: empty, b: empty, l: empty, h: empty, ..plain },
        // Only public inputs: the L query ranges over nothing.
        Plan { public: 39, ..plain },
        Plan { public: 39, h: empty, ..plain },
    ] {
        for plan in [shape, shape.bellman()] {
            let material = Material::new(plan, &mut rng)?;
            instance.check(&material, &material.assign(Witness::Dense, form(context, &plan), &mut rng))?;
        }
    }
    Ok(())
}

/// Compact and spread tables, maps with few bits, many, and all; the same sums whichever way the table is stored.
fn density_maps<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (instance, mut rng) = (context.open()?, context.rng());
    for storage in [Storage::Compact, Storage::Spread] {
        for density in [
            Density::Full,
            Density::AllSet,
            Density::First(1),
            Density::First(65),
            Density::Random(3),
            Density::Random(200),
        ] {
            let plan =
                Plan { variables: 600, a: density, b: density, l: density, h: density, storage, ..Plan::of_log2(7) };
            let material = Material::new(plan, &mut rng)?;
            let key = instance.load(&material)?;
            for witness in [Witness::Dense, Witness::Bits] {
                instance.prove(&key, &material, &material.assign(witness, form(context, &plan), &mut rng))?;
            }
        }
    }
    Ok(())
}

/// P + P: in one bucket at once, by equal scalars; later, by random ones.
fn repeated_bases<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let plain = Plan { variables: 200, a: Density::Full, b: Density::Full, ..Plan::of_log2(7) };
    let bases = [1, 2, 3, 16].map(Bases::Repeated);
    with_bases(context, plain, &bases, &[Witness::Ones, Witness::Constant, Witness::Dense, Witness::Bits])
}

/// P − P, and sums that pass through infinity.
fn opposite_bases<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let plain = Plan { variables: 200, a: Density::Full, b: Density::Full, ..Plan::of_log2(7) };
    let bases = [1, 2, 3, 16].map(Bases::Opposite);
    with_bases(context, plain, &bases, &[Witness::Ones, Witness::Constant, Witness::Dense, Witness::Bits])
}

fn with_bases<P: SplitProver>(
    context: &Context<'_, P>,
    plain: Plan,
    bases: &[Bases],
    witnesses: &[Witness],
) -> Result<(), Failure> {
    let (instance, mut rng) = (context.open()?, context.rng());
    for &bases in bases {
        for plan in [Plan { bases, ..plain }, Plan { bases, ..plain }.bellman()] {
            let material = Material::new(plan, &mut rng)?;
            let key = instance.load(&material)?;
            for &witness in witnesses {
                instance.prove(&key, &material, &material.assign(witness, form(context, &plan), &mut rng))?;
            }
        }
    }
    Ok(())
}

/// Sums that are infinity although no scalar is zero.
fn sums_at_infinity<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (instance, mut rng) = (context.open()?, context.rng());
    for log2 in [1, 4, 8] {
        let n = 1usize << log2;
        let plan = Plan {
            variables: n,
            public: 1,
            a: Density::Full,
            b: Density::Full,
            bases: Bases::Opposite(1),
            rows: 0,
            ..Plan::of_log2(log2)
        };
        for plan in [plan, plan.bellman()] {
            let material = Material::new(plan, &mut rng)?;
            let assignment = material.assign(Witness::Ones, form(context, &plan), &mut rng);
            let infinity = super::super::material::sums_of_logs(
                blstrs::Scalar::from(0),
                blstrs::Scalar::from(0),
                blstrs::Scalar::from(0),
            );
            ensure!(assignment.expected == infinity, "the case is built wrongly");
            instance.check(&material, &assignment)?;
        }
    }
    Ok(())
}

/// Tables that begin anywhere: `.zkey` sections are aligned to four bytes, and nothing promises more.
fn unaligned_tables<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (instance, mut rng) = (context.open()?, context.rng());
    for offset in [1, 4, 12, 44] {
        let snarkjs = Plan { offset, variables: 100, ..Plan::of_log2(6) };
        for plan in [snarkjs, snarkjs.bellman()] {
            let material = Material::new(plan, &mut rng)?;
            instance.check(&material, &material.assign(Witness::Dense, form(context, &plan), &mut rng))?;
        }
    }
    Ok(())
}

fn more_variables_than_rows<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (instance, mut rng) = (context.open()?, context.rng());
    let snarkjs = Plan { variables: 3000, public: 700, ..Plan::of_log2(2) };
    for plan in [snarkjs, snarkjs.bellman()] {
        let material = Material::new(plan, &mut rng)?;
        instance.check(&material, &material.assign(Witness::Dense, form(context, &plan), &mut rng))?;
    }
    Ok(())
}

fn more_rows_than_variables<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (instance, mut rng) = (context.open()?, context.rng());
    let snarkjs = Plan { variables: 2, public: 0, ..Plan::of_log2(11) };
    for plan in [snarkjs, snarkjs.bellman()] {
        let material = Material::new(plan, &mut rng)?;
        instance.check(&material, &material.assign(Witness::Dense, form(context, &plan), &mut rng))?;
    }
    Ok(())
}

/// 2^k − 1, 2^k and 2^k + 1 variables; as many rows, up to the domain's.
fn size_class<P: SplitProver>(context: &Context<'_, P>, log2: u32) -> Result<(), Failure> {
    let (instance, mut rng) = (context.open()?, context.rng());
    let n = 1usize << log2;
    for variables in [n - 1, n, n + 1] {
        let snarkjs = Plan { variables, rows: variables.min(n), public: 1.min(variables - 1), ..Plan::of_log2(log2) };
        // A dense circuit in one format, mostly bits in the other.
        let dense = Plan { a: Density::Full, b: Density::Random(200), ..snarkjs };
        for (plan, witness) in [(dense, Witness::Dense), (snarkjs.bellman(), Witness::Bits)] {
            let material = Material::new(plan, &mut rng)?;
            instance.check(&material, &material.assign(witness, form(context, &plan), &mut rng))?;
        }
    }
    Ok(())
}

/// Just above 2^16 in every dimension: where 16-bit indices, grid sizes and the choice of algorithm change.
fn above_65536<P: SplitProver>(context: &Context<'_, P>) -> Result<(), Failure> {
    let (instance, mut rng) = (context.open()?, context.rng());
    let plan = Plan { variables: (1 << 16) + 3, rows: (1 << 16) + 1, b: Density::Random(16), ..Plan::of_log2(17) };
    let material = Material::new(plan, &mut rng)?;
    instance.check(&material, &material.assign(Witness::Bits, form(context, &plan), &mut rng))
}
