//! Development keys: what `setup` makes proves and verifies, and nothing else does.

use std::sync::Arc;

use ff::Field;
use group::Curve;
use rand_core::OsRng;
use splitprover_backend_cpu::{CpuBackend, CpuOptions};
use splitprover_core::{
    BackendError, Blinding, Domain, FinishError, HBasis, HostMemory, Inputs, KeyError, MemoryClass, PointRecord,
    PreparedVerifyingKey, Proof, Prover, ProvingKey, Query, Scalar, SplitProver,
};
use splitprover_harness::setup::{
    ConstraintSystem, Constraints, CpuFixedBase, DevelopmentKey, FixedBase, Matrix, Resources, SetupError, Shape,
    Synthetic, Trapdoor, generate, generate_over,
};
use splitprover_tests::naive::NaiveProver;

const BASES: [HBasis; 2] = [HBasis::OddLagrange, HBasis::Monomial];

fn make<S: ConstraintSystem>(system: &S, basis: HBasis, trapdoor: &Trapdoor) -> Result<DevelopmentKey, SetupError> {
    let memory = HostMemory::default();
    let fixed_base = CpuFixedBase::new(4 * system.num_variables());
    generate(system, basis, trapdoor, &Resources { memory: &memory, fixed_base: &fixed_base, progress: &|_, _, _| {} })
}

fn key<S: ConstraintSystem>(system: &S, basis: HBasis) -> Arc<ProvingKey> {
    make(system, basis, &Trapdoor::from_seed(1, basis)).unwrap().key
}

fn inputs(witness: &[Scalar]) -> Inputs {
    Inputs::new(HostMemory::default().copy_of(MemoryClass::Witness, witness).unwrap())
}

fn cpu() -> CpuBackend {
    CpuBackend::new(CpuOptions::default()).unwrap()
}

fn prove<P: SplitProver>(backend: P, key: &Arc<ProvingKey>, inputs: Inputs) -> Result<Proof, FinishError> {
    let blinding = Blinding::insecure(Scalar::from(11), Scalar::from(13));
    prove_with(backend, key, inputs, blinding)
}

fn prove_with<P: SplitProver>(
    backend: P,
    key: &Arc<ProvingKey>,
    inputs: Inputs,
    blinding: Blinding,
) -> Result<Proof, FinishError> {
    let prover = Prover::new(backend);
    let loaded = prover.load_key(key.clone()).unwrap();
    prover.start(&loaded, inputs).unwrap().finish_with(blinding)
}

/// One row: the terms of A, B and C.
type Row = [Vec<(u32, Scalar)>; 3];

fn system(num_public: usize, num_variables: usize, rows: &[Row]) -> Constraints {
    Constraints::new(num_public, num_variables, rows.len(), |matrix| {
        let of = match matrix {
            Matrix::A => 0,
            Matrix::B => 1,
            Matrix::C => 2,
        };
        let entries = rows.iter().zip(0..).flat_map(move |(row, i)| row[of].iter().map(move |&(j, x)| (i, j, x)));
        entries.collect::<Vec<_>>().into_iter()
    })
    .unwrap()
}

/// Systems at the edges, each with a satisfying assignment.
fn edges() -> Vec<(&'static str, Constraints, Vec<Scalar>)> {
    let (one, minus, s) = (Scalar::ONE, -Scalar::ONE, Scalar::from);
    let x = Scalar::random(OsRng);
    let product = [vec![(2, one)], vec![(3, one)], vec![(1, one)]];
    let single = std::slice::from_ref(&product);
    let mut many: Vec<Row> = Vec::new();
    let mut chain = vec![one, Scalar::ZERO, x];
    for i in 0..20u32 {
        // w_(i+3) = (2·w_(i+2) + w₀)·(w_(i+2) − w_(i+2) + w_(i+2)), with entries that add up at one place.
        let w = chain[i as usize + 2];
        many.push([
            vec![(i + 2, one), (i + 2, one), (0, one)],
            vec![(i + 2, one), (i + 2, minus), (i + 2, one)],
            vec![(i + 3, one)],
        ]);
        chain.push((w + w + one) * w);
    }
    chain[1] = chain[22];
    many.push([vec![(22, minus)], vec![(0, minus)], vec![(1, one)]]);
    vec![
        ("nothing at all", system(0, 1, &[]), vec![one]),
        ("no constraints", system(0, 3, &[]), vec![one, x, s(5)]),
        ("no constraints, public inputs", system(2, 4, &[]), vec![one, x, x, s(5)]),
        ("one constraint", system(1, 4, single), vec![one, x * s(3), x, s(3)]),
        ("one constraint, nothing public", system(0, 4, single), vec![one, x * s(3), x, s(3)]),
        ("nothing private", system(3, 4, single), vec![one, x * s(3), x, s(3)]),
        ("zeros", system(1, 4, single), vec![one, Scalar::ZERO, x, Scalar::ZERO]),
        ("B is empty", system(1, 3, &[[vec![(1, one), (2, s(7))], vec![], vec![]]]), vec![one, x, s(2)]),
        ("a row without terms", system(1, 4, &[product.clone(), Row::default()]), vec![one, x * s(3), x, s(3)]),
        ("unused variables", system(1, 6, single), vec![one, x * s(3), x, s(3), s(9), x]),
        ("repeated entries", system(1, 23, &many), chain),
    ]
}

#[test]
fn synthetic_circuits_prove_and_verify_in_both_bases() {
    let memory = HostMemory::default();
    for shape in Shape::ALL {
        for (log2, basis) in [(4, BASES[0]), (4, BASES[1]), (7, BASES[0]), (7, BASES[1])] {
            let circuit = Synthetic::new(shape, log2).unwrap();
            let key = key(&circuit, basis);
            assert_eq!(key.shape().domain_log2, log2);
            assert_eq!(key.h_basis(), basis);
            let witness = circuit.witness(5, &memory).unwrap();
            let naive = prove(NaiveProver, &key, inputs(&witness)).unwrap();
            let evaluations = circuit.evaluations(&witness, &memory).unwrap();
            let given = Inputs::with_evaluations(memory.copy_of(MemoryClass::Witness, &witness).unwrap(), evaluations);
            assert_eq!(prove(NaiveProver, &Arc::new(key.without_matrices()), given).unwrap(), naive);
            assert_eq!(prove(cpu(), &key, inputs(&witness)).unwrap(), naive, "{shape:?} 2^{log2} {basis:?}");
        }
    }
}

#[test]
fn edges_prove_and_verify_in_both_bases() {
    for (name, system, witness) in edges() {
        assert_eq!(system.first_broken(&witness, &HostMemory::default()).unwrap(), None, "{name}");
        for basis in BASES {
            let key = key(&system, basis);
            let naive = prove(NaiveProver, &key, inputs(&witness)).unwrap_or_else(|e| panic!("{name}, {basis:?}: {e}"));
            assert_eq!(prove(cpu(), &key, inputs(&witness)).unwrap(), naive, "{name}, {basis:?}");
        }
    }
}

#[test]
fn a_changed_witness_or_public_input_does_not_verify() {
    let memory = HostMemory::default();
    // In `dense` every value is bound; in the others a bit of b·1 = b is free.
    let circuit = Synthetic::new(Shape::Dense, 5).unwrap();
    let witness = circuit.witness(5, &memory).unwrap();
    for basis in BASES {
        let key = key(&circuit, basis);
        let proof = prove(cpu(), &key, inputs(&witness)).unwrap();
        let verifier = PreparedVerifyingKey::new(key.verifying_key());
        assert!(verifier.verify(&proof, &[witness[1]]).unwrap());
        for wrong in [Scalar::ZERO, Scalar::ONE, witness[1] + Scalar::ONE, -witness[1], Scalar::random(OsRng)] {
            assert!(!verifier.verify(&proof, &[wrong]).unwrap());
        }
        for changed in (1..witness.len()).filter(|i| *i < 4 || i % 7 == 0) {
            let mut broken = witness.to_vec();
            broken[changed] += Scalar::from(2);
            assert!(circuit.first_broken(&broken, &memory).unwrap().is_some());
            let refused = prove(cpu(), &key, inputs(&broken));
            assert!(matches!(refused, Err(FinishError::ProofInvalid)), "value {changed}: {refused:?}");
        }
        let other = make(&circuit, basis, &Trapdoor::from_seed(2, basis)).unwrap().key;
        assert!(!PreparedVerifyingKey::new(other.verifying_key()).verify(&proof, &[witness[1]]).unwrap());
    }
}

/// Records of a query, one for each variable.
fn spread<C: PointRecord>(query: &Query<C>) -> Vec<C> {
    let mut points = vec![C::identity(); query.num_variables()];
    for (variable, record) in query.dense() {
        points[variable] = query.table().get(record);
    }
    points
}

#[test]
fn over_one_domain_the_bases_differ_in_h_alone_and_give_equal_proofs() {
    let memory = HostMemory::default();
    let fixed_base = CpuFixedBase::new(1 << 8);
    let resources = Resources { memory: &memory, fixed_base: &fixed_base, progress: &|_, _, _| {} };
    let trapdoor = Trapdoor::from_seed(3, HBasis::Monomial);
    let circuit = Synthetic::new(Shape::Mixed, 7).unwrap();
    let witness = circuit.witness(8, &memory).unwrap();
    let mut proofs = Vec::new();
    for root in [splitprover_core::RootOfUnity::snarkjs(), splitprover_core::RootOfUnity::bellman()] {
        let domain = Domain::new(7, root).unwrap();
        let keys = BASES.map(|basis| generate_over(&circuit, domain, basis, &trapdoor, &resources).unwrap().key);
        let [x, y] = &keys;
        assert_eq!(x.verifying_key(), y.verifying_key());
        assert_eq!((spread(x.a()), spread(x.b_g1())), (spread(y.a()), spread(y.b_g1())));
        assert_eq!((spread(x.b_g2()), spread(x.l())), (spread(y.b_g2()), spread(y.l())));
        assert_eq!((x.h().num_dense(), y.h().num_dense()), (128, 127));
        let [x, y] = keys.map(|key| prove(cpu(), &key, inputs(&witness)).unwrap());
        assert_eq!(x, y);
        proofs.push(x);
    }
    // With another root another polynomial goes through the same values: the root isn't a matter of taste.
    assert_ne!(proofs[0], proofs[1]);
}

#[test]
fn a_domain_of_any_sufficient_size_will_do() {
    let memory = HostMemory::default();
    let fixed_base = CpuFixedBase::new(1 << 8);
    let resources = Resources { memory: &memory, fixed_base: &fixed_base, progress: &|_, _, _| {} };
    let circuit = Synthetic::new(Shape::Porep, 5).unwrap();
    let witness = circuit.witness(8, &memory).unwrap();
    for basis in BASES {
        let domain = |log2| Domain::new(log2, splitprover_core::RootOfUnity::snarkjs()).unwrap();
        let trapdoor = Trapdoor::from_seed(4, basis);
        let larger = generate_over(&circuit, domain(6), basis, &trapdoor, &resources).unwrap();
        prove(cpu(), &larger.key, inputs(&witness)).unwrap();
        let error = generate_over(&circuit, domain(4), basis, &trapdoor, &resources).unwrap_err();
        assert!(matches!(error, SetupError::Key(KeyError::Rows { rows: 27, domain_size: 16 })), "{error}");
    }
}

#[test]
fn the_domain_is_the_least_power_of_two_above_constraints_and_public_inputs() {
    let row: Row = [vec![(0, Scalar::ONE)], vec![], vec![]];
    for (constraints, public, log2) in [
        (0, 0, 1),
        (1, 0, 1),
        (0, 1, 1),
        (1, 1, 2),
        (2, 1, 2),
        (3, 0, 2),
        (3, 1, 3),
        (60, 3, 6),
        (61, 3, 7),
        (62, 1, 6),
    ] {
        let system = system(public, public + 1, &vec![row.clone(); constraints]);
        for basis in BASES {
            assert_eq!(key(&system, basis).shape().domain_log2, log2, "{constraints} constraints, {public} public");
        }
    }
}

#[test]
fn a_degenerate_trapdoor_is_refused() {
    let circuit = Synthetic::new(Shape::Dense, 4).unwrap();
    for basis in BASES {
        let domain = splitprover_harness::setup::generate::domain(&circuit, basis).unwrap();
        let good = Scalar::from(3);
        for tau in [Scalar::ONE, domain.omega(), domain.omega().pow_vartime([7]), domain.odd_coset_shift()] {
            let trapdoor = Trapdoor::new(tau, good, good, good, good).unwrap();
            let error = make(&circuit, basis, &trapdoor).unwrap_err();
            assert!(matches!(error, SetupError::Trapdoor(_)), "{error}");
        }
        let near = Trapdoor::new(domain.omega() + Scalar::ONE, good, good, good, good).unwrap();
        prove(NaiveProver, &make(&circuit, basis, &near).unwrap().key, {
            inputs(&circuit.witness(1, &HostMemory::default()).unwrap())
        })
        .unwrap();
    }
}

#[test]
fn entries_out_of_range_are_named() {
    struct Bad(u32, u32);
    impl ConstraintSystem for Bad {
        fn num_public(&self) -> usize {
            1
        }
        fn num_variables(&self) -> usize {
            3
        }
        fn num_constraints(&self) -> usize {
            2
        }
        fn entries(&self, _: Matrix) -> impl Iterator<Item = (u32, u32, Scalar)> + '_ {
            [(0, 0, Scalar::ONE), (self.0, self.1, Scalar::ONE)].into_iter()
        }
    }
    let trapdoor = Trapdoor::from_seed(1, HBasis::OddLagrange);
    let refused = |bad| make(&bad, HBasis::OddLagrange, &trapdoor).unwrap_err().to_string();
    assert_eq!(refused(Bad(2, 0)), "entry 1: row 2 of 2");
    assert_eq!(refused(Bad(1, 3)), "entry 1: variable 3 of 3");
    assert!(make(&Bad(1, 2), HBasis::OddLagrange, &trapdoor).is_ok());
    let memory = HostMemory::default();
    assert!(matches!(Bad(1, 2).evaluations(&[Scalar::ONE; 2], &memory), Err(SetupError::WitnessLength { .. })));
    assert!(matches!(Bad(1, 3).evaluations(&[Scalar::ONE; 3], &memory), Err(SetupError::Matrix(_))));
}

/// The groups' own multiplication, one at a time.
struct OneByOne;

fn one_by_one<C: PointRecord>(scalars: &[Scalar], records: &mut [u8]) {
    for (scalar, record) in scalars.iter().zip(records.chunks_exact_mut(C::BYTES)) {
        (C::generator() * *scalar).to_affine().write_record(record);
    }
}

impl FixedBase for OneByOne {
    fn mul_g1(&self, scalars: &[Scalar], records: &mut [u8]) -> Result<(), BackendError> {
        one_by_one::<splitprover_core::G1Affine>(scalars, records);
        Ok(())
    }

    fn mul_g2(&self, scalars: &[Scalar], records: &mut [u8]) -> Result<(), BackendError> {
        one_by_one::<splitprover_core::G2Affine>(scalars, records);
        Ok(())
    }

    fn batch(&self) -> usize {
        7
    }
}

/// All tables of a key.
fn tables(key: &ProvingKey) -> [Vec<u8>; 5] {
    let bytes = |table: &[u8]| table.to_vec();
    [
        bytes(key.a().table().as_bytes()),
        bytes(key.b_g1().table().as_bytes()),
        bytes(key.b_g2().table().as_bytes()),
        bytes(key.l().table().as_bytes()),
        bytes(key.h().table().as_bytes()),
    ]
}

#[test]
fn a_key_depends_on_its_trapdoor_alone() {
    let circuit = Synthetic::new(Shape::Porep, 8).unwrap();
    let (memory, trapdoor) = (HostMemory::default(), Trapdoor::from_seed(6, HBasis::OddLagrange));
    let make = |fixed_base: &dyn FixedBase| {
        let resources = Resources { memory: &memory, fixed_base, progress: &|_, _, _| {} };
        let key = generate(&circuit, HBasis::OddLagrange, &trapdoor, &resources).unwrap().key;
        (tables(&key), key.verifying_key().clone())
    };
    let reference = make(&OneByOne);
    for threads in [1, 3, 8] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert!(pool.install(|| make(&CpuFixedBase::new(1 << threads))) == reference, "{threads} threads");
    }
    let other = Trapdoor::from_seed(7, HBasis::OddLagrange);
    let resources = Resources { memory: &memory, fixed_base: &OneByOne, progress: &|_, _, _| {} };
    let other = generate(&circuit, HBasis::OddLagrange, &other, &resources).unwrap().key;
    assert!(tables(&other).iter().zip(&reference.0).all(|(x, y)| x.len() == y.len() && x != y));
}

#[test]
fn the_ledger_holds_the_tables_and_nothing_else() {
    let memory = HostMemory::default();
    let circuit = Synthetic::new(Shape::Porep, 12).unwrap();
    let steps = std::sync::Mutex::new(Vec::new());
    let resources = Resources {
        memory: &memory,
        fixed_base: &CpuFixedBase::new(1 << 12),
        progress: &|step, done, total| steps.lock().unwrap().push((step, done, total)),
    };
    let made =
        generate(&circuit, HBasis::OddLagrange, &Trapdoor::from_seed(1, HBasis::OddLagrange), &resources).unwrap();
    let bytes: usize = tables(&made.key).iter().map(Vec::len).sum();
    let now = memory.ledger().now();
    assert_eq!((now[MemoryClass::Key], now.total()), (bytes as u64, bytes as u64));
    // B is sparse here, and infinities take no memory.
    assert!(made.key.b_g1().num_dense() < made.key.b_g1().num_variables() / 3);
    assert_eq!(made.key.b_g2().table().len(), made.key.b_g2().num_dense());
    assert_eq!(made.num_constraints, circuit.num_constraints());
    drop(made);
    assert_eq!(memory.ledger().now().total(), 0);
    let steps = steps.into_inner().unwrap();
    for step in ["polynomials", "A query", "B query in G1", "B query in G2", "L query", "H query", "matrices"] {
        let of_step: Vec<_> = steps.iter().filter(|s| s.0 == step).collect();
        assert!(of_step.is_sorted_by_key(|s| s.1) && of_step.first().is_some_and(|s| s.1 == 0), "{step}");
        assert!(of_step.last().is_some_and(|s| s.1 == s.2), "{step}");
    }
}

#[test]
fn memory_that_is_refused_is_an_error() {
    let circuit = Synthetic::new(Shape::Mixed, 6).unwrap();
    for skip in 0..12 {
        let memory = HostMemory::default();
        memory.ledger().refuse_after(skip);
        let resources = Resources { memory: &memory, fixed_base: &CpuFixedBase::new(1 << 6), progress: &|_, _, _| {} };
        let made = generate(&circuit, HBasis::Monomial, &Trapdoor::from_seed(1, HBasis::Monomial), &resources);
        assert!(matches!(made, Err(SetupError::Memory(_))), "charge {skip}");
        assert_eq!(memory.ledger().now().total(), 0);
    }
}

#[test]
fn random_systems_prove_with_random_blinding() {
    // Random rows whose products are put into fresh variables.
    for (num_public, free, rows) in [(0, 1, 5), (1, 3, 12), (4, 1, 30), (3, 5, 64)] {
        let mut witness = vec![Scalar::ONE];
        witness.extend((0..num_public + free).map(|_| Scalar::random(OsRng)));
        let pick = |n: usize| (Scalar::random(OsRng).to_bytes_le()[0] as usize * 256 + 77) % n;
        let mut all = Vec::new();
        for _ in 0..rows {
            let side = || -> Vec<(u32, Scalar)> {
                (0..1 + pick(4)).map(|_| (pick(witness.len()) as u32, Scalar::random(OsRng))).collect()
            };
            let (a, b) = (side(), side());
            let value = |terms: &[(u32, Scalar)]| terms.iter().map(|&(i, x)| witness[i as usize] * x).sum::<Scalar>();
            let product = value(&a) * value(&b);
            // C says 2·w − w = product, the other way round.
            all.push([a, b, vec![(witness.len() as u32, Scalar::from(2)), (witness.len() as u32, -Scalar::ONE)]]);
            witness.push(product);
        }
        let system = system(num_public, witness.len(), &all);
        for basis in BASES {
            let key = key(&system, basis);
            let (r, s) = (Scalar::random(OsRng), Scalar::random(OsRng));
            let naive = prove_with(NaiveProver, &key, inputs(&witness), Blinding::insecure(r, s)).unwrap();
            let cpu = prove_with(cpu(), &key, inputs(&witness), Blinding::insecure(r, s)).unwrap();
            assert_eq!(cpu, naive);
        }
    }
}
