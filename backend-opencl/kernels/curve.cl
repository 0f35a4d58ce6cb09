// The curve y^2 = x^3 + b with coordinates in the field CO: fp for G1, fp2 for G2. b enters no formula. Before the text stand
//   CO_T       the coordinates' type
//   CO(name)   pastes its prefix
//   CO_WORDS   its 32-bit words, 12 or 24
//
// Sums are in XYZZ coordinates: x = X / ZZ, y = Y / ZZZ, ZZ^3 = ZZZ^2, infinity is ZZ = 0. Formulas madd-2008-s, add-2008-s, dbl-2008-s-1
// and mdbl-2008-s-1 of the Explicit-Formulas Database (hyperelliptic.org/EFD). P + P, P - P and infinity are cases of their own.

typedef struct {
  CO_T x, y;
} affine;

typedef struct {
  CO_T x, y, zz, zzz;
} xyzz;

static inline xyzz point_infinity(void) {
  xyzz r = {CO(zero)(), CO(zero)(), CO(zero)(), CO(zero)()};
  return r;
}

static inline bool point_is_infinity(const xyzz p) {
  return CO(is_zero)(p.zz);
}

// Records write infinity as zeros.
static inline bool affine_is_infinity(const affine p) {
  return CO(is_zero)(p.x) && CO(is_zero)(p.y);
}

static inline xyzz point_from_affine(const affine p) {
  xyzz r = {p.x, p.y, CO(one)(), CO(one)()};
  if (affine_is_infinity(p)) r.zz = r.zzz = CO(zero)();
  return r;
}

// 2 p. The coordinates of the double of (x / zz, y / zzz); an affine point has zz = zzz = 1.
static __attribute__((noinline)) xyzz point_double(const xyzz p) {
  CO_T u = CO(double)(p.y);
  CO_T v = CO(sqr)(u);
  CO_T w = CO(mul)(u, v);
  CO_T s = CO(mul)(p.x, v);
  CO_T xx = CO(sqr)(p.x);
  CO_T m = CO(add)(CO(double)(xx), xx);
  xyzz r;
  r.x = CO(sub)(CO(sqr)(m), CO(double)(s));
  r.y = CO(sub)(CO(mul)(m, CO(sub)(s, r.x)), CO(mul)(w, p.y));
  r.zz = CO(mul)(v, p.zz);
  r.zzz = CO(mul)(w, p.zzz);
  return r;
}

// The end of either addition: from P = u2 - u1, R = s2 - s1, u1, s1 and the products of the denominators.
static inline void add_tail(xyzz *r, const CO_T p, const CO_T q, const CO_T u1, const CO_T s1, const CO_T zz, const CO_T zzz) {
  CO_T pp = CO(sqr)(p);
  CO_T ppp = CO(mul)(p, pp);
  CO_T qq = CO(mul)(u1, pp);
  r->zz = CO(mul)(zz, pp);
  r->zzz = CO(mul)(zzz, ppp);
  r->x = CO(sub)(CO(sub)(CO(sqr)(q), ppp), CO(double)(qq));
  r->y = CO(sub)(CO(mul)(q, CO(sub)(qq, r->x)), CO(mul)(s1, ppp));
}

// a + b, with b affine and not infinity.
static __attribute__((noinline)) xyzz point_add_affine(const xyzz a, const affine b) {
  if (point_is_infinity(a)) return point_from_affine(b);
  CO_T p = CO(sub)(CO(mul)(b.x, a.zz), a.x);
  CO_T q = CO(sub)(CO(mul)(b.y, a.zzz), a.y);
  if (CO(is_zero)(p)) return CO(is_zero)(q) ? point_double(point_from_affine(b)) : point_infinity();
  xyzz r;
  add_tail(&r, p, q, a.x, a.y, a.zz, a.zzz);
  return r;
}

// a + b.
static __attribute__((noinline)) xyzz point_add(const xyzz a, const xyzz b) {
  if (point_is_infinity(a)) return b;
  if (point_is_infinity(b)) return a;
  CO_T u1 = CO(mul)(a.x, b.zz);
  CO_T s1 = CO(mul)(a.y, b.zzz);
  CO_T p = CO(sub)(CO(mul)(b.x, a.zz), u1);
  CO_T q = CO(sub)(CO(mul)(b.y, a.zzz), s1);
  if (CO(is_zero)(p)) return CO(is_zero)(q) ? point_double(a) : point_infinity();
  xyzz r;
  add_tail(&r, p, q, u1, s1, CO(mul)(a.zz, b.zz), CO(mul)(a.zzz, b.zzz));
  return r;
}

// Tables are arrays of 16-byte words: a record of 96 or 192 bytes is 6 or 12 of them, a sum 12 or 24.
#define AFFINE_QUADS (CO_WORDS / 2)
#define XYZZ_QUADS (CO_WORDS)

typedef union {
  affine point;
  uint4 quads[AFFINE_QUADS];
} affine_words;

typedef union {
  xyzz point;
  uint4 quads[XYZZ_QUADS];
} xyzz_words;

static inline affine affine_load(__global const uint4 *table, const uint index) {
  affine_words w;
  __global const uint4 *from = table + (ulong)index * AFFINE_QUADS;
  for (uint i = 0; i < AFFINE_QUADS; i++) w.quads[i] = from[i];
  return w.point;
}

static inline xyzz point_load(__global const uint4 *table, const uint index) {
  xyzz_words w;
  __global const uint4 *from = table + (ulong)index * XYZZ_QUADS;
  for (uint i = 0; i < XYZZ_QUADS; i++) w.quads[i] = from[i];
  return w.point;
}

static inline void point_store(__global uint4 *table, const uint index, const xyzz p) {
  xyzz_words w;
  w.point = p;
  __global uint4 *to = table + (ulong)index * XYZZ_QUADS;
  for (uint i = 0; i < XYZZ_QUADS; i++) to[i] = w.quads[i];
}
