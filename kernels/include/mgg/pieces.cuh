// How a block processes tasks: runs of consecutive pieces (rows or parts of long rows), which the host cuts once
// (mgg/kernel/schedule.py).
#pragma once

#include "mgg/warp.cuh"

namespace mgg {

// Where a matrix's arcs are and how they are cut.
struct Pieces {
    const int2 *tasks;       // first piece, number of pieces (1..32)
    const long long *begin;  // first arc of each piece, and the end
    const int *target;       // row of each piece, or ~slot of a partial sum
    const Index *indices;    // rows of B
    const float *weights;    // or null
};

// The next task of the block, the same for all lanes.
__device__ __forceinline__ int draw(int *upcoming, int lane) {
    int task = 0;
    if (lane == 0) task = atomicAdd(upcoming, 1);
    return __shfl_sync(kAll, task, 0);
}

// Where a task's arcs begin. Lane i holds where piece i ends and where its sum goes.
struct Cut {
    long long start, end;
    int goal;

    __device__ __forceinline__ void read(const long long *begin, const int *target, int2 pieces, int lane) {
        const int mine = pieces.x + min(lane, pieces.y - 1);
        start = begin[pieces.x], end = begin[mine + 1], goal = target[mine];
    }
};

// Sum the pieces of this block's tasks first .. last and pass each sum, complete in every lane of its column, to
// `keep(goal, sum)`. The caller sets the block's `upcoming` to first + its number of warps. Sum: a Pack, or a type with
// add_window and reduce_groups that is zero when value-initialized.
template <int LANES, int VEC, bool WEIGHTED, typename Sum = Pack<VEC>, typename Keep>
__device__ __forceinline__ void work_off(
    const Pieces &work, int first, int last, int warp, int *upcoming, const Element *__restrict__ b, int b_stride,
    const Tile<LANES, VEC> &tile, Keep keep
) {
    using Arcs = Window<LANES, WEIGHTED>;
    const int lane = tile.lane;

    // The warp reads which pieces a task has one task ahead. Tasks of narrow tiles take less time: there the warp reads
    // that two tasks ahead, and where the pieces are one task ahead. Which warp takes a task changes no result.
    constexpr bool AHEAD = LANES <= 8;
    int task = first + warp;
    int2 pieces = make_int2(0, 0), after = make_int2(0, 0);  // the first, and how many
    int next_task = last;
    Cut ready = {0, 0, 0};
    if (task < last) {
        pieces = work.tasks[task];
        if constexpr (AHEAD) {
            next_task = draw(upcoming, lane);
            if (next_task < last) after = work.tasks[next_task];
            ready.read(work.begin, work.target, pieces, lane);
        }
    }
    while (task < last) {
        Cut cut = ready;
        const int count = pieces.y;
        int later_task = last;
        if constexpr (AHEAD) {
            pieces = after;
            if (next_task < last) {
                ready.read(work.begin, work.target, pieces, lane);
                later_task = draw(upcoming, lane);
                if (later_task < last) after = work.tasks[later_task];
            }
        } else {
            cut.read(work.begin, work.target, pieces, lane);
            next_task = draw(upcoming, lane);
            if (next_task < last) pieces = work.tasks[next_task];
        }
        const long long start = cut.start;
        const int stop = static_cast<int>(cut.end - start), goal = cut.goal;

        int piece = 0, position = 0, end = __shfl_sync(kAll, stop, 0), n = min(Arcs::SIZE, end);
        Arcs arcs, next;
        arcs.read(work.indices, work.weights, start, n, lane);
        Sum sum = {};
        while (true) {
            // Read the next window before waiting for the rows of B of the current one.
            int next_position = position + Arcs::SIZE, next_end = end;
            const bool ends = next_position >= end;
            if (ends) next_position = end, next_end = __shfl_sync(kAll, stop, (piece + 1) & 31);
            const bool done = ends && piece + 1 == count;
            const int next_n = done ? 0 : min(Arcs::SIZE, next_end - next_position);
            next.read(work.indices, work.weights, start + next_position, next_n, lane);

            add_window(sum, arcs, n, b, b_stride, tile);
            if (ends) {
                const int to = __shfl_sync(kAll, goal, piece);
                reduce_groups<LANES>(sum);
                keep(to, sum);
                if (done) break;
                sum = {};
                ++piece;
            }
            position = next_position, end = next_end, n = next_n, arcs = next;
        }
        task = next_task, next_task = later_task;
    }
}

}  // namespace mgg
