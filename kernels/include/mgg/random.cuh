// Counter-based random numbers, the same as the host's (mgg/kernel/random.py). A number is
// mgg_uniform(mgg_row_state(mgg_key(base, stream), row), column); the host derives `base` from a seed.
// mgg/model/arrays/cuda_kernels.py prepends this text to its own kernels.
#ifndef MGG_RANDOM_CUH
#define MGG_RANDOM_CUH

__device__ __forceinline__ unsigned long long mgg_mix(unsigned long long x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}
__device__ __forceinline__ unsigned long long mgg_key(unsigned long long base, unsigned long long stream) {
    return mgg_mix(base + 0x9E3779B97F4A7C15ull * (stream + 1));
}
__device__ __forceinline__ unsigned long long mgg_row_state(unsigned long long key, unsigned long long row) {
    return mgg_mix(key + 0x9E3779B97F4A7C15ull * (row + 1));
}
__device__ __forceinline__ float mgg_uniform(unsigned long long state, unsigned long long column) {
    return (float)(mgg_mix(state + 0x9E3779B97F4A7C15ull * (column + 1)) >> 40) * 5.9604644775390625e-8f;
}

#endif
