"""Transfers by size, row by row and in one piece, compared with a paper's (CoLa's table 4)."""

from __future__ import annotations

from mgg.report.figures import charts
from mgg.report.page.parts import Drawing, Part, grid, read, say
from mgg.report.papers.kinds import Transfers
from mgg.report.papers.verdicts import judged
from mgg.report.tables.compute import Rows, group, shared, where
from mgg.report.tables.numbers import count, sentences

_GRAINS = ("fine", "coarse")


def parts(tables: dict[str, Rows], _: str, shown: Transfers) -> list[Part]:
    """Return a part per machine, number of PEs and link; empty if nothing was measured."""
    found = group(tables["latencies"], "machine", "device", "pes", "link").values()
    return [_part(rows, shown) for rows in found]


def _part(rows: Rows, shown: Transfers) -> Part:
    first, link, beyond = rows[0], rows[0]["link"], shared(rows)
    paper = {grain: shown.seconds(shown.beside.get(link, ""), grain) for grain in _GRAINS}
    told = [row | {"paper": paper[row["grain"]].get(row["bytes"]), "kib": row["bytes"] // 2**10} for row in rows]
    told.sort(key=lambda row: _GRAINS.index(row["grain"]))
    over = f", {shown.beside[link]} in the paper" if link in shown.beside else ""
    count_ = count(first["transfers"], "transfer")
    table = grid("transfers", told, at=_mib, over_=f"{link}{over}", row_bytes=first["row_bytes"], transfers=count_)
    printed = [
        {"grain": f"{grain}, paper", "kib": size // 2**10, "median_s": seconds}
        for grain, at in paper.items()
        for size, seconds in at.items()
    ]
    svg = charts.curves([*told, *printed], "grain", "kib", "KiB", link, what="a transfer")
    text = sentences(read("texts")["links"].get(link, ""), f"There were more PEs than {beyond}." if beyond else "")
    heading = f"{where(first, 'link', 'pes')}, {first['device']} of {first['machine']}"
    drawing = Drawing(svg, f"{link}: time of a transfer by its size.")
    return Part(heading, text, [table], [drawing], _told(rows, shown, paper))


def _told(rows: Rows, shown: Transfers, paper: dict[str, dict[int, float]]) -> str:
    """Compare fine with coarse at the largest size, as the paper does; empty if no size has both."""
    at = {(row["grain"], row["bytes"]): row["median_s"] for row in rows}
    size = max((size for grain, size in at if all((each, size) in at for each in _GRAINS)), default=None)
    if size is None:
        return ""
    first, ours = rows[0], at["fine", size] / at["coarse", size]
    fine, coarse = (paper[grain].get(size) for grain in _GRAINS)
    theirs, verdict = fine / coarse if fine and coarse else None, "no verdict, since the paper's links join GPUs"
    if theirs and first["device"] == "GPUs":
        verdict = judged((ours > 1) == (theirs > 1))
    return say("transfer", first, _mib(size), ours, theirs, shown.beside.get(first["link"], ""), verdict)


def _mib(size: int) -> str:
    return f"{size / 2**20:g} MiB"
