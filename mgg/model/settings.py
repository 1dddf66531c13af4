"""Arguments of a model's ``build``: its hyperparameters, to which its file adds its own, and the graph's sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, field_validator

from mgg.config import Assigned
from mgg.vertex.cuda.execution import Execution

#: Which epoch counts: the one with the best validation score, the one with the least validation loss, or the last.
Selection = Literal["validation", "validation_loss", "last"]


#: ``row_normalize`` of models whose papers scale bags of words but leave dense features unchanged.
WhereSparse = Annotated[
    bool | None, Field(description="scale every node's features to an absolute sum of 1; none: where they are sparse")
]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the graph: columns of the features, classes, nodes and arc types; 0 if it has none."""

    features: int
    classes: int
    nodes: int = 0
    relations: int = 0


class ModelSettings(Assigned):
    """Hyperparameters of a model, with the published values as defaults; an unknown name is an error."""

    learning_rate: float = Field(0.01, gt=0, le=10, description="largest step size of the optimizer")
    row_normalize: bool | None = Field(False, description="scale every node's features to an absolute sum of 1")
    optimizer: Literal["adam", "adamw"] = Field(
        "adam",
        description="adam: weight decay is an L2 penalty; adamw: it shrinks the weights apart from the gradients",
    )
    schedule: Literal["constant", "cosine", "step"] = Field(
        "constant",
        description="step size over the epochs: cosine falls towards 0, which the epoch after the last would have, step"
        " halves every 50",
    )
    warmup: int = Field(0, ge=0, le=10**6, description="epochs in which the step size grows to its full value")
    patience: int | None = Field(
        None, ge=1, description="stop after so many epochs of which none is better by selection; none: train all"
    )
    selection: Selection = Field(
        "validation",
        description="which epoch counts: the one with the best validation score, the one with the least validation loss"
        " (validation_loss), or the last, which needs no validation nodes",
    )
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="balanced: every class weighs the same in the loss, however many training nodes it has"
    )
    backward: str = Field(
        "return",
        description="how gradients go from the arcs of vertex programs to other PEs' rows: return (summed, to whoever"
        " has the row), turned (whoever has the row fetches what its arcs need), auto (what the cost model says of each"
        " layer), or one of the first two for each layer, comma-separated",
    )
    kernels: str | None = Field(
        None,
        description="how kernels generated for vertex programs share arcs among threads of GPUs, for example"
        " groups=block,arcs=sequence; none: as is best (docs/guides/vertex.md)",
    )
    untrained_classes: Literal["refuse", "count"] = Field(
        "refuse",
        description="validation and test nodes of classes without training nodes: refuse the graph, or count them, too",
    )

    @field_validator("backward")
    @classmethod
    def _known_schedules(cls, value: str) -> str:
        if value != "auto" and not {*value.split(",")} <= {"return", "turned"}:
            raise ValueError(f"{value!r} is none of return, turned, auto, or one of the first two for each layer")
        return value

    @field_validator("kernels")
    @classmethod
    def _known_choices(cls, value: str | None) -> str | None:
        return str(Execution.parsed(value or "")) or None


class LayeredSettings(ModelSettings):
    """Hyperparameters of a model with hidden layers."""

    hidden: int = Field(16, ge=1, le=65536, description="columns of the hidden layers")
    dropout: float = Field(0.5, ge=0, lt=1, description="share of the values that dropout sets to zero")


class DeepSettings(LayeredSettings):
    """Hyperparameters of a model of any number of layers, with options that deep models need."""

    layers: int = Field(2, ge=1, le=64, description="number of layers that aggregate")
    normalization: Literal["none", "batch", "layer"] = Field(
        "none", description="before the activation of hidden layers, in place of a bias"
    )
    residual: bool = Field(False, description="add to every hidden layer but the first its input")


class TypedSettings(LayeredSettings):
    """Hyperparameters of a model for typed arcs; such graphs have few labeled nodes, all used to train or to test."""

    selection: Selection = Field(
        "last",
        description="which epoch counts: the last, as there are no validation nodes, or the best on these by score"
        " (validation) or loss (validation_loss)",
    )
    bases: int = Field(0, ge=0, le=1024, description="bases of each layer's weights; 0: each arc type has its own")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of the hidden layer that dropout sets to zero")
    weight_decay: float = Field(0.0, ge=0, le=1e6, description="L2 penalty on all weights: added to their gradients")
