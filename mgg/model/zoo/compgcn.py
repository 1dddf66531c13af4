"""CompGCN: composition-based multi-relational convolution (Vashishth et al., ICLR 2020, equations 2 to 5), as a vertex
program.

    H_k = ReLU(BN(sum over arcs (u, r) of phi(h_u, z_r) W_dir(r) + phi(h_v, z_loop) W_S)),    z_r' = z_r W_R

where phi is the difference, the product or the circular correlation of both, and W_dir(r) is W_O for a relation and W_I
for its inverse. Every arc has the factor 1 / sqrt(d_u d_v), as in the authors' program and DGL's but not in the
formula. Each relation has a row z_r, initially the sum of a_rb V_b, which all layers share. The last layer has neither
normalization nor ReLU. Dropout is on the sum over arcs; the L2 penalty is on all weights. Graphs without features start
with a trained row per node, others with a linear layer.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mgg import vertex as V
from mgg.errors import InputError
from mgg.model.layers import Bias, Embedding, Linear, Relu, normalized_or_shifted
from mgg.model.module import Chain, Module
from mgg.model.program import VertexLayer, Weight
from mgg.model.settings import Sizes, TypedSettings

#: Accepts graphs without features.
FEATURELESS = True


class Settings(TypedSettings):
    """Defaults are those of DGL's example for AIFB: the paper gives no hyperparameters for node classification."""

    layers: int = Field(3, ge=1, le=64, description="number of layers that aggregate")
    hidden: int = Field(64, ge=1, le=4096, description="columns of all layers, of nodes and of relations")
    composition: Literal["sub", "mult", "corr"] = Field(
        "corr", description="of a node's row and a relation's: difference, product or circular correlation"
    )
    inverses: bool = Field(
        True,
        description="the second half of the arc types are the inverses of the first half, in their order, as of"
        " N-Triples; false: all arcs have one direction",
    )
    bases: int = Field(5, ge=0, le=1024, description="bases of the relations' rows; 0: each has its own")
    normalization: Literal["none", "batch", "layer"] = Field(
        "none", description="before the activation of hidden layers, in place of a bias"
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="share of what arcs bring that dropout sets to zero")
    learning_rate: float = Field(0.005, gt=0, le=10, description="step size of Adam")
    weight_decay: float = Field(5e-4, ge=0, le=1e6, description="L2 penalty on all weights: added to their gradients")


#: Compositions of a node's row and a relation's row, by setting.
COMPOSITIONS = {"sub": lambda x, z: x - z, "mult": lambda x, z: x * z, "corr": V.correlate}


@V.program
def composed(
    v: Any, W_O: Any, W_I: Any, W_S: Any, z: Any, a: Any, W_R: Any, z_loop: Any, layer: int, composition: str,
    rate: float,
) -> Any:  # fmt: skip
    """Return [columns of W_O]; without ``W_I`` all arcs have one direction."""
    compose, relations = COMPOSITIONS[composition], z if a is None else a @ z
    for k in range(layer):
        relations = relations @ W_R[k]
    sums = [
        V.sum(e.weight * e.src.norm * compose(e.src.x, relations[t]) for e in v.inedges[t]) for t in v.types
    ]  # fmt: skip
    if W_I is None:
        found = V.sum(sums) @ W_O
    else:
        half = relations.shape[0] // 2
        forth = V.concat(V.repeat(1.0, half), V.repeat(0.0, half))
        along = V.sum(forth[t] * each for t, each in zip(v.types, sums, strict=True))
        back = V.sum((1 - forth[t]) * each for t, each in zip(v.types, sums, strict=True))
        found = along @ W_O + back @ W_I
    return V.dropout(v.norm * found, rate) + compose(v.x, z_loop) @ W_S


def build(settings: Settings, sizes: Sizes) -> Chain:
    """Return the embedding and the layers."""
    types, columns, decay = sizes.relations, settings.hidden, settings.weight_decay
    if not types:
        raise InputError("model compgcn: the graph's arcs have no types")
    if settings.inverses and types % 2:
        raise InputError(
            f"model compgcn: {types} types of arcs are no relations and as many inverses: take inverses=false, or a"
            " graph whose second half of types are the inverses"
        )
    start: list[Module] = [Embedding("embedding", sizes.nodes, columns, decay)]
    if sizes.features:
        start = [Linear("embedding", sizes.features, columns, decay), Bias("embedding", columns)]
    hidden = [module for k in range(settings.layers - 1) for module in _hidden(settings, k, types)]
    last = settings.layers - 1
    return Chain(*start, *hidden, _composed(settings, last, sizes.classes, types), Bias(f"layer{last}", sizes.classes))


def _hidden(settings: Settings, k: int, types: int) -> list[Module]:
    normalization = normalized_or_shifted(f"layer{k}", settings.hidden, settings.normalization)
    return [_composed(settings, k, settings.hidden, types), normalization, Relu()]


def _composed(settings: Settings, k: int, outputs: int, types: int) -> VertexLayer:
    columns, decay = settings.hidden, settings.weight_decay
    few, matrix = 0 < settings.bases < types, Weight((columns, outputs), decay=decay)
    later = Weight((settings.layers - 1, columns, columns), decay=decay, shared="relations.weight")
    weights = {
        "W_O": matrix, "W_I": matrix if settings.inverses else None, "W_S": matrix,
        "z": Weight((settings.bases if few else types, columns), decay=decay, shared="relations.rows"),
        "a": Weight((types, settings.bases), decay=decay, shared="relations.coefficients") if few else None,
        "W_R": later if k else None, "z_loop": Weight((columns,), decay=decay),
        "layer": k, "composition": settings.composition, "rate": settings.dropout,
    }  # fmt: skip
    return VertexLayer(f"layer{k}", composed, columns, weights, relations=types, place=k)
