// Transforms over the domain of n = 2^log_n roots of unity.
//
// Rows to coefficients is decimation in frequency: natural order in, bit-reversed order out, not divided by n. Coefficients to values on the
// coset is decimation in time: the other way round. So nothing is ever permuted.
//
// A pass does `layers` layers of butterflies in local memory. Blocks of 2^log_block elements are transforms of their own when it begins; a
// block's elements at distance 2^(log_block - layers) make a column, which is a transform of 2^layers points. Between passes an element is
// multiplied by one power of the block's root (Gentleman and Sande 1966; "four-step"), so that the layers themselves need but the few roots of
// order 2^small_log. Powers of g, a 2n-th root of unity with g^2 = omega, come from two tables.
//
// A work group has NTT_TILE elements, adjacent columns, word by word in local memory.

#define TILE_AT(word, element) tile[(word) * NTT_TILE + (element)]

static inline fr tile_load(__local const uint *tile, const uint element) {
  fr r;
  for (uint w = 0; w < 8; w++) r.l[w] = TILE_AT(w, element);
  return r;
}

static inline void tile_store(__local uint *tile, const uint element, const fr value) {
  for (uint w = 0; w < 8; w++) TILE_AT(w, element) = value.l[w];
}

// Where element `j` of column `column` lies in the vector, and the column's place in its block.
static inline uint place(const uint column, const uint j, const uint log_block, const uint layers, uint *in_block) {
  uint log_stride = log_block - layers;
  *in_block = column & ((1u << log_stride) - 1);
  return ((column >> log_stride) << log_block) + (j << log_stride) + *in_block;
}

// Which element of its tile a work item moves in turn `at`: such that neighbours in a group are neighbours in memory.
static inline void tile_order(const uint at, const uint columns, const uint log_stride, const uint layers, uint *column, uint *j) {
  if ((1u << log_stride) >= columns) {
    *column = at & (columns - 1);
    *j = at / columns;
  } else {
    *column = at >> layers;
    *j = at & ((1u << layers) - 1);
  }
}

__kernel NTT_WORK_GROUP void rows_to_coefficients(__global uint4 *data, __global const uint4 *roots, const uint small_log,
                                                  __global const uint4 *low, __global const uint4 *high, const uint split,
                                                  const uint log_n, const uint log_block, const uint layers, const uint columns) {
  __local uint tile[8 * NTT_TILE];
  uint lane = get_local_id(0), elements = columns << layers, log_stride = log_block - layers;
  uint first = get_group_id(0) * columns, column, j, in_block;
  for (uint at = lane; at < elements; at += NTT_GROUP) {
    tile_order(at, columns, log_stride, layers, &column, &j);
    tile_store(tile, (column << layers) + j, fr_load(data, place(first + column, j, log_block, layers, &in_block)));
  }
  for (uint layer = 0; layer < layers; layer++) {
    barrier(CLK_LOCAL_MEM_FENCE);
    uint log_half = layers - 1 - layer;
    for (uint at = lane; at < elements / 2; at += NTT_GROUP) {
      uint position = at & ((1u << log_half) - 1);
      uint x_at = ((at >> log_half) << (log_half + 1)) + position, y_at = x_at + (1u << log_half);
      fr x = tile_load(tile, x_at), y = tile_load(tile, y_at);
      tile_store(tile, x_at, fr_add(x, y));
      fr difference = fr_sub(x, y);
      if (log_half > 0) difference = fr_mul(difference, fr_load(roots, position << (small_log - 1 - log_half)));
      tile_store(tile, y_at, difference);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint at = lane; at < elements; at += NTT_GROUP) {
    tile_order(at, columns, log_stride, layers, &column, &j);
    uint to = place(first + column, j, log_block, layers, &in_block);
    fr value = tile_load(tile, (column << layers) + j);
    if (log_stride > 0) {
      // omega_block^-(in_block rev(j)), omega_block = g^(2n / 2^log_block).
      ulong exponent = ((ulong)in_block * reverse_bits(j, layers)) << (log_n + 1 - log_block);
      value = fr_mul(value, root_power(low, high, split, ((2ul << log_n) - exponent) & ((2ul << log_n) - 1)));
    }
    fr_store(data, to, value);
  }
}

// `to_coset`: this is the first pass, and coefficient i is multiplied by g^i.
__kernel NTT_WORK_GROUP void coefficients_to_values(__global uint4 *data, __global const uint4 *roots, const uint small_log,
                                                    __global const uint4 *low, __global const uint4 *high, const uint split,
                                                    const uint log_n, const uint log_block, const uint layers, const uint columns,
                                                    const uint to_coset) {
  __local uint tile[8 * NTT_TILE];
  uint lane = get_local_id(0), elements = columns << layers, log_stride = log_block - layers;
  uint first = get_group_id(0) * columns, column, j, in_block;
  for (uint at = lane; at < elements; at += NTT_GROUP) {
    tile_order(at, columns, log_stride, layers, &column, &j);
    uint from = place(first + column, j, log_block, layers, &in_block);
    fr value = fr_load(data, from);
    ulong exponent = 0;
    if (to_coset) exponent = reverse_bits(from, log_n);
    if (log_stride > 0) exponent += ((ulong)in_block * reverse_bits(j, layers)) << (log_n + 1 - log_block);
    if (to_coset || log_stride > 0) value = fr_mul(value, root_power(low, high, split, exponent & ((2ul << log_n) - 1)));
    tile_store(tile, (column << layers) + j, value);
  }
  for (uint layer = 0; layer < layers; layer++) {
    barrier(CLK_LOCAL_MEM_FENCE);
    uint log_half = layer;
    for (uint at = lane; at < elements / 2; at += NTT_GROUP) {
      uint position = at & ((1u << log_half) - 1);
      uint x_at = ((at >> log_half) << (log_half + 1)) + position, y_at = x_at + (1u << log_half);
      fr x = tile_load(tile, x_at), y = tile_load(tile, y_at);
      if (log_half > 0) y = fr_mul(y, fr_load(roots, position << (small_log - 1 - log_half)));
      tile_store(tile, x_at, fr_add(x, y));
      tile_store(tile, y_at, fr_sub(x, y));
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint at = lane; at < elements; at += NTT_GROUP) {
    tile_order(at, columns, log_stride, layers, &column, &j);
    fr_store(data, place(first + column, j, log_block, layers, &in_block), tile_load(tile, (column << layers) + j));
  }
}
