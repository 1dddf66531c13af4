// Building blocks of the generated kernels of vertex programs (mgg/vertex/cuda/__init__.py): a lane's part of a row,
// reductions across lanes, and sums that lanes, warps and launches add up in a fixed order.
//
// A piece is a row or a part of a long one (mgg/kernel/schedule.py). GROUP lanes take a piece. LANES of them, side by
// side, take the columns of an arc, so GROUP / LANES arcs are processed at once. Columns are those of heads, with
// HEAD_LANES lanes per head. Each lane has VEC columns, then the VEC columns HEAD_LANES * VEC further on, PARTS times
// in all.
#pragma once

#include "mgg/random.cuh"
#include "mgg/warp.cuh"

namespace mgg {

// The larger of the two; NaN propagates.
__device__ __forceinline__ float highest(float x, float y) {
#ifdef __CUDA_ARCH__
    float found;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
    return found;
#else
    return x > y || x != x ? x : y;
#endif
}

// Raise `top`, the highest score so far, to `score` if that is higher. Returns the factor for all values that are
// relative to `top`.
__device__ __forceinline__ float raise(float &top, float score) {
    const float before = top;
    top = highest(before, score);
    return before == top ? 1.0f : expf(before - top);
}

template <int GROUP_, int LANES_, int HEAD_LANES_, int VEC_, int PARTS_>
struct Lanes {
    static constexpr int GROUP = GROUP_, LANES = LANES_, HEAD_LANES = HEAD_LANES_, VEC = VEC_, PARTS = PARTS_;
    static constexpr int ARCS = GROUP / LANES;     // at once
    static constexpr int COUNT = VEC * PARTS;      // columns of a lane
    static constexpr int STEP = HEAD_LANES * VEC;  // from part to part

    static constexpr int HEADS = LANES / HEAD_LANES;  // of a tile
    static constexpr int WINDOW = GROUP / HEADS;      // arcs; each lane computes one head's numbers of one

    // The arc of its row that a lane has under way, and the lane that computed this arc's numbers.
    static __device__ __forceinline__ int arc(int base, int step, int mine) { return base + step * ARCS + mine; }
    static __device__ __forceinline__ int holder(int first, int step) { return first + step * ARCS * HEADS; }

    // The offset of a lane's column `e` from its first one.
    static __device__ __forceinline__ constexpr int place(int e) { return e / VEC * STEP + e % VEC; }

    // x = this lane's columns of `row`, which ends after `columns`; values beyond its end are arbitrary. Rows have room
    // for all columns of a lane if they are ALIGNED, or if they are `step` numbers apart and `step` is a multiple of
    // VEC.
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

    // The sum over the lanes of a head, in each of them.
    static __device__ __forceinline__ float of_head(float x) {
#pragma unroll
        for (int offset = HEAD_LANES / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAll, x, offset);
        return x;
    }
    // Reductions over the arcs that are processed at once: each lane gets the result over all lanes with its columns.
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
    // Reductions over the arcs of a window: all lanes of a head get its result.
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
    // Raise `top`, the highest of a head's scores so far, to the window's highest score if that is higher. Returns the
    // factor for all values that are relative to `top`.
    static __device__ __forceinline__ float narrow_raise(float &top, float score) {
#pragma unroll
        for (int offset = GROUP / 2; offset >= HEADS; offset /= 2) {
            score = highest(score, __shfl_xor_sync(kAll, score, offset));
        }
        return raise(top, score);
    }
    // Raise `top` to the highest over the arcs that are processed at once. Returns the factor for this lane's values
    // that are relative to its own `top`.
    static __device__ __forceinline__ float meet(float &top) {
        const float mine = top;
        extreme<true>(top);
        return mine == top ? 1.0f : expf(mine - top);
    }
    // Update the extreme so far; NaN stays.
    template <bool LARGEST>
    static __device__ __forceinline__ void take_extreme(float &x, float other) {
        if ((LARGEST ? other > x : other < x) || other != other) x = other;
    }
};

// The arc that has the extreme. Among equal ones it is the arc whose source has the lowest id, and among those the
// first.
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

// The maximum over all groups of a warp.
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
// Like NumPy's maximum and minimum: NaN propagates.
__device__ __forceinline__ float larger(float x, float y) { return x > y || x != x ? x : y; }
__device__ __forceinline__ float smaller(float x, float y) { return x < y || x != x ? x : y; }

// Random numbers of dropout. The epoch is in the device's memory, so that the same launch draws other numbers in
// another epoch.
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

// Loops over the columns of a lane, and over the arcs that a lane has under way.
#define MGG_EACH _Pragma("unroll") for (int e = 0; e < L::COUNT; ++e)
#define MGG_ARCS _Pragma("unroll") for (int u = 0; u < U; ++u)
#define MGG_BLOCKS _Pragma("unroll")
