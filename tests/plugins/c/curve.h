/* A curve y^2 = x^3 + b over the field F, included once for each group with F and GROUP defined. Points to add are affine records
   in memory, sums are Jacobian (x/z^2, y/z^3); infinity is z = 0, and the record of all zeros. */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define OP(name) JOIN(F, name)
#define FN(name) JOIN(GROUP, name)
#define MUL(x, y) OP(mul)(x, y)
#define ADD(x, y) OP(add)(x, y)
#define SUB(x, y) OP(sub)(x, y)

typedef struct { F x, y; } FN(affine);
typedef struct { F x, y, z; } FN(point);

/* "dbl-2009-l" of the explicit-formulas database. */
static FN(point) FN(double)(FN(point) p) {
    F a = MUL(p.x, p.x), b = MUL(p.y, p.y), c = MUL(b, b), t = ADD(p.x, b);
    F d = SUB(SUB(MUL(t, t), a), c), e = ADD(ADD(a, a), a), yz = MUL(p.y, p.z);
    d = ADD(d, d);
    FN(point) o;
    o.x = SUB(MUL(e, e), ADD(d, d));
    c = ADD(c, c), c = ADD(c, c), c = ADD(c, c);
    o.y = SUB(MUL(e, SUB(d, o.x)), c);
    o.z = ADD(yz, yz);
    return o;
}

/* "add-1998-cmo-2", with the cases it leaves out. */
static FN(point) FN(add)(FN(point) p, FN(point) q) {
    if (OP(is_zero)(p.z)) return q;
    if (OP(is_zero)(q.z)) return p;
    F pzz = MUL(p.z, p.z), qzz = MUL(q.z, q.z);
    F u = MUL(p.x, qzz), h = SUB(MUL(q.x, pzz), u);
    F s = MUL(p.y, MUL(q.z, qzz)), r = SUB(MUL(q.y, MUL(p.z, pzz)), s);
    if (OP(is_zero)(h)) {
        if (OP(is_zero)(r)) return FN(double)(p);
        memset(&p, 0, sizeof p);
        return p;
    }
    F hh = MUL(h, h), hhh = MUL(h, hh), v = MUL(u, hh);
    FN(point) o;
    o.x = SUB(SUB(MUL(r, r), hhh), ADD(v, v));
    o.y = SUB(MUL(r, SUB(v, o.x)), MUL(s, hhh));
    o.z = MUL(MUL(p.z, q.z), h);
    return o;
}

/* A record carries no alignment, so it is copied. */
static FN(point) FN(read)(const uint8_t *record, F one) {
    FN(affine) a;
    FN(point) p;
    memcpy(&a, record, sizeof a);
    p.x = a.x, p.y = a.y, p.z = one;
    if (OP(is_zero)(a.x) && OP(is_zero)(a.y)) memset(&p, 0, sizeof p);
    return p;
}

static void FN(write)(uint8_t *record, FN(point) p, F one) {
    FN(affine) a;
    memset(&a, 0, sizeof a);
    if (!OP(is_zero)(p.z)) {
        F z = OP(invert)(p.z, one), zz = MUL(z, z);
        a.x = MUL(p.x, zz), a.y = MUL(p.y, MUL(zz, z));
    }
    memcpy(record, &a, sizeof a);
}

/* The sum of scalars[i]*P_i over the dense variables i, by buckets: for each window of bits, one bucket for each digit. */
static FN(point) FN(multiexp)(const SpQuery *query, const fr *scalars, F one) {
    const int bits = query->num_dense < 128 ? 4 : 8, windows = 256 / bits;
    FN(point) buckets[255], total, sum, running;
    memset(&total, 0, sizeof total);
    for (int window = windows - 1; window >= 0; window--) {
        for (int i = 0; i < bits; i++) total = FN(double)(total);
        memset(buckets, 0, sizeof buckets);
        uint64_t rank = 0;
        for (uint64_t i = 0; i < query->num_variables; i++) {
            if (query->density && !(query->density[i / 64] >> (i % 64) & 1)) continue;
            uint64_t record = query->storage == SP_STORAGE_SPREAD ? i : rank;
            uint64_t digit = scalars[i].l[window * bits / 64] >> (window * bits % 64) & ((1u << bits) - 1);
            rank++;
            if (digit == 0) continue;
            FN(point) p = FN(read)(query->records + record * sizeof(FN(affine)), one);
            buckets[digit - 1] = FN(add)(buckets[digit - 1], p);
        }
        memset(&sum, 0, sizeof sum);
        memset(&running, 0, sizeof running);
        for (int digit = (1 << bits) - 1; digit > 0; digit--) {
            running = FN(add)(running, buckets[digit - 1]);
            sum = FN(add)(sum, running);
        }
        total = FN(add)(total, sum);
    }
    return total;
}

#undef JOIN_
#undef JOIN
#undef OP
#undef FN
#undef MUL
#undef ADD
#undef SUB
#undef F
#undef GROUP
