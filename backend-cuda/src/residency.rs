//! What of a key lives in device memory: a plan made from numbers alone, before anything is allocated.
//!
//! In order of preference the plan gives up: room for sorting in the short sums, separate lanes (independent multi-exponentiations run side by
//! side), room for sorting in the longest sum (more passes), the second slot (two proofs overlap with it), copies of all bases (then H and L alone have as many as
//! find room beside all of that), and last the residency of bases. Every base costs one PCIe
//! transfer per proof when it isn't resident, whatever query it is from, so all bases are worth the same per byte: queries are
//! made resident one after the other until memory ends, the last one in part, and the rest is streamed in chunks.

use std::fmt;

use crate::driver::CudaError;
use crate::msm::{AffineG2, Counts, Group, Plan as MsmPlan, Shape};
use crate::ntt::{Quotient, SCALAR};

/// The queries of a key, in the order in which they become resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named as in Groth16")]
pub enum QueryId {
    H,
    L,
    A,
    B1,
    B2,
}

impl QueryId {
    /// All five.
    pub const ALL: [Self; 5] = [Self::H, Self::L, Self::A, Self::B1, Self::B2];

    /// The group its bases are in.
    #[must_use]
    pub fn group(self) -> Group {
        if self == Self::B2 { Group::G2 } else { Group::G1 }
    }
}

/// The four sums, and the queries that feed each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named as in Groth16")]
pub enum SumId {
    Hl,
    A,
    B1,
    B2,
}

impl SumId {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Hl, Self::A, Self::B1, Self::B2];

    /// The queries whose multi-exponentiations add up to it.
    #[must_use]
    pub fn queries(self) -> &'static [QueryId] {
        match self {
            Self::Hl => &[QueryId::H, QueryId::L],
            Self::A => &[QueryId::A],
            Self::B1 => &[QueryId::B1],
            Self::B2 => &[QueryId::B2],
        }
    }

    /// The group of the sum.
    #[must_use]
    pub fn group(self) -> Group {
        if self == Self::B2 { Group::G2 } else { Group::G1 }
    }
}

/// The sizes that a plan follows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// log2 of the domain.
    pub log_n: u32,
    /// Variables of the witness.
    pub num_variables: u64,
    /// Bases of each query, by [`QueryId`].
    pub bases: [u64; 5],
    /// Whether a query needs an index from bases to variables.
    pub indexed: [bool; 5],
    /// Device bytes of the matrices.
    pub matrices: u64,
    /// Multiprocessors of the card.
    pub multiprocessors: u32,
    /// Most shifted copies of the bases to keep, 1 for none. Where they don't find room for all sums, H and L alone have them.
    pub max_copies: u32,
    /// Affine additions in G2.
    pub affine_g2: AffineG2,
    /// Most proofs whose device work may overlap.
    pub max_slots: usize,
}

impl Sizes {
    /// Bases that a sum ranges over.
    #[must_use]
    pub fn sum_len(&self, sum: SumId) -> u64 {
        sum.queries().iter().map(|&query| self.bases[query as usize]).sum()
    }

    fn point_bytes(&self, query: QueryId) -> u64 {
        self.bases[query as usize] * query.group().point_bytes()
    }

    /// Witness, a, b, c.
    fn vectors(&self) -> u64 {
        SCALAR * (self.num_variables + (3 << self.log_n))
    }

    fn indices(&self) -> u64 {
        QueryId::ALL.iter().filter(|&&q| self.indexed[q as usize]).map(|&q| 4 * self.bases[q as usize]).sum()
    }
}

/// Where everything goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residency {
    /// Sets of vectors and workspaces: proofs whose device work may overlap.
    pub slots: usize,
    /// For each sum the lane that computes it.
    pub lanes: [usize; 4],
    /// Workspace of each lane in bytes; as many as there are lanes.
    pub workspaces: Vec<u64>,
    /// Bytes that each sum may use for sorting, by which its lane's workspace is made.
    pub pair_budgets: [u64; 4],
    /// Window size and copies of each sum, for a witness without zeros and ones.
    pub shapes: [Shape; 4],
    /// Bases of each query that are resident.
    pub resident: [u64; 5],
    /// Bases of a streamed chunk; there are two such buffers in each slot where anything is streamed, of [`Self::chunk_bytes`] each.
    pub chunk: u64,
    /// Whether the transforms get their full table of twiddles.
    pub full_twiddles: bool,
    /// Device bytes in all.
    pub total: u64,
}

/// Kept free for the driver's own needs: stacks of kernels, launches, fragmentation.
fn margin(available: u64) -> u64 {
    (available / 64).clamp(64 << 20, 1 << 30)
}

/// Lanes of the sums, and bytes for sorting: for H and L, which have the most pairs by far, and for each of the others. No batch has use for more.
const RESIDENT_PLANS: [([usize; 4], [u64; 2]); 6] = [
    (OWN_LANES, [6 << 30, 5 << 30]),
    (OWN_LANES, [6 << 30, 2 << 30]),
    (SHARED_LANES, [6 << 30, 5 << 30]),
    (SHARED_LANES, [6 << 30, 2 << 30]),
    (OWN_LANES, [2 << 30, 2 << 30]),
    (SHARED_LANES, [2 << 30, 2 << 30]),
];
const OWN_LANES: [usize; 4] = [0, 1, 2, 3];
const SHARED_LANES: [usize; 4] = [0, 1, 1, 1];
/// Where sums follow one another in one workspace.
const BUDGETS: [u64; 6] = [2 << 30, 1 << 30, 512 << 20, 256 << 20, 128 << 20, 32 << 20];

impl Residency {
    /// The best plan for `available` bytes.
    ///
    /// # Errors
    /// [`CudaError::DoesNotFit`] when not even a fully streamed key leaves room for the vectors of one proof.
    pub fn plan(sizes: &Sizes, available: u64) -> Result<Self, CudaError> {
        let usable = available.saturating_sub(margin(available));
        let copies = sizes.max_copies.max(1);
        let plan = Self::with_copies(sizes, copies, usable)
            .or_else(|| Self::with_copies_of_hl(sizes, usable))
            .or_else(|| Self::with_copies(sizes, 1, usable));
        if let Some(mut plan) = plan {
            let full_twiddles = Self::full_twiddles(sizes);
            if plan.total + full_twiddles <= usable {
                plan.full_twiddles = true;
                plan.total += full_twiddles;
            }
            return Ok(plan);
        }
        for budget in BUDGETS {
            let plan = Self::resident(sizes, [1; 4], 1, [0; 4], [budget; 4]);
            if plan.total <= usable {
                return Ok(plan);
            }
        }
        let mut need = u64::MAX;
        for (&budget, chunk) in BUDGETS[1..].iter().zip([22, 21, 20, 19, 16]) {
            let mut plan = Self::resident(sizes, [1; 4], 1, [0; 4], [budget; 4]);
            let points: u64 = QueryId::ALL.iter().map(|&query| sizes.point_bytes(query)).sum();
            plan.chunk = 1 << chunk;
            let fixed = plan.total - points + 2 * plan.chunk_bytes();
            need = need.min(fixed);
            let Some(mut room) = usable.checked_sub(fixed) else { continue };
            // A plan that keeps next to nothing resident streams all the same with a smaller workspace: try that first.
            if room < points / 4 && budget > BUDGETS[3] {
                continue;
            }
            plan.total = fixed;
            for query in QueryId::ALL {
                let bytes = query.group().point_bytes();
                let count = sizes.bases[query as usize].min(room / bytes);
                plan.resident[query as usize] = count;
                room -= count * bytes;
                plan.total += count * bytes;
            }
            return Ok(plan);
        }
        Err(CudaError::DoesNotFit { what: "a proof of this size", need: need + margin(available), have: available })
    }

    /// What the full table of twiddles takes.
    fn full_twiddles(sizes: &Sizes) -> u64 {
        Quotient::table_bytes(sizes.log_n, true) - Quotient::table_bytes(sizes.log_n, false)
    }

    /// The first plan that fits in which every sum may have so many copies.
    fn with_copies(sizes: &Sizes, copies: u32, usable: u64) -> Option<Self> {
        let slots = (1..=sizes.max_slots.max(1)).rev();
        let plans = slots.flat_map(|slots| RESIDENT_PLANS.map(|(lanes, budgets)| (slots, lanes, budgets)));
        plans
            .map(|(slots, lanes, [hl, other])| {
                Self::resident(sizes, [copies; 4], slots, lanes, [hl, other, other, other])
            })
            .find(|plan| plan.total <= usable)
    }

    /// The plan that fits with the cheapest sum over H and L, where that sum alone has copies, as many as find room: most of the additions are its. With as
    /// many slots as without copies, as few batches, and the full table of twiddles where there is one without copies.
    fn with_copies_of_hl(sizes: &Sizes, usable: u64) -> Option<Self> {
        let without = Self::with_copies(sizes, 1, usable)?;
        let hl = SumId::Hl as usize;
        // H's scalars are always dense.
        let dense = sizes.bases[QueryId::H as usize];
        let cost = |plan: &Self| Shape::fit(dense, plan.shapes[hl].copies).cost(dense);
        let len = sizes.sum_len(SumId::Hl);
        let batches = |plan: &Self| plan.sparse_msm(sizes, SumId::Hl).batches(len);
        let full_twiddles = Self::full_twiddles(sizes);
        let usable = if without.total + full_twiddles <= usable { usable - full_twiddles } else { usable };
        let most = sizes.max_copies.min(Shape::MAX_COPIES).min((MsmPlan::MAX_BASES / len.max(1)) as u32);
        let plans = RESIDENT_PLANS.iter().filter(|(_, [budget, _])| *budget >= without.pair_budgets[hl]);
        plans
            .flat_map(|&(lanes, [budget, other])| {
                let plan = move |copies| {
                    Self::resident(sizes, [copies, 1, 1, 1], without.slots, lanes, [budget, other, other, other])
                };
                (2..=most).map(plan)
            })
            .filter(|plan| plan.total <= usable && cost(plan) < cost(&without) && batches(plan) <= batches(&without))
            .min_by(|a, b| cost(a).total_cmp(&cost(b)))
    }

    /// A plan with all bases resident and at most so many copies for each sum, whether or not it fits.
    fn resident(sizes: &Sizes, max_copies: [u32; 4], slots: usize, lanes: [usize; 4], pair_budgets: [u64; 4]) -> Self {
        let shapes = SumId::ALL.map(|sum| Shape::choose(sizes.sum_len(sum).max(1), max_copies[sum as usize]));
        let mut plan = Self {
            slots,
            lanes,
            workspaces: vec![0; lanes.iter().max().map_or(1, |last| last + 1)],
            pair_budgets,
            shapes,
            resident: sizes.bases,
            chunk: 0,
            full_twiddles: false,
            total: 0,
        };
        for sum in SumId::ALL {
            let bytes = plan.any_msm(sizes, sum).workspace_bytes().max(plan.sparse_msm(sizes, sum).workspace_bytes());
            let lane = &mut plan.workspaces[lanes[sum as usize]];
            *lane = bytes.max(*lane);
        }
        let points: u64 = SumId::ALL
            .iter()
            .flat_map(|&sum| sum.queries().iter().map(move |&query| (sum, query)))
            .map(|(sum, query)| sizes.point_bytes(query) * u64::from(shapes[sum as usize].copies))
            .sum();
        let per_slot = sizes.vectors() + plan.workspaces.iter().sum::<u64>();
        plan.total = points
            + sizes.indices()
            + sizes.matrices
            + Quotient::table_bytes(sizes.log_n, false)
            + slots as u64 * per_slot;
        plan
    }

    /// The multi-exponentiation of a sum whose scalars may be anything. Lanes have the workspace that it needs.
    fn any_msm(&self, sizes: &Sizes, sum: SumId) -> MsmPlan {
        let (group, len) = (sum.group(), sizes.sum_len(sum).max(1));
        let (shape, budget) = (self.shapes[sum as usize], self.pair_budgets[sum as usize]);
        MsmPlan::new(group, sizes.affine_g2, shape, len, sizes.multiprocessors, budget)
    }

    /// The same for a witness of bits, of which more sets fit a batch.
    fn sparse_msm(&self, sizes: &Sizes, sum: SumId) -> MsmPlan {
        let (group, len) = (sum.group(), sizes.sum_len(sum).max(1));
        let (shape, budget) = (self.shapes[sum as usize], self.pair_budgets[sum as usize]);
        let counts = Self::counts(sizes, sum, Counts { dense: len / 128, units: len / 4 + len / 32 });
        MsmPlan::for_counts(group, sizes.affine_g2, shape, len, counts, sizes.multiprocessors, budget)
    }

    /// Those of the sum: H's scalars are always dense.
    fn counts(sizes: &Sizes, sum: SumId, counts: Counts) -> Counts {
        let h = if sum == SumId::Hl { sizes.bases[QueryId::H as usize] } else { 0 };
        Counts { dense: h.saturating_add(counts.dense).min(sizes.sum_len(sum).max(1)), ..counts }
    }

    /// The multi-exponentiation of a sum when the bases of L, A or B have no more than `counts` scalars with pairs. (H's are counted here.)
    ///
    /// Windows follow from that; copies of the table are used whole or in part. The plan fits its lane's workspace.
    #[must_use]
    pub fn msm(&self, sizes: &Sizes, sum: SumId, counts: Counts) -> MsmPlan {
        let copies = self.shapes[sum as usize].copies;
        let len = sizes.sum_len(sum).max(1);
        let counts = Self::counts(sizes, sum, counts);
        let room = self.workspaces[self.lanes[sum as usize]];
        let shape = Shape::fit(counts.dense, copies);
        let any = self.any_msm(sizes, sum);
        match MsmPlan::within(sum.group(), sizes.affine_g2, shape, len, counts, sizes.multiprocessors, room) {
            Some(fitted) if fitted.batches(len) <= any.batches(len) => fitted.over(copies),
            _ => any,
        }
    }

    /// Bytes of one buffer for streamed bases.
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk * Group::G2.point_bytes()
    }

    /// Whether all bases are resident.
    #[must_use]
    pub fn is_resident(&self) -> bool {
        self.chunk == 0
    }
}

impl fmt::Display for Residency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB, {} slots, {} lanes, ", self.total >> 20, self.slots, self.workspaces.len())?;
        if self.is_resident() {
            f.write_str("key resident")
        } else {
            write!(f, "resident bases {:?}, chunks of {}", self.resident, self.chunk)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(log_n: u32) -> Sizes {
        let n = 1 << log_n;
        Sizes {
            log_n,
            num_variables: n,
            bases: [n, n - 1, n, n, n],
            indexed: [false, false, true, true, true],
            matrices: 0,
            multiprocessors: 132,
            max_copies: 1,
            affine_g2: AffineG2::On,
            max_slots: 2,
        }
    }

    #[test]
    fn a_large_card_keeps_everything_and_overlaps_proofs() {
        for log_n in [0, 1, 10, 20, 24, 26] {
            let plan = Residency::plan(&sizes(log_n), 139 << 30).unwrap();
            assert!(plan.is_resident() && plan.slots == 2, "2^{log_n}: {plan}");
        }
        // A Filecoin partition: b is sparse.
        let mut partition = sizes(27);
        partition.bases[3] /= 4;
        partition.bases[4] /= 4;
        let plan = Residency::plan(&partition, 139 << 30).unwrap();
        assert!(plan.is_resident() && plan.slots == 2, "{plan}");
        // All of H and a 64th of L, two sets in a batch; a sparse A in one.
        let counts = Counts { dense: 1 << 21, units: 1 << 26 };
        assert!(plan.msm(&partition, SumId::Hl, counts).batches(partition.sum_len(SumId::Hl)) <= 6, "{plan}");
        assert_eq!(plan.msm(&partition, SumId::A, counts).batches(partition.sum_len(SumId::A)), 1, "{plan}");
    }

    #[test]
    fn where_copies_of_all_bases_do_not_fit_those_of_h_and_l_do() {
        let mut partition = sizes(26);
        partition.bases[3] /= 4;
        partition.bases[4] /= 4;
        let copies = |max_copies, available| {
            let plan = Residency::plan(&Sizes { max_copies, ..partition.clone() }, available).unwrap();
            assert!(plan.is_resident() && plan.total <= available, "{plan}");
            let [hl, others @ ..] = plan.shapes.map(|shape| shape.copies);
            (hl, others, plan)
        };
        let (hl, others, plan) = copies(12, 139 << 30);
        let (_, _, without) = copies(1, 139 << 30);
        assert!(hl >= 4 && others == [1; 3], "{hl} {others:?} {plan}");
        assert!(plan.slots == without.slots && plan.pair_budgets[0] == without.pair_budgets[0], "{plan}");
        // As many as help and no more than are asked for; all alike where there is room.
        let (few, _, _) = copies(3, 139 << 30);
        assert_eq!(few, 3);
        assert_eq!(copies(12, 48 << 30).0, 1);
        assert!(copies(12, 400 << 30).1.iter().all(|&copies| copies > 1));
    }

    #[test]
    fn sparse_sums_take_fewer_buckets_than_the_copies_were_made_for() {
        let sizes = Sizes { max_copies: 12, ..sizes(24) };
        let plan = Residency::plan(&sizes, 139 << 30).unwrap();
        for sum in [SumId::A, SumId::B1, SumId::B2] {
            let [sparse, dense] =
                [1 << 18, u64::MAX].map(|dense| plan.msm(&sizes, sum, Counts { dense, units: 1 << 23 }).shape());
            assert!(dense.copies > 1, "the case is meant to have copies");
            assert!(8 * sparse.buckets() < dense.buckets());
        }
    }

    #[test]
    fn less_memory_never_gives_a_plan_that_needs_more_than_there_is() {
        for (log_n, max_copies) in [4, 16, 20, 22, 24, 26].into_iter().flat_map(|log_n| [(log_n, 1), (log_n, 12)]) {
            let sizes = Sizes { max_copies, ..sizes(log_n) };
            for available in (26..38).rev().flat_map(|log| [3u64 << (log - 1), 1 << log]) {
                match Residency::plan(&sizes, available) {
                    Ok(plan) => {
                        assert!(plan.total <= available, "2^{log_n}, {available}: {plan}");
                        assert!(plan.resident.iter().zip(&sizes.bases).all(|(r, b)| r <= b));
                        for sum in SumId::ALL {
                            for dense in [0, 1, 1 << (log_n / 2), u64::MAX] {
                                for units in [0, 1, 1 << (log_n - 1), u64::MAX] {
                                    let (len, any) = (sizes.sum_len(sum), plan.any_msm(&sizes, sum));
                                    let msm = plan.msm(&sizes, sum, Counts { dense, units });
                                    assert!(msm.workspace_bytes() <= plan.workspaces[plan.lanes[sum as usize]]);
                                    assert!(msm.batches(len) <= any.batches(len), "2^{log_n}, {available}: {sum:?}");
                                }
                            }
                        }
                    }
                    Err(error) => assert!(matches!(error, CudaError::DoesNotFit { .. })),
                }
            }
        }
    }

    #[test]
    fn the_limits_asked_for_hold_dense_circuits() {
        for (log_n, limit) in [(24, 12u64 << 30), (22, 3 << 30)] {
            let plan = Residency::plan(&sizes(log_n), limit).unwrap();
            // Under the limit, and the table that the most additions go through is resident whole.
            assert!(plan.total <= limit, "2^{log_n}: {plan}");
            assert_eq!(plan.resident[0], sizes(log_n).bases[0], "2^{log_n}: {plan}");
        }
    }
}
