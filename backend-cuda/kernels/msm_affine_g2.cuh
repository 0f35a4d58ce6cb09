// Affine additions of neighbours in G2: `msm_affine.cuh` over Fp2, by one lane each, so that no operand is shuffled.
//
// What is shared is the inversion of the denominators' norms, which are in Fp: 1 / d is d's conjugate over its norm. An addition is a sum of
// two squares, nine products and four sums of two products, 4116 wide multiply-adds against the 7884 that two lanes' mixed addition takes.
// Operands wait in shared memory, and the code is one product and one sum of two, each in a loop, so that it fits the instruction caches.
#pragma once
#include "msm_affine.cuh"

// What a thread keeps in shared memory, components next to one another, in nine places. Some change their meaning:
// what an addition takes from the first pass comes where y2 will be and then the slope, and where x2 was is for a while 1 / d.
enum {
    AFFINE2_X1,
    AFFINE2_X2 = 2,
    AFFINE2_OVER_D = AFFINE2_X2,
    AFFINE2_Y1 = 4,
    AFFINE2_Y2 = 6,
    AFFINE2_SLOPE = AFFINE2_Y2,
    AFFINE2_BEFORE = AFFINE2_Y2,
    AFFINE2_NORM,
    AFFINE2_INVERSE,
    AFFINE2_SLOTS
};
#define AFFINE2_SHARED_WORDS (AFFINE2_SLOTS * 3 * MSM_THREADS)

// No point's x has this highest limb in its first component.
SP_FN bool is_nothing(const Fp2 &x) {
    return is_nothing(x.c0);
}

// Starts the copy of both components to two slots; nothing for null.
SP_FN void stage_both(const Stash &stash, int slot, const char *from) {
    stage(stash, slot, from);
    stage(stash, slot + 1, from ? from + 48 : nullptr);
}

SP_FN Fp2 staged(const Stash &stash, int slot) {
    return Fp2{stash.get(slot), stash.get(slot + 1)};
}

// As for Fp.
SP_FN AffineCase affine_case(const AffineInput &in, const Fp2 &x1, const Fp2 &x2, Fp2 &twice_y) {
    const bool none1 = !in.a || is_nothing(x1), none2 = !in.b || is_nothing(x2);
    const AffineCase which = none1 ? (none2 ? AFFINE_INFINITY : AFFINE_SECOND) : none2 ? AFFINE_FIRST : AFFINE_SUM;
    if (which == AFFINE_SUM && (eq(x1, x2) || is_zero(x1) || is_zero(x2)))
        return affine_rare<Fp2>(in.a, in.b, in.minus_a, in.minus_b, twice_y);
    return which;
}

// The product of the norms of this lane's denominators in a pass of `per` additions. For each addition but the first the product so far and its
// own norm lie side by side in `before`.
SP_FN Fp affine_forward(const AffineRound<Fp2> &round, u32 from, u32 per, const AffineProducts &before, const Stash &stash) {
    Fp product = fp_one();
    u32 j = from + affine_lane();
    AffineInput next = round.input(j, round.two_pairs(j));
    uint4 two = round.two_pairs(j + 32);
    stage_both(stash, 0, next.a);
    stage_both(stash, 2, next.b);
    stage_batch();
    SP_NO_UNROLL
    for (u32 k = 0; k < per; k++, j += 32) {
        const AffineInput in = next;
        const int slot = k % 2 * 4;
        next = round.input(j + 32, two);
        two = round.two_pairs(j + 64);
        if (k + 1 < per) {
            stage_both(stash, 4 - slot, next.a);
            stage_both(stash, 6 - slot, next.b);
        }
        stage_batch();
        stage_wait<1>();
        const Fp2 x1 = staged(stash, slot), x2 = staged(stash, slot + 2);
        Fp2 d = sub(x2, x1), twice_y;
        const AffineCase which = affine_case(in, x1, x2, twice_y);
        if (which != AFFINE_SUM) d = which == AFFINE_TWICE ? twice_y : fp2_one();
        const Fp norm = fp2_norm(d);
        if (k == 0) {
            product = norm;
        } else {
            before.put(2 * k, product);
            before.put(2 * k + 1, norm);
            product = mul(product, norm);
        }
    }
    return product;
}

// Component c of 2 y, and of 3 x^2, for twice the point at `at`.
SP_COLD Fp affine_twice_y(const char *at, bool minus, int c) {
    const Fp y = fp_load_again(at + 96 + 48 * c), twice = add(y, y);
    return select(minus, neg(twice), twice);
}

SP_COLD Fp affine_three_squares(const char *at, int c) {
    const Fp a = fp_load_again(at), b = fp_load_again(at + 48);
    const Fp s = mul_called(c == 0 ? add(a, b) : add(a, a), c == 0 ? sub(a, b) : b);
    return add(add(s, s), s);
}

// The sums, last addition first; `inverse` is that of `affine_forward`'s product. Sum j goes to `out`, or stays with the round.
SP_FN void affine_backward(const AffineRound<Fp2> &round, u32 from, u32 per, const AffineProducts &before, const Fp &inverse, const Stash &stash,
                           char *out) {
    stash.put(AFFINE2_INVERSE, inverse);
    u32 j = from + affine_lane() + (per - 1) * 32;
    AffineInput next = round.input(j, round.two_pairs(j));
    uint4 two = round.two_pairs(j - 32);
    const auto stage_x = [&](u32 k) {
        stage_both(stash, AFFINE2_X1, next.a);
        stage_both(stash, AFFINE2_X2, next.b);
        if (k > 0) {
            stage(stash, AFFINE2_BEFORE, reinterpret_cast<const char *>(before.at(2 * k)), AffineProducts::STRIDE);
            stage(stash, AFFINE2_NORM, reinterpret_cast<const char *>(before.at(2 * k + 1)), AffineProducts::STRIDE);
        }
        stage_batch();
    };
    const auto stage_y = [&](int slot, const char *point) {
        stage_both(stash, slot, point ? point + 96 : nullptr);
        stage_batch();
    };
    stage_x(per - 1);
    stage_y(AFFINE2_Y1, next.a);
    SP_NO_UNROLL
    for (u32 k = per; k-- > 0; j -= 32) {
        const AffineInput in = next;
        if (k > 0) {
            next = round.input(j - 32, two);
            two = round.two_pairs(j - 64);
        }
        // The x and the products are there, y1 may not be.
        stage_wait<1>();
        AffineCase which;
        {
            Fp2 twice_y;
            which = affine_case(in, staged(stash, AFFINE2_X1), staged(stash, AFFINE2_X2), twice_y);
        }
        const bool computed = which == AFFINE_SUM || which == AFFINE_TWICE;
        char *const to = j >= round.count ? nullptr : out ? out + (size_t)j * 192 : round.sum_at(j, round.round);
        // Turns of one product each: t = 1 / norm and the inverse of what is left (not for the last addition), 1 / d (its second component
        // negated), the square of the slope. After the fourth and the last come two sums of products: the slope, and y + y1.
        Fp t = stash.get(AFFINE2_INVERSE);
        if (k == 0) stage_y(AFFINE2_Y2, in.b);
        SP_NO_UNROLL
        for (int turn = k > 0 ? 0 : 2; turn < 6; turn++) {
            Fp a, b;
            const int part = turn & 1;
            if (turn < 2) {
                a = stash.get(turn == 0 ? AFFINE2_BEFORE : AFFINE2_NORM);
                b = stash.get(AFFINE2_INVERSE);
                if (turn == 1) stage_y(AFFINE2_Y2, in.b);
            } else if (turn < 4) {
                a = sub(stash.get(AFFINE2_X2 + part), stash.get(AFFINE2_X1 + part));
                if (which == AFFINE_TWICE) a = affine_twice_y(in.a, in.minus_a, part);
                b = t;
            } else {
                const Fp l0 = stash.get(AFFINE2_SLOPE), l1 = stash.get(AFFINE2_SLOPE + 1);
                a = add(l0, select(turn == 4, l1, l0));
                b = select(turn == 4, sub(l0, l1), l1);
                // x2 again.
                stage_wait<0>();
            }
            const Fp product = mul(a, b);
            if (turn == 0) {
                t = product;
            } else if (turn == 1) {
                stash.put(AFFINE2_INVERSE, product);
            } else if (turn < 4) {
                stash.put(AFFINE2_OVER_D + part, product);
            } else {
                const Fp x1 = stash.get(AFFINE2_X1 + part), x2 = stash.get(AFFINE2_X2 + part);
                Fp x = sub(sub(product, x1), x2);
                stash.put(AFFINE2_X1 + part, sub(x1, x));
                if (!computed) {
                    x = which == AFFINE_FIRST ? x1 : x2;
                    if (which == AFFINE_INFINITY) x = out ? fp_zero() : affine_nothing();
                }
                if (to) fp_store(to + 48 * part, x);
            }
            if (turn != 3 && turn != 5) continue;
            // a b + c d, then c b - a d.
            Fp c, d;
            if (turn == 3) {
                stage_wait<0>();
                SP_NO_UNROLL
                for (int i = 0; i < 2; i++) {
                    const Fp y1 = staged_y(stash, AFFINE2_Y1 + i, in.a, in.minus_a);
                    const Fp y2 = staged_y(stash, AFFINE2_Y2 + i, in.b, in.minus_b);
                    stash.put(AFFINE2_Y1 + i, which == AFFINE_SECOND ? y2 : y1);
                    stash.put(AFFINE2_SLOPE + i, which == AFFINE_TWICE ? affine_three_squares(in.a, i) : sub(y2, y1));
                }
                a = stash.get(AFFINE2_SLOPE), c = stash.get(AFFINE2_SLOPE + 1);
                b = stash.get(AFFINE2_OVER_D), d = stash.get(AFFINE2_OVER_D + 1);
                stage_both(stash, AFFINE2_X2, in.b);
                stage_batch();
            } else {
                a = fp_neg_lazy(stash.get(AFFINE2_SLOPE + 1)), c = stash.get(AFFINE2_SLOPE);
                b = stash.get(AFFINE2_X1 + 1), d = stash.get(AFFINE2_X1);
                if (k > 0) stage_x(k - 1);
            }
            SP_NO_UNROLL
            for (int i = 0; i < 2; i++) {
                const Fp sum = fp_mul_add(a, b, c, d);
                if (turn == 3) {
                    stash.put(AFFINE2_SLOPE + i, sum);
                } else {
                    Fp y = stash.get(AFFINE2_Y1 + i);
                    if (computed) y = sub(sum, y);
                    if (which == AFFINE_INFINITY) y = fp_zero();
                    if (to) fp_store(to + 96 + 48 * i, y);
                }
                const Fp minus = fp_neg_lazy(a);
                a = c;
                c = minus;
            }
        }
        if (k > 0) stage_y(AFFINE2_Y1, next.a);
    }
}
