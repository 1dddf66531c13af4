// Vectors of 1, 2 or 4 floats: loads, sums and stores of one lane.
#pragma once

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

// A read-only load through L1; p is aligned to 4 * VEC bytes.
template <int VEC>
__device__ __forceinline__ Pack<VEC> load(const float *p) {
    Pack<VEC> pack;
    if constexpr (VEC == 4) {
        const float4 x = __ldg(reinterpret_cast<const float4 *>(p));
        pack.v[0] = x.x, pack.v[1] = x.y, pack.v[2] = x.z, pack.v[3] = x.w;
    } else if constexpr (VEC == 2) {
        const float2 x = __ldg(reinterpret_cast<const float2 *>(p));
        pack.v[0] = x.x, pack.v[1] = x.y;
    } else {
        pack.v[0] = __ldg(p);
    }
    return pack;
}

// What lanes without work load: a predicated load would have to merge with the zeros of its registers, and the compiler
// then waits between the loads of a run.
__device__ const float4 zeros = {0.0f, 0.0f, 0.0f, 0.0f};

template <int VEC>
__device__ __forceinline__ Pack<VEC> load_if(bool wanted, const float *p) {
    return load<VEC>(wanted ? p : reinterpret_cast<const float *>(&zeros));
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

// Store the first `count` floats (1..VEC; fewer only at the end of a padded row); p is aligned to 4 * VEC bytes.
template <int VEC>
__device__ __forceinline__ void store(float *p, const Pack<VEC> &x, int count) {
    if (count >= VEC) {
        *reinterpret_cast<Pack<VEC> *>(p) = x;
    } else {
#pragma unroll
        for (int i = 0; i < VEC; ++i)
            if (i < count) p[i] = x.v[i];
    }
}

// Add to memory that other warps add to as well: 16 bytes at once from Hopper on.
template <int VEC>
__device__ __forceinline__ void atomic_add(float *p, const Pack<VEC> &x, int count) {
#if __CUDA_ARCH__ >= 900
    if constexpr (VEC == 4) {
        if (count >= VEC) {
            atomicAdd(reinterpret_cast<float4 *>(p), make_float4(x.v[0], x.v[1], x.v[2], x.v[3]));
            return;
        }
    } else if constexpr (VEC == 2) {
        if (count >= VEC) {
            atomicAdd(reinterpret_cast<float2 *>(p), make_float2(x.v[0], x.v[1]));
            return;
        }
    }
#endif
#pragma unroll
    for (int i = 0; i < VEC; ++i)
        if (i < count) atomicAdd(p + i, x.v[i]);
}

// Copy 4 * VEC bytes from global memory (a peer's, too) to shared memory without waiting; see wait_copies.
template <int VEC>
__device__ __forceinline__ void copy_async(float *shared, const float *global) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(4 * VEC) : "memory");
}

// Wait until every copy_async of this thread has arrived.
__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Address of column `column` of row `row` of a row-major matrix; strides are counted in floats.
template <typename Index>
__device__ __forceinline__ const float *at(const float *matrix, Index row, int stride, int column) {
    return matrix + static_cast<long long>(row) * stride + column;
}

template <typename Index>
__device__ __forceinline__ float *at(float *matrix, Index row, int stride, int column) {
    return matrix + static_cast<long long>(row) * stride + column;
}

}  // namespace mgg
