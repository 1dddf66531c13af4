"""What attention's modules have computed arc by arc, for whoever compares two implementations of it."""

from __future__ import annotations

from typing import Any

from mgg.model.arcs import ArcLists
from mgg.model.arrays.scores import ArcDropout

#: What ``attended`` returns.
NAMES = (
    "shares", "sums", "signed shares by target", "shares with a minus", "signed sums by target", "low sums by target",
    "signed shares by source", "means by source", "signed sums by source", "low sums by source", "inner products",
)  # fmt: skip


def attended(arrays: Any, arcs: ArcLists, given: list[Any], dropout: ArcDropout | None) -> list[Any]:
    """Of both parts of the scores [rows, H], of X [rows, H * F] and means [rows, H], with the arrays of ``arrays``."""
    to_target, to_source, x, means = given
    scores = arrays.arc_scores(arcs.by_target, to_target, to_source, 0.2)
    shares = arrays.arc_shares(arcs.by_target, scores, dropout)
    found = [shares, arrays.arc_aggregate(arcs.by_target, shares, x)]
    for side, more in ((arcs.by_target, ()), (arcs.by_source, (means,))):
        signed, sums = arrays.arc_signed_shares(side, scores, dropout, *more)
        found += [signed, sums, *arrays.arc_signed_aggregate(side, signed, x)]
    return [*found, arrays.inner_products(x, found[-1], means.shape[1])]
