// What a first launch takes of kernels/include/mgg/dependents.cuh, for the host.
#pragma once

namespace mgg {

// Told of every thread that lets the second launch start.
extern "C" {
inline void (*host_started)() = nullptr;
__attribute__((used)) inline void host_tell_start(void (*told)()) { host_started = told; }
}

inline void let_dependents_start() {
    if (host_started) host_started();
}

}  // namespace mgg
