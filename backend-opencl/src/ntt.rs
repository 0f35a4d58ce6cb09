//! Transforms, and the quotient's scalars.
//!
//! With A, B, C the polynomials of degree < n that a, b, c are the values of, the proof needs (A·B − C)/Z for Z = xⁿ − 1. On the coset
//! g·⟨ω⟩ with g² = ω, which is snarkjs's, Z is the constant −2. So six transforms do in either basis:
//!
//! * **odd Lagrange**: a, b, c go to coefficients and to the coset; the scalars are a·b − c there, not divided by Z.
//! * **monomial**: a and b go to the coset, their product comes back to coefficients; c needs but its coefficients, for its degree is below
//!   n and Z is constant: h = (ab − c)/(−2), coefficient by coefficient.
//!
//! Transforms to coefficients don't divide by n; the last pointwise step has that in its constants. Scalars leave in plain form.

use blstrs::Scalar;
use ff::{Field, PrimeField};
use splitprover_core::{Domain, HBasis};

use crate::driver::{Arg, Buffer, Context, OpenClError, Queue};
use crate::field::{SCALAR, bytes_of_scalars};
use crate::kernels::Kernels;

/// Layers of butterflies in one pass, at most, for tiles of the usual size; smaller tiles have fewer.
const MAX_LAYERS: u32 = 9;

/// The tables of a domain, and how its transforms are split into passes.
#[derive(Debug)]
pub(crate) struct Transforms {
    log_n: u32,
    basis: HBasis,
    /// Powers g^i and g^(i·2^split) of the 2n-th root.
    low: Buffer,
    high: Buffer,
    split: u32,
    /// Roots of order 2^small_log, forward and inverse: the half that butterflies need.
    roots: Buffer,
    inverse_roots: Buffer,
    small_log: u32,
    /// Subtrahend and factor of the last pointwise step.
    constants: Buffer,
    /// Layers of each pass, the widest blocks first.
    passes: Vec<u32>,
    columns_log: u32,
}

/// The rows of a proof, each of n scalars in device memory.
pub(crate) struct Rows<'a> {
    pub(crate) a: &'a Buffer,
    pub(crate) b: &'a Buffer,
    pub(crate) c: &'a Buffer,
    /// Whether c was given; a∘b otherwise.
    pub(crate) c_given: bool,
}

fn layers_per_pass(tile_log: u32) -> u32 {
    // Two columns side by side at least, so that a group reads whole cache lines.
    MAX_LAYERS.min(tile_log - 1)
}

fn split_of(log_n: u32) -> u32 {
    (log_n + 1).div_ceil(2)
}

impl Transforms {
    /// Device bytes of the tables.
    pub(crate) fn table_bytes(log_n: u32) -> u64 {
        let split = split_of(log_n);
        SCALAR * ((1 << split) + (1 << (log_n + 1 - split)) + (1 << MAX_LAYERS) + 2)
    }

    /// Makes the tables of a domain.
    pub(crate) fn new(
        context: &Context,
        kernels: &Kernels,
        queue: &Queue,
        domain: Domain,
        basis: HBasis,
    ) -> Result<Self, OpenClError> {
        let log_n = domain.log2();
        let g = domain.odd_coset_shift();
        let split = split_of(log_n);
        let upload = |values: &[Scalar]| -> Result<Buffer, OpenClError> {
            let buffer = Buffer::new(context, SCALAR * values.len() as u64)?;
            queue.write(&buffer, 0, bytes_of_scalars(values))?;
            Ok(buffer)
        };
        let tile_log = kernels.geometry.ntt_tile.ilog2();
        let most = layers_per_pass(tile_log);
        let small_log = log_n.min(most);
        let root = domain.omega().pow_vartime([1 << (log_n - small_log)]);
        let inverse = Option::from(root.invert()).unwrap_or(Scalar::ONE);
        // Passes as equal as can be.
        let count = log_n.div_ceil(most);
        let passes = (0..count).map(|i| log_n / count + u32::from(i < log_n % count)).collect();
        let n = Scalar::from(domain.size() as u64);
        let n_inverse = domain.size_inverse();
        // x·(2^256)⁻¹ in Montgomery form is x, plain.
        let plain = Option::from(Scalar::from(2).pow_vartime([256]).invert()).unwrap_or(Scalar::ONE);
        let constants = match basis {
            // a and b are n times too large each, c once: (ab − n c)/n².
            HBasis::OddLagrange => [n, n_inverse.square() * plain],
            // ab is n³ times too large after three transforms, c once: (ab − n² c)/(−2 n³).
            HBasis::Monomial => [n.square(), -(n_inverse.square() * n_inverse * Scalar::TWO_INV) * plain],
        };
        Ok(Self {
            log_n,
            basis,
            low: upload(&powers(g, 1 << split))?,
            high: upload(&powers(g.pow_vartime([1 << split]), 1 << (log_n + 1 - split)))?,
            split,
            roots: upload(&powers(root, (1usize << small_log).div_ceil(2)))?,
            inverse_roots: upload(&powers(inverse, (1usize << small_log).div_ceil(2)))?,
            small_log,
            constants: upload(&constants)?,
            passes,
            columns_log: tile_log,
        })
    }

    /// Queues all passes of a transform of `data`.
    ///
    /// # Safety
    /// `data` has room for n scalars.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn transform(
        &self,
        kernels: &Kernels,
        queue: &Queue,
        data: &Buffer,
        direction: Direction,
    ) -> Result<(), OpenClError> {
        let group = kernels.geometry.ntt_group;
        let forward = direction == Direction::ToCoset;
        let roots = if forward { &self.roots } else { &self.inverse_roots };
        // (log of the block at the pass's beginning, its layers), the widest blocks first.
        let mut log_block = self.log_n;
        let mut passes: Vec<(u32, u32)> = Vec::with_capacity(self.passes.len());
        for &layers in &self.passes {
            passes.push((log_block, layers));
            log_block -= layers;
        }
        if forward {
            passes.reverse();
        }
        for (index, (log_block, layers)) in passes.into_iter().enumerate() {
            let columns_log = (self.columns_log - layers).min(self.log_n - layers);
            let groups = 1u64 << (self.log_n - layers - columns_log);
            let mut arguments: Vec<Arg<'_>> = vec![
                data.into(),
                roots.into(),
                self.small_log.into(),
                (&self.low).into(),
                (&self.high).into(),
                self.split.into(),
                self.log_n.into(),
                log_block.into(),
                layers.into(),
                (1u32 << columns_log).into(),
            ];
            let kernel = if forward {
                arguments.push(u32::from(index == 0).into());
                &kernels.scalars.coefficients_to_values
            } else {
                &kernels.scalars.rows_to_coefficients
            };
            // SAFETY: a pass touches the elements 0 .. n of data, by our caller's promise there; exponents stay below 2n, for which the
            // tables were made, and small roots below half of their order.
            unsafe { queue.launch(kernel, groups, group, &arguments)? };
        }
        Ok(())
    }

    /// Queues the quotient's scalars, in plain form: in the vector that is returned.
    ///
    /// # Safety
    /// The vectors have room for n scalars each.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn quotient<'a>(
        &self,
        kernels: &Kernels,
        queue: &Queue,
        rows: &Rows<'a>,
    ) -> Result<&'a Buffer, OpenClError> {
        let Rows { a, b, c, c_given } = *rows;
        let group = kernels.geometry.group;
        let n = 1u32 << self.log_n;
        let groups = u64::from(n).div_ceil(group as u64);
        let scalars = &kernels.scalars;
        let constants = (&self.constants).into();
        // SAFETY: every kernel touches the elements 0 .. n of these vectors and the tables made for them.
        unsafe {
            if !c_given {
                queue.launch(&scalars.multiply, groups, group, &[a.into(), b.into(), c.into(), n.into()])?;
            }
            for vector in [a, b] {
                self.transform(kernels, queue, vector, Direction::ToCoefficients)?;
                self.transform(kernels, queue, vector, Direction::ToCoset)?;
            }
            self.transform(kernels, queue, c, Direction::ToCoefficients)?;
            match self.basis {
                HBasis::OddLagrange => {
                    self.transform(kernels, queue, c, Direction::ToCoset)?;
                    let arguments = [a.into(), b.into(), c.into(), b.into(), constants, n.into()];
                    queue.launch(&scalars.quotient_values, groups, group, &arguments)?;
                }
                HBasis::Monomial => {
                    queue.launch(&scalars.multiply, groups, group, &[a.into(), b.into(), a.into(), n.into()])?;
                    self.transform(kernels, queue, a, Direction::ToCoefficients)?;
                    let (low, high) = ((&self.low).into(), (&self.high).into());
                    let arguments =
                        [a.into(), c.into(), b.into(), constants, low, high, self.split.into(), self.log_n.into()];
                    queue.launch(&scalars.quotient_coefficients, groups, group, &arguments)?;
                }
            }
        }
        Ok(b)
    }
}

/// The two kinds of transforms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Rows in natural order to n times the coefficients in bit-reversed order.
    ToCoefficients,
    /// Coefficients in bit-reversed order to values on g·⟨ω⟩ in natural order.
    ToCoset,
}

/// 1, x, x², …
fn powers(x: Scalar, count: usize) -> Vec<Scalar> {
    std::iter::successors(Some(Scalar::ONE), |power| Some(power * x)).take(count).collect()
}
