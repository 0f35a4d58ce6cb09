//! Full synthesis: witness, evaluations, densities.

use bellpepper_core::{Circuit, ConstraintSystem, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use ff::Field;
use splitprover_core::{Bitmap, Evaluations, HostMemory, Inputs, MemoryClass};

use super::{CircuitError, Place, input, place, private};

/// What a full synthesis gives.
#[derive(Debug)]
pub struct Synthesis {
    /// Witness and evaluations, for a proof.
    pub inputs: Inputs,
    /// Public inputs, without the constant 1.
    pub num_public: usize,
    /// Constraints, without the rows of the public inputs.
    pub num_constraints: usize,
    /// Variables that occur in A.
    pub density_a: Bitmap,
    /// Variables that occur in B.
    pub density_b: Bitmap,
    /// The first constraint that the assignment breaks.
    pub first_broken: Option<usize>,
}

/// Runs a circuit for everything a prover needs.
///
/// # Errors
/// [`CircuitError`]: what the circuit says, or no memory. An assignment that breaks a constraint is no error:
/// see [`Synthesis::first_broken`].
pub fn synthesize<C: Circuit<Scalar>>(circuit: C, memory: &HostMemory) -> Result<Synthesis, CircuitError> {
    let mut assembly = Assembly::with_one();
    circuit.synthesize(&mut assembly)?;
    assembly.finish(memory)
}

/// Bits that grow with the variables.
#[derive(Default)]
struct Density(Vec<bool>);

impl Density {
    fn set(&mut self, index: usize) {
        if index >= self.0.len() {
            self.0.resize(index + 1, false);
        }
        self.0[index] = true;
    }

    fn get(&self, index: usize) -> bool {
        self.0.get(index).copied().unwrap_or(false)
    }

    /// The bits of another part, whose variable 0 is variable `base` here.
    fn extend(&mut self, other: &Self, skip: usize, base: usize) {
        (skip..other.0.len()).filter(|&index| other.0[index]).for_each(|index| self.set(base + index - skip));
    }
}

/// A constraint system that evaluates as it goes.
struct Assembly {
    inputs: Vec<Scalar>,
    private: Vec<Scalar>,
    a: Vec<Scalar>,
    b: Vec<Scalar>,
    c: Vec<Scalar>,
    a_private: Density,
    b_inputs: Density,
    b_private: Density,
    first_broken: Option<usize>,
}

impl Assembly {
    fn with_one() -> Self {
        Self {
            inputs: vec![Scalar::ONE],
            private: Vec::new(),
            a: Vec::new(),
            b: Vec::new(),
            c: Vec::new(),
            a_private: Density::default(),
            b_inputs: Density::default(),
            b_private: Density::default(),
            first_broken: None,
        }
    }

    fn value(&self, combination: &LinearCombination<Scalar>) -> Scalar {
        combination.iter().fold(Scalar::ZERO, |sum, (variable, coefficient)| {
            let value = match place(variable) {
                Place::Input(index) => self.inputs[index],
                Place::Private(index) => self.private[index],
            };
            sum + if *coefficient == Scalar::ONE { value } else { value * coefficient }
        })
    }

    fn finish(mut self, memory: &HostMemory) -> Result<Synthesis, CircuitError> {
        let num_constraints = self.a.len();
        self.a.extend_from_slice(&self.inputs);
        self.b.resize(self.a.len(), Scalar::ZERO);
        self.c.resize(self.a.len(), Scalar::ZERO);
        let inputs = self.inputs.len();
        let variables = inputs + self.private.len();
        let mut witness = memory.zeroed(MemoryClass::Witness, variables)?;
        witness[..inputs].copy_from_slice(&self.inputs);
        witness[inputs..].copy_from_slice(&self.private);
        self.private = Vec::new();
        let (a_private, b_inputs, b_private) = (&self.a_private, &self.b_inputs, &self.b_private);
        // Every input has a row of its own in A.
        let density_a = Bitmap::from_fn(variables, |i| i < inputs || a_private.get(i - inputs));
        let density_b =
            Bitmap::from_fn(variables, |i| if i < inputs { b_inputs.get(i) } else { b_private.get(i - inputs) });
        let vector = |values: Vec<Scalar>| memory.copy_of(MemoryClass::Evaluations, &values);
        let evaluations = Evaluations { a: vector(self.a)?, b: vector(self.b)?, c: Some(vector(self.c)?) };
        Ok(Synthesis {
            inputs: Inputs::with_evaluations(witness, evaluations),
            num_public: inputs - 1,
            num_constraints,
            density_a,
            density_b,
            first_broken: self.first_broken,
        })
    }
}

impl ConstraintSystem<Scalar> for Assembly {
    type Root = Self;

    fn new() -> Self {
        // A part that will be joined to another with `extend`; it allocates its own constant 1.
        Self { inputs: Vec::new(), ..Self::with_one() }
    }

    fn alloc<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.private.push(value()?);
        Ok(private(self.private.len() - 1))
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

    fn enforce<A, AR, LA, LB, LC>(&mut self, _: A, a: LA, b: LB, c: LC)
    where
        A: FnOnce() -> AR,
        AR: Into<String>,
        LA: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LB: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LC: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
    {
        let [a, b, c] = [a(LinearCombination::zero()), b(LinearCombination::zero()), c(LinearCombination::zero())];
        for (variable, _) in a.iter().filter(|(_, coefficient)| **coefficient != Scalar::ZERO) {
            if let Place::Private(index) = place(variable) {
                self.a_private.set(index);
            }
        }
        for (variable, _) in b.iter().filter(|(_, coefficient)| **coefficient != Scalar::ZERO) {
            match place(variable) {
                Place::Input(index) => self.b_inputs.set(index),
                Place::Private(index) => self.b_private.set(index),
            }
        }
        let [a, b, c] = [self.value(&a), self.value(&b), self.value(&c)];
        if a * b != c && self.first_broken.is_none() {
            self.first_broken = Some(self.a.len());
        }
        self.a.push(a);
        self.b.push(b);
        self.c.push(c);
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
        let (inputs, private, rows) = (self.inputs.len(), self.private.len(), self.a.len());
        self.inputs.extend(other.inputs.iter().skip(1));
        self.private.extend(&other.private);
        self.a.extend(&other.a);
        self.b.extend(&other.b);
        self.c.extend(&other.c);
        self.a_private.extend(&other.a_private, 0, private);
        self.b_private.extend(&other.b_private, 0, private);
        if other.b_inputs.get(0) {
            self.b_inputs.set(0);
        }
        self.b_inputs.extend(&other.b_inputs, 1, inputs);
        if let (None, Some(broken)) = (self.first_broken, other.first_broken) {
            self.first_broken = Some(rows + broken);
        }
    }
}
