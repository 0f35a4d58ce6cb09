//! What a `.params` file lacks: the constraint matrices and which variables occur in them.

use std::path::Path;
use std::sync::Arc;

use blstrs::Scalar;
use ff::Field;
use splitprover_core::matrix::MatrixError;
use splitprover_core::{Bitmap, CircuitShape, CsrMatrix, Matrices};

use super::super::error::{FormatResult, Place};
use super::super::r1cs::R1csFile;
use super::Counts;
use crate::setup::constraints::key_matrix;
use crate::setup::{ConstraintSystem, Matrix};

/// A circuit's constraints as bellman proves them: with a row `x·0 = 0` for the constant 1 and each public input after the
/// constraints.
#[derive(Clone, Debug)]
pub struct Circuit {
    matrices: Arc<Matrices>,
    num_public: usize,
    density_a: Arc<Bitmap>,
    density_b: Arc<Bitmap>,
    /// Where it comes from, for messages.
    place: Place,
}

impl Circuit {
    /// The circuit of a constraint file. `path` stands in messages.
    ///
    /// # Errors
    /// If there are 2^32 terms or more, or the file changed.
    pub fn from_r1cs(path: &Path, r1cs: &R1csFile) -> FormatResult<Self> {
        let place = Place::file(path);
        let (a, b) = rayon::join(|| key_matrix(r1cs, Matrix::A), || key_matrix(r1cs, Matrix::B));
        let fail = |e: MatrixError| place.unexpected(None, "constraints", "matrices", e);
        let matrices = Matrices { a: a.map_err(fail)?, b: b.map_err(fail)? };
        r1cs.check_unchanged()?;
        Ok(Self::new(path, Arc::new(matrices), r1cs.num_public()))
    }

    /// A circuit of these matrices, which have the rows of the public inputs. `name` stands in messages.
    pub fn new(name: &Path, matrices: Arc<Matrices>, num_public: usize) -> Self {
        let (density_a, density_b) = rayon::join(|| density(&matrices.a), || density(&matrices.b));
        Self {
            matrices,
            num_public,
            density_a: Arc::new(density_a),
            density_b: Arc::new(density_b),
            place: Place::file(name),
        }
    }

    /// A and B.
    pub fn matrices(&self) -> &Arc<Matrices> {
        &self.matrices
    }

    /// Public inputs, without the constant 1.
    pub fn num_public(&self) -> usize {
        self.num_public
    }

    /// The variables that occur in A.
    pub fn density_a(&self) -> &Arc<Bitmap> {
        &self.density_a
    }

    /// The variables that occur in B.
    pub fn density_b(&self) -> &Arc<Bitmap> {
        &self.density_b
    }

    /// Fails unless a key of these sizes can be this circuit's.
    pub(super) fn check(&self, shape: CircuitShape, counts: Counts, key: &Place) -> FormatResult<()> {
        let key = key.name();
        let require = |what: &str, expected: usize, found: usize| match expected == found {
            true => Ok(()),
            false => Err(self.place.unexpected(None, what, format!("{expected}, as in the key {key}"), found)),
        };
        require("public inputs", shape.num_public, self.num_public)?;
        require("variables", shape.num_variables, self.matrices.a.num_columns())?;
        // bellman's prover and ours agree on a domain only if it is the least that holds the rows.
        let (rows, domain) = (self.matrices.a.num_rows(), shape.domain_size());
        if rows > domain || (domain > 2 && rows <= domain / 2) {
            let expected = format!("{} to {domain}, for the domain of the key {key}", (domain / 2).saturating_add(1));
            return Err(self.place.unexpected(None, "constraints and rows of public inputs", expected, rows));
        }
        require("variables that occur in A", counts.a, self.density_a.count_ones())?;
        require("variables that occur in B", counts.b, self.density_b.count_ones())
    }
}

/// The columns in which some row has a non-zero coefficient, after what stands at one place has been added up.
fn density(matrix: &CsrMatrix) -> Bitmap {
    let mut words = vec![0u64; matrix.num_columns().div_ceil(64)];
    let mut set = |column: u32| {
        if let Some(word) = words.get_mut(column as usize / 64) {
            *word |= 1u64.wrapping_shl(column % 64);
        }
    };
    let zero: Vec<bool> = matrix.dictionary().iter().map(|value| *value == Scalar::ZERO).collect();
    let is_zero = |id: u32| zero.get(id as usize).copied().unwrap_or(false);
    let mut sorted: Vec<(u32, u32)> = Vec::new();
    for bounds in matrix.row_offsets().windows(2) {
        let &[from, to] = bounds else { continue };
        let range = from as usize..to as usize;
        let columns = matrix.columns().get(range.clone()).unwrap_or_default();
        let ids = matrix.coefficients().get(range).unwrap_or_default();
        if columns.is_sorted_by(|x, y| x < y) {
            columns.iter().zip(ids).filter(|(_, id)| !is_zero(**id)).for_each(|(column, _)| set(*column));
            continue;
        }
        sorted.clear();
        sorted.extend(columns.iter().copied().zip(ids.iter().copied()));
        sorted.sort_unstable();
        for run in sorted.chunk_by(|x, y| x.0 == y.0) {
            let value = |id: u32| matrix.dictionary().get(id as usize).copied().unwrap_or(Scalar::ZERO);
            let sum: Scalar = run.iter().map(|&(_, id)| value(id)).sum();
            if let (Some(&(column, _)), true) = (run.first(), sum != Scalar::ZERO) {
                set(column);
            }
        }
    }
    // Columns are below the length, so no bit beyond it is set.
    Bitmap::from_words(words, matrix.num_columns()).unwrap_or_else(|| Bitmap::from_fn(0, |_| false))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_cancels_in_a_row_is_not_dense_and_what_cancels_across_rows_is() {
        let (one, minus) = (Scalar::ONE, -Scalar::ONE);
        let entries = [
            (0, 3, one),
            (0, 1, one),
            (0, 3, minus),
            (1, 2, one),
            (2, 2, minus),
            (3, 70, Scalar::from(5)),
            (3, 0, Scalar::ZERO),
            (4, 4, one),
            (4, 4, one),
        ];
        let matrix = CsrMatrix::from_entries(5, 71, || entries.into_iter()).unwrap();
        assert_eq!(density(&matrix).iter_ones().collect::<Vec<_>>(), [1, 2, 4, 70]);
        let empty = CsrMatrix::from_entries(0, 3, std::iter::empty).unwrap();
        assert_eq!(density(&empty).count_ones(), 0);
    }
}
