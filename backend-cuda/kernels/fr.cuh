// The scalar field of BLS12-381: integers modulo
//   r = 0x73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001
// in Montgomery form (R = 2^256), as eight little-endian 32-bit limbs: the memory layout of `blst_fr`.
//
// Every function takes and returns canonical values (< r). Because r = 1 mod 2^32 the quotient digit of a reduction step is the
// negated low limb, and because limb 1 is 2^32 - 1 its product is a subtraction: a step costs six wide multiply-adds, not eight.
#pragma once
#include "base.cuh"

struct alignas(16) Fr {
    u32 v[8];
};

#define FR_R0 0x00000001u
#define FR_R1 0xffffffffu
#define FR_R2 0xfffe5bfeu
#define FR_R3 0x53bda402u
#define FR_R4 0x09a1d805u
#define FR_R5 0x3339d808u
#define FR_R6 0x299d7d48u
#define FR_R7 0x73eda753u

SP_FN Fr fr_zero() {
    return Fr{{0, 0, 0, 0, 0, 0, 0, 0}};
}

// 1 in Montgomery form: 2^256 mod r.
SP_FN Fr fr_one() {
    return Fr{{0xfffffffeu, 0x00000001u, 0x00034802u, 0x5884b7fau, 0xecbc4ff5u, 0x998c4fefu, 0xacc5056fu, 0x1824b159u}};
}

// 2^512 mod r: the Montgomery product of a plain integer with this is its Montgomery form.
SP_FN Fr fr_r2() {
    return Fr{{0xf3f29c6du, 0xc999e990u, 0x87925c23u, 0x2b6cedcbu, 0x7254398fu, 0x05d31496u, 0x9f59ff11u, 0x0748d9d9u}};
}

SP_FN bool fr_is_zero(const Fr &a) {
    return (a.v[0] | a.v[1] | a.v[2] | a.v[3] | a.v[4] | a.v[5] | a.v[6] | a.v[7]) == 0;
}

SP_FN bool fr_eq(const Fr &a, const Fr &b) {
    u32 d = 0;
    SP_UNROLL
    for (int i = 0; i < 8; i++) d |= a.v[i] ^ b.v[i];
    return d == 0;
}

// a if `take_a`, else b, without a branch.
SP_FN Fr fr_select(bool take_a, const Fr &a, const Fr &b) {
    Fr c;
    SP_UNROLL
    for (int i = 0; i < 8; i++) c.v[i] = take_a ? a.v[i] : b.v[i];
    return c;
}

#if SP_PTX

// a - r, and whether it borrowed.
SP_FN Fr fr_sub_r(const Fr &a, u32 &borrow) {
    Fr t = a;
    asm("sub.cc.u32 %0, %0, %9;\n\t"
        "subc.cc.u32 %1, %1, %10;\n\t"
        "subc.cc.u32 %2, %2, %11;\n\t"
        "subc.cc.u32 %3, %3, %12;\n\t"
        "subc.cc.u32 %4, %4, %13;\n\t"
        "subc.cc.u32 %5, %5, %14;\n\t"
        "subc.cc.u32 %6, %6, %15;\n\t"
        "subc.cc.u32 %7, %7, %16;\n\t"
        "subc.u32 %8, 0, 0;"
        : "+r"(t.v[0]), "+r"(t.v[1]), "+r"(t.v[2]), "+r"(t.v[3]), "+r"(t.v[4]), "+r"(t.v[5]), "+r"(t.v[6]), "+r"(t.v[7]), "=r"(borrow)
        : "r"(FR_R0), "r"(FR_R1), "r"(FR_R2), "r"(FR_R3), "r"(FR_R4), "r"(FR_R5), "r"(FR_R6), "r"(FR_R7));
    return t;
}

// a mod r for a < 2r.
SP_FN Fr fr_reduce_once(const Fr &a) {
    u32 borrow;
    const Fr t = fr_sub_r(a, borrow);
    return fr_select(borrow != 0, a, t);
}

// a + b as integers: below 2r < 2^256.
SP_FN Fr fr_add_raw(const Fr &a, const Fr &b) {
    Fr t = a;
    asm("add.cc.u32 %0, %0, %8;\n\t"
        "addc.cc.u32 %1, %1, %9;\n\t"
        "addc.cc.u32 %2, %2, %10;\n\t"
        "addc.cc.u32 %3, %3, %11;\n\t"
        "addc.cc.u32 %4, %4, %12;\n\t"
        "addc.cc.u32 %5, %5, %13;\n\t"
        "addc.cc.u32 %6, %6, %14;\n\t"
        "addc.u32 %7, %7, %15;"
        : "+r"(t.v[0]), "+r"(t.v[1]), "+r"(t.v[2]), "+r"(t.v[3]), "+r"(t.v[4]), "+r"(t.v[5]), "+r"(t.v[6]), "+r"(t.v[7])
        : "r"(b.v[0]), "r"(b.v[1]), "r"(b.v[2]), "r"(b.v[3]), "r"(b.v[4]), "r"(b.v[5]), "r"(b.v[6]), "r"(b.v[7]));
    return t;
}

SP_FN Fr fr_add(const Fr &a, const Fr &b) {
    return fr_reduce_once(fr_add_raw(a, b));
}

SP_FN Fr fr_sub(const Fr &a, const Fr &b) {
    Fr t = a;
    u32 mask;
    asm("sub.cc.u32 %0, %0, %9;\n\t"
        "subc.cc.u32 %1, %1, %10;\n\t"
        "subc.cc.u32 %2, %2, %11;\n\t"
        "subc.cc.u32 %3, %3, %12;\n\t"
        "subc.cc.u32 %4, %4, %13;\n\t"
        "subc.cc.u32 %5, %5, %14;\n\t"
        "subc.cc.u32 %6, %6, %15;\n\t"
        "subc.cc.u32 %7, %7, %16;\n\t"
        "subc.u32 %8, 0, 0;"
        : "+r"(t.v[0]), "+r"(t.v[1]), "+r"(t.v[2]), "+r"(t.v[3]), "+r"(t.v[4]), "+r"(t.v[5]), "+r"(t.v[6]), "+r"(t.v[7]), "=r"(mask)
        : "r"(b.v[0]), "r"(b.v[1]), "r"(b.v[2]), "r"(b.v[3]), "r"(b.v[4]), "r"(b.v[5]), "r"(b.v[6]), "r"(b.v[7]));
    Fr m;
    m.v[0] = FR_R0 & mask;
    m.v[1] = FR_R1 & mask;
    m.v[2] = FR_R2 & mask;
    m.v[3] = FR_R3 & mask;
    m.v[4] = FR_R4 & mask;
    m.v[5] = FR_R5 & mask;
    m.v[6] = FR_R6 & mask;
    m.v[7] = FR_R7 & mask;
    return fr_add_raw(t, m);
}

// acc += x_0 b + x_1 b 2^64 + x_2 b 2^128 + x_3 b 2^192, the carry out going into `top`. Neighbouring mad.lo/madc.hi pairs are one
// IMAD.WIDE each; the condition code lives only inside one asm statement, so a chain is one statement.
SP_FN void fr_mad_row(u32 (&acc)[8], u32 x0, u32 x1, u32 x2, u32 x3, u32 b, u32 &top) {
    asm("mad.lo.cc.u32 %0, %9, %13, %0;\n\t"
        "madc.hi.cc.u32 %1, %9, %13, %1;\n\t"
        "madc.lo.cc.u32 %2, %10, %13, %2;\n\t"
        "madc.hi.cc.u32 %3, %10, %13, %3;\n\t"
        "madc.lo.cc.u32 %4, %11, %13, %4;\n\t"
        "madc.hi.cc.u32 %5, %11, %13, %5;\n\t"
        "madc.lo.cc.u32 %6, %12, %13, %6;\n\t"
        "madc.hi.cc.u32 %7, %12, %13, %7;\n\t"
        "addc.u32 %8, %8, 0;"
        : "+r"(acc[0]), "+r"(acc[1]), "+r"(acc[2]), "+r"(acc[3]), "+r"(acc[4]), "+r"(acc[5]), "+r"(acc[6]), "+r"(acc[7]), "+r"(top)
        : "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(b));
}

// One reduction step: adds m r with m = -even[0] mod 2^32, which clears even[0]. The products with limbs 0 and 1 of r are
// m and m 2^32 - m.
SP_FN void fr_reduce_row(u32 (&even)[8], u32 (&odd)[8]) {
    const u32 t0 = even[0];
    u32 m, h;
    // h = high word of m (2^32 - 1): m - 1, or 0 for m = 0; its low word is -m = t0.
    asm("sub.cc.u32 %0, 0, %2;\n\t"
        "subc.u32 %1, %0, 0;"
        : "=&r"(m), "=r"(h)
        : "r"(t0));
    asm("add.cc.u32 %0, %0, %8;\n\t"
        "addc.cc.u32 %1, %1, %9;\n\t"
        "madc.lo.cc.u32 %2, %10, %13, %2;\n\t"
        "madc.hi.cc.u32 %3, %10, %13, %3;\n\t"
        "madc.lo.cc.u32 %4, %11, %13, %4;\n\t"
        "madc.hi.cc.u32 %5, %11, %13, %5;\n\t"
        "madc.lo.cc.u32 %6, %12, %13, %6;\n\t"
        "madc.hi.u32 %7, %12, %13, %7;"
        : "+r"(odd[0]), "+r"(odd[1]), "+r"(odd[2]), "+r"(odd[3]), "+r"(odd[4]), "+r"(odd[5]), "+r"(odd[6]), "+r"(odd[7])
        : "r"(t0), "r"(h), "r"(FR_R3), "r"(FR_R5), "r"(FR_R7), "r"(m));
    asm("add.cc.u32 %0, %0, %12;\n\t"
        "addc.cc.u32 %1, %1, 0;\n\t"
        "madc.lo.cc.u32 %2, %9, %12, %2;\n\t"
        "madc.hi.cc.u32 %3, %9, %12, %3;\n\t"
        "madc.lo.cc.u32 %4, %10, %12, %4;\n\t"
        "madc.hi.cc.u32 %5, %10, %12, %5;\n\t"
        "madc.lo.cc.u32 %6, %11, %12, %6;\n\t"
        "madc.hi.cc.u32 %7, %11, %12, %7;\n\t"
        "addc.u32 %8, %8, 0;"
        : "+r"(even[0]), "+r"(even[1]), "+r"(even[2]), "+r"(even[3]), "+r"(even[4]), "+r"(even[5]), "+r"(even[6]), "+r"(even[7]), "+r"(odd[7])
        : "r"(FR_R2), "r"(FR_R4), "r"(FR_R6), "r"(m));
}

// Divides the pair of accumulators (even at positions 0..8, odd at 1..9) by 2^32, even[0] being zero: the two swap roles. The old
// even[1] joins the new even[0] and its carry runs up the new odd.
SP_FN void fr_shift(u32 (&even)[8], u32 (&odd)[8], u32 &low) {
    low = even[1];
    u32 t[8];
    SP_UNROLL
    for (int i = 0; i < 8; i++) t[i] = odd[i];
    SP_UNROLL
    for (int i = 0; i < 6; i++) odd[i] = even[i + 2];
    odd[6] = 0;
    odd[7] = 0;
    SP_UNROLL
    for (int i = 0; i < 8; i++) even[i] = t[i];
}

// The sum after the last step: (odd + even / 2^32), below 2r.
SP_FN Fr fr_collect(const u32 (&even)[8], const u32 (&odd)[8]) {
    Fr t;
    asm("add.cc.u32 %0, %8, %16;\n\t"
        "addc.cc.u32 %1, %9, %17;\n\t"
        "addc.cc.u32 %2, %10, %18;\n\t"
        "addc.cc.u32 %3, %11, %19;\n\t"
        "addc.cc.u32 %4, %12, %20;\n\t"
        "addc.cc.u32 %5, %13, %21;\n\t"
        "addc.cc.u32 %6, %14, %22;\n\t"
        "addc.u32 %7, %15, 0;"
        : "=&r"(t.v[0]), "=&r"(t.v[1]), "=&r"(t.v[2]), "=&r"(t.v[3]), "=&r"(t.v[4]), "=&r"(t.v[5]), "=&r"(t.v[6]), "=&r"(t.v[7])
        : "r"(odd[0]), "r"(odd[1]), "r"(odd[2]), "r"(odd[3]), "r"(odd[4]), "r"(odd[5]), "r"(odd[6]), "r"(odd[7]), "r"(even[1]), "r"(even[2]),
          "r"(even[3]), "r"(even[4]), "r"(even[5]), "r"(even[6]), "r"(even[7]));
    return t;
}

// Montgomery product a b / 2^256, as an integer below 2r (for a b < r 2^256): what a lazy caller reduces itself.
SP_FN Fr fr_mul_lazy(const Fr &a, const Fr &b) {
    u32 even[8], odd[8];
    SP_UNROLL
    for (int i = 0; i < 8; i += 2) {
        const u64 e = (u64)a.v[i] * b.v[0];
        const u64 o = (u64)a.v[i + 1] * b.v[0];
        even[i] = (u32)e;
        even[i + 1] = (u32)(e >> 32);
        odd[i] = (u32)o;
        odd[i + 1] = (u32)(o >> 32);
    }
    fr_reduce_row(even, odd);
    SP_UNROLL
    for (int i = 1; i < 8; i++) {
        u32 low;
        fr_shift(even, odd, low);
        asm("add.cc.u32 %0, %0, %9;\n\t"
            "madc.lo.cc.u32 %1, %10, %14, %1;\n\t"
            "madc.hi.cc.u32 %2, %10, %14, %2;\n\t"
            "madc.lo.cc.u32 %3, %11, %14, %3;\n\t"
            "madc.hi.cc.u32 %4, %11, %14, %4;\n\t"
            "madc.lo.cc.u32 %5, %12, %14, %5;\n\t"
            "madc.hi.cc.u32 %6, %12, %14, %6;\n\t"
            "madc.lo.cc.u32 %7, %13, %14, %7;\n\t"
            "madc.hi.u32 %8, %13, %14, %8;"
            : "+r"(even[0]), "+r"(odd[0]), "+r"(odd[1]), "+r"(odd[2]), "+r"(odd[3]), "+r"(odd[4]), "+r"(odd[5]), "+r"(odd[6]), "+r"(odd[7])
            : "r"(low), "r"(a.v[1]), "r"(a.v[3]), "r"(a.v[5]), "r"(a.v[7]), "r"(b.v[i]));
        fr_mad_row(even, a.v[0], a.v[2], a.v[4], a.v[6], b.v[i], odd[7]);
        fr_reduce_row(even, odd);
    }
    return fr_collect(even, odd);
}

SP_FN Fr fr_mul(const Fr &a, const Fr &b) {
    return fr_reduce_once(fr_mul_lazy(a, b));
}

// Out of Montgomery form: a / 2^256 mod r.
SP_FN Fr fr_to_plain(const Fr &a) {
    u32 even[8], odd[8];
    SP_UNROLL
    for (int i = 0; i < 8; i++) {
        even[i] = a.v[i];
        odd[i] = 0;
    }
    fr_reduce_row(even, odd);
    SP_UNROLL
    for (int i = 1; i < 8; i++) {
        u32 low;
        fr_shift(even, odd, low);
        asm("add.cc.u32 %0, %0, %9;\n\t"
            "addc.cc.u32 %1, %1, 0;\n\t"
            "addc.cc.u32 %2, %2, 0;\n\t"
            "addc.cc.u32 %3, %3, 0;\n\t"
            "addc.cc.u32 %4, %4, 0;\n\t"
            "addc.cc.u32 %5, %5, 0;\n\t"
            "addc.cc.u32 %6, %6, 0;\n\t"
            "addc.cc.u32 %7, %7, 0;\n\t"
            "addc.u32 %8, %8, 0;"
            : "+r"(even[0]), "+r"(odd[0]), "+r"(odd[1]), "+r"(odd[2]), "+r"(odd[3]), "+r"(odd[4]), "+r"(odd[5]), "+r"(odd[6]), "+r"(odd[7])
            : "r"(low));
        fr_reduce_row(even, odd);
    }
    return fr_reduce_once(fr_collect(even, odd));
}

// 16-byte loads and stores.
SP_FN Fr fr_load(const Fr *p) {
    const uint4 lo = reinterpret_cast<const uint4 *>(p)[0], hi = reinterpret_cast<const uint4 *>(p)[1];
    return Fr{{lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w}};
}

SP_FN void fr_store(Fr *p, const Fr &a) {
    reinterpret_cast<uint4 *>(p)[0] = make_uint4(a.v[0], a.v[1], a.v[2], a.v[3]);
    reinterpret_cast<uint4 *>(p)[1] = make_uint4(a.v[4], a.v[5], a.v[6], a.v[7]);
}

#else // portable

SP_FN u32 fr_modulus(int i) {
    const u32 r[8] = {FR_R0, FR_R1, FR_R2, FR_R3, FR_R4, FR_R5, FR_R6, FR_R7};
    return r[i];
}

SP_FN Fr fr_reduce_once(const Fr &a) {
    Fr t;
    u64 borrow = 0;
    for (int i = 0; i < 8; i++) {
        const u64 d = (u64)a.v[i] - fr_modulus(i) - borrow;
        t.v[i] = (u32)d;
        borrow = (d >> 32) & 1;
    }
    return borrow ? a : t;
}

SP_FN Fr fr_add(const Fr &a, const Fr &b) {
    Fr t;
    u64 carry = 0;
    for (int i = 0; i < 8; i++) {
        carry += (u64)a.v[i] + b.v[i];
        t.v[i] = (u32)carry;
        carry >>= 32;
    }
    return fr_reduce_once(t);
}

SP_FN Fr fr_sub(const Fr &a, const Fr &b) {
    Fr t;
    u64 borrow = 0;
    for (int i = 0; i < 8; i++) {
        const u64 d = (u64)a.v[i] - b.v[i] - borrow;
        t.v[i] = (u32)d;
        borrow = (d >> 32) & 1;
    }
    if (borrow) {
        u64 carry = 0;
        for (int i = 0; i < 8; i++) {
            carry += (u64)t.v[i] + fr_modulus(i);
            t.v[i] = (u32)carry;
            carry >>= 32;
        }
    }
    return t;
}

SP_FN Fr fr_mul_lazy(const Fr &a, const Fr &b) {
    u32 t[10] = {0};
    for (int i = 0; i < 8; i++) {
        u64 carry = 0;
        for (int j = 0; j < 8; j++) {
            carry += (u64)a.v[j] * b.v[i] + t[j];
            t[j] = (u32)carry;
            carry >>= 32;
        }
        carry += t[8];
        t[8] = (u32)carry;
        t[9] = (u32)(carry >> 32);
        const u32 m = 0u - t[0];
        carry = (u64)m * FR_R0 + t[0];
        carry >>= 32;
        for (int j = 1; j < 8; j++) {
            carry += (u64)m * fr_modulus(j) + t[j];
            t[j - 1] = (u32)carry;
            carry >>= 32;
        }
        carry += t[8];
        t[7] = (u32)carry;
        t[8] = t[9] + (u32)(carry >> 32);
    }
    Fr c;
    for (int i = 0; i < 8; i++) c.v[i] = t[i];
    return c;
}

SP_FN Fr fr_mul(const Fr &a, const Fr &b) {
    return fr_reduce_once(fr_mul_lazy(a, b));
}

SP_FN Fr fr_to_plain(const Fr &a) {
    return fr_mul(a, Fr{{1, 0, 0, 0, 0, 0, 0, 0}});
}

SP_FN Fr fr_load(const Fr *p) {
    return *p;
}

SP_FN void fr_store(Fr *p, const Fr &a) {
    *p = a;
}

#endif

SP_FN Fr fr_sqr(const Fr &a) {
    return fr_mul(a, a);
}

SP_FN Fr fr_neg(const Fr &a) {
    return fr_sub(fr_zero(), a);
}

SP_FN Fr fr_dbl(const Fr &a) {
    return fr_add(a, a);
}

// Into Montgomery form, from a plain integer below 2^256.
SP_FN Fr fr_from_plain(const Fr &a) {
    return fr_mul(a, fr_r2());
}

// a^e for a 64-bit exponent.
SP_FN Fr fr_pow(const Fr &a, u64 e) {
    Fr acc = fr_one(), base = a;
    while (e != 0) {
        if (e & 1) acc = fr_mul(acc, base);
        base = fr_sqr(base);
        e >>= 1;
    }
    return acc;
}

// a^-1, with 0^-1 = 0: Fermat, a^(r-2).
SP_COLD Fr fr_inv(const Fr &a) {
    const u32 e[8] = {0xffffffffu, 0xfffffffeu, FR_R2, FR_R3, FR_R4, FR_R5, FR_R6, FR_R7};
    Fr acc = fr_one();
    for (int i = 7; i >= 0; i--) {
        for (int bit = 31; bit >= 0; bit--) {
            acc = fr_sqr(acc);
            if ((e[i] >> bit) & 1) acc = fr_mul(acc, a);
        }
    }
    return acc;
}
