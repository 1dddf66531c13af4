// Products of rows with the matrix of their type, for all types in one launch (mgg/vertex/cuda/grouped.py), and sums of
// x^T y over the rows of each type. Items are rows of arcs or runs, sorted by type and cut where a type ends.
//
// A block is one warp. Each lane holds 8 x COLUMNS / 8 numbers of a tile of the result in registers. The warp brings a
// few terms of the factors at a time to shared memory. Terms are always added in the same order.
#pragma once

namespace mgg {

constexpr int kGroupedRows = 32, kGroupedDepth = 8;

// The rows that items read: their own, of arcs or runs (both null), or the rows that they belong to.
struct Owners {
    const int *few;
    const long long *many;

    __device__ __forceinline__ long long of(long long item) const {
        return few ? __ldg(few + item) : many ? __ldg(many + item) : item;
    }
};

template <int COLUMNS>
struct GroupedTile {
    float left[kGroupedDepth][kGroupedRows + 1], right[kGroupedDepth][COLUMNS];  // in shared memory
};

template <int COLUMNS>
struct GroupedSums {
    static constexpr int MINE = COLUMNS / 8;

    float sum[8][MINE];

    __device__ __forceinline__ GroupedSums() {
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
            for (int j = 0; j < MINE; ++j) sum[i][j] = 0.0f;
    }

    // A lane has every fourth of 32 rows and every eighth column.
    static __device__ __forceinline__ int row(int lane, int i) { return lane / 8 + 4 * i; }
    static __device__ __forceinline__ int column(int lane, int j) { return lane % 8 + 8 * j; }

    __device__ __forceinline__ void add(const GroupedTile<COLUMNS> &tile, int lane) {
#pragma unroll
        for (int d = 0; d < kGroupedDepth; ++d) {
            float a[8], b[MINE];
#pragma unroll
            for (int i = 0; i < 8; ++i) a[i] = tile.left[d][row(lane, i)];
#pragma unroll
            for (int j = 0; j < MINE; ++j) b[j] = tile.right[d][column(lane, j)];
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < MINE; ++j) sum[i][j] += a[i] * b[j];
        }
    }
};

// y[item] = x[row of the item] W[type of the item]: x [*, K], W [types, K, M], y [items, M]. Block x takes the sorted
// items begin[x] .. begin[x + 1], at most 32, all of type types[x]. Block y takes COLUMNS columns from COLUMNS * y on.
template <int K, int M, int COLUMNS>
__device__ __forceinline__ void grouped_product(
    const int *types, const long long *begin, const long long *items, Owners owners, const float *x, int x_stride,
    const float *w, float *y, int y_stride
) {
    __shared__ GroupedTile<COLUMNS> tile;
    constexpr int MINE = COLUMNS / 8;
    const int lane = threadIdx.x, first = blockIdx.y * COLUMNS;
    const long long start = begin[blockIdx.x];
    const int count = static_cast<int>(begin[blockIdx.x + 1] - start);
    const float *matrix = w + static_cast<long long>(types[blockIdx.x]) * K * M;
    const float *mine = lane < count ? x + owners.of(__ldg(items + start + lane)) * x_stride : nullptr;
    GroupedSums<COLUMNS> sums;
    for (int k = 0; k < K; k += kGroupedDepth) {
        __syncthreads();
#pragma unroll
        for (int d = 0; d < kGroupedDepth; ++d) {
            tile.left[d][lane] = mine && k + d < K ? __ldg(mine + k + d) : 0.0f;
#pragma unroll
            for (int c = lane; c < COLUMNS; c += 32)
                tile.right[d][c] =
                    k + d < K && first + c < M ? __ldg(matrix + static_cast<long long>(k + d) * M + first + c) : 0.0f;
        }
        __syncthreads();
        sums.add(tile, lane);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int row = GroupedSums<COLUMNS>::row(lane, i);
        if (row >= count) continue;
        float *out = y + __ldg(items + start + row) * y_stride + first;
#pragma unroll
        for (int j = 0; j < MINE; ++j) {
            const int column = GroupedSums<COLUMNS>::column(lane, j);
            if (first + column < M) out[column] = sums.sum[i][j];
        }
    }
}

// parts[x] = sum over the items begin[x] .. begin[x + 1] of x[row of the item]^T y[row of the item], [K, M]. Block y
// takes a tile of 32 x COLUMNS of it.
template <int K, int M, int COLUMNS>
__device__ __forceinline__ void grouped_gram(
    const long long *begin, const long long *items, Owners x_owners, const float *x, int x_stride, Owners y_owners,
    const float *y, int y_stride, float *parts
) {
    __shared__ GroupedTile<COLUMNS> tile;
    constexpr int MINE = COLUMNS / 8;
    constexpr int TILES = (M + COLUMNS - 1) / COLUMNS;
    const int lane = threadIdx.x, row = blockIdx.y / TILES * kGroupedRows, first = blockIdx.y % TILES * COLUMNS;
    const long long end = begin[blockIdx.x + 1];
    GroupedSums<COLUMNS> sums;
    for (long long start = begin[blockIdx.x]; start < end; start += kGroupedDepth) {
        __syncthreads();
#pragma unroll
        for (int d = 0; d < kGroupedDepth; ++d) {
            const bool active = start + d < end;
            const long long item = active ? __ldg(items + start + d) : 0;
            tile.left[d][lane] = active && row + lane < K ? __ldg(x + x_owners.of(item) * x_stride + row + lane) : 0.0f;
            const float *theirs = y + (active ? y_owners.of(item) * y_stride : 0) + first;
#pragma unroll
            for (int c = lane; c < COLUMNS; c += 32)
                tile.right[d][c] = active && first + c < M ? __ldg(theirs + c) : 0.0f;
        }
        __syncthreads();
        sums.add(tile, lane);
    }
    float *out = parts + static_cast<long long>(blockIdx.x) * K * M;
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < MINE; ++j) {
            const int k = row + GroupedSums<COLUMNS>::row(lane, i), m = first + GroupedSums<COLUMNS>::column(lane, j);
            if (k < K && m < M) out[static_cast<long long>(k) * M + m] = sums.sum[i][j];
        }
}

// result[type] = the sum of the type's parts firsts[type] .. firsts[type + 1], in this order. A block takes 32 of the
// SIZE entries of type blockIdx.x.
template <int SIZE>
__device__ __forceinline__ void grouped_sum(const long long *firsts, const float *parts, float *result) {
    const int entry = blockIdx.y * 32 + threadIdx.x;
    if (entry >= SIZE) return;
    double sum = 0.0;
    for (long long part = firsts[blockIdx.x]; part < firsts[blockIdx.x + 1]; ++part)
        sum += __ldg(parts + part * SIZE + entry);
    result[static_cast<long long>(blockIdx.x) * SIZE + entry] = static_cast<float>(sum);
}

}  // namespace mgg
