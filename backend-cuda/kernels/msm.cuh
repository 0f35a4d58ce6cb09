// Multi-exponentiation, second half: sorted (bucket, base) pairs to a few points, for any field of `curve.cuh`.
//
// 1. accumulate: the pairs are cut evenly among the threads, whatever the bucket sizes, so a skewed witness costs no more than a random
//    one. A thread adds up its run of each bucket; the thread in which a bucket begins owns it and adds to the bucket in memory, the
//    others leave a *head*: their part of a bucket that began before them.
// 2. fold_heads: heads are a sorted list again, shorter by the run length; the same cut repeats until none is left.
// 3. reduce_runs: per run of K buckets the plain sum and the weighted sum, by running sums.
// 4. sum_planes: with runs r = 0 .. R-1, the total is sum(weighted_r) + K sum(r sum_r), and the latter is split by the bits of r, so
//    that everything left is plain sums: tree-shaped, log-depth. One point per bit goes to the host.
//
// Threads that share a field element (`LANES`) stay together, and all loops have the same number of turns across a warp.
#pragma once
#include "curve.cuh"

#define MSM_NO_KEY 0xffffffffu

// This thread's place among groups of LANES threads.
template <class F> SP_FN u32 group_index() {
    return (blockIdx.x * blockDim.x + threadIdx.x) / Field<F>::LANES;
}

template <class F> SP_FN u32 group_count() {
    return gridDim.x * blockDim.x / Field<F>::LANES;
}

template <class F> SP_FN size_t xyzz_bytes() {
    return 4 * Field<F>::BYTES;
}

SP_FN void prefetch(const char *p) {
#if SP_PTX
    asm volatile("prefetch.global.L2 [%0];" : : "l"(p));
#endif
}

// Where virtual base index i lies: two tables, the second from index `split` on.
struct Bases {
    const char *first, *second;
    u32 split;
};

template <class F> SP_FN const char *base_address(const Bases &b, u32 low) {
    const u32 i = low & 0x7fffffffu;
    const size_t size = 2 * Field<F>::BYTES;
    return i < b.split ? b.first + (size_t)i * size : b.second + (size_t)(i - b.split) * size;
}

// Writes a finished run: to its bucket, or as this thread's head.
template <class F>
SP_FN void flush_run(u32 key, bool head, const Xyzz<F> &acc, char *buckets, u32 *head_keys, char *heads, u32 me) {
    if (key == MSM_NO_KEY) return;
    if (head) {
        xyzz_store(heads + (size_t)me * xyzz_bytes<F>(), acc);
        head_keys[me] = key;
    } else {
        xyzz_store(buckets + (size_t)key * xyzz_bytes<F>(), acc);
    }
}

template <class F>
SP_FN void msm_accumulate(const u64 *pairs, const u32 *pair_count, const Bases &bases, char *buckets, u32 *head_keys, char *heads) {
    const u32 total = *pair_count, me = group_index<F>(), groups = group_count<F>();
    const u32 per = total / groups + (total % groups != 0);
    const u64 begin = (u64)me * per;
    const u32 from = (u32)(begin < total ? begin : total);
    const u32 count = total - from < per ? total - from : per;
    head_keys[me] = MSM_NO_KEY;

    u32 key = MSM_NO_KEY;
    bool head = false;
    Xyzz<F> acc = xyzz_infinity<F>();
    u64 next = count > 0 ? pairs[from] : 0;
    const bool continued = count > 0 && from > 0 && (u32)(pairs[from - 1] >> 32) == (u32)(next >> 32);
    for (u32 i = 0; i < per; i++) {
        const bool valid = i < count;
        const u64 pair = next;
        if (i + 1 < count) {
            next = pairs[from + i + 1];
            const char *p = base_address<F>(bases, (u32)next);
            prefetch(p);
            prefetch(p + 2 * Field<F>::BYTES - 16);
        }
        if (valid && (u32)(pair >> 32) != key) {
            flush_run<F>(key, head, acc, buckets, head_keys, heads, me);
            key = (u32)(pair >> 32);
            head = i == 0 && continued;
            acc = head ? xyzz_infinity<F>() : xyzz_load<F>(buckets + (size_t)key * xyzz_bytes<F>());
        }
        const u32 low = valid ? (u32)pair : 0;
        const char *address = base_address<F>(bases, low);
        Affine<F> p = affine_load<F>(address);
        p.y = select(low >> 31, neg(p.y), p.y);
        xyzz_add_affine(acc, p, !valid, [&]() {
            Affine<F> again = affine_load_again<F>(address);
            again.y = select(low >> 31, neg(again.y), again.y);
            return again;
        });
    }
    flush_run<F>(key, head, acc, buckets, head_keys, heads, me);
}

// `count` heads of an earlier pass, `per` to a group.
template <class F>
SP_FN void msm_fold_heads(const u32 *in_keys, const char *in_heads, u32 count, u32 per, char *buckets, u32 *head_keys, char *heads) {
    const u32 me = group_index<F>();
    const u32 groups = (count + per - 1) / per;
    const u32 from = me * per;
    u32 key = MSM_NO_KEY;
    bool head = false;
    Xyzz<F> acc = xyzz_infinity<F>();
    if (me < groups) head_keys[me] = MSM_NO_KEY;
    for (u32 i = 0; i < per; i++) {
        const u32 at = from + i;
        const u32 mine = me < groups && at < count ? in_keys[at] : MSM_NO_KEY;
        const bool valid = mine != MSM_NO_KEY;
        if (Field<F>::LANES == 1 ? !valid : !Field<F>::any(valid)) continue;
        if (valid && mine != key) {
            flush_run<F>(key, head, acc, buckets, head_keys, heads, me);
            key = mine;
            head = i == 0 && from > 0 && in_keys[from - 1] == mine;
            acc = head ? xyzz_infinity<F>() : xyzz_load<F>(buckets + (size_t)key * xyzz_bytes<F>());
        }
        Xyzz<F> p = xyzz_infinity<F>();
        if (valid) p = xyzz_load<F>(in_heads + (size_t)at * xyzz_bytes<F>());
        xyzz_add(acc, p);
    }
    flush_run<F>(key, head, acc, buckets, head_keys, heads, me);
}

// Runs of 2^log_run buckets, `runs` of them: sums[r] = sum of the run's buckets, weighted[r] = sum of (place in the run + 1) times bucket.
template <class F> SP_FN void msm_reduce_runs(const char *buckets, u32 runs, u32 log_run, char *sums, char *weighted) {
    const u32 me = group_index<F>(), run = me < runs ? me : runs - 1;
    Xyzz<F> sum = xyzz_infinity<F>(), weight = xyzz_infinity<F>();
    for (u32 k = 1u << log_run; k-- > 0;) {
        const Xyzz<F> b = xyzz_load<F>(buckets + (((size_t)run << log_run) + k) * xyzz_bytes<F>());
        xyzz_add(sum, b);
        xyzz_add(weight, sum);
    }
    if (me < runs) {
        xyzz_store(sums + (size_t)me * xyzz_bytes<F>(), sum);
        xyzz_store(weighted + (size_t)me * xyzz_bytes<F>(), weight);
    }
}

#define MSM_SUM_THREADS 128

// One block's sum of its share of plane blockIdx.y of set blockIdx.z. Plane 0 is `weighted`; plane b + 1 is those of `sums` whose index has
// bit b set. out[set][plane][block].
template <class F>
SP_FN void sum_block(Xyzz<F> acc, char *shared, char *out) {
    const u32 groups = MSM_SUM_THREADS / Field<F>::LANES, me = threadIdx.x / Field<F>::LANES;
    for (u32 half = groups / 2; half > 0; half >>= 1) {
        __syncthreads();
        xyzz_store(shared + me * xyzz_bytes<F>(), acc);
        __syncthreads();
        Xyzz<F> other = xyzz_infinity<F>();
        if (me < half) other = xyzz_load<F>(shared + (me + half) * xyzz_bytes<F>());
        if (Field<F>::LANES == 2 || me < half) xyzz_add(acc, other);
    }
    if (me == 0) xyzz_store(out, acc);
}

template <class F> SP_FN void msm_sum_planes(const char *sums, const char *weighted, u32 log_runs, char *shared, char *out) {
    const u32 plane = blockIdx.y, set = blockIdx.z, groups = group_count<F>();
    const u32 count = plane == 0 ? 1u << log_runs : 1u << (log_runs - 1);
    const char *in = (plane == 0 ? weighted : sums) + ((size_t)set << log_runs) * xyzz_bytes<F>();
    Xyzz<F> acc = xyzz_infinity<F>();
    const u32 turns = (count + groups - 1) / groups;
    for (u32 k = 0; k < turns; k++) {
        const u32 q = k * groups + group_index<F>();
        u32 r = q;
        if (plane > 0) {
            const u32 bit = plane - 1;
            r = (q >> bit) << (bit + 1) | 1u << bit | (q & ((1u << bit) - 1));
        }
        Xyzz<F> p = xyzz_infinity<F>();
        if (q < count) p = xyzz_load<F>(in + (size_t)r * xyzz_bytes<F>());
        xyzz_add(acc, p);
    }
    sum_block(acc, shared, out + (((size_t)set * gridDim.y + plane) * gridDim.x + blockIdx.x) * xyzz_bytes<F>());
}

// out[row] = sum of in[row][0 .. count), one block per row, in Jacobian form: (X ZZ^2, Y ZZZ^2, ZZZ), infinity with Z = 0.
template <class F> SP_FN void msm_sum_rows(const char *in, u32 count, char *shared, char *out) {
    const u32 groups = MSM_SUM_THREADS / Field<F>::LANES, me = threadIdx.x / Field<F>::LANES;
    Xyzz<F> acc = xyzz_infinity<F>();
    const u32 turns = (count + groups - 1) / groups;
    for (u32 k = 0; k < turns; k++) {
        const u32 at = k * groups + me;
        Xyzz<F> p = xyzz_infinity<F>();
        if (at < count) p = xyzz_load<F>(in + ((size_t)blockIdx.x * count + at) * xyzz_bytes<F>());
        xyzz_add(acc, p);
    }
    __syncthreads();
    sum_block(acc, shared, shared);
    __syncthreads();
    const Xyzz<F> total = xyzz_load<F>(shared);
    const bool infinite = is_zero(total.zz);
    const F x = mul(total.x, sqr(total.zz)), y = mul(total.y, sqr(total.zzz));
    const F z = select(infinite, Field<F>::zero(), total.zzz);
    if (me == 0) {
        char *to = out + (size_t)blockIdx.x * 3 * Field<F>::BYTES;
        Field<F>::store(to, x);
        Field<F>::store(to + Field<F>::BYTES, y);
        Field<F>::store(to + 2 * Field<F>::BYTES, z);
    }
}

#define MSM_SHIFT_BATCH 8

// to[i] = 2^doublings from[i], affine; one inversion for MSM_SHIFT_BATCH points.
template <class F> SP_FN void msm_shift_bases(const char *from, char *to, u32 count, u32 doublings) {
    const u32 me = group_index<F>(), groups = group_count<F>();
    const size_t size = 2 * Field<F>::BYTES;
    Xyzz<F> p[MSM_SHIFT_BATCH];
    F before[MSM_SHIFT_BATCH];
    F product = Field<F>::one();
    for (u32 k = 0; k < MSM_SHIFT_BATCH; k++) {
        const u32 i = k * groups + me;
        Affine<F> a{Field<F>::zero(), Field<F>::zero()};
        if (i < count) a = affine_load<F>(from + (size_t)i * size);
        p[k] = xyzz_from_affine(a);
        for (u32 d = 0; d < doublings; d++) {
            const Xyzz<F> once = p[k];
            xyzz_dbl(p[k], once);
        }
        before[k] = product;
        const bool infinite = is_zero(p[k].zz);
        product = select(infinite, product, mul(product, p[k].zzz));
    }
    F inverse = inv(product);
    for (u32 k = MSM_SHIFT_BATCH; k-- > 0;) {
        const u32 i = k * groups + me;
        const bool infinite = is_zero(p[k].zz);
        const F one_over = mul(inverse, before[k]);
        inverse = select(infinite, inverse, mul(inverse, p[k].zzz));
        const F t = mul(p[k].zz, one_over);
        const F x = mul(p[k].x, sqr(t)), y = mul(p[k].y, one_over);
        const Affine<F> a{select(infinite, Field<F>::zero(), x), select(infinite, Field<F>::zero(), y)};
        if (i < count) affine_store(to + (size_t)i * size, a);
    }
}
