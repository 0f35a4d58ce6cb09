// The quadratic extension of the base field, u^2 = -1. Bases and sums of G2 have coordinates in it: c0 + c1 u.

typedef struct {
  fp c0, c1;
} fp2;

static inline fp2 fp2_zero(void) {
  fp2 r = {fp_zero(), fp_zero()};
  return r;
}

static inline fp2 fp2_one(void) {
  fp2 r = {fp_one(), fp_zero()};
  return r;
}

static inline bool fp2_is_zero(const fp2 a) {
  return fp_is_zero(a.c0) && fp_is_zero(a.c1);
}

static inline bool fp2_equal(const fp2 a, const fp2 b) {
  return fp_equal(a.c0, b.c0) && fp_equal(a.c1, b.c1);
}

static inline fp2 fp2_add(const fp2 a, const fp2 b) {
  fp2 r = {fp_add(a.c0, b.c0), fp_add(a.c1, b.c1)};
  return r;
}

static inline fp2 fp2_double(const fp2 a) {
  return fp2_add(a, a);
}

static inline fp2 fp2_sub(const fp2 a, const fp2 b) {
  fp2 r = {fp_sub(a.c0, b.c0), fp_sub(a.c1, b.c1)};
  return r;
}

static inline fp2 fp2_neg(const fp2 a) {
  return fp2_sub(fp2_zero(), a);
}

// Karatsuba: three products.
static __attribute__((noinline)) fp2 fp2_mul(const fp2 a, const fp2 b) {
  fp v0 = fp_mul(a.c0, b.c0);
  fp v1 = fp_mul(a.c1, b.c1);
  fp mixed = fp_mul(fp_add(a.c0, a.c1), fp_add(b.c0, b.c1));
  fp2 r = {fp_sub(v0, v1), fp_sub(fp_sub(mixed, v0), v1)};
  return r;
}

// (c0 + c1)(c0 - c1) + 2 c0 c1 u.
static __attribute__((noinline)) fp2 fp2_sqr(const fp2 a) {
  fp real = fp_mul(fp_add(a.c0, a.c1), fp_sub(a.c0, a.c1));
  fp2 r = {real, fp_double(fp_mul(a.c0, a.c1))};
  return r;
}
