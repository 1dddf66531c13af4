// Loads for data that is read once. They leave L1 to data that is read again.
#pragma once

namespace mgg {

__device__ __forceinline__ int load_once(const int *p) {
    int x;
    asm volatile("ld.global.nc.L1::no_allocate.s32 %0, [%1];" : "=r"(x) : "l"(p));
    return x;
}

__device__ __forceinline__ long long load_once(const long long *p) {
    long long x;
    asm volatile("ld.global.nc.L1::no_allocate.s64 %0, [%1];" : "=l"(x) : "l"(p));
    return x;
}

__device__ __forceinline__ float load_once(const float *p) {
    float x;
    asm volatile("ld.global.nc.L1::no_allocate.f32 %0, [%1];" : "=f"(x) : "l"(p));
    return x;
}

}  // namespace mgg
