"""GAT as a vertex program, a model file to time beside ``gat``: names of parameters, and so weights, are the same."""

from __future__ import annotations

from typing import Any

from mgg import vertex as V
from mgg.model.gat import Settings
from mgg.model.layers import Bias, Dropout, Elu, MeanOfHeads
from mgg.model.module import Chain
from mgg.model.program import VertexLayer, Weight
from mgg.model.settings import Sizes

__all__ = ["Settings", "build"]


@V.program(loops=True)
def attention(v: Any, weight: Any, target: Any, source: Any, rate: float) -> Any:
    """Equations 3 to 5 of the paper, the halves of its a by the end of an arc that they meet."""
    heads = target.shape[0]
    scores = [
        V.leaky_relu(V.dot(V.heads(v.x @ weight, heads), target) + V.dot(V.heads(u.x @ weight, heads), source), 0.2)
        for u in v.innbs
    ]
    shares = V.dropout(V.softmax(scores), rate)
    return V.sum(share * V.heads(u.x @ weight, heads) for share, u in zip(shares, v.innbs, strict=True))


def build(settings: Settings, sizes: Sizes) -> Chain:
    """The two layers."""
    hidden = settings.heads * settings.hidden
    return Chain(
        *_layer(settings, 0, sizes.features, settings.heads, settings.hidden),
        Bias("layer0", hidden),
        Elu(),
        *_layer(settings, 1, hidden, settings.output_heads, sizes.classes),
        MeanOfHeads(settings.output_heads),
        Bias("layer1", sizes.classes),
    )


def _layer(settings: Settings, k: int, inputs: int, heads: int, columns: int) -> tuple[Dropout, VertexLayer]:
    decay = settings.weight_decay
    parameters = {
        "weight": Weight((inputs, heads * columns), decay=decay),
        "target": Weight((heads, columns), decay=decay),
        "source": Weight((heads, columns), decay=decay),
        "rate": settings.attention_dropout,
    }
    return Dropout(settings.dropout, 2 * k), VertexLayer(f"layer{k}", attention, inputs, parameters, place=2 * k + 1)
