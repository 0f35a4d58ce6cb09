//! `splitprover setup`: development keys, marked insecure in the file and on the screen.

use std::path::PathBuf;

use clap::ValueEnum;
use splitprover_core::{HBasis, HostMemory, ProvingKey};

use super::backend::{self, Choice};
use super::progress::Progress;
use super::{Failure, print};
use crate::formats::params::is_params;
use crate::formats::r1cs::Side;
use crate::formats::zkey::{DevelopmentMark, Extras};
use crate::formats::{R1csFile, write_params, write_wtns, write_zkey};
use crate::setup::{
    BackendFixedBase, ConstraintSystem, Constraints, CpuFixedBase, DevelopmentKey, FixedBase, Matrix, Resources,
    SetupError, Shape, Synthetic, Trapdoor, generate,
};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Constraints to make a key for (.r1cs)
    #[arg(long, required_unless_present = "synthetic", conflicts_with = "synthetic")]
    r1cs: Option<PathBuf>,
    /// Make a key for a synthetic circuit of this shape
    #[arg(long, value_enum, requires = "log2")]
    synthetic: Option<ShapeName>,
    /// The synthetic circuit's domain has 2^LOG2 rows
    #[arg(long)]
    log2: Option<u32>,
    /// Seed of the trapdoor and of the witness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Basis of the H query, and with it the root of unity. A .params key has bellman's, a .zkey snarkjs's unless told
    #[arg(long, value_enum)]
    basis: Option<Basis>,
    /// Where a witness of the synthetic circuit goes (.wtns)
    #[arg(long, requires = "synthetic")]
    witness: Option<PathBuf>,
    #[command(flatten)]
    backend: Choice,
    /// Where the key goes: .zkey, or .params for bellperson
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ShapeName {
    /// 63 of 64 variables are bits, as in proofs of replication
    Porep,
    /// 56 of 64 variables are bits
    Mixed,
    /// No bits
    Dense,
}

impl From<ShapeName> for Shape {
    fn from(name: ShapeName) -> Self {
        match name {
            ShapeName::Porep => Self::Porep,
            ShapeName::Mixed => Self::Mixed,
            ShapeName::Dense => Self::Dense,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Basis {
    /// Odd Lagrange polynomials, powers of 5: what snarkjs reads
    Snarkjs,
    /// Monomials, powers of 7: only splitprover reads such a .zkey
    Bellman,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    eprintln!(
        "splitprover: warning: INSECURE development key: its trapdoor comes from a seed, anyone can forge proofs"
    );
    if is_params(&arguments.out) && arguments.basis == Some(Basis::Snarkjs) {
        return Err(Failure::Usage("a .params key is in bellman's basis".into()));
    }
    match (&arguments.r1cs, arguments.synthetic, arguments.log2) {
        (Some(path), _, _) => {
            let r1cs = R1csFile::open(path)?;
            let header = r1cs.header();
            let (wires, constraints) = (header.num_wires as usize, header.num_constraints as usize);
            let system = Constraints::new(header.num_public(), wires, constraints, |matrix| {
                r1cs.entries(match matrix {
                    Matrix::A => Side::A,
                    Matrix::B => Side::B,
                    Matrix::C => Side::C,
                })
            })
            .map_err(failure)?;
            r1cs.check_unchanged()?;
            write_key(arguments, &system, &format!("from {constraints} constraints"))
        }
        (None, Some(shape), Some(log2)) => {
            let circuit = Synthetic::new(shape.into(), log2).map_err(|e| Failure::Usage(e.to_string()))?;
            if let Some(path) = &arguments.witness {
                write_wtns(path, &circuit.witness(arguments.seed, &HostMemory::default()).map_err(failure)?)?;
            }
            write_key(arguments, &circuit, &format!("synthetic {} 2^{log2}", circuit.shape().name()))
        }
        _ => Err(Failure::Usage("give --r1cs FILE, or --synthetic SHAPE --log2 N".into())),
    }
}

fn write_key<S: ConstraintSystem>(arguments: &Arguments, system: &S, source: &str) -> Result<(), Failure> {
    let params = is_params(&arguments.out);
    let basis = match arguments.basis {
        None if params => HBasis::Monomial,
        None | Some(Basis::Snarkjs) => HBasis::OddLagrange,
        Some(Basis::Bellman) => HBasis::Monomial,
    };
    let memory = HostMemory::default();
    let progress = Progress::new("key generation");
    let threads = rayon::ThreadPoolBuilder::new().num_threads(arguments.backend.threads()).build();
    let threads = threads.map_err(|e| Failure::Backend(format!("no threads for key generation: {e}")))?;
    let opened = backend::open(&arguments.backend, memory.ledger())?;
    // The reference backend leaves key generation to the code beside it.
    let on_device = (opened.info().name != "cpu").then(|| BackendFixedBase::new(&opened)).transpose()?;
    let on_cpu = CpuFixedBase::new(system.num_variables());
    let resources = Resources {
        memory: &memory,
        fixed_base: on_device.as_ref().map_or(&on_cpu as &dyn FixedBase, |device| device),
        progress: &|_, done, total| progress.update(done as u64, total as u64),
    };
    let trapdoor = Trapdoor::from_seed(arguments.seed, basis);
    let generated = threads.install(|| generate(system, basis, &trapdoor, &resources)).map_err(failure)?;
    let DevelopmentKey { key, num_constraints } = generated;
    drop(progress);
    if params {
        write_params(&arguments.out, &key)?;
        return report(&key, num_constraints);
    }
    let mark = DevelopmentMark {
        insecure: true,
        monomial_h: basis == HBasis::Monomial,
        text: format!("INSECURE splitprover development key, {source}, seed {}", arguments.seed),
    };
    write_zkey(&arguments.out, &key, Extras { mark: Some(&mark), ..Extras::default() })?;
    report(&key, num_constraints)
}

fn report(key: &ProvingKey, num_constraints: usize) -> Result<(), Failure> {
    let shape = key.shape();
    print(&format!(
        "INSECURE development key: {num_constraints} constraints, {} variables, {} public, domain 2^{}\n",
        shape.num_variables, shape.num_public, shape.domain_log2,
    ));
    Ok(())
}

pub(super) fn failure(error: SetupError) -> Failure {
    Failure::Backend(error.to_string())
}
