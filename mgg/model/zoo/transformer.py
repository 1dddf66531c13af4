"""Graph Transformer (Shi et al., IJCAI 2021, equations 3 to 5), as a vertex program.

    H_k = ReLU(LayerNorm(beta r + (1 - beta) m)),    r = W_self h_v + b,    m = sum over u of alpha_vu (W_value h_u + b)

for each of several heads, where alpha is the softmax over the in-neighbors of v of q_v . k_u / sqrt(columns), q is
affine and k linear in h, and beta = sigmoid(w . [m, r, m - r]) gates the residual. The last layer takes the mean of the
heads and has neither normalization nor ReLU. Dropout is on the input of every layer; the L2 penalty is on all
parameters. The paper's label embeddings and its normalization of the input features are left out.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from pydantic import Field

from mgg import vertex as V
from mgg.model.layers import Dropout, LayerNorm, Relu
from mgg.model.module import Chain
from mgg.model.program import VertexLayer, Weight
from mgg.model.settings import LayeredSettings, Sizes, WhereSparse


class Settings(LayeredSettings):
    """The published hyperparameters for ogbn-arxiv (the paper's table 3 and the authors' program)."""

    layers: int = Field(3, ge=1, le=64, description="number of layers")
    hidden: int = Field(128, ge=1, le=65536, description="columns of each head of the hidden layers")
    heads: int = Field(2, ge=1, le=1024, description="heads of each layer: side by side, in the last one their mean")
    gated: bool = Field(True, description="gate between what a node gets and its own; else both are added")
    dropout: float = Field(0.3, ge=0, lt=1, description="share of the inputs of all layers that dropout sets to zero")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="share of the attention that dropout sets to zero")
    learning_rate: float = Field(0.001, gt=0, le=10, description="step size of Adam")
    weight_decay: float = Field(5e-4, ge=0, le=1e6, description="L2 penalty on all weights: added to their gradients")
    row_normalize: WhereSparse = None


@V.program
def attention(
    v: Any, W_query: Any, b_query: Any, W_key: Any, W_value: Any, b_value: Any, W_self: Any, b_self: Any,
    w_gate: Any, heads: int, mean: bool, rate: float,
) -> Any:  # fmt: skip
    """Return [heads * columns], or [columns] with ``mean``; without ``w_gate`` message and own row are added."""
    query = V.heads(v.x @ W_query + b_query, heads)
    keys = [V.heads(u.x @ W_key, heads) for u in v.innbs]
    values = [V.heads(u.x @ W_value + b_value, heads) for u in v.innbs]
    scores = [V.dot(query, key) / sqrt(query.shape[1]) for key in keys]
    shares = V.dropout(V.softmax(scores), rate)
    found = V.sum(share * value for share, value in zip(shares, values, strict=True))
    found = V.mean_of_heads(found) if mean else V.flatten(found)
    own = v.x @ W_self + b_self
    if w_gate is None:
        return found + own
    gate = V.sigmoid(V.dot(V.concat(found, own, found - own), w_gate))
    return gate * own + (1 - gate) * found


def build(settings: Settings, sizes: Sizes) -> Chain:
    """Return the layers."""
    last, wide, modules = settings.layers - 1, settings.heads * settings.hidden, []
    for k in range(settings.layers):
        inputs, name = wide if k else sizes.features, f"layer{k}"
        modules += [
            Dropout(settings.dropout, 2 * k),
            _attention(settings, k, inputs, sizes.classes if k == last else 0),
        ]
        modules += [LayerNorm(f"{name}.norm", wide), Relu()] if k < last else []
    return Chain(*modules)


def _attention(settings: Settings, k: int, inputs: int, classes: int) -> VertexLayer:
    """Return a hidden layer, or the last layer if ``classes`` is not 0."""
    decay, heads = settings.weight_decay, settings.heads
    wide = heads * (classes or settings.hidden)
    outputs = classes or wide
    weights: dict[str, Any] = {}
    for name, columns in (("query", wide), ("key", wide), ("value", wide), ("self", outputs)):
        weights[f"W_{name}"] = Weight((inputs, columns), decay=decay)
        if name != "key":  # a bias here would add one number to all scores of a node, which changes no share
            weights[f"b_{name}"] = Weight((columns,), "zeros", decay)
    gate = Weight((3 * outputs,), decay=decay) if settings.gated else None
    rest = {"w_gate": gate, "heads": heads, "mean": bool(classes), "rate": settings.attention_dropout}
    return VertexLayer(f"layer{k}", attention, inputs, weights | rest, place=2 * k + 1)
