// The base field of BLS12-381: integers modulo
//   p = 0x1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab
// in Montgomery form (R = 2^384), as twelve little-endian 32-bit limbs: the memory layout of `blst_fp`.
//
// Every operation takes and returns canonical values (< p). p has three spare bits in its twelve limbs, so sums of a few products
// share one reduction without a carry word.
//
// Multiplication keeps two rows of accumulators, one for products that start at even limbs and one for odd ones: each row is then a
// single carry chain of wide multiply-adds. A product costs 288 of them and 12 quotient digits, a square 222 and 12.
#pragma once
#include "base.cuh"

#define FP_LIMBS 12

struct alignas(16) Fp {
    u32 v[FP_LIMBS];
};

#define FP_P0 0xffffaaabu
#define FP_P1 0xb9feffffu
#define FP_P2 0xb153ffffu
#define FP_P3 0x1eabfffeu
#define FP_P4 0xf6b0f624u
#define FP_P5 0x6730d2a0u
#define FP_P6 0xf38512bfu
#define FP_P7 0x64774b84u
#define FP_P8 0x434bacd7u
#define FP_P9 0x4b1ba7b6u
#define FP_P10 0x397fe69au
#define FP_P11 0x1a0111eau
// -p^-1 mod 2^32.
#define FP_INV 0xfffcfffdu

SP_FN Fp fp_zero() {
    return Fp{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}};
}

// 1 in Montgomery form: 2^384 mod p.
SP_FN Fp fp_one() {
    return Fp{{0x0002fffdu, 0x76090000u, 0xc40c0002u, 0xebf4000bu, 0x53c758bau, 0x5f489857u, 0x70525745u, 0x77ce5853u, 0xa256ec6du,
               0x5c071a97u, 0xfa80e493u, 0x15f65ec3u}};
}

SP_FN bool fp_is_zero(const Fp &a) {
    u32 d = 0;
    SP_UNROLL
    for (int i = 0; i < FP_LIMBS; i++) d |= a.v[i];
    return d == 0;
}

SP_FN bool fp_eq(const Fp &a, const Fp &b) {
    u32 d = 0;
    SP_UNROLL
    for (int i = 0; i < FP_LIMBS; i++) d |= a.v[i] ^ b.v[i];
    return d == 0;
}

// a if `take_a`, else b, without a branch.
SP_FN Fp fp_select(bool take_a, const Fp &a, const Fp &b) {
    Fp c;
    SP_UNROLL
    for (int i = 0; i < FP_LIMBS; i++) c.v[i] = take_a ? a.v[i] : b.v[i];
    return c;
}

#if SP_PTX

// Operand lists of twelve limbs for the asm statements below.
#define FP_RW(t) \
    "+r"(t[0]), "+r"(t[1]), "+r"(t[2]), "+r"(t[3]), "+r"(t[4]), "+r"(t[5]), "+r"(t[6]), "+r"(t[7]), "+r"(t[8]), "+r"(t[9]), "+r"(t[10]), "+r"(t[11])
#define FP_R(t) \
    "r"(t[0]), "r"(t[1]), "r"(t[2]), "r"(t[3]), "r"(t[4]), "r"(t[5]), "r"(t[6]), "r"(t[7]), "r"(t[8]), "r"(t[9]), "r"(t[10]), "r"(t[11])
#define FP_P \
    "r"(FP_P0), "r"(FP_P1), "r"(FP_P2), "r"(FP_P3), "r"(FP_P4), "r"(FP_P5), "r"(FP_P6), "r"(FP_P7), "r"(FP_P8), "r"(FP_P9), "r"(FP_P10), "r"(FP_P11)

// t += s for twelve limbs; the sum must stay below 2^384.
SP_FN void fp_add_limbs(u32 (&t)[FP_LIMBS], const u32 (&s)[FP_LIMBS]) {
    asm("add.cc.u32 %0, %0, %12;\n\t"
        "addc.cc.u32 %1, %1, %13;\n\t"
        "addc.cc.u32 %2, %2, %14;\n\t"
        "addc.cc.u32 %3, %3, %15;\n\t"
        "addc.cc.u32 %4, %4, %16;\n\t"
        "addc.cc.u32 %5, %5, %17;\n\t"
        "addc.cc.u32 %6, %6, %18;\n\t"
        "addc.cc.u32 %7, %7, %19;\n\t"
        "addc.cc.u32 %8, %8, %20;\n\t"
        "addc.cc.u32 %9, %9, %21;\n\t"
        "addc.cc.u32 %10, %10, %22;\n\t"
        "addc.u32 %11, %11, %23;"
        : FP_RW(t)
        : FP_R(s));
}

// t -= s for twelve limbs; all ones if it borrowed, else zero.
SP_FN u32 fp_sub_limbs(u32 (&t)[FP_LIMBS], const u32 (&s)[FP_LIMBS]) {
    u32 mask;
    asm("sub.cc.u32 %0, %0, %13;\n\t"
        "subc.cc.u32 %1, %1, %14;\n\t"
        "subc.cc.u32 %2, %2, %15;\n\t"
        "subc.cc.u32 %3, %3, %16;\n\t"
        "subc.cc.u32 %4, %4, %17;\n\t"
        "subc.cc.u32 %5, %5, %18;\n\t"
        "subc.cc.u32 %6, %6, %19;\n\t"
        "subc.cc.u32 %7, %7, %20;\n\t"
        "subc.cc.u32 %8, %8, %21;\n\t"
        "subc.cc.u32 %9, %9, %22;\n\t"
        "subc.cc.u32 %10, %10, %23;\n\t"
        "subc.cc.u32 %11, %11, %24;\n\t"
        "subc.u32 %12, 0, 0;"
        : FP_RW(t), "=r"(mask)
        : FP_R(s));
    return mask;
}

// a mod p for a < 2p.
SP_FN Fp fp_reduce_once(const Fp &a) {
    Fp t = a;
    const u32 p[FP_LIMBS] = {FP_P0, FP_P1, FP_P2, FP_P3, FP_P4, FP_P5, FP_P6, FP_P7, FP_P8, FP_P9, FP_P10, FP_P11};
    const u32 borrow = fp_sub_limbs(t.v, p);
    return fp_select(borrow != 0, a, t);
}

SP_FN Fp fp_add(const Fp &a, const Fp &b) {
    Fp t = a;
    fp_add_limbs(t.v, b.v);
    return fp_reduce_once(t);
}

SP_FN Fp fp_sub(const Fp &a, const Fp &b) {
    Fp t = a;
    const u32 mask = fp_sub_limbs(t.v, b.v);
    const u32 p[FP_LIMBS] = {FP_P0 & mask, FP_P1 & mask, FP_P2 & mask, FP_P3 & mask, FP_P4 & mask,  FP_P5 & mask,
                             FP_P6 & mask, FP_P7 & mask, FP_P8 & mask, FP_P9 & mask, FP_P10 & mask, FP_P11 & mask};
    fp_add_limbs(t.v, p);
    return t;
}

// p - a, in (0, p]: a negation whose result only ever meets a product.
SP_FN Fp fp_neg_lazy(const Fp &a) {
    Fp t = Fp{{FP_P0, FP_P1, FP_P2, FP_P3, FP_P4, FP_P5, FP_P6, FP_P7, FP_P8, FP_P9, FP_P10, FP_P11}};
    fp_sub_limbs(t.v, a.v);
    return t;
}

// One pair of limbs of a chain: a wide multiply-add, or only the carry.
#define FP_MAD_FIRST(lo, hi, x) "mad.lo.cc.u32 %" #lo ", %" #x ", %19, %" #lo ";\n\tmadc.hi.cc.u32 %" #hi ", %" #x ", %19, %" #hi ";\n\t"
#define FP_MAD(lo, hi, x) "madc.lo.cc.u32 %" #lo ", %" #x ", %19, %" #lo ";\n\tmadc.hi.cc.u32 %" #hi ", %" #x ", %19, %" #hi ";\n\t"
#define FP_CARRY(lo, hi) "addc.cc.u32 %" #lo ", %" #lo ", 0;\n\taddc.cc.u32 %" #hi ", %" #hi ", 0;\n\t"
#define FP_ROW_OPERANDS(acc, io, x0, x1, x2, x3, x4, x5, b) \
    : FP_RW(acc), "+r"(io) : "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5), "r"(b)

// acc += sum over k >= FROM of x_k b 2^(64 k), the carry out going into `top`.
template <int FROM>
SP_FN void fp_mad_row(u32 (&acc)[FP_LIMBS], u32 &top, u32 x0, u32 x1, u32 x2, u32 x3, u32 x4, u32 x5, u32 b) {
#define FP_TOP "addc.u32 %12, %12, 0;"
    if constexpr (FROM == 0)
        asm(FP_MAD_FIRST(0, 1, 13) FP_MAD(2, 3, 14) FP_MAD(4, 5, 15) FP_MAD(6, 7, 16) FP_MAD(8, 9, 17)
                FP_MAD(10, 11, 18) FP_TOP FP_ROW_OPERANDS(acc, top, x0, x1, x2, x3, x4, x5, b));
    else if constexpr (FROM == 1)
        asm(FP_MAD_FIRST(2, 3, 14) FP_MAD(4, 5, 15) FP_MAD(6, 7, 16) FP_MAD(8, 9, 17)
                FP_MAD(10, 11, 18) FP_TOP FP_ROW_OPERANDS(acc, top, x0, x1, x2, x3, x4, x5, b));
    else if constexpr (FROM == 2)
        asm(FP_MAD_FIRST(4, 5, 15) FP_MAD(6, 7, 16) FP_MAD(8, 9, 17)
                FP_MAD(10, 11, 18) FP_TOP FP_ROW_OPERANDS(acc, top, x0, x1, x2, x3, x4, x5, b));
    else if constexpr (FROM == 3)
        asm(FP_MAD_FIRST(6, 7, 16) FP_MAD(8, 9, 17) FP_MAD(10, 11, 18) FP_TOP FP_ROW_OPERANDS(acc, top, x0, x1, x2, x3, x4, x5, b));
    else if constexpr (FROM == 4)
        asm(FP_MAD_FIRST(8, 9, 17) FP_MAD(10, 11, 18) FP_TOP FP_ROW_OPERANDS(acc, top, x0, x1, x2, x3, x4, x5, b));
    else if constexpr (FROM == 5)
        asm(FP_MAD_FIRST(10, 11, 18) FP_TOP FP_ROW_OPERANDS(acc, top, x0, x1, x2, x3, x4, x5, b));
#undef FP_TOP
}

// even[0] += low, its carry running through odd; odd += sum over k >= FROM of x_k b 2^(64 k). `even0` is an input-output operand.
template <int FROM>
SP_FN void fp_carry_mad_row(u32 (&odd)[FP_LIMBS], u32 &even0, u32 low, u32 x0, u32 x1, u32 x2, u32 x3, u32 x4, u32 x5, u32 b) {
#define FP_LOW "add.cc.u32 %12, %12, %20;\n\t"
#define FP_LAST "madc.lo.cc.u32 %10, %18, %19, %10;\n\tmadc.hi.u32 %11, %18, %19, %11;"
#define FP_LAST_CARRY "addc.cc.u32 %10, %10, 0;\n\taddc.u32 %11, %11, 0;"
    if constexpr (FROM == 0)
        asm(FP_LOW FP_MAD(0, 1, 13) FP_MAD(2, 3, 14) FP_MAD(4, 5, 15) FP_MAD(6, 7, 16)
                FP_MAD(8, 9, 17) FP_LAST FP_ROW_OPERANDS(odd, even0, x0, x1, x2, x3, x4, x5, b),
            "r"(low));
    else if constexpr (FROM == 1)
        asm(FP_LOW FP_CARRY(0, 1) FP_MAD(2, 3, 14) FP_MAD(4, 5, 15) FP_MAD(6, 7, 16)
                FP_MAD(8, 9, 17) FP_LAST FP_ROW_OPERANDS(odd, even0, x0, x1, x2, x3, x4, x5, b),
            "r"(low));
    else if constexpr (FROM == 2)
        asm(FP_LOW FP_CARRY(0, 1) FP_CARRY(2, 3) FP_MAD(4, 5, 15) FP_MAD(6, 7, 16)
                FP_MAD(8, 9, 17) FP_LAST FP_ROW_OPERANDS(odd, even0, x0, x1, x2, x3, x4, x5, b),
            "r"(low));
    else if constexpr (FROM == 3)
        asm(FP_LOW FP_CARRY(0, 1) FP_CARRY(2, 3) FP_CARRY(4, 5) FP_MAD(6, 7, 16)
                FP_MAD(8, 9, 17) FP_LAST FP_ROW_OPERANDS(odd, even0, x0, x1, x2, x3, x4, x5, b),
            "r"(low));
    else if constexpr (FROM == 4)
        asm(FP_LOW FP_CARRY(0, 1) FP_CARRY(2, 3) FP_CARRY(4, 5) FP_CARRY(6, 7)
                FP_MAD(8, 9, 17) FP_LAST FP_ROW_OPERANDS(odd, even0, x0, x1, x2, x3, x4, x5, b),
            "r"(low));
    else if constexpr (FROM == 5)
        asm(FP_LOW FP_CARRY(0, 1) FP_CARRY(2, 3) FP_CARRY(4, 5) FP_CARRY(6, 7)
                FP_CARRY(8, 9) FP_LAST FP_ROW_OPERANDS(odd, even0, x0, x1, x2, x3, x4, x5, b),
            "r"(low));
    else
        asm(FP_LOW FP_CARRY(0, 1) FP_CARRY(2, 3) FP_CARRY(4, 5) FP_CARRY(6, 7)
                FP_CARRY(8, 9) FP_LAST_CARRY FP_ROW_OPERANDS(odd, even0, x0, x1, x2, x3, x4, x5, b),
            "r"(low));
#undef FP_LOW
#undef FP_LAST
#undef FP_LAST_CARRY
}

// One reduction step: adds m p with m = -even[0] / p mod 2^32, which clears even[0]. No carry leaves odd: the whole accumulator stays
// below 2^416.
SP_FN void fp_reduce_row(u32 (&even)[FP_LIMBS], u32 (&odd)[FP_LIMBS]) {
    const u32 m = even[0] * FP_INV;
    u32 none = 0;
    fp_mad_row<0>(odd, none, FP_P1, FP_P3, FP_P5, FP_P7, FP_P9, FP_P11, m);
    fp_mad_row<0>(even, odd[11], FP_P0, FP_P2, FP_P4, FP_P6, FP_P8, FP_P10, m);
}

// Divides the pair of accumulators (even at positions 0..12, odd at 1..13) by 2^32, even[0] being zero: the two swap roles. The old
// even[1] is returned, to be added to the new even[0].
SP_FN u32 fp_shift(u32 (&even)[FP_LIMBS], u32 (&odd)[FP_LIMBS]) {
    const u32 low = even[1];
    u32 t[FP_LIMBS];
    SP_UNROLL
    for (int i = 0; i < FP_LIMBS; i++) t[i] = odd[i];
    SP_UNROLL
    for (int i = 0; i < FP_LIMBS - 2; i++) odd[i] = even[i + 2];
    odd[10] = 0;
    odd[11] = 0;
    SP_UNROLL
    for (int i = 0; i < FP_LIMBS; i++) even[i] = t[i];
    return low;
}

// The accumulator after the last step: odd + even / 2^32.
SP_FN Fp fp_collect(const u32 (&even)[FP_LIMBS], const u32 (&odd)[FP_LIMBS]) {
    Fp t;
    u32 s[FP_LIMBS];
    SP_UNROLL
    for (int i = 0; i < FP_LIMBS; i++) {
        t.v[i] = odd[i];
        s[i] = i + 1 < FP_LIMBS ? even[i + 1] : 0;
    }
    fp_add_limbs(t.v, s);
    return t;
}

// even, odd = x b.
SP_FN void fp_mul_row(u32 (&even)[FP_LIMBS], u32 (&odd)[FP_LIMBS], const u32 (&x)[FP_LIMBS], u32 b) {
    SP_UNROLL
    for (int i = 0; i < FP_LIMBS; i += 2) {
        const u64 e = (u64)x[i] * b;
        const u64 o = (u64)x[i + 1] * b;
        even[i] = (u32)e;
        even[i + 1] = (u32)(e >> 32);
        odd[i] = (u32)o;
        odd[i + 1] = (u32)(o >> 32);
    }
}

// even, odd += x b, in place, for x zero below limb ROW.
template <int ROW = 0> SP_FN void fp_add_row(u32 (&even)[FP_LIMBS], u32 (&odd)[FP_LIMBS], const u32 (&x)[FP_LIMBS], u32 b) {
    u32 none = 0;
    fp_mad_row<ROW / 2>(odd, none, x[1], x[3], x[5], x[7], x[9], x[11], b);
    fp_mad_row<(ROW + 1) / 2>(even, odd[11], x[0], x[2], x[4], x[6], x[8], x[10], b);
}

// even, odd = (even, odd) / 2^32 + x b, for x zero below limb ROW (a square's row; ROW = 0 for a product).
template <int ROW>
SP_FN void fp_step_row(u32 (&even)[FP_LIMBS], u32 (&odd)[FP_LIMBS], const u32 (&x)[FP_LIMBS], u32 b) {
    const u32 low = fp_shift(even, odd);
    fp_carry_mad_row<ROW / 2>(odd, even[0], low, x[1], x[3], x[5], x[7], x[9], x[11], b);
    fp_mad_row<(ROW + 1) / 2>(even, odd[11], x[0], x[2], x[4], x[6], x[8], x[10], b);
}

// a b / R below 2p.
SP_FN Fp fp_mul_lazy(const Fp &a, const Fp &b) {
    u32 even[FP_LIMBS], odd[FP_LIMBS];
    fp_mul_row(even, odd, a.v, b.v[0]);
    fp_reduce_row(even, odd);
    SP_UNROLL
    for (int i = 1; i < FP_LIMBS; i++) {
        fp_step_row<0>(even, odd, a.v, b.v[i]);
        fp_reduce_row(even, odd);
    }
    return fp_collect(even, odd);
}

// (a b + c d) / R below 2p; factors may be as large as p itself.
SP_FN Fp fp_mul2_lazy(const Fp &a, const Fp &b, const Fp &c, const Fp &d) {
    u32 even[FP_LIMBS], odd[FP_LIMBS];
    fp_mul_row(even, odd, a.v, b.v[0]);
    fp_add_row(even, odd, c.v, d.v[0]);
    fp_reduce_row(even, odd);
    SP_UNROLL
    for (int i = 1; i < FP_LIMBS; i++) {
        fp_step_row<0>(even, odd, a.v, b.v[i]);
        fp_add_row(even, odd, c.v, d.v[i]);
        fp_reduce_row(even, odd);
    }
    return fp_collect(even, odd);
}

// (a b + c d + e f + g h) / R below 2p; factors may be as large as p itself.
SP_FN Fp fp_mul4_lazy(const Fp &a, const Fp &b, const Fp &c, const Fp &d, const Fp &e, const Fp &f, const Fp &g, const Fp &h) {
    u32 even[FP_LIMBS], odd[FP_LIMBS];
    fp_mul_row(even, odd, a.v, b.v[0]);
    fp_add_row(even, odd, c.v, d.v[0]);
    fp_add_row(even, odd, e.v, f.v[0]);
    fp_add_row(even, odd, g.v, h.v[0]);
    fp_reduce_row(even, odd);
    SP_UNROLL
    for (int i = 1; i < FP_LIMBS; i++) {
        fp_step_row<0>(even, odd, a.v, b.v[i]);
        fp_add_row(even, odd, c.v, d.v[i]);
        fp_add_row(even, odd, e.v, f.v[i]);
        fp_add_row(even, odd, g.v, h.v[i]);
        fp_reduce_row(even, odd);
    }
    return fp_collect(even, odd);
}

// Row i of a square holds a_i (a_i + 2 a_(i+1) 2^32 + ...): each mixed product once, doubled. `dbl` is 2a; its limb i+1 must not carry
// the top bit of a_i here, so that limb is doubled apart.
template <int ROW>
SP_FN void fp_sqr_rows(u32 (&even)[FP_LIMBS], u32 (&odd)[FP_LIMBS], const u32 (&a)[FP_LIMBS], const u32 (&dbl)[FP_LIMBS]) {
    if constexpr (ROW < FP_LIMBS) {
        u32 x[FP_LIMBS];
        SP_UNROLL
        for (int j = 0; j < FP_LIMBS; j++) x[j] = j < ROW ? 0 : j == ROW ? a[j] : j == ROW + 1 ? a[j] << 1 : dbl[j];
        if constexpr (ROW == 0)
            fp_mul_row(even, odd, x, a[0]);
        else
            fp_step_row<ROW>(even, odd, x, a[ROW]);
        fp_reduce_row(even, odd);
        fp_sqr_rows<ROW + 1>(even, odd, a, dbl);
    }
}

// 2a, of which the lowest bit of each limb but the first is the highest of the limb below.
SP_FN void fp_double_limbs(u32 (&dbl)[FP_LIMBS], const u32 (&a)[FP_LIMBS]) {
    dbl[0] = a[0] << 1;
    SP_UNROLL
    for (int i = 1; i < FP_LIMBS; i++) dbl[i] = __funnelshift_l(a[i - 1], a[i], 1);
}

SP_FN Fp fp_sqr_lazy(const Fp &a) {
    u32 dbl[FP_LIMBS], even[FP_LIMBS], odd[FP_LIMBS];
    fp_double_limbs(dbl, a.v);
    fp_sqr_rows<0>(even, odd, a.v, dbl);
    return fp_collect(even, odd);
}

// Row i of a^2 + b^2, likewise. No carry leaves the rows: both squares together stay below 2p 2^384.
template <int ROW>
SP_FN void fp_sqr_add_rows(u32 (&even)[FP_LIMBS], u32 (&odd)[FP_LIMBS], const u32 (&a)[FP_LIMBS], const u32 (&dbl_a)[FP_LIMBS],
                           const u32 (&b)[FP_LIMBS], const u32 (&dbl_b)[FP_LIMBS]) {
    if constexpr (ROW < FP_LIMBS) {
        u32 x[FP_LIMBS], y[FP_LIMBS];
        SP_UNROLL
        for (int j = 0; j < FP_LIMBS; j++) {
            x[j] = j < ROW ? 0 : j == ROW ? a[j] : j == ROW + 1 ? a[j] << 1 : dbl_a[j];
            y[j] = j < ROW ? 0 : j == ROW ? b[j] : j == ROW + 1 ? b[j] << 1 : dbl_b[j];
        }
        if constexpr (ROW == 0)
            fp_mul_row(even, odd, x, a[0]);
        else
            fp_step_row<ROW>(even, odd, x, a[ROW]);
        fp_add_row<ROW>(even, odd, y, b[ROW]);
        fp_reduce_row(even, odd);
        fp_sqr_add_rows<ROW + 1>(even, odd, a, dbl_a, b, dbl_b);
    }
}

// (a^2 + b^2) / R below 2p.
SP_FN Fp fp_sqr_add_lazy(const Fp &a, const Fp &b) {
    u32 dbl_a[FP_LIMBS], dbl_b[FP_LIMBS], even[FP_LIMBS], odd[FP_LIMBS];
    fp_double_limbs(dbl_a, a.v);
    fp_double_limbs(dbl_b, b.v);
    fp_sqr_add_rows<0>(even, odd, a.v, dbl_a, b.v, dbl_b);
    return fp_collect(even, odd);
}

#undef FP_MAD_FIRST
#undef FP_MAD
#undef FP_CARRY
#undef FP_ROW_OPERANDS

SP_FN Fp fp_load(const void *p) {
    const uint4 *q = reinterpret_cast<const uint4 *>(p);
    const uint4 x = q[0], y = q[1], z = q[2];
    return Fp{{x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w, z.x, z.y, z.z, z.w}};
}

SP_FN Fp fp_load_again(const void *p) {
    const volatile u32 *q = reinterpret_cast<const volatile u32 *>(p);
    Fp a;
    SP_UNROLL
    for (int i = 0; i < FP_LIMBS; i++) a.v[i] = q[i];
    return a;
}

SP_FN void fp_store(void *p, const Fp &a) {
    uint4 *q = reinterpret_cast<uint4 *>(p);
    q[0] = make_uint4(a.v[0], a.v[1], a.v[2], a.v[3]);
    q[1] = make_uint4(a.v[4], a.v[5], a.v[6], a.v[7]);
    q[2] = make_uint4(a.v[8], a.v[9], a.v[10], a.v[11]);
}

#else // portable

SP_FN u32 fp_modulus(int i) {
    const u32 p[FP_LIMBS] = {FP_P0, FP_P1, FP_P2, FP_P3, FP_P4, FP_P5, FP_P6, FP_P7, FP_P8, FP_P9, FP_P10, FP_P11};
    return p[i];
}

SP_FN Fp fp_reduce_once(const Fp &a) {
    Fp t;
    u64 borrow = 0;
    for (int i = 0; i < FP_LIMBS; i++) {
        const u64 d = (u64)a.v[i] - fp_modulus(i) - borrow;
        t.v[i] = (u32)d;
        borrow = (d >> 32) & 1;
    }
    return borrow ? a : t;
}

SP_FN Fp fp_add(const Fp &a, const Fp &b) {
    Fp t;
    u64 carry = 0;
    for (int i = 0; i < FP_LIMBS; i++) {
        carry += (u64)a.v[i] + b.v[i];
        t.v[i] = (u32)carry;
        carry >>= 32;
    }
    return fp_reduce_once(t);
}

SP_FN Fp fp_sub(const Fp &a, const Fp &b) {
    Fp t;
    u64 borrow = 0;
    for (int i = 0; i < FP_LIMBS; i++) {
        const u64 d = (u64)a.v[i] - b.v[i] - borrow;
        t.v[i] = (u32)d;
        borrow = (d >> 32) & 1;
    }
    if (borrow) {
        u64 carry = 0;
        for (int i = 0; i < FP_LIMBS; i++) {
            carry += (u64)t.v[i] + fp_modulus(i);
            t.v[i] = (u32)carry;
            carry >>= 32;
        }
    }
    return t;
}

// p for zero, as above.
SP_FN Fp fp_neg_lazy(const Fp &a) {
    Fp p;
    for (int i = 0; i < FP_LIMBS; i++) p.v[i] = fp_modulus(i);
    return fp_sub(p, a);
}

SP_FN Fp fp_mul_lazy(const Fp &a, const Fp &b) {
    u32 t[FP_LIMBS + 1] = {0};
    for (int i = 0; i < FP_LIMBS; i++) {
        u64 carry = 0;
        for (int j = 0; j < FP_LIMBS; j++) {
            carry += (u64)a.v[j] * b.v[i] + t[j];
            t[j] = (u32)carry;
            carry >>= 32;
        }
        t[FP_LIMBS] += (u32)carry;
        const u32 m = t[0] * FP_INV;
        carry = ((u64)m * FP_P0 + t[0]) >> 32;
        for (int j = 1; j < FP_LIMBS; j++) {
            carry += (u64)m * fp_modulus(j) + t[j];
            t[j - 1] = (u32)carry;
            carry >>= 32;
        }
        carry += t[FP_LIMBS];
        t[FP_LIMBS - 1] = (u32)carry;
        t[FP_LIMBS] = (u32)(carry >> 32);
    }
    Fp c;
    for (int i = 0; i < FP_LIMBS; i++) c.v[i] = t[i];
    return c;
}

SP_FN Fp fp_sqr_lazy(const Fp &a) {
    return fp_mul_lazy(a, a);
}

SP_FN Fp fp_sqr_add_lazy(const Fp &a, const Fp &b) {
    return fp_add(fp_reduce_once(fp_sqr_lazy(a)), fp_reduce_once(fp_sqr_lazy(b)));
}

SP_FN Fp fp_mul2_lazy(const Fp &a, const Fp &b, const Fp &c, const Fp &d) {
    return fp_add(fp_reduce_once(fp_mul_lazy(a, b)), fp_reduce_once(fp_mul_lazy(c, d)));
}

SP_FN Fp fp_mul4_lazy(const Fp &a, const Fp &b, const Fp &c, const Fp &d, const Fp &e, const Fp &f, const Fp &g, const Fp &h) {
    return fp_add(fp_mul2_lazy(a, b, c, d), fp_mul2_lazy(e, f, g, h));
}

SP_FN Fp fp_load(const void *p) {
    return *reinterpret_cast<const Fp *>(p);
}

SP_FN Fp fp_load_again(const void *p) {
    return fp_load(p);
}

SP_FN void fp_store(void *p, const Fp &a) {
    *reinterpret_cast<Fp *>(p) = a;
}

#endif

SP_FN Fp fp_mul(const Fp &a, const Fp &b) {
    return fp_reduce_once(fp_mul_lazy(a, b));
}

SP_FN Fp fp_sqr(const Fp &a) {
    return fp_reduce_once(fp_sqr_lazy(a));
}

// a b + c d and a b - c d with one reduction.
SP_FN Fp fp_mul_add(const Fp &a, const Fp &b, const Fp &c, const Fp &d) {
    return fp_reduce_once(fp_mul2_lazy(a, b, c, d));
}

SP_FN Fp fp_mul_sub(const Fp &a, const Fp &b, const Fp &c, const Fp &d) {
    return fp_reduce_once(fp_mul2_lazy(a, b, fp_neg_lazy(c), d));
}

SP_FN Fp fp_neg(const Fp &a) {
    return fp_sub(fp_zero(), a);
}

// a^-1, with 0^-1 = 0: Fermat, a^(p-2), four bits at a time.
SP_COLD Fp fp_inv(const Fp &a) {
    const u32 e[FP_LIMBS] = {FP_P0 - 2, FP_P1, FP_P2, FP_P3, FP_P4, FP_P5, FP_P6, FP_P7, FP_P8, FP_P9, FP_P10, FP_P11};
    Fp table[16];
    table[0] = fp_one();
    for (int i = 1; i < 16; i++) table[i] = fp_mul(table[i - 1], a);
    Fp acc = fp_one();
    for (int i = FP_LIMBS * 8 - 1; i >= 0; i--) {
        for (int k = 0; k < 4; k++) acc = fp_sqr(acc);
        acc = fp_mul(acc, table[(e[i / 8] >> (i % 8 * 4)) & 15]);
    }
    return acc;
}
