// Graph attention arc by arc, every arc with a number for each of its heads (Velickovic et al., ICLR 2018, equations 3 to
// 5): softmax, weighted sums and their gradients, without float atomics, the same bits every time.
//
//     share(v, u) = exp(score - top_v) / sum_v,    score = LeakyReLU(to_target_v + to_source_u)
//
// Nothing of an arc is kept: of a row stays its state (to_target, top, 1 / sum, and for the gradients a mean), from which
// a share is made again wherever it is needed, in the lists by target as in those by source. The host cuts both lists
// into pieces, rows or parts of long ones (mgg/kernel/schedule.py); 8 or 32 lanes take a piece, and what the pieces of a
// long row found is put together in their order by a second launch.
//
// Gradients by the scores take no pass over arcs of their own. With inner(v, u) = <gradient_v, x_u>, and kept = 0 or
// 1 / (1 - rate) by dropout, an arc's score has the gradient
//
//     share (kept inner - mean_v) LeakyReLU',    mean_v = sum over u of share kept inner,
//
// in which LeakyReLU' is 1 or, for a negative score, slope. Inner products are linear: what is added up over the arcs of
// a row or of a source follows from that row's weighted sum and from the part of it that arcs with a negative score make.
// So training gathers as often as the weighted sums alone do, and shares carry the sign of their score.
#include "mgg/random.cuh"
#include "mgg/warp.cuh"

namespace mgg {

// A PE's arcs by one of their ends.
struct Lists {
    const long long *begin;  // first arc of each piece, and the end
    const int *target;       // row of each piece, or ~slot of a part of a long row
    const int *slot_rows;    // the row of each slot
    const Index *ends;       // the other end of each arc
    int pieces;

    __device__ __forceinline__ int row(int piece) const {
        const int to = target[piece];
        return to < 0 ? slot_rows[~to] : to;
    }
};

// What a row keeps of the softmax over its arcs, of one head.
using State = float4;  // x: to_target, y: the highest score, z: 1 / sum of exp(score - highest), w: mean of the gradients

__device__ __forceinline__ float leaky(float sum, float slope) { return sum > 0.0f ? sum : slope * sum; }

// The share of an arc from the state of its target and the source's part of its score.
__device__ __forceinline__ float share_of(const State &state, float to_source, float slope) {
    return expf(leaky(state.x + to_source, slope) - state.y) * state.z;
}

// Dropout of arcs: masks follow from the ids of both ends and the head. The epoch is in the device's memory, so that the
// same launch draws other numbers in another epoch.
struct Dropout {
    const long long *ids;  // of rows and halo
    const double *epoch;
    long long base, streams, place;
    float rate, kept;      // rate 0: there is none

    __device__ __forceinline__ bool active() const { return rate > 0.0f; }
    __device__ __forceinline__ unsigned long long key() const {
        return mgg_key(
            static_cast<unsigned long long>(base), static_cast<unsigned long long>(epoch[0] * streams + place)
        );
    }
    __device__ __forceinline__ unsigned long long state(unsigned long long key, long long target) const {
        return mgg_row_state(key, static_cast<unsigned long long>(ids[target]));
    }
    __device__ __forceinline__ float factor(unsigned long long state, long long source, int heads, int head) const {
        const unsigned long long column = static_cast<unsigned long long>(ids[source]) * heads + head;
        return mgg_uniform(state, column) >= rate ? kept : 0.0f;
    }
};

// The highest of some scores, and the sum of exp(score - highest).
struct Running {
    float top, sum;
};

__device__ __forceinline__ Running merged(const Running &a, const Running &b) {
    const float top = fmaxf(a.top, b.top);
    if (top == -INFINITY) return {top, a.sum + b.sum};  // no scores, or none that are numbers
    return {top, a.sum * expf(a.top - top) + b.sum * expf(b.top - top)};
}

__device__ __forceinline__ State state_of(float to_target, const Running &found) {
    // A row without arcs has no sum, and nobody asks for its shares.
    return make_float4(to_target, found.top, found.sum == 0.0f ? 0.0f : 1.0f / found.sum, 0.0f);
}

// One lane's place: GROUP lanes take an item, HEADS of them side by side the heads of an arc, so GROUP / HEADS arcs at once.
template <int GROUP, int HEADS>
struct Place {
    static constexpr int ARCS = GROUP / HEADS;
    int item, head, arc;
    bool active;

    __device__ __forceinline__ Place(int items, int heads) {
        item = blockIdx.x * (blockDim.x / GROUP) + threadIdx.x / GROUP;
        head = blockIdx.y * HEADS + threadIdx.x % HEADS;
        arc = threadIdx.x % GROUP / HEADS;
        active = item < items && head < heads;
    }
    __device__ __forceinline__ bool writes() const { return active && arc == 0; }
    // Put together what the lanes of a head have found; the first lane of each gets it. For whole warps.
    __device__ __forceinline__ Running reduce(Running found) const {
#pragma unroll
        for (int offset = GROUP / 2; offset >= HEADS; offset /= 2) {
            const float top = __shfl_xor_sync(kAll, found.top, offset), sum = __shfl_xor_sync(kAll, found.sum, offset);
            found = merged(found, {top, sum});
        }
        return found;
    }
    __device__ __forceinline__ float reduce(float found) const {
#pragma unroll
        for (int offset = GROUP / 2; offset >= HEADS; offset /= 2) found += __shfl_xor_sync(kAll, found, offset);
        return found;
    }
};

constexpr int kInFlight = 4;  // arcs under way a lane

// states[row] for whole rows, partial[slot] for parts of long ones.
template <int GROUP, int HEADS>
__device__ __forceinline__ void attention_states(
    const Lists &lists, int heads, const float *__restrict__ to_target, const float *__restrict__ to_source, float slope,
    State *__restrict__ states, float2 *__restrict__ partial
) {
    const Place<GROUP, HEADS> place(lists.pieces, heads);
    Running found = {-INFINITY, 0.0f};
    int to = 0;
    float mine = 0.0f;
    if (place.active) {
        to = lists.target[place.item];
        mine = to_target[static_cast<long long>(lists.row(place.item)) * heads + place.head];
        const long long last = lists.begin[place.item + 1];
        for (long long k = lists.begin[place.item] + place.arc; k < last; k += place.ARCS * kInFlight) {
            Index end[kInFlight];
            float score[kInFlight];
#pragma unroll
            for (int u = 0; u < kInFlight; ++u) end[u] = k + u * place.ARCS < last ? lists.ends[k + u * place.ARCS] : -1;
#pragma unroll
            for (int u = 0; u < kInFlight; ++u)
                score[u] = end[u] < 0
                    ? -INFINITY
                    : leaky(mine + __ldg(to_source + static_cast<long long>(end[u]) * heads + place.head), slope);
            Running step = {score[0], 0.0f};
#pragma unroll
            for (int u = 1; u < kInFlight; ++u) step.top = fmaxf(step.top, score[u]);
#pragma unroll
            for (int u = 0; u < kInFlight; ++u)
                if (end[u] >= 0) step.sum += expf(score[u] - step.top);
            found = merged(found, step);
        }
    }
    __syncwarp();
    found = place.reduce(found);
    if (!place.writes()) return;
    if (to < 0)
        partial[static_cast<long long>(~to) * heads + place.head] = make_float2(found.top, found.sum);
    else
        states[static_cast<long long>(to) * heads + place.head] = state_of(mine, found);
}

// states[rows[i]] from what the pieces first[i] .. first[i + 1] found; a warp a row.
template <int HEADS>
__device__ __forceinline__ void attention_states_combine(
    const int *__restrict__ rows, const int *__restrict__ first, int row_count, int heads,
    const float *__restrict__ to_target, const float2 *__restrict__ partial, State *__restrict__ states
) {
    const Place<32, HEADS> place(row_count, heads);
    Running found = {-INFINITY, 0.0f};
    if (place.active) {
        for (int slot = first[place.item] + place.arc; slot < first[place.item + 1]; slot += place.ARCS) {
            const float2 part = partial[static_cast<long long>(slot) * heads + place.head];
            found = merged(found, {part.x, part.y});
        }
    }
    __syncwarp();
    found = place.reduce(found);
    if (!place.writes()) return;
    const long long at = static_cast<long long>(rows[place.item]) * heads + place.head;
    states[at] = state_of(to_target[at], found);
}

// shares[k] of every arc, after dropout.
template <int GROUP, int HEADS>
__device__ __forceinline__ void attention_shares(
    const Lists &lists, int heads, const State *__restrict__ states, const float *__restrict__ to_source, float slope,
    const Dropout &dropout, float *__restrict__ shares
) {
    const Place<GROUP, HEADS> place(lists.pieces, heads);
    if (!place.active) return;
    const long long row = lists.row(place.item), last = lists.begin[place.item + 1];
    const State state = states[row * heads + place.head];
    unsigned long long drawn = 0;
    if (dropout.active()) drawn = dropout.state(dropout.key(), row);
    for (long long k = lists.begin[place.item] + place.arc; k < last; k += place.ARCS * kInFlight) {
        Index end[kInFlight];
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) end[u] = k + u * place.ARCS < last ? lists.ends[k + u * place.ARCS] : -1;
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) {
            if (end[u] < 0) continue;
            const long long theirs = static_cast<long long>(end[u]) * heads + place.head;
            float share = share_of(state, __ldg(to_source + theirs), slope);
            if (dropout.active()) share *= dropout.factor(drawn, end[u], heads, place.head);
            shares[(k + u * place.ARCS) * heads + place.head] = share;
        }
    }
}

// For training: -share where the score is negative; and of every row a sum over its arcs of shares before dropout, in
// sums[row] or, for parts of long rows, partial[slot]: of those with a negative score, or, with BACK, where the lists are
// by source and the ends are targets, of share * mean_v * LeakyReLU'.
template <int GROUP, int HEADS, bool BACK>
__device__ __forceinline__ void attention_signed_shares(
    const Lists &lists, int heads, const State *__restrict__ states, const float *__restrict__ to_source, float slope,
    const Dropout &dropout, float *__restrict__ shares, float *__restrict__ sums, float *__restrict__ partial,
    int partial_stride
) {
    const Place<GROUP, HEADS> place(lists.pieces, heads);
    float sum = 0.0f;
    long long row = 0;
    if (place.active) {
        row = lists.row(place.item);
        const long long mine = row * heads + place.head, last = lists.begin[place.item + 1];
        State state = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        float source = 0.0f;
        if constexpr (BACK)
            source = to_source[mine];
        else
            state = states[mine];
        unsigned long long key = 0, drawn = 0;
        if (dropout.active()) {
            key = dropout.key();
            if constexpr (!BACK) drawn = dropout.state(key, row);
        }
        for (long long k = lists.begin[place.item] + place.arc; k < last; k += place.ARCS * kInFlight) {
            Index end[kInFlight];
#pragma unroll
            for (int u = 0; u < kInFlight; ++u)
                end[u] = k + u * place.ARCS < last ? lists.ends[k + u * place.ARCS] : -1;
#pragma unroll
            for (int u = 0; u < kInFlight; ++u) {
                if (end[u] < 0) continue;
                const long long theirs = static_cast<long long>(end[u]) * heads + place.head;
                if constexpr (BACK)
                    state = __ldg(states + theirs);
                else
                    source = __ldg(to_source + theirs);
                float share = share_of(state, source, slope);
                const bool negative = !(state.x + source > 0.0f);
                if constexpr (BACK)
                    sum += share * state.w * (negative ? slope : 1.0f);
                else if (negative)
                    sum += share;
                if (dropout.active()) {
                    if constexpr (BACK) drawn = dropout.state(key, end[u]);
                    share *= dropout.factor(drawn, BACK ? row : static_cast<long long>(end[u]), heads, place.head);
                }
                shares[(k + u * place.ARCS) * heads + place.head] = negative ? -share : share;
            }
        }
    }
    __syncwarp();
    sum = place.reduce(sum);
    if (!place.writes()) return;
    const int to = lists.target[place.item];
    if (to < 0)
        partial[static_cast<long long>(~to) * partial_stride + place.head] = sum;
    else
        sums[row * heads + place.head] = sum;
}

// out[k] of every arc = values[k] after dropout, for numbers of arcs that are no shares.
template <int GROUP, int HEADS>
__device__ __forceinline__ void attention_dropout(
    const Lists &lists, int heads, bool back, const float *__restrict__ values, const Dropout &dropout,
    float *__restrict__ out
) {
    const Place<GROUP, HEADS> place(lists.pieces, heads);
    if (!place.active) return;
    const long long row = lists.row(place.item), last = lists.begin[place.item + 1];
    const unsigned long long key = dropout.key();
    for (long long k = lists.begin[place.item] + place.arc; k < last; k += place.ARCS) {
        const long long end = lists.ends[k], at = k * heads + place.head;
        const unsigned long long drawn = dropout.state(key, back ? end : row);
        out[at] = values[at] * dropout.factor(drawn, back ? row : end, heads, place.head);
    }
}

// c[row] = sum over the row's arcs of weights[arc, head of the column] * b[end], in tiles of LANES * VEC columns; rows that
// were cut leave sums for spmm_rows_combine (kernels/aggregate/rows.cu). VEC divides the columns of a head. A warp a piece.
// SIGNED: weights count without their sign, and `low` is the same over the arcs whose sign is minus.
template <int LANES, int VEC, bool SIGNED>
__device__ __forceinline__ void attention_sums(
    const Lists &lists, int heads, const float *__restrict__ weights, const float *__restrict__ b, int b_stride,
    float *__restrict__ c, float *__restrict__ low, int c_stride, float *__restrict__ partial,
    float *__restrict__ low_partial, int partial_stride, int first_column, int columns
) {
    constexpr int GROUPS = 32 / LANES, UNROLL = 8;
    const Tile<LANES, VEC> tile(first_column, blockIdx.y, columns);
    const int piece = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (piece >= lists.pieces) return;  // a whole warp
    const int to = lists.target[piece], head = tile.active() ? tile.column / (columns / heads) : 0;
    const long long last = lists.begin[piece + 1];
    Pack<VEC> sum = zero<VEC>(), low_sum = zero<VEC>();
    for (long long first = lists.begin[piece] + tile.group; first < last; first += GROUPS * UNROLL) {
        Index end[UNROLL];
        float weight[UNROLL];
        Raw<VEC> raw[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const long long k = first + u * GROUPS;
            end[u] = k < last ? lists.ends[k] : -1;
            weight[u] = k < last ? weights[k * heads + head] : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            raw[u] = load_if<VEC>(end[u] >= 0 && tile.active(), at(b, end[u], b_stride, tile.column));
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const Pack<VEC> x = unpack<VEC>(raw[u]);
            const float all = SIGNED ? fabsf(weight[u]) : weight[u], part = weight[u] < 0.0f ? all : 0.0f;
#pragma unroll
            for (int i = 0; i < VEC; ++i) {
                sum.v[i] += all * x.v[i];
                if constexpr (SIGNED) low_sum.v[i] += part * x.v[i];
            }
        }
    }
    __syncwarp();
    reduce_groups<LANES>(sum);
    if constexpr (SIGNED) reduce_groups<LANES>(low_sum);
    if (!tile.writes()) return;
    auto keep = [&](float *whole, float *parts, const Pack<VEC> &found) {
        store(to < 0 ? at(parts, ~to, partial_stride, tile.column) : at(whole, to, c_stride, tile.column), found, tile.count);
    };
    keep(c, partial, sum);
    if constexpr (SIGNED) keep(low, low_partial, low_sum);
}

// products[i] = <x[i], vectors[i % period]> of i = row * heads + head: the period is that of heads, or `count` where every
// row has vectors of its own. LANES lanes a product.
template <int LANES, int VEC>
__device__ __forceinline__ void attention_products(
    const float *__restrict__ x, const float *__restrict__ vectors, long long count, long long period, int columns,
    float *__restrict__ products
) {
    const long long i = static_cast<long long>(blockIdx.x) * (blockDim.x / LANES) + threadIdx.x / LANES;
    float sum = 0.0f;
    if (i < count) {
        const float *vector = vectors + i % period * columns;
        for (int column = threadIdx.x % LANES * VEC; column < columns; column += LANES * VEC) {
            const Pack<VEC> a = load<VEC>(x + i * columns + column), b = load<VEC>(vector + column);
#pragma unroll
            for (int k = 0; k < VEC; ++k) sum += a.v[k] * b.v[k];
        }
    }
    __syncwarp();
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAll, sum, offset);
    if (i < count && threadIdx.x % LANES == 0) products[i] = sum;
}

}  // namespace mgg

#define MGG_KERNEL extern "C" __global__ void __launch_bounds__(256)
#define MGG_LISTS const long long *begin, const int *target, const int *slot_rows, const mgg::Index *ends, int pieces
#define MGG_DROPOUT                                                                                           \
    const long long *ids, const double *epoch, long long base, long long streams, long long place, float rate, float kept

#define MGG_STATES(group, lanes)                                                                                \
    MGG_KERNEL attention_states_##group##_##lanes(                                                              \
        MGG_LISTS, int heads, const float *to_target, const float *to_source, float slope, float4 *states,      \
        float2 *partial                                                                                         \
    ) {                                                                                                         \
        mgg::attention_states<group, lanes>(                                                                    \
            {begin, target, slot_rows, ends, pieces}, heads, to_target, to_source, slope, states, partial       \
        );                                                                                                      \
    }
#define MGG_STATES_COMBINE(lanes)                                                                               \
    MGG_KERNEL attention_states_combine_##lanes(                                                                \
        const int *rows, const int *first, int row_count, int heads, const float *to_target, const float2 *partial, \
        float4 *states                                                                                          \
    ) {                                                                                                         \
        mgg::attention_states_combine<lanes>(rows, first, row_count, heads, to_target, partial, states);        \
    }
#define MGG_SHARES(group, lanes)                                                                                \
    MGG_KERNEL attention_shares_##group##_##lanes(                                                              \
        MGG_LISTS, int heads, const float4 *states, const float *to_source, float slope, MGG_DROPOUT, float *shares \
    ) {                                                                                                         \
        mgg::attention_shares<group, lanes>(                                                                    \
            {begin, target, slot_rows, ends, pieces}, heads, states, to_source, slope,                          \
            {ids, epoch, base, streams, place, rate, kept}, shares                                              \
        );                                                                                                      \
    }
#define MGG_SIGNED_SHARES(group, lanes, name, back)                                                             \
    MGG_KERNEL name##_##group##_##lanes(                                                                        \
        MGG_LISTS, int heads, const float4 *states, const float *to_source, float slope, MGG_DROPOUT,           \
        float *shares, float *sums, float *partial, int partial_stride                                          \
    ) {                                                                                                         \
        mgg::attention_signed_shares<group, lanes, back>(                                                       \
            {begin, target, slot_rows, ends, pieces}, heads, states, to_source, slope,                          \
            {ids, epoch, base, streams, place, rate, kept}, shares, sums, partial, partial_stride               \
        );                                                                                                      \
    }
#define MGG_DROPPED(group, lanes)                                                                               \
    MGG_KERNEL attention_dropout_##group##_##lanes(                                                             \
        MGG_LISTS, int heads, int back, const float *values, MGG_DROPOUT, float *out                            \
    ) {                                                                                                         \
        mgg::attention_dropout<group, lanes>(                                                                   \
            {begin, target, slot_rows, ends, pieces}, heads, back, values,                                      \
            {ids, epoch, base, streams, place, rate, kept}, out                                                 \
        );                                                                                                      \
    }
#define MGG_BY_HEADS(group, lanes)                                   \
    MGG_STATES(group, lanes)                                         \
    MGG_DROPPED(group, lanes)                                        \
    MGG_SHARES(group, lanes)                                         \
    MGG_SIGNED_SHARES(group, lanes, attention_signed_shares, false)  \
    MGG_SIGNED_SHARES(group, lanes, attention_signed_shares_back, true)
MGG_BY_HEADS(8, 1)
MGG_BY_HEADS(8, 2)
MGG_BY_HEADS(8, 4)
MGG_BY_HEADS(8, 8)
MGG_BY_HEADS(32, 1)
MGG_BY_HEADS(32, 2)
MGG_BY_HEADS(32, 4)
MGG_BY_HEADS(32, 8)
MGG_BY_HEADS(32, 16)
MGG_BY_HEADS(32, 32)
MGG_STATES_COMBINE(1)
MGG_STATES_COMBINE(2)
MGG_STATES_COMBINE(4)
MGG_STATES_COMBINE(8)
MGG_STATES_COMBINE(16)
MGG_STATES_COMBINE(32)

#define MGG_PRODUCTS(lanes, vec)                                                                                \
    MGG_KERNEL attention_products_##lanes##_##vec(                                                              \
        const float *x, const float *vectors, long long count, long long period, int columns, float *products   \
    ) {                                                                                                         \
        mgg::attention_products<lanes, vec>(x, vectors, count, period, columns, products);                       \
    }
#define MGG_UP_TO_EIGHT(vec) MGG_PRODUCTS(1, vec) MGG_PRODUCTS(2, vec) MGG_PRODUCTS(4, vec) MGG_PRODUCTS(8, vec)
MGG_UP_TO_EIGHT(1)
MGG_UP_TO_EIGHT(2)
MGG_UP_TO_EIGHT(4)

#define MGG_SUMS(lanes, vec, name, by_sign)                                                                     \
    MGG_KERNEL name##_##lanes##_##vec(                                                                          \
        MGG_LISTS, int heads, const float *weights, const float *b, int b_stride, float *c, float *low,         \
        int c_stride, float *partial, float *low_partial, int partial_stride, int first_column, int columns     \
    ) {                                                                                                         \
        mgg::attention_sums<lanes, vec, by_sign>(                                                               \
            {begin, target, slot_rows, ends, pieces}, heads, weights, b, b_stride, c, low, c_stride, partial,   \
            low_partial, partial_stride, first_column, columns                                                  \
        );                                                                                                      \
    }
#define MGG_INSTANCE(lanes, vec)                           \
    MGG_SUMS(lanes, vec, attention_sums, false)            \
    MGG_SUMS(lanes, vec, attention_signed_sums, true)
MGG_SHAPES(MGG_INSTANCE)
