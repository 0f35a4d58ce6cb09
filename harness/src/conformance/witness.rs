//! Values that multi-exponentiations meet: what circuits give them, and where their arithmetic is delicate.

use blstrs::Scalar;
use ff::{Field, PrimeField};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;

/// Values of the private (and public) variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Witness {
    Zeros,
    Ones,
    MinusOnes,
    /// 63/64 bits, half of them 1, the rest random: a proof of replication.
    Bits,
    /// Uniform in F_r.
    Dense,
    /// Below 2^64.
    Small,
    /// Where signed windows carry, borrow and overflow: around powers of two, halves of windows, and r.
    Edges,
    /// One random value everywhere: equal scalars meet in one bucket.
    Constant,
    /// All zero but one.
    OneHot,
}

impl Witness {
    pub(crate) const ALL: [Self; 9] = [
        Self::Zeros,
        Self::Ones,
        Self::MinusOnes,
        Self::Bits,
        Self::Dense,
        Self::Small,
        Self::Edges,
        Self::Constant,
        Self::OneHot,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Zeros => "zeros",
            Self::Ones => "ones",
            Self::MinusOnes => "minus-ones",
            Self::Bits => "bits",
            Self::Dense => "dense",
            Self::Small => "small",
            Self::Edges => "edges",
            Self::Constant => "constant",
            Self::OneHot => "one-hot",
        }
    }

    /// `len` such values.
    pub(crate) fn values(self, len: usize, rng: &mut ChaCha8Rng) -> Vec<Scalar> {
        let one = Scalar::ONE;
        match self {
            Self::Zeros => vec![Scalar::ZERO; len],
            Self::Ones => vec![one; len],
            Self::MinusOnes => vec![-one; len],
            Self::Bits => (0..len)
                .map(|_| match rng.next_u32() % 128 {
                    0 | 1 => Scalar::random(&mut *rng),
                    odd if odd % 2 == 1 => one,
                    _ => Scalar::ZERO,
                })
                .collect(),
            Self::Dense => (0..len).map(|_| Scalar::random(&mut *rng)).collect(),
            Self::Small => (0..len).map(|_| Scalar::from(rng.next_u64())).collect(),
            Self::Edges => {
                let edges = edge_scalars();
                let first = rng.next_u32() as usize;
                (0..len).map(|i| edges[(first + i) % edges.len()]).collect()
            }
            Self::Constant => vec![Scalar::random(&mut *rng); len],
            Self::OneHot => {
                let mut values = vec![Scalar::ZERO; len];
                if len > 0 {
                    values[rng.next_u32() as usize % len] = Scalar::random(&mut *rng);
                }
                values
            }
        }
    }
}

fn edge_scalars() -> Vec<Scalar> {
    let one = Scalar::ONE;
    let mut edges = vec![Scalar::ZERO, one, -one, -one.double(), Scalar::TWO_INV, -Scalar::TWO_INV];
    for k in 1..255u64 {
        let power = Scalar::from(2).pow_vartime([k]);
        edges.extend([power, power - one, power + one, -power]);
    }
    // Every window of c bits at half (where signed digits flip), just below, just above, and full.
    for c in 2..=24u64 {
        let window = Scalar::from(2).pow_vartime([c]);
        for digit in [1 << (c - 1), (1 << (c - 1)) - 1, (1 << (c - 1)) + 1, (1 << c) - 1] {
            let windows = 253 / c;
            edges.push((0..windows).fold(Scalar::ZERO, |sum, _| sum * window + Scalar::from(digit)));
        }
    }
    edges
}
