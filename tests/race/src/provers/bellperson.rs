//! bellperson's own prover on the CPU. Its circuit reads the constraints from their file; the clock starts where synthesis has
//! ended, which bellperson says in its log.

use std::fs::File;
use std::io::BufReader;
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use bellperson::groth16::{Parameters, create_proof};
use bellperson::{ConstraintSystem, Index, LinearCombination, SynthesisError, Variable};
use blstrs::{Bls12, Scalar};
use splitprover_core::{HostBuf, HostMemory, Proof};
use splitprover_harness::formats::r1cs::Combination;
use splitprover_harness::formats::{R1csFile, read_wtns};

use super::Timed;
use crate::Result;
use crate::circuit::Circuit;
use crate::measure::processor_time;

/// When synthesis ended last, and the processor time then.
static SYNTHESISED: Mutex<Option<(Instant, Duration)>> = Mutex::new(None);

struct Listener;

impl log::Log for Listener {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.args().to_string().starts_with("starting proof timer") {
            *SYNTHESISED.lock().expect("no panic while it is held") = Some((Instant::now(), processor_time()));
        }
    }

    fn flush(&self) {}
}

pub(super) struct Bellperson {
    parameters: Parameters<Bls12>,
    constraints: R1csFile,
    witness: HostBuf<Scalar>,
}

impl Bellperson {
    pub(super) fn open(circuit: &Circuit) -> Result<Self> {
        static LISTEN: Once = Once::new();
        LISTEN.call_once(|| {
            if log::set_boxed_logger(Box::new(Listener)).is_ok() {
                log::set_max_level(log::LevelFilter::Info);
            }
        });
        let reader = BufReader::with_capacity(1 << 20, File::open(circuit.params())?);
        Ok(Self {
            parameters: Parameters::read(reader, false)?,
            constraints: R1csFile::open(&circuit.r1cs())?,
            witness: read_wtns(&circuit.witness(), &HostMemory::default())?,
        })
    }
}

impl super::Prover for Bellperson {
    fn prove(&self, r: Scalar, s: Scalar) -> Result<Timed> {
        let circuit = Replay { constraints: &self.constraints, witness: &self.witness };
        let proof = create_proof::<Bls12, _, _>(circuit, &self.parameters, r, s)?;
        let (wall, processor) = (Instant::now(), processor_time());
        let started = SYNTHESISED.lock().expect("no panic while it is held").take();
        let (begin, processor_begin) = started.ok_or("bellperson didn't say when synthesis ended")?;
        Ok(Timed {
            wall: wall - begin,
            processor: processor.saturating_sub(processor_begin),
            proof: Proof::new(proof.a, proof.b, proof.c)?,
        })
    }
}

struct Replay<'a> {
    constraints: &'a R1csFile,
    witness: &'a [Scalar],
}

impl bellperson::Circuit<Scalar> for Replay<'_> {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> std::result::Result<(), SynthesisError> {
        let public = self.constraints.header().num_public();
        for (i, value) in self.witness.iter().enumerate().skip(1) {
            match i <= public {
                true => cs.alloc_input(|| "", || Ok(*value))?,
                false => cs.alloc(|| "", || Ok(*value))?,
            };
        }
        let combination = |terms: Combination<'_>| {
            let mut sum = LinearCombination::zero();
            for (wire, coefficient) in terms.terms() {
                let wire = wire as usize;
                let index = if wire <= public { Index::Input(wire) } else { Index::Aux(wire - public - 1) };
                sum = sum + (coefficient, Variable(index));
            }
            sum
        };
        for constraint in self.constraints.constraints() {
            cs.enforce(
                || "",
                |_| combination(constraint.a),
                |_| combination(constraint.b),
                |_| combination(constraint.c),
            );
        }
        Ok(())
    }
}
