"""RGAT: relational graph attention (Busbridge et al., arXiv 1904.05811, equations 2 to 7), as a vertex program.

    H = ReLU(Attention(X)),    Z = Attention(H),    e_vu = LeakyReLU(q_r . W_r h_v + k_r . W_r h_u)

for an arc of type r from u to v. The shares are the softmax of e over all arcs that end at v (ARGAT), or over those of
each type (WIRGAT). Node v gets the sum of the shares times W_r h_u, plus W_self h_v with a share of 1, for each of
several heads. The weights of types may be sums of bases, W_r = sum of a_rb V_b. The L2 penalty is on all weights.
Graphs without features start with a trained row per node. The two directions of a relation are separate types, which
the graph must contain (docs/concepts/data.md).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mgg import vertex as V
from mgg.errors import InputError
from mgg.model.layers import Dropout, Embedding, MeanOfHeads, Relu
from mgg.model.module import Chain, Module
from mgg.model.program import VertexLayer, Weight
from mgg.model.settings import Sizes, TypedSettings

#: Accepts graphs without features.
FEATURELESS = True


class Settings(TypedSettings):
    """The hyperparameters of the authors' example program for AIFB and MUTAG."""

    hidden: int = Field(16, ge=1, le=65536, description="columns of each head of the hidden layer")
    heads: int = Field(4, ge=1, le=1024, description="heads of the hidden layer, side by side")
    output_heads: int = Field(1, ge=1, le=1024, description="heads of the output layer, of which the mean is taken")
    softmax: Literal["across", "within"] = Field(
        "across", description="over the arcs of all types that end at a node (ARGAT), or of each type (WIRGAT)"
    )
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="share of the attention that dropout sets to zero")


def _matrix(t: Any, W: Any, a: Any) -> Any:
    """Return [inputs, heads * columns] of type ``t``: its own matrix, or bases summed with the coefficients ``a``."""
    return W[t] if a is None else V.reshape(a[t] @ V.reshape(W, (W.shape[0], W.shape[1] * W.shape[2])), W.shape[1:])


@V.program
def across(v: Any, W: Any, a: Any, W_self: Any, query: Any, key: Any, rate: float) -> Any:
    """Return [heads, columns]; the shares of all arcs of a node add up to 1."""
    _, heads, columns = query.shape
    shape = W.shape[1], heads, columns
    rows, scores = [], []
    for e in v.inedges:
        matrix = _matrix(e.type, W, a)
        # Multiply the matrix by q first: that has fewer columns, and the row of v is not projected for every arc.
        own = v.x @ V.dot(V.reshape(matrix, shape), V.reshape(query[e.type], (1, heads, columns)))
        row = V.heads(e.src.x @ matrix, heads)
        rows.append(row)
        scores.append(V.leaky_relu(own + V.dot(row, key[e.type]), 0.2))
    shares = V.dropout(V.softmax(scores), rate)
    found = V.sum(share * row for share, row in zip(shares, rows, strict=True))
    return found + V.heads(v.x @ W_self, heads)


@V.program
def within(v: Any, W: Any, a: Any, W_self: Any, query: Any, key: Any, rate: float) -> Any:
    """Return [heads, columns]; the shares of a node's arcs of each type add up to 1."""
    heads, sums = query.shape[1], []
    for t in v.types:
        matrix = _matrix(t, W, a)
        own = V.dot(V.heads(v.x @ matrix, heads), query[t])
        rows = [V.heads(e.src.x @ matrix, heads) for e in v.inedges[t]]
        shares = V.dropout(V.softmax(V.leaky_relu(own + V.dot(row, key[t]), 0.2) for row in rows), rate)
        sums.append(V.sum(share * row for share, row in zip(shares, rows, strict=True)))
    return V.sum(sums) + V.heads(v.x @ W_self, heads)


#: Programs by the setting ``softmax``.
PROGRAMS = {"across": across, "within": within}


def build(settings: Settings, sizes: Sizes) -> Chain:
    """Return the two layers."""
    if not sizes.relations:
        raise InputError("model rgat: the graph's arcs have no types")
    wide, decay = settings.heads * settings.hidden, settings.weight_decay
    start: list[Module] = [] if sizes.features else [Embedding("embedding", sizes.nodes, wide, decay)]
    return Chain(
        *start,
        _attention(settings, 0, sizes.features or wide, settings.heads, settings.hidden, sizes.relations),
        Relu(),
        Dropout(settings.dropout, 1),
        _attention(settings, 1, wide, settings.output_heads, sizes.classes, sizes.relations),
        MeanOfHeads(settings.output_heads),
    )


def _attention(settings: Settings, k: int, inputs: int, heads: int, columns: int, types: int) -> VertexLayer:
    decay, bases = settings.weight_decay, settings.bases
    few = 0 < bases < types
    one = Weight((types, heads, columns), decay=decay)
    weights = {
        "W": Weight((bases if few else types, inputs, heads * columns), decay=decay),
        "a": Weight((types, bases), decay=decay) if few else None,
        "W_self": Weight((inputs, heads * columns), decay=decay),
        "query": one, "key": one, "rate": settings.attention_dropout,
    }  # fmt: skip
    program = PROGRAMS[settings.softmax]
    return VertexLayer(f"layer{k}", program, inputs, weights, relations=types, place=2 * k)
