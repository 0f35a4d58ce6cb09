// Bucket sums and their reduction. Built once for G1 and once for G2.
//
// The entries of a pass are (key, base) pairs sorted by key; each key is a bucket, whose sum is wanted. Work is dealt in runs of equal
// length, whatever the buckets' sizes, so that no work item has more to do than another. A bucket that begins and ends inside a run is
// added to its place in `sums` at once: nobody else has a part of it. The first and the last bucket of a run may have parts
// elsewhere; their sums go to the run's two slots of `keys` and `points`, which are sorted by key again and gathered the same way, level by level,
// until one run is left.

#define EMPTY 0xffffffffu
#define NEGATIVE 0x80000000u

static inline void add_to(__global uint4 *sums, const uint key, const xyzz p) {
  point_store(sums, key, point_add(point_load(sums, key), p));
}

// Gathers `run` entries for each work item. totals[2] is the number of entries, at most `capacity`; slots of runs beyond it are EMPTY.
__kernel WORK_GROUP void gather_bases(__global const uint2 *entries, __global const uint *totals, const uint capacity, const uint run,
                                      __global const uint4 *bases, __global uint4 *sums, __global uint *keys, __global uint4 *points) {
  uint item = get_global_id(0);
  uint runs = (capacity + run - 1) / run;
  if (item >= runs) return;
  uint total = min(totals[2], capacity);
  uint from = item * run;
  keys[2 * item] = keys[2 * item + 1] = EMPTY;
  if (from >= total) return;
  uint end = min(from + run, total);
  uint2 entry = entries[from];
  uint key = entry.x;
  bool first = true;
  xyzz sum = point_infinity();
  NO_UNROLL
  for (uint at = from; at < end; at++) {
    entry = entries[at];
    if (entry.x != key) {
      if (first) {
        keys[2 * item] = key;
        point_store(points, 2 * item, sum);
        first = false;
      } else {
        add_to(sums, key, sum);
      }
      key = entry.x;
      sum = point_infinity();
    }
    affine base = affine_load(bases, entry.y & ~NEGATIVE);
    if (!affine_is_infinity(base)) {
      if (entry.y & NEGATIVE) base.y = CO(neg)(base.y);
      sum = point_add_affine(sum, base);
    }
  }
  uint slot = first ? 2 * item : 2 * item + 1;
  keys[slot] = key;
  point_store(points, slot, sum);
}

// The same for `count` slots of the level below. `last`: this is the one run that is left, and every bucket ends in it.
__kernel WORK_GROUP void gather_points(__global const uint *keys_in, __global const uint4 *points_in, const uint count, const uint run,
                                       const uint last, __global uint4 *sums, __global uint *keys, __global uint4 *points) {
  uint item = get_global_id(0);
  uint from = item * run;
  if (from >= count) return;
  uint end = min(from + run, count);
  if (!last) keys[2 * item] = keys[2 * item + 1] = EMPTY;
  uint key = EMPTY;
  bool first = !last;
  xyzz sum = point_infinity();
  NO_UNROLL
  for (uint at = from; at < end; at++) {
    uint next = keys_in[at];
    if (next == EMPTY) continue;
    if (next != key && key != EMPTY) {
      if (first) {
        keys[2 * item] = key;
        point_store(points, 2 * item, sum);
        first = false;
      } else {
        add_to(sums, key, sum);
      }
      sum = point_infinity();
    }
    key = next;
    sum = point_add(sum, point_load(points_in, at));
  }
  if (key == EMPTY) return;
  if (last) {
    add_to(sums, key, sum);
  } else {
    uint slot = first ? 2 * item : 2 * item + 1;
    keys[slot] = key;
    point_store(points, slot, sum);
  }
}

// One step towards sum_b b S_b for b = first, first + 1, ..., in each of `windows` windows: of every 2^log_run buckets of a window makes
//   plain = sum of the S_b,   weighted = sum of (b mod 2^log_run) S_b   (+ plain, if first is 1: buckets are numbered from 1),
// so that the whole is the sum of `weighted` + the same problem for 2^log_run `plain`, numbered from 0. Rows of `in` are `width` long; of
// `weighted` they are `pitch` long and begin at `offset`.
__kernel WORK_GROUP void reduce_buckets(__global const uint4 *in, const uint windows, const uint width, const uint log_run, const uint first,
                                        __global uint4 *plain, __global uint4 *weighted, const uint pitch, const uint offset) {
  uint per_window = width >> log_run;
  uint item = get_global_id(0);
  if (item >= windows * per_window) return;
  uint window = item / per_window, part = item % per_window;
  uint base = window * width + (part << log_run);
  xyzz sum = point_infinity(), ramp = point_infinity();
  NO_UNROLL
  for (uint i = 1u << log_run; i-- > 0;) {
    sum = point_add(sum, point_load(in, base + i));
    if (i > 0 || first) ramp = point_add(ramp, sum);
  }
  point_store(weighted, window * pitch + offset + part, ramp);
  NO_UNROLL
  for (uint i = 0; i < log_run; i++) sum = point_double(sum);
  point_store(plain, item, sum);
}

// Rows of `width` points become rows of ceil(width / run) sums.
__kernel WORK_GROUP void sum_rows(__global const uint4 *in, const uint rows, const uint width, const uint run, __global uint4 *out) {
  uint per_row = (width + run - 1) / run;
  uint item = get_global_id(0);
  if (item >= rows * per_row) return;
  uint row = item / per_row, part = item % per_row;
  uint from = part * run, end = min(from + run, width);
  xyzz sum = point_infinity();
  NO_UNROLL
  for (uint i = from; i < end; i++) sum = point_add(sum, point_load(in, row * width + i));
  point_store(out, item, sum);
}

// Points as blst has them: Jacobian, x = X / Z^2, y = Y / Z^3. With Z = ZZ that is X ZZ, Y ZZZ.
__kernel WORK_GROUP void to_jacobian(__global const uint4 *in, const uint from, const uint count, __global uint *out, const uint to) {
  uint item = get_global_id(0);
  if (item >= count) return;
  xyzz p = point_load(in, from + item);
  union {
    CO_T coordinates[3];
    uint words[3 * CO_WORDS];
  } r;
  r.coordinates[0] = CO(mul)(p.x, p.zz);
  r.coordinates[1] = CO(mul)(p.y, p.zzz);
  r.coordinates[2] = p.zz;
  for (uint i = 0; i < 3 * CO_WORDS; i++) out[(to + item) * 3 * CO_WORDS + i] = r.words[i];
}

// For the self-test and tests: one operation on pairs. Points of `a` are sums, of `b` records.
//   0 a + b   1 a + (b as a sum)   2 2 a   3 a + a   4 a - a
__kernel WORK_GROUP void curve_operation(__global const uint4 *a, __global const uint4 *b, __global uint4 *out, const uint count,
                                         const uint operation) {
  uint item = get_global_id(0);
  if (item >= count) return;
  xyzz p = point_load(a, item), r;
  affine q = affine_load(b, item);
  switch (operation) {
    case 0: r = affine_is_infinity(q) ? p : point_add_affine(p, q); break;
    case 1: r = point_add(p, point_from_affine(q)); break;
    case 2: r = point_double(p); break;
    case 3: r = point_add(p, p); break;
    default: {
      xyzz n = p;
      n.y = CO(neg)(p.y);
      r = point_add(p, n);
    }
  }
  point_store(out, item, r);
}

// Field operations of the base field, as in the scalar field's program.
__kernel WORK_GROUP void fp_operation(__global const uint *a, __global const uint *b, __global uint *out, const uint count,
                                      const uint operation) {
  uint item = get_global_id(0);
  if (item >= count) return;
  fp x, y, r;
  for (uint i = 0; i < 12; i++) {
    x.l[i] = a[item * 12 + i];
    y.l[i] = b[item * 12 + i];
  }
  switch (operation) {
    case 0: r = fp_mul(x, y); break;
    case 1: r = fp_mul_plain(x, y); break;
    case 2: r = fp_sqr(x); break;
    case 3: r = fp_add(x, y); break;
    case 4: r = fp_sub(x, y); break;
    default: r = fp_neg(x);
  }
  for (uint i = 0; i < 12; i++) out[item * 12 + i] = r.l[i];
}
