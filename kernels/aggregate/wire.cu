// Rows that cross between workgroups in few bits: the sender packs them, the receiver unpacks them. The format is that
// of mgg/kernel/wire.py, whose loops produce the same bits: words of scales, one per group of 32 columns, then words of
// codes.
//
// Nothing here depends on whether the compiler fuses a product with a sum: a code times its scale has at most 16 bits,
// so the product is exact.
#include "mgg/random.cuh"
#include "mgg/warp.cuh"

namespace mgg {

constexpr int kThreads = 256;
// Eight lanes per row, each with four columns of a group.
constexpr int kTeam = 8, kEach = 4, kColumns = kTeam * kEach;
constexpr unsigned kNoNumber = 0x7fc0u;

// The integers order as the floats do; NaN lies beyond the infinities.
__device__ __forceinline__ int ordered(float x) {
    const int bits = static_cast<int>(__float_as_uint(x));
    return bits ^ ((bits >> 31) & 0x7fffffff);
}
__device__ __forceinline__ float from_ordered(int order) {
    return __uint_as_float(static_cast<unsigned>(order ^ ((order >> 31) & 0x7fffffff)));
}

// The nearest bfloat16, ties to even, as its 16 bits.
__device__ __forceinline__ unsigned to_bf16(float x) {
    const unsigned bits = __float_as_uint(x);
    return isnan(x) ? kNoNumber : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
// x rounded to bfloat16, away from zero and towards zero; both are the bits of a float.
__device__ __forceinline__ unsigned outwards(float x) { return (__float_as_uint(x) + 0xffffu) & 0xffff0000u; }
__device__ __forceinline__ unsigned inwards(float x) { return __float_as_uint(x) & 0xffff0000u; }

// The scale of a group: code c stands for lowest + c * step. `step` is 0 where all values equal the lowest. If anything
// is not finite, both are NaN.
struct Scale {
    float step, lowest;

    __device__ __forceinline__ Scale(float least, float most, float levels) {
        // +0 and -0 are equal, and the host may find either as the least.
        lowest = least == 0.0f ? 0.0f : __uint_as_float(least < 0.0f ? outwards(least) : inwards(least));
        step = most == lowest ? 0.0f : __uint_as_float(outwards((most - lowest) / levels));
        if (!(fabsf(least) < INFINITY && fabsf(most) < INFINITY && fabsf(lowest) < INFINITY && step < INFINITY))
            step = lowest = __uint_as_float(kNoNumber << 16);
    }
    __device__ __forceinline__ explicit Scale(unsigned word)
        : step(__uint_as_float(word << 16)), lowest(__uint_as_float(word & 0xffff0000u)) {}
    __device__ __forceinline__ unsigned word() const {
        return __float_as_uint(step) >> 16 | (__float_as_uint(lowest) & 0xffff0000u);
    }
    // Stochastic rounding: one of the two codes next to x; the nearer x is to the upper one, the more often it is
    // chosen.
    __device__ __forceinline__ unsigned code(float x, float number, unsigned levels) const {
        if (!(step > 0.0f)) return 0;
        const float steps = (x - lowest) / step, whole = floorf(steps);
        return min(static_cast<unsigned>(whole) + (number < steps - whole), levels);
    }
    __device__ __forceinline__ float value(unsigned code) const { return lowest + static_cast<float>(code) * step; }
};

// This lane's four columns, of which `count` exist. wide: load or store all four at once.
__device__ __forceinline__ Pack<kEach> load_four(const Element *p, int count, bool wide) {
    if (count <= 0) return zero<kEach>();
    if (wide) return load<kEach>(p);
    Pack<kEach> x = zero<kEach>();
#pragma unroll
    for (int i = 0; i < kEach; ++i)
        if (i < count) x.v[i] = load<1>(p + i).v[0];
    return x;
}
__device__ __forceinline__ void store_four(Element *p, const Pack<kEach> &x, int count, bool wide) {
#ifdef MGG_BF16
    const Raw<kEach> raw{{to_bf16(x.v[0]) | to_bf16(x.v[1]) << 16, to_bf16(x.v[2]) | to_bf16(x.v[3]) << 16}};
#else
    const Raw<kEach> raw{
        {__float_as_uint(x.v[0]), __float_as_uint(x.v[1]), __float_as_uint(x.v[2]), __float_as_uint(x.v[3])}
    };
#endif
    if (wide && count >= kEach) {
        store_raw<kEach>(p, raw, kEach);
        return;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i)
        if (i < count) {
#ifdef MGG_BF16
            p[i] = static_cast<Element>(raw.w[i / 2] >> i % 2 * 16);
#else
            p[i] = x.v[i];
#endif
        }
}

// Which rows of a launch a team takes: they are dealt to the teams in turn. The lanes of a warp stay together.
struct Teams {
    long long first, step;
    int team, lane;

    __device__ __forceinline__ Teams() {
        constexpr int PER_WARP = 32 / kTeam;
        team = (threadIdx.x & 31) / kTeam, lane = threadIdx.x % kTeam;
        first = (static_cast<long long>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32) * PER_WARP;
        step = static_cast<long long>(gridDim.x) * (kThreads / 32) * PER_WARP;
    }
};

// A lane's share of a group's words of codes: its first word, and the bit in it where its codes begin. LANES lanes
// share a word, and the first of them holds it.
template <int BITS>
struct Share {
    static constexpr int LANES = BITS < 8 ? 8 / BITS : 1, WORDS = BITS == 16 ? 2 : 1;
    static __device__ __forceinline__ int word(int group, int lane) {
        return group * BITS + (BITS == 16 ? 2 * lane : lane / LANES);
    }
    static __device__ __forceinline__ int shift(int lane) { return kEach * BITS * (lane % LANES) % 32; }
};

// out[i] = source[rows[i]] in BITS bits per column, rounded by the random numbers of (base, epoch * streams + place,
// ids[i], column).
template <int BITS>
__device__ __forceinline__ void pack_rows(
    const Element *source, int stride, const Index *rows, const long long *ids, long long count, int columns, int words,
    unsigned *out, unsigned long long base, const double *epoch, long long streams, long long place, bool wide
) {
    using Part = Share<BITS>;
    constexpr unsigned LEVELS = (1u << BITS) - 1;
    const Teams teams;
    const int groups = (columns + kColumns - 1) / kColumns, scales = BITS == 16 ? 0 : groups;
    const unsigned long long key = mgg_key(base, static_cast<unsigned long long>(epoch[0]) * streams + place);
    for (long long at_ = teams.first; at_ < count; at_ += teams.step) {
        const long long i = at_ + teams.team;
        const bool mine = i < count;
        const Element *from = at(source, mine ? rows[i] : rows[0], stride, 0);
        unsigned *to = out + i * words;
        const unsigned long long state = mgg_row_state(key, static_cast<unsigned long long>(mine ? ids[i] : 0));
        for (int group = 0; group < groups; ++group) {
            const int column = group * kColumns + teams.lane * kEach, left = columns - column;
            const Pack<kEach> x = load_four(from + column, left, wide);
            const int word = scales + Part::word(group, teams.lane);
            if constexpr (BITS == 16) {
#pragma unroll
                for (int i = 0; i < kEach; i += 2) {
                    const unsigned upper = i + 1 < left ? to_bf16(x.v[i + 1]) << 16 : 0u;
                    if (mine && i < left) to[word + i / 2] = to_bf16(x.v[i]) | upper;
                }
            } else {
                int least = 0x7fffffff, most = ~0x7fffffff;
#pragma unroll
                for (int i = 0; i < kEach; ++i)
                    if (i < left) least = min(least, ordered(x.v[i])), most = max(most, ordered(x.v[i]));
#pragma unroll
                for (int offset = kTeam / 2; offset; offset /= 2) {
                    least = min(least, __shfl_xor_sync(kAll, least, offset));
                    most = max(most, __shfl_xor_sync(kAll, most, offset));
                }
                const Scale scale(from_ordered(least), from_ordered(most), LEVELS);
                unsigned codes = 0;
#pragma unroll
                for (int i = 0; i < kEach; ++i)
                    if (i < left) codes |= scale.code(x.v[i], mgg_uniform(state, column + i), LEVELS) << i * BITS;
                codes <<= Part::shift(teams.lane);
#pragma unroll
                for (int offset = 1; offset < Part::LANES; offset *= 2) codes |= __shfl_xor_sync(kAll, codes, offset);
                if (mine && teams.lane == 0) to[group] = scale.word();
                if (mine && left > 0 && teams.lane % Part::LANES == 0) to[word] = codes;
            }
        }
    }
}

// out[i] = row i of `packed`.
template <int BITS>
__device__ __forceinline__ void unpack_rows(
    const unsigned *packed, long long count, int columns, int words, Element *out, int stride, bool wide
) {
    using Part = Share<BITS>;
    constexpr unsigned LEVELS = (1u << BITS) - 1;
    const Teams teams;
    const int groups = (columns + kColumns - 1) / kColumns, scales = BITS == 16 ? 0 : groups;
    for (long long i = teams.first + teams.team; i < count; i += teams.step) {
        const unsigned *from = packed + i * words;
        for (int group = 0; group < groups; ++group) {
            const int column = group * kColumns + teams.lane * kEach, left = columns - column;
            if (left <= 0) continue;
            const int word = scales + Part::word(group, teams.lane);
            Pack<kEach> x;
            if constexpr (BITS == 16) {
                const unsigned first = from[word], second = left > 2 ? from[word + 1] : 0u;
                x.v[0] = __uint_as_float(first << 16), x.v[1] = __uint_as_float(first & 0xffff0000u);
                x.v[2] = __uint_as_float(second << 16), x.v[3] = __uint_as_float(second & 0xffff0000u);
            } else {
                const Scale scale(from[group]);
                const unsigned codes = from[word] >> Part::shift(teams.lane);
#pragma unroll
                for (int i = 0; i < kEach; ++i) x.v[i] = scale.value(codes >> i * BITS & LEVELS);
            }
            store_four(at(out, i, stride, column), x, left, wide);
        }
    }
}

}  // namespace mgg

#define MGG_WIRE(bits)                                                                                                \
    extern "C" __global__ void __launch_bounds__(mgg::kThreads) wire_pack_##bits(                                     \
        const mgg::Element *source, int source_stride, const mgg::Index *rows, const long long *ids, long long count, \
        int columns, int words, unsigned *out, unsigned long long base, const double *epoch, long long streams,       \
        long long place, int wide                                                                                     \
    ) {                                                                                                               \
        mgg::pack_rows<bits>(                                                                                         \
            source, source_stride, rows, ids, count, columns, words, out, base, epoch, streams, place, wide != 0      \
        );                                                                                                            \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(mgg::kThreads) wire_unpack_##bits(                                   \
        const unsigned *packed, long long count, int columns, int words, mgg::Element *out, int out_stride, int wide  \
    ) {                                                                                                               \
        mgg::unpack_rows<bits>(packed, count, columns, words, out, out_stride, wide != 0);                            \
    }
MGG_WIRE(2)
MGG_WIRE(4)
MGG_WIRE(8)
MGG_WIRE(16)
