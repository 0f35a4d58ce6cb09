//! Groth16 by its definition, slowly: circuits with known assignments, keys from a known trapdoor, a prover without any
//! fast algorithm, and proofs written down from the trapdoor without any sum at all.
//!
//! Nothing here is shared with the code under test but the types: the reference must not inherit its mistakes. Sizes up to a
//! few dozen constraints are sensible.

use std::sync::Arc;

use ff::Field;
use group::Curve;
use group::prime::PrimeCurveAffine;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use splitprover_core::key::Storage;
use splitprover_core::memory::OutOfHostMemory;
use splitprover_core::{
    BackendError, CircuitShape, CsrMatrix, Domain, Evaluations, G1Affine, G1Projective, G2Affine, G2Projective, HBasis,
    HostMemory, Inputs, LentEvaluations, LentInputs, Matrices, MemoryClass, PendingSums, PointRecord, PointTable,
    Proof, ProvingKey, ProvingKeyParts, Query, QuerySums, RootOfUnity, Scalar, SplitProver, VerifyingKey,
};

/// A linear combination: (variable, coefficient).
pub type Combination = Vec<(usize, Scalar)>;

/// A constraint system in which each constraint a·b = c defines a variable, so that assignments are easily had.
#[derive(Clone, Debug)]
pub struct Circuit {
    /// Public inputs, without the constant 1.
    pub num_public: usize,
    /// Private variables that no constraint defines.
    pub num_free: usize,
    /// The factors a and b of each constraint; constraint k defines variable 1 + num_public + num_free + k.
    pub constraints: Vec<(Combination, Combination)>,
}

impl Circuit {
    /// A random circuit. Each constraint draws on the variables before its own.
    pub fn random(rng: &mut impl RngCore, num_public: usize, num_free: usize, num_constraints: usize) -> Self {
        let before = 1 + num_public + num_free;
        let mut combination = |known: usize| {
            (0..1 + rng.next_u32() % 3)
                .map(|_| {
                    let variable = rng.next_u32() as usize % known;
                    let coefficient = match rng.next_u32() % 3 {
                        0 => Scalar::ONE,
                        1 => -Scalar::ONE,
                        _ => Scalar::random(&mut *rng),
                    };
                    (variable, coefficient)
                })
                .collect()
        };
        let constraints = (0..num_constraints).map(|k| (combination(before + k), combination(before + k))).collect();
        Self { num_public, num_free, constraints }
    }

    /// Number of variables, with the constant 1.
    pub fn num_variables(&self) -> usize {
        1 + self.num_public + self.num_free + self.constraints.len()
    }

    /// Rows that a key has: the constraints, and one for each of the constant and the public inputs, as in a `.zkey`.
    pub fn num_rows(&self) -> usize {
        self.constraints.len() + self.num_public + 1
    }

    /// A random assignment that satisfies the constraints.
    pub fn assignment(&self, rng: &mut impl RngCore) -> Vec<Scalar> {
        let mut w = vec![Scalar::ONE];
        w.extend((0..self.num_public + self.num_free).map(|_| match rng.next_u32() % 4 {
            0 => Scalar::ZERO,
            1 => Scalar::ONE,
            _ => Scalar::random(&mut *rng),
        }));
        for (a, b) in &self.constraints {
            w.push(value(a, &w) * value(b, &w));
        }
        w
    }

    /// The rows of A, B and C: constraints first, then the rows wᵢ·0 = 0 that tie the public inputs.
    fn rows(&self) -> [Vec<Combination>; 3] {
        let first = 1 + self.num_public + self.num_free;
        let [mut a, mut b, mut c] = [vec![], vec![], vec![]];
        for (k, (x, y)) in self.constraints.iter().enumerate() {
            a.push(x.clone());
            b.push(y.clone());
            c.push(vec![(first + k, Scalar::ONE)]);
        }
        for i in 0..=self.num_public {
            a.push(vec![(i, Scalar::ONE)]);
            b.push(vec![]);
            c.push(vec![]);
        }
        [a, b, c]
    }
}

fn value(combination: &[(usize, Scalar)], w: &[Scalar]) -> Scalar {
    combination.iter().map(|(i, x)| w[*i] * x).sum()
}

/// The secret of a key.
#[derive(Clone, Debug)]
pub struct Trapdoor {
    tau: Scalar,
    alpha: Scalar,
    beta: Scalar,
    gamma: Scalar,
    delta: Scalar,
}

/// A circuit with a key for it, and the key's secret.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The circuit.
    pub circuit: Circuit,
    /// Its key.
    pub key: Arc<ProvingKey>,
    trapdoor: Trapdoor,
    /// Aᵢ(τ), Bᵢ(τ), Cᵢ(τ) for each variable i.
    at_tau: [Vec<Scalar>; 3],
}

fn g1(x: Scalar) -> G1Affine {
    G1Affine::from(G1Projective::from(G1Affine::generator()) * x)
}

fn g2(x: Scalar) -> G2Affine {
    G2Affine::from(G2Projective::from(G2Affine::generator()) * x)
}

/// All Lagrange polynomials of the `n`-th roots of unity at x: (xⁿ − 1)/n · ωⁱ/(x − ωⁱ).
fn lagrange(omega: Scalar, n: usize, x: Scalar) -> Vec<Scalar> {
    let scale = (x.pow_vartime([n as u64]) - Scalar::ONE) * Scalar::from(n as u64).invert().unwrap();
    powers(omega, n).map(|w| scale * w * (x - w).invert().unwrap()).collect()
}

fn powers(x: Scalar, n: usize) -> impl Iterator<Item = Scalar> {
    std::iter::successors(Some(Scalar::ONE), move |y| Some(*y * x)).take(n)
}

fn query<C: PointRecord>(points: &[C]) -> Query<C> {
    Query::from_infinities(PointTable::from_points(points))
}

impl Setup {
    /// A random circuit with a key for it. The same seed gives the same setup.
    pub fn random(seed: u64, h_basis: HBasis, num_public: usize, num_free: usize, num_constraints: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let circuit = Circuit::random(&mut rng, num_public, num_free, num_constraints);
        Self::new(&mut rng, circuit, h_basis)
    }

    /// One public input, three constraints, in snarkjs's basis: for tests that aren't about the mathematics.
    pub fn small() -> Self {
        Self::random(7, HBasis::OddLagrange, 1, 2, 3)
    }

    /// A key for `circuit`. The root of unity is that of the format to which the basis belongs.
    pub fn new(rng: &mut impl RngCore, circuit: Circuit, h_basis: HBasis) -> Self {
        let root = match h_basis {
            HBasis::Monomial => RootOfUnity::bellman(),
            HBasis::OddLagrange => RootOfUnity::snarkjs(),
        };
        let domain = Domain::new(circuit.num_rows().next_power_of_two().trailing_zeros(), root).unwrap();
        let n = domain.size();
        let mut secret = || Scalar::random(&mut *rng);
        let trapdoor = Trapdoor { tau: secret(), alpha: secret(), beta: secret(), gamma: secret(), delta: secret() };
        let Trapdoor { tau, alpha, beta, gamma, delta } = trapdoor;

        let rows = circuit.rows();
        let basis = lagrange(domain.omega(), n, tau);
        let at_tau = rows.each_ref().map(|rows| {
            let mut column = vec![Scalar::ZERO; circuit.num_variables()];
            for (row, at) in rows.iter().zip(&basis) {
                row.iter().for_each(|(i, x)| column[*i] += *at * x);
            }
            column
        });
        let [a, b, c] = &at_tau;
        let public = 1 + circuit.num_public;
        let (over_gamma, over_delta) = (gamma.invert().unwrap(), delta.invert().unwrap());
        let mixed: Vec<Scalar> = (0..a.len()).map(|i| beta * a[i] + alpha * b[i] + c[i]).collect();
        let h: Vec<G1Affine> = match h_basis {
            HBasis::Monomial => {
                let z = tau.pow_vartime([n as u64]) - Scalar::ONE;
                powers(tau, n - 1).map(|x| g1(x * z * over_delta)).collect()
            }
            HBasis::OddLagrange => {
                let all = lagrange(domain.odd_coset_shift(), 2 * n, tau);
                all.iter().skip(1).step_by(2).map(|x| g1(*x * over_delta)).collect()
            }
        };
        let verifying_key = VerifyingKey::new(
            g1(alpha),
            g2(beta),
            g2(gamma),
            g2(delta),
            mixed[..public].iter().map(|x| g1(*x * over_gamma)).collect(),
        )
        .unwrap();
        let matrix = |rows: &[Combination]| {
            let entries =
                || rows.iter().enumerate().flat_map(|(r, row)| row.iter().map(move |(i, x)| (r as u32, *i as u32, *x)));
            CsrMatrix::from_entries(rows.len(), circuit.num_variables(), entries).unwrap()
        };
        let in_g1 = |xs: &[Scalar]| xs.iter().map(|x| g1(*x)).collect::<Vec<_>>();
        let key = ProvingKey::new(ProvingKeyParts {
            domain,
            h_basis,
            verifying_key,
            beta_g1: g1(beta),
            delta_g1: g1(delta),
            a: query(&in_g1(a)),
            b_g1: query(&in_g1(b)),
            b_g2: query(&b.iter().map(|x| g2(*x)).collect::<Vec<_>>()),
            l: query(&mixed[public..].iter().map(|x| g1(*x * over_delta)).collect::<Vec<_>>()),
            h: query(&h),
            matrices: Some(Arc::new(Matrices { a: matrix(&rows[0]), b: matrix(&rows[1]) })),
        })
        .unwrap();
        Self { circuit, key: Arc::new(key), trapdoor, at_tau }
    }

    /// The proof of a satisfying assignment with blinding r, s, from the trapdoor: its discrete logarithms are
    /// a = α + A(τ) + rδ, b = β + B(τ) + sδ and c = (Σ wᵢ·(βAᵢ + αBᵢ + Cᵢ)(τ) + (AB − C)(τ))/δ + sa + rb − rsδ.
    pub fn proof_from_trapdoor(&self, w: &[Scalar], r: Scalar, s: Scalar) -> Proof {
        let Trapdoor { alpha, beta, delta, .. } = self.trapdoor;
        let [at, bt, ct] = self.at_tau.each_ref().map(|xs| xs.iter().zip(w).map(|(x, w)| *x * w).sum::<Scalar>());
        let [ai, bi, ci] = &self.at_tau;
        let private: Scalar =
            (1 + self.circuit.num_public..w.len()).map(|i| w[i] * (beta * ai[i] + alpha * bi[i] + ci[i])).sum();
        let (a, b) = (alpha + at + r * delta, beta + bt + s * delta);
        let c = (private + at * bt - ct) * delta.invert().unwrap() + s * a + r * b - r * s * delta;
        Proof::new(g1(a), g2(b), g1(c)).unwrap()
    }

    /// Inputs of an assignment, without evaluations.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn inputs(&self, memory: &HostMemory, w: &[Scalar]) -> Result<Inputs, OutOfHostMemory> {
        Ok(Inputs::new(memory.copy_of(MemoryClass::Witness, w)?))
    }

    /// Inputs of an assignment, with a, b and, if asked for, c. The constraint rows' only where that is all there is.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn inputs_with_evaluations(
        &self,
        memory: &HostMemory,
        w: &[Scalar],
        with_c: bool,
    ) -> Result<Inputs, OutOfHostMemory> {
        let [a, b, c] = self.circuit.rows().map(|rows| rows.iter().map(|row| value(row, w)).collect::<Vec<_>>());
        let copy = |values: &[Scalar]| memory.copy_of(MemoryClass::Evaluations, values);
        let evaluations = Evaluations { a: copy(&a)?, b: copy(&b)?, c: if with_c { Some(copy(&c)?) } else { None } };
        Ok(Inputs::with_evaluations(memory.copy_of(MemoryClass::Witness, w)?, evaluations))
    }
}

/// A backend that follows the definition.
#[derive(Clone, Copy, Debug, Default)]
pub struct NaiveProver;

/// Its pending proof: the sums are done.
#[derive(Clone, Copy, Debug)]
pub struct NaiveSums(QuerySums);

impl PendingSums for NaiveSums {
    fn finish(self) -> Result<QuerySums, BackendError> {
        Ok(self.0)
    }
}

impl SplitProver for NaiveProver {
    type Key = Arc<ProvingKey>;
    type Pending = NaiveSums;

    fn load_key(&self, key: &Arc<ProvingKey>) -> Result<Self::Key, BackendError> {
        Ok(key.clone())
    }

    fn start<'i>(&self, key: &Self::Key, inputs: LentInputs<'i>) -> Result<NaiveSums, BackendError> {
        let LentInputs { witness: w, evaluations, .. } = inputs;
        let domain = key.domain();
        let n = domain.size();
        let [a, b, c] = match &evaluations {
            Some(LentEvaluations { a, b, c, .. }) => {
                let c = match c {
                    Some(c) => c.to_vec(),
                    None => product(a, b),
                };
                [a.to_vec(), b.to_vec(), c]
            }
            None => {
                let matrices = key.matrices().expect("core checks that");
                let [a, b] = [&matrices.a, &matrices.b].map(|matrix| {
                    (0..matrix.num_rows()).map(|i| value(&matrix.row(i).collect::<Vec<_>>(), &w)).collect::<Vec<_>>()
                });
                let c = product(&a, &b);
                [a, b, c]
            }
        }
        .map(|mut values| {
            values.resize(n, Scalar::ZERO);
            interpolate(&values, domain)
        });
        let h = match key.h_basis() {
            HBasis::Monomial => {
                let mut ab = vec![Scalar::ZERO; 2 * n];
                for (i, x) in a.iter().enumerate() {
                    b.iter().enumerate().for_each(|(j, y)| ab[i + j] += *x * y);
                }
                // The quotient by xⁿ − 1 of a polynomial below degree 2n is its upper half; C is below degree n.
                ab[n..2 * n - 1].to_vec()
            }
            HBasis::OddLagrange => {
                let shift = domain.odd_coset_shift();
                powers(domain.omega(), n).map(|w| shift * w).map(|x| at(&a, x) * at(&b, x) - at(&c, x)).collect()
            }
        };
        let l: G1Projective = sum(key.l(), &w[1 + key.shape().num_public..]).into();
        Ok(NaiveSums(QuerySums {
            a: sum(key.a(), &w),
            b_g1: sum(key.b_g1(), &w),
            b_g2: sum(key.b_g2(), &w),
            hl: (l + sum(key.h(), &h)).into(),
        }))
    }

    fn retained_host_bytes(&self, _shape: &CircuitShape) -> u64 {
        0
    }
}

fn product(a: &[Scalar], b: &[Scalar]) -> Vec<Scalar> {
    a.iter().zip(b).map(|(x, y)| *x * y).collect()
}

/// The coefficients of the polynomial with these values on the domain, by the inverse transform's definition.
fn interpolate(values: &[Scalar], domain: Domain) -> Vec<Scalar> {
    let inverse = domain.omega().invert().unwrap();
    let scale = Scalar::from(domain.size() as u64).invert().unwrap();
    powers(inverse, domain.size()).map(|x| scale * at(values, x)).collect()
}

/// The value at x of the polynomial with these coefficients.
fn at(coefficients: &[Scalar], x: Scalar) -> Scalar {
    coefficients.iter().rev().fold(Scalar::ZERO, |sum, c| sum * x + c)
}

/// Σ xᵢ·Pᵢ over the dense variables, by the density map's own words.
fn sum<C: PointRecord>(query: &Query<C>, scalars: &[Scalar]) -> C {
    let mut total = C::identity().to_curve();
    let mut rank = 0;
    for (i, x) in scalars.iter().enumerate() {
        let dense = query.density().is_none_or(|map| map.get(i));
        let record = if query.storage() == Storage::Spread { i } else { rank };
        if dense {
            total += query.table().get(record).to_curve() * x;
            rank += 1;
        }
    }
    total.to_affine()
}
