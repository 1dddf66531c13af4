"""Vertex programs: the work of one vertex, written once, run on any number of PEs.

``from mgg import vertex as V`` imports everything a program needs.
"""

import difflib
from typing import Never

from mgg.vertex.explain import explain
from mgg.vertex.functions import (
    abs,
    concat,
    correlate,
    dot,
    dropout,
    elu,
    exp,
    flatten,
    heads,
    keep,
    leaky_relu,
    log,
    max,
    maximum,
    mean,
    mean_axis,
    mean_of_heads,
    min,
    minimum,
    normalize,
    relu,
    repeat,
    reshape,
    sigmoid,
    softmax,
    sqrt,
    std,
    sum,
    sum_axis,
    tanh,
    where,
)
from mgg.vertex.symbols import OURS, VertexProgramError
from mgg.vertex.trace import Program, Trace, program

__all__ = [
    "Program",
    "Trace",
    "VertexProgramError",
    "abs",
    "concat",
    "correlate",
    "dot",
    "dropout",
    "elu",
    "exp",
    "explain",
    "flatten",
    "heads",
    "keep",
    "leaky_relu",
    "log",
    "max",
    "maximum",
    "mean",
    "mean_axis",
    "mean_of_heads",
    "min",
    "minimum",
    "normalize",
    "program",
    "relu",
    "repeat",
    "reshape",
    "sigmoid",
    "softmax",
    "sqrt",
    "std",
    "sum",
    "sum_axis",
    "tanh",
    "where",
]


def __getattr__(name: str) -> Never:
    near = difflib.get_close_matches(name, __all__, 3, 0.5)
    raise AttributeError(f"V has no {name}" + f": do you mean V.{' or V.'.join(near)}?" * bool(near))


OURS.add(__getattr__.__code__.co_filename)
