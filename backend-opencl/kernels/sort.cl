// Scalars to entries sorted by bucket.
//
// `split` tells scalars apart: 0 vanishes; 1 and -1 are units, which one bucket of their own sums without a window; the rest is the tail.
// Tail scalars become magnitudes: |k| < 2^254 with the sign in the top bit, where k is taken between -r/2 and r/2. A magnitude has one signed
// digit in [-2^(c-1), 2^(c-1)] for each window of c bits; digit d of window w makes an entry with key w 2^(c-1) + |d| - 1. Entries are sorted by
// counting: histogram, prefix sums, scatter. An entry is (key, base | sign).
//
// totals: 0 tail scalars, 1 units, 2 entries of this pass.

#define NEGATIVE 0x80000000u

// |k| with the sign in the top bit, of a plain k.
static inline fr magnitude(const fr k) {
  fr n = fr_neg(k);
  // k > r - k: then r - k is the smaller one.
  uint borrow = 0;
  for (uint i = 0; i < 8; i++) borrow = (uint)(((ulong)n.l[i] - k.l[i] - borrow) >> 63);
  if (!borrow || fr_is_zero(k)) return k;
  n.l[7] |= NEGATIVE;
  return n;
}

static inline fr to_plain(const fr a) {
  fr one = fr_zero();
  one.l[0] = 1;
  return fr_mul(a, one);
}

static inline bool is_unit(const fr m) {
  uint bits = (m.l[0] ^ 1) | (m.l[7] & ~NEGATIVE);
  for (uint i = 1; i < 7; i++) bits |= m.l[i];
  return bits == 0;
}

// Scalars from + 0, 1, ..., or from + index[index_from], ..., belong to bases base_from, base_from + 1, ....
__kernel WORK_GROUP void split(__global const uint4 *scalars, const uint from, __global const uint *index, const uint index_from,
                               const uint indexed, const uint count, const uint base_from, const uint montgomery,
                               __global uint4 *magnitudes, __global uint *tail, __global uint *units, __global uint *totals) {
  __local uint counts[2], places[2];
  uint i = get_global_id(0), lane = get_local_id(0);
  if (lane == 0) counts[0] = counts[1] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  uint kind = 2, rank = 0;
  fr k;
  if (i < count) {
    k = fr_load(scalars, from + (indexed ? index[index_from + i] : i));
    if (montgomery) k = to_plain(k);
    k = magnitude(k);
    if (!fr_is_zero(k)) {
      kind = is_unit(k) ? 1 : 0;
      rank = atomic_inc(&counts[kind]);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (lane == 0) {
    places[0] = atomic_add(&totals[0], counts[0]);
    places[1] = atomic_add(&totals[1], counts[1]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  uint base = base_from + i;
  if (kind == 0) {
    fr_store(magnitudes, places[0] + rank, k);
    tail[places[0] + rank] = base;
  } else if (kind == 1) {
    units[places[1] + rank] = base | (k.l[7] & NEGATIVE);
  }
}

// How many of the scalars are in the tail, and how many units: totals[0] and [1].
__kernel WORK_GROUP void count_kinds(__global const uint4 *scalars, const uint count, __global uint *totals) {
  __local uint counts[2];
  uint i = get_global_id(0), lane = get_local_id(0);
  if (lane == 0) counts[0] = counts[1] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (i < count) {
    fr k = magnitude(to_plain(fr_load(scalars, i)));
    if (!fr_is_zero(k)) atomic_inc(&counts[is_unit(k) ? 1 : 0]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (lane == 0) {
    if (counts[0]) atomic_add(&totals[0], counts[0]);
    if (counts[1]) atomic_add(&totals[1], counts[1]);
  }
}

// Bits `at` .. `at` + width of a magnitude.
static inline uint bits_of(__global const uint *m, const uint at, const uint width) {
  uint limb = at >> 5;
  ulong pair = m[limb];
  if (limb < 7) pair |= (ulong)m[limb + 1] << 32;
  if (limb >= 6) pair &= limb == 7 ? 0x7ffffffful : 0x7ffffffffffffffful;
  return (uint)(pair >> (at & 31)) & ((1u << width) - 1);
}

// The entries' numbers: counts[key], for windows window_from .. window_end of each tail scalar.
__kernel WORK_GROUP void histogram(__global const uint *magnitudes, __global const uint *totals, const uint width, const uint window_from,
                                   const uint window_end, __global uint *counts) {
  uint i = get_global_id(0);
  if (i >= totals[0]) return;
  __global const uint *m = magnitudes + 8 * (ulong)i;
  uint middle = 1u << (width - 1), carry = 0;
  NO_UNROLL
  for (uint w = 0; w < window_end; w++) {
    uint digit = bits_of(m, w * width, width) + carry;
    carry = digit > middle;
    if (carry) digit = 2 * middle - digit;
    if (w >= window_from && digit != 0) atomic_inc(&counts[w * middle + digit - 1]);
  }
}

// Puts the entries in place; counts holds where each key begins, and is moved on.
__kernel WORK_GROUP void scatter(__global const uint *magnitudes, __global const uint *tail, __global const uint *totals, const uint width,
                                 const uint window_from, const uint window_end, __global uint *counts, __global uint2 *entries,
                                 const uint capacity) {
  uint i = get_global_id(0);
  if (i >= totals[0]) return;
  __global const uint *m = magnitudes + 8 * (ulong)i;
  uint middle = 1u << (width - 1), carry = 0, base = tail[i], sign = m[7] & NEGATIVE;
  NO_UNROLL
  for (uint w = 0; w < window_end; w++) {
    uint digit = bits_of(m, w * width, width) + carry;
    carry = digit > middle;
    if (carry) digit = 2 * middle - digit;
    if (w >= window_from && digit != 0) {
      uint key = w * middle + digit - 1;
      uint at = atomic_inc(&counts[key]);
      if (at < capacity) entries[at] = (uint2)(key, base | (carry ? sign ^ NEGATIVE : sign));
    }
  }
}

// Units come after the last key, with a key of their own. counts[unit_key] is the number of entries so far.
__kernel WORK_GROUP void append_units(__global const uint *units, __global uint *totals, __global const uint *counts, const uint unit_key,
                                      const uint with_units, __global uint2 *entries, const uint capacity) {
  uint i = get_global_id(0);
  uint before = counts[unit_key], count = with_units ? totals[1] : 0;
  if (i == 0) totals[2] = min(before + count, capacity);
  if (i < count && before + i < capacity) entries[before + i] = (uint2)(unit_key, units[i]);
}

// Exclusive prefix sums within blocks of SCAN_BLOCK; the blocks' sums go to `sums`.
__kernel WORK_GROUP void scan_blocks(__global uint *data, const uint count, __global uint *sums) {
  __local uint parts[GROUP];
  uint lane = get_local_id(0), block = get_group_id(0);
  uint from = block * SCAN_BLOCK + lane * SCAN_ITEMS;
  uint values[SCAN_ITEMS], sum = 0;
  for (uint i = 0; i < SCAN_ITEMS; i++) {
    values[i] = from + i < count ? data[from + i] : 0;
    sum += values[i];
  }
  parts[lane] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint step = 1; step < GROUP; step *= 2) {
    uint other = lane >= step ? parts[lane - step] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    parts[lane] += other;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  uint before = lane > 0 ? parts[lane - 1] : 0;
  if (lane == GROUP - 1) sums[block] = parts[lane];
  for (uint i = 0; i < SCAN_ITEMS; i++) {
    if (from + i < count) data[from + i] = before;
    before += values[i];
  }
}

// Adds to each block the sum of the blocks before it.
__kernel WORK_GROUP void scan_add(__global uint *data, const uint count, __global const uint *sums) {
  uint i = get_global_id(0);
  if (i < count) data[i] += sums[i / SCAN_BLOCK];
}
