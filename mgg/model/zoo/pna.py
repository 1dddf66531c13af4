"""PNA: principal neighborhood aggregation (Corso et al., NeurIPS 2020, equations 5 to 8), as a vertex program.

    H_k = H_k-1 + ReLU(BN([h_v, s m]_v W + b)),    m = [mean, max, min, std] of (W_target h_v + W_source h_u + b)

where s are the three scalers of the degree d: 1, amplification log(d + 1) / delta and attenuation delta / log(d + 1);
delta is the mean of log(d + 1) over all nodes. A linear layer comes first, and a linear classifier last. Dropout is on
the output of every layer; the L2 penalty is on all weights. There is one tower.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mgg import vertex as V
from mgg.model.layers import Dropout, Relu, between_linear, normalized_or_shifted
from mgg.model.module import Chain, Module, Residual
from mgg.model.program import VertexLayer, Weight
from mgg.model.settings import DeepSettings, Sizes, WhereSparse


class Settings(DeepSettings):
    """The authors' hyperparameters for ogbg-molhiv; the paper has no node classification on a single graph."""

    layers: int = Field(4, ge=1, le=64, description="number of layers that aggregate")
    hidden: int = Field(80, ge=1, le=65536, description="columns of all layers")
    dropout: float = Field(0.3, ge=0, lt=1, description="share of the outputs of all layers that dropout sets to zero")
    normalization: Literal["none", "batch", "layer"] = Field("batch", description="before the activation of layers")
    residual: bool = Field(True, description="add to every layer its input")
    weight_decay: float = Field(3e-6, ge=0, le=1e6, description="L2 penalty on all weights: added to their gradients")
    row_normalize: WhereSparse = None


@V.program
def aggregation(v: Any, W_target: Any, W_source: Any, b_message: Any, W: Any) -> Any:
    """Return [columns of W]."""
    own = v.x @ W_target + b_message
    messages = [own + u.x @ W_source for u in v.innbs]
    found = V.concat(V.mean(messages), V.max(messages), V.min(messages), V.std(messages))
    attenuation = 1 / V.where(v.scaler > 0, v.scaler, 1)  # without arcs there is nothing to attenuate
    return V.concat(v.x, found, v.scaler * found, attenuation * found) @ W


def build(settings: Settings, sizes: Sizes) -> Chain:
    """Return the embedding, the layers and the classifier."""
    layers = (_layer(settings, k) for k in range(settings.layers))
    return between_linear(sizes, settings.hidden, settings.weight_decay, layers)


def _layer(settings: Settings, k: int) -> Module:
    columns, decay = settings.hidden, settings.weight_decay
    square = Weight((columns, columns), decay=decay)
    weights = {
        "W_target": square, "W_source": square, "b_message": Weight((columns,), "zeros"),
        "W": Weight((13 * columns, columns), decay=decay),
    }  # fmt: skip
    layer = Chain(
        VertexLayer(f"layer{k}", aggregation, columns, weights),
        normalized_or_shifted(f"layer{k}", columns, settings.normalization),
        Relu(),
        Dropout(settings.dropout, k),
    )
    return Residual(layer) if settings.residual else layer
