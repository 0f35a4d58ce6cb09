//! `bench msm` and `bench ntt`: keys with one query, and with none.

use clap::ValueEnum;
use splitprover_core::{HostMemory, Inputs, MemoryClass, Prover};

use super::report::{Model, Report};
use super::{Buffers, Common, key_maker};
use crate::bench::measure::{Ending, measure};
use crate::bench::{Scalars, Workload};
use crate::cli::{Failure, backend};
use crate::setup::FixedBase;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct MsmArguments {
    #[command(flatten)]
    common: Common,
    /// Which group the bases are in
    #[arg(long, value_enum, default_value_t = GroupName::G1)]
    group: GroupName,
    /// What the scalars look like
    #[arg(long, value_enum, default_value_t = ScalarsName::Random)]
    scalars: ScalarsName,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct NttArguments {
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum GroupName {
    /// 96-byte bases
    G1,
    /// 192-byte bases
    G2,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScalarsName {
    /// Uniform in F_r
    Random,
    /// 63 of 64 are bits, half of them 1
    Porep,
    /// All 1
    Ones,
}

/// `bench msm`.
pub(super) fn msm(arguments: &MsmArguments) -> Result<(), Failure> {
    let scalars = match arguments.scalars {
        ScalarsName::Random => Scalars::Random,
        ScalarsName::Porep => Scalars::Porep,
        ScalarsName::Ones => Scalars::Ones,
    };
    run("msm", &arguments.common, |log2, maker| {
        let (name, workload, limit) = match arguments.group {
            GroupName::G1 => ("G1", Workload::msm_g1(log2, scalars, maker)?, "limit of G1 mixed additions, 1/s"),
            GroupName::G2 => ("G2", Workload::msm_g2(log2, scalars, maker)?, "limit of G2 mixed additions, 1/s"),
        };
        // Of bits and ones the model knows nothing.
        let model = (scalars == Scalars::Random).then(|| Model::multi_exponentiation(limit, log2));
        let shown = format!("{:?}", arguments.scalars).to_lowercase();
        let name = format!("{name} 2^{log2}, {shown} scalars");
        Ok(Made { name, shown: None, workload, model, checked: "a known discrete logarithm" })
    })
}

/// `bench ntt`.
pub(super) fn ntt(arguments: &NttArguments) -> Result<(), Failure> {
    run("ntt", &arguments.common, |log2, maker| {
        // The warm-up's sum, over a few bases, is the check: with bases in the timed runs more than transforms would be timed.
        let shown = Some(Workload::shown_quotient(log2, maker)?);
        let checked = "the same quotient at points of its coset, by Lagrange's formula, in a run before";
        let (workload, model) = (Workload::quotient(log2)?, Some(Model::quotient(log2)));
        Ok(Made { name: format!("quotient 2^{log2}"), shown, workload, model, checked })
    })
}

/// What is to be timed.
struct Made {
    name: String,
    /// Run once before, when the timed runs' sums say nothing.
    shown: Option<Workload>,
    workload: Workload,
    model: Option<Model>,
    checked: &'static str,
}

fn run(
    what: &str,
    common: &Common,
    make: impl Fn(u32, &dyn FixedBase) -> Result<Made, Failure>,
) -> Result<(), Failure> {
    let memory = HostMemory::default();
    let prover = Prover::new(backend::open(&common.backend, memory.ledger())?);
    let mut report = Report::new(what, common.json, &common.backend, prover.backend())?;
    let buffers = Buffers::new(prover.backend(), memory, common.pageable)?;
    for &log2 in &common.log2 {
        let maker = key_maker(prover.backend(), 1usize.checked_shl(log2).unwrap_or(usize::MAX))?;
        let Made { name, shown, workload, model, checked } = make(log2, &*maker)?;
        drop(maker);
        let time = |workload: &Workload, runs| {
            let key = prover.load_key(workload.key.clone())?;
            measure(&prover, &key, runs, Ending::Sums(&workload.expected), || {
                let witness = buffers.copy(MemoryClass::Witness, &workload.witness)?;
                let evaluations = workload.evaluations(|values| buffers.copy(MemoryClass::Evaluations, values))?;
                Ok(Inputs::with_evaluations(witness, evaluations))
            })
        };
        if let Some(shown) = shown {
            time(&shown, 0)?;
        }
        let measured = time(&workload, common.runs as usize)?;
        let name = format!("{name}, {}", if buffers.pinned { "pinned" } else { "pageable" });
        report.add(&name, measured, None, workload.input_bytes(), model, checked);
    }
    report.end();
    Ok(())
}
