// Row-wise SpMM for short rows of B, eight loads or fewer (technique local), without float atomics: the same bits every
// time. A warp sums several rows of similar length side by side (mgg/bundles.cuh). spmm_rows_combine of rows.cu adds up
// the parts of long rows.
#include "mgg/bundles.cuh"

namespace mgg {

// Loads in flight per lane and threads per block, by the bytes of a row. A multiprocessor has one block, whose warps
// find in L1 what its other warps have read. Threads get as many registers as that block leaves, without spills. A lane
// that has a row to itself, or half of one and half its weights, also holds many arcs, so it has fewer loads in flight.
// 64-bit ids take twice the registers.
template <int LANES, int VEC>
constexpr bool kWide = LANES * VEC * sizeof(Element) > 64;
#ifdef MGG_NARROW_THREADS
template <int LANES, int VEC>
constexpr int kThreadsOf = MGG_NARROW_THREADS;
template <int LANES, int VEC, bool WEIGHTED>
constexpr int kLoads = MGG_NARROW_LOADS;
#else
#define MGG_NARROW_BLOCKS 1
template <int LANES, int VEC>
constexpr int kThreadsOf = !kWide<LANES, VEC>   ? 512
                           : sizeof(Index) == 4 ? 768
                                                : 640;
template <int LANES, int VEC, bool WEIGHTED>
constexpr int kLoads = kWide<LANES, VEC> || LANES < (WEIGHTED ? 4 : 2) ? 8 : 16;
#endif

template <int LANES, int VEC, bool WEIGHTED>
__device__ __forceinline__ void spmm_narrow(
    Bundles work, const int *__restrict__ blocks, const long long *__restrict__ begin, const Element *__restrict__ b,
    int b_stride, float *__restrict__ c, int c_stride, float *__restrict__ partial, int partial_stride, int columns,
    int tiles, int accumulate
) {
    __shared__ int upcoming;
    // Tiles of the same arcs run side by side, so that the second finds in L2 what the first has read.
    const int block = blockIdx.x / tiles, first = blocks[block], last = blocks[block + 1];
    const Tile<LANES, VEC> tile(0, blockIdx.x % tiles, columns);
    work.indices += begin[block];
    if (WEIGHTED) work.weights += begin[block];
    if (threadIdx.x == 0) upcoming = first + blockDim.x / 32;
    __syncthreads();
    auto keep = [&](int to, Pack<VEC> &sum) {
        if (!tile.active()) return;
        float *out = to < 0 ? at(partial, ~to, partial_stride, tile.column) : at(c, to, c_stride, tile.column);
        if (accumulate && to >= 0) add(sum, load_sum<VEC>(out, min(tile.count, VEC)));
#ifdef MGG_STREAM_C
        if constexpr (VEC % 4 == 0) {
            if (tile.count >= VEC && aligned<VEC>(out)) {
#pragma unroll
                for (int i = 0; i < VEC; i += 4)
                    __stcs(
                        reinterpret_cast<float4 *>(out + i),
                        make_float4(sum.v[i], sum.v[i + 1], sum.v[i + 2], sum.v[i + 3])
                    );
                return;
            }
        }
#endif
        store(out, sum, tile.count);
    };
    work_off_bundles<LANES, VEC, kLoads<LANES, VEC, WEIGHTED>, WEIGHTED>(
        work, first, last, threadIdx.x / 32, &upcoming, b, b_stride, tile, keep
    );
}

}  // namespace mgg

#define MGG_NARROW(name, lanes, vec, weighted)                                                                        \
    extern "C" __global__ void __launch_bounds__(mgg::kThreadsOf<lanes, vec>, MGG_NARROW_BLOCKS) name(                \
        const int2 *tasks, const int *blocks, const long long *begin, const mgg::Piece *pieces,                       \
        const mgg::Index *indices, const float *weights, const mgg::Element *b, int b_stride, float *c, int c_stride, \
        float *partial, int partial_stride, int columns, int tiles, int accumulate                                    \
    ) {                                                                                                               \
        mgg::spmm_narrow<lanes, vec, weighted>(                                                                       \
            {tasks, pieces, indices, weights}, blocks, begin, b, b_stride, c, c_stride, partial, partial_stride,      \
            columns, tiles, accumulate                                                                                \
        );                                                                                                            \
    }
#define MGG_INSTANCE(lanes, vec)                               \
    MGG_NARROW(spmm_narrow_##lanes##_##vec, lanes, vec, false) \
    MGG_NARROW(spmm_narrow_##lanes##_##vec##_weighted, lanes, vec, true)
MGG_NARROW_SHAPES(MGG_INSTANCE)
