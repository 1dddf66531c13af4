// Vectors of 1, 2 or 4 floats: loads, sums and stores of one lane.
#pragma once

// Shared memory whose size the launch sets. Host builds define this macro themselves.
#ifndef MGG_DYNAMIC_SHARED
#define MGG_DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]
#endif

namespace mgg {

template <int VEC>
struct alignas(4 * VEC) Pack {
    float v[VEC];
};

template <int VEC>
__device__ __forceinline__ Pack<VEC> zero() {
    Pack<VEC> pack;
#pragma unroll
    for (int i = 0; i < VEC; ++i) pack.v[i] = 0.0f;
    return pack;
}

// An element of a row of B: a float, or a bfloat16 as its 16 bits. Sums are floats.
#ifdef MGG_BF16
using Element = unsigned short;
#else
using Element = float;
#endif

// Load WORDS 32-bit words from p, which is aligned to their total size. MGG_COHERENT: this launch may have written the
// memory, before a flag that this thread or its block has acquired. Otherwise the memory is read-only.
template <int WORDS>
__device__ __forceinline__ void load_words(unsigned (&w)[WORDS], const void *p) {
#ifdef MGG_COHERENT
    if constexpr (WORDS == 4)
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "l"(p));
    else if constexpr (WORDS == 2)
        asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(p));
    else
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(w[0]) : "l"(p));
#else
    if constexpr (WORDS == 4) {
        const uint4 x = __ldg(static_cast<const uint4 *>(p));
        w[0] = x.x, w[1] = x.y, w[2] = x.z, w[3] = x.w;
    } else if constexpr (WORDS == 2) {
        const uint2 x = __ldg(static_cast<const uint2 *>(p));
        w[0] = x.x, w[1] = x.y;
    } else {
        w[0] = __ldg(static_cast<const unsigned *>(p));
    }
#endif
}

// VEC elements in their memory format.
template <int VEC>
struct Raw {
    static constexpr int WORDS = VEC * sizeof(Element) < 4 ? 1 : VEC * sizeof(Element) / 4;
    unsigned w[WORDS];
};

// Load VEC elements through L1; p is aligned to their total size.
template <int VEC>
__device__ __forceinline__ Raw<VEC> load_raw(const Element *p) {
    Raw<VEC> raw;
    if constexpr (VEC * sizeof(Element) == 2) {
        unsigned short x;
#ifdef MGG_COHERENT
        asm volatile("ld.global.u16 %0, [%1];" : "=h"(x) : "l"(p));
#else
        x = __ldg(reinterpret_cast<const unsigned short *>(p));
#endif
        raw.w[0] = x;
    } else {
        load_words(raw.w, p);
    }
    return raw;
}

template <int VEC>
__device__ __forceinline__ Pack<VEC> unpack(const Raw<VEC> &raw) {
    Pack<VEC> pack;
#ifdef MGG_BF16
#pragma unroll
    for (int i = 0; i < VEC; ++i) pack.v[i] = __uint_as_float(i % 2 ? raw.w[i / 2] & 0xffff0000u : raw.w[i / 2] << 16);
#else
#pragma unroll
    for (int i = 0; i < VEC; ++i) pack.v[i] = __uint_as_float(raw.w[i]);
#endif
    return pack;
}

template <int VEC>
__device__ __forceinline__ Pack<VEC> load(const Element *p) {
    return unpack<VEC>(load_raw<VEC>(p));
}

// Whether a lane's VEC floats at p can be read and written 4 at a time (2 with VEC = 2). Rows of a caller's matrix may
// begin anywhere: D = 47 has rows of 188 bytes.
template <int VEC>
__device__ __forceinline__ bool aligned(const float *p) {
    return reinterpret_cast<unsigned long long>(p) % (4 * (VEC < 4 ? VEC : 4)) == 0;
}

// Load the first `count` of VEC floats (1..VEC); the others are 0. Other launches have written them, or other warps
// before a fence, so the load bypasses L1.
template <int VEC>
__device__ __forceinline__ Pack<VEC> load_sum(const float *p, int count = VEC) {
    Pack<VEC> pack;
    if (VEC > 1 && (count < VEC || !aligned<VEC>(p))) {
#pragma unroll
        for (int i = 0; i < VEC; ++i) pack.v[i] = i < count ? __ldcg(p + i) : 0.0f;
    } else if constexpr (VEC % 4 == 0) {
#pragma unroll
        for (int i = 0; i < VEC; i += 4) {
            const float4 x = __ldcg(reinterpret_cast<const float4 *>(p + i));
            pack.v[i] = x.x, pack.v[i + 1] = x.y, pack.v[i + 2] = x.z, pack.v[i + 3] = x.w;
        }
    } else if constexpr (VEC == 2) {
        const float2 x = __ldcg(reinterpret_cast<const float2 *>(p));
        pack.v[0] = x.x, pack.v[1] = x.y;
    } else {
        pack.v[0] = __ldcg(p);
    }
    return pack;
}

// What lanes without work load. A predicated load would have to merge with the zeros of its registers, and the compiler
// would then wait between the loads of a run.
__device__ const float4 zeros = {0.0f, 0.0f, 0.0f, 0.0f};

template <int VEC>
__device__ __forceinline__ Raw<VEC> load_if(bool wanted, const Element *p) {
    return load_raw<VEC>(wanted ? p : reinterpret_cast<const Element *>(&zeros));
}

template <int VEC>
__device__ __forceinline__ void add(Pack<VEC> &sum, const Pack<VEC> &x) {
#pragma unroll
    for (int i = 0; i < VEC; ++i) sum.v[i] += x.v[i];
}

template <int VEC>
__device__ __forceinline__ void scale(Pack<VEC> &x, float factor) {
#pragma unroll
    for (int i = 0; i < VEC; ++i) x.v[i] *= factor;
}

// Store the first `count` floats (1..VEC; fewer only at the end of a padded row).
template <int VEC>
__device__ __forceinline__ void store(float *p, const Pack<VEC> &x, int count) {
    if (count >= VEC && aligned<VEC>(p)) {
        constexpr int PART = VEC < 4 ? VEC : 4;
#pragma unroll
        for (int i = 0; i < VEC; i += PART) {
            Pack<PART> part;
#pragma unroll
            for (int k = 0; k < PART; ++k) part.v[k] = x.v[i + k];
            *reinterpret_cast<Pack<PART> *>(p + i) = part;
        }
    } else {
#pragma unroll
        for (int i = 0; i < VEC; ++i)
            if (i < count) p[i] = x.v[i];
    }
}

// The same for elements in their memory format; p is aligned to the total size of VEC of them.
template <int VEC>
__device__ __forceinline__ void store_raw(Element *p, const Raw<VEC> &raw, int count) {
    if constexpr (VEC * sizeof(Element) >= 4) {
        struct alignas(4 * Raw<VEC>::WORDS) Words {
            Raw<VEC> raw;
        };
        if (count >= VEC) {
            *reinterpret_cast<Words *>(p) = {raw};
            return;
        }
    }
#pragma unroll
    for (int i = 0; i < VEC; ++i)
        if (i < count) {
#ifdef MGG_BF16
            p[i] = static_cast<Element>(raw.w[i / 2] >> i % 2 * 16);
#else
            p[i] = __uint_as_float(raw.w[i]);
#endif
        }
}

// Add to memory that other warps also add to: 16 bytes at once from Hopper on.
template <int VEC>
__device__ __forceinline__ void atomic_add(float *p, const Pack<VEC> &x, int count) {
#if __CUDA_ARCH__ >= 900
    if constexpr (VEC == 4) {
        if (count >= VEC && aligned<VEC>(p)) {
            atomicAdd(reinterpret_cast<float4 *>(p), make_float4(x.v[0], x.v[1], x.v[2], x.v[3]));
            return;
        }
    } else if constexpr (VEC == 2) {
        if (count >= VEC && aligned<VEC>(p)) {
            atomicAdd(reinterpret_cast<float2 *>(p), make_float2(x.v[0], x.v[1]));
            return;
        }
    }
#endif
#pragma unroll
    for (int i = 0; i < VEC; ++i)
        if (i < count) atomicAdd(p + i, x.v[i]);
}

// Address of column `column` of row `row` of a row-major matrix; strides are counted in elements.
template <typename T, typename Row>
__device__ __forceinline__ T *at(T *matrix, Row row, int stride, int column) {
    return matrix + static_cast<long long>(row) * stride + column;
}

}  // namespace mgg
