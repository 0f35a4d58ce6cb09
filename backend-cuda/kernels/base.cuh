// What every kernel header needs: fixed-width types and the qualifiers that let one source be device code (NVRTC or nvcc) and
// plain C++ (the host property tests). NVRTC has no standard headers, so none is used here.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

#if defined(__CUDACC__)
#define SP_FN __host__ __device__ __forceinline__
#define SP_COLD __host__ __device__ __noinline__
#else
#define SP_FN inline
#define SP_COLD inline
#endif

// True where the PTX carry chains are compiled; everything else takes the portable path.
#if defined(__CUDA_ARCH__)
#define SP_PTX 1
#else
#define SP_PTX 0
#endif

#if SP_PTX
// A thread's place, read anew at each use. What has been read once keeps a register from then on, or is spilled for lack of one.
SP_FN u32 thread_again() {
    u32 i;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(i));
    return i;
}

SP_FN u32 block_again() {
    u32 i;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(i));
    return i;
}
#endif

#if defined(__CUDACC__)
#define SP_UNROLL _Pragma("unroll")
#define SP_NO_UNROLL _Pragma("unroll 1")
#else
#define SP_UNROLL
#define SP_NO_UNROLL
#endif
