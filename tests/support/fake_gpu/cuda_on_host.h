// As much of CUDA C++ as generated kernels, kernels/lookup, gather.cu, rows.cu, columns.cu, mgg.cu, gnnadvisor.cu, wire.cu and
// pull.cu need, for the host: every thread of a warp is a context of its own, and shuffles are where they meet; the warps of a block
// come one after another, each up to where the block meets. A lane that leaves, or shuffles elsewhere than the others, ends
// the program with a message.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

using std::isnan;
using std::max;
using std::min;

struct alignas(8) int2 { int x, y; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
inline int2 make_int2(int x, int y) { return {x, y}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline float __uint_as_float(unsigned bits) {
    float found;
    memcpy(&found, &bits, sizeof found);
    return found;
}
inline unsigned __float_as_uint(float number) {
    unsigned found;
    memcpy(&found, &number, sizeof found);
    return found;
}
template <typename T>
T __ldg(const T *p) {
    if (reinterpret_cast<size_t>(p) % sizeof(T)) fprintf(stderr, "a load is not aligned\n"), abort();
    return *p;
}
template <typename T>
T atomicAdd(T *p, T value) { return std::exchange(*p, *p + value); }
inline unsigned atomicInc(unsigned *p, unsigned most) { return std::exchange(*p, *p >= most ? 0 : *p + 1); }
template <typename T>
T atomicMax(T *p, T value) { return std::exchange(*p, *p > value ? *p : value); }
template <typename T>
T atomicCAS(T *p, T expected, T value) { return std::exchange(*p, *p == expected ? value : *p); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(unsigned bits) { return __builtin_ffs(static_cast<int>(bits)); }
template <typename T>
T __ldcg(const T *p) { return __ldg(p); }
template <typename T>
unsigned long long __cvta_generic_to_shared(T *p) { return reinterpret_cast<unsigned long long>(p); }

namespace host {

struct Indices { unsigned x, y, z; };
constexpr int kLanes = 32;
constexpr size_t kStack = 64 << 10;

struct Lane {
    jmp_buf here;
    bool started = false, done, waits = false;  // waits: for the block's other warps
    int line;            // of the shuffle that it waits at
    unsigned long meetings;
    unsigned long long value[2];
};

// What a thread of the host launches, of which one pointer is looked up: looking up each is what takes longest.
struct Warp {
    Lane lanes[kLanes];
    jmp_buf launcher;
    int lane;
    Indices thread, block, block_size, grid_size;
    void (*body)(void *);
    void *argument;
    unsigned first_thread;
    char stacks[kLanes][kStack];
};
static thread_local Warp *warp = nullptr;

// What a lane does of one warp after the other: contexts are made once.
inline void run() {
    while (true) {
        warp->body(warp->argument);
        Lane &mine = warp->lanes[warp->lane];
        mine.done = true;
        if (!_setjmp(mine.here)) _longjmp(warp->launcher, 1);
    }
}

// The next lane goes on until it meets the others or ends. Locals that outlive the jumps are none.
__attribute__((noinline)) inline void go_on(int which) {
    Warp &all = *warp;
    if (_setjmp(all.launcher)) return;
    all.lane = which;
    all.thread = {all.first_thread + which, 0, 0};
    Lane &mine = all.lanes[which];
    if (mine.started) _longjmp(mine.here, 1);
    mine.started = true;
    ucontext_t begin;
    getcontext(&begin);
    begin.uc_stack.ss_sp = all.stacks[which];
    begin.uc_stack.ss_size = kStack;
    begin.uc_link = nullptr;
    makecontext(&begin, run, 0);
    setcontext(&begin);
}

// Until the warp ends, or, which gives false, waits for the block's other warps.
inline bool run_warp() {
    Lane *lanes = warp->lanes;
    while (true) {
        for (int which = 0; which < kLanes; ++which)
            if (!lanes[which].done) go_on(which);
        for (int which = 0; which < kLanes; ++which) {
            const Lane &each = lanes[which];
            const bool elsewhere = each.line != lanes[0].line || each.meetings != lanes[0].meetings;
            if (each.done != lanes[0].done || (!each.done && elsewhere))
                fprintf(stderr, "the lanes of a warp do not meet at one place\n"), abort();
        }
        if (lanes[0].done || lanes[0].waits) return lanes[0].done;
    }
}

// The warps of a block, those that a thread of the host has had so far.
static thread_local std::vector<std::unique_ptr<Warp>> warps;
// A block's shared memory whose size is the launch's: nothing is there before it is written.
constexpr size_t kShared = 64 << 10;
alignas(16) static thread_local unsigned char shared[kShared];

inline void run_block(unsigned count) {
    memset(shared, 0xff, kShared);
    unsigned running = count;
    std::vector<bool> ended(count);
    for (unsigned which = 0; which < count; ++which)
        for (Lane &lane : warps[which]->lanes) lane.done = lane.waits = false, lane.meetings = 0;
    while (running)
        for (unsigned which = 0; which < count; ++which) {
            if (ended[which]) continue;
            warp = warps[which].get();
            if (run_warp()) ended[which] = true, --running;
        }
}

// Wait here for the other lanes of the warp.
__attribute__((noinline)) inline void meet(int line) {
    Warp &all = *warp;
    Lane &mine = all.lanes[all.lane];
    mine.line = line, ++mine.meetings;
    if (!_setjmp(mine.here)) _longjmp(all.launcher, 1);
}

// And for the other warps of the block.
inline void meet_block(int line) {
    warp->lanes[warp->lane].waits = true;
    meet(line);
    warp->lanes[warp->lane].waits = false;
}

template <typename T>
__attribute__((noinline)) T from_lane(T value, int other, int line) {
    static_assert(sizeof(T) <= 8);
    Lane *lanes = warp->lanes, &mine = lanes[warp->lane];
    const int turn = mine.meetings % 2;  // a lane that is ahead writes the other one
    memcpy(&mine.value[turn], &value, sizeof value);
    meet(line);
    T found;
    memcpy(&found, &lanes[other & (kLanes - 1)].value[turn], sizeof found);
    return found;
}

// What lane `other` of the lane's group of `width` has.
template <typename T>
T shuffle(T value, int line, int other, int width = kLanes) {
    return from_lane(value, (warp->lane & ~(width - 1)) | (other & (width - 1)), line);
}

// Bit i: whether lane i says so.
inline unsigned ballot(bool mine, int line) {
    unsigned found = 0;
    for (int other = 0; other < kLanes; ++other) found |= unsigned(from_lane(int(mine), other, line)) << other;
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
        const unsigned count = threads / kLanes;
        while (warps.size() < count) warps.push_back(std::make_unique<Warp>());
        for (unsigned which = 0; which < count; ++which) {
            Warp &each = *warps[which];
            each.body = [](void *call) {
                auto *one = static_cast<Call *>(call);
                Kernel::call(one->kernel, one->given, std::index_sequence_for<Arguments...>());
            };
            each.argument = &made, each.first_thread = which * kLanes;
            each.grid_size = {grid[0], grid[1], 1}, each.block_size = {threads, 1, 1};
        }
        for (unsigned y = 0; y < grid[1]; ++y)
            for (unsigned x = 0; x < grid[0]; ++x) {
                for (unsigned which = 0; which < count; ++which) warps[which]->block = {x, y, 0};
                run_block(count);
            }
    }
    // The size of each argument, negative where it is a floating-point number; of a pointer to such numbers also theirs,
    // in the second byte.
    template <typename Argument>
    static constexpr int size() {
        using Entry = std::remove_pointer_t<Argument>;
        if constexpr (std::is_floating_point_v<Argument>) return -int(sizeof(Argument));
        if constexpr (std::is_floating_point_v<Entry>) return int(sizeof(Argument) | sizeof(Entry) << 8);
        return int(sizeof(Argument));
    }
    static int sizes(void (*)(Arguments...), int *found) {
        int count = 0;
        ((found[count++] = size<Arguments>()), ...);
        return count;
    }
};
template <typename... Arguments>
Kernel<Arguments...> kernel_of(void (*)(Arguments...));

}  // namespace host

#define threadIdx host::warp->thread
#define blockIdx host::warp->block
#define blockDim host::warp->block_size
#define gridDim host::warp->grid_size

#define __shfl_xor_sync(mask, value, offset) host::from_lane(value, host::warp->lane ^ (offset), __LINE__)
#define __shfl_sync(mask, value, ...) host::shuffle(value, __LINE__, __VA_ARGS__)
#define __ballot_sync(mask, mine) host::ballot(mine, __LINE__)
#define __syncwarp() host::meet(__LINE__)
#define __threadfence() ((void)0)
#define __syncthreads() host::meet_block(__LINE__)
#define MGG_DYNAMIC_SHARED(type, name) type *name = reinterpret_cast<type *>(host::shared)
// For what the source has and no kernel that is built for the host calls.
#define __syncthreads_or(mine) (fprintf(stderr, "a block meets as a whole\n"), abort(), 0)

// extern "C" functions with which the kernel is launched from addresses of its arguments.
#define HOST_KERNEL(name)                                                                          \
    extern "C" void host_##name(void **given, const unsigned *grid, unsigned threads) {            \
        decltype(host::kernel_of(name))::launch(name, given, grid, threads);                       \
    }                                                                                              \
    extern "C" int host_sizes_##name(int *found) { return decltype(host::kernel_of(name))::sizes(name, found); }
