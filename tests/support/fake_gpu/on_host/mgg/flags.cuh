// What kernels/include/mgg/flags.cuh has, for the host, where blocks come one after another: a flag that is not there when
// it is waited for never comes, which ends the program.
#pragma once

namespace mgg {

// Told of every counter that is raised, and what it stands at then.
extern "C" {
inline void (*host_raised)(const int *counter, int value) = nullptr;
__attribute__((used)) void host_tell(void (*told)(const int *, int)) { host_raised = told; }
}

inline void set_flag(int *flag, int value) { *flag = value; }
inline void wait_flag(const int *flag, int value) {
    if (*flag - value < 0) fprintf(stderr, "waits for ever\n"), abort();
}
inline void wait_count(const int *counter, int value) { wait_flag(counter, value); }
inline int add_acq_rel(int *counter, int count) {
    *counter += count;
    if (host_raised) host_raised(counter, *counter);
    return *counter - count;
}
inline void set_number(unsigned *number, unsigned value) { *number = value; }
inline unsigned get_number(const unsigned *number) { return *number; }
inline void add_release(int *counter, int count) { add_acq_rel(counter, count); }

template <int BYTES, int WORDS>
void load_peer(unsigned (&w)[WORDS], const void *p) { memcpy(w, p, BYTES); }
template <int BYTES, int WORDS>
void store_words(void *p, const unsigned (&w)[WORDS]) {
    if (reinterpret_cast<size_t>(p) % BYTES) fprintf(stderr, "a store is not aligned\n"), abort();
    memcpy(p, w, BYTES);
}

}  // namespace mgg
