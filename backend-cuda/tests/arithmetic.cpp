// The portable path of the kernel headers as a C library, for `arithmetic.rs`.
#include <cstring>

#include "curve.cuh"
#include "fr.cuh"

template <class T> static T read(const void *p) {
    T t;
    std::memcpy(&t, p, sizeof t);
    return t;
}

template <class T> static void write(void *p, const T &t) {
    std::memcpy(p, &t, sizeof t);
}

// Operations on two elements x, y; the four-operand ones are x y + z w and x y - z w.
extern "C" void sp_fp(int op, const void *in, void *out) {
    const char *p = static_cast<const char *>(in);
    const Fp x = read<Fp>(p), y = read<Fp>(p + 48), z = read<Fp>(p + 96), w = read<Fp>(p + 144);
    switch (op) {
    case 0: return write(out, fp_add(x, y));
    case 1: return write(out, fp_sub(x, y));
    case 2: return write(out, fp_neg(x));
    case 3: return write(out, fp_mul(x, y));
    case 4: return write(out, fp_sqr(x));
    case 5: return write(out, fp_inv(x));
    case 6: return write(out, fp_mul_add(x, y, z, w));
    case 7: return write(out, fp_mul_sub(x, y, z, w));
    }
}

extern "C" void sp_fr(int op, const void *in, void *out) {
    const char *p = static_cast<const char *>(in);
    const Fr x = read<Fr>(p), y = read<Fr>(p + 32);
    switch (op) {
    case 0: return write(out, fr_add(x, y));
    case 1: return write(out, fr_sub(x, y));
    case 2: return write(out, fr_neg(x));
    case 3: return write(out, fr_mul(x, y));
    case 4: return write(out, fr_sqr(x));
    case 5: return write(out, fr_inv(x));
    case 6: return write(out, fr_to_plain(x));
    case 7: return write(out, fr_from_plain(fr_to_plain(x)));
    }
}

extern "C" void sp_fp2(int op, const void *in, void *out) {
    const char *p = static_cast<const char *>(in);
    const Fp2 x = read<Fp2>(p), y = read<Fp2>(p + 96), z = read<Fp2>(p + 192), w = read<Fp2>(p + 288);
    switch (op) {
    case 0: return write(out, fp2_add(x, y));
    case 1: return write(out, fp2_sub(x, y));
    case 2: return write(out, fp2_neg(x));
    case 3: return write(out, fp2_mul(x, y));
    case 4: return write(out, fp2_sqr(x));
    case 5: return write(out, fp2_inv(x));
    case 6: return write(out, Fp2{fp2_norm(x), fp_zero()});
    case 7: return write(out, mul_sub(x, y, z, w));
    }
}

// 0: p + q. 1: 2 p. 2: (p + q) + (q + q), whose operands have denominators. All from affine points to an affine point.
template <class F> static void curve(int op, const void *in, void *out) {
    const char *at = static_cast<const char *>(in);
    const Xyzz<F> p = xyzz_from_affine(read<Affine<F>>(at)), q = xyzz_from_affine(read<Affine<F>>(at + sizeof(Affine<F>)));
    Xyzz<F> r = p;
    if (op == 1)
        xyzz_dbl(r, p);
    else
        xyzz_add(r, q);
    if (op == 2) {
        Xyzz<F> twice;
        xyzz_dbl(twice, q);
        xyzz_add(r, twice);
    }
    write(out, xyzz_to_affine(r));
}

extern "C" void sp_g1(int op, const void *in, void *out) { curve<Fp>(op, in, out); }
extern "C" void sp_g2(int op, const void *in, void *out) { curve<Fp2>(op, in, out); }
