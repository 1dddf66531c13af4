// GNNAdvisor's kernel (OSDI'21, sections 4 and 5.2). The arcs of a row fall into groups of `ngs`. A group has `workers`
// threads, each of which sums every workers-th vector of columns. With a leader, the groups of a row within a block
// combine in shared memory, and the first of them alone writes their sum (algorithm 1).
//
// `lanes` maps threads to groups: 32 gives each group a warp (figure 6b), `workers` packs groups one behind the other,
// across warps (figure 6a). The block's shared memory holds a row of `tile` floats per group: equation 5 with the tile
// in place of Dim. A group or leader adds its result to C by atomics. Alternatively, for the same bits every time, it
// stores the result to C where that is the whole row, and otherwise to `partial`, whose rows spmm_rows_combine
// (rows.cu) adds up in order.
#include "mgg/warp.cuh"

namespace mgg {

// The sum of arcs first .. last in this thread's VEC columns from `column` on. Loads of 8 arcs are in flight; their sum
// is a tree.
template <int VEC, bool WEIGHTED>
__device__ __forceinline__ Pack<VEC> group_sum(
    const Index *__restrict__ indices, const float *__restrict__ weights, long long first, long long last,
    const float *__restrict__ b, int b_stride, int column
) {
    constexpr int UNROLL = 8;
    Pack<VEC> sum = zero<VEC>();
    for (; first < last; first += UNROLL) {
        Raw<VEC> raw[UNROLL];
        float weight[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const bool mine = first + u < last;
            const Index row = mine ? __ldg(indices + first + u) : 0;
            if constexpr (WEIGHTED) weight[u] = mine ? __ldg(weights + first + u) : 0.0f;
            raw[u] = load_if<VEC>(mine, at(b, row, b_stride, column));
        }
        Pack<VEC> x[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            x[u] = unpack<VEC>(raw[u]);
            if constexpr (WEIGHTED) scale(x[u], weight[u]);
        }
#pragma unroll
        for (int step = 1; step < UNROLL; step *= 2)
#pragma unroll
            for (int u = 0; u + step < UNROLL; u += 2 * step) add(x[u], x[u + step]);
        add(sum, x[0]);
    }
    return sum;
}

// Group g is arcs starts[g] .. starts[g + 1] of row targets[g]. If the group writes a result, it goes to row to[g] of
// C, or to row ~to[g] of `partial` where to[g] is negative.
template <int VEC, bool WEIGHTED>
__device__ __forceinline__ void gnnadvisor(
    const int *__restrict__ targets, const int *__restrict__ to, const long long *__restrict__ starts, long long groups,
    const Index *__restrict__ indices, const float *__restrict__ weights, const float *__restrict__ b, int b_stride,
    float *__restrict__ c, int c_stride, float *__restrict__ partial, int partial_stride, int workers, int lanes,
    int tile, int columns, int leader, int atomic
) {
    MGG_DYNAMIC_SHARED(float, sums);
    const int a_block = blockDim.x / lanes, mine = threadIdx.x / lanes, worker = threadIdx.x % lanes;
    const long long g = static_cast<long long>(blockIdx.x) * a_block + mine;
    const int begin = blockIdx.y * tile, end = min(begin + tile, columns);
    const bool works = mine < a_block && g < groups && worker < workers;
    auto write = [&](int column, const Pack<VEC> &sum) {
        const int count = columns - column, row = to[g];
        if (atomic)
            atomic_add(at(c, row, c_stride, column), sum, count);
        else if (row < 0)
            store(at(partial, ~row, partial_stride, column), sum, count);
        else
            store(at(c, row, c_stride, column), sum, count);
    };
    if (works) {
        const long long first = starts[g], last = starts[g + 1];
        for (int column = begin + worker * VEC; column < end; column += workers * VEC) {
            const Pack<VEC> sum = group_sum<VEC, WEIGHTED>(indices, weights, first, last, b, b_stride, column);
            if (leader)
                *reinterpret_cast<Pack<VEC> *>(sums + mine * tile + column - begin) = sum;
            else
                write(column, sum);
        }
    }
    if (!leader) return;
    __syncthreads();
    if (!works || (mine > 0 && targets[g] == targets[g - 1])) return;
    int count = 1;
    while (mine + count < a_block && g + count < groups && targets[g + count] == targets[g]) ++count;
    for (int column = begin + worker * VEC; column < end; column += workers * VEC) {
        const float *from = sums + mine * tile + column - begin;
        Pack<VEC> sum = *reinterpret_cast<const Pack<VEC> *>(from);
        for (int other = 1; other < count; ++other) add(sum, *reinterpret_cast<const Pack<VEC> *>(from + other * tile));
        write(column, sum);
    }
}

}  // namespace mgg

#define MGG_GROUPS(name, vec, weighted)                                                                                \
    extern "C" __global__ void __launch_bounds__(1024) name(                                                           \
        const int *targets, const int *to, const long long *starts, long long groups, const mgg::Index *indices,       \
        const float *weights, const float *b, int b_stride, float *c, int c_stride, float *partial,                    \
        int partial_stride, int workers, int lanes, int tile, int columns, int leader, int atomic                      \
    ) {                                                                                                                \
        mgg::gnnadvisor<vec, weighted>(                                                                                \
            targets, to, starts, groups, indices, weights, b, b_stride, c, c_stride, partial, partial_stride, workers, \
            lanes, tile, columns, leader, atomic                                                                       \
        );                                                                                                             \
    }
#define MGG_INSTANCE(vec)                    \
    MGG_GROUPS(gnnadvisor_##vec, vec, false) \
    MGG_GROUPS(gnnadvisor_##vec##_weighted, vec, true)
MGG_INSTANCE(1) MGG_INSTANCE(2) MGG_INSTANCE(4)
