//! Number-theoretic transforms over F_r: from values on the domain to coefficients, and to values on the odd coset.
//!
//! **No bit reversal.** [`Transforms::to_coefficients`] takes values in natural order and leaves coefficients in bit-reversed
//! order (decimation in frequency); [`Transforms::to_values`] takes them from there back to natural order (decimation in
//! time). Coefficient j lies at position [`reverse_bits`]`(j)`.
//!
//! **No coset scaling.** On the coset g·⟨ω⟩ a butterfly evaluates f(x) = f₀(x²) + x·f₁(x²) at x = g^e·ω^j instead of ω^j, so the
//! shift only changes the factors. Going back likewise. The division by n is left to the caller, who has a constant to fold
//! it into.
//!
//! **Passes.** log2 n steps are done in passes of up to [`MAX_RADIX_LOG2`] steps. A pass works on tiles: 2^k rows, a stride
//! apart, of eight neighbouring columns, one column in each lane; a tile fits the first-level cache. The factors of a tile are
//! computed from its columns' x and shared by all blocks. In the innermost pass rows are neighbours, and the lanes are eight
//! blocks.
//!
//! Roots come from the caller's [`Domain`]; there is no constant here.

use std::marker::PhantomData;

use blstrs::Scalar;
use ff::Field;
use rayon::prelude::*;
use splitprover_core::Domain;

use crate::field::portable::ScalarArray;
use crate::field::{Arithmetic, Kernel, LANES, ScalarLanes, Words, canonical};

/// log2 of the most rows in a tile: a tile and its factors are 40 KiB then.
const MAX_RADIX_LOG2: u32 = 6;

/// Transforms smaller than this are done step by step.
const SMALL_LOG2: u32 = 8;

/// Where the polynomial's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Points {
    /// ω^i.
    Domain,
    /// g·ω^i with g = [`Domain::odd_coset_shift`].
    OddCoset,
}

/// The position of coefficient `index` among 2^`log2`.
pub(crate) fn reverse_bits(index: usize, log2: u32) -> usize {
    if log2 == 0 { 0 } else { index.reverse_bits() >> (usize::BITS - log2) }
}

/// Transforms of one domain.
pub(crate) struct Transforms {
    domain: Domain,
    arithmetic: Arithmetic,
}

impl Transforms {
    pub(crate) fn new(domain: Domain, arithmetic: Arithmetic) -> Self {
        Self { domain, arithmetic }
    }

    /// n times the coefficients, in bit-reversed order, of the polynomial with these values. `values` has n elements, below
    /// 1.51r; so has the result.
    pub(crate) fn to_coefficients(&self, values: &mut [Words], points: Points) {
        self.run(values, points, Direction::ToCoefficients);
    }

    /// Values at the points, in natural order, from coefficients in bit-reversed order.
    pub(crate) fn to_values(&self, coefficients: &mut [Words], points: Points) {
        self.run(coefficients, points, Direction::ToValues);
    }

    fn run(&self, values: &mut [Words], points: Points, direction: Direction) {
        assert_eq!(values.len(), self.domain.size(), "length of a transform");
        if self.domain.log2() < SMALL_LOG2 {
            return small(values, &self.domain, points, direction);
        }
        match self.arithmetic {
            #[cfg(target_arch = "x86_64")]
            Arithmetic::Avx512Ifma => passes::<crate::field::ifma_scalar::Fr>(values, &self.domain, points, direction),
            #[cfg(target_arch = "x86_64")]
            Arithmetic::Avx2Fma => passes::<crate::field::fma::scalar::Fr>(values, &self.domain, points, direction),
            _ => passes::<ScalarArray>(values, &self.domain, points, direction),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToCoefficients,
    ToValues,
}

/// x of column 0 and the ratio of neighbouring columns, for blocks of 2^`log2`: (1 or g, ω) of a domain of the block's size,
/// or their inverses.
fn column_roots(domain: &Domain, log2: u32, points: Points, direction: Direction) -> (Scalar, Scalar) {
    let root = |log2| domain.root().of_order(log2).unwrap_or(Scalar::ONE);
    let first = if points == Points::OddCoset { root(log2 + 1) } else { Scalar::ONE };
    let invert = |x: Scalar| match direction {
        Direction::ToValues => x,
        Direction::ToCoefficients => Option::from(x.invert()).unwrap_or(x),
    };
    (invert(first), invert(root(log2)))
}

/// One step after the other, one butterfly after the other.
fn small(values: &mut [Words], domain: &Domain, points: Points, direction: Direction) {
    let get = |words: Words| Scalar::from(blst::blst_fr { l: canonical(words) });
    let put = |x: Scalar| blst::blst_fr::from(x).l;
    let steps = 1..=domain.log2();
    let step = |log2: u32, values: &mut [Words]| {
        let (first, ratio) = column_roots(domain, log2, points, direction);
        for block in values.chunks_exact_mut(1 << log2) {
            let (low, high) = block.split_at_mut(1 << (log2 - 1));
            let mut x = first;
            for (u, v) in low.iter_mut().zip(high) {
                let (a, b) = (get(*u), get(*v));
                (*u, *v) = match direction {
                    Direction::ToCoefficients => (put(a + b), put((a - b) * x)),
                    Direction::ToValues => (put(a + b * x), put(a - b * x)),
                };
                x *= ratio;
            }
        }
    };
    match direction {
        Direction::ToCoefficients => steps.rev().for_each(|log2| step(log2, values)),
        Direction::ToValues => steps.for_each(|log2| step(log2, values)),
    }
}

/// A pass over all blocks of 2^(stride_log2 + radix_log2) elements.
struct Pass<F: ScalarLanes> {
    /// Rows of a tile: 2^radix_log2.
    radix_log2: u32,
    /// Distance of a tile's rows, and the number of columns of a block.
    stride_log2: u32,
    /// At h + i, for i < h: the i-th power of a primitive 2h-th root.
    rows: Vec<F::Constant>,
    /// x of columns 0..8; all of column 0 in the innermost pass.
    lanes: [F::Constant; LANES],
    /// Ratio of x between a column and the one eight further.
    next_columns: Scalar,
}

impl<F: ScalarLanes> Pass<F> {
    fn new(domain: &Domain, radix_log2: u32, stride_log2: u32, points: Points, direction: Direction) -> Self {
        let (first, ratio) = column_roots(domain, radix_log2 + stride_log2, points, direction);
        let mut rows = vec![F::constant(&Scalar::ONE); 1 << radix_log2];
        for h_log2 in 0..radix_log2 {
            let (_, root) = column_roots(domain, h_log2 + 1, Points::Domain, direction);
            let mut power = Scalar::ONE;
            for row in &mut rows[1 << h_log2..2 << h_log2] {
                *row = F::constant(&power);
                power *= root;
            }
        }
        let mut x = first;
        let mut lanes = [F::constant(&x); LANES];
        let mut next_columns = ratio;
        if stride_log2 > 0 {
            for lane in &mut lanes {
                *lane = F::constant(&x);
                x *= ratio;
            }
            next_columns = ratio.square().square().square();
        }
        Self { radix_log2, stride_log2, rows, lanes, next_columns }
    }
}

/// How log2 n steps are shared out: radices from the innermost pass outwards.
fn radices(log2: u32) -> Vec<u32> {
    let passes = log2.div_ceil(MAX_RADIX_LOG2);
    (0..passes).map(|i| log2 / passes + u32::from(i < log2 % passes)).collect()
}

fn passes<F: ScalarLanes>(values: &mut [Words], domain: &Domain, points: Points, direction: Direction) {
    let mut stride_log2 = 0;
    let mut passes: Vec<_> = radices(domain.log2())
        .into_iter()
        .map(|radix_log2| {
            let pass = Pass::<F>::new(domain, radix_log2, stride_log2, points, direction);
            stride_log2 += radix_log2;
            pass
        })
        .collect();
    if direction == Direction::ToCoefficients {
        passes.reverse();
    }
    let shared = Shared { values: values.as_mut_ptr(), len: values.len(), borrow: PhantomData };
    for pass in &passes {
        run_pass(&shared, pass, direction);
    }
}

/// Vector elements that tiles on several threads share without overlap.
struct Shared<'a> {
    values: *mut Words,
    len: usize,
    borrow: PhantomData<&'a mut [Words]>,
}

// SAFETY: the exclusive borrow is held throughout, and `TileJob` says why no two threads touch one element.
unsafe impl Sync for Shared<'_> {}

/// Tiles of the same columns in a range of blocks (or, in the innermost pass, a range of groups of eight blocks).
///
/// A tile owns the elements base + row·stride + lane·lane_stride. Jobs of one pass have different columns or different blocks,
/// so their elements are disjoint.
struct TileJob<'a, F: ScalarLanes> {
    shared: &'a Shared<'a>,
    pass: &'a Pass<F>,
    direction: Direction,
    /// First column; a multiple of eight.
    column: usize,
    /// x of that column over x of column 0.
    column_factor: F::Constant,
    tiles: std::ops::Range<usize>,
}

impl<F: ScalarLanes> Kernel for TileJob<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Pass { radix_log2, stride_log2, ref rows, ref lanes, .. } = *self.pass;
        let radix = 1usize << radix_log2;
        // Factors: x^(radix/2h) times the row's root, for each h.
        let mut factors: Vec<F> = Vec::with_capacity(1 << MAX_RADIX_LOG2);
        let mut tile: Vec<F> = Vec::with_capacity(1 << MAX_RADIX_LOG2);
        let mut x = F::constants(lanes).mul(F::splat(&self.column_factor)).reduce();
        factors.resize(radix, x);
        tile.resize(radix, x);
        let mut h = radix / 2;
        loop {
            factors[h] = x;
            for i in 1..h {
                factors[h + i] = x.mul(F::splat(&rows[h + i])).reduce();
            }
            h /= 2;
            if h == 0 {
                break;
            }
            x = x.mul(x).reduce();
        }
        let (row_stride, lane_stride, tile_stride) =
            if stride_log2 == 0 { (1, radix, LANES * radix) } else { (1 << stride_log2, 1, radix << stride_log2) };
        for index in self.tiles {
            let base = index * tile_stride + self.column;
            assert!(base + (radix - 1) * row_stride + (LANES - 1) * lane_stride < self.shared.len, "tile in range");
            // SAFETY: in range by the assertion, which bounds the largest index; this job owns the tile, and the borrow
            // that `Shared` holds makes the memory valid.
            let element = |row: usize, lane: usize| unsafe {
                self.shared.values.add(base + row * row_stride + lane * lane_stride)
            };
            for (row, vector) in tile.iter_mut().enumerate() {
                let mut refs = [&ZERO_WORDS; LANES];
                for (lane, r) in refs.iter_mut().enumerate() {
                    // SAFETY: as above; nobody writes while the reference lives.
                    *r = unsafe { &*element(row, lane) };
                }
                *vector = F::load(refs);
            }
            match self.direction {
                Direction::ToCoefficients => difference_first(&mut tile, &factors),
                Direction::ToValues => product_first(&mut tile, &factors),
            }
            for (row, vector) in tile.iter().enumerate() {
                let words = vector.store();
                for (lane, words) in words.iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { *element(row, lane) = *words };
                }
            }
        }
    }
}

const ZERO_WORDS: Words = [0; 4];

/// Decimation in frequency within a tile; values are reduced after every third step.
#[inline(always)]
fn difference_first<F: ScalarLanes>(tile: &mut [F], factors: &[F]) {
    let mut h = tile.len() / 2;
    let mut level = 0;
    while h > 0 {
        match level {
            0 => difference_first_step::<F, 0>(tile, &factors[h..2 * h], h),
            1 => difference_first_step::<F, 1>(tile, &factors[h..2 * h], h),
            _ => difference_first_step::<F, 2>(tile, &factors[h..2 * h], h),
        }
        h /= 2;
        level += 1;
        if level == 3 || h == 0 {
            for vector in tile.iter_mut() {
                *vector = vector.reduce();
            }
            level = 0;
        }
    }
}

#[inline(always)]
fn difference_first_step<F: ScalarLanes, const LEVEL: usize>(tile: &mut [F], factors: &[F], h: usize) {
    for block in tile.chunks_exact_mut(2 * h) {
        let (low, high) = block.split_at_mut(h);
        for i in 0..h {
            (low[i], high[i]) = F::difference_first::<LEVEL>(low[i], high[i], factors[i]);
        }
    }
}

/// Decimation in time within a tile; values are reduced when the lanes need it.
#[inline(always)]
fn product_first<F: ScalarLanes>(tile: &mut [F], factors: &[F]) {
    let mut h = 1;
    let mut steps = 0;
    while h < tile.len() {
        if steps == F::PRODUCT_STEPS {
            for vector in tile.iter_mut() {
                *vector = vector.reduce();
            }
            steps = 0;
        }
        steps += 1;
        let factors = &factors[h..2 * h];
        for block in tile.chunks_exact_mut(2 * h) {
            let (low, high) = block.split_at_mut(h);
            for i in 0..h {
                (low[i], high[i]) = F::product_first(low[i], high[i], factors[i]);
            }
        }
        h *= 2;
    }
    for vector in tile {
        *vector = vector.reduce();
    }
}

/// Runs the tiles of a pass in parallel.
fn run_pass<F: ScalarLanes>(shared: &Shared<'_>, pass: &Pass<F>, direction: Direction) {
    let block_log2 = pass.radix_log2 + pass.stride_log2;
    let blocks = shared.len >> block_log2;
    let (columns, tiles) =
        if pass.stride_log2 == 0 { (1, blocks / LANES) } else { ((1 << pass.stride_log2) / LANES, blocks) };
    // Factors cost a third of a tile: share them among blocks, but leave enough jobs for all threads.
    let jobs_wanted = 8 * rayon::current_num_threads();
    let ranges = (jobs_wanted.div_ceil(columns)).clamp(1, tiles.div_ceil(8).max(1));
    let per_range = tiles.div_ceil(ranges);
    // Jobs of many columns: powers for a run of columns are computed one from the other.
    let run = columns.div_ceil(jobs_wanted).max(1);
    let jobs: Vec<(usize, usize)> =
        (0..columns.div_ceil(run)).flat_map(|c| (0..ranges).map(move |r| (c * run, r))).collect();
    jobs.into_par_iter().with_max_len(1).for_each(|(first, range)| {
        let tiles = range * per_range..((range + 1) * per_range).min(tiles);
        let mut factor = pass.next_columns.pow_vartime([first as u64]);
        for column in first..(first + run).min(columns) {
            F::run(TileJob {
                shared,
                pass,
                direction,
                column: column * LANES,
                column_factor: F::constant(&factor),
                tiles: tiles.clone(),
            });
            factor *= pass.next_columns;
        }
    });
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_core::SeedableRng;
    use splitprover_core::RootOfUnity;

    use super::*;
    use crate::field::words;

    fn scalars(values: &[Words]) -> Vec<Scalar> {
        values.iter().map(|w| Scalar::from(blst::blst_fr { l: canonical(*w) })).collect()
    }

    fn random(rng: &mut ChaCha8Rng, n: usize) -> Vec<Scalar> {
        (0..n).map(|i| if i % 7 == 3 { -Scalar::ONE } else { Scalar::random(&mut *rng) }).collect()
    }

    fn domains(log2: std::ops::RangeInclusive<u32>) -> impl Iterator<Item = Domain> {
        log2.flat_map(|log2| {
            [RootOfUnity::snarkjs(), RootOfUnity::bellman()].map(|root| Domain::new(log2, root).unwrap())
        })
    }

    /// Coefficients in natural order to their positions.
    fn to_positions(coefficients: &[Scalar], log2: u32) -> Vec<Words> {
        let mut out = vec![[0; 4]; coefficients.len()];
        for (j, c) in coefficients.iter().enumerate() {
            out[reverse_bits(j, log2)] = words(c);
        }
        out
    }

    fn evaluate(coefficients: &[Scalar], x: Scalar) -> Scalar {
        coefficients.iter().rev().fold(Scalar::ZERO, |sum, c| sum * x + c)
    }

    #[test]
    fn transforms_agree_with_the_definition() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for domain in domains(0..=9) {
            let n = domain.size();
            let coefficients = random(&mut rng, n);
            for (points, shift) in [(Points::Domain, Scalar::ONE), (Points::OddCoset, domain.odd_coset_shift())] {
                let expected: Vec<_> =
                    (0..n).map(|i| evaluate(&coefficients, shift * domain.omega().pow_vartime([i as u64]))).collect();
                for arithmetic in Arithmetic::supported() {
                    let transforms = Transforms::new(domain, arithmetic);
                    let mut values = to_positions(&coefficients, domain.log2());
                    transforms.to_values(&mut values, points);
                    assert_eq!(scalars(&values), expected, "2^{}, {points:?}, {arithmetic:?}", domain.log2());
                    transforms.to_coefficients(&mut values, points);
                    let scaled: Vec<_> = coefficients.iter().map(|c| c * Scalar::from(n as u64)).collect();
                    assert_eq!(
                        scalars(&values),
                        scalars(&to_positions(&scaled, domain.log2())),
                        "back from 2^{}, {points:?}, {arithmetic:?}",
                        domain.log2()
                    );
                }
            }
        }
    }

    #[test]
    fn large_transforms_are_right_at_random_points_and_invert() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for domain in domains(10..=17) {
            let n = domain.size();
            let coefficients = random(&mut rng, n);
            for points in [Points::Domain, Points::OddCoset] {
                for arithmetic in Arithmetic::supported() {
                    let transforms = Transforms::new(domain, arithmetic);
                    let mut values = to_positions(&coefficients, domain.log2());
                    transforms.to_values(&mut values, points);
                    let shift = if points == Points::OddCoset { domain.odd_coset_shift() } else { Scalar::ONE };
                    let values_now = scalars(&values);
                    for i in [0, 1, n / 3, n / 2, n - 1] {
                        let x = shift * domain.omega().pow_vartime([i as u64]);
                        assert_eq!(values_now[i], evaluate(&coefficients, x), "2^{}, point {i}", domain.log2());
                    }
                    transforms.to_coefficients(&mut values, points);
                    let scaled: Vec<_> = coefficients.iter().map(|c| c * Scalar::from(n as u64)).collect();
                    assert_eq!(scalars(&values), scalars(&to_positions(&scaled, domain.log2())), "2^{}", domain.log2());
                }
            }
        }
    }

    #[test]
    fn products_of_values_are_convolutions_of_coefficients() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for domain in domains(1..=10) {
            let n = domain.size();
            let (f, g) = (random(&mut rng, n / 2), random(&mut rng, n / 2));
            let mut expected = vec![Scalar::ZERO; n];
            for (i, f) in f.iter().enumerate() {
                for (j, g) in g.iter().enumerate() {
                    expected[i + j] += f * g * Scalar::from(n as u64);
                }
            }
            let pad = |f: &[Scalar]| {
                let mut f = f.to_vec();
                f.resize(n, Scalar::ZERO);
                to_positions(&f, domain.log2())
            };
            for arithmetic in Arithmetic::supported() {
                let transforms = Transforms::new(domain, arithmetic);
                let (mut x, mut y) = (pad(&f), pad(&g));
                transforms.to_values(&mut x, Points::Domain);
                transforms.to_values(&mut y, Points::Domain);
                let mut product: Vec<_> = scalars(&x).iter().zip(scalars(&y)).map(|(x, y)| words(&(x * y))).collect();
                transforms.to_coefficients(&mut product, Points::Domain);
                assert_eq!(scalars(&product), scalars(&to_positions(&expected, domain.log2())), "2^{}", domain.log2());
            }
        }
    }
}
