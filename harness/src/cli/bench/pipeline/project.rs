//! `--project`: what the formula says about a size that isn't at hand. Arithmetic; nothing is measured.

use serde_json::{Value, json};

use super::Arguments;
use crate::cli::{Failure, print, print_json};
use crate::engine::projection::Pipeline;
use crate::engine::{Footprint, SyntheticSource};
use crate::setup::{Shape, Synthetic};

const GIB: f64 = (1u64 << 30) as f64;
/// What the machine has on which a prover with these settings was killed.
const MEMORY: u64 = 755 << 30;

/// Bytes of a key's tables, points as affine coordinates: H and L, A in full, B in both groups for the variables that occur there.
fn key_bytes(circuit: &Synthetic) -> u64 {
    const G1: u64 = 96;
    let shape = SyntheticSource::shape(circuit);
    let (domain, variables) = (shape.domain_size() as u64, shape.num_variables as u64);
    let private = variables - 1 - shape.num_public as u64;
    // Of 64 gates each fourth bit is checked, which takes it as a factor, and each square takes its root.
    let bits = circuit.shape().bits() as u64;
    let in_b = variables * (bits.div_ceil(4) + 64 - bits) / 64;
    G1 * (domain + private + variables + 3 * in_b)
}

struct Projection {
    circuit: Synthetic,
    pipeline: Pipeline,
    in_flight: u64,
    partition: Footprint,
    key: u64,
    memory: u64,
}

impl Projection {
    fn new(arguments: &Arguments, log2: u32, shape: Shape) -> Result<Self, Failure> {
        let circuit = Synthetic::new(shape, log2).map_err(|error| Failure::Usage(error.to_string()))?;
        let devices = arguments.device_numbers().len() as u64;
        let vectors = if arguments.no_evaluations { 0 } else { 3 };
        Ok(Self {
            circuit,
            pipeline: Pipeline { synthesis_workers: arguments.pw as u64, device_workers: arguments.gw as u64, devices },
            in_flight: devices.saturating_mul(arguments.in_flight() as u64),
            partition: Footprint::of(&SyntheticSource::shape(&circuit), vectors),
            key: key_bytes(&circuit),
            memory: arguments.memory.unwrap_or(MEMORY),
        })
    }

    /// Name, partitions with inputs at most, bytes, and how many workers fit.
    fn rows(&self) -> [(&'static str, u64, u64, Option<u64>); 2] {
        let Self { pipeline, in_flight, partition, key, memory, .. } = self;
        let count = pipeline.partitions_with_inputs();
        [
            (
                "gone at start",
                count,
                pipeline.host_bytes(*key, partition),
                pipeline.workers_within(*memory, *key, partition, 0),
            ),
            (
                "held until finish",
                count.saturating_add(*in_flight),
                pipeline.host_bytes_holding(*key, partition, *in_flight),
                pipeline.workers_within(*memory, *key, partition, *in_flight),
            ),
        ]
    }

    fn text(&self) -> String {
        let gib = |bytes: u64| bytes as f64 / GIB;
        let Pipeline { synthesis_workers, device_workers, devices } = self.pipeline;
        let mut text = format!(
            "{} 2^{}, pw {synthesis_workers}, gw {device_workers}, devices {devices}, proofs in flight {}: arithmetic, nothing is measured\n\
             each partition: evaluations {:.2} GiB, witness {:.2} GiB; key {:.1} GiB; back-pressure as it is: permit through the \
             hand-over, its bound the device workers\n\
             | inputs | partitions with inputs, at most | host memory, GiB | of {:.0} GiB | most pw that fits |\n|---|---|---|---|---|\n",
            self.circuit.shape().name(),
            self.circuit.log2(),
            self.in_flight,
            gib(self.partition.evaluations),
            gib(self.partition.witness),
            gib(self.key),
            gib(self.memory),
        );
        for (name, partitions, bytes, workers) in self.rows() {
            let share = 100.0 * bytes as f64 / self.memory as f64;
            let workers = workers.map_or_else(|| "none".to_owned(), |workers| workers.to_string());
            text += &format!("| {name} | {partitions} | {:.1} | {share:.0} % | {workers} |\n", gib(bytes));
        }
        text
    }

    fn json(&self) -> Value {
        let rows = self.rows().map(|(name, partitions, bytes, workers)| {
            json!({"inputs": name, "partitions_with_inputs": partitions, "host_bytes": bytes, "most_workers": workers})
        });
        json!({
            "bench": "pipeline", "projected": true,
            "circuit": {"shape": self.circuit.shape().name(), "log2": self.circuit.log2()},
            "pw": self.pipeline.synthesis_workers, "gw": self.pipeline.device_workers, "devices": self.pipeline.devices,
            "in_flight": self.in_flight, "memory_bytes": self.memory, "key_bytes": self.key,
            "evaluations_bytes": self.partition.evaluations, "witness_bytes": self.partition.witness,
            "results": rows,
        })
    }
}

pub(super) fn run(arguments: &Arguments, log2: u32) -> Result<(), Failure> {
    let projection = Projection::new(arguments, log2, arguments.synthetic.into())?;
    if arguments.json {
        print_json(&projection.json());
    } else {
        print(&projection.text());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use splitprover_core::{HBasis, HostMemory};

    use super::*;
    use crate::setup::{CpuFixedBase, Resources, Trapdoor, generate};

    #[test]
    fn the_key_of_a_proof_of_replication_is_as_large_as_a_real_one() {
        // The real one at this size: H 12.0, L 11.6, A 11.6, B 3.0 and 5.9 GiB.
        let circuit = Synthetic::new(Shape::Porep, 27).unwrap();
        let gib = key_bytes(&circuit) as f64 / GIB;
        assert!((44.0..46.0).contains(&gib), "{gib}");
        let circuit = Synthetic::new(Shape::Mixed, 8).unwrap();
        let (memory, basis) = (HostMemory::default(), HBasis::OddLagrange);
        let resources = Resources { memory: &memory, fixed_base: &CpuFixedBase::new(1 << 8), progress: &|_, _, _| {} };
        let key = generate(&circuit, basis, &Trapdoor::from_seed(1, basis), &resources).unwrap().key;
        let g1 = [key.h(), key.l(), key.a(), key.b_g1()].map(|query| query.num_dense()).iter().sum::<usize>();
        let made = 96 * (g1 + 2 * key.b_g2().num_dense()) as u64;
        assert!(key_bytes(&circuit).abs_diff(made) <= 96 * 16, "{} and {made}", key_bytes(&circuit));
    }
}
