// The sums of technique halo, which run beside its transfer (kernels/aggregate/pull.cu). Local arcs come first. Then
// each part that needs a chunk of the halo follows as soon as that chunk has arrived. There are no float atomics and
// every sum has a fixed order, so the bits are the same every time.
//
// Local rows and halo are one matrix: rows from its middle on are the halo. Work that needs no remote row comes first
// (mgg/kernel/halo.py).
#define MGG_COHERENT
#include "mgg/dependents.cuh"
#include "mgg/flags.cuh"
#include "mgg/pieces.cuh"

namespace mgg {

#ifndef MGG_ROWS_THREADS
#define MGG_ROWS_THREADS 384
#define MGG_ROWS_BLOCKS 2
#endif
constexpr int kThreads = MGG_ROWS_THREADS, kWarps = kThreads / 32;

// What a block works on.
struct Deal {
    const int *blocks;  // first task of each block of tasks, and the end; early ones first
    const int *needs;   // last chunk that each late block needs
    int early, late;    // blocks of tasks of each kind
};

// How much of the halo has arrived.
struct Arrivals {
    const int *arrived;       // per chunk: warps that are done with it, over all products
    int warps;                // number of warps that pull; 0: all of the halo is there
    const unsigned *product;  // number of this product; the pull beside it has set it before this launch began

    // The value of a chunk's counter once the chunk is there; it wraps around.
    __device__ int after() const { return static_cast<int>(get_number(product) * warps); }
};

// Compute the sums of a block of tasks, once what they need has arrived.
template <int LANES, int VEC, bool WEIGHTED>
__device__ __forceinline__ void sum_block(
    const Pieces &work, const Deal &deal, const Arrivals &arrivals, const Element *b, int b_stride, float *c,
    int c_stride, float *partial, int partial_stride, int first_column, int columns, int tiles, bool accumulate
) {
    __shared__ int upcoming;
    int number = blockIdx.x, tile_number, block, need = -1;
    if (number < deal.early * tiles) {
        tile_number = number / deal.early, block = number % deal.early;
    } else {
        number -= deal.early * tiles;
        tile_number = number / deal.late, block = deal.early + number % deal.late,
        need = deal.needs[number % deal.late];
    }
    const Tile<LANES, VEC> tile(first_column, tile_number, columns);
    const int first = deal.blocks[block], last = deal.blocks[block + 1];
    if (threadIdx.x == 0) upcoming = first + kWarps;
    if (need >= 0 && arrivals.warps > 0 && threadIdx.x < 32) wait_counts(arrivals.arrived, need + 1, arrivals.after());
    __syncthreads();
    auto keep = [&](int to, Pack<VEC> sum) {
        if (!tile.writes()) return;
        if (to < 0) {
            store(at(partial, ~to, partial_stride, tile.column), sum, tile.count);
        } else {
            float *goal = at(c, to, c_stride, tile.column);
            if (accumulate) add(sum, load_sum<VEC>(goal, tile.count));
            store(goal, sum, tile.count);
        }
    };
    work_off<LANES, VEC, WEIGHTED>(work, first, last, threadIdx.x / 32, &upcoming, b, b_stride, tile, keep);
    // Whatever follows this launch must follow the pull, too.
    if (blockIdx.x == gridDim.x - 1) wait_for_launch_before();
}

}  // namespace mgg

#define MGG_HALO(name, lanes, vec, weighted)                                                                           \
    extern "C" __global__ void __launch_bounds__(mgg::kThreads, MGG_ROWS_BLOCKS) name(                                 \
        const int2 *tasks, const long long *begin, const int *target, const mgg::Index *indices, const float *weights, \
        const int *blocks, const int *needs, int early, int late, const int *arrived, int pull_warps,                  \
        const unsigned *product, const mgg::Element *b, int b_stride, float *c, int c_stride, float *partial,          \
        int partial_stride, int first_column, int columns, int tiles, int accumulate                                   \
    ) {                                                                                                                \
        mgg::sum_block<lanes, vec, weighted>(                                                                          \
            {tasks, begin, target, indices, weights}, {blocks, needs, early, late}, {arrived, pull_warps, product}, b, \
            b_stride, c, c_stride, partial, partial_stride, first_column, columns, tiles, accumulate != 0              \
        );                                                                                                             \
    }
#define MGG_INSTANCE(lanes, vec)                           \
    MGG_HALO(spmm_halo_##lanes##_##vec, lanes, vec, false) \
    MGG_HALO(spmm_halo_##lanes##_##vec##_weighted, lanes, vec, true)
MGG_SHAPES(MGG_INSTANCE)
