//! Two backends, the same random inputs: equal sums, or the smallest difference that can be found.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::Serialize;
use splitprover_core::key::Storage;
use splitprover_core::{HBasis, HostMemory, Prover, QuerySums, SplitProver};

use super::material::{Assignment, Bases, Density, Form, Material, Plan, Root, Witness};
use super::subject::{Capability, Subject};

/// What to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComparisonOptions {
    /// Random keys with one proof each.
    pub cases: u32,
    /// Domains up to 2^`max_log2` rows, and as many variables.
    pub max_log2: u32,
    /// Seed of all randomness.
    pub seed: u64,
}

impl Default for ComparisonOptions {
    /// A minute on two CPU cores.
    fn default() -> Self {
        Self { cases: 64, max_log2: 10, seed: super::Options::default().seed }
    }
}

/// What came out of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// One backend.
    pub first: String,
    /// The other.
    pub second: String,
    /// Cases asked for.
    pub cases: u32,
    /// Sizes asked for.
    pub max_log2: u32,
    /// Seed of all randomness.
    pub seed: u64,
    /// The smallest case found in which they differ.
    pub disagreement: Option<Disagreement>,
}

/// A case in which two backends differ, or one fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Disagreement {
    /// The sums that differ, and which backend is wrong.
    pub message: String,
    /// The key and the inputs.
    pub case: String,
}

impl Comparison {
    /// Whether the backends agree.
    pub fn agrees(&self) -> bool {
        self.disagreement.is_none()
    }

    /// A line for people, and a few more if the backends disagree.
    pub fn to_text(&self) -> String {
        let Self { first, second, cases, max_log2, seed, disagreement } = self;
        match disagreement {
            None => format!("{first} and {second} agree on {cases} random keys up to 2^{max_log2} (seed {seed})\n"),
            Some(Disagreement { message, case }) => {
                format!("{first} and {second} DISAGREE (seed {seed}, --max-log2 {max_log2}): {message}\n    {case}\n")
            }
        }
    }
}

/// One random key and one random assignment.
#[derive(Clone, Copy, Debug)]
struct Random {
    plan: Plan,
    witness: Witness,
    form: Form,
    seed: u64,
}

/// Any key that the contract allows. Shrinks towards a small plain one.
fn random(max_log2: u32, matrices: bool) -> impl Strategy<Value = Random> {
    let density = || {
        prop_oneof![
            4 => Just(Density::Full),
            4 => any::<u8>().prop_map(Density::Random),
            1 => Just(Density::AllSet),
            1 => Just(Density::Empty),
            1 => (0usize..100).prop_map(Density::First),
        ]
    };
    let bases = prop_oneof![
        6 => Just(Bases::Distinct),
        1 => (1usize..40).prop_map(Bases::Repeated),
        1 => (1usize..40).prop_map(Bases::Opposite),
    ];
    let root = prop_oneof![Just(Root::Snarkjs), Just(Root::Bellman), Just(Root::Other)];
    let h_basis = prop_oneof![Just(HBasis::OddLagrange), Just(HBasis::Monomial)];
    let storage = prop_oneof![Just(Storage::Compact), Just(Storage::Spread)];
    let form = if matrices {
        prop_oneof![Just(Form::Matrices), Just(Form::Given), Just(Form::GivenWithC)].boxed()
    } else {
        prop_oneof![Just(Form::Given), Just(Form::GivenWithC)].boxed()
    };
    let witness = proptest::sample::select(Witness::ALL.to_vec());
    // Numbers and not ranges that depend on each other: those shrink badly. Half of the cases sit at the edges of a size class.
    let sizes = (0..=max_log2, any::<bool>(), any::<u16>(), any::<u16>(), 0usize..50).prop_map(
        |(log2, edge, variables, rows, public)| {
            let n = 1usize << log2;
            let variables =
                if edge { (n + variables as usize % 5).saturating_sub(2) } else { (n * variables as usize) >> 16 };
            let rows = (n * (rows as usize + 1)) >> 16;
            let variables = variables.max(1);
            (log2, variables, rows, public.min(variables - 1))
        },
    );
    let queries = (density(), density(), density(), density(), bases, storage, 0usize..5);
    (sizes, queries, root, h_basis, form, witness, any::<u64>()).prop_map(
        |(
            (domain_log2, variables, rows, public),
            (a, b, l, h, bases, storage, offset),
            root,
            h_basis,
            form,
            witness,
            seed,
        )| {
            let plan = Plan {
                domain_log2,
                rows,
                variables,
                public,
                root,
                h_basis,
                a,
                b,
                l,
                h,
                storage,
                bases,
                matrices: form == Form::Matrices || seed % 2 == 0,
                offset,
            };
            Random { plan, witness, form, seed }
        },
    )
}

fn prove<P: SplitProver>(
    prover: &Prover<P>,
    material: &Material,
    assignment: &Assignment,
) -> Result<QuerySums, String> {
    let key = prover.load_key(material.key.clone()).map_err(|e| format!("load_key: {e}"))?;
    let inputs = assignment.inputs(&HostMemory::default()).map_err(|e| e.to_string())?;
    let started = prover.start(&key, inputs).map_err(|e| format!("start: {e}"))?;
    started.finish_sums().map_err(|e| format!("finish: {e}"))
}

/// A backend under comparison. After a failure a fresh instance takes over: one that panicked is of no use, and every smaller
/// case would seem to fail as well.
struct Compared<'s, P> {
    subject: &'s Subject<P>,
    prover: RefCell<Prover<P>>,
}

impl<'s, P: SplitProver> Compared<'s, P> {
    fn open(subject: &'s Subject<P>) -> Result<Self, String> {
        Ok(Self { subject, prover: RefCell::new(opened(subject)?) })
    }

    fn prove(&self, material: &Material, assignment: &Assignment) -> Result<QuerySums, String> {
        let result = prove(&self.prover.borrow(), material, assignment);
        if result.is_err() {
            *self.prover.borrow_mut() = opened(self.subject)?;
        }
        result
    }
}

fn opened<P: SplitProver>(subject: &Subject<P>) -> Result<Prover<P>, String> {
    let backend = subject.open(&HostMemory::default()).map_err(|e| format!("{}: {e}", subject.name()))?;
    Ok(Prover::new(backend))
}

/// What is to be said if the two don't both give the expected sums.
fn difference(names: [&str; 2], results: [Result<QuerySums, String>; 2], expected: &QuerySums) -> Option<String> {
    let said: Vec<String> = names
        .into_iter()
        .zip(&results)
        .filter_map(|(name, result)| match result {
            Err(error) => Some(format!("{name} failed: {error}")),
            Ok(sums) => {
                let wrong = sums.differences(expected);
                (!wrong.is_empty()).then(|| format!("{name} is wrong in {}", wrong.join(", ")))
            }
        })
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// Proves random assignments of random keys on both backends and compares the sums, with each other and with what they must
/// be; so a disagreement names who is wrong. Runs in this process; `progress` is called after each case.
///
/// # Errors
/// What a backend says if it can't be opened.
pub fn compare<P: SplitProver, Q: SplitProver>(
    first: &Subject<P>,
    second: &Subject<Q>,
    options: ComparisonOptions,
    progress: impl Fn(),
) -> Result<Comparison, String> {
    let (one, other) = (Compared::open(first)?, Compared::open(second)?);
    let config = Config { cases: options.cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&options.seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let matrices = first.has(Capability::Matrices) && second.has(Capability::Matrices);
    let outcome = runner.run(&random(options.max_log2, matrices), |case| {
        let mut rng = ChaCha8Rng::seed_from_u64(case.seed);
        let material = Material::new(case.plan, &mut rng).map_err(|e| TestCaseError::fail(e.0))?;
        let assignment = material.assign(case.witness, case.form, &mut rng);
        let results = [one.prove(&material, &assignment), other.prove(&material, &assignment)];
        progress();
        match difference([first.name(), second.name()], results, &assignment.expected) {
            None => Ok(()),
            Some(message) => Err(TestCaseError::fail(message)),
        }
    });
    let disagreement = match outcome {
        Ok(()) => None,
        Err(TestError::Fail(reason, case)) => {
            Some(Disagreement { message: reason.message().to_owned(), case: format!("{case:?}") })
        }
        Err(TestError::Abort(reason)) => return Err(reason.message().to_owned()),
    };
    Ok(Comparison {
        first: first.name().into(),
        second: second.name().into(),
        cases: options.cases,
        max_log2: options.max_log2,
        seed: options.seed,
        disagreement,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::naive::{Naive, Plant};
    use super::*;

    fn subject(plant: Plant) -> Subject<Naive> {
        Subject::new(format!("{plant:?}"), move |memory| Ok(Naive { memory: memory.clone(), plant }))
    }

    #[test]
    fn a_wrong_backend_is_named_and_the_case_is_small() {
        let options = ComparisonOptions { cases: 20, max_log2: 5, seed: 1 };
        let count = Cell::new(0);
        let same =
            compare(&subject(Plant::Nothing), &subject(Plant::NoRelease), options, || count.set(count.get() + 1))
                .unwrap();
        assert!(same.agrees() && count.get() == 20, "{}", same.to_text());

        let other = compare(&subject(Plant::Nothing), &subject(Plant::SnarkjsRootOnly), options, || ()).unwrap();
        let disagreement = other.disagreement.as_ref().unwrap();
        assert_eq!(disagreement.message, "SnarkjsRootOnly is wrong in hl");
        // Two rows are the least in which roots differ that agree up to order 2; four, if they agree up to order 4.
        let small = ["domain_log2: 1,", "domain_log2: 2,"];
        assert!(small.iter().any(|size| disagreement.case.contains(size)), "{}", other.to_text());
        let again = compare(&subject(Plant::Nothing), &subject(Plant::SnarkjsRootOnly), options, || ()).unwrap();
        assert_eq!(again.disagreement, other.disagreement, "a seed repeats a comparison");
    }
}
