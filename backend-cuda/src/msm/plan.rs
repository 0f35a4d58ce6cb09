//! How a multi-exponentiation of a given [`Shape`] is cut up: batches, bins, and the workspace that follows from them. Pure numbers, no device.

use super::Group;
use super::shape::{Shape, packed};

/// Pairs that an accumulating group should have at least, and launches' worth of groups at most. More groups than fit the card at once keep it
/// busy to the end: warps of equal work finish at different times.
const PAIRS_PER_GROUP: u64 = 64;
const WAVES: u64 = 10;

/// Most keys that one sort can tell apart: bins of shared-memory counters twice over.
const MAX_KEYS: u64 = 1 << 25;
const MAX_FINE_BITS: u32 = 12;

/// Most bins, and pairs that a bin should have at most, so that a block can put them in order in shared memory at once or in two turns; so many pairs make
/// a batch.
const MAX_BINS: u64 = 1 << 13;
const PAIRS_PER_BIN: u64 = 30_000;
const PAIRS_PER_BATCH: u64 = 34_000 * MAX_BINS;

/// Dynamic shared memory of a sorting block that plans count on, of the 227 KiB of a large card. Where there is less, pairs are scattered to device memory
/// one by one.
const SORT_SHARED: u64 = 219 << 10;

/// Bytes of a pair in the shared memory of the block that sorts its bin: base and key within the bin.
const STAGED_PAIR: u64 = 6;

/// Budgets that are tried for a workspace of given size.
const BUDGETS_TRIED: u64 = 32;

/// Virtual base indices have 31 bits, beside the sign.
const MAX_INDEX: u64 = 1 << 31;

/// Heads that one group folds in one step.
pub(super) const FOLD: u32 = 8;

/// Bytes of one (bucket, base) pair, and what sorting takes for it: where it is dealt, and where it is sorted, with padding.
const PAIR: u64 = 8;
const SORTED_PAIR: u64 = 2 * PAIR + PAIR / 4;

/// Lists of at least this many pairs per multiprocessor have neighbours added in affine coordinates first, for up to so many rounds: on an H200,
/// in G1, 14 million pairs took a fifth longer that way and 55 million a twentieth less. In G2 an inversion weighs less.
const PAIRS_FOR_AFFINE: u64 = 1 << 18;
const PAIRS_FOR_AFFINE_G2: u64 = 1 << 16;
const AFFINE_ROUNDS: u32 = 3;

/// Additions of a lane that share an inversion, at least and at most; and passes of a tile's first round at most, which fill the later rounds.
const AFFINE_PER_LANE: (u64, u64) = (4, 64);
const AFFINE_PASSES: u64 = 2;

/// Tiles that each warp should have at least, so that warps end together.
const AFFINE_TILES: u64 = 4;

/// Scratch of a lane per addition of a pass and per addition of a tile, in G1: a product and a sum. In G2 twice that: the norm as well, and a longer sum.
const AFFINE_SCRATCH: (u64, u64) = (48, 96);

/// Parts in which the sums of neighbours go from the one kernel to the other: they take the place of the dealt pairs, 24 bytes for each 8 at worst, and in
/// G2 60. Lists that are forced through affine additions may be padded to four times their length.
const AFFINE_PARTS: u32 = 4;
const AFFINE_PARTS_G2: u32 = 8;
const AFFINE_PARTS_FORCED: u32 = 32;

/// Dense scalars are few where they are no more than one in so many.
const FEW: u64 = 6;

/// Parts of the workspace begin at multiples of this.
const ALIGN: u64 = 256;

/// Bytes in front of the histogram that say what the list is.
pub(super) const LIST_BYTES: u64 = ALIGN;

/// How many scalars a list of pairs comes from, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Scalars that are none of 0, 1 and −1: a pair for each window at most.
    pub dense: u64,
    /// Scalars of 1 or −1: one pair.
    pub units: u64,
}

impl Counts {
    /// Of `len` scalars that nothing is known of.
    #[must_use]
    pub fn any(len: u64) -> Self {
        Self { dense: len, units: 0 }
    }

    /// Whether so few of `len` scalars are dense that their pairs are dealt one by one: a tile of them wouldn't fill its bins.
    #[must_use]
    pub fn are_few(self, len: u64) -> bool {
        self.dense <= len / FEW
    }

    /// Of any `len` of the scalars.
    fn of(self, len: u64) -> Self {
        let dense = self.dense.min(len);
        Self { dense, units: self.units.min(len - dense) }
    }

    /// Pairs when each dense scalar has so many windows, one or more.
    fn pairs(self, windows: u64) -> u64 {
        self.dense * windows + self.units
    }
}

/// Whether sums in G2 have neighbours added in affine coordinates first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AffineG2 {
    /// Never: for measurements and tests.
    Off,
    /// Where lists are long.
    #[default]
    On,
    /// Wherever there is room, even where it doesn't pay: for tests.
    Always,
}

/// Which lists have neighbours added in affine coordinates first, and by how many blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AffineTerms {
    /// Pairs per multiprocessor that a list must have; none: any list, even where it doesn't pay.
    pub(super) least: u64,
    /// Resident blocks of the kernel per multiprocessor, at most: what its launch bounds promise on Hopper and later. Where fewer fit, the others follow
    /// them.
    pub(super) resident: u32,
}

impl AffineTerms {
    fn of(group: Group, affine_g2: AffineG2) -> Option<Self> {
        match (group, affine_g2) {
            (Group::G1, _) => Some(Self { least: PAIRS_FOR_AFFINE, resident: 4 }),
            (Group::G2, AffineG2::Off) => None,
            (Group::G2, AffineG2::On) => Some(Self { least: PAIRS_FOR_AFFINE_G2, resident: 3 }),
            (Group::G2, AffineG2::Always) => Some(Self { least: 0, resident: 3 }),
        }
    }
}

/// Everything that launches and memory depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) group: Group,
    pub(super) shape: Shape,
    /// Copies of the table for each that is used.
    pub(super) spacing: u32,
    pub(super) multiprocessors: u32,
    /// Scalars that one pass takes at most, and how many of those have pairs.
    pub(super) slice: u64,
    counts: Counts,
    pub(super) sets_per_batch: u32,
    pub(super) fine_bits: u32,
    pub(super) bins: u32,
    /// Threads of a block of the sorting kernels.
    pub(super) sort_threads: u32,
    /// Scalars per thread of a dealing tile.
    pub(super) per_thread: u32,
    /// Groups of threads that accumulate, and the blocks that hold them.
    pub(super) accumulate_blocks: u32,
    /// log2 of the buckets in a run of the reduction, and of the runs in a set, at most.
    pub(super) log_run: u32,
    pub(super) log_runs: u32,
    /// Blocks that sum one plane.
    pub(super) chunks: u32,
    /// Affine additions of neighbours, where they can pay.
    pub(super) affine: Option<Affine>,
}

/// How neighbours in the list of pairs are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Affine {
    /// Pairs from which on it pays.
    pub(super) least: u32,
    /// Rounds at most: 2^rounds pairs become one point.
    pub(super) rounds: u32,
    /// Blocks in all.
    pub(super) blocks: u32,
    /// Additions of a lane in a pass, and passes of a tile's first round.
    pub(super) per_lane: u32,
    pub(super) passes: u32,
    /// Launches that share the list.
    pub(super) parts: u32,
}

impl Affine {
    /// For at most `pairs` pairs and with `budget` bytes for sorting.
    fn plan(group: Group, pairs: u64, multiprocessors: u32, budget: u64, terms: AffineTerms) -> Option<Self> {
        let (least, forced) = (terms.least * u64::from(multiprocessors), terms.least == 0);
        if pairs < least {
            return None;
        }
        let blocks = terms.resident * multiprocessors;
        let threads = u64::from(THREADS * blocks);
        // Additions of a lane in a tile; and a quarter of the budget for scratch.
        let (fewest, most) = AFFINE_PER_LANE;
        let (product, sum) = AFFINE_SCRATCH;
        let wanted = (pairs / (2 * threads * AFFINE_TILES)).min(budget / (4 * threads * (product + sum)));
        let wanted = if forced { wanted.max(fewest) } else { wanted };
        let per_lane = wanted.min(most) / fewest * fewest;
        if per_lane == 0 {
            return None;
        }
        let parts = if group == Group::G1 { AFFINE_PARTS } else { AFFINE_PARTS_G2 };
        Some(Self {
            least: least.min(u64::from(u32::MAX)) as u32,
            rounds: AFFINE_ROUNDS,
            blocks,
            per_lane: per_lane as u32,
            passes: (wanted / per_lane).min(AFFINE_PASSES) as u32,
            parts: if forced { AFFINE_PARTS_FORCED } else { parts },
        })
    }

    fn scratch_bytes(&self, group: Group) -> u64 {
        let (product, sum) = AFFINE_SCRATCH;
        let addition = u64::from(group.lanes()) * (product + sum * u64::from(self.passes));
        u64::from(THREADS * self.blocks) * u64::from(self.per_lane) * addition
    }
}

/// Threads of a block of the curve kernels.
pub(super) const THREADS: u32 = 128;

impl Plan {
    /// Bases of the tables of one call, all copies together, at most.
    pub const MAX_BASES: u64 = MAX_INDEX - 1;

    /// A plan for at most `len` bases at a time (all segments of one call together) on a card of `multiprocessors`, with `pair_budget` bytes
    /// for sorting. Fewer bytes mean more passes: each pass needs 16 to 18 bytes per pair.
    #[must_use]
    pub fn new(
        group: Group,
        affine_g2: AffineG2,
        shape: Shape,
        len: u64,
        multiprocessors: u32,
        pair_budget: u64,
    ) -> Self {
        Self::for_counts(group, affine_g2, shape, len, Counts::any(len), multiprocessors, pair_budget)
    }

    /// The same for scalars of which no more than `counts` have pairs. A multi-exponentiation over more of them would overrun its workspace.
    #[must_use]
    pub fn for_counts(
        group: Group,
        affine_g2: AffineG2,
        shape: Shape,
        len: u64,
        counts: Counts,
        multiprocessors: u32,
        pair_budget: u64,
    ) -> Self {
        Self::with_affine(AffineTerms::of(group, affine_g2), group, shape, len, counts, multiprocessors, pair_budget)
    }

    /// A plan with few batches whose workspace is no larger than `workspace` bytes, for scalars of which no more than `counts` have pairs; none where
    /// none was found.
    #[must_use]
    pub fn within(
        group: Group,
        affine_g2: AffineG2,
        shape: Shape,
        len: u64,
        counts: Counts,
        multiprocessors: u32,
        workspace: u64,
    ) -> Option<Self> {
        // Parts of the workspace grow and shrink with the budget, each in its own way, so several are tried, the largest first.
        let mut best: Option<Self> = None;
        for parts in (1..=BUDGETS_TRIED).rev() {
            let budget = workspace / BUDGETS_TRIED * parts;
            let plan = Self::for_counts(group, affine_g2, shape, len, counts, multiprocessors, budget);
            let batches = plan.batches(len);
            if plan.workspace_bytes() <= workspace && best.as_ref().is_none_or(|best| batches < best.batches(len)) {
                best = Some(plan);
                if batches == 1 {
                    break;
                }
            }
        }
        best
    }

    /// A plan with other terms for affine additions, or none.
    pub(super) fn with_affine(
        terms: Option<AffineTerms>,
        group: Group,
        shape: Shape,
        len: u64,
        counts: Counts,
        multiprocessors: u32,
        pair_budget: u64,
    ) -> Self {
        let multiprocessors = multiprocessors.max(1);
        let len = len.max(1);
        let copies = u64::from(shape.copies);
        let max_pairs = (pair_budget / SORTED_PAIR).clamp(1 << 12, MAX_INDEX - 1);
        // All scalars, or as many as may all be dense and have room.
        let whole = counts.of(len).pairs(copies) <= max_pairs;
        let slice = if whole { len } else { len.min(max_pairs / copies).max(1) };
        let counts = counts.of(slice);
        let dense = counts.dense.max(1) * copies;
        let by_memory = (max_pairs.saturating_sub(counts.units) / dense).max(1);
        let by_keys = (MAX_KEYS >> (shape.window_bits() - 1)).max(1);
        let by_bins = (PAIRS_PER_BATCH / dense).max(1);
        let sets = u64::from(shape.sets);
        let most = sets.min(by_memory).min(by_keys).min(by_bins);
        // Batches of even size.
        let sets_per_batch = sets.div_ceil(sets.div_ceil(most)) as u32;

        let pairs = counts.pairs(copies * u64::from(sets_per_batch)).max(1);
        let sort_threads = if slice < 1 << 12 { 128 } else { 1024 };

        let groups_per_block = u64::from(THREADS / group.lanes());
        let resident = u64::from(group.blocks_per_multiprocessor() * multiprocessors);
        let affine = terms.and_then(|terms| Affine::plan(group, pairs, multiprocessors, pair_budget, terms));
        let points = affine.map_or(pairs, |affine| pairs >> affine.rounds);
        let waves = (points / (PAIRS_PER_GROUP * groups_per_block * resident)).clamp(1, WAVES);
        let accumulate_blocks = pairs.div_ceil(groups_per_block).min(waves * resident) as u32;

        // Enough runs to fill the card: no more, since every bit of a run's number is a plane to be summed.
        let narrowest = (0..shape.sets).map(|set| shape.bucket_bits(set)).min().unwrap_or(0);
        let all = shape.buckets().next_power_of_two().ilog2();
        let log_all_runs = (if all > 20 { 17 } else { 16 }) - group.lanes();
        let log_run = all.saturating_sub(log_all_runs).max(2).min(narrowest);
        let log_runs = shape.window_bits() - 1 - log_run;
        let chunks = (1u64 << log_runs).div_ceil(groups_per_block * 8).clamp(1, 64) as u32;
        let mut plan = Self {
            group,
            shape,
            spacing: 1,
            multiprocessors,
            slice,
            counts,
            sets_per_batch,
            fine_bits: 0,
            bins: 1,
            sort_threads,
            per_thread: 1,
            accumulate_blocks,
            log_run,
            log_runs,
            chunks,
            affine,
        };
        plan.cut_sort();
        plan
    }

    /// The same plan for a table of `copies` copies, of which the shape uses every first, second, third, …
    ///
    /// # Panics
    /// If the shape's copies don't divide them.
    #[must_use]
    pub fn over(mut self, copies: u32) -> Self {
        assert!(copies.is_multiple_of(self.shape.copies), "{} copies for {:?}", copies, self.shape);
        self.spacing = copies / self.shape.copies;
        self
    }

    /// Copies in the table.
    pub(super) fn table_copies(&self) -> u32 {
        self.shape.copies * self.spacing
    }

    /// Windows of a scalar in a batch.
    fn windows_per_batch(&self) -> u64 {
        u64::from(self.shape.copies * self.sets_per_batch)
    }

    /// Pairs of a batch that are sorted: those of units aren't.
    fn pairs_to_sort(&self) -> u64 {
        (self.counts.dense * self.windows_per_batch()).max(1)
    }

    /// Pairs that `keys` of the fullest buckets have: those that the narrowest windows add to.
    fn fullest(&self, keys: u64) -> u64 {
        let shape = self.shape;
        let share =
            |set| (0..shape.copies).map(|copy| 0.5f64.powi(shape.width(copy * shape.sets + set) as i32 - 1)).sum();
        let fullest = (0..shape.sets).map(share).fold(0.0, f64::max);
        (self.counts.dense as f64 * fullest * keys as f64) as u64
    }

    /// Whether most scalars have pairs: only then do a tile's fill the bins.
    fn is_dense(&self) -> bool {
        4 * self.counts.dense >= self.slice
    }

    /// Sets bins and tiles by the number of pairs.
    fn cut_sort(&mut self) {
        let (keys, pairs) = (u64::from(self.keys()), self.pairs_to_sort());
        let even = self.fullest(keys);
        let wanted_bins = (even / (1 << 14)).clamp(1, 2048).max(even / PAIRS_PER_BIN).min(MAX_BINS);
        let bins_of = |fine_bits: u32| keys.div_ceil(1 << fine_bits);
        // The first bin's last key pads the list, so it must be one of the last batch's too, which may have fewer.
        let last = (self.shape.sets - 1) / self.sets_per_batch * self.sets_per_batch;
        let fewest = u64::from(self.keys_of(last, self.shape.sets)).min(keys);
        self.fine_bits = (keys / wanted_bins).min(fewest).max(1).ilog2().min(MAX_FINE_BITS);
        while bins_of(self.fine_bits) > MAX_BINS {
            self.fine_bits += 1;
        }
        let bins = bins_of(self.fine_bits);
        self.bins = bins as u32;
        // A tile should give each bin a run of pairs that fills a memory transaction, it should find room where it is gathered, and there should be tiles
        // for every block.
        let threads = u64::from(self.sort_threads);
        let per_thread = (4 * bins * self.slice / (threads * pairs)).clamp(1, 8);
        let windows = self.windows_per_batch();
        let gathered = (SORT_SHARED / PAIR).saturating_sub(bins + 1) / (threads * windows);
        let per_thread = if self.is_dense() { per_thread.min(gathered.max(1)) } else { per_thread };
        let blocks = 2 * u64::from(self.multiprocessors);
        self.per_thread = per_thread.min(self.slice.div_ceil(threads * blocks).max(1)) as u32;
    }

    /// The shape this plan is for.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Batches in which all pairs are sorted and added.
    #[must_use]
    pub fn batches(&self, len: u64) -> u64 {
        len.div_ceil(self.slice) * u64::from(self.shape.sets.div_ceil(self.sets_per_batch))
    }

    /// Pairs of a batch, at most, for each multiprocessor of the card.
    #[must_use]
    pub fn pairs_per_multiprocessor(&self) -> u64 {
        self.max_pairs() / u64::from(self.multiprocessors)
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

    /// Pairs of a batch, at most.
    pub(super) fn max_pairs(&self) -> u64 {
        self.counts.pairs(self.windows_per_batch()).max(1)
    }

    /// Pairs of a tile that are gathered by bin in shared memory before they are dealt: all, or none where they don't fit in `shared` bytes.
    pub(super) fn deal_stage(&self, shared: u32) -> u32 {
        let pairs = u64::from(self.sort_threads * self.per_thread) * self.windows_per_batch();
        let bytes = 2 * 4 * (u64::from(self.bins) + 1) + PAIR * pairs;
        if self.is_dense() && bytes <= u64::from(shared) { pairs as u32 } else { 0 }
    }

    /// Pairs of a bin that are put in order in `shared` bytes of shared memory at a time: somewhat more than the fullest bins should have, with their padding, or
    /// as many as there is room for.
    pub(super) fn bin_stage(&self, shared: u32) -> u32 {
        let padding = self.affine.map_or(0, |affine| (1 << affine.rounds) - 1) << self.fine_bits;
        let expected = self.fullest(1 << self.fine_bits) + padding / 2;
        let room = u64::from(shared).saturating_sub(4 << self.fine_bits) / STAGED_PAIR;
        let stage = room.min(expected + expected / 8 + 512);
        (stage / 2 * 2) as u32
    }

    /// Dynamic shared memory of the dealing and the sorting blocks for these stages.
    pub(super) fn sort_shared(&self, deal_stage: u32, bin_stage: u32) -> [u32; 2] {
        let counters = 4 * (self.bins + 1);
        let deal = if deal_stage == 0 { counters } else { 2 * counters + PAIR as u32 * deal_stage };
        [deal, (4 << self.fine_bits) + STAGED_PAIR as u32 * bin_stage]
    }

    /// Keys of the batch of these bucket sets.
    pub(super) fn keys_of(&self, from: u32, to: u32) -> u32 {
        self.shape.buckets_of(from, to) as u32
    }

    /// Runs of all sets, and log2 of those of each set, one byte each.
    pub(super) fn runs(&self) -> (u32, [u32; 8]) {
        let sets = 0..self.shape.sets;
        (
            (self.shape.buckets() >> self.log_run) as u32,
            packed(sets.map(|set| self.shape.bucket_bits(set) - self.log_run)),
        )
    }

    /// Keys that a batch of bucket sets has, at most.
    pub(super) fn keys(&self) -> u32 {
        let batches = (0..self.shape.sets).step_by(self.sets_per_batch as usize);
        batches.map(|from| self.keys_of(from, from + self.sets_per_batch)).max().unwrap_or(1)
    }

    /// Room in the sorted list, which may be padded.
    pub(super) fn list_room(&self) -> u64 {
        let pairs = self.max_pairs();
        match self.affine {
            None => pairs,
            Some(affine) if affine.least == 0 => 4 * pairs + (4 << MAX_FINE_BITS),
            Some(_) => pairs + pairs / 4,
        }
    }

    /// Sums of neighbours that one part of the list may leave: they take the place of the dealt pairs.
    pub(super) fn sums_room(&self) -> u64 {
        PAIR * self.max_pairs() / self.group.point_bytes()
    }

    /// Whether two tables of these lengths can be told apart by one virtual index.
    pub(super) fn can_join(&self, lengths: [u64; 2]) -> bool {
        let [a, b] = lengths;
        a + b <= self.slice && (a + b) * u64::from(self.table_copies()) < MAX_INDEX
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
        let runs = u64::from(self.runs().0);
        let list = part(LIST_BYTES);
        let histogram = part(4 * (u64::from(self.bins) + 1));
        let start = part(4 * (u64::from(self.bins) + 2));
        let cursor = part(4 * (u64::from(self.bins) + 1));
        let dealt = part(PAIR * self.max_pairs());
        let sorted = part(PAIR * self.list_room());
        let buckets = part(xyzz * self.shape.buckets());
        let head_keys = part(4 * heads);
        let heads = part(xyzz * heads);
        let sums = part(xyzz * runs);
        let weighted = part(xyzz * runs);
        let partial = part(xyzz * u64::from(self.rows()) * u64::from(self.chunks));
        let output = part(self.output_bytes() as u64);
        let scratch = part(self.affine.map_or(0, |affine| affine.scratch_bytes(self.group)));
        Layout {
            list,
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
            scratch,
            bytes: end,
        }
    }
}

/// Offsets of the parts of a workspace, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Rounds, length of the list, and a counter of tiles for each part; the histogram follows.
    pub(super) list: u64,
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
    pub(super) scratch: u64,
    pub(super) bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_scalars_take_fewer_batches_and_no_more_room() {
        let (len, room) = (1u64 << 26, 4u64 << 30);
        let plan = |counts: Counts| {
            let shape = Shape::choose(counts.dense, 1);
            let plan = Plan::within(Group::G1, AffineG2::On, shape, len, counts, 132, room).unwrap();
            assert!(plan.workspace_bytes() <= room, "{plan:?}");
            plan.batches(len)
        };
        assert_eq!(plan(Counts { dense: 0, units: 0 }), 1);
        assert_eq!(plan(Counts { dense: 1 << 20, units: 1 << 25 }), 1);
        assert!(plan(Counts { dense: len, units: 0 }) > 8);
        let none = Counts::any(len);
        assert_eq!(Plan::within(Group::G1, AffineG2::On, Shape::choose(len, 1), len, none, 132, 1 << 20), None);
    }

    #[test]
    fn plans_respect_the_limits_of_the_kernels_for_any_size() {
        for group in [Group::G1, Group::G2] {
            for log_n in 0..=27 {
                for (copies, budget) in [(1, 0), (1, 1 << 24), (1, 1 << 34), (12, 1 << 28), (64, 1 << 36)] {
                    for n in [(1u64 << log_n) - 1, 1 << log_n, (1 << log_n) + 1] {
                        for counts in [Counts::any(n), Counts { dense: n / 50, units: n / 2 }] {
                            let terms = AffineTerms::of(group, AffineG2::On);
                            let shape = Shape::choose(counts.dense, copies);
                            let plan = Plan::with_affine(terms, group, shape, n, counts, 132, budget);
                            let keys = u64::from(plan.keys());
                            assert!(u64::from(plan.bins) << plan.fine_bits >= keys);
                            assert!(u64::from(plan.bins) <= MAX_BINS && plan.fine_bits <= MAX_FINE_BITS, "{plan:?}");
                            assert!(plan.max_pairs() < MAX_INDEX && plan.slice >= 1);
                            assert!(plan.per_thread >= 1 && plan.accumulate_blocks >= 1);
                            for shared in [48 << 10, 99 << 10, 227 << 10] {
                                let stages = (plan.deal_stage(shared), plan.bin_stage(shared));
                                let [deal, sort] = plan.sort_shared(stages.0, stages.1);
                                assert!(deal <= shared || stages.0 == 0 && deal <= 48 << 10, "{plan:?}");
                                assert!(sort <= shared, "{plan:?}");
                            }
                            assert_eq!(plan.log_run + plan.log_runs + 1, plan.shape.window_bits());
                            let sets = plan.shape.sets;
                            let last = (sets - 1) / plan.sets_per_batch * plan.sets_per_batch;
                            assert!(
                                1 << plan.fine_bits <= plan.keys_of(last, sets) || plan.bins >= 1 << 12,
                                "{plan:?}"
                            );
                            assert!(plan.workspace_bytes() >= 2 * PAIR * plan.max_pairs());
                            assert!(2 * PAIR * plan.max_pairs() <= budget.max((2 * PAIR) << 13), "{plan:?}");
                        }
                    }
                }
            }
        }
    }
}
