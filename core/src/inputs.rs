//! What is proved: evaluation vectors and the witness, owned by the caller, then lent to a backend.
//!
//! [`Inputs`] are moved into [`Prover::start`](crate::Prover::start), which puts them in slots of its own stack frame and
//! lends them as [`LentInputs<'i>`](LentInputs). A backend's `start` is generic over `'i`, and everything that outlives
//! the call (`Self`, its key, its pending proof, its errors, panic payloads) is `'static`: nothing it can keep can name
//! the loan. When the call ends, core frees what is left in the slots, or hands it back.
//!
//! That holds for safe code. What no type can stop: a backend can *copy* what it reads (and must, to a device); `unsafe` code
//! can keep a raw pointer; abuse of compiler bugs, or of `/proc/self/mem`, can do anything. Against copies there are the
//! [ledger](crate::memory) and measurements of the process's resident memory; against late reads,
//! [`Disposal::Poison`](crate::Disposal::Poison) and [`Disposal::Guard`](crate::Disposal::Guard).

use std::ops::Deref;

use blstrs::Scalar;
use ff::Field;

use crate::error::InputsError;
use crate::host_buf::{HostBuf, Origin};
use crate::key::{CircuitShape, ProvingKey};

/// The evaluation vectors: row i of A·w, B·w, C·w for each constraint i. Montgomery form, at most the domain's size, all of
/// one length; rows beyond are zero.
#[derive(Debug)]
pub struct Evaluations {
    /// A·w.
    pub a: HostBuf<Scalar>,
    /// B·w.
    pub b: HostBuf<Scalar>,
    /// C·w; `None` where it is a∘b, as it is for a satisfied assignment.
    pub c: Option<HostBuf<Scalar>>,
}

/// The inputs of one proof. Not `Clone`: the memory exists once, and is gone when `start` returns.
#[derive(Debug)]
pub struct Inputs {
    witness: HostBuf<Scalar>,
    evaluations: Option<Evaluations>,
}

impl Inputs {
    /// The full assignment: the constant 1, the public inputs, the private variables, in Montgomery form. The backend
    /// computes the evaluations from the key's matrices.
    pub fn new(witness: HostBuf<Scalar>) -> Self {
        Self { witness, evaluations: None }
    }

    /// The full assignment, with evaluations computed elsewhere.
    pub fn with_evaluations(witness: HostBuf<Scalar>, evaluations: Evaluations) -> Self {
        Self { witness, evaluations: Some(evaluations) }
    }

    /// The full assignment.
    pub fn witness(&self) -> &HostBuf<Scalar> {
        &self.witness
    }

    /// The evaluations, where they were given.
    pub fn evaluations(&self) -> Option<&Evaluations> {
        self.evaluations.as_ref()
    }

    /// Checks that the inputs can belong to the key: lengths, and the constant 1.
    ///
    /// # Errors
    /// [`InputsError`] names what doesn't fit.
    pub fn check(&self, key: &ProvingKey) -> Result<(), InputsError> {
        self.check_shape(&key.shape(), key.matrices().is_some())
    }

    /// [`check`](Self::check) for whoever knows of the key only its sizes, and whether it has matrices.
    pub(crate) fn check_shape(&self, shape: &CircuitShape, matrices: bool) -> Result<(), InputsError> {
        if self.witness.len() != shape.num_variables {
            return Err(InputsError::WitnessLength { found: self.witness.len(), expected: shape.num_variables });
        }
        if self.witness[0] != Scalar::ONE {
            return Err(InputsError::FirstNotOne);
        }
        let Some(Evaluations { a, b, c }) = &self.evaluations else {
            return if matrices { Ok(()) } else { Err(InputsError::EvaluationsMissing) };
        };
        if a.len() > shape.domain_size() {
            let expected = shape.domain_size();
            return Err(InputsError::EvaluationLength { vector: "a", found: a.len(), expected });
        }
        for (vector, found) in [("b", Some(b.len())), ("c", c.as_ref().map(|c| c.len()))] {
            if let Some(found) = found.filter(|&found| found != a.len()) {
                return Err(InputsError::EvaluationLength { vector, found, expected: a.len() });
            }
        }
        Ok(())
    }
}

/// One vector's place in core's frame during a loan.
#[derive(Debug)]
struct Slot {
    buffer: Option<HostBuf<Scalar>>,
    /// Released, or handed out mutably: the inputs can't be handed back.
    spent: bool,
    /// For measurements: a release frees nothing.
    #[cfg(feature = "bench-hold")]
    hold: bool,
}

impl Slot {
    fn new(buffer: HostBuf<Scalar>) -> Self {
        Self {
            buffer: Some(buffer),
            spent: false,
            #[cfg(feature = "bench-hold")]
            hold: false,
        }
    }

    fn free(&mut self) {
        #[cfg(feature = "bench-hold")]
        if self.hold {
            return;
        }
        self.buffer = None;
    }
}

/// The slots of one `start`. Lives in core's frame; owns the buffers throughout.
#[derive(Debug)]
pub(crate) struct Slots {
    witness: Slot,
    evaluations: Option<(Slot, Slot, Option<Slot>)>,
}

impl Slots {
    pub(crate) fn new(inputs: Inputs) -> Self {
        let evaluations =
            inputs.evaluations.map(|Evaluations { a, b, c }| (Slot::new(a), Slot::new(b), c.map(Slot::new)));
        Self { witness: Slot::new(inputs.witness), evaluations }
    }

    /// From now on a release frees nothing: the buffers live as long as the slots.
    #[cfg(feature = "bench-hold")]
    pub(crate) fn hold(&mut self) {
        self.witness.hold = true;
        if let Some((a, b, c)) = &mut self.evaluations {
            [Some(a), Some(b), c.as_mut()].into_iter().flatten().for_each(|slot| slot.hold = true);
        }
    }

    pub(crate) fn lend(&mut self) -> LentInputs<'_> {
        LentInputs {
            evaluations: self.evaluations.as_mut().map(|(a, b, c)| LentEvaluations {
                a: Lent(a),
                b: Lent(b),
                c: c.as_mut().map(Lent),
            }),
            witness: Lent(&mut self.witness),
        }
    }

    /// The inputs, if no vector was released or borrowed mutably; else what is left is freed.
    pub(crate) fn take_back(self) -> Option<Inputs> {
        let whole = |slot: Slot| slot.buffer.filter(|_| !slot.spent);
        let witness = whole(self.witness)?;
        let evaluations = match self.evaluations {
            None => None,
            Some((a, b, None)) => Some(Evaluations { a: whole(a)?, b: whole(b)?, c: None }),
            Some((a, b, Some(c))) => Some(Evaluations { a: whole(a)?, b: whole(b)?, c: Some(whole(c)?) }),
        };
        Some(Inputs { witness, evaluations })
    }
}

/// The inputs of one proof, lent to a backend for the duration of its `start`.
///
/// Only core can make one. Destructure it with `..`:
/// `let LentInputs { witness, evaluations, .. } = inputs;`
#[derive(Debug)]
#[non_exhaustive]
pub struct LentInputs<'i> {
    /// The evaluation vectors; `None`: compute them from the key's matrices.
    pub evaluations: Option<LentEvaluations<'i>>,
    /// The full assignment, [`CircuitShape::num_variables`](crate::CircuitShape::num_variables) values.
    pub witness: Lent<'i>,
}

/// The evaluation vectors, lent. All of one length, at most the domain's size; rows beyond are zero.
#[derive(Debug)]
#[non_exhaustive]
pub struct LentEvaluations<'i> {
    /// A·w.
    pub a: Lent<'i>,
    /// B·w.
    pub b: Lent<'i>,
    /// C·w; `None`: it is a∘b on the domain.
    pub c: Option<Lent<'i>>,
}

/// One vector, lent: scalars in Montgomery form.
///
/// Core owns the memory. [`release`](Self::release) frees it early, as soon as the backend has read it; dropping or
/// forgetting a `Lent` only ends the loan, and core frees the vector when `start` returns.
#[derive(Debug)]
pub struct Lent<'i>(&'i mut Slot);

impl Lent<'_> {
    /// Frees the vector now. The inputs can't be handed back after this.
    pub fn release(self) {
        self.0.spent = true;
        self.0.free();
    }

    /// The vector to write to, as scratch space. The inputs can't be handed back after this.
    pub fn make_mut(&mut self) -> &mut [Scalar] {
        self.0.spent = true;
        match &mut self.0.buffer {
            Some(buffer) => buffer,
            None => &mut [],
        }
    }

    /// Where the memory comes from: a backend uploads straight from a buffer of its own pinned pool.
    pub fn origin(&self) -> Origin {
        self.0.buffer.as_ref().map_or(Origin::Pageable, HostBuf::origin)
    }
}

impl Deref for Lent<'_> {
    type Target = [Scalar];

    fn deref(&self) -> &[Scalar] {
        // Only `release` empties a slot, and it takes the `Lent` with it.
        self.0.buffer.as_deref().unwrap_or(&[])
    }
}
