"""GAT: graph attention network (Velickovic et al., ICLR 2018, equations 3 to 6, settings of its section 3.3).

    H = ELU(Attention(X W0) + b0),    Z = mean over heads of Attention(H W1) + b1

with dropout on the input of both layers and on the attention, and the L2 penalty on all parameters but the biases. For
Pubmed the paper has 8 output heads, learning rate 0.01 and penalty 0.001.
"""

from __future__ import annotations

from pydantic import Field

from mgg.model.arcwise import Attention
from mgg.model.layers import Bias, Dropout, Elu, Linear, MeanOfHeads
from mgg.model.module import Chain
from mgg.model.settings import LayeredSettings, Sizes

#: Sources of the kernels of its arcs, which GPUs compile ahead.
KERNELS = ("attention", "signed_rows")


class Settings(LayeredSettings):
    """The published hyperparameters for Cora and Citeseer."""

    hidden: int = Field(8, ge=1, le=65536, description="columns of each head of the hidden layer")
    heads: int = Field(8, ge=1, le=1024, description="heads of the hidden layer, side by side")
    output_heads: int = Field(1, ge=1, le=1024, description="heads of the output layer, of which the mean is taken")
    dropout: float = Field(0.6, ge=0, lt=1, description="share of the inputs of both layers that dropout sets to zero")
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


def build(settings: Settings, sizes: Sizes) -> Chain:
    """The two layers."""
    hidden = settings.heads * settings.hidden
    return Chain(
        *_attention(settings, 0, sizes.features, settings.heads, settings.hidden),
        Bias("layer0", hidden),
        Elu(),
        *_attention(settings, 1, hidden, settings.output_heads, sizes.classes),
        MeanOfHeads(settings.output_heads),
        Bias("layer1", sizes.classes),
    )


def _attention(settings: Settings, k: int, inputs: int, heads: int, columns: int) -> tuple[Dropout, Linear, Attention]:
    name, decay = f"layer{k}", settings.weight_decay
    return (
        Dropout(settings.dropout, 2 * k),
        Linear(name, inputs, heads * columns, decay),
        Attention(name, heads, columns, settings.attention_dropout, 2 * k + 1, decay),
    )
