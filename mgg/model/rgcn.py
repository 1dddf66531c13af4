"""R-GCN: relational graph convolutional network (Schlichtkrull et al., ESWC 2018, equations 2 and 3, section 5.1).

    H = ReLU(sum over r of P_r X W_r),    Z = sum over r of P_r H W'_r,    P_r = D_r^-1 A_r

where A_r has the arcs of type r, D_r their number at each node, and the node itself is one more type. Graphs without
features have X = I: the first layer's weights have a row a node. The L2 penalty is on the first layer alone and there
are no biases, as in the authors' program, which has no dropout either. Both directions of a relation are types of
their own, which is the graph's to have (docs/data.md).
"""

from __future__ import annotations

from pydantic import Field

from mgg.errors import InputError
from mgg.model.layers import Dropout, Relu
from mgg.model.module import Chain
from mgg.model.relational import Relational
from mgg.model.settings import Sizes, TypedSettings

#: It takes graphs without features.
FEATURELESS = True


class Settings(TypedSettings):
    """The published hyperparameters for AIFB; MUTAG has 30 bases, BGS and AM have 40, all three a penalty of 5e-4."""

    weight_decay: float = Field(0.0, ge=0, le=1e6, description="L2 penalty on the first layer: added to its gradients")


def build(settings: Settings, sizes: Sizes) -> Chain:
    """The two layers."""
    if not sizes.relations:
        raise InputError("model rgcn: the graph's arcs have no types")
    inputs, relations, bases = sizes.features or sizes.nodes, sizes.relations, settings.bases
    one_hot = not sizes.features
    return Chain(
        Relational("layer0", inputs, settings.hidden, relations, bases, settings.weight_decay, one_hot),
        Relu(),
        Dropout(settings.dropout, 0),
        Relational("layer1", settings.hidden, sizes.classes, relations, bases),
    )
