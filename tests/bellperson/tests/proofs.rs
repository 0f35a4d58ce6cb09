//! For fixed r and s our proofs are bellperson's byte for byte, with its keys and with ours, from full and from recorded synthesis.
//!
//! On the CPU, with every arithmetic that the processor has; and on the first device of each backend that the variable
//! `SPLITPROVER_TEST_BACKENDS` names, or gives the path of, separated by colons.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use bellperson::gadgets::boolean::{AllocatedBit, Boolean};
use bellperson::gadgets::multipack;
use bellperson::gadgets::sha256::sha256;
use bellperson::groth16::{self, Parameters, create_proof, generate_random_parameters, prepare_verifying_key};
use bellperson::{Circuit, ConstraintSystem, LinearCombination, SynthesisError, Variable};
use blstrs::{Bls12, Scalar};
use ff::Field;
use rand_chacha::ChaCha8Rng;
use rand_core::{OsRng, SeedableRng};
use splitprover_backend_cpu::{Arithmetic, CpuBackend, CpuOptions};
use splitprover_core::abi::{self, Backend};
use splitprover_core::{
    Blinding, CsrMatrix, HBasis, HostMemory, Inputs, PreparedVerifyingKey, Proof, Prover, ProvingKey, RootOfUnity,
    SplitProver,
};
use splitprover_harness::formats::params::{self, params_to_bytes};
use splitprover_harness::formats::{OpenOptions, ParamsFile, R1csFile};
use splitprover_harness::loader::Registry;
use splitprover_harness::setup::{self, CpuFixedBase, Resources, Trapdoor, generate};
use splitprover_harness::synthesis::{CircuitError, Recording, synthesize};

/// x₁ … x_n private with products and sums of them, as many public as asked.
#[derive(Clone)]
struct Toy {
    shape: Shape,
    /// What the private variables are made of; `None` is a blank circuit.
    x: Option<Scalar>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    NothingAtAll,
    NoInputs,
    OneConstraint,
    InputsThatNothingUses,
    ConstantsOnly,
    EmptyB,
    /// Variables that occur in A alone, in B alone, in C alone; terms that cancel; coefficients of zero.
    Unused,
    /// A chain of products of this many rows.
    Chain(usize),
    AllPublic,
}

impl Circuit<Scalar> for Toy {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let value = |f: &dyn Fn(Scalar) -> Scalar| self.x.map(f).ok_or(SynthesisError::AssignmentMissing);
        let one = CS::one();
        let two = Scalar::from(2);
        match self.shape {
            Shape::NothingAtAll => {}
            Shape::NoInputs => {
                let x = cs.alloc(|| "x", || value(&|x| x))?;
                let y = cs.alloc(|| "y", || value(&|x| x * x))?;
                cs.enforce(|| "square", |lc| lc + x, |lc| lc + x, |lc| lc + y);
            }
            Shape::OneConstraint => {
                let y = cs.alloc_input(|| "y", || value(&|x| x * x))?;
                let x = cs.alloc(|| "x", || value(&|x| x))?;
                cs.enforce(|| "square", |lc| lc + x, |lc| lc + x, |lc| lc + y);
            }
            Shape::InputsThatNothingUses => {
                for i in 0..5u64 {
                    cs.alloc_input(|| "unused", || value(&|x| x + Scalar::from(i)))?;
                }
                let x = cs.alloc(|| "x", || value(&|x| x))?;
                cs.enforce(|| "zero", |lc| lc + x - x, |lc| lc + x, |lc| lc);
            }
            Shape::ConstantsOnly => {
                cs.enforce(
                    || "6",
                    |lc| lc + (two, one),
                    |lc| lc + (Scalar::from(3), one),
                    |lc| lc + (Scalar::from(6), one),
                );
                cs.enforce(|| "1", |lc| lc + one, |lc| lc + one, |lc| lc + one);
            }
            Shape::EmptyB => {
                let y = cs.alloc_input(|| "y", || value(&|x| x))?;
                let x = cs.alloc(|| "x", || value(&|x| x))?;
                cs.enforce(|| "nothing", |lc| lc + x - y, |lc| lc, |lc| lc + x - y);
                cs.enforce(|| "nothing again", |lc| lc + (two, x), |lc| lc, |lc| lc);
            }
            Shape::Unused => {
                let public = cs.alloc_input(|| "public", || value(&|x| x))?;
                let only_a = cs.alloc(|| "a", || value(&|x| x + Scalar::ONE))?;
                let only_b = cs.alloc(|| "b", || value(&|x| x + Scalar::from(7)))?;
                let only_c = cs.alloc(|| "c", || value(&|x| (x + Scalar::ONE) * (x + Scalar::from(7))))?;
                let cancels = cs.alloc(|| "cancels", || value(&|x| x))?;
                cs.enforce(
                    || "a * b = c",
                    |lc| lc + only_a + cancels - cancels,
                    |lc| lc + only_b + (Scalar::ZERO, public),
                    |lc| lc + only_c,
                );
                cs.enforce(|| "public", |lc| lc + public, |lc| lc + one, |lc| lc + cancels);
            }
            Shape::Chain(rows) => {
                let mut current = cs.alloc(|| "x", || value(&|x| x))?;
                let mut at = self.x;
                for row in 0..rows {
                    let step = Scalar::from(row as u64);
                    at = at.map(|x| (x + step) * (x + x));
                    let next = cs.alloc(|| "next", || at.ok_or(SynthesisError::AssignmentMissing))?;
                    cs.enforce(|| "step", |lc| lc + current + (step, one), |lc| lc + (two, current), |lc| lc + next);
                    current = next;
                }
                let out = cs.alloc_input(|| "out", || at.ok_or(SynthesisError::AssignmentMissing))?;
                cs.enforce(|| "out", |lc| lc + current, |lc| lc + one, |lc| lc + out);
            }
            Shape::AllPublic => {
                let x = cs.alloc_input(|| "x", || value(&|x| x))?;
                let y = cs.alloc_input(|| "y", || value(&|x| x * x))?;
                cs.enforce(|| "square", |lc| lc + x, |lc| lc + x, |lc| lc + y);
            }
        }
        Ok(())
    }
}

/// SHA-256 of some bytes, the digest public.
#[derive(Clone)]
struct Sha(Vec<u8>);

impl Circuit<Scalar> for Sha {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let bits = (0..self.0.len() * 8)
            .map(|i| {
                let bit = self.0[i / 8] >> (7 - i % 8) & 1 == 1;
                AllocatedBit::alloc(cs.namespace(|| format!("bit {i}")), Some(bit)).map(Boolean::from)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let digest = sha256(cs.namespace(|| "sha"), &bits)?;
        multipack::pack_into_inputs(cs.namespace(|| "digest"), &digest)
    }
}

/// The Poseidon permutation over three elements, x ↦ x⁵, 8 full rounds and 57 partial ones (Grassi et al., USENIX Security 2021);
/// round constants from a seed, the mixing matrix Cauchy's. Two elements are private, their digest is public.
#[derive(Clone)]
struct Poseidon([Scalar; 2]);

impl Poseidon {
    const WIDTH: usize = 3;
    const FULL: usize = 8;
    const PARTIAL: usize = 57;

    /// The constants of a round, and whether it is a full one.
    fn rounds() -> impl Iterator<Item = ([Scalar; Self::WIDTH], bool)> {
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        (0..Self::FULL + Self::PARTIAL).map(move |round| {
            let full = !(Self::FULL / 2..Self::FULL / 2 + Self::PARTIAL).contains(&round);
            (std::array::from_fn(|_| Scalar::random(&mut rng)), full)
        })
    }

    /// 1/(i + j + 3), which is Cauchy's matrix of 0, 1, 2 and 3, 4, 5.
    fn mix(row: usize, column: usize) -> Scalar {
        Scalar::from((row + column + Self::WIDTH) as u64).invert().unwrap()
    }

    fn digest(&self) -> Scalar {
        let mut state = [Scalar::ZERO, self.0[0], self.0[1]];
        for (constants, full) in Self::rounds() {
            for (i, (x, constant)) in state.iter_mut().zip(constants).enumerate() {
                *x += constant;
                if full || i == 0 {
                    *x = x.pow_vartime([5]);
                }
            }
            state = std::array::from_fn(|row| (0..Self::WIDTH).map(|i| Self::mix(row, i) * state[i]).sum());
        }
        state[1]
    }
}

impl Circuit<Scalar> for Poseidon {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        type Combination = (LinearCombination<Scalar>, Scalar);
        /// A new variable for the product of two combinations.
        fn product<CS: ConstraintSystem<Scalar>>(
            cs: &mut CS,
            a: &Combination,
            b: &Combination,
        ) -> Result<Combination, SynthesisError> {
            let value = a.1 * b.1;
            let variable = cs.alloc(|| "product", || Ok(value))?;
            cs.enforce(|| "product", |_| a.0.clone(), |_| b.0.clone(), |lc| lc + variable);
            Ok((LinearCombination::zero() + variable, value))
        }
        let mut state: Vec<Combination> = vec![(LinearCombination::zero(), Scalar::ZERO)];
        for value in self.0 {
            let variable = cs.alloc(|| "preimage", || Ok(value))?;
            state.push((LinearCombination::zero() + variable, value));
        }
        for (round, (constants, full)) in Self::rounds().enumerate() {
            for (i, constant) in constants.into_iter().enumerate() {
                let (combination, value) = &state[i];
                let x = (combination.clone() + (constant, CS::one()), value + constant);
                state[i] = match full || i == 0 {
                    false => x,
                    true => {
                        let mut cs = cs.namespace(|| format!("round {round}, element {i}"));
                        let square = product(&mut cs.namespace(|| "square"), &x, &x)?;
                        let fourth = product(&mut cs.namespace(|| "fourth"), &square, &square)?;
                        product(&mut cs.namespace(|| "fifth"), &fourth, &x)?
                    }
                };
            }
            state = (0..Self::WIDTH)
                .map(|row| {
                    let zero = (LinearCombination::zero(), Scalar::ZERO);
                    state.iter().enumerate().fold(zero, |(sum, total), (i, (combination, value))| {
                        let factor = Self::mix(row, i);
                        (sum + (factor, combination), total + factor * value)
                    })
                })
                .collect();
        }
        let digest = cs.alloc_input(|| "digest", || Ok(state[1].1))?;
        cs.enforce(|| "digest", |_| state[1].0.clone(), |lc| lc + CS::one(), |lc| lc + digest);
        Ok(())
    }
}

fn product(matrix: &CsrMatrix, witness: &[Scalar]) -> Vec<Scalar> {
    (0..matrix.num_rows())
        .map(|row| matrix.row(row).map(|(column, coefficient)| witness[column] * coefficient).sum())
        .collect()
}

fn prove<P: SplitProver>(prover: &Prover<P>, key: &Arc<ProvingKey>, inputs: Inputs, (r, s): (Scalar, Scalar)) -> Proof {
    let loaded = prover.load_key(key.clone()).unwrap();
    prover.start(&loaded, inputs).unwrap().finish_with(Blinding::insecure(r, s)).unwrap()
}

fn on_cpu(arithmetic: Arithmetic) -> Prover<CpuBackend> {
    let options = CpuOptions { arithmetic: Some(arithmetic), ..CpuOptions::default() };
    Prover::new(CpuBackend::new(options).unwrap())
}

/// The backends that somebody asked for; opened once, since that takes seconds on some.
fn others() -> &'static [(String, Prover<Backend>)] {
    static OTHERS: OnceLock<Vec<(String, Prover<Backend>)>> = OnceLock::new();
    OTHERS.get_or_init(|| {
        let names = std::env::var("SPLITPROVER_TEST_BACKENDS").unwrap_or_default();
        let open = |name: &str| {
            let backend = Registry::new().load(name).unwrap().open(&abi::OpenOptions::new(0)).unwrap();
            (name.to_owned(), Prover::new(backend))
        };
        names.split(':').filter(|name| !name.is_empty()).map(open).collect()
    })
}

fn read(bytes: Vec<u8>) -> ParamsFile {
    let options = OpenOptions { deep: true, ..OpenOptions::default() };
    ParamsFile::from_bytes(Path::new("key.params"), bytes, options).unwrap()
}

fn bytes_of(proof: &groth16::Proof<Bls12>) -> Vec<u8> {
    let mut bytes = Vec::new();
    proof.write(&mut bytes).unwrap();
    bytes
}

/// Whose keys a comparison uses.
#[derive(Clone, Copy, PartialEq)]
enum Keys {
    Both,
    /// bellperson's key generation takes long.
    Ours,
}

/// Everything that can be compared about one circuit. `blank` has the same constraints and no values.
fn compare<C: Circuit<Scalar> + Clone + Send>(name: &str, circuit: &C, blank: C, keys: Keys) {
    let memory = HostMemory::default();
    let recording = Recording::new(blank.clone()).unwrap();
    let full = synthesize(circuit.clone(), &memory).unwrap();
    assert_eq!(full.first_broken, None, "{name}");
    assert_eq!(full.num_constraints, setup::ConstraintSystem::num_constraints(&recording), "{name}");

    // Full and recorded synthesis: one witness, one set of evaluations, one pair of densities.
    let ours = recording.circuit(Path::new(name)).unwrap();
    let witness = || recording.witness(circuit.clone(), &memory).unwrap();
    assert_eq!(witness().witness()[..], full.inputs.witness()[..], "{name}");
    let evaluations = full.inputs.evaluations().unwrap();
    assert_eq!(product(&ours.matrices().a, full.inputs.witness()), evaluations.a[..], "{name}");
    assert_eq!(product(&ours.matrices().b, full.inputs.witness()), evaluations.b[..], "{name}");
    assert_eq!((&full.density_a, &full.density_b), (&**ours.density_a(), &**ours.density_b()), "{name}");

    // Through files: .r1cs, and our own.
    let folder = tempfile::tempdir().unwrap();
    let (r1cs, own) = (folder.path().join("c.r1cs"), folder.path().join("c.circuit"));
    recording.write_r1cs(&r1cs).unwrap();
    ours.write(&own).unwrap();
    for path in [&r1cs, &own] {
        let again = params::Circuit::open(path).unwrap();
        assert_eq!(again.num_public(), ours.num_public());
        for (x, y) in [(&again.matrices().a, &ours.matrices().a), (&again.matrices().b, &ours.matrices().b)] {
            assert_eq!(x.num_rows(), y.num_rows(), "{name}");
            assert!((0..x.num_rows()).all(|row| x.row(row).eq(y.row(row))), "{name}");
        }
    }
    assert_eq!(
        setup::ConstraintSystem::first_broken(&R1csFile::open(&r1cs).unwrap(), full.inputs.witness(), &memory).unwrap(),
        None
    );

    let public = full.inputs.witness()[1..=full.num_public].to_vec();
    let blinding = (Scalar::random(OsRng), Scalar::random(OsRng));
    // With every arithmetic, eight lanes of AVX-512 among them where there are: the same path serves both kinds of key.
    let check = |theirs: &Parameters<Bls12>, key: &Arc<ProvingKey>, inputs: &dyn Fn() -> Inputs| {
        let expected = bytes_of(&create_proof(circuit.clone(), theirs, blinding.0, blinding.1).unwrap());
        let mut proof = None;
        for arithmetic in Arithmetic::supported() {
            let ours = prove(&on_cpu(arithmetic), key, inputs(), blinding);
            assert_eq!(ours.to_bytes()[..], expected, "{name}, {arithmetic:?}");
            proof = Some(ours);
        }
        let proof = proof.expect("some arithmetic is always supported");
        for (backend, prover) in others() {
            assert_eq!(prove(prover, key, inputs(), blinding).to_bytes()[..], expected, "{name}, {backend}");
        }

        // Each verifies the other's, and neither what was tampered with.
        let theirs = prepare_verifying_key(&theirs.vk);
        let verifies = |bytes: &[u8], public: &[Scalar]| {
            groth16::Proof::read(bytes).is_ok_and(|proof| groth16::verify_proof(&theirs, &proof, public).unwrap())
        };
        assert!(verifies(&proof.to_bytes(), &public), "{name}");
        let ours = PreparedVerifyingKey::new(key.verifying_key());
        let proof = Proof::from_bytes(&expected.try_into().unwrap()).unwrap();
        assert_eq!(ours.verify(&proof, &public), Ok(true), "{name}");
        let swapped = Proof::new(proof.c(), proof.b(), proof.a()).unwrap();
        assert_eq!(ours.verify(&swapped, &public), Ok(false), "{name}");
        assert!(!verifies(&swapped.to_bytes(), &public), "{name}");
        for i in 0..public.len() {
            let mut wrong = public.clone();
            wrong[i] += Scalar::ONE;
            assert_eq!(ours.verify(&proof, &wrong), Ok(false), "{name}");
            assert!(!verifies(&proof.to_bytes(), &wrong), "{name}");
        }
        let claims = [(proof, public.clone()), (proof, public.clone())];
        assert_eq!(ours.verify_batch(&claims), Ok(true), "{name}");
        assert_eq!(ours.verify_batch(&[claims[0].clone(), (swapped, public.clone())]), Ok(false), "{name}");
    };

    // bellperson's key. A variable that occurs nowhere, or a circuit without rows, it refuses itself.
    if keys == Keys::Both {
        let theirs = generate_random_parameters::<Bls12, _, _>(blank.clone(), &mut OsRng).unwrap();
        let mut bytes = Vec::new();
        theirs.write(&mut bytes).unwrap();
        let key = read(bytes.clone()).key(&ours, RootOfUnity::bellman()).unwrap();
        assert_eq!(params_to_bytes(Path::new(name), &key).unwrap(), bytes, "{name}");
        check(&theirs, &key, &witness);
    }

    // Our key, which bellperson reads, every point checked.
    let fixed_base = CpuFixedBase::new(4 * setup::ConstraintSystem::num_variables(&recording));
    let resources = Resources { memory: &memory, fixed_base: &fixed_base, progress: &|_, _, _| {} };
    let basis = HBasis::Monomial;
    let development = generate(&recording, basis, &Trapdoor::from_seed(3, basis), &resources).unwrap().key;
    let bytes = params_to_bytes(Path::new(name), &development).unwrap();
    let theirs = Parameters::<Bls12>::read(&bytes[..], true).unwrap();
    let key = read(bytes).key(&ours, RootOfUnity::bellman()).unwrap();
    check(&theirs, &key, &witness);
    check(&theirs, &Arc::new(key.without_matrices()), &|| synthesize(circuit.clone(), &memory).unwrap().inputs);
}

#[test]
fn toy_circuits_give_bellpersons_proofs() {
    for shape in [
        Shape::NothingAtAll,
        Shape::NoInputs,
        Shape::OneConstraint,
        Shape::InputsThatNothingUses,
        Shape::ConstantsOnly,
        Shape::EmptyB,
        Shape::Unused,
        Shape::AllPublic,
        Shape::Chain(1),
        Shape::Chain(5),
        Shape::Chain(6),
        Shape::Chain(61),
    ] {
        for x in [Scalar::random(OsRng), Scalar::ZERO, Scalar::ONE, -Scalar::ONE] {
            compare(&format!("{shape:?}"), &Toy { shape, x: Some(x) }, Toy { shape, x: None }, Keys::Both);
        }
    }
}

#[test]
fn a_sha256_gadget_gives_bellpersons_proof() {
    let circuit = Sha(b"one block of input".to_vec());
    compare("SHA-256", &circuit, circuit.clone(), Keys::Ours);
}

#[test]
fn a_poseidon_gadget_gives_bellpersons_proof() {
    for preimage in [[Scalar::random(OsRng), Scalar::random(OsRng)], [Scalar::ZERO, -Scalar::ONE]] {
        let circuit = Poseidon(preimage);
        let inputs = synthesize(circuit.clone(), &HostMemory::default()).unwrap().inputs;
        assert_eq!(inputs.witness()[1], circuit.digest());
        compare("Poseidon", &circuit, circuit.clone(), Keys::Both);
    }
}

#[test]
fn a_circuit_that_is_not_the_recorded_one_is_refused() {
    let memory = HostMemory::default();
    let toy = |shape| Toy { shape, x: Some(Scalar::from(3)) };
    let recording = Recording::new(toy(Shape::Chain(5))).unwrap();
    for rows in [4, 6, 40] {
        let error = recording.witness(toy(Shape::Chain(rows)), &memory).unwrap_err();
        assert!(matches!(error, CircuitError::Other { what: "private variables", expected: 6, .. }), "{error}");
    }
    let error = recording.witness(toy(Shape::AllPublic), &memory).unwrap_err();
    assert!(matches!(error, CircuitError::Other { what: "public inputs", found: 2, expected: 1 }), "{error}");
    // What the circuit itself says isn't hidden.
    let blank = Toy { shape: Shape::Chain(5), x: None };
    let error = recording.witness(blank.clone(), &memory).unwrap_err();
    assert!(matches!(error, CircuitError::Synthesis(SynthesisError::AssignmentMissing)), "{error}");
    assert!(matches!(synthesize(blank, &memory).unwrap_err(), CircuitError::Synthesis(_)));
}

/// A circuit whose parts are synthesised apart and joined where the constraint system allows it.
#[derive(Clone)]
struct Parts(Vec<Scalar>);

fn part<CS: ConstraintSystem<Scalar>>(cs: &mut CS, x: Scalar) -> Result<Variable, SynthesisError> {
    let y = cs.alloc_input(|| "y", || Ok(x * x))?;
    let x = cs.alloc(|| "x", || Ok(x))?;
    cs.enforce(|| "square", |lc| lc + x, |lc| lc + x + CS::one() - CS::one(), |lc| lc + y);
    cs.enforce(|| "y again", |lc| lc + CS::one(), |lc| lc + y, |lc| lc + y);
    Ok(x)
}

impl Circuit<Scalar> for Parts {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        for x in self.0 {
            if CS::is_extensible() {
                let mut other = CS::new();
                other.alloc_input(|| "one", || Ok(Scalar::ONE))?;
                part(&mut other, x)?;
                cs.extend(&other);
            } else {
                part(cs, x)?;
            }
        }
        Ok(())
    }
}

#[test]
fn parts_that_are_joined_are_as_if_synthesised_in_one() {
    let circuit = Parts((0..7).map(|_| Scalar::random(OsRng)).collect());
    compare("parts", &circuit, circuit.clone(), Keys::Both);
}

/// A circuit that hands a witness generator its values in bulk, as Poseidon gadgets do; `extra` private values more there.
#[derive(Clone)]
struct Bulk {
    x: Scalar,
    extra: usize,
}

impl Circuit<Scalar> for Bulk {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let powers: Vec<_> = std::iter::successors(Some(self.x), |y| Some(y * self.x)).take(6).collect();
        if cs.is_witness_generator() {
            cs.extend_inputs(&powers[..1]);
            cs.allocate_empty_inputs(1)[0] = powers[1];
            cs.extend_aux(&powers[2..3]);
            cs.allocate_empty_aux(1)[0] = powers[3];
            let (private, inputs) = cs.allocate_empty(1, 1);
            (private[0], inputs[0]) = (powers[4], powers[5]);
            assert_eq!(cs.inputs_slice(), [&[Scalar::ONE], &powers[..2], &powers[5..]].concat());
            cs.extend_aux(&vec![Scalar::ONE; self.extra]);
            assert!(self.extra > 0 || cs.aux_slice() == &powers[2..5]);
            return Ok(());
        }
        let mut variables = Vec::new();
        for (i, power) in powers.iter().enumerate() {
            variables.push(match [0, 1, 5].contains(&i) {
                true => cs.alloc_input(|| "public", || Ok(*power))?,
                false => cs.alloc(|| "private", || Ok(*power))?,
            });
        }
        for pair in variables.windows(2) {
            cs.enforce(|| "power", |lc| lc + variables[0], |lc| lc + pair[0], |lc| lc + pair[1]);
        }
        Ok(())
    }
}

#[test]
fn values_in_bulk_are_as_if_allocated_one_by_one() {
    let circuit = Bulk { x: Scalar::random(OsRng), extra: 0 };
    compare("bulk", &circuit, circuit.clone(), Keys::Both);
    let recording = Recording::new(circuit.clone()).unwrap();
    for extra in [1, 1000] {
        let error = recording.witness(Bulk { extra, ..circuit.clone() }, &HostMemory::default()).unwrap_err();
        let CircuitError::Other { what, found, expected } = error else { panic!("{error}") };
        assert_eq!((what, found, expected), ("private variables", 3 + extra, 3));
    }
}
