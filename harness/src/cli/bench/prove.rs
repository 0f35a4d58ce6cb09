//! `bench prove`: whole proofs of a synthetic circuit, alone and two in flight.

use splitprover_core::{Evaluations, HBasis, HostMemory, Inputs, MemoryClass, Prover, Scalar};

use super::report::Report;
use super::{Buffers, Common, key_maker};
use crate::bench::measure::{Ending, measure, measure_pair};
use crate::cli::setup::{ShapeName, failure};
use crate::cli::{Failure, backend};
use crate::setup::{ConstraintSystem, Resources, Synthetic, Trapdoor, generate};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// The synthetic circuit's shape
    #[arg(long, value_enum, default_value_t = ShapeName::Porep)]
    synthetic: ShapeName,
    /// Give the evaluations too, although the key has its matrices
    #[arg(long)]
    evaluations: bool,
    /// Time two proofs in flight as well
    #[arg(long)]
    pair: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let common = &arguments.common;
    let memory = HostMemory::default();
    let prover = Prover::new(backend::open(&common.backend, memory.ledger())?);
    let mut report = Report::new("prove", common.json, &common.backend, prover.backend())?;
    let buffers = Buffers::new(prover.backend(), memory.clone(), common.pageable)?;
    for &log2 in &common.log2 {
        let circuit = Synthetic::new(arguments.synthetic.into(), log2).map_err(|e| Failure::Usage(e.to_string()))?;
        let maker = key_maker(prover.backend(), 1 << log2)?;
        let resources = Resources { memory: &memory, fixed_base: &*maker, progress: &|_, _, _| {} };
        let basis = HBasis::OddLagrange;
        let key = generate(&circuit, basis, &Trapdoor::from_seed(1, basis), &resources).map_err(failure)?.key;
        drop(maker);
        let loaded = prover.load_key(key.clone())?;
        let witness = circuit.witness(1, &memory).map_err(failure)?;
        let rows =
            arguments.evaluations.then(|| circuit.evaluations(&witness, &memory)).transpose().map_err(failure)?;
        let inputs = || {
            let witness = buffers.copy(MemoryClass::Witness, &witness)?;
            let Some(Evaluations { a, b, .. }) = &rows else { return Ok(Inputs::new(witness)) };
            let copy = |values: &[Scalar]| buffers.copy(MemoryClass::Evaluations, values);
            Ok(Inputs::with_evaluations(witness, Evaluations { a: copy(a)?, b: copy(b)?, c: None }))
        };
        let runs = common.runs as usize;
        let measured = measure(&prover, &loaded, runs, Ending::Proof, inputs)?;
        let pair = if arguments.pair { Some(measure_pair(&prover, &loaded, runs, inputs)?) } else { None };
        let bytes = (witness.len() + rows.as_ref().map_or(0, |rows| rows.a.len() + rows.b.len())) * size_of::<Scalar>();
        let name = format!(
            "{} 2^{log2}, {} {}",
            circuit.shape().name(),
            if buffers.pinned { "pinned" } else { "pageable" },
            if rows.is_none() { "witness" } else { "witness, a and b" },
        );
        report.add(&name, measured, pair, bytes as u64, None, "every proof verified");
    }
    report.end();
    Ok(())
}
