//! The circuit's polynomials at τ.
//!
//! The polynomial of variable i in A takes the value A_{j,i} at ω^j, so at τ it is Σⱼ A_{j,i}·Lⱼ(τ) with the Lagrange polynomials of the
//! domain, Lⱼ(τ) = (τⁿ − 1)/n · ω^j/(τ − ω^j).

use blstrs::Scalar;
use ff::Field;
use rayon::prelude::*;
use splitprover_core::{Domain, HostBuf, HostMemory, MemoryClass};

use super::constraints::{ConstraintSystem, Matrix, check_entry, public_rows, times};
use super::error::SetupError;

/// Elements per unit of parallel work, and per shared inversion.
const BLOCK: usize = 1 << 12;

/// τⁿ for n = 2^log2.
pub(super) fn power_of_two(tau: Scalar, log2: u32) -> Scalar {
    (0..log2).fold(tau, |x, _| x.square())
}

/// first·ratio^i for each i.
pub(super) fn geometric(values: &mut [Scalar], first: Scalar, ratio: Scalar) {
    values.par_chunks_mut(BLOCK).enumerate().for_each(|(block, values)| {
        let mut value = first * ratio.pow_vartime([(block * BLOCK) as u64]);
        for out in values {
            *out = value;
            value *= ratio;
        }
    });
}

/// factor·xᵢ/(τ − xᵢ) with xᵢ = first·ratio^i: Lagrange polynomials up to a factor. No xᵢ may be τ.
fn barycentric(values: &mut [Scalar], tau: Scalar, factor: Scalar, first: Scalar, ratio: Scalar) {
    values.par_chunks_mut(BLOCK).enumerate().for_each(|(block, values)| {
        let start = first * ratio.pow_vartime([(block * BLOCK) as u64]);
        // Forwards the products of the differences before each, backwards their inverses.
        let (mut x, mut product) = (start, Scalar::ONE);
        for value in values.iter_mut() {
            *value = product;
            product *= tau - x;
            x *= ratio;
        }
        let mut inverse = product.invert().unwrap_or(Scalar::ZERO) * factor;
        let back = ratio.invert().unwrap_or(Scalar::ZERO);
        for value in values.iter_mut().rev() {
            x *= back;
            *value *= inverse * x;
            inverse *= tau - x;
        }
    });
}

/// Lⱼ(τ) for the rows of a domain.
///
/// # Errors
/// [`SetupError::Trapdoor`] if τ is in the domain of twice the size, [`SetupError::Memory`].
pub(super) fn lagrange(tau: Scalar, domain: Domain, memory: &HostMemory) -> Result<HostBuf<Scalar>, SetupError> {
    let vanishing = power_of_two(tau, domain.log2()) - Scalar::ONE;
    check_tau(tau, domain)?;
    let mut values = memory.zeroed(MemoryClass::Staging, domain.size())?;
    barycentric(&mut values, tau, vanishing * domain.size_inverse(), Scalar::ONE, domain.omega());
    Ok(values)
}

/// scale·L_(2i+1)(τ) for 0 ≤ i < n: the odd Lagrange polynomials of the domain of size 2n.
pub(super) fn odd_lagrange(values: &mut [Scalar], tau: Scalar, domain: Domain, scale: Scalar) {
    let vanishing = power_of_two(tau, domain.log2() + 1) - Scalar::ONE;
    let factor = scale * vanishing * domain.size_inverse() * half();
    barycentric(values, tau, factor, domain.odd_coset_shift(), domain.omega());
}

fn half() -> Scalar {
    <Scalar as ff::PrimeField>::TWO_INV
}

/// τ must be neither in the domain nor in the coset on which snarkjs's H basis interpolates.
pub(super) fn check_tau(tau: Scalar, domain: Domain) -> Result<(), SetupError> {
    if power_of_two(tau, domain.log2() + 1) == Scalar::ONE {
        return Err(SetupError::Trapdoor("tau is in the evaluation domain or its coset"));
    }
    Ok(())
}

/// The polynomials of all variables in one matrix at τ: Σⱼ M_{j,i}·Lⱼ(τ), for A with the rows of the public inputs.
///
/// # Errors
/// [`SetupError::Matrix`] for an entry out of range, [`SetupError::Memory`].
pub(super) fn at_tau<S: ConstraintSystem>(
    system: &S,
    matrix: Matrix,
    lagrange: &[Scalar],
    memory: &HostMemory,
) -> Result<HostBuf<Scalar>, SetupError> {
    let mut values = memory.zeroed::<Scalar>(MemoryClass::Staging, system.num_variables())?;
    // Each task walks over all entries and takes those of its own variables: walking is cheap, and nothing is shared.
    let tasks = rayon::current_num_threads().div_ceil(3).min(16);
    let stripe = values.len().div_ceil(tasks).max(1);
    values.par_chunks_mut(stripe).enumerate().try_for_each(|(task, values)| {
        let first = task * stripe;
        for (position, (row, column, coefficient)) in system.entries(matrix).enumerate() {
            check_entry(system, position, row, column)?;
            if let Some(value) = (column as usize).checked_sub(first).and_then(|i| values.get_mut(i)) {
                *value += times(&lagrange[row as usize], &coefficient);
            }
        }
        Ok::<_, SetupError>(())
    })?;
    if matrix == Matrix::A {
        for (row, column, _) in public_rows(system) {
            values[column as usize] += lagrange[row as usize];
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use rand_core::OsRng;
    use splitprover_core::RootOfUnity;

    use super::*;

    /// Π (τ − x)/(y − x) over the points x other than y.
    fn by_definition(tau: Scalar, points: &[Scalar], y: Scalar) -> Scalar {
        let product = |at: Scalar| points.iter().filter(|&&x| x != y).map(|x| at - x).product::<Scalar>();
        product(tau) * product(y).invert().unwrap()
    }

    #[test]
    fn lagrange_polynomials_are_those_of_the_definition() {
        let tau = Scalar::random(OsRng);
        for root in [RootOfUnity::snarkjs(), RootOfUnity::bellman()] {
            for log2 in 0..=5 {
                let domain = Domain::new(log2, root).unwrap();
                let points: Vec<_> = (0..domain.size() as u64).map(|i| domain.omega().pow_vartime([i])).collect();
                let values = lagrange(tau, domain, &HostMemory::default()).unwrap();
                for (value, &y) in values.iter().zip(&points) {
                    assert_eq!(*value, by_definition(tau, &points, y));
                }
                let double: Vec<_> =
                    (0..2 * domain.size() as u64).map(|i| domain.odd_coset_shift().pow_vartime([i])).collect();
                let mut odd = vec![Scalar::ZERO; domain.size()];
                odd_lagrange(&mut odd, tau, domain, Scalar::from(3));
                for (i, value) in odd.iter().enumerate() {
                    assert_eq!(*value, Scalar::from(3) * by_definition(tau, &double, double[2 * i + 1]));
                }
            }
        }
    }

    #[test]
    fn blocks_join_up() {
        let tau = Scalar::random(OsRng);
        let domain = Domain::new(BLOCK.ilog2() + 2, RootOfUnity::snarkjs()).unwrap();
        let values = lagrange(tau, domain, &HostMemory::default()).unwrap();
        // Σ Lⱼ = 1 and Σ ω^j·Lⱼ(τ) = τ.
        assert_eq!(values.iter().sum::<Scalar>(), Scalar::ONE);
        let mut powers = vec![Scalar::ZERO; domain.size()];
        geometric(&mut powers, Scalar::ONE, domain.omega());
        assert_eq!(powers[domain.size() - 1] * domain.omega(), Scalar::ONE);
        assert_eq!(values.iter().zip(&powers).map(|(l, x)| l * x).sum::<Scalar>(), tau);
    }

    #[test]
    fn points_of_the_domain_and_its_coset_are_refused() {
        let domain = Domain::new(4, RootOfUnity::snarkjs()).unwrap();
        for tau in [Scalar::ONE, domain.omega(), domain.odd_coset_shift(), -Scalar::ONE] {
            assert!(matches!(lagrange(tau, domain, &HostMemory::default()), Err(SetupError::Trapdoor(_))));
        }
        assert!(lagrange(Scalar::from(2), domain, &HostMemory::default()).is_ok());
    }
}
