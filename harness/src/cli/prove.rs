//! `splitprover prove`: a key and a witness go in, a verified proof and the public inputs come out.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::json;
use splitprover_core::{Blinding, HostMemory, Inputs, Proof, Prover};

use super::backend::{self, Choice};
use super::key_file::{KeyFile, ParamsArguments};
use super::{Failure, print_json};
use crate::formats::params::is_params;
use crate::formats::{json, read_wtns_of_length, write_files};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Proving key (.zkey, or .params with --r1cs)
    key: PathBuf,
    /// Witness (.wtns)
    witness: PathBuf,
    /// Where the proof goes
    proof: PathBuf,
    /// Where the public inputs go (JSON)
    public: PathBuf,
    /// Encoding of the proof
    #[arg(long, value_enum, default_value_t = ProofFormat::Snarkjs)]
    proof_format: ProofFormat,
    #[command(flatten)]
    params: ParamsArguments,
    #[command(flatten)]
    backend: Choice,
    /// Check the key's points again although they have been checked before
    #[arg(long)]
    recheck: bool,
    /// Fix the blinding scalars, in decimal. For tests only: the proof is not zero-knowledge
    #[arg(long, value_name = "R,S")]
    insecure_blinding: Option<String>,
    /// Print times and sizes as JSON
    #[arg(long)]
    json: bool,
}

/// How a proof is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProofFormat {
    /// JSON, as snarkjs writes it
    Snarkjs,
    /// 192 bytes, as bellman writes it
    Bellman,
}

impl ProofFormat {
    fn bytes(self, proof: &Proof) -> Vec<u8> {
        match self {
            Self::Snarkjs => json::proof_to_json(proof).into_bytes(),
            Self::Bellman => proof.to_bytes().to_vec(),
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let blinding = arguments.insecure_blinding.as_deref().map(parse_blinding).transpose()?;
    if blinding.is_some() {
        eprintln!("splitprover: warning: the blinding is fixed, so the proof is not zero-knowledge");
    }
    let memory = HostMemory::default();
    let mut times = Times::default();

    if arguments.params.r1cs.is_some() && !is_params(&arguments.key) {
        return Err(Failure::Usage("--r1cs goes with a .params key; a .zkey has its constraints (see check)".into()));
    }
    // Files first: a bad one needs no device.
    let file = times.of("open key", || KeyFile::open(&arguments.key, arguments.recheck, &arguments.params))?;
    let variables = file.key().shape().num_variables;
    let witness = times.of("read witness", || read_wtns_of_length(&arguments.witness, &memory, variables))?;
    let prover = Prover::new(backend::open(&arguments.backend, memory.ledger())?);
    let key = times.of("load key", || prover.load_key(file.key().clone()))?;
    let inputs = Inputs::new(witness);
    // A witness of another circuit is a bad file, not a device's trouble.
    inputs.check(file.key()).map_err(|e| Failure::mismatch(&arguments.witness, &e))?;
    let in_flight = times.of("start", || prover.start(&key, inputs))?;
    let public = in_flight.public().to_vec();
    let proof = times.of("finish", || match blinding {
        Some(blinding) => in_flight.finish_with(blinding),
        None => in_flight.finish(),
    });
    // The key's map must not have changed under the proof. Verification has seen it then; this says why.
    file.check_unchanged()?;
    let proof = proof?;

    write_files(&[
        (&arguments.proof, &arguments.proof_format.bytes(&proof)),
        (&arguments.public, json::public_to_json(&public).as_bytes()),
    ])?;
    if arguments.json {
        print_json(&json!({
            "variables": file.key().shape().num_variables,
            "public": public.len(),
            "domain": file.key().shape().domain_size(),
            "insecure_key": file.is_insecure(),
            "milliseconds": times.json(),
            "peak_host_bytes": memory.ledger().peak_total(),
        }));
    }
    Ok(())
}

fn parse_blinding(text: &str) -> Result<Blinding, Failure> {
    // The two numbers are read as strictly as public inputs are.
    let list = format!("[{}]", text.split(',').map(|n| format!("{n:?}")).collect::<Vec<_>>().join(","));
    match json::public_from_bytes(Path::new("--insecure-blinding R,S"), list.as_bytes(), 2).as_deref() {
        Ok([r, s]) => Ok(Blinding::insecure(*r, *s)),
        Ok(_) => Err(Failure::Usage("--insecure-blinding takes two numbers, R,S".into())),
        Err(error) => Err(Failure::Usage(error.to_string())),
    }
}

/// How long each step took.
#[derive(Default)]
struct Times(Vec<(&'static str, Duration)>);

impl Times {
    fn of<T>(&mut self, step: &'static str, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = work();
        self.0.push((step, begin.elapsed()));
        result
    }

    fn json(&self) -> serde_json::Value {
        self.0.iter().map(|(step, time)| (step.replace(' ', "_"), json!(time.as_secs_f64() * 1e3))).collect()
    }
}
