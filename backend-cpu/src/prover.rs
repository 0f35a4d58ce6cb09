//! The contract, on the CPU: all the work happens in `start`.
//!
//! Steps, and what they free:
//!
//! 1. evaluations a and b: given, or computed from the key's matrices;
//! 2. the witness is sorted by cost into an [`Assignment`], and released;
//! 3. c, unless it was given; the quotient's scalars, in place of a; then c and b are released;
//! 4. the four sums; then a is released. After each sum the key is told that its bases won't be needed soon.
//!
//! A pending proof is the four sums and nothing else.

use std::sync::Arc;

use blstrs::{G1Affine, G2Affine, Scalar};
use group::Curve as _;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use splitprover_core::key::Storage;
use splitprover_core::{
    BackendError, Bitmap, ByteOwner, CircuitShape, HostBuf, HostMemory, Lent, LentEvaluations, LentInputs, MemoryClass,
    PendingSums, PointRecord, PointTable, ProvingKey, Query, QuerySums, SharedBytes, SplitProver,
};

use crate::assignment::{Assignment, JoinedRecords, QueryRecords, Selection};
use crate::field::{Arithmetic, Words, as_words, mul_mod};
use crate::msm::{G1, G2, Part, Picks, Terms, sum};
use crate::quotient::{picks, quotient};
use crate::sparse;

/// Most bases that a sum can tell apart: an index has 31 bits, and H and L share one sum.
const MAX_BASES: usize = 1 << 31;

/// How a [`CpuBackend`] works.
#[derive(Clone, Debug, Default)]
pub struct CpuOptions {
    /// Threads of its own; `None` for rayon's global pool, which obeys `RAYON_NUM_THREADS`.
    pub threads: Option<usize>,
    /// Which arithmetic to use; `None` for the fastest there is.
    pub arithmetic: Option<Arithmetic>,
    /// Where its vectors come from and are charged.
    pub memory: HostMemory,
}

/// The CPU reference backend.
#[derive(Debug)]
pub struct CpuBackend {
    pool: Option<ThreadPool>,
    arithmetic: Arithmetic,
    memory: HostMemory,
}

impl CpuBackend {
    /// A backend with the given options.
    ///
    /// # Errors
    /// [`BackendError`] if the threads can't be started or the processor lacks the arithmetic.
    pub fn new(options: CpuOptions) -> Result<Self, BackendError> {
        let arithmetic = options.arithmetic.unwrap_or_else(Arithmetic::detect);
        if !arithmetic.is_supported() {
            return Err(BackendError::Unsupported(format!("{arithmetic:?} on this processor")));
        }
        let pool = options
            .threads
            .map(|threads| {
                ThreadPoolBuilder::new()
                    .num_threads(threads.max(1))
                    .thread_name(|i| format!("splitprover-{i}"))
                    .build()
                    .map_err(|e| BackendError::device("starting threads", e))
            })
            .transpose()?;
        Ok(Self { pool, arithmetic, memory: options.memory })
    }

    /// The arithmetic in use.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// Threads at work.
    pub fn threads(&self) -> usize {
        self.pool.as_ref().map_or_else(rayon::current_num_threads, ThreadPool::current_num_threads)
    }

    fn prove(&self, key: &ProvingKey, inputs: LentInputs<'_>) -> Result<QuerySums, BackendError> {
        let LentInputs { evaluations, witness, .. } = inputs;
        let n = key.domain().size();
        let mut vectors = match evaluations {
            Some(evaluations) => self.take_evaluations(n, evaluations)?,
            None => self.evaluate(key, &witness)?,
        };
        let assignment = Assignment::new(&witness);
        witness.release();
        {
            let Vectors { a, b, c, c_missing } = &mut vectors;
            if *c_missing {
                multiply(a.words(), b.words(), c.words());
            }
            quotient(key.domain(), key.h_basis(), self.arithmetic, [a.words(), b.words(), c.words()]);
        }
        let Vectors { mut a, b, c, .. } = vectors;
        c.release();
        b.release();
        let sums = self.sums(key, &assignment, a.words());
        a.release();
        Ok(sums)
    }

    /// The same key with an H table that has a record for every scalar: the sum over H and L goes through the tables as they lie.
    /// No format leaves out bases of H, but a key may.
    fn spread_h(&self, key: &ProvingKey, density: &Arc<Bitmap>) -> Result<Arc<ProvingKey>, BackendError> {
        let compact = key.h().table();
        let mut records = self.memory.zeroed::<u8>(MemoryClass::Key, density.len() * G1Affine::BYTES)?;
        for (rank, index) in density.iter_ones().enumerate() {
            records[index * G1Affine::BYTES..][..G1Affine::BYTES].copy_from_slice(compact.record(rank));
        }
        // `records` has a record for each bit of the density, and the density is that of a key whose sizes were checked.
        let table = PointTable::new(SharedBytes::new(Arc::new(Records(records)))).expect("whole records");
        let mut parts = key.parts().clone();
        parts.h = Query::spread(table, density.clone()).expect("a record for each variable");
        Ok(Arc::new(ProvingKey::new(parts).expect("the same sizes as before")))
    }

    /// a and b from the matrices. c is there, but hasn't been touched: until it is, it takes no memory.
    fn evaluate<'i>(&self, key: &ProvingKey, witness: &[Scalar]) -> Result<Vectors<'i>, BackendError> {
        let matrices = key.matrices().ok_or(splitprover_core::error::InputsError::EvaluationsMissing)?;
        let n = key.domain().size();
        let (mut a, mut b, c) = (self.vector(n)?, self.vector(n)?, self.vector(n)?);
        rayon::join(
            || sparse::product(&matrices.a, witness, a.words()),
            || sparse::product(&matrices.b, witness, b.words()),
        );
        Ok(Vectors { a, b, c, c_missing: true })
    }

    /// Given vectors: used in place where they fill the domain, else copied to longer ones and released.
    fn take_evaluations<'i>(&self, n: usize, given: LentEvaluations<'i>) -> Result<Vectors<'i>, BackendError> {
        let LentEvaluations { a, b, c, .. } = given;
        // All memory first: if it can't be had, the caller gets its inputs back.
        let longer = a.len() < n;
        let mut fresh = Vec::new();
        for _ in 0..if longer { 3 } else { usize::from(c.is_none()) } {
            fresh.push(self.vector(n)?);
        }
        let mut fill = |lent: Lent<'i>| {
            let Some(mut vector) = (if longer { fresh.pop() } else { None }) else {
                return Vector::Lent(lent);
            };
            for (to, from) in vector.words().iter_mut().zip(&lent[..]) {
                *to = crate::field::words(from);
            }
            lent.release();
            vector
        };
        let c = c.map(&mut fill);
        let (b, a) = (fill(b), fill(a));
        let c_missing = c.is_none();
        let c = match c {
            Some(c) => c,
            None => fresh.pop().map_or_else(|| self.vector(n), Ok)?,
        };
        Ok(Vectors { a, b, c, c_missing })
    }

    fn vector<'i>(&self, n: usize) -> Result<Vector<'i>, BackendError> {
        Ok(Vector::Own(self.memory.zeroed(MemoryClass::Backend, n)?))
    }

    /// The four multi-exponentiations.
    fn sums(&self, key: &ProvingKey, assignment: &Assignment, h: &[Words]) -> QuerySums {
        let g1 = |query: &Query<G1Affine>| {
            let selection = assignment.select(query, 0, 0);
            let terms = Terms { units: &selection.units, parts: &[part(assignment, &selection)] };
            let sum = sum::<G1, _>(self.arithmetic, &QueryRecords::new(query), &terms).to_affine();
            wont_need(query);
            sum
        };
        let b_g2 = || {
            let query = key.b_g2();
            let selection = assignment.select::<G2Affine>(query, 0, 0);
            let terms = Terms { units: &selection.units, parts: &[part(assignment, &selection)] };
            let sum = sum::<G2, _>(self.arithmetic, &QueryRecords::new(query), &terms).to_affine();
            wont_need(query);
            sum
        };
        let hl = || {
            let selection = assignment.select(key.l(), key.shape().num_public + 1, key.h().table().len() as u32);
            let parts = [Part { scalars: h, picks: picks(key.domain(), key.h_basis()) }, part(assignment, &selection)];
            let terms = Terms { units: &selection.units, parts: &parts };
            let sum = sum::<G1, _>(self.arithmetic, &JoinedRecords::new(key.h(), key.l()), &terms).to_affine();
            wont_need(key.h());
            wont_need(key.l());
            sum
        };
        // One sum has some fifteen windows to share out. More threads than that need several sums at once; fewer are better
        // off with the memory of one.
        if rayon::current_num_threads() > 4 {
            let ((hl, b_g2), (a, b_g1)) =
                rayon::join(|| rayon::join(hl, b_g2), || rayon::join(|| g1(key.a()), || g1(key.b_g1())));
            QuerySums { a, b_g1, b_g2, hl }
        } else {
            let b_g2 = b_g2();
            QuerySums { a: g1(key.a()), b_g1: g1(key.b_g1()), b_g2, hl: hl() }
        }
    }
}

/// A hint, until the next proof.
fn wont_need<C: PointRecord>(query: &Query<C>) {
    query.table().wont_need(0..query.table().len());
}

fn part<'a>(assignment: &'a Assignment, selection: &'a Selection) -> Part<'a> {
    Part { scalars: &assignment.magnitudes, picks: Picks::Some(&selection.picks) }
}

/// Bytes that a key shares.
struct Records(HostBuf<u8>);

impl ByteOwner for Records {}

impl AsRef<[u8]> for Records {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// c = a∘b.
fn multiply(a: &[Words], b: &[Words], c: &mut [Words]) {
    let (a, b) = (a.par_chunks(1 << 10), b.par_chunks(1 << 10));
    c.par_chunks_mut(1 << 10).zip(a.zip(b)).for_each(|(c, (a, b))| {
        for (c, (a, b)) in c.iter_mut().zip(a.iter().zip(b)) {
            *c = mul_mod(a, b);
        }
    });
}

/// Three vectors of n elements.
struct Vectors<'i> {
    a: Vector<'i>,
    b: Vector<'i>,
    c: Vector<'i>,
    /// c is still to be made, from a and b.
    c_missing: bool,
}

/// A vector to work in: the caller's, or the backend's own.
enum Vector<'i> {
    Lent(Lent<'i>),
    Own(HostBuf<Scalar>),
}

impl Vector<'_> {
    fn words(&mut self) -> &mut [Words] {
        match self {
            Self::Lent(lent) => as_words(lent.make_mut()),
            Self::Own(own) => as_words(own),
        }
    }

    fn release(self) {
        if let Self::Lent(lent) = self {
            lent.release();
        }
    }
}

impl SplitProver for CpuBackend {
    type Key = Arc<ProvingKey>;
    type Pending = CpuPending;

    fn load_key(&self, key: &Arc<ProvingKey>) -> Result<Self::Key, BackendError> {
        for (query, bases) in [
            ("A", key.a().table().len()),
            ("B", key.b_g1().table().len().max(key.b_g2().table().len())),
            ("H and L", key.h().table().len() + key.l().table().len()),
        ] {
            if bases >= MAX_BASES {
                return Err(BackendError::Unsupported(format!("{bases} bases in the {query} query, at most 2^31")));
            }
        }
        match (key.h().density(), key.h().storage()) {
            (Some(density), Storage::Compact) => self.spread_h(key, density),
            _ => Ok(key.clone()),
        }
    }

    fn start<'i>(&self, key: &Self::Key, inputs: LentInputs<'i>) -> Result<CpuPending, BackendError> {
        let sums = match &self.pool {
            Some(pool) => pool.install(|| self.prove(key, inputs)),
            None => self.prove(key, inputs),
        }?;
        Ok(CpuPending { sums })
    }

    fn retained_host_bytes(&self, _shape: &CircuitShape) -> u64 {
        // Whatever the size of the proof: the sums, and what the workers' stacks and heaps keep once touched. The allocator may keep
        // more of what it was given back: NOTES.md, "What stays resident after `start`".
        size_of::<CpuPending>() as u64 + (16 << 20)
    }
}

/// A proof whose sums are done.
#[derive(Debug)]
pub struct CpuPending {
    sums: QuerySums,
}

impl PendingSums for CpuPending {
    fn finish(self) -> Result<QuerySums, BackendError> {
        Ok(self.sums)
    }
}
