//! Constraint systems: what a key is made for.
//!
//! A system is ⟨Aᵢ, w⟩ · ⟨Bᵢ, w⟩ = ⟨Cᵢ, w⟩ for each row i, with w₀ = 1, then the public inputs, then the private variables. A
//! [`ConstraintSystem`] gives the entries of its matrices one after the other, as often as asked, so that a synthetic circuit of 2^27
//! rows needs no memory; [`Constraints`] is a system held in memory.

use blstrs::Scalar;
use ff::Field;
use rayon::prelude::*;
use splitprover_core::matrix::MatrixError;
use splitprover_core::{CsrMatrix, Evaluations, HostBuf, HostMemory, MemoryClass};

use super::error::SetupError;

/// One of the three matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrix {
    /// Left factors.
    A,
    /// Right factors.
    B,
    /// Products.
    C,
}

/// A non-zero place of a matrix: (row, variable, coefficient).
pub type Entry = (u32, u32, Scalar);

/// A rank-1 constraint system.
pub trait ConstraintSystem: Sync {
    /// Public inputs, without the constant 1: variables 1 ..= `num_public`.
    fn num_public(&self) -> usize;

    /// All variables, with the constant 1 as variable 0.
    fn num_variables(&self) -> usize;

    /// Rows.
    fn num_constraints(&self) -> usize;

    /// The entries of a matrix, rows ascending. Entries at one place add up. The same sequence each time.
    fn entries(&self, matrix: Matrix) -> impl Iterator<Item = Entry> + '_;

    /// A matrix that is held as one, so that a key's needn't be built again from its entries.
    fn matrix(&self, _matrix: Matrix) -> Option<&CsrMatrix> {
        None
    }

    /// The evaluations A·w, B·w, C·w over the constraints and then the rows of the [public inputs](public_rows).
    ///
    /// # Errors
    /// [`SetupError::WitnessLength`], [`SetupError::Matrix`] for an entry out of range, [`SetupError::Memory`].
    fn evaluations(&self, witness: &[Scalar], memory: &HostMemory) -> Result<Evaluations, SetupError> {
        check_witness(self, witness)?;
        let rows = num_rows(self);
        let vector = |matrix| -> Result<HostBuf<Scalar>, SetupError> {
            let mut values = memory.zeroed::<Scalar>(MemoryClass::Evaluations, rows)?;
            for (position, (row, column, coefficient)) in self.entries(matrix).enumerate() {
                check_entry(self, position, row, column)?;
                values[row as usize] += times(&witness[column as usize], &coefficient);
            }
            Ok(values)
        };
        let ((a, b), c) = rayon::join(|| rayon::join(|| vector(Matrix::A), || vector(Matrix::B)), || vector(Matrix::C));
        let (mut a, b, c) = (a?, b?, c?);
        let public = self.num_public();
        a[self.num_constraints()..].copy_from_slice(&witness[..=public]);
        Ok(Evaluations { a, b, c: Some(c) })
    }

    /// The first row that the witness breaks, if there is one.
    ///
    /// # Errors
    /// As [`evaluations`](Self::evaluations).
    fn first_broken(&self, witness: &[Scalar], memory: &HostMemory) -> Result<Option<usize>, SetupError> {
        let Evaluations { a, b, c } = self.evaluations(witness, memory)?;
        let Some(c) = c else { return Ok(None) };
        Ok((0..self.num_constraints()).into_par_iter().find_first(|&row| a[row] * b[row] != c[row]))
    }
}

/// The rows that tie the public inputs to their polynomials, so that no other variable's can stand in for them: after the
/// constraints, row s says w_s · 0 = 0 for s = 0 ..= num_public.
///
/// snarkjs writes these rows to the file; bellman appends the same ones, in the same order, after synthesis.
pub fn public_rows<S: ConstraintSystem + ?Sized>(system: &S) -> impl Iterator<Item = Entry> + '_ {
    let first = system.num_constraints() as u32;
    (0..=system.num_public() as u32).map(move |s| (first + s, s, Scalar::ONE))
}

/// Constraints and public input rows.
pub(crate) fn num_rows<S: ConstraintSystem + ?Sized>(system: &S) -> usize {
    system.num_constraints() + system.num_public() + 1
}

/// A and B as a proving key carries them: with the rows of the public inputs.
pub(crate) fn key_matrix<S: ConstraintSystem>(system: &S, matrix: Matrix) -> Result<CsrMatrix, MatrixError> {
    match system.matrix(matrix) {
        Some(held) => with_public_rows(system, matrix, held),
        None => from_entries(system, matrix),
    }
}

fn from_entries<S: ConstraintSystem>(system: &S, matrix: Matrix) -> Result<CsrMatrix, MatrixError> {
    CsrMatrix::from_entries(num_rows(system), system.num_variables(), || {
        system.entries(matrix).chain(public_rows(system).filter(move |_| matrix == Matrix::A))
    })
}

/// The same from a matrix: its numbers are copied and none is looked up, which for 2^26 rows is seconds against a minute.
fn with_public_rows<S: ConstraintSystem>(
    system: &S,
    matrix: Matrix,
    held: &CsrMatrix,
) -> Result<CsrMatrix, MatrixError> {
    let (rows, public) = (num_rows(system), system.num_public() + 1);
    if u32::try_from(rows).is_err() {
        return Err(MatrixError::TooMany { what: "rows", count: rows });
    }
    let added = if matrix == Matrix::A { public } else { 0 };
    let entries = held.num_entries() + added;
    let last = u32::try_from(entries).map_err(|_| MatrixError::TooMany { what: "entries", count: entries })?;
    let extended = |numbers: &[u32], more: usize| {
        let mut all = Vec::with_capacity(numbers.len() + more);
        all.extend_from_slice(numbers);
        all
    };
    let mut offsets = extended(held.row_offsets(), public);
    let (mut columns, mut coefficients) = (extended(held.columns(), added), extended(held.coefficients(), added));
    // The first of every dictionary is 1.
    coefficients.resize(entries, 0);
    columns.extend(0..added as u32);
    match matrix {
        Matrix::A => offsets.extend(last - added as u32 + 1..=last),
        _ => offsets.resize(rows + 1, last),
    }
    CsrMatrix::from_parts(offsets, columns, coefficients, held.dictionary().to_vec(), held.num_columns())
}

/// `value`·`coefficient`, without a multiplication where the coefficient is 1.
#[inline]
pub(crate) fn times(value: &Scalar, coefficient: &Scalar) -> Scalar {
    if *coefficient == Scalar::ONE { *value } else { value * coefficient }
}

pub(crate) fn check_witness<S: ConstraintSystem + ?Sized>(system: &S, witness: &[Scalar]) -> Result<(), SetupError> {
    let (found, expected) = (witness.len(), system.num_variables());
    if found == expected { Ok(()) } else { Err(SetupError::WitnessLength { found, expected }) }
}

/// Refuses an entry outside the constraints or the variables.
#[inline]
pub(crate) fn check_entry<S: ConstraintSystem + ?Sized>(
    system: &S,
    entry: usize,
    row: u32,
    column: u32,
) -> Result<(), MatrixError> {
    let (rows, columns) = (system.num_constraints(), system.num_variables());
    if row as usize >= rows {
        Err(MatrixError::Row { entry, row, rows })
    } else if column as usize >= columns {
        Err(MatrixError::Column { entry, column, columns })
    } else {
        Ok(())
    }
}

/// A constraint system in memory: eight bytes an entry, as long as there are few distinct coefficients.
#[derive(Clone, Debug)]
pub struct Constraints {
    num_public: usize,
    a: CsrMatrix,
    b: CsrMatrix,
    c: CsrMatrix,
}

impl Constraints {
    /// Builds the three matrices from their entries, which may come in any order and are asked for twice.
    ///
    /// # Errors
    /// [`SetupError::Matrix`] for an entry out of range, [`SetupError::Key`] if there are fewer variables than public inputs.
    pub fn new<I: Iterator<Item = Entry>>(
        num_public: usize,
        num_variables: usize,
        num_constraints: usize,
        entries: impl Fn(Matrix) -> I,
    ) -> Result<Self, SetupError> {
        if num_variables <= num_public {
            return Err(splitprover_core::KeyError::Variables { num_variables, num_public }.into());
        }
        let build = |matrix| CsrMatrix::from_entries(num_constraints, num_variables, || entries(matrix));
        Ok(Self { num_public, a: build(Matrix::A)?, b: build(Matrix::B)?, c: build(Matrix::C)? })
    }

    fn held(&self, matrix: Matrix) -> &CsrMatrix {
        match matrix {
            Matrix::A => &self.a,
            Matrix::B => &self.b,
            Matrix::C => &self.c,
        }
    }
}

impl ConstraintSystem for Constraints {
    fn num_public(&self) -> usize {
        self.num_public
    }

    fn num_variables(&self) -> usize {
        self.a.num_columns()
    }

    fn num_constraints(&self) -> usize {
        self.a.num_rows()
    }

    fn entries(&self, matrix: Matrix) -> impl Iterator<Item = Entry> + '_ {
        let csr = self.held(matrix);
        (0..csr.num_rows())
            .flat_map(move |row| csr.row(row).map(move |(column, value)| (row as u32, column as u32, value)))
    }

    fn matrix(&self, matrix: Matrix) -> Option<&CsrMatrix> {
        Some(self.held(matrix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_that_is_held_makes_the_keys_matrix_as_its_entries_do() {
        let five = Scalar::from(5);
        // A row without entries, a place twice, a coefficient seen later; from no public input to all variables.
        let a = [(0, 1, Scalar::ONE), (0, 3, five), (2, 2, -Scalar::ONE), (2, 2, five), (2, 0, Scalar::from(7))];
        let b = [(1, 3, five), (2, 1, Scalar::ONE)];
        for num_public in 0..=3 {
            for rows in [0, 3] {
                let system = Constraints::new(num_public, 4, rows, |matrix| {
                    let entries = if matrix == Matrix::A { a.to_vec() } else { b.to_vec() };
                    entries.into_iter().filter(move |_| rows > 0)
                });
                let system = system.unwrap();
                for matrix in [Matrix::A, Matrix::B] {
                    let built = from_entries(&system, matrix).unwrap();
                    assert_eq!(built.num_rows(), rows + num_public + 1);
                    assert_eq!(
                        key_matrix(&system, matrix).unwrap(),
                        built,
                        "{matrix:?}, {num_public} public, {rows} rows"
                    );
                }
            }
        }
    }
}
