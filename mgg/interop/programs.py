"""Neighbor parts of PyTorch Geometric's layers as vertex programs; the layers keep their row-wise parts.

Programs take projections W with biases b, or None. ``GATV2[loops]`` says whether every vertex is its own neighbor.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from mgg import vertex as V


def _projected(x: Any, W: Any, b: Any) -> Any:
    return x @ W if b is None else x @ W + b


def gatv2(v: Any, W_target: Any, b_target: Any, W_source: Any, b_source: Any, a: Any, slope: float, rate: float) -> Any:
    """Return [heads, columns]: Brody et al., ICLR 2022, equation 7; ``a`` [heads, columns]."""
    heads = a.shape[0]
    target = V.heads(_projected(v.x, W_target, b_target), heads)
    sources = [V.heads(_projected(u.x, W_source, b_source), heads) for u in v.innbs]
    scores = [V.dot(V.leaky_relu(target + source, slope), a) for source in sources]
    shares = V.dropout(V.softmax(scores), rate)
    return V.sum(share * source for share, source in zip(shares, sources, strict=True))


GATV2 = {loops: V.program(loops=loops)(gatv2) for loops in (False, True)}


@V.program
def transformer(
    v: Any, W_query: Any, b_query: Any, W_key: Any, b_key: Any, W_value: Any, b_value: Any, heads: int, rate: float
) -> Any:
    """Return [heads, columns]: Shi et al., IJCAI 2021, equations 3 and 4."""
    query = V.heads(_projected(v.x, W_query, b_query), heads)
    query = query * (1 / sqrt(query.shape[-1]))
    scores = [V.dot(query, V.heads(_projected(u.x, W_key, b_key), heads)) for u in v.innbs]
    shares = V.dropout(V.softmax(scores), rate)
    values = [V.heads(_projected(u.x, W_value, b_value), heads) for u in v.innbs]
    return V.sum(share * value for share, value in zip(shares, values, strict=True))


@V.program
def gated(v: Any, W_key: Any, b_key: Any, W_query: Any, b_query: Any, W_value: Any, b_value: Any) -> Any:
    """Return [columns]: Bresson and Laurent 2017, equation 11, the sum over the neighbors."""
    key = _projected(v.x, W_key, b_key)
    gates = [V.sigmoid(key + _projected(u.x, W_query, b_query)) for u in v.innbs]
    values = [_projected(u.x, W_value, b_value) for u in v.innbs]
    return V.sum(gate * value for gate, value in zip(gates, values, strict=True))


def _variance(values: list[Any]) -> Any:
    middle = V.mean(values)
    return V.mean([value * value for value in values]) - middle * middle


#: Aggregators of a vertex's messages in PNA and R-GCN, by name.
AGGREGATORS = {"sum": V.sum, "mean": V.mean, "max": V.max, "min": V.min, "std": V.std, "var": _variance}
#: Factors of an aggregate, by name, as functions of the degree and the means of degree and of log(degree + 1).
SCALERS = {
    "identity": lambda degree, linear, log: 1,
    "amplification": lambda degree, linear, log: V.log(degree + 1) / log,
    "attenuation": lambda degree, linear, log: log / V.log(V.maximum(degree, 1) + 1),
    "linear": lambda degree, linear, log: degree / linear,
    "inverse_linear": lambda degree, linear, log: linear / V.maximum(degree, 1),
}


@V.program
def principal(
    v: Any, W_target: Any, W_source: Any, b: Any, degree: Any, log_degree: Any, towers: int, aggregators: str,
    scalers: str,
) -> Any:  # fmt: skip
    """Return [towers, scalers * aggregators * columns]: Corso et al., NeurIPS 2020, equation 8.

    ``degree`` and ``log_degree`` are means over the training set; names in both lists are separated by blanks.
    """
    own = V.heads(_projected(v.x, W_target, b), towers)
    messages = [own + V.heads(u.x @ W_source, towers) for u in v.innbs]
    whole = V.concat([AGGREGATORS[name](messages) for name in aggregators.split()])
    return V.concat([whole * SCALERS[name](v.degree, degree, log_degree) for name in scalers.split()])


@V.program
def relational(v: Any, W: Any, aggregator: str) -> Any:
    """Return [columns]: Schlichtkrull et al., ESWC 2018, equation 2, summed over relations.

    W: [relations, inputs, columns].
    """
    return V.sum(AGGREGATORS[aggregator](e.src.x for e in v.inedges[t]) @ W[t] for t in v.types)
