//! Batched affine addition: many independent additions share one field inversion.
//!
//! Adding two affine points takes an inversion, a square and two multiplications. With Montgomery's trick the inversion of n
//! differences becomes one inversion and 3n multiplications, so an addition costs 5M + 1S, against 7M + 4S for a mixed
//! addition in Jacobian coordinates. Over F_q2 it is the norms that are inverted together, which are in F_q: 1/d = conj(d)/norm(d),
//! so that only two of the five multiplications are in F_q2, and the others cost half as much as one. Nothing is approximate: equal points, opposite points and infinity on either side
//! are recognised and give the right sum.
//!
//! Everything above is built from two operations, [`Workspace::sum_entries`] and [`Workspace::add_cells`]. Both take lists of
//! pairs and run on whichever [`Lanes`] they are compiled for.

use std::ops::Range;

use crate::field::{BaseLanes, Kernel, LANES, Lanes};

/// An affine point at rest, in the lanes' own representation. Infinity is two zero cells.
#[derive(Clone, Copy)]
pub(crate) struct Point<F: Lanes> {
    pub(crate) x: F::Cell,
    pub(crate) y: F::Cell,
}

impl<F: Lanes> Point<F> {
    /// Infinity.
    pub(crate) const INFINITY: Self = Self { x: F::ZERO, y: F::ZERO };
}

/// Where base points come from: unaligned records, as a key stores them.
pub(crate) trait Records: Sync {
    /// The record of base `index`.
    fn record(&self, index: u32) -> &[u8];

    /// A hint that these bases won't be read soon.
    fn wont_need(&self, _bases: Range<u32>) {}

    /// Whether the hint does anything: then few bases should be in use at a time.
    fn lets_go(&self) -> bool {
        false
    }
}

/// Marks an entry as negated; the other bits are the base's index.
pub(crate) const NEGATED: u32 = 1 << 31;

/// How far ahead records are prefetched, in vectors.
const PREFETCH: usize = 4;

/// What the second half of a vector of additions needs to know.
struct Step<F: Lanes> {
    /// Product of the norms of all dx before.
    prefix: F::Base,
    norm: F::Norm,
    dx: F,
    dy: F,
    /// x1 + x2.
    sx: F,
    x1: F,
    y1: F,
    /// Lanes whose sum is infinity.
    infinite: u8,
}

/// Pairs of points to add, and where the sums go.
trait Pairs<F: Lanes> {
    /// Number of pairs.
    fn len(&self) -> usize;
    /// x1, y1, x2, y2 of eight pairs; lanes past the end are infinity.
    fn load(&self, at: usize) -> [F; 4];
    /// Takes the sums of the same pairs.
    fn store(&mut self, at: usize, x: F, y: F);
    /// Gets memory for the first or second points of eight pairs that will be loaded soon.
    fn prefetch(&self, _at: usize, _which: usize) {}
}

/// Adds all pairs. Pairs are loaded batch by batch *from the end*, and within a batch all are loaded before one is stored,
/// again from the end: a pair may read what an earlier one writes, and gets the old value.
struct AddPairs<'a, F: Lanes, P> {
    pairs: P,
    steps: &'a mut Vec<Step<F>>,
}

impl<F: Lanes, P: Pairs<F>> Kernel for AddPairs<'_, F, P> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        let mut end = self.pairs.len();
        while end > 0 {
            let batch = F::BATCH * LANES;
            let start = (end - 1) / batch * batch;
            let vectors = (end - start).div_ceil(LANES);
            if self.steps.len() < vectors {
                let zero = F::unit().zero_where(0xff);
                // Not in the closure: it doesn't inherit target features.
                let (prefix, norm) = (F::Base::unit(), F::unit().norm());
                self.steps.resize_with(F::BATCH, || Step {
                    prefix,
                    norm,
                    dx: zero,
                    dy: zero,
                    sx: zero,
                    x1: zero,
                    y1: zero,
                    infinite: 0,
                });
            }
            let steps = &mut self.steps[..vectors];
            let mut product = F::Base::unit();
            for (i, step) in steps.iter_mut().enumerate() {
                let at = start + i * LANES;
                // In two parts: a processor keeps track of some twenty cache misses, and all that it is told beyond makes it wait.
                self.pairs.prefetch(at + PREFETCH * LANES, 0);
                step.prefix = product;
                first_half(step, self.pairs.load(at));
                step.norm = step.dx.norm();
                product = step.dx.times_norm(&step.norm, &product);
                self.pairs.prefetch(at + PREFETCH * LANES, 1);
            }
            let mut inverse = product.invert();
            for (i, step) in steps.iter().enumerate().rev() {
                let (x, y) = second_half(step, &step.dx.inverse(&inverse.mul(&step.prefix)));
                inverse = step.dx.times_norm(&step.norm, &inverse);
                self.pairs.store(start + i * LANES, x, y);
            }
            end = start;
        }
    }
}

#[inline(always)]
fn first_half<F: Lanes>(step: &mut Step<F>, [x1, y1, x2, y2]: [F; 4]) {
    step.dx = x2.diff(x1);
    step.dy = y2.diff(y1);
    step.sx = x1.sum(x2);
    step.x1 = x1;
    step.y1 = y1;
    step.infinite = 0;
    let equal_x = step.dx.zeros_of_diff();
    let (infinite1, infinite2) = (y1.literal_zeros(), y2.literal_zeros());
    if equal_x | infinite1 | infinite2 != 0 {
        exceptions(step, x2, y2, equal_x, infinite1, infinite2);
    }
}

/// Changes a step so that the ordinary second half gives the right sum where the addition formula doesn't.
#[inline(always)]
fn exceptions<F: Lanes>(step: &mut Step<F>, x2: F, y2: F, equal_x: u8, infinite1: u8, infinite2: u8) {
    let zero = F::unit().zero_where(0xff);
    let equal_x = equal_x & !(infinite1 | infinite2);
    let double = equal_x & step.dy.zeros() & !step.y1.zeros();
    let opposite = equal_x & !double;
    step.infinite = opposite | (infinite1 & infinite2);
    // Doubling: the slope is 3x²/2y.
    step.dx = F::select(double, step.y1.double(), step.dx);
    step.dy = F::select(double, step.x1.triple_square(), step.dy);
    // One is infinity: with slope zero, the formula gives (−sx, −y1), which is to be the other point.
    let slope_zero = infinite1 | infinite2;
    step.dx = F::select(slope_zero | opposite, F::unit(), step.dx);
    step.dy = step.dy.zero_where(slope_zero | opposite);
    step.sx = F::select(infinite1, zero.diff(x2), step.sx);
    step.sx = F::select(infinite2, zero.diff(step.x1), step.sx);
    let y1 = step.y1;
    step.y1 = F::select(infinite1, zero.diff(y2), step.y1);
    step.y1 = F::select(infinite2, zero.diff(y1), step.y1);
}

/// The sum, from the inverse of dx: λ = dy/dx, x3 = λ² − x1 − x2, y3 = λ(x1 − x3) − y1.
#[inline(always)]
fn second_half<F: Lanes>(step: &Step<F>, inverse: &F) -> (F, F) {
    let slope = step.dy.mul(inverse);
    let x = slope.sqr_sub(&step.sx);
    let y = slope.mul_sub(&step.x1.diff(x), &step.y1);
    if step.infinite == 0 { (x, y) } else { (x.zero_where(step.infinite), y.zero_where(step.infinite)) }
}

/// Two entries of a base table whose sum goes to a cell.
#[derive(Clone, Copy)]
struct RecordPair {
    /// Index and sign of both.
    entries: [u32; 2],
    out: u32,
}

struct RecordPairs<'a, F: Lanes, R> {
    records: &'a R,
    pairs: &'a [RecordPair],
    cells: &'a mut [Point<F>],
}

/// Loads eight entries; lanes past the end of `entries` are infinity.
#[inline(always)]
fn load_entries<F: Lanes, R: Records>(records: &R, entries: [Option<u32>; LANES]) -> (F, F) {
    const INFINITY: [u8; 192] = [0; 192];
    let mut lanes: [&[u8]; LANES] = [&INFINITY[..F::RECORD]; LANES];
    let mut negated = 0;
    for lane in 0..LANES {
        if let Some(entry) = entries[lane] {
            lanes[lane] = records.record(entry & !NEGATED);
            negated |= u8::from(entry & NEGATED != 0) << lane;
        }
    }
    let (x, y) = F::gather_records(lanes);
    (x, y.negate_where(negated))
}

impl<F: Lanes, R: Records> Pairs<F> for RecordPairs<'_, F, R> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.pairs.len()
    }

    #[inline(always)]
    fn load(&self, at: usize) -> [F; 4] {
        let mut first = [None; LANES];
        let mut second = [None; LANES];
        for lane in 0..LANES {
            if let Some(pair) = self.pairs.get(at + lane) {
                first[lane] = Some(pair.entries[0]);
                second[lane] = Some(pair.entries[1]);
            }
        }
        let (x1, y1) = load_entries(self.records, first);
        let (x2, y2) = load_entries(self.records, second);
        [x1, y1, x2, y2]
    }

    #[inline(always)]
    fn store(&mut self, at: usize, x: F, y: F) {
        let (x, y) = (x.scatter(), y.scatter());
        for lane in 0..LANES {
            if let Some(pair) = self.pairs.get(at + lane) {
                self.cells[pair.out as usize] = Point { x: x[lane], y: y[lane] };
            }
        }
    }

    #[inline(always)]
    fn prefetch(&self, at: usize, which: usize) {
        for lane in 0..LANES {
            if let Some(pair) = self.pairs.get(at + lane) {
                F::prefetch_record(self.records.record(pair.entries[which] & !NEGATED));
            }
        }
    }
}

/// Copies single entries to cells.
struct CopyRecords<'a, F: Lanes, R> {
    records: &'a R,
    /// Entry and cell.
    singles: &'a [(u32, u32)],
    cells: &'a mut [Point<F>],
}

impl<F: Lanes, R: Records> Kernel for CopyRecords<'_, F, R> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for singles in self.singles.chunks(LANES) {
            let mut entries = [None; LANES];
            for (entry, single) in entries.iter_mut().zip(singles) {
                *entry = Some(single.0);
            }
            let (x, y) = load_entries::<F, R>(self.records, entries);
            let (x, y) = (x.scatter(), y.reduce().scatter());
            for lane in 0..LANES {
                if let Some(&(_, out)) = singles.get(lane) {
                    self.cells[out as usize] = Point { x: x[lane], y: y[lane] };
                }
            }
        }
    }
}

/// Cell pairs: the first is replaced by the sum.
struct CellPairs<'a, F: Lanes> {
    pairs: &'a [(u32, u32)],
    cells: &'a mut [Point<F>],
}

impl<F: Lanes> Pairs<F> for CellPairs<'_, F> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.pairs.len()
    }

    #[inline(always)]
    fn load(&self, at: usize) -> [F; 4] {
        let zero = &F::ZERO;
        let (mut x1, mut y1, mut x2, mut y2) = ([zero; LANES], [zero; LANES], [zero; LANES], [zero; LANES]);
        for lane in 0..LANES {
            if let Some(&(a, b)) = self.pairs.get(at + lane) {
                let (a, b) = (&self.cells[a as usize], &self.cells[b as usize]);
                (x1[lane], y1[lane], x2[lane], y2[lane]) = (&a.x, &a.y, &b.x, &b.y);
            }
        }
        [F::gather(x1), F::gather(y1), F::gather(x2), F::gather(y2)]
    }

    #[inline(always)]
    fn store(&mut self, at: usize, x: F, y: F) {
        let (x, y) = (x.scatter(), y.scatter());
        for lane in 0..LANES {
            if let Some(&(a, _)) = self.pairs.get(at + lane) {
                self.cells[a as usize] = Point { x: x[lane], y: y[lane] };
            }
        }
    }
}

/// Memory for batches, to be used again and again.
pub(crate) struct Workspace<F: Lanes> {
    steps: Vec<Step<F>>,
    record_pairs: Vec<RecordPair>,
    singles: Vec<(u32, u32)>,
    pairs: Vec<(u32, u32)>,
    /// (first cell, number of cells) of each segment.
    segments: Vec<(u32, u32)>,
    cells: Vec<Point<F>>,
}

impl<F: Lanes> Workspace<F> {
    /// An empty workspace; it grows to what a batch needs.
    pub(crate) fn new() -> Self {
        Self {
            steps: Vec::new(),
            record_pairs: Vec::new(),
            singles: Vec::new(),
            pairs: Vec::new(),
            segments: Vec::new(),
            cells: Vec::new(),
        }
    }

    /// cells[a] += cells[b] for all pairs (a, b), the last pair first. No cell may be first of two pairs.
    pub(crate) fn add_cells(&mut self, cells: &mut [Point<F>], pairs: &[(u32, u32)]) {
        F::run(AddPairs { pairs: CellPairs { pairs, cells }, steps: &mut self.steps });
    }

    /// Sums segments of cells: for (first, count), the sum of cells first..first + count ends up in the first one; the
    /// others are used up.
    pub(crate) fn sum_cells(&mut self, cells: &mut [Point<F>], segments: &[(u32, u32)]) {
        let longest = segments.iter().map(|s| s.1).max().unwrap_or(0);
        let mut stride = 1;
        let mut pairs = std::mem::take(&mut self.pairs);
        while stride < longest {
            pairs.clear();
            for &(first, count) in segments {
                let mut at = 0;
                while at + stride < count {
                    pairs.push((first + at, first + at + stride));
                    at += 2 * stride;
                }
            }
            self.add_cells(cells, &pairs);
            stride *= 2;
        }
        self.pairs = pairs;
    }

    /// Sums runs of entries (base indices with a sign): `lengths` cut `entries` into runs, all of them not empty. Gives the
    /// sums to `take`, in order.
    pub(crate) fn sum_entries<R: Records>(
        &mut self,
        records: &R,
        entries: &[u32],
        lengths: impl Iterator<Item = usize>,
        mut take: impl FnMut(Point<F>),
    ) {
        self.record_pairs.clear();
        self.singles.clear();
        self.segments.clear();
        let (mut entry, mut cell) = (0, 0);
        for length in lengths {
            self.segments.push((cell, length.div_ceil(2) as u32));
            let run = &entries[entry..entry + length];
            entry += length;
            for pair in run.chunks(2) {
                match *pair {
                    [a, b] => self.record_pairs.push(RecordPair { entries: [a, b], out: cell }),
                    [a, ..] => self.singles.push((a, cell)),
                    [] => {}
                }
                cell += 1;
            }
        }
        let mut cells = std::mem::take(&mut self.cells);
        cells.clear();
        cells.resize(cell as usize, Point::INFINITY);
        let cells_mut = &mut cells[..];
        F::run(AddPairs {
            pairs: RecordPairs { records, pairs: &self.record_pairs, cells: cells_mut },
            steps: &mut self.steps,
        });
        F::run(CopyRecords { records, singles: &self.singles, cells: &mut cells });
        let segments = std::mem::take(&mut self.segments);
        self.sum_cells(&mut cells, &segments);
        for &(first, _) in &segments {
            take(cells[first as usize]);
        }
        self.segments = segments;
        self.cells = cells;
    }
}
