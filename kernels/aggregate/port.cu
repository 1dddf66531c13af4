// The port of a PE in a network that is emulated: messages have it one after the other; a stream waits until they have
// arrived. state: when the port is free, when the last message of each stream arrives, in nanoseconds of the GPU's timer;
// stream: its place in there.
#include "mgg/timer.cuh"

// A message leaves, which has the port for `taken` and arrives `latency` later. One thread of a warp.
extern "C" __global__ void port_take(
    unsigned long long *state, int stream, unsigned long long taken, unsigned long long latency
) {
    if (threadIdx.x) return;
    const unsigned long long now = mgg::global_timer();
    unsigned long long before = state[0], found, free;
    // Streams may take the port at the same time.
    do {
        found = before;
        free = (found > now ? found : now) + taken;
        before = atomicCAS(state, found, free);
    } while (before != found);
    atomicMax(state + stream, free + latency);
}

// Wait until all messages so far have arrived. One thread of a warp, which leaves the multiprocessor to others.
extern "C" __global__ void port_settle(const unsigned long long *state, int stream) {
    if (threadIdx.x) return;
    const unsigned long long due = *static_cast<const volatile unsigned long long *>(state + stream);
    while (mgg::global_timer() < due) mgg::nap();
}
