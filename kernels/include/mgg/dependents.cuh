// Programmatic dependent launch: a launch need not wait for the end of the launch before it on its stream. It may start
// once every block of that one has called let_dependents_start. Of the first launch's writes, it then sees those that
// came before a fence of the block that let it start; it sees later ones only through waits and acquires. Before sm_90
// there is no such mechanism, and launches run one after the other.
#pragma once

namespace mgg {

// Called by every block of the first launch: the second cannot start before that.
__device__ __forceinline__ void let_dependents_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Called in the second launch: wait until the first one has ended and its writes are visible.
__device__ __forceinline__ void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace mgg
