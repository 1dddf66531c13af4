"""GraphSAGE: sample and aggregate with the mean (Hamilton, Ying and Leskovec, NeurIPS 2017, algorithm 1).

    H_k = ReLU(W_self H_k-1 + W_neighbors mean(H_k-1) + b),    each row over its Euclidean norm

which is line 5's W CONCAT(own row, mean of the neighbors) with W in two parts. Two layers are followed by dropout and a
linear classifier, as in the paper's supervised setting. The paper samples 25 and 10 neighbors; here every node uses all
its neighbors, so nothing depends on a sample. Dropout on the input of every layer is not in the paper. Batch
normalization without unit rows is as in OGB's example programs.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mgg import vertex as V
from mgg.model.layers import Bias, Dropout, Linear, Relu, UnitRows, normalized_or_shifted
from mgg.model.module import Chain, Module, Residual
from mgg.model.program import VertexLayer, Weight
from mgg.model.propagate import mean
from mgg.model.settings import DeepSettings, Sizes, WhereSparse


class Settings(DeepSettings):
    """Hyperparameters, those of the paper's section 4 where it has them."""

    hidden: int = Field(128, ge=1, le=65536, description="columns of the hidden layers")
    unit_rows: bool = Field(True, description="divide the rows of hidden layers by their Euclidean norms")
    weight_decay: float = Field(0.0, ge=0, le=1e6, description="L2 penalty on all weights: added to their gradients")
    row_normalize: WhereSparse = None


@V.program
def _own_and_mean(v: Any, self: Any, neighbors: Any) -> Any:
    return v.x @ self + mean(v) @ neighbors


def build(settings: Settings, sizes: Sizes) -> Chain:
    """Return the GraphSAGE layers and the classifier."""
    hidden, decay = settings.hidden, settings.weight_decay
    layers = [_layer(settings, k, hidden if k else sizes.features) for k in range(settings.layers)]
    classifier = (Linear("classifier", hidden, sizes.classes, decay), Bias("classifier", sizes.classes))
    return Chain(*layers, Dropout(settings.dropout, settings.layers), *classifier)


def _layer(settings: Settings, k: int, inputs: int) -> Module:
    hidden, decay, name = settings.hidden, settings.weight_decay, f"layer{k}"
    matrices = {end: Weight((inputs, hidden), decay=decay, name=f"{end}.weight") for end in ("self", "neighbors")}
    layer = Chain(
        Dropout(settings.dropout, k),
        VertexLayer(name, _own_and_mean, inputs, matrices),
        normalized_or_shifted(name, hidden, settings.normalization),
        Relu(),
        *([UnitRows()] if settings.unit_rows else []),
    )
    return Residual(layer) if settings.residual and k else layer
