//! Multi-exponentiation on the device: Σ kᵢ·Pᵢ in G1 or G2 for scalars and bases in device memory.
//!
//! Scalars are cut into signed digits, (bucket, base) pairs are sorted by bucket, buckets are summed, and a weighted sum of the buckets is
//! reduced to a few points that the host folds into one: see `kernels/msm_sort.cu` and `kernels/msm.cuh`. In long lists of pairs neighbours are
//! added in affine coordinates first (`kernels/msm_affine.cuh`, and in G2 `kernels/msm_affine_g2.cuh`); the device decides by the number of pairs, which the host doesn't know. Zero scalars cost
//! nothing and scalars of ±1 one addition, however many there are; skewed scalars cost no more than random ones; equal, opposite and infinite
//! bases are added correctly everywhere.
//!
//! Nothing here allocates, waits or copies to the host. All memory is a workspace of [`Plan::workspace_bytes`] that the caller owns,
//! and all work goes to the caller's stream:
//!
//! ```text
//! Msm::begin            empty buckets
//! Msm::add, repeated    add one or more segments (bases and their scalars); bases may be streamed through in parts
//! Msm::finish           reduce; `Plan::output_bytes` bytes lie at `Msm::output`, to be copied to the host
//! collect_g1 / _g2      fold those bytes on the CPU
//! ```

use std::mem::size_of;

use blstrs::{G1Projective, G2Projective};

use crate::driver::{Arg, CudaError, DevicePtr, Event, Function, Stream};
use crate::kernels::{Family, Kernels};

mod plan;
mod shape;
#[cfg(test)]
mod tests;

pub use plan::{AffineG2, Counts, Plan};
use plan::{FOLD, LIST_BYTES, THREADS};
pub use shape::Shape;

/// Which group the bases are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// 96-byte affine points.
    G1,
    /// 192-byte affine points.
    G2,
}

impl Group {
    /// Bytes of an affine base: x ‖ y, Montgomery, little-endian, infinity all zero; in G2 each coordinate is c0 ‖ c1.
    #[must_use]
    pub fn point_bytes(self) -> u64 {
        match self {
            Self::G1 => 96,
            Self::G2 => 192,
        }
    }

    fn xyzz_bytes(self) -> u64 {
        2 * self.point_bytes()
    }

    fn jacobian_bytes(self) -> usize {
        match self {
            Self::G1 => size_of::<G1Projective>(),
            Self::G2 => size_of::<G2Projective>(),
        }
    }

    /// Threads that share one field element.
    fn lanes(self) -> u32 {
        match self {
            Self::G1 => 1,
            Self::G2 => 2,
        }
    }

    /// Resident blocks of the accumulating kernel: what its launch bounds promise.
    fn blocks_per_multiprocessor(self) -> u32 {
        match self {
            Self::G1 => 4,
            Self::G2 => 2,
        }
    }

    fn family(self) -> Family {
        match self {
            Self::G1 => Family::MsmG1,
            Self::G2 => Family::MsmG2,
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::G1 => "msm_g1",
            Self::G2 => "msm_g2",
        }
    }
}

/// The kernels for one group.
#[derive(Clone, Debug)]
pub struct MsmKernels {
    group: Group,
    count: Function,
    few: Function,
    scan: Function,
    deal: Function,
    sort_bins: Function,
    add_neighbours: Function,
    accumulate: Function,
    fold_heads: Function,
    reduce_runs: Function,
    sum_planes: Function,
    sum_rows: Function,
    shift_bases: Function,
    /// Dynamic shared memory that a sorting block may have.
    sort_shared: u32,
}

/// Dynamic shared memory of a block that adds neighbours in G2: nine components for each thread. In G1 it is static.
const AFFINE_G2_SHARED: u32 = 9 * 48 * THREADS;

/// What `msm_few` is launched with: threads of a block, scalars that each loads at a time, and blocks for each multiprocessor at most.
const FEW_THREADS: u32 = 256;
const FEW_UNROLL: u32 = 4;
const FEW_BLOCKS: u32 = 8;

/// Shared memory of the sorting kernels that is not dynamic, at most, in bytes.
const STATIC_SHARED: u32 = 8 << 10;

impl MsmKernels {
    /// Finds the kernels.
    ///
    /// # Errors
    /// As for [`Kernels::function`].
    pub fn load(kernels: &Kernels, group: Group) -> Result<Self, CudaError> {
        let sort = |name| kernels.function(Family::MsmSort, name);
        let curve = |name: &str| kernels.function(group.family(), &format!("{}_{name}", group.prefix()));
        let sort_shared = kernels.shared_per_block() - STATIC_SHARED;
        let (deal, sort_bins) = (sort("msm_deal")?, sort("msm_sort_bins")?);
        deal.allow_shared_memory(sort_shared)?;
        sort_bins.allow_shared_memory(sort_shared)?;
        let add_neighbours = curve("add_neighbours")?;
        if group == Group::G2 {
            add_neighbours.allow_shared_memory(AFFINE_G2_SHARED)?;
        }
        Ok(Self {
            group,
            sort_shared,
            count: sort("msm_count")?,
            few: sort("msm_few")?,
            scan: sort("msm_scan")?,
            deal,
            sort_bins,
            add_neighbours,
            accumulate: curve("accumulate")?,
            fold_heads: curve("fold_heads")?,
            reduce_runs: curve("reduce_runs")?,
            sum_planes: curve("sum_planes")?,
            sum_rows: curve("sum_rows")?,
            shift_bases: curve("shift_bases")?,
        })
    }

    /// Queues filling copies 1, 2, … of a table of `shape` from copy 0: the table has `shape.copies` times `len` points, copy after copy.
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// # Safety
    /// `table` must hold that many points, the first `len` of them set, until the stream has passed this work.
    pub unsafe fn shift_copies(
        &self,
        stream: &Stream,
        shape: Shape,
        table: DevicePtr,
        len: u32,
    ) -> Result<(), CudaError> {
        if len == 0 {
            return Ok(());
        }
        let bytes = u64::from(len) * self.group.point_bytes();
        for copy in 1..u64::from(shape.copies) {
            let (from, to) = (table.add((copy - 1) * bytes), table.add(copy * bytes));
            let groups = len.div_ceil(8);
            let blocks = (groups * self.group.lanes()).div_ceil(THREADS);
            let doublings = shape.shift(copy as u32) - shape.shift(copy as u32 - 1);
            let args = [from.into(), to.into(), len.into(), doublings.into()];
            // SAFETY: our caller's promise; the arguments are those of `shift_bases`.
            unsafe { self.shift_bases.launch(stream, [blocks, 1, 1], [THREADS, 1, 1], 0, &args)? };
        }
        Ok(())
    }
}

/// Bases in device memory with the scalars that multiply them.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// The base table: copy t of base i at t · len + i, as many copies as the plan is for.
    pub bases: DevicePtr,
    /// Number of bases.
    pub len: u32,
    /// Scalars, 32 bytes each, below r.
    pub scalars: DevicePtr,
    /// For base i the index (u32) of its scalar; without it base i takes scalar i.
    pub index: Option<DevicePtr>,
    /// Whether the scalars are in Montgomery form.
    pub montgomery: bool,
    /// Whether few of the scalars are none of 0, 1 and −1. The sum is right either way; see [`Counts::are_few`].
    pub few: bool,
}

/// A stretch of a segment that one pass takes.
#[derive(Clone, Copy)]
struct Part {
    segment: Segment,
    from: u32,
    len: u32,
}

/// A multi-exponentiation in progress: its kernels, its plan and its workspace.
#[derive(Clone, Copy, Debug)]
pub struct Msm<'a> {
    kernels: &'a MsmKernels,
    plan: &'a Plan,
    workspace: DevicePtr,
}

impl<'a> Msm<'a> {
    /// Puts the three together; queues nothing.
    ///
    /// # Panics
    /// If the kernels are for the other group.
    ///
    /// # Safety
    /// `workspace` must stay allocated with [`Plan::workspace_bytes`] until the streams have passed all work queued through this value, and must
    /// serve one multi-exponentiation at a time.
    #[must_use]
    pub unsafe fn new(kernels: &'a MsmKernels, plan: &'a Plan, workspace: DevicePtr) -> Self {
        assert_eq!(kernels.group, plan.group, "kernels and plan are for different groups");
        Self { kernels, plan, workspace }
    }

    fn at(&self, offset: u64) -> DevicePtr {
        self.workspace.add(offset)
    }

    /// Where the result lies after [`finish`](Self::finish).
    #[must_use]
    pub fn output(&self) -> DevicePtr {
        self.at(self.plan.layout().output)
    }

    /// Queues emptying the buckets.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn begin(&self, stream: &Stream) -> Result<(), CudaError> {
        let (layout, shape) = (self.plan.layout(), self.plan.shape);
        let bytes = self.plan.group.xyzz_bytes() * shape.buckets();
        // SAFETY: `new`'s caller keeps the workspace alive, and the range is within it.
        unsafe { stream.fill(self.at(layout.buckets), 0, bytes) }
    }

    /// Queues adding the segments to the buckets. `added` fires when only the ends of runs are left to be folded, which doesn't fill the card.
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// # Safety
    /// Bases, scalars and indices must stay allocated and unchanged until the stream has passed this work, each scalar must be below r,
    /// each index within the scalars, and no more bases than the plan was made for may have scalars that aren't 0, or aren't 0, 1 or −1.
    pub unsafe fn add(&self, stream: &Stream, segments: &[Segment], added: Option<&Event>) -> Result<(), CudaError> {
        let passes = self.passes(segments);
        let sets = self.plan.shape.sets;
        let batch = self.plan.sets_per_batch;
        for (i, parts) in passes.iter().enumerate() {
            for from in (0..sets).step_by(batch as usize) {
                let to = sets.min(from + batch);
                self.sort(stream, parts, from, to)?;
                let last = i + 1 == passes.len() && to == sets;
                self.accumulate(stream, parts, from, added.filter(|_| last))?;
            }
        }
        match added {
            Some(added) if passes.is_empty() => stream.record(added),
            _ => Ok(()),
        }
    }

    /// The segments cut into what is sorted and accumulated at a time: one or two parts.
    fn passes(&self, segments: &[Segment]) -> Vec<Vec<Part>> {
        let mut passes = Vec::new();
        let mut rest: Vec<_> = segments.iter().filter(|segment| segment.len > 0).collect();
        rest.reverse();
        while let Some(&first) = rest.pop() {
            let join = rest.last().filter(|s| self.plan.can_join([first.len, s.len].map(u64::from))).is_some();
            if join && let Some(&second) = rest.pop() {
                let whole = |segment: Segment| Part { segment, from: 0, len: segment.len };
                passes.push(vec![whole(first), whole(second)]);
                continue;
            }
            let slice = self.plan.slice.min(u64::from(u32::MAX)) as u32;
            let cuts = (0..first.len).step_by(slice as usize);
            passes.extend(cuts.map(|from| vec![Part { segment: first, from, len: slice.min(first.len - from) }]));
        }
        passes
    }

    /// Leaves the pairs of the parts for bucket sets `set_from .. set_to`, sorted by bucket, in the workspace.
    fn sort(&self, stream: &Stream, parts: &[Part], set_from: u32, set_to: u32) -> Result<(), CudaError> {
        let (plan, layout, shape) = (self.plan, self.plan.layout(), self.plan.shape);
        let [list, histogram, start, cursor] =
            [layout.list, layout.histogram, layout.start, layout.cursor].map(|offset| self.at(offset));
        let shared = 4 * (plan.bins + 1);
        let tile = plan.sort_threads * plan.per_thread;
        let [widths, starts, bias, bits] = shape.cut();
        let cut: [Arg; 9] = [
            widths.into(),
            starts.into(),
            bias.into(),
            bits.into(),
            shape.windows().into(),
            shape.sets.into(),
            set_from.into(),
            set_to.into(),
            plan.fine_bits.into(),
        ];
        let tiles: [Arg; 2] = [plan.bins.into(), plan.per_thread.into()];
        let (deal_stage, bin_stage) =
            (plan.deal_stage(self.kernels.sort_shared), plan.bin_stage(self.kernels.sort_shared));
        let [deal_shared, bin_shared] = plan.sort_shared(deal_stage, bin_stage);
        let grid = |len: u32| [len.div_ceil(tile).min(2 * plan.multiprocessors), 1, 1];
        let block = [plan.sort_threads, 1, 1];
        let few = |args: &[Arg; 6], len: u32, to: [Arg; 3]| {
            let blocks = len.div_ceil(FEW_THREADS * FEW_UNROLL).min(FEW_BLOCKS * plan.multiprocessors);
            let args: Vec<Arg> = [&args[..], &cut, &to].concat();
            // SAFETY: `add`'s caller promises the segments, `new`'s the workspace; the arguments are those of `msm_few`. A pass has no more pairs than the
            // plan left room for.
            unsafe { self.kernels.few.launch(stream, [blocks, 1, 1], [FEW_THREADS, 1, 1], 0, &args) }
        };
        // SAFETY: the range is within the workspace, which `new`'s caller keeps alive.
        unsafe { stream.fill(list, 0, LIST_BYTES + 4 * (u64::from(plan.bins) + 1))? };
        let mut first_index = 0;
        let scalars: Vec<[Arg; 6]> = parts
            .iter()
            .map(|part| {
                let segment = part.segment;
                let (scalars, index) = match segment.index {
                    Some(index) => (segment.scalars, index.add(4 * u64::from(part.from))),
                    None => (segment.scalars.add(32 * u64::from(part.from)), DevicePtr::NULL),
                };
                let montgomery = u32::from(segment.montgomery);
                let args: [Arg; 6] = [
                    scalars.into(),
                    index.into(),
                    part.len.into(),
                    montgomery.into(),
                    Arg::U32(first_index),
                    (segment.len * plan.spacing).into(),
                ];
                first_index += segment.len * plan.table_copies();
                args
            })
            .collect();
        for (part, args) in parts.iter().zip(&scalars) {
            if part.segment.few {
                few(args, part.len, [histogram.into(), DevicePtr::NULL.into(), DevicePtr::NULL.into()])?;
                continue;
            }
            let args: Vec<Arg> = [&args[..4], &cut, &tiles, &[histogram.into()]].concat();
            // SAFETY: `add`'s caller promises the segments, `new`'s the workspace; the arguments are those of `msm_count`.
            unsafe { self.kernels.count.launch(stream, grid(part.len), block, shared, &args)? };
        }
        let (least, rounds) = plan.affine.map_or((0, 0), |affine| (affine.least, affine.rounds));
        // Never more pairs than the sums of all parts have room for: after two rounds at least, four pairs to a sum.
        let places = plan.affine.map_or(0, |affine| 4 * u64::from(affine.parts) * plan.sums_room());
        let room = plan.list_room().min(places).min(u64::from(u32::MAX)) as u32;
        let args = [
            histogram.into(),
            plan.bins.into(),
            start.into(),
            cursor.into(),
            plan.keys_of(set_from, set_to).into(),
            plan.fine_bits.into(),
            room.into(),
            least.into(),
            rounds.into(),
            list.into(),
        ];
        // SAFETY: all within the workspace; the arguments are those of `msm_scan`.
        unsafe { self.kernels.scan.launch(stream, [1, 1, 1], block, 0, &args)? };
        let (dealt, sorted) = (self.at(layout.dealt), self.at(layout.sorted));
        for (part, args) in parts.iter().zip(&scalars) {
            if part.segment.few {
                few(args, part.len, [cursor.into(), dealt.into(), sorted.into()])?;
                continue;
            }
            let args: Vec<Arg> =
                [&args[..], &cut, &tiles, &[cursor.into(), dealt.into(), sorted.into(), deal_stage.into()]].concat();
            // SAFETY: as for `msm_count`; a pass has no more pairs than the plan left room for.
            unsafe { self.kernels.deal.launch(stream, grid(part.len), block, deal_shared, &args)? };
        }
        let args = [dealt.into(), sorted.into(), start.into(), plan.fine_bits.into(), list.into(), bin_stage.into()];
        // SAFETY: all within the workspace; the arguments are those of `msm_sort_bins`.
        unsafe { self.kernels.sort_bins.launch(stream, [plan.bins, 1, 1], block, bin_shared, &args) }
    }

    /// Adds the sorted pairs to the buckets of the sets from `set_from` on, and records `added` before the ends of the last runs are folded.
    fn accumulate(
        &self,
        stream: &Stream,
        parts: &[Part],
        set_from: u32,
        added: Option<&Event>,
    ) -> Result<(), CudaError> {
        let (plan, layout, group) = (self.plan, self.plan.layout(), self.plan.group);
        let table = |part: &Part| part.segment.bases.add(u64::from(part.from) * group.point_bytes());
        let first = table(&parts[0]);
        let (second, split) = match parts.get(1) {
            Some(part) => (table(part), parts[0].segment.len * plan.table_copies()),
            None => (first, u32::MAX),
        };
        let buckets = self.at(layout.buckets + group.xyzz_bytes() * plan.shape.buckets_of(0, set_from));
        let levels = plan.head_levels();
        let block = [THREADS, 1, 1];
        let [list, sorted, sums] = [layout.list, layout.sorted, layout.dealt].map(|offset| self.at(offset));
        let room = plan.sums_room().min(u64::from(u32::MAX)) as u32;
        let launches = plan.affine.map_or(1, |affine| affine.parts);
        for part in 0..launches {
            if let Some(affine) = plan.affine {
                let shared = if group == Group::G2 { AFFINE_G2_SHARED } else { 0 };
                let args = [
                    sorted.into(),
                    list.into(),
                    first.into(),
                    second.into(),
                    split.into(),
                    part.into(),
                    room.into(),
                    affine.per_lane.into(),
                    affine.passes.into(),
                    self.at(layout.scratch).into(),
                    list.add(4 * (2 + u64::from(part))).into(),
                    sums.into(),
                ];
                // SAFETY: `add`'s caller promises the tables, `new`'s the workspace; the arguments are those of `add_neighbours`, whose sums
                // take the place of the dealt pairs, which are sorted by now.
                unsafe { self.kernels.add_neighbours.launch(stream, [affine.blocks, 1, 1], block, shared, &args)? };
            }
            let (mut keys, mut heads) = (self.at(layout.head_keys), self.at(layout.heads));
            let args = [
                sorted.into(),
                list.into(),
                part.into(),
                room.into(),
                sums.into(),
                first.into(),
                second.into(),
                split.into(),
                buckets.into(),
                keys.into(),
                heads.into(),
            ];
            // SAFETY: `add`'s caller promises the tables, `new`'s the workspace; the arguments are those of `accumulate`.
            unsafe { self.kernels.accumulate.launch(stream, [plan.accumulate_blocks, 1, 1], block, 0, &args)? };
            if let Some(added) = added.filter(|_| part + 1 == launches) {
                stream.record(added)?;
            }
            for level in levels.windows(2) {
                let (next_keys, next_heads) =
                    (keys.add(4 * u64::from(level[0])), heads.add(group.xyzz_bytes() * u64::from(level[0])));
                let args = [
                    keys.into(),
                    heads.into(),
                    level[0].into(),
                    FOLD.into(),
                    buckets.into(),
                    next_keys.into(),
                    next_heads.into(),
                ];
                let grid = [(level[1] * group.lanes()).div_ceil(THREADS), 1, 1];
                // SAFETY: all within the workspace; the arguments are those of `fold_heads`.
                unsafe { self.kernels.fold_heads.launch(stream, grid, block, 0, &args)? };
                (keys, heads) = (next_keys, next_heads);
            }
        }
        Ok(())
    }

    /// Queues the reduction of the buckets to [`Plan::output_bytes`] bytes at [`output`](Self::output).
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn finish(&self, stream: &Stream) -> Result<(), CudaError> {
        let (plan, layout) = (self.plan, self.plan.layout());
        let block = [THREADS, 1, 1];
        let (runs, log_runs) = plan.runs();
        let [buckets, sums, weighted, partial, output] =
            [layout.buckets, layout.sums, layout.weighted, layout.partial, layout.output]
                .map(|offset| Arg::from(self.at(offset)));
        let grid = [(runs * plan.group.lanes()).div_ceil(THREADS), 1, 1];
        let args = [buckets, runs.into(), plan.log_run.into(), sums, weighted];
        // SAFETY: all within the workspace, which `new`'s caller keeps alive; the arguments are those of `reduce_runs`.
        unsafe { self.kernels.reduce_runs.launch(stream, grid, block, 0, &args)? };
        let grid = [plan.chunks, plan.log_runs + 1, plan.shape.sets];
        let args = [sums, weighted, log_runs.into(), partial];
        // SAFETY: likewise for `sum_planes`.
        unsafe { self.kernels.sum_planes.launch(stream, grid, block, 0, &args)? };
        let args = [partial, plan.chunks.into(), output];
        // SAFETY: likewise for `sum_rows`.
        unsafe { self.kernels.sum_rows.launch(stream, [plan.rows(), 1, 1], block, 0, &args) }
    }
}

/// The sum in G1, from the bytes that a multi-exponentiation left at [`Msm::output`].
///
/// # Panics
/// If the plan is for G2 or the number of bytes isn't [`Plan::output_bytes`].
#[must_use]
pub fn collect_g1(plan: &Plan, bytes: &[u8]) -> G1Projective {
    assert_eq!(plan.group, Group::G1);
    fold(plan, bytes, |bytes| {
        assert_eq!(bytes.len(), size_of::<G1Projective>());
        // SAFETY: a transparent wrapper of `blst_p1`, eighteen u64 limbs, for which any bits are valid; the length was just checked.
        unsafe { bytes.as_ptr().cast::<G1Projective>().read_unaligned() }
    })
}

/// The sum in G2, from the bytes that a multi-exponentiation left at [`Msm::output`].
///
/// # Panics
/// If the plan is for G1 or the number of bytes isn't [`Plan::output_bytes`].
#[must_use]
pub fn collect_g2(plan: &Plan, bytes: &[u8]) -> G2Projective {
    assert_eq!(plan.group, Group::G2);
    fold(plan, bytes, |bytes| {
        assert_eq!(bytes.len(), size_of::<G2Projective>());
        // SAFETY: a transparent wrapper of `blst_p2`, 36 u64 limbs, for which any bits are valid; the length was just checked.
        unsafe { bytes.as_ptr().cast::<G2Projective>().read_unaligned() }
    })
}

/// Σ over sets of 2^base (plane₀ + 2^log_run Σ 2^b plane_(b+1)).
fn fold<P: group::Group>(plan: &Plan, bytes: &[u8], read: impl Fn(&[u8]) -> P) -> P {
    assert_eq!(bytes.len(), plan.output_bytes(), "not the output of this plan");
    let planes = plan.log_runs as usize + 1;
    let points: Vec<P> = bytes.chunks_exact(plan.group.jacobian_bytes()).map(read).collect();
    let double = |mut point: P, times: u32| {
        for _ in 0..times {
            point = point.double();
        }
        point
    };
    let mut above = plan.shape.base(plan.shape.sets);
    (0..plan.shape.sets).zip(points.chunks_exact(planes)).rev().fold(P::identity(), |sum, (set, planes)| {
        let by_index = planes[1..].iter().rev().fold(P::identity(), |sum, plane| double(sum, 1) + plane);
        let base = plan.shape.base(set);
        let sum = double(sum, above - base);
        above = base;
        sum + planes[0] + double(by_index, plan.log_run)
    })
}
