"""GATv2: dynamic graph attention (Brody, Alon and Yahav, ICLR 2022, equation 7), as a vertex program.

    H_k = ELU(Attention(H_k-1) + b),    Z = mean over heads of Attention(H) + b

where a node's attention to its in-neighbors and itself is the softmax of a . LeakyReLU(W_target h_v + W_source h_u),
and the node gets the sum of the shares times W_source h_u, for each of several heads. Both projections have biases, as
in the authors' layer. Dropout is on the input of every layer and on the attention; the L2 penalty is on all parameters
except the biases.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mgg import vertex as V
from mgg.model.layers import Bias, Dropout, Elu, MeanOfHeads, normalized_or_shifted
from mgg.model.module import Chain, Module, Residual
from mgg.model.program import VertexLayer, Weight
from mgg.model.settings import DeepSettings, Sizes, WhereSparse


class Settings(DeepSettings):
    """Defaults are GAT's hyperparameters for Cora and Citeseer: the paper trains on none of the Planetoid graphs.

    The authors' program for ogbn-arxiv has three layers of 32 columns and 8 heads, one output head, ``shared``,
    ``normalization`` layer, ``residual``, dropout 0.25, learning rate 0.01, no L2 penalty and no attention dropout.
    """

    hidden: int = Field(8, ge=1, le=65536, description="columns of each head of the hidden layers")
    heads: int = Field(8, ge=1, le=1024, description="heads of the hidden layers, side by side")
    output_heads: int = Field(1, ge=1, le=1024, description="heads of the output layer, of which the mean is taken")
    shared: bool = Field(False, description="one matrix projects both ends of an arc")
    dropout: float = Field(0.6, ge=0, lt=1, description="share of the inputs of all layers that dropout sets to zero")
    attention_dropout: float = Field(0.6, ge=0, lt=1, description="share of the attention that dropout sets to zero")
    learning_rate: float = Field(0.005, gt=0, le=10, description="step size of Adam")
    weight_decay: float = Field(
        5e-4, ge=0, le=1e6, description="L2 penalty on all parameters but biases: added to their gradients"
    )
    row_normalize: WhereSparse = None


@V.program(loops=True)
def attention(v: Any, W_source: Any, b_source: Any, W_target: Any, b_target: Any, a: Any, rate: float) -> Any:
    """Return [heads, columns]; without ``W_target`` the weights of sources serve targets, too."""
    heads = a.shape[0]
    sources = [V.heads(u.x @ W_source + b_source, heads) for u in v.innbs]
    own = v.x @ W_source + b_source if W_target is None else v.x @ W_target + b_target
    target = V.heads(own, heads)
    scores = [V.dot(V.leaky_relu(target + source, 0.2), a) for source in sources]
    shares = V.dropout(V.softmax(scores), rate)
    return V.sum(share * source for share, source in zip(shares, sources, strict=True))


def build(settings: Settings, sizes: Sizes) -> Chain:
    """Return the layers."""
    last, wide = settings.layers - 1, settings.heads * settings.hidden
    hidden = [_hidden(settings, k, wide if k else sizes.features) for k in range(last)]
    return Chain(
        *hidden,
        *_attention(settings, last, wide if last else sizes.features, settings.output_heads, sizes.classes),
        MeanOfHeads(settings.output_heads),
        Bias(f"layer{last}", sizes.classes),
    )


def _hidden(settings: Settings, k: int, inputs: int) -> Module:
    layer = Chain(
        *_attention(settings, k, inputs, settings.heads, settings.hidden),
        normalized_or_shifted(f"layer{k}", settings.heads * settings.hidden, settings.normalization),
        Elu(),
    )
    return Residual(layer) if settings.residual and k else layer


def _attention(settings: Settings, k: int, inputs: int, heads: int, columns: int) -> tuple[Dropout, VertexLayer]:
    decay, outputs = settings.weight_decay, heads * columns
    matrix, shift = Weight((inputs, outputs), decay=decay), Weight((outputs,), "zeros")
    weights = {
        "W_source": matrix, "b_source": shift,
        "W_target": None if settings.shared else matrix, "b_target": None if settings.shared else shift,
        "a": Weight((heads, columns), decay=decay), "rate": settings.attention_dropout,
    }  # fmt: skip
    layer = VertexLayer(f"layer{k}", attention, inputs, weights, place=2 * k + 1)
    return Dropout(settings.dropout, 2 * k), layer
