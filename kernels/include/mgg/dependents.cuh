// A launch that follows another one on its stream and need not wait for its end (programmatic dependent launch): it may
// start as soon as every block of the first one has said so. Of what that wrote it sees what was there before a fence of
// the block that let it start, and later what it waits for and acquires. Before sm_90 there is no such thing, and launches take turns.
#pragma once

namespace mgg {

// By every block of the first launch: nothing of the second may start before.
__device__ __forceinline__ void let_dependents_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// In the second launch: until the first one is over, and what it wrote is seen.
__device__ __forceinline__ void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace mgg
