// A prime field in Montgomery form. The text is compiled once for each field; before it stand
//   FE(name)          pastes the field's prefix, as in fr_mul
//   FE_T              the element type
//   FE_N              32-bit limbs, little-endian; 8 or 12
//   FE_P              the modulus, FE_N limbs
//   FE_ONE            R mod p, R = 2^(32 FE_N)
//   FE_INV            -1/p mod 2^32
//   FE_PTX            whether products go through inline PTX
// Elements are always below p. The modulus leaves at least one bit of the top limb free, so sums of two fit. Arithmetic on limbs
// is 32 x 32 -> 64 bits by `(ulong)a * b`: mul_hi was miscompiled by some drivers.

typedef struct {
  uint l[FE_N];
} FE_T;

static inline FE_T FE(zero)(void) {
  FE_T r;
  for (uint i = 0; i < FE_N; i++) r.l[i] = 0;
  return r;
}

static inline FE_T FE(one)(void) {
  FE_T r;
  for (uint i = 0; i < FE_N; i++) r.l[i] = FE_ONE[i];
  return r;
}

static inline bool FE(is_zero)(const FE_T a) {
  uint bits = 0;
  for (uint i = 0; i < FE_N; i++) bits |= a.l[i];
  return bits == 0;
}

static inline bool FE(equal)(const FE_T a, const FE_T b) {
  uint bits = 0;
  for (uint i = 0; i < FE_N; i++) bits |= a.l[i] ^ b.l[i];
  return bits == 0;
}

// a - p if that isn't negative, for a < 2p.
static inline FE_T FE(reduce)(const FE_T a) {
  FE_T d;
  uint borrow = 0;
#if FE_PTX
  PTX_SUB(d.l, borrow, a.l, FE_P);
#else
  for (uint i = 0; i < FE_N; i++) {
    ulong t = (ulong)a.l[i] - FE_P[i] - borrow;
    d.l[i] = (uint)t;
    borrow = (uint)(t >> 63);
  }
#endif
  for (uint i = 0; i < FE_N; i++) d.l[i] = borrow ? a.l[i] : d.l[i];
  return d;
}

static inline FE_T FE(add)(const FE_T a, const FE_T b) {
  FE_T s;
#if FE_PTX
  PTX_ADD(s.l, a.l, b.l);
#else
  uint carry = 0;
  for (uint i = 0; i < FE_N; i++) {
    ulong t = (ulong)a.l[i] + b.l[i] + carry;
    s.l[i] = (uint)t;
    carry = (uint)(t >> 32);
  }
#endif
  return FE(reduce)(s);
}

static inline FE_T FE(double)(const FE_T a) {
  return FE(add)(a, a);
}

static inline FE_T FE(sub)(const FE_T a, const FE_T b) {
  FE_T d;
#if FE_PTX
  FE_T p;
  uint mask;
  PTX_SUB(d.l, mask, a.l, b.l);
  for (uint i = 0; i < FE_N; i++) p.l[i] = FE_P[i] & mask;
  PTX_ADD(d.l, d.l, p.l);
  return d;
#else
  uint borrow = 0;
  for (uint i = 0; i < FE_N; i++) {
    ulong t = (ulong)a.l[i] - b.l[i] - borrow;
    d.l[i] = (uint)t;
    borrow = (uint)(t >> 63);
  }
  uint mask = 0u - borrow, carry = 0;
  for (uint i = 0; i < FE_N; i++) {
    ulong t = (ulong)d.l[i] + (FE_P[i] & mask) + carry;
    d.l[i] = (uint)t;
    carry = (uint)(t >> 32);
  }
  return d;
#endif
}

static inline FE_T FE(neg)(const FE_T a) {
  return FE(sub)(FE(zero)(), a);
}

// a b / R, column by column of b (CIOS): Koc, Acar, Kaliski 1996. The accumulator stays below 2p, so it has no limb beyond FE_N.
static __attribute__((noinline)) FE_T FE(mul_plain)(const FE_T a, const FE_T b) {
  uint t[FE_N + 1];
  for (uint i = 0; i <= FE_N; i++) t[i] = 0;
  NO_UNROLL
  for (uint i = 0; i < FE_N; i++) {
    uint y = b.l[i];
    ulong c = 0;
    for (uint j = 0; j < FE_N; j++) {
      c += (ulong)a.l[j] * y + t[j];
      t[j] = (uint)c;
      c >>= 32;
    }
    uint top = t[FE_N] + (uint)c;
    uint m = t[0] * FE_INV;
    c = ((ulong)m * FE_P[0] + t[0]) >> 32;
    for (uint j = 1; j < FE_N; j++) {
      c += (ulong)m * FE_P[j] + t[j];
      t[j - 1] = (uint)c;
      c >>= 32;
    }
    c += top;
    t[FE_N - 1] = (uint)c;
    t[FE_N] = (uint)(c >> 32);
  }
  FE_T r;
  for (uint i = 0; i < FE_N; i++) r.l[i] = t[i];
  return FE(reduce)(r);
}

#if FE_PTX
// The same product in chains; see ptx.cl.
static PRODUCT_CALL FE_T FE(mul_ptx)(const FE_T a, const FE_T b) {
  uint even[FE_N], odd[FE_N];
  for (uint i = 0; i < FE_N; i++) even[i] = odd[i] = 0;
  PRODUCT_LOOP
  for (uint i = 0; i < FE_N; i += 2) {
    PTX_ROW(odd, even, a.l, b.l[i]);
    uint m = odd[0] * FE_INV;
    PTX_ROW_P(odd, even, m);
    PTX_ROW(even, odd, a.l, b.l[i + 1]);
    m = even[0] * FE_INV;
    PTX_ROW_P(even, odd, m);
  }
  FE_T r;
  PTX_MERGE(r.l, even, odd);
  return FE(reduce)(r);
}
#define FE_MUL_PATH FE(mul_ptx)
#else
#define FE_MUL_PATH FE(mul_plain)
#endif

static inline FE_T FE(mul)(const FE_T a, const FE_T b) {
  return FE_MUL_PATH(a, b);
}

static inline FE_T FE(sqr)(const FE_T a) {
  return FE_MUL_PATH(a, a);
}
#undef FE_MUL_PATH
