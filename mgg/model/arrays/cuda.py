"""The table of array operations on GPUs: cuBLAS, and fused elementwise kernels that CuPy compiles at their first use.

Everything is float32 and row-major, goes to CuPy's current stream and never waits for it. Sums run in double precision
and in an order that depends on the shapes alone, so that the same inputs give the same bits. Products use no TF32,
which is CuPy's and cuBLAS's default.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np
from cupy import ElementwiseKernel

from mgg.backend.api import Array, World
from mgg.kernel import random
from mgg.model.arcs import ArcLists, Arcs
from mgg.model.features import DeviceCsr

#: X^T G is computed in so many pieces at most, each of so many rows at least: a matrix of few entries that sums up
#: millions of rows would otherwise be the work of a few multiprocessors.
PIECES, PIECE_ROWS = 512, 256
#: Threads that sum columns; enough to fill a GPU.
SUM_THREADS = 1 << 18
_ONE, _ZERO = np.ones(1, np.float32), np.zeros(1, np.float32)

_FOUR = """
struct alignas(16) mgg_four { float v[4]; };
#define MGG_READ(name)                                                       \\
    mgg_four name##_;                                                        \\
    if (begin + 4 <= entries) name##_ = ((const mgg_four *)&name[0])[i];     \\
    else for (T k = 0; begin + k < entries; ++k) name##_.v[k] = name[begin + k];
"""
_LARGEST_32_BIT = 2**32 - 4


class _ByFours:
    """An elementwise kernel of contiguous matrices of one shape that takes four entries a thread.

    With one entry a thread, as CuPy has it, too few bytes are under way to use a GPU's memory bandwidth.

    Args:
        name: of the kernel.
        read: names of the matrices that it reads; the result may take the place of one of them.
        others: declarations of what else it reads.
        expression: of an entry, from those of the matrices, ``row``, ``column`` and the others.
        preamble: functions that the expression calls.
    """

    def __init__(self, name: str, read: str, others: str, expression: str, preamble: str = "") -> None:
        matrices = read.split()
        declared = [f"raw float32 {matrix}" for matrix in matrices] + ([others] if others else [])
        operands = " ".join(f"const float {matrix}v = {matrix}_.v[k];" for matrix in matrices)
        for matrix in matrices:
            expression = re.sub(rf"\b{matrix}\b", f"{matrix}v", expression)
        body = f"""
            const T begin = (T)i * 4;
            T row = begin / columns, column = begin - row * columns;
            {" ".join(f"MGG_READ({matrix})" for matrix in matrices)}
            mgg_four found;
            for (int k = 0; k < 4; ++k) {{
                if (begin + k < entries) {{ {operands} found.v[k] = {expression}; }}
                if (++column == columns) {{ column = 0; ++row; }}
            }}
            if (begin + 4 <= entries) ((mgg_four *)&out[0])[i] = found;
            else for (T k = 0; begin + k < entries; ++k) out[begin + k] = found.v[k]
            """
        # Divisions of 64-bit numbers take long, so matrices that allow it are counted with 32 bits.
        self._kernels = {
            bits: ElementwiseKernel(
                ", ".join([f"uint{bits} columns, uint{bits} entries", *declared]), "raw float32 out", body,
                f"{name}_{bits}", preamble=f"typedef {unsigned} T;\n{_FOUR}{preamble}",
            )
            for bits, unsigned in ((32, "unsigned"), (64, "unsigned long long"))
        }  # fmt: skip

    def __call__(self, *operands: Any, out: Array) -> Array:
        """Fill ``out``; the operands in the order of their declaration."""
        if out.size:
            kernel = self._kernels[32 if out.size <= _LARGEST_32_BIT else 64]
            kernel(out.shape[-1], out.size, *operands, out, size=-(-out.size // 4))
        return out


_scale_rows = _ByFours("mgg_scale_rows", "x", "raw float32 scale", "x * scale[row]")
_add_and_scale = _ByFours("mgg_add_and_scale", "x y", "raw float32 scale", "(x + y) * scale[row]")
_add_multiple = _ByFours("mgg_add_multiple", "x y", "raw float32 epsilon", "x + (1.0f + epsilon[0]) * y")
_elu = _ByFours("mgg_elu", "x", "", "x > 0.0f ? x : expm1f(x)")
_elu_backward = _ByFours("mgg_elu_backward", "gradient y", "", "gradient * (y > 0.0f ? 1.0f : y + 1.0f)")
_combined = _ByFours("mgg_combined", "x y", "float32 a, float32 b", "a * x + b * y")
_add_bias = _ByFours("mgg_add_bias", "x", "raw float32 bias", "x + bias[column]")
_relu = _ByFours("mgg_relu", "x", "", "x <= 0.0f ? 0.0f : x")
_where_positive = _ByFours("mgg_where_positive", "gradient y", "", "gradient * (y > 0.0f ? 1.0f : 0.0f)")
_masked_rows = _ByFours(
    "mgg_masked_rows", "x", "raw uint64 states, float32 rate, float32 kept",
    "x * (mgg_uniform(states[row], (unsigned long long)column) >= rate ? kept : 0.0f)", random.CUDA,
)  # fmt: skip
#: Rows that are not chosen have an infinite sum, so their shares are 0.
_logit_gradient = _ByFours(
    "mgg_logit_gradient", "logit", "raw float64 log_sums, raw int32 labels, float64 count",
    "isinf(log_sums[row]) ? 0.0f"
    " : (float)((exp((double)logit - log_sums[row]) - ((int)column == labels[row] ? 1.0 : 0.0)) / count)",
)  # fmt: skip
_row_states = ElementwiseKernel(
    "int64 row, int64 key", "uint64 state",
    "state = mgg_row_state((unsigned long long)key, (unsigned long long)row)",
    "mgg_row_states", preamble=random.CUDA,
)  # fmt: skip
_masked = ElementwiseKernel(
    "float32 x, uint64 state, int32 column, float32 rate, float32 kept", "float32 y",
    "y = x * (mgg_uniform(state, (unsigned long long)column) >= rate ? kept : 0.0f)",
    "mgg_masked", preamble=random.CUDA,
)  # fmt: skip
_sums = ElementwiseKernel(
    "raw T x, int64 entries, int64 threads", "float64 sum",
    "double total = 0; for (long long k = i; k < entries; k += threads) total += (double)x[k]; sum = total",
    "mgg_sums",
)  # fmt: skip
_moments = ElementwiseKernel(
    "raw float32 x, raw float32 y, int64 entries, int64 threads", "float64 sum, float64 product",
    """
    double of_x = 0, of_product = 0;
    for (long long k = i; k < entries; k += threads) {
        const double value = (double)x[k];
        of_x += value;
        of_product += value * (double)y[k];
    }
    sum = of_x;
    product = of_product
    """,
    "mgg_moments",
)  # fmt: skip
_mean_of_heads = ElementwiseKernel(
    "raw float32 x, int64 heads, int64 columns", "float32 mean",
    """
    const long long row = i / columns, column = i - row * columns;
    double sum = 0;
    for (long long h = 0; h < heads; ++h) sum += (double)x[(row * heads + h) * columns + column];
    mean = (float)(sum / (double)heads)
    """,
    "mgg_mean_of_heads",
)  # fmt: skip
_mean_of_heads_backward = ElementwiseKernel(
    "raw float32 gradient, int64 heads, int64 columns", "float32 out",
    "out = gradient[i / (heads * columns) * columns + i % columns] / (float)heads",
    "mgg_mean_of_heads_backward",
)  # fmt: skip
_head_products = ElementwiseKernel(
    "raw float32 x, raw float32 vectors, int64 heads, int64 columns", "float32 product",
    """
    const long long head = i % heads;
    float sum = 0;
    for (long long f = 0; f < columns; ++f) sum += x[i * columns + f] * vectors[head * columns + f];
    product = sum
    """,
    "mgg_head_products",
)  # fmt: skip
_add_head_products_backward = ElementwiseKernel(
    "raw float32 gradient, raw float32 vectors, int64 heads, int64 columns", "float32 by_x",
    "by_x += gradient[i / columns] * vectors[i % (heads * columns)]",
    "mgg_add_head_products_backward",
)  # fmt: skip
#: Thread i adds up column i % columns of X, times its head's gradient, over every ``lanes``-th row.
_vector_gradients = ElementwiseKernel(
    "raw float32 x, raw float32 gradient, int64 rows, int64 heads, int64 columns, int64 lanes", "float64 sum",
    """
    const long long width = heads * columns, column = i % width;
    double total = 0;
    for (long long row = i / width; row < rows; row += lanes)
        total += (double)x[row * width + column] * (double)gradient[row * heads + column / columns];
    sum = total
    """,
    "mgg_vector_gradients",
)  # fmt: skip
_SCORE = """
__device__ __forceinline__ float mgg_score(float a, float b, float slope) {
    const float sum = a + b;
    return sum > 0.0f ? sum : slope * sum;
}
"""
_arc_softmax = ElementwiseKernel(
    "raw int64 indptr, raw S sources, raw float32 to_target, raw float32 to_source, float32 slope, int64 heads",
    "raw float32 shares",
    """
    const long long row = i / heads, head = i - row * heads;
    const long long first = indptr[row], last = indptr[row + 1];
    const float mine = to_target[i];
    float top = -INFINITY, sum = 0;
    for (long long k = first; k < last; ++k) {
        const float score = mgg_score(mine, to_source[(long long)sources[k] * heads + head], slope);
        top = score > top ? score : top;
    }
    for (long long k = first; k < last; ++k) {
        const float share = expf(mgg_score(mine, to_source[(long long)sources[k] * heads + head], slope) - top);
        shares[k * heads + head] = share;
        sum += share;
    }
    for (long long k = first; k < last; ++k) shares[k * heads + head] /= sum
    """,
    "mgg_arc_softmax", preamble=_SCORE,
)  # fmt: skip
_arc_softmax_backward = ElementwiseKernel(
    "raw int64 indptr, raw S sources, raw float32 shares, raw float32 gradient, raw float32 to_target,"
    " raw float32 to_source, float32 slope, int64 heads",
    "raw float32 by_arc, raw float32 by_target",
    """
    const long long row = i / heads, head = i - row * heads;
    const long long first = indptr[row], last = indptr[row + 1];
    double mean = 0, total = 0;
    for (long long k = first; k < last; ++k)
        mean += (double)shares[k * heads + head] * (double)gradient[k * heads + head];
    for (long long k = first; k < last; ++k) {
        const float score = to_target[i] + to_source[(long long)sources[k] * heads + head];
        const double found = (double)shares[k * heads + head] * ((double)gradient[k * heads + head] - mean)
            * (score > 0.0f ? 1.0 : (double)slope);
        by_arc[k * heads + head] = (float)found;
        total += found;
    }
    by_target[i] = (float)total
    """,
    "mgg_arc_softmax_backward",
)  # fmt: skip
_arc_sums = ElementwiseKernel(
    "raw int64 ptr, raw int64 order, raw float32 values, int64 heads", "float32 sum",
    """
    const long long place = i / heads, head = i - place * heads;
    double total = 0;
    for (long long k = ptr[place]; k < ptr[place + 1]; ++k) total += (double)values[order[k] * heads + head];
    sum = (float)total
    """,
    "mgg_arc_sums",
)  # fmt: skip
_arc_dropout = ElementwiseKernel(
    "float32 value, raw int64 ids, raw int32 targets, raw S sources, int64 heads, int64 key, float32 rate,"
    " float32 kept",
    "float32 out",
    """
    const long long arc = i / heads, head = i - arc * heads;
    const unsigned long long state = mgg_row_state((unsigned long long)key, (unsigned long long)ids[targets[arc]]);
    const unsigned long long column = (unsigned long long)ids[sources[arc]] * (unsigned long long)heads
        + (unsigned long long)head;
    out = value * (mgg_uniform(state, column) >= rate ? kept : 0.0f)
    """,
    "mgg_arc_dropout", preamble=random.CUDA,
)  # fmt: skip
#: A thread an entry of the result: neighbors in a row read neighbors in the rows that they sum up.
_arc_aggregate = ElementwiseKernel(
    "raw int64 indptr, raw S sources, raw float32 weights, raw float32 x, int64 heads, int64 columns",
    "float32 out",
    """
    const long long width = heads * columns, row = i / width, column = i - row * width, head = column / columns;
    float sum = 0;
    for (long long k = indptr[row]; k < indptr[row + 1]; ++k)
        sum += weights[k * heads + head] * x[(long long)sources[k] * width + column];
    out = sum
    """,
    "mgg_arc_aggregate",
)  # fmt: skip
_arc_aggregate_back = ElementwiseKernel(
    "raw int64 source_ptr, raw int64 order, raw int32 targets, raw float32 weights, raw float32 gradient,"
    " int64 heads, int64 columns",
    "float32 out",
    """
    const long long width = heads * columns, place = i / width, column = i - place * width, head = column / columns;
    float sum = 0;
    for (long long j = source_ptr[place]; j < source_ptr[place + 1]; ++j) {
        const long long k = order[j];
        sum += weights[k * heads + head] * gradient[(long long)targets[k] * width + column];
    }
    out = sum
    """,
    "mgg_arc_aggregate_back",
)  # fmt: skip
_arc_inner = ElementwiseKernel(
    "raw int32 targets, raw S sources, raw float32 gradient, raw float32 x, int64 heads, int64 columns",
    "float32 product",
    """
    const long long arc = i / heads, head = i - arc * heads;
    const long long mine = ((long long)targets[arc] * heads + head) * columns;
    const long long theirs = ((long long)sources[arc] * heads + head) * columns;
    float sum = 0;
    for (long long f = 0; f < columns; ++f) sum += gradient[mine + f] * x[theirs + f];
    product = sum
    """,
    "mgg_arc_inner",
)  # fmt: skip
_row_norms = ElementwiseKernel(
    "raw float32 x, int64 columns, float32 least", "float32 norm",
    """
    double sum = 0;
    for (long long k = i * columns; k < (i + 1) * columns; ++k) sum += (double)x[k] * (double)x[k];
    const float found = (float)sqrt(sum);
    norm = found > least ? found : least
    """,
    "mgg_row_norms",
)  # fmt: skip
_row_statistics = ElementwiseKernel(
    "raw float32 x, int64 columns, float32 epsilon", "float32 mean, float32 inverse",
    """
    double sum = 0, squares = 0;
    for (long long k = i * columns; k < (i + 1) * columns; ++k) sum += (double)x[k];
    const double center = sum / (double)columns;
    for (long long k = i * columns; k < (i + 1) * columns; ++k)
        squares += ((double)x[k] - center) * ((double)x[k] - center);
    mean = (float)center;
    inverse = (float)(1.0 / sqrt(squares / (double)columns + (double)epsilon))
    """,
    "mgg_row_statistics",
)  # fmt: skip
_row_normal = _ByFours("mgg_row_normal", "x", "raw float32 mean, raw float32 inverse", "(x - mean[row]) * inverse[row]")
_scaled_and_shifted = _ByFours(
    "mgg_scaled_and_shifted", "x", "raw float32 scale, raw float32 shift", "x * scale[column] + shift[column]"
)
_row_gradient_means = ElementwiseKernel(
    "raw float32 gradient, raw float32 normal, raw float32 scale, int64 columns", "float32 mean, float32 along",
    """
    double sum = 0, product = 0;
    for (long long c = 0; c < columns; ++c) {
        const double value = (double)gradient[i * columns + c] * (double)scale[c];
        sum += value;
        product += value * (double)normal[i * columns + c];
    }
    mean = (float)(sum / (double)columns);
    along = (float)(product / (double)columns)
    """,
    "mgg_row_gradient_means",
)  # fmt: skip
_layer_norm_backward = _ByFours(
    "mgg_layer_norm_backward", "gradient normal",
    "raw float32 scale, raw float32 mean, raw float32 along, raw float32 inverse",
    "(gradient * scale[column] - mean[row] - normal * along[row]) * inverse[row]",
)  # fmt: skip
_row_products = ElementwiseKernel(
    "raw float32 x, raw float32 y, int64 columns", "float32 product",
    """
    double sum = 0;
    for (long long k = i * columns; k < (i + 1) * columns; ++k) sum += (double)x[k] * (double)y[k];
    product = (float)sum
    """,
    "mgg_row_products",
)  # fmt: skip
_over_norms = _ByFours("mgg_over_norms", "x", "raw float32 norm", "x / norm[row]")
_normalize_rows_backward = _ByFours(
    "mgg_normalize_rows_backward", "gradient y", "raw float32 along, raw float32 norm",
    "(gradient - y * along[row]) / norm[row]",
)  # fmt: skip
_batch_statistics = ElementwiseKernel(
    "float64 sum, float64 squares, float64 old_mean, float64 old_variance, float64 nodes, float64 momentum,"
    " float64 epsilon",
    "float32 center, float32 inverse, float64 new_mean, float64 new_variance",
    """
    const double mean = sum / nodes;
    const double spread = squares / nodes - mean * mean;
    const double variance = spread < 0.0 ? 0.0 : spread;
    center = (float)mean;
    inverse = (float)(1.0 / sqrt(variance + epsilon));
    new_mean = (1.0 - momentum) * old_mean + momentum * mean;
    new_variance = (1.0 - momentum) * old_variance + momentum * variance * (nodes / (nodes > 2.0 ? nodes - 1.0 : 1.0))
    """,
    "mgg_batch_statistics",
)  # fmt: skip
_normalize = ElementwiseKernel(
    "float32 x, float32 mean, float32 inverse, float32 scale, float32 shift", "float32 normal, float32 y",
    "const float value = (x - mean) * inverse; normal = value; y = value * scale + shift",
    "mgg_normalize",
)  # fmt: skip
_running_factors = ElementwiseKernel(
    "float64 mean, float64 variance, float32 scale, float32 shift, float64 epsilon",
    "float32 factor, float32 offset",
    """
    const double ratio = (double)scale / sqrt(variance + epsilon);
    factor = (float)ratio;
    offset = (float)((double)shift - mean * ratio)
    """,
    "mgg_running_factors",
)  # fmt: skip
_affine = ElementwiseKernel(
    "float32 x, float32 factor, float32 offset", "float32 y", "y = x * factor + offset", "mgg_affine"
)
_normalize_backward = ElementwiseKernel(
    "float32 normal, float64 by_shift, float64 by_scale, float64 nodes, float32 inverse, float32 scale",
    "float32 gradient",
    """
    const float centered = gradient - normal * (float)(by_scale / nodes) - (float)(by_shift / nodes);
    gradient = centered * (inverse * scale)
    """,
    "mgg_normalize_backward",
)  # fmt: skip
#: For each chosen row its share of the loss, and log(sum(exp(logits))) for the gradient.
_row_losses = ElementwiseKernel(
    "raw float32 logits, raw int32 labels, int64 row, int64 classes, float64 count",
    "float64 loss, raw float64 log_sums",
    """
    const long long first = row * classes;
    double top = (double)logits[first];
    for (long long c = 1; c < classes; ++c) {
        const double value = (double)logits[first + c];
        top = value > top ? value : top;
    }
    double sum = 0;
    for (long long c = 0; c < classes; ++c) sum += exp((double)logits[first + c] - top);
    const double rest = log(sum);
    log_sums[row] = top + rest;
    loss = (rest - ((double)logits[first + labels[row]] - top)) / count
    """,
    "mgg_row_losses",
)  # fmt: skip
_hits = ElementwiseKernel(
    "raw float32 logits, raw int32 labels, int64 row, int64 classes", "float64 hit",
    """
    const long long first = row * classes;
    long long best = 0;
    for (long long c = 1; c < classes; ++c) {
        if (logits[first + c] > logits[first + best]) best = c;
    }
    hit = best == (long long)labels[row] ? 1.0 : 0.0
    """,
    "mgg_hits",
)  # fmt: skip
_adam = ElementwiseKernel(
    "float64 total, float32 decay, float32 to_first, float32 to_second, float32 rate, float32 correction,"
    " float32 above",
    "float32 weight, float32 first, float32 second",
    """
    const float gradient = (float)total + decay * weight;
    const float moved = first + to_first * (gradient - first);
    const float spread = second + to_second * (gradient * gradient - second);
    first = moved;
    second = spread;
    weight = weight - rate * moved / (sqrtf(spread / correction) + above)
    """,
    "mgg_adam",
)  # fmt: skip


@dataclass(frozen=True)
class Mask:
    """A dropout mask, which is computed where it is applied: the state of each row's random numbers, and the rate."""

    states: cupy.ndarray
    rate: float


class CudaArrays:
    """See ``mgg.model.arrays.Arrays``; float32 alone."""

    def __init__(self, world: World) -> None:
        self.upload = world.upload

    def joined(self, parts: list[Array]) -> Array:
        """One vector."""
        return cupy.concatenate([part.reshape(-1) for part in parts])

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Zeros."""
        return cupy.zeros(shape, dtype)

    def rows(self, x: Array, places: Array) -> Array:
        """A copy of the rows."""
        return x[places]

    def add_to_rows(self, x: Array, places: Array, y: Array) -> None:
        """Row by row."""
        x[places] += y

    def product(self, x: Any, weight: Array) -> Array:
        """X W."""
        return x.product(weight) if isinstance(x, DeviceCsr) else cupy.dot(x, weight)

    def transposed_product(self, x: Any, gradient: Array) -> Array:
        """X^T G, in pieces of rows that are summed in float64."""
        if isinstance(x, DeviceCsr):
            return x.transposed_product(gradient).astype(np.float64)
        rows, inputs, outputs = len(x), x.shape[1], gradient.shape[1]
        if not rows:
            return cupy.zeros((inputs, outputs), np.float64)
        pieces = max(1, min(PIECES, rows // PIECE_ROWS))
        length = rows // pieces
        whole = pieces * length
        parts = cupy.empty((pieces + (whole < rows), inputs, outputs), np.float32)
        # cuBLAS counts by columns: what it sees are G^T, X^T and (X^T G)^T of each piece.
        cupy.cuda.cublas.sgemmStridedBatched(
            cupy.cuda.get_cublas_handle(), cupy.cuda.cublas.CUBLAS_OP_N, cupy.cuda.cublas.CUBLAS_OP_T,
            outputs, inputs, length, _ONE.ctypes.data,
            gradient.data.ptr, outputs, length * outputs, x.data.ptr, inputs, length * inputs,
            _ZERO.ctypes.data, parts.data.ptr, outputs, inputs * outputs, pieces,
        )  # fmt: skip
        if whole < rows:
            cupy.dot(x[whole:].T, gradient[whole:], parts[pieces])
        return self._sum_rows(parts.reshape(len(parts), inputs * outputs)).reshape(inputs, outputs)

    def column_sums(self, x: Array) -> Array:
        """Sum of the rows."""
        return self._sum_rows(x)

    def column_moments(self, x: Array, y: Array) -> Array:
        """Sums of X and X * Y."""
        columns = x.shape[1]
        lanes = _lanes(x)
        partial = cupy.empty((2, lanes, columns), np.float64)
        _moments(x, y, x.size, lanes * columns, partial[0], partial[1])
        # One matrix with the columns of both, so that both are summed at once.
        side_by_side = cupy.concatenate([partial[0], partial[1]], axis=1)
        return self._sum_rows(side_by_side).reshape(2, columns)

    def inner(self, x: Array, y: Array) -> Array:
        """Sum of X * Y."""
        return self.column_moments(x.reshape(-1, 1), y.reshape(-1, 1))[1]

    def add_bias(self, x: Array, bias: Array) -> Array:
        """X + b."""
        return _add_bias(x, bias, out=x)

    def relu(self, x: Array) -> Array:
        """max(X, 0), in place."""
        return _relu(x, out=x)

    def where_positive(self, gradient: Array, y: Array) -> Array:
        """G where Y > 0, in place."""
        return _where_positive(gradient, y, out=gradient)

    def dropout(self, x: Any, node_ids: Array, seed: int, stream: int, rate: float) -> tuple[Any, Any]:
        """Masked input and mask."""
        key, entries = random.device_key(seed, stream), isinstance(x, DeviceCsr)
        states = cupy.empty(len(x.values) if entries else len(x), np.uint64)
        _row_states(x.node_ids if entries else node_ids, key, states)
        if entries:
            values = cupy.empty(len(x.values), np.float32)
            _masked(x.values, states, x.indices, rate, 1 / (1 - rate), values)
            return x.with_values(values), None
        mask = Mask(states, rate)
        return self._apply(x, mask, cupy.empty(x.shape, np.float32)), mask

    def masked(self, gradient: Array, mask: Mask) -> Array:
        """The product, in place."""
        return self._apply(gradient, mask, gradient)

    def _apply(self, x: Array, mask: Mask, out: Array) -> Array:
        return _masked_rows(x, mask.states, mask.rate, 1 / (1 - mask.rate), out=out)

    def scale_rows(self, x: Array, scale: Array, out: Array) -> None:
        """X * s."""
        _scale_rows(x, scale, out=out)

    def add_and_scale(self, x: Array, y: Array, scale: Array) -> Array:
        """(X + Y) * s."""
        return _add_and_scale(x, y, scale, out=x)

    def add_multiple(self, x: Array, epsilon: Array, y: Array) -> Array:
        """X + (1 + epsilon) Y."""
        return _add_multiple(x, y, epsilon, out=x)

    def combined(self, x: Array, a: float, y: Array, b: float) -> Array:
        """a X + b Y."""
        return _combined(x, y, a, b, out=x)

    def elu(self, x: Array) -> Array:
        """X or exp(X) - 1, in place."""
        return _elu(x, out=x)

    def elu_backward(self, gradient: Array, y: Array) -> Array:
        """G or G (Y + 1), in place."""
        return _elu_backward(gradient, y, out=gradient)

    def mean_of_heads(self, x: Array, heads: int) -> Array:
        """The mean."""
        out = cupy.empty((len(x), x.shape[1] // heads), np.float32)
        _mean_of_heads(x, heads, out.shape[1], out)
        return out

    def mean_of_heads_backward(self, gradient: Array, heads: int) -> Array:
        """G / heads for each head."""
        out = cupy.empty((len(gradient), gradient.shape[1] * heads), np.float32)
        _mean_of_heads_backward(gradient, heads, gradient.shape[1], out)
        return out

    def head_products(self, x: Array, vectors: Array) -> Array:
        """The inner products."""
        out = cupy.empty((len(x), len(vectors)), np.float32)
        _head_products(x, vectors, *vectors.shape, out)
        return out

    def head_products_backward(self, x: Array, vectors: Array, gradient: Array, by_x: Array) -> Array:
        """G^T X by head."""
        _add_head_products_backward(gradient, vectors, *vectors.shape, by_x)
        lanes = _lanes(x)
        partial = cupy.empty((lanes, x.shape[1]), np.float64)
        _vector_gradients(x, gradient, len(x), *vectors.shape, lanes, partial)
        return self._sum_rows(partial).reshape(*vectors.shape)

    def arc_softmax(self, arcs: Arcs, to_target: Array, to_source: Array, slope: float) -> Array:
        """The softmax."""
        heads = to_target.shape[1]
        shares = cupy.empty((len(arcs.sources), heads), np.float32)
        if to_target.size:
            _arc_softmax(
                arcs.indptr, arcs.sources, to_target, to_source, slope, heads, shares, size=to_target.size
            )  # fmt: skip
        return shares

    def arc_softmax_backward(
        self, arcs: Arcs, shares: Array, gradient: Array, to_target: Array, to_source: Array, slope: float
    ) -> tuple[Array, Array]:
        """Both gradients."""
        heads = to_target.shape[1]
        by_arc, by_target, by_source = (cupy.empty(like.shape, np.float32) for like in (shares, to_target, to_source))
        if to_target.size:
            _arc_softmax_backward(
                arcs.indptr, arcs.sources, shares, gradient, to_target, to_source, slope, heads, by_arc, by_target,
                size=to_target.size,
            )  # fmt: skip
        _arc_sums(arcs.source_ptr, arcs.order, by_arc, heads, by_source)
        return by_target, by_source

    def arc_dropout(self, arcs: Arcs, values: Array, seed: int, stream: int, rate: float) -> Array:
        """Masked values."""
        key, out = random.device_key(seed, stream), cupy.empty(values.shape, np.float32)
        _arc_dropout(values, arcs.ids, arcs.targets, arcs.sources, values.shape[1], key, rate, 1 / (1 - rate), out)
        return out

    def arc_aggregate(self, arcs: ArcLists, weights: Array, x: Array) -> Array:
        """The sums."""
        heads, out = weights.shape[1], cupy.empty((len(arcs.indptr) - 1, x.shape[1]), np.float32)
        _arc_aggregate(arcs.indptr, arcs.sources, weights, x, heads, x.shape[1] // heads, out)
        return out

    def arc_aggregate_back(self, arcs: ArcLists, weights: Array, gradient: Array) -> Array:
        """The sums over the arcs that begin at each position."""
        heads, columns = weights.shape[1], gradient.shape[1]
        out = cupy.empty((len(arcs.source_ptr) - 1, columns), np.float32)
        _arc_aggregate_back(
            arcs.source_ptr, arcs.order, arcs.targets, weights, gradient, heads, columns // heads, out
        )  # fmt: skip
        return out

    def arc_inner(self, arcs: Arcs, gradient: Array, x: Array, heads: int) -> Array:
        """The inner products."""
        out = cupy.empty((len(arcs.sources), heads), np.float32)
        _arc_inner(arcs.targets, arcs.sources, gradient, x, heads, x.shape[1] // heads, out)
        return out

    def normalize_rows(self, x: Array, least: float) -> tuple[Array, Array]:
        """Rows of norm 1, and the norms."""
        norms = cupy.empty((len(x), 1), np.float32)
        _row_norms(x, x.shape[1], least, norms)
        return _over_norms(x, norms, out=cupy.empty(x.shape, np.float32)), norms

    def normalize_rows_backward(self, gradient: Array, y: Array, norms: Array) -> Array:
        """(G - Y <G, Y>) / norm, in place."""
        along = cupy.empty(norms.shape, np.float32)
        _row_products(gradient, y, y.shape[1], along)
        return _normalize_rows_backward(gradient, y, along, norms, out=gradient)

    def layer_norm(self, x: Array, scale: Array, shift: Array, epsilon: float) -> tuple[Array, Array, Array]:
        """N, 1 / deviation, and N scaled and shifted."""
        mean, inverse = (cupy.empty((len(x), 1), np.float32) for _ in range(2))
        _row_statistics(x, x.shape[1], epsilon, mean, inverse)
        normal, y = (cupy.empty(x.shape, np.float32) for _ in range(2))
        _row_normal(x, mean, inverse, out=normal)
        return normal, inverse, _scaled_and_shifted(normal, scale, shift, out=y)

    def layer_norm_backward(self, gradient: Array, normal: Array, inverse: Array, scale: Array) -> Array:
        """The gradient by the input, in place."""
        mean, along = (cupy.empty(inverse.shape, np.float32) for _ in range(2))
        _row_gradient_means(gradient, normal, scale, normal.shape[1], mean, along)
        return _layer_norm_backward(gradient, normal, scale, mean, along, inverse, out=gradient)

    def batch_statistics(
        self, sums: Array, nodes: int, running: tuple[Array, Array], momentum: float, epsilon: float, dtype: Any
    ) -> tuple[Array, Array, tuple[Array, Array]]:
        """Mean, 1 / deviation, new running statistics."""
        columns = sums.shape[1]
        mean, inverse = (cupy.empty(columns, np.float32) for _ in range(2))
        new_mean, new_variance = (cupy.empty(columns, np.float64) for _ in range(2))
        _batch_statistics(
            sums[0], sums[1], *running, float(nodes), momentum, epsilon, mean, inverse, new_mean, new_variance
        )
        return mean, inverse, (new_mean, new_variance)

    def normalize(self, x: Array, mean: Array, inverse: Array, scale: Array, shift: Array) -> tuple[Array, Array]:
        """Normalized X, and that scaled and shifted."""
        normal, y = (cupy.empty(x.shape, np.float32) for _ in range(2))
        _normalize(x, mean, inverse, scale, shift, normal, y)
        return normal, y

    def normalize_with(
        self, x: Array, running: tuple[Array, Array], scale: Array, shift: Array, epsilon: float
    ) -> Array:
        """X normalized with running statistics."""
        factor, offset = (cupy.empty(x.shape[1], np.float32) for _ in range(2))
        _running_factors(*running, scale, shift, epsilon, factor, offset)
        y = cupy.empty(x.shape, np.float32)
        _affine(x, factor, offset, y)
        return y

    def normalize_backward(
        self, gradient: Array, normal: Array, sums: Array, nodes: int, inverse: Array, scale: Array
    ) -> Array:
        """The gradient by the input, in place."""
        _normalize_backward(normal, sums[0], sums[1], float(nodes), inverse, scale, gradient)
        return gradient

    def cross_entropy(self, logits: Array, labels: Array, chosen: Array) -> Array:
        """The sum."""
        return self._losses(logits, labels, chosen, 1)[0]

    def loss_and_gradient(self, logits: Array, labels: Array, chosen: Array, count: int) -> tuple[Array, Array]:
        """Both; the gradient takes the place of the logits."""
        loss, log_sums = self._losses(logits, labels, chosen, count)
        return loss, _logit_gradient(logits, log_sums, labels, float(count), out=logits)

    def _losses(self, logits: Array, labels: Array, chosen: Array, count: int) -> tuple[Array, Array]:
        """The loss [1], and of each row log(sum(exp(logits))), infinite where it is not chosen."""
        log_sums = cupy.full(len(logits), np.inf, np.float64)
        losses = cupy.empty(len(chosen), np.float64)
        _row_losses(logits, labels, chosen, logits.shape[1], float(count), losses, log_sums)
        return self._sum_rows(losses.reshape(-1, 1)), log_sums

    def correct(self, logits: Array, labels: Array, chosen: Array) -> Array:
        """The number."""
        hits = cupy.empty(len(chosen), np.float64)
        _hits(logits, labels, chosen, logits.shape[1], hits)
        return self._sum_rows(hits.reshape(-1, 1))

    def classes(self, logits: Array) -> Array:
        """The column of the largest."""
        return cupy.argmax(logits, axis=1)

    def adam(
        self, weights: Array, gradients: Array, first: Array, second: Array, decay: Array, rates: tuple[float, ...]
    ) -> None:
        """One step, one kernel."""
        _adam(gradients, decay, *rates, weights, first, second)

    def _sum_rows(self, x: Array) -> Array:
        """Column sums of a contiguous matrix, float64 [columns].

        CuPy's own sum gives all rows of a few columns to one block of threads. Here thread i adds the entries i,
        i + T, i + 2 T and so on, T being a multiple of the columns: it stays in its column, and neighbors read
        neighbors. What the threads found is a shorter matrix of the same columns.
        """
        while len(x) != 1 or x.dtype != np.float64:
            lanes = _lanes(x)
            shorter = cupy.empty((lanes, x.shape[1]), np.float64)
            _sums(x, x.size, shorter.size, shorter)
            x = shorter
        return x.reshape(-1)


def _lanes(x: Array) -> int:
    """Rows of partial sums: each stands for 32 rows of ``x`` or more, all of them where there are fewer."""
    rows, columns = x.shape
    return max(1, min(rows // 32, SUM_THREADS // max(columns, 1)))
