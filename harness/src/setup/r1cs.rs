//! Constraints from a circom `.r1cs` file, read from its map each time they are asked for.

use super::constraints::{ConstraintSystem, Entry, Matrix};
use crate::formats::R1csFile;
use crate::formats::r1cs::Side;

/// A file that changes meanwhile gives a wrong key or an error: call [`R1csFile::check_unchanged`] at the end.
impl ConstraintSystem for R1csFile {
    fn num_public(&self) -> usize {
        self.header().num_public()
    }

    fn num_variables(&self) -> usize {
        self.header().num_wires as usize
    }

    fn num_constraints(&self) -> usize {
        self.header().num_constraints as usize
    }

    fn entries(&self, matrix: Matrix) -> impl Iterator<Item = Entry> + '_ {
        R1csFile::entries(
            self,
            match matrix {
                Matrix::A => Side::A,
                Matrix::B => Side::B,
                Matrix::C => Side::C,
            },
        )
    }
}
