// As much of CUDA C++ as kernels/model, gather.cu and pull.cu need, for the host: every thread of a warp is a context of
// its own, and shuffles are where they meet; the warps of a block come one after another. A lane that leaves, or shuffles elsewhere than the others, ends the program with a message.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

using std::max;
using std::min;

struct alignas(8) int2 { int x, y; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
inline int2 make_int2(int x, int y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline float __uint_as_float(unsigned bits) {
    float found;
    memcpy(&found, &bits, sizeof found);
    return found;
}
template <typename T>
T __ldg(const T *p) {
    if (reinterpret_cast<size_t>(p) % sizeof(T)) fprintf(stderr, "a load is not aligned\n"), abort();
    return *p;
}
inline int atomicAdd(int *p, int value) { return std::exchange(*p, *p + value); }
template <typename T>
T __ldcg(const T *p) { return __ldg(p); }
template <typename T>
unsigned long long __cvta_generic_to_shared(T *p) { return reinterpret_cast<unsigned long long>(p); }

namespace host {

struct Indices { unsigned x, y, z; };
constexpr int kLanes = 32;
constexpr size_t kStack = 64 << 10;

struct Lane {
    ucontext_t begin;
    jmp_buf here;
    bool started, done;
    int line;            // of the shuffle that it waits at
    unsigned long meetings;
    unsigned long long value[2];
    char stack[kStack];
};

inline thread_local std::vector<Lane> lanes;
inline thread_local int lane;
inline thread_local jmp_buf launcher;
inline thread_local Indices thread, block, block_size, grid_size;
inline thread_local void (*body)(void *);
inline thread_local void *argument;
inline thread_local unsigned first_thread;

inline void run() {
    body(argument);
    lanes[lane].done = true;
    _longjmp(launcher, 1);
}

// The next lane goes on until it meets the others or ends. Locals that outlive the jumps are none.
__attribute__((noinline)) inline void go_on(int which) {
    if (_setjmp(launcher)) return;
    lane = which;
    thread = {first_thread + which, 0, 0};
    Lane &mine = lanes[which];
    if (mine.started) _longjmp(mine.here, 1);
    mine.started = true;
    getcontext(&mine.begin);
    mine.begin.uc_stack.ss_sp = mine.stack;
    mine.begin.uc_stack.ss_size = kStack;
    mine.begin.uc_link = nullptr;
    makecontext(&mine.begin, run, 0);
    setcontext(&mine.begin);
}

inline void run_warp() {
    for (Lane &each : lanes) each.started = each.done = false, each.meetings = 0;
    while (true) {
        for (int which = 0; which < kLanes; ++which)
            if (!lanes[which].done) go_on(which);
        for (const Lane &each : lanes) {
            const bool elsewhere = each.line != lanes[0].line || each.meetings != lanes[0].meetings;
            if (each.done != lanes[0].done || (!each.done && elsewhere))
                fprintf(stderr, "the lanes of a warp do not meet at one place\n"), abort();
        }
        if (lanes[0].done) return;
    }
}

// Wait here for the other lanes of the warp.
__attribute__((noinline)) inline void meet(int line) {
    Lane &mine = lanes[lane];
    mine.line = line, ++mine.meetings;
    if (!_setjmp(mine.here)) _longjmp(launcher, 1);
}

template <typename T>
__attribute__((noinline)) T from_lane(T value, int other, int line) {
    static_assert(sizeof(T) <= 8);
    Lane &mine = lanes[lane];
    const int turn = mine.meetings % 2;  // a lane that is ahead writes the other one
    memcpy(&mine.value[turn], &value, sizeof value);
    meet(line);
    T found;
    memcpy(&found, &lanes[other & (kLanes - 1)].value[turn], sizeof found);
    return found;
}

template <typename... Arguments>
struct Kernel {
    template <size_t... I>
    static void call(void (*kernel)(Arguments...), void **given, std::index_sequence<I...>) {
        kernel(*static_cast<Arguments *>(given[I])...);
    }
    static void launch(void (*kernel)(Arguments...), void **given, const unsigned *grid, unsigned threads) {
        struct Call { void (*kernel)(Arguments...); void **given; } made{kernel, given};
        if (threads % kLanes) fprintf(stderr, "a block has parts of a warp\n"), abort();
        lanes.resize(kLanes);
        body = [](void *call) {
            auto *one = static_cast<Call *>(call);
            Kernel::call(one->kernel, one->given, std::index_sequence_for<Arguments...>());
        };
        argument = &made;
        grid_size = {grid[0], grid[1], 1}, block_size = {threads, 1, 1};
        for (unsigned y = 0; y < grid[1]; ++y)
            for (unsigned x = 0; x < grid[0]; ++x)
                for (first_thread = 0; first_thread < threads; first_thread += kLanes) {
                    block = {x, y, 0};
                    run_warp();
                }
    }
    // The size of each argument, negative where it is a floating-point number.
    static int sizes(void (*)(Arguments...), int *found) {
        int count = 0;
        ((found[count++] = std::is_floating_point<Arguments>::value ? -int(sizeof(Arguments)) : int(sizeof(Arguments))), ...);
        return count;
    }
};
template <typename... Arguments>
Kernel<Arguments...> kernel_of(void (*)(Arguments...));

}  // namespace host

#define threadIdx host::thread
#define blockIdx host::block
#define blockDim host::block_size
#define gridDim host::grid_size

#define __shfl_xor_sync(mask, value, offset) host::from_lane(value, host::lane ^ (offset), __LINE__)
#define __shfl_sync(mask, value, other) host::from_lane(value, other, __LINE__)
#define __syncwarp() host::meet(__LINE__)
#define __threadfence() ((void)0)
#define __syncthreads() host::meet(__LINE__)  // for what one warp does before the others

// extern "C" functions with which the kernel is launched from addresses of its arguments.
#define HOST_KERNEL(name)                                                                          \
    extern "C" void host_##name(void **given, const unsigned *grid, unsigned threads) {            \
        decltype(host::kernel_of(name))::launch(name, given, grid, threads);                       \
    }                                                                                              \
    extern "C" int host_sizes_##name(int *found) { return decltype(host::kernel_of(name))::sizes(name, found); }
