// Rows copied to consecutive rows, from this PE's memory or from peers' (CoLa 3.1: each needed row crosses once).
#include "mgg/warp.cuh"

namespace mgg {

// out[i] = source[rows[i]] for i < count. LANES lanes a row, four rows a group in flight; any grid.
// peers: the copies of all PEs, where row i is owned by the q with owner_first[q] <= i < owner_first[q + 1]; else null.
template <int LANES, int VEC>
__device__ __forceinline__ void gather_rows(
    const float *__restrict__ source, const float *const *__restrict__ peers, const long long *__restrict__ owner_first,
    int owners, int source_stride, const Index *__restrict__ rows, long long count, float *__restrict__ out,
    int out_stride, int first_column, int columns
) {
    constexpr int GROUPS = 32 / LANES, UNROLL = 4;
    const Tile<LANES, VEC> tile(first_column, blockIdx.y, columns);
    if (!tile.active()) return;
    const long long warps = static_cast<long long>(gridDim.x) * (blockDim.x / 32);
    const long long warp = static_cast<long long>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    for (long long base = warp * GROUPS * UNROLL; base < count; base += warps * GROUPS * UNROLL) {
        Index row[UNROLL];
        const float *from[UNROLL];
        Pack<VEC> x[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const long long i = base + u * GROUPS + tile.group;
            row[u] = i < count ? rows[i] : 0;
            from[u] = i < count ? source : nullptr;
            if (peers != nullptr) {
                int owner = 0;
                for (int q = 1; q < owners; ++q) owner += owner_first[q] <= i;
                from[u] = i < count ? peers[owner] : nullptr;
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (from[u] != nullptr) from[u] = at(from[u], row[u], source_stride, tile.column);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (from[u] != nullptr) x[u] = load<VEC>(from[u]);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (from[u] != nullptr)
                store(at(out, base + u * GROUPS + tile.group, out_stride, tile.column), x[u], tile.count);
    }
}

}  // namespace mgg

#define MGG_INSTANCE(lanes, vec)                                                                                       \
    extern "C" __global__ void __launch_bounds__(512) gather_rows_##lanes##_##vec(                                     \
        const float *source, const float *const *peers, const long long *owner_first, int owners, int source_stride,   \
        const mgg::Index *rows, long long count, float *out, int out_stride, int first_column, int columns             \
    ) {                                                                                                                \
        mgg::gather_rows<lanes, vec>(                                                                                  \
            source, peers, owner_first, owners, source_stride, rows, count, out, out_stride, first_column, columns     \
        );                                                                                                             \
    }
MGG_SHAPES(MGG_INSTANCE)
