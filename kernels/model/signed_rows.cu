// The weighted sums of attention with one head, as training wants them (kernels/model/attention.cu has the formula): over
// all arcs of a row with weights that count without their sign, and over those alone whose weight has a minus. Pieces are
// worked off as in kernels/aggregate/rows.cu; the same bits every time.
#include "mgg/pieces.cuh"

namespace mgg {

// As in kernels/aggregate/rows.cu, two blocks a multiprocessor: 80 registers a lane, where the widest spill 44 bytes.
constexpr int kThreads = 384;

template <int VEC>
struct Sums {
    Pack<VEC> all, low;
};

template <int LANES, int VEC>
__device__ __forceinline__ void add_window(
    Sums<VEC> &sums, const Window<LANES, true> &window, int n, const float *b, int stride, const Tile<LANES, VEC> &tile
) {
    constexpr int GROUPS = 32 / LANES, UNROLL = kUnroll<LANES, true>;
#pragma unroll
    for (int base = 0; base < Window<LANES, true>::SIZE; base += GROUPS * UNROLL) {
        if (base >= n) break;  // the same for all lanes
        Raw<VEC> raw[UNROLL];
        load_rows(raw, window, base, n, b, stride, tile);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const Pack<VEC> x = unpack<VEC>(raw[u]);
            const float weight = weight_of(window, base + u * GROUPS, tile);
            // A weight that is no number has to be seen in the sum of all.
            const float all = fabsf(weight), low = weight < 0.0f ? all : 0.0f;
#pragma unroll
            for (int i = 0; i < VEC; ++i) sums.all.v[i] += all * x.v[i], sums.low.v[i] += low * x.v[i];
        }
    }
}

template <int LANES, int VEC>
__device__ __forceinline__ void reduce_groups(Sums<VEC> &sums) {
    reduce_groups<LANES>(sums.all);
    reduce_groups<LANES>(sums.low);
}

// Rows of `all` and `low` need not be aligned: a row is stored once, and its arcs are loaded by the dozen.
template <int LANES, int VEC>
__device__ __forceinline__ void signed_rows(
    const Pieces &work, const int *__restrict__ blocks, const float *__restrict__ b, int b_stride, float *__restrict__ all,
    float *__restrict__ low, int stride, float *__restrict__ all_partial, float *__restrict__ low_partial,
    int partial_stride, int first_column, int columns
) {
    __shared__ int upcoming;
    const Tile<LANES, VEC> tile(first_column, blockIdx.y, columns);
    const int first = blocks[blockIdx.x], last = blocks[blockIdx.x + 1];
    if (threadIdx.x == 0) upcoming = first + kThreads / 32;
    __syncthreads();
    auto keep = [&](int to, const Sums<VEC> &sums) {
        if (!tile.writes()) return;
        auto kept = [&](float *rows, float *partial, const Pack<VEC> &sum) {
            float *out = to < 0 ? at(partial, ~to, partial_stride, tile.column) : at(rows, to, stride, tile.column);
#pragma unroll
            for (int i = 0; i < VEC; ++i)
                if (i < tile.count) out[i] = sum.v[i];
        };
        kept(all, all_partial, sums.all);
        kept(low, low_partial, sums.low);
    };
    work_off<LANES, VEC, true, Sums<VEC>>(work, first, last, threadIdx.x / 32, &upcoming, b, b_stride, tile, keep);
}

}  // namespace mgg

#define MGG_INSTANCE(lanes, vec)                                                                                        \
    extern "C" __global__ void __launch_bounds__(mgg::kThreads, 2) signed_rows_##lanes##_##vec(                         \
        const int2 *tasks, const int *blocks, const long long *begin, const int *target, const mgg::Index *indices,     \
        const float *weights, const float *b, int b_stride, float *all, float *low, int stride, float *all_partial,     \
        float *low_partial, int partial_stride, int first_column, int columns                                           \
    ) {                                                                                                                 \
        mgg::signed_rows<lanes, vec>(                                                                                   \
            {tasks, begin, target, indices, weights}, blocks, b, b_stride, all, low, stride, all_partial, low_partial,  \
            partial_stride, first_column, columns                                                                       \
        );                                                                                                              \
    }
MGG_SHAPES(MGG_INSTANCE)
