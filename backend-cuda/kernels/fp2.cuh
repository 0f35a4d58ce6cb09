// The quadratic extension Fp2 = Fp[u] / (u^2 + 1), over which G2 lives, in two forms:
//
// * `Fp2`: both components in one thread. Plain, and what the host tests check.
// * `Fp2Lane` (device only): one component per lane, c0 on the even lane of a neighbouring pair and c1 on the odd one. Operands are
//   exchanged by shuffles, each lane computes one component of a product with one reduction, and a thread needs no more registers than
//   in G1. All operations must be executed by the whole warp: none may sit in a branch that part of a warp takes.
#pragma once
#include "fp.cuh"

struct Fp2 {
    Fp c0, c1;
};

SP_FN Fp2 fp2_zero() {
    return Fp2{fp_zero(), fp_zero()};
}

SP_FN Fp2 fp2_one() {
    return Fp2{fp_one(), fp_zero()};
}

SP_FN bool fp2_is_zero(const Fp2 &a) {
    return fp_is_zero(a.c0) && fp_is_zero(a.c1);
}

SP_FN bool fp2_eq(const Fp2 &a, const Fp2 &b) {
    return fp_eq(a.c0, b.c0) && fp_eq(a.c1, b.c1);
}

SP_FN Fp2 fp2_add(const Fp2 &a, const Fp2 &b) {
    return Fp2{fp_add(a.c0, b.c0), fp_add(a.c1, b.c1)};
}

SP_FN Fp2 fp2_sub(const Fp2 &a, const Fp2 &b) {
    return Fp2{fp_sub(a.c0, b.c0), fp_sub(a.c1, b.c1)};
}

SP_FN Fp2 fp2_neg(const Fp2 &a) {
    return Fp2{fp_neg(a.c0), fp_neg(a.c1)};
}

SP_FN Fp2 fp2_mul(const Fp2 &a, const Fp2 &b) {
    return Fp2{fp_mul_sub(a.c0, b.c0, a.c1, b.c1), fp_mul_add(a.c0, b.c1, a.c1, b.c0)};
}

SP_FN Fp2 fp2_sqr(const Fp2 &a) {
    const Fp m = fp_mul(a.c0, a.c1);
    return Fp2{fp_mul(fp_add(a.c0, a.c1), fp_sub(a.c0, a.c1)), fp_add(m, m)};
}

// a times its conjugate, in Fp; zero only for zero.
SP_FN Fp fp2_norm(const Fp2 &a) {
    return fp_reduce_once(fp_sqr_add_lazy(a.c0, a.c1));
}

// a^-1 = conjugate / norm, with 0^-1 = 0.
SP_FN Fp2 fp2_inv(const Fp2 &a) {
    const Fp n = fp_inv(fp_mul_add(a.c0, a.c0, a.c1, a.c1));
    return Fp2{fp_mul(a.c0, n), fp_neg(fp_mul(a.c1, n))};
}

#if SP_PTX || defined(SP_EMULATE)

struct Fp2Lane {
    Fp c;
};

#define SP_WARP 0xffffffffu

SP_FN bool fp2_lane_is_odd() {
    return threadIdx.x & 1;
}

// The other lane's component.
SP_FN Fp fp2_lane_swap(const Fp &a) {
    Fp b;
    SP_UNROLL
    for (int i = 0; i < FP_LIMBS; i++) b.v[i] = __shfl_xor_sync(SP_WARP, a.v[i], 1);
    return b;
}

// Component `which` of the pair, on both lanes.
SP_FN Fp fp2_lane_component(const Fp &a, int which) {
    Fp b;
    SP_UNROLL
    for (int i = 0; i < FP_LIMBS; i++) b.v[i] = __shfl_sync(SP_WARP, a.v[i], which, 2);
    return b;
}

// Even lane: a0 b0 - a1 b1. Odd lane: a1 b0 + a0 b1.
SP_FN Fp2Lane fp2_lane_mul(const Fp2Lane &a, const Fp2Lane &b) {
    const Fp other = fp2_lane_swap(a.c);
    const Fp cross = fp_select(fp2_lane_is_odd(), other, fp_neg_lazy(other));
    return Fp2Lane{fp_reduce_once(fp_mul2_lazy(a.c, fp2_lane_component(b.c, 0), cross, fp2_lane_component(b.c, 1)))};
}

// Even lane: (a0 + a1)(a0 - a1). Odd lane: (a1 + a1) a0.
SP_FN Fp2Lane fp2_lane_sqr(const Fp2Lane &a) {
    const bool odd = fp2_lane_is_odd();
    const Fp other = fp2_lane_swap(a.c);
    const Fp sum = fp_add(a.c, fp_select(odd, a.c, other));
    return Fp2Lane{fp_mul(fp_select(odd, other, fp_sub(a.c, other)), sum)};
}

// a b - c d with one reduction per lane.
SP_FN Fp2Lane fp2_lane_mul_sub(const Fp2Lane &a, const Fp2Lane &b, const Fp2Lane &c, const Fp2Lane &d) {
    const bool odd = fp2_lane_is_odd();
    const Fp a_other = fp2_lane_swap(a.c);
    const Fp a_cross = fp_select(odd, a_other, fp_neg_lazy(a_other));
    const Fp c_other = fp2_lane_swap(c.c);
    const Fp c_cross = fp_select(odd, fp_neg_lazy(c_other), c_other);
    return Fp2Lane{fp_reduce_once(fp_mul4_lazy(a.c, fp2_lane_component(b.c, 0), a_cross, fp2_lane_component(b.c, 1), fp_neg_lazy(c.c),
                                               fp2_lane_component(d.c, 0), c_cross, fp2_lane_component(d.c, 1)))};
}

// Whether both lanes' conditions hold, known to both.
SP_FN bool fp2_lane_both(bool mine) {
    return ((__ballot_sync(SP_WARP, mine) >> (threadIdx.x & 30)) & 3) == 3;
}

// a^-1 = conjugate / norm: both lanes invert the same norm.
SP_FN Fp2Lane fp2_lane_inv(const Fp2Lane &a) {
    const Fp other = fp2_lane_swap(a.c);
    const Fp r = fp_mul(a.c, fp_inv(fp_mul_add(a.c, a.c, other, other)));
    return Fp2Lane{fp2_lane_is_odd() ? fp_neg(r) : r};
}

#endif
