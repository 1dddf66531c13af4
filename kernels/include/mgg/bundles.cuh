// How a block processes pieces (rows or parts of long rows) of similar length. A warp sums one piece per group of lanes
// side by side (a bundle), or one long piece with all its groups. mgg/kernel/narrow_row_schedule.py cuts and orders
// them.
#pragma once

#include "mgg/pieces.cuh"

namespace mgg {

// A row or a part of one, in 8 bytes. x: its first arc relative to its block's first (20 bits), its number of arcs (11
// bits), whether the whole warp sums it (1 bit). y: its row, ~slot of a partial sum, or kNoTarget, which pads a bundle.
using Piece = uint2;
constexpr int kStartBits = 20, kLengthBits = 11, kNoTarget = -2147483647 - 1;

// Where a block's arcs are and how they are cut.
struct Bundles {
    const int2 *tasks;  // first piece, number of pieces
    const Piece *pieces;
    const Index *indices;  // rows of B, from the block's first arc on
    const float *weights;  // likewise, or null
};

// What a group sums next: arcs start, start + 1, ..; or, where the whole warp sums a piece, every (32 / LANES)-th of
// its arcs.
template <int GROUPS>
struct Run {
    int start, length, target;
    bool whole;

    __device__ __forceinline__ void open(const Piece &piece, int group) {
        start = piece.x & ((1 << kStartBits) - 1), length = piece.x >> kStartBits & ((1 << kLengthBits) - 1);
        target = static_cast<int>(piece.y), whole = GROUPS > 1 && piece.x >> 31;
        if (whole) start += group, length = (length + GROUPS - 1 - group) / GROUPS;
    }
};

// The batches of a warp over all tasks that it draws. A batch is one piece per group, or one piece for all of them. The
// warp requests the next task while it processes the current one.
template <int GROUPS>
struct Batches {
    const Bundles &work;
    int *upcoming;
    int last, lane, group;
    int piece = 0, end = 0, next_task;
    int2 after = make_int2(0, 0);

    __device__ __forceinline__ Batches(const Bundles &work, int first, int last, int *upcoming, int lane, int group)
        : work(work), upcoming(upcoming), last(last), lane(lane), group(group), next_task(first) {
        if (next_task < last) after = work.tasks[next_task];
    }

    // Whether there is another batch; `found` is this group's piece of it.
    __device__ __forceinline__ bool next(Piece &found) {
        found = make_uint2(0, 0);
        if (piece >= end) {
            if (next_task >= last) return false;
            piece = after.x, end = piece + after.y;
            next_task = draw(upcoming, lane);
            if (next_task < last) after = work.tasks[next_task];
        }
        found = __ldg(work.pieces + piece + group);
        piece += GROUPS;
        return true;
    }
};

// Some arcs of each group's run (LANES or more), spread over its lanes.
template <int LANES, int UNROLL, bool WEIGHTED>
struct Slots {
    static constexpr int SIZE = UNROLL > LANES ? UNROLL : LANES, PER_LANE = SIZE / LANES;
    Index index[PER_LANE];
    float weight[PER_LANE];

    __device__ __forceinline__ void read(const Bundles &work, const Run<32 / LANES> &run, int from, int lane) {
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) {
            const int slot = from + i * LANES + lane % LANES;
            const bool mine = slot < run.length;
            const int arc = run.start + (run.whole ? slot * (32 / LANES) : slot);
            index[i] = mine ? __ldg(work.indices + arc) : 0;
            if constexpr (WEIGHTED) weight[i] = mine ? __ldg(work.weights + arc) : 0.0f;
        }
    }
};

// The value of lane `from` of each group.
template <int LANES, typename T>
__device__ __forceinline__ T of_group(T value, int from) {
    if constexpr (LANES == 1) return value;
    return __shfl_sync(kAll, value, from, LANES);
}

// sum += the rows of B of N slots from `base` on, with N loads in flight per lane. MASKED: `length` may end earlier.
template <int LANES, int VEC, int N, bool MASKED, int UNROLL, bool WEIGHTED>
__device__ __forceinline__ void add_slots(
    Pack<VEC> &sum, const Slots<LANES, UNROLL, WEIGHTED> &slots, int base, int length, const char *b, int stride
) {
    Raw<VEC> raw[N];
#pragma unroll
    for (int u = 0; u < N; ++u) {
        const Index row = of_group<LANES>(slots.index[(base + u) / LANES], (base + u) % LANES);
        const Element *from = reinterpret_cast<const Element *>(b + static_cast<long long>(row) * stride);
        raw[u] = MASKED ? load_if<VEC>(base + u < length, from) : load_raw<VEC>(from);
    }
    auto weighted = [&](int u) {
        Pack<VEC> x = unpack<VEC>(raw[u]);
        if constexpr (WEIGHTED) scale(x, of_group<LANES>(slots.weight[(base + u) / LANES], (base + u) % LANES));
        return x;
    };
    if constexpr (sizeof(Element) == 2) {  // as floats, the values take twice the registers
#pragma unroll
        for (int u = 0; u < N; ++u) add(sum, weighted(u));
    } else {
        Pack<VEC> x[N];
#pragma unroll
        for (int u = 0; u < N; ++u) x[u] = weighted(u);
#pragma unroll
        for (int step = 1; step < N; step *= 2)
#pragma unroll
            for (int u = 0; u + step < N; u += 2 * step) add(x[u], x[u + step]);
        add(sum, x[0]);
    }
}

// Returns the same pointer. The shuffle hides that from the compiler, which would otherwise recompute the pointer
// before every run of loads.
__device__ __forceinline__ const char *kept(const char *p, int lane) {
    return reinterpret_cast<const char *>(__shfl_sync(kAll, reinterpret_cast<unsigned long long>(p), lane));
}

// Sum the pieces of this block's tasks first .. last and pass each sum to `keep(target, sum)`, in the lanes of one
// group. The caller sets the block's `upcoming` to first + its number of warps.
template <int LANES, int VEC, int UNROLL, bool WEIGHTED, typename Keep>
__device__ __forceinline__ void work_off_bundles(
    const Bundles &work, int first, int last, int warp, int *upcoming, const Element *__restrict__ b, int b_stride,
    const Tile<LANES, VEC> &tile, Keep keep
) {
    constexpr int GROUPS = 32 / LANES;
    using Arcs = Slots<LANES, UNROLL, WEIGHTED>;
    const int lane = tile.lane, group = tile.group, stride = b_stride * static_cast<int>(sizeof(Element));
    // A lane beyond the last column loads values that it does not use.
    const char *from_b = kept(reinterpret_cast<const char *>(b + (tile.active() ? tile.column : 0)), lane);

    Batches<GROUPS> batches(work, first + warp, last, upcoming, lane, group);
    Piece piece, then, later;  // read two batches ahead, so that they have arrived when they are opened
    if (!batches.next(piece)) return;
    bool more = batches.next(then), still_more = batches.next(later);
    Run<GROUPS> now;
    now.open(piece, group);
    Arcs arcs, next;
    arcs.read(work, now, 0, lane);
    Pack<VEC> sum = zero<VEC>();
    int position = 0, most = __shfl_sync(kAll, now.length, 0), least = __shfl_sync(kAll, now.length, 31);
    while (true) {
        // Read the next arcs before waiting for the rows of B of the current ones.
        const bool ends = position + Arcs::SIZE >= most;
        Run<GROUPS> coming = now;
        if (ends) coming.open(then, group);
        const int next_position = ends ? 0 : position + Arcs::SIZE;
        next.read(work, coming, next_position, lane);

#pragma unroll
        for (int base = 0; base < Arcs::SIZE; base += UNROLL) {
            const int rest = most - position - base;  // the same for all lanes, like `least`
            if (rest <= 0) break;
            const int own = now.length - position;
            if (position + base + UNROLL <= least)
                add_slots<LANES, VEC, UNROLL, false>(sum, arcs, base, own, from_b, stride);
            else if (rest > UNROLL / 2)
                add_slots<LANES, VEC, UNROLL, true>(sum, arcs, base, own, from_b, stride);
            else
                add_slots<LANES, VEC, UNROLL / 2, true>(sum, arcs, base, own, from_b, stride);
        }
        if (ends) {
            if (now.whole) reduce_groups<LANES>(sum);
            if (now.target != kNoTarget && !(now.whole && group)) keep(now.target, sum);
            if (!more) break;
            sum = zero<VEC>();
            then = later, more = still_more, still_more = batches.next(later);
            most = __shfl_sync(kAll, coming.length, 0), least = __shfl_sync(kAll, coming.length, 31);
        }
        now = coming, position = next_position, arcs = next;
    }
}

}  // namespace mgg

// Instances, like MGG_SHAPES (mgg/warp.cuh).
#define MGG_NARROW_LANES(F, vec) F(1, vec) F(2, vec) F(4, vec) F(8, vec)
#ifdef MGG_BF16
#define MGG_NARROW_SHAPES(F) MGG_NARROW_LANES(F, 1) MGG_NARROW_LANES(F, 2) MGG_NARROW_LANES(F, 4) MGG_NARROW_LANES(F, 8)
#else
#define MGG_NARROW_SHAPES(F) MGG_NARROW_LANES(F, 1) MGG_NARROW_LANES(F, 2) MGG_NARROW_LANES(F, 4)
#endif
