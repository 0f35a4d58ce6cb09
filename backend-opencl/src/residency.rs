//! What of a key lives in device memory: a plan made from numbers alone, before anything is allocated.
//!
//! The bases of a sum are cut into chunks that one buffer and one pass of a multi-exponentiation hold. In order of preference the plan gives
//! up: the second slot (two proofs overlap with it), the second lane (sums side by side), long passes, and last the residency of bases: then
//! what doesn't fit is streamed through one buffer for each proof.

use std::fmt;

use crate::driver::OpenClError;
use crate::field::SCALAR;
use crate::msm::{Group, Load, Needs, Plan, Tuning};
use crate::ntt::Transforms;

/// The queries of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum QueryId {
    H,
    L,
    A,
    B1,
    B2,
}

impl QueryId {
    pub(crate) const ALL: [Self; 5] = [Self::H, Self::L, Self::A, Self::B1, Self::B2];
}

/// The four sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SumId {
    Hl,
    B2,
    A,
    B1,
}

impl SumId {
    /// All four, in the order in which they are queued and become resident.
    pub(crate) const ALL: [Self; 4] = [Self::Hl, Self::B2, Self::A, Self::B1];

    /// The queries that add up to it.
    pub(crate) fn queries(self) -> &'static [QueryId] {
        match self {
            Self::Hl => &[QueryId::H, QueryId::L],
            Self::A => &[QueryId::A],
            Self::B1 => &[QueryId::B1],
            Self::B2 => &[QueryId::B2],
        }
    }

    pub(crate) fn group(self) -> Group {
        if self == Self::B2 { Group::G2 } else { Group::G1 }
    }

    /// Its lane, when there are `lanes`.
    pub(crate) fn lane(self, lanes: usize) -> usize {
        if self == Self::Hl { 0 } else { lanes - 1 }
    }
}

/// The sizes that a plan follows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) log_n: u32,
    pub(crate) num_variables: u64,
    /// Bases of each query, by [`QueryId`].
    pub(crate) bases: [u64; 5],
    /// Whether a query needs a list of its bases' variables.
    pub(crate) indexed: [bool; 5],
    /// Device bytes of the matrices.
    pub(crate) matrices: u64,
    pub(crate) tuning: Tuning,
    pub(crate) scan_block: u64,
    /// Bytes of the largest buffer.
    pub(crate) max_allocation: u64,
    pub(crate) max_slots: usize,
    pub(crate) max_lanes: usize,
}

impl Sizes {
    /// Bases that a sum ranges over.
    pub(crate) fn sum_len(&self, sum: SumId) -> u64 {
        sum.queries().iter().map(|&query| self.bases[query as usize]).sum()
    }

    /// Bytes of a vector of rows, and of the witness.
    pub(crate) fn rows(&self) -> u64 {
        SCALAR << self.log_n
    }

    pub(crate) fn witness(&self) -> u64 {
        SCALAR * self.num_variables
    }

    fn indices(&self) -> impl Iterator<Item = u64> + '_ {
        QueryId::ALL.iter().filter(|&&q| self.indexed[q as usize]).map(|&q| 4 * self.bases[q as usize])
    }
}

/// Where everything goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Residency {
    /// Proofs whose device work may overlap.
    pub(crate) slots: usize,
    /// Queues of sums side by side.
    pub(crate) lanes: usize,
    /// Most bases of one pass.
    pass: u64,
    /// Workspaces of the lanes.
    pub(crate) workspaces: Vec<Needs>,
    /// Chunks that are resident, by [`SumId`].
    pub(crate) resident: [u64; 4],
    /// Bytes of the buffer through which the others are streamed; 0 if all are resident.
    pub(crate) stream: u64,
    /// Device bytes of everything.
    pub(crate) total: u64,
}

/// log2 of the bases of a pass, in order of preference.
const PASSES: [u32; 8] = [23, 21, 19, 17, 15, 13, 11, 8];

/// Device bytes of results and counters of a slot.
pub(crate) const RESULTS: u64 = 4 * RESULT + 16;
/// Bytes of the results of one sum: at most 128 windows and the units, in G2.
pub(crate) const RESULT: u64 = 129 * 288;

impl Residency {
    /// The best plan within `available` bytes.
    ///
    /// # Errors
    /// [`OpenClError::DoesNotFit`] with the bytes that the smallest plan needs.
    pub(crate) fn plan(sizes: &Sizes, available: u64) -> Result<Self, OpenClError> {
        for (what, bytes) in [("a vector of rows", sizes.rows()), ("the witness", sizes.witness())] {
            if bytes > sizes.max_allocation {
                return Err(OpenClError::DoesNotFit { what, need: bytes, have: sizes.max_allocation });
            }
        }
        if let Some(bytes) = sizes.indices().find(|&bytes| bytes > sizes.max_allocation) {
            return Err(OpenClError::DoesNotFit {
                what: "the list of a query",
                need: bytes,
                have: sizes.max_allocation,
            });
        }
        let mut tried = Vec::new();
        for slots in (1..=sizes.max_slots).rev() {
            tried.push((slots, sizes.max_lanes, PASSES[0]));
        }
        tried.extend(PASSES.map(|pass| (1, 1, pass)));
        for (slots, lanes, pass) in tried {
            let plan = Self::with(sizes, slots, lanes, pass);
            if plan.largest() <= sizes.max_allocation && plan.total <= available {
                return Ok(plan);
            }
        }
        let mut need = u64::MAX;
        let mut best: Option<Self> = None;
        for pass in PASSES {
            let mut plan = Self::with(sizes, 1, 1, pass);
            if plan.largest() > sizes.max_allocation {
                continue;
            }
            let points: u64 = SumId::ALL.iter().map(|&sum| sizes.sum_len(sum) * sum.group().record()).sum();
            plan.stream =
                SumId::ALL.iter().map(|&sum| plan.chunk(sizes, sum) * sum.group().record()).max().unwrap_or(0);
            plan.total = plan.total - points + plan.stream;
            need = need.min(plan.total);
            let Some(mut room) = available.checked_sub(plan.total) else { continue };
            for sum in SumId::ALL {
                let bytes = plan.chunk(sizes, sum) * sum.group().record();
                let chunks = room.checked_div(bytes).map_or(0, |most| plan.chunks(sizes, sum).min(most));
                plan.resident[sum as usize] = chunks;
                room -= chunks * bytes;
                plan.total += chunks * bytes;
            }
            // Short passes cost time by their number, streamed bases by their bytes: the first plan that keeps half of them resident will do.
            let enough = room + plan.total - plan.fixed(sizes) >= points / 2;
            best.get_or_insert(plan.clone());
            if enough {
                return Ok(plan);
            }
        }
        best.ok_or(OpenClError::DoesNotFit { what: "a proof of this size", need, have: available })
    }

    /// All bases resident.
    fn with(sizes: &Sizes, slots: usize, lanes: usize, pass_log: u32) -> Self {
        let mut plan = Self {
            slots,
            lanes,
            pass: 1 << pass_log,
            workspaces: vec![Needs::default(); lanes],
            resident: [0; 4],
            stream: 0,
            total: 0,
        };
        for sum in SumId::ALL {
            let needs = plan.msm(sizes, sum, u64::MAX, u64::MAX).needs();
            let lane = &mut plan.workspaces[sum.lane(lanes)];
            *lane = lane.max(needs);
            plan.resident[sum as usize] = plan.chunks(sizes, sum);
        }
        let points: u64 = SumId::ALL.iter().map(|&sum| sizes.sum_len(sum) * sum.group().record()).sum();
        plan.total = points + plan.fixed(sizes);
        plan
    }

    /// Everything but bases.
    fn fixed(&self, sizes: &Sizes) -> u64 {
        let slot = sizes.witness()
            + 3 * sizes.rows()
            + self.workspaces.iter().map(Needs::total).sum::<u64>()
            + RESULTS
            + self.stream;
        sizes.indices().sum::<u64>()
            + sizes.matrices
            + Transforms::table_bytes(sizes.log_n)
            + self.slots as u64 * slot
            // Buffers have 16 bytes at least, and drivers round up.
            + 4096
    }

    fn largest(&self) -> u64 {
        self.workspaces.iter().map(Needs::largest).max().unwrap_or(0)
    }

    /// Bases of a chunk of a sum.
    pub(crate) fn chunk(&self, sizes: &Sizes, sum: SumId) -> u64 {
        self.pass.min(sizes.max_allocation / sum.group().record()).min(sizes.sum_len(sum))
    }

    /// Chunks of a sum.
    pub(crate) fn chunks(&self, sizes: &Sizes, sum: SumId) -> u64 {
        let chunk = self.chunk(sizes, sum);
        if chunk == 0 { 0 } else { sizes.sum_len(sum).div_ceil(chunk) }
    }

    /// The multi-exponentiation of a sum when `tail` of the witness's values are none of 0, 1, -1, and `units` are ±1 (more than there are:
    /// all of them). It fits its lane's workspace.
    pub(crate) fn msm(&self, sizes: &Sizes, sum: SumId, tail: u64, units: u64) -> Plan {
        let len = sizes.sum_len(sum);
        let bases = self.chunk(sizes, sum);
        let h = if sum == SumId::Hl { sizes.bases[QueryId::H as usize] } else { 0 };
        let build = |tail: u64, units: u64| {
            let [tail, units] = [tail, units].map(|witness| h.saturating_add(witness).min(len));
            let load = Load { bases, tail: tail.min(bases), units: units.min(bases), tail_in_all: tail };
            Plan::new(sum.group(), load, self.max_entries(sizes), sizes.tuning, sizes.scan_block)
        };
        let fitted = build(tail, units);
        let lane = &self.workspaces[sum.lane(self.lanes)];
        if fitted.needs().fit(lane) { fitted } else { build(u64::MAX, u64::MAX) }
    }

    /// Entries at a time: those of all windows of a whole pass, as far as a buffer holds them and their partial sums.
    fn max_entries(&self, sizes: &Sizes) -> u64 {
        (self.pass * 24).min(1 << 29).min(sizes.max_allocation / 64)
    }
}

impl fmt::Display for Residency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB, {} slots, {} lanes, passes of {}, ", self.total >> 20, self.slots, self.lanes, self.pass)?;
        if self.stream == 0 {
            f.write_str("key resident")
        } else {
            write!(f, "chunks resident {:?}, others streamed", self.resident)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn sizes(log_n: u32, max_allocation: u64) -> Sizes {
        let n = 1 << log_n;
        Sizes {
            log_n,
            num_variables: n,
            bases: [n, n - 1, n, n, n],
            indexed: [false, false, true, true, true],
            matrices: 0,
            tuning: Tuning { items: 1 << 19, max_run: 128, point_run: 16, log_reduce: 4 },
            scan_block: 2048,
            max_allocation,
            max_slots: 2,
            max_lanes: 2,
        }
    }

    #[test]
    fn a_large_card_keeps_everything_and_overlaps_proofs() {
        for log_n in [0, 1, 10, 20, 24] {
            let plan = Residency::plan(&sizes(log_n, 34 * GIB), 125 * GIB).unwrap();
            assert!(plan.stream == 0 && plan.slots == 2 && plan.lanes == 2, "2^{log_n}: {plan}");
        }
    }

    #[test]
    fn plans_keep_within_memory_and_buffers_whatever_there_is() {
        let mut streamed = 0;
        for log_n in [0, 4, 10, 16, 20, 22] {
            for available in (22..38).flat_map(|log| [1u64 << log, 3 << (log - 1)]) {
                for max_allocation in [available / 4, available / 64] {
                    let sizes = sizes(log_n, max_allocation);
                    let plan = match Residency::plan(&sizes, available) {
                        Ok(plan) => plan,
                        Err(error) => {
                            assert!(matches!(error, OpenClError::DoesNotFit { .. }), "{error}");
                            continue;
                        }
                    };
                    assert!(plan.total <= available, "2^{log_n}, {available}: {plan}");
                    assert!(plan.stream <= max_allocation);
                    streamed += usize::from(plan.stream > 0);
                    for sum in SumId::ALL {
                        let chunks = plan.chunks(&sizes, sum);
                        assert!(plan.resident[sum as usize] <= chunks);
                        assert!(plan.stream > 0 || plan.resident[sum as usize] == chunks);
                        assert!(plan.chunk(&sizes, sum) * sum.group().record() <= max_allocation);
                        let workspace = &plan.workspaces[sum.lane(plan.lanes)];
                        for (tail, units) in [(0, 0), (1, 1), (1 << (log_n / 2), 1 << log_n), (u64::MAX, u64::MAX)] {
                            let needs = plan.msm(&sizes, sum, tail, units).needs();
                            assert!(needs.fit(workspace) && needs.largest() <= max_allocation, "2^{log_n}: {plan}");
                        }
                    }
                }
            }
        }
        assert!(streamed > 0, "no plan streams");
    }

    #[test]
    fn what_one_buffer_cannot_hold_is_named() {
        let error = Residency::plan(&sizes(20, 1 << 24), 8 * GIB).unwrap_err();
        assert_eq!(error, OpenClError::DoesNotFit { what: "a vector of rows", need: 32 << 20, have: 1 << 24 });
    }
}
