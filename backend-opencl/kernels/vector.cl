// Vectors of scalars: sparse products, pointwise steps, counting. Scalars are 8 words, Montgomery form, below r, unless it says otherwise.

static inline fr fr_load(__global const uint4 *from, const uint index) {
  union {
    fr value;
    uint4 quads[2];
  } w;
  w.quads[0] = from[2 * (ulong)index];
  w.quads[1] = from[2 * (ulong)index + 1];
  return w.value;
}

static inline void fr_store(__global uint4 *to, const uint index, const fr value) {
  union {
    fr value;
    uint4 quads[2];
  } w;
  w.value = value;
  to[2 * (ulong)index] = w.quads[0];
  to[2 * (ulong)index + 1] = w.quads[1];
}

// out = a b, element by element.
__kernel WORK_GROUP void multiply(__global const uint4 *a, __global const uint4 *b, __global uint4 *out, const uint count) {
  uint i = get_global_id(0);
  if (i < count) fr_store(out, i, fr_mul(fr_load(a, i), fr_load(b, i)));
}

static inline fr sparse_term(const uint id, __global const uint4 *dictionary, const fr value) {
  // The dictionary begins with 1 and -1.
  if (id == 0) return value;
  if (id == 1) return fr_neg(value);
  return fr_mul(fr_load(dictionary, id), value);
}

// Rows of a matrix in compressed sparse rows times the witness: a work item for each row. Rows with `long_row` entries and more are left
// to the next kernel.
__kernel WORK_GROUP void sparse_rows(__global const uint *offsets, __global const uint *columns, __global const uint *ids,
                                     __global const uint4 *dictionary, __global const uint4 *witness, __global uint4 *out, const uint rows,
                                     const uint long_row) {
  uint row = get_global_id(0);
  if (row >= rows) return;
  uint from = offsets[row], end = offsets[row + 1];
  if (end - from >= long_row) return;
  fr sum = fr_zero();
  NO_UNROLL
  for (uint at = from; at < end; at++) sum = fr_add(sum, sparse_term(ids[at], dictionary, fr_load(witness, columns[at])));
  fr_store(out, row, sum);
}

// A work group for each long row; `list` names them.
__kernel WORK_GROUP void sparse_long_rows(__global const uint *offsets, __global const uint *columns, __global const uint *ids,
                                          __global const uint4 *dictionary, __global const uint4 *witness, __global uint4 *out,
                                          __global const uint *list) {
  __local fr parts[GROUP];
  uint row = list[get_group_id(0)], lane = get_local_id(0);
  uint end = offsets[row + 1];
  fr sum = fr_zero();
  NO_UNROLL
  for (uint at = offsets[row] + lane; at < end; at += GROUP)
    sum = fr_add(sum, sparse_term(ids[at], dictionary, fr_load(witness, columns[at])));
  parts[lane] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint middle = GROUP / 2; middle > 0; middle /= 2) {
    if (lane < middle) parts[lane] = fr_add(parts[lane], parts[lane + middle]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (lane == 0) fr_store(out, row, parts[0]);
}

// g^exponent for a 2n-th root g, from tables of g^i and g^(i 2^split).
static inline fr root_power(__global const uint4 *low, __global const uint4 *high, const uint split, const ulong exponent) {
  return fr_mul(fr_load(low, (uint)(exponent & ((1ul << split) - 1))), fr_load(high, (uint)(exponent >> split)));
}

static inline uint reverse_bits(const uint value, const uint bits) {
  uint v = value;
  v = ((v >> 1) & 0x55555555u) | ((v & 0x55555555u) << 1);
  v = ((v >> 2) & 0x33333333u) | ((v & 0x33333333u) << 2);
  v = ((v >> 4) & 0x0f0f0f0fu) | ((v & 0x0f0f0f0fu) << 4);
  v = ((v >> 8) & 0x00ff00ffu) | ((v & 0x00ff00ffu) << 8);
  v = (v >> 16) | (v << 16);
  return bits == 0 ? 0 : v >> (32 - bits);
}

// The quotient's scalars in the odd Lagrange basis: out = (a b - subtrahend c) factor.
__kernel WORK_GROUP void quotient_values(__global const uint4 *a, __global const uint4 *b, __global const uint4 *c, __global uint4 *out,
                                         __global const uint4 *constants, const uint count) {
  uint i = get_global_id(0);
  if (i >= count) return;
  fr product = fr_mul(fr_load(a, i), fr_load(b, i));
  fr rest = fr_sub(product, fr_mul(fr_load(c, i), fr_load(constants, 0)));
  fr_store(out, i, fr_mul(rest, fr_load(constants, 1)));
}

// The same in the monomial basis, from coefficients in bit-reversed order, `a` still on the coset: out[j] = (a_j / g^j - subtrahend c_j) factor.
__kernel WORK_GROUP void quotient_coefficients(__global const uint4 *a, __global const uint4 *c, __global uint4 *out,
                                               __global const uint4 *constants, __global const uint4 *low, __global const uint4 *high,
                                               const uint split, const uint log_n) {
  uint i = get_global_id(0);
  if (i >= 1u << log_n) return;
  uint j = reverse_bits(i, log_n);
  ulong exponent = ((2ul << log_n) - j) & ((2ul << log_n) - 1);
  fr coefficient = fr_mul(fr_load(a, i), root_power(low, high, split, exponent));
  fr rest = fr_sub(coefficient, fr_mul(fr_load(c, i), fr_load(constants, 0)));
  fr_store(out, j, fr_mul(rest, fr_load(constants, 1)));
}

// Field operations, for the self-test and tests.
__kernel WORK_GROUP void fr_operation(__global const uint4 *a, __global const uint4 *b, __global uint4 *out, const uint count,
                                      const uint operation) {
  uint i = get_global_id(0);
  if (i >= count) return;
  fr x = fr_load(a, i), y = fr_load(b, i), r;
  switch (operation) {
    case 0: r = fr_mul(x, y); break;
    case 1: r = fr_mul_plain(x, y); break;
    case 2: r = fr_sqr(x); break;
    case 3: r = fr_add(x, y); break;
    case 4: r = fr_sub(x, y); break;
    default: r = fr_neg(x);
  }
  fr_store(out, i, r);
}
