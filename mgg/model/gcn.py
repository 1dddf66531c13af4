"""GCN: graph convolutional network (Kipf and Welling, ICLR 2017, equation 9), with the settings of its section 5.2.

    Z = P ReLU(P X W0 + b0) W1 + b1,    P = D^-1/2 (A + I) D^-1/2

with dropout on the input of every layer and the L2 penalty on the first layer alone. The paper's has two layers; with
more, those between have ``hidden`` columns and end in a ReLU like the first.
"""

from __future__ import annotations

from itertools import pairwise

from pydantic import Field

from mgg.model.layers import Bias, Dropout, Linear, Relu
from mgg.model.module import Chain, Module
from mgg.model.propagate import Normalized, narrow
from mgg.model.settings import LayeredSettings, Sizes


class Settings(LayeredSettings):
    """The published hyperparameters for Cora, Citeseer and Pubmed."""

    layers: int = Field(2, ge=1, le=64, description="number of layers")
    weight_decay: float = Field(5e-4, ge=0, le=1e6, description="L2 penalty on the first layer: added to its gradients")
    row_normalize: bool | None = Field(
        None,
        description="scale every node's features to an absolute sum of 1; none: where they are sparse, as the paper"
        " does with its bags of words",
    )


def build(settings: Settings, sizes: Sizes) -> Chain:
    """The layers, a ReLU between two of them."""
    widths = [sizes.features, *[settings.hidden] * (settings.layers - 1), sizes.classes]
    modules: list[Module] = []
    for k, (inputs, outputs) in enumerate(pairwise(widths)):
        decay = 0.0 if k else settings.weight_decay
        modules += [Relu()] if k else []
        modules += [
            Dropout(settings.dropout, k),
            narrow(Linear(f"layer{k}", inputs, outputs, decay), Normalized),
            Bias(f"layer{k}", outputs, decay),
        ]
    return Chain(*modules)
