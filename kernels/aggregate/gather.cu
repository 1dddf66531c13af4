// Copies rows to consecutive rows, from this PE's memory or a peer's (CoLa 3.1: each needed row crosses once).
#include "mgg/warp.cuh"

namespace mgg {

// out[i] = source[rows[i]] for i < count, in the memory format. LANES lanes per row, four rows per group in flight; any
// grid.
template <int LANES, int VEC>
__device__ __forceinline__ void gather_rows(
    const Element *__restrict__ source, int source_stride, const Index *__restrict__ rows, long long count,
    Element *__restrict__ out, int out_stride, int first_column, int columns
) {
    constexpr int GROUPS = 32 / LANES, UNROLL = 4;
    const Tile<LANES, VEC> tile(first_column, blockIdx.y, columns);
    if (!tile.active()) return;
    const long long warps = static_cast<long long>(gridDim.x) * (blockDim.x / 32);
    const long long warp = static_cast<long long>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    for (long long base = warp * GROUPS * UNROLL; base < count; base += warps * GROUPS * UNROLL) {
        const long long first = base + tile.group;
        Index row[UNROLL];
        Raw<VEC> x[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) row[u] = first + u * GROUPS < count ? rows[first + u * GROUPS] : 0;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (first + u * GROUPS < count) x[u] = load_raw<VEC>(at(source, row[u], source_stride, tile.column));
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (first + u * GROUPS < count)
                store_raw(at(out, first + u * GROUPS, out_stride, tile.column), x[u], tile.count);
    }
}

}  // namespace mgg

#define MGG_INSTANCE(lanes, vec)                                                                                       \
    extern "C" __global__ void __launch_bounds__(512) gather_rows_##lanes##_##vec(                                     \
        const mgg::Element *source, int source_stride, const mgg::Index *rows, long long count, mgg::Element *out,     \
        int out_stride, int first_column, int columns                                                                  \
    ) {                                                                                                                \
        mgg::gather_rows<lanes, vec>(                                                                                  \
            source, source_stride, rows, count, out, out_stride, first_column, columns                                 \
        );                                                                                                             \
    }
MGG_SHAPES(MGG_INSTANCE)
