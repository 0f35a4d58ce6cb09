//! A tiny proof with a known answer, before a device is offered.
//!
//! The key's points are multiples of the generators with factors known here, so each of the four sums is known as one
//! multiple of a generator, computed in the scalar field alone: no multi-exponentiation, no transform, nothing that a backend
//! shares. Both H bases and both roots of unity, evaluations given and computed from matrices, zeros, ones, small and full
//! scalars, bases that repeat and bases that are opposite.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ff::Field;
use group::prime::PrimeCurveAffine;
use splitprover_core::abi::Backend;
use splitprover_core::memory::OutOfHostMemory;
use splitprover_core::{
    BackendError, CsrMatrix, Domain, Evaluations, FinishError, G1Affine, G1Projective, G2Affine, G2Projective, HBasis,
    HostMemory, Inputs, Matrices, MemoryClass, PointRecord, PointTable, Prover, ProvingKey, ProvingKeyParts, Query,
    QuerySums, RootOfUnity, Scalar, StartError, VerifyingKey,
};

/// Why a device isn't offered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelfTestError {
    /// A sum is another point than the known answer.
    #[error("self-test: wrong {sums} ({key})")]
    WrongSum {
        /// The wrong ones: "a", "b_g1", "b_g2", "hl".
        sums: String,
        /// Which of the keys.
        key: &'static str,
    },
    /// The key couldn't be loaded.
    #[error("self-test: {0}")]
    Backend(#[from] BackendError),
    /// The proof couldn't be started.
    #[error("self-test: start: {0}")]
    Start(#[from] StartError),
    /// The sums couldn't be had.
    #[error("self-test: finish: {0}")]
    Finish(#[from] FinishError),
    /// There was no host memory for its few kilobytes.
    #[error("self-test: {0}")]
    HostMemory(#[from] OutOfHostMemory),
    /// No answer in time. The thread that waits for it is left behind.
    #[error("self-test: no answer within {} s", .0.as_secs())]
    Hangs(Duration),
}

/// Runs the self-test; how long it took.
///
/// # Errors
/// [`SelfTestError`] names what was wrong.
pub fn run(backend: &Backend) -> Result<Duration, SelfTestError> {
    let begin = Instant::now();
    let prover = Prover::new(backend.clone());
    let memory = HostMemory::default();
    for problem in Problem::all() {
        let wrong = |sums: QuerySums| {
            let sums = problem.answer.differences(&sums).join(", ");
            if sums.is_empty() { Ok(()) } else { Err(SelfTestError::WrongSum { sums, key: problem.name }) }
        };
        let key = prover.load_key(problem.key.clone())?;
        let witness = || memory.copy_of(MemoryClass::Witness, &problem.witness);
        wrong(prover.start(&key, Inputs::new(witness()?))?.finish_sums()?)?;

        let key = prover.load_key(Arc::new(problem.key.without_matrices()))?;
        let copy = |values: &[Scalar]| memory.copy_of(MemoryClass::Evaluations, values);
        let evaluations = Evaluations { a: copy(&problem.rows[0])?, b: copy(&problem.rows[1])?, c: None };
        wrong(prover.start(&key, Inputs::with_evaluations(witness()?, evaluations))?.finish_sums()?)?;
    }
    Ok(begin.elapsed())
}

/// As [`run`], on a thread that is left behind if it doesn't answer in time.
///
/// # Errors
/// As [`run`]; [`SelfTestError::Hangs`].
pub fn run_within(backend: &Backend, limit: Duration) -> Result<Duration, SelfTestError> {
    let shared = Arc::new((Mutex::new(None), Condvar::new()));
    let (theirs, backend) = (shared.clone(), backend.clone());
    std::thread::spawn(move || {
        let result = run(&backend);
        // The caller may go on as soon as it has the answer, and expects the instance to itself.
        drop(backend);
        *theirs.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        theirs.1.notify_all();
    });
    let waiting = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut outcome, _) =
        shared.1.wait_timeout_while(waiting, limit, |o| o.is_none()).unwrap_or_else(PoisonError::into_inner);
    outcome.take().unwrap_or(Err(SelfTestError::Hangs(limit)))
}

/// A key, a witness, and the sums that belong to them.
struct Problem {
    name: &'static str,
    key: Arc<ProvingKey>,
    witness: Vec<Scalar>,
    /// A·w and B·w.
    rows: [Vec<Scalar>; 2],
    answer: QuerySums,
}

/// Numbers without a pattern that a wrong backend could share: a quadratic map, iterated.
struct Numbers(Scalar);

impl Iterator for Numbers {
    type Item = Scalar;

    fn next(&mut self) -> Option<Scalar> {
        self.0 = self.0.square() + Scalar::from(7);
        Some(self.0)
    }
}

fn g1(x: Scalar) -> G1Affine {
    (G1Projective::from(G1Affine::generator()) * x).into()
}

fn g2(x: Scalar) -> G2Affine {
    (G2Projective::from(G2Affine::generator()) * x).into()
}

fn dot(xs: &[Scalar], ys: &[Scalar]) -> Scalar {
    xs.iter().zip(ys).map(|(x, y)| *x * y).sum()
}

fn query<C: PointRecord>(factors: &[Scalar], point: impl Fn(Scalar) -> C) -> Query<C> {
    let points: Vec<C> = factors.iter().map(|x| point(*x)).collect();
    Query::from_infinities(PointTable::from_points(&points))
}

impl Problem {
    fn all() -> &'static [Self; 2] {
        static PROBLEMS: std::sync::OnceLock<[Problem; 2]> = std::sync::OnceLock::new();
        PROBLEMS.get_or_init(|| {
            [
                Self::new("odd Lagrange basis", HBasis::OddLagrange, RootOfUnity::snarkjs()),
                Self::new("monomial basis", HBasis::Monomial, RootOfUnity::bellman()),
            ]
        })
    }

    fn new(name: &'static str, h_basis: HBasis, root: RootOfUnity) -> Self {
        const VARIABLES: usize = 40;
        const ROWS: usize = 13;
        let domain = Domain::new(4, root).expect("a small domain");
        let mut numbers = Numbers(Scalar::from(20));
        let mut some = |n: usize| numbers.by_ref().take(n).collect::<Vec<_>>();

        let mut witness = some(VARIABLES);
        witness[0] = Scalar::ONE;
        // Bits, as most values of real witnesses are; then the ends of the range.
        witness[4..24].iter_mut().enumerate().for_each(|(i, w)| *w = Scalar::from((i % 3 == 1) as u64));
        witness[24] = -Scalar::ONE;
        witness[25] = Scalar::from(u64::MAX);

        // Factors of the bases: some zero (infinity), two equal, two opposite, with equal scalars on them.
        let mut bases = |n: usize, every: usize| {
            let mut factors = some(n);
            factors.iter_mut().step_by(every).for_each(|x| *x = Scalar::ZERO);
            let last = n - 1;
            factors[last - 1] = factors[last];
            factors[last - 2] = -factors[last];
            factors
        };
        let (a, b, l) = (bases(VARIABLES, 7), bases(VARIABLES, 3), bases(VARIABLES - 3, 11));
        let h = bases(domain.size() - usize::from(h_basis == HBasis::Monomial), 9);
        let last = VARIABLES - 1;
        (witness[last - 1], witness[last - 2]) = (witness[last], witness[last]);

        let mut entries = || {
            let coefficients = some(2 * ROWS);
            let entry = move |(i, x)| (i as u32 / 2, ((7 * i + 3) % VARIABLES) as u32, x);
            coefficients.into_iter().enumerate().map(entry).collect::<Vec<_>>()
        };
        let matrix = |entries: &[(u32, u32, Scalar)]| {
            CsrMatrix::from_entries(ROWS, VARIABLES, || entries.iter().copied()).expect("entries in range")
        };
        let matrices = Matrices { a: matrix(&entries()), b: matrix(&entries()) };
        let rows = [&matrices.a, &matrices.b].map(|m| {
            (0..ROWS).map(|row| m.row(row).map(|(column, x)| x * witness[column]).sum()).collect::<Vec<Scalar>>()
        });

        let quotient = quotient(&domain, h_basis, &rows);
        let secrets = some(8);
        let verifying_key = VerifyingKey::new(
            g1(secrets[0]),
            g2(secrets[1]),
            g2(secrets[2]),
            g2(secrets[3]),
            secrets[4..7].iter().map(|x| g1(*x)).collect(),
        );
        let key = ProvingKey::new(ProvingKeyParts {
            domain,
            h_basis,
            verifying_key: verifying_key.expect("multiples of the generators"),
            beta_g1: g1(secrets[1]),
            delta_g1: g1(secrets[3]),
            a: query(&a, g1),
            b_g1: query(&b, g1),
            b_g2: query(&b, g2),
            l: query(&l, g1),
            h: query(&h, g1),
            matrices: Some(Arc::new(matrices)),
        });
        let key = Arc::new(key.expect("parts that fit"));
        let answer = QuerySums {
            a: g1(dot(&a, &witness)),
            b_g1: g1(dot(&b, &witness)),
            b_g2: g2(dot(&b, &witness)),
            hl: g1(dot(&h, &quotient) + dot(&l, &witness[3..])),
        };
        Self { name, key, witness, rows, answer }
    }
}

/// The H scalars by their definition, with c = a∘b on the domain.
fn quotient(domain: &Domain, h_basis: HBasis, rows: &[Vec<Scalar>; 2]) -> Vec<Scalar> {
    let n = domain.size();
    let powers = |x: Scalar| std::iter::successors(Some(Scalar::ONE), move |y| Some(*y * x));
    let at =
        |coefficients: &[Scalar], x: Scalar| coefficients.iter().zip(powers(x)).map(|(c, p)| *c * p).sum::<Scalar>();
    let inverse = domain.omega().invert().expect("a root of unity");
    // Coefficient k is the mean of value i times ω^(−i·k).
    let interpolate = |values: &[Scalar]| -> Vec<Scalar> {
        powers(inverse).take(n).map(|x| at(values, x) * domain.size_inverse()).collect()
    };
    let [a, b] = rows.each_ref().map(|row| interpolate(row));
    let product: Vec<Scalar> = rows[0].iter().zip(&rows[1]).map(|(a, b)| *a * b).collect();
    let c = interpolate(&product);
    match h_basis {
        HBasis::OddLagrange => powers(domain.omega())
            .take(n)
            .map(|x| x * domain.odd_coset_shift())
            .map(|x| at(&a, x) * at(&b, x) - at(&c, x))
            .collect(),
        HBasis::Monomial => {
            // a·b − c by schoolbook multiplication; it is h·(xⁿ − 1), and deg h ≤ n − 2, so h is its upper half.
            let mut product = vec![Scalar::ZERO; 2 * n];
            for (i, x) in a.iter().enumerate() {
                b.iter().enumerate().for_each(|(j, y)| product[i + j] += *x * y);
            }
            product.iter_mut().zip(&c).for_each(|(p, c)| *p -= c);
            product[n..2 * n - 1].to_vec()
        }
    }
}
