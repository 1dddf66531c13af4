"""Elementwise kernels of the array operations on GPUs; CuPy compiles each on first use.

Sums run in double precision and in an order that depends on the shapes alone.
"""

from __future__ import annotations

from cupy import ElementwiseKernel

from mgg.kernel import random
from mgg.kernel.cuda.vectorized_elementwise import ByFours

scale_rows = ByFours("mgg_scale_rows", "x", "raw float32 scale", "x * scale[row]")
add_and_scale = ByFours("mgg_add_and_scale", "x y", "raw float32 scale", "(x + y) * scale[row]")
add_multiple = ByFours("mgg_add_multiple", "x y", "raw float32 epsilon", "x + (1.0f + epsilon[0]) * y")
elu = ByFours("mgg_elu", "x", "", "x > 0.0f ? x : expm1f(x)")
elu_backward = ByFours("mgg_elu_backward", "gradient y", "", "gradient * (y > 0.0f ? 1.0f : y + 1.0f)")
combined = ByFours("mgg_combined", "x y", "float32 a, float32 b", "a * x + b * y")
times = ByFours("mgg_times", "x y", "", "x * y")
add_bias = ByFours("mgg_add_bias", "x", "raw float32 bias", "x + bias[column]")
relu = ByFours("mgg_relu", "x", "", "x <= 0.0f ? 0.0f : x")
where_positive = ByFours("mgg_where_positive", "gradient y", "", "gradient * (y > 0.0f ? 1.0f : 0.0f)")
masked_rows = ByFours(
    "mgg_masked_rows", "x", "raw uint64 states, float32 rate, float32 kept",
    "x * (mgg_uniform(states[row], (unsigned long long)column) >= rate ? kept : 0.0f)", random.cuda_source(),
)  # fmt: skip
#: Rows that are not chosen have an infinite log sum, so their gradient is 0.
logit_gradient = ByFours(
    "mgg_logit_gradient", "logit", "raw float64 log_sums, raw int32 labels, raw float32 weights, float64 count",
    "isinf(log_sums[row]) ? 0.0f"
    " : (float)((double)weights[labels[row]]"
    " * (exp((double)logit - log_sums[row]) - ((int)column == labels[row] ? 1.0 : 0.0)) / count)",
)  # fmt: skip
#: The key of an epoch's random numbers; the epoch is read from device memory, where every epoch writes its number.
_KEY = (
    f"mgg_key((unsigned long long)base, (unsigned long long)epoch[0] * {random.STREAMS}ull + (unsigned long long)place)"
)
row_states = ElementwiseKernel(
    "int64 row, int64 base, raw float64 epoch, int64 place", "uint64 state",
    f"state = mgg_row_state({_KEY}, (unsigned long long)row)",
    "mgg_row_states", preamble=random.cuda_source(),
)  # fmt: skip
masked = ElementwiseKernel(
    "float32 x, int64 row, int32 column, int64 base, raw float64 epoch, int64 place, float32 rate, float32 kept",
    "float32 y",
    f"const unsigned long long state = mgg_row_state({_KEY}, (unsigned long long)row);"
    "y = x * (mgg_uniform(state, (unsigned long long)column) >= rate ? kept : 0.0f)",
    "mgg_masked", preamble=random.cuda_source(),
)  # fmt: skip
sums = ElementwiseKernel(
    "raw T x, int64 entries, int64 threads", "float64 sum",
    "double total = 0; for (long long k = i; k < entries; k += threads) total += (double)x[k]; sum = total",
    "mgg_sums",
)  # fmt: skip
#: Vectors that one launch joins.
JOINED = 8
join = ElementwiseKernel(
    ", ".join([f"raw float64 part{n}" for n in range(JOINED)] + [f"int64 end{n}" for n in range(JOINED)]),
    "raw float64 out",
    "double found = 0; if (i < end0) found = part0[i];"
    + "".join(f"if (i >= end{n - 1} && i < end{n}) found = part{n}[i - end{n - 1}];" for n in range(1, JOINED))
    + "out[i] = found",
    "mgg_join",
)
#: Thread i sums one column over every n-th row; the result has the sums of X's columns, then those of the products.
moments = ElementwiseKernel(
    "raw float32 x, raw float32 y, int64 entries, int64 threads, int64 columns", "raw float64 found",
    """
    double of_x = 0, of_product = 0;
    for (long long k = i; k < entries; k += threads) {
        const double value = (double)x[k];
        of_x += value;
        of_product += value * (double)y[k];
    }
    const long long first = i / columns * 2 * columns + i % columns;
    found[first] = of_x;
    found[first + columns] = of_product
    """,
    "mgg_moments",
)  # fmt: skip
mean_of_heads = ElementwiseKernel(
    "raw float32 x, int64 heads, int64 columns", "float32 mean",
    """
    const long long row = i / columns, column = i - row * columns;
    double sum = 0;
    for (long long h = 0; h < heads; ++h) sum += (double)x[(row * heads + h) * columns + column];
    mean = (float)(sum / (double)heads)
    """,
    "mgg_mean_of_heads",
)  # fmt: skip
mean_of_heads_backward = ElementwiseKernel(
    "raw float32 gradient, int64 heads, int64 columns", "float32 out",
    "out = gradient[i / (heads * columns) * columns + i % columns] / (float)heads",
    "mgg_mean_of_heads_backward",
)  # fmt: skip
head_products = ElementwiseKernel(
    "raw float32 x, raw float32 y, int64 rows, int64 columns", "float32 out",
    """
    const long long of_x = i * columns, of_y = i % rows * columns;
    float sum = 0.0f;
    for (long long k = 0; k < columns; ++k) sum += x[of_x + k] * y[of_y + k];
    out = sum
    """,
    "mgg_head_products",
)  # fmt: skip
add_head_products_backward = ElementwiseKernel(
    "raw float32 gradient, raw float32 vectors, int64 heads, int64 columns", "float32 by_x",
    "by_x += gradient[i / columns] * vectors[i % (heads * columns)]",
    "mgg_add_head_products_backward",
)  # fmt: skip
#: Thread i sums column i % columns of X, times its head's gradient, over every ``lanes``-th row.
vector_gradients = ElementwiseKernel(
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
row_norms = ElementwiseKernel(
    "raw float32 x, int64 columns, float32 least", "float32 norm",
    """
    double sum = 0;
    for (long long k = i * columns; k < (i + 1) * columns; ++k) sum += (double)x[k] * (double)x[k];
    const float found = (float)sqrt(sum);
    norm = found > least ? found : least
    """,
    "mgg_row_norms",
)  # fmt: skip
row_statistics = ElementwiseKernel(
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
row_normal = ByFours("mgg_row_normal", "x", "raw float32 mean, raw float32 inverse", "(x - mean[row]) * inverse[row]")
scaled_and_shifted = ByFours(
    "mgg_scaled_and_shifted", "x", "raw float32 scale, raw float32 shift", "x * scale[column] + shift[column]"
)
row_gradient_means = ElementwiseKernel(
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
layer_norm_backward = ByFours(
    "mgg_layer_norm_backward", "gradient normal",
    "raw float32 scale, raw float32 mean, raw float32 along, raw float32 inverse",
    "(gradient * scale[column] - mean[row] - normal * along[row]) * inverse[row]",
)  # fmt: skip
row_products = ElementwiseKernel(
    "raw float32 x, raw float32 y, int64 columns", "float32 product",
    """
    double sum = 0;
    for (long long k = i * columns; k < (i + 1) * columns; ++k) sum += (double)x[k] * (double)y[k];
    product = (float)sum
    """,
    "mgg_row_products",
)  # fmt: skip
over_norms = ByFours("mgg_over_norms", "x", "raw float32 norm", "x / norm[row]")
normalize_rows_backward = ByFours(
    "mgg_normalize_rows_backward", "gradient y", "raw float32 along, raw float32 norm",
    "(gradient - y * along[row]) / norm[row]",
)  # fmt: skip
batch_statistics = ElementwiseKernel(
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
normalize = ElementwiseKernel(
    "float32 x, float32 mean, float32 inverse, float32 scale, float32 shift", "float32 normal, float32 y",
    "const float value = (x - mean) * inverse; normal = value; y = value * scale + shift",
    "mgg_normalize",
)  # fmt: skip
running_factors = ElementwiseKernel(
    "float64 mean, float64 variance, float32 scale, float32 shift, float64 epsilon",
    "float32 factor, float32 offset",
    """
    const double ratio = (double)scale / sqrt(variance + epsilon);
    factor = (float)ratio;
    offset = (float)((double)shift - mean * ratio)
    """,
    "mgg_running_factors",
)  # fmt: skip
affine = ElementwiseKernel(
    "float32 x, float32 factor, float32 offset", "float32 y", "y = x * factor + offset", "mgg_affine"
)
normalize_backward = ElementwiseKernel(
    "float32 normal, float64 by_shift, float64 by_scale, float64 nodes, float32 inverse, float32 scale",
    "float32 gradient",
    """
    const float centered = gradient - normal * (float)(by_scale / nodes) - (float)(by_shift / nodes);
    gradient = centered * (inverse * scale)
    """,
    "mgg_normalize_backward",
)  # fmt: skip
#: Per chosen row, its share of the loss, and log(sum(exp(logits))) for the gradient.
row_losses = ElementwiseKernel(
    "raw float32 logits, raw int32 labels, raw float32 weights, int64 row, int64 classes, float64 count",
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
    loss = (double)weights[labels[row]] * (rest - ((double)logits[first + labels[row]] - top)) / count
    """,
    "mgg_row_losses",
)  # fmt: skip
#: Thread i sums the loss and the hits of each split over every ``threads``-th chosen row.
class_sums = ElementwiseKernel(
    "raw float32 logits, raw int32 labels, raw int64 chosen, raw int32 splits, int64 rows, int64 threads,"
    " int64 classes, int32 judge, int64 count",
    "raw float64 found",
    """
    double loss = 0;
    for (long long s = 0; s <= count; ++s) found[i * (count + 1) + s] = 0;
    for (long long k = i; k < rows; k += threads) {
        const long long first = chosen[k] * classes, label = (long long)labels[chosen[k]];
        long long best = 0;
        for (long long c = 1; c < classes; ++c) {
            if (logits[first + c] > logits[first + best]) best = c;
        }
        if (best == label) found[i * (count + 1) + 1 + splits[k]] += 1;
        if (splits[k] == judge) {
            double top = (double)logits[first], sum = 0;
            for (long long c = 1; c < classes; ++c) {
                const double value = (double)logits[first + c];
                top = value > top ? value : top;
            }
            for (long long c = 0; c < classes; ++c) sum += exp((double)logits[first + c] - top);
            loss += log(sum) - ((double)logits[first + label] - top);
        }
    }
    found[i * (count + 1)] = loss
    """,
    "mgg_class_sums",
)  # fmt: skip
#: ``found`` is 1 before the launch; threads that see a larger number or nan all write 0.
refute_finite = ElementwiseKernel(
    "float64 x, float64 largest", "raw float64 found", "if (!(fabs(x) <= largest)) found[0] = 0.0", "mgg_refute_finite"
)
move = ElementwiseKernel("float64 y, raw float64 allowed", "float64 x", "if (allowed[0] != 0.0) x = y", "mgg_move")
adam = ElementwiseKernel(
    "float64 total, float32 decay, raw float64 rates, raw float64 allowed",
    "float32 weight, float32 first, float32 second",
    """
    if (allowed[0] != 0.0) {
        const float to_first = (float)rates[0], to_second = (float)rates[1], rate = (float)rates[2];
        const float correction = (float)rates[3], above = (float)rates[4];
        const float gradient = (float)total + decay * weight;
        const float moved = first + to_first * (gradient - first);
        const float spread = second + to_second * (gradient * gradient - second);
        first = moved;
        second = spread;
        weight = weight - rate * moved / (sqrtf(spread / correction) + above);
    }
    """,
    "mgg_adam",
)  # fmt: skip
shrink = ElementwiseKernel(
    "float32 decay, raw float64 rates, raw float64 allowed", "float32 weight",
    "if (allowed[0] != 0.0) weight = weight - (float)rates[5] * decay * weight", "mgg_shrink",
)  # fmt: skip
#: One entry of the chosen rows per thread: its share of the loss and, with ``kept``, of the gradient.
binary_losses = ElementwiseKernel(
    "raw float32 logits, raw uint8 tasks, raw int64 chosen, int64 columns, float64 count, int32 kept",
    "float64 loss, raw float32 gradient",
    """
    const long long place = chosen[i / columns] * columns + i % columns;
    const double logit = (double)logits[place];
    const int task = (int)tasks[place];
    const double size = logit < 0.0 ? -logit : logit;
    const double small = exp(-size);
    loss = task > 1 ? 0.0 : ((logit > 0.0 ? logit : 0.0) - (task == 1 ? logit : 0.0) + log1p(small)) / count;
    if (kept) {
        const double share = (logit < 0.0 ? small : 1.0) / (1.0 + small);
        gradient[place] = task > 1 ? 0.0f : (float)((share - (double)task) / count);
    }
    """,
    "mgg_binary_losses",
)  # fmt: skip
decisions = ElementwiseKernel(
    "raw float32 logits, raw uint8 tasks, raw int64 chosen, int64 columns", "raw float64 found",
    """
    double hits = 0, wrong = 0, missed = 0;
    for (long long k = chosen[i] * columns; k < (chosen[i] + 1) * columns; ++k) {
        const bool yes = logits[k] > 0.0f;
        if (tasks[k] == 1) { if (yes) ++hits; else ++missed; }
        else if (tasks[k] == 0 && yes) ++wrong;
    }
    found[3 * i] = hits;
    found[3 * i + 1] = wrong;
    found[3 * i + 2] = missed
    """,
    "mgg_decisions",
)  # fmt: skip
