"""APPNP: predict then propagate (Gasteiger, Bojchevski and Guennemann, ICLR 2019, equation 4, settings of section 5).

    H = ReLU(X W0) W1,    Z_0 = H,    Z_k+1 = (1 - alpha) P Z_k + alpha H,    P = D^-1/2 (A + I) D^-1/2

with dropout on the input of both layers and, anew in every step, on the entries of P. The L2 penalty is on the first
layer alone and there are no biases, as in the authors' program. Without dropout on arcs, any technique multiplies by P.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mgg import vertex as V
from mgg.model.layers import Dropout, Linear, Relu
from mgg.model.module import Chain
from mgg.model.program import VertexLayer
from mgg.model.propagate import PowerSteps
from mgg.model.settings import LayeredSettings, Sizes, WhereSparse


class Settings(LayeredSettings):
    """The published hyperparameters."""

    hidden: int = Field(64, ge=1, le=65536, description="columns of the hidden layer")
    steps: int = Field(10, ge=1, le=256, description="K: number of power steps")
    teleport: float = Field(0.1, ge=0, le=1, description="alpha: share of H in every step")
    arc_dropout: float = Field(0.5, ge=0, lt=1, description="share of P's entries that dropout sets to zero")
    weight_decay: float = Field(5e-3, ge=0, le=1e6, description="L2 penalty on the first layer: added to its gradients")
    row_normalize: WhereSparse = None


@V.program(loops=True)
def dropped(v: Any, rate: float) -> Any:
    """Return P X with entries of P dropped in training; with a ``rate`` of 0 it equals ``normalized``."""
    return v.norm * V.sum(V.dropout(e.weight, rate) * e.src.norm * e.src.x for e in v.inedges)


def build(settings: Settings, sizes: Sizes) -> Chain:
    """Return the two layers and the power steps."""
    classes, rate = sizes.classes, settings.arc_dropout
    steps = [VertexLayer(f"step{k}", dropped, classes, {"rate": rate}, place=2 + k) for k in range(settings.steps)]
    return Chain(
        Dropout(settings.dropout, 0),
        Linear("layer0", sizes.features, settings.hidden, settings.weight_decay),
        Relu(),
        Dropout(settings.dropout, 1),
        Linear("layer1", settings.hidden, classes),
        PowerSteps(steps, settings.teleport),
    )
