//! Affine points and additions that share one inversion.
//!
//! An affine addition needs 1/(x₂ − x₁). Montgomery's trick turns k inversions into one and 3(k − 1) multiplications, so an
//! addition costs 5 multiplications and a squaring, against 8 and 2 for a mixed addition in extended coordinates.

use super::field::Coordinate;

/// An affine point of y² = x³ + b; infinity is (0, 0), which isn't on the curve as b ≠ 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Affine<F> {
    pub(crate) x: F,
    pub(crate) y: F,
}

impl<F: Coordinate> Affine<F> {
    pub(crate) const INFINITY: Self = Self { x: F::ZERO, y: F::ZERO };

    pub(crate) fn is_infinity(&self) -> bool {
        self.x.is_zero() && self.y.is_zero()
    }

    pub(crate) fn write(&self, out: &mut [u8]) {
        let (x, y) = out.split_at_mut(F::BYTES);
        self.x.write(x);
        self.y.write(y);
    }
}

/// What is left to do for one addition once its denominator has been inverted.
struct Pending<F> {
    target: u32,
    addend: Affine<F>,
    /// x₂ − x₁, or 2y for a doubling.
    denominator: F,
    /// Product of the denominators before this one.
    product: F,
    doubling: bool,
}

/// Adds points to accumulators, many at a time. Reusable, so that its memory is.
pub(crate) struct BatchAdder<F> {
    pending: Vec<Pending<F>>,
    product: F,
}

impl<F: Coordinate> BatchAdder<F> {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { pending: Vec::with_capacity(capacity), product: F::ONE }
    }

    /// Plans `accumulators[target] += addend`. Between two calls of [`finish`](Self::finish) each target may appear once.
    pub(crate) fn add(&mut self, accumulators: &mut [Affine<F>], target: usize, addend: Affine<F>) {
        if addend.is_infinity() {
            return;
        }
        let accumulator = &mut accumulators[target];
        if accumulator.is_infinity() {
            *accumulator = addend;
            return;
        }
        let mut denominator = addend.x.sub(&accumulator.x);
        let mut doubling = false;
        if denominator.is_zero() {
            denominator = accumulator.y.add(&addend.y);
            if denominator.is_zero() {
                // P − P. There is no point of order two, so y ≠ 0 and P + P isn't caught here.
                *accumulator = Affine::INFINITY;
                return;
            }
            doubling = true;
        }
        self.pending.push(Pending { target: target as u32, addend, denominator, product: self.product, doubling });
        self.product = self.product.mul(&denominator);
    }

    /// Carries out the planned additions.
    pub(crate) fn finish(&mut self, accumulators: &mut [Affine<F>]) {
        if self.pending.is_empty() {
            return;
        }
        let mut inverse = self.product.inverse();
        for step in self.pending.drain(..).rev() {
            let reciprocal = inverse.mul(&step.product);
            inverse = inverse.mul(&step.denominator);
            let accumulator = &mut accumulators[step.target as usize];
            let Affine { x, y } = *accumulator;
            let slope = if step.doubling {
                let square = x.square();
                square.add(&square).add(&square).mul(&reciprocal)
            } else {
                step.addend.y.sub(&y).mul(&reciprocal)
            };
            let sum_x = slope.square().sub(&x).sub(&step.addend.x);
            let sum_y = slope.mul(&x.sub(&sum_x)).sub(&y);
            *accumulator = Affine { x: sum_x, y: sum_y };
        }
        self.product = F::ONE;
    }
}

#[cfg(test)]
mod tests {
    use blst::blst_p1_affine;
    use blstrs::{G1Affine, G1Projective, Scalar};
    use group::Group;
    use group::prime::PrimeCurveAffine;

    use super::*;

    fn point(k: i64) -> G1Affine {
        let magnitude = G1Projective::generator() * Scalar::from(k.unsigned_abs());
        if k < 0 { (-magnitude).into() } else { magnitude.into() }
    }

    fn affine(point: G1Affine) -> Affine<blst::blst_fp> {
        let blst_p1_affine { x, y } = *point.as_ref();
        if point.is_identity().into() { Affine::INFINITY } else { Affine { x, y } }
    }

    #[test]
    fn every_pair_of_small_multiples_adds_up() {
        let range: Vec<i64> = (-4..=4).collect();
        let pairs: Vec<_> = range.iter().flat_map(|&i| range.iter().map(move |&j| (i, j))).collect();
        let mut accumulators: Vec<_> = pairs.iter().map(|&(i, _)| affine(point(i))).collect();
        let mut adder = BatchAdder::with_capacity(0);
        for round in 1..=2 {
            for (target, &(_, j)) in pairs.iter().enumerate() {
                adder.add(&mut accumulators, target, affine(point(j)));
            }
            adder.finish(&mut accumulators);
            for (sum, &(i, j)) in accumulators.iter().zip(&pairs) {
                assert_eq!(*sum, affine(point(i + round * j)), "{i} + {round}·{j}");
            }
        }
    }

    #[test]
    fn nothing_planned_changes_nothing() {
        let mut accumulators = [affine(point(5))];
        BatchAdder::with_capacity(1).finish(&mut accumulators);
        assert_eq!(accumulators[0], affine(point(5)));
    }
}
