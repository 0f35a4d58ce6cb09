// Multi-exponentiation in G1: the entry points of `msm.cuh`.
#include "msm_affine.cuh"

typedef Fp Element;
// Resident blocks per multiprocessor: the host sizes the launch by it.
#define BLOCKS 4

// Likewise for additions of neighbours, 43 KiB each. On sm_80 the fourth block would cost spills; before Ampere there is shared memory for one, and on
// sm_86, sm_89 and the small Blackwells (100 KiB a multiprocessor) for two.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define AFFINE_BLOCKS 1
#elif defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 1200 || __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890)
#define AFFINE_BLOCKS 2
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define AFFINE_BLOCKS 3
#else
#define AFFINE_BLOCKS 4
#endif

extern "C" __global__ void __launch_bounds__(MSM_THREADS, AFFINE_BLOCKS)
    msm_g1_add_neighbours(const u64 *pairs, const u32 *list, const char *first, const char *second, u32 split, u32 part, u32 room,
                          u32 per_lane, u32 passes, char *scratch, u32 *ticket, char *out) {
    __shared__ uint4 shared[AFFINE_SHARED_WORDS];
    msm_add_neighbours<Fp>(List{pairs, list, part, room}, Bases{first, second, split}, per_lane, passes, scratch, ticket, out, shared);
}

extern "C" __global__ void __launch_bounds__(MSM_THREADS, BLOCKS)
    msm_g1_accumulate(const u64 *pairs, const u32 *list, u32 part, u32 room, const char *sums, const char *first, const char *second,
                      u32 split, char *buckets, u32 *head_keys, char *heads) {
    __shared__ uint4 shared[RunningSum<Element>::WORDS];
    msm_accumulate<Element>(List{pairs, list, part, room}, sums, Bases{first, second, split}, buckets, head_keys, heads, shared);
}

extern "C" __global__ void __launch_bounds__(MSM_THREADS)
    msm_g1_fold_heads(const u32 *in_keys, const char *in_heads, u32 count, u32 per, char *buckets, u32 *head_keys, char *heads) {
    msm_fold_heads<Element>(in_keys, in_heads, count, per, buckets, head_keys, heads);
}

extern "C" __global__ void __launch_bounds__(MSM_THREADS)
    msm_g1_reduce_runs(const char *buckets, u32 runs, u32 log_run, char *sums, char *weighted) {
    msm_reduce_runs<Element>(buckets, runs, log_run, sums, weighted);
}

extern "C" __global__ void __launch_bounds__(MSM_THREADS)
    msm_g1_sum_planes(const char *sums, const char *weighted, const __grid_constant__ LogRuns log_runs, char *out) {
    __shared__ uint4 shared[MSM_THREADS * 192 / 16];
    msm_sum_planes<Element>(sums, weighted, log_runs, (char *)shared, out);
}

extern "C" __global__ void __launch_bounds__(MSM_THREADS) msm_g1_sum_rows(const char *in, u32 count, char *out) {
    __shared__ uint4 shared[MSM_THREADS * 192 / 16];
    msm_sum_rows<Element>(in, count, (char *)shared, out);
}

extern "C" __global__ void __launch_bounds__(MSM_THREADS) msm_g1_shift_bases(const char *from, char *to, u32 count, u32 doublings) {
    msm_shift_bases<Element>(from, to, count, doublings);
}
