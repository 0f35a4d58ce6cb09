//! Proofs hold when they should and only then, whoever made the sums.
//!
//! Circuits, keys and assignments are random. The reference is written down from the key's trapdoor, without any sum.

use std::sync::Arc;

use blst::{blst_fp, blst_p1_affine, blst_p2_affine};
use ff::Field;
use group::Group;
use group::prime::PrimeCurveAffine;
use pairing::Engine;
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::{OsRng, RngCore, SeedableRng};
use splitprover_backend_cpu::{CpuBackend, CpuOptions};
use splitprover_core::point::{FP_MODULUS, PointFault};
use splitprover_core::verify::VerifyError;
use splitprover_core::{
    Blinding, FinishError, G1Affine, G1Projective, G2Affine, HBasis, HostMemory, MemoryClass, PointRecord,
    PreparedVerifyingKey, Proof, Prover, ProvingKey, QuerySums, Scalar, SplitProver, VerifyingKey,
};
use splitprover_tests::naive::{NaiveProver, Setup};
use splitprover_tests::scripted::Altered;

fn few(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Setups of either basis, with up to three public inputs and a dozen constraints.
fn setups() -> impl Strategy<Value = Setup> {
    let basis = prop_oneof![Just(HBasis::Monomial), Just(HBasis::OddLagrange)];
    (any::<u64>(), basis, 0..4usize, 0..4usize, 0..12usize)
        .prop_map(|(seed, basis, public, free, constraints)| Setup::random(seed, basis, public, free, constraints))
}

fn assignment(setup: &Setup, seed: u64) -> Vec<Scalar> {
    setup.circuit.assignment(&mut ChaCha8Rng::seed_from_u64(seed))
}

fn public<'w>(setup: &Setup, w: &'w [Scalar]) -> &'w [Scalar] {
    &w[1..=setup.circuit.num_public]
}

fn prepared(setup: &Setup) -> PreparedVerifyingKey {
    PreparedVerifyingKey::new(setup.key.verifying_key())
}

/// One proof by a backend, with evaluations or without.
fn prove<P: SplitProver>(
    backend: P,
    setup: &Setup,
    w: &[Scalar],
    evaluations: Option<bool>,
    blinding: Blinding,
) -> Result<Proof, FinishError> {
    let memory = HostMemory::default();
    let prover = Prover::new(backend);
    let key = match evaluations {
        None => setup.key.clone(),
        Some(_) => Arc::new(setup.key.without_matrices()),
    };
    let key = prover.load_key(key).unwrap();
    let inputs = match evaluations {
        None => setup.inputs(&memory, w),
        Some(with_c) => setup.inputs_with_evaluations(&memory, w, with_c),
    };
    let in_flight = prover.start(&key, inputs.unwrap()).unwrap();
    assert_eq!(in_flight.public(), public(setup, w));
    let now = memory.ledger().now();
    assert_eq!(now[MemoryClass::Evaluations] + now[MemoryClass::Witness], 0);
    in_flight.finish_with(blinding)
}

fn cpu() -> CpuBackend {
    CpuBackend::new(CpuOptions::default()).unwrap()
}

fn a_proof(setup: &Setup, w: &[Scalar]) -> Proof {
    setup.proof_from_trapdoor(w, Scalar::random(OsRng), Scalar::random(OsRng))
}

// --- proofs that hold, and changes that break them ---------------------------------------------------------------------

proptest! {
    #![proptest_config(few(12))]

    #[test]
    fn proofs_are_those_of_the_trapdoor(setup in setups(), seed: u64) {
        let w = assignment(&setup, seed);
        let (r, s) = (Scalar::random(OsRng), Scalar::random(OsRng));
        let expected = setup.proof_from_trapdoor(&w, r, s);
        prop_assert_eq!(prepared(&setup).verify(&expected, public(&setup, &w)), Ok(true));
        for evaluations in [None, Some(false), Some(true)] {
            let naive = prove(NaiveProver, &setup, &w, evaluations, Blinding::insecure(r, s));
            prop_assert_eq!(naive.unwrap(), expected);
            let cpu = prove(cpu(), &setup, &w, evaluations, Blinding::insecure(r, s));
            prop_assert_eq!(cpu.unwrap(), expected);
        }
    }

    #[test]
    fn extreme_blinding_is_blinding_still(setup in setups(), seed: u64) {
        let w = assignment(&setup, seed);
        for (r, s) in [(Scalar::ZERO, Scalar::ZERO), (Scalar::ONE, Scalar::ZERO), (-Scalar::ONE, -Scalar::ONE)] {
            let proof = prove(NaiveProver, &setup, &w, None, Blinding::insecure(r, s)).unwrap();
            prop_assert_eq!(proof, setup.proof_from_trapdoor(&w, r, s));
        }
        let fresh = || prove(NaiveProver, &setup, &w, None, Blinding::random().unwrap()).unwrap();
        let (x, y) = (fresh(), fresh());
        prop_assert!(x.a() != y.a() && x.b() != y.b() && x.c() != y.c());
    }

    #[test]
    fn a_changed_defined_variable_makes_no_proof(setup in setups(), seed: u64, at: prop::sample::Index) {
        prop_assume!(!setup.circuit.constraints.is_empty());
        let mut w = assignment(&setup, seed);
        let defined = setup.circuit.constraints.len();
        let at = w.len() - defined + at.index(defined);
        w[at] += Scalar::random(&mut ChaCha8Rng::seed_from_u64(seed));
        // The matrices say what a·b is; c goes wrong with the variable only where it is given.
        for evaluations in [None, Some(false), Some(true)] {
            for result in [
                prove(NaiveProver, &setup, &w, evaluations, Blinding::random().unwrap()),
                prove(cpu(), &setup, &w, evaluations, Blinding::random().unwrap()),
            ] {
                prop_assert!(matches!(result, Err(FinishError::ProofInvalid)), "{:?}", result);
            }
        }
    }

    #[test]
    fn a_changed_public_input_does_not_verify(setup in setups(), seed: u64, at: prop::sample::Index) {
        prop_assume!(setup.circuit.num_public > 0);
        let w = assignment(&setup, seed);
        let (proof, key) = (a_proof(&setup, &w), prepared(&setup));
        let mut changed = public(&setup, &w).to_vec();
        let at = at.index(changed.len());
        // A public input may occur in no constraint; the rows that tie the inputs make even that one count.
        for delta in [Scalar::ONE, -Scalar::ONE, Scalar::random(OsRng)] {
            changed[at] += delta;
            prop_assert_eq!(key.verify(&proof, &changed), Ok(false));
            changed[at] -= delta;
        }
        prop_assert_eq!(key.verify(&proof, &changed), Ok(true));
        let expected = changed.len();
        changed.push(Scalar::ZERO);
        prop_assert_eq!(key.verify(&proof, &changed), Err(VerifyError::PublicCount { found: expected + 1, expected }));
        let fewer = &changed[..expected - 1];
        prop_assert_eq!(key.verify(&proof, fewer), Err(VerifyError::PublicCount { found: expected - 1, expected }));
        prop_assert!(key.verify_batch(&[(proof, fewer.to_vec())]).is_err());
    }

    #[test]
    fn a_changed_proof_point_does_not_verify(setup in setups(), seed: u64) {
        let w = assignment(&setup, seed);
        let (proof, key) = (a_proof(&setup, &w), prepared(&setup));
        let (a, b, c) = (proof.a(), proof.b(), proof.c());
        let (g1, g2) = (G1Affine::generator(), G2Affine::generator());
        for (a, b, c) in [
            ((a.to_curve() + g1).into(), b, c),
            (a, (b.to_curve() + g2).into(), c),
            (a, b, (c.to_curve() + g1).into()),
            (-a, b, c),
            (a, -b, c),
            (a, b, -c),
            (c, b, a),
            (G1Affine::identity(), b, c),
            (a, G2Affine::identity(), c),
            (a, b, G1Affine::identity()),
            (G1Affine::identity(), G2Affine::identity(), G1Affine::identity()),
        ] {
            let changed = Proof::new(a, b, c).unwrap();
            prop_assert_eq!(key.verify(&changed, public(&setup, &w)), Ok(false));
            let batch = [(proof, public(&setup, &w).to_vec()), (changed, public(&setup, &w).to_vec())];
            prop_assert_eq!(key.verify_batch(&batch), Ok(false));
        }
        // Groth16 proofs can be rerandomised; both signs turned is the same proof, and must hold.
        prop_assert_eq!(key.verify(&Proof::new(-a, -b, c).unwrap(), public(&setup, &w)), Ok(true));
    }

    #[test]
    fn a_batch_holds_exactly_if_each_proof_does(setup in setups(), seed: u64, bad: prop::sample::Index, count in 1..6usize) {
        let key = prepared(&setup);
        let mut batch: Vec<_> = (0..count as u64)
            .map(|i| {
                let w = assignment(&setup, seed.wrapping_add(i));
                (a_proof(&setup, &w), public(&setup, &w).to_vec())
            })
            .collect();
        prop_assert!(batch.iter().all(|(proof, public)| key.verify(proof, public) == Ok(true)));
        prop_assert_eq!(key.verify_batch(&batch), Ok(true));
        // Two errors that cancel in a plain sum don't in a random one.
        let (c, g) = (batch[0].0.c().to_curve(), G1Affine::generator());
        let shifted = |proof: &Proof, by: G1Projective| {
            Proof::new(proof.a(), proof.b(), (proof.c().to_curve() + by).into()).unwrap()
        };
        let cancelling = [(shifted(&batch[0].0, g.into()), batch[0].1.clone()), (shifted(&batch[0].0, -G1Projective::from(g)), batch[0].1.clone())];
        prop_assert_eq!(key.verify_batch(&cancelling), Ok(false));
        let bad = bad.index(count);
        batch[bad].0 = Proof::new(batch[bad].0.a(), batch[bad].0.b(), (c + c + g).into()).unwrap();
        prop_assert_eq!(key.verify_batch(&batch), Ok(false));
    }
}

#[test]
fn an_empty_batch_holds() {
    assert_eq!(prepared(&Setup::small()).verify_batch(&[]), Ok(true));
}

// --- bad sums ----------------------------------------------------------------------------------------------------------

/// The same number, not reduced: x + q still fits into 384 bits.
fn plus_q(x: &mut blst_fp) {
    let mut carry = 0u128;
    for (limb, modulus) in x.l.iter_mut().zip(FP_MODULUS) {
        let sum = u128::from(*limb) + u128::from(modulus) + carry;
        *limb = sum as u64;
        carry = sum >> 64;
    }
    assert_eq!(carry, 0);
}

/// Points of a group that no sum may be.
trait Bad: PointRecord {
    /// All ways in which `point` can be spoilt without any arithmetic noticing, and what core must say.
    fn spoilt(point: Self) -> Vec<(Self, PointFault)>;
}

impl Bad for G1Affine {
    fn spoilt(point: Self) -> Vec<(Self, PointFault)> {
        let outside = (1u8..).find_map(|x| {
            let mut bytes = [0; 48];
            (bytes[0], bytes[47]) = (0x80, x);
            Option::<Self>::from(Self::from_compressed_unchecked(&bytes))
        });
        let with = |change: fn(&mut blst_p1_affine)| {
            let mut point = point;
            change(point.as_mut());
            point
        };
        vec![
            (with(|p| plus_q(&mut p.x)), PointFault::CoordinateRange),
            (with(|p| plus_q(&mut p.y)), PointFault::CoordinateRange),
            (with(|p| *p = blst_p1_affine { x: blst_fp { l: FP_MODULUS }, y: p.x }), PointFault::CoordinateRange),
            (
                with(|p| *p = blst_p1_affine { x: blst_fp { l: FP_MODULUS }, y: blst_fp { l: FP_MODULUS } }),
                PointFault::CoordinateRange,
            ),
            (with(|p| p.y.l = [u64::MAX; 6]), PointFault::CoordinateRange),
            (with(|p| std::mem::swap(&mut p.x, &mut p.y)), PointFault::OffCurve),
            (with(|p| p.x.l[0] ^= 1), PointFault::OffCurve),
            (with(|p| p.x = blst_fp::default()), PointFault::OffCurve),
            (with(|p| p.y = blst_fp::default()), PointFault::OffCurve),
            (outside.unwrap(), PointFault::OutsideSubgroup),
        ]
    }
}

impl Bad for G2Affine {
    fn spoilt(point: Self) -> Vec<(Self, PointFault)> {
        let outside = (1u8..).find_map(|x| {
            let mut bytes = [0; 96];
            (bytes[0], bytes[95]) = (0x80, x);
            Option::<Self>::from(Self::from_compressed_unchecked(&bytes))
        });
        let with = |change: fn(&mut blst_p2_affine)| {
            let mut point = point;
            change(point.as_mut());
            point
        };
        vec![
            (with(|p| plus_q(&mut p.x.fp[0])), PointFault::CoordinateRange),
            (with(|p| plus_q(&mut p.x.fp[1])), PointFault::CoordinateRange),
            (with(|p| plus_q(&mut p.y.fp[0])), PointFault::CoordinateRange),
            (with(|p| plus_q(&mut p.y.fp[1])), PointFault::CoordinateRange),
            (with(|p| p.y.fp[1].l = [u64::MAX; 6]), PointFault::CoordinateRange),
            (with(|p| std::mem::swap(&mut p.x, &mut p.y)), PointFault::OffCurve),
            (with(|p| p.x.fp.swap(0, 1)), PointFault::OffCurve),
            (with(|p| p.y.fp[1] = blst_fp::default()), PointFault::OffCurve),
            (outside.unwrap(), PointFault::OutsideSubgroup),
        ]
    }
}

/// Every spoilt form of every sum, with the sum's name.
fn spoilt_sums(sums: &QuerySums) -> Vec<(&'static str, QuerySums, PointFault)> {
    let mut all = vec![];
    for (a, fault) in G1Affine::spoilt(sums.a) {
        all.push(("a", QuerySums { a, ..*sums }, fault));
    }
    for (b_g1, fault) in G1Affine::spoilt(sums.b_g1) {
        all.push(("b_g1", QuerySums { b_g1, ..*sums }, fault));
    }
    for (b_g2, fault) in G2Affine::spoilt(sums.b_g2) {
        all.push(("b_g2", QuerySums { b_g2, ..*sums }, fault));
    }
    for (hl, fault) in G1Affine::spoilt(sums.hl) {
        all.push(("hl", QuerySums { hl, ..*sums }, fault));
    }
    all
}

#[test]
fn bad_sums_are_named_and_never_used() {
    let setup = Setup::small();
    let w = assignment(&setup, 5);
    let memory = HostMemory::default();
    let right = Prover::new(NaiveProver);
    let key = right.load_key(setup.key.clone()).unwrap();
    let sums = right.start(&key, setup.inputs(&memory, &w).unwrap()).unwrap().finish_sums().unwrap();
    for (name, bad, fault) in spoilt_sums(&sums) {
        let expect = |result: Result<(), FinishError>| match result {
            Err(FinishError::BadSum { sum, fault: found }) => assert_eq!((sum, found), (name, fault)),
            other => panic!("{name}, {fault}: {other:?}"),
        };
        expect(bad.check());
        expect(Proof::assemble(&setup.key, &bad, Blinding::random().unwrap()).map(drop));
        let lying = Prover::new(Altered::new(NaiveProver, move |sums| *sums = bad));
        let key = lying.load_key(setup.key.clone()).unwrap();
        let start = || lying.start(&key, setup.inputs(&memory, &w).unwrap()).unwrap();
        expect(start().finish().map(drop));
        expect(start().finish_sums().map(drop));
    }
    // The sum of no points is infinity: that is a point like any other.
    let (g1, g2) = (G1Affine::identity(), G2Affine::identity());
    assert!(QuerySums { a: g1, b_g1: g1, b_g2: g2, hl: g1 }.check().is_ok());
}

#[test]
fn proofs_and_keys_are_not_made_of_bad_points() {
    let setup = Setup::small();
    let proof = a_proof(&setup, &assignment(&setup, 1));
    let (a, b, c) = (proof.a(), proof.b(), proof.c());
    let vk = setup.key.verifying_key().clone();
    let remade = |alpha, beta, gamma, delta, ic| VerifyingKey::new(alpha, beta, gamma, delta, ic);
    let (alpha, beta, gamma, delta, ic) = (vk.alpha_g1(), vk.beta_g2(), vk.gamma_g2(), vk.delta_g2(), vk.ic().to_vec());
    assert_eq!(remade(alpha, beta, gamma, delta, ic.clone()).as_ref(), Ok(&vk));
    for (bad, fault) in G1Affine::spoilt(a) {
        let proof = Proof::new(bad, b, c).unwrap_err();
        assert_eq!((proof.point, proof.fault), ("A", fault));
        let proof = Proof::new(a, b, bad).unwrap_err();
        assert_eq!((proof.point, proof.fault), ("C", fault));
        assert!(remade(bad, beta, gamma, delta, ic.clone()).is_err());
        assert!(remade(alpha, beta, gamma, delta, vec![ic[0], bad]).is_err());
        let mut parts = setup.key.parts().clone();
        parts.delta_g1 = bad;
        assert!(ProvingKey::new(parts).is_err());
    }
    for (bad, fault) in G2Affine::spoilt(b) {
        let proof = Proof::new(a, bad, c).unwrap_err();
        assert_eq!((proof.point, proof.fault), ("B", fault));
        assert!(remade(alpha, bad, gamma, delta, ic.clone()).is_err());
        assert!(remade(alpha, beta, bad, delta, ic.clone()).is_err());
        assert!(remade(alpha, beta, gamma, bad, ic.clone()).is_err());
    }
    assert!(remade(alpha, beta, gamma, delta, vec![]).is_err());
    assert!(remade(G1Affine::identity(), beta, gamma, delta, ic.clone()).is_err());
    assert!(remade(alpha, beta, gamma, G2Affine::identity(), ic).is_err());
}

// --- verification ------------------------------------------------------------------------------------------------------

#[test]
fn many_public_inputs_are_summed_as_written() {
    // From eight public inputs on a multi-exponentiation takes over; zero inputs, and infinite bases, aren't its friends.
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for num_public in [0, 1, 7, 8, 9, 40] {
        let point = |rng: &mut ChaCha8Rng| G1Affine::from(G1Projective::random(rng));
        let g2 = |rng: &mut ChaCha8Rng| G2Affine::from(blstrs::G2Projective::random(rng));
        let mut ic: Vec<G1Affine> = (0..=num_public).map(|_| point(&mut rng)).collect();
        let mut public: Vec<Scalar> = (0..num_public).map(|_| Scalar::random(&mut rng)).collect();
        for i in 1..num_public {
            match rng.next_u32() % 6 {
                0 => ic[i] = G1Affine::identity(),
                1 => public[i] = Scalar::ZERO,
                2 => public[i] = -Scalar::ONE,
                3 => (ic[i], public[i]) = (ic[1], public[0]),
                4 => (ic[i], public[i]) = (-ic[1], public[0]),
                _ => {}
            }
        }
        // With B = the generator h, γ = δ = h: A + α' − Σ − C = 0 in G1 for α = a·g, β = h.
        let h = g2(&mut rng);
        let (alpha, c) = (point(&mut rng), point(&mut rng));
        let sum = public.iter().zip(&ic[1..]).fold(ic[0].to_curve(), |sum, (x, p)| sum + p.to_curve() * x);
        let a = G1Affine::from(alpha.to_curve() + sum + c);
        let key = PreparedVerifyingKey::new(&VerifyingKey::new(alpha, h, h, h, ic.clone()).unwrap());
        let proof = Proof::new(a, h, c).unwrap();
        assert_eq!(key.verify(&proof, &public), Ok(true), "{num_public} public inputs");
        assert_eq!(key.verify_batch(&[(proof, public.clone()), (proof, public.clone())]), Ok(true));
        for i in 0..num_public {
            let mut changed = public.clone();
            changed[i] += Scalar::ONE;
            let counts = !bool::from(ic[i + 1].is_identity());
            assert_eq!(key.verify(&proof, &changed), Ok(!counts), "input {i} of {num_public}");
        }
    }
}

#[test]
fn verification_is_the_equation_of_the_paper() {
    let setup = Setup::random(11, HBasis::OddLagrange, 2, 1, 5);
    let w = assignment(&setup, 2);
    let proof = a_proof(&setup, &w);
    let vk = setup.key.verifying_key();
    let e = |p: G1Affine, q: G2Affine| blstrs::Bls12::pairing(&p, &q);
    let x = w[..=2].iter().zip(vk.ic()).map(|(x, p)| p.to_curve() * x).sum::<G1Projective>();
    let right = e(vk.alpha_g1(), vk.beta_g2()) + e(x.into(), vk.gamma_g2()) + e(proof.c(), vk.delta_g2());
    assert_eq!(e(proof.a(), proof.b()), right);
    assert_eq!(prepared(&setup).verify(&proof, &w[1..=2]), Ok(true));
}

// --- the compact encoding ----------------------------------------------------------------------------------------------

#[test]
fn each_proof_has_one_encoding_and_no_flipped_bit_is_another() {
    let setup = Setup::small();
    let proof = a_proof(&setup, &assignment(&setup, 3));
    let infinite = Proof::new(G1Affine::identity(), G2Affine::identity(), G1Affine::identity()).unwrap();
    for proof in [proof, infinite] {
        let bytes = proof.to_bytes();
        assert_eq!(Proof::from_bytes(&bytes), Ok(proof));
        let mut accepted = 0;
        for bit in 0..8 * Proof::BYTES {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(other) = Proof::from_bytes(&flipped) {
                assert_ne!(other, proof);
                assert_eq!(other.to_bytes(), flipped);
                accepted += 1;
            }
        }
        // The sign of y in each point of a finite proof, and nothing else but by a miracle.
        assert_eq!(accepted, if proof == infinite { 0 } else { 3 });
    }
}

#[test]
fn encodings_of_infinity_and_of_unreduced_coordinates_are_canonical_or_refused() {
    let infinite = Proof::new(G1Affine::identity(), G2Affine::identity(), G1Affine::identity()).unwrap().to_bytes();
    for (at, part) in [(0, "A"), (48, "B"), (144, "C")] {
        // 0xc0 is compressed infinity; a sign, a missing flag or a coordinate beside it are something else.
        assert_eq!(infinite[at], 0xc0);
        for first in [0x00, 0x40, 0x80, 0xe0, 0x60, 0xa0, 0x20, 0xc1] {
            let mut bytes = infinite;
            bytes[at] = first;
            if let Ok(read) = Proof::from_bytes(&bytes) {
                panic!("{part} with first byte {first:#x}: {read:?}");
            }
        }
        // x = q is zero, written as no zero may be.
        let mut bytes = infinite;
        let len = if part == "B" { 96 } else { 48 };
        let q: Vec<u8> = FP_MODULUS.iter().rev().flat_map(|limb| limb.to_be_bytes()).collect();
        bytes[at..at + len].fill(0);
        bytes[at + len - 48..at + len].copy_from_slice(&q);
        bytes[at] |= 0x80;
        assert_eq!(Proof::from_bytes(&bytes).unwrap_err().point, part);
    }
}

#[test]
fn compressed_points_outside_the_subgroup_are_refused_as_such() {
    let setup = Setup::small();
    let bytes = a_proof(&setup, &assignment(&setup, 4)).to_bytes();
    for (at, len, part) in [(0, 48, "A"), (48, 96, "B"), (144, 48, "C")] {
        let found = (1..=255u8).any(|x| {
            let mut bad = bytes;
            bad[at..at + len].fill(0);
            (bad[at], bad[at + len - 1]) = (0x80, x);
            let error = Proof::from_bytes(&bad).unwrap_err();
            assert_eq!(error.point, part);
            error.fault == PointFault::OutsideSubgroup
        });
        assert!(found, "{part}");
    }
}
