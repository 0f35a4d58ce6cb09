//! What the cases prove: keys of any shape with known logarithms, assignments of any kind, and the sums they must give.
//!
//! These keys don't belong to a circuit: their bases are arbitrary, so that any query can be empty, full, repeated or
//! opposite, at any size. Proofs that verify are the business of [`circuit`](super::circuit).

use std::sync::Arc;

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::Field;
use group::prime::PrimeCurveAffine;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;
use splitprover_core::key::Storage;
use splitprover_core::memory::OutOfHostMemory;
use splitprover_core::{
    Bitmap, CsrMatrix, Domain, Evaluations, HBasis, HostMemory, Inputs, Matrices, MemoryClass, PointRecord, PointTable,
    ProvingKey, ProvingKeyParts, Query, QuerySums, RootOfUnity, SharedBytes, VerifyingKey,
};

use super::case::Failure;
use super::oracle::{dot, quotient_scalars};
use super::pool;
pub(crate) use super::witness::Witness;

/// Where the domain's roots come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    Snarkjs,
    Bellman,
    /// No format's: a backend that takes the root from the key doesn't mind.
    Other,
}

impl Root {
    pub(crate) fn value(self) -> RootOfUnity {
        match self {
            Self::Snarkjs => RootOfUnity::snarkjs(),
            Self::Bellman => RootOfUnity::bellman(),
            Self::Other => RootOfUnity::new(RootOfUnity::bellman().value().pow_vartime([7]))
                .expect("an odd power of a primitive root"),
        }
    }
}

/// Which variables have a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Density {
    /// All, and no map says so.
    Full,
    /// All, by a map of ones.
    AllSet,
    Empty,
    /// The first few.
    First(usize),
    /// Each with this probability in 256.
    Random(u8),
}

/// How the bases of a query relate to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bases {
    Distinct,
    /// As many different ones, over and over.
    Repeated(usize),
    /// As many different ones, then their negatives, and so on.
    Opposite(usize),
}

/// The shape of a key. Everything that isn't said here is random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) domain_log2: u32,
    /// Rows of the matrices, and of evaluations that are given.
    pub(crate) rows: usize,
    pub(crate) variables: usize,
    pub(crate) public: usize,
    pub(crate) root: Root,
    pub(crate) h_basis: HBasis,
    pub(crate) a: Density,
    pub(crate) b: Density,
    pub(crate) l: Density,
    pub(crate) h: Density,
    pub(crate) storage: Storage,
    pub(crate) bases: Bases,
    pub(crate) matrices: bool,
    /// Tables begin this many bytes into their memory.
    pub(crate) offset: usize,
}

impl Plan {
    /// A plain key of 2^log2 rows and variables: few variables missing in A, most in B, as in real circuits.
    pub(crate) fn of_log2(domain_log2: u32) -> Self {
        let n = 1usize << domain_log2;
        Self {
            domain_log2,
            rows: n,
            variables: n,
            public: 2.min(n - 1),
            root: Root::Snarkjs,
            h_basis: HBasis::OddLagrange,
            a: Density::Random(250),
            b: Density::Random(64),
            l: Density::Full,
            h: Density::Full,
            storage: Storage::Spread,
            bases: Bases::Distinct,
            matrices: true,
            offset: 0,
        }
    }

    /// The same key in bellman's way: monomial basis, root 7, compact tables, no matrices.
    pub(crate) fn bellman(self) -> Self {
        Self { root: Root::Bellman, h_basis: HBasis::Monomial, storage: Storage::Compact, matrices: false, ..self }
    }

    fn h_len(&self) -> usize {
        match self.h_basis {
            HBasis::Monomial => (1 << self.domain_log2) - 1,
            HBasis::OddLagrange => 1 << self.domain_log2,
        }
    }
}

/// How the evaluations reach the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// It computes them from the key's matrices.
    Matrices,
    /// a and b are given.
    Given,
    /// a, b and c are given.
    GivenWithC,
}

/// A key, and the logarithms of its bases by variable (0 where there is none).
pub(crate) struct Material {
    pub(crate) plan: Plan,
    pub(crate) key: Arc<ProvingKey>,
    pub(crate) a: Vec<Scalar>,
    pub(crate) b: Vec<Scalar>,
    pub(crate) l: Vec<Scalar>,
    pub(crate) h: Vec<Scalar>,
}

/// Values to prove with, and the sums they must give.
pub(crate) struct Assignment {
    pub(crate) witness: Vec<Scalar>,
    /// Rows of a and b, where they are given to the backend, and whether c is too.
    pub(crate) evaluations: Option<(Vec<Scalar>, Vec<Scalar>, bool)>,
    pub(crate) expected: QuerySums,
    /// For messages.
    pub(crate) what: String,
}

impl Assignment {
    /// The inputs, in fresh buffers.
    pub(crate) fn inputs(&self, memory: &HostMemory) -> Result<Inputs, OutOfHostMemory> {
        let witness = memory.copy_of(MemoryClass::Witness, &self.witness)?;
        let Some((a, b, with_c)) = &self.evaluations else { return Ok(Inputs::new(witness)) };
        let c = if *with_c {
            let mut c = memory.zeroed(MemoryClass::Evaluations, a.len())?;
            c.iter_mut().zip(a.iter().zip(b)).for_each(|(c, (a, b))| *c = a * b);
            Some(c)
        } else {
            None
        };
        let a = memory.copy_of(MemoryClass::Evaluations, a)?;
        let b = memory.copy_of(MemoryClass::Evaluations, b)?;
        Ok(Inputs::with_evaluations(witness, Evaluations { a, b, c }))
    }

    /// Whether these are the values of this assignment, untouched.
    pub(crate) fn matches(&self, inputs: &Inputs) -> bool {
        let evaluations = match (&self.evaluations, inputs.evaluations()) {
            (None, None) => true,
            (Some((a, b, with_c)), Some(given)) => {
                let c = given.c.as_ref().map(|c| c.iter().copied().eq(a.iter().zip(b).map(|(a, b)| a * b)));
                given.a[..] == a[..] && given.b[..] == b[..] && c == with_c.then_some(true)
            }
            _ => false,
        };
        inputs.witness()[..] == self.witness[..] && evaluations
    }
}

impl Material {
    /// Makes the key of a plan.
    pub(crate) fn new(plan: Plan, rng: &mut ChaCha8Rng) -> Result<Self, Failure> {
        let private = plan.variables - plan.public - 1;
        // Different windows of one pool: H and L share bases, as nothing forbids.
        let a = choose(&plan, plan.a, plan.variables, 0, rng);
        let b = choose(&plan, plan.b, plan.variables, 17, rng);
        let l = choose(&plan, plan.l, private, 34, rng);
        let h = choose(&plan, plan.h, plan.h_len(), 51, rng);
        let needed = |chosen: &Chosen| chosen.0.iter().flatten().map(|&(index, _)| index + 1).max().unwrap_or(0);
        let longest = [&a, &b, &l, &h].map(needed).into_iter().max().unwrap_or(0);
        let pool = pool::take(longest.max(4), needed(&b).max(4));
        let domain = Domain::new(plan.domain_log2, plan.root.value()).ok_or("the domain is too large")?;
        let fixed = |k: usize| (pool.g1[k], pool.g2[k]);
        let ((alpha, _), (beta_g1, beta_g2), (delta_g1, delta_g2)) = (fixed(1), fixed(2), fixed(3));
        let ic = (0..=plan.public).map(|i| pool.g1[i % pool.g1.len()]).collect();
        let verifying_key = VerifyingKey::new(alpha, beta_g2, G2Affine::generator(), delta_g2, ic)?;
        let matrices = match plan.matrices {
            true => Some(Arc::new(Matrices { a: random_matrix(&plan, 4, rng)?, b: random_matrix(&plan, 3, rng)? })),
            false => None,
        };
        let key = ProvingKey::new(ProvingKeyParts {
            domain,
            h_basis: plan.h_basis,
            verifying_key,
            beta_g1,
            delta_g1,
            a: a.query(&plan, plan.a, &pool.g1),
            b_g1: b.query(&plan, plan.b, &pool.g1),
            b_g2: b.query(&plan, plan.b, &pool.g2),
            l: l.query(&plan, plan.l, &pool.g1),
            h: h.query(&plan, plan.h, &pool.g1),
            matrices,
        })?;
        let [a, b, l, h] = [a, b, l, h].map(|chosen| chosen.logs(&pool.logs));
        Ok(Self { plan, key: Arc::new(key), a, b, l, h })
    }

    /// An assignment of that kind. Evaluations that are given to a key with matrices are the right ones; otherwise they are
    /// as random as the witness.
    pub(crate) fn assign(&self, witness: Witness, form: Form, rng: &mut ChaCha8Rng) -> Assignment {
        let mut values = witness.values(self.plan.variables, rng);
        values[0] = Scalar::ONE;
        let (a, b) = match self.key.matrices() {
            Some(matrices) => (product(&matrices.a, &values), product(&matrices.b, &values)),
            None => (witness.values(self.plan.rows, rng), witness.values(self.plan.rows, rng)),
        };
        self.assign_values(values, a, b, form, format!("witness {}", witness.name()))
    }

    /// An assignment of given values.
    pub(crate) fn assign_values(
        &self,
        witness: Vec<Scalar>,
        a: Vec<Scalar>,
        b: Vec<Scalar>,
        form: Form,
        what: String,
    ) -> Assignment {
        let h = quotient_scalars(self.key.domain(), self.plan.h_basis, &a, &b);
        let hl = dot(&h, &self.h) + dot(&witness[self.plan.public + 1..], &self.l);
        let expected = sums_of_logs(dot(&witness, &self.a), dot(&witness, &self.b), hl);
        let evaluations = match form {
            Form::Matrices => None,
            Form::Given => Some((a, b, false)),
            Form::GivenWithC => Some((a, b, true)),
        };
        Assignment { witness, evaluations, expected, what: format!("{what}, {form:?}") }
    }
}

/// The sums whose logarithms these are.
pub(crate) fn sums_of_logs(a: Scalar, b: Scalar, hl: Scalar) -> QuerySums {
    QuerySums {
        a: (G1Affine::generator() * a).into(),
        b_g1: (G1Affine::generator() * b).into(),
        b_g2: (G2Affine::generator() * b).into(),
        hl: (G1Affine::generator() * hl).into(),
    }
}

/// Row by row, matrix times witness.
pub(crate) fn product(matrix: &CsrMatrix, witness: &[Scalar]) -> Vec<Scalar> {
    (0..matrix.num_rows()).map(|i| matrix.row(i).map(|(j, value)| value * witness[j]).sum()).collect()
}

/// For each variable of a query its point in the pool and whether it is negated.
struct Chosen(Vec<Option<(usize, bool)>>);

fn choose(plan: &Plan, density: Density, len: usize, first: usize, rng: &mut ChaCha8Rng) -> Chosen {
    let mut rank = 0;
    let point = |i: usize| {
        let dense = match density {
            Density::Full | Density::AllSet => true,
            Density::Empty => false,
            Density::First(count) => i < count,
            Density::Random(in_256) => (rng.next_u32() & 255) < u32::from(in_256),
        };
        dense.then(|| {
            let (index, negative) = match plan.bases {
                Bases::Distinct => (rank, false),
                Bases::Repeated(k) => (rank % k, false),
                Bases::Opposite(k) => (rank % k, rank / k % 2 == 1),
            };
            rank += 1;
            (first + index, negative)
        })
    };
    Chosen((0..len).map(point).collect())
}

impl Chosen {
    fn logs(&self, pool: &[Scalar]) -> Vec<Scalar> {
        let log = |chosen: &Option<(usize, bool)>| match *chosen {
            None => Scalar::ZERO,
            Some((index, false)) => pool[index],
            Some((index, true)) => -pool[index],
        };
        self.0.iter().map(log).collect()
    }

    fn query<C: PointRecord + std::ops::Neg<Output = C>>(&self, plan: &Plan, density: Density, pool: &[C]) -> Query<C> {
        let spread = plan.storage == Storage::Spread;
        let kept = self.0.iter().filter(|chosen| spread || chosen.is_some());
        let mut bytes = vec![0xee; plan.offset];
        for chosen in kept {
            let start = bytes.len();
            bytes.resize(start + C::BYTES, 0);
            if let Some((index, negative)) = *chosen {
                let point = if negative { -pool[index] } else { pool[index] };
                point.write_record(&mut bytes[start..]);
            }
        }
        let all = SharedBytes::from(bytes);
        let records = all.slice(plan.offset..all.len()).expect("the offset is inside");
        let table = PointTable::new(records).expect("whole records were written");
        let map = || Arc::new(Bitmap::from_fn(self.0.len(), |i| self.0[i].is_some()));
        let query = match (density, spread) {
            (Density::Full, _) => Some(Query::full(table)),
            (_, true) => Query::spread(table, map()),
            (_, false) => Query::compact(table, map()),
        };
        query.expect("table and map were made for each other")
    }
}

/// A sparse matrix with up to `most` entries in a row: ones, minus ones, small and large coefficients, empty rows, and
/// now and then two entries at the same place.
fn random_matrix(plan: &Plan, most: u32, rng: &mut ChaCha8Rng) -> Result<CsrMatrix, Failure> {
    let large: Vec<Scalar> = (0..5).map(|_| Scalar::random(&mut *rng)).collect();
    let mut entries = Vec::new();
    for row in 0..plan.rows as u32 {
        for _ in 0..rng.next_u32() % (most + 1) {
            let column = rng.next_u32() % plan.variables as u32;
            let value = match rng.next_u32() % 8 {
                0..3 => Scalar::ONE,
                3 | 4 => -Scalar::ONE,
                5 => Scalar::from(u64::from(rng.next_u32() % 100)),
                _ => large[rng.next_u32() as usize % large.len()],
            };
            entries.push((row, column, value));
            if rng.next_u32().is_multiple_of(64) {
                entries.push((row, column, value));
            }
        }
    }
    Ok(CsrMatrix::from_entries(plan.rows, plan.variables, || entries.iter().copied())?)
}

#[cfg(test)]
mod tests {
    use group::Group;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    fn naive<C: PointRecord>(query: &Query<C>, scalars: &[Scalar]) -> C::Curve {
        let terms = query.dense().map(|(variable, record)| query.table().get(record) * scalars[variable]);
        terms.fold(C::Curve::identity(), |sum, term| sum + term)
    }

    /// The expected sums against sums over the key's own points: so the logarithms are those of the points.
    #[test]
    fn expected_sums_are_those_of_the_keys_points() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let plain = Plan { variables: 13, rows: 7, ..Plan::of_log2(3) };
        for plan in [
            plain,
            plain.bellman(),
            Plan { bases: Bases::Opposite(2), a: Density::AllSet, b: Density::Empty, offset: 4, ..plain },
            Plan { bases: Bases::Repeated(3), l: Density::First(2), h: Density::Random(100), ..plain.bellman() },
        ] {
            let material = Material::new(plan, &mut rng).unwrap();
            for witness in Witness::ALL {
                let form = if plan.matrices { Form::Matrices } else { Form::Given };
                let assignment = material.assign(witness, form, &mut rng);
                let key = &material.key;
                let (a, b) = match &assignment.evaluations {
                    Some((a, b, _)) => (a.clone(), b.clone()),
                    None => {
                        let matrices = key.matrices().unwrap();
                        (product(&matrices.a, &assignment.witness), product(&matrices.b, &assignment.witness))
                    }
                };
                let h = quotient_scalars(key.domain(), plan.h_basis, &a, &b);
                let w = &assignment.witness;
                let hl = naive(key.h(), &h) + naive(key.l(), &w[plan.public + 1..]);
                let sums = QuerySums {
                    a: naive(key.a(), w).into(),
                    b_g1: naive(key.b_g1(), w).into(),
                    b_g2: naive(key.b_g2(), w).into(),
                    hl: hl.into(),
                };
                assert_eq!(sums.differences(&assignment.expected), [""; 0], "{plan:?}, {}", assignment.what);
            }
        }
    }

    #[test]
    fn scribbled_inputs_do_not_match_their_assignment() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let material = Material::new(Plan::of_log2(3).bellman(), &mut rng).unwrap();
        let assignment = material.assign(Witness::Dense, Form::GivenWithC, &mut rng);
        let other = material.assign(Witness::Dense, Form::GivenWithC, &mut rng);
        let memory = HostMemory::default();
        assert!(assignment.matches(&assignment.inputs(&memory).unwrap()));
        assert!(!assignment.matches(&other.inputs(&memory).unwrap()));
    }
}
