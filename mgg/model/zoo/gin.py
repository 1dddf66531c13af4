"""GIN: graph isomorphism network (Xu, Hu, Leskovec and Jegelka, ICLR 2019, equation 4.1, settings of its section 7).

    H_k = ReLU(BN(MLP_k((1 + epsilon_k) H_k-1 + A H_k-1))),    MLP(X) = ReLU(BN(X W)) V

The paper's model has five such layers of 64 columns, with batch normalization over all nodes and a trainable epsilon.
It classifies whole graphs by a sum over their nodes; for nodes, a dropout and a linear layer follow the last layer. A
linear layer before a normalization has no bias, because batch normalization would subtract it. For deep models, layers
may be residual or normalized otherwise, unlike in the paper.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mgg import vertex as V
from mgg.model.layers import Bias, Dropout, Linear, Relu, normalized_or_shifted
from mgg.model.module import Chain, Module, Residual
from mgg.model.program import VertexLayer, Weight
from mgg.model.propagate import sum_with_self
from mgg.model.settings import DeepSettings, Sizes


class Settings(DeepSettings):
    """Hyperparameters, the paper's where it has them."""

    hidden: int = Field(64, ge=1, le=65536, description="columns of the hidden layers")
    layers: int = Field(5, ge=1, le=64, description="number of GIN layers")
    normalization: Literal["none", "batch", "layer"] = Field(
        "batch", description="before both activations of a layer, in place of biases"
    )


@V.program
def _summed(v: Any, epsilon: Any, W: Any) -> Any:
    return sum_with_self(v, epsilon) @ W


def build(settings: Settings, sizes: Sizes) -> Chain:
    """Return the GIN layers and the classifier."""
    hidden = settings.hidden
    layers = [_layer(settings, k, hidden if k else sizes.features) for k in range(settings.layers)]
    classifier = (Linear("classifier", hidden, sizes.classes), Bias("classifier", sizes.classes))
    return Chain(*layers, Dropout(settings.dropout, 0), *classifier)


def _layer(settings: Settings, k: int, inputs: int) -> Module:
    name, hidden, normalization = f"layer{k}", settings.hidden, settings.normalization
    weights = {"W": Weight((inputs, hidden), name="mlp0.weight"), "epsilon": Weight((1,), "zeros")}
    if hidden > inputs:  # initial values are drawn in the order of the parameters
        weights = dict(reversed(weights.items()))
    layer = Chain(
        VertexLayer(name, _summed, inputs, weights),
        normalized_or_shifted(f"{name}.mlp0", hidden, normalization),
        Relu(),
        Linear(f"{name}.mlp1", hidden, hidden),
        normalized_or_shifted(name, hidden, normalization),
        Relu(),
    )
    return Residual(layer) if settings.residual and k else layer
