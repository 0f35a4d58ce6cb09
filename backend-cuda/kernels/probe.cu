// Rates of the field multiplications, register-resident: for benchmarks alone. Each thread runs two independent chains, so that one product's
// latency hides behind the other's; the host repeats a chain on the CPU and compares.
#include "fp.cuh"
#include "fr.cuh"

// values[i] <- values[i] * step^rounds.
extern "C" __global__ void __launch_bounds__(128) probe_fp_mul(Fp *values, const Fp *step, u32 rounds) {
    Fp *mine = values + 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    Fp a = mine[0], b = mine[1];
    const Fp s = *step;
    SP_NO_UNROLL
    for (u32 i = 0; i < rounds; i++) {
        a = fp_mul(a, s);
        b = fp_mul(b, s);
    }
    mine[0] = a;
    mine[1] = b;
}

extern "C" __global__ void __launch_bounds__(128) probe_fr_mul(Fr *values, const Fr *step, u32 rounds) {
    Fr *mine = values + 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    Fr a = mine[0], b = mine[1];
    const Fr s = *step;
    SP_NO_UNROLL
    for (u32 i = 0; i < rounds; i++) {
        a = fr_mul(a, s);
        b = fr_mul(b, s);
    }
    mine[0] = a;
    mine[1] = b;
}
