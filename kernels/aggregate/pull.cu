// The transfer of technique halo, which runs beside its sums (kernels/aggregate/halo.cu). Each needed remote row is
// pulled once, in the order of first use, chunk by chunk. A block has 64 threads of at most 32 registers each, so that
// it fits a multiprocessor beside the blocks that sum and takes none of their places. Rows on their way lie in shared
// memory, so that so few threads fill the wire.
//
// PEs tell each other through flags when their rows may be read and when they have been read, so no barrier is needed.
//
// Sums that wait for rows hold their places meanwhile, and a multiprocessor may not accept a block beside them, because
// it would have to change how it divides its L1. So no sum may start before every block that pulls has started. To
// ensure that, the sums are a launch that depends on the blocks of this one; before sm_90, the sums that wait come
// after it.
#include "mgg/async.cuh"
#include "mgg/dependents.cuh"
#include "mgg/warp.cuh"

namespace mgg {

#ifndef MGG_PULL_LOADS
#define MGG_PULL_LOADS 8
#endif
constexpr int kThreads = 64, kLoads = MGG_PULL_LOADS;

// The PEs of the job. Flags hold the number of the product. It only grows, so nobody resets them.
struct Peers {
    const Element *const *rows;  // each PE's matrix
    int *const *flags;           // of each PE: [P] by owner, its rows may be read; [P] by reader, it has read them
    int rank, size;              // size 0: rows are there before the launch and stay until all launches are done
};

// What to pull.
struct Pull {
    const unsigned long long *sources;  // owner << 48 | row, in the order of the halo
    int count, chunk;                   // rows; rows per chunk, a multiple of 32
    int *arrived;                       // over all products: per chunk, warps done with it; warps done; blocks started

    __device__ int chunks() const { return (count + chunk - 1) / chunk; }
};

// A warp's share of the halo: runs of 32 rows, dealt to the warps in turn. A step is 32 / LANES rows of a run, with
// LANES lanes per row, and LANES * VEC of their columns. A lane has its part of kLoads steps under way at once.
template <int LANES, int VEC>
struct Share {
    static constexpr int GROUPS = 32 / LANES, BYTES = VEC * sizeof(Element), WORDS = BYTES < 4 ? 1 : BYTES / 4;
    const Pull &pull;
    const Peers &peers;
    Element *b;
    int stride, columns, warps;
    long long halo_first;
    unsigned (*slots)[kThreads][WORDS];

    // The place of a step: the run's first row, then rows of the run and columns, both counted in steps.
    struct Place {
        int base, rows, part;
    };

    __device__ __forceinline__ void advance(Place &place, int parts) const {
        if (++place.part < parts) return;
        place.part = 0;
        if (++place.rows < LANES) return;
        place.rows = 0, place.base += 32 * warps;
    }

    __device__ __forceinline__ unsigned long long source(int row) const {
        return row < pull.count ? __ldg(pull.sources + row) : static_cast<unsigned long long>(peers.rank) << 48;
    }

    // Pull the whole share. The warp reports that it is done with a chunk when it comes to a later one.
    __device__ __forceinline__ void run(int warp, int lane) const {
        const int group = lane / LANES, first = lane % LANES * VEC, chunks = pull.chunks();
        const int parts = (columns + LANES * VEC - 1) / (LANES * VEC), runs = (pull.count + 31) / 32;
        const int steps = warp < runs ? ((runs - warp + warps - 1) / warps) * LANES * parts : 0;
        Place asked = {32 * warp, 0, 0}, kept = asked;
        unsigned long long upcoming = source(asked.base + lane), from = 0;
        int told = tell(0, kept.base, chunks, lane), slot = 0;
        for (int n = 0; n < steps + kLoads; ++n) {
            if (n >= kLoads) {
                wait_groups<kLoads - 1>();
                const int base = kept.base, row = base + kept.rows * GROUPS + group;
                const int column = first + kept.part * LANES * VEC;
                if (row < pull.count && column < columns)
                    store_words<BYTES>(at(b, halo_first + row, stride, column), slots[slot][threadIdx.x]);
                advance(kept, parts);
                if (kept.base != base) told = tell(told, kept.base, chunks, lane);
            }
            if (n < steps) {
                if (asked.rows == 0 && asked.part == 0) {
                    // Each lane loads one row's place a run ahead, because a lane that waits for it requests nothing
                    // else.
                    from = reinterpret_cast<unsigned long long>(
                        at(peers.rows[upcoming >> 48], upcoming & 0xffffffffffffull, stride, 0)
                    );
                    upcoming = source(asked.base + 32 * warps + lane);
                }
                const int row = asked.rows * GROUPS + group, column = first + asked.part * LANES * VEC;
                const auto place = reinterpret_cast<const Element *>(__shfl_sync(kAll, from, row));
                if (asked.base + row < pull.count && column < columns)
                    copy_once<BYTES>(slots[slot][threadIdx.x], place + column);
                advance(asked, parts);
            }
            commit_copies();
            slot = slot + 1 == kLoads ? 0 : slot + 1;
        }
    }

    // This warp goes on at row `next`: report that it is done with all chunks before that row's. Returns the chunks
    // reported so far.
    __device__ __forceinline__ int tell(int told, int next, int chunks, int lane) const {
        const int until = next < pull.count ? next / pull.chunk : chunks;
        if (told < until) __syncwarp();
        for (; told < until; ++told)
            if (lane == 0) add_release(pull.arrived + told, 1);
        return told;
    }
};

// Returns the number of this product. The first block to start publishes it to the sums and tells the other PEs that
// they may read. `products`: the number of products whose pull is over, then the number that the sums go by.
__device__ __forceinline__ unsigned begin_product(const Pull &pull, const Peers &peers, unsigned *products) {
    __shared__ bool first;
    const unsigned epoch = *static_cast<volatile unsigned *>(products) + 1;
    if (threadIdx.x == 0) {
        first = static_cast<unsigned>(add_acq_rel(pull.arrived + pull.chunks() + 1, 1)) == (epoch - 1) * gridDim.x;
        // The sums start without a wait that would show them what this launch has written, so the number must be there
        // before.
        if (first) set_number(products + 1, epoch);
    }
    __syncthreads();
    let_dependents_start();
    for (int pe = threadIdx.x; pe < peers.size; pe += kThreads) {
        if (pe == peers.rank) continue;
        if (first) set_flag(peers.flags[pe] + peers.rank, epoch);  // this PE's rows were written before the launch
        wait_flag(peers.flags[peers.rank] + pe, epoch);
    }
    __syncthreads();
    return epoch;
}

// Copy the halo into the rows of `b` from `halo_first` on, then tell the owners.
template <int LANES, int VEC>
__device__ __forceinline__ void pull_halo(
    const Pull &pull, const Peers &peers, unsigned *products, Element *b, int stride, long long halo_first, int columns
) {
    alignas(16) __shared__ unsigned slots[kLoads][kThreads][Share<LANES, VEC>::WORDS];
    const int warps = gridDim.x * (kThreads / 32), lane = threadIdx.x & 31;
    const unsigned epoch = begin_product(pull, peers, products);
    Share<LANES, VEC>{pull, peers, b, stride, columns, warps, halo_first, slots}.run(
        blockIdx.x * (kThreads / 32) + threadIdx.x / 32, lane
    );
    // The last warp of all tells every owner that its rows have been read. It ends when the others have read this PE's.
    int last = 0;
    if (lane == 0) last = add_acq_rel(pull.arrived + pull.chunks(), 1) + 1u == epoch * warps;
    if (!__shfl_sync(kAll, last, 0)) return;
    __syncwarp();  // what lane 0 has seen, all lanes have
    if (lane == 0) *products = epoch;
    for (int pe = lane; pe < peers.size; pe += 32)
        if (pe != peers.rank) set_flag(peers.flags[pe] + peers.size + peers.rank, epoch);
    for (int pe = lane; pe < peers.size; pe += 32)
        if (pe != peers.rank) wait_flag(peers.flags[peers.rank] + peers.size + pe, epoch);
}

}  // namespace mgg

#define MGG_PULL(lanes, vec)                                                                                          \
    extern "C" __global__ void __launch_bounds__(mgg::kThreads, 2048 / mgg::kThreads) halo_pull_##lanes##_##vec(      \
        const unsigned long long *sources, int count, int chunk, int *arrived, const mgg::Element *const *peer_rows,  \
        int *const *peer_flags, int rank, int size, unsigned *products, mgg::Element *b, int b_stride,                \
        long long halo_first, int columns                                                                             \
    ) {                                                                                                               \
        mgg::pull_halo<lanes, vec>(                                                                                   \
            {sources, count, chunk, arrived}, {peer_rows, peer_flags, rank, size}, products, b, b_stride, halo_first, \
            columns                                                                                                   \
        );                                                                                                            \
    }
MGG_SHAPES(MGG_PULL)
