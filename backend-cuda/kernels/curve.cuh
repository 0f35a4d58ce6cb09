// Points of G1 (y^2 = x^3 + 4 over Fp) and of its twist G2 over Fp2, in two shapes:
//
// * `Affine`: x, y; the point at infinity is x = y = 0, which is on neither curve.
// * `Xyzz`: X, Y, ZZ, ZZZ with x = X / ZZ, y = Y / ZZZ, ZZ^3 = ZZZ^2; infinity is ZZ = 0, whatever the other three hold.
//
// Formulas: the Explicit-Formulas Database, short Weierstrass a = 0, coordinates `xyzz`: madd-2008-s, add-2008-s, dbl-2008-s-1 and
// mdbl-2008-s-1, with R (Q - X3) - Y1 PPP under one reduction. Every addition here is complete: P + P, P - P and infinity included.
//
// The functions are templates over the field; `Field` says how a coordinate lies in memory and how a rare case may be branched on.
#pragma once
#include "fp2.cuh"

// ---- one vocabulary for the three field types
SP_FN Fp add(const Fp &a, const Fp &b) { return fp_add(a, b); }
SP_FN Fp sub(const Fp &a, const Fp &b) { return fp_sub(a, b); }
SP_FN Fp neg(const Fp &a) { return fp_neg(a); }
SP_FN Fp mul(const Fp &a, const Fp &b) { return fp_mul(a, b); }
SP_FN Fp sqr(const Fp &a) { return fp_sqr(a); }
SP_FN Fp inv(const Fp &a) { return fp_inv(a); }
SP_FN Fp mul_sub(const Fp &a, const Fp &b, const Fp &c, const Fp &d) { return fp_mul_sub(a, b, c, d); }
SP_FN bool is_zero(const Fp &a) { return fp_is_zero(a); }
SP_FN bool eq(const Fp &a, const Fp &b) { return fp_eq(a, b); }
SP_FN Fp select(bool take_a, const Fp &a, const Fp &b) { return fp_select(take_a, a, b); }

SP_FN Fp2 add(const Fp2 &a, const Fp2 &b) { return fp2_add(a, b); }
SP_FN Fp2 sub(const Fp2 &a, const Fp2 &b) { return fp2_sub(a, b); }
SP_FN Fp2 neg(const Fp2 &a) { return fp2_neg(a); }
SP_FN Fp2 mul(const Fp2 &a, const Fp2 &b) { return fp2_mul(a, b); }
SP_FN Fp2 sqr(const Fp2 &a) { return fp2_sqr(a); }
SP_FN Fp2 inv(const Fp2 &a) { return fp2_inv(a); }
SP_FN Fp2 mul_sub(const Fp2 &a, const Fp2 &b, const Fp2 &c, const Fp2 &d) { return fp2_sub(fp2_mul(a, b), fp2_mul(c, d)); }
SP_FN bool is_zero(const Fp2 &a) { return fp2_is_zero(a); }
SP_FN bool eq(const Fp2 &a, const Fp2 &b) { return fp2_eq(a, b); }
SP_FN Fp2 select(bool take_a, const Fp2 &a, const Fp2 &b) {
    return Fp2{fp_select(take_a, a.c0, b.c0), fp_select(take_a, a.c1, b.c1)};
}

// LANES: threads that share one element. BYTES: one coordinate in memory. `any`: whether a rare case must be computed; for a type whose
// operations need the whole warp the answer is the warp's.
template <class F> struct Field;

template <> struct Field<Fp> {
    static const int LANES = 1;
    static const int BYTES = 48;
    SP_FN static Fp zero() { return fp_zero(); }
    SP_FN static Fp one() { return fp_one(); }
    SP_FN static bool any(bool mine) { return mine; }
    SP_FN static Fp load(const char *p) { return fp_load(p); }
    SP_FN static Fp load_again(const char *p) { return fp_load_again(p); }
    SP_FN static void store(char *p, const Fp &a) { fp_store(p, a); }
};

template <> struct Field<Fp2> {
    static const int LANES = 1;
    static const int BYTES = 96;
    SP_FN static Fp2 zero() { return fp2_zero(); }
    SP_FN static Fp2 one() { return fp2_one(); }
    SP_FN static bool any(bool mine) { return mine; }
    SP_FN static Fp2 load(const char *p) { return Fp2{fp_load(p), fp_load(p + 48)}; }
    SP_FN static Fp2 load_again(const char *p) { return Fp2{fp_load_again(p), fp_load_again(p + 48)}; }
    SP_FN static void store(char *p, const Fp2 &a) {
        fp_store(p, a.c0);
        fp_store(p + 48, a.c1);
    }
};

#if SP_PTX || defined(SP_EMULATE)
SP_FN Fp2Lane add(const Fp2Lane &a, const Fp2Lane &b) { return Fp2Lane{fp_add(a.c, b.c)}; }
SP_FN Fp2Lane sub(const Fp2Lane &a, const Fp2Lane &b) { return Fp2Lane{fp_sub(a.c, b.c)}; }
SP_FN Fp2Lane neg(const Fp2Lane &a) { return Fp2Lane{fp_neg(a.c)}; }
SP_FN Fp2Lane mul(const Fp2Lane &a, const Fp2Lane &b) { return fp2_lane_mul(a, b); }
SP_FN Fp2Lane sqr(const Fp2Lane &a) { return fp2_lane_sqr(a); }
SP_FN Fp2Lane inv(const Fp2Lane &a) { return fp2_lane_inv(a); }
SP_FN Fp2Lane mul_sub(const Fp2Lane &a, const Fp2Lane &b, const Fp2Lane &c, const Fp2Lane &d) { return fp2_lane_mul_sub(a, b, c, d); }
SP_FN bool is_zero(const Fp2Lane &a) { return fp2_lane_both(fp_is_zero(a.c)); }
SP_FN Fp2Lane select(bool take_a, const Fp2Lane &a, const Fp2Lane &b) { return Fp2Lane{fp_select(take_a, a.c, b.c)}; }

template <> struct Field<Fp2Lane> {
    static const int LANES = 2;
    static const int BYTES = 96;
    SP_FN static Fp2Lane zero() { return Fp2Lane{fp_zero()}; }
    SP_FN static Fp2Lane one() { return Fp2Lane{fp_select(fp2_lane_is_odd(), fp_zero(), fp_one())}; }
    SP_FN static bool any(bool mine) { return __any_sync(SP_WARP, mine); }
    SP_FN static Fp2Lane load(const char *p) { return Fp2Lane{fp_load(p + (threadIdx.x & 1) * 48)}; }
    SP_FN static Fp2Lane load_again(const char *p) { return Fp2Lane{fp_load_again(p + (threadIdx.x & 1) * 48)}; }
    SP_FN static void store(char *p, const Fp2Lane &a) { fp_store(p + (threadIdx.x & 1) * 48, a.c); }
};
#endif

template <class F> struct Affine {
    F x, y;
};

template <class F> struct Xyzz {
    F x, y, zz, zzz;
};

template <class F> SP_FN Affine<F> affine_load(const char *p) {
    return Affine<F>{Field<F>::load(p), Field<F>::load(p + Field<F>::BYTES)};
}

// The same by volatile loads, which the compiler cannot answer with the registers of an earlier load: for a rare case that would otherwise
// keep a point alive through the common one.
template <class F> SP_FN Affine<F> affine_load_again(const char *p) {
    return Affine<F>{Field<F>::load_again(p), Field<F>::load_again(p + Field<F>::BYTES)};
}

template <class F> SP_FN void affine_store(char *p, const Affine<F> &a) {
    Field<F>::store(p, a.x);
    Field<F>::store(p + Field<F>::BYTES, a.y);
}

template <class F> SP_FN bool affine_is_infinity(const Affine<F> &a) {
    const bool x = is_zero(a.x), y = is_zero(a.y);
    return x && y;
}

template <class F> SP_FN Xyzz<F> xyzz_infinity() {
    return Xyzz<F>{Field<F>::zero(), Field<F>::zero(), Field<F>::zero(), Field<F>::zero()};
}

template <class F> SP_FN Xyzz<F> xyzz_load(const char *p) {
    const int b = Field<F>::BYTES;
    return Xyzz<F>{Field<F>::load(p), Field<F>::load(p + b), Field<F>::load(p + 2 * b), Field<F>::load(p + 3 * b)};
}

template <class F> SP_FN void xyzz_store(char *p, const Xyzz<F> &a) {
    const int b = Field<F>::BYTES;
    Field<F>::store(p, a.x);
    Field<F>::store(p + b, a.y);
    Field<F>::store(p + 2 * b, a.zz);
    Field<F>::store(p + 3 * b, a.zzz);
}

template <class F> SP_FN Xyzz<F> xyzz_select(bool take_a, const Xyzz<F> &a, const Xyzz<F> &b) {
    return Xyzz<F>{select(take_a, a.x, b.x), select(take_a, a.y, b.y), select(take_a, a.zz, b.zz), select(take_a, a.zzz, b.zzz)};
}

template <class F> SP_FN Xyzz<F> xyzz_from_affine(const Affine<F> &p) {
    const bool infinite = affine_is_infinity(p);
    const F one = select(infinite, Field<F>::zero(), Field<F>::one());
    return Xyzz<F>{p.x, p.y, one, one};
}

// Multiplications by call, for the functions below that are not inlined either: they keep every kernel that uses them small, and a
// call costs little beside the multiplication.
template <class F> SP_COLD void mul_to(F &r, const F &a, const F &b) { r = mul(a, b); }
template <class F> SP_COLD void sqr_to(F &r, const F &a) { r = sqr(a); }
template <class F> SP_COLD void mul_sub_to(F &r, const F &a, const F &b, const F &c, const F &d) { r = mul_sub(a, b, c, d); }

template <class F> SP_FN F mul_called(const F &a, const F &b) {
    F r;
    mul_to(r, a, b);
    return r;
}

template <class F> SP_FN F sqr_called(const F &a) {
    F r;
    sqr_to(r, a);
    return r;
}

template <class F> SP_FN F mul_sub_called(const F &a, const F &b, const F &c, const F &d) {
    F r;
    mul_sub_to(r, a, b, c, d);
    return r;
}

// r = 2 p for an affine p; infinity for infinity.
template <class F> SP_COLD void xyzz_dbl_affine(Xyzz<F> &r, const Affine<F> &p) {
    const F u = add(p.y, p.y);
    const F v = sqr_called(u);
    const F w = mul_called(u, v);
    const F s = mul_called(p.x, v);
    const F x2 = sqr_called(p.x);
    const F m = add(add(x2, x2), x2);
    r.x = sub(sub(sqr_called(m), s), s);
    r.y = mul_sub_called(m, sub(s, r.x), w, p.y);
    r.zz = v;
    r.zzz = w;
}

// r = 2 p; r and p must be different objects.
template <class F> SP_COLD void xyzz_dbl(Xyzz<F> &r, const Xyzz<F> &p) {
    xyzz_dbl_affine(r, Affine<F>{p.x, p.y});
    r.zz = mul_called(r.zz, p.zz);
    r.zzz = mul_called(r.zzz, p.zzz);
}

// acc += p. Not inlined, and multiplying by call: fourteen multiplications in line are slower, since they overflow the instruction caches.
template <class F> SP_COLD void xyzz_add(Xyzz<F> &acc, const Xyzz<F> &p) {
    bool ignore = is_zero(p.zz);
    const bool start = is_zero(acc.zz) && !ignore;
    if (Field<F>::any(start)) acc = xyzz_select(start, p, acc);
    ignore = ignore || start;

    const F U1 = mul_called(acc.x, p.zz);
    const F P = sub(mul_called(p.x, acc.zz), U1);
    const F S1 = mul_called(acc.y, p.zzz);
    const F R = sub(mul_called(p.y, acc.zzz), S1);
    const bool same_x = is_zero(P), same_y = is_zero(R);
    const bool doubling = same_x && same_y && !ignore;
    const F PP = sqr_called(P);
    const F PPP = mul_called(P, PP);
    const F Q = mul_called(U1, PP);
    Xyzz<F> r;
    r.zz = mul_called(mul_called(acc.zz, p.zz), PP);
    r.zzz = mul_called(mul_called(acc.zzz, p.zzz), PPP);
    r.x = sub(sub(sub(sqr_called(R), PPP), Q), Q);
    r.y = mul_sub_called(R, sub(Q, r.x), S1, PPP);
    if (Field<F>::any(doubling)) {
        Xyzz<F> twice;
        xyzz_dbl(twice, p);
        r = xyzz_select(doubling, twice, r);
    }
    acc = xyzz_select(ignore, acc, r);
}

// The affine point; one inversion of ZZZ: 1 / ZZ = (ZZ / ZZZ)^2.
template <class F> SP_FN Affine<F> xyzz_to_affine(const Xyzz<F> &p) {
    const F i = inv(p.zzz);
    const F t = mul(p.zz, i);
    const bool infinite = is_zero(p.zz);
    return Affine<F>{select(infinite, Field<F>::zero(), mul(p.x, sqr(t))), select(infinite, Field<F>::zero(), mul(p.y, i))};
}
