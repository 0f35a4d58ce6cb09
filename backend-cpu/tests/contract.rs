//! The backend under the contract: sums against the definition, for every way in which key and inputs can come.

use std::sync::Arc;

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::Field;
use group::Curve;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use splitprover_backend_cpu::{Arithmetic, CpuBackend, CpuOptions, kernels};
use splitprover_core::{
    Bitmap, CsrMatrix, Domain, Evaluations, HBasis, HostMemory, Inputs, Matrices, MemoryClass, MemoryLedger,
    PointRecord, PointTable, Prover, ProvingKey, ProvingKeyParts, Query, QuerySums, RootOfUnity, VerifyingKey,
};

/// How the tables of a key are stored.
#[derive(Clone, Copy, Debug)]
enum Tables {
    Full,
    Compact,
    Spread,
}

struct Case {
    key: Arc<ProvingKey>,
    witness: Vec<Scalar>,
    a: Vec<Scalar>,
    b: Vec<Scalar>,
}

fn random_points<C: PointRecord>(rng: &mut ChaCha8Rng, n: usize) -> Vec<C>
where
    C::Curve: Curve<AffineRepr = C>,
{
    (0..n).map(|_| (C::generator() * Scalar::random(&mut *rng)).to_affine()).collect()
}

fn query<C: PointRecord>(rng: &mut ChaCha8Rng, n: usize, tables: Tables) -> Query<C>
where
    C::Curve: Curve<AffineRepr = C>,
{
    let mut points = random_points::<C>(rng, n);
    let density = Arc::new(Bitmap::from_fn(n, |_| !rng.next_u32().is_multiple_of(3)));
    match tables {
        Tables::Full => Query::full(PointTable::from_points(&points)),
        Tables::Compact => {
            let dense: Vec<_> = density.iter_ones().map(|i| points[i]).collect();
            Query::compact(PointTable::from_points(&dense), density).unwrap()
        }
        Tables::Spread => {
            for (i, point) in points.iter_mut().enumerate() {
                if !density.get(i) {
                    *point = C::identity();
                }
            }
            Query::from_infinities(PointTable::from_points(&points))
        }
    }
}

/// A key of random points, which no circuit has: the four sums are all that is looked at.
fn case(seed: u64, log2: u32, num_public: usize, num_private: usize, basis: HBasis, tables: Tables) -> Case {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let rng = &mut rng;
    let root = if basis == HBasis::OddLagrange { RootOfUnity::snarkjs() } else { RootOfUnity::bellman() };
    let domain = Domain::new(log2, root).unwrap();
    let n = domain.size();
    let num_variables = 1 + num_public + num_private;
    let mut witness: Vec<_> = (0..num_variables)
        .map(|_| match rng.next_u32() % 6 {
            0 => Scalar::ZERO,
            1 | 2 => Scalar::ONE,
            3 => -Scalar::from(u64::from(rng.next_u32() % 4)),
            4 => Scalar::from(rng.next_u64()),
            _ => Scalar::random(&mut *rng),
        })
        .collect();
    witness[0] = Scalar::ONE;
    let rows = n - rng.next_u32() as usize % n.div_ceil(2);
    let mut matrix = || {
        let mut entries = Vec::new();
        for row in 0..rows as u32 {
            for _ in 0..rng.next_u32() % 4 {
                let coefficient = match rng.next_u32() % 4 {
                    0 => Scalar::ONE,
                    1 => -Scalar::ONE,
                    2 => Scalar::from(7),
                    _ => Scalar::random(&mut *rng),
                };
                entries.push((row, rng.next_u32() % num_variables as u32, coefficient));
            }
        }
        CsrMatrix::from_entries(rows, num_variables, || entries.iter().copied()).unwrap()
    };
    let matrices = Matrices { a: matrix(), b: matrix() };
    let rows_of = |matrix: &CsrMatrix| -> Vec<Scalar> {
        (0..rows).map(|row| matrix.row(row).map(|(column, k)| witness[column] * k).sum()).collect()
    };
    let (a, b) = (rows_of(&matrices.a), rows_of(&matrices.b));
    let h_len = if basis == HBasis::Monomial { n - 1 } else { n };
    let [alpha, beta, delta] = random_points::<G1Affine>(rng, 3).try_into().unwrap();
    let [beta2, gamma2, delta2] = random_points::<G2Affine>(rng, 3).try_into().unwrap();
    let ic = random_points(rng, num_public + 1);
    let parts = ProvingKeyParts {
        domain,
        h_basis: basis,
        verifying_key: VerifyingKey::new(alpha, beta2, gamma2, delta2, ic).unwrap(),
        beta_g1: beta,
        delta_g1: delta,
        a: query(rng, num_variables, tables),
        b_g1: query(rng, num_variables, tables),
        b_g2: query(rng, num_variables, tables),
        l: query(rng, num_private, Tables::Full),
        h: query(rng, h_len, Tables::Full),
        matrices: Some(Arc::new(matrices)),
    };
    Case { key: Arc::new(ProvingKey::new(parts).unwrap()), witness, a, b }
}

fn naive<C: PointRecord>(query: &Query<C>, scalars: &[Scalar]) -> C::Curve {
    query.dense().map(|(variable, record)| query.table().get(record) * scalars[variable]).sum()
}

/// The sums by definition; only the quotient comes from the portable kernel, which has tests of its own.
fn expected(case: &Case) -> QuerySums {
    let key = &case.key;
    let n = key.domain().size();
    let padded = |values: &[Scalar]| {
        let mut values = values.to_vec();
        values.resize(n, Scalar::ZERO);
        values
    };
    let (a, b) = (padded(&case.a), padded(&case.b));
    let c = a.iter().zip(&b).map(|(a, b)| a * b).collect();
    let h = kernels::quotient(Arithmetic::Portable, key.domain(), key.h_basis(), [a, b, c]);
    let private = &case.witness[key.shape().num_public + 1..];
    QuerySums {
        a: naive(key.a(), &case.witness).to_affine(),
        b_g1: naive(key.b_g1(), &case.witness).to_affine(),
        b_g2: naive(key.b_g2(), &case.witness).to_affine(),
        hl: (naive::<G1Affine>(key.h(), &h) + naive::<G1Affine>(key.l(), private)).to_affine(),
    }
}

fn sums(backend: &Prover<CpuBackend>, key: Arc<ProvingKey>, inputs: Inputs) -> QuerySums {
    let key = backend.load_key(key).unwrap();
    backend.start(&key, inputs).unwrap().finish_sums().unwrap()
}

fn backends() -> impl Iterator<Item = Prover<CpuBackend>> {
    let options = |arithmetic, threads| CpuOptions { arithmetic: Some(arithmetic), threads, ..CpuOptions::default() };
    Arithmetic::supported()
        .flat_map(move |arithmetic| [None, Some(1), Some(3)].map(|threads| options(arithmetic, threads)))
        .map(|options| Prover::new(CpuBackend::new(options).unwrap()))
}

#[test]
fn sums_agree_with_the_definition_however_key_and_inputs_come() {
    let memory = HostMemory::default();
    let copy = |class, values: &[Scalar]| memory.copy_of(class, values).unwrap();
    let mut seed = 0;
    for basis in [HBasis::OddLagrange, HBasis::Monomial] {
        for tables in [Tables::Full, Tables::Compact, Tables::Spread] {
            for (log2, num_public, num_private) in [(1, 0, 0), (1, 1, 1), (3, 2, 9), (6, 3, 40), (8, 0, 300)] {
                seed += 1;
                let case = case(seed, log2, num_public, num_private, basis, tables);
                let expected = expected(&case);
                let n = 1 << log2;
                for backend in backends() {
                    let witness = || copy(MemoryClass::Witness, &case.witness);
                    let inputs = Inputs::new(witness());
                    assert_eq!(sums(&backend, case.key.clone(), inputs), expected, "matrices, seed {seed}");
                    for (length, with_c) in [(case.a.len(), true), (case.a.len(), false), (n, true), (n, false)] {
                        let vector = |f: &dyn Fn(usize) -> Scalar| {
                            let values: Vec<_> =
                                (0..length).map(|i| if i < case.a.len() { f(i) } else { Scalar::ZERO }).collect();
                            copy(MemoryClass::Evaluations, &values)
                        };
                        let evaluations = Evaluations {
                            a: vector(&|i| case.a[i]),
                            b: vector(&|i| case.b[i]),
                            c: with_c.then(|| vector(&|i| case.a[i] * case.b[i])),
                        };
                        let inputs = Inputs::with_evaluations(witness(), evaluations);
                        let key = Arc::new(case.key.without_matrices());
                        let got = sums(&backend, key, inputs);
                        assert_eq!(
                            got.differences(&expected),
                            Vec::<&str>::new(),
                            "{length} rows, c: {with_c}, seed {seed}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn given_evaluations_need_not_satisfy_the_circuit() {
    // c = 0 with a zero witness: only H is left, for a·b not divisible by Z in the odd basis.
    let case = case(77, 4, 0, 5, HBasis::OddLagrange, Tables::Full);
    let memory = HostMemory::default();
    let mut witness = vec![Scalar::ZERO; case.witness.len()];
    witness[0] = Scalar::ONE;
    let n = case.key.domain().size();
    let [a, b] = [&case.a, &case.b].map(|v| {
        let mut v = v.clone();
        v.resize(n, Scalar::ZERO);
        v
    });
    let zero = vec![Scalar::ZERO; n];
    let h = kernels::quotient(
        Arithmetic::Portable,
        case.key.domain(),
        HBasis::OddLagrange,
        [a.clone(), b.clone(), zero.clone()],
    );
    let expected = naive::<G1Affine>(case.key.h(), &h).to_affine();
    for backend in backends() {
        let copy = |values: &[Scalar]| memory.copy_of(MemoryClass::Evaluations, values).unwrap();
        let evaluations = Evaluations { a: copy(&a), b: copy(&b), c: Some(copy(&zero)) };
        let inputs = Inputs::with_evaluations(copy(&witness), evaluations);
        let got = sums(&backend, case.key.clone(), inputs);
        assert_eq!(got.hl, expected);
        assert_eq!(got.a, case.key.a().table().get(0));
    }
}

#[test]
fn inputs_are_gone_after_start_and_come_back_if_memory_is_refused() {
    let case = case(5, 6, 1, 30, HBasis::OddLagrange, Tables::Spread);
    let ledger = MemoryLedger::new(None);
    let memory = HostMemory::new(ledger.clone());
    let backend = CpuBackend::new(CpuOptions { memory: memory.clone(), ..CpuOptions::default() }).unwrap();
    let backend = Prover::new(backend);
    let key = backend.load_key(case.key.clone()).unwrap();
    let inputs = Inputs::new(memory.copy_of(MemoryClass::Witness, &case.witness).unwrap());
    // The second of the backend's vectors is refused.
    ledger.refuse_after(1);
    let error = backend.start(&key, inputs).unwrap_err();
    let inputs = *error.inputs.expect("nothing was touched");
    let pending = backend.start(&key, inputs).unwrap();
    assert_eq!(ledger.now().total(), 0, "nothing is left after start");
    assert_eq!(pending.finish_sums().unwrap(), expected(&case));
}

#[test]
fn two_proofs_at_once_in_one_pool_are_right() {
    let case = case(6, 7, 2, 100, HBasis::Monomial, Tables::Compact);
    let expected = expected(&case);
    let backend = Prover::new(CpuBackend::new(CpuOptions { threads: Some(2), ..CpuOptions::default() }).unwrap());
    let memory = HostMemory::default();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..3 {
                    let witness = memory.copy_of(MemoryClass::Witness, &case.witness).unwrap();
                    assert_eq!(sums(&backend, case.key.clone(), Inputs::new(witness)), expected);
                }
            });
        }
    });
}

#[test]
fn kernels_agree_with_the_definition() {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    for (n, tables) in [(1, Tables::Full), (70, Tables::Compact), (70, Tables::Spread)] {
        let scalars: Vec<_> = (0..n).map(|_| Scalar::random(&mut rng)).collect();
        let (g1, g2) = (query::<G1Affine>(&mut rng, n, tables), query::<G2Affine>(&mut rng, n, tables));
        for arithmetic in Arithmetic::supported() {
            assert_eq!(kernels::multi_exponentiation_g1(arithmetic, &g1, &scalars), naive(&g1, &scalars));
            assert_eq!(kernels::multi_exponentiation_g2(arithmetic, &g2, &scalars), naive(&g2, &scalars));
        }
    }
    let domain = Domain::new(5, RootOfUnity::snarkjs()).unwrap();
    let coefficients: Vec<_> = (0..32).map(|_| Scalar::random(&mut rng)).collect();
    for arithmetic in Arithmetic::supported() {
        let mut values = kernels::to_values(arithmetic, domain, &coefficients);
        let at = |x: Scalar| coefficients.iter().rev().fold(Scalar::ZERO, |sum, c| sum * x + c);
        for (i, value) in values.iter().enumerate() {
            assert_eq!(*value, at(domain.omega().pow_vartime([i as u64])));
        }
        kernels::to_odd_coset(arithmetic, domain, &mut values);
        for (i, value) in values.iter().enumerate() {
            assert_eq!(*value, at(domain.odd_coset_shift() * domain.omega().pow_vartime([i as u64])));
        }
    }
}
