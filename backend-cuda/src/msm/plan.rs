//! How a multi-exponentiation is cut up: window size, copies of the base table, batches, and the workspace that follows from them.
//!
//! Pure numbers, no device. The unit of cost is one mixed addition into a bucket.

use super::Group;

/// Bits of a signed-digit decomposition: a scalar or its negative is below 2²⁵⁴, and one more bit takes the last carry.
const SCALAR_BITS: u32 = 255;

/// What a bucket costs in the reduction, in mixed additions: two full additions of about 1.44 each.
const BUCKET_COST: f64 = 2.9;

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

/// The window size and how many shifted copies of the bases stand in the table: copy t holds 2^(window_bits · sets · t) times each base.
///
/// Copies let windows share buckets: with `copies` of them only every `sets`-th window needs buckets of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bits of a window; buckets are half as many as its values.
    pub window_bits: u32,
    /// Copies of the bases in the table, the bases themselves included.
    pub copies: u32,
}

impl Shape {
    /// The cheapest shape for `dense` scalars that are none of 0, 1 and −1, with at most `max_copies` copies.
    #[must_use]
    pub fn choose(dense: u64, max_copies: u32) -> Self {
        let candidates = (4..=24).map(|window_bits| {
            let windows = SCALAR_BITS.div_ceil(window_bits);
            // No more copies than change the number of sets.
            let sets = windows.div_ceil(max_copies.clamp(1, windows));
            Self { window_bits, copies: windows.div_ceil(sets) }
        });
        let best = candidates.min_by(|a, b| a.cost(dense).total_cmp(&b.cost(dense)));
        best.unwrap_or(Self { window_bits: 16, copies: 1 })
    }

    /// Number of windows.
    #[must_use]
    pub fn windows(self) -> u32 {
        SCALAR_BITS.div_ceil(self.window_bits)
    }

    /// Number of sets of buckets.
    #[must_use]
    pub fn sets(self) -> u32 {
        self.windows().div_ceil(self.copies)
    }

    /// Doublings from one copy to the next.
    #[must_use]
    pub fn doublings(self) -> u32 {
        self.window_bits * self.sets()
    }

    /// Buckets of one set.
    #[must_use]
    pub fn buckets(self) -> u64 {
        1 << (self.window_bits - 1)
    }

    /// Estimated cost in mixed additions.
    #[must_use]
    pub fn cost(self, dense: u64) -> f64 {
        dense as f64 * f64::from(self.windows()) + BUCKET_COST * f64::from(self.sets()) * self.buckets() as f64
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
        let sets_per_batch = u64::from(shape.sets()).min(by_memory).min(by_keys) as u32;

        let keys = u64::from(sets_per_batch) * shape.buckets();
        let pairs = slice * copies * u64::from(sets_per_batch);
        let wanted_bins = (pairs / 4096).clamp(1, 2048);
        let sort_threads = if pairs < 1 << 16 { 128 } else { 1024 };
        let fine_bits = keys.div_ceil(wanted_bins).next_power_of_two().ilog2().min(MAX_FINE_BITS);
        let bins = keys.div_ceil(1 << fine_bits) as u32;
        // A tile should give each bin a run of pairs that fills a memory transaction, and there should be tiles for every block.
        let windows = u64::from(shape.copies * sets_per_batch);
        let threads = u64::from(sort_threads);
        let per_thread = (4 * u64::from(bins) / (threads * windows)).clamp(1, 8);
        let per_thread = per_thread.min(slice.div_ceil(threads * 2 * u64::from(multiprocessors)).max(1)) as u32;

        let groups_per_block = u64::from(THREADS / group.lanes());
        let accumulate_blocks =
            pairs.div_ceil(groups_per_block).min(u64::from(group.blocks_per_multiprocessor() * multiprocessors)) as u32;

        let all = u64::from(shape.sets()) * shape.buckets();
        let log_run = all.next_power_of_two().ilog2().saturating_sub(16).max(2).min(shape.window_bits - 1);
        let log_runs = shape.window_bits - 1 - log_run;
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
        self.shape.sets() * (self.log_runs + 1)
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
        let runs = u64::from(self.shape.sets()) << self.log_runs;
        let histogram = part(4 * (u64::from(self.bins) + 1));
        let start = part(4 * (u64::from(self.bins) + 2));
        let cursor = part(4 * (u64::from(self.bins) + 1));
        let dealt = part(PAIR * self.max_pairs());
        let sorted = part(PAIR * self.max_pairs());
        let buckets = part(xyzz * u64::from(self.shape.sets()) * self.shape.buckets());
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
    fn windows_always_cover_a_scalar_and_its_last_carry() {
        for window_bits in 4..=24 {
            for copies in 1..=64 {
                let shape = Shape { window_bits, copies };
                assert!(shape.windows() * window_bits >= SCALAR_BITS);
                assert!(shape.sets() * copies >= shape.windows());
            }
        }
    }

    #[test]
    fn larger_inputs_get_larger_windows_and_copies_never_cost_more() {
        let bits = |log_n: u32, copies| Shape::choose(1 << log_n, copies).window_bits;
        for log_n in 0..28 {
            assert!(bits(log_n + 1, 1) >= bits(log_n, 1));
            for copies in 1..16 {
                let (more, fewer) = (Shape::choose(1 << log_n, copies + 1), Shape::choose(1 << log_n, copies));
                assert!(more.cost(1 << log_n) <= fewer.cost(1 << log_n));
                assert!(fewer.copies <= copies);
            }
        }
        assert!((20..=22).contains(&bits(24, 1)));
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
                        assert_eq!(plan.log_run + plan.log_runs + 1, plan.shape.window_bits);
                        assert!(plan.workspace_bytes() >= 2 * PAIR * plan.max_pairs());
                        assert!(2 * PAIR * plan.max_pairs() <= budget.max(2 * PAIR << 13), "{plan:?}");
                    }
                }
            }
        }
    }
}
