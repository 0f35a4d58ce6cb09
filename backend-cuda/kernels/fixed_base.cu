// Many multiples of one base: key generation. `table` holds d 2^(bits j) times the base at (j << bits) + d, affine; a product is the sum of
// one entry for each digit of the scalar. A thread (or pair of lanes) makes several products and shares one inversion among them.
#include "curve.cuh"
#include "fr.cuh"

#define FIXED_BASE_BATCH 8

template <class F>
static __device__ __forceinline__ void fixed_base(const char *table, const Fr *scalars, u32 count, u32 bits, u32 windows, char *out) {
    const u32 me = (blockIdx.x * blockDim.x + threadIdx.x) / Field<F>::LANES, groups = gridDim.x * blockDim.x / Field<F>::LANES;
    const size_t size = 2 * Field<F>::BYTES;
    const u32 mask = (1u << bits) - 1;
    Xyzz<F> p[FIXED_BASE_BATCH];
    F before[FIXED_BASE_BATCH];
    F product = Field<F>::one();
#pragma unroll 1
    for (u32 k = 0; k < FIXED_BASE_BATCH; k++) {
        const u32 i = k * groups + me;
        Fr s = i < count ? fr_to_plain(fr_load(scalars + i)) : fr_zero();
        Xyzz<F> sum = xyzz_infinity<F>();
#pragma unroll 1
        for (u32 j = 0; j < windows; j++) {
            const u32 digit = s.v[0] & mask;
            SP_UNROLL
            for (int l = 0; l < 7; l++) s.v[l] = (s.v[l] >> bits) | (s.v[l + 1] << (32 - bits));
            s.v[7] >>= bits;
            // Digit 0 finds infinity, which adds nothing.
            xyzz_add(sum, xyzz_from_affine(affine_load<F>(table + ((size_t)(j << bits) + digit) * size)));
        }
        p[k] = sum;
        before[k] = product;
        const bool infinite = is_zero(sum.zz);
        product = select(infinite, product, mul(product, sum.zzz));
    }
    F inverse = inv(product);
#pragma unroll 1
    for (u32 k = FIXED_BASE_BATCH; k-- > 0;) {
        const u32 i = k * groups + me;
        const bool infinite = is_zero(p[k].zz);
        const F one_over = mul(inverse, before[k]);
        inverse = select(infinite, inverse, mul(inverse, p[k].zzz));
        const F t = mul(p[k].zz, one_over);
        const F x = mul(p[k].x, sqr(t)), y = mul(p[k].y, one_over);
        if (i < count) affine_store(out + (size_t)i * size, Affine<F>{select(infinite, Field<F>::zero(), x), select(infinite, Field<F>::zero(), y)});
    }
}

extern "C" __global__ void __launch_bounds__(128) fixed_base_g1(const char *table, const Fr *scalars, u32 count, u32 bits, u32 windows, char *out) {
    fixed_base<Fp>(table, scalars, count, bits, windows, out);
}

extern "C" __global__ void __launch_bounds__(128) fixed_base_g2(const char *table, const Fr *scalars, u32 count, u32 bits, u32 windows, char *out) {
    fixed_base<Fp2Lane>(table, scalars, count, bits, windows, out);
}
