// Number-theoretic transforms over a domain of n = 2^L points, 3 <= L <= 31, in passes of up to 2^9 points each.
//
// A transform is written as in the four-step method, applied again to the rows: with n = R S (R points per column, S columns),
//   X[f1 + R f2] = sum_j w_S^(j f2) [ w_n^(j f1) sum_r x[r S + j] w_R^(r f1) ].
// Decimation in frequency (DIF) goes down: column transforms, twiddles, then the rows; natural order in, bit-reversed order out, in
// place. Decimation in time (DIT) is its transpose: bit-reversed in, natural out. So an inverse DIF and a forward DIT need no reordering
// between them, and the pass over the rows of the one and the first pass of the other are fused in `ntt_rows`.
//
// A block of 128 threads holds 512 elements, four in each thread's registers: 512/R columns of R points. A column transform is a
// run of radix-4 steps (and one of radix 2 where log2 R is odd), with an exchange through shared memory in between. Radix 8
// needs fewer multiplications but 128 registers, which leaves fewer warps: measured 10 % slower at 2^20, equal at 2^24, 4 % faster at 2^27. The
// steps are a loop at run time and so is the multiplication by two factors of a twiddle: the loop body stays small enough for the
// instruction cache, and one kernel serves every R.
#include "fr.cuh"

#define NTT_LOG_BLOCK 9
#define NTT_BLOCK (1 << NTT_LOG_BLOCK)
#define NTT_THREADS (NTT_BLOCK / 4)

// Four elements at 2^level rows from each other: element k of thread u of a column.
SP_FN u32 ntt_position(u32 u, u32 k, u32 level) {
    return ((u >> level) << (level + 2)) + (k << level) + (u & ((1u << level) - 1));
}

SP_FN u32 ntt_reverse2(u32 k) {
    return ((k & 1) << 1) | (k >> 1);
}

SP_FN u32 ntt_reverse(u32 x, u32 bits) {
    return bits == 0 ? 0 : __brev(x) >> (32 - bits);
}

// Read-only data that other threads read too.
static __device__ __forceinline__ Fr ntt_table(const Fr *p) {
    const uint4 lo = __ldg(reinterpret_cast<const uint4 *>(p)), hi = __ldg(reinterpret_cast<const uint4 *>(p) + 1);
    return Fr{{lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w}};
}

// Powers of a root of unity w of order n = 2^log_n: small[e] = w^(e n / 2^log_small), big[e] likewise, low[e] = w^e for e < n / 2^log_big.
// Where there is memory for it, full[e] = v^e for e < n/2, with v = w, or v = 1/w if `inverted`.
struct NttTables {
    const Fr *small;
    const Fr *big;
    const Fr *low;
    const Fr *full;
    u32 inverted;
    u32 log_n;
    u32 log_small;
    u32 log_big;
};

// The same value, of which the compiler knows nothing: what depends on it is computed where it's needed, for lack of registers to keep it.
SP_FN u32 ntt_opaque(u32 x) {
#if SP_PTX
    asm volatile("" : "+r"(x));
#endif
    return x;
}

// Whether what follows from a thread's place is computed from the place itself, read anew. Before Blackwell the compiler finds registers for it.
#if SP_PTX
#define NTT_PLACE_ANEW (__CUDA_ARCH__ >= 1000)
#else
#define NTT_PLACE_ANEW 0
#endif

// The last `bits` (1 or 2) stages of a 4-point DIF, on groups of 2^bits elements: natural in, bit-reversed out.
SP_FN void ntt_dif4(Fr (&x)[4], u32 bits, const NttTables &tables) {
    if (bits >= 2) {
        const Fr d = fr_sub(x[0], x[2]), e = fr_sub(x[1], x[3]);
        x[0] = fr_add(x[0], x[2]);
        x[1] = fr_add(x[1], x[3]);
        x[2] = d;
        x[3] = fr_mul(e, ntt_table(tables.small + (1u << (tables.log_small - 2))));
    }
    SP_UNROLL
    for (int k = 0; k < 4; k += 2) {
        const Fr d = fr_sub(x[k], x[k + 1]);
        x[k] = fr_add(x[k], x[k + 1]);
        x[k + 1] = d;
    }
}

// The transpose: the first `bits` stages of a 4-point DIT, bit-reversed in, natural out.
SP_FN void ntt_dit4(Fr (&x)[4], u32 bits, const NttTables &tables) {
    SP_UNROLL
    for (int k = 0; k < 4; k += 2) {
        const Fr d = fr_sub(x[k], x[k + 1]);
        x[k] = fr_add(x[k], x[k + 1]);
        x[k + 1] = d;
    }
    if (bits >= 2) {
        const Fr t = fr_mul(x[3], ntt_table(tables.small + (1u << (tables.log_small - 2))));
        const Fr d = fr_sub(x[0], x[2]), e = fr_sub(x[1], t);
        x[0] = fr_add(x[0], x[2]);
        x[1] = fr_add(x[1], t);
        x[2] = d;
        x[3] = e;
    }
}

// Twiddles between the steps of one column: w_(2^(level+2))^(f t), f the digit that element k stands for, t the row in the sub-block.
SP_FN void ntt_step_twiddles(Fr (&x)[4], u32 u, u32 level, const NttTables &tables) {
    const u32 t = u & ((1u << level) - 1), shift = tables.log_small - level - 2;
    SP_UNROLL
    for (int k = 1; k < 4; k++) x[k] = fr_mul(x[k], ntt_table(tables.small + ((ntt_reverse2(k) * t) << shift)));
}

// Twiddles between passes: element k of thread u stands for the column's frequency f = reverse(4u + k); w_(R S)^(f column).
// Beyond the big table the factor comes from the full one, or else is a product of two entries, applied one after the other.
SP_FN void ntt_pass_twiddles(Fr (&x)[4], u32 u, u32 log_r, u32 log_s, u32 column, const NttTables &tables) {
    const u32 log_low = tables.log_n - tables.log_big, order = log_r + log_s;
    const bool direct = order <= tables.log_big;
    if (!direct && tables.full != nullptr) {
        const u32 n = 1u << tables.log_n, half = n >> 1;
        SP_UNROLL
        for (int k = 0; k < 4; k++) {
            const u32 e = (ntt_reverse(4 * ntt_opaque(u) + k, log_r) * column) << (tables.log_n - order);
            const u32 i = tables.inverted ? (n - e) & (n - 1) : e;
            x[k] = fr_mul(x[k], ntt_table(tables.full + (i & (half - 1))));
            x[k] = fr_select(i >= half, fr_neg(x[k]), x[k]);
        }
        return;
    }
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (int factor = 0; factor < (direct ? 1 : 2); factor++) {
        SP_UNROLL
        for (int k = 0; k < 4; k++) {
            const u32 e = (ntt_reverse(4 * ntt_opaque(u) + k, log_r) * column) << (tables.log_n - order);
            const Fr *entry = factor == 0 ? tables.big + (e >> log_low) : tables.low + (e & ((1u << log_low) - 1));
            x[k] = fr_mul(x[k], ntt_table(entry));
        }
    }
}

// The block's elements as two planes of 16-byte halves.
extern __shared__ uint4 ntt_shared[];

// Where a block keeps element `row` of its column `c`: (row << row_shift) + (c << column_shift), swizzled so that the eight lanes of
// a 16-byte access always hit eight different bank groups.
struct NttLayout {
    u32 row_shift;
    u32 column_shift;
    u32 c;
    u32 u;
};

static __device__ __forceinline__ u32 ntt_slot(const NttLayout &at, u32 row) {
    const u32 i = (row << at.row_shift) + (at.c << at.column_shift);
    return i ^ ((i >> 3) & 7) ^ ((i >> 2) & 4);
}

// Hands the elements over from the rows of one level to those of another.
static __device__ __forceinline__ void ntt_exchange(Fr (&x)[4], const NttLayout &at, u32 from, u32 to) {
    __syncthreads();
    SP_UNROLL
    for (int k = 0; k < 4; k++) {
        const u32 s = ntt_slot(at, ntt_position(ntt_opaque(at.u), k, from));
        ntt_shared[s] = make_uint4(x[k].v[0], x[k].v[1], x[k].v[2], x[k].v[3]);
        ntt_shared[s + NTT_BLOCK] = make_uint4(x[k].v[4], x[k].v[5], x[k].v[6], x[k].v[7]);
    }
    __syncthreads();
    SP_UNROLL
    for (int k = 0; k < 4; k++) {
        const u32 s = ntt_slot(at, ntt_position(ntt_opaque(at.u), k, to));
        const uint4 lo = ntt_shared[s], hi = ntt_shared[s + NTT_BLOCK];
        x[k] = Fr{{lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w}};
    }
}

// A column transform of 2^log_r points, rows of level log_r - 2 in, of level 0 out.
static __device__ __forceinline__ void ntt_column_dif(Fr (&x)[4], const NttLayout &at, u32 log_r, const NttTables &tables) {
    u32 left = log_r;
#pragma unroll 1
    while (true) {
        const u32 bits = left < 2 ? left : 2;
        ntt_dif4(x, bits, tables);
        left -= bits;
        if (left == 0) break;
        ntt_step_twiddles(x, at.u, left, tables);
        ntt_exchange(x, at, left, left < 2 ? 0 : left - 2);
    }
}

// The transpose: rows of level 0 in, of level log_r - 2 out.
static __device__ __forceinline__ void ntt_column_dit(Fr (&x)[4], const NttLayout &at, u32 log_r, const NttTables &tables) {
    u32 done = 0;
#pragma unroll 1
    while (true) {
        const u32 bits = done == 0 && log_r % 2 != 0 ? 1 : 2;
        if (done != 0) ntt_step_twiddles(x, at.u, done, tables);
        ntt_dit4(x, bits, tables);
        const u32 level = bits == 2 ? done : 0;
        done += bits;
        if (done == log_r) break;
        ntt_exchange(x, at, level, done);
    }
}

// What is read: in[i], or in[i] times[i] where `times` is given; zero from `length` on.
struct NttSource {
    const Fr *in;
    const Fr *times;
    u32 length;
};

static __device__ __forceinline__ Fr ntt_read(const NttSource &from, u32 i) {
    if (i >= from.length) return fr_zero();
    const Fr x = fr_load(from.in + i);
    return from.times == nullptr ? x : fr_mul(x, fr_load(from.times + i));
}

// What is written: x, or p[i] q[i] - x where those are given.
struct NttTarget {
    Fr *out;
    const Fr *p;
    const Fr *q;
};

static __device__ __forceinline__ void ntt_write(const NttTarget &to, u32 i, const Fr &x) {
    if (to.p == nullptr) {
        fr_store(to.out + i, x);
    } else {
        fr_store(to.out + i, fr_sub(fr_mul(fr_load(to.p + i), fr_load(to.q + i)), x));
    }
}

// One pass over columns of 2^log_r points, 2^log_s elements from each other: neighbouring threads hold neighbouring columns.
template <bool DIF> static __device__ __forceinline__ void ntt_columns(const NttSource &from, const NttTarget &to, const NttTables &tables, u32 log_r, u32 log_s) {
    const u32 log_c = NTT_LOG_BLOCK - log_r;
    const NttLayout at{log_c, 0, threadIdx.x & ((1u << log_c) - 1), threadIdx.x >> log_c};
    const u32 id = (blockIdx.x << log_c) + at.c, columns = 1u << (tables.log_n - log_r);
    // Computed anew at each use, for lack of registers.
    const auto again = [&]() {
#if NTT_PLACE_ANEW
        return (block_again() << log_c) + (thread_again() & ((1u << log_c) - 1));
#else
        return ntt_opaque(id);
#endif
    };
    const auto column = [&]() { return again() & ((1u << log_s) - 1); };
    const auto base = [&]() {
        const u32 i = again();
        return ((i >> log_s) << (log_s + log_r)) + (i & ((1u << log_s) - 1));
    };
    const u32 level_in = DIF ? log_r - 2 : 0, level_out = DIF ? 0 : log_r - 2;
    Fr x[4];
    SP_UNROLL
    for (int k = 0; k < 4; k++) x[k] = id < columns ? ntt_read(from, base() + (ntt_position(at.u, k, level_in) << log_s)) : fr_zero();
    if (DIF) {
        ntt_column_dif(x, at, log_r, tables);
        ntt_pass_twiddles(x, at.u, log_r, log_s, column(), tables);
    } else {
        ntt_pass_twiddles(x, at.u, log_r, log_s, column(), tables);
        ntt_column_dit(x, at, log_r, tables);
    }
    if (again() < columns) {
        SP_UNROLL
        for (int k = 0; k < 4; k++) ntt_write(to, base() + (ntt_position(ntt_opaque(at.u), k, level_out) << log_s), x[k]);
    }
}

extern "C" __global__ void __launch_bounds__(NTT_THREADS, 5)
    ntt_columns_dif(const Fr *in, const Fr *times, u32 length, Fr *out, const Fr *small, const Fr *big, const Fr *low, const Fr *full, u32 inverted, u32 log_n, u32 log_small, u32 log_big,
                    u32 log_r, u32 log_s) {
    ntt_columns<true>(NttSource{in, times, length}, NttTarget{out, nullptr, nullptr}, NttTables{small, big, low, full, inverted, log_n, log_small, log_big}, log_r, log_s);
}

extern "C" __global__ void __launch_bounds__(NTT_THREADS, 5)
    ntt_columns_dit(const Fr *in, Fr *out, const Fr *p, const Fr *q, const Fr *small, const Fr *big, const Fr *low, const Fr *full, u32 inverted, u32 log_n, u32 log_small, u32 log_big,
                    u32 log_r, u32 log_s) {
    ntt_columns<false>(NttSource{in, nullptr, 1u << log_n}, NttTarget{out, p, q}, NttTables{small, big, low, full, inverted, log_n, log_small, log_big}, log_r, log_s);
}

// The pass over contiguous rows of 2^log_r points, neighbouring threads holding neighbouring elements: a DIF with the tables of one
// root (`do_dif`), a factor per coefficient, a DIT with the tables of another (`do_dit`). The element at place p of the whole vector
// is coefficient i = reverse(p); its factor is scale_high[i >> log_low] scale_low[i mod 2^log_low] where scale_high is given, else
// scale_low[0] where scale_low is given, else 1.
extern "C" __global__ void __launch_bounds__(NTT_THREADS, 5)
    ntt_rows(const Fr *in, const Fr *times, u32 length, Fr *out, const Fr *p, const Fr *q, const Fr *dif_small, const Fr *dit_small, u32 log_n, u32 log_small,
             u32 log_r, u32 do_dif, u32 do_dit, const Fr *scale_high, const Fr *scale_low, u32 log_low) {
    const u32 log_t = log_r - 2;
    const NttLayout at{0, log_r, threadIdx.x >> log_t, threadIdx.x & ((1u << log_t) - 1)};
    const u32 id = (blockIdx.x << (NTT_LOG_BLOCK - log_r)) + at.c;
    const u32 count = 1u << (log_n - log_r);
    const auto again = [&]() {
#if NTT_PLACE_ANEW
        return (block_again() << (NTT_LOG_BLOCK - log_r)) + (thread_again() >> log_t);
#else
        return ntt_opaque(id);
#endif
    };
    const auto base = [&]() { return again() << log_r; };
    const NttSource from{in, times, length};
    Fr x[4];
    SP_UNROLL
    for (int k = 0; k < 4; k++) x[k] = id < count ? ntt_read(from, base() + ntt_position(at.u, k, log_t)) : fr_zero();
    if (do_dif) {
        ntt_column_dif(x, at, log_r, NttTables{dif_small, nullptr, nullptr, nullptr, 0, log_n, log_small, 0});
    } else {
        ntt_exchange(x, at, log_t, 0);
    }
    if (scale_low != nullptr && again() < count) {
#pragma unroll 1
        for (int factor = scale_high == nullptr ? 1 : 0; factor < 2; factor++) {
            SP_UNROLL
            for (int k = 0; k < 4; k++) {
                const u32 i = ntt_reverse(ntt_opaque((id << log_r) + 4 * at.u) + k, log_n);
                const Fr *entry = factor == 0 ? scale_high + (i >> log_low) : scale_low + (scale_high == nullptr ? 0 : i & ((1u << log_low) - 1));
                x[k] = fr_mul(x[k], ntt_table(entry));
            }
        }
    }
    if (do_dit) {
        ntt_column_dit(x, at, log_r, NttTables{dit_small, nullptr, nullptr, nullptr, 0, log_n, log_small, 0});
    } else {
        ntt_exchange(x, at, 0, log_t);
    }
    if (again() < count) {
        const NttTarget to{out, p, q};
        SP_UNROLL
        for (int k = 0; k < 4; k++) ntt_write(to, base() + ntt_position(ntt_opaque(at.u), k, log_t), x[k]);
    }
}

// out[i] = first base^i for i < count.
extern "C" __global__ void ntt_powers(Fr *out, Fr first, Fr base, u64 count) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) fr_store(out + i, fr_mul(first, fr_pow(base, i)));
}

// out[reverse(p)] = a[p] - b[p]: from bit-reversed to natural order. Threads of a warp write neighbours, since reads through the
// read-only path suffer less from being scattered than writes do.
extern "C" __global__ void ntt_unshuffle(const Fr *a, const Fr *b, Fr *out, u32 log_n) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >> log_n) return;
    const u32 p = ntt_reverse((u32)i, log_n);
    fr_store(out + i, fr_sub(ntt_table(a + p), ntt_table(b + p)));
}

// Domains under eight points: one thread does the sums as they stand in the definition. `basis` 0: h_i = (a b - c)(g w^i); 1: the
// coefficients of (a b - c)/z with z = 1/z_inverse the constant that x^n - 1 takes on the coset.
extern "C" __global__ void ntt_tiny(const Fr *a, const Fr *b, const Fr *c, u32 length, Fr *out, u32 log_n, u32 basis, Fr root, Fr root_inverse, Fr shift,
                                    Fr shift_inverse, Fr n_inverse, Fr z_inverse) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    const u32 n = 1u << log_n;
    Fr coset[3][4], coefficients[3][4];
    for (u32 i = 0; i < n; i++) {
        const Fr x = i < length ? fr_load(a + i) : fr_zero(), y = i < length ? fr_load(b + i) : fr_zero();
        coset[0][i] = x;
        coset[1][i] = y;
        coset[2][i] = c == nullptr ? fr_mul(x, y) : (i < length ? fr_load(c + i) : fr_zero());
    }
    for (u32 v = 0; v < 3; v++) {
        for (u32 i = 0; i < n; i++) {
            Fr sum = fr_zero();
            for (u32 j = 0; j < n; j++) sum = fr_add(sum, fr_mul(coset[v][j], fr_pow(root_inverse, i * j)));
            coefficients[v][i] = fr_mul(sum, n_inverse);
        }
        for (u32 i = 0; i < n; i++) {
            const Fr at = fr_mul(shift, fr_pow(root, i));
            Fr sum = fr_zero();
            for (u32 j = 0; j < n; j++) sum = fr_add(sum, fr_mul(coefficients[v][j], fr_pow(at, j)));
            coset[v][i] = sum;
        }
    }
    for (u32 i = 0; i < n; i++) coset[0][i] = fr_sub(fr_mul(coset[0][i], coset[1][i]), coset[2][i]);
    if (basis == 0) {
        for (u32 i = 0; i < n; i++) fr_store(out + i, coset[0][i]);
        return;
    }
    for (u32 i = 0; i < n; i++) {
        Fr sum = fr_zero();
        for (u32 j = 0; j < n; j++) sum = fr_add(sum, fr_mul(coset[0][j], fr_pow(root_inverse, i * j)));
        fr_store(out + i, fr_mul(fr_mul(sum, fr_mul(n_inverse, z_inverse)), fr_pow(shift_inverse, i)));
    }
}
