// Multi-exponentiation, first half: scalars to (bucket, base) pairs, sorted by bucket. It knows no curve.
//
// A scalar k is taken as the one of k and r - k that is smaller, with a sign, and cut into signed digits, |digit| <= 2^(width - 1). With 2^(width - 1) - 1
// added at each window's place no digit needs the ones below it: it is the window's bits less that, so a batch looks at its own windows only. Windows
// are as even in width as can be, since a narrow one would crowd its pairs into few buckets. Zero digits vanish, so a zero scalar costs
// nothing and a scalar of 1 or r - 1 is one pair. Window j belongs to bucket set j mod sets and uses copy j / sets of the base table.
//
// A pair is a u64: the number of its bucket among those of the batch in the high half, and sign << 31 | virtual base index in the low half. Sets of buckets
// follow one another, 2^bits of them in each. Sorting takes two passes: pairs are dealt to coarse bins (key >> fine_bits, from 1 up), then each bin is
// sorted by one block.
// Bin 0 takes the pairs of scalars 1 and r - 1, which all have key 0 and need no sorting: they go straight to their final place,
// so a witness full of bits costs one append per bit.
//
// Long lists are padded with pairs of nothing until each bucket's are a multiple of 2^rounds, for `msm_affine.cuh`. The bins' places in the
// padded list are given out as their blocks come by; only bin 1, which shares its first key with bin 0, has a fixed one, with room to spare.
#include "fr.cuh"

struct Class {
    bool negative;
    bool unit;  // the scalar is 1 or r - 1
    bool dense; // it is none of 0, 1 and r - 1
};

struct Digits {
    u32 v[8]; // the magnitude of a dense scalar, with the bias of all windows
    bool negative;
    bool unit;
    bool dense;
};

// Widths of windows in bits and the bits below each, one byte each, lowest window first; the sum of their biases; and log2 of the buckets of each set,
// one byte each.
struct Words {
    u32 v[8];
};
struct Windows {
    const Words &widths, &starts, &bias, &bits;
};

SP_FN u32 byte_of(const Words &words, u32 i) {
    return words.v[i >> 2] >> (i & 3) * 8 & 255;
}

// How scalars are cut: windows = copies * sets, and the sets [set_from, set_to) of this batch.
struct Cut {
    u32 windows, sets, set_from, set_to;
};

// What kind of scalar one is, given in Montgomery form or plain.
SP_FN Class class_of(const Fr &scalar, bool montgomery) {
    const Fr one = montgomery ? fr_one() : Fr{{1, 0, 0, 0, 0, 0, 0, 0}};
    const bool negative = fr_eq(scalar, fr_neg(one)), unit = negative || fr_eq(scalar, one);
    return {negative, unit, !unit && !fr_is_zero(scalar)};
}

// The magnitude and sign of a scalar. Most scalars of most witnesses are bits, and whole warps end at that.
SP_FN Digits digits_of(const Fr &scalar, bool montgomery, const Windows &windows) {
    const Class c = class_of(scalar, montgomery);
    Digits d = {};
    d.negative = c.negative;
    d.unit = c.unit;
    d.dense = c.dense;
    if (!d.dense) return d;
    const Fr k = montgomery ? fr_to_plain(scalar) : scalar;
    const Fr m = fr_neg(k);
    bool smaller = false; // m < k, decided at the highest limb that differs
    SP_UNROLL
    for (int i = 0; i < 8; i++) smaller = m.v[i] < k.v[i] || (m.v[i] == k.v[i] && smaller);
    d.negative = smaller;
    u32 carry = 0;
    SP_UNROLL
    for (int i = 0; i < 8; i++) {
        const u64 sum = (u64)(smaller ? m.v[i] : k.v[i]) + windows.bias.v[i] + carry;
        d.v[i] = (u32)sum;
        carry = (u32)(sum >> 32);
    }
    return d;
}

// 32 bits of v from bit `start` on, which is the same for all threads; zero beyond the end.
SP_FN u32 bits_from(const u32 (&v)[8], u32 start) {
    const bool four = start & 128, two = start & 64, one = start & 32;
    u32 x[5], y[3];
    SP_UNROLL
    for (int i = 0; i < 5; i++) x[i] = four ? (i < 4 ? v[i + 4] : 0) : v[i];
    SP_UNROLL
    for (int i = 0; i < 3; i++) y[i] = two ? x[i + 2] : x[i];
    return __funnelshift_r(one ? y[1] : y[0], one ? y[2] : y[1], start & 31);
}

// Calls emit(key, low half, whether the digit isn't zero) for each window whose set is in the batch, in all threads together. The base index grows by `stride`
// from copy to copy.
template <class Emit> SP_FN void for_each_window(const Digits &d, const Windows &windows, const Cut &cut, u32 first_index, u32 stride, Emit emit) {
    u32 index = first_index;
    for (u32 first = 0; first < cut.windows; first += cut.sets, index += stride) {
        u32 key = 0;
        for (u32 set = cut.set_from; set < cut.set_to; key += 1u << byte_of(windows.bits, set), set++) {
            const u32 width = byte_of(windows.widths, first + set), start = byte_of(windows.starts, first + set);
            const u32 raw = bits_from(d.v, start) & ((1u << width) - 1), zero = (1u << (width - 1)) - 1;
            const bool below = raw < zero;
            const u32 magnitude = below ? zero - raw : raw - zero;
            emit(key + magnitude - 1, (u32)(d.negative != below) << 31 | index, magnitude != 0);
        }
    }
}

// Calls emit(key, low half) for each digit that isn't zero.
template <class Emit> SP_FN void for_each_digit(const Digits &d, const Windows &windows, const Cut &cut, u32 first_index, u32 stride, Emit emit) {
    for_each_window(d, windows, cut, first_index, stride, [&](u32 key, u32 low, bool nonzero) {
        if (nonzero) emit(key, low);
    });
}

// Most threads of a block; fewer do for small inputs.
#define SORT_THREADS 1024
#define SORT_UNROLL 4
// Most turns in which a bin's pairs are put in order.
#define SORT_TURNS 4

// What both passes over the scalars are given. Base i of this segment takes scalar index[i] (or i), and has virtual index first_index + i;
// copy t lies t * stride further. `per_thread` scalars for each thread of a block make a tile.
struct Segment {
    const Fr *scalars;
    const u32 *index;
    u32 len, montgomery, first_index, stride;
};

// The scalar of base i, zero beyond the last.
SP_FN Fr segment_scalar(const Segment &s, u32 i) {
    return i < s.len ? fr_load(s.scalars + (s.index ? s.index[i] : i)) : fr_zero();
}

// Adds the number of pairs per bin to histogram[0 .. bins]. Shared memory: (bins + 1) u32.
extern "C" __global__ void __launch_bounds__(SORT_THREADS)
    msm_count(const Fr *scalars, const u32 *index, u32 len, u32 montgomery, const __grid_constant__ Words widths,
              const __grid_constant__ Words starts, const __grid_constant__ Words bias, const __grid_constant__ Words bits,
              u32 num_windows, u32 sets, u32 set_from, u32 set_to, u32 fine_bits, u32 bins, u32 per_thread, u32 *histogram) {
    extern __shared__ u32 counter[];
    const Segment s{scalars, index, len, montgomery, 0, 0};
    const Cut cut{num_windows, sets, set_from, set_to};
    const Windows windows{widths, starts, bias, bits};
    for (u32 b = threadIdx.x; b <= bins; b += blockDim.x) counter[b] = 0;
    __syncthreads();
    const u32 tile = blockDim.x * per_thread;
    for (u32 from = blockIdx.x * tile; from < len; from += gridDim.x * tile) {
        for (u32 k = 0; k < per_thread; k++) {
            const Digits d = digits_of(segment_scalar(s, from + k * blockDim.x + threadIdx.x), montgomery, windows);
            const u32 units = __ballot_sync(0xffffffffu, d.unit && set_from == 0);
            if ((threadIdx.x & 31) == 0 && units != 0) atomicAdd(&counter[0], __popc(units));
            if (d.dense)
                for_each_digit(d, windows, cut, 0, 0, [&](u32 key, u32) { atomicAdd(&counter[1 + (key >> fine_bits)], 1); });
        }
    }
    __syncthreads();
    for (u32 b = threadIdx.x; b <= bins; b += blockDim.x)
        if (counter[b] != 0) atomicAdd(&histogram[b], counter[b]);
}

SP_FN u32 padded(u32 count, u32 rounds) {
    const u32 mask = (1u << rounds) - 1;
    return (count + mask) & ~mask;
}

// Room in the padded list for bin 1.
SP_FN u32 first_bin_room(u32 count, u32 fine_bits, u32 rounds) {
    return padded(count + (((1u << rounds) - 1) << fine_bits), rounds);
}

// The cheapest number of rounds of affine additions. A mixed addition costs 1.57 affine ones, and each bucket that is not empty is padded by
// (2^rounds - 1) / 2 pairs on the average. With no `least` there are rounds wherever they find room.
SP_FN u32 rounds_that_pay(u32 units, u32 dense, u32 keys, u32 fine_bits, u32 room, u32 least, u32 most) {
    const u32 total = units + dense, filled = dense < keys ? dense : keys;
    if (total < least) return 0;
    u32 best = 0;
    float cost = least == 0 ? 3e38f : 1.57f * (float)total;
    for (u32 rounds = 2; rounds <= most; rounds++) {
        const u64 pad = (1u << rounds) - 1, longest = total + ((u64)filled + (1ull << fine_bits) + 2) * pad;
        const float c = 1.05f * ((float)total + 0.5f * (float)filled * (float)pad) * (1.0f + 0.57f / (float)(1u << rounds));
        if (longest <= room && c < cost) {
            cost = c;
            best = rounds;
        }
    }
    return best;
}

// start[b] = first pair of bin b, for b = 0 .. bins + 1 (the last is the number of pairs); cursor = a copy for the dealing pass. One block.
// list[0] = rounds of affine additions that pay, and list[1] = pairs in the padded list up to the end of bin 1. `keys` of them, 2^fine_bits to a bin; the
// list has room for `room` pairs; no rounds below `least` pairs, and `most` at most.
extern "C" __global__ void __launch_bounds__(SORT_THREADS) msm_scan(const u32 *histogram, u32 bins, u32 *start, u32 *cursor, u32 keys, u32 fine_bits, u32 room,
                                                                   u32 least, u32 most, u32 *list) {
    __shared__ u32 sums[SORT_THREADS];
    const u32 n = bins + 1, per = (n + blockDim.x - 1) / blockDim.x, from = threadIdx.x * per;
    u32 sum = 0;
    for (u32 b = from; b < from + per && b < n; b++) sum += histogram[b];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (u32 d = 1; d < blockDim.x; d <<= 1) {
        const u32 other = threadIdx.x >= d ? sums[threadIdx.x - d] : 0;
        __syncthreads();
        sums[threadIdx.x] += other;
        __syncthreads();
    }
    u32 at = sums[threadIdx.x] - sum;
    for (u32 b = from; b < from + per && b < n; b++) {
        start[b] = at;
        cursor[b] = at;
        at += histogram[b];
    }
    if (threadIdx.x == blockDim.x - 1) start[n] = sums[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
        const u32 units = start[1], dense = start[n] - units, rounds = rounds_that_pay(units, dense, keys, fine_bits, room, least, most);
        list[0] = rounds;
        list[1] = rounds == 0 ? start[n] : padded(units, rounds) + first_bin_room(start[2] - units, fine_bits, rounds);
    }
}


// The sum of `value` over the block's threads before this one.
SP_FN u32 block_scan(u32 value, u32 *warps) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    u32 sum = value;
    SP_UNROLL
    for (u32 d = 1; d < 32; d <<= 1) {
        const u32 other = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    u32 before = 0;
    for (u32 w = 0; w < warp; w++) before += warps[w];
    return before + sum - value;
}

// Deals pairs to their bins: bin 0 to `sorted`, the others to `dealt`, at the same positions. A tile reserves room in each bin once. With `stage`, which
// is how many pairs of a tile find room there, they are gathered by bin in shared memory and go out in runs.
// Shared memory: (bins + 1) u32; with `stage` twice that, in an even number of them, and `stage` pairs.
extern "C" __global__ void __launch_bounds__(SORT_THREADS)
    msm_deal(const Fr *scalars, const u32 *index, u32 len, u32 montgomery, u32 first_index, u32 stride, const __grid_constant__ Words widths,
             const __grid_constant__ Words starts, const __grid_constant__ Words bias, const __grid_constant__ Words bits,
             u32 num_windows, u32 sets, u32 set_from, u32 set_to, u32 fine_bits, u32 bins, u32 per_thread, u32 *cursor, u64 *dealt, u64 *sorted, u32 stage) {
    extern __shared__ u32 counter[];
    __shared__ u32 warps[SORT_THREADS / 32];
    __shared__ u32 gathered;
    // Where a bin's pairs go, less where they are gathered.
    u32 *const distance = counter + bins + 1;
    u64 *const pairs = reinterpret_cast<u64 *>(counter + 2 * (bins + 1));
    const Segment s{scalars, index, len, montgomery, first_index, stride};
    const Cut cut{num_windows, sets, set_from, set_to};
    const Windows windows{widths, starts, bias, bits};
    const u32 tile = blockDim.x * per_thread, lane = threadIdx.x & 31;
    for (u32 from = blockIdx.x * tile; from < len; from += gridDim.x * tile) {
        for (u32 b = threadIdx.x; b <= bins; b += blockDim.x) counter[b] = 0;
        __syncthreads();
        for (u32 k = 0; k < per_thread; k++) {
            const Digits d = digits_of(segment_scalar(s, from + k * blockDim.x + threadIdx.x), montgomery, windows);
            const u32 units = __ballot_sync(0xffffffffu, d.unit && set_from == 0);
            if (lane == 0 && units != 0) atomicAdd(&counter[0], __popc(units));
            if (d.dense)
                for_each_digit(d, windows, cut, 0, 0, [&](u32 key, u32) { atomicAdd(&counter[1 + (key >> fine_bits)], 1); });
        }
        __syncthreads();
        if (stage != 0) {
            const u32 per = (bins + blockDim.x - 1) / blockDim.x, first = 1 + threadIdx.x * per;
            u32 sum = 0;
            for (u32 b = first; b < first + per && b <= bins; b++) sum += counter[b];
            u32 at = block_scan(sum, warps);
            if (threadIdx.x == blockDim.x - 1) gathered = at + sum;
            for (u32 b = first; b < first + per && b <= bins; b++) {
                const u32 count = counter[b];
                counter[b] = at;
                if (count != 0) distance[b] = atomicAdd(&cursor[b], count) - at;
                at += count;
            }
            if (threadIdx.x == 0 && counter[0] != 0) counter[0] = atomicAdd(&cursor[0], counter[0]);
        } else {
            for (u32 b = threadIdx.x; b <= bins; b += blockDim.x) {
                const u32 count = counter[b];
                if (count != 0) counter[b] = atomicAdd(&cursor[b], count);
            }
        }
        __syncthreads();
        for (u32 k = 0; k < per_thread; k++) {
            const u32 i = from + k * blockDim.x + threadIdx.x;
            const Digits d = digits_of(segment_scalar(s, i), montgomery, windows);
            const bool unit = d.unit && set_from == 0;
            const u32 units = __ballot_sync(0xffffffffu, unit);
            u32 base = 0;
            if (lane == 0 && units != 0) base = atomicAdd(&counter[0], __popc(units));
            base = __shfl_sync(0xffffffffu, base, 0);
            if (unit) sorted[base + __popc(units & ((1u << lane) - 1))] = (u32)d.negative << 31 | (first_index + i);
            if (d.dense)
                for_each_digit(d, windows, cut, first_index + i, stride, [&](u32 key, u32 low) {
                    u64 *const to = stage != 0 ? pairs : dealt;
                    to[atomicAdd(&counter[1 + (key >> fine_bits)], 1)] = (u64)key << 32 | low;
                });
        }
        __syncthreads();
        if (stage != 0) {
            for (u32 i = threadIdx.x; i < gathered; i += blockDim.x) {
                const u64 pair = pairs[i];
                dealt[distance[1 + ((u32)(pair >> 32) >> fine_bits)] + i] = pair;
            }
            __syncthreads();
        }
    }
}

// Threads of a block of `msm_few`, and scalars that a lane loads at a time.
#define FEW_THREADS 256
#define FEW_UNROLL 4

// Both passes over a segment of which few scalars are dense: adds the number of pairs per bin to counters[0 .. bins], or, with `dealt`, deals pairs to the
// places that the counters give out. A tile of such scalars would not fill its bins, and a lone dense one among bits would hold up its warp: so a warp
// collects dense scalars until there is one for each lane, and every pair takes its place by itself.
extern "C" __global__ void __launch_bounds__(FEW_THREADS, 4)
    msm_few(const Fr *scalars, const u32 *index, u32 len, u32 montgomery, u32 first_index, u32 stride, const __grid_constant__ Words widths,
            const __grid_constant__ Words starts, const __grid_constant__ Words bias, const __grid_constant__ Words bits, u32 num_windows, u32 sets,
            u32 set_from, u32 set_to, u32 fine_bits, u32 *counters, u64 *dealt, u64 *sorted) {
    __shared__ u32 queues[FEW_THREADS / 32][64];
    const Segment s{scalars, index, len, montgomery, first_index, stride};
    const Cut cut{num_windows, sets, set_from, set_to};
    const Windows windows{widths, starts, bias, bits};
    const u32 lane = threadIdx.x & 31, below = (1u << lane) - 1, all = 0xffffffffu, stretch = 32 * FEW_UNROLL;
    u32 *const queue = queues[threadIdx.x / 32];
    u32 queued = 0;
    // Pairs of the scalars that wait in the queue, of all lanes or the first ones.
    const auto emit_queued = [&](u32 i, bool any) {
        const Digits d = digits_of(any ? segment_scalar(s, i) : fr_zero(), montgomery, windows);
        for_each_window(d, windows, cut, first_index + i, stride, [&](u32 key, u32 low, bool nonzero) {
            const bool pair = d.dense && nonzero;
            u32 *const counter = counters + 1 + (key >> fine_bits);
            // Lanes whose pairs go to the same bin, as skewed scalars' do, take their places at once.
            const u32 same = __match_any_sync(all, pair ? key >> fine_bits : all);
            const bool first = pair && (same & below) == 0;
            if (dealt == nullptr) {
                if (first) atomicAdd(counter, __popc(same));
                return;
            }
            u32 at = 0;
            if (first) at = atomicAdd(counter, __popc(same));
            at = __shfl_sync(all, at, __ffs(same) - 1) + __popc(same & below);
            if (pair) dealt[at] = (u64)key << 32 | low;
        });
    };
    const u32 warp = (blockIdx.x * FEW_THREADS + threadIdx.x) / 32, warps = gridDim.x * (FEW_THREADS / 32);
    for (u64 from = (u64)warp * stretch; from < len; from += (u64)warps * stretch) {
        Fr scalar[FEW_UNROLL];
        SP_UNROLL
        for (u32 k = 0; k < FEW_UNROLL; k++) scalar[k] = segment_scalar(s, (u32)from + 32 * k + lane);
        Class c[FEW_UNROLL];
        u32 units[FEW_UNROLL], total = 0;
        SP_UNROLL
        for (u32 k = 0; k < FEW_UNROLL; k++) {
            c[k] = class_of(scalar[k], montgomery);
            units[k] = __ballot_sync(all, c[k].unit && set_from == 0);
            total += __popc(units[k]);
        }
        if (total != 0) {
            u32 base = 0;
            if (lane == 0) base = atomicAdd(counters, total);
            if (dealt != nullptr) {
                base = __shfl_sync(all, base, 0);
                SP_UNROLL
                for (u32 k = 0; k < FEW_UNROLL; k++) {
                    if (units[k] >> lane & 1) sorted[base + __popc(units[k] & below)] = (u32)c[k].negative << 31 | (first_index + (u32)from + 32 * k + lane);
                    base += __popc(units[k]);
                }
            }
        }
        SP_UNROLL
        for (u32 k = 0; k < FEW_UNROLL; k++) {
            const u32 dense = __ballot_sync(all, c[k].dense);
            if (dense == 0) continue;
            if (c[k].dense) queue[queued + __popc(dense & below)] = (u32)from + 32 * k + lane;
            queued += __popc(dense);
            if (queued < 32) continue;
            __syncwarp();
            const u32 i = queue[lane], later = queue[32 + lane];
            queued -= 32;
            __syncwarp();
            if (lane < queued) queue[lane] = later;
            emit_queued(i, true);
        }
    }
    __syncwarp();
    if (queued != 0) emit_queued(queue[lane], lane < queued);
}

// A pair that adds nothing to its bucket.
SP_FN u64 nothing(u32 key) {
    return (u64)key << 32 | 0xffffffffu;
}

// The end of the keys from `first` on whose places, counter[key] on, span no more than `stage`; `whole` is where the last one's end.
SP_FN u32 stretch_end(const u32 *counter, u32 first, u32 n, u32 whole, u32 stage) {
    const u32 limit = counter[first] + stage;
    if (whole <= limit) return n;
    // counter[low] is within the limit, counter[high] beyond it.
    u32 low = first, high = n;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (counter[middle] <= limit)
            low = middle;
        else
            high = middle;
    }
    return low;
}

// Sorts each bin from 1 up by the low fine_bits of its keys, and pads: one block per bin. Pairs are put in order in shared memory, as many keys' at a time as
// `stage` pairs have room for, and go out in one piece; where that takes too many turns, or one key has more, they are scattered.
// Shared memory: 2^fine_bits u32, and 6 bytes for each of `stage`, which is even.
extern "C" __global__ void __launch_bounds__(SORT_THREADS) msm_sort_bins(const u64 *dealt, u64 *sorted, const u32 *start, u32 fine_bits,
                                                                        u32 *list, u32 stage) {
    extern __shared__ u32 counter[];
    __shared__ u32 sums[SORT_THREADS];
    __shared__ u32 place;
    u32 *const lows = counter + (1u << fine_bits);
    unsigned short *const keys = reinterpret_cast<unsigned short *>(lows + stage);
    const u32 rounds = list[0];
    const u32 bin = blockIdx.x + 1, from = start[bin], to = start[bin + 1], n = 1u << fine_bits, mask = n - 1;
    for (u32 k = threadIdx.x; k < n; k += blockDim.x) counter[k] = 0;
    __syncthreads();
    // Several loads in flight per thread: a bin that a skewed input has made long is still one block's work.
    for (u32 at = from; at < to; at += SORT_UNROLL * blockDim.x) {
        u64 pair[SORT_UNROLL];
        SP_UNROLL
        for (u32 k = 0; k < SORT_UNROLL; k++) {
            const u32 i = at + k * blockDim.x + threadIdx.x;
            pair[k] = i < to ? dealt[i] : ~0ull;
        }
        SP_UNROLL
        for (u32 k = 0; k < SORT_UNROLL; k++)
            if (pair[k] != ~0ull) atomicAdd(&counter[(u32)(pair[k] >> 32) & mask], 1);
    }
    __syncthreads();
    const u32 per = (n + blockDim.x - 1) / blockDim.x, first = threadIdx.x * per;
    u32 sum = 0;
    for (u32 k = first; k < first + per && k < n; k++) sum += padded(counter[k], rounds);
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (u32 d = 1; d < blockDim.x; d <<= 1) {
        const u32 other = threadIdx.x >= d ? sums[threadIdx.x - d] : 0;
        __syncthreads();
        sums[threadIdx.x] += other;
        __syncthreads();
    }
    const u32 units = start[1], whole = sums[blockDim.x - 1];
    const bool staged = whole <= SORT_TURNS * stage;
    if (threadIdx.x == 0) place = rounds == 0 ? from : bin == 1 ? padded(units, rounds) : atomicAdd(&list[1], whole);
    __syncthreads();
    u32 at = (staged ? 0 : place) + sums[threadIdx.x] - sum;
    for (u32 k = first; k < first + per && k < n; k++) {
        const u32 count = counter[k], next = at + padded(count, rounds);
        counter[k] = at;
        if (!staged)
            for (u32 i = at + count; i < next; i++) sorted[i] = nothing((bin - 1) << fine_bits | k);
        at = next;
    }
    if (rounds != 0 && bin == 1) {
        for (u32 i = units + threadIdx.x; i < place; i += blockDim.x) sorted[i] = nothing(0);
        const u32 end = place + first_bin_room(to - from, fine_bits, rounds);
        for (u32 i = place + whole + threadIdx.x; i < end; i += blockDim.x) sorted[i] = nothing(n - 1);
    }
    u32 end = n;
    for (u32 key_from = 0; key_from < n; key_from = end) {
        __syncthreads();
        end = staged ? stretch_end(counter, key_from, n, whole, stage) : n;
        // One key may have too many pairs.
        const bool direct = !staged || end == key_from;
        if (end == key_from) end++;
        const u32 begin = staged ? counter[key_from] : 0, size = (end < n ? counter[end] : whole) - begin;
        // Every thread has read the counters before one changes.
        __syncthreads();
        if (!direct && rounds != 0)
            for (u32 i = threadIdx.x; i < size; i += blockDim.x) {
                lows[i] = 0xffffffffu;
                keys[i] = key_from;
            }
        if (staged && direct)
            for (u32 i = threadIdx.x; i < size; i += blockDim.x) sorted[place + begin + i] = nothing((bin - 1) << fine_bits | key_from);
        __syncthreads();
        const u32 offset = !staged ? 0 : direct ? place : 0 - begin;
        for (u32 base = from; base < to; base += SORT_UNROLL * blockDim.x) {
            u64 pair[SORT_UNROLL];
            SP_UNROLL
            for (u32 k = 0; k < SORT_UNROLL; k++) {
                const u32 i = base + k * blockDim.x + threadIdx.x;
                pair[k] = i < to ? dealt[i] : ~0ull;
            }
            SP_UNROLL
            for (u32 k = 0; k < SORT_UNROLL; k++) {
                const u32 key = (u32)(pair[k] >> 32) & mask;
                if (pair[k] == ~0ull || key < key_from || key >= end) continue;
                const u32 slot = atomicAdd(&counter[key], 1) + offset;
                if (direct) {
                    sorted[slot] = pair[k];
                } else {
                    lows[slot] = (u32)pair[k];
                    keys[slot] = key;
                }
            }
        }
        __syncthreads();
        if (!direct)
            for (u32 i = threadIdx.x; i < size; i += blockDim.x)
                sorted[place + begin + i] = (u64)((bin - 1) << fine_bits | keys[i]) << 32 | lows[i];
    }
}
