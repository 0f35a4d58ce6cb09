//! `splitprover check`: do all backends compute the same sums, and does the witness satisfy the circuit?

use std::path::PathBuf;

use splitprover_core::{HostMemory, Inputs, MemoryClass, Prover};

use super::backend;
use super::key_file::{KeyFile, ParamsArguments};
use super::{Failure, print};
use crate::formats::{R1csFile, read_wtns_of_length};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Proving key (.zkey, or .params with --r1cs)
    key: PathBuf,
    /// Witness (.wtns)
    witness: PathBuf,
    #[command(flatten)]
    params: ParamsArguments,
    /// Check the key's points again although they have been checked before
    #[arg(long)]
    recheck: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let memory = HostMemory::default();
    let file = KeyFile::open(&arguments.key, arguments.recheck, &arguments.params)?;
    let witness = read_wtns_of_length(&arguments.witness, &memory, file.key().shape().num_variables)?;

    if let Some(path) = &arguments.params.r1cs {
        let r1cs = R1csFile::open(path)?;
        let wires = r1cs.header().num_wires as usize;
        if witness.len() != wires {
            let found = format!("{}: {} values", arguments.witness.display(), witness.len());
            return Err(Failure::Mismatch(format!("{found}, but {} has {wires} wires", path.display())));
        }
        if let Some(broken) = r1cs.first_broken(&witness) {
            return Err(Failure::No(format!("{}: {broken}", arguments.witness.display())));
        }
        r1cs.check_unchanged()?;
        print(&format!("all {} constraints hold\n", r1cs.header().num_constraints));
    }

    let mut reference: Option<(String, splitprover_core::QuerySums)> = None;
    let mut disagreements = Vec::new();
    for (name, backend) in backend::usable(memory.ledger()) {
        let prover = Prover::new(backend?);
        let key = prover.load_key(file.key().clone())?;
        let copy = memory.copy_of(MemoryClass::Witness, &witness).map_err(splitprover_core::BackendError::from)?;
        let inputs = Inputs::new(copy);
        inputs.check(file.key()).map_err(|e| Failure::mismatch(&arguments.witness, &e))?;
        let sums = prover.start(&key, inputs)?.finish_sums()?;
        match &reference {
            None => {
                print(&format!("{name}: the sums are the reference\n"));
                reference = Some((name, sums));
            }
            Some((first, expected)) => match expected.differences(&sums).as_slice() {
                [] => print(&format!("{name}: the same sums as {first}\n")),
                wrong => disagreements.push(format!("{name} differs from {first} in {}", wrong.join(", "))),
            },
        }
    }
    if !disagreements.is_empty() {
        return Err(Failure::No(disagreements.join("; ")));
    }

    // Equal sums may still be those of a witness that breaks the constraints: c = a∘b is assumed, so only a proof tells.
    let prover = Prover::new(backend::reference(memory.ledger())?);
    let key = prover.load_key(file.key().clone())?;
    prover.start(&key, Inputs::new(witness))?.finish()?;
    file.check_unchanged()?;
    print("the witness satisfies the circuit: its proof verifies\n");
    Ok(())
}
