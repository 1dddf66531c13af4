// One warp per neighbor partition (MGG 4.1), whose sum is added to its row by atomics.
#include "mgg/warp.cuh"

namespace mgg {

// acc[target[i]] += sum of weights[k] * b[indices[k]] over the arcs starts[i] .. stops[i].
template <int LANES, int VEC, bool WEIGHTED>
__device__ __forceinline__ void spmm_partitions(
    const long long *__restrict__ target, const long long *__restrict__ starts, const long long *__restrict__ stops,
    long long count, const Index *__restrict__ indices, const float *__restrict__ weights, const float *__restrict__ b,
    int b_stride, float *__restrict__ acc, int acc_stride, int first_column, int columns
) {
    const Tile<LANES, VEC> tile(first_column, blockIdx.y, columns);
    const long long i = static_cast<long long>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= count) return;
    Pack<VEC> sum = zero<VEC>();
    add_arcs<LANES, VEC, WEIGHTED>(sum, indices, weights, starts[i], stops[i], b, b_stride, tile);
    reduce_groups<LANES>(sum);
    if (tile.writes()) atomic_add(at(acc, target[i], acc_stride, tile.column), sum, tile.count);
}

}  // namespace mgg

#define MGG_PARTITIONS(name, lanes, vec, weighted)                                                                 \
    extern "C" __global__ void __launch_bounds__(256) name(                                                        \
        const long long *target, const long long *starts, const long long *stops, long long count,                 \
        const mgg::Index *indices, const float *weights, const float *b, int b_stride, float *acc, int acc_stride, \
        int first_column, int columns                                                                              \
    ) {                                                                                                            \
        mgg::spmm_partitions<lanes, vec, weighted>(                                                                \
            target, starts, stops, count, indices, weights, b, b_stride, acc, acc_stride, first_column, columns    \
        );                                                                                                         \
    }
#define MGG_INSTANCE(lanes, vec)                                       \
    MGG_PARTITIONS(spmm_partitions_##lanes##_##vec, lanes, vec, false) \
    MGG_PARTITIONS(spmm_partitions_##lanes##_##vec##_weighted, lanes, vec, true)
MGG_SHAPES(MGG_INSTANCE)
