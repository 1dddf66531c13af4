"""Online softmax: one pass over a row's arcs for the maximum score and sums with the factor exp(score - maximum)
(Milakov and Gimelshein, 2018). The sums are relative to the maximum so far, and rescaled when it rises.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mgg.vertex import ir
from mgg.vertex.ir import Value
from mgg.vertex.units import Stage, unstopped


def shift(x: Value, tops: Collection[Value]) -> Value | None:
    """Return the one of ``tops``, maxima of rows, such that exp(score - top) is a factor of ``x``; None: there is none.

    Raises:
        LookupError: ``x`` depends on ``tops`` in another way.
    """
    if not tops or not any(v in tops for v in ir.walk([x])):
        return None
    if x.op == "negative":
        return shift(x.inputs[0], tops)
    if x.op in ("multiply", "divide"):
        found = [shift(y, tops) for y in x.inputs]
        if found[1] is None or (found[0] is None and x.op == "multiply"):
            return found[0] or found[1]
    if x.op == "exp" and x.inputs[0].op == "subtract":
        score, down = x.inputs[0].inputs
        top = unstopped(down.inputs[0]) if down.op == "cast" else down
        if top in tops and score is top.inputs[0]:  # so that no exponential exceeds 1
            return top
    raise LookupError(x)


def joined(stages: Sequence[Stage], stored: Collection[Value]) -> list[Stage]:
    """Merge each stage of a maximum with the stage of sums relative to it; ``stored``: arc values to write."""
    found = [*stages[:1]]
    for stage in stages[1:]:
        if _joins(found[-1], stage, stored):
            before = found.pop()
            pairs = (before.values, stage.values), (before.sums, stage.sums), (before.rows, stage.rows)
            found.append(Stage(*(tuple(dict.fromkeys([*x, *y])) for x, y in pairs)))
        else:
            found.append(stage)
    return found


def _joins(before: Stage, stage: Stage, stored: Collection[Value]) -> bool:
    tops = {v for v in before.sums if v.op == "maximum_of"}
    others = {*before.sums, *before.rows} - tops
    if any(x in others for v in (*stage.values, *stage.sums) for x in v.inputs):
        return False
    try:
        if any(shift(v, tops) is not None for v in stage.values if v in stored):
            return False
        shifts = [(v, top) for v in stage.sums for x in v.inputs if (top := shift(x, tops)) is not None]
    except LookupError:
        return False
    return all(v.op == "total" and v.space is top.space for v, top in shifts)
