//! Multi-exponentiation: Σ kᵢ·Pᵢ over a table of point records.
//!
//! Scalars come sorted into what they cost. Zeros are never seen. Ones and minus ones ([`Terms::units`]) are a plain sum of
//! points, in a tree of batched affine additions, and never reach a bucket. The rest ([`Terms::parts`]) goes through
//! Pippenger's method with signed digits:
//!
//! * a scalar is stored as |k| ≤ (r − 1)/2 and a sign, so that small negative values are small;
//! * scalars are grouped by length, so that short ones only pay for the windows they have;
//! * adding 2^(c−1) to every window beforehand makes each signed digit a field of bits that needs no carry;
//! * for each window, entries are sorted by bucket (a counting sort of indices), and every bucket is summed as a tree: what
//!   shares an inversion is independent by construction, whatever the scalars are;
//! * buckets are weighted by running sums over many segments at once, batched too.
//!
//! Long inputs are cut into slices, so that the memory for sorting doesn't grow with the key. Where bases can be let go of, slices
//! are shorter, and those of one are let go of before the next begins.

use std::ops::Range;
use std::sync::Mutex;

use blst::{blst_fp, blst_fp2, blst_p1_affine, blst_p2_affine};
use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use group::Group as _;
use rayon::prelude::*;

use crate::curve::{NEGATED, Point, Records, Workspace};
use crate::field::portable::Array;
use crate::field::{Arithmetic, Lanes, negate_plain};
use crate::ntt::reverse_bits;

/// Terms per slice; few in unit tests, so that they see more than one.
const SLICE: usize = if cfg!(test) { 5 << 12 } else { 1 << 22 };

/// Terms per slice where bases can be let go of. A quarter of a long sum's bases is in memory then; the sum takes 2 to 7 % longer.
const SHORT_SLICE: usize = SLICE / 4;

/// Entries whose bucket sums are computed together, in G1: their cells and steps fit the second-level cache.
const CHUNK: usize = 1 << 13;

/// Lengths in bits up to which scalars are grouped.
const GROUPS: [u32; 3] = [20, 72, 254];

/// The sign of a [`Magnitude`], in its top word.
pub(crate) const SIGN: u64 = 1 << 63;

/// |k| as a plain integer of 254 bits, little-endian, with [`SIGN`] set if k is negative.
pub(crate) type Magnitude = [u64; 4];

/// One of the two groups, as the sums need it.
pub(crate) trait Curve: 'static {
    type Projective: group::Group<Scalar = Scalar> + for<'a> std::ops::AddAssign<&'a Self::Affine>;
    type Affine;
    type Portable: Lanes;
    #[cfg(target_arch = "x86_64")]
    type Fma: Lanes;
    #[cfg(target_arch = "x86_64")]
    type Ifma: Lanes;
    /// An affine point from x and y, (c0, c1) each.
    fn affine(coordinates: [[blst_fp; 2]; 2]) -> Self::Affine;
}

/// The group in which most sums are.
pub(crate) struct G1;
/// The group over F_q2.
pub(crate) struct G2;

impl Curve for G1 {
    type Projective = G1Projective;
    type Affine = G1Affine;
    type Portable = Array<blst_fp>;
    #[cfg(target_arch = "x86_64")]
    type Fma = crate::field::fma::base::Fq;
    #[cfg(target_arch = "x86_64")]
    type Ifma = crate::field::ifma::Fq;

    fn affine([[x, _], [y, _]]: [[blst_fp; 2]; 2]) -> G1Affine {
        let mut point = G1Affine::default();
        *point.as_mut() = blst_p1_affine { x, y };
        point
    }
}

impl Curve for G2 {
    type Projective = G2Projective;
    type Affine = G2Affine;
    type Portable = Array<blst_fp2>;
    #[cfg(target_arch = "x86_64")]
    type Fma = crate::field::fma::base::Fq2;
    #[cfg(target_arch = "x86_64")]
    type Ifma = crate::field::ifma::Fq2;

    fn affine([x, y]: [[blst_fp; 2]; 2]) -> G2Affine {
        let mut point = G2Affine::default();
        *point.as_mut() = blst_p2_affine { x: blst_fp2 { fp: x }, y: blst_fp2 { fp: y } };
        point
    }
}

/// Terms with scalars other than 0, 1 and −1.
pub(crate) struct Part<'a> {
    /// The scalars.
    pub(crate) scalars: &'a [Magnitude],
    /// Which of them.
    pub(crate) picks: Picks<'a>,
}

/// Which scalars a [`Part`] takes, and with which bases.
#[derive(Clone, Copy)]
pub(crate) enum Picks<'a> {
    /// Every scalar i, with base i.
    All,
    /// Every base i but the last of 2^log2, with the scalar whose index has i's bits reversed.
    AllReversed {
        /// log2 of the number of scalars.
        log2: u32,
    },
    /// (index of the scalar, base) of each term.
    Some(&'a [(u32, u32)]),
}

impl Part<'_> {
    fn len(&self) -> usize {
        match self.picks {
            Picks::Some(picks) => picks.len(),
            Picks::All => self.scalars.len(),
            // Position n − 1 is index n − 1, which has no base.
            Picks::AllReversed { .. } => self.scalars.len() - 1,
        }
    }

    fn term(&self, i: usize) -> (u32, &Magnitude) {
        match self.picks {
            Picks::Some(picks) => (picks[i].1, &self.scalars[picks[i].0 as usize]),
            Picks::All => (i as u32, &self.scalars[i]),
            Picks::AllReversed { log2 } => (i as u32, &self.scalars[reverse_bits(i, log2)]),
        }
    }

    /// The bases of some terms lie in this range: they ascend.
    fn bases(&self, terms: Range<usize>) -> Range<u32> {
        match self.picks {
            Picks::Some(picks) => match &picks[terms] {
                [] => 0..0,
                [one] => one.1..one.1 + 1,
                [first, .., last] => first.1..last.1 + 1,
            },
            Picks::All | Picks::AllReversed { .. } => terms.start as u32..terms.end as u32,
        }
    }
}

/// What is to be summed.
pub(crate) struct Terms<'a> {
    /// Bases with scalar 1, or −1 if [`NEGATED`] is set.
    pub(crate) units: &'a [u32],
    /// The others.
    pub(crate) parts: &'a [Part<'a>],
}

/// |k| and sign of a plain integer k below r.
pub(crate) fn magnitude(k: Magnitude) -> Magnitude {
    /// (r − 1)/2.
    const HALF: [u64; 4] = [0x7fff_ffff_8000_0000, 0xa9de_d201_7fff_2dff, 0x199c_ec04_04d0_ec02, 0x39f6_d3a9_94ce_bea4];
    let greater = k.iter().zip(&HALF).rev().find(|(a, b)| a != b).is_some_and(|(a, b)| a > b);
    if !greater {
        return k;
    }
    let mut negated = negate_plain(k);
    negated[3] |= SIGN;
    negated
}

/// The sum of all terms.
pub(crate) fn sum<C: Curve, R: Records>(arithmetic: Arithmetic, records: &R, terms: &Terms<'_>) -> C::Projective {
    match arithmetic {
        Arithmetic::Portable => Sums::<C, C::Portable, R>::new(records).sum(terms),
        #[cfg(target_arch = "x86_64")]
        Arithmetic::Avx2Fma => Sums::<C, C::Fma, R>::new(records).sum(terms),
        #[cfg(target_arch = "x86_64")]
        Arithmetic::Avx512Ifma => Sums::<C, C::Ifma, R>::new(records).sum(terms),
        #[cfg(not(target_arch = "x86_64"))]
        Arithmetic::Avx2Fma | Arithmetic::Avx512Ifma => Sums::<C, C::Portable, R>::new(records).sum(terms),
    }
}

/// Terms of one length class in one slice.
#[derive(Default)]
struct Group {
    /// Base and sign.
    entries: Vec<u32>,
    scalars: Vec<[u64; 4]>,
    /// The longest scalar.
    bits: u32,
}

/// How a group's scalars are cut into digits.
#[derive(Clone, Copy)]
struct Windows {
    width: u32,
    count: u32,
}

impl Windows {
    /// The width with the least additions: per window, one for each term and two for each bucket.
    fn choose(terms: usize, bits: u32) -> Self {
        let cost = |width: u32| (u64::from(Self::count(bits, width))) * (terms as u64 + (16 << width) / 14 + 8);
        let width = (2..=20).min_by_key(|&width| cost(width)).unwrap_or(8);
        Self { width, count: Self::count(bits, width) }
    }

    /// The top window is unsigned and takes a carry: one bit more than the scalars have.
    fn count(bits: u32, width: u32) -> u32 {
        (bits + 1).div_ceil(width)
    }

    fn buckets(self) -> usize {
        1 << (self.width - 1)
    }

    /// 2^(width − 1) in every window but the top one.
    fn offset(self) -> [u64; 4] {
        let mut offset = [0; 4];
        for window in 0..self.count - 1 {
            let bit = window * self.width + self.width - 1;
            offset[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        offset
    }

    /// The signed digit of a scalar to which the offset has been added.
    fn digit(self, scalar: &[u64; 4], window: u32) -> i32 {
        let first = window * self.width;
        let (word, shift) = ((first / 64) as usize, first % 64);
        let mut bits = scalar[word] >> shift;
        if shift + self.width > 64 && word < 3 {
            bits |= scalar[word + 1] << (64 - shift);
        }
        let field = (bits & ((1 << self.width) - 1)) as i32;
        if window + 1 == self.count { field } else { field - (1 << (self.width - 1)) }
    }
}

fn add_words(a: &mut [u64; 4], b: &[u64; 4]) {
    let mut carry = false;
    for (a, b) in a.iter_mut().zip(b) {
        let (s, c1) = a.overflowing_add(*b);
        let (s, c2) = s.overflowing_add(u64::from(carry));
        (*a, carry) = (s, c1 | c2);
    }
}

fn bit_length(words: &[u64; 4]) -> u32 {
    words.iter().enumerate().rev().find(|(_, w)| **w != 0).map_or(0, |(i, w)| 64 * i as u32 + 64 - w.leading_zeros())
}

struct Sums<'a, C: Curve, F: Lanes, R> {
    records: &'a R,
    workspaces: Mutex<Vec<Workspace<F>>>,
    curve: std::marker::PhantomData<fn() -> C>,
}

impl<'a, C: Curve, F: Lanes, R: Records> Sums<'a, C, F, R> {
    fn new(records: &'a R) -> Self {
        Self { records, workspaces: Mutex::new(Vec::new()), curve: std::marker::PhantomData }
    }

    /// Runs with one of as many workspaces as there are threads at work.
    fn with_workspace<T>(&self, f: impl FnOnce(&mut Workspace<F>) -> T) -> T {
        let pooled = self.workspaces.lock().ok().and_then(|mut pool| pool.pop());
        let mut workspace = pooled.unwrap_or_else(Workspace::new);
        let result = f(&mut workspace);
        if let Ok(mut pool) = self.workspaces.lock() {
            pool.push(workspace);
        }
        result
    }

    fn chunk(&self) -> usize {
        CHUNK * 96 / F::RECORD
    }

    fn sum(&self, terms: &Terms<'_>) -> C::Projective {
        let count = terms.units.len() + terms.parts.iter().map(Part::len).sum::<usize>();
        if !self.records.lets_go() || count <= SHORT_SLICE {
            let (mut total, tail) = rayon::join(|| self.sum_units(terms.units), || self.sum_parts(terms.parts, SLICE));
            total += tail;
            return total;
        }
        let mut total = self.sum_parts(terms.parts, SHORT_SLICE);
        for units in terms.units.chunks(SHORT_SLICE) {
            total += self.sum_units(units);
            if let (Some(first), Some(last)) = (units.first(), units.last()) {
                self.records.wont_need(first & !NEGATED..(last & !NEGATED) + 1);
            }
        }
        total
    }

    /// The plain sum.
    fn sum_units(&self, entries: &[u32]) -> C::Projective {
        let mut total = C::Projective::identity();
        if !entries.is_empty() {
            let sums = self.bucket_sums(entries, &[0, entries.len() as u32]);
            total += &self.affine(&sums[0]);
        }
        total
    }

    /// In slices of at most `longest` terms, and of about the same length.
    fn sum_parts(&self, parts: &[Part<'_>], longest: usize) -> C::Projective {
        let mut total = C::Projective::identity();
        let terms: usize = parts.iter().map(Part::len).sum();
        let slice = terms.div_ceil(terms.div_ceil(longest).max(1));
        let mut from = 0;
        while from < terms {
            let count = (terms - from).min(slice);
            let groups = gather_groups(parts, from, count);
            total += self.sum_groups(groups);
            if slice < terms {
                for (part, terms) in in_parts(parts, from, count) {
                    self.records.wont_need(part.bases(terms));
                }
            }
            from += count;
        }
        total
    }

    /// Pippenger's method for each group, all windows in parallel.
    fn sum_groups(&self, mut groups: Vec<Group>) -> C::Projective {
        let windows: Vec<_> = groups.iter().map(|g| Windows::choose(g.entries.len(), g.bits)).collect();
        for (group, windows) in groups.iter_mut().zip(&windows) {
            let offset = windows.offset();
            group.scalars.par_iter_mut().with_min_len(1 << 12).for_each(|s| add_words(s, &offset));
        }
        // Short inputs share inversions across windows, as long as every thread has something to do.
        let mut tasks = Vec::new();
        for (g, windows) in windows.iter().enumerate() {
            let for_all = windows.count.div_ceil(2 * rayon::current_num_threads() as u32);
            let together = (self.chunk() / groups[g].entries.len()).clamp(1, for_all.max(1) as usize) as u32;
            let firsts = (0..windows.count).step_by(together as usize);
            tasks.extend(firsts.map(|first| (g, first..(first + together).min(windows.count))));
        }
        let sums: Vec<Vec<C::Projective>> = tasks
            .par_iter()
            .with_max_len(1)
            .map(|(g, range)| self.window_sums(&groups[*g], windows[*g], range.clone()))
            .collect();
        let mut totals = vec![C::Projective::identity(); groups.len()];
        for ((g, _), sums) in tasks.iter().zip(&sums).rev() {
            for window_sum in sums.iter().rev() {
                for _ in 0..windows[*g].width {
                    totals[*g] = totals[*g].double();
                }
                totals[*g] += window_sum;
            }
        }
        totals.iter().sum()
    }

    /// Σ digit·P for each of some windows.
    fn window_sums(&self, group: &Group, windows: Windows, range: std::ops::Range<u32>) -> Vec<C::Projective> {
        let m = windows.buckets();
        let count = range.len();
        // offsets[b + 1] first counts the entries of bucket b, then becomes where they end. Bucket w·m + d − 1 is that of digit ±d in
        // the window number w of the range.
        let mut offsets = vec![0u32; count * m + 1];
        for scalar in &group.scalars {
            for (w, window) in range.clone().enumerate() {
                let digit = windows.digit(scalar, window);
                if digit != 0 {
                    offsets[w * m + digit.unsigned_abs() as usize] += 1;
                }
            }
        }
        for b in 1..offsets.len() {
            offsets[b] += offsets[b - 1];
        }
        let used = offsets[offsets.len() - 1] as usize;
        if used == 0 {
            return vec![C::Projective::identity(); count];
        }
        let mut sorted = vec![0u32; used];
        let mut next = offsets.clone();
        for (scalar, &entry) in group.scalars.iter().zip(&group.entries) {
            for (w, window) in range.clone().enumerate() {
                let digit = windows.digit(scalar, window);
                if digit != 0 {
                    let slot = &mut next[w * m + digit.unsigned_abs() as usize - 1];
                    sorted[*slot as usize] = if digit < 0 { entry ^ NEGATED } else { entry };
                    *slot += 1;
                }
            }
        }
        drop(next);
        let buckets = self.bucket_sums(&sorted, &offsets);
        drop((sorted, offsets));
        self.weighted_sums(buckets, count)
    }

    /// Sums of runs of entries: run b is `entries[offsets[b]..offsets[b + 1]]`. Runs may be empty or span chunks.
    fn bucket_sums(&self, entries: &[u32], offsets: &[u32]) -> Vec<Point<F>> {
        let chunk = self.chunk();
        let mut buckets = vec![Point::INFINITY; offsets.len() - 1];
        // A chunk owns the buckets that begin in it. The sum of a run's continuation comes back apart.
        let mut tasks = Vec::new();
        let mut rest = &mut buckets[..];
        let mut owned = 0;
        for start in (0..entries.len()).step_by(chunk) {
            let end = (start + chunk).min(entries.len());
            let past = owned + offsets[owned..offsets.len() - 1].partition_point(|&o| (o as usize) < end);
            let (mine, others) = rest.split_at_mut(past - owned);
            tasks.push((start, end, owned, mine));
            (rest, owned) = (others, past);
        }
        let continued: Vec<(usize, Point<F>)> = tasks
            .into_par_iter()
            .with_max_len(1)
            .filter_map(|(start, end, first, mine)| {
                // Runs of this chunk: maybe the rest of bucket first − 1, then all of mine that aren't empty.
                let begin = offsets[first].min(end as u32) as usize;
                let continuation = begin - start;
                let mut lengths = Vec::with_capacity(mine.len() + 1);
                let mut slots = Vec::with_capacity(mine.len());
                lengths.extend((continuation > 0).then_some(continuation));
                for b in 0..mine.len() {
                    let length = (offsets[first + b + 1] as usize).min(end) - offsets[first + b] as usize;
                    if length > 0 {
                        lengths.push(length);
                        slots.push(b);
                    }
                }
                let mut head = None;
                self.with_workspace(|workspace| {
                    let mut slots = slots.into_iter();
                    workspace.sum_entries(self.records, &entries[start..end], lengths.into_iter(), |sum| {
                        if continuation > 0 && head.is_none() {
                            head = Some((first - 1, sum));
                        } else if let Some(slot) = slots.next() {
                            mine[slot] = sum;
                        }
                    });
                });
                head
            })
            .collect();
        self.add_continuations(&mut buckets, &continued);
        buckets
    }

    /// Adds partial sums, ordered by bucket, to their buckets.
    fn add_continuations(&self, buckets: &mut [Point<F>], continued: &[(usize, Point<F>)]) {
        if continued.is_empty() {
            return;
        }
        let mut cells = Vec::new();
        let mut segments = Vec::new();
        for of_bucket in continued.chunk_by(|a, b| a.0 == b.0) {
            segments.push((cells.len() as u32, of_bucket.len() as u32 + 1));
            cells.push(buckets[of_bucket[0].0]);
            cells.extend(of_bucket.iter().map(|c| c.1));
        }
        self.with_workspace(|workspace| workspace.sum_cells(&mut cells, &segments));
        for (of_bucket, &(cell, _)) in continued.chunk_by(|a, b| a.0 == b.0).zip(&segments) {
            buckets[of_bucket[0].0] = cells[cell as usize];
        }
    }

    /// Σᵢ (i + 1)·Bᵢ for each of `count` lists of equally many buckets, a power of two, one after the other in `cells`.
    ///
    /// The m buckets of a list are cut into segments of s, and all segments of all lists compute their running sums at once:
    /// Σᵢ (i + 1)·Bᵢ = Σₖ accₖ + s·Σₖ k·runₖ, where runₖ is the sum of segment k and accₖ its sum weighted 1..s. The second sum
    /// has the same form, with as many terms as there were segments.
    fn weighted_sums(&self, mut cells: Vec<Point<F>>, count: usize) -> Vec<C::Projective> {
        let mut totals = vec![C::Projective::identity(); count];
        let mut m = cells.len() / count;
        let mut doublings = 0;
        // Below this an inversion for each step costs more than a few additions without.
        let least = if count < 4 { 8 } else { 2 };
        while m > least {
            let segments = segments(m, count);
            let s = m / segments;
            let all = count * segments;
            let (run, acc) = (cells.len() as u32, (cells.len() + all) as u32);
            cells.resize(cells.len() + 2 * all, Point::INFINITY);
            for k in 0..all {
                cells[run as usize + k] = cells[k * s + s - 1];
            }
            let mut pairs = Vec::with_capacity(2 * all);
            self.with_workspace(|workspace| {
                for t in (0..s).rev() {
                    // Pairs are worked on from the last: acc takes run as it was, then run takes the next bucket.
                    pairs.clear();
                    if t > 0 {
                        pairs.extend((0..all as u32).map(|k| (run + k, k * s as u32 + t as u32 - 1)));
                    }
                    pairs.extend((0..all as u32).map(|k| (acc + k, run + k)));
                    workspace.add_cells(&mut cells, &pairs);
                }
                let lists: Vec<_> = (0..count).map(|list| (acc + (list * segments) as u32, segments as u32)).collect();
                workspace.sum_cells(&mut cells, &lists);
            });
            for (list, total) in totals.iter_mut().enumerate() {
                let mut part = C::Projective::identity();
                part += &self.affine(&cells[acc as usize + list * segments]);
                for _ in 0..doublings {
                    part = part.double();
                }
                *total += part;
            }
            doublings += s.trailing_zeros();
            // Weights are k, not k + 1: every list loses its first run.
            cells.truncate(acc as usize);
            cells.drain(..run as usize);
            for runs in cells.chunks_exact_mut(segments) {
                runs.rotate_left(1);
                runs[segments - 1] = Point::INFINITY;
            }
            m = segments;
        }
        for (total, cells) in totals.iter_mut().zip(cells.chunks_exact(m)) {
            let (mut run, mut acc) = (C::Projective::identity(), C::Projective::identity());
            for cell in cells.iter().rev() {
                run += &self.affine(cell);
                acc += run;
            }
            for _ in 0..doublings {
                acc = acc.double();
            }
            *total += acc;
        }
        totals
    }

    fn affine(&self, point: &Point<F>) -> C::Affine {
        C::affine(F::cell_to_blst(&point.x, &point.y))
    }
}

/// Into how many segments each of `count` lists of m buckets is cut: some 512 in all, so that the inversion of a step is shared by
/// a thousand additions, but not so many that steps get fewer than rounds of adding the segments up.
fn segments(m: usize, count: usize) -> usize {
    let wanted = (512 / count).max(2).next_power_of_two();
    let balanced = 1 << m.trailing_zeros().div_ceil(2);
    if m < 1024 { wanted.min(balanced) } else { wanted }.min(m / 2)
}

/// Terms `from`..`from + count` of all parts one after the other: the parts, and which of their terms.
fn in_parts<'p, 'a>(
    parts: &'p [Part<'a>],
    from: usize,
    count: usize,
) -> impl Iterator<Item = (&'p Part<'a>, Range<usize>)> {
    let mut begin = 0;
    parts.iter().map(move |part| {
        let within = |term: usize| term.saturating_sub(begin).min(part.len());
        let range = within(from)..within(from + count);
        begin += part.len();
        (part, range)
    })
}

/// Terms `from`..`from + count` of all parts one after the other, by length.
fn gather_groups(parts: &[Part<'_>], from: usize, count: usize) -> Vec<Group> {
    let mut groups: [Group; GROUPS.len()] = Default::default();
    for (part, terms) in in_parts(parts, from, count) {
        for i in terms {
            let (base, scalar) = part.term(i);
            let mut k = *scalar;
            k[3] &= !SIGN;
            let bits = bit_length(&k);
            if bits == 0 {
                continue;
            }
            let group = &mut groups[GROUPS.partition_point(|&most| most < bits).min(GROUPS.len() - 1)];
            group.entries.push(if scalar[3] & SIGN != 0 { base | NEGATED } else { base });
            group.scalars.push(k);
            group.bits = group.bits.max(bits);
        }
    }
    groups.into_iter().filter(|g| !g.entries.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use ff::{Field, PrimeField};
    use rand_chacha::ChaCha8Rng;
    use rand_core::{RngCore, SeedableRng};
    use splitprover_core::{PointRecord, PointTable};

    use crate::field::to_plain;

    use super::*;

    /// A base table, with infinities where the test wants them.
    struct Table<'a, A>(&'a PointTable<A>);

    impl<A: PointRecord> Records for Table<'_, A> {
        fn record(&self, index: u32) -> &[u8] {
            self.0.record(index as usize)
        }
    }

    /// The same table, whose bases are let go of; remembers of which.
    struct LetsGo<'a, A>(&'a PointTable<A>, Mutex<Vec<Range<u32>>>);

    impl<A: PointRecord> Records for LetsGo<'_, A> {
        fn record(&self, index: u32) -> &[u8] {
            self.0.record(index as usize)
        }

        fn wont_need(&self, bases: Range<u32>) {
            self.1.lock().unwrap().push(bases);
        }

        fn lets_go(&self) -> bool {
            true
        }
    }

    /// What the sum must be, term by term; sorted into units and parts as the prover does.
    fn check<C: Curve>(points: &[C::Affine], scalars: &[Scalar])
    where
        C::Affine: PointRecord<Curve = C::Projective>,
    {
        let mut expected = C::Projective::identity();
        for (point, scalar) in points.iter().zip(scalars) {
            expected += *point * *scalar;
        }
        let table = PointTable::from_points(points);
        let (mut units, mut magnitudes, mut picks) = (Vec::new(), Vec::new(), Vec::new());
        for (i, scalar) in scalars.iter().enumerate() {
            if *scalar == Scalar::ONE {
                units.push(i as u32);
            } else if *scalar == -Scalar::ONE {
                units.push(i as u32 | NEGATED);
            } else {
                picks.push((magnitudes.len() as u32, i as u32));
                magnitudes.push(magnitude(to_plain(scalar)));
            }
        }
        let all: Vec<_> = scalars.iter().map(|k| magnitude(to_plain(k))).collect();
        for arithmetic in Arithmetic::supported() {
            let part = Part { scalars: &magnitudes, picks: Picks::Some(&picks) };
            let terms = Terms { units: &units, parts: &[part] };
            assert!(sum::<C, _>(arithmetic, &Table(&table), &terms) == expected, "{arithmetic:?}, units apart");
            let part = Part { scalars: &all, picks: Picks::All };
            let terms = Terms { units: &[], parts: &[part] };
            assert!(sum::<C, _>(arithmetic, &Table(&table), &terms) == expected, "{arithmetic:?}, all in buckets");

            let table = LetsGo(&table, Mutex::default());
            assert!(sum::<C, _>(arithmetic, &table, &terms) == expected, "{arithmetic:?}, letting go");
            let gone = table.1.into_inner().unwrap();
            // One slice after the other, up to the last base; a short sum leaves it to the caller.
            assert!(gone.iter().is_sorted_by(|x, y| x.end == y.start));
            assert_eq!(gone.len(), if scalars.len() > SHORT_SLICE { scalars.len().div_ceil(SHORT_SLICE) } else { 0 });
            assert!(gone.first().is_none_or(|first| first.start == 0));
            assert!(gone.last().is_none_or(|last| last.end as usize == scalars.len()));
        }
    }

    fn points<C: Curve>(rng: &mut ChaCha8Rng, count: usize) -> Vec<C::Affine>
    where
        C::Affine: PointRecord<Curve = C::Projective>,
        C::Projective: group::Curve<AffineRepr = C::Affine>,
    {
        use group::Curve as _;
        let step = C::Projective::random(&mut *rng);
        let mut point = C::Projective::random(&mut *rng);
        (0..count)
            .map(|_| {
                point += step;
                point.to_affine()
            })
            .collect()
    }

    fn mixes<C: Curve>(sizes: &[usize], seed: u64)
    where
        C::Affine: PointRecord<Curve = C::Projective>,
        C::Projective: group::Curve<AffineRepr = C::Affine>,
    {
        use group::prime::PrimeCurveAffine;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for &n in sizes {
            let mut bases = points::<C>(&mut rng, n);
            let dense: Vec<_> = (0..n).map(|_| Scalar::random(&mut rng)).collect();
            check::<C>(&bases, &dense);
            check::<C>(&bases, &vec![Scalar::ONE; n]);
            check::<C>(&bases, &vec![dense.first().copied().unwrap_or(Scalar::ONE); n]);
            let short: Vec<_> = (0..n).map(|_| Scalar::from(rng.next_u64() >> (rng.next_u32() % 64))).collect();
            check::<C>(&bases, &short);
            // Equal and opposite bases, infinities, special scalars.
            let specials = [0u64, 1, 2, 3, 1 << 20, (1 << 20) - 1, u64::MAX].map(Scalar::from);
            let mixed: Vec<_> = (0..n)
                .map(|i| {
                    let special = specials[rng.next_u32() as usize % specials.len()];
                    match rng.next_u32() % 4 {
                        0 => special,
                        1 => -special,
                        2 => dense[rng.next_u32() as usize % n],
                        _ => dense[i],
                    }
                })
                .collect();
            for i in 0..n {
                let other = bases[rng.next_u32() as usize % n];
                match rng.next_u32() % 5 {
                    0 => bases[i] = C::Affine::identity(),
                    1 => bases[i] = other,
                    2 => bases[i] = -other,
                    _ => {}
                }
            }
            check::<C>(&bases, &mixed);
            check::<C>(
                &vec![bases[n.saturating_sub(1)..].first().copied().unwrap_or(C::Affine::identity()); n],
                &mixed,
            );
        }
    }

    #[test]
    fn sums_in_g1_agree_with_the_definition() {
        mixes::<G1>(&[0, 1, 2, 3, 7, 8, 9, 31, 33, 255, 257, 1024], 1);
    }

    #[test]
    fn sums_in_g2_agree_with_the_definition() {
        mixes::<G2>(&[0, 1, 2, 5, 16, 17, 130, 520], 2);
    }

    #[test]
    fn runs_longer_than_a_chunk_and_sums_longer_than_a_slice_are_put_together() {
        // One bucket over many chunks, then every bucket cut somewhere; two slices.
        const { assert!(SLICE < 3 * CHUNK) };
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let bases = points::<G1>(&mut rng, 3 * CHUNK + 5);
        let two = vec![Scalar::from(2); bases.len()];
        check::<G1>(&bases, &two);
        let few: Vec<_> = (0..bases.len()).map(|_| Scalar::from(u64::from(rng.next_u32() % 5))).collect();
        check::<G1>(&bases, &few);
    }

    #[test]
    fn units_and_reversed_scalars_in_slices_give_the_same_sum() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        const { assert!(2 * SHORT_SLICE < 1 << 14) };
        let log2 = 14;
        let n = 1 << log2;
        let bases = points::<G1>(&mut rng, n + 3 * SHORT_SLICE);
        let table = PointTable::from_points(&bases);
        let scalars: Vec<_> = (0..n).map(|_| magnitude(to_plain(&Scalar::from(u64::from(rng.next_u32()))))).collect();
        let units: Vec<u32> =
            (n as u32..bases.len() as u32).map(|base| if base % 3 == 0 { base | NEGATED } else { base }).collect();
        let picks: Vec<_> = (0..n - 1).map(|base| (reverse_bits(base, log2) as u32, base as u32)).collect();
        for arithmetic in Arithmetic::supported() {
            let picked = Part { scalars: &scalars, picks: Picks::Some(&picks) };
            let expected = sum::<G1, _>(arithmetic, &Table(&table), &Terms { units: &units, parts: &[picked] });
            let table = LetsGo(&table, Mutex::default());
            let terms =
                Terms { units: &units, parts: &[Part { scalars: &scalars, picks: Picks::AllReversed { log2 } }] };
            assert!(sum::<G1, _>(arithmetic, &table, &terms) == expected, "{arithmetic:?}");
            let gone = table.1.into_inner().unwrap();
            let ends: Vec<_> = gone.iter().map(|range| range.end as usize).collect();
            assert!(ends.contains(&(n - 1)) && ends.contains(&bases.len()), "{ends:?}");
        }
    }

    #[test]
    fn digits_add_up_to_the_scalar() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        for bits in [1, 2, 19, 20, 72, 253, 254] {
            for width in 2..=20 {
                let windows = Windows { width, count: Windows::count(bits, width) };
                let mut k = to_plain(&Scalar::random(&mut rng));
                for (word, k) in k.iter_mut().enumerate() {
                    let left = bits.saturating_sub(64 * word as u32);
                    *k = match left {
                        0 => 0,
                        1..64 => (*k | 1 << (left - 1)) & ((1 << left) - 1),
                        _ => *k,
                    };
                }
                let mut shifted = k;
                add_words(&mut shifted, &windows.offset());
                let mut sum = Scalar::ZERO;
                for window in (0..windows.count).rev() {
                    let digit = windows.digit(&shifted, window);
                    assert!(digit.unsigned_abs() as usize <= windows.buckets(), "{bits} bits, width {width}");
                    for _ in 0..width {
                        sum = sum.double();
                    }
                    let magnitude = Scalar::from(u64::from(digit.unsigned_abs()));
                    sum += if digit < 0 { -magnitude } else { magnitude };
                }
                assert_eq!(to_plain(&sum), k, "{bits} bits, width {width}");
            }
        }
    }

    #[test]
    fn magnitudes_are_the_shorter_of_k_and_its_negative() {
        let magnitude = |k: Scalar| magnitude(to_plain(&k));
        assert_eq!(magnitude(-Scalar::from(5)), [5, 0, 0, SIGN]);
        assert_eq!(magnitude(Scalar::from(5)), [5, 0, 0, 0]);
        let half = -Scalar::TWO_INV;
        assert_eq!(magnitude(half), to_plain(&half), "(r - 1)/2 stays positive");
        let mut next = to_plain(&half);
        next[3] |= SIGN;
        assert_eq!(magnitude(half + Scalar::ONE), next);
    }
}
