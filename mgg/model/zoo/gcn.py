"""GCN: graph convolutional network (Kipf and Welling, ICLR 2017, equation 9), with the settings of its section 5.2.

    Z = P ReLU(P X W0 + b0) W1 + b1,    P = D^-1/2 (A + I) D^-1/2

with dropout on the input of both layers and the L2 penalty on the first layer alone. Deeper models may be residual, as
in the paper's appendix B, and normalized, as in OGB's example programs.
"""

from __future__ import annotations

from pydantic import Field

from mgg.model.layers import Bias, Dropout, Relu, normalized_or_shifted
from mgg.model.module import Chain, Module, Residual
from mgg.model.propagate import convolution
from mgg.model.settings import DeepSettings, Sizes, WhereSparse


class Settings(DeepSettings):
    """The published hyperparameters for Cora, Citeseer and Pubmed."""

    weight_decay: float = Field(5e-4, ge=0, le=1e6, description="L2 penalty on the first layer: added to its gradients")
    row_normalize: WhereSparse = None


def build(settings: Settings, sizes: Sizes) -> Chain:
    """Return the layers."""
    last = settings.layers - 1
    hidden = [_hidden(settings, k, settings.hidden if k else sizes.features) for k in range(last)]
    inputs, decay = (settings.hidden, 0.0) if last else (sizes.features, settings.weight_decay)
    return Chain(
        *hidden,
        Dropout(settings.dropout, last),
        convolution(f"layer{last}", inputs, sizes.classes, decay),
        Bias(f"layer{last}", sizes.classes, decay),
    )


def _hidden(settings: Settings, k: int, inputs: int) -> Module:
    name, decay = f"layer{k}", settings.weight_decay if k == 0 else 0.0
    layer = Chain(
        Dropout(settings.dropout, k),
        convolution(name, inputs, settings.hidden, decay),
        normalized_or_shifted(name, settings.hidden, settings.normalization, decay),
        Relu(),
    )
    return Residual(layer) if settings.residual and k else layer
