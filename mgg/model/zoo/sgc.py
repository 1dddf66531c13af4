"""SGC: simple graph convolution (Wu, Zhang, de Souza, Fifty, Yu and Weinberger, ICML 2019, equation 8).

    Z = P^K X W + b,    P = D^-1/2 (A + I) D^-1/2

P^K X has no parameters, so it is computed once, before the first epoch; only a linear classifier is trained. Its
weights start from a Glorot distribution; the authors' program uses PyTorch's default.
"""

from __future__ import annotations

from pydantic import Field

from mgg.model.layers import Bias, Linear
from mgg.model.module import CachedOutput, Chain
from mgg.model.program import VertexLayer
from mgg.model.propagate import normalized
from mgg.model.settings import ModelSettings, Selection, Sizes, WhereSparse


class Settings(ModelSettings):
    """The authors' settings for Cora, Citeseer and Pubmed, except the L2 penalty, which they tune for each."""

    selection: Selection = Field(
        "last",
        description="which epoch counts: the last of a fixed number, as published, or the best on the validation nodes"
        " by score (validation) or loss (validation_loss)",
    )
    hops: int = Field(2, ge=1, le=64, description="K: how often the features are propagated")
    learning_rate: float = Field(0.2, gt=0, le=10, description="step size of Adam")
    weight_decay: float = Field(
        5e-5, ge=0, le=1e6, description="L2 penalty on all parameters: added to their gradients"
    )
    row_normalize: WhereSparse = None


def build(settings: Settings, sizes: Sizes) -> Chain:
    """Return the propagated features and the classifier."""
    hops = [VertexLayer(f"hop{k}", normalized, sizes.features, {}) for k in range(settings.hops)]
    decay = settings.weight_decay
    return Chain(
        CachedOutput(Chain(*hops)),
        Linear("classifier", sizes.features, sizes.classes, decay),
        Bias("classifier", sizes.classes, decay),
    )
