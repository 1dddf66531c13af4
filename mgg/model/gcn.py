"""GCN: graph convolutional network (Kipf and Welling, ICLR 2017, equation 9), with the settings of its section 5.2.

    Z = P ReLU(P X W0 + b0) W1 + b1,    P = D^-1/2 (A + I) D^-1/2

with dropout on the input of both layers and the L2 penalty on the first layer alone.
"""

from __future__ import annotations

from pydantic import Field

from mgg.model.layers import Bias, Dropout, Linear, Relu
from mgg.model.module import Chain
from mgg.model.propagate import Normalized, narrow
from mgg.model.settings import LayeredSettings, Sizes


class Settings(LayeredSettings):
    """The published hyperparameters for Cora, Citeseer and Pubmed."""

    weight_decay: float = Field(5e-4, ge=0, le=1e6, description="L2 penalty on the first layer: added to its gradients")
    row_normalize: bool | None = Field(
        None,
        description="scale every node's features to an absolute sum of 1; none: where they are sparse, as the paper"
        " does with its bags of words",
    )


def build(settings: Settings, sizes: Sizes) -> Chain:
    """The two layers."""
    hidden, decay = settings.hidden, settings.weight_decay
    return Chain(
        Dropout(settings.dropout, 0),
        narrow(Linear("layer0", sizes.features, hidden, decay), Normalized),
        Bias("layer0", hidden, decay),
        Relu(),
        Dropout(settings.dropout, 1),
        narrow(Linear("layer1", hidden, sizes.classes), Normalized),
        Bias("layer1", sizes.classes),
    )
