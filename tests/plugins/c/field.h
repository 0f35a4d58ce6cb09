/* Prime fields in Montgomery form on 64-bit limbs, and the quadratic extension. Simple, not constant-time, not fast. */
#ifndef FIELD_H
#define FIELD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

typedef struct { uint64_t l[4]; } fr;
typedef struct { uint64_t l[6]; } fp;
typedef struct { fp c0, c1; } fp2;

/* Moduli, -1/modulus mod 2^64, and 1 in Montgomery form. */
static const uint64_t R_MODULUS[4] = {0xffffffff00000001, 0x53bda402fffe5bfe, 0x3339d80809a1d805, 0x73eda753299d7d48};
static const uint64_t Q_MODULUS[6] = {0xb9feffffffffaaab, 0x1eabfffeb153ffff, 0x6730d2a0f6b0f624,
                                      0x64774b84f38512bf, 0x4b1ba7b6434bacd7, 0x1a0111ea397fe69a};
#define R_INVERSE 0xfffffffeffffffff
#define Q_INVERSE 0x89f3fffcfffcfffd
static const fr FR_ONE = {{0x00000001fffffffe, 0x5884b7fa00034802, 0x998c4fefecbc4ff5, 0x1824b159acc5056f}};
static const fp FP_ONE = {{0x760900000002fffd, 0xebf4000bc40c0002, 0x5f48985753c758ba, 0x77ce585370525745,
                           0x5c071a97a256ec6d, 0x15f65ec3fa80e493}};

/* x - modulus if that isn't negative, where `carry` is a limb above x. */
static inline void reduce(uint64_t *x, uint64_t carry, const uint64_t *modulus, int n) {
    uint64_t d[6], borrow = 0;
    for (int i = 0; i < n; i++) {
        u128 t = (u128)x[i] - modulus[i] - borrow;
        d[i] = (uint64_t)t;
        borrow = (uint64_t)(t >> 64) & 1;
    }
    if (carry >= borrow) memcpy(x, d, (size_t)n * 8);
}

static inline void add_mod(uint64_t *out, const uint64_t *x, const uint64_t *y, const uint64_t *modulus, int n) {
    uint64_t carry = 0;
    for (int i = 0; i < n; i++) {
        u128 t = (u128)x[i] + y[i] + carry;
        out[i] = (uint64_t)t;
        carry = (uint64_t)(t >> 64);
    }
    reduce(out, carry, modulus, n);
}

static inline void sub_mod(uint64_t *out, const uint64_t *x, const uint64_t *y, const uint64_t *modulus, int n) {
    uint64_t borrow = 0, carry = 0;
    for (int i = 0; i < n; i++) {
        u128 t = (u128)x[i] - y[i] - borrow;
        out[i] = (uint64_t)t;
        borrow = (uint64_t)(t >> 64) & 1;
    }
    for (int i = 0; borrow && i < n; i++) {
        u128 t = (u128)out[i] + modulus[i] + carry;
        out[i] = (uint64_t)t;
        carry = (uint64_t)(t >> 64);
    }
}

/* x*y/2^(64n), by interleaved reduction (CIOS). */
static inline void mul_mod(uint64_t *out, const uint64_t *x, const uint64_t *y, const uint64_t *modulus,
                           uint64_t inverse, int n) {
    uint64_t t[8] = {0};
    for (int i = 0; i < n; i++) {
        uint64_t carry = 0;
        for (int j = 0; j < n; j++) {
            u128 s = (u128)x[i] * y[j] + t[j] + carry;
            t[j] = (uint64_t)s;
            carry = (uint64_t)(s >> 64);
        }
        u128 s = (u128)t[n] + carry;
        t[n] = (uint64_t)s;
        t[n + 1] = (uint64_t)(s >> 64);
        uint64_t m = t[0] * inverse;
        carry = (uint64_t)(((u128)m * modulus[0] + t[0]) >> 64);
        for (int j = 1; j < n; j++) {
            s = (u128)m * modulus[j] + t[j] + carry;
            t[j - 1] = (uint64_t)s;
            carry = (uint64_t)(s >> 64);
        }
        s = (u128)t[n] + carry;
        t[n - 1] = (uint64_t)s;
        t[n] = t[n + 1] + (uint64_t)(s >> 64);
    }
    reduce(t, t[n], modulus, n);
    memcpy(out, t, (size_t)n * 8);
}

#define FIELD(name, modulus, inverse, n)                                                                               \
    static inline name name##_add(name x, name y) { name o; add_mod(o.l, x.l, y.l, modulus, n); return o; }            \
    static inline name name##_sub(name x, name y) { name o; sub_mod(o.l, x.l, y.l, modulus, n); return o; }            \
    static inline name name##_mul(name x, name y) { name o; mul_mod(o.l, x.l, y.l, modulus, inverse, n); return o; }   \
    static inline bool name##_is_zero(name x) { name zero = {{0}}; return memcmp(&x, &zero, sizeof x) == 0; }          \
    /* 1/x = x^(modulus - 2). */                                                                                       \
    static inline name name##_invert(name x, name one) {                                                               \
        name y = one;                                                                                                  \
        for (int i = 64 * n - 1; i >= 0; i--) {                                                                        \
            uint64_t limb = modulus[i / 64] - (i / 64 == 0 ? 2 : 0);                                                   \
            y = name##_mul(y, y);                                                                                      \
            if (limb >> (i % 64) & 1) y = name##_mul(y, x);                                                            \
        }                                                                                                              \
        return y;                                                                                                      \
    }

FIELD(fr, R_MODULUS, R_INVERSE, 4)
FIELD(fp, Q_MODULUS, Q_INVERSE, 6)

static inline fp2 fp2_add(fp2 x, fp2 y) { return (fp2){fp_add(x.c0, y.c0), fp_add(x.c1, y.c1)}; }
static inline fp2 fp2_sub(fp2 x, fp2 y) { return (fp2){fp_sub(x.c0, y.c0), fp_sub(x.c1, y.c1)}; }
static inline bool fp2_is_zero(fp2 x) { return fp_is_zero(x.c0) && fp_is_zero(x.c1); }
static inline fp2 fp2_mul(fp2 x, fp2 y) {
    fp a = fp_mul(x.c0, y.c0), b = fp_mul(x.c1, y.c1);
    fp cross = fp_mul(fp_add(x.c0, x.c1), fp_add(y.c0, y.c1));
    return (fp2){fp_sub(a, b), fp_sub(fp_sub(cross, a), b)};
}
static inline fp2 fp2_invert(fp2 x, fp2 one) {
    fp norm = fp_invert(fp_add(fp_mul(x.c0, x.c0), fp_mul(x.c1, x.c1)), one.c0), zero = {{0}};
    return (fp2){fp_mul(x.c0, norm), fp_sub(zero, fp_mul(x.c1, norm))};
}

#endif
