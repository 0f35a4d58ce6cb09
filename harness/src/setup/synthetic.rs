//! Synthetic circuits with the value statistics of real ones, at any size.
//!
//! A circuit of 2^k rows has 2^k − 8 gates. Of every 64 gates the first [`Shape::bits`] make a bit, half of them 1; every fourth says
//! b·(1 − b) = 0, the others b·1 = b, so that few variables occur in B. The other gates make a chain of squarings y = x² + i, i the gate's
//! number, whose last value is the public output. With `porep` the values are distributed as in proofs of replication, with `dense` as
//! in circuits of field elements.
//!
//! | variable | what |
//! |---|---|
//! | 0 | the constant 1 |
//! | 1 | the output, public |
//! | 2 | the chain's first value |
//! | 3 + i | the value that gate i makes |
//!
//! Gate i is row i; one more row, x·1 = output, follows. With the rows of the two public variables 2^k − 5 rows of the domain of 2^k
//! are in use.

use std::str::FromStr;

use blstrs::Scalar;
use ff::Field;
use rayon::prelude::*;
use splitprover_core::{Evaluations, HostBuf, HostMemory, MemoryClass};

use super::constraints::{ConstraintSystem, Entry, Matrix, check_witness, num_rows};
use super::error::SetupError;
use super::trapdoor::ScalarStream;

/// Gates come in groups of this many.
const GROUP: usize = 64;
/// Index of the first gate's variable.
const FIRST: usize = 3;
/// Groups of gates per unit of parallel work.
const GROUPS_PER_TASK: usize = 256;

/// How many of the variables are bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// 63 of 64: as in proofs of replication.
    Porep,
    /// 56 of 64.
    Mixed,
    /// None.
    Dense,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 3] = [Self::Porep, Self::Mixed, Self::Dense];

    /// Bits among every 64 gates.
    pub fn bits(self) -> usize {
        match self {
            Self::Porep => 63,
            Self::Mixed => 56,
            Self::Dense => 0,
        }
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Porep => "porep",
            Self::Mixed => "mixed",
            Self::Dense => "dense",
        }
    }
}

impl FromStr for Shape {
    type Err = SetupError;

    fn from_str(name: &str) -> Result<Self, SetupError> {
        Self::ALL.into_iter().find(|s| s.name() == name).ok_or_else(|| SetupError::Shape(name.to_owned()))
    }
}

/// A synthetic circuit. The circuit depends on shape and size alone; witnesses come from a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synthetic {
    shape: Shape,
    log2: u32,
}

/// What a gate makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    /// b·(1 − b) = 0.
    CheckedBit,
    /// b·1 = b.
    Bit,
    /// The next value of the chain.
    Square,
}

impl Synthetic {
    /// log2 of the smallest circuit: 8 gates.
    pub const MIN_LOG2: u32 = 4;
    /// log2 of the largest circuit.
    pub const MAX_LOG2: u32 = splitprover_core::domain::MAX_LOG2;

    /// The circuit whose domain has 2^`log2` rows.
    ///
    /// # Errors
    /// [`SetupError::Log2`] outside [`MIN_LOG2`](Self::MIN_LOG2) ..= [`MAX_LOG2`](Self::MAX_LOG2).
    pub fn new(shape: Shape, log2: u32) -> Result<Self, SetupError> {
        let (min, max) = (Self::MIN_LOG2, Self::MAX_LOG2);
        if (min..=max).contains(&log2) { Ok(Self { shape, log2 }) } else { Err(SetupError::Log2 { log2, min, max }) }
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// log2 of the domain's size.
    pub fn log2(&self) -> u32 {
        self.log2
    }

    fn num_gates(&self) -> usize {
        (1 << self.log2) - 8
    }

    fn gate(&self, i: usize) -> Gate {
        if i % GROUP >= self.shape.bits() {
            Gate::Square
        } else if i.is_multiple_of(4) {
            Gate::CheckedBit
        } else {
            Gate::Bit
        }
    }

    /// The variable of the chain's value before gate `i`: the last one made by a squaring, or the first value.
    fn chain_before(&self, i: usize) -> usize {
        let bits = self.shape.bits();
        let (group, place) = (i / GROUP, i % GROUP);
        if place > bits {
            FIRST + i - 1
        } else if group > 0 {
            FIRST + group * GROUP - 1
        } else {
            FIRST - 1
        }
    }

    /// A satisfying assignment: all variables, in Montgomery form. The chain's first value and the bits come from the seed.
    ///
    /// # Errors
    /// [`SetupError::Memory`] if the ledger or the system refuses.
    pub fn witness(&self, seed: u64, memory: &HostMemory) -> Result<HostBuf<Scalar>, SetupError> {
        let mut witness = memory.zeroed::<Scalar>(MemoryClass::Witness, self.num_variables())?;
        witness[0] = Scalar::ONE;
        let gates = &mut witness[FIRST..];
        if self.shape.bits() > 0 {
            gates.par_chunks_mut(GROUPS_PER_TASK * GROUP).enumerate().for_each(|(task, gates)| {
                let mut bits = BitStream::new(seed, (task * GROUPS_PER_TASK * self.shape.bits()) as u64);
                for (i, gate) in gates.iter_mut().enumerate() {
                    // A task starts with a group, so the place within the task tells the kind of gate.
                    if i % GROUP < self.shape.bits() && bits.draw() {
                        *gate = Scalar::ONE;
                    }
                }
            });
        }
        let mut x = ScalarStream::new("splitprover synthetic witness v1", seed).draw();
        witness[FIRST - 1] = x;
        let mut gate = self.shape.bits();
        let gates = &mut witness[FIRST..];
        while gate < gates.len() {
            let end = (gate / GROUP + 1) * GROUP;
            for i in gate..end.min(gates.len()) {
                x = x.square() + Scalar::from(i as u64);
                gates[i] = x;
            }
            gate = end + self.shape.bits();
        }
        witness[1] = x;
        Ok(witness)
    }
}

impl ConstraintSystem for Synthetic {
    fn num_public(&self) -> usize {
        1
    }

    fn num_variables(&self) -> usize {
        FIRST + self.num_gates()
    }

    fn num_constraints(&self) -> usize {
        self.num_gates() + 1
    }

    fn entries(&self, matrix: Matrix) -> impl Iterator<Item = Entry> + '_ {
        const NONE: (usize, Scalar) = (0, Scalar::ZERO);
        let n = self.num_gates();
        (0..=n).flat_map(move |i| {
            let (made, one, minus_one) = (FIRST + i, Scalar::ONE, -Scalar::ONE);
            let terms = if i == n {
                match matrix {
                    Matrix::A => [(self.chain_before(n), one), NONE],
                    Matrix::B => [(0, one), NONE],
                    Matrix::C => [(1, one), NONE],
                }
            } else {
                match (self.gate(i), matrix) {
                    (Gate::CheckedBit, Matrix::A) => [(made, one), NONE],
                    (Gate::CheckedBit, Matrix::B) => [(0, one), (made, minus_one)],
                    (Gate::CheckedBit, Matrix::C) => [NONE, NONE],
                    (Gate::Bit, Matrix::A | Matrix::C) => [(made, one), NONE],
                    (Gate::Bit, Matrix::B) => [(0, one), NONE],
                    (Gate::Square, Matrix::A | Matrix::B) => [(self.chain_before(i), one), NONE],
                    // 0 for the first gate of `dense`: left out like the other zeros.
                    (Gate::Square, Matrix::C) => [(made, one), (0, -Scalar::from(i as u64))],
                }
            };
            terms
                .into_iter()
                .filter(|(_, coefficient)| *coefficient != Scalar::ZERO)
                .map(move |(variable, coefficient)| (i as u32, variable as u32, coefficient))
        })
    }

    fn evaluations(&self, witness: &[Scalar], memory: &HostMemory) -> Result<Evaluations, SetupError> {
        check_witness(self, witness)?;
        let n = self.num_gates();
        let zeroed = || memory.zeroed::<Scalar>(MemoryClass::Evaluations, num_rows(self));
        let (mut a, mut b, mut c) = (zeroed()?, zeroed()?, zeroed()?);
        const TASK: usize = GROUPS_PER_TASK * GROUP;
        a[..n]
            .par_chunks_mut(TASK)
            .zip(b[..n].par_chunks_mut(TASK))
            .zip(c[..n].par_chunks_mut(TASK))
            .enumerate()
            .for_each(|(task, ((a, b), c))| {
                for (place, ((a, b), c)) in a.iter_mut().zip(b).zip(c).enumerate() {
                    let i = task * TASK + place;
                    let made = witness[FIRST + i];
                    (*a, *b, *c) = match self.gate(i) {
                        Gate::CheckedBit => (made, witness[0] - made, Scalar::ZERO),
                        Gate::Bit => (made, witness[0], made),
                        Gate::Square => {
                            let x = witness[self.chain_before(i)];
                            (x, x, made - witness[0] * Scalar::from(i as u64))
                        }
                    };
                }
            });
        (a[n], b[n], c[n]) = (witness[self.chain_before(n)], witness[0], witness[1]);
        a[n + 1..].copy_from_slice(&witness[..=1]);
        Ok(Evaluations { a, b, c: Some(c) })
    }
}

/// Bits of a linear congruential generator modulo 2^64 (Knuth's MMIX constants), from any position.
struct BitStream(u64);

impl BitStream {
    const FACTOR: u64 = 6364136223846793005;
    const SUMMAND: u64 = 1442695040888963407;

    /// The stream of a seed after `skip` bits.
    fn new(seed: u64, mut skip: u64) -> Self {
        // x ↦ f·x + s, `skip` times, by repeated squaring of the map.
        let (mut factor, mut summand, mut state) = (Self::FACTOR, Self::SUMMAND, seed | 1);
        while skip > 0 {
            if skip & 1 == 1 {
                state = state.wrapping_mul(factor).wrapping_add(summand);
            }
            summand = factor.wrapping_mul(summand).wrapping_add(summand);
            factor = factor.wrapping_mul(factor);
            skip >>= 1;
        }
        Self(state)
    }

    fn draw(&mut self) -> bool {
        self.0 = self.0.wrapping_mul(Self::FACTOR).wrapping_add(Self::SUMMAND);
        self.0 >> 40 & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bit_stream_can_be_entered_anywhere() {
        let mut stream = BitStream::new(7, 0);
        for skip in 0..300 {
            assert_eq!(BitStream::new(7, skip).0, stream.0, "after {skip} bits");
            stream.draw();
        }
    }

    #[test]
    fn witnesses_satisfy_their_circuit_and_evaluations_agree_with_the_entries() {
        /// The same system without the fast evaluation.
        struct Slow(Synthetic);
        impl ConstraintSystem for Slow {
            fn num_public(&self) -> usize {
                self.0.num_public()
            }
            fn num_variables(&self) -> usize {
                self.0.num_variables()
            }
            fn num_constraints(&self) -> usize {
                self.0.num_constraints()
            }
            fn entries(&self, matrix: Matrix) -> impl Iterator<Item = Entry> + '_ {
                self.0.entries(matrix)
            }
        }
        let memory = HostMemory::default();
        for shape in Shape::ALL {
            for log2 in [4, 5, 6, 7, 8, 15] {
                let system = Synthetic::new(shape, log2).unwrap();
                let witness = system.witness(9, &memory).unwrap();
                assert_eq!(witness[0], Scalar::ONE);
                assert_eq!(system.first_broken(&witness, &memory).unwrap(), None, "{shape:?} 2^{log2}");
                let (fast, slow) = (
                    system.evaluations(&witness, &memory).unwrap(),
                    Slow(system).evaluations(&witness, &memory).unwrap(),
                );
                assert_eq!(fast.a[..], slow.a[..]);
                assert_eq!(fast.b[..], slow.b[..]);
                assert_eq!(fast.c.unwrap()[..], slow.c.unwrap()[..]);
            }
        }
    }

    #[test]
    fn a_changed_value_breaks_the_first_row_it_matters_to() {
        let memory = HostMemory::default();
        let system = Synthetic::new(Shape::Mixed, 8).unwrap();
        let mut witness = system.witness(1, &memory).unwrap();
        witness[FIRST + 100] = Scalar::from(5);
        assert_eq!(system.first_broken(&witness, &memory).unwrap(), Some(100));
        let mut witness = system.witness(1, &memory).unwrap();
        witness[1] += Scalar::ONE;
        assert_eq!(system.first_broken(&witness, &memory).unwrap(), Some(system.num_constraints() - 1));
    }

    #[test]
    fn values_are_distributed_as_promised() {
        let memory = HostMemory::default();
        for shape in Shape::ALL {
            let system = Synthetic::new(shape, 14).unwrap();
            let witness = system.witness(3, &memory).unwrap();
            let count = |value| witness.iter().filter(|&&w| w == value).count();
            let (zeros, ones) = (count(Scalar::ZERO), count(Scalar::ONE));
            let bits = system.num_gates() / GROUP * shape.bits() + (system.num_gates() % GROUP).min(shape.bits());
            assert_eq!(zeros + ones, bits + 1, "{shape:?}: every bit, and the constant");
            assert!(bits == 0 || zeros.abs_diff(ones) < bits / 20, "{zeros} zeros, {ones} ones");
        }
        let witness = |seed| Synthetic::new(Shape::Porep, 8).unwrap().witness(seed, &memory).unwrap();
        assert_ne!(witness(2)[..], witness(3)[..]);
    }

    #[test]
    fn names_round_trip_and_sizes_are_checked() {
        for shape in Shape::ALL {
            assert_eq!(shape.name().parse::<Shape>().unwrap(), shape);
        }
        assert!("Porep".parse::<Shape>().is_err());
        assert!(Synthetic::new(Shape::Dense, 3).is_err());
        assert!(Synthetic::new(Shape::Dense, 29).is_err());
    }
}
