// Inversion in the base field: the division steps of Bernstein and Yang ("Fast constant-time gcd computation and modular inversion",
// 2019), thirty at a time on the low limbs and then once on the whole numbers. In variable time, and each lane of a warp for itself; it needs
// about a thirtieth of the multiplier's time that Fermat's power takes.
#pragma once
#include "fp.cuh"

// Limbs of thirty bits, the highest one signed.
#define INVERT_LIMBS 13
#define INVERT_BITS 30
#define INVERT_MASK 0x3fffffff
// p^-1 mod 2^30.
#define INVERT_P_INV 0x00030003u

// No input takes more: (49 381 + 57) / 17 division steps.
#define INVERT_BATCHES 37

struct InvertMatrix {
    int u, v, q, r;
};

// Thirty division steps on the low bits of f (odd) and g: 2^30 (f', g') = (u f + v g, q f + r g). `eta` is the negated difference of degrees.
SP_FN InvertMatrix invert_steps(u32 f, u32 g, int &eta) {
    u32 u = 1, v = 0, q = 0, r = 1;
    int left = INVERT_BITS;
    SP_NO_UNROLL
    for (;;) {
        // Steps in which g is even only halve it.
        const int zeros = __clz(__brev(g | 0xffffffffu << left));
        g >>= zeros;
        u <<= zeros;
        v <<= zeros;
        eta -= zeros;
        left -= zeros;
        if (left == 0) break;
        if (eta < 0) {
            const u32 f0 = f, u0 = u, v0 = v;
            eta = -eta;
            f = g, g = 0u - f0;
            u = q, q = 0u - u0;
            v = r, r = 0u - v0;
        }
        // As long as eta is not negative, steps add f to g or not: a multiple of f that clears that many bits, six at most.
        const int limit = eta + 1 < left ? eta + 1 : left;
        const u32 w = g * f * (f * f - 2) & 0xffffffffu >> (32 - limit) & 63;
        g += f * w;
        q += u * w;
        r += v * w;
    }
    return InvertMatrix{(int)u, (int)v, (int)q, (int)r};
}

// a^-1 for a in Montgomery form, likewise in Montgomery form; 0 for 0.
SP_COLD Fp fp_inv_single(const Fp &a) {
    const int p[INVERT_LIMBS] = {0x3fffaaab, 0x27fbffff, 0x153ffffb, 0x2affffac, 0x30f6241e, 0x034a83da, 0x112bf673,
                                 0x12e13ce1, 0x2cd76477, 0x1ed90d2e, 0x29a4b1ba, 0x3a8e5ff9, 0x001a0111};
    // 2^768 mod p in place of 1: the inverse of a 2^384 comes out as a^-1 2^384.
    int e[INVERT_LIMBS] = {0x1c341746, 0x137c7cd0, 0x1d104f1f, 0x1db9a982, 0x15b6d50a, 0x151db132, 0x183c08de,
                           0x222a64e7, 0x152d67eb, 0x3a16d466, 0x3aa9a793, 0x3964b2b8, 0x0011988f};
    int d[INVERT_LIMBS], f[INVERT_LIMBS], g[INVERT_LIMBS];
    SP_UNROLL
    for (int i = 0; i < INVERT_LIMBS; i++) {
        const int word = i * INVERT_BITS / 32, shift = i * INVERT_BITS % 32;
        d[i] = 0;
        f[i] = p[i];
        g[i] = (int)(__funnelshift_r(a.v[word], word + 1 < FP_LIMBS ? a.v[word + 1] : 0, shift) & INVERT_MASK);
    }
    // Throughout d a = f and e a = g modulo p, up to the constant above, with d and e in (-2p, p).
    int eta = -1;
    SP_NO_UNROLL
    for (int batch = 0; batch < INVERT_BATCHES; batch++) {
        int rest = 0;
        SP_UNROLL
        for (int i = 0; i < INVERT_LIMBS; i++) rest |= g[i];
        if (rest == 0) break;
        const InvertMatrix t = invert_steps((u32)f[0], (u32)g[0], eta);
        // Multiples of p that bring d and e back into range and make the sums divisible by 2^30.
        const int d_sign = d[INVERT_LIMBS - 1] >> 31, e_sign = e[INVERT_LIMBS - 1] >> 31;
        int md = (t.u & d_sign) + (t.v & e_sign), me = (t.q & d_sign) + (t.r & e_sign);
        long long cd = (long long)t.u * d[0] + (long long)t.v * e[0], ce = (long long)t.q * d[0] + (long long)t.r * e[0];
        md -= (int)((INVERT_P_INV * (u32)cd + (u32)md) & INVERT_MASK);
        me -= (int)((INVERT_P_INV * (u32)ce + (u32)me) & INVERT_MASK);
        cd = (cd + (long long)p[0] * md) >> INVERT_BITS;
        ce = (ce + (long long)p[0] * me) >> INVERT_BITS;
        long long cf = ((long long)t.u * f[0] + (long long)t.v * g[0]) >> INVERT_BITS;
        long long cg = ((long long)t.q * f[0] + (long long)t.r * g[0]) >> INVERT_BITS;
        SP_UNROLL
        for (int i = 1; i < INVERT_LIMBS; i++) {
            cd += (long long)t.u * d[i] + (long long)t.v * e[i] + (long long)p[i] * md;
            ce += (long long)t.q * d[i] + (long long)t.r * e[i] + (long long)p[i] * me;
            cf += (long long)t.u * f[i] + (long long)t.v * g[i];
            cg += (long long)t.q * f[i] + (long long)t.r * g[i];
            d[i - 1] = (int)cd & INVERT_MASK;
            e[i - 1] = (int)ce & INVERT_MASK;
            f[i - 1] = (int)cf & INVERT_MASK;
            g[i - 1] = (int)cg & INVERT_MASK;
            cd >>= INVERT_BITS;
            ce >>= INVERT_BITS;
            cf >>= INVERT_BITS;
            cg >>= INVERT_BITS;
        }
        d[INVERT_LIMBS - 1] = (int)cd;
        e[INVERT_LIMBS - 1] = (int)ce;
        f[INVERT_LIMBS - 1] = (int)cf;
        g[INVERT_LIMBS - 1] = (int)cg;
    }
    // f is 1 or -1, and the inverse is f d, made positive by 2p.
    const int sign = f[INVERT_LIMBS - 1] < 0 ? -1 : 1;
    long long carry = 0;
    SP_UNROLL
    for (int i = 0; i < INVERT_LIMBS; i++) {
        carry += (long long)sign * d[i] + 2 * (long long)p[i];
        d[i] = i + 1 < INVERT_LIMBS ? (int)carry & INVERT_MASK : (int)carry;
        carry >>= INVERT_BITS;
    }
    Fp r;
    SP_UNROLL
    for (int i = 0; i < FP_LIMBS; i++) {
        const int limb = i * 32 / INVERT_BITS, shift = i * 32 % INVERT_BITS;
        r.v[i] = (u32)d[limb] >> shift | (u32)d[limb + 1] << (INVERT_BITS - shift);
    }
    // Below 4p.
    return fp_reduce_once(fp_reduce_once(fp_reduce_once(r)));
}
