//! Sealed sectors, and the circuits that prove something about them.
//!
//! Sectors are small (2 KiB unless told otherwise) and made from a fixed seed; layers and challenges may be as many as in sectors of
//! 32 GiB. Small sectors repeat Merkle paths, so their witnesses have fewer distinct values than real ones.

use std::path::Path;

use bellperson::{Circuit, ConstraintSystem, SynthesisError};
use blstrs::Scalar;
use ff::Field;
use filecoin_hashers::poseidon::PoseidonHasher;
use filecoin_hashers::sha256::Sha256Hasher;
use filecoin_hashers::{Domain, HashFunction, Hasher};
use fr32::fr_into_bytes;
use generic_array::typenum::{U0, U8};
use rand::{Rng, SeedableRng};
use rand_xorshift::XorShiftRng;
use storage_proofs_core::api_version::ApiVersion;
use storage_proofs_core::compound_proof::CompoundProof;
use storage_proofs_core::drgraph::BASE_DEGREE;
use storage_proofs_core::merkle::{DiskTree, LCTree, generate_tree};
use storage_proofs_core::proof::ProofScheme;
use storage_proofs_core::test_helper::setup_replica;
use storage_proofs_core::util::NODE_SIZE;
use storage_proofs_porep::stacked::{
    self, Challenges, EXP_DEGREE, StackedCircuit, StackedCompound, StackedDrg, TemporaryAuxCache,
};
use storage_proofs_post::fallback::{
    self, FallbackPoSt, FallbackPoStCircuit, FallbackPoStCompound, PrivateSector, PublicSector,
};

use crate::{CircuitArguments, Kind, Result};

const SEED: [u8; 16] = [7; 16];

/// The trees of a sector of 2 KiB: eight children a node, no subtrees.
type ReplicaTree = DiskTree<PoseidonHasher, U8, U0, U0>;
type PostTree = LCTree<PoseidonHasher, U8, U0, U0>;
type Replication<'a> = StackedDrg<'a, ReplicaTree, Sha256Hasher>;
type ReplicationProof = StackedCompound<ReplicaTree, Sha256Hasher>;
type PostProof = FallbackPoStCompound<PostTree>;
type Commitment = <PoseidonHasher as Hasher>::Domain;

/// Any of the circuits.
#[derive(Clone)]
pub(crate) enum AnyCircuit {
    Replication(StackedCircuit<ReplicaTree, Sha256Hasher>),
    SpaceTime(FallbackPoStCircuit<PostTree>),
}

impl Circuit<Scalar> for AnyCircuit {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> std::result::Result<(), SynthesisError> {
        match self {
            Self::Replication(circuit) => Circuit::synthesize(circuit, cs),
            Self::SpaceTime(circuit) => circuit.synthesize(cs),
        }
    }
}

/// The circuits of all partitions.
pub(crate) struct Instance {
    blank: AnyCircuit,
    partitions: Vec<(AnyCircuit, Vec<Scalar>)>,
}

impl Instance {
    /// Seals sectors under `folder` and takes their vanilla proofs.
    pub(crate) fn new(arguments: &CircuitArguments, folder: &Path) -> Result<Self> {
        if arguments.partitions == 0
            || !arguments.nodes.is_power_of_two()
            || !arguments.nodes.trailing_zeros().is_multiple_of(3)
        {
            return Err("there must be a partition, and a power of 8 of nodes".into());
        }
        match arguments.circuit {
            Kind::Porep => Self::replication(arguments, folder),
            Kind::Winning => Self::space_time(arguments, 1, arguments.challenges.unwrap_or(66), folder),
            Kind::Window => Self::space_time(arguments, arguments.sectors, arguments.challenges.unwrap_or(10), folder),
        }
    }

    /// A circuit without values.
    pub(crate) fn blank(&self) -> AnyCircuit {
        self.blank.clone()
    }

    pub(crate) fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// The circuit of a partition.
    pub(crate) fn circuit(&self, partition: usize) -> AnyCircuit {
        self.partitions[partition].0.clone()
    }

    /// Its public inputs.
    pub(crate) fn public(&self, partition: usize) -> &[Scalar] {
        &self.partitions[partition].1
    }

    fn replication(arguments: &CircuitArguments, folder: &Path) -> Result<Self> {
        if arguments.layers < 2 {
            return Err("a proof of replication needs two layers".into());
        }
        let mut rng = XorShiftRng::from_seed(SEED);
        let replica_id = Scalar::random(&mut rng);
        let data: Vec<u8> = (0..arguments.nodes).flat_map(|_| fr_into_bytes(&Scalar::random(&mut rng))).collect();
        let cache = folder.join("sector");
        std::fs::create_dir(&cache)?;
        let replica = cache.join("replica");
        let mut map = setup_replica(&data, &replica);
        let public_params = Replication::setup(&stacked::SetupParams {
            nodes: arguments.nodes,
            degree: BASE_DEGREE,
            expansion_degree: EXP_DEGREE,
            porep_id: [44; 32],
            challenges: Challenges::new_interactive(arguments.challenges.unwrap_or(1)),
            num_layers: arguments.layers,
            api_version: ApiVersion::V1_1_0,
            api_features: vec![],
        })?;
        let (labels, _) = Replication::replicate_phase1(&public_params, &replica_id.into(), &cache)?;
        let (tau, (p_aux, t_aux)) = Replication::replicate_phase2(
            &public_params,
            labels,
            (map.as_mut()).into(),
            None,
            cache.clone(),
            replica.clone(),
        )?;
        let public =
            stacked::PublicInputs { replica_id: replica_id.into(), seed: Some(rng.r#gen()), tau: Some(tau), k: None };
        let t_aux = TemporaryAuxCache::<ReplicaTree, Sha256Hasher>::new(&t_aux, replica, false)?;
        let private = stacked::PrivateInputs { p_aux, t_aux };
        let vanilla = Replication::prove_all_partitions(&public_params, &public, &private, arguments.partitions)?;
        if !Replication::verify_all_partitions(&public_params, &public, &vanilla)? {
            return Err("the sector's vanilla proofs don't verify".into());
        }
        let partitions = vanilla.iter().enumerate().map(|(k, proof)| -> Result<_> {
            let circuit = ReplicationProof::circuit(&public, (), proof, &public_params, Some(k))?;
            let inputs = ReplicationProof::generate_public_inputs(&public, &public_params, Some(k))?;
            Ok((AnyCircuit::Replication(circuit), inputs))
        });
        Ok(Self {
            partitions: partitions.collect::<Result<_>>()?,
            blank: AnyCircuit::Replication(ReplicationProof::blank_circuit(&public_params)),
        })
    }

    fn space_time(arguments: &CircuitArguments, sectors: usize, challenges: usize, folder: &Path) -> Result<Self> {
        if sectors == 0 || challenges == 0 {
            return Err("a proof of space-time needs a sector and a challenge".into());
        }
        let rng = &mut XorShiftRng::from_seed(SEED);
        let (randomness, prover_id) = (Commitment::random(rng), Commitment::random(rng));
        let public_params = fallback::PublicParams {
            sector_size: (arguments.nodes * NODE_SIZE) as u64,
            challenge_count: challenges,
            sector_count: sectors,
            api_version: ApiVersion::V1_1_0,
        };
        let trees: Vec<_> = (0..sectors * arguments.partitions)
            .map(|_| generate_tree::<PostTree, _>(rng, arguments.nodes, Some(folder.to_path_buf())).1)
            .collect();
        let (mut of_public, mut of_private) = (Vec::new(), Vec::new());
        for (id, tree) in trees.iter().enumerate() {
            let (comm_c, comm_r_last) = (Commitment::random(rng), tree.root());
            let comm_r = <PoseidonHasher as Hasher>::Function::hash2(&comm_c, &comm_r_last);
            of_private.push(PrivateSector { tree, comm_c, comm_r_last });
            of_public.push(PublicSector { id: (id as u64).into(), comm_r });
        }
        let public = fallback::PublicInputs { randomness, prover_id, sectors: of_public, k: None };
        let private = fallback::PrivateInputs::<PostTree> { sectors: &of_private };
        let vanilla =
            FallbackPoSt::<PostTree>::prove_all_partitions(&public_params, &public, &private, arguments.partitions)?;
        if !FallbackPoSt::<PostTree>::verify_all_partitions(&public_params, &public, &vanilla)? {
            return Err("the sectors' vanilla proofs don't verify".into());
        }
        let partitions = vanilla.iter().enumerate().map(|(k, proof)| -> Result<_> {
            let circuit = PostProof::circuit(&public, Default::default(), proof, &public_params, Some(k))?;
            let inputs = PostProof::generate_public_inputs(&public, &public_params, Some(k))?;
            Ok((AnyCircuit::SpaceTime(circuit), inputs))
        });
        Ok(Self {
            partitions: partitions.collect::<Result<_>>()?,
            blank: AnyCircuit::SpaceTime(PostProof::blank_circuit(&public_params)),
        })
    }
}
