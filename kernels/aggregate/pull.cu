// The transfer of technique halo, beside its sums (kernels/aggregate/halo.cu): each needed remote row is pulled once, in
// the order of first use, chunk by chunk. A block of 64 threads and at most 32 registers each fits a multiprocessor
// beside the blocks that sum and takes none of their places; what is under way lies in shared memory, so that so few
// threads fill the wire.
//
// PEs tell each other through flags when their rows may be read and when they have been read: no barrier is needed.
#include "mgg/async.cuh"
#include "mgg/warp.cuh"

namespace mgg {

#ifndef MGG_PULL_LOADS
#define MGG_PULL_LOADS 12
#endif
constexpr int kThreads = 64, kLoads = MGG_PULL_LOADS;

// The PEs of the job. Flags hold the number of the product, which grows: nobody resets them.
struct Peers {
    const Element *const *rows;  // each PE's matrix
    int *const *flags;           // each PE's flags: [P] its rows may be read, by reader; [P] a reader has read them
    int rank, size;              // size 0: rows are there before the launch and stay until all launches are done
};

// What to pull.
struct Pull {
    const unsigned long long *sources;  // owner << 48 | row, in the order of the halo
    int count, chunk;                   // rows; rows of a chunk, a multiple of 32
    int *arrived;                       // by chunk, then one for all: warps that are done, over all products

    __device__ int chunks() const { return (count + chunk - 1) / chunk; }
};

// The product begins: it has a number, and this PE's rows, written before, may be read.
__device__ __forceinline__ void begin(unsigned *launches, const Peers &peers) {
    const unsigned epoch = *launches + 1;
    __syncwarp();
    if (threadIdx.x == 0) *launches = epoch;
    for (int pe = threadIdx.x; pe < peers.size; pe += 32)
        if (pe != peers.rank) set_flag(peers.flags[pe] + peers.rank, epoch);
}

// A warp's share of the halo, LANES lanes a row: batches of 32 / LANES rows, dealt to the warps in turn, each in steps of
// LANES * VEC columns. Each lane keeps what it has under way, a step a slot, to itself.
template <int LANES, int VEC>
struct Share {
    static constexpr int GROUPS = 32 / LANES, BYTES = VEC * sizeof(Element), WORDS = BYTES < 4 ? 1 : BYTES / 4;
    const Pull &pull;
    const Peers &peers;
    Element *b;
    int stride, columns, warps;
    long long halo_first;
    unsigned (*slots)[kThreads][WORDS];

    __device__ __forceinline__ unsigned long long source(int row) const {
        return row < pull.count ? __ldg(pull.sources + row) : 0;
    }

    // Pull all of it. A chunk is this warp's to tell of when it comes to a later one.
    __device__ __forceinline__ void run(int warp, int lane) const {
        const int group = lane / LANES, first = lane % LANES * VEC, hop = warps * GROUPS;
        const int steps = (columns + LANES * VEC - 1) / (LANES * VEC), chunks = pull.chunks();
        int asked = warp * GROUPS, kept = asked, told = 0, asked_step = 0, kept_step = 0, slot = 0;
        unsigned long long upcoming = source(asked + group);
        const Element *from = nullptr;
        const int batches = asked < pull.count ? (pull.count - asked + hop - 1) / hop : 0;
        told = tell(told, kept, chunks, lane);
        for (int n = 0; n < batches * steps + kLoads; ++n) {
            if (n >= kLoads) {
                wait_groups<kLoads - 1>();
                const int row = kept + group, column = first + kept_step * LANES * VEC;
                if (row < pull.count && column < columns)
                    store_words<BYTES>(at(b, halo_first + row, stride, column), slots[slot][threadIdx.x]);
                if (++kept_step == steps) {
                    kept_step = 0, kept += hop;
                    told = tell(told, kept, chunks, lane);
                }
            }
            if (n < batches * steps) {
                if (asked_step == 0) {
                    // Asked for a batch ahead: a warp that waits for it asks for nothing else.
                    const bool mine = asked + group < pull.count;
                    from = mine ? at(peers.rows[upcoming >> 48], upcoming & 0xffffffffffffull, stride, 0) : nullptr;
                    upcoming = source(asked + hop + group);
                }
                const int column = first + asked_step * LANES * VEC;
                if (from != nullptr && column < columns) copy_once<BYTES>(slots[slot][threadIdx.x], from + column);
                if (++asked_step == steps) asked_step = 0, asked += hop;
            }
            commit_copies();
            slot = slot + 1 == kLoads ? 0 : slot + 1;
        }
    }

    // This warp goes on at row `next`: it is done with the chunks before that row's.
    __device__ __forceinline__ int tell(int told, int next, int chunks, int lane) const {
        const int until = next < pull.count ? next / pull.chunk : chunks;
        if (told < until) __syncwarp();
        for (; told < until; ++told)
            if (lane == 0) add_release(pull.arrived + told, 1);
        return told;
    }
};

// Copy the halo into the rows of `b` from `halo_first` on; then tell the owners.
template <int LANES, int VEC>
__device__ __forceinline__ void pull_halo(
    const Pull &pull, const Peers &peers, unsigned epoch, Element *b, int stride, long long halo_first, int columns
) {
    alignas(16) __shared__ unsigned slots[kLoads][kThreads][Share<LANES, VEC>::WORDS];
    for (int pe = threadIdx.x; pe < peers.size; pe += kThreads)
        if (pe != peers.rank) wait_flag(peers.flags[peers.rank] + pe, epoch);
    __syncthreads();
    const int warps = gridDim.x * (kThreads / 32), lane = threadIdx.x & 31;
    Share<LANES, VEC>{pull, peers, b, stride, columns, warps, halo_first, slots}.run(
        blockIdx.x * (kThreads / 32) + threadIdx.x / 32, lane
    );
    // The last warp of all tells every owner that its rows have been read.
    int last = 0;
    if (lane == 0) last = add_acq_rel(pull.arrived + pull.chunks(), 1) + 1u == epoch * warps;
    if (__shfl_sync(kAll, last, 0))
        for (int pe = lane; pe < peers.size; pe += 32)
            if (pe != peers.rank) set_flag(peers.flags[pe] + peers.size + peers.rank, epoch);
    // The launch ends only when the others have read this PE's rows.
    if (blockIdx.x == 0)
        for (int pe = threadIdx.x; pe < peers.size; pe += kThreads)
            if (pe != peers.rank) wait_flag(peers.flags[peers.rank] + peers.size + pe, epoch);
}

}  // namespace mgg

extern "C" __global__ void halo_begin(unsigned *launches, int *const *flags, int rank, int size) {
    mgg::begin(launches, {nullptr, flags, rank, size});
}

#define MGG_PULL(lanes, vec)                                                                                           \
    extern "C" __global__ void __launch_bounds__(mgg::kThreads, 2048 / mgg::kThreads) halo_pull_##lanes##_##vec(       \
        const unsigned long long *sources, int count, int chunk, int *arrived, const mgg::Element *const *peer_rows,   \
        int *const *peer_flags, int rank, int size, const unsigned *launches, mgg::Element *b, int b_stride,           \
        long long halo_first, int columns                                                                              \
    ) {                                                                                                                \
        mgg::pull_halo<lanes, vec>(                                                                                    \
            {sources, count, chunk, arrived}, {peer_rows, peer_flags, rank, size}, *launches, b, b_stride, halo_first, \
            columns                                                                                                    \
        );                                                                                                             \
    }
MGG_SHAPES(MGG_PULL)
