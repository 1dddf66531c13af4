// Column-wise SpMM (CoLa, algorithm 1): each row of B is read once and added to every row of C that needs it.
#include "mgg/warp.cuh"

namespace mgg {

constexpr int kSegment = 128;  // arcs per warp, whatever their columns, so that a column of any length is divided

// The column of arc `arc`: the last j with pointer[j] <= arc. The warp searches 32-ary; pointer[0] <= arc <
// pointer[count].
__device__ __forceinline__ long long column_of(const long long *pointer, long long count, long long arc, int lane) {
    long long low = 0, high = count;  // pointer[low] <= arc < pointer[high]
    while (high - low > 1) {
        const long long step = (high - low + 31) / 32;
        const long long probe = low + (lane + 1) * step;
        const bool below = probe < high && pointer[probe] <= arc;
        const int passed = __popc(__ballot_sync(kAll, below));
        high = min(high, low + (passed + 1) * step);
        low += passed * step;
    }
    return low;
}

// acc[rows[k]] += weights[k] * b[j] for the arcs k of column j. rows[0] belongs to arc pointer[0]. Sums are added to
// what `acc` holds.
template <int LANES, int VEC, bool WEIGHTED>
__device__ __forceinline__ void spmm_columns(
    const long long *__restrict__ pointer, long long column_count, const Index *__restrict__ rows,
    const float *__restrict__ weights, const float *__restrict__ b, int b_stride, float *__restrict__ acc,
    int acc_stride, int first_column, int columns
) {
    constexpr int GROUPS = 32 / LANES;
    const Tile<LANES, VEC> tile(first_column, blockIdx.y, columns);
    const long long zero_arc = pointer[0], arcs = pointer[column_count] - zero_arc;
    long long arc = (static_cast<long long>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32) * kSegment;
    if (arc >= arcs) return;
    const long long last = min(arc + kSegment, arcs);
    long long column = column_of(pointer, column_count, zero_arc + arc, tile.lane);
    while (arc < last) {
        long long stop = pointer[column + 1] - zero_arc;
        if (stop <= arc) {  // an empty column
            ++column;
            continue;
        }
        stop = min(stop, last);
        Pack<VEC> mine = zero<VEC>();
        if (tile.active()) mine = load<VEC>(at(b, column, b_stride, tile.column));
#pragma unroll 4
        for (long long k = arc + tile.group; k < stop; k += GROUPS) {
            Pack<VEC> x = mine;
            if constexpr (WEIGHTED) scale(x, __ldg(weights + k));
            if (tile.active()) atomic_add(at(acc, rows[k], acc_stride, tile.column), x, tile.count);
        }
        arc = stop;
        ++column;
    }
}

}  // namespace mgg

#define MGG_COLUMNS(name, lanes, vec, weighted)                                                         \
    extern "C" __global__ void __launch_bounds__(256) name(                                             \
        const long long *pointer, long long column_count, const mgg::Index *rows, const float *weights, \
        const float *b, int b_stride, float *acc, int acc_stride, int first_column, int columns         \
    ) {                                                                                                 \
        mgg::spmm_columns<lanes, vec, weighted>(                                                        \
            pointer, column_count, rows, weights, b, b_stride, acc, acc_stride, first_column, columns   \
        );                                                                                              \
    }
#define MGG_INSTANCE(lanes, vec)                                 \
    MGG_COLUMNS(spmm_columns_##lanes##_##vec, lanes, vec, false) \
    MGG_COLUMNS(spmm_columns_##lanes##_##vec##_weighted, lanes, vec, true)
MGG_SHAPES(MGG_INSTANCE)
