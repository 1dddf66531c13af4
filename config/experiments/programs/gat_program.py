"""GAT as a vertex program: figure 3 of Seastar (EuroSys'21) with what is wrong in it put right, as ``mgg.model.gat``.

There the score reads u where it means v, products lack parentheses, and no maximum is subtracted before exp.
"""

from mgg import vertex as V
from mgg.model.gat import Settings  # noqa: F401 - a model's file has them
from mgg.model.layers import Bias, Dropout, Elu, MeanOfHeads
from mgg.model.module import Chain
from mgg.model.program import VertexLayer, Weight


@V.program(loops=True)
def gat(v, W, source, target, rate):
    """What vertex ``v`` gets: for each head the rows W h of its neighbors, by shares that add up to 1."""
    heads = source.shape[0]
    rows = [V.heads(u.x @ W, heads) for u in v.innbs]
    mine = V.dot(V.heads(v.x @ W, heads), target)
    scores = [V.leaky_relu(V.dot(row, source) + mine, 0.2) for row in rows]
    shares = V.dropout(V.softmax(scores), rate)
    return V.sum(share * row for share, row in zip(shares, rows, strict=True))


def build(settings, sizes):
    """The two layers, as of GAT."""
    decay = settings.weight_decay

    def layer(k, inputs, heads, columns):
        ends = Weight((heads, columns), decay=decay)
        parameters = {
            "W": Weight((inputs, heads * columns), decay=decay), "source": ends, "target": ends,
            "rate": settings.attention_dropout,
        }  # fmt: skip
        return VertexLayer(f"layer{k}", gat, inputs, parameters, place=2 * k + 1)

    hidden = settings.heads * settings.hidden
    return Chain(
        Dropout(settings.dropout, 0),
        layer(0, sizes.features, settings.heads, settings.hidden),
        Bias("layer0", hidden),
        Elu(),
        Dropout(settings.dropout, 2),
        layer(1, hidden, settings.output_heads, sizes.classes),
        MeanOfHeads(settings.output_heads),
        Bias("layer1", sizes.classes),
    )
