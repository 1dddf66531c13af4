// Flags and counters between the blocks of a launch and between the launches of several GPUs.
#pragma once

namespace mgg {

// Set a flag. Whoever sees it, on any GPU, also sees every write that this thread has seen so far.
__device__ __forceinline__ void set_flag(int *flag, int value) {
    asm volatile("st.release.sys.global.s32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

// Whether a growing number has reached `value`. Both may have wrapped around. Hence the unsigned difference: signed
// numbers must not overflow.
__device__ __forceinline__ bool reached(int found, int value) {
    return static_cast<int>(static_cast<unsigned>(found) - static_cast<unsigned>(value)) >= 0;
}

// Wait until a flag that another GPU sets has reached `value`; numbers may wrap around.
__device__ __forceinline__ void wait_flag(const int *flag, int value) {
    int found;
    do {
        asm volatile("ld.acquire.sys.global.s32 %0, [%1];" : "=r"(found) : "l"(flag) : "memory");
    } while (!reached(found, value));
}

// Wait until a counter of this GPU has reached `value`. The load is relaxed, so it makes no earlier writes visible.
__device__ __forceinline__ void wait_count(const int *counter, int value) {
    while (true) {
        int found;
        asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(found) : "l"(counter) : "memory");
        if (reached(found, value)) return;
        __nanosleep(100);
    }
}

// Wait, as a whole warp, until the first `count` counters of this GPU have reached `value`. One fence serves all of
// them, because each fence drops what L1 holds.
__device__ __forceinline__ void wait_counts(const int *counters, int count, int value) {
    for (int i = threadIdx.x & 31; i < count; i += 32) wait_count(counters + i, value);
    __syncwarp();
    asm volatile("fence.acq_rel.gpu;" ::: "memory");  // by every lane that has read
}

// Publish a number to another launch of this GPU that may start next. That launch reads it without waiting, so the
// number must be visible before it starts: hence the fence after the store.
__device__ __forceinline__ void set_number(unsigned *number, unsigned value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(number), "r"(value) : "memory");
    __threadfence();
}

__device__ __forceinline__ unsigned get_number(const unsigned *number) {
    unsigned found;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(number) : "memory");
    return found;
}

// Add to a counter of this GPU and return the value before. Ordered after the writes that this thread has seen and
// before what it does next.
__device__ __forceinline__ int add_acq_rel(int *counter, int count) {
    int before;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(count) : "memory");
    return before;
}

// The same without a result, for a thread that reads nothing afterwards (release only).
__device__ __forceinline__ void add_release(int *counter, int count) {
    asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(counter), "r"(count) : "memory");
}

// Load BYTES from a peer's memory, bypassing L1.
template <int BYTES, int WORDS>
__device__ __forceinline__ void load_peer(unsigned (&w)[WORDS], const void *p) {
    if constexpr (BYTES == 16)
        asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "l"(p));
    else if constexpr (BYTES == 8)
        asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(p));
    else if constexpr (BYTES == 4)
        asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(w[0]) : "l"(p));
    else
        asm volatile("{.reg .u16 x; ld.relaxed.sys.global.u16 x, [%1]; cvt.u32.u16 %0, x;}" : "=r"(w[0]) : "l"(p));
}

template <int BYTES, int WORDS>
__device__ __forceinline__ void store_words(void *p, const unsigned (&w)[WORDS]) {
    if constexpr (BYTES == 16)
        *static_cast<uint4 *>(p) = make_uint4(w[0], w[1], w[2], w[3]);
    else if constexpr (BYTES == 8)
        *static_cast<uint2 *>(p) = make_uint2(w[0], w[1]);
    else if constexpr (BYTES == 4)
        *static_cast<unsigned *>(p) = w[0];
    else
        *static_cast<unsigned short *>(p) = static_cast<unsigned short>(w[0]);
}

}  // namespace mgg
