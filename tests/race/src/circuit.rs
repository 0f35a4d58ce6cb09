//! A circuit's folder: its constraints and witness, and the keys in each prover's own encoding.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ark_bls12_381::{Bls12_381, Fr};
use ark_serialize::CanonicalSerialize;
use bellperson::groth16 as bellman;
use blstrs::Bls12;
use splitprover_core::{CsrMatrix, HBasis, HostMemory, PointRecord, ProvingKey, Query};
use splitprover_harness::formats::r1cs::{R1csHeader, Side, write_r1cs};
use splitprover_harness::formats::zkey::{DevelopmentMark, Extras};
use splitprover_harness::formats::{R1csFile, write_wtns, write_zkey};
use splitprover_harness::setup::{
    ConstraintSystem, CpuFixedBase, Matrix, Resources, Shape, Synthetic, Trapdoor, generate,
};

use crate::Result;
use crate::points::{ark_fr, ark_g1, ark_g2};

/// The trapdoor and the synthetic witnesses come from it.
const SEED: u64 = 1;

/// A circuit that has been prepared, by its folder.
#[derive(Clone, Debug)]
pub struct Circuit {
    /// `porep-14`, or the name of a folder of circuits.
    pub name: String,
    folder: PathBuf,
}

impl Circuit {
    /// A circuit whose files are in a folder.
    pub fn in_folder(folder: &Path) -> Self {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self { name, folder: folder.to_owned() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The constraints.
    pub fn r1cs(&self) -> PathBuf {
        self.folder.join("circuit.r1cs")
    }

    /// The witness.
    pub fn witness(&self) -> PathBuf {
        self.folder.join("witness.wtns")
    }

    /// The key with the odd Lagrange basis.
    pub fn zkey(&self) -> PathBuf {
        self.folder.join("circuit.zkey")
    }

    /// The key with the monomial basis.
    pub fn bellman_zkey(&self) -> PathBuf {
        self.folder.join("bellman.zkey")
    }

    /// The monomial key as bellperson's `Parameters`.
    pub fn params(&self) -> PathBuf {
        self.folder.join("bellman.params")
    }

    /// The monomial key as arkworks' `ProvingKey`, then the matrices A, B, C.
    pub fn ark(&self) -> PathBuf {
        self.folder.join("ark.bin")
    }

    /// Makes what isn't there yet under `folder`. `name` is a shape and the logarithm of its domain, `porep-14`, or a folder in
    /// `circuits` that has a `circuit.r1cs` and a `witness.wtns`.
    ///
    /// # Errors
    /// If there is no such circuit, or no room.
    pub fn prepare(name: &str, folder: &Path, circuits: Option<&Path>) -> Result<Self> {
        let circuit = Self { name: name.to_owned(), folder: folder.join(name) };
        let done = circuit.folder.join("done");
        if done.exists() {
            return Ok(circuit);
        }
        fs::create_dir_all(&circuit.folder)?;
        match synthetic(name) {
            Some(system) => {
                let system = system?;
                write_wtns(&circuit.witness(), &system.witness(SEED, &HostMemory::default())?)?;
                circuit.write_constraints(&system)?;
            }
            None => {
                let from = circuits.ok_or("set SPLITPROVER_RACE_CIRCUITS to the folder of circuits")?.join(name);
                for file in ["circuit.r1cs", "witness.wtns"] {
                    let from = from.join(file);
                    fs::copy(&from, circuit.folder.join(file)).map_err(|e| format!("{}: {e}", from.display()))?;
                }
            }
        }
        let system = R1csFile::open(&circuit.r1cs())?;
        let memory = HostMemory::default();
        let fixed_base = CpuFixedBase::new(system.num_variables());
        let resources = Resources { memory: &memory, fixed_base: &fixed_base, progress: &|_, _, _| {} };
        for (basis, path) in [(HBasis::OddLagrange, circuit.zkey()), (HBasis::Monomial, circuit.bellman_zkey())] {
            let key = generate(&system, basis, &Trapdoor::from_seed(SEED, basis), &resources)?.key;
            let mark = DevelopmentMark {
                insecure: true,
                monomial_h: basis == HBasis::Monomial,
                text: format!("INSECURE key for measurements, seed {SEED}"),
            };
            // The other reader of `.zkey` stops at sections that it doesn't know. So the key is only marked where it must be.
            let mark = mark.monomial_h.then_some(&mark);
            write_zkey(&path, &key, Extras { mark, ..Extras::default() })?;
            if basis == HBasis::Monomial {
                parameters(&key).write(BufWriter::with_capacity(1 << 20, File::create(circuit.params())?))?;
                circuit.write_ark(&system, &key)?;
            }
        }
        fs::write(done, "")?;
        Ok(circuit)
    }

    fn write_constraints(&self, system: &Synthetic) -> Result<()> {
        let (rows, columns) = (system.num_constraints(), system.num_variables());
        let matrix = |matrix| CsrMatrix::from_entries(rows, columns, || system.entries(matrix));
        let (a, b, c) = (matrix(Matrix::A)?, matrix(Matrix::B)?, matrix(Matrix::C)?);
        let header = R1csHeader {
            num_wires: columns as u32,
            num_outputs: 0,
            num_public_inputs: system.num_public() as u32,
            num_private_inputs: 0,
            num_labels: columns as u64,
            num_constraints: rows as u32,
        };
        Ok(write_r1cs(&self.r1cs(), header, [&a, &b, &c], None)?)
    }

    fn write_ark(&self, system: &R1csFile, key: &ProvingKey) -> Result<()> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(self.ark())?);
        ark_key(key).serialize_uncompressed(&mut out)?;
        for side in [Side::A, Side::B, Side::C] {
            let mut matrix: Vec<Vec<(Fr, usize)>> = vec![Vec::new(); system.num_constraints()];
            for (row, wire, coefficient) in R1csFile::entries(system, side) {
                matrix[row as usize].push((ark_fr(&coefficient), wire as usize));
            }
            matrix.serialize_uncompressed(&mut out)?;
        }
        Ok(out.flush()?)
    }
}

fn synthetic(name: &str) -> Option<Result<Synthetic>> {
    let (shape, log2) = name.rsplit_once('-')?;
    let shape = match shape {
        "porep" => Shape::Porep,
        "mixed" => Shape::Mixed,
        "dense" => Shape::Dense,
        _ => return None,
    };
    Some(Synthetic::new(shape, log2.parse().ok()?).map_err(Into::into))
}

fn dense<C: PointRecord>(query: &Query<C>) -> Arc<Vec<C>> {
    Arc::new(query.dense().map(|(_, record)| query.table().get(record)).collect())
}

/// bellperson's key: of each query the points that aren't infinity.
fn parameters(key: &ProvingKey) -> bellman::Parameters<Bls12> {
    let vk = key.verifying_key();
    bellman::Parameters {
        vk: bellman::VerifyingKey {
            alpha_g1: vk.alpha_g1(),
            beta_g1: key.beta_g1(),
            beta_g2: vk.beta_g2(),
            gamma_g2: vk.gamma_g2(),
            delta_g1: key.delta_g1(),
            delta_g2: vk.delta_g2(),
            ic: vk.ic().to_vec(),
        },
        h: dense(key.h()),
        l: dense(key.l()),
        a: dense(key.a()),
        b_g1: dense(key.b_g1()),
        b_g2: dense(key.b_g2()),
    }
}

fn spread<C: PointRecord, T: Clone>(query: &Query<C>, infinity: T, convert: impl Fn(&[u8]) -> T) -> Vec<T> {
    let mut all = vec![infinity; query.num_variables()];
    for (variable, record) in query.dense() {
        all[variable] = convert(query.table().record(record));
    }
    all
}

/// arkworks' key: a point for every variable.
fn ark_key(key: &ProvingKey) -> ark_groth16::ProvingKey<Bls12_381> {
    let vk = key.verifying_key();
    let g1 = |point: &splitprover_core::G1Affine| ark_g1(&record(point));
    let g2 = |point: &splitprover_core::G2Affine| ark_g2(&record(point));
    let infinity = ark_bls12_381::G1Affine::identity();
    ark_groth16::ProvingKey {
        vk: ark_groth16::VerifyingKey {
            alpha_g1: g1(&vk.alpha_g1()),
            beta_g2: g2(&vk.beta_g2()),
            gamma_g2: g2(&vk.gamma_g2()),
            delta_g2: g2(&vk.delta_g2()),
            gamma_abc_g1: vk.ic().iter().map(g1).collect(),
        },
        beta_g1: g1(&key.beta_g1()),
        delta_g1: g1(&key.delta_g1()),
        a_query: spread(key.a(), infinity, ark_g1),
        b_g1_query: spread(key.b_g1(), infinity, ark_g1),
        b_g2_query: spread(key.b_g2(), ark_bls12_381::G2Affine::identity(), ark_g2),
        h_query: spread(key.h(), infinity, ark_g1),
        l_query: spread(key.l(), infinity, ark_g1),
    }
}

fn record<C: PointRecord>(point: &C) -> Vec<u8> {
    splitprover_core::PointTable::from_points(std::slice::from_ref(point)).record(0).to_vec()
}
