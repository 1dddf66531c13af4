"""Transfers by size, row by row and in one piece, compared with a paper's (CoLa's table 4)."""

from __future__ import annotations

from mgg.report.figures import charts
from mgg.report.page.parts import Cell, Drawing, Grid, Part
from mgg.report.papers.kinds import Transfers
from mgg.report.tables.comparisons import AGREES, DISAGREES
from mgg.report.tables.compute import Row, Rows, group, shared
from mgg.report.tables.numbers import ABSENT, count, number, time_unit, within

_CASE = ("machine", "device", "pes", "link")
_GRAINS = ("fine", "coarse")


def parts(tables: dict[str, Rows], name: str, shown: Transfers) -> list[Part]:
    """Return a part per machine, number of PEs and link; empty if nothing was measured."""
    found = group(tables["latencies"], *_CASE).values()
    return [_part(rows, shown, f"{name}{number_}") for number_, rows in enumerate(found, 1)]


def outcome(tables: dict[str, Rows], shown: Transfers) -> str:
    """Compare fine with coarse at the largest size, as the paper does; empty if nothing was measured."""
    told = []
    for (machine, device, pes, link), rows in group(tables["latencies"], *_CASE).items():
        at = {(row["grain"], row["bytes"]): row["median_s"] for row in rows}
        sizes = [size for size in {row["bytes"] for row in rows} if all((grain, size) in at for grain in _GRAINS)]
        if not sizes:
            continue
        size = max(sizes)
        ours = at["fine", size] / at["coarse", size]
        text = (
            f"Over {link} ({count(pes, 'PE')}, {device} of {machine}) {_mib(size)} row by row take {number(ours)} times"
        )
        theirs = _printed(shown, link, size)
        if theirs is not None:
            word = AGREES if (ours > 1) == (theirs > 1) else DISAGREES
            word = word if device == "GPUs" else "no verdict, since the paper's links join GPUs"
            text += f" as long as at once, {number(theirs)} times over {shown.beside[link]} in the paper: {word}."
        else:
            text += " as long as at once."
        told.append(text)
    return " ".join(told)


def _printed(shown: Transfers, link: str, size: int) -> float | None:
    """Return the paper's row-by-row time over its time in one piece."""
    times = [shown.seconds(shown.beside.get(link, ""), grain).get(size) for grain in _GRAINS]
    return times[0] / times[1] if times[0] and times[1] else None


def _mib(size: int) -> str:
    return f"{size / 2**20:g} MiB"


def _part(rows: Rows, shown: Transfers, key: str) -> Part:
    first = rows[0]
    theirs = shown.beside.get(first["link"])
    at = {(row["grain"], row["bytes"]): row for row in rows}
    sizes = sorted({row["bytes"] for row in rows})
    unit = time_unit([row["median_s"] for row in rows])
    lines = []
    for grain in _GRAINS:
        cells = []
        for size in sizes:
            row = at.get((grain, size))
            paper = shown.seconds(theirs or "", grain).get(size)
            small = f"paper {number(paper * 1e6)} µs" if paper else ""
            cells.append(Cell(within(row["median_s"], unit) if row else ABSENT, small))
        lines.append((grain, cells))
    over = f", {theirs} in the paper" if theirs else ""
    grid = Grid(
        f"A transfer over {first['link']}{over} ({unit.name})",
        "grain",
        [_mib(size) for size in sizes],
        [("", lines)],
        f"fine: a request for each row of {first['row_bytes']} bytes; coarse: one transfer. Median of "
        f"{count(first['transfers'], 'transfer')}, slowest PE, all PEs at once; small: the paper's.",
    )
    series = {
        grain: [(size // 2**10, at[grain, size]["median_s"]) for size in sizes if (grain, size) in at]
        for grain in _GRAINS
    }
    series |= {
        f"{grain}, paper": [(size // 2**10, each) for size, each in shown.seconds(theirs, grain).items()]
        for grain in _GRAINS
        if theirs
    }
    svg = charts.lines(series, "KiB", key, first["link"], "a transfer")
    caption = f"{first['link']}: time of a transfer by its size."
    return Part(_heading(first), _told(rows), [grid], [Drawing(svg, caption)])


def _heading(row: Row) -> str:
    return f"{row['link']}, {count(row['pes'], 'PE')}, {row['device']} of {row['machine']}"


def _told(rows: Rows) -> str:
    beyond = shared(rows)
    ways = {
        "nvlink": "Rows are loaded by a kernel's threads, the copy is the driver's; the paper's are gets by warps.",
        "shared_memory": "PEs share a host's memory: a compiled loop copies rows one by one, or one copy all of them.",
        "mpi": "Each row is a one-sided get of MPI that is waited for; Python's share of a request is in its time.",
        "network": "GPUs of other hosts are put to: a message a row, which nothing waits for, or one.",
    }  # fmt: skip
    return " ".join([ways.get(rows[0]["link"], ""), *([f"There were more PEs than {beyond}."] if beyond else [])])
