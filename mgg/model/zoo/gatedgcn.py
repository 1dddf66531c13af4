"""GatedGCN: residual gated graph convolution with features of arcs, as a vertex program (Bresson and Laurent 2017,
arXiv 1711.07553, equation 11; with features of arcs as in Dwivedi et al., JMLR 2023, section 3).

    h_v' = h_v + ReLU(BN(A h_v + (sum over u of g_vu * B h_u) / (sum over u of g_vu + 1e-6))),    g_vu = sigmoid(z_vu)
    f_vu' = f_vu + ReLU(BN(z_vu)),    z_vu = D h_v + E h_u + C f_vu

for each column, with a bias in z and, without BN, in h'. A linear layer comes first, and a linear classifier last.
Graphs store no arc features: f begins as w a + b, where a is the arc's weight (1 if the graph has no weights), as
Dwivedi et al. do without arc features; if arcs have types, a trained row per type is added. Dropout is on h' and f'.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mgg import vertex as V
from mgg.model.layers import ArcBatchNorm, Dropout, Relu, between_linear, normalized_or_shifted
from mgg.model.module import Chain, Module, Residual
from mgg.model.program import VertexLayer, Weight
from mgg.model.settings import LayeredSettings, Sizes


class Settings(LayeredSettings):
    """The hyperparameters of Dwivedi et al. for node classification (PATTERN and CLUSTER, 100,000 parameters)."""

    layers: int = Field(4, ge=1, le=64, description="number of layers that aggregate")
    hidden: int = Field(70, ge=1, le=65536, description="columns of all layers, of nodes and of arcs")
    normalization: Literal["none", "batch"] = Field(
        "batch", description="before the activation, of nodes over all nodes and of arcs over all arcs"
    )
    residual: bool = Field(True, description="add to every layer its input")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of the outputs of all layers that dropout sets to zero")
    learning_rate: float = Field(0.001, gt=0, le=10, description="step size of Adam")
    weight_decay: float = Field(0.0, ge=0, le=1e6, description="L2 penalty on all weights: added to their gradients")


@V.program
def gated(
    v: Any, A: Any, B: Any, C: Any, D: Any, E: Any, b: Any, w_arc: Any, b_arc: Any, kinds: Any, keep: bool,
    residual: bool, rate: float,
) -> Any:  # fmt: skip
    """Return [columns], and with ``keep`` the f and z of arcs for the next layer; only layer 0 has ``w_arc``."""

    def features(e: Any) -> Any:
        if w_arc is not None:
            start = e.weight * w_arc + b_arc
            return start if kinds is None else start + kinds[e.type]
        return V.dropout(e.f + V.relu(e.z) if residual else V.relu(e.z), rate)

    f = [features(e) for e in v.inedges]
    own = v.x @ D + b
    z = [own + e.src.x @ E + each @ C for each, e in zip(f, v.inedges, strict=True)]
    gates = [V.sigmoid(each) for each in z]
    messages = V.sum(gate * (e.src.x @ B) for gate, e in zip(gates, v.inedges, strict=True))
    result = v.x @ A + messages / (V.sum(gates) + 1e-6)
    if not keep:
        return result
    return (result, V.keep(f), V.keep(z)) if residual else (result, V.keep(z))


def build(settings: Settings, sizes: Sizes) -> Chain:
    """Return the embedding, the layers and the classifier."""
    layers = (_layer(settings, k, sizes.relations) for k in range(settings.layers))
    return between_linear(sizes, settings.hidden, settings.weight_decay, layers)


def _layer(settings: Settings, k: int, types: int) -> Module:
    columns, decay, name = settings.hidden, settings.weight_decay, f"layer{k}"
    keep, batch = k < settings.layers - 1, settings.normalization == "batch"
    row, shift = Weight((columns,), decay=decay), Weight((columns,), "zeros")
    weights: dict[str, Any] = {matrix: Weight((columns, columns), decay=decay) for matrix in "ABCDE"}
    weights |= {"b": shift, "w_arc": None if k else row, "b_arc": None if k else shift}
    weights |= {"kinds": Weight((types, columns), decay=decay) if types and not k else None}
    weights |= {"keep": keep, "residual": settings.residual, "rate": settings.dropout}
    names = ("f", "z") if settings.residual else ("z",)
    program = VertexLayer(
        name, gated, columns, weights, relations=types, place=2 * k,
        arcs=dict.fromkeys(names, (columns,)) if k else {}, keeps=names if keep else (),
    )  # fmt: skip
    layer = Chain(
        program,
        normalized_or_shifted(name, columns, settings.normalization),
        *([ArcBatchNorm(f"{name}.arcs", columns, "z")] if batch and keep else []),
        Relu(),
        Dropout(settings.dropout, 2 * k + 1),
    )
    return Residual(layer) if settings.residual else layer
