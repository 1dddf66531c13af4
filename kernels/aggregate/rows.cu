// Row-wise SpMM without float atomics (GNNAdvisor 4, Seastar 6.3; technique local): the same bits every time.
//
// The host cuts the rows once (mgg/kernel/schedule.py). A piece is a row, or part of a long one. Pieces follow one
// another without gaps, so a task (up to 32 pieces; tasks have about equal work) is one run of arcs, which a warp
// streams. A block owns consecutive tasks, so that its warps gather rows of B that lie together and find each other's
// rows in L1.
#include "mgg/pieces.cuh"

namespace mgg {

// Two blocks of 12 warps per multiprocessor leave each lane the 80 registers that eight 16-byte loads in flight take.
#ifndef MGG_ROWS_THREADS
#define MGG_ROWS_THREADS 384
#define MGG_ROWS_BLOCKS 2
#endif
constexpr int kThreads = MGG_ROWS_THREADS;

template <int LANES, int VEC, bool WEIGHTED>
__device__ __forceinline__ void spmm_rows(
    const Pieces &work, const int *__restrict__ blocks, const Element *__restrict__ b, int b_stride,
    float *__restrict__ c, int c_stride, float *__restrict__ partial, int partial_stride, int first_column, int columns,
    int accumulate
) {
    __shared__ int upcoming;
    const Tile<LANES, VEC> tile(first_column, blockIdx.y, columns);
    const int first = blocks[blockIdx.x], last = blocks[blockIdx.x + 1];
    if (threadIdx.x == 0) upcoming = first + kThreads / 32;
    __syncthreads();
    auto keep = [&](int to, Pack<VEC> &sum) {
        if (!tile.writes()) return;
        if (to < 0) {  // part of a long row
            store(at(partial, ~to, partial_stride, tile.column), sum, tile.count);
            return;
        }
        float *out = at(c, to, c_stride, tile.column);
        if (accumulate) {
#pragma unroll
            for (int i = 0; i < VEC; ++i)
                if (i < tile.count) sum.v[i] += out[i];
        }
        store(out, sum, tile.count);
    };
    work_off<LANES, VEC, WEIGHTED>(work, first, last, threadIdx.x / 32, &upcoming, b, b_stride, tile, keep);
}

// c[rows[i]] (=|+=) the sum of the partial sums first[i] .. first[i + 1], in order; one warp per row.
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
            x[u] = slot + u < last ? load_sum<VEC>(at(partial, slot + u, partial_stride, tile.column)) : zero<VEC>();
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

#define MGG_ROWS(name, lanes, vec, weighted)                                                                        \
    extern "C" __global__ void __launch_bounds__(mgg::kThreads, MGG_ROWS_BLOCKS) name(                              \
        const int2 *tasks, const int *blocks, const long long *begin, const int *target, const mgg::Index *indices, \
        const float *weights, const mgg::Element *b, int b_stride, float *c, int c_stride, float *partial,          \
        int partial_stride, int first_column, int columns, int accumulate                                           \
    ) {                                                                                                             \
        mgg::spmm_rows<lanes, vec, weighted>(                                                                       \
            {tasks, begin, target, indices, weights}, blocks, b, b_stride, c, c_stride, partial, partial_stride,    \
            first_column, columns, accumulate                                                                       \
        );                                                                                                          \
    }
#define MGG_INSTANCE(lanes, vec)                           \
    MGG_ROWS(spmm_rows_##lanes##_##vec, lanes, vec, false) \
    MGG_ROWS(spmm_rows_##lanes##_##vec##_weighted, lanes, vec, true)
MGG_SHAPES(MGG_INSTANCE)

#define MGG_COMBINE(vec)                                                                                      \
    extern "C" __global__ void __launch_bounds__(256) spmm_rows_combine_##vec(                                \
        const int *rows, const int *first, int row_count, const float *partial, int partial_stride, float *c, \
        int c_stride, int columns, int accumulate                                                             \
    ) {                                                                                                       \
        mgg::spmm_rows_combine<vec>(                                                                          \
            rows, first, row_count, partial, partial_stride, c, c_stride, columns, accumulate                 \
        );                                                                                                    \
    }
MGG_COMBINE(1)
MGG_COMBINE(2)
MGG_COMBINE(4)
