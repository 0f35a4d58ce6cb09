//! How much host memory a pipeline needs, as arithmetic: what the engine's back-pressure guarantees, for sizes that nobody has at hand.

use super::source::Footprint;

/// What bounds the partitions that have inputs at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// Partitions synthesised at a time (pw).
    pub synthesis_workers: u64,
    /// Calls of `start` at a time on each device (gw).
    pub device_workers: u64,
    /// Devices.
    pub devices: u64,
}

impl Pipeline {
    /// Partitions with inputs, at most, where inputs are gone when `start` returns, a synthesis worker keeps its place until the
    /// hand-over has taken its partition, and the hand-over holds as many as there are device workers: pw + 2·gw·devices. (One for
    /// each synthesis worker, at work or before the hand-over; in the hand-over one for each device worker; in `start` likewise.)
    /// Failures add those that are handed on, which don't wait.
    pub fn partitions_with_inputs(&self) -> u64 {
        let on_devices = self.device_workers.saturating_mul(self.devices).saturating_mul(2);
        self.synthesis_workers.saturating_add(on_devices)
    }

    /// Host memory, at most: what stays (key, staging, work space), and the partitions with inputs.
    pub fn host_bytes(&self, fixed: u64, partition: &Footprint) -> u64 {
        fixed.saturating_add(self.partitions_with_inputs().saturating_mul(partition.total()))
    }

    /// The same where inputs live until `finish`: so many more partitions as proofs are in flight.
    pub fn host_bytes_holding(&self, fixed: u64, partition: &Footprint, in_flight: u64) -> u64 {
        self.host_bytes(fixed, partition).saturating_add(in_flight.saturating_mul(partition.total()))
    }

    /// The most synthesis workers that a budget never makes wait for memory, with so many proofs in flight whose inputs are held;
    /// `None`: not even one.
    pub fn workers_within(&self, budget: u64, fixed: u64, partition: &Footprint, held: u64) -> Option<u64> {
        let partitions = budget.checked_sub(fixed)? / partition.total().max(1);
        let others = Self { synthesis_workers: 0, ..*self }.partitions_with_inputs().saturating_add(held);
        partitions.checked_sub(others).filter(|&workers| workers > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const POREP: Footprint = Footprint { evaluations: 12 * GIB, witness: 4 * GIB, transient: 0 };
    const PIPELINE: Pipeline = Pipeline { synthesis_workers: 12, device_workers: 2, devices: 1 };

    #[test]
    fn sixteen_partitions_of_a_proof_of_replication_fit_a_machine_of_755_gib_and_so_do_forty() {
        assert_eq!(PIPELINE.partitions_with_inputs(), 16);
        assert_eq!(PIPELINE.host_bytes(44 * GIB, &POREP), (44 + 16 * 16) * GIB);
        assert_eq!(PIPELINE.host_bytes_holding(44 * GIB, &POREP, 15), (44 + 31 * 16) * GIB);
        let workers = PIPELINE.workers_within(755 * GIB, 44 * GIB, &POREP, 0).unwrap();
        assert_eq!(workers, 40);
        // That is the most: with it the bound holds, with one more it doesn't.
        let with = |synthesis_workers| Pipeline { synthesis_workers, ..PIPELINE }.host_bytes(44 * GIB, &POREP);
        assert!(with(workers) <= 755 * GIB && with(workers + 1) > 755 * GIB);
        assert_eq!(PIPELINE.workers_within(755 * GIB, 44 * GIB, &POREP, 15), Some(25));
        let two = Pipeline { devices: 2, ..PIPELINE };
        assert_eq!((two.partitions_with_inputs(), two.workers_within(755 * GIB, 44 * GIB, &POREP, 0)), (20, Some(36)));
    }

    #[test]
    fn what_does_not_fit_has_no_workers_and_nothing_overflows() {
        assert_eq!(PIPELINE.workers_within(43 * GIB, 44 * GIB, &POREP, 0), None);
        assert_eq!(PIPELINE.workers_within(44 * GIB + 4 * 16 * GIB, 44 * GIB, &POREP, 0), None);
        assert_eq!(PIPELINE.workers_within(44 * GIB + 5 * 16 * GIB, 44 * GIB, &POREP, 0), Some(1));
        let endless = Pipeline { synthesis_workers: u64::MAX, device_workers: u64::MAX, devices: u64::MAX };
        assert_eq!(endless.host_bytes_holding(u64::MAX, &POREP, u64::MAX), u64::MAX);
        assert_eq!(endless.workers_within(u64::MAX, 0, &Footprint::default(), u64::MAX), None);
    }
}
