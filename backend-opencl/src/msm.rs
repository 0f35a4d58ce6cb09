//! Multi-exponentiation: Σ kᵢ·Pᵢ by buckets, on the device but for the folding of one point per window.
//!
//! ```text
//! Msm::begin            empty buckets
//! Msm::pass, repeated   adds a chunk of bases, which may be streamed through: split the scalars, sort the entries, gather the buckets
//! Msm::finish           reduces the buckets; the results lie in a buffer
//! Plan::fold            folds them on the CPU
//! ```
//!
//! Scalars 0 vanish, 1 and −1 are summed in a bucket of their own ("units"), the others (the "tail") have one signed digit per window.
//! All windows' buckets are gathered together, or as many windows at a time as the entries' buffer holds.

use blstrs::{G1Projective, G2Projective};

use crate::driver::{Arg, Buffer, Context, OpenClError, Queue};
use crate::kernels::{CurveKernels, Kernels};

/// Bits that windows must cover: magnitudes are below 2^254, and the top digit needs room for a carry.
const SCALAR_BITS: u32 = 255;
/// Widest window: buckets of all windows take 190 MB in G1.
const MAX_WIDTH: u32 = 17;

/// Which group the bases are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Group {
    G1,
    G2,
}

impl Group {
    /// Bytes of a base's record.
    pub(crate) fn record(self) -> u64 {
        match self {
            Self::G1 => 96,
            Self::G2 => 192,
        }
    }

    /// Bytes of a sum.
    fn xyzz(self) -> u64 {
        2 * self.record()
    }

    /// Bytes of a result.
    fn jacobian(self) -> u64 {
        self.record() / 2 * 3
    }
}

/// The numbers that a multi-exponentiation is laid out for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// Most bases of one pass.
    pub(crate) bases: u64,
    /// Most of them with tail scalars.
    pub(crate) tail: u64,
    /// Most of them with scalars 1 or −1.
    pub(crate) units: u64,
    /// Tail scalars of all passes, by which the window's width is chosen.
    pub(crate) tail_in_all: u64,
}

/// What a device likes: the lengths of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// Work items that keep it busy.
    pub(crate) items: u64,
    /// Longest run of bases for one work item.
    pub(crate) max_run: u64,
    /// Run of partial sums.
    pub(crate) point_run: u32,
    /// log2 of the buckets that one work item reduces.
    pub(crate) log_reduce: u32,
}

impl Tuning {
    pub(crate) fn of(context: &Context) -> Self {
        let device = context.device();
        if device.host_memory {
            Self { items: 64 * u64::from(device.units), max_run: 1 << 10, point_run: 64, log_reduce: 5 }
        } else {
            Self { items: 4096 * u64::from(device.units), max_run: 128, point_run: 16, log_reduce: 4 }
        }
    }
}

/// How a multi-exponentiation is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) group: Group,
    pub(crate) width: u32,
    pub(crate) windows: u32,
    /// Windows whose entries are sorted and gathered at a time.
    pub(crate) windows_at_once: u32,
    load: Load,
    run: u64,
    tuning: Tuning,
    scan_block: u64,
}

/// Bytes of each buffer of a workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs([u64; BUFFERS]);

const BUFFERS: usize = 17;
const MAGNITUDES: usize = 0;
const TAIL: usize = 1;
const UNITS: usize = 2;
const TOTALS: usize = 3;
const COUNTS: usize = 4;
const SCAN: usize = 5; // and 6, 7
const ENTRIES: usize = 8;
const KEYS: usize = 9; // and 10
const POINTS: usize = 11; // and 12
const SUMS: usize = 13;
const PLAIN: usize = 14; // and 15
const WEIGHTED: usize = 16;

impl Needs {
    /// Enough for either.
    pub(crate) fn max(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].max(other.0[i])))
    }

    /// Whether `other` has room for this.
    pub(crate) fn fit(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(need, have)| need <= have)
    }

    /// All together.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|&bytes| bytes.max(16)).sum()
    }

    /// The largest.
    pub(crate) fn largest(&self) -> u64 {
        self.0.iter().copied().max().unwrap_or(0)
    }
}

impl Plan {
    /// The plan for a load, with at most `max_entries` entries at a time (but those of one window).
    pub(crate) fn new(group: Group, load: Load, max_entries: u64, tuning: Tuning, scan_block: u64) -> Self {
        let cost = |width: u32| {
            let windows = u64::from(SCALAR_BITS.div_ceil(width));
            // A bucket costs two full additions and its share of the levels above; a full addition is 1.4 mixed ones.
            windows * load.tail_in_all * 10 + windows * (30 << (width - 1))
        };
        let width = (2..=MAX_WIDTH).min_by_key(|&width| cost(width)).unwrap_or(MAX_WIDTH);
        Self::with_width(group, load, width, max_entries, tuning, scan_block)
    }

    /// The same with windows of a given width.
    pub(crate) fn with_width(
        group: Group,
        load: Load,
        width: u32,
        max_entries: u64,
        tuning: Tuning,
        scan_block: u64,
    ) -> Self {
        let windows = SCALAR_BITS.div_ceil(width);
        let at_once = max_entries.saturating_sub(load.units) / load.tail.max(1);
        let windows_at_once = at_once.clamp(1, u64::from(windows)) as u32;
        let mut plan = Self { group, width, windows, windows_at_once, load, run: 1, tuning, scan_block };
        let wanted = plan.entries().div_ceil(tuning.items).next_power_of_two();
        plan.run = wanted.clamp(16.min(tuning.max_run), tuning.max_run);
        plan
    }

    /// Buckets of a window.
    fn buckets(&self) -> u64 {
        1 << (self.width - 1)
    }

    /// Keys of the tail; the units' key comes after.
    fn keys(&self) -> u64 {
        u64::from(self.windows) * self.buckets()
    }

    /// Most entries at a time.
    fn entries(&self) -> u64 {
        self.load.tail * u64::from(self.windows_at_once) + self.load.units
    }

    /// Slots after the gathering of bases.
    fn slots(&self) -> u64 {
        2 * self.entries().div_ceil(self.run)
    }

    /// Steps of the reduction: (buckets of a window, log2 of those that one work item takes).
    fn reductions(&self) -> Vec<(u64, u32)> {
        let mut steps = Vec::new();
        let mut width = self.buckets();
        while width > 1 || steps.is_empty() {
            let log_run = self.tuning.log_reduce.min(width.ilog2());
            steps.push((width, log_run));
            width >>= log_run;
            if log_run == 0 {
                break;
            }
        }
        steps
    }

    /// Weighted sums of a window, of all steps.
    fn pitch(&self) -> u64 {
        self.reductions().iter().map(|&(width, log_run)| width >> log_run).sum()
    }

    /// Bytes of the workspace.
    pub(crate) fn needs(&self) -> Needs {
        let point = self.group.xyzz();
        let windows = u64::from(self.windows);
        let counts = self.keys() + 1;
        let first = self.reductions()[0];
        let plain = windows * (first.0 >> first.1);
        let weighted = windows * self.pitch();
        let second_slots = 2 * self.slots().div_ceil(u64::from(self.tuning.point_run));
        let mut needs = [0; BUFFERS];
        needs[MAGNITUDES] = 32 * self.load.tail;
        needs[TAIL] = 4 * self.load.tail;
        needs[UNITS] = 4 * self.load.units;
        needs[TOTALS] = 16;
        needs[COUNTS] = 4 * counts;
        let mut blocks = counts;
        for scan in &mut needs[SCAN..SCAN + 3] {
            blocks = blocks.div_ceil(self.scan_block);
            *scan = 4 * blocks;
        }
        needs[ENTRIES] = 8 * self.entries();
        needs[KEYS] = 4 * self.slots();
        needs[KEYS + 1] = 4 * second_slots;
        needs[POINTS] = point * self.slots();
        needs[POINTS + 1] = point * second_slots;
        needs[SUMS] = point * counts;
        needs[PLAIN] = point * plain.max(windows * self.pitch().div_ceil(16));
        needs[PLAIN + 1] = needs[PLAIN];
        needs[WEIGHTED] = point * weighted;
        Needs(needs)
    }

    /// Bytes of the results: a point for each window, and the units' sum.
    pub(crate) fn result_bytes(&self) -> u64 {
        self.group.jacobian() * (u64::from(self.windows) + 1)
    }

    /// Σ over windows of 2^(w·width) times its point, and the units. `read` makes a point of its bytes.
    fn fold<P: group::Group>(&self, bytes: &[u8], read: impl Fn(&[u8]) -> P) -> P {
        let points: Vec<P> = bytes.chunks_exact(self.group.jacobian() as usize).map(read).collect();
        let Some((units, windows)) = points.split_last() else { return P::identity() };
        let sum = windows.iter().rev().fold(P::identity(), |mut sum, window| {
            for _ in 0..self.width {
                sum = sum.double();
            }
            sum + window
        });
        sum + units
    }

    /// The sum in G1.
    pub(crate) fn fold_g1(&self, bytes: &[u8]) -> G1Projective {
        self.fold(bytes, crate::curve::g1_from_jacobian)
    }

    /// The sum in G2.
    pub(crate) fn fold_g2(&self, bytes: &[u8]) -> G2Projective {
        self.fold(bytes, crate::curve::g2_from_jacobian)
    }
}

/// The buffers that multi-exponentiations work in, one after the other.
#[derive(Debug)]
pub(crate) struct Workspace([Buffer; BUFFERS], pub(crate) Needs);

impl Workspace {
    pub(crate) fn new(context: &Context, needs: Needs) -> Result<Self, OpenClError> {
        let buffers: Vec<Buffer> =
            needs.0.iter().map(|&bytes| Buffer::new(context, bytes)).collect::<Result<_, _>>()?;
        let buffers = <[Buffer; BUFFERS]>::try_from(buffers)
            .map_err(|_| OpenClError::Unusable("a workspace of another number of buffers".into()))?;
        Ok(Self(buffers, needs))
    }

    pub(crate) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.0.iter()
    }
}

/// A part of a chunk of bases, with its scalars.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) scalars: &'a Buffer,
    /// Index of the first scalar, where there is no list.
    pub(crate) first_scalar: u32,
    /// Which scalar belongs to each base, and where in the list the segment begins.
    pub(crate) index: Option<(&'a Buffer, u32)>,
    /// The first base's place in the chunk.
    pub(crate) first_base: u32,
    pub(crate) count: u32,
    /// Whether scalars are in Montgomery form, or plain.
    pub(crate) montgomery: bool,
}

/// A multi-exponentiation under way.
pub(crate) struct Msm<'a> {
    pub(crate) kernels: &'a Kernels,
    pub(crate) plan: &'a Plan,
    pub(crate) workspace: &'a Workspace,
    pub(crate) queue: &'a Queue,
}

impl<'a> Msm<'a> {
    fn curve(&self) -> &'a CurveKernels {
        match self.plan.group {
            Group::G1 => &self.kernels.g1,
            Group::G2 => &self.kernels.g2,
        }
    }

    fn buffer(&self, which: usize) -> &'a Buffer {
        &self.workspace.0[which]
    }

    /// Queues the emptying of the buckets.
    ///
    /// # Errors
    /// [`OpenClError::Unusable`] if the workspace is too small for the plan; what the driver says.
    pub(crate) fn begin(&self) -> Result<(), OpenClError> {
        if !self.plan.needs().fit(&self.workspace.1) {
            return Err(OpenClError::Unusable("a workspace that is too small for its plan".into()));
        }
        self.queue.clear(self.buffer(SUMS), 0, self.plan.group.xyzz() * (self.plan.keys() + 1))
    }

    /// Queues the addition of a chunk of bases.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// The workspace passed [`begin`](Self::begin). Segments' bases are inside `bases`, at most as many as the plan's load, of which at most
    /// `tail` have scalars other than 0 and ±1, and at most `units` have ±1; their scalars and indices are inside their buffers.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn pass(
        &self,
        bases: &Buffer,
        segments: &[Segment<'_>],
        tail: u64,
        units: u64,
    ) -> Result<(), OpenClError> {
        let (plan, queue, scalars) = (self.plan, self.queue, &self.kernels.scalars);
        let group = self.kernels.geometry.group;
        let groups = |items: u64| items.div_ceil(group as u64);
        let (tail, units) = (tail.min(plan.load.tail), units.min(plan.load.units));
        let totals = self.buffer(TOTALS);
        let [magnitudes, tail_bases, unit_bases, counts, entries] =
            [MAGNITUDES, TAIL, UNITS, COUNTS, ENTRIES].map(|which| Arg::from(self.buffer(which)));
        queue.clear(totals, 0, 12)?;
        for segment in segments {
            let (index, index_from, indexed) = match segment.index {
                Some((index, from)) => (index, from, 1u32),
                None => (totals, 0, 0),
            };
            let arguments = [
                segment.scalars.into(),
                segment.first_scalar.into(),
                index.into(),
                index_from.into(),
                indexed.into(),
                segment.count.into(),
                segment.first_base.into(),
                u32::from(segment.montgomery).into(),
                magnitudes,
                tail_bases,
                unit_bases,
                totals.into(),
            ];
            // SAFETY: lists have room for the load, by `begin` and the caller's promise.
            unsafe { queue.launch(&scalars.split, groups(u64::from(segment.count)), group, &arguments)? };
        }
        for from in (0..plan.windows).step_by(plan.windows_at_once as usize) {
            let end = (from + plan.windows_at_once).min(plan.windows);
            let with_units = from == 0;
            let capacity = tail * u64::from(end - from) + if with_units { units } else { 0 };
            if capacity == 0 {
                continue;
            }
            queue.clear(self.buffer(COUNTS), 0, 4 * (plan.keys() + 1))?;
            let window = [plan.width, from, end].map(Arg::from);
            let unit_key = plan.keys() as u32;
            // SAFETY: keys are below `keys`, the entries' places below `capacity`, for which the workspace has room by `begin`.
            unsafe {
                let arguments = [magnitudes, totals.into(), window[0], window[1], window[2], counts];
                queue.launch(&scalars.histogram, groups(tail), group, &arguments)?;
                self.scan(COUNTS, plan.keys() + 1, SCAN)?;
                let arguments = [
                    magnitudes,
                    tail_bases,
                    totals.into(),
                    window[0],
                    window[1],
                    window[2],
                    counts,
                    entries,
                    (capacity as u32).into(),
                ];
                queue.launch(&scalars.scatter, groups(tail), group, &arguments)?;
                let arguments = [
                    unit_bases,
                    totals.into(),
                    counts,
                    unit_key.into(),
                    u32::from(with_units).into(),
                    entries,
                    (capacity as u32).into(),
                ];
                let items = if with_units { units.max(1) } else { 1 };
                queue.launch(&scalars.append_units, groups(items), group, &arguments)?;
                self.gather(bases, capacity)?;
            }
        }
        Ok(())
    }

    /// Queues exclusive prefix sums of a buffer's first `count` words.
    ///
    /// # Safety
    /// The workspace passed `begin`, and buffers from `sums` on have room for the blocks' sums.
    #[allow(unsafe_code)]
    unsafe fn scan(&self, data: usize, count: u64, sums: usize) -> Result<(), OpenClError> {
        let (queue, scalars) = (self.queue, &self.kernels.scalars);
        let group = self.kernels.geometry.group;
        let blocks = count.div_ceil(self.plan.scan_block);
        if sums >= SCAN + 3 {
            return Err(OpenClError::Unusable("prefix sums of more than three levels".into()));
        }
        let [words, totals] = [data, sums].map(|which| Arg::from(self.buffer(which)));
        let count_word = Arg::from(count as u32);
        // SAFETY: `data` has `count` words, `sums` one for each block.
        unsafe {
            queue.launch(&scalars.scan_blocks, blocks, group, &[words, count_word, totals])?;
            if blocks > 1 {
                self.scan(sums, blocks, sums + 1)?;
                queue.launch(&scalars.scan_add, count.div_ceil(group as u64), group, &[words, count_word, totals])?;
            }
        }
        Ok(())
    }

    /// Queues the gathering of up to `capacity` sorted entries into buckets.
    ///
    /// # Safety
    /// As for `pass`.
    #[allow(unsafe_code)]
    unsafe fn gather(&self, bases: &Buffer, capacity: u64) -> Result<(), OpenClError> {
        let (plan, queue, curve) = (self.plan, self.queue, self.curve());
        let group = self.kernels.geometry.curve_group;
        let groups = |items: u64| items.div_ceil(group as u64);
        let sums = Arg::from(self.buffer(SUMS));
        let runs = capacity.div_ceil(plan.run);
        let arguments = [
            self.buffer(ENTRIES).into(),
            self.buffer(TOTALS).into(),
            (capacity as u32).into(),
            (plan.run as u32).into(),
            bases.into(),
            sums,
            self.buffer(KEYS).into(),
            self.buffer(POINTS).into(),
        ];
        // SAFETY: entries name bases of the chunk and keys of the plan; there are two slots for each run.
        unsafe { queue.launch(&curve.gather_bases, groups(runs), group, &arguments)? };
        let mut slots = 2 * runs;
        let mut from = 0;
        loop {
            let runs = slots.div_ceil(u64::from(plan.tuning.point_run));
            let last = runs == 1;
            let to = 1 - from;
            let arguments = [
                self.buffer(KEYS + from).into(),
                self.buffer(POINTS + from).into(),
                (slots as u32).into(),
                plan.tuning.point_run.into(),
                u32::from(last).into(),
                sums,
                self.buffer(KEYS + to).into(),
                self.buffer(POINTS + to).into(),
            ];
            // SAFETY: as above; levels shrink, so that the second buffer has room for the first level's slots and the first for the second's.
            unsafe { queue.launch(&curve.gather_points, groups(runs), group, &arguments)? };
            if last {
                return Ok(());
            }
            slots = 2 * runs;
            from = to;
        }
    }

    /// Queues the reduction of the buckets. `result` takes [`Plan::result_bytes`].
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If `result` is too short.
    #[allow(unsafe_code)]
    pub(crate) fn finish(&self, result: &Buffer) -> Result<(), OpenClError> {
        assert!(result.bytes() >= self.plan.result_bytes(), "{result:?} for {} bytes", self.plan.result_bytes());
        let (plan, queue, curve) = (self.plan, self.queue, self.curve());
        let group = self.kernels.geometry.curve_group;
        let groups = |items: u64| items.div_ceil(group as u64);
        let windows = u64::from(plan.windows);
        let pitch = plan.pitch();
        let (mut input, mut output) = (SUMS, PLAIN);
        let mut offset = 0;
        for (step, (width, log_run)) in plan.reductions().into_iter().enumerate() {
            let arguments = [
                self.buffer(input).into(),
                plan.windows.into(),
                (width as u32).into(),
                log_run.into(),
                u32::from(step == 0).into(),
                self.buffer(output).into(),
                self.buffer(WEIGHTED).into(),
                (pitch as u32).into(),
                (offset as u32).into(),
            ];
            // SAFETY: `begin` has checked that sums, plain and weighted sums have room for the plan's steps.
            unsafe {
                queue.launch(&curve.reduce_buckets, groups(windows * (width >> log_run)), group, &arguments)?;
            }
            offset += width >> log_run;
            input = output;
            output = if output == PLAIN { PLAIN + 1 } else { PLAIN };
        }
        let (mut width, mut input, mut output) = (pitch, WEIGHTED, PLAIN);
        while width > 1 {
            let arguments = [
                self.buffer(input).into(),
                plan.windows.into(),
                (width as u32).into(),
                16u32.into(),
                self.buffer(output).into(),
            ];
            width = width.div_ceil(16);
            // SAFETY: rows shrink to a sixteenth, and `needs` gives the buffers room for the first of them.
            unsafe { queue.launch(&curve.sum_rows, groups(windows * width), group, &arguments)? };
            input = output;
            output = if output == PLAIN { PLAIN + 1 } else { PLAIN };
        }
        for (input, from, count, to) in [(input, 0, plan.windows, 0), (SUMS, plan.keys() as u32, 1, plan.windows)] {
            let arguments = [self.buffer(input).into(), from.into(), count.into(), result.into(), to.into()];
            // SAFETY: there is a point for each window, and one more for the units; the result has room, as checked above.
            unsafe { queue.launch(&curve.to_jacobian, groups(u64::from(count)), group, &arguments)? };
        }
        Ok(())
    }
}
