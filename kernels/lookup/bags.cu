// Sums rows of embedding tables by bags (MGG, OSDI'23, table 4). A warp takes a bag and a tile of its columns, with
// LANES lanes per row, so 32 / LANES rows at once. What each group of lanes adds up, and the order of the groups,
// depend on the bag alone: no atomics, the same bits every time.
//
// `lookup_pool` has every row in one of two matrices of this GPU. `lookup_direct` reads rows where they are.
// `lookup_mgg` copies rows of other PEs to shared memory while it sums this PE's. `lookup_group` sums nothing: it
// groups ids by owner for an all-to-all, a thread an id.
#include "mgg/async.cuh"
#include "mgg/warp.cuh"

namespace mgg {

constexpr int kWarps = 4;     // per block
constexpr int kStage = 2048;  // floats of fetched rows that a warp keeps in shared memory
constexpr int kInFlight = 8;  // loads per lane

// Take the next 32 / LANES rows out of `left`, which has a bit for each row of a window, and clear their bits. Returns
// this group's row among them; -1: none.
template <int LANES>
__device__ __forceinline__ int take(unsigned &left, int group) {
    unsigned mine = left;
#pragma unroll
    for (int i = 0; i < 32 / LANES; ++i) {
        if (i < group) mine &= mine - 1;
        left &= left - 1;
    }
    return __ffs(mine) - 1;
}

__device__ __forceinline__ const float *from_lane(const float *row, int lane) {
    const auto address = __shfl_sync(kAll, reinterpret_cast<unsigned long long>(row), lane & 31);
    return reinterpret_cast<const float *>(address);
}

// sum += the rows of a window whose bit in `left` is set; lane i holds the address of row i. Eight loads are in flight,
// and their sum is a tree. With fewer than 64 registers the compiler waits between the loads. Hence __maxnreg__ below,
// which allows more registers than the compiler takes by itself.
template <int LANES, int VEC>
__device__ __forceinline__ void add_rows(
    Pack<VEC> &sum, const float *row, unsigned left, const Tile<LANES, VEC> &tile
) {
    while (left) {
        Pack<VEC> x[kInFlight];
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) {
            const int which = take<LANES>(left, tile.group);
            const float *found = from_lane(row, which);
            x[u] = unpack<VEC>(load_if<VEC>(which >= 0 && tile.active(), found + tile.column));
        }
#pragma unroll
        for (int step = 1; step < kInFlight; step *= 2)
#pragma unroll
            for (int u = 0; u < kInFlight; u += 2 * step) add(x[u], x[u + step]);
        add(sum, x[0]);
    }
}

// Every copy of the tables: PE p has rows p, p + pes, p + 2 pes, ... of all tables.
struct Copies {
    const float *const *rows;
    int pes, rank, stride;
};

// The bits of the window's first n rows, 1 <= n.
__device__ __forceinline__ unsigned all_of(int n) { return n >= 32 ? kAll : (1u << n) - 1; }

// Sum this warp's bag. `add_window` gets the first row of each window of up to 32, and how many rows it has.
template <int LANES, int VEC, typename Add>
__device__ __forceinline__ void sum_bag(
    long long bags, int size, float *out, int out_stride, const Tile<LANES, VEC> &tile, Add add_window
) {
    const long long bag = static_cast<long long>(blockIdx.x) * kWarps + threadIdx.x / 32;
    if (bag >= bags) return;
    Pack<VEC> sum = zero<VEC>();
    for (int base = 0; base < size; base += 32) add_window(sum, bag * size + base, min(32, size - base));
    reduce_groups<LANES>(sum);
    if (tile.writes()) store(at(out, bag, out_stride, tile.column), sum, tile.count);
}

template <int LANES, int VEC>
__device__ __forceinline__ void pool(
    const Index *__restrict__ places, long long bags, int size, const float *__restrict__ own, int own_stride,
    const float *__restrict__ other, int other_stride, float *__restrict__ out, int out_stride, int first_column,
    int columns
) {
    const Tile<LANES, VEC> tile(first_column, blockIdx.y, columns);
    sum_bag(bags, size, out, out_stride, tile, [&](Pack<VEC> &sum, long long first, int n) {
        const float *row = own;
        if (tile.lane < n) {
            const Index place = load_once(places + first + tile.lane);
            row = place >= 0 ? at(own, place, own_stride, 0) : at(other, ~place, other_stride, 0);
        }
        add_rows(sum, row, all_of(n), tile);
    });
}

template <int LANES, int VEC>
__device__ __forceinline__ void direct(
    const Index *__restrict__ ids, long long bags, int size, const Copies &copies, float *__restrict__ out,
    int out_stride, int first_column, int columns
) {
    const Tile<LANES, VEC> tile(first_column, blockIdx.y, columns);
    sum_bag(bags, size, out, out_stride, tile, [&](Pack<VEC> &sum, long long first, int n) {
        const Index id = tile.lane < n ? load_once(ids + first + tile.lane) : 0;
        const float *row = at(copies.rows[id % copies.pes], id / copies.pes, copies.stride, 0);
        add_rows(sum, row, all_of(n), tile);
    });
}

template <int LANES, int VEC>
__device__ __forceinline__ void pipelined(
    const Index *__restrict__ ids, long long bags, int size, const Copies &copies, float *__restrict__ out,
    int out_stride, int first_column, int columns
) {
    constexpr int WIDTH = LANES * VEC, GROUPS = 32 / LANES, ROWS = kStage / WIDTH / GROUPS;
    static_assert(ROWS >= 1);
    __shared__ __align__(16) float stages[kWarps * kStage];
    const Tile<LANES, VEC> tile(first_column, blockIdx.y, columns);
    // Each lane copies what it adds up itself, so it waits for no other lane.
    float *stage = stages + threadIdx.x / 32 * kStage + tile.group * WIDTH + tile.lane % LANES * VEC;
    sum_bag(bags, size, out, out_stride, tile, [&](Pack<VEC> &sum, long long first, int n) {
        const bool mine = tile.lane < n;
        const Index id = mine ? load_once(ids + first + tile.lane) : 0;
        const int owner = static_cast<int>(id % copies.pes);
        const float *row = at(copies.rows[owner], id / copies.pes, copies.stride, 0);
        unsigned near = __ballot_sync(kAll, mine && owner == copies.rank);
        unsigned far = __ballot_sync(kAll, mine && owner != copies.rank);
        do {
            int fetched = 0;
            for (int step = 0; step < ROWS && far; ++step) {
                const int which = take<LANES>(far, tile.group);
                const float *found = from_lane(row, which);
                if (which >= 0 && tile.active()) {
                    copy_async<VEC>(stage + fetched * GROUPS * WIDTH, found + tile.column);
                    ++fetched;
                }
            }
            add_rows(sum, row, near, tile);
            near = 0;
            wait_copies();
            for (int step = 0; step < fetched; ++step)
                add(sum, *reinterpret_cast<const Pack<VEC> *>(stage + step * GROUPS * WIDTH));
            __syncwarp();  // before the next rows overwrite these
        } while (far);
    });
}

}  // namespace mgg

// numbers[pe * n ...] gets the rows of other PEs that the n ids name, in any order, and counts[pe], zero before, their
// number. Row r of all tables is row r / pes of PE r % pes. `places` are those of `lookup_pool`: own rows, or ~ the
// place in `numbers`, which is also that of the row when it arrives.
extern "C" __global__ void lookup_group(
    const mgg::Index *ids, int n, int pes, int rank, mgg::Index *numbers, int *counts, mgg::Index *places
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    const mgg::Index id = i < n ? mgg::load_once(ids + i) : 0, row = id / pes;
    const int owner = i < n ? static_cast<int>(id % pes) : rank;
    mgg::Index place = row;
    for (int pe = 0; pe < pes; ++pe) {
        const unsigned asking = __ballot_sync(mgg::kAll, owner == pe);
        if (pe == rank || !asking) continue;
        int first = lane ? 0 : atomicAdd(counts + pe, __popc(asking));
        first = pe * n + __shfl_sync(mgg::kAll, first, 0) + __popc(asking & ((1u << lane) - 1));
        if (owner != pe) continue;
        numbers[first] = row;
        place = ~static_cast<mgg::Index>(first);
    }
    if (i < n) places[i] = place;
}

#define MGG_POOL(lanes, vec)                                                                                      \
    extern "C" __global__ void __maxnreg__(80) lookup_pool_##lanes##_##vec(                                       \
        const mgg::Index *places, long long bags, int size, const float *own, int own_stride, const float *other, \
        int other_stride, float *out, int out_stride, int first_column, int columns                               \
    ) {                                                                                                           \
        mgg::pool<lanes, vec>(                                                                                    \
            places, bags, size, own, own_stride, other, other_stride, out, out_stride, first_column, columns      \
        );                                                                                                        \
    }
#define MGG_PEERS(name, function, lanes, vec)                                                                          \
    extern "C" __global__ void __maxnreg__(80) name##_##lanes##_##vec(                                                 \
        const mgg::Index *ids, long long bags, int size, const float *const *rows, int pes, int rank, int stride,      \
        float *out, int out_stride, int first_column, int columns                                                      \
    ) {                                                                                                                \
        mgg::function<lanes, vec>(ids, bags, size, {rows, pes, rank, stride}, out, out_stride, first_column, columns); \
    }
// Narrow rows leave lanes idle, which saves instances.
#define MGG_INSTANCE(lanes, vec)                 \
    MGG_POOL(lanes, vec)                         \
    MGG_PEERS(lookup_direct, direct, lanes, vec) \
    MGG_PEERS(lookup_mgg, pipelined, lanes, vec)
#define MGG_WIDE(vec) MGG_INSTANCE(4, vec) MGG_INSTANCE(8, vec) MGG_INSTANCE(16, vec) MGG_INSTANCE(32, vec)
MGG_WIDE(1)
MGG_WIDE(2)
MGG_WIDE(4)
