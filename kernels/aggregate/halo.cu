// Technique halo in one launch: the first blocks pull each needed remote row once, in the order of first use, chunk by
// chunk; the others sum local arcs meanwhile, then what needs a chunk as soon as that has arrived. No float atomics, and
// every sum has a fixed order, so the bits are the same every time.
//
// Local rows and halo are one matrix: rows from `halo_first` on are the halo. Work that needs no remote row comes first
// (mgg/kernel/halo.py). PEs tell each other through flags when their rows may be read and when they have been read: no
// barrier is needed around the launch.
#define MGG_COHERENT
#include "mgg/pieces.cuh"
#include "mgg/flags.cuh"

namespace mgg {

#ifndef MGG_ROWS_THREADS
#define MGG_ROWS_THREADS 384
#define MGG_ROWS_BLOCKS 2
#endif
#ifndef MGG_PULL_LOADS
#define MGG_PULL_LOADS 4
#endif
constexpr int kThreads = MGG_ROWS_THREADS, kWarps = kThreads / 32;

// What a block works on.
struct Deal {
    const int *blocks;  // first task of each block of tasks, and the end; early ones first
    const int *needs;   // last chunk that each late block needs
    int early, late;    // blocks of tasks of each kind
};

// The PEs of the job. Flags hold the number of the launch, which grows: nobody resets them.
struct Peers {
    const Element *const *rows;  // each PE's matrix
    int *const *flags;           // each PE's flags: [P] its rows may be read, by reader; [P] a reader has read them
    int rank, size;
    unsigned epoch;  // number of this launch
};

// What to pull.
struct Pull {
    const unsigned long long *sources;  // owner << 48 | row, in the order of the halo
    int count, chunk, chunks, blocks;
    int *arrived;  // by chunk, then one for all: warps that are done, over all launches

    // What a counter of warps that are done stands at after launch `epoch`; it wraps around.
    __device__ int after(unsigned epoch) const { return static_cast<int>(epoch * blocks * kWarps); }
};

// Copy the halo, LANES lanes a row and `columns` columns of it; then tell the owners.
template <int LANES, int VEC>
__device__ __forceinline__ void pull_rows(
    const Pull &pull, const Peers &peers, Element *b, int stride, long long halo_first, int columns
) {
    constexpr int GROUPS = 32 / LANES, UNROLL = MGG_PULL_LOADS, WORDS = VEC * sizeof(Element) / 4 > 0 ? VEC * sizeof(Element) / 4 : 1;
    const int lane = threadIdx.x & 31, group = lane / LANES;
    if (threadIdx.x < peers.size && threadIdx.x != peers.rank) wait_flag(peers.flags[peers.rank] + threadIdx.x, peers.epoch);
    __syncthreads();
    const int warps = pull.blocks * kWarps, warp = blockIdx.x * kWarps + threadIdx.x / 32;
    const int batches = (pull.chunk + GROUPS * UNROLL - 1) / (GROUPS * UNROLL);
    for (int chunk = 0, turn = warp; chunk < pull.chunks; ++chunk) {
        const int stop = min((chunk + 1) * pull.chunk, pull.count);
        for (int base = chunk * pull.chunk + turn * GROUPS * UNROLL; base < stop; base += warps * GROUPS * UNROLL) {
            const Element *from[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const int i = base + u * GROUPS + group;
                const unsigned long long source = i < stop ? __ldg(pull.sources + i) : 0;
                from[u] = i < stop ? at(peers.rows[source >> 48], source & 0xffffffffffffull, stride, 0) : nullptr;
            }
            for (int column = lane % LANES * VEC; column < columns; column += LANES * VEC) {
                unsigned x[UNROLL][WORDS];
#pragma unroll
                for (int u = 0; u < UNROLL; ++u)
                    if (from[u] != nullptr) load_peer<VEC * sizeof(Element)>(x[u], from[u] + column);
#pragma unroll
                for (int u = 0; u < UNROLL; ++u)
                    if (from[u] != nullptr)
                        store_words<VEC * sizeof(Element)>(
                            at(b, halo_first + base + u * GROUPS + group, stride, column), x[u]
                        );
            }
        }
        __syncwarp();
        if (lane == 0) add_release(pull.arrived + chunk, 1);
        // The next chunk begins with the warps that had nothing of this one, or less.
        turn = (turn + warps - batches % warps) % warps;
    }
    // The last warp of all tells every owner that its rows have been read.
    int last = 0;
    if (lane == 0) last = add_acq_rel(pull.arrived + pull.chunks, 1) + 1u == peers.epoch * warps;
    if (__shfl_sync(kAll, last, 0))
        for (int pe = lane; pe < peers.size; pe += 32)
            if (pe != peers.rank) set_flag(peers.flags[pe] + peers.size + peers.rank, peers.epoch);
    // The launch ends only when the others have read this PE's rows.
    if (blockIdx.x == 0 && threadIdx.x < peers.size && threadIdx.x != peers.rank)
        wait_flag(peers.flags[peers.rank] + peers.size + threadIdx.x, peers.epoch);
}

// The sums of a block of tasks, once what they need has arrived.
template <int LANES, int VEC, bool WEIGHTED>
__device__ __forceinline__ void sum_block(
    const Pieces &work, const Deal &deal, const Pull &pull, unsigned epoch, const Element *b, int b_stride, float *c,
    int c_stride, float *partial, int partial_stride, int columns, int tiles, bool accumulate
) {
    __shared__ int upcoming;
    int number = blockIdx.x - pull.blocks, tile_number, block, need = -1;
    if (number < deal.early * tiles) {
        tile_number = number / deal.early, block = number % deal.early;
    } else {
        number -= deal.early * tiles;
        tile_number = number / deal.late, block = deal.early + number % deal.late, need = deal.needs[number % deal.late];
    }
    const Tile<LANES, VEC> tile(0, tile_number, columns);
    const int first = deal.blocks[block], last = deal.blocks[block + 1];
    if (threadIdx.x == 0) upcoming = first + kWarps;
    if (need >= 0 && pull.blocks > 0 && threadIdx.x < 32) wait_counts(pull.arrived, need + 1, pull.after(epoch));
    __syncthreads();
    auto keep = [&](int to, Pack<VEC> sum) {
        if (!tile.writes()) return;
        if (to < 0) {
            store(at(partial, ~to, partial_stride, tile.column), sum, tile.count);
        } else {
            float *goal = at(c, to, c_stride, tile.column);
            if (accumulate) add(sum, load_sum<VEC>(goal));
            store(goal, sum, tile.count);
        }
    };
    work_off<LANES, VEC, WEIGHTED>(work, first, last, threadIdx.x / 32, &upcoming, b, b_stride, tile, keep);
}

// `launches`: number of launches that are over, and blocks of this one that are done; the last one counts the launch.
template <int LANES, int VEC, bool WEIGHTED>
__device__ __forceinline__ void aggregate_halo(
    const Pieces &work, const Deal &deal, const Pull &pull, Peers peers, unsigned *launches, Element *b, int b_stride,
    long long halo_first, float *c, int c_stride, float *partial, int partial_stride, int columns, int tiles,
    bool accumulate
) {
    peers.epoch = *static_cast<volatile unsigned *>(launches) + 1;
    if (blockIdx.x == 0 && threadIdx.x < peers.size && threadIdx.x != peers.rank)
        set_flag(peers.flags[threadIdx.x] + peers.rank, peers.epoch);  // this PE's rows were written before the launch
    if (blockIdx.x < pull.blocks)
        pull_rows<LANES, VEC>(pull, peers, b, b_stride, halo_first, columns);
    else
        sum_block<LANES, VEC, WEIGHTED>(
            work, deal, pull, peers.epoch, b, b_stride, c, c_stride, partial, partial_stride, columns, tiles, accumulate
        );
    if (pull.blocks == 0) return;  // nobody counts
    __syncthreads();
    if (threadIdx.x == 0 && atomicInc(launches + 1, gridDim.x - 1) == gridDim.x - 1) *launches = peers.epoch;
}

}  // namespace mgg

#define MGG_HALO(name, lanes, vec, weighted)                                                                            \
    extern "C" __global__ void __launch_bounds__(mgg::kThreads, MGG_ROWS_BLOCKS) name(                                  \
        const int2 *tasks, const long long *begin, const int *target, const mgg::Index *indices, const float *weights,  \
        const int *blocks, const int *needs, int early, int late, const unsigned long long *sources, int pull_count,    \
        int chunk, int chunks, int pull_blocks, int *arrived, const mgg::Element *const *peer_rows,                     \
        int *const *peer_flags, int rank, int size, unsigned *launches, mgg::Element *b, int b_stride,                  \
        long long halo_first, float *c, int c_stride, float *partial, int partial_stride, int columns, int tiles,       \
        int accumulate                                                                                                  \
    ) {                                                                                                                 \
        mgg::aggregate_halo<lanes, vec, weighted>(                                                                      \
            {tasks, begin, target, indices, weights}, {blocks, needs, early, late},                                     \
            {sources, pull_count, chunk, chunks, pull_blocks, arrived}, {peer_rows, peer_flags, rank, size, 0},         \
            launches, b, b_stride, halo_first, c, c_stride, partial, partial_stride, columns, tiles, accumulate != 0    \
        );                                                                                                              \
    }
#define MGG_INSTANCE(lanes, vec)                                  \
    MGG_HALO(spmm_halo_##lanes##_##vec, lanes, vec, false)        \
    MGG_HALO(spmm_halo_##lanes##_##vec##_weighted, lanes, vec, true)
MGG_SHAPES(MGG_INSTANCE)
