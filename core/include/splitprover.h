/* The C interface of splitprover's backends, generated from core/src/abi/types.rs and extensions.rs.
   A backend is a shared library that exports sp_negotiate. Rules 1 to 6 below hold everywhere; docs/abi.md has the policies,
   docs/adding-a-backend.md the way to a backend that conforms. */

#ifndef SPLITPROVER_H
#define SPLITPROVER_H

#include <stdint.h>

/* Rules for everything here:

   1. A struct that begins with struct_size may grow at its end with a minor version. Its maker writes the size *it* was
      compiled with; its reader copies the smaller of both sizes into a zeroed struct of its own and never looks beyond.
      Structs without struct_size never change within a major version.
   2. Strings are UTF-8 with a length and no final zero. They, and everything else behind a pointer, stay valid for the
      duration of the call unless a longer time is written beside the field.
   3. A scalar is four 64-bit limbs, least significant first, in Montgomery form (R = 2^256 mod r), below r.
      A point record is affine x‖y, each coordinate six such limbs (R = 2^384 mod q); G2 coordinates are c0‖c1; infinity is all
      zeros. Records have **no alignment**.
   4. A function that can fail returns SP_OK or a code and may then store an error handle, which the host gives back to
      the maker's error_destroy. Nothing unwinds across the boundary, in either direction.
   5. Handles belong to the side that made them. What made a handle has an entry that ends it, and ends it even where that
      entry reports an error.
   6. The host closes an instance after all its keys, ends a key after all its pending proofs, and calls no entry with a
      handle that another thread is ending. Otherwise any entry may be called from any thread at any time.
*/

/* Handles: opaque, the plug-in's own. */
typedef struct SpInstance SpInstance;
typedef struct SpLoadedKey SpLoadedKey;
typedef struct SpPending SpPending;
typedef struct SpError SpError;
typedef struct SpPinned SpPinned;

#define SP_CURVE "bls12-381"
#define SP_SCALAR_LAYOUT "fr:montgomery:le:4x64"
#define SP_POINT_LAYOUT "affine:x,y:montgomery:le:6x64:c0,c1:infinity=0"
#define SP_EXT_PINNED "splitprover.pinned.0"
#define SP_EXT_FIXED_BASE "splitprover.fixed_base.0"
#define SP_EXT_STATISTICS "splitprover.statistics.0"
#define SP_EXT_KERNELS "splitprover.kernels.0"


/*
 Version 0.1 as one number: major in the upper 16 bits, minor in the lower.
 */
#define SP_ABI_VERSION 1

/*
 The lowest version that this side still speaks.
 */
#define SP_ABI_VERSION_MIN 1

/*
 Log levels, as of most logging facades: the lower, the graver.
 */
#define SP_LOG_ERROR 1

/*
 See SP_LOG_ERROR.
 */
#define SP_LOG_WARN 2

/*
 See SP_LOG_ERROR.
 */
#define SP_LOG_INFO 3

/*
 See SP_LOG_ERROR.
 */
#define SP_LOG_DEBUG 4

/*
 See SP_LOG_ERROR.
 */
#define SP_LOG_TRACE 5

/*
 Memory class of accounting: evaluation vectors.
 */
#define SP_MEMORY_EVALUATIONS 0

/*
 Memory class of accounting: the witness.
 */
#define SP_MEMORY_WITNESS 1

/*
 Memory class of accounting: key material on the host.
 */
#define SP_MEMORY_KEY 2

/*
 Memory class of accounting: rings and buffers on the way to a device.
 */
#define SP_MEMORY_STAGING 3

/*
 Memory class of accounting: what a backend keeps for its own work.
 */
#define SP_MEMORY_BACKEND 4

/*
 Memory class of accounting: idle buffers of a pool.
 */
#define SP_MEMORY_POOL_IDLE 5

/*
 Index of the witness among the vectors of SpInputs.
 */
#define SP_VECTOR_WITNESS 0

/*
 Index of the evaluations A·w.
 */
#define SP_VECTOR_A 1

/*
 Index of the evaluations B·w.
 */
#define SP_VECTOR_B 2

/*
 Index of the evaluations C·w.
 */
#define SP_VECTOR_C 3

/*
 SpKey::h_basis: the scalars are the n − 1 coefficients of h = (a·b − c)/Z.
 */
#define SP_H_MONOMIAL 0

/*
 SpKey::h_basis: the scalars are the n values of a·b − c on the coset g·⟨ω⟩, g² = ω, *not* divided by Z.
 */
#define SP_H_ODD_LAGRANGE 1

/*
 SpQuery::storage: one record for each dense variable, in order.
 */
#define SP_STORAGE_COMPACT 0

/*
 SpQuery::storage: one record for each variable, all zeros where the density bit is clear.
 */
#define SP_STORAGE_SPREAD 1

/*
 What every fallible function returns: SP_OK or one of the SP_ERR_ codes.
 */
typedef int32_t SpStatus;

/*
 A string: UTF-8, no final zero.
 */
typedef struct SpStr {
  /*
   First byte; may be null if len is 0.
   */
  const uint8_t *data;
  /*
   Bytes.
   */
  uint64_t len;
} SpStr;

/*
 What the host offers a plug-in. A plug-in that gets one with open may use it until close returns; one that comes with
 sp_negotiate or devices is good for that call.
 */
typedef struct SpHost {
  /*
   Size of this struct in bytes, as its maker knows it.
   */
  uint64_t struct_size;
  /*
   The highest ABI version that the host speaks.
   */
  uint32_t abi_version;
  /*
   Zero.
   */
  uint32_t reserved;
  /*
   First argument of the callbacks.
   */
  void *ctx;
  /*
   Takes a log line. level is one of SP_LOG_. Any thread. May be null: nobody listens.
   */
  void (*log)(void *ctx, uint32_t level, struct SpStr target, struct SpStr message);
  /*
   Accounts for host memory: delta bytes more (or less, if negative) of a class SP_MEMORY_. Call it **before**
   allocating and after freeing. It may refuse with SP_ERR_HOST_MEMORY; then nothing was counted, the plug-in doesn't
   allocate, and fails with that code. Giving back is never refused. Lent vectors are the host's and already
   counted. Any thread. May be null: nobody counts.
   */
  SpStatus (*account)(void *ctx, uint32_t class, int64_t delta);
} SpHost;

/*
 A device, as listed.
 */
typedef struct SpDevice {
  /*
   Size of this struct in bytes, as its maker knows it.
   */
  uint64_t struct_size;
  /*
   What users know it by: "NVIDIA H200".
   */
  struct SpStr name;
  /*
   "cpu", "cuda", "opencl", or what else the backend calls its kind.
   */
  struct SpStr kind;
  /*
   Version of its driver; may be empty.
   */
  struct SpStr driver;
  /*
   Memory in bytes; 0: not known.
   */
  uint64_t memory_bytes;
  /*
   Memory that is free now; 0: not known.
   */
  uint64_t free_bytes;
} SpDevice;

/*
 Called once for each device.
 */
typedef void (*SpDeviceVisitor)(void *ctx, const struct SpDevice *device);

/*
 One option of open.
 */
typedef struct SpOption {
  /*
   Its name. A plug-in refuses names it doesn't know, with SP_ERR_UNSUPPORTED.
   */
  struct SpStr key;
  /*
   Its value, as text. Numbers are decimal; sizes are bytes.
   */
  struct SpStr value;
} SpOption;

/*
 The arguments of open.
 */
typedef struct SpOpen {
  /*
   Size of this struct in bytes, as its maker knows it.
   */
  uint64_t struct_size;
  /*
   What the host offers this instance. Valid until close returns.
   */
  const struct SpHost *host;
  /*
   Index of the device, in the order of the listing.
   */
  uint32_t device;
  /*
   How many threads the instance may keep busy. 0: as many as the machine has cores.
   */
  uint32_t threads;
  /*
   Options.
   */
  const struct SpOption *options;
  /*
   Their number.
   */
  uint64_t num_options;
} SpOpen;

/*
 Sizes of a circuit.
 */
typedef struct SpShape {
  /*
   Public inputs, without the constant 1.
   */
  uint64_t num_public;
  /*
   All variables, with the constant 1 as variable 0.
   */
  uint64_t num_variables;
  /*
   log2 of n, the number of rows of the domain; at most 28.
   */
  uint32_t domain_log2;
  /*
   Zero.
   */
  uint32_t reserved;
} SpShape;

/*
 The points of one query. A multi-exponentiation over it is the sum of wᵢ·Pᵢ over the dense variables i.
 */
typedef struct SpQuery {
  /*
   Point records of 96 (G1) or 192 (G2) bytes, unaligned.
   */
  const uint8_t *records;
  /*
   Their number.
   */
  uint64_t num_records;
  /*
   Variables that the query ranges over.
   */
  uint64_t num_variables;
  /*
   Density map: bit i mod 64 of word i / 64 is set if variable i is dense. Null: all are.
   */
  const uint64_t *density;
  /*
   Number of dense variables.
   */
  uint64_t num_dense;
  /*
   SP_STORAGE_: how records and variables correspond.
   */
  uint32_t storage;
  /*
   Zero.
   */
  uint32_t reserved;
} SpQuery;

/*
 A sparse matrix in compressed rows with a dictionary of coefficients.
 */
typedef struct SpMatrix {
  /*
   Rows; row i times the witness is the evaluation at row i of the domain.
   */
  uint64_t num_rows;
  /*
   Columns: the variables.
   */
  uint64_t num_columns;
  /*
   Stored entries.
   */
  uint64_t num_entries;
  /*
   Distinct coefficients.
   */
  uint64_t num_coefficients;
  /*
   num_rows + 1 offsets into the two arrays below, ascending from 0 to num_entries.
   */
  const uint32_t *row_offsets;
  /*
   Column of each entry, row by row.
   */
  const uint32_t *columns;
  /*
   Index of each entry's coefficient in the dictionary.
   */
  const uint32_t *coefficients;
  /*
   The distinct coefficients, four limbs each. Number 0 is 1 and number 1 is −1, always.
   */
  const uint64_t *dictionary;
} SpMatrix;

/*
 A proving key. The struct itself is good for the call of load_key; **all memory behind its pointers stays valid until
 unload_key returns**, and longer for whoever calls retain.
 */
typedef struct SpKey {
  /*
   Size of this struct in bytes, as its maker knows it.
   */
  uint64_t struct_size;
  /*
   Argument of retain and release.
   */
  void *ctx;
  /*
   Keeps the key's memory alive until a matching release. Any thread.
   */
  void (*retain)(void *ctx);
  /*
   Ends a retain. Any thread, also after unload_key.
   */
  void (*release)(void *ctx);
  /*
   The circuit's sizes.
   */
  struct SpShape shape;
  /*
   Basis of the H query, SP_H_.
   */
  uint32_t h_basis;
  /*
   Zero.
   */
  uint32_t reserved;
  /*
   The key format's primitive 2^32-th root of unity, a scalar. ω = root^(2^(32 − domain_log2)). **Formats differ: never
   assume one.**
   */
  uint64_t root[4];
  /*
   α in G1.
   */
  uint8_t alpha_g1[96];
  /*
   β in G1.
   */
  uint8_t beta_g1[96];
  /*
   δ in G1.
   */
  uint8_t delta_g1[96];
  /*
   β in G2.
   */
  uint8_t beta_g2[192];
  /*
   γ in G2.
   */
  uint8_t gamma_g2[192];
  /*
   δ in G2.
   */
  uint8_t delta_g2[192];
  /*
   Bases of the constant 1 and the public inputs: num_public + 1 records of 96 bytes.
   */
  const uint8_t *ic;
  /*
   A query: all variables.
   */
  struct SpQuery a;
  /*
   B query in G1: all variables.
   */
  struct SpQuery b_g1;
  /*
   B query in G2: all variables.
   */
  struct SpQuery b_g2;
  /*
   L query: the private variables num_public + 1 .. num_variables.
   */
  struct SpQuery l;
  /*
   H query: n − 1 or n scalars, by basis.
   */
  struct SpQuery h;
  /*
   Matrix A; null: the key has no matrices, and every proof brings its evaluations.
   */
  const struct SpMatrix *matrix_a;
  /*
   Matrix B, with as many rows; null exactly if A is.
   */
  const struct SpMatrix *matrix_b;
  /*
   A hint, with ctx: the len bytes at data, within the records of one query, won't be read soon, so the host may let go of
   the memory behind them, if it can have them again from a file. They stay readable, and the same. Any thread, as long as
   the key's memory is valid. Null: nothing would come of it.
   */
  void (*wont_need)(void *ctx, const uint8_t *data, uint64_t len);
} SpKey;

/*
 One lent vector of scalars.
 */
typedef struct SpVector {
  /*
   Four limbs for each scalar, aligned to 64 bytes. Never null where the vector is present. To write to it, ask
   borrow_mut.
   */
  const uint64_t *data;
  /*
   Scalars.
   */
  uint64_t len;
  /*
   The number that the plug-in's own allocate (see SpPinnedTable) gave the buffer's pool, if pooled.
   */
  uint64_t pool;
  /*
   1: pinned memory of this plug-in's own pool. 0: pageable memory.
   */
  uint32_t pooled;
  /*
   Zero.
   */
  uint32_t reserved;
} SpVector;

/*
 The inputs of one proof, lent for the duration of start. **The host owns the memory throughout**, and frees what is left
 when start returns, or takes it back if start failed and nothing was released or borrowed to be written to. After
 start has returned, nobody may read it, write it, or call the two functions.
 */
typedef struct SpInputs {
  /*
   Size of this struct in bytes, as its maker knows it.
   */
  uint64_t struct_size;
  /*
   Argument of release and borrow_mut.
   */
  void *ctx;
  /*
   Bit i is set if vector number i, SP_VECTOR_, is present. The witness always is. A and B come together; without
   them the key has matrices. Without C, c = a∘b on the domain.
   */
  uint32_t present;
  /*
   Zero.
   */
  uint32_t reserved;
  /*
   The vectors, by number. The witness has num_variables values and value 0 is 1; evaluations have one length, at most n;
   rows beyond are zero. The host has checked that; a plug-in refuses other lengths all the same, with SP_ERR_INPUTS and
   before it reads or releases anything.
   */
  struct SpVector vectors[4];
  /*
   Frees a vector now, as soon as it has been read: the earlier, the less memory a pipeline needs. Once released, it may not
   be touched. Releasing twice, or a vector that isn't there, does nothing. Any thread.
   */
  void (*release)(void *ctx, uint32_t which);
  /*
   The vector's memory to write to, as scratch space, from now on through this pointer alone; null if there is none. The
   caller won't get its inputs back after this. Any thread.
   */
  uint64_t *(*borrow_mut)(void *ctx, uint32_t which);
} SpInputs;

/*
 The four sums of a proof, as point records. The host owns the memory.
 */
typedef struct SpSums {
  /*
   Size of this struct in bytes; set by the host.
   */
  uint64_t struct_size;
  /*
   The sum of wᵢ·Aᵢ over all variables.
   */
  uint8_t a[96];
  /*
   The sum of wᵢ·Bᵢ over all variables, in G1.
   */
  uint8_t b_g1[96];
  /*
   The sum of wᵢ·Bᵢ over all variables, in G2.
   */
  uint8_t b_g2[192];
  /*
   The sum of hⱼ·Hⱼ, plus the sum of wᵢ·Lᵢ over the private variables.
   */
  uint8_t hl[96];
} SpSums;

/*
 What an error handle says. The strings are valid until the handle is destroyed.
 */
typedef struct SpErrorInfo {
  /*
   Size of this struct in bytes; set by the *host*, which also owns the memory. The plug-in writes no more than that.
   */
  uint64_t struct_size;
  /*
   The code, the same that was returned.
   */
  SpStatus code;
  /*
   SP_ERR_HOST_MEMORY: the class SP_MEMORY_.
   */
  uint32_t memory_class;
  /*
   The operation that failed, or what the memory was for; may be empty.
   */
  struct SpStr what;
  /*
   What happened, for a person to read.
   */
  struct SpStr message;
  /*
   Memory errors: bytes asked for.
   */
  uint64_t requested;
  /*
   SP_ERR_DEVICE_MEMORY: bytes that were free, as far as known.
   */
  uint64_t available;
} SpErrorInfo;

/*
 What a plug-in offers: static data of the plug-in, valid for ever. Entries are required unless they say otherwise.
 */
typedef struct SpBackendTable {
  /*
   Size of this struct in bytes, as its maker knows it.
   */
  uint64_t struct_size;
  /*
   The highest ABI version that the plug-in speaks. Both sides use the lower of the two highest.
   */
  uint32_t abi_version;
  /*
   Zero.
   */
  uint32_t reserved;
  /*
   Short name, as users type it: "cpu".
   */
  struct SpStr name;
  /*
   Who makes it.
   */
  struct SpStr vendor;
  /*
   Its version.
   */
  struct SpStr version;
  /*
   Whatever tells two builds apart; may be empty.
   */
  struct SpStr build;
  /*
   SP_CURVE.
   */
  struct SpStr curve;
  /*
   SP_SCALAR_LAYOUT.
   */
  struct SpStr scalar_layout;
  /*
   SP_POINT_LAYOUT.
   */
  struct SpStr point_layout;
  /*
   Lists the devices: calls visit for each, in the order that open counts. A missing vendor library is an error whose
   message names it; a library without a device lists none.
   */
  SpStatus (*devices)(const struct SpHost *host, SpDeviceVisitor visit, void *ctx, SpError **error);
  /*
   Opens a device.
   */
  SpStatus (*open)(const struct SpOpen *args, SpInstance **out, SpError **error);
  /*
   Ends an instance. The handle is gone whatever this returns.
   */
  SpStatus (*close)(SpInstance *instance, SpError **error);
  /*
   Prepares a key for any number of proofs.
   */
  SpStatus (*load_key)(SpInstance *instance, const struct SpKey *key, SpLoadedKey **out, SpError **error);
  /*
   Ends a key. The handle is gone whatever this returns.
   */
  SpStatus (*unload_key)(SpLoadedKey *key, SpError **error);
  /*
   Reads the inputs and starts the sums. Returns as soon as the inputs have been read. On success out holds a pending
   proof; on failure it is left alone.
   */
  SpStatus (*start)(SpInstance *instance,
                    SpLoadedKey *key,
                    const struct SpInputs *inputs,
                    SpPending **out,
                    SpError **error);
  /*
   Waits for the sums. The pending proof is gone whatever this returns.
   */
  SpStatus (*finish)(SpPending *pending, struct SpSums *out, SpError **error);
  /*
   Cancels a pending proof, or waits for it. The handle is gone whatever this returns.
   */
  SpStatus (*drop_pending)(SpPending *pending, SpError **error);
  /*
   Upper bound of the host bytes that a pending proof of this shape holds on to. Optional: null means 0.
   */
  SpStatus (*retained_host_bytes)(SpInstance *instance, const struct SpShape *shape, uint64_t *out, SpError **error);
  /*
   Says what an error is. Optional: null if the plug-in never stores error handles.
   */
  void (*error_info)(const SpError *error, struct SpErrorInfo *out);
  /*
   Destroys an error. Optional as error_info is.
   */
  void (*error_destroy)(SpError *error);
  /*
   An extension's table by name, or null. Optional. The table is static, and begins with struct_size.
   */
  const void *(*extension)(struct SpStr name);
} SpBackendTable;

/*
 A pinned buffer, as allocate describes it.
 */
typedef struct SpPinnedBuffer {
  /*
   Size of this struct in bytes; set by the host, which also owns the memory.
   */
  uint64_t struct_size;
  /*
   What free takes.
   */
  SpPinned *handle;
  /*
   First byte: zeroed or at least initialised memory, aligned to 64 bytes, the host's alone until free.
   */
  uint8_t *data;
  /*
   Bytes; at least what was asked for.
   */
  uint64_t len;
  /*
   A number by which the plug-in recognises the pool in SpVector::pool(super::types::SpVector::pool).
   */
  uint64_t pool;
} SpPinnedBuffer;

/*
 Pinned allocation: host buffers that are born where the device reads fastest.
 */
typedef struct SpPinnedTable {
  /*
   Size of this struct in bytes, as its maker knows it.
   */
  uint64_t struct_size;
  /*
   Makes a buffer of at least bytes. The host accounts for it while it uses it; idle buffers of the pool are the
   plug-in's to account for.
   */
  SpStatus (*allocate)(SpInstance *instance, uint64_t bytes, struct SpPinnedBuffer *out, SpError **error);
  /*
   Takes a buffer back. Any thread. The host frees all buffers before it closes the instance.
   */
  void (*free)(SpPinned *handle);
} SpPinnedTable;

/*
 Writes count point records, out[i] = scalars[i]·base: a record of the group, and scalars of four limbs.
 */
typedef SpStatus (*SpFixedBase)(SpInstance *instance,
                                const uint8_t *base,
                                const uint64_t *scalars,
                                uint64_t count,
                                uint8_t *out,
                                SpError **error);

/*
 Fixed-base multiplication on the device, for key generation.
 */
typedef struct SpFixedBaseTable {
  /*
   Size of this struct in bytes, as its maker knows it.
   */
  uint64_t struct_size;
  /*
   In G1: records of 96 bytes.
   */
  SpFixedBase g1;
  /*
   In G2: records of 192 bytes.
   */
  SpFixedBase g2;
} SpFixedBaseTable;

/*
 Called once for each figure.
 */
typedef void (*SpStatisticVisitor)(void *ctx, struct SpStr name, double value);

/*
 Figures that an instance keeps about itself, for people to read.
 */
typedef struct SpStatisticsTable {
  /*
   Size of this struct in bytes, as its maker knows it.
   */
  uint64_t struct_size;
  /*
   Calls visit for each figure. A name ends in its unit: "kernel_ms".
   */
  SpStatus (*visit)(SpInstance *instance, SpStatisticVisitor visit, void *ctx, SpError **error);
} SpStatisticsTable;

/*
 Called with one line of a report.
 */
typedef void (*SpLineVisitor)(void *ctx, struct SpStr line);

/*
 Kernels compiled ahead of time, where there is no device: images are built, caches are filled.
 */
typedef struct SpKernelsTable {
  /*
   Size of this struct in bytes, as its maker knows it.
   */
  uint64_t struct_size;
  /*
   Compiles all kernels for an architecture, named as the vendor does ("sm_90"), into the kernel cache at folder. Needs
   no instance and no device. Calls visit with a line for each thing that was built.
   */
  SpStatus (*build)(struct SpStr arch, struct SpStr folder, SpLineVisitor visit, void *ctx, SpError **error);
} SpKernelsTable;

/*
 The exported function sp_negotiate. min and max are the versions that the host speaks. If the plug-in's range meets
 them, it stores its table and returns SP_OK; else it returns SP_ERR_VERSION, and still may store its table so that
 the host can name the plug-in's version.
 */
typedef SpStatus (*SpNegotiate)(uint32_t min, uint32_t max, const struct SpHost *host, const struct SpBackendTable **out);

/*
 Done.
 */
#define SP_OK 0

/*
 Not enough device memory. Fail with this before touching an input, and the caller gets its inputs back.
 */
#define SP_ERR_DEVICE_MEMORY 1

/*
 Not enough host memory, or the host's account refused it.
 */
#define SP_ERR_HOST_MEMORY 2

/*
 The device, its driver or its compiler failed.
 */
#define SP_ERR_DEVICE 3

/*
 The backend doesn't do this.
 */
#define SP_ERR_UNSUPPORTED 4

/*
 Inputs and key don't fit together.
 */
#define SP_ERR_INPUTS 5

/*
 The backend panicked in this call. The instance answers SP_ERR_POISONED from now on.
 */
#define SP_ERR_PANICKED 6

/*
 The instance panicked or lost its device before.
 */
#define SP_ERR_POISONED 7

/*
 A key was used with an instance that didn't load it.
 */
#define SP_ERR_FOREIGN_KEY 8

/*
 The work was cancelled.
 */
#define SP_ERR_CANCELLED 9

/*
 An argument breaks the rules: a null pointer, a struct that is too short, a length that overflows.
 */
#define SP_ERR_ARGUMENT 10

/*
 No version in common.
 */
#define SP_ERR_VERSION 11

#endif  /* SPLITPROVER_H */

/* The exported function. */
#ifdef __cplusplus
extern "C"
#endif
SpStatus sp_negotiate(uint32_t min, uint32_t max, const SpHost *host, const SpBackendTable **out);
