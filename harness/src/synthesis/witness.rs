//! Synthesis for the witness alone: constraints aren't looked at, private values go straight to where the prover reads them.

use bellpepper_core::{Circuit, ConstraintSystem, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use ff::Field;
use splitprover_core::{HostBuf, HostMemory, Inputs, MemoryClass};

use super::{CircuitError, input, private};

/// The numbers of a circuit's variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Public inputs, without the constant 1.
    pub num_public: usize,
    /// Private variables.
    pub num_private: usize,
}

impl Counts {
    /// All variables, with the constant 1.
    pub fn num_variables(&self) -> usize {
        self.num_public + 1 + self.num_private
    }
}

/// Runs a circuit of so many variables for its witness. The buffer comes from `memory`: an engine's pool where that is one.
///
/// # Errors
/// [`CircuitError`]: what the circuit says, other numbers of variables, no memory.
pub fn witness<C: Circuit<Scalar>>(circuit: C, counts: Counts, memory: &HostMemory) -> Result<Inputs, CircuitError> {
    let buffer = memory.zeroed(MemoryClass::Witness, counts.num_variables())?;
    let offset = counts.num_public + 1;
    let mut assembly =
        Assembly { inputs: vec![Scalar::ONE], private: Private::Fixed { buffer, offset, used: 0 }, excess: Vec::new() };
    let synthesized = circuit.synthesize(&mut assembly);
    let Assembly { inputs, private, excess } = assembly;
    let Private::Fixed { mut buffer, used, .. } = private else { unreachable!("it was made so") };
    // Before what the circuit says: that may be our own refusal.
    for (what, found, expected) in [
        ("public inputs", inputs.len() - 1, counts.num_public),
        ("private variables", used + excess.len(), counts.num_private),
    ] {
        if found > expected || (found < expected && synthesized.is_ok()) {
            return Err(CircuitError::Other { what, found, expected });
        }
    }
    synthesized?;
    buffer[..offset].copy_from_slice(&inputs);
    Ok(Inputs::new(buffer))
}

/// Where private values go.
enum Private {
    /// To the prover's buffer, from `offset` on.
    Fixed { buffer: HostBuf<Scalar>, offset: usize, used: usize },
    /// A part that will be joined to another.
    Growing(Vec<Scalar>),
}

struct Assembly {
    inputs: Vec<Scalar>,
    private: Private,
    /// Values for which the buffer has no room: the circuit isn't the one that was recorded.
    excess: Vec<Scalar>,
}

impl Assembly {
    fn private_values(&self) -> &[Scalar] {
        match &self.private {
            Private::Fixed { buffer, offset, used } => &buffer[*offset..*offset + *used],
            Private::Growing(values) => values,
        }
    }

    fn reserve(&mut self, count: usize) -> &mut [Scalar] {
        reserve(&mut self.private, &mut self.excess, count)
    }
}

/// Room for so many private values, zeros so far.
fn reserve<'a>(private: &'a mut Private, excess: &'a mut Vec<Scalar>, count: usize) -> &'a mut [Scalar] {
    match private {
        Private::Growing(values) => {
            let from = values.len();
            values.resize(from + count, Scalar::ZERO);
            &mut values[from..]
        }
        Private::Fixed { buffer, offset, used } => {
            let from = *offset + *used;
            if buffer.len() - from < count || !excess.is_empty() {
                let from = excess.len();
                excess.resize(from + count, Scalar::ZERO);
                return &mut excess[from..];
            }
            *used += count;
            &mut buffer[from..from + count]
        }
    }
}

impl ConstraintSystem<Scalar> for Assembly {
    type Root = Self;

    fn new() -> Self {
        // A part that will be joined to another with `extend`; it allocates its own constant 1.
        Self { inputs: Vec::new(), private: Private::Growing(Vec::new()), excess: Vec::new() }
    }

    fn alloc<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        let index = self.private_values().len();
        let value = value()?;
        self.reserve(1)[0] = value;
        match self.excess.is_empty() {
            true => Ok(private(index)),
            false => Err(std::io::Error::other("more private variables than were recorded").into()),
        }
    }

    fn alloc_input<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.inputs.push(value()?);
        Ok(input(self.inputs.len() - 1))
    }

    fn enforce<A, AR, LA, LB, LC>(&mut self, _: A, _: LA, _: LB, _: LC)
    where
        A: FnOnce() -> AR,
        AR: Into<String>,
        LA: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LB: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LC: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
    {
        // Recorded once: nothing is built.
    }

    fn push_namespace<NR: Into<String>, N: FnOnce() -> NR>(&mut self, _: N) {}

    fn pop_namespace(&mut self) {}

    fn get_root(&mut self) -> &mut Self {
        self
    }

    fn is_extensible() -> bool {
        true
    }

    /// Appends a part that was synthesised on its own. It shares nothing but the constant 1, its input 0.
    fn extend(&mut self, other: &Self) {
        self.inputs.extend(other.inputs.iter().skip(1));
        self.extend_aux(other.private_values());
    }

    fn is_witness_generator(&self) -> bool {
        true
    }

    fn extend_inputs(&mut self, new_inputs: &[Scalar]) {
        self.inputs.extend_from_slice(new_inputs);
    }

    fn extend_aux(&mut self, new_aux: &[Scalar]) {
        self.reserve(new_aux.len()).copy_from_slice(new_aux);
    }

    fn allocate_empty(&mut self, aux_n: usize, inputs_n: usize) -> (&mut [Scalar], &mut [Scalar]) {
        let Self { inputs, private, excess } = self;
        let from = inputs.len();
        inputs.resize(from + inputs_n, Scalar::ZERO);
        (reserve(private, excess, aux_n), &mut inputs[from..])
    }

    fn allocate_empty_inputs(&mut self, n: usize) -> &mut [Scalar] {
        let from = self.inputs.len();
        self.inputs.resize(from + n, Scalar::ZERO);
        &mut self.inputs[from..]
    }

    fn allocate_empty_aux(&mut self, n: usize) -> &mut [Scalar] {
        self.reserve(n)
    }

    fn inputs_slice(&self) -> &[Scalar] {
        &self.inputs
    }

    fn aux_slice(&self) -> &[Scalar] {
        self.private_values()
    }
}
