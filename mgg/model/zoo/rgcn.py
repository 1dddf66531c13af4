"""R-GCN: relational graph convolutional network (Schlichtkrull et al., ESWC 2018, equations 2 and 3, section 5.1).

    H = ReLU(sum over r of P_r X W_r),    Z = sum over r of P_r H W'_r,    P_r = D_r^-1 A_r,    W_r = sum of a_rb V_b

where A_r has the arcs of type r, D_r has their number at each node, and the node itself counts as one more type. For
graphs without features X = I: the first layer's weights have a row per node. The L2 penalty is on the first layer alone
and there are no biases, as in the authors' program, which has no dropout either. The two directions of a relation are
separate types, which the graph must contain (docs/concepts/data.md).
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mgg import vertex as V
from mgg.errors import InputError
from mgg.model.layers import Dropout, Relu
from mgg.model.module import Chain
from mgg.model.program import VertexLayer, Weight
from mgg.model.relational import RelationalRows
from mgg.model.settings import Sizes, TypedSettings

#: Accepts graphs without features.
FEATURELESS = True


class Settings(TypedSettings):
    """The published hyperparameters for AIFB. MUTAG has 30 bases, BGS and AM have 40, all three a penalty of 5e-4."""

    weight_decay: float = Field(0.0, ge=0, le=1e6, description="L2 penalty on the first layer: added to its gradients")


@V.program
def relational(v: Any, weight: Any, bases: Any, coefficients: Any) -> Any:
    """Return [outputs]. The weights are ``weight`` [types + 1, inputs, outputs], or ``bases`` [bases, inputs, outputs]
    summed with ``coefficients`` [types + 1, bases]; the last type is the node itself.
    """
    if bases is not None:
        count, inputs, outputs = bases.shape
        weight = coefficients @ V.reshape(bases, (count, inputs * outputs))
        weight = V.reshape(weight, (coefficients.shape[0], inputs, outputs))
    matrices = weight[:-1]
    return v.x @ weight[-1] + V.sum(V.mean(e.src.x for e in v.inedges[t]) @ matrices[t] for t in v.types)


def layer(name: str, inputs: int, outputs: int, relations: int, bases: int, decay: float = 0.0) -> VertexLayer:
    """Return a layer for nodes of ``inputs`` columns; 0 ``bases``: every type has its own weights."""
    weights = {
        "weight": None if bases else Weight((relations + 1, inputs, outputs), decay=decay),
        "bases": Weight((bases, inputs, outputs), decay=decay) if bases else None,
        "coefficients": Weight((relations + 1, bases), decay=decay) if bases else None,
    }
    return VertexLayer(name, relational, inputs, weights, relations=relations)


def build(settings: Settings, sizes: Sizes) -> Chain:
    """Return the two layers."""
    if not sizes.relations:
        raise InputError("model rgcn: the graph's arcs have no types")
    hidden, decay, relations, bases = settings.hidden, settings.weight_decay, sizes.relations, settings.bases
    first = (
        layer("layer0", sizes.features, hidden, relations, bases, decay)
        if sizes.features
        else RelationalRows("layer0", sizes.nodes, hidden, relations, bases, decay)
    )
    return Chain(
        first,
        Relu(),
        Dropout(settings.dropout, 0),
        layer("layer1", hidden, sizes.classes, relations, bases),
    )
