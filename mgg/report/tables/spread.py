"""Which timings can be told apart: by the spread between launches, of which each has at least three."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: Fewer launches than this say nothing of the next one.
FEWEST = 3
FEW, OVERLAP = f"fewer than {FEWEST} launches", "launches overlap"


def few(*rows: dict[str, Any]) -> bool:
    """Whether one of the rows of table aggregate has too few launches to be told from others."""
    return any(row["launches"] < FEWEST for row in rows)


def overlap(one: dict[str, Any], two: dict[str, Any]) -> bool:
    """Whether neither of two rows of table aggregate was faster in its slowest launch than the other in its fastest."""
    return bool(one["low"] <= two["high"] and two["low"] <= one["high"])


def undecided(one: dict[str, Any], *others: dict[str, Any]) -> str:
    """Why rows of table aggregate cannot be told from ``one``; empty: all of them can."""
    if few(one, *others):
        return FEW
    return OVERLAP if any(overlap(one, other) for other in others) else ""


def judge(rows: Sequence[dict[str, Any]]) -> None:
    """Of the rows of one comparison, at least two, say which is the ``fastest``, ``close`` to it, and ``starred``.

    Starred is the one whose slowest launch was faster than the fastest of each other; never more PEs than cores or
    GPUs, which take turns, and never 1 PE, where techniques move nothing.
    """
    first = min(rows, key=lambda row: (row["median"], row["label"]))
    reach = max(row["high"] for row in rows if row["median"] == first["median"])
    near = [row for row in rows if row["low"] <= reach]
    for row in rows:
        row["fastest"] = row["median"] == first["median"]
    for row in near:
        # The fastest is among them: where its spread reaches another, neither is to be called a winner.
        row["close"] = len(near) > 1
    first["starred"] = not unstarred(first, [row for row in rows if row is not first])


def unstarred(first: dict[str, Any], others: Sequence[dict[str, Any]]) -> str:
    """Why the fastest row of a comparison has no star; empty: it has one."""
    if first["pes"] == 1:
        return "nothing moves on 1 PE"
    if first["oversubscribed"]:
        return "more PEs than " + ("GPUs" if first["device"] == "GPUs" else "cores")
    return undecided(first, *others)
