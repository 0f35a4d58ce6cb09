//! Constraint matrices in compressed sparse rows with a coefficient dictionary.
//!
//! A real circuit has few distinct coefficients (1, −1, powers of two, constants of a hash), so an entry is eight bytes: a
//! column and an index into the dictionary. Row i times the witness is the evaluation at row i of the domain.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use blstrs::Scalar;
use ff::Field;

/// What is wrong with the entries of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    /// A row index is at or beyond the number of rows.
    #[error("entry {entry}: row {row} of {rows}")]
    Row {
        /// Position of the entry in the sequence given.
        entry: usize,
        /// Its row.
        row: u32,
        /// Number of rows.
        rows: usize,
    },
    /// A column index is at or beyond the number of variables.
    #[error("entry {entry}: variable {column} of {columns}")]
    Column {
        /// Position of the entry in the sequence given.
        entry: usize,
        /// Its column.
        column: u32,
        /// Number of columns.
        columns: usize,
    },
    /// More entries, rows or columns than 32-bit indices can tell apart.
    #[error("{count} {what}: at most 2^32 - 1 are supported")]
    TooMany {
        /// `"entries"`, `"rows"` or `"variables"`.
        what: &'static str,
        /// How many there are.
        count: usize,
    },
    /// Arrays that don't describe a matrix.
    #[error("{0}")]
    Parts(&'static str),
    /// The entries changed between two passes over them.
    #[error("the entries changed while they were read")]
    Unstable,
}

/// Immutable numbers: a vector's, or in memory that something else keeps alive.
#[derive(Clone)]
pub(crate) struct Numbers<T>(Arc<dyn AsRef<[T]> + Send + Sync>);

impl<T> Numbers<T> {
    pub(crate) fn new(owner: Arc<dyn AsRef<[T]> + Send + Sync>) -> Self {
        Self(owner)
    }
}

impl<T: Send + Sync + 'static> From<Vec<T>> for Numbers<T> {
    fn from(numbers: Vec<T>) -> Self {
        Self(Arc::new(numbers))
    }
}

impl<T> std::ops::Deref for Numbers<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        (*self.0).as_ref()
    }
}

impl<T: PartialEq> PartialEq for Numbers<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Numbers<T> {}

impl<T: fmt::Debug> fmt::Debug for Numbers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A sparse matrix over F_r: rows are constraints, columns are variables. Clones share the numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsrMatrix {
    row_offsets: Numbers<u32>,
    columns: Numbers<u32>,
    coefficients: Numbers<u32>,
    dictionary: Numbers<Scalar>,
    num_columns: usize,
}

impl CsrMatrix {
    /// Builds the matrix from entries (row, column, coefficient) in any order; entries at the same place add up.
    ///
    /// `entries` is called twice, and must give the same sequence both times.
    ///
    /// # Errors
    /// [`MatrixError`] names the first entry out of range.
    pub fn from_entries<I>(num_rows: usize, num_columns: usize, entries: impl Fn() -> I) -> Result<Self, MatrixError>
    where
        I: Iterator<Item = (u32, u32, Scalar)>,
    {
        for (what, count) in [("rows", num_rows), ("variables", num_columns)] {
            if u32::try_from(count).is_err() {
                return Err(MatrixError::TooMany { what, count });
            }
        }
        let mut row_offsets = vec![0u32; num_rows + 1];
        let mut count = 0usize;
        for (entry, (row, column, _)) in entries().enumerate() {
            if row as usize >= num_rows {
                return Err(MatrixError::Row { entry, row, rows: num_rows });
            }
            if column as usize >= num_columns {
                return Err(MatrixError::Column { entry, column, columns: num_columns });
            }
            count = entry + 1;
            if u32::try_from(count).is_err() {
                return Err(MatrixError::TooMany { what: "entries", count });
            }
            row_offsets[row as usize + 1] += 1;
        }
        for i in 0..num_rows {
            row_offsets[i + 1] += row_offsets[i];
        }

        let mut next = row_offsets.clone();
        let (mut columns, mut coefficients) = (vec![0u32; count], vec![0u32; count]);
        let mut dictionary = vec![Scalar::ONE, -Scalar::ONE];
        let mut known: HashMap<[u64; 4], u32> =
            dictionary.iter().zip(0..).map(|(&c, i)| (blst::blst_fr::from(c).l, i)).collect();
        let mut placed = 0usize;
        for (row, column, coefficient) in entries() {
            let row = row as usize;
            let end = row_offsets.get(row + 1).copied().ok_or(MatrixError::Unstable)?;
            let slot = next[row];
            if slot >= end || column as usize >= num_columns {
                return Err(MatrixError::Unstable);
            }
            next[row] = slot + 1;
            let id = *known.entry(blst::blst_fr::from(coefficient).l).or_insert_with(|| {
                dictionary.push(coefficient);
                (dictionary.len() - 1) as u32
            });
            columns[slot as usize] = column;
            coefficients[slot as usize] = id;
            placed += 1;
        }
        if placed != count {
            return Err(MatrixError::Unstable);
        }
        let (columns, coefficients) = (columns.into(), coefficients.into());
        Ok(Self { row_offsets: row_offsets.into(), columns, coefficients, dictionary: dictionary.into(), num_columns })
    }

    /// Takes the arrays of a matrix, as [`row_offsets`](Self::row_offsets), [`columns`](Self::columns),
    /// [`coefficients`](Self::coefficients) and [`dictionary`](Self::dictionary) give them: for readers that fill them in
    /// parallel.
    ///
    /// # Errors
    /// [`MatrixError`] unless the offsets ascend from 0 to the number of entries, columns are below `num_columns`,
    /// coefficients below the dictionary's length, and the dictionary begins with 1 and −1.
    pub fn from_parts(
        row_offsets: Vec<u32>,
        columns: Vec<u32>,
        coefficients: Vec<u32>,
        dictionary: Vec<Scalar>,
        num_columns: usize,
    ) -> Result<Self, MatrixError> {
        let (columns, coefficients) = (columns.into(), coefficients.into());
        Self::from_numbers(row_offsets.into(), columns, coefficients, dictionary.into(), num_columns)
    }

    /// [`from_parts`](Self::from_parts) of numbers that may be somebody else's.
    pub(crate) fn from_numbers(
        row_offsets: Numbers<u32>,
        columns: Numbers<u32>,
        coefficients: Numbers<u32>,
        dictionary: Numbers<Scalar>,
        num_columns: usize,
    ) -> Result<Self, MatrixError> {
        let require = |holds, what| if holds { Ok(()) } else { Err(MatrixError::Parts(what)) };
        for (what, count) in [("variables", num_columns), ("entries", columns.len())] {
            if u32::try_from(count).is_err() {
                return Err(MatrixError::TooMany { what, count });
            }
        }
        require(row_offsets.first() == Some(&0), "the first row doesn't begin at entry 0")?;
        require(row_offsets.is_sorted(), "the row offsets don't ascend")?;
        require(row_offsets.last() == Some(&(columns.len() as u32)), "the last row doesn't end with the entries")?;
        require(columns.len() == coefficients.len(), "not as many coefficients as columns")?;
        require(dictionary.starts_with(&[Scalar::ONE, -Scalar::ONE]), "the dictionary doesn't begin with 1 and -1")?;
        require(
            coefficients.iter().all(|&id| (id as usize) < dictionary.len()),
            "a coefficient has no dictionary entry",
        )?;
        if let Some(entry) = columns.iter().position(|&column| column as usize >= num_columns) {
            return Err(MatrixError::Column { entry, column: columns[entry], columns: num_columns });
        }
        Ok(Self { row_offsets, columns, coefficients, dictionary, num_columns })
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.row_offsets.len() - 1
    }

    /// Number of columns: the variables, with the constant 1 as variable 0.
    pub fn num_columns(&self) -> usize {
        self.num_columns
    }

    /// Number of stored entries.
    pub fn num_entries(&self) -> usize {
        self.columns.len()
    }

    /// Offsets of the rows in [`columns`](Self::columns) and [`coefficients`](Self::coefficients): rows + 1 values,
    /// ascending, from 0 to [`num_entries`](Self::num_entries).
    pub fn row_offsets(&self) -> &[u32] {
        &self.row_offsets
    }

    /// Column of each entry, row by row.
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// Index into [`dictionary`](Self::dictionary) of each entry's coefficient.
    pub fn coefficients(&self) -> &[u32] {
        &self.coefficients
    }

    /// The distinct coefficients. Index 0 is 1 and index 1 is −1, always.
    pub fn dictionary(&self) -> &[Scalar] {
        &self.dictionary
    }

    /// The entries of a row: (column, coefficient).
    ///
    /// # Panics
    /// If `row` is out of range.
    pub fn row(&self, row: usize) -> impl Iterator<Item = (usize, Scalar)> + '_ {
        let range = self.row_offsets[row] as usize..self.row_offsets[row + 1] as usize;
        self.columns[range.clone()]
            .iter()
            .zip(&self.coefficients[range])
            .map(|(&column, &id)| (column as usize, self.dictionary[id as usize]))
    }

    /// Bytes of host memory the matrix takes.
    pub fn host_bytes(&self) -> u64 {
        4 * (self.row_offsets.len() + self.columns.len() + self.coefficients.len()) as u64
            + 32 * self.dictionary.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_whatever_the_order_and_duplicates_stay() {
        let entries = [(2, 0, Scalar::from(9)), (0, 1, Scalar::ONE), (2, 3, -Scalar::ONE), (2, 0, Scalar::from(9))];
        let matrix = CsrMatrix::from_entries(4, 4, || entries.into_iter()).unwrap();
        assert_eq!(matrix.row_offsets(), [0, 1, 1, 4, 4]);
        assert_eq!(matrix.row(0).collect::<Vec<_>>(), [(1, Scalar::ONE)]);
        let nine = (0, Scalar::from(9));
        assert_eq!(matrix.row(2).collect::<Vec<_>>(), [nine, (3, -Scalar::ONE), nine]);
        assert_eq!(matrix.dictionary().len(), 3);
    }

    #[test]
    fn indices_out_of_range_are_named() {
        let build = |entries: [(u32, u32, Scalar); 2]| CsrMatrix::from_entries(2, 3, || entries.into_iter());
        let good = (0, 0, Scalar::ONE);
        assert_eq!(build([good, (2, 0, Scalar::ONE)]), Err(MatrixError::Row { entry: 1, row: 2, rows: 2 }));
        assert_eq!(build([(1, 3, Scalar::ONE), good]), Err(MatrixError::Column { entry: 0, column: 3, columns: 3 }));
    }

    #[test]
    fn parts_are_checked() {
        let pm = vec![Scalar::ONE, -Scalar::ONE];
        let build = |offsets: &[u32], columns: &[u32], ids: &[u32], dictionary: &[Scalar]| {
            CsrMatrix::from_parts(offsets.to_vec(), columns.to_vec(), ids.to_vec(), dictionary.to_vec(), 3)
        };
        let matrix = build(&[0, 1, 1, 2], &[0, 2], &[1, 0], &pm).unwrap();
        let entries = [(0, 0, -Scalar::ONE), (2, 2, Scalar::ONE)];
        assert_eq!(matrix, CsrMatrix::from_entries(3, 3, || entries.into_iter()).unwrap());
        for (offsets, columns, ids, dictionary) in [
            (&[][..], &[][..], &[][..], &pm[..]),
            (&[1, 2], &[0, 1], &[0, 0], &pm),
            (&[0, 2, 1, 2], &[0, 1], &[0, 0], &pm),
            (&[0, 1], &[0, 1], &[0, 0], &pm),
            (&[0, 2], &[0, 1], &[0], &pm),
            (&[0, 1], &[0], &[2], &pm),
            (&[0, 1], &[0], &[0], &pm[..1]),
        ] {
            assert!(matches!(build(offsets, columns, ids, dictionary), Err(MatrixError::Parts(_))), "{offsets:?}");
        }
        assert_eq!(build(&[0, 1], &[3], &[0], &pm), Err(MatrixError::Column { entry: 0, column: 3, columns: 3 }));
    }

    #[test]
    fn a_matrix_without_rows_is_a_matrix() {
        let matrix = CsrMatrix::from_entries(0, 1, std::iter::empty).unwrap();
        assert_eq!((matrix.num_rows(), matrix.num_entries()), (0, 0));
    }
}
