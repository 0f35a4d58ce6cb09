// The transforms of `ntt.cu`, pass for pass, on residues as Eisenstein integers (`eis.cuh`): the first pass splits what it reads, the
// last one joins what it writes, and the vector in between is pairs of digits. Tables hold factors times 2^160 in canonical form.
#include "eis.cuh"

#define NTT_LOG_BLOCK 9
#define NTT_BLOCK (1 << NTT_LOG_BLOCK)
#define NTT_THREADS (NTT_BLOCK / 4)
// Blocks per multiprocessor that the registers are meant to suffice for; with four in place of five nothing is spilled on sm_100 and sm_120.
#if SP_PTX && __CUDA_ARCH__ >= 1000
#define NTT_COLUMN_BLOCKS 4
#else
#define NTT_COLUMN_BLOCKS 5
#endif

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
static __device__ __forceinline__ Eis ntt_table(const Eis *p) {
    const uint4 lo = __ldg(reinterpret_cast<const uint4 *>(p)), hi = __ldg(reinterpret_cast<const uint4 *>(p) + 1);
    return Eis{{lo.x, lo.y, lo.z, lo.w}, {hi.x, hi.y, hi.z, hi.w}};
}

// Powers of a root of unity w of order n = 2^log_n: small[e] = w^(e n / 2^log_small), followed by the same times rho; big[e] likewise, low[e] = w^e for e < n / 2^log_big.
// `negative`: w^(n/4) isn't |x|^3 but its negative. Where there is memory for it, full[e] = v^e for e < n/2, with v = w, or v = 1/w if `inverted`.
struct NttTables {
    const Eis *small;
    const Eis *big;
    const Eis *low;
    const Eis *full;
    u32 inverted;
    u32 negative;
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

// Whether what follows from a thread's place is computed from the place itself, read anew.
#if SP_PTX
#define NTT_PLACE_ANEW 1
#else
#define NTT_PLACE_ANEW 0
#endif

// (x - y) by w_4, which is |x|^3 or its negative.
SP_FN EisSum ntt_quarter(const Eis &x, const Eis &y, const NttTables &tables) {
    return eis_quarter(tables.negative ? eis_sub(y, x) : eis_sub(x, y));
}

// A 4-point DIF: natural in, bit-reversed out.
SP_FN void ntt_dif4(Eis (&x)[4], const NttTables &tables) {
    const EisSum s = eis_add(x[0], x[2]), t = eis_add(x[1], x[3]), d = eis_sub(x[0], x[2]);
    const EisSum e = ntt_quarter(x[1], x[3], tables);
    x[0] = eis_normal(eis_add(s, t));
    x[1] = eis_normal(eis_sub(s, t));
    x[2] = eis_normal(eis_add(d, e));
    x[3] = eis_normal(eis_sub(d, e));
}

// The transpose, a 4-point DIT: bit-reversed in, natural out.
SP_FN void ntt_dit4(Eis (&x)[4], const NttTables &tables) {
    const EisSum s = eis_add(x[0], x[1]), d = eis_sub(x[0], x[1]), t = eis_add(x[2], x[3]);
    const EisSum e = ntt_quarter(x[2], x[3], tables);
    x[0] = eis_normal(eis_add(s, t));
    x[1] = eis_normal(eis_add(d, e));
    x[2] = eis_normal(eis_sub(s, t));
    x[3] = eis_normal(eis_sub(d, e));
}

// Two 2-point transforms, of elements half a column apart.
SP_FN void ntt_halves(Eis (&x)[4]) {
    SP_UNROLL
    for (int k = 0; k < 2; k++) {
        const EisSum d = eis_sub(x[k], x[k + 2]);
        x[k] = eis_normal(eis_add(x[k], x[k + 2]));
        x[k + 2] = eis_normal(d);
    }
}

static __device__ __forceinline__ EisFactor ntt_small(const NttTables &tables, u32 exponent) {
    const Eis *entry = tables.small + exponent;
    return EisFactor{ntt_table(entry), ntt_table(entry + (1u << tables.log_small))};
}

// Twiddles between the halves of a column and the rest of it: w_(2^log_r)^row for the odd half.
static __device__ __forceinline__ void ntt_half_twiddles(Eis (&x)[4], u32 u, u32 log_r, const NttTables &tables) {
    SP_UNROLL
    for (u32 k = 0; k < 2; k++) x[k + 2] = eis_mul(x[k + 2], ntt_small(tables, (u + (k << (log_r - 2))) << (tables.log_small - log_r)));
}

// Twiddles between the steps of one column: w_(2^(level+2))^(f t), f the digit that element k stands for, t the row in the sub-block.
static __device__ __forceinline__ void ntt_step_twiddles(Eis (&x)[4], u32 u, u32 level, const NttTables &tables) {
    const u32 t = u & ((1u << level) - 1), shift = tables.log_small - level - 2;
    SP_UNROLL
    for (int k = 1; k < 4; k++) x[k] = eis_mul(x[k], ntt_small(tables, (ntt_reverse2(k) * t) << shift));
}

// Twiddles between passes: element k of thread u stands for the column's frequency f = reverse(4u + k); w_(R S)^(f column).
// Beyond the big table the factor comes from the full one, or else is a product of two entries, applied one after the other.
SP_FN void ntt_pass_twiddles(Eis (&x)[4], u32 u, u32 log_r, u32 log_s, u32 column, const NttTables &tables) {
    const u32 log_low = tables.log_n - tables.log_big, order = log_r + log_s;
    const bool direct = order <= tables.log_big;
    // reverse(4u + k) is reverse(4u) and reverse2(k) quarters of the column's length: in that order exponents go on by one constant.
    const u32 scaled = column << (tables.log_n - order);
    u32 e = ntt_reverse(4 * u, log_r) * scaled, step = scaled << (log_r - 2);
    if (!direct && tables.full != nullptr) {
        const u32 half = 1u << (tables.log_n - 1);
        if (tables.inverted) {
            e = 0 - e;
            step = 0 - step;
        }
        Eis next = ntt_table(tables.full + (e & (half - 1)));
        SP_UNROLL
        for (int i = 0; i < 4; i++) {
            Eis &y = x[ntt_reverse2(i)];
            const EisFactor w = eis_factor(eis_select((e & half) != 0, eis_negative(next), next));
            e += step;
            if (i < 3) next = ntt_table(tables.full + (e & (half - 1)));
            y = eis_mul(y, w, next.a[3] & next.b[3]);
        }
        return;
    }
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (int factor = 0; factor < (direct ? 1 : 2); factor++) {
        const auto entry = [&]() { return factor == 0 ? tables.big + (e >> log_low) : tables.low + (e & ((1u << log_low) - 1)); };
        Eis next = ntt_table(entry());
        SP_UNROLL
        for (int i = 0; i < 4; i++) {
            Eis &y = x[ntt_reverse2(i)];
            const EisFactor w = eis_factor(next);
            e += step;
            if (i < 3) next = ntt_table(entry());
            y = eis_mul(y, w, next.a[3] & next.b[3]);
        }
        e -= 4 * step;
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

// The places of a thread's four elements, in bytes. What tells the elements of a level apart is two bits of the row that are zero for
// the first, and the swizzle is linear over bits: so element k's place is the first one's, with the same two constants for all threads.
struct NttPlaces {
    u32 first;
    u32 step[2];
};

static __device__ __forceinline__ NttPlaces ntt_places(const NttLayout &at, u32 level) {
    const u32 first = (ntt_position(ntt_opaque(at.u), 0, level) << at.row_shift) + (at.c << at.column_shift), bit = 16u << (level + at.row_shift);
    const auto place = [](u32 i) { return i ^ ((i >> 3) & 112) ^ ((i >> 2) & 64); };
    return NttPlaces{place(16 * first), {place(bit), place(2 * bit)}};
}

static __device__ __forceinline__ uint4 *ntt_place(const NttPlaces &at, u32 k) {
    const u32 bytes = at.first ^ (k & 1 ? at.step[0] : 0) ^ (k & 2 ? at.step[1] : 0);
    return reinterpret_cast<uint4 *>(reinterpret_cast<char *>(ntt_shared) + bytes);
}

// Hands the elements over from the rows of one level to those of another.
static __device__ __forceinline__ void ntt_exchange(Eis (&x)[4], const NttLayout &at, u32 from, u32 to) {
    const NttPlaces source = ntt_places(at, from);
    __syncthreads();
    SP_UNROLL
    for (int k = 0; k < 4; k++) {
        uint4 *const place = ntt_place(source, k);
        place[0] = make_uint4(x[k].a[0], x[k].a[1], x[k].a[2], x[k].a[3]);
        place[NTT_BLOCK] = make_uint4(x[k].b[0], x[k].b[1], x[k].b[2], x[k].b[3]);
    }
    const NttPlaces target = ntt_places(at, to);
    __syncthreads();
    SP_UNROLL
    for (int k = 0; k < 4; k++) {
        const uint4 *const place = ntt_place(target, k);
        const uint4 lo = place[0], hi = place[NTT_BLOCK];
        x[k] = Eis{{lo.x, lo.y, lo.z, lo.w}, {hi.x, hi.y, hi.z, hi.w}};
    }
}

// A column transform of 2^log_r points, rows of level log_r - 2 in, of level 0 out. A step of radix 2 comes first, where its twiddles
// are two products in four and not three.
static __device__ __forceinline__ void ntt_column_dif(Eis (&x)[4], const NttLayout &at, u32 log_r, const NttTables &tables) {
    u32 left = log_r;
    if (log_r % 2 != 0) {
        ntt_halves(x);
        ntt_half_twiddles(x, at.u, log_r, tables);
        ntt_exchange(x, at, log_r - 2, log_r - 3);
        left--;
    }
#pragma unroll 1
    while (true) {
        ntt_dif4(x, tables);
        left -= 2;
        if (left == 0) break;
        ntt_step_twiddles(x, at.u, left, tables);
        ntt_exchange(x, at, left, left - 2);
    }
}

// The transpose: rows of level 0 in, of level log_r - 2 out.
static __device__ __forceinline__ void ntt_column_dit(Eis (&x)[4], const NttLayout &at, u32 log_r, const NttTables &tables) {
    u32 done = 0;
#pragma unroll 1
    while (true) {
        if (done != 0) ntt_step_twiddles(x, at.u, done, tables);
        ntt_dit4(x, tables);
        done += 2;
        if (done + 1 >= log_r) break;
        ntt_exchange(x, at, done - 2, done);
    }
    if (log_r % 2 != 0) {
        ntt_exchange(x, at, log_r - 3, log_r - 2);
        ntt_half_twiddles(x, at.u, log_r, tables);
        ntt_halves(x);
    }
}

// What is read: in[i], or in[i] times[i] where `times` is given; zero from `length` on. Pairs of digits if `split`, else residues.
struct NttSource {
    const Fr *in;
    const Fr *times;
    u32 length;
    u32 split;
};

// Reads a thread's elements first + k stride: all of them before anything is done to one.
static __device__ __forceinline__ void ntt_read(Eis (&x)[4], const NttSource &from, u32 first, u32 stride) {
    Fr v[4];
    SP_UNROLL
    for (u32 k = 0; k < 4; k++) {
        const u32 i = first + k * stride;
        v[k] = i < from.length ? fr_load(from.in + i) : Fr{{0, 0, 0, 0, 0, 0, 0, 0}};
    }
    if (from.split) {
        SP_UNROLL
        for (int k = 0; k < 4; k++) {
            const Fr &t = v[k];
            x[k] = Eis{{t.v[0], t.v[1], t.v[2], t.v[3]}, {t.v[4], t.v[5], t.v[6], t.v[7]}};
        }
        return;
    }
    SP_UNROLL
    for (u32 k = 0; k < 4; k++) {
        const u32 i = first + k * stride;
        if (from.times != nullptr && i < from.length) v[k] = fr_mul(v[k], fr_load(from.times + i));
        x[k] = eis_split(v[k]);
    }
}

// What is written: x, or p[i] q[i] - x where those are given. Pairs of digits if `split`, else residues.
struct NttTarget {
    Fr *out;
    const Fr *p;
    const Fr *q;
    u32 split;
};

static __device__ __forceinline__ void ntt_write(const NttTarget &to, u32 i, const Eis &x) {
    if (to.split) {
        eis_store(reinterpret_cast<Eis *>(to.out) + i, x);
    } else if (to.p == nullptr) {
        fr_store(to.out + i, eis_join(x));
    } else {
        fr_store(to.out + i, fr_sub(fr_mul(fr_load(to.p + i), fr_load(to.q + i)), eis_join(x)));
    }
}

// One pass over columns of 2^log_r points, 2^log_s elements from each other: neighbouring threads hold neighbouring columns.
template <bool DIF> static __device__ __forceinline__ void ntt_columns(const NttSource &from, const NttTarget &to, const NttTables &tables, u32 log_r, u32 log_s) {
    const u32 log_c = NTT_LOG_BLOCK - log_r;
    const NttLayout at{log_c, 0, threadIdx.x & ((1u << log_c) - 1), threadIdx.x >> log_c};
    const u32 columns = 1u << (tables.log_n - log_r);
    // Computed anew at each use, for lack of registers.
    const auto again = [&]() {
#if NTT_PLACE_ANEW
        return (block_again() << log_c) + (thread_again() & ((1u << log_c) - 1));
#else
        return (blockIdx.x << log_c) + at.c;
#endif
    };
    const auto column = [&]() { return again() & ((1u << log_s) - 1); };
    const auto base = [&]() {
        const u32 i = again();
        return ((i >> log_s) << (log_s + log_r)) + (i & ((1u << log_s) - 1));
    };
    const u32 level_in = DIF ? log_r - 2 : 0, level_out = DIF ? 0 : log_r - 2;
    const u32 first = base() + (ntt_position(at.u, 0, level_in) << log_s);
    Eis x[4];
    ntt_read(x, from, first, 1u << (level_in + log_s));
    if (DIF) {
        ntt_column_dif(x, at, log_r, tables);
        ntt_pass_twiddles(x, at.u, log_r, log_s, column(), tables);
    } else {
        ntt_pass_twiddles(x, at.u, log_r, log_s, column(), tables);
        ntt_column_dit(x, at, log_r, tables);
    }
    if (again() < columns) {
        const u32 place = base() + (ntt_position(ntt_opaque(at.u), 0, level_out) << log_s);
        SP_UNROLL
        for (int k = 0; k < 4; k++) ntt_write(to, place + ((u32)k << (level_out + log_s)), x[k]);
    }
}

extern "C" __global__ void __launch_bounds__(NTT_THREADS, NTT_COLUMN_BLOCKS)
    ntt_eis_columns_dif(const Fr *in, const Fr *times, u32 length, Fr *out, const Eis *small, const Eis *big, const Eis *low, const Eis *full, u32 inverted, u32 log_n, u32 log_small, u32 log_big,
                    u32 log_r, u32 log_s, u32 form) {
    ntt_columns<true>(NttSource{in, times, length, form & 1}, NttTarget{out, nullptr, nullptr, 1}, NttTables{small, big, low, full, inverted, form & 4, log_n, log_small, log_big}, log_r, log_s);
}

extern "C" __global__ void __launch_bounds__(NTT_THREADS, NTT_COLUMN_BLOCKS)
    ntt_eis_columns_dit(const Fr *in, Fr *out, const Fr *p, const Fr *q, const Eis *small, const Eis *big, const Eis *low, const Eis *full, u32 inverted, u32 log_n, u32 log_small, u32 log_big,
                    u32 log_r, u32 log_s, u32 form) {
    ntt_columns<false>(NttSource{in, nullptr, 1u << log_n, 1}, NttTarget{out, p, q, form & 2}, NttTables{small, big, low, full, inverted, form & 8, log_n, log_small, log_big}, log_r, log_s);
}

// The pass over contiguous rows of 2^log_r points, neighbouring threads holding neighbouring elements: a DIF with the tables of one
// root (`do_dif`), a factor per coefficient, a DIT with the tables of another (`do_dit`). The element at place p of the whole vector
// is coefficient i = reverse(p); its factor is scale_high[i >> log_low] scale_low[i mod 2^log_low] where scale_high is given, else
// scale_low[0] where scale_low is given, else 1. Bit 0 of `form`: what is read is pairs of digits; bit 1: so is what is written; bits 2
// and 3: the roots of the DIF and the DIT are `negative`.
extern "C" __global__ void __launch_bounds__(NTT_THREADS, 4)
    ntt_eis_rows(const Fr *in, const Fr *times, u32 length, Fr *out, const Fr *p, const Fr *q, const Eis *dif_small, const Eis *dit_small, u32 log_n, u32 log_small,
             u32 log_r, u32 do_dif, u32 do_dit, const Eis *scale_high, const Eis *scale_low, u32 log_low, u32 form) {
    const u32 log_t = log_r - 2;
    const NttLayout at{0, log_r, threadIdx.x >> log_t, threadIdx.x & ((1u << log_t) - 1)};
    const u32 count = 1u << (log_n - log_r);
    const auto again = [&]() {
#if NTT_PLACE_ANEW
        return (block_again() << (NTT_LOG_BLOCK - log_r)) + (thread_again() >> log_t);
#else
        return (blockIdx.x << (NTT_LOG_BLOCK - log_r)) + at.c;
#endif
    };
    const auto base = [&]() { return again() << log_r; };
    const NttSource from{in, times, length, form & 1};
    Eis x[4];
    ntt_read(x, from, base() + ntt_position(at.u, 0, log_t), 1u << log_t);
    if (do_dif) {
        ntt_column_dif(x, at, log_r, NttTables{dif_small, nullptr, nullptr, nullptr, 0, form & 4, log_n, log_small, 0});
    } else {
        ntt_exchange(x, at, log_t, 0);
    }
    if (scale_low != nullptr && again() < count) {
#pragma unroll 1
        for (int factor = scale_high == nullptr ? 1 : 0; factor < 2; factor++) {
            SP_UNROLL
            for (int k = 0; k < 4; k++) {
                const u32 i = ntt_reverse((again() << log_r) + 4 * ntt_opaque(at.u) + k, log_n);
                const Eis *entry = factor == 0 ? scale_high + (i >> log_low) : scale_low + (scale_high == nullptr ? 0 : i & ((1u << log_low) - 1));
                x[k] = eis_mul(x[k], eis_factor(ntt_table(entry)));
            }
        }
    }
    if (do_dit) {
        ntt_column_dit(x, at, log_r, NttTables{dit_small, nullptr, nullptr, nullptr, 0, form & 8, log_n, log_small, 0});
    } else {
        ntt_exchange(x, at, 0, log_t);
    }
    if (again() < count) {
        const NttTarget to{out, p, q, form & 2};
        SP_UNROLL
        for (int k = 0; k < 4; k++) ntt_write(to, base() + ntt_position(ntt_opaque(at.u), k, log_t), x[k]);
    }
}

// Makes entries of a table, in place, out of factors in Montgomery form. With `turned` the same times rho follow, `count` again.
extern "C" __global__ void ntt_eis_entries(Fr *table, u64 count, u32 turned) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Eis w = eis_entry(fr_load(table + i));
    eis_store(reinterpret_cast<Eis *>(table) + i, w);
    if (turned) eis_store(reinterpret_cast<Eis *>(table) + count + i, eis_factor(w).turned);
}
