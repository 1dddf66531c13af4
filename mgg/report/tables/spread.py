"""Decide which timings are distinguishable, by the spread between launches (at least three each)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: Fewer launches than this do not predict the next one.
FEWEST = 3
FEW, OVERLAP = f"fewer than {FEWEST} launches", "launches overlap"


def overlap(one: dict[str, Any], two: dict[str, Any]) -> bool:
    """Return whether the launch ranges of two rows of table aggregate overlap."""
    return bool(one["low_s"] <= two["high_s"] and two["low_s"] <= one["high_s"])


def undecided(one: dict[str, Any], *others: dict[str, Any]) -> str:
    """Return why rows of table aggregate are indistinguishable from ``one``; empty if all are distinguishable."""
    if any(row["launches"] < FEWEST for row in (one, *others)):
        return FEW
    return OVERLAP if any(overlap(one, other) for other in others) else ""


def judge(rows: Sequence[dict[str, Any]]) -> None:
    """Mark the rows of one comparison (two or more) as ``fastest``, ``close`` to it and ``starred``.

    The star goes to the row whose slowest launch beat the fastest launch of each other row. Oversubscribed PEs never
    get it, because they take turns; nor does 1 PE, where techniques move nothing.
    """
    first = min(rows, key=lambda row: (row["median_s"], row["label"]))
    reach = max(row["high_s"] for row in rows if row["median_s"] == first["median_s"])
    near = [row for row in rows if row["low_s"] <= reach]
    for row in rows:
        row["fastest"] = row["median_s"] == first["median_s"]
    for row in near:
        # ``near`` includes the fastest: if its spread reaches another row, there is no winner.
        row["close"] = len(near) > 1
    first["starred"] = not unstarred(first, [row for row in rows if row is not first])


def unstarred(first: dict[str, Any], others: Sequence[dict[str, Any]]) -> str:
    """Return why the fastest row of a comparison has no star; empty if it has one."""
    if first["pes"] == 1:
        return "nothing moves on 1 PE"
    if first["oversubscribed"]:
        return "more PEs than " + ("GPUs" if first["device"] == "GPUs" else "cores")
    return undecided(first, *others)
