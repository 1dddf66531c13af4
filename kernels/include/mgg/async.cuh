// Asynchronous copies from global memory, also a peer's, to shared memory. A thread goes on with other work while its
// copies are under way, and waits only for its own. Copies under way use no registers.
#pragma once

#include "mgg/flags.cuh"

namespace mgg {

// Copy 4 * VEC bytes from global memory, also a peer's, to shared memory without waiting; see wait_copies.
template <int VEC>
__device__ __forceinline__ void copy_async(float *shared, const float *global) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(4 * VEC) : "memory");
}

// Close a group of this thread's copies; it may be empty.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait until all groups of this thread except the last `LATER` have arrived.
template <int LATER>
__device__ __forceinline__ void wait_groups() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
}

// Wait until every copy_async of this thread has arrived.
__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Copy BYTES that nobody else reads, bypassing L1 where the hardware has such a copy.
template <int BYTES, int WORDS>
__device__ __forceinline__ void copy_once(unsigned (&shared)[WORDS], const void *global) {
    const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
    else if constexpr (BYTES >= 4)
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(BYTES) : "memory");
    else
        load_peer<BYTES>(shared, global);  // cp.async has no copy this narrow, so this one blocks
}

}  // namespace mgg
