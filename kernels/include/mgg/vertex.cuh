// What generated kernels of vertex programs are made of (mgg/vertex/cuda/__init__.py): a lane's part of a row, what lanes put
// together, and sums that lanes, warps and launches add up in a fixed order.
//
// A piece is a row or a part of a long one (mgg/kernel/schedule.py). GROUP lanes take it: LANES of them side by side the
// columns of an arc, so GROUP / LANES arcs at once. Columns are those of heads: HEAD_LANES lanes a head, of which each has
// VEC columns, and the VEC columns HEAD_LANES * VEC further, PARTS times.
#pragma once

#include "mgg/random.cuh"
#include "mgg/warp.cuh"

namespace mgg {

// The larger; what is no number comes through.
__device__ __forceinline__ float highest(float x, float y) {
#ifdef __CUDA_ARCH__
    float found;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
    return found;
#else
    return x > y || x != x ? x : y;
#endif
}

// `top`, the highest score so far, takes another one. What is relative to it has to be multiplied with the result.
__device__ __forceinline__ float raise(float &top, float score) {
    const float before = top;
    top = highest(before, score);
    return before == top ? 1.0f : expf(before - top);
}

template <int GROUP_, int LANES_, int HEAD_LANES_, int VEC_, int PARTS_>
struct Lanes {
    static constexpr int GROUP = GROUP_, LANES = LANES_, HEAD_LANES = HEAD_LANES_, VEC = VEC_, PARTS = PARTS_;
    static constexpr int ARCS = GROUP / LANES;    // at once
    static constexpr int COUNT = VEC * PARTS;     // columns of a lane
    static constexpr int STEP = HEAD_LANES * VEC; // from part to part

    static constexpr int HEADS = LANES / HEAD_LANES;   // of a tile
    static constexpr int WINDOW = GROUP / HEADS;       // arcs of which each lane makes the numbers of one head

    // Which arc of its row a lane has under way, and the lane that made this arc's numbers.
    static __device__ __forceinline__ int arc(int base, int step, int mine) { return base + step * ARCS + mine; }
    static __device__ __forceinline__ int holder(int first, int step) { return first + step * ARCS * HEADS; }

    // The place of a lane's column `e` after its first one.
    static __device__ __forceinline__ constexpr int place(int e) { return e / VEC * STEP + e % VEC; }

    // x = columns of `row`, which ends after `columns`; beyond that any number. Rows that are ALIGNED, or `step` numbers
    // apart where that is a multiple of a lane's columns, have room for all columns of a lane.
    template <bool ALIGNED, typename T>
    static __device__ __forceinline__ void read(T (&x)[COUNT], const T *row, int first, int columns) {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const int column = first + part * STEP;
            if constexpr (ALIGNED && sizeof(T) == sizeof(float)) {
                const Pack<VEC> pack = load<VEC>(row + (column < columns ? column : 0));
#pragma unroll
                for (int i = 0; i < VEC; ++i) x[part * VEC + i] = pack.v[i];
            } else {
#pragma unroll
                for (int i = 0; i < VEC; ++i) x[part * VEC + i] = __ldg(row + (column + i < columns ? column + i : 0));
            }
        }
    }
    template <typename T>
    static __device__ __forceinline__ void read(T (&x)[COUNT], const T *row, int first, int columns, int step) {
        if (step % VEC == 0)
            read<true>(x, row, first, columns);
        else
            read<false>(x, row, first, columns);
    }
    template <typename T>
    static __device__ __forceinline__ void write(T *row, const T (&x)[COUNT], int first, int columns, int step) {
        if (step % VEC == 0)
            write<true>(row, x, first, columns);
        else
            write<false>(row, x, first, columns);
    }
    template <bool ALIGNED, typename T>
    static __device__ __forceinline__ void write(T *row, const T (&x)[COUNT], int first, int columns) {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const int column = first + part * STEP;
            if (column >= columns) continue;
            if constexpr (ALIGNED && sizeof(T) == sizeof(float)) {
                Pack<VEC> pack;
#pragma unroll
                for (int i = 0; i < VEC; ++i) pack.v[i] = x[part * VEC + i];
                *reinterpret_cast<Pack<VEC> *>(row + column) = pack;
            } else {
#pragma unroll
                for (int i = 0; i < VEC; ++i)
                    if (column + i < columns) row[column + i] = x[part * VEC + i];
            }
        }
    }

    // The sum over the lanes of a head; each gets it.
    static __device__ __forceinline__ float of_head(float x) {
#pragma unroll
        for (int offset = HEAD_LANES / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAll, x, offset);
        return x;
    }
    // Over all arcs at once: each lane gets what all lanes of its columns have found.
    template <typename T>
    static __device__ __forceinline__ void total(T &x) {
#pragma unroll
        for (int offset = GROUP / 2; offset >= LANES; offset /= 2) x += __shfl_xor_sync(kAll, x, offset);
    }
    template <bool LARGEST>
    static __device__ __forceinline__ void extreme(float &x) {
#pragma unroll
        for (int offset = GROUP / 2; offset >= LANES; offset /= 2) {
            const float other = __shfl_xor_sync(kAll, x, offset);
            take_extreme<LARGEST>(x, other);
        }
    }
    // What lanes have found of the arcs in their windows, put together, to all lanes of the head.
    template <typename T>
    static __device__ __forceinline__ T to_head(T x) {
        const int lane = threadIdx.x & 31;
        return __shfl_sync(kAll, x, (lane & ~(GROUP - 1)) + lane % LANES / HEAD_LANES);
    }
    template <typename T>
    static __device__ __forceinline__ void narrow_total(T &x) {
#pragma unroll
        for (int offset = GROUP / 2; offset >= HEADS; offset /= 2) x += __shfl_xor_sync(kAll, x, offset);
        x = to_head(x);
    }
    template <bool LARGEST>
    static __device__ __forceinline__ void narrow_extreme(float &x) {
#pragma unroll
        for (int offset = GROUP / 2; offset >= HEADS; offset /= 2) {
            const float other = __shfl_xor_sync(kAll, x, offset);
            take_extreme<LARGEST>(x, other);
        }
        x = to_head(x);
    }
    // `top`, the highest of a head's scores so far, takes those of the window. What is relative to it has to be multiplied
    // with the result.
    static __device__ __forceinline__ float narrow_raise(float &top, float score) {
#pragma unroll
        for (int offset = GROUP / 2; offset >= HEADS; offset /= 2) {
            score = highest(score, __shfl_xor_sync(kAll, score, offset));
        }
        return raise(top, score);
    }
    // Of all arcs at once; what lanes have found relative to their own one has to be multiplied with the result.
    static __device__ __forceinline__ float meet(float &top) {
        const float mine = top;
        extreme<true>(top);
        return mine == top ? 1.0f : expf(mine - top);
    }
    // The extreme so far; what is no number stays.
    template <bool LARGEST>
    static __device__ __forceinline__ void take_extreme(float &x, float other) {
        if ((LARGEST ? other > x : other < x) || other != other) x = other;
    }
};

// Which arc has the extreme; of equal ones that with the lowest id of its source, of these the first.
struct Winner {
    float best;
    long long id, arc;  // -1: none

    template <bool LARGEST>
    __device__ __forceinline__ void take(const Winner &other) {
        const bool better = LARGEST ? other.best > best : other.best < best;
        const bool earlier = other.id < id || (other.id == id && other.arc < arc);
        if (other.arc >= 0 && (better || (other.best == best && (arc < 0 || earlier)))) *this = other;
    }
};

template <typename L, bool LARGEST>
__device__ __forceinline__ void win(Winner &mine) {
#pragma unroll
    for (int offset = L::GROUP / 2; offset >= L::LANES; offset /= 2) {
        Winner other;
        other.best = __shfl_xor_sync(kAll, mine.best, offset);
        other.id = __shfl_xor_sync(kAll, mine.id, offset);
        other.arc = __shfl_xor_sync(kAll, mine.arc, offset);
        mine.take<LARGEST>(other);
    }
}

// The most of all groups of a warp.
template <typename L>
__device__ __forceinline__ int most_of_warp(int x) {
#pragma unroll
    for (int offset = 16; offset >= L::GROUP; offset /= 2) x = max(x, __shfl_xor_sync(kAll, x, offset));
    return x;
}

__device__ __forceinline__ float leaky_relu(float x, float slope) { return x > 0.0f ? x : slope * x; }
__device__ __forceinline__ float elu(float x) { return x > 0.0f ? x : expm1f(x); }
__device__ __forceinline__ float sigmoid(float x) {
    const float t = expf(-fabsf(x));
    return x >= 0.0f ? 1.0f / (1.0f + t) : t / (1.0f + t);
}
// As NumPy's: what is no number comes through.
__device__ __forceinline__ float larger(float x, float y) { return x > y || x != x ? x : y; }
__device__ __forceinline__ float smaller(float x, float y) { return x < y || x != x ? x : y; }

// Dropout: the epoch is in the device's memory, so that the same launch draws other numbers in another epoch.
struct Draws {
    const double *epoch;
    long long base, streams, place;

    __device__ __forceinline__ unsigned long long key() const {
        return mgg_key(
            static_cast<unsigned long long>(base), static_cast<unsigned long long>(epoch[0] * streams + place)
        );
    }
};

__device__ __forceinline__ float kept(
    unsigned long long key, long long row, unsigned long long column, float rate, float factor
) {
    return mgg_uniform(mgg_row_state(key, static_cast<unsigned long long>(row)), column) >= rate ? factor : 0.0f;
}

}  // namespace mgg

// The columns of a lane, and the arcs that a lane has under way.
#define MGG_EACH _Pragma("unroll") for (int e = 0; e < L::COUNT; ++e)
#define MGG_ARCS _Pragma("unroll") for (int u = 0; u < U; ++u)
#define MGG_BLOCKS _Pragma("unroll")
