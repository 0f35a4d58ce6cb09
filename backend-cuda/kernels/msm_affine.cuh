// Multi-exponentiation, between the two halves: neighbours in the sorted list are added in affine coordinates, two by two, so that
// an eighth (or a quarter) of the points is left for the buckets' running sums.
//
// An affine addition takes five products and a square against the ten of a mixed one, if its inversion is shared. A warp takes a tile of the
// list. Per round and pass, each lane multiplies up the denominators of its additions, inverts the product, and walks back from the last
// addition to the first. The sums are the next round's points; those of the last round go out. Warps never wait for one another: while one
// inverts, which the multiplier has little part in, the others multiply.
//
// The list is padded (`msm_sort.cu`) so that a bucket's pairs are a multiple of what becomes one sum: no addition crosses buckets, and
// where a sum lies follows from its number. Every addition is complete: nothing, infinity, P + P and P - P included.
#pragma once
#include "fp_invert.cuh"
#include "msm.cuh"

// Low half of a pair that only pads its bucket.
#define MSM_NOTHING 0xffffffffu

// Additions of one pass: those of a lane are from + lane + 32 k.
SP_FN u32 affine_lane() {
    return threadIdx.x & 31;
}

// What becomes of an addition: the two points' sum, one of them, infinity, or twice the first.
enum AffineCase { AFFINE_SUM, AFFINE_FIRST, AFFINE_SECOND, AFFINE_INFINITY, AFFINE_TWICE };

// Two points to be added: where they lie, or null for nothing, and whether they are negated.
struct AffineInput {
    const char *a, *b;
    bool minus_a, minus_b;
};

// One round of a tile. In the first, points are what `pairs` say; later, the sums of the round before, each at the place of its first input.
template <class F> struct AffineRound {
    // Bytes of a point.
    static const int POINT = 2 * Field<F>::BYTES;

    const u64 *pairs;
    Bases bases;
    char *sums;
    u32 round, count;

    SP_FN char *sum_at(u32 j, u32 round) const {
        return sums + ((size_t)j << (round - 1)) * POINT;
    }

    // The pairs of addition j. They are asked for well before `input` needs them.
    SP_FN uint4 two_pairs(u32 j) const {
        if (round > 1 || j >= count) return make_uint4(MSM_NOTHING, 0, MSM_NOTHING, 0);
        return reinterpret_cast<const uint4 *>(pairs)[j];
    }

    SP_FN AffineInput input(u32 j, const uint4 &two) const {
        AffineInput in{nullptr, nullptr, false, false};
        if (round == 1) {
            if (two.x != MSM_NOTHING) in.a = base_address<F>(bases, two.x);
            if (two.z != MSM_NOTHING) in.b = base_address<F>(bases, two.z);
            in.minus_a = two.x >> 31;
            in.minus_b = two.z >> 31;
        } else if (j < count) {
            in.a = sum_at(2 * j, round - 1);
            in.b = sum_at(2 * j + 1, round - 1);
        }
        return in;
    }
};

// No coordinate has this highest limb: x of nothing, and of infinity between rounds.
SP_FN Fp affine_nothing() {
    Fp x = fp_zero();
    x.v[FP_LIMBS - 1] = 0xffffffffu;
    return x;
}

SP_FN bool is_nothing(const Fp &x) {
    return x.v[FP_LIMBS - 1] == 0xffffffffu;
}

// The case of two points with equal x, or one with x = 0; the denominator of twice the first.
template <class F> SP_COLD AffineCase affine_rare(const char *a, const char *b, bool minus_a, bool minus_b, F &twice_y) {
    const Affine<F> p = signed_base_again<F>(a, minus_a), q = signed_base_again<F>(b, minus_b);
    if (affine_is_infinity(p)) return affine_is_infinity(q) ? AFFINE_INFINITY : AFFINE_SECOND;
    if (affine_is_infinity(q)) return AFFINE_FIRST;
    if (!eq(p.x, q.x)) return AFFINE_SUM;
    // A point of order two would have no inverse to share.
    if (!eq(p.y, q.y) || is_zero(p.y)) return AFFINE_INFINITY;
    twice_y = add(p.y, p.y);
    return AFFINE_TWICE;
}

// The case, and what is to be inverted for it: never zero.
SP_FN AffineCase affine_denominator(const AffineInput &in, const Fp &x1, const Fp &x2, Fp &d) {
    const bool none1 = is_nothing(x1), none2 = is_nothing(x2);
    AffineCase which = none1 ? (none2 ? AFFINE_INFINITY : AFFINE_SECOND) : none2 ? AFFINE_FIRST : AFFINE_SUM;
    d = sub(x2, x1);
    // The lowest limbs tell the rare cases well enough: what they let through by chance comes back as a sum.
    if (which == AFFINE_SUM && (d.v[0] == 0 || x1.v[0] == 0 || x2.v[0] == 0)) {
        Fp twice_y;
        which = affine_rare(in.a, in.b, in.minus_a, in.minus_b, twice_y);
        if (which == AFFINE_TWICE) d = twice_y;
    }
    d = select(which == AFFINE_SUM || which == AFFINE_TWICE, d, fp_one());
    return which;
}

// 3 x^2, the numerator of twice a point.
SP_COLD Fp affine_three_squares(const char *at) {
    const Fp s = sqr_called(fp_load_again(at));
    return add(add(s, s), s);
}

// What a thread keeps in shared memory. Points are on their way to it while the multiplier works: those of the next addition, once
// the last use of the present one's is past. (Prefetching them to the L2 cache instead let half of them be evicted again.)
enum { AFFINE_X1, AFFINE_X2, AFFINE_Y1, AFFINE_Y2, AFFINE_BEFORE, AFFINE_INVERSE, AFFINE_FACTOR, AFFINE_SLOTS };
#define AFFINE_SHARED_WORDS (AFFINE_SLOTS * 3 * MSM_THREADS)

// Copies run beside the arithmetic from Ampere on; before, they are loads and stores.
#if SP_PTX
#define AFFINE_ASYNC (__CUDA_ARCH__ >= 800)
#else
#define AFFINE_ASYNC 0
#endif

// Starts the copy of a field element to a slot; nothing for null. `stride` is the distance of its 16-byte words.
SP_FN void stage(const Stash &stash, int slot, const char *from, size_t stride = 16) {
    if (!from) return;
#if AFFINE_ASYNC
    SP_UNROLL
    for (int k = 0; k < 3; k++)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16;"
                     :
                     : "r"((u32)__cvta_generic_to_shared(stash.at(slot, k))), "l"(from + k * stride));
#else
    Fp a;
    SP_UNROLL
    for (int k = 0; k < 3; k++) {
        const uint4 w = *reinterpret_cast<const uint4 *>(from + k * stride);
        a.v[4 * k] = w.x, a.v[4 * k + 1] = w.y, a.v[4 * k + 2] = w.z, a.v[4 * k + 3] = w.w;
    }
    stash.put(slot, a);
#endif
}

// Copies started so far and not yet in a batch are one.
SP_FN void stage_batch() {
#if AFFINE_ASYNC
    asm volatile("cp.async.commit_group;");
#endif
}

// Waits until at most the last `PENDING` batches are still on their way.
template <int PENDING> SP_FN void stage_wait() {
#if AFFINE_ASYNC
    asm volatile("cp.async.wait_group %0;" : : "n"(PENDING));
#endif
}

SP_FN Fp staged_x(const Stash &stash, int slot, const char *from) {
    return from ? stash.get(slot) : affine_nothing();
}

// Canonical, also for y = 0: infinity beside nothing stays as it is, and must be known as infinity in the next round.
SP_FN Fp staged_y(const Stash &stash, int slot, const char *from, bool minus) {
    if (!from) return fp_zero();
    const Fp y = stash.get(slot);
    return select(minus, neg(y), y);
}

// Products of one lane's denominators before each addition, in device memory.
struct AffineProducts {
    uint4 *words;

    static const size_t STRIDE = 32 * sizeof(uint4);

    SP_FN uint4 *at(u32 k) const {
        return words + k * 3 * 32 + affine_lane();
    }

    SP_FN void put(u32 k, const Fp &a) const {
        SP_UNROLL
        for (int q = 0; q < 3; q++) at(k)[q * 32] = make_uint4(a.v[4 * q], a.v[4 * q + 1], a.v[4 * q + 2], a.v[4 * q + 3]);
    }
};

// The product of this lane's denominators in a pass of `per` additions. Products stay below 1.41 p where they only meet products: for factors
// below 2p and 1.41 p, a b / 2^384 + p is less than that, since p is 0.102 times 2^384.
SP_FN Fp affine_forward(const AffineRound<Fp> &round, u32 from, u32 per, const AffineProducts &before, const Stash &stash) {
    u32 j = from + affine_lane();
    AffineInput next = round.input(j, round.two_pairs(j));
    uint4 two = round.two_pairs(j + 32);
    stage(stash, 0, next.a);
    stage(stash, 1, next.b);
    stage_batch();
    SP_NO_UNROLL
    for (u32 k = 0; k < per; k++, j += 32) {
        const AffineInput in = next;
        const int slot = k % 2 * 2;
        next = round.input(j + 32, two);
        two = round.two_pairs(j + 64);
        if (k + 1 < per) {
            stage(stash, 2 - slot, next.a);
            stage(stash, 3 - slot, next.b);
        }
        stage_batch();
        stage_wait<1>();
        Fp d;
        affine_denominator(in, staged_x(stash, slot, in.a), staged_x(stash, slot + 1, in.b), d);
        // The product so far is in shared memory: handed on in registers, it would be moved each time.
        if (k > 0) {
            const Fp product = stash.get(AFFINE_FACTOR);
            before.put(k, product);
            d = fp_mul_lazy(product, d);
        }
        stash.put(AFFINE_FACTOR, d);
    }
    return fp_reduce_once(stash.get(AFFINE_FACTOR));
}

// The sums, last addition first; `inverse` is that of `affine_forward`'s product. Sum j goes to `out`, or stays with the round.
SP_FN void affine_backward(const AffineRound<Fp> &round, u32 from, u32 per, const AffineProducts &before, const Fp &inverse, const Stash &stash,
                           char *out) {
    stash.put(AFFINE_INVERSE, inverse);
    u32 j = from + affine_lane() + (per - 1) * 32;
    AffineInput next = round.input(j, round.two_pairs(j));
    uint4 two = round.two_pairs(j - 32);
    const auto stage_x = [&](u32 k) {
        stage(stash, AFFINE_X1, next.a);
        stage(stash, AFFINE_X2, next.b);
        if (k > 0) stage(stash, AFFINE_BEFORE, reinterpret_cast<const char *>(before.at(k)), AffineProducts::STRIDE);
        stage_batch();
    };
    const auto stage_y = [&]() {
        stage(stash, AFFINE_Y1, next.a ? next.a + 48 : nullptr);
        stage(stash, AFFINE_Y2, next.b ? next.b + 48 : nullptr);
        stage_batch();
    };
    stage_x(per - 1);
    stage_y();
    SP_NO_UNROLL
    for (u32 k = per; k-- > 0; j -= 32) {
        const AffineInput in = next;
        if (k > 0) {
            next = round.input(j - 32, two);
            two = round.two_pairs(j - 64);
        }
        // The x and the product are there, the y may not be.
        stage_wait<1>();
        Fp d;
        const AffineCase which = affine_denominator(in, staged_x(stash, AFFINE_X1, in.a), staged_x(stash, AFFINE_X2, in.b), d);
        // One product a turn, so that the code fits the instruction caches: 1 / d and the inverse of what is left (not for the last addition), the
        // slope, y + y1. A product's first factor waits in shared memory, and its result goes there: values that the turns hand on in registers
        // cost moves and selects, on the multiplier's pipe.
        if (k == 0) stash.put(AFFINE_FACTOR, stash.get(AFFINE_INVERSE));
        Fp x = d;
        SP_NO_UNROLL
        for (int turn = k > 0 ? 0 : 2; turn < 4; turn++) {
            const Fp first = stash.get(turn < 2 ? AFFINE_BEFORE : AFFINE_FACTOR);
            Fp factor;
            if (turn < 2) {
                if (turn == 0) stash.put(AFFINE_BEFORE, x);
                factor = stash.get(AFFINE_INVERSE);
            } else if (turn == 2) {
                stage_wait<0>();
                const Fp y1 = staged_y(stash, AFFINE_Y1, in.a, in.minus_a);
                const Fp y2 = staged_y(stash, AFFINE_Y2, in.b, in.minus_b);
                stash.put(AFFINE_Y1, which == AFFINE_SECOND ? y2 : y1);
                factor = sub(y2, y1);
                if (which == AFFINE_TWICE) factor = affine_three_squares(in.a);
            } else {
                factor = sub(stash.get(AFFINE_X1), x);
                if (k > 0) stage_x(k - 1);
            }
            const Fp product = fp_mul_lazy(first, factor);
            stash.put(turn == 1 ? AFFINE_INVERSE : AFFINE_FACTOR, product);
            if (turn == 2) {
                x = fp_reduce_once(sub(sub(fp_sqr_lazy(product), stash.get(AFFINE_X1)), stash.get(AFFINE_X2)));
                if (which == AFFINE_FIRST || which == AFFINE_SECOND) x = stash.get(which == AFFINE_FIRST ? AFFINE_X1 : AFFINE_X2);
            }
        }
        Fp y = stash.get(AFFINE_Y1);
        if (k > 0) stage_y();
        if (which == AFFINE_SUM || which == AFFINE_TWICE) y = fp_reduce_once(sub(stash.get(AFFINE_FACTOR), y));
        if (which == AFFINE_INFINITY) {
            x = out ? fp_zero() : affine_nothing();
            y = fp_zero();
        }
        if (j < round.count) {
            char *to = out ? out + (size_t)j * 96 : round.sum_at(j, round.round);
            fp_store(to, x);
            fp_store(to + 48, y);
        }
    }
}

// The sums of this part of the list go to `out`. A warp takes tiles by number off `ticket`; a tile has at most `passes` times `per_lane` additions a
// lane in the first round (a multiple of 2^rounds), and `scratch` has room for one of each warp.
template <class F>
SP_FN void msm_add_neighbours(const List &list, const Bases &bases, u32 per_lane, u32 passes, char *scratch, u32 *ticket, char *out,
                              uint4 *shared) {
    const int POINT = AffineRound<F>::POINT;
    const u32 rounds = list.rounds();
    if (rounds == 0) return;
    u32 first, sums;
    list.range(first, sums);
    const u32 most = (per_lane * passes * 32) >> (rounds - 1), warps = gridDim.x * (MSM_THREADS / 32);
    // As many tiles for each warp, of whole lanes.
    const u32 turns = sums / (most * warps) + 1, even = (sums / (turns * warps) + 32) / 32 * 32, tile_sums = even < most ? even : most;
    const u32 warp = (blockIdx.x * MSM_THREADS + threadIdx.x) / 32;
    char *const mine = scratch + warp * ((size_t)per_lane * 32 * (Field<F>::BYTES + passes * POINT));
    const AffineProducts before{reinterpret_cast<uint4 *>(mine)};
    const Stash stash{shared};
    for (;;) {
        u32 tile = 0;
        if (affine_lane() == 0) tile = atomicAdd(ticket, 1);
        const u32 from = __shfl_sync(0xffffffffu, tile, 0) * tile_sums;
        if (from >= sums) return;
        const u32 here = sums - from < tile_sums ? sums - from : tile_sums;
        // A round is a number of passes of even length.
        u32 r = 1, done = 0;
        SP_NO_UNROLL
        while (r <= rounds) {
            const AffineRound<F> round{list.pairs + ((u64)(first + from) << rounds), bases, mine + (size_t)per_lane * 32 * Field<F>::BYTES, r,
                                       here << (rounds - r)};
            const u32 rest = (round.count - done + 31) / 32, left = (rest + per_lane - 1) / per_lane, per = (rest + left - 1) / left;
            const Fp product = affine_forward(round, done, per, before, stash);
            affine_backward(round, done, per, before, fp_inv_single(product), stash, r == rounds ? out + (size_t)from * POINT : nullptr);
            // The next round reads other lanes' sums.
            __syncwarp();
            done += per * 32;
            if (done >= round.count) {
                done = 0;
                r++;
            }
        }
    }
}
