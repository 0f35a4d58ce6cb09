//! A small backend to test the suite with: right and slow, or wrong in one way.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use ff::Field;
use group::Group;
use splitprover_core::{
    BackendError, CircuitShape, HostBuf, HostMemory, LentEvaluations, LentInputs, MemoryClass, PendingSums, ProvingKey,
    Query, QuerySums, SplitProver,
};

use super::material::product;
use super::oracle::quotient_scalars;

/// What is wrong with a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plant {
    Nothing,
    WrongSum,
    WrongAbove65536,
    SnarkjsRootOnly,
    NonDeterministic,
    PanicInStart,
    PanicInFinish,
    PanicInDrop,
    Hang,
    Abort,
    CopyInputs,
    ReadInFinish,
    ReadLater,
    NoRelease,
    LeakPending,
    LeakKey,
    UnwrapAllocation,
    ReleaseBeforeAllocation,
    NoAccounting,
}

impl Plant {
    pub(super) const ALL: [Self; 19] = [
        Self::Nothing,
        Self::WrongSum,
        Self::WrongAbove65536,
        Self::SnarkjsRootOnly,
        Self::NonDeterministic,
        Self::PanicInStart,
        Self::PanicInFinish,
        Self::PanicInDrop,
        Self::Hang,
        Self::Abort,
        Self::CopyInputs,
        Self::ReadInFinish,
        Self::ReadLater,
        Self::NoRelease,
        Self::LeakPending,
        Self::LeakKey,
        Self::UnwrapAllocation,
        Self::ReleaseBeforeAllocation,
        Self::NoAccounting,
    ];
}

pub(super) struct Naive {
    pub(super) memory: HostMemory,
    pub(super) plant: Plant,
}

pub(super) struct NaiveKey(Arc<ProvingKey>, Vec<u8>);

pub(super) struct NaivePending {
    sums: QuerySums,
    plant: Plant,
    copy: Vec<Scalar>,
    address: usize,
    finished: bool,
}

fn g1_sum(query: &Query<G1Affine>, scalars: &[Scalar]) -> G1Projective {
    let (points, scalars): (Vec<_>, Vec<_>) = query
        .dense()
        .filter(|&(variable, _)| scalars[variable] != Scalar::ZERO)
        .map(|(variable, record)| (G1Projective::from(query.table().get(record)), scalars[variable]))
        .unzip();
    if points.is_empty() { G1Projective::identity() } else { G1Projective::multi_exp(&points, &scalars) }
}

fn g2_sum(query: &Query<G2Affine>, scalars: &[Scalar]) -> G2Projective {
    let (points, scalars): (Vec<_>, Vec<_>) = query
        .dense()
        .filter(|&(variable, _)| scalars[variable] != Scalar::ZERO)
        .map(|(variable, record)| (G2Projective::from(query.table().get(record)), scalars[variable]))
        .unzip();
    if points.is_empty() { G2Projective::identity() } else { G2Projective::multi_exp(&points, &scalars) }
}

impl SplitProver for Naive {
    type Key = NaiveKey;
    type Pending = NaivePending;

    fn load_key(&self, key: &Arc<ProvingKey>) -> Result<NaiveKey, BackendError> {
        let extra = vec![1; 10_000];
        if self.plant == Plant::LeakKey {
            std::mem::forget(std::hint::black_box(extra.clone()));
        }
        Ok(NaiveKey(key.clone(), extra))
    }

    fn start<'i>(&self, key: &NaiveKey, inputs: LentInputs<'i>) -> Result<NaivePending, BackendError> {
        let plant = self.plant;
        match plant {
            Plant::PanicInStart => panic!("planted in start"),
            Plant::Hang => std::thread::sleep(Duration::from_secs(3600)),
            Plant::Abort => std::process::abort(),
            _ => {}
        }
        assert!(!key.1.is_empty());
        let key = &key.0;
        let LentInputs { witness, evaluations, .. } = inputs;
        let values = witness.to_vec();
        let address = witness.as_ptr() as usize;
        let mut witness = Some(witness);
        if plant == Plant::ReleaseBeforeAllocation {
            witness.take().into_iter().for_each(|witness| witness.release());
        }
        let n = key.shape().domain_size();
        let scratch: Result<HostBuf<Scalar>, _> = match plant {
            Plant::NoAccounting => HostMemory::default().zeroed(MemoryClass::Backend, n),
            _ => self.memory.zeroed(MemoryClass::Backend, n),
        };
        let _scratch = if plant == Plant::UnwrapAllocation { scratch.unwrap() } else { scratch? };
        let mut copy = if plant == Plant::CopyInputs { values.clone() } else { Vec::new() };
        let (a, b) = match evaluations {
            Some(LentEvaluations { a, b, c, .. }) => {
                let rows = (a.to_vec(), b.to_vec());
                if plant == Plant::CopyInputs {
                    copy.extend_from_slice(&a);
                    copy.extend_from_slice(&b);
                }
                if plant != Plant::NoRelease {
                    c.into_iter().chain([b, a]).for_each(|vector| vector.release());
                }
                rows
            }
            None => {
                let matrices = key.matrices().ok_or(BackendError::Unsupported("no matrices".into()))?;
                (product(&matrices.a, &values), product(&matrices.b, &values))
            }
        };
        if plant != Plant::NoRelease {
            witness.into_iter().for_each(|witness| witness.release());
        }
        let mut domain = key.domain();
        if plant == Plant::SnarkjsRootOnly {
            domain = splitprover_core::Domain::new(domain.log2(), splitprover_core::RootOfUnity::snarkjs()).unwrap();
        }
        let h = quotient_scalars(domain, key.h_basis(), &a, &b);
        let mut sums = QuerySums {
            a: g1_sum(key.a(), &values).into(),
            b_g1: g1_sum(key.b_g1(), &values).into(),
            b_g2: g2_sum(key.b_g2(), &values).into(),
            hl: (g1_sum(key.h(), &h) + g1_sum(key.l(), &values[key.shape().num_public + 1..])).into(),
        };
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        match plant {
            Plant::WrongSum => sums.b_g2 = (G2Projective::generator() + sums.b_g2).into(),
            Plant::WrongAbove65536 if values.len() > 65536 => sums.a = (G1Projective::generator() + sums.a).into(),
            Plant::NonDeterministic if count % 16 == 15 => sums.hl = (G1Projective::generator() + sums.hl).into(),
            Plant::ReadLater => {
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(100));
                    // SAFETY: there is none. That is the planted fault.
                    std::hint::black_box(unsafe { std::ptr::read_volatile(address as *const u64) });
                });
            }
            Plant::LeakPending => std::mem::forget(std::hint::black_box(vec![1u8; 600])),
            _ => {}
        }
        Ok(NaivePending { sums, plant, copy, address, finished: false })
    }

    fn retained_host_bytes(&self, _: &CircuitShape) -> u64 {
        0
    }
}

impl PendingSums for NaivePending {
    fn finish(mut self) -> Result<QuerySums, BackendError> {
        std::hint::black_box(&self.copy);
        self.finished = true;
        match self.plant {
            Plant::PanicInFinish => panic!("planted in finish"),
            Plant::ReadInFinish => {
                // SAFETY: there is none. That is the planted fault.
                let first = unsafe { std::ptr::read_volatile(self.address as *const Scalar) };
                if first != Scalar::ONE {
                    self.sums.a = G1Projective::generator().into();
                }
            }
            _ => {}
        }
        Ok(self.sums)
    }
}

impl Drop for NaivePending {
    fn drop(&mut self) {
        if self.plant == Plant::PanicInDrop && !self.finished {
            panic!("planted in drop");
        }
    }
}
