// The remote part of technique cola in one launch (CoLa, ICS'25, algorithm 1, from line 12 on). A warp takes columns.
// It fetches the row of each column once from the PE that holds it, keeps it in shared memory (the paper's scratchpad),
// and adds it to every row of C that has an arc there. Meanwhile the rows of the next columns are on their way.
//
// Columns of very many arcs do not go to one warp: the first blocks only copy their rows, which columns.cu then
// spreads.
#include "mgg/async.cuh"
#include "mgg/warp.cuh"

namespace mgg {

// Warps per block: few, so that a block's place is free again soon after its first warp is done.
#ifndef MGG_COLA_WARPS
#define MGG_COLA_WARPS 4
#endif
// Bytes of rows that a warp has on their way. It holds as many again, which it spreads.
#ifndef MGG_COLA_STAGE
#define MGG_COLA_STAGE 2048
#endif
constexpr int kWarps = MGG_COLA_WARPS;

// A CSC matrix in the order of the work (mgg/kernel/cola.py).
struct Columns {
    const int2 *tasks;                  // first column, number of columns (1..32)
    int count;                          // of tasks
    const long long *begin;             // first arc of each column, and the end
    const unsigned long long *sources;  // holder << 48 | row there, of each column
    const Index *rows;                  // rows of C
    const float *weights;               // or null
};

// Where the rows are: the holders' matrices, all with the same stride.
struct Holders {
    const float *const *matrices;
    int stride;

    __device__ __forceinline__ const float *row(unsigned long long source) const {
        return at(matrices[source >> 48], source & 0xffffffffffffull, stride, 0);
    }
};

// The rows of a task's columns in the shared memory of one warp, in batches of ROWS.
template <int LANES, int VEC>
struct Stage {
    static constexpr int WIDTH = LANES * VEC, GROUPS = 32 / LANES, FIT = MGG_COLA_STAGE / (4 * WIDTH);
    static constexpr int ROWS = FIT > 32 ? 32 : FIT < GROUPS ? GROUPS : FIT;
    static constexpr int BUFFERS = ROWS < 32 ? 2 : 1;  // a task has at most 32 columns
    static constexpr int SIZE = BUFFERS * ROWS * WIDTH;
    static_assert((ROWS & (ROWS - 1)) == 0 && ROWS % GROUPS == 0, "batches are powers of two of whole steps");

    float *rows;
    const Tile<LANES, VEC> &tile;

    // Where the row of the task's column `column` begins. Batches take turns in the buffers.
    __device__ __forceinline__ int offset(int column) const { return (column & (BUFFERS * ROWS - 1)) * WIDTH; }
    // This lane's part of every row.
    __device__ __forceinline__ float *mine() const { return rows + tile.lane % LANES * VEC; }

    // Start to fetch a batch. Lane i holds the address of the row of column i; the task has `count` columns.
    __device__ __forceinline__ void fetch(int batch, const float *row, int count) const {
        const unsigned long long address = reinterpret_cast<unsigned long long>(row);
#pragma unroll
        for (int s = 0; s < ROWS; s += GROUPS) {
            const int column = batch * ROWS + s + tile.group;
            const float *from = reinterpret_cast<const float *>(__shfl_sync(kAll, address, column));
            if (column < count && tile.active()) copy_async<VEC>(mine() + offset(column), from + tile.column);
        }
    }
};

// acc[rows[k]] += weights[k] * (row of column j) for the arcs k of all columns j of one task.
template <int LANES, int VEC, bool WEIGHTED>
__device__ __forceinline__ void spread_task(
    const Columns &work, int task, const Holders &holders, const Stage<LANES, VEC> &stage, float *acc, int acc_stride
) {
    using Arcs = Window<LANES, WEIGHTED>;
    using Staged = Stage<LANES, VEC>;
    constexpr int ROWS = Staged::ROWS, GROUPS = Staged::GROUPS;
    const Tile<LANES, VEC> &tile = stage.tile;
    const int lane = tile.lane;
    const float *mine = stage.mine();

    // Lane i holds where column i begins and where its row is. Lanes behind the last column hold where the arcs end.
    const int2 columns = work.tasks[task];
    const int first = columns.x, count = columns.y, own = first + min(lane, count - 1);
    const long long first_arc = work.begin[first];
    const int arc_count = static_cast<int>(work.begin[first + count] - first_arc);
    const int begin = lane < count ? static_cast<int>(work.begin[own] - first_arc) : arc_count;
    const float *row = holders.row(work.sources[own]);

    stage.fetch(0, row, count);
    commit_copies();
    Arcs arcs, next;
    arcs.read(work.rows, work.weights, first_arc, min(Arcs::SIZE, arc_count), lane);
    int k = 0;
    for (int batch = 0; batch * ROWS < count; ++batch) {
        if ((batch + 1) * ROWS < count) stage.fetch(batch + 1, row, count);
        commit_copies();
        wait_groups<1>();
        __syncwarp();
        const int last = (batch + 1) * ROWS, stop = last < 32 ? __shfl_sync(kAll, begin, last & 31) : arc_count;
        while (k < stop) {
            const int n = min(Arcs::SIZE, stop - k);
            next.read(work.rows, work.weights, first_arc + k + n, min(Arcs::SIZE, arc_count - k - n), lane);
#pragma unroll
            for (int i = 0; i < Arcs::PER_LANE; ++i) {
                // The column of arc k + 32 i + lane: the last one of the batch that begins at or before it.
                int column = batch * ROWS;
#pragma unroll
                for (int step = ROWS / 2; step > 0; step /= 2)
                    if (__shfl_sync(kAll, begin, column + step) <= k + 32 * i + lane) column += step;
                // Each lane computes once, for its arc, where the row of B and the row of C are.
                const int of = stage.offset(column);
                const long long to = static_cast<long long>(arcs.index[i]) * acc_stride;
#pragma unroll 4
                for (int j = 0; j < 32; j += GROUPS) {
                    if (32 * i + j >= n) break;  // the same for all lanes
                    const int from = j + tile.group;
                    const float *held = mine + __shfl_sync(kAll, of, from);
                    float *goal = acc + tile.column + __shfl_sync(kAll, to, from);
                    float weight = 1.0f;
                    if constexpr (WEIGHTED) weight = __shfl_sync(kAll, arcs.weight[i], from);
                    if (32 * i + from < n && tile.active()) {
                        Pack<VEC> x = *reinterpret_cast<const Pack<VEC> *>(held);
                        if constexpr (WEIGHTED) scale(x, weight);
                        atomic_add(goal, x, tile.count);
                    }
                }
            }
            arcs = next;
            k += n;
        }
        __syncwarp();  // before the batch after the next overwrites this one
    }
}

// out[i] = the row of sources[i] for i < count, with four rows per group in flight.
template <int LANES, int VEC>
__device__ __forceinline__ void copy_rows(
    const unsigned long long *sources, int count, int block, int blocks, const Holders &holders, float *out, int stride,
    const Tile<LANES, VEC> &tile
) {
    constexpr int GROUPS = 32 / LANES, UNROLL = 4, STEP = GROUPS * UNROLL;
    if (!tile.active()) return;
    const int warp = block * kWarps + threadIdx.x / 32;
    for (int base = warp * STEP + tile.group; base < count; base += blocks * kWarps * STEP) {
        Pack<VEC> x[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (base + u * GROUPS < count)
                x[u] = load<VEC>(holders.row(__ldg(sources + base + u * GROUPS)) + tile.column);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (base + u * GROUPS < count) store(at(out, base + u * GROUPS, stride, tile.column), x[u], tile.count);
    }
}

// The first `hub_blocks` blocks copy the rows of columns hub_first .. hub_first + hub_count. The others spread one task
// per warp. Sums are added to what `acc` holds.
template <int LANES, int VEC, bool WEIGHTED>
__device__ __forceinline__ void spread_columns(
    const Columns &work, const Holders &holders, float *acc, int acc_stride, int hub_blocks, int hub_first,
    int hub_count, float *hubs, int hub_stride, int first_column, int columns
) {
    using Staged = Stage<LANES, VEC>;
    __shared__ __align__(16) float shared[kWarps * Staged::SIZE];
    const Tile<LANES, VEC> tile(first_column, blockIdx.y, columns);
    const int block = static_cast<int>(blockIdx.x) - hub_blocks;
    if (block < 0) {
        copy_rows<LANES, VEC>(
            work.sources + hub_first, hub_count, blockIdx.x, hub_blocks, holders, hubs, hub_stride, tile
        );
        return;
    }
    const int warp = threadIdx.x / 32, task = block * kWarps + warp;
    if (task >= work.count) return;
    const Staged stage{shared + warp * Staged::SIZE, tile};
    spread_task<LANES, VEC, WEIGHTED>(work, task, holders, stage, acc, acc_stride);
}

}  // namespace mgg

#define MGG_COLA(name, lanes, vec, weighted)                                                                         \
    extern "C" __global__ void __launch_bounds__(32 * mgg::kWarps) name(                                             \
        const int2 *tasks, int task_count, const long long *begin, const unsigned long long *sources,                \
        const mgg::Index *rows, const float *weights, const float *const *holders, int stride, float *acc,           \
        int acc_stride, int hub_blocks, int hub_first, int hub_count, float *hubs, int hub_stride, int first_column, \
        int columns                                                                                                  \
    ) {                                                                                                              \
        mgg::spread_columns<lanes, vec, weighted>(                                                                   \
            {tasks, task_count, begin, sources, rows, weights}, {holders, stride}, acc, acc_stride, hub_blocks,      \
            hub_first, hub_count, hubs, hub_stride, first_column, columns                                            \
        );                                                                                                           \
    }
#define MGG_INSTANCE(lanes, vec)                           \
    MGG_COLA(spmm_cola_##lanes##_##vec, lanes, vec, false) \
    MGG_COLA(spmm_cola_##lanes##_##vec##_weighted, lanes, vec, true)
MGG_SHAPES(MGG_INSTANCE)
