//! The proving key, as every format is read into it.
//!
//! A key is shared, immutable and usually a view of a memory map: tables of [point records](crate::point), density maps, the
//! domain with the format's own root of unity, and the basis in which the quotient polynomial is expected. Where the
//! format carries the constraint matrices (`.zkey` does), the key has them, and evaluations never need to exist on the host.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use blstrs::{G1Affine, G2Affine};
use group::prime::PrimeCurveAffine;

use crate::density::Bitmap;
use crate::domain::Domain;
use crate::error::KeyError;
use crate::matrix::CsrMatrix;
use crate::point::{PointFault, PointRecord};
use crate::verify::VerifyingKey;

/// Immutable memory that [`SharedBytes`] are parts of: a memory map, or a vector.
pub trait ByteOwner: AsRef<[u8]> + Send + Sync {
    /// A hint: nobody will read the bytes of `range` soon. Whoever can have them again from elsewhere, as a map can from its
    /// file, may let go of the memory behind them. They stay readable, and the same, for everybody.
    fn wont_need(&self, _range: Range<usize>) {}

    /// Whether [`wont_need`](Self::wont_need) does anything. Then it is worth some work to be done with one part of the bytes
    /// before the next is read.
    fn lets_go(&self) -> bool {
        false
    }
}

impl ByteOwner for Vec<u8> {}

/// A range of bytes in shared, immutable memory.
#[derive(Clone)]
pub struct SharedBytes {
    owner: Arc<dyn ByteOwner>,
    range: Range<usize>,
}

impl SharedBytes {
    /// All of `owner`.
    pub fn new(owner: Arc<dyn ByteOwner>) -> Self {
        let range = 0..(*owner).as_ref().len();
        Self { owner, range }
    }

    /// A part of these bytes, relative to their beginning; `None` if it isn't inside.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.range.len() {
            return None;
        }
        let base = self.range.start;
        Some(Self { owner: self.owner.clone(), range: base + range.start..base + range.end })
    }

    /// A hint that these bytes won't be read soon: see [`ByteOwner::wont_need`].
    pub fn wont_need(&self) {
        self.owner.wont_need(self.range.clone());
    }

    /// Whether the hint does anything.
    pub fn lets_go(&self) -> bool {
        self.owner.lets_go()
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(Arc::new(bytes))
    }
}

impl std::ops::Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.range.len())
    }
}

/// A table of point records, unaligned.
#[derive(Clone, Debug)]
pub struct PointTable<C> {
    bytes: SharedBytes,
    count: usize,
    curve: PhantomData<C>,
}

impl<C: PointRecord> PointTable<C> {
    /// A view of `bytes` as records; `None` if they aren't a whole number of records. The points aren't looked at.
    pub fn new(bytes: SharedBytes) -> Option<Self> {
        let count = bytes.len() / C::BYTES;
        (count * C::BYTES == bytes.len()).then_some(Self { bytes, count, curve: PhantomData })
    }

    /// A table of its own that holds these points.
    pub fn from_points(points: &[C]) -> Self {
        let mut bytes = vec![0; points.len() * C::BYTES];
        for (record, point) in bytes.chunks_exact_mut(C::BYTES).zip(points) {
            point.write_record(record);
        }
        Self { count: points.len(), bytes: bytes.into(), curve: PhantomData }
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All records, one after the other: `len` × [`PointRecord::BYTES`] bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What the records are stored in.
    pub fn shared_bytes(&self) -> &SharedBytes {
        &self.bytes
    }

    /// A hint that the records of a range, as much of it as there is, won't be read soon: see [`ByteOwner::wont_need`].
    pub fn wont_need(&self, records: Range<usize>) {
        let end = records.end.min(self.count);
        if let Some(bytes) = self.bytes.slice(records.start.min(end) * C::BYTES..end * C::BYTES) {
            bytes.wont_need();
        }
    }

    /// One record.
    ///
    /// # Panics
    /// If `index` is out of range.
    pub fn record(&self, index: usize) -> &[u8] {
        // The product below would wrap for an index far out.
        assert!(index < self.count, "record {index} of {}", self.count);
        &self.bytes[index * C::BYTES..][..C::BYTES]
    }

    /// One point, decoded.
    ///
    /// # Panics
    /// If `index` is out of range.
    pub fn get(&self, index: usize) -> C {
        C::from_record_unchecked(self.record(index))
    }

    /// Checks the records of a range: coordinates below q, on the curve. Infinity passes.
    ///
    /// # Errors
    /// The index of the first faulty record, and its fault.
    ///
    /// # Panics
    /// If `range` is out of range.
    pub fn check(&self, range: Range<usize>) -> Result<(), (usize, PointFault)> {
        assert!(range.start <= range.end && range.end <= self.count, "records {range:?} of {}", self.count);
        let first = range.start;
        self.bytes[range.start * C::BYTES..range.end * C::BYTES]
            .chunks_exact(C::BYTES)
            .enumerate()
            .try_for_each(|(i, record)| C::check_record(record).map_err(|fault| (first + i, fault)))
    }
}

/// How a query's records are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// One record for each dense variable, in order: record k belongs to the k-th set bit.
    Compact,
    /// One record for each variable: record i belongs to variable i, and is all zeros where the bit is clear.
    Spread,
}

/// The points of one query: a base for each *dense* variable.
///
/// A multi-exponentiation over the query is Σ wᵢ·Pᵢ over the dense variables i. Records of dense variables are never
/// infinity.
#[derive(Clone, Debug)]
pub struct Query<C> {
    table: PointTable<C>,
    density: Option<Arc<Bitmap>>,
    storage: Storage,
}

impl<C: PointRecord> Query<C> {
    /// A query in which every variable is dense.
    pub fn full(table: PointTable<C>) -> Self {
        Self { table, density: None, storage: Storage::Compact }
    }

    /// A query with a record for each set bit. `None` unless there are exactly that many records.
    pub fn compact(table: PointTable<C>, density: Arc<Bitmap>) -> Option<Self> {
        (table.len() == density.count_ones()).then_some(Self {
            table,
            density: Some(density),
            storage: Storage::Compact,
        })
    }

    /// A query with a record for each variable, infinity where the bit is clear. `None` unless there are as many records as
    /// bits.
    pub fn spread(table: PointTable<C>, density: Arc<Bitmap>) -> Option<Self> {
        if table.len() != density.len() {
            return None;
        }
        let density = (density.count_ones() < density.len()).then_some(density);
        Some(Self { storage: if density.is_some() { Storage::Spread } else { Storage::Compact }, table, density })
    }

    /// A query over a table in which infinity stands for "not dense", as in a `.zkey`: builds the density map by looking at
    /// every record.
    pub fn from_infinities(table: PointTable<C>) -> Self {
        let density = Bitmap::from_fn(table.len(), |i| table.record(i).iter().any(|&b| b != 0));
        Self::spread(table, Arc::new(density)).expect("the map was made for the table")
    }

    /// The stored records.
    pub fn table(&self) -> &PointTable<C> {
        &self.table
    }

    /// The density map; `None` if every variable is dense.
    pub fn density(&self) -> Option<&Arc<Bitmap>> {
        self.density.as_ref()
    }

    /// How records and variables correspond. Without a density map both readings agree.
    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// Number of variables the query ranges over.
    pub fn num_variables(&self) -> usize {
        self.density.as_ref().map_or(self.table.len(), |d| d.len())
    }

    /// Number of dense variables: the length of the multi-exponentiation.
    pub fn num_dense(&self) -> usize {
        self.density.as_ref().map_or(self.table.len(), |d| d.count_ones())
    }

    /// Pairs (variable, index of its record in the table) of the dense variables, ascending in both.
    pub fn dense(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let all = if self.density.is_none() { 0..self.table.len() } else { 0..0 };
        let some = self.density.iter().flat_map(|d| d.iter_ones().enumerate());
        let spread = self.storage == Storage::Spread;
        all.map(|i| (i, i)).chain(some.map(move |(rank, i)| (i, if spread { i } else { rank })))
    }

    /// Copies the records of the dense variables number `from`, `from` + 1, … (counted among the dense ones) to `out`, as
    /// many as it holds, compacted: what a backend uploads.
    ///
    /// # Panics
    /// If `out` isn't a whole number of records, or asks for more dense records than there are.
    pub fn copy_dense(&self, from: usize, out: &mut [u8]) {
        assert_eq!(out.len() % C::BYTES, 0, "a whole number of records");
        let count = out.len() / C::BYTES;
        assert!(from <= self.num_dense() && count <= self.num_dense() - from, "{from} + {count} dense records");
        match (&self.density, self.storage) {
            (Some(density), Storage::Spread) => {
                let first = density.select(from).unwrap_or(density.len());
                let ones = density.iter_ones_from(first);
                for (record, index) in out.chunks_exact_mut(C::BYTES).zip(ones) {
                    record.copy_from_slice(self.table.record(index));
                }
            }
            _ => out.copy_from_slice(&self.table.as_bytes()[from * C::BYTES..][..count * C::BYTES]),
        }
    }
}

/// The basis in which the key wants the quotient polynomial h = (a·b − c)/Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HBasis {
    /// bellman: scalars are h's n − 1 coefficients, bases τ^i·Z(τ)/δ. The table has n − 1 records.
    Monomial,
    /// snarkjs: scalars are a·b − c on the coset g·⟨ω⟩ with g = [`Domain::odd_coset_shift`], *not* divided by Z; bases are the
    /// odd Lagrange polynomials of the domain of size 2n at τ, over δ. The table has n records.
    OddLagrange,
}

/// The sizes of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitShape {
    /// Public inputs, without the constant 1. Variables 1..=num_public.
    pub num_public: usize,
    /// All variables, with the constant 1 as variable 0.
    pub num_variables: usize,
    /// log2 of the domain size.
    pub domain_log2: u32,
}

impl CircuitShape {
    /// n, the number of rows of the domain.
    pub fn domain_size(&self) -> usize {
        1 << self.domain_log2
    }

    /// Private variables: the length of the L query.
    pub fn num_private(&self) -> usize {
        self.num_variables - self.num_public - 1
    }
}

/// The constraint matrices A and B. C isn't needed: on the domain c = a∘b for a satisfied assignment.
#[derive(Clone, Debug)]
pub struct Matrices {
    /// Matrix A.
    pub a: CsrMatrix,
    /// Matrix B; as many rows as A.
    pub b: CsrMatrix,
}

/// What a [`ProvingKey`] is made of; readers fill it in, [`ProvingKey::new`] checks it.
#[derive(Clone, Debug)]
pub struct ProvingKeyParts {
    /// Evaluation domain, with the format's root.
    pub domain: Domain,
    /// Basis of the H query.
    pub h_basis: HBasis,
    /// The verifying key: α, β, γ, δ and the public inputs' bases.
    pub verifying_key: VerifyingKey,
    /// β in G1.
    pub beta_g1: G1Affine,
    /// δ in G1.
    pub delta_g1: G1Affine,
    /// A query: all variables.
    pub a: Query<G1Affine>,
    /// B query in G1: all variables.
    pub b_g1: Query<G1Affine>,
    /// B query in G2: all variables.
    pub b_g2: Query<G2Affine>,
    /// L query: the private variables num_public + 1 .. num_variables.
    pub l: Query<G1Affine>,
    /// H query: n or n − 1 scalars, by basis.
    pub h: Query<G1Affine>,
    /// Constraint matrices, where the format carries them.
    pub matrices: Option<Arc<Matrices>>,
}

/// A Groth16 proving key over BLS12-381, consistent in its sizes. Shared by `Arc`, never changed.
#[derive(Clone, Debug)]
pub struct ProvingKey {
    parts: ProvingKeyParts,
    shape: CircuitShape,
}

impl ProvingKey {
    /// Checks the parts against each other.
    ///
    /// β and δ in G1 are checked to be in the subgroup. Points of the tables aren't looked at: whoever reads a key from outside
    /// checks them with [`PointTable::check`].
    ///
    /// # Errors
    /// [`KeyError`] names the part and both lengths.
    pub fn new(parts: ProvingKeyParts) -> Result<Self, KeyError> {
        fn expect(part: &'static str, found: usize, expected: usize) -> Result<(), KeyError> {
            if found == expected { Ok(()) } else { Err(KeyError::Length { part, found, expected }) }
        }
        let n = parts.domain.size();
        let num_public = parts.verifying_key.num_public();
        let num_variables = parts.a.num_variables();
        if num_variables <= num_public || u32::try_from(num_variables).is_err() {
            return Err(KeyError::Variables { num_variables, num_public });
        }
        expect("B query in G1", parts.b_g1.num_variables(), num_variables)?;
        expect("B query in G2", parts.b_g2.num_variables(), num_variables)?;
        expect("L query", parts.l.num_variables(), num_variables - num_public - 1)?;
        let h_len = match parts.h_basis {
            HBasis::Monomial => n - 1,
            HBasis::OddLagrange => n,
        };
        expect("H query", parts.h.num_variables(), h_len)?;
        if let Some(matrices) = &parts.matrices {
            expect("columns of matrix A", matrices.a.num_columns(), num_variables)?;
            expect("columns of matrix B", matrices.b.num_columns(), num_variables)?;
            expect("rows of matrix B", matrices.b.num_rows(), matrices.a.num_rows())?;
            if matrices.a.num_rows() > n {
                return Err(KeyError::Rows { rows: matrices.a.num_rows(), domain_size: n });
            }
        }
        // Assembly adds them to every proof, and a proof's points are in the subgroup.
        for (part, point) in [("beta in G1", &parts.beta_g1), ("delta in G1", &parts.delta_g1)] {
            point.check().map_err(|fault| KeyError::Point { part, fault })?;
            if point.is_identity().into() {
                return Err(KeyError::Point { part, fault: PointFault::Infinity });
            }
        }
        let shape = CircuitShape { num_public, num_variables, domain_log2: parts.domain.log2() };
        Ok(Self { parts, shape })
    }

    /// The circuit's sizes.
    pub fn shape(&self) -> CircuitShape {
        self.shape
    }

    /// The evaluation domain, with the format's root of unity.
    pub fn domain(&self) -> Domain {
        self.parts.domain
    }

    /// The basis of the H query.
    pub fn h_basis(&self) -> HBasis {
        self.parts.h_basis
    }

    /// The verifying key.
    pub fn verifying_key(&self) -> &VerifyingKey {
        &self.parts.verifying_key
    }

    /// β in G1.
    pub fn beta_g1(&self) -> G1Affine {
        self.parts.beta_g1
    }

    /// δ in G1.
    pub fn delta_g1(&self) -> G1Affine {
        self.parts.delta_g1
    }

    /// The A query.
    pub fn a(&self) -> &Query<G1Affine> {
        &self.parts.a
    }

    /// The B query in G1.
    pub fn b_g1(&self) -> &Query<G1Affine> {
        &self.parts.b_g1
    }

    /// The B query in G2.
    pub fn b_g2(&self) -> &Query<G2Affine> {
        &self.parts.b_g2
    }

    /// The L query: the private variables.
    pub fn l(&self) -> &Query<G1Affine> {
        &self.parts.l
    }

    /// The H query.
    pub fn h(&self) -> &Query<G1Affine> {
        &self.parts.h
    }

    /// The constraint matrices, where the format carries them.
    pub fn matrices(&self) -> Option<&Arc<Matrices>> {
        self.parts.matrices.as_ref()
    }

    /// The same key without its matrices: proofs then need evaluations.
    pub fn without_matrices(&self) -> Self {
        let mut key = self.clone();
        key.parts.matrices = None;
        key
    }

    /// The parts, to build another key from.
    pub fn parts(&self) -> &ProvingKeyParts {
        &self.parts
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// Remembers what it has been told.
    struct Listener(Vec<u8>, Mutex<Vec<Range<usize>>>);

    impl AsRef<[u8]> for Listener {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl ByteOwner for Listener {
        fn wont_need(&self, range: Range<usize>) {
            self.1.lock().unwrap_or_else(PoisonError::into_inner).push(range);
        }
    }

    #[test]
    fn hints_reach_the_owner_with_its_own_offsets_and_stay_within_the_table() {
        let owner = Arc::new(Listener(vec![0; 1000], Mutex::default()));
        let table = SharedBytes::new(owner.clone()).slice(4..4 + 3 * 96).and_then(PointTable::<G1Affine>::new).unwrap();
        for range in [0..3, 1..2, 2..100, 3..3, 7..9] {
            table.wont_need(range);
        }
        let heard = owner.1.lock().unwrap();
        assert_eq!(heard[..], [4..292, 100..196, 196..292, 292..292, 292..292]);
        assert!(!table.shared_bytes().lets_go());
    }
}
