//! Recording a circuit's constraints.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use bellpepper_core::{Circuit, ConstraintSystem, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use ff::Field;
use splitprover_core::matrix::MatrixError;
use splitprover_core::{CsrMatrix, HostMemory, Inputs, Matrices};

use super::{CircuitError, Counts, Place, input, place, private};
use crate::formats::r1cs::{R1csHeader, write_r1cs};
use crate::formats::{FormatResult, params};
use crate::setup::constraints::{Entry, key_matrix};
use crate::setup::{self, Matrix};

/// The constraints of a circuit, recorded: key generation and `.r1cs` files take them as they are.
#[derive(Clone, Debug)]
pub struct Recording {
    counts: Counts,
    /// A, B and C, without the rows of the public inputs.
    matrices: [CsrMatrix; 3],
}

impl Recording {
    /// Runs a circuit for its constraints. No value is asked of it, so it may be a blank one.
    ///
    /// # Errors
    /// [`CircuitError`]: what the circuit says, or 2^31 variables or 2^32 terms and more.
    pub fn new<C: Circuit<Scalar>>(circuit: C) -> Result<Self, CircuitError> {
        let mut recorder = Recorder { inputs: 1, ..Recorder::default() };
        circuit.synthesize(&mut recorder)?;
        recorder.finish()
    }

    /// The numbers of variables: what [`witness`](super::witness) needs.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The matrices for proving with a `.params` key: A and B with the rows of the public inputs. `name` stands in messages.
    ///
    /// # Errors
    /// [`CircuitError::TooLarge`] if there are 2^32 rows or terms with those.
    pub fn circuit(&self, name: &Path) -> Result<params::Circuit, CircuitError> {
        let (a, b) = rayon::join(|| key_matrix(self, Matrix::A), || key_matrix(self, Matrix::B));
        let matrices = Arc::new(Matrices { a: a?, b: b? });
        Ok(params::Circuit::new(name, matrices, self.counts.num_public))
    }

    /// Runs the circuit for its witness alone.
    ///
    /// # Errors
    /// As [`witness`](super::witness).
    pub fn witness<C: Circuit<Scalar>>(&self, circuit: C, memory: &HostMemory) -> Result<Inputs, CircuitError> {
        super::witness(circuit, self.counts, memory)
    }

    /// Writes the constraints as a `.r1cs`.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn write_r1cs(&self, path: &Path) -> FormatResult<()> {
        let [a, b, c] = &self.matrices;
        // 32 bits hold them: the matrices have been built.
        let header = R1csHeader {
            num_wires: a.num_columns() as u32,
            num_outputs: 0,
            num_public_inputs: self.counts.num_public as u32,
            num_private_inputs: self.counts.num_private as u32,
            num_labels: a.num_columns() as u64,
            num_constraints: a.num_rows() as u32,
        };
        write_r1cs(path, header, [a, b, c], None)
    }
}

impl Recording {
    fn held(&self, matrix: Matrix) -> &CsrMatrix {
        &self.matrices[match matrix {
            Matrix::A => 0,
            Matrix::B => 1,
            Matrix::C => 2,
        }]
    }
}

impl setup::ConstraintSystem for Recording {
    fn num_public(&self) -> usize {
        self.counts.num_public
    }

    fn num_variables(&self) -> usize {
        self.counts.num_variables()
    }

    fn num_constraints(&self) -> usize {
        self.matrices[0].num_rows()
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

/// The bit that marks a private variable until the number of inputs is known.
const PRIVATE: u32 = 1 << 31;

/// One matrix in the making.
struct Rows {
    offsets: Vec<u32>,
    columns: Vec<u32>,
    coefficients: Vec<u32>,
    dictionary: Vec<Scalar>,
    ids: HashMap<[u64; 4], u32>,
}

impl Default for Rows {
    fn default() -> Self {
        let dictionary = vec![Scalar::ONE, -Scalar::ONE];
        Self { offsets: vec![0], columns: Vec::new(), coefficients: Vec::new(), dictionary, ids: HashMap::new() }
    }
}

impl Rows {
    fn push(&mut self, combination: &LinearCombination<Scalar>) {
        for (variable, coefficient) in combination.iter() {
            if *coefficient == Scalar::ZERO {
                continue;
            }
            // An index of 2^31 or more has been refused when the variable was allocated.
            self.columns.push(match place(variable) {
                Place::Input(index) => index as u32,
                Place::Private(index) => index as u32 | PRIVATE,
            });
            let id = self.id(coefficient);
            self.coefficients.push(id);
        }
        // Beyond 32 bits this wraps, and `build` refuses.
        self.offsets.push(self.columns.len() as u32);
    }

    fn id(&mut self, coefficient: &Scalar) -> u32 {
        if let Some(id) = self.dictionary[..2].iter().position(|known| known == coefficient) {
            return id as u32;
        }
        *self.ids.entry(blst::blst_fr::from(*coefficient).l).or_insert_with(|| {
            self.dictionary.push(*coefficient);
            (self.dictionary.len() - 1) as u32
        })
    }

    fn build(mut self, inputs: usize, variables: usize) -> Result<CsrMatrix, MatrixError> {
        for column in &mut self.columns {
            if *column & PRIVATE != 0 {
                *column = (*column & !PRIVATE) + inputs as u32;
            }
        }
        let rows = self.offsets.len() - 1;
        if u32::try_from(rows).is_err() {
            return Err(MatrixError::TooMany { what: "rows", count: rows });
        }
        CsrMatrix::from_parts(self.offsets, self.columns, self.coefficients, self.dictionary, variables)
    }
}

/// A constraint system that asks for no values. Not extensible: the order of constraints is part of a key.
#[derive(Default)]
struct Recorder {
    inputs: usize,
    private: usize,
    rows: [Rows; 3],
}

impl Recorder {
    fn finish(self) -> Result<Recording, CircuitError> {
        let variables = self.inputs + self.private;
        let [a, b, c] = self.rows.map(|rows| rows.build(self.inputs, variables));
        let counts = Counts { num_public: self.inputs - 1, num_private: self.private };
        Ok(Recording { counts, matrices: [a?, b?, c?] })
    }

    /// The next index, if it is below 2^31.
    fn next(count: &mut usize) -> Result<usize, SynthesisError> {
        let index = *count;
        if index >= PRIVATE as usize {
            return Err(std::io::Error::other("2^31 variables or more").into());
        }
        *count += 1;
        Ok(index)
    }
}

impl ConstraintSystem<Scalar> for Recorder {
    type Root = Self;

    fn alloc<F, A, AR>(&mut self, _: A, _: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        Self::next(&mut self.private).map(private)
    }

    fn alloc_input<F, A, AR>(&mut self, _: A, _: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        Self::next(&mut self.inputs).map(input)
    }

    fn enforce<A, AR, LA, LB, LC>(&mut self, _: A, a: LA, b: LB, c: LC)
    where
        A: FnOnce() -> AR,
        AR: Into<String>,
        LA: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LB: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LC: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
    {
        let [of_a, of_b, of_c] = &mut self.rows;
        of_a.push(&a(LinearCombination::zero()));
        of_b.push(&b(LinearCombination::zero()));
        of_c.push(&c(LinearCombination::zero()));
    }

    fn push_namespace<NR: Into<String>, N: FnOnce() -> NR>(&mut self, _: N) {}

    fn pop_namespace(&mut self) {}

    fn get_root(&mut self) -> &mut Self {
        self
    }
}
