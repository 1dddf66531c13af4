// The MGG kernel (OSDI'23, sections 4 and 5). A warp owns up to `distance` pairs of a local and a remote neighbor
// partition. While it sums the local one, the rows of the remote one are on their way to shared memory.
//
// MGG_PRIMITIVE chooses how remote rows are fetched. 0: loads through peer pointers (cp.async). With NVSHMEM
// (MGG_NVSHMEM), 1: a get by a warp; 2: by a thread; 3: by the whole block. With MGG_MERGE (and 0), a block first
// fetches every row that its arcs need, once (5.1), to memory of this GPU, where the pipeline finds it as if another PE
// had it.
//
// Shared memory, in floats: the running sums of the local and the remote row of every warp, then `stage_rows` fetched
// rows of every warp.
//
// Four loads in flight per lane are enough, since partitions are short. So 80 registers suffice and 24 warps fit a
// multiprocessor.
#ifndef MGG_UNROLL
#define MGG_UNROLL 4
#endif
#include "mgg/async.cuh"
#include "mgg/warp.cuh"

#ifndef MGG_PRIMITIVE
#define MGG_PRIMITIVE 0
#endif
#if defined(MGG_MERGE) && MGG_PRIMITIVE != 0
#error "MGG_MERGE fetches through peer pointers"
#endif
#if MGG_PRIMITIVE != 0
#ifndef MGG_NVSHMEM
#error "MGG_PRIMITIVE 1, 2 and 3 need MGG_NVSHMEM"
#endif
#include <nvshmem.h>
#include <nvshmemx.h>
#endif

namespace mgg {

constexpr int kPeShift = 48;  // a remote source is PE << 48 | row there
enum Primitive { kDirect = 0, kWarp = 1, kThread = 2, kBlock = 3 };
constexpr int kPrimitive = MGG_PRIMITIVE;

__device__ __forceinline__ int pe_of(unsigned long long source) { return static_cast<int>(source >> kPeShift); }
__device__ __forceinline__ long long row_of(unsigned long long source) {
    return static_cast<long long>(source & ((1ull << kPeShift) - 1));
}

// Where B is: this PE's copy (the symmetric address), the peers' copies, and the layout that all of them have.
struct Embeddings {
    const float *own;
    const float *const *peers;
    int stride;
    int columns;
};

// The sum of consecutive partitions of one row, in shared memory; every lane keeps its own columns.
template <int LANES, int VEC>
struct Running {
    float *sum;
    long long row = -1;

    __device__ __forceinline__ void flush(float *acc, int stride, const Tile<LANES, VEC> &tile) {
        if (row >= 0 && tile.writes())
            atomic_add(at(acc, row, stride, tile.column), *reinterpret_cast<Pack<VEC> *>(sum), tile.count);
        row = -1;
    }
    __device__ __forceinline__ void add_partition(
        long long to, const Pack<VEC> &part, float *acc, int stride, const Tile<LANES, VEC> &tile
    ) {
        if (to != row) {
            flush(acc, stride, tile);
            if (tile.writes()) *reinterpret_cast<Pack<VEC> *>(sum) = part;
            row = to;
        } else if (tile.writes()) {
            add(*reinterpret_cast<Pack<VEC> *>(sum), part);
        }
    }
};

#if MGG_PRIMITIVE == 3
constexpr int kMaxWarps = 16;  // per block
__shared__ long long request_first[kMaxWarps];
__shared__ int request_count[kMaxWarps];
#endif

// Start to fetch the rows of `count` remote arcs from `first` on. Collective over the warp; over the block for kBlock.
template <int LANES, int VEC>
__device__ __forceinline__ void fetch(
    float *stage, int stage_size, const unsigned long long *sources, long long first, int count, const Embeddings &b,
    const Tile<LANES, VEC> &tile
) {
    constexpr int WIDTH = LANES * VEC, GROUPS = 32 / LANES;
    if constexpr (kPrimitive == kDirect) {
        for (int s = tile.group; s < count; s += GROUPS) {
            const unsigned long long source = __ldg(sources + first + s);
            if (tile.active())
                copy_async<VEC>(
                    stage + s * WIDTH + tile.lane % LANES * VEC,
                    at(b.peers[pe_of(source)], row_of(source), b.stride, tile.column)
                );
        }
    }
#if MGG_PRIMITIVE != 0
    const int begin = tile.column - tile.lane % LANES * VEC;  // the tile's first column
    const int width = min(WIDTH, b.columns - begin);
#endif
#if MGG_PRIMITIVE == 1
    for (int s = 0; s < count; ++s) {
        const unsigned long long source = __ldg(sources + first + s);
        nvshmemx_float_get_nbi_warp(
            stage + s * WIDTH, at(b.own, row_of(source), b.stride, begin), width, pe_of(source)
        );
    }
#elif MGG_PRIMITIVE == 2
    for (int s = tile.lane; s < count; s += 32) {
        const unsigned long long source = __ldg(sources + first + s);
        nvshmem_float_get_nbi(stage + s * WIDTH, at(b.own, row_of(source), b.stride, begin), width, pe_of(source));
    }
#elif MGG_PRIMITIVE == 3
    const int warp = threadIdx.x / 32;
    if (tile.lane == 0) request_first[warp] = first, request_count[warp] = count;
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; ++w) {
        for (int s = 0; s < request_count[w]; ++s) {
            const unsigned long long source = __ldg(sources + request_first[w] + s);
            nvshmemx_float_get_nbi_block(
                stage + (w - warp) * stage_size + s * WIDTH, at(b.own, row_of(source), b.stride, begin), width,
                pe_of(source)
            );
        }
    }
#endif
}

// Wait for what `fetch` started. Afterwards every lane of the warp sees the rows.
__device__ __forceinline__ void arrive() {
    if constexpr (kPrimitive == kDirect) wait_copies();
#if MGG_PRIMITIVE != 0
    nvshmem_quiet();
#endif
    if constexpr (kPrimitive == kBlock)
        __syncthreads();
    else
        __syncwarp();
}

// Whether any warp that fetches together with this one still has rows to fetch.
__device__ __forceinline__ bool any_left(bool mine) {
    if constexpr (kPrimitive == kBlock) return __syncthreads_or(mine);
    return mine;
}

// sum += the fetched rows, weighted by the arcs' weights.
template <int LANES, int VEC, bool WEIGHTED>
__device__ __forceinline__ void add_fetched(
    Pack<VEC> &sum, const float *stage, int count, const float *weights, long long first, const Tile<LANES, VEC> &tile
) {
    constexpr int WIDTH = LANES * VEC, GROUPS = 32 / LANES;
#pragma unroll 4
    for (int s = tile.group; s < count; s += GROUPS) {
        Pack<VEC> x = *reinterpret_cast<const Pack<VEC> *>(stage + s * WIDTH + tile.lane % LANES * VEC);
        if constexpr (WEIGHTED) scale(x, __ldg(weights + first + s));
        if (tile.active()) add(sum, x);
    }
}

struct Partitions {
    const long long *rows, *starts, *stops;
    long long count;
};

// What a block fetches from other PEs once (MGG_MERGE), however many of its arcs need it. If `rows` is null, each arc
// fetches its own row.
struct Requests {
    const unsigned long long *sources;  // of all blocks
    const long long *first;             // first request of each block, then the number of all
    float *rows;                        // destination, with the stride of B; the sources of arcs point there
};

// Fetch what this block requests, with four rows per group in flight. All threads of the block call it.
template <int LANES, int VEC>
__device__ __forceinline__ void fetch_once(
    const Requests &requests, const Embeddings &b, const Tile<LANES, VEC> &tile
) {
    constexpr int GROUPS = 32 / LANES, UNROLL = 4;
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
    const long long stop = requests.first[blockIdx.x + 1];
    for (long long base = requests.first[blockIdx.x] + warp * GROUPS * UNROLL; base < stop;
         base += warps * GROUPS * UNROLL) {
        Raw<VEC> x[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const long long r = base + u * GROUPS + tile.group;
            const unsigned long long source = __ldg(requests.sources + min(r, stop - 1));
            x[u] = load_if<VEC>(
                r < stop && tile.active(), at(b.peers[pe_of(source)], row_of(source), b.stride, tile.column)
            );
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const long long r = base + u * GROUPS + tile.group;
            if (r < stop && tile.active()) store_raw(at(requests.rows, r, b.stride, tile.column), x[u], tile.count);
        }
    }
    __syncthreads();
}

template <int LANES, int VEC, bool WEIGHTED>
__device__ __forceinline__ void aggregate(
    const Partitions &local, const Index *__restrict__ indices, const float *__restrict__ local_weights,
    const Partitions &remote, const unsigned long long *__restrict__ sources, const float *__restrict__ remote_weights,
    const Requests &requests, const Embeddings &b, float *__restrict__ acc, int acc_stride, int first_column,
    int distance, int interleave, int asynchronous, int stage_rows
) {
    using Arcs = Window<LANES, WEIGHTED>;
    constexpr int WIDTH = LANES * VEC;
    extern __shared__ __align__(16) float shared[];
    const Tile<LANES, VEC> tile(first_column, blockIdx.y, b.columns);
    const int lane = tile.lane, warps = blockDim.x / 32, warp = threadIdx.x / 32;
    const int stage_size = stage_rows * WIDTH;
    float *sums = shared + warp * 2 * WIDTH + lane % LANES * VEC;
    float *stage = shared + warps * 2 * WIDTH + warp * stage_size;
    Running<LANES, VEC> local_row{sums}, remote_row{sums + WIDTH};
#ifdef MGG_MERGE
    if (requests.rows) fetch_once(requests, b, tile);
#endif

    // This warp's partitions. Interleaved: all warps get equal shares of both kinds, so that no multiprocessor gets
    // remote work alone. Otherwise local partitions come first, then remote ones.
    const long long me = static_cast<long long>(blockIdx.x) * warps + warp;
    long long l0, l1, r0, r1;
    if (interleave) {
        const long long all = (max(local.count, remote.count) + distance - 1) / distance;
        const long long at_least_one = max(all, 1ll), from = min(me, all), to = min(me + 1, all);
        l0 = from * local.count / at_least_one, l1 = to * local.count / at_least_one;
        r0 = from * remote.count / at_least_one, r1 = to * remote.count / at_least_one;
    } else {
        const long long local_warps = (local.count + distance - 1) / distance;
        l0 = min(me * distance, local.count), l1 = min(l0 + distance, local.count);
        r0 = min(max(me - local_warps, 0ll) * distance, remote.count);
        r1 = me < local_warps ? r0 : min(r0 + distance, remote.count);
    }
    const int local_count = static_cast<int>(l1 - l0), remote_count = static_cast<int>(r1 - r0);

    // Lane i holds partition i of each kind; distance is at most 32.
    long long local_to = -1, local_start = 0, local_stop = 0, remote_to = -1, remote_start = 0, remote_stop = 0;
    if (lane < local_count)
        local_to = local.rows[l0 + lane], local_start = local.starts[l0 + lane], local_stop = local.stops[l0 + lane];
    if (lane < remote_count)
        remote_to = remote.rows[r0 + lane], remote_start = remote.starts[r0 + lane],
        remote_stop = remote.stops[r0 + lane];

    auto length = [](long long first, long long last, int most) {
        return static_cast<int>(min(static_cast<long long>(most), last - first));
    };
    Arcs arcs, next;
    long long k = __shfl_sync(kAll, local_start, 0), stop = __shfl_sync(kAll, local_stop, 0);
    arcs.read(indices, local_weights, k, length(k, stop, Arcs::SIZE), lane);

    const int pairs = kPrimitive == kBlock ? distance : max(local_count, remote_count);
    for (int pair = 0; pair < pairs; ++pair) {
        // Lanes beyond the last partition hold an empty one.
        long long fetched = __shfl_sync(kAll, remote_start, pair);
        const long long fetch_stop = __shfl_sync(kAll, remote_stop, pair);
        int staged = 0;
        bool left = any_left(fetched < fetch_stop);
        const bool early = asynchronous && left;
        if (early) {
            staged = length(fetched, fetch_stop, stage_rows);
            fetch(stage, stage_size, sources, fetched, staged, b, tile);
        }

        if (pair < local_count) {
            const long long to = __shfl_sync(kAll, local_to, pair);
            const long long next_k = __shfl_sync(kAll, local_start, (pair + 1) & 31);
            const long long next_stop = __shfl_sync(kAll, local_stop, (pair + 1) & 31);
            const bool more = pair + 1 < local_count;
            next.read(indices, local_weights, next_k, more ? length(next_k, next_stop, Arcs::SIZE) : 0, lane);
            Pack<VEC> sum = zero<VEC>();
            add_window(sum, arcs, length(k, stop, Arcs::SIZE), b.own, b.stride, tile);
            if (stop - k > Arcs::SIZE)
                add_arcs<LANES, VEC, WEIGHTED>(
                    sum, indices, local_weights, k + Arcs::SIZE, stop, b.own, b.stride, tile
                );
            reduce_groups<LANES>(sum);
            local_row.add_partition(to, sum, acc, acc_stride, tile);
            arcs = next, k = next_k, stop = next_stop;
        }

        if (left) {
            Pack<VEC> sum = zero<VEC>();
            bool first = early;
            while (left) {
                if (!first) {
                    staged = length(fetched, fetch_stop, stage_rows);
                    fetch(stage, stage_size, sources, fetched, staged, b, tile);
                }
                first = false;
                arrive();
                add_fetched<LANES, VEC, WEIGHTED>(sum, stage, staged, remote_weights, fetched, tile);
                __syncwarp();  // before the next rows overwrite these
                fetched += staged;
                left = any_left(fetched < fetch_stop);
            }
            if (pair < remote_count) {
                reduce_groups<LANES>(sum);
                remote_row.add_partition(__shfl_sync(kAll, remote_to, pair), sum, acc, acc_stride, tile);
            }
        }
    }
    local_row.flush(acc, acc_stride, tile);
    remote_row.flush(acc, acc_stride, tile);
}

}  // namespace mgg

#define MGG_MGG(name, lanes, vec, weighted)                                                                         \
    extern "C" __global__ void __maxnreg__(80) name(                                                                \
        const long long *local_rows, const long long *local_starts, const long long *local_stops,                   \
        long long local_count, const mgg::Index *indices, const float *local_weights, const long long *remote_rows, \
        const long long *remote_starts, const long long *remote_stops, long long remote_count,                      \
        const unsigned long long *sources, const float *remote_weights, const unsigned long long *requests,         \
        const long long *request_first, float *fetched, const float *own, const float *const *peers, int b_stride,  \
        float *acc, int acc_stride, int first_column, int columns, int distance, int interleave, int asynchronous,  \
        int stage_rows                                                                                              \
    ) {                                                                                                             \
        mgg::aggregate<lanes, vec, weighted>(                                                                       \
            {local_rows, local_starts, local_stops, local_count}, indices, local_weights,                           \
            {remote_rows, remote_starts, remote_stops, remote_count}, sources, remote_weights,                      \
            {requests, request_first, fetched}, {own, peers, b_stride, columns}, acc, acc_stride, first_column,     \
            distance, interleave, asynchronous, stage_rows                                                          \
        );                                                                                                          \
    }
#define MGG_INSTANCE(lanes, vec)                    \
    MGG_MGG(mgg_##lanes##_##vec, lanes, vec, false) \
    MGG_MGG(mgg_##lanes##_##vec##_weighted, lanes, vec, true)
// Narrow rows leave lanes idle, which saves instances: linking with NVSHMEM takes long.
#define MGG_WIDE(vec) MGG_INSTANCE(4, vec) MGG_INSTANCE(8, vec) MGG_INSTANCE(16, vec) MGG_INSTANCE(32, vec)
MGG_WIDE(1)
MGG_WIDE(2)
MGG_WIDE(4)
