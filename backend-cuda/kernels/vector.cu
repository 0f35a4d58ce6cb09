// Element-wise steps and the product of a sparse constraint matrix with the witness.
#include "fr.cuh"

// Coefficient 0 of a dictionary is 1 and coefficient 1 is -1: most entries need no multiplication.
static __device__ __forceinline__ Fr add_entry(const Fr &sum, const Fr *dictionary, const Fr *witness, u32 column, u32 coefficient) {
    const Fr w = fr_load(witness + column);
    if (coefficient == 0) return fr_add(sum, w);
    if (coefficient == 1) return fr_sub(sum, w);
    return fr_add(sum, fr_mul(w, fr_load(dictionary + coefficient)));
}

// out[row] = sum of coefficient * witness[column] over the entries of the row; rows of more than `longest` entries are left to
// `sparse_long_rows`.
extern "C" __global__ void __launch_bounds__(256) sparse_product(const u32 *offsets, const u32 *columns, const u32 *coefficients, const Fr *dictionary,
                                                                 const Fr *witness, Fr *out, u32 rows, u32 longest) {
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const u32 first = offsets[row], last = offsets[row + 1];
    if (last - first > longest) return;
    Fr sum = fr_zero();
    for (u32 i = first; i < last; i++) sum = add_entry(sum, dictionary, witness, columns[i], coefficients[i]);
    fr_store(out + row, sum);
}

// The same for the listed rows, one block of 256 threads each.
extern "C" __global__ void __launch_bounds__(256) sparse_long_rows(const u32 *offsets, const u32 *columns, const u32 *coefficients, const Fr *dictionary,
                                                                   const Fr *witness, Fr *out, const u32 *rows) {
    __shared__ Fr partial[256];
    const u32 row = rows[blockIdx.x];
    const u32 last = offsets[row + 1];
    Fr sum = fr_zero();
    for (u32 i = offsets[row] + threadIdx.x; i < last; i += 256) sum = add_entry(sum, dictionary, witness, columns[i], coefficients[i]);
    partial[threadIdx.x] = sum;
    for (u32 half = 128; half != 0; half >>= 1) {
        __syncthreads();
        if (threadIdx.x < half) partial[threadIdx.x] = fr_add(partial[threadIdx.x], partial[threadIdx.x + half]);
    }
    if (threadIdx.x == 0) fr_store(out + row, partial[0]);
}

// Adds to counts[0] the number of scalars that are none of 0, 1 and -1, which a multi-exponentiation has to sort, and to counts[1] that of 1 and -1. Base i
// takes scalar index[i] (or i).
extern "C" __global__ void __launch_bounds__(256) count_scalars(const Fr *scalars, const u32 *index, u32 len, u32 *counts) {
    const Fr one = fr_one(), minus_one = fr_neg(one);
    u32 dense = 0, units = 0;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < len; i += gridDim.x * blockDim.x) {
        const Fr x = fr_load(scalars + (index ? index[i] : i));
        const bool unit = fr_eq(x, one) || fr_eq(x, minus_one);
        units += unit;
        dense += !unit && !fr_is_zero(x);
    }
    for (int by = 16; by > 0; by >>= 1) {
        dense += __shfl_down_sync(0xffffffffu, dense, by);
        units += __shfl_down_sync(0xffffffffu, units, by);
    }
    if ((threadIdx.x & 31) != 0) return;
    if (dense != 0) atomicAdd(counts, dense);
    if (units != 0) atomicAdd(counts + 1, units);
}
