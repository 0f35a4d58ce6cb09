//! Constraint matrix times witness.

use blstrs::Scalar;
use ff::Field;
use rayon::prelude::*;
use splitprover_core::CsrMatrix;

use crate::field::{Words, add_mod, mul_mod, sub_mod, words};

/// Rows of one job.
const ROWS: usize = 1 << 10;

/// Row by row, matrix·witness to `out`; rows that the matrix lacks are zero. Montgomery form, canonical.
pub(crate) fn product(matrix: &CsrMatrix, witness: &[Scalar], out: &mut [Words]) {
    let dictionary: Vec<Words> = matrix.dictionary().iter().map(words).collect();
    let (offsets, columns, coefficients) = (matrix.row_offsets(), matrix.columns(), matrix.coefficients());
    out.par_chunks_mut(ROWS).enumerate().for_each(|(job, out)| {
        for (row, out) in (job * ROWS..).zip(out) {
            *out = [0; 4];
            if let Some(&[from, to]) = offsets.get(row..row + 2) {
                let entries = from as usize..to as usize;
                *out = row_product(&columns[entries.clone()], &coefficients[entries], &dictionary, witness);
            }
        }
    });
}

/// One row. Most coefficients are 1 or −1 (indices 0 and 1 of the dictionary), and most values 0 or 1: neither is multiplied.
#[inline]
fn row_product(columns: &[u32], coefficients: &[u32], dictionary: &[Words], witness: &[Scalar]) -> Words {
    let one = words(&Scalar::ONE);
    let mut sum = [0; 4];
    for (&column, &coefficient) in columns.iter().zip(coefficients) {
        let value = words(&witness[column as usize]);
        sum = match coefficient {
            _ if value == [0; 4] => sum,
            0 => add_mod(sum, value),
            1 => sub_mod(sum, value),
            id if value == one => add_mod(sum, dictionary[id as usize]),
            id => add_mod(sum, mul_mod(&dictionary[id as usize], &value)),
        };
    }
    sum
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_core::{RngCore, SeedableRng};

    use super::*;

    #[test]
    fn products_agree_with_the_definition() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (rows, columns) in [(0, 1), (1, 1), (ROWS - 1, 7), (ROWS + 1, 50), (3000, 1000)] {
            let random = Scalar::random(&mut rng);
            let witness: Vec<_> = (0..columns)
                .map(|_| match rng.next_u32() % 4 {
                    0 => Scalar::ZERO,
                    1 => Scalar::ONE,
                    2 => -Scalar::ONE,
                    _ => Scalar::random(&mut rng),
                })
                .collect();
            let places: Vec<_> =
                (0..rows as u32).flat_map(|row| std::iter::repeat_n(row, rng.next_u32() as usize % 5)).collect();
            let entries: Vec<_> = places
                .into_iter()
                .map(|row| {
                    let coefficient = match rng.next_u32() % 5 {
                        0 => Scalar::ONE,
                        1 => -Scalar::ONE,
                        2 => random,
                        3 => Scalar::ZERO,
                        _ => Scalar::from(u64::from(rng.next_u32())),
                    };
                    (row, rng.next_u32() % columns as u32, coefficient)
                })
                .collect();
            let matrix = CsrMatrix::from_entries(rows, columns, || entries.iter().copied()).unwrap();
            let mut expected = vec![Scalar::ZERO; rows + 3];
            for &(row, column, coefficient) in &entries {
                expected[row as usize] += coefficient * witness[column as usize];
            }
            let mut out = vec![[7; 4]; rows + 3];
            product(&matrix, &witness, &mut out);
            assert_eq!(out, expected.iter().map(words).collect::<Vec<_>>(), "{rows} rows");
        }
    }
}
