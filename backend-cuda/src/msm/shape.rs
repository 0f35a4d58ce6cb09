//! How scalars are cut into windows, and what that costs: sets of buckets, and copies of the base table that save some of them.
//!
//! Pure numbers, no device. The unit of cost is one mixed addition into a bucket.

/// Bits of a signed-digit decomposition: a scalar or its negative is below 2²⁵⁴, and one more bit takes the last carry.
const SCALAR_BITS: u32 = 255;

/// What a bucket costs in the reduction, in mixed additions: two full additions of about 1.44 each, at a lower rate. In long lists, from so many pairs on,
/// additions are cheaper and a bucket costs some padding too.
const BUCKET_COST: f64 = 4.0;
const BUCKET_COST_OF_LONG: f64 = 5.5;
const LONG: f64 = (1u64 << 25) as f64;

/// Fewest windows (of 24 bits) and most (their widths travel in 32 bytes).
const MIN_WINDOWS: u32 = 11;
const MAX_WINDOWS: u32 = 32;

/// How scalars are cut into windows: `sets` · `copies` of them, as even in width as can be.
///
/// The base table holds `copies` shifted copies of the bases, the bases themselves included; window t · sets + g multiplies copy t and adds to
/// bucket set g. Copy t is 2^[`shift(t)`](Self::shift) times the bases and set g counts 2^[`base(g)`](Self::base)-fold, so each copy of
/// the table saves sets of buckets and their reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Sets of buckets.
    pub sets: u32,
    /// Copies of the bases in the table.
    pub copies: u32,
}

impl Shape {
    /// More copies than windows aren't used.
    pub const MAX_COPIES: u32 = MAX_WINDOWS;

    /// The cheapest shape for `dense` scalars that are none of 0, 1 and −1, with at most `max_copies` copies.
    #[must_use]
    pub fn choose(dense: u64, max_copies: u32) -> Self {
        let max_copies = max_copies.clamp(1, Self::MAX_COPIES);
        Self::cheapest(dense, 1..=max_copies).unwrap_or(Self { sets: 16, copies: 1 })
    }

    /// The cheapest shape for `dense` such scalars and a table that has `copies` copies already: all of them, every second, every third, …
    #[must_use]
    pub fn fit(dense: u64, copies: u32) -> Self {
        let divisors = (1..=copies).filter(|divisor| copies.is_multiple_of(*divisor));
        Self::cheapest(dense, divisors).unwrap_or(Self { sets: 1, copies })
    }

    fn cheapest(dense: u64, copies: impl Iterator<Item = u32>) -> Option<Self> {
        let candidates = copies.flat_map(|copies| (1..=MAX_WINDOWS).map(move |sets| Self { sets, copies }));
        let allowed = candidates.filter(|shape| (MIN_WINDOWS..=MAX_WINDOWS).contains(&shape.windows()));
        allowed.min_by(|a, b| a.cost(dense).total_cmp(&b.cost(dense)))
    }

    /// Number of windows.
    #[must_use]
    pub fn windows(self) -> u32 {
        self.sets * self.copies
    }

    /// Bits below copy `copy`.
    #[must_use]
    pub fn shift(self, copy: u32) -> u32 {
        SCALAR_BITS * copy / self.copies
    }

    /// Bits below set `set`, within a copy.
    #[must_use]
    pub fn base(self, set: u32) -> u32 {
        SCALAR_BITS.div_ceil(self.copies) * set / self.sets
    }

    /// The width of a window in bits.
    #[must_use]
    pub fn width(self, window: u32) -> u32 {
        let (copy, set) = (window / self.sets, window % self.sets);
        let end = if set + 1 < self.sets { self.base(set + 1) } else { self.shift(copy + 1) - self.shift(copy) };
        end - self.base(set)
    }

    /// The width of the widest window.
    #[must_use]
    pub fn window_bits(self) -> u32 {
        (0..self.windows()).map(|window| self.width(window)).max().unwrap_or(1)
    }

    /// log2 of the buckets of a set: one for each magnitude of a digit in the widest of its windows.
    pub(super) fn bucket_bits(self, set: u32) -> u32 {
        let widths = (0..self.copies).map(|copy| self.width(copy * self.sets + set));
        widths.max().unwrap_or(1) - 1
    }

    /// Buckets of sets `from .. to`, which follow one another.
    pub(super) fn buckets_of(self, from: u32, to: u32) -> u64 {
        (from..to.min(self.sets)).map(|set| 1 << self.bucket_bits(set)).sum()
    }

    /// Buckets of all sets.
    #[must_use]
    pub fn buckets(self) -> u64 {
        self.buckets_of(0, self.sets)
    }

    /// Estimated cost in mixed additions.
    #[must_use]
    pub fn cost(self, dense: u64) -> f64 {
        let pairs = dense as f64 * f64::from(self.windows());
        let bucket = if pairs < LONG { BUCKET_COST } else { BUCKET_COST_OF_LONG };
        pairs + bucket * self.buckets() as f64
    }

    /// Bits below a window.
    fn start(self, window: u32) -> u32 {
        self.shift(window / self.sets) + self.base(window % self.sets)
    }

    /// What the kernels need to know of the windows: their widths and the bits below them, one byte each; what is added to a scalar so that
    /// each of its digits follows from its own bits; and log2 of the buckets of each set, one byte each.
    pub(super) fn cut(self) -> [[u32; 8]; 4] {
        let [mut widths, mut starts, mut bias] = [[0; 8]; 3];
        for window in 0..self.windows() {
            let (start, width) = (self.start(window), self.width(window));
            let (word, shift) = (window as usize / 4, 8 * (window % 4));
            widths[word] |= width << shift;
            starts[word] |= start << shift;
            // 2^(width - 1) - 1 at the window's place: ones in all of its bits but the highest.
            for bit in start..start + width - 1 {
                bias[bit as usize / 32] |= 1 << (bit % 32);
            }
        }
        [widths, starts, bias, packed((0..self.sets).map(|set| self.bucket_bits(set)))]
    }
}

/// Numbers of one byte each, 32 at most, as the kernels take them.
pub(super) fn packed(bytes: impl Iterator<Item = u32>) -> [u32; 8] {
    let mut words = [0; 8];
    for (i, byte) in bytes.enumerate() {
        words[i / 4] |= byte << (8 * (i % 4));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_a_scalar_exactly_and_agree_with_copies_and_sets() {
        for sets in 1..=32 {
            for copies in 1..=32 / sets {
                let shape = Shape { sets, copies };
                let mut at = 0;
                for window in 0..shape.windows() {
                    assert_eq!(at, shape.shift(window / sets) + shape.base(window % sets));
                    at += shape.width(window);
                }
                assert_eq!(at, SCALAR_BITS);
                let least = (0..shape.windows()).map(|window| shape.width(window)).min().unwrap();
                assert!(shape.window_bits() - least <= 2, "{shape:?} is uneven");
            }
        }
    }

    #[test]
    fn larger_inputs_get_larger_windows_and_copies_never_cost_more() {
        let bits = |log_n: u32, copies| Shape::choose(1 << log_n, copies).window_bits();
        for log_n in 0..28 {
            assert!(bits(log_n + 1, 1) >= bits(log_n, 1));
            for copies in 1..16 {
                let (more, fewer) = (Shape::choose(1 << log_n, copies + 1), Shape::choose(1 << log_n, copies));
                assert!(more.cost(1 << log_n) <= fewer.cost(1 << log_n));
                assert!(fewer.copies <= copies);
            }
        }
        assert!((19..=22).contains(&bits(24, 1)));
    }

    #[test]
    fn sparse_sums_over_a_table_with_copies_have_few_buckets() {
        let few = |dense, copies| {
            let shape = Shape::fit(dense, copies);
            assert!(copies.is_multiple_of(shape.copies) && shape.cost(dense) <= Shape { sets: 1, copies }.cost(dense));
            // Copy t of the shape is copy t · spacing of the table.
            for t in 0..shape.copies {
                assert_eq!(shape.shift(t), Shape { sets: 1, copies }.shift(t * (copies / shape.copies)));
            }
            shape.buckets()
        };
        for copies in [11, 12, 13, 16] {
            assert!(few(1 << 18, copies) <= 1 << 19, "{:?}", Shape::fit(1 << 18, copies));
            few(0, copies);
        }
        assert_eq!(Shape::fit(1 << 18, 12), Shape { sets: 4, copies: 4 });
        assert_eq!(Shape::fit(1 << 24, 12), Shape { sets: 1, copies: 12 });
    }

    #[test]
    fn a_digit_follows_from_its_own_bits_of_the_biased_scalar() {
        for shape in [Shape { sets: 1, copies: 11 }, Shape { sets: 13, copies: 1 }, Shape { sets: 4, copies: 8 }] {
            let [widths, starts, bias, bits] = shape.cut();
            let byte = |words: [u32; 8], i: u32| words[i as usize / 4] >> (8 * (i % 4)) & 255;
            for set in 0..shape.sets {
                let widest = (0..shape.copies).map(|copy| shape.width(copy * shape.sets + set)).max();
                assert_eq!(Some(byte(bits, set) + 1), widest);
            }
            assert_eq!((0..shape.sets).map(|set| 1 << byte(bits, set)).sum::<u64>(), shape.buckets());
            let mut end = 0;
            for window in 0..shape.windows() {
                assert_eq!((byte(starts, window), byte(widths, window)), (end, shape.width(window)));
                end += shape.width(window);
                let bits = (end - shape.width(window)..end).map(|bit| bias[bit as usize / 32] >> (bit % 32) & 1);
                let value = bits.rev().fold(0u64, |value, bit| 2 * value + u64::from(bit));
                assert_eq!(value, (1 << (shape.width(window) - 1)) - 1);
            }
            assert_eq!((end, bias[7] >> 30), (SCALAR_BITS, 0));
        }
    }
}
