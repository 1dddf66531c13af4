"""GAT: graph attention network (Velickovic et al., ICLR 2018, equations 3 to 6, settings of its section 3.3).

    H = ELU(Attention(X, W0) + b0),    Z = mean over heads of Attention(H, W1) + b1

with dropout on the input of both layers and on the attention, and the L2 penalty on all parameters except the biases.
For Pubmed the paper has 8 output heads, learning rate 0.01 and penalty 0.001.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mgg import vertex as V
from mgg.model.halo.weighed_attention import WeighedAttention
from mgg.model.layers import Bias, Dropout, Elu, Linear, MeanOfHeads
from mgg.model.module import Chain, Module
from mgg.model.program import VertexLayer, Weight
from mgg.model.settings import LayeredSettings, Sizes


class Settings(LayeredSettings):
    """The published hyperparameters for Cora and Citeseer."""

    hidden: int = Field(8, ge=1, le=65536, description="columns of each head of the hidden layer")
    heads: int = Field(8, ge=1, le=1024, description="heads of the hidden layer, side by side")
    output_heads: int = Field(1, ge=1, le=1024, description="heads of the output layer, of which the mean is taken")
    dropout: float = Field(0.6, ge=0, lt=1, description="share of the inputs of both layers that dropout sets to zero")
    attention: Literal["rows", "product"] = Field(
        "rows",
        description="rows: the technique brings neighbors' rows, which are summed then; product: the technique sums"
        " them, by products whose arcs weigh what the attention says",
    )
    attention_dropout: float = Field(0.6, ge=0, lt=1, description="share of the attention that dropout sets to zero")
    learning_rate: float = Field(0.005, gt=0, le=10, description="step size of Adam")
    weight_decay: float = Field(
        5e-4, ge=0, le=1e6, description="L2 penalty on all parameters but biases: added to their gradients"
    )
    row_normalize: bool | None = Field(
        None,
        description="scale every node's features to an absolute sum of 1; none: where they are sparse, as the authors"
        " do with bags of words",
    )


@V.program(loops=True)
def attention(v: Any, weight: Any, target: Any, source: Any, rate: float) -> Any:
    """Return equations 3 to 5; ``target`` and ``source`` are the halves of the paper's a. Arc weights do not count.

    In training, each share is dropped with probability ``rate``.
    """
    heads = target.shape[0]
    scores = [
        V.leaky_relu(V.dot(V.heads(v.x @ weight, heads), target) + V.dot(V.heads(u.x @ weight, heads), source), 0.2)
        for u in v.innbs
    ]
    shares = V.dropout(V.softmax(scores), rate)
    return V.sum(share * V.heads(u.x @ weight, heads) for share, u in zip(shares, v.innbs, strict=True))


def build(settings: Settings, sizes: Sizes) -> Chain:
    """Return the two layers."""
    hidden = settings.heads * settings.hidden
    return Chain(
        *_attention(settings, 0, sizes.features, settings.heads, settings.hidden),
        Bias("layer0", hidden),
        Elu(),
        *_attention(settings, 1, hidden, settings.output_heads, sizes.classes),
        MeanOfHeads(settings.output_heads),
        Bias("layer1", sizes.classes),
    )


def _attention(settings: Settings, k: int, inputs: int, heads: int, columns: int) -> tuple[Module, ...]:
    name, decay, place, rate = f"layer{k}", settings.weight_decay, 2 * k + 1, settings.attention_dropout
    dropout = Dropout(settings.dropout, 2 * k)
    if settings.attention == "product":
        matrix = Linear(name, inputs, heads * columns, decay)
        return dropout, matrix, WeighedAttention(name, heads, columns, rate, place, decay)
    ends = Weight((heads, columns), decay=decay)
    weights = {"weight": Weight((inputs, heads * columns), decay=decay), "target": ends, "source": ends, "rate": rate}
    return dropout, VertexLayer(name, attention, inputs, weights, place=place)
