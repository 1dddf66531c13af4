// Copies rows to consecutive rows, from this PE's memory or a peer's (CoLa 3.1: each needed row crosses once), and adds
// consecutive rows to rows.
#include "mgg/warp.cuh"

namespace mgg {

// ADD: out[rows[i]] += source[i], with distinct rows; else out[i] = source[rows[i]], in the memory format; for i <
// count. LANES lanes per row, four rows per group in flight; any grid.
template <int LANES, int VEC, bool ADD>
__device__ __forceinline__ void move_rows(
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
        [[maybe_unused]] Pack<VEC> sum[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) row[u] = first + u * GROUPS < count ? rows[first + u * GROUPS] : 0;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const long long i = first + u * GROUPS;
            if (i >= count) continue;
            x[u] = load_raw<VEC>(at(source, ADD ? i : static_cast<long long>(row[u]), source_stride, tile.column));
            if constexpr (ADD) sum[u] = load_sum<VEC>(at(out, row[u], out_stride, tile.column), tile.count);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const long long i = first + u * GROUPS;
            if (i >= count) continue;
            if constexpr (ADD) {
                add(sum[u], unpack<VEC>(x[u]));
                store(at(out, row[u], out_stride, tile.column), sum[u], tile.count);
            } else {
                store_raw(at(out, i, out_stride, tile.column), x[u], tile.count);
            }
        }
    }
}

}  // namespace mgg

#define MGG_MOVING(name, lanes, vec, add)                                                                            \
    extern "C" __global__ void __launch_bounds__(512) name##_##lanes##_##vec(                                        \
        const mgg::Element *source, int source_stride, const mgg::Index *rows, long long count, mgg::Element *out,   \
        int out_stride, int first_column, int columns                                                                \
    ) {                                                                                                              \
        mgg::move_rows<lanes, vec, add>(source, source_stride, rows, count, out, out_stride, first_column, columns); \
    }
#define MGG_GATHER(lanes, vec) MGG_MOVING(gather_rows, lanes, vec, false)
MGG_SHAPES(MGG_GATHER)
#ifndef MGG_BF16
#define MGG_ADD(lanes, vec) MGG_MOVING(add_rows, lanes, vec, true)
MGG_SHAPES(MGG_ADD)
#endif
