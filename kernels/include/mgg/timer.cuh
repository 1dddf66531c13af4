// The GPU's timer, shared by all its launches.
#pragma once

namespace mgg {

// Nanoseconds.
__device__ __forceinline__ unsigned long long global_timer() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__device__ __forceinline__ void nap() { __nanosleep(100); }

}  // namespace mgg
