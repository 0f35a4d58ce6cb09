//! The proving key across the boundary: as views on the host's side, as a [`ProvingKey`] again on a Rust plug-in's.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use blstrs::{G1Affine, Scalar};
use ff::Field;

use super::types::*;
use super::{copy_sized, slice};
use crate::density::Bitmap;
use crate::domain::{Domain, RootOfUnity};
use crate::error::BackendError;
use crate::key::{ByteOwner, HBasis, Matrices, PointTable, ProvingKey, ProvingKeyParts, Query, SharedBytes, Storage};
use crate::matrix::{CsrMatrix, Numbers};
use crate::point::PointRecord;
use crate::verify::VerifyingKey;

/// Montgomery limbs of a scalar.
pub(super) fn limbs(scalar: &Scalar) -> [u64; 4] {
    blst::blst_fr::from(*scalar).l
}

/// What `SpKey::ctx` counts references to.
pub(super) struct KeyOwner {
    key: Arc<ProvingKey>,
    ic: Vec<u8>,
    matrices: Option<[SpMatrix; 2]>,
}

// SAFETY: the pointers in `matrices` point into `key`, which is shared and immutable.
unsafe impl Send for KeyOwner {}
// SAFETY: as above.
unsafe impl Sync for KeyOwner {}

impl KeyOwner {
    pub(super) fn new(key: Arc<ProvingKey>) -> Arc<Self> {
        let ic = key.verifying_key().ic();
        let mut bytes = vec![0; ic.len() * G1Affine::BYTES];
        bytes.chunks_exact_mut(G1Affine::BYTES).zip(ic).for_each(|(record, point)| point.write_record(record));
        let matrix = |m: &CsrMatrix| SpMatrix {
            num_rows: m.num_rows() as u64,
            num_columns: m.num_columns() as u64,
            num_entries: m.num_entries() as u64,
            num_coefficients: m.dictionary().len() as u64,
            row_offsets: m.row_offsets().as_ptr(),
            columns: m.columns().as_ptr(),
            coefficients: m.coefficients().as_ptr(),
            dictionary: m.dictionary().as_ptr().cast(),
        };
        let matrices = key.matrices().map(|m| [matrix(&m.a), matrix(&m.b)]);
        Arc::new(Self { key, ic: bytes, matrices })
    }

    /// The views. What they point to lives as long as a reference to `self`.
    pub(super) fn view(self: &Arc<Self>) -> SpKey {
        fn record<C: PointRecord, const N: usize>(point: C) -> [u8; N] {
            let mut bytes = [0; N];
            point.write_record(&mut bytes);
            bytes
        }
        fn query<C: PointRecord>(query: &Query<C>) -> SpQuery {
            SpQuery {
                records: query.table().as_bytes().as_ptr(),
                num_records: query.table().len() as u64,
                num_variables: query.num_variables() as u64,
                density: query.density().map_or(std::ptr::null(), |d| d.words().as_ptr()),
                num_dense: query.num_dense() as u64,
                storage: match query.storage() {
                    Storage::Compact => SP_STORAGE_COMPACT,
                    Storage::Spread => SP_STORAGE_SPREAD,
                },
                reserved: 0,
            }
        }
        let key = &self.key;
        let vk = key.verifying_key();
        let shape = key.shape();
        let matrix = |i: usize| self.matrices.as_ref().map_or(std::ptr::null(), |m| &raw const m[i]);
        SpKey {
            struct_size: size_of::<SpKey>() as u64,
            ctx: Arc::as_ptr(self).cast_mut().cast(),
            retain: Some(retain),
            release: Some(release),
            shape: SpShape {
                num_public: shape.num_public as u64,
                num_variables: shape.num_variables as u64,
                domain_log2: shape.domain_log2,
                reserved: 0,
            },
            h_basis: match key.h_basis() {
                HBasis::Monomial => SP_H_MONOMIAL,
                HBasis::OddLagrange => SP_H_ODD_LAGRANGE,
            },
            reserved: 0,
            root: limbs(&key.domain().root().value()),
            alpha_g1: record(vk.alpha_g1()),
            beta_g1: record(key.beta_g1()),
            delta_g1: record(key.delta_g1()),
            beta_g2: record(vk.beta_g2()),
            gamma_g2: record(vk.gamma_g2()),
            delta_g2: record(vk.delta_g2()),
            ic: self.ic.as_ptr(),
            a: query(key.a()),
            b_g1: query(key.b_g1()),
            b_g2: query(key.b_g2()),
            l: query(key.l()),
            h: query(key.h()),
            matrix_a: matrix(0),
            matrix_b: matrix(1),
            wont_need: self.tables().iter().any(|bytes| bytes.lets_go()).then_some(wont_need),
        }
    }

    /// The records of the queries.
    fn tables(&self) -> [&SharedBytes; 5] {
        let key = &self.key;
        let [a, b_g1, l, h] = [key.a(), key.b_g1(), key.l(), key.h()].map(|query| query.table().shared_bytes());
        [a, b_g1, key.b_g2().table().shared_bytes(), l, h]
    }
}

/// # Safety
/// `ctx` is that of a view whose owner is still referenced.
unsafe extern "C" fn wont_need(ctx: *mut c_void, data: *const u8, len: u64) {
    super::quietly((), || {
        // SAFETY: `view` took it from an `Arc<KeyOwner>` that is still alive by the caller's promise.
        let Some(owner) = (unsafe { ctx.cast::<KeyOwner>().as_ref() }) else { return };
        // What isn't within the records of one query is no hint about this key. `data` is only compared.
        let range = |bytes: &SharedBytes| {
            let from = (data as usize).checked_sub(bytes.as_ptr() as usize)?;
            Some(from..from.checked_add(usize::try_from(len).ok()?)?)
        };
        let part = owner.tables().into_iter().find_map(|bytes| bytes.slice(range(bytes)?));
        if let Some(part) = part {
            part.wont_need();
        }
    });
}

/// # Safety
/// `ctx` is that of a view whose owner is still referenced.
unsafe extern "C" fn retain(ctx: *mut c_void) {
    // SAFETY: `view` took it from an `Arc<KeyOwner>` that is still alive by the caller's promise.
    unsafe { Arc::increment_strong_count(ctx.cast::<KeyOwner>()) }
}

/// # Safety
/// `ctx` is that of a view, and this ends one `retain`.
unsafe extern "C" fn release(ctx: *mut c_void) {
    // SAFETY: the reference that `retain` added. Dropping a key runs destructors of maps and vectors, which don't panic; should
    // the owner of some bytes panic nevertheless, it goes no further.
    super::quietly((), || unsafe { Arc::decrement_strong_count(ctx.cast::<KeyOwner>()) });
}

/// A plug-in's reference to the host's key.
struct Retained {
    /// The host's, valid until `release`.
    ctx: *mut c_void,
    /// The host's functions of these names. Safe to call with `ctx` before and, for `release`, once at the end, from any thread: what
    /// [`SpKey`] promises.
    release: unsafe extern "C" fn(*mut c_void),
    wont_need: Option<unsafe extern "C" fn(*mut c_void, *const u8, u64)>,
}

// SAFETY: the ABI allows `release` and `wont_need` from any thread.
unsafe impl Send for Retained {}
// SAFETY: a shared reference only calls `wont_need`, which any threads may at once.
unsafe impl Sync for Retained {}

impl Drop for Retained {
    fn drop(&mut self) {
        // SAFETY: ends the one `retain` of `rebuild`.
        unsafe { (self.release)(self.ctx) }
    }
}

/// A part of the host's key. The `'static` is as long as the reference to the key beside it, and never leaves this struct.
struct Foreign<T: 'static> {
    data: &'static [T],
    key: Arc<Retained>,
}

impl<T> AsRef<[T]> for Foreign<T> {
    fn as_ref(&self) -> &[T] {
        self.data
    }
}

impl ByteOwner for Foreign<u8> {
    fn wont_need(&self, range: Range<usize>) {
        if let (Some(wont_need), Some(bytes)) = (self.key.wont_need, self.data.get(range)) {
            // SAFETY: the key is alive, and the bytes are records of one of its queries.
            unsafe { wont_need(self.key.ctx, bytes.as_ptr(), bytes.len() as u64) }
        }
    }

    fn lets_go(&self) -> bool {
        self.key.wont_need.is_some()
    }
}

fn refuse(reason: impl std::fmt::Display) -> BackendError {
    BackendError::device("key across the plug-in boundary", reason)
}

/// A Rust plug-in's side: the key again, without copying its point tables or matrices.
///
/// # Safety
/// `view` is what a host passed to `load_key`, as [`SpKey`] describes it.
pub(super) unsafe fn rebuild(view: *const SpKey) -> Result<Arc<ProvingKey>, BackendError> {
    // SAFETY: a struct with its size, by the caller's promise.
    let view = unsafe { copy_sized(view, size_of::<SpKey>()) }.ok_or_else(|| refuse("no key, or a short one"))?;
    let (Some(retain), Some(release)) = (view.retain, view.release) else {
        return Err(refuse("no retain or release"));
    };
    // SAFETY: during `load_key` the host's key is alive.
    unsafe { retain(view.ctx) };
    let retained = Arc::new(Retained { ctx: view.ctx, release, wont_need: view.wont_need });

    let size = |n: u64| usize::try_from(n).map_err(refuse);
    let num_public = size(view.shape.num_public)?;
    let ic_bytes =
        (num_public as u64).checked_add(1).and_then(|n| n.checked_mul(96)).ok_or_else(|| refuse("ic overflows"))?;
    // SAFETY: the host promises num_public + 1 records.
    let ic = unsafe { slice(view.ic, ic_bytes) }.ok_or_else(|| refuse("no ic"))?;
    let g1 = |bytes: &[u8]| G1Affine::from_record_unchecked(bytes);
    let g2 = |bytes: &[u8]| blstrs::G2Affine::from_record_unchecked(bytes);
    let verifying_key = VerifyingKey::new(
        g1(&view.alpha_g1),
        g2(&view.beta_g2),
        g2(&view.gamma_g2),
        g2(&view.delta_g2),
        ic.chunks_exact(96).map(g1).collect(),
    )
    .map_err(refuse)?;

    let mut root = Scalar::ZERO;
    // SAFETY: `Scalar` is a transparent wrapper of four limbs, for which any bytes are a value.
    unsafe { std::ptr::from_mut(&mut root).cast::<[u64; 4]>().write(view.root) };
    let root = RootOfUnity::new(root).ok_or_else(|| refuse("the root is no primitive 2^32-th root of unity"))?;
    let domain = Domain::new(view.shape.domain_log2, root).ok_or_else(|| refuse("the domain is too large"))?;
    let h_basis = match view.h_basis {
        SP_H_MONOMIAL => HBasis::Monomial,
        SP_H_ODD_LAGRANGE => HBasis::OddLagrange,
        other => return Err(BackendError::Unsupported(format!("H basis {other}"))),
    };
    let matrices = if view.matrix_a.is_null() || view.matrix_b.is_null() {
        None
    } else {
        // SAFETY: not null, so matrices by the host's promise; their memory lives as long as `retained`, which they keep.
        Some(Arc::new(unsafe {
            Matrices { a: matrix(view.matrix_a, &retained)?, b: matrix(view.matrix_b, &retained)? }
        }))
    };
    // SAFETY: the queries' memory lives as long as `retained`, which every `SharedBytes` made here keeps.
    let parts = unsafe {
        ProvingKeyParts {
            domain,
            h_basis,
            verifying_key,
            beta_g1: g1(&view.beta_g1),
            delta_g1: g1(&view.delta_g1),
            a: query(&view.a, &retained)?,
            b_g1: query(&view.b_g1, &retained)?,
            b_g2: query(&view.b_g2, &retained)?,
            l: query(&view.l, &retained)?,
            h: query(&view.h, &retained)?,
            matrices,
        }
    };
    ProvingKey::new(parts).map(Arc::new).map_err(refuse)
}

/// # Safety
/// `view` describes memory that lives as long as `retained`.
unsafe fn query<C: PointRecord>(view: &SpQuery, retained: &Arc<Retained>) -> Result<Query<C>, BackendError> {
    let bytes = view.num_records.checked_mul(C::BYTES as u64).ok_or_else(|| refuse("a query overflows"))?;
    // SAFETY: readable and immutable as long as `retained`; the `'static` never leaves `Foreign`, which keeps that.
    let data = unsafe { slice::<u8>(view.records, bytes) }.ok_or_else(|| refuse("a query without records"))?;
    let owner = Foreign { data, key: retained.clone() };
    let table = PointTable::new(SharedBytes::new(Arc::new(owner))).ok_or_else(|| refuse("a broken record"))?;
    if view.density.is_null() {
        return Ok(Query::full(table));
    }
    // SAFETY: a density map has ⌈num_variables / 64⌉ words.
    let words = unsafe { slice(view.density, view.num_variables.div_ceil(64)) };
    let words = words.ok_or_else(|| refuse("a density map at a bad address"))?;
    let len = usize::try_from(view.num_variables).map_err(refuse)?;
    let density = Bitmap::from_words(words.to_vec(), len).ok_or_else(|| refuse("stray bits in a density map"))?;
    let query = match view.storage {
        SP_STORAGE_COMPACT => Query::compact(table, Arc::new(density)),
        SP_STORAGE_SPREAD => Query::spread(table, Arc::new(density)),
        other => return Err(BackendError::Unsupported(format!("storage {other}"))),
    };
    query.ok_or_else(|| refuse("a query's records don't fit its density map"))
}

/// # Safety
/// `view` points to a matrix whose arrays are readable and immutable as long as `retained`.
unsafe fn matrix(view: *const SpMatrix, retained: &Arc<Retained>) -> Result<CsrMatrix, BackendError> {
    /// # Safety
    /// As [`slice`], for as long as `retained`.
    unsafe fn numbers<T: Copy + Send + Sync + 'static>(
        data: *const T,
        len: u64,
        retained: &Arc<Retained>,
    ) -> Option<Numbers<T>> {
        // SAFETY: by the caller's promise; the `'static` never leaves `Foreign`, which keeps `retained`.
        let data = unsafe { slice::<T>(data, len) }?;
        Some(Numbers::new(Arc::new(Foreign { data, key: retained.clone() })))
    }
    // SAFETY: by the caller's promise.
    let view = unsafe { view.read() };
    let rows = view.num_rows.checked_add(1).ok_or_else(|| refuse("a matrix overflows"))?;
    // SAFETY: array lengths as `SpMatrix` gives them; a `Scalar` is four limbs.
    let arrays = unsafe {
        (
            numbers(view.row_offsets, rows, retained),
            numbers(view.columns, view.num_entries, retained),
            numbers(view.coefficients, view.num_entries, retained),
            numbers(view.dictionary.cast::<Scalar>(), view.num_coefficients, retained),
        )
    };
    let (Some(rows), Some(columns), Some(coefficients), Some(dictionary)) = arrays else {
        return Err(refuse("a matrix at a bad address"));
    };
    let num_columns = usize::try_from(view.num_columns).map_err(refuse)?;
    CsrMatrix::from_numbers(rows, columns, coefficients, dictionary, num_columns).map_err(refuse)
}
