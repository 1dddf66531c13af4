// The port of a PE in an emulated network. Messages take the port one after the other; a stream waits until its
// messages have arrived. state: when the port is free, then when the last message of each stream arrives, in
// nanoseconds of the GPU's timer. stream: index of the stream in `state`.
#include "mgg/timer.cuh"

// Send a message that occupies the port for `taken` and arrives `latency` later. Runs in one thread of a warp.
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

// Wait until all messages so far have arrived. Runs in one thread of a warp, which leaves the multiprocessor to others.
extern "C" __global__ void port_settle(const unsigned long long *state, int stream) {
    if (threadIdx.x) return;
    const unsigned long long due = *static_cast<const volatile unsigned long long *>(state + stream);
    while (mgg::global_timer() < due) mgg::nap();
}
