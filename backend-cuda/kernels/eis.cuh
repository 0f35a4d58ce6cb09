// The scalar field as Eisenstein integers. With X = x^2, x the parameter of BLS12-381, r = X^2 - X + 1: so rho = -X is a primitive cube
// root of unity modulo r, and every residue is a + b rho with digits a, b of 128 bits. A product takes four products of half the length
// (64 wide multiply-adds), and its reduction by 2^160 another 20, because X = 0 mod 2^32 makes the quotient digits plain differences and
// the next limb of X is 1. A Montgomery product of whole residues takes 112.
//
// Two vectors of digits stand for the same residue if they differ by a combination of (X, 1) and (-1, X - 1).
#pragma once
#include "fr.cuh"

// Digits of a residue, each below 2^128.
struct alignas(16) Eis {
    u32 a[4];
    u32 b[4];
};

// Digits as signed numbers of five limbs: sums of a few residues.
struct EisSum {
    u32 a[5];
    u32 b[5];
};

// Limbs of X; limb 0 is zero and limb 1 is one.
#define EIS_X1 0x00000001u
#define EIS_X2 0x0001a402u
#define EIS_X3 0xac45a401u

// ---- primitives: chains of carries ----

#if SP_PTX

// t = p + q of four limbs each, and the carry.
SP_FN void eis_add4(u32 (&t)[5], const u32 (&p)[4], const u32 (&q)[4]) {
    asm("add.cc.u32 %0, %5, %9;\n\t"
        "addc.cc.u32 %1, %6, %10;\n\t"
        "addc.cc.u32 %2, %7, %11;\n\t"
        "addc.cc.u32 %3, %8, %12;\n\t"
        "addc.u32 %4, 0, 0;"
        : "=&r"(t[0]), "=&r"(t[1]), "=&r"(t[2]), "=&r"(t[3]), "=r"(t[4])
        : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(q[0]), "r"(q[1]), "r"(q[2]), "r"(q[3]));
}

// t = p - q of four limbs each, with its sign.
SP_FN void eis_sub4(u32 (&t)[5], const u32 (&p)[4], const u32 (&q)[4]) {
    asm("sub.cc.u32 %0, %5, %9;\n\t"
        "subc.cc.u32 %1, %6, %10;\n\t"
        "subc.cc.u32 %2, %7, %11;\n\t"
        "subc.cc.u32 %3, %8, %12;\n\t"
        "subc.u32 %4, 0, 0;"
        : "=&r"(t[0]), "=&r"(t[1]), "=&r"(t[2]), "=&r"(t[3]), "=r"(t[4])
        : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(q[0]), "r"(q[1]), "r"(q[2]), "r"(q[3]));
}

// p + q and p - q of five limbs each, modulo 2^160.
SP_FN void eis_add5(u32 (&t)[5], const u32 (&p)[5], const u32 (&q)[5]) {
    asm("add.cc.u32 %0, %5, %10;\n\t"
        "addc.cc.u32 %1, %6, %11;\n\t"
        "addc.cc.u32 %2, %7, %12;\n\t"
        "addc.cc.u32 %3, %8, %13;\n\t"
        "addc.u32 %4, %9, %14;"
        : "=&r"(t[0]), "=&r"(t[1]), "=&r"(t[2]), "=&r"(t[3]), "=r"(t[4])
        : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(p[4]), "r"(q[0]), "r"(q[1]), "r"(q[2]), "r"(q[3]), "r"(q[4]));
}

SP_FN void eis_sub5(u32 (&t)[5], const u32 (&p)[5], const u32 (&q)[5]) {
    asm("sub.cc.u32 %0, %5, %10;\n\t"
        "subc.cc.u32 %1, %6, %11;\n\t"
        "subc.cc.u32 %2, %7, %12;\n\t"
        "subc.cc.u32 %3, %8, %13;\n\t"
        "subc.u32 %4, %9, %14;"
        : "=&r"(t[0]), "=&r"(t[1]), "=&r"(t[2]), "=&r"(t[3]), "=r"(t[4])
        : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(p[4]), "r"(q[0]), "r"(q[1]), "r"(q[2]), "r"(q[3]), "r"(q[4]));
}

// t += x y_0 + x y_1 2^64, the carry going into `top`.
SP_FN void eis_mad(u32 &t0, u32 &t1, u32 &t2, u32 &t3, u32 &top, u32 x, u32 y0, u32 y1) {
    asm("mad.lo.cc.u32 %0, %5, %6, %0;\n\t"
        "madc.hi.cc.u32 %1, %5, %6, %1;\n\t"
        "madc.lo.cc.u32 %2, %5, %7, %2;\n\t"
        "madc.hi.cc.u32 %3, %5, %7, %3;\n\t"
        "addc.u32 %4, %4, 0;"
        : "+r"(t0), "+r"(t1), "+r"(t2), "+r"(t3), "+r"(top)
        : "r"(x), "r"(y0), "r"(y1));
}

// odd += even for limbs 1 to 8.
SP_FN void eis_merge(u32 (&even)[9], const u32 (&odd)[9]) {
    asm("add.cc.u32 %0, %0, %8;\n\t"
        "addc.cc.u32 %1, %1, %9;\n\t"
        "addc.cc.u32 %2, %2, %10;\n\t"
        "addc.cc.u32 %3, %3, %11;\n\t"
        "addc.cc.u32 %4, %4, %12;\n\t"
        "addc.cc.u32 %5, %5, %13;\n\t"
        "addc.cc.u32 %6, %6, %14;\n\t"
        "addc.u32 %7, %7, 0;"
        : "+r"(even[1]), "+r"(even[2]), "+r"(even[3]), "+r"(even[4]), "+r"(even[5]), "+r"(even[6]), "+r"(even[7]), "+r"(even[8])
        : "r"(odd[1]), "r"(odd[2]), "r"(odd[3]), "r"(odd[4]), "r"(odd[5]), "r"(odd[6]), "r"(odd[7]));
}

// t0..t3 += the two 64-bit numbers, modulo 2^128.
SP_FN void eis_add_pairs(u32 &t0, u32 &t1, u32 &t2, u32 &t3, u64 low, u64 high) {
    asm("add.cc.u32 %0, %0, %4;\n\t"
        "addc.cc.u32 %1, %1, %5;\n\t"
        "addc.cc.u32 %2, %2, %6;\n\t"
        "addc.u32 %3, %3, %7;"
        : "+r"(t0), "+r"(t1), "+r"(t2), "+r"(t3)
        : "r"((u32)low), "r"((u32)(low >> 32)), "r"((u32)high), "r"((u32)(high >> 32)));
}

// p - q and p + q of eight limbs, where nothing is carried out.
SP_FN Fr eis_sub8(const Fr &p, const Fr &q) {
    Fr t = p;
    asm("sub.cc.u32 %0, %0, %8;\n\t"
        "subc.cc.u32 %1, %1, %9;\n\t"
        "subc.cc.u32 %2, %2, %10;\n\t"
        "subc.cc.u32 %3, %3, %11;\n\t"
        "subc.cc.u32 %4, %4, %12;\n\t"
        "subc.cc.u32 %5, %5, %13;\n\t"
        "subc.cc.u32 %6, %6, %14;\n\t"
        "subc.u32 %7, %7, %15;"
        : "+r"(t.v[0]), "+r"(t.v[1]), "+r"(t.v[2]), "+r"(t.v[3]), "+r"(t.v[4]), "+r"(t.v[5]), "+r"(t.v[6]), "+r"(t.v[7])
        : "r"(q.v[0]), "r"(q.v[1]), "r"(q.v[2]), "r"(q.v[3]), "r"(q.v[4]), "r"(q.v[5]), "r"(q.v[6]), "r"(q.v[7]));
    return t;
}

SP_FN Fr eis_add8(const Fr &p, const Fr &q) {
    return fr_add_raw(p, q);
}

// x y, and x y + z where that stays below 2^64: one instruction each, which plain C++ doesn't always become.
SP_FN u64 eis_wide(u32 x, u32 y) {
    u64 t;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(t) : "r"(x), "r"(y));
    return t;
}

SP_FN u64 eis_wide(u32 x, u32 y, u64 z) {
    u64 t;
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(t) : "r"(x), "r"(y), "l"(z));
    return t;
}

// The signed products x y and x y + z.
SP_FN long long eis_wide_signed(int x, int y) {
    long long t;
    asm("mul.wide.s32 %0, %1, %2;" : "=l"(t) : "r"(x), "r"(y));
    return t;
}

SP_FN long long eis_wide_signed(int x, int y, long long z) {
    long long t;
    asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(t) : "r"(x), "r"(y), "l"(z));
    return t;
}

#else

template <int N> SP_FN u32 eis_chain(u32 *t, const u32 *p, const u32 *q, u32 flip) {
    u64 carry = flip != 0;
    for (int i = 0; i < N; i++) {
        carry += (u64)p[i] + (q[i] ^ flip);
        t[i] = (u32)carry;
        carry >>= 32;
    }
    return (u32)carry;
}

SP_FN void eis_add4(u32 (&t)[5], const u32 (&p)[4], const u32 (&q)[4]) {
    t[4] = eis_chain<4>(t, p, q, 0);
}

SP_FN void eis_sub4(u32 (&t)[5], const u32 (&p)[4], const u32 (&q)[4]) {
    t[4] = eis_chain<4>(t, p, q, ~0u) - 1;
}

SP_FN void eis_add5(u32 (&t)[5], const u32 (&p)[5], const u32 (&q)[5]) {
    eis_chain<5>(t, p, q, 0);
}

SP_FN void eis_sub5(u32 (&t)[5], const u32 (&p)[5], const u32 (&q)[5]) {
    eis_chain<5>(t, p, q, ~0u);
}

SP_FN void eis_mad(u32 &t0, u32 &t1, u32 &t2, u32 &t3, u32 &top, u32 x, u32 y0, u32 y1) {
    const u64 p = (u64)x * y0, q = (u64)x * y1;
    u64 c = (u64)t0 + (u32)p;
    t0 = (u32)c;
    c = (c >> 32) + t1 + (p >> 32);
    t1 = (u32)c;
    c = (c >> 32) + t2 + (u32)q;
    t2 = (u32)c;
    c = (c >> 32) + t3 + (q >> 32);
    t3 = (u32)c;
    top += (u32)(c >> 32);
}

SP_FN void eis_merge(u32 (&even)[9], const u32 (&odd)[9]) {
    even[8] += eis_chain<7>(even + 1, even + 1, odd + 1, 0);
}

SP_FN void eis_add_pairs(u32 &t0, u32 &t1, u32 &t2, u32 &t3, u64 low, u64 high) {
    u32 t[4] = {t0, t1, t2, t3};
    const u32 q[4] = {(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)};
    eis_chain<4>(t, t, q, 0);
    t0 = t[0];
    t1 = t[1];
    t2 = t[2];
    t3 = t[3];
}

SP_FN Fr eis_sub8(const Fr &p, const Fr &q) {
    Fr t;
    eis_chain<8>(t.v, p.v, q.v, ~0u);
    return t;
}

SP_FN Fr eis_add8(const Fr &p, const Fr &q) {
    Fr t;
    eis_chain<8>(t.v, p.v, q.v, 0);
    return t;
}

SP_FN u64 eis_wide(u32 x, u32 y) {
    return (u64)x * y;
}

SP_FN u64 eis_wide(u32 x, u32 y, u64 z) {
    return (u64)x * y + z;
}

SP_FN long long eis_wide_signed(int x, int y) {
    return (long long)x * y;
}

SP_FN long long eis_wide_signed(int x, int y, long long z) {
    return (long long)x * y + z;
}

#endif

// ---- sums ----

SP_FN EisSum eis_add(const Eis &x, const Eis &y) {
    EisSum t;
    eis_add4(t.a, x.a, y.a);
    eis_add4(t.b, x.b, y.b);
    return t;
}

SP_FN EisSum eis_sub(const Eis &x, const Eis &y) {
    EisSum t;
    eis_sub4(t.a, x.a, y.a);
    eis_sub4(t.b, x.b, y.b);
    return t;
}

SP_FN EisSum eis_add(const EisSum &x, const EisSum &y) {
    EisSum t;
    eis_add5(t.a, x.a, y.a);
    eis_add5(t.b, x.b, y.b);
    return t;
}

SP_FN EisSum eis_sub(const EisSum &x, const EisSum &y) {
    EisSum t;
    eis_sub5(t.a, x.a, y.a);
    eis_sub5(t.b, x.b, y.b);
    return t;
}

SP_FN EisSum eis_widen(const Eis &x) {
    return EisSum{{x.a[0], x.a[1], x.a[2], x.a[3], 0}, {x.b[0], x.b[1], x.b[2], x.b[3], 0}};
}

// How often X goes into a signed digit of at most 16 times 2^128, from the top bits alone: below the quotient, by 1.06 at most.
SP_FN int eis_quotient(const u32 (&d)[5]) {
    // Units of 2^123; 3043 / 2^16 is the inverse of X in them, too large by less than 2^-16 / 2, so by 187 / 2^16 in the quotient.
    const int t = (int)((d[4] << 5) | (d[3] >> 27));
    return (t * 3043 - 256) >> 16;
}

// d += p - q X modulo 2^128, for small signed p and q.
SP_FN void eis_fold(u32 (&t)[4], const u32 (&d)[5], int p, int q) {
    const int middle = (p >> 31) - q;
    const long long high = (long long)(-q) * (int)EIS_X2 + (middle >> 31);
    const u32 top = (u32)((u64)high >> 32) - (u32)q * EIS_X3;
    t[0] = d[0];
    t[1] = d[1];
    t[2] = d[2];
    t[3] = d[3];
    eis_add_pairs(t[0], t[1], t[2], t[3], (u64)(u32)middle << 32 | (u32)p, (u64)top << 32 | (u32)high);
}

// The same residue with digits between 0 and 1.07 X, for digits below 16 times 2^128 in absolute value.
SP_FN Eis eis_normal(const EisSum &x) {
    // x - q (X, 1) - p (-1, X - 1)
    const int q = eis_quotient(x.a), p = eis_quotient(x.b);
    Eis t;
    eis_fold(t.a, x.a, p, q);
    eis_fold(t.b, x.b, p - q, p);
    return t;
}

// ---- products ----

// A constant factor w = c + d rho, and w rho = e + f rho.
struct EisFactor {
    Eis w;
    Eis turned;
};

// p c + q e, of nine limbs, for digits below 2^128 and 0.7 times 2^128; p c alone unless `BOTH`.
template <bool BOTH> SP_FN void eis_dot(u32 (&even)[9], const u32 (&p)[4], const u32 (&c)[4], const u32 (&q)[4], const u32 (&e)[4]) {
    u32 odd[9];
    SP_UNROLL
    for (int j = 0; j < 4; j += 2) {
        const u64 t = eis_wide(p[0], c[j]), s = eis_wide(p[0], c[j + 1]);
        even[j] = (u32)t;
        even[j + 1] = (u32)(t >> 32);
        odd[j + 1] = (u32)s;
        odd[j + 2] = (u32)(s >> 32);
    }
    SP_UNROLL
    for (int j = 4; j < 9; j++) even[j] = 0;
    odd[0] = 0;
    SP_UNROLL
    for (int j = 5; j < 9; j++) odd[j] = 0;
    if (BOTH) eis_mad(even[0], even[1], even[2], even[3], even[4], q[0], e[0], e[2]);
    if (BOTH) eis_mad(odd[1], odd[2], odd[3], odd[4], odd[5], q[0], e[1], e[3]);
    eis_mad(odd[1], odd[2], odd[3], odd[4], odd[5], p[1], c[0], c[2]);
    eis_mad(even[2], even[3], even[4], even[5], even[6], p[1], c[1], c[3]);
    if (BOTH) eis_mad(odd[1], odd[2], odd[3], odd[4], odd[5], q[1], e[0], e[2]);
    if (BOTH) eis_mad(even[2], even[3], even[4], even[5], even[6], q[1], e[1], e[3]);
    eis_mad(even[2], even[3], even[4], even[5], even[6], p[2], c[0], c[2]);
    eis_mad(odd[3], odd[4], odd[5], odd[6], odd[7], p[2], c[1], c[3]);
    if (BOTH) eis_mad(even[2], even[3], even[4], even[5], even[6], q[2], e[0], e[2]);
    if (BOTH) eis_mad(odd[3], odd[4], odd[5], odd[6], odd[7], q[2], e[1], e[3]);
    eis_mad(odd[3], odd[4], odd[5], odd[6], odd[7], p[3], c[0], c[2]);
    eis_mad(even[4], even[5], even[6], even[7], even[8], p[3], c[1], c[3]);
    if (BOTH) eis_mad(odd[3], odd[4], odd[5], odd[6], odd[7], q[3], e[0], e[2]);
    if (BOTH) eis_mad(even[4], even[5], even[6], even[7], even[8], q[3], e[1], e[3]);
    eis_merge(even, odd);
}

// Quotient digits m of one side of a reduction, and m X / 2^32 as far as it is known: m plus the even and odd pairs of limbs.
struct EisQuotient {
    u32 m[5];
    u64 odd12, odd34, odd56, even23, even45, even67;
};

// What limb k of a sum gets from m X.
SP_FN u64 eis_limb(const EisQuotient &y, int k) {
    switch (k) {
    case 0: return 0;
    case 1: return y.m[0];
    case 2: return (u64)y.m[1] + (u32)y.odd12;
    case 3: return (u64)y.m[2] + (u32)(y.odd12 >> 32) + (u32)y.even23;
    default: return (u64)y.m[3] + (u32)y.odd34 + (u32)(y.even23 >> 32);
    }
}

// The next digit. None of these sums exceeds 64 bits: X / 2^128 is 0.67, and the middle limb of X has 17 bits.
SP_FN void eis_push(EisQuotient &y, int k, u32 m) {
    y.m[k] = m;
    switch (k) {
    case 0:
        y.odd12 = eis_wide(m, EIS_X2);
        y.even23 = eis_wide(m, EIS_X3);
        break;
    case 1:
        y.even23 = eis_wide(m, EIS_X2, y.even23);
        y.odd34 = eis_wide(m, EIS_X3);
        break;
    case 2:
        y.odd34 = eis_wide(m, EIS_X2, y.odd34);
        y.even45 = eis_wide(m, EIS_X3);
        break;
    case 3:
        y.even45 = eis_wide(m, EIS_X2, y.even45);
        y.odd56 = eis_wide(m, EIS_X3);
        break;
    default:
        y.odd56 = eis_wide(m, EIS_X2, y.odd56);
        y.even67 = eis_wide(m, EIS_X3);
        break;
    }
}

// The limbs from 5 on, with the carry out of limb 4.
SP_FN void eis_high(u32 (&t)[4], const u32 (&sum)[9], const EisQuotient &y, u32 carry) {
    t[0] = sum[5];
    t[1] = sum[6];
    t[2] = sum[7];
    t[3] = sum[8];
    eis_add_pairs(t[0], t[1], t[2], t[3], y.even45 + ((u64)y.m[4] + carry), y.even67);
    eis_add_pairs(t[0], t[1], t[2], t[3], (y.odd34 >> 32) | (y.odd56 << 32), y.odd56 >> 32);
}

// (A + B rho) / 2^160, with digits below X + 2^97: adds m (X, 1) + n (-1, X - 1) for the m and n that clear five limbs of each.
// Limb by limb n = A and m = n - B, modulo 2^32.
SP_FN Eis eis_reduce(const u32 (&a)[9], const u32 (&b)[9]) {
    EisQuotient m, n;
    u32 carry_a = 0, carry_b = 0;
    SP_UNROLL
    for (int k = 0; k < 5; k++) {
        const u64 s = eis_limb(m, k) + a[k] + carry_a, t = eis_limb(n, k) + b[k] + carry_b;
        const u32 digit = (u32)s;
        carry_a = (u32)(s >> 32);
        // t + m - n is t's carry, and one more where m is negative.
        const u64 difference = (u64)digit - (u32)t;
        carry_b = (u32)(t >> 32) - (u32)(difference >> 32);
        eis_push(n, k, digit);
        eis_push(m, k, (u32)difference);
    }
    Eis t;
    eis_high(t.a, a, m, carry_a);
    eis_high(t.b, b, n, carry_b);
    return t;
}

// A branch that is never taken, since no digit is as large, whatever the input: instructions aren't moved across it. Without it the
// compiler starts the low limbs of both sums and the reduction first, and then keeps dozens of carries in registers: 90 instructions
// more in each product. What can go on after it (an exit, a pause) becomes one predicated instruction and separates nothing.
SP_FN void eis_part(u32 top) {
#if SP_PTX
    if (top > 0xfffffff0u) asm volatile("trap;");
#endif
}

// x w / 2^160. The branches depend on what the next part needs as well, so that it's loaded before, while there is something else to do,
// and `soon` is any limbs of what comes after.
SP_FN Eis eis_mul(const Eis &x, const EisFactor &y, u32 soon = 0xffffffffu) {
    u32 a[9], b[9];
    eis_dot<true>(a, x.a, y.w.a, x.b, y.turned.a);
    eis_part(x.a[3] & y.w.b[3] & y.turned.b[3]);
    eis_dot<true>(b, x.a, y.w.b, x.b, y.turned.b);
    eis_part(x.b[3] & soon);
    return eis_reduce(a, b);
}

// w rho for a factor in canonical form, 0 <= c < X and 0 < d < X: (-d, c - d) + (X, 1), or + (X - 1, X) where c < d.
SP_FN EisFactor eis_factor(const Eis &w) {
    u32 difference[5], rest[5];
    eis_sub4(difference, w.a, w.b);
    const u32 negative = difference[4];
    const u32 x[4] = {0, EIS_X1, EIS_X2, EIS_X3};
    eis_sub4(rest, x, w.b);
    EisFactor y;
    y.w = w;
    y.turned = Eis{{rest[0], rest[1], rest[2], rest[3]}, {difference[0], difference[1], difference[2], difference[3]}};
    eis_add_pairs(y.turned.a[0], y.turned.a[1], y.turned.a[2], y.turned.a[3], (u64)negative << 32 | negative, (u64)negative << 32 | negative);
    eis_add_pairs(y.turned.b[0], y.turned.b[1], y.turned.b[2], y.turned.b[3], (u64)(negative & EIS_X1) << 32 | (1 + negative),
                  (u64)(negative & EIS_X3) << 32 | (negative & EIS_X2));
    return y;
}

// -w in canonical form, for a factor in canonical form: (X - 1, X) - w.
SP_FN Eis eis_negative(const Eis &w) {
    const u32 less[4] = {0xffffffffu, EIS_X1 - 1, EIS_X2, EIS_X3}, x[4] = {0, EIS_X1, EIS_X2, EIS_X3};
    u32 a[5], b[5];
    eis_sub4(a, less, w.a);
    eis_sub4(b, x, w.b);
    return Eis{{a[0], a[1], a[2], a[3]}, {b[0], b[1], b[2], b[3]}};
}

SP_FN Eis eis_select(bool take_x, const Eis &x, const Eis &y) {
    Eis t;
    SP_UNROLL
    for (int i = 0; i < 4; i++) {
        t.a[i] = take_x ? x.a[i] : y.a[i];
        t.b[i] = take_x ? x.b[i] : y.b[i];
    }
    return t;
}

// ---- the fourth roots of unity ----

// |x| = 2^16 (1 + 2^32 EIS_K); its inverse times 2^125 is 2^32 EIS_INVERSE1 + EIS_INVERSE0.
#define EIS_K 0xd201u
#define EIS_INVERSE1 0x27024099
#define EIS_INVERSE0 (1255779031)

SP_FN u32 eis_shift(u32 low, u32 high, int by) {
    return (u32)(((u64)high << 32 | low) >> by);
}

// d = high |x| + low, for d below 2^129 in absolute value; what is returned is low |x|, between -6 and 21 times X. `high` has 67 bits.
SP_FN void eis_divide_small(u32 (&t)[5], u32 (&high)[3], const u32 (&d)[5]) {
    // The quotient from the bits from 66 on. It is too small by 4.9 for the bits below, by 9.4 for the product of both low halves and by 1 for
    // rounding; and the inverse, 0.35 too large, makes it too large by 5.6 at most for positive d, and too small by as much for negative d. The sum
    // with digits below 2^128 stays below 23 X, within the 16 times 2^128 = 23.7 X that `eis_normal` takes.
    const u32 d0 = eis_shift(d[2], d[3], 2);
    const int d1 = (int)eis_shift(d[3], d[4], 2);
    const long long middle = eis_wide_signed(d1, EIS_INVERSE0, (long long)eis_wide(d0, EIS_INVERSE1));
    const long long top = eis_wide_signed(d1, EIS_INVERSE1, middle >> 32);
    high[0] = eis_shift((u32)middle, (u32)top, 27);
    high[1] = eis_shift((u32)top, (u32)((u64)top >> 32), 27);
    high[2] = (u32)((int)((u64)top >> 32) >> 27);
    // low = d - high |x|, of which 96 bits are enough.
    const u64 w = eis_wide(high[0], EIS_K, (u64)high[2] << 32 | high[1]);
    const u32 w1 = (u32)w, w2 = (u32)(w >> 32) + high[1] * EIS_K;
    const u32 from[4] = {d[0], d[1], d[2], 0}, taken[4] = {high[0] << 16, eis_shift(high[0], w1, 16), eis_shift(w1, w2, 16), 0};
    u32 low[5];
    eis_sub4(low, from, taken);
    // low |x|
    const u64 k01 = eis_wide(low[0], EIS_K), k12 = eis_wide(low[1], EIS_K, k01 >> 32);
    u32 y[4] = {low[0], low[1], low[2], (u32)((int)low[2] >> 31)};
    eis_add_pairs(y[0], y[1], y[2], y[3], (u64)(u32)k01 << 32, (u64)((u32)(k12 >> 32) + low[2] * EIS_K) << 32 | (u32)k12);
    t[0] = y[0] << 16;
    t[1] = eis_shift(y[0], y[1], 16);
    t[2] = eis_shift(y[1], y[2], 16);
    t[3] = eis_shift(y[2], y[3], 16);
    t[4] = (u32)((int)y[3] >> 16);
}

SP_FN void eis_signed5(u32 (&t)[5], const u32 (&d)[3]) {
    t[0] = d[0];
    t[1] = d[1];
    t[2] = d[2];
    t[3] = t[4] = (u32)((int)d[2] >> 31);
}

// The product by the fourth root of unity |x|^3 = -|x| rho, for digits below 2^128 and differing by less than 2^129, in absolute value:
// |x| (b + (b - a) rho). A multiple q X of a digit of b is q (1 + rho), and of a digit of a it is -q rho.
SP_FN EisSum eis_quarter(const EisSum &e) {
    u32 difference[5], qa[3], qb[3], a[5], b[5];
    eis_sub5(difference, e.b, e.a);
    EisSum t;
    eis_divide_small(t.a, qa, e.b);
    eis_divide_small(t.b, qb, difference);
    eis_signed5(a, qa);
    eis_signed5(b, qb);
    eis_add5(t.a, t.a, b);
    eis_add5(t.b, t.b, b);
    eis_sub5(t.b, t.b, a);
    return t;
}

// ---- to and from whole residues ----

// d X / 2^32, of seven limbs.
SP_FN void eis_times_x(u32 (&t)[7], const u32 (&d)[4]) {
    const u64 odd12 = eis_wide(d[0], EIS_X2), even23 = eis_wide(d[0], EIS_X3, eis_wide(d[1], EIS_X2)),
              odd34 = eis_wide(d[1], EIS_X3, eis_wide(d[2], EIS_X2)), even45 = eis_wide(d[2], EIS_X3, eis_wide(d[3], EIS_X2)),
              odd56 = eis_wide(d[3], EIS_X3);
    t[0] = d[0];
    u64 sum = (u64)d[1] + (u32)odd12;
    t[1] = (u32)sum;
    sum = (sum >> 32) + d[2] + (u32)(odd12 >> 32) + (u32)even23;
    t[2] = (u32)sum;
    sum = (sum >> 32) + d[3] + (u32)odd34 + (u32)(even23 >> 32);
    t[3] = (u32)sum;
    sum = (sum >> 32) + (u32)(odd34 >> 32) + (u32)even45;
    t[4] = (u32)sum;
    sum = (sum >> 32) + (u32)odd56 + (u32)(even45 >> 32);
    t[5] = (u32)sum;
    t[6] = (u32)(sum >> 32) + (u32)(odd56 >> 32);
}

// u = rest + quotient X for u = -v, with a rest below 3 X.
SP_FN void eis_divide(u32 (&rest)[5], u32 (&quotient)[4], const Fr &v) {
    const Fr u = fr_neg(v);
    // floor(2^256 / X) is 2^128 and this.
    const u32 inverse[4] = {0xf6cfee2eu, 0x63f6e522u, 0xe01faaddu, 0x7c6becf1u};
    const u32 high[4] = {u.v[4], u.v[5], u.v[6], u.v[7]};
    u32 product[9], sum[5], below[7];
    eis_dot<false>(product, high, inverse, high, inverse);
    const u32 estimate[4] = {product[4], product[5], product[6], product[7]};
    eis_add4(sum, high, estimate);
    SP_UNROLL
    for (int i = 0; i < 4; i++) quotient[i] = sum[i];
    eis_times_x(below, quotient);
    const u32 from[5] = {u.v[0], u.v[1], u.v[2], u.v[3], u.v[4]}, taken[5] = {0, below[0], below[1], below[2], below[3]};
    eis_sub5(rest, from, taken);
    // Nothing to do for a canonical v; of any other the digits stay small all the same, as `eis_part` expects.
    rest[4] &= 3;
}

// The digits of a canonical residue: v = -u = -rest + quotient rho, plus (X, 1).
SP_FN Eis eis_split(const Fr &v) {
    u32 rest[5], quotient[4];
    eis_divide(rest, quotient, v);
    const u32 x[5] = {0, EIS_X1, EIS_X2, EIS_X3, 0}, one[4] = {1, 0, 0, 0};
    EisSum t;
    eis_sub5(t.a, x, rest);
    eis_add4(t.b, quotient, one);
    return eis_normal(t);
}

// The same in canonical form, 0 <= a < X and 0 < b < X, for v != 0.
SP_COLD Eis eis_split_canonical(const Fr &v) {
    u32 rest[5], quotient[4], t[5];
    eis_divide(rest, quotient, v);
    const u32 x[5] = {0, EIS_X1, EIS_X2, EIS_X3, 0}, one[4] = {1, 0, 0, 0};
    for (int i = 0; i < 3; i++) {
        eis_sub5(t, rest, x);
        if ((t[4] >> 31) == 0) {
            for (int j = 0; j < 5; j++) rest[j] = t[j];
            u32 next[5];
            eis_add4(next, quotient, one);
            for (int j = 0; j < 4; j++) quotient[j] = next[j];
        }
    }
    Eis w;
    for (int j = 0; j < 4; j++) {
        w.a[j] = 0;
        w.b[j] = quotient[j];
    }
    if ((rest[0] | rest[1] | rest[2] | rest[3]) != 0) {
        eis_sub5(t, x, rest);
        for (int j = 0; j < 4; j++) w.a[j] = t[j];
        eis_add4(t, quotient, one);
        for (int j = 0; j < 4; j++) w.b[j] = t[j];
    }
    return w;
}

// The canonical residue: a - b X + 2 r, which lies between 0.4 2^256 and 2 r + 2^128.
SP_FN Fr eis_join(const Eis &x) {
    u32 below[7];
    eis_times_x(below, x.b);
    const Fr twice{{2 * FR_R0, (u32)(2 * (u64)FR_R1), 2 * FR_R2 + 1, 2 * FR_R3 + 1, 2 * FR_R4, 2 * FR_R5, 2 * FR_R6, 2 * FR_R7}};
    const Fr taken{{0, below[0], below[1], below[2], below[3], below[4], below[5], below[6]}};
    const Fr added{{x.a[0], x.a[1], x.a[2], x.a[3], 0, 0, 0, 0}};
    return fr_reduce_once(fr_reduce_once(eis_add8(eis_sub8(twice, taken), added)));
}

// A table's entry: the canonical digits of w 2^160, from w in Montgomery form.
SP_FN Eis eis_entry(const Fr &w) {
    return eis_split_canonical(fr_mul(w, Fr{{0, 0, 0, 0, 0, 1, 0, 0}}));
}

// 16-byte loads and stores.
SP_FN Eis eis_load(const Eis *p) {
    const Fr t = fr_load(reinterpret_cast<const Fr *>(p));
    return Eis{{t.v[0], t.v[1], t.v[2], t.v[3]}, {t.v[4], t.v[5], t.v[6], t.v[7]}};
}

SP_FN void eis_store(Eis *p, const Eis &x) {
    fr_store(reinterpret_cast<Fr *>(p), Fr{{x.a[0], x.a[1], x.a[2], x.a[3], x.b[0], x.b[1], x.b[2], x.b[3]}});
}
