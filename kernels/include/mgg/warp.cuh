// What a warp does together: it sums rows of B with LANES lanes per row, so 32 / LANES arcs at once.
#pragma once

#include "mgg/stream.cuh"
#include "mgg/vector.cuh"

#ifndef MGG_INDEX_BITS
#define MGG_INDEX_BITS 32
#endif

namespace mgg {

#if MGG_INDEX_BITS == 32
using Index = int;
#else
using Index = long long;
#endif

constexpr unsigned kAll = 0xffffffffu;

// Loads in flight per lane.
#ifndef MGG_UNROLL
#define MGG_UNROLL 8
#endif

// A tile of LANES * VEC columns as one lane sees it.
template <int LANES, int VEC>
struct Tile {
    int lane;    // 0..31
    int group;   // which of the 32 / LANES arcs of a step
    int column;  // first column of this lane
    int count;   // columns from this lane's first to the row's end: VEC or more, fewer at the end, 0 or less beyond

    // first: the launch's first column; y: number of tiles before this one; columns: of the matrix.
    __device__ __forceinline__ Tile(int first, int y, int columns) {
        lane = threadIdx.x & 31;
        group = lane / LANES;
        column = first + (y * LANES + lane % LANES) * VEC;
        count = columns - column;
    }
    __device__ __forceinline__ bool active() const { return count > 0; }
    __device__ __forceinline__ bool writes() const { return group == 0 && count > 0; }
};

// Up to SIZE consecutive arcs, spread over the lanes of a warp.
template <int LANES, bool WEIGHTED>
struct Window {
    static constexpr int PER_LANE = LANES <= 4 ? 2 : 1;
    static constexpr int SIZE = 32 * PER_LANE;
    Index index[PER_LANE];
    float weight[PER_LANE];

    // Read each arc once and keep it out of L1, which is for the rows of B.
    __device__ __forceinline__ void read(const Index *indices, const float *weights, long long first, int n, int lane) {
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) {
            const bool mine = i * 32 + lane < n;
            index[i] = mine ? load_once(indices + first + i * 32 + lane) : 0;
            if constexpr (WEIGHTED) weight[i] = mine ? load_once(weights + first + i * 32 + lane) : 0.0f;
        }
    }
};

// Loads in flight per lane: MGG_UNROLL, or the number of steps in a window if that is smaller.
template <int LANES, bool WEIGHTED>
constexpr int kUnroll =
    LANES * Window<LANES, WEIGHTED>::SIZE / 32 < MGG_UNROLL ? LANES * Window<LANES, WEIGHTED>::SIZE / 32 : MGG_UNROLL;

// This lane's part of the rows of B, in their memory format, for a step that begins at arc `base` of the window.
template <int LANES, int VEC, bool WEIGHTED, int UNROLL>
__device__ __forceinline__ void load_rows(
    Raw<VEC> (&raw)[UNROLL], const Window<LANES, WEIGHTED> &window, int base, int n, const Element *b, int stride,
    const Tile<LANES, VEC> &tile
) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const int first = base + u * (32 / LANES);
        const Index row = __shfl_sync(kAll, window.index[first / 32], first % 32 + tile.group);
        raw[u] = load_if<VEC>(first + tile.group < n && tile.active(), at(b, row, stride, tile.column));
    }
}

// The weight of this lane's arc in a step whose first arc of the window is `first`.
template <int LANES, int VEC>
__device__ __forceinline__ float weight_of(const Window<LANES, true> &window, int first, const Tile<LANES, VEC> &tile) {
    return __shfl_sync(kAll, window.weight[first / 32], first % 32 + tile.group);
}

// sum += the rows of B of those of the window's first n arcs that belong to this lane's group. A lane has up to
// MGG_UNROLL loads in flight. Their sum is a tree, so that the rounding error of a piece of 512 arcs stays near that of
// 64 additions.
template <int LANES, int VEC, bool WEIGHTED>
__device__ __forceinline__ void add_window(
    Pack<VEC> &sum, const Window<LANES, WEIGHTED> &window, int n, const Element *b, int stride,
    const Tile<LANES, VEC> &tile
) {
    constexpr int GROUPS = 32 / LANES, UNROLL = kUnroll<LANES, WEIGHTED>;
#pragma unroll
    for (int base = 0; base < Window<LANES, WEIGHTED>::SIZE; base += GROUPS * UNROLL) {
        if (base >= n) break;  // the same for all lanes
        Raw<VEC> raw[UNROLL];
        load_rows(raw, window, base, n, b, stride, tile);
        auto weighted = [&](int u) {
            Pack<VEC> x = unpack<VEC>(raw[u]);
            if constexpr (WEIGHTED) scale(x, weight_of(window, base + u * GROUPS, tile));
            return x;
        };
        if constexpr (sizeof(Element) == 2) {  // as floats, the values take twice the registers
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) add(sum, weighted(u));
        } else {
            Pack<VEC> x[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) x[u] = weighted(u);
#pragma unroll
            for (int step = 1; step < UNROLL; step *= 2)
#pragma unroll
                for (int u = 0; u + step < UNROLL; u += 2 * step) add(x[u], x[u + step]);
            add(sum, x[0]);
        }
    }
}

// Add up the groups of a warp; every lane gets the sum of its column.
template <int LANES, int VEC>
__device__ __forceinline__ void reduce_groups(Pack<VEC> &sum) {
#pragma unroll
    for (int offset = 16; offset >= LANES; offset /= 2)
#pragma unroll
        for (int i = 0; i < VEC; ++i) sum.v[i] += __shfl_xor_sync(kAll, sum.v[i], offset);
}

// sum += the rows of B of arcs first .. last; the caller still has to add up the groups.
template <int LANES, int VEC, bool WEIGHTED>
__device__ __forceinline__ void add_arcs(
    Pack<VEC> &sum, const Index *indices, const float *weights, long long first, long long last, const Element *b,
    int stride, const Tile<LANES, VEC> &tile
) {
    using Arcs = Window<LANES, WEIGHTED>;
    auto length = [last](long long from) {
        return static_cast<int>(min(static_cast<long long>(Arcs::SIZE), last - from));
    };
    Arcs now, next;
    now.read(indices, weights, first, length(first), tile.lane);
    for (; first < last; first += Arcs::SIZE) {
        next.read(indices, weights, first + Arcs::SIZE, length(first + Arcs::SIZE), tile.lane);
        add_window(sum, now, length(first), b, stride, tile);
        now = next;
    }
}

}  // namespace mgg

// Instances: F(lanes, vec) for every number of lanes per row and every vector width. F adds the weighted variants
// itself.
#define MGG_LANES(F, vec) F(1, vec) F(2, vec) F(4, vec) F(8, vec) F(16, vec) F(32, vec)
#ifdef MGG_BF16
#define MGG_SHAPES(F) MGG_LANES(F, 1) MGG_LANES(F, 2) MGG_LANES(F, 4) MGG_LANES(F, 8)
#else
#define MGG_SHAPES(F) MGG_LANES(F, 1) MGG_LANES(F, 2) MGG_LANES(F, 4)
#endif
