// Graph attention arc by arc, every arc with a number for each of its heads (Velickovic et al., ICLR 2018, equations 3 to
// 5): softmax, weighted sums and their gradients, without float atomics, the same bits every time.
//
//     share(v, u) = exp(score - top_v) / sum_v,    score = LeakyReLU(to_target_v + to_source_u)
//
// Nothing of an arc is kept: of a row stays its state (to_target, top, 1 / sum, and for the gradients a mean), from which
// a share is made again wherever it is needed, in the lists by target as in those by source. The host cuts both lists
// into pieces, rows or parts of long ones (mgg/kernel/schedule.py); 8 or 32 lanes take a piece, and what the pieces of a
// long row found is put together in their order by a second launch.
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

// shares[k] of every arc, after dropout. BACK: the lists are by source, and the ends are targets.
template <int GROUP, int HEADS, bool BACK>
__device__ __forceinline__ void attention_shares(
    const Lists &lists, int heads, const State *__restrict__ states, const float *__restrict__ to_source, float slope,
    const Dropout &dropout, float *__restrict__ shares
) {
    const Place<GROUP, HEADS> place(lists.pieces, heads);
    if (!place.active) return;
    const long long row = lists.row(place.item), mine = row * heads + place.head, last = lists.begin[place.item + 1];
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
        for (int u = 0; u < kInFlight; ++u) end[u] = k + u * place.ARCS < last ? lists.ends[k + u * place.ARCS] : -1;
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) {
            if (end[u] < 0) continue;
            const long long theirs = static_cast<long long>(end[u]) * heads + place.head;
            if constexpr (BACK)
                state = __ldg(states + theirs);
            else
                source = __ldg(to_source + theirs);
            float share = share_of(state, source, slope);
            if (dropout.active()) {
                if constexpr (BACK) drawn = dropout.state(key, end[u]);
                share *= dropout.factor(drawn, BACK ? row : static_cast<long long>(end[u]), heads, place.head);
            }
            shares[(k + u * place.ARCS) * heads + place.head] = share;
        }
    }
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

// Gradients by the two parts of the scores, from `gradient` [targets] by the weighted sums of x [sources] (rows of
// heads x columns). With inner(v, u) = <gradient_v, x_u>, and kept = 0 or 1 / (1 - rate) by dropout,
//
//     by_arc = share (kept inner - mean_v) LeakyReLU',    mean_v = sum over u of share kept inner,
//
// and the sum of by_arc over the arcs of a source is what its part gets. Over a row the share (kept inner - mean) add up to
// 0, so the row's part gets (slope - 1) times those of the arcs with a negative score: one pass finds the mean, too.
// A warp a piece, LANES lanes an arc, a head a blockIdx.y.
template <int LANES, int VEC, bool BACK>
__device__ __forceinline__ void attention_gradients(
    const Lists &lists, int heads, int columns, State *__restrict__ states, const float *__restrict__ to_source, float slope,
    const Dropout &dropout, const float *__restrict__ own, const float *__restrict__ others, float *__restrict__ out,
    float4 *__restrict__ partial
) {
    constexpr int ARCS = 32 / LANES;
    const int piece = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, head = blockIdx.y, lane = threadIdx.x % 32;
    if (piece >= lists.pieces) return;  // a whole warp
    const int to = lists.target[piece], arc = lane / LANES;
    const long long row = lists.row(piece), mine = row * heads + head, last = lists.begin[piece + 1];
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
    float mean = 0.0f, low = 0.0f, low_shares = 0.0f, total = 0.0f;
    for (long long first = lists.begin[piece]; first < last; first += ARCS * kInFlight) {
        long long end[kInFlight];
        float inner[kInFlight];
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) {
            const long long k = first + u * ARCS + arc;
            end[u] = k < last ? static_cast<long long>(lists.ends[k]) : -1;
            inner[u] = 0.0f;
        }
        for (int column = lane % LANES * VEC; column < columns; column += LANES * VEC) {
            const Pack<VEC> x = load<VEC>(own + mine * columns + column);
            Raw<VEC> raw[kInFlight];
#pragma unroll
            for (int u = 0; u < kInFlight; ++u)
                raw[u] = load_if<VEC>(end[u] >= 0, others + (end[u] * heads + head) * columns + column);
#pragma unroll
            for (int u = 0; u < kInFlight; ++u) {
                const Pack<VEC> y = unpack<VEC>(raw[u]);
#pragma unroll
                for (int i = 0; i < VEC; ++i) inner[u] += x.v[i] * y.v[i];
            }
        }
#pragma unroll
        for (int offset = LANES / 2; offset > 0; offset /= 2)
#pragma unroll
            for (int u = 0; u < kInFlight; ++u) inner[u] += __shfl_xor_sync(kAll, inner[u], offset);
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) {
            if (end[u] < 0) continue;
            const long long theirs = end[u] * heads + head;
            if constexpr (BACK)
                state = __ldg(states + theirs);
            else
                source = __ldg(to_source + theirs);
            const float share = share_of(state, source, slope);
            const bool negative = !(state.x + source > 0.0f);
            if (dropout.active()) {
                if constexpr (BACK) drawn = dropout.state(key, end[u]);
                inner[u] *= dropout.factor(drawn, BACK ? row : end[u], heads, head);
            }
            if constexpr (BACK) {
                total += share * (inner[u] - state.w) * (negative ? slope : 1.0f);
            } else {
                mean += share * inner[u];
                if (negative) low += share * inner[u], low_shares += share;
            }
        }
    }
    __syncwarp();
#pragma unroll
    for (int offset = 16; offset >= LANES; offset /= 2) {
        if constexpr (BACK) {
            total += __shfl_xor_sync(kAll, total, offset);
        } else {
            mean += __shfl_xor_sync(kAll, mean, offset);
            low += __shfl_xor_sync(kAll, low, offset);
            low_shares += __shfl_xor_sync(kAll, low_shares, offset);
        }
    }
    if (lane != 0) return;
    if (to < 0) {
        partial[static_cast<long long>(~to) * heads + head] = make_float4(mean, low, low_shares, total);
    } else if constexpr (BACK) {
        out[mine] = total;
    } else {
        states[mine].w = mean;
        out[mine] = (1.0f - slope) * (mean * low_shares - low);
    }
}

// The same for rows that were cut, from what the pieces first[i] .. first[i + 1] found; a warp a row and head.
template <bool BACK>
__device__ __forceinline__ void attention_gradients_combine(
    const int *__restrict__ rows, const int *__restrict__ first, int row_count, int heads, float slope,
    const float4 *__restrict__ partial, State *__restrict__ states, float *__restrict__ out
) {
    const int i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, head = blockIdx.y, lane = threadIdx.x % 32;
    if (i >= row_count) return;  // a whole warp
    double mean = 0.0, low = 0.0, low_shares = 0.0, total = 0.0;
    for (int slot = first[i] + lane; slot < first[i + 1]; slot += 32) {
        const float4 part = partial[static_cast<long long>(slot) * heads + head];
        mean += part.x, low += part.y, low_shares += part.z, total += part.w;
    }
    __syncwarp();
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        mean += __shfl_xor_sync(kAll, mean, offset);
        low += __shfl_xor_sync(kAll, low, offset);
        low_shares += __shfl_xor_sync(kAll, low_shares, offset);
        total += __shfl_xor_sync(kAll, total, offset);
    }
    if (lane != 0) return;
    const long long at = static_cast<long long>(rows[i]) * heads + head;
    if constexpr (BACK) {
        out[at] = static_cast<float>(total);
    } else {
        states[at].w = static_cast<float>(mean);
        out[at] = static_cast<float>((1.0 - static_cast<double>(slope)) * (mean * low_shares - low));
    }
}

// c[row] = sum over the row's arcs of weights[arc, head of the column] * b[end], in tiles of LANES * VEC columns; rows that
// were cut leave sums for spmm_rows_combine (kernels/aggregate/rows.cu). VEC divides the columns of a head. A warp a piece.
template <int LANES, int VEC>
__device__ __forceinline__ void attention_sums(
    const Lists &lists, int heads, const float *__restrict__ weights, const float *__restrict__ b, int b_stride,
    float *__restrict__ c, int c_stride, float *__restrict__ partial, int partial_stride, int first_column, int columns
) {
    constexpr int GROUPS = 32 / LANES, UNROLL = 8;
    const Tile<LANES, VEC> tile(first_column, blockIdx.y, columns);
    const int piece = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (piece >= lists.pieces) return;  // a whole warp
    const int to = lists.target[piece], head = tile.active() ? tile.column / (columns / heads) : 0;
    const long long last = lists.begin[piece + 1];
    Pack<VEC> sum = zero<VEC>();
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
            Pack<VEC> x = unpack<VEC>(raw[u]);
            scale(x, weight[u]);
            add(sum, x);
        }
    }
    __syncwarp();
    reduce_groups<LANES>(sum);
    if (!tile.writes()) return;
    store(to < 0 ? at(partial, ~to, partial_stride, tile.column) : at(c, to, c_stride, tile.column), sum, tile.count);
}

// products[row, head] = <x[row, head], vectors[head]>; LANES lanes a product.
template <int LANES, int VEC>
__device__ __forceinline__ void attention_products(
    const float *__restrict__ x, const float *__restrict__ vectors, long long count, int heads, int columns,
    float *__restrict__ products
) {
    const long long i = static_cast<long long>(blockIdx.x) * (blockDim.x / LANES) + threadIdx.x / LANES;
    float sum = 0.0f;
    if (i < count) {
        const float *vector = vectors + i % heads * columns;
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
#define MGG_SHARES(group, lanes, name, back)                                                                    \
    MGG_KERNEL name##_##group##_##lanes(                                                                        \
        MGG_LISTS, int heads, const float4 *states, const float *to_source, float slope, MGG_DROPOUT, float *shares \
    ) {                                                                                                         \
        mgg::attention_shares<group, lanes, back>(                                                              \
            {begin, target, slot_rows, ends, pieces}, heads, states, to_source, slope,                          \
            {ids, epoch, base, streams, place, rate, kept}, shares                                              \
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
    MGG_SHARES(group, lanes, attention_shares, false)                \
    MGG_SHARES(group, lanes, attention_shares_back, true)
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

#define MGG_GRADIENTS(lanes, vec, name, back)                                                                   \
    MGG_KERNEL name##_##lanes##_##vec(                                                                          \
        MGG_LISTS, int heads, int columns, float4 *states, const float *to_source, float slope, MGG_DROPOUT,    \
        const float *own, const float *others, float *out, float4 *partial                                      \
    ) {                                                                                                         \
        mgg::attention_gradients<lanes, vec, back>(                                                             \
            {begin, target, slot_rows, ends, pieces}, heads, columns, states, to_source, slope,                 \
            {ids, epoch, base, streams, place, rate, kept}, own, others, out, partial                           \
        );                                                                                                      \
    }
#define MGG_PRODUCTS(lanes, vec)                                                                                \
    MGG_KERNEL attention_products_##lanes##_##vec(                                                              \
        const float *x, const float *vectors, long long count, int heads, int columns, float *products          \
    ) {                                                                                                         \
        mgg::attention_products<lanes, vec>(x, vectors, count, heads, columns, products);                       \
    }
#define MGG_BY_COLUMNS(lanes, vec)                                   \
    MGG_GRADIENTS(lanes, vec, attention_gradients, false)            \
    MGG_GRADIENTS(lanes, vec, attention_gradients_back, true)        \
    MGG_PRODUCTS(lanes, vec)
#define MGG_UP_TO_EIGHT(vec) MGG_BY_COLUMNS(1, vec) MGG_BY_COLUMNS(2, vec) MGG_BY_COLUMNS(4, vec) MGG_BY_COLUMNS(8, vec)
MGG_UP_TO_EIGHT(1)
MGG_UP_TO_EIGHT(2)
MGG_UP_TO_EIGHT(4)

#define MGG_GRADIENTS_COMBINE(name, back)                                                                       \
    MGG_KERNEL name(                                                                                            \
        const int *rows, const int *first, int row_count, int heads, float slope, const float4 *partial,        \
        float4 *states, float *out                                                                              \
    ) {                                                                                                         \
        mgg::attention_gradients_combine<back>(rows, first, row_count, heads, slope, partial, states, out);     \
    }
MGG_GRADIENTS_COMBINE(attention_gradients_combine, false)
MGG_GRADIENTS_COMBINE(attention_gradients_back_combine, true)

#define MGG_SUMS(lanes, vec)                                                                                    \
    MGG_KERNEL attention_sums_##lanes##_##vec(                                                                  \
        MGG_LISTS, int heads, const float *weights, const float *b, int b_stride, float *c, int c_stride,       \
        float *partial, int partial_stride, int first_column, int columns                                       \
    ) {                                                                                                         \
        mgg::attention_sums<lanes, vec>(                                                                        \
            {begin, target, slot_rows, ends, pieces}, heads, weights, b, b_stride, c, c_stride, partial,        \
            partial_stride, first_column, columns                                                               \
        );                                                                                                      \
    }
MGG_SHAPES(MGG_SUMS)
