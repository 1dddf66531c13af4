// What kernels/include/mgg/async.cuh has, for the host: nothing is copied before it is waited for.
#pragma once

#include <deque>
#include <vector>

#include "mgg/flags.cuh"

namespace mgg {

struct Copy { void *to; const void *from; int bytes; };
inline std::deque<std::vector<Copy>> under_way[1024];  // by thread, groups of copies
inline std::vector<Copy> open_group[1024];

// The bytes that all threads have asked for since the last call.
inline long bytes_asked = 0;
extern "C" __attribute__((used)) inline long host_copied() { return std::exchange(bytes_asked, 0); }

template <int BYTES, int WORDS>
void copy_once(unsigned (&shared)[WORDS], const void *global) {
    if (reinterpret_cast<size_t>(global) % BYTES) fprintf(stderr, "a copy is not aligned\n"), abort();
    open_group[threadIdx.x].push_back({shared, global, BYTES});
    bytes_asked += BYTES;
}
template <int VEC>
void copy_async(float *shared, const float *global) {
    if (reinterpret_cast<size_t>(global) % (4 * VEC)) fprintf(stderr, "a copy is not aligned\n"), abort();
    open_group[threadIdx.x].push_back({shared, global, 4 * VEC});
    bytes_asked += 4 * VEC;
}
inline void commit_copies() {
    under_way[threadIdx.x].push_back(std::move(open_group[threadIdx.x]));
    open_group[threadIdx.x].clear();
}
template <int LATER>
void wait_groups() {
    for (auto &groups = under_way[threadIdx.x]; groups.size() > LATER; groups.pop_front())
        for (const Copy &copy : groups.front()) memcpy(copy.to, copy.from, copy.bytes);
}
inline void wait_copies() {
    commit_copies();
    wait_groups<0>();
}

}  // namespace mgg
