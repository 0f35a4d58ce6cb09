// Runs the kernels on the CPU, for tests: every CUDA thread of a block is a fiber, blocks run one after the other.
//
// Barriers and warp operations are points where a fiber yields until the others have come as far. That's slow and exact, and finds
// wrong indices, missing elements and wrong arithmetic; it can't find races, since only one fiber runs at a time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __restrict__
#define __grid_constant__

struct uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};
static inline uint2 make_uint2(unsigned x, unsigned y) {
    return {x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return {x, y, z, w};
}
struct emu_dim3 {
    unsigned x, y, z;
};

static emu_dim3 threadIdx, blockIdx, blockDim, gridDim;
static const int warpSize = 32;
alignas(128) static unsigned char emu_dynamic_shared[256 * 1024];

struct EmuGroup {
    uint64_t generation = 0;
    unsigned arrived = 0;
    uint64_t value[2][32];
    unsigned present[2];
};

// A switch of stacks. `swapcontext` does it everywhere, with two system calls each time; on x86-64 seven registers do.
#if defined(__x86_64__) && defined(__GNUC__)
struct EmuContext {
    void *sp;
};

extern "C" void emu_switch(void **save, void *load) __attribute__((visibility("hidden")));
asm(".text\n.hidden emu_switch\n.globl emu_switch\n.type emu_switch, @function\n"
    "emu_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
    ".size emu_switch, .-emu_switch\n");

static inline void emu_swap(EmuContext &from, EmuContext &to) {
    emu_switch(&from.sp, to.sp);
}
static inline void emu_make(EmuContext &context, char *stack, size_t bytes, void (*entry)(), EmuContext &) {
    // As if `entry` had been called: its address at a multiple of 16, six saved registers below, a null return address above.
    uint64_t *top = (uint64_t *)(((uintptr_t)stack + bytes - 64) & ~(uintptr_t)15);
    top[0] = (uint64_t)(uintptr_t)entry;
    top[1] = 0;
    for (int i = 1; i <= 6; i++) top[-i] = 0;
    context.sp = top - 6;
}
#else
struct EmuContext {
    ucontext_t context;
};

static inline void emu_swap(EmuContext &from, EmuContext &to) {
    swapcontext(&from.context, &to.context);
}
static inline void emu_make(EmuContext &context, char *stack, size_t bytes, void (*entry)(), EmuContext &back) {
    getcontext(&context.context);
    context.context.uc_stack.ss_sp = stack;
    context.context.uc_stack.ss_size = bytes;
    context.context.uc_link = &back.context;
    makecontext(&context.context, entry, 0);
}
#endif

struct EmuFiber {
    EmuContext context;
    std::vector<char> stack;
    emu_dim3 index;
    bool done;
};

static std::mutex emu_one_at_a_time;
static EmuContext emu_scheduler;
static std::vector<EmuFiber> emu_fibers;
static unsigned emu_current, emu_alive, emu_at_barrier;
static uint64_t emu_barrier_generation, emu_barrier_sum[2];
static uint64_t emu_progress;
// Lanes that meet: whole warps, by far the most often, and any others.
static EmuGroup emu_warps[32];
static std::map<std::pair<unsigned, unsigned>, EmuGroup> emu_groups;
// For each warp, the lanes that run.
static unsigned emu_lanes[32];
static void (*emu_body)(void *);
static void *emu_argument;

static inline void emu_yield() {
    emu_swap(emu_fibers[emu_current].context, emu_scheduler);
}

static void emu_entry() {
    emu_body(emu_argument);
    emu_fibers[emu_current].done = true;
    emu_lanes[emu_current / 32] &= ~(1u << emu_current % 32);
    emu_alive--;
    emu_progress++;
    // A thread that has ended counts as arrived everywhere.
    if (emu_alive != 0 && emu_at_barrier >= emu_alive) {
        emu_at_barrier = 0;
        emu_barrier_generation++;
    }
    emu_yield();
}

static inline void emu_run_block(unsigned threads) {
    emu_alive = threads;
    emu_at_barrier = 0;
    emu_groups.clear();
    if (emu_fibers.size() < threads) emu_fibers.resize(threads);
    for (unsigned i = 0; i < threads; i++) {
        EmuFiber &fiber = emu_fibers[i];
        if (fiber.stack.empty()) fiber.stack.resize(256 * 1024);
        fiber.done = false;
        fiber.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
        emu_make(fiber.context, fiber.stack.data(), fiber.stack.size(), emu_entry, emu_scheduler);
    }
    for (unsigned warp = 0; warp * 32 < threads; warp++) {
        const unsigned count = threads - warp * 32;
        emu_warps[warp] = EmuGroup();
        emu_lanes[warp] = count < 32 ? (1u << count) - 1 : ~0u;
    }
    while (emu_alive != 0) {
        const uint64_t before = emu_progress;
        for (unsigned warp = 0; warp * 32 < threads; warp++) {
            // A warp runs until it can only wait for others: most meetings are within one.
            uint64_t seen;
            do {
                seen = emu_progress;
                for (unsigned lanes = emu_lanes[warp]; lanes != 0; lanes &= lanes - 1) {
                    emu_current = warp * 32 + __builtin_ctz(lanes);
                    threadIdx = emu_fibers[emu_current].index;
                    emu_swap(emu_scheduler, emu_fibers[emu_current].context);
                }
            } while (emu_progress != seen);
        }
        if (emu_progress == before) {
            std::fprintf(stderr, "emulated kernel: deadlock, %u threads wait\n", emu_alive);
            std::abort();
        }
    }
}

static inline uint64_t emu_barrier(uint64_t addend) {
    const uint64_t generation = emu_barrier_generation;
    emu_progress++;
    if (emu_at_barrier == 0) emu_barrier_sum[generation & 1] = 0;
    emu_barrier_sum[generation & 1] += addend;
    if (++emu_at_barrier >= emu_alive) {
        emu_at_barrier = 0;
        emu_barrier_generation++;
    }
    while (emu_barrier_generation == generation) emu_yield();
    return emu_barrier_sum[generation & 1];
}

#define __syncthreads() ((void)emu_barrier(0))
#define __syncthreads_count(p) ((int)emu_barrier((p) ? 1 : 0))
#define __syncthreads_or(p) (emu_barrier((p) ? 1 : 0) != 0)
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)

// All lanes of `mask` meet and see each other's values.
static inline const EmuGroup &emu_meet(unsigned mask, uint64_t value, unsigned &side) {
    const unsigned lane = emu_current % 32, warp = emu_current / 32;
    EmuGroup &group = mask == ~0u ? emu_warps[warp] : emu_groups[{warp, mask}];
    const uint64_t generation = group.generation;
    side = generation & 1;
    if (group.arrived == 0) group.present[side] = 0;
    group.value[side][lane] = value;
    group.present[side] |= 1u << lane;
    group.arrived |= 1u << lane;
    emu_progress++;
    const unsigned expected = mask & emu_lanes[warp];
    if ((group.arrived & expected) == expected) {
        group.arrived = 0;
        group.generation++;
    }
    while (group.generation == generation) emu_yield();
    return group;
}

static inline void __syncwarp(unsigned mask = ~0u) {
    unsigned side;
    emu_meet(mask, 0, side);
}

template <class T> static inline T emu_pick(unsigned mask, T value, unsigned from) {
    static_assert(sizeof(T) <= 8, "a shuffled value has at most eight bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    unsigned side;
    const EmuGroup &group = emu_meet(mask, bits, side);
    if (from < 32 && (group.present[side] >> from & 1)) bits = group.value[side][from];
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

template <class T> static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
    const unsigned lane = emu_current % 32;
    return emu_pick(mask, value, (lane & ~(width - 1)) + (from & (width - 1)));
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32) {
    (void)width;
    return emu_pick(mask, value, emu_current % 32 ^ with);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
    const unsigned lane = emu_current % 32;
    return emu_pick(mask, value, lane % width + by < (unsigned)width ? lane + by : lane);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
    const unsigned lane = emu_current % 32;
    return emu_pick(mask, value, lane % width >= by ? lane - by : lane);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
    unsigned side, bits = 0;
    const EmuGroup &group = emu_meet(mask, predicate != 0, side);
    for (unsigned i = 0; i < 32; i++) {
        if ((group.present[side] >> i & 1) && group.value[side][i]) bits |= 1u << i;
    }
    return bits & mask;
}
static inline int __any_sync(unsigned mask, int predicate) {
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate) {
    return __ballot_sync(mask, !predicate) == 0;
}
template <class T> static inline unsigned __match_any_sync(unsigned mask, T value) {
    uint64_t own = 0;
    std::memcpy(&own, &value, sizeof(T));
    unsigned side, bits = 0;
    const EmuGroup &group = emu_meet(mask, own, side);
    for (unsigned i = 0; i < 32; i++) {
        if ((group.present[side] >> i & 1) && group.value[side][i] == own) bits |= 1u << i;
    }
    return bits & mask;
}
static inline unsigned __activemask() {
    return ~0u;
}

static inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i);
    return y;
}
static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
static inline int __clz(unsigned x) {
    return x == 0 ? 32 : __builtin_clz(x);
}
static inline int __clzll(unsigned long long x) {
    return x == 0 ? 64 : __builtin_clzll(x);
}
static inline int __ffs(unsigned x) {
    return __builtin_ffs((int)x);
}
static inline int __ffsll(unsigned long long x) {
    return __builtin_ffsll((long long)x);
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((unsigned long long)a * b >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)((((unsigned long long)high << 32) | low) >> (by & 31));
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((((unsigned long long)high << 32) | low) << (by & 31)) >> 32);
}
template <class T> static inline T __ldg(const T *p) {
    return *p;
}
template <class T> static inline T __ldcs(const T *p) {
    return *p;
}
template <class T> static inline T __ldcg(const T *p) {
    return *p;
}
template <class T> static inline void __stcs(T *p, T value) {
    *p = value;
}
template <class T> static inline T emu_identity(T x) {
    return x;
}

#define EMU_ATOMIC(name, expression)                                                                                                                                           \
    template <class T, class U> static inline T name(T *p, U operand) {                                                                                                        \
        const T old = *p, v = (T)operand;                                                                                                                                      \
        (void)v;                                                                                                                                                               \
        *p = (expression);                                                                                                                                                     \
        return old;                                                                                                                                                            \
    }
EMU_ATOMIC(atomicAdd, old + v)
EMU_ATOMIC(atomicSub, old - v)
EMU_ATOMIC(atomicOr, old | v)
EMU_ATOMIC(atomicAnd, old &v)
EMU_ATOMIC(atomicXor, old ^ v)
EMU_ATOMIC(atomicMax, old > v ? old : v)
EMU_ATOMIC(atomicMin, old < v ? old : v)
EMU_ATOMIC(atomicExch, v)
template <class T, class U, class V> static inline T atomicCAS(T *p, U expected, V value) {
    const T old = *p;
    if (old == (T)expected) *p = (T)value;
    return old;
}

template <class... A> struct EmuCall {
    void (*kernel)(A...);
    void **arguments;
    template <size_t... I> void apply(std::index_sequence<I...>) {
        std::tuple<A...> values;
        // The driver's arguments may be unaligned copies, so they are copied here too.
        (std::memcpy(&std::get<I>(values), arguments[I], sizeof(A)), ...);
        kernel(std::get<I>(values)...);
    }
    static void run(void *self) {
        static_cast<EmuCall *>(self)->apply(std::index_sequence_for<A...>{});
    }
};

template <class... A> static void emu_launch(void (*kernel)(A...), const unsigned *grid, const unsigned *block, void **arguments) {
    std::lock_guard<std::mutex> lock(emu_one_at_a_time);
    EmuCall<A...> call{kernel, arguments};
    emu_body = &EmuCall<A...>::run;
    emu_argument = &call;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    for (unsigned z = 0; z < grid[2]; z++) {
        for (unsigned y = 0; y < grid[1]; y++) {
            for (unsigned x = 0; x < grid[0]; x++) {
                blockIdx = {x, y, z};
                emu_run_block(block[0] * block[1] * block[2]);
            }
        }
    }
}
