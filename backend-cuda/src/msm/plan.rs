//! How a multi-exponentiation is cut up: window size, copies of the base table, batches, and the workspace that follows from them.
//!
//! Pure numbers, no device. The unit of cost is one mixed addition into a bucket.

use super::Group;

/// Bits of a signed-digit decomposition: a scalar or its negative is below 2²⁵⁴, and one more bit takes the last carry.
const SCALAR_BITS: u32 = 255;

/// What a bucket costs in the reduction, in mixed additions: two full additions of about 1.44 each, at a lower rate.
const BUCKET_COST: f64 = 4.0;

/// Fewest windows (of 24 bits) and most (their widths travel in 32 bytes).
const MIN_WINDOWS: u32 = 11;
const MAX_WINDOWS: u32 = 32;

/// Pairs that an accumulating group should have at least, and launches' worth of groups at most. More groups than fit the card at once keep it
/// busy to the end: warps of equal work finish at different times.
const PAIRS_PER_GROUP: u64 = 64;
const WAVES: u64 = 10;

/// Most keys that one sort can tell apart: bins of shared-memory counters twice over.
const MAX_KEYS: u64 = 1 << 25;
const MAX_FINE_BITS: u32 = 12;

/// Virtual base indices have 31 bits, beside the sign.
const MAX_INDEX: u64 = 1 << 31;

/// Heads that one group folds in one step.
pub(super) const FOLD: u32 = 8;

/// Bytes of one (bucket, base) pair.
const PAIR: u64 = 8;

/// Parts of the workspace begin at multiples of this.
const ALIGN: u64 = 256;

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
    /// The cheapest shape for `dense` scalars that are none of 0, 1 and −1, with at most `max_copies` copies.
    #[must_use]
    pub fn choose(dense: u64, max_copies: u32) -> Self {
        let max_copies = max_copies.clamp(1, MAX_WINDOWS);
        let candidates = (1..=MAX_WINDOWS).flat_map(|sets| (1..=max_copies).map(move |copies| Self { sets, copies }));
        let allowed = candidates.filter(|shape| (MIN_WINDOWS..=MAX_WINDOWS).contains(&shape.windows()));
        let best = allowed.min_by(|a, b| a.cost(dense).total_cmp(&b.cost(dense)));
        best.unwrap_or(Self { sets: 16, copies: 1 })
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

    /// Buckets of one set.
    #[must_use]
    pub fn buckets(self) -> u64 {
        1 << (self.window_bits() - 1)
    }

    /// Estimated cost in mixed additions.
    #[must_use]
    pub fn cost(self, dense: u64) -> f64 {
        dense as f64 * f64::from(self.windows()) + BUCKET_COST * f64::from(self.sets) * self.buckets() as f64
    }

    /// The widths as the kernels take them: one byte each.
    pub(super) fn packed_widths(self) -> [u32; 8] {
        let mut packed = [0; 8];
        for window in 0..self.windows() {
            packed[window as usize / 4] |= self.width(window) << (8 * (window % 4));
        }
        packed
    }
}

/// Everything that launches and memory depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) group: Group,
    pub(super) shape: Shape,
    pub(super) multiprocessors: u32,
    /// Scalars that one pass takes at most.
    pub(super) slice: u64,
    pub(super) sets_per_batch: u32,
    pub(super) fine_bits: u32,
    pub(super) bins: u32,
    /// Threads of a block of the sorting kernels.
    pub(super) sort_threads: u32,
    /// Scalars per thread of a dealing tile.
    pub(super) per_thread: u32,
    /// Groups of threads that accumulate, and the blocks that hold them.
    pub(super) accumulate_blocks: u32,
    /// log2 of the buckets in a run of the reduction, and of the runs in a set.
    pub(super) log_run: u32,
    pub(super) log_runs: u32,
    /// Blocks that sum one plane.
    pub(super) chunks: u32,
}

/// Threads of a block of the curve kernels.
pub(super) const THREADS: u32 = 128;

impl Plan {
    /// A plan for at most `len` bases at a time (all segments of one call together) on a card of `multiprocessors`, with `pair_budget` bytes
    /// for sorting. Fewer bytes mean more passes: each pass needs 16 bytes per scalar, copy and set of buckets.
    #[must_use]
    pub fn new(group: Group, shape: Shape, len: u64, multiprocessors: u32, pair_budget: u64) -> Self {
        let multiprocessors = multiprocessors.max(1);
        let len = len.max(1);
        let copies = u64::from(shape.copies);
        let max_pairs = (pair_budget / (2 * PAIR)).clamp(1 << 12, MAX_INDEX - 1);
        let slice = len.min(max_pairs / copies).max(1);
        let by_memory = (max_pairs / (slice * copies)).max(1);
        let by_keys = (MAX_KEYS / shape.buckets()).max(1);
        let sets_per_batch = u64::from(shape.sets).min(by_memory).min(by_keys) as u32;

        let keys = u64::from(sets_per_batch) * shape.buckets();
        let pairs = slice * copies * u64::from(sets_per_batch);
        let wanted_bins = (pairs / (1 << 14)).clamp(1, 2048).max(pairs / (1 << 16)).min(8192);
        let sort_threads = if pairs < 1 << 16 { 128 } else { 1024 };
        let bins_of = |fine_bits: u32| keys.div_ceil(1 << fine_bits);
        let mut fine_bits = (keys / wanted_bins).max(1).ilog2().min(MAX_FINE_BITS);
        while bins_of(fine_bits) > 8192 {
            fine_bits += 1;
        }
        let bins = bins_of(fine_bits) as u32;
        // A tile should give each bin a run of pairs that fills a memory transaction, and there should be tiles for every block.
        let windows = u64::from(shape.copies * sets_per_batch);
        let threads = u64::from(sort_threads);
        let per_thread = (4 * u64::from(bins) / (threads * windows)).clamp(1, 8);
        let per_thread = per_thread.min(slice.div_ceil(threads * 2 * u64::from(multiprocessors)).max(1)) as u32;

        let groups_per_block = u64::from(THREADS / group.lanes());
        let resident = u64::from(group.blocks_per_multiprocessor() * multiprocessors);
        let waves = (pairs / (PAIRS_PER_GROUP * groups_per_block * resident)).clamp(1, WAVES);
        let accumulate_blocks = pairs.div_ceil(groups_per_block).min(waves * resident) as u32;

        // Enough runs to fill the card: no more, since every bit of a run's number is a plane to be summed.
        let key_bits = shape.window_bits() - 1;
        let all = (u64::from(shape.sets) << key_bits).next_power_of_two().ilog2();
        let log_all_runs = (if all > 20 { 17 } else { 16 }) - group.lanes();
        let log_run = all.saturating_sub(log_all_runs).max(2).min(key_bits);
        let log_runs = key_bits - log_run;
        let chunks = (1u64 << log_runs).div_ceil(groups_per_block * 8).clamp(1, 64) as u32;
        Self {
            group,
            shape,
            multiprocessors,
            slice,
            sets_per_batch,
            fine_bits,
            bins,
            sort_threads,
            per_thread,
            accumulate_blocks,
            log_run,
            log_runs,
            chunks,
        }
    }

    /// The shape this plan is for.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Device bytes of workspace.
    #[must_use]
    pub fn workspace_bytes(&self) -> u64 {
        self.layout().bytes
    }

    /// Bytes that come back to the host.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.rows() as usize * self.group.jacobian_bytes()
    }

    /// Points that come back: one per plane and set.
    pub(super) fn rows(&self) -> u32 {
        self.shape.sets * (self.log_runs + 1)
    }

    pub(super) fn max_pairs(&self) -> u64 {
        self.slice * u64::from(self.shape.copies) * u64::from(self.sets_per_batch)
    }

    /// Whether two tables of these lengths can be told apart by one virtual index.
    pub(super) fn can_join(&self, lengths: [u64; 2]) -> bool {
        let [a, b] = lengths;
        a + b <= self.slice && (a + b) * u64::from(self.shape.copies) < MAX_INDEX
    }

    /// Number of entries of each level of heads, the first written by the accumulation.
    pub(super) fn head_levels(&self) -> Vec<u32> {
        let mut levels = vec![self.accumulate_blocks * THREADS / self.group.lanes()];
        while let Some(&last) = levels.last()
            && last > 1
        {
            levels.push(last.div_ceil(FOLD));
        }
        levels
    }

    pub(super) fn layout(&self) -> Layout {
        let mut end = 0;
        let mut part = |bytes: u64| {
            let from = end;
            end = (end + bytes).next_multiple_of(ALIGN);
            from
        };
        let xyzz = self.group.xyzz_bytes();
        let heads: u64 = self.head_levels().iter().map(|&n| u64::from(n)).sum();
        let runs = u64::from(self.shape.sets) << self.log_runs;
        let histogram = part(4 * (u64::from(self.bins) + 1));
        let start = part(4 * (u64::from(self.bins) + 2));
        let cursor = part(4 * (u64::from(self.bins) + 1));
        let dealt = part(PAIR * self.max_pairs());
        let sorted = part(PAIR * self.max_pairs());
        let buckets = part(xyzz * u64::from(self.shape.sets) * self.shape.buckets());
        let head_keys = part(4 * heads);
        let heads = part(xyzz * heads);
        let sums = part(xyzz * runs);
        let weighted = part(xyzz * runs);
        let partial = part(xyzz * u64::from(self.rows()) * u64::from(self.chunks));
        let output = part(self.output_bytes() as u64);
        Layout {
            histogram,
            start,
            cursor,
            dealt,
            sorted,
            buckets,
            head_keys,
            heads,
            sums,
            weighted,
            partial,
            output,
            bytes: end,
        }
    }
}

/// Offsets of the parts of a workspace, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) histogram: u64,
    pub(super) start: u64,
    pub(super) cursor: u64,
    pub(super) dealt: u64,
    pub(super) sorted: u64,
    pub(super) buckets: u64,
    pub(super) head_keys: u64,
    pub(super) heads: u64,
    pub(super) sums: u64,
    pub(super) weighted: u64,
    pub(super) partial: u64,
    pub(super) output: u64,
    pub(super) bytes: u64,
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
    fn plans_respect_the_limits_of_the_kernels_for_any_size() {
        for group in [Group::G1, Group::G2] {
            for log_n in 0..=27 {
                for (copies, budget) in [(1, 0), (1, 1 << 24), (1, 1 << 34), (12, 1 << 28), (64, 1 << 36)] {
                    for n in [(1u64 << log_n) - 1, 1 << log_n, (1 << log_n) + 1] {
                        let plan = Plan::new(group, Shape::choose(n, copies), n, 132, budget);
                        let keys = u64::from(plan.sets_per_batch) * plan.shape.buckets();
                        assert!(u64::from(plan.bins) << plan.fine_bits >= keys);
                        assert!(plan.bins <= 8192 && plan.fine_bits <= MAX_FINE_BITS, "{plan:?}");
                        assert!(plan.max_pairs() < MAX_INDEX && plan.slice >= 1);
                        assert!(plan.per_thread >= 1 && plan.accumulate_blocks >= 1);
                        assert_eq!(plan.log_run + plan.log_runs + 1, plan.shape.window_bits());
                        assert!(plan.workspace_bytes() >= 2 * PAIR * plan.max_pairs());
                        assert!(2 * PAIR * plan.max_pairs() <= budget.max((2 * PAIR) << 13), "{plan:?}");
                    }
                }
            }
        }
    }
}
