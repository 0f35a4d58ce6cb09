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

#define MSM_THREADS 128

// `me`, which is a thread's group: where the compiler would spill it for the whole of the additions (sm_80, sm_100), read anew.
template <class F> SP_FN u32 group_index_again(u32 me) {
#if SP_PTX && (__CUDA_ARCH__ == 800 || __CUDA_ARCH__ / 100 == 10)
    return (block_again() * MSM_THREADS + thread_again()) / Field<F>::LANES;
#else
    return me;
#endif
}

// The base at `address`, negated if `negative`.
template <class F> SP_FN Affine<F> signed_base(const char *address, bool negative) {
    Affine<F> p = affine_load<F>(address);
    p.y = select(negative, neg(p.y), p.y);
    return p;
}

template <class F> SP_FN Affine<F> signed_base_again(const char *address, bool negative) {
    Affine<F> p = affine_load_again<F>(address);
    p.y = select(negative, neg(p.y), p.y);
    return p;
}

// The sum of a run in progress. `add_base` adds the base at `address` unless `skip`, by madd-2008-s and with the cases that it leaves out:
// either point infinite, and both equal, for which the base is read again and doubled. For opposite points the formula's ZZ is zero.
//
// G1 and G2 are limited by different things (measured on an H200). In G1 straight code of ten multiplications overflows the instruction
// caches, and registers leave too few warps to hide latency: so the additions are loops of one multiplication, and most of the sum waits in
// shared memory (a quarter faster). In G2 a product is so long that neither matters, and both devices cost more than they bring.
template <class F> struct RunningSum;

// Field elements of one thread in shared memory. Word order keeps a warp's accesses free of bank conflicts; they are volatile, since
// the compiler would keep the values in registers otherwise.
struct Stash {
    uint4 *words;

    SP_FN uint4 *at(int slot, int k) const {
        return words + (slot * 3 + k) * MSM_THREADS + threadIdx.x;
    }

    SP_FN Fp get(int slot) const {
        Fp a;
        SP_UNROLL
        for (int k = 0; k < 3; k++) {
            u32 *v = a.v + 4 * k;
#if SP_PTX
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                         : "r"((u32)__cvta_generic_to_shared(at(slot, k))));
#else
            const uint4 w = *at(slot, k);
            v[0] = w.x, v[1] = w.y, v[2] = w.z, v[3] = w.w;
#endif
        }
        return a;
    }

    SP_FN void put(int slot, const Fp &a) const {
        SP_UNROLL
        for (int k = 0; k < 3; k++) {
            const u32 *v = a.v + 4 * k;
#if SP_PTX
            asm volatile("st.shared.v4.u32 [%4], {%0, %1, %2, %3};"
                         :
                         : "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"((u32)__cvta_generic_to_shared(at(slot, k))));
#else
            *at(slot, k) = make_uint4(v[0], v[1], v[2], v[3]);
#endif
        }
    }
};

template <> struct RunningSum<Fp> {
    // Places in the stash: all of the sum but X, and what an addition needs late.
    enum { ZZ, ZZZ, Y, R, RR, SLOTS };
    // Shared memory of a block, in 16-byte words.
    static const int WORDS = SLOTS * 3 * MSM_THREADS;

    Fp x;
    Stash stash;

    SP_FN explicit RunningSum(uint4 *shared) : x(fp_zero()), stash{shared} {
        set(xyzz_infinity<Fp>());
    }

    SP_FN void set(const Xyzz<Fp> &sum) {
        x = sum.x;
        stash.put(Y, sum.y);
        stash.put(ZZ, sum.zz);
        stash.put(ZZZ, sum.zzz);
    }

    SP_FN Xyzz<Fp> get() const {
        return Xyzz<Fp>{x, stash.get(Y), stash.get(ZZ), stash.get(ZZZ)};
    }

    SP_FN void add_base(const char *address, bool negative, bool skip) {
        const Affine<Fp> p = signed_base<Fp>(address, negative);
        if (skip || affine_is_infinity(p)) return;
        if (is_zero(stash.get(ZZ))) {
            set(xyzz_from_affine(p));
        } else if (add_finite(p)) {
            Xyzz<Fp> twice;
            xyzz_dbl_affine(twice, signed_base_again<Fp>(address, negative));
            set(twice);
        }
    }

    // Sum += p for neither infinite; whether they were equal, in which case the result means nothing.
    SP_FN bool add_finite(const Affine<Fp> &p) {
        Fp t = x, PP = x; // t is first P, then Q
        bool equal = true;
        SP_NO_UNROLL
        for (int k = 0; k < 2; k++) {
            const Fp d = sub(mul(k == 0 ? p.x : p.y, stash.get(k == 0 ? ZZ : ZZZ)), k == 0 ? x : stash.get(Y));
            equal = equal && is_zero(d);
            const Fp square = sqr(d);
            if (k == 0) {
                t = d;
                PP = square;
            } else {
                stash.put(R, d);
                stash.put(RR, square);
            }
        }
        Fp PPP = PP;
        SP_NO_UNROLL
        for (int k = 0; k < 4; k++) {
            // PPP = P PP, Q = X PP, ZZ PP, ZZZ PPP.
            const Fp product = mul(k == 0 ? t : k == 1 ? x : stash.get(k == 2 ? ZZ : ZZZ), k == 3 ? PPP : PP);
            if (k == 0)
                PPP = product;
            else if (k == 1)
                t = product;
            else
                stash.put(k == 2 ? ZZ : ZZZ, product);
        }
        x = sub(sub(sub(stash.get(RR), PPP), t), t);
        stash.put(Y, mul_sub(stash.get(R), sub(t, x), stash.get(Y), PPP));
        return equal;
    }
};

#if SP_PTX || defined(SP_EMULATE)
template <> struct RunningSum<Fp2Lane> {
    typedef Fp2Lane F;
    static const int WORDS = 1;

    Xyzz<F> sum;

    SP_FN explicit RunningSum(uint4 *) : sum(xyzz_infinity<F>()) {}

    SP_FN void set(const Xyzz<F> &value) {
        sum = value;
    }

    SP_FN Xyzz<F> get() const {
        return sum;
    }

    // The whole warp adds; where nothing should be added, ZZ and ZZZ are multiplied by 1 and X and Y taken back.
    SP_FN void add_base(const char *address, bool negative, bool skip) {
        const Affine<F> p = signed_base<F>(address, negative);
        const bool ignore = affine_is_infinity(p) || skip;
        const bool start = is_zero(sum.zz) && !ignore;
        const bool keep = ignore || start;
        const F one = Field<F>::one();
        sum = xyzz_select(start, Xyzz<F>{p.x, p.y, one, one}, sum);

        const F P = sub(mul(p.x, sum.zz), sum.x);
        const F R = sub(mul(p.y, sum.zzz), sum.y);
        const bool same_x = is_zero(P), same_y = is_zero(R);
        const bool doubling = same_x && same_y && !keep;
        const F PP = sqr(P);
        sum.zz = mul(sum.zz, select(keep, one, PP));
        const F PPP = mul(P, PP);
        sum.zzz = mul(sum.zzz, select(keep, one, PPP));
        const F Q = mul(sum.x, PP);
        const F x = sub(sub(sub(sqr(R), PPP), Q), Q);
        const F y = mul_sub(R, sub(Q, x), sum.y, PPP);
        sum.x = select(keep, sum.x, x);
        sum.y = select(keep, sum.y, y);
        if (Field<F>::any(doubling)) {
            Xyzz<F> twice;
            xyzz_dbl_affine(twice, signed_base_again<F>(address, negative));
            sum = xyzz_select(doubling, twice, sum);
        }
    }
};
#endif

// Writes a finished run: to its bucket, or as this thread's head.
template <class F>
SP_FN void flush_run(u32 key, bool head, const Xyzz<F> &acc, char *buckets, u32 *head_keys, char *heads, u32 me) {
    if (head) {
        xyzz_store(heads + (size_t)me * xyzz_bytes<F>(), acc);
        head_keys[me] = key;
    } else {
        xyzz_store(buckets + (size_t)key * xyzz_bytes<F>(), acc);
    }
}

// The list of pairs: `list` holds the rounds of affine additions that it goes through, and its length. With rounds, sums of 2^rounds pairs each are
// what is accumulated, in as few parts as have room for their sums and are of even size; without, the pairs themselves, and all of them are part 0.
struct List {
    const u64 *pairs;
    const u32 *list;
    u32 part, room;

    SP_FN u32 rounds() const {
        return list[0];
    }

    // Numbers of this part's sums, or pairs: [first, first + count).
    SP_FN void range(u32 &first, u32 &count) const {
        const u32 all = list[1] >> rounds(), parts = rounds() == 0 || all <= room ? 1 : all / room + (all % room != 0);
        const u32 size = all / parts + (all % parts != 0);
        first = part * size;
        count = part >= parts || first >= all ? 0 : all - first < size ? all - first : size;
    }

    SP_FN u64 pair(u32 i) const {
        return pairs[(u64)i << rounds()];
    }
};

// `sums` are those of this part of the list.
template <class F>
SP_FN void msm_accumulate(const List &list, const char *sums, const Bases &bases, char *buckets, u32 *head_keys, char *heads,
                          uint4 *shared) {
    u32 first, total;
    list.range(first, total);
    const u32 me = group_index<F>(), groups = group_count<F>();
    const bool summed = list.rounds() != 0;
    const auto address = [&](u32 i, u32 low) {
        return summed ? sums + (size_t)i * 2 * Field<F>::BYTES : base_address<F>(bases, low);
    };
    const u32 per = total / groups + (total % groups != 0);
    const u64 begin = (u64)me * per;
    const u32 from = (u32)(begin < total ? begin : total);
    const u32 count = total - from < per ? total - from : per;
    head_keys[me] = MSM_NO_KEY;

    u32 key = MSM_NO_KEY;
    bool head = false;
    RunningSum<F> sum(shared);
    u64 next = count > 0 ? list.pair(first + from) : 0;
    const bool continued = count > 0 && from > 0 && (u32)(list.pair(first + from - 1) >> 32) == (u32)(next >> 32);
    for (u32 i = 0; i < per; i++) {
        const bool valid = i < count;
        const u64 pair = next;
        if (i + 1 < count) {
            next = list.pair(first + from + i + 1);
            const char *p = address(from + i + 1, (u32)next);
            prefetch(p);
            prefetch(p + 2 * Field<F>::BYTES - 16);
        }
        if (valid && (u32)(pair >> 32) != key) {
            if (key != MSM_NO_KEY) flush_run<F>(key, head, sum.get(), buckets, head_keys, heads, group_index_again<F>(me));
            key = (u32)(pair >> 32);
            head = i == 0 && continued;
            sum.set(head ? xyzz_infinity<F>() : xyzz_load<F>(buckets + (size_t)key * xyzz_bytes<F>()));
        }
        const u32 low = valid ? (u32)pair : 0;
        sum.add_base(address(valid ? from + i : 0, low), !summed && low >> 31, !valid);
    }
    if (key != MSM_NO_KEY) flush_run<F>(key, head, sum.get(), buckets, head_keys, heads, group_index_again<F>(me));
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
            if (key != MSM_NO_KEY) flush_run<F>(key, head, acc, buckets, head_keys, heads, me);
            key = mine;
            head = i == 0 && from > 0 && in_keys[from - 1] == mine;
            acc = head ? xyzz_infinity<F>() : xyzz_load<F>(buckets + (size_t)key * xyzz_bytes<F>());
        }
        Xyzz<F> p = xyzz_infinity<F>();
        if (valid) p = xyzz_load<F>(in_heads + (size_t)at * xyzz_bytes<F>());
        xyzz_add(acc, p);
    }
    if (key != MSM_NO_KEY) flush_run<F>(key, head, acc, buckets, head_keys, heads, me);
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

// The sum over a block's groups, of which the first `used` have something to add; group 0 writes it.
template <class F>
SP_FN void sum_block(Xyzz<F> acc, u32 used, char *shared, char *out) {
    const u32 me = threadIdx.x / Field<F>::LANES;
    u32 half = MSM_THREADS / Field<F>::LANES / 2;
    while (half >= used && half > 0) half >>= 1;
    for (; half > 0; half >>= 1) {
        __syncthreads();
        xyzz_store(shared + me * xyzz_bytes<F>(), acc);
        __syncthreads();
        Xyzz<F> other = xyzz_infinity<F>();
        if (me < half) other = xyzz_load<F>(shared + (me + half) * xyzz_bytes<F>());
        if (Field<F>::LANES == 2 || me < half) xyzz_add(acc, other);
    }
    if (me == 0) xyzz_store(out, acc);
}

// log2 of the runs of each set, one byte each.
struct LogRuns {
    u32 v[8];

    SP_FN u32 of(u32 set) const {
        return v[set >> 2] >> (set & 3) * 8 & 255;
    }
};

// One block's sum of its share of plane blockIdx.y of set blockIdx.z. Plane 0 is `weighted`; plane b + 1 is those of `sums` whose index has
// bit b set: none in a set of fewer runs. out[set][plane][block].
template <class F> SP_FN void msm_sum_planes(const char *sums, const char *weighted, const LogRuns &log_runs, char *shared, char *out) {
    const u32 plane = blockIdx.y, set = blockIdx.z, groups = group_count<F>(), log = log_runs.of(set);
    const u32 count = plane == 0 ? 1u << log : plane <= log ? 1u << (log - 1) : 0;
    size_t first = 0;
    for (u32 s = 0; s < set; s++) first += (size_t)1 << log_runs.of(s);
    const char *in = (plane == 0 ? weighted : sums) + first * xyzz_bytes<F>();
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
    sum_block(acc, MSM_THREADS, shared, out + (((size_t)set * gridDim.y + plane) * gridDim.x + blockIdx.x) * xyzz_bytes<F>());
}

// out[row] = sum of in[row][0 .. count), one block per row, in Jacobian form: (X ZZ^2, Y ZZZ^2, ZZZ), infinity with Z = 0.
template <class F> SP_FN void msm_sum_rows(const char *in, u32 count, char *shared, char *out) {
    const u32 groups = MSM_THREADS / Field<F>::LANES, me = threadIdx.x / Field<F>::LANES;
    Xyzz<F> acc = xyzz_infinity<F>();
    const u32 turns = (count + groups - 1) / groups;
    for (u32 k = 0; k < turns; k++) {
        const u32 at = k * groups + me;
        Xyzz<F> p = xyzz_infinity<F>();
        if (at < count) p = xyzz_load<F>(in + ((size_t)blockIdx.x * count + at) * xyzz_bytes<F>());
        xyzz_add(acc, p);
    }
    sum_block(acc, count, shared, shared);
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
