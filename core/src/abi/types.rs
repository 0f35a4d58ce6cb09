//! The structs and constants of the C ABI, version 0.1. The C header is generated from this file.
//!
//! Rules for everything here:
//!
//! 1. A struct that begins with `struct_size` may grow at its end with a minor version. Its maker writes the size *it* was
//!    compiled with; its reader copies the smaller of both sizes into a zeroed struct of its own and never looks beyond.
//!    Structs without `struct_size` never change within a major version.
//! 2. Strings are UTF-8 with a length and no final zero. They, and everything else behind a pointer, stay valid for the
//!    duration of the call unless a longer time is written beside the field.
//! 3. A scalar is four 64-bit limbs, least significant first, in Montgomery form (R = 2^256 mod r), below r.
//!    A point record is affine x‖y, each coordinate six such limbs (R = 2^384 mod q); G2 coordinates are c0‖c1; infinity is all
//!    zeros. Records have **no alignment**.
//! 4. A function that can fail returns [`SP_OK`] or a code and may then store an error handle, which the host gives back to
//!    the maker's `error_destroy`. Nothing unwinds across the boundary, in either direction.
//! 5. Handles belong to the side that made them. What made a handle has an entry that ends it, and ends it even where that
//!    entry reports an error.
//! 6. The host closes an instance after all its keys, ends a key after all its pending proofs, and calls no entry with a
//!    handle that another thread is ending. Otherwise any entry may be called from any thread at any time.
#![allow(missing_debug_implementations)]

use std::ffi::c_void;

/// Version 0.1 as one number: major in the upper 16 bits, minor in the lower.
pub const SP_ABI_VERSION: u32 = 1;
/// The lowest version that this side still speaks.
pub const SP_ABI_VERSION_MIN: u32 = 1;

/// The exported symbol.
pub const SP_NEGOTIATE_SYMBOL: &str = "sp_negotiate";

/// The curve that a table must name.
pub const SP_CURVE: &str = "bls12-381";
/// The scalar layout that a table must name.
pub const SP_SCALAR_LAYOUT: &str = "fr:montgomery:le:4x64";
/// The point layout that a table must name.
pub const SP_POINT_LAYOUT: &str = "affine:x,y:montgomery:le:6x64:c0,c1:infinity=0";

/// What every fallible function returns: [`SP_OK`] or one of the `SP_ERR_` codes.
pub type SpStatus = i32;
/// Done.
pub const SP_OK: SpStatus = 0;
/// Not enough device memory. Fail with this before touching an input, and the caller gets its inputs back.
pub const SP_ERR_DEVICE_MEMORY: SpStatus = 1;
/// Not enough host memory, or the host's account refused it.
pub const SP_ERR_HOST_MEMORY: SpStatus = 2;
/// The device, its driver or its compiler failed.
pub const SP_ERR_DEVICE: SpStatus = 3;
/// The backend doesn't do this.
pub const SP_ERR_UNSUPPORTED: SpStatus = 4;
/// Inputs and key don't fit together.
pub const SP_ERR_INPUTS: SpStatus = 5;
/// The backend panicked in this call. The instance answers [`SP_ERR_POISONED`] from now on.
pub const SP_ERR_PANICKED: SpStatus = 6;
/// The instance panicked or lost its device before.
pub const SP_ERR_POISONED: SpStatus = 7;
/// A key was used with an instance that didn't load it.
pub const SP_ERR_FOREIGN_KEY: SpStatus = 8;
/// The work was cancelled.
pub const SP_ERR_CANCELLED: SpStatus = 9;
/// An argument breaks the rules: a null pointer, a struct that is too short, a length that overflows.
pub const SP_ERR_ARGUMENT: SpStatus = 10;
/// No version in common.
pub const SP_ERR_VERSION: SpStatus = 11;

/// Log levels, as of most logging facades: the lower, the graver.
pub const SP_LOG_ERROR: u32 = 1;
/// See [`SP_LOG_ERROR`].
pub const SP_LOG_WARN: u32 = 2;
/// See [`SP_LOG_ERROR`].
pub const SP_LOG_INFO: u32 = 3;
/// See [`SP_LOG_ERROR`].
pub const SP_LOG_DEBUG: u32 = 4;
/// See [`SP_LOG_ERROR`].
pub const SP_LOG_TRACE: u32 = 5;

/// Memory class of accounting: evaluation vectors.
pub const SP_MEMORY_EVALUATIONS: u32 = 0;
/// Memory class of accounting: the witness.
pub const SP_MEMORY_WITNESS: u32 = 1;
/// Memory class of accounting: key material on the host.
pub const SP_MEMORY_KEY: u32 = 2;
/// Memory class of accounting: rings and buffers on the way to a device.
pub const SP_MEMORY_STAGING: u32 = 3;
/// Memory class of accounting: what a backend keeps for its own work.
pub const SP_MEMORY_BACKEND: u32 = 4;
/// Memory class of accounting: idle buffers of a pool.
pub const SP_MEMORY_POOL_IDLE: u32 = 5;

/// Index of the witness among the vectors of [`SpInputs`].
pub const SP_VECTOR_WITNESS: u32 = 0;
/// Index of the evaluations A·w.
pub const SP_VECTOR_A: u32 = 1;
/// Index of the evaluations B·w.
pub const SP_VECTOR_B: u32 = 2;
/// Index of the evaluations C·w.
pub const SP_VECTOR_C: u32 = 3;

/// [`SpKey::h_basis`]: the scalars are the n − 1 coefficients of h = (a·b − c)/Z.
pub const SP_H_MONOMIAL: u32 = 0;
/// [`SpKey::h_basis`]: the scalars are the n values of a·b − c on the coset g·⟨ω⟩, g² = ω, *not* divided by Z.
pub const SP_H_ODD_LAGRANGE: u32 = 1;

/// [`SpQuery::storage`]: one record for each dense variable, in order.
pub const SP_STORAGE_COMPACT: u32 = 0;
/// [`SpQuery::storage`]: one record for each variable, all zeros where the density bit is clear.
pub const SP_STORAGE_SPREAD: u32 = 1;

/// A string: UTF-8, no final zero.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpStr {
    /// First byte; may be null if `len` is 0.
    pub data: *const u8,
    /// Bytes.
    pub len: u64,
}

/// A backend instance on one device; opaque, the plug-in's own.
#[repr(C)]
pub struct SpInstance {
    opaque: [u8; 0],
}
/// A loaded key; opaque, the plug-in's own.
#[repr(C)]
pub struct SpLoadedKey {
    opaque: [u8; 0],
}
/// A proof in flight; opaque, the plug-in's own.
#[repr(C)]
pub struct SpPending {
    opaque: [u8; 0],
}
/// An error; opaque, the plug-in's own.
#[repr(C)]
pub struct SpError {
    opaque: [u8; 0],
}
/// A pinned buffer; opaque, the plug-in's own.
#[repr(C)]
pub struct SpPinned {
    opaque: [u8; 0],
}

/// What the host offers a plug-in. A plug-in that gets one with `open` may use it until `close` returns; one that comes with
/// `sp_negotiate` or `devices` is good for that call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpHost {
    /// Size of this struct in bytes, as its maker knows it.
    pub struct_size: u64,
    /// The highest ABI version that the host speaks.
    pub abi_version: u32,
    /// Zero.
    pub reserved: u32,
    /// First argument of the callbacks.
    pub ctx: *mut c_void,
    /// Takes a log line. `level` is one of `SP_LOG_`. Any thread. May be null: nobody listens.
    pub log: Option<unsafe extern "C" fn(ctx: *mut c_void, level: u32, target: SpStr, message: SpStr)>,
    /// Accounts for host memory: `delta` bytes more (or less, if negative) of a class `SP_MEMORY_`. Call it **before**
    /// allocating and after freeing. It may refuse with [`SP_ERR_HOST_MEMORY`]; then nothing was counted, the plug-in doesn't
    /// allocate, and fails with that code. Giving back is never refused. Lent vectors are the host's and already
    /// counted. Any thread. May be null: nobody counts.
    pub account: Option<unsafe extern "C" fn(ctx: *mut c_void, class: u32, delta: i64) -> SpStatus>,
}

/// One option of `open`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpOption {
    /// Its name. A plug-in refuses names it doesn't know, with [`SP_ERR_UNSUPPORTED`].
    pub key: SpStr,
    /// Its value, as text. Numbers are decimal; sizes are bytes.
    pub value: SpStr,
}

/// The arguments of `open`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpOpen {
    /// Size of this struct in bytes, as its maker knows it.
    pub struct_size: u64,
    /// What the host offers this instance. Valid until `close` returns.
    pub host: *const SpHost,
    /// Index of the device, in the order of the listing.
    pub device: u32,
    /// How many threads the instance may keep busy. 0: as many as the machine has cores.
    pub threads: u32,
    /// Options.
    pub options: *const SpOption,
    /// Their number.
    pub num_options: u64,
}

/// A device, as listed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpDevice {
    /// Size of this struct in bytes, as its maker knows it.
    pub struct_size: u64,
    /// What users know it by: "NVIDIA H200".
    pub name: SpStr,
    /// "cpu", "cuda", "opencl", or what else the backend calls its kind.
    pub kind: SpStr,
    /// Version of its driver; may be empty.
    pub driver: SpStr,
    /// Memory in bytes; 0: not known.
    pub memory_bytes: u64,
    /// Memory that is free now; 0: not known.
    pub free_bytes: u64,
}

/// Called once for each device.
pub type SpDeviceVisitor = Option<unsafe extern "C" fn(ctx: *mut c_void, device: *const SpDevice)>;

/// What an error handle says. The strings are valid until the handle is destroyed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpErrorInfo {
    /// Size of this struct in bytes; set by the *host*, which also owns the memory. The plug-in writes no more than that.
    pub struct_size: u64,
    /// The code, the same that was returned.
    pub code: SpStatus,
    /// [`SP_ERR_HOST_MEMORY`]: the class `SP_MEMORY_`.
    pub memory_class: u32,
    /// The operation that failed, or what the memory was for; may be empty.
    pub what: SpStr,
    /// What happened, for a person to read.
    pub message: SpStr,
    /// Memory errors: bytes asked for.
    pub requested: u64,
    /// [`SP_ERR_DEVICE_MEMORY`]: bytes that were free, as far as known.
    pub available: u64,
}

/// Sizes of a circuit.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpShape {
    /// Public inputs, without the constant 1.
    pub num_public: u64,
    /// All variables, with the constant 1 as variable 0.
    pub num_variables: u64,
    /// log2 of n, the number of rows of the domain; at most 28.
    pub domain_log2: u32,
    /// Zero.
    pub reserved: u32,
}

/// The points of one query. A multi-exponentiation over it is the sum of wᵢ·Pᵢ over the dense variables i.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpQuery {
    /// Point records of 96 (G1) or 192 (G2) bytes, unaligned.
    pub records: *const u8,
    /// Their number.
    pub num_records: u64,
    /// Variables that the query ranges over.
    pub num_variables: u64,
    /// Density map: bit i mod 64 of word i / 64 is set if variable i is dense. Null: all are.
    pub density: *const u64,
    /// Number of dense variables.
    pub num_dense: u64,
    /// `SP_STORAGE_`: how records and variables correspond.
    pub storage: u32,
    /// Zero.
    pub reserved: u32,
}

/// A sparse matrix in compressed rows with a dictionary of coefficients.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpMatrix {
    /// Rows; row i times the witness is the evaluation at row i of the domain.
    pub num_rows: u64,
    /// Columns: the variables.
    pub num_columns: u64,
    /// Stored entries.
    pub num_entries: u64,
    /// Distinct coefficients.
    pub num_coefficients: u64,
    /// num_rows + 1 offsets into the two arrays below, ascending from 0 to num_entries.
    pub row_offsets: *const u32,
    /// Column of each entry, row by row.
    pub columns: *const u32,
    /// Index of each entry's coefficient in the dictionary.
    pub coefficients: *const u32,
    /// The distinct coefficients, four limbs each. Number 0 is 1 and number 1 is −1, always.
    pub dictionary: *const u64,
}

/// A proving key. The struct itself is good for the call of `load_key`; **all memory behind its pointers stays valid until
/// `unload_key` returns**, and longer for whoever calls `retain`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpKey {
    /// Size of this struct in bytes, as its maker knows it.
    pub struct_size: u64,
    /// Argument of `retain` and `release`.
    pub ctx: *mut c_void,
    /// Keeps the key's memory alive until a matching `release`. Any thread.
    pub retain: Option<unsafe extern "C" fn(ctx: *mut c_void)>,
    /// Ends a `retain`. Any thread, also after `unload_key`.
    pub release: Option<unsafe extern "C" fn(ctx: *mut c_void)>,
    /// The circuit's sizes.
    pub shape: SpShape,
    /// Basis of the H query, `SP_H_`.
    pub h_basis: u32,
    /// Zero.
    pub reserved: u32,
    /// The key format's primitive 2^32-th root of unity, a scalar. ω = root^(2^(32 − domain_log2)). **Formats differ: never
    /// assume one.**
    pub root: [u64; 4],
    /// α in G1.
    pub alpha_g1: [u8; 96],
    /// β in G1.
    pub beta_g1: [u8; 96],
    /// δ in G1.
    pub delta_g1: [u8; 96],
    /// β in G2.
    pub beta_g2: [u8; 192],
    /// γ in G2.
    pub gamma_g2: [u8; 192],
    /// δ in G2.
    pub delta_g2: [u8; 192],
    /// Bases of the constant 1 and the public inputs: num_public + 1 records of 96 bytes.
    pub ic: *const u8,
    /// A query: all variables.
    pub a: SpQuery,
    /// B query in G1: all variables.
    pub b_g1: SpQuery,
    /// B query in G2: all variables.
    pub b_g2: SpQuery,
    /// L query: the private variables num_public + 1 .. num_variables.
    pub l: SpQuery,
    /// H query: n − 1 or n scalars, by basis.
    pub h: SpQuery,
    /// Matrix A; null: the key has no matrices, and every proof brings its evaluations.
    pub matrix_a: *const SpMatrix,
    /// Matrix B, with as many rows; null exactly if A is.
    pub matrix_b: *const SpMatrix,
    /// A hint, with `ctx`: the `len` bytes at `data`, within the records of one query, won't be read soon, so the host may let go of
    /// the memory behind them, if it can have them again from a file. They stay readable, and the same. Any thread, as long as
    /// the key's memory is valid. Null: nothing would come of it.
    pub wont_need: Option<unsafe extern "C" fn(ctx: *mut c_void, data: *const u8, len: u64)>,
}

/// One lent vector of scalars.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpVector {
    /// Four limbs for each scalar, aligned to 64 bytes. Never null where the vector is present. To write to it, ask
    /// `borrow_mut`.
    pub data: *const u64,
    /// Scalars.
    pub len: u64,
    /// The number that the plug-in's own `allocate` (see `SpPinnedTable`) gave the buffer's pool, if `pooled`.
    pub pool: u64,
    /// 1: pinned memory of this plug-in's own pool. 0: pageable memory.
    pub pooled: u32,
    /// Zero.
    pub reserved: u32,
}

/// The inputs of one proof, lent for the duration of `start`. **The host owns the memory throughout**, and frees what is left
/// when `start` returns, or takes it back if `start` failed and nothing was released or borrowed to be written to. After
/// `start` has returned, nobody may read it, write it, or call the two functions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpInputs {
    /// Size of this struct in bytes, as its maker knows it.
    pub struct_size: u64,
    /// Argument of `release` and `borrow_mut`.
    pub ctx: *mut c_void,
    /// Bit i is set if vector number i, `SP_VECTOR_`, is present. The witness always is. A and B come together; without
    /// them the key has matrices. Without C, c = a∘b on the domain.
    pub present: u32,
    /// Zero.
    pub reserved: u32,
    /// The vectors, by number. The witness has num_variables values and value 0 is 1; evaluations have one length, at most n;
    /// rows beyond are zero. The host has checked that; a plug-in refuses other lengths all the same, with [`SP_ERR_INPUTS`] and
    /// before it reads or releases anything.
    pub vectors: [SpVector; 4],
    /// Frees a vector now, as soon as it has been read: the earlier, the less memory a pipeline needs. Once released, it may not
    /// be touched. Releasing twice, or a vector that isn't there, does nothing. Any thread.
    pub release: Option<unsafe extern "C" fn(ctx: *mut c_void, which: u32)>,
    /// The vector's memory to write to, as scratch space, from now on through this pointer alone; null if there is none. The
    /// caller won't get its inputs back after this. Any thread.
    pub borrow_mut: Option<unsafe extern "C" fn(ctx: *mut c_void, which: u32) -> *mut u64>,
}

/// The four sums of a proof, as point records. The host owns the memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpSums {
    /// Size of this struct in bytes; set by the host.
    pub struct_size: u64,
    /// The sum of wᵢ·Aᵢ over all variables.
    pub a: [u8; 96],
    /// The sum of wᵢ·Bᵢ over all variables, in G1.
    pub b_g1: [u8; 96],
    /// The sum of wᵢ·Bᵢ over all variables, in G2.
    pub b_g2: [u8; 192],
    /// The sum of hⱼ·Hⱼ, plus the sum of wᵢ·Lᵢ over the private variables.
    pub hl: [u8; 96],
}

/// What a plug-in offers: static data of the plug-in, valid for ever. Entries are required unless they say otherwise.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpBackendTable {
    /// Size of this struct in bytes, as its maker knows it.
    pub struct_size: u64,
    /// The highest ABI version that the plug-in speaks. Both sides use the lower of the two highest.
    pub abi_version: u32,
    /// Zero.
    pub reserved: u32,
    /// Short name, as users type it: "cpu".
    pub name: SpStr,
    /// Who makes it.
    pub vendor: SpStr,
    /// Its version.
    pub version: SpStr,
    /// Whatever tells two builds apart; may be empty.
    pub build: SpStr,
    /// [`SP_CURVE`].
    pub curve: SpStr,
    /// [`SP_SCALAR_LAYOUT`].
    pub scalar_layout: SpStr,
    /// [`SP_POINT_LAYOUT`].
    pub point_layout: SpStr,
    /// Lists the devices: calls `visit` for each, in the order that `open` counts. A missing vendor library is an error whose
    /// message names it; a library without a device lists none.
    pub devices: Option<
        unsafe extern "C" fn(
            host: *const SpHost,
            visit: SpDeviceVisitor,
            ctx: *mut c_void,
            error: *mut *mut SpError,
        ) -> SpStatus,
    >,
    /// Opens a device.
    pub open: Option<
        unsafe extern "C" fn(args: *const SpOpen, out: *mut *mut SpInstance, error: *mut *mut SpError) -> SpStatus,
    >,
    /// Ends an instance. The handle is gone whatever this returns.
    pub close: Option<unsafe extern "C" fn(instance: *mut SpInstance, error: *mut *mut SpError) -> SpStatus>,
    /// Prepares a key for any number of proofs.
    pub load_key: Option<
        unsafe extern "C" fn(
            instance: *mut SpInstance,
            key: *const SpKey,
            out: *mut *mut SpLoadedKey,
            error: *mut *mut SpError,
        ) -> SpStatus,
    >,
    /// Ends a key. The handle is gone whatever this returns.
    pub unload_key: Option<unsafe extern "C" fn(key: *mut SpLoadedKey, error: *mut *mut SpError) -> SpStatus>,
    /// Reads the inputs and starts the sums. Returns as soon as the inputs have been read. On success `out` holds a pending
    /// proof; on failure it is left alone.
    pub start: Option<
        unsafe extern "C" fn(
            instance: *mut SpInstance,
            key: *mut SpLoadedKey,
            inputs: *const SpInputs,
            out: *mut *mut SpPending,
            error: *mut *mut SpError,
        ) -> SpStatus,
    >,
    /// Waits for the sums. The pending proof is gone whatever this returns.
    pub finish:
        Option<unsafe extern "C" fn(pending: *mut SpPending, out: *mut SpSums, error: *mut *mut SpError) -> SpStatus>,
    /// Cancels a pending proof, or waits for it. The handle is gone whatever this returns.
    pub drop_pending: Option<unsafe extern "C" fn(pending: *mut SpPending, error: *mut *mut SpError) -> SpStatus>,
    /// Upper bound of the host bytes that a pending proof of this shape holds on to. Optional: null means 0.
    pub retained_host_bytes: Option<
        unsafe extern "C" fn(
            instance: *mut SpInstance,
            shape: *const SpShape,
            out: *mut u64,
            error: *mut *mut SpError,
        ) -> SpStatus,
    >,
    /// Says what an error is. Optional: null if the plug-in never stores error handles.
    pub error_info: Option<unsafe extern "C" fn(error: *const SpError, out: *mut SpErrorInfo)>,
    /// Destroys an error. Optional as `error_info` is.
    pub error_destroy: Option<unsafe extern "C" fn(error: *mut SpError)>,
    /// An extension's table by name, or null. Optional. The table is static, and begins with `struct_size`.
    pub extension: Option<unsafe extern "C" fn(name: SpStr) -> *const c_void>,
}

/// The exported function `sp_negotiate`. `min` and `max` are the versions that the host speaks. If the plug-in's range meets
/// them, it stores its table and returns [`SP_OK`]; else it returns [`SP_ERR_VERSION`], and still may store its table so that
/// the host can name the plug-in's version.
pub type SpNegotiate =
    unsafe extern "C" fn(min: u32, max: u32, host: *const SpHost, out: *mut *const SpBackendTable) -> SpStatus;

impl SpStr {
    /// A string that lives as long as `text`.
    pub const fn new(text: &str) -> Self {
        Self { data: text.as_ptr(), len: text.len() as u64 }
    }

    /// No text.
    pub const EMPTY: Self = Self { data: std::ptr::null(), len: 0 };
}
