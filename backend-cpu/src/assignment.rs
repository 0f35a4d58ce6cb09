//! The witness, sorted by what its values cost in a multi-exponentiation.
//!
//! Every query ranges over the same variables, so zeros, ones and the rest are told apart once. What is kept is small where
//! most values are bits, and after that nobody needs the witness.

use std::ops::Range;

use blstrs::Scalar;
use ff::Field;
use rayon::prelude::*;
use splitprover_core::key::Storage;
use splitprover_core::{PointRecord, PointTable, Query};

use crate::curve::{NEGATED, Records};
use crate::field::to_plain;
use crate::msm::{Magnitude, magnitude};

/// Variables of one job.
const JOB: usize = 1 << 14;

/// The values of an assignment, without the zeros.
#[derive(Default)]
pub(crate) struct Assignment {
    /// Variables with value 1, or −1 if [`NEGATED`] is set; ascending.
    units: Vec<u32>,
    /// Variables with other values, ascending.
    tail: Vec<u32>,
    /// Their values.
    pub(crate) magnitudes: Vec<Magnitude>,
}

impl Assignment {
    /// Sorts a witness. Variables are numbered below 2^31.
    pub(crate) fn new(witness: &[Scalar]) -> Self {
        let minus_one = -Scalar::ONE;
        let jobs: Vec<Self> = witness
            .par_chunks(JOB)
            .enumerate()
            .map(|(job, values)| {
                let mut part = Self::default();
                for (variable, value) in ((job * JOB) as u32..).zip(values) {
                    if *value == Scalar::ZERO {
                        continue;
                    }
                    if *value == Scalar::ONE {
                        part.units.push(variable);
                    } else if *value == minus_one {
                        part.units.push(variable | NEGATED);
                    } else {
                        part.tail.push(variable);
                        part.magnitudes.push(magnitude(to_plain(value)));
                    }
                }
                part
            })
            .collect();
        let mut all = Self::default();
        all.units.reserve_exact(jobs.iter().map(|j| j.units.len()).sum());
        all.tail.reserve_exact(jobs.iter().map(|j| j.tail.len()).sum());
        all.magnitudes.reserve_exact(jobs.iter().map(|j| j.magnitudes.len()).sum());
        for job in jobs {
            all.units.extend(job.units);
            all.tail.extend(job.tail);
            all.magnitudes.extend(job.magnitudes);
        }
        all
    }

    /// The terms of a query whose variable 0 is the assignment's variable `first`. Base indices are those of the query's
    /// table plus `first_base`.
    pub(crate) fn select<C: PointRecord>(&self, query: &Query<C>, first: usize, first_base: u32) -> Selection {
        let base_of = |variable: u32| {
            let variable = (variable as usize).checked_sub(first)?;
            let base = match query.density() {
                Some(density) if !density.get(variable) => return None,
                Some(density) if query.storage() == Storage::Compact => density.rank(variable),
                _ => variable,
            };
            Some(first_base + base as u32)
        };
        let units = self
            .units
            .par_iter()
            .with_min_len(JOB)
            .filter_map(|&unit| base_of(unit & !NEGATED).map(|base| base | (unit & NEGATED)))
            .collect();
        let picks = self
            .tail
            .par_iter()
            .with_min_len(JOB)
            .enumerate()
            .filter_map(|(i, &variable)| base_of(variable).map(|base| (i as u32, base)))
            .collect();
        Selection { units, picks }
    }
}

/// The terms of one query.
pub(crate) struct Selection {
    /// Bases with scalar 1, or −1 if [`NEGATED`] is set.
    pub(crate) units: Vec<u32>,
    /// (index into the assignment's magnitudes, base) of the others.
    pub(crate) picks: Vec<(u32, u32)>,
}

/// The records of one query's table.
pub(crate) struct QueryRecords<'a, C> {
    bytes: &'a [u8],
    table: &'a PointTable<C>,
}

impl<'a, C: PointRecord> QueryRecords<'a, C> {
    pub(crate) fn new(query: &'a Query<C>) -> Self {
        Self { bytes: query.table().as_bytes(), table: query.table() }
    }
}

impl<C: PointRecord> Records for QueryRecords<'_, C> {
    #[inline(always)]
    fn record(&self, index: u32) -> &[u8] {
        &self.bytes[index as usize * C::BYTES..][..C::BYTES]
    }

    fn wont_need(&self, bases: Range<u32>) {
        self.table.wont_need(bases.start as usize..bases.end as usize);
    }

    fn lets_go(&self) -> bool {
        self.table.shared_bytes().lets_go()
    }
}

/// The records of two tables, one after the other.
pub(crate) struct JoinedRecords<'a, C> {
    first: &'a [u8],
    second: &'a [u8],
    tables: [&'a PointTable<C>; 2],
}

impl<'a, C: PointRecord> JoinedRecords<'a, C> {
    pub(crate) fn new(first: &'a Query<C>, second: &'a Query<C>) -> Self {
        let tables = [first.table(), second.table()];
        Self { first: tables[0].as_bytes(), second: tables[1].as_bytes(), tables }
    }
}

impl<C: PointRecord> Records for JoinedRecords<'_, C> {
    #[inline(always)]
    fn record(&self, index: u32) -> &[u8] {
        let at = index as usize * C::BYTES;
        if at < self.first.len() {
            &self.first[at..][..C::BYTES]
        } else {
            &self.second[at - self.first.len()..][..C::BYTES]
        }
    }

    fn wont_need(&self, bases: Range<u32>) {
        let (from, to, first) = (bases.start as usize, bases.end as usize, self.tables[0].len());
        self.tables[0].wont_need(from..to.min(first));
        self.tables[1].wont_need(from.saturating_sub(first)..to.saturating_sub(first));
    }

    fn lets_go(&self) -> bool {
        self.tables.iter().any(|table| table.shared_bytes().lets_go())
    }
}
