// Row-wise SpMM without float atomics (GNNAdvisor 4, Seastar 6.3; technique local): the same bits every time.
//
// The host cuts the rows once (mgg/kernel/schedule.py). A piece is a row, or part of a long one; pieces follow one another
// without gaps, so a task, up to 32 pieces of about equal work, is one run of arcs, which a warp streams. A block owns
// consecutive tasks: its warps gather rows of B that lie together and find each other's rows in L1.
#include "mgg/warp.cuh"

namespace mgg {

// Two blocks of 12 warps a multiprocessor leave each lane the 80 registers that eight 16-byte loads in flight take.
#ifndef MGG_ROWS_THREADS
#define MGG_ROWS_THREADS 384
#define MGG_ROWS_BLOCKS 2
#endif
constexpr int kThreads = MGG_ROWS_THREADS;

// The next task of the block, the same for all lanes.
__device__ __forceinline__ int draw(int *upcoming, int lane) {
    int task = 0;
    if (lane == 0) task = atomicAdd(upcoming, 1);
    return __shfl_sync(kAll, task, 0);
}

// Where a task's arcs begin; lane i keeps where piece i ends and where its sum goes.
struct Cut {
    long long start, end;
    int goal;

    __device__ __forceinline__ void read(const long long *begin, const int *target, int2 pieces, int lane) {
        const int mine = pieces.x + min(lane, pieces.y - 1);
        start = begin[pieces.x], end = begin[mine + 1], goal = target[mine];
    }
};

template <int LANES, int VEC, bool WEIGHTED>
__device__ __forceinline__ void spmm_rows(
    const int2 *__restrict__ tasks, const int *__restrict__ blocks, const long long *__restrict__ begin,
    const int *__restrict__ target, const Index *__restrict__ indices, const float *__restrict__ weights,
    const float *__restrict__ b, int b_stride, float *__restrict__ c, int c_stride, float *__restrict__ partial,
    int partial_stride, int first_column, int columns, int accumulate
) {
    using Arcs = Window<LANES, WEIGHTED>;
    __shared__ int upcoming;
    const Tile<LANES, VEC> tile(first_column, blockIdx.y, columns);
    const int lane = tile.lane, warp = threadIdx.x / 32;
    const int first = blocks[blockIdx.x], last = blocks[blockIdx.x + 1];
    if (threadIdx.x == 0) upcoming = first + kThreads / 32;
    __syncthreads();

    // One task ahead the warp asks which pieces; with narrow tiles, whose tasks take less time, it asks that two ahead and
    // where they are one ahead. Which warp takes a task changes no result.
    constexpr bool AHEAD = LANES <= 8;
    int task = first + warp;
    int2 pieces = make_int2(0, 0), after = make_int2(0, 0);  // the first, and how many
    int next_task = last;
    Cut ready = {0, 0, 0};
    if (task < last) {
        pieces = tasks[task];
        if constexpr (AHEAD) {
            next_task = draw(&upcoming, lane);
            if (next_task < last) after = tasks[next_task];
            ready.read(begin, target, pieces, lane);
        }
    }
    while (task < last) {
        Cut cut = ready;
        const int count = pieces.y;
        int later_task = last;
        if constexpr (AHEAD) {
            pieces = after;
            if (next_task < last) {
                ready.read(begin, target, pieces, lane);
                later_task = draw(&upcoming, lane);
                if (later_task < last) after = tasks[later_task];
            }
        } else {
            cut.read(begin, target, pieces, lane);
            next_task = draw(&upcoming, lane);
            if (next_task < last) pieces = tasks[next_task];
        }
        const long long start = cut.start;
        const int stop = static_cast<int>(cut.end - start), goal = cut.goal;

        int piece = 0, position = 0, end = __shfl_sync(kAll, stop, 0), n = min(Arcs::SIZE, end);
        Arcs arcs, next;
        arcs.read(indices, weights, start, n, lane);
        Pack<VEC> sum = zero<VEC>();
        while (true) {
            // The next window is read before this one's rows of B are waited for.
            int next_position = position + Arcs::SIZE, next_end = end;
            const bool ends = next_position >= end;
            if (ends) next_position = end, next_end = __shfl_sync(kAll, stop, (piece + 1) & 31);
            const bool done = ends && piece + 1 == count;
            const int next_n = done ? 0 : min(Arcs::SIZE, next_end - next_position);
            next.read(indices, weights, start + next_position, next_n, lane);

            add_window(sum, arcs, n, b, b_stride, tile);
            if (ends) {
                const int to = __shfl_sync(kAll, goal, piece);
                reduce_groups<LANES>(sum);
                if (tile.writes()) {
                    if (to < 0) {  // part of a long row
                        store(at(partial, ~to, partial_stride, tile.column), sum, tile.count);
                    } else {
                        float *out = at(c, to, c_stride, tile.column);
                        if (accumulate) {
#pragma unroll
                            for (int i = 0; i < VEC; ++i)
                                if (i < tile.count) sum.v[i] += out[i];
                        }
                        store(out, sum, tile.count);
                    }
                }
                if (done) break;
                sum = zero<VEC>();
                ++piece;
            }
            position = next_position, end = next_end, n = next_n, arcs = next;
        }
        task = next_task, next_task = later_task;
    }
}

// c[rows[i]] (=|+=) the sum of the partial sums first[i] .. first[i + 1], in order; a warp a row.
template <int VEC>
__device__ __forceinline__ void spmm_rows_combine(
    const int *__restrict__ rows, const int *__restrict__ first, int row_count, const float *__restrict__ partial,
    int partial_stride, float *__restrict__ c, int c_stride, int columns, int accumulate
) {
    constexpr int UNROLL = 8;
    const Tile<32, VEC> tile(0, blockIdx.y, columns);
    const int i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= row_count || !tile.active()) return;
    const int last = first[i + 1];
    float *out = at(c, rows[i], c_stride, tile.column);
    Pack<VEC> sum = zero<VEC>();
    for (int slot = first[i]; slot < last; slot += UNROLL) {
        Pack<VEC> x[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            x[u] = slot + u < last ? load<VEC>(at(partial, slot + u, partial_stride, tile.column)) : zero<VEC>();
#pragma unroll
        for (int step = 1; step < UNROLL; step *= 2)
#pragma unroll
            for (int u = 0; u + step < UNROLL; u += 2 * step) add(x[u], x[u + step]);
        add(sum, x[0]);
    }
    if (accumulate) {
#pragma unroll
        for (int k = 0; k < VEC; ++k)
            if (k < tile.count) sum.v[k] += out[k];
    }
    store(out, sum, tile.count);
}

}  // namespace mgg

#define MGG_ROWS(name, lanes, vec, weighted)                                                                            \
    extern "C" __global__ void __launch_bounds__(mgg::kThreads, MGG_ROWS_BLOCKS) name(                                                \
        const int2 *tasks, const int *blocks, const long long *begin, const int *target,                                \
        const mgg::Index *indices, const float *weights, const float *b, int b_stride, float *c, int c_stride,          \
        float *partial, int partial_stride, int first_column, int columns, int accumulate                               \
    ) {                                                                                                                 \
        mgg::spmm_rows<lanes, vec, weighted>(                                                                           \
            tasks, blocks, begin, target, indices, weights, b, b_stride, c, c_stride, partial,                          \
            partial_stride, first_column, columns, accumulate                                                           \
        );                                                                                                              \
    }
#define MGG_INSTANCE(lanes, vec)                                \
    MGG_ROWS(spmm_rows_##lanes##_##vec, lanes, vec, false)      \
    MGG_ROWS(spmm_rows_##lanes##_##vec##_weighted, lanes, vec, true)
MGG_SHAPES(MGG_INSTANCE)

#define MGG_COMBINE(vec)                                                                                               \
    extern "C" __global__ void __launch_bounds__(256) spmm_rows_combine_##vec(                                         \
        const int *rows, const int *first, int row_count, const float *partial, int partial_stride, float *c,          \
        int c_stride, int columns, int accumulate                                                                      \
    ) {                                                                                                                \
        mgg::spmm_rows_combine<vec>(                                                                                   \
            rows, first, row_count, partial, partial_stride, c, c_stride, columns, accumulate                          \
        );                                                                                                             \
    }
MGG_COMBINE(1)
MGG_COMBINE(2)
MGG_COMBINE(4)
