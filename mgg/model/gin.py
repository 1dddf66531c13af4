"""GIN: graph isomorphism network (Xu, Hu, Leskovec and Jegelka, ICLR 2019, equation 4.1, settings of its section 7).

    H_k = ReLU(BN(MLP_k((1 + epsilon_k) H_k-1 + A H_k-1))),    MLP(X) = ReLU(BN(X W)) V

Five such layers of 64 columns with batch normalization over all nodes and a trainable epsilon. The paper classifies
whole graphs by a sum over their nodes; for nodes a dropout and a linear layer read the last layer out. A linear layer
before a batch normalization has no bias: the normalization subtracts it again.
"""

from __future__ import annotations

from functools import partial

from pydantic import Field

from mgg.model.layers import BatchNorm, Bias, Dropout, Linear, Relu
from mgg.model.module import Chain
from mgg.model.propagate import SumWithSelf, narrow
from mgg.model.settings import LayeredSettings, Sizes


class Settings(LayeredSettings):
    """Hyperparameters: those of the paper where it has them."""

    hidden: int = Field(64, ge=1, le=65536, description="columns of the hidden layers")
    layers: int = Field(5, ge=1, le=64, description="number of GIN layers")


def build(settings: Settings, sizes: Sizes) -> Chain:
    """The GIN layers and the classifier."""
    hidden = settings.hidden
    layers = [_layer(f"layer{k}", hidden if k else sizes.features, hidden) for k in range(settings.layers)]
    classifier = (Linear("classifier", hidden, sizes.classes), Bias("classifier", sizes.classes))
    return Chain(*layers, Dropout(settings.dropout, 0), *classifier)


def _layer(name: str, inputs: int, hidden: int) -> Chain:
    return Chain(
        narrow(Linear(f"{name}.mlp0", inputs, hidden), partial(SumWithSelf, name)),
        BatchNorm(f"{name}.mlp0.norm", hidden),
        Relu(),
        Linear(f"{name}.mlp1", hidden, hidden),
        BatchNorm(f"{name}.norm", hidden),
        Relu(),
    )
