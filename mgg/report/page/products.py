"""The sections on products: time, scaling and bytes of each graph, the fastest of each comparison, and the checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mgg.report.figures import charts
from mgg.report.page import glossary
from mgg.report.page.parts import Drawing, Grid, Part, Section, grid, say
from mgg.report.tables.compute import SETTING, WRONG, Row, Rows, best, group, shared, varied, where
from mgg.report.tables.numbers import Filled, count, sentences

#: Counts of table checks that are shown if there are any, and their headings.
_COUNTS = {"failed": "FAILED", "unchecked": "not checked"}


def told(aggregate: Rows) -> Rows:
    """Return rows of table aggregate with what their cells show: ``sign`` and ``wrong``."""
    return [row | {"sign": f"{charts.mark(row)} ".lstrip(), "wrong": WRONG[row["check"]]} for row in aggregate]


def overview(tables: dict[str, Rows], looks: charts.Looks) -> list[Drawing]:
    """Return two figures for the first screen, on the largest graph's widest products; none without products."""
    graphs = group(tables["aggregate"], "graph")
    if not graphs:
        return []
    arcs = {(row["graph"],): row["arcs"] for row in tables["graphs"]}
    largest = max((key for key in arcs if key in graphs), key=lambda key: arcs[key])
    found = max(group(graphs[largest], *SETTING, "dim").values(), key=lambda each: (len(each), each[0]["dim"]))
    at = where(found[0], "graph", "dim")
    drawings = [Drawing(charts.times(found, looks, at), f"{at}: median time, fastest to slowest launch.")]
    known = _known(found)
    if len({row["pes"] for row in known}) > 1:
        drawings.append(Drawing(charts.scaling(known, looks, at), f"{at}: speedup over 1 PE."))
    elif found[0]["pes"] > 1:
        drawings.append(Drawing(charts.volumes(found, looks, at), f"{at}: bytes on the wire."))
    return drawings


def _known(rows: Rows) -> Rows:
    return [row for row in rows if row["speedup"] is not None and row["check"] != "failed"]


def _beyond(rows: Rows) -> Callable[[int], str]:
    """Return what names a number of PEs, with what they shared."""

    def heading(pes: int) -> str:
        beyond = shared(row for row in rows if row["pes"] == pes)
        return count(pes, "PE") + (f" (more than {beyond})" if beyond else "")

    return heading


def fastest(tables: dict[str, Rows]) -> Grid | None:
    """Return the fastest technique of each comparison on several PEs; None if there is none."""
    rows = [
        row | {"sign": f"{charts.NEAR} " if row["close"] else "" if row["unstarred"] else f"{charts.STAR} "}
        for row in tables["fastest"]
        if row["pes"] > 1
    ]
    if not rows:
        return None
    several = len(group(rows, *SETTING)) > len(group(rows, "graph"))
    named = [row | {"case": f" ({say('setting', row)})" * several} for row in rows]
    long = any(len(label) > charts.LONGEST for row in rows for label in (row["label"], row["runner_up"]))
    return grid("fastest", named, heading="{graph}{case}", at=_beyond(rows), prose=long)


def sections(tables: dict[str, Rows], looks: charts.Looks) -> list[Section]:
    """Return a section for each graph that products were timed on."""
    found, last = list[Section](), ""
    for number_, ((graph,), rows) in enumerate(group(tables["aggregate"], "graph").items(), 1):
        parts: list[Part] = []
        for setting, alike in group(rows, *SETTING).items():
            first = _time(group(tables["fastest"], *SETTING).get(setting, []), alike, looks, legend=not last)
            parts.append(replace(first, intro="Measured as above.") if first.intro == last else first)
            last = first.intro
            if any(row["pes"] > 1 for row in alike):
                parts += [_scaling(alike, looks), _bytes(alike, looks)]
        found.append(Section(f"graph-{number_}", f"Graph {graph}", "", parts))
    return found


def _time(fastest: Rows, rows: Rows, looks: charts.Looks, *, legend: bool) -> Part:
    # The first section explains the techniques; elsewhere tooltips do.
    note = sentences(*_no_star(fastest), glossary.legend(row["technique"] for row in rows) if legend else "")
    ordered = sorted(rows, key=lambda row: row["label"])
    table = grid("times", ordered, at=_beyond(rows), graph=rows[0]["graph"], note=note)
    alike = [(where(found[0], "graph", "dim"), found) for found in group(rows, "dim").values()]
    drawings = [Drawing(charts.times(found, looks, at), f"{at}: time.") for at, found in alike]
    launches = {(row["launches"], row["iterations"] // row["launches"], row["warmup"]) for row in rows}
    setting = say("setting", rows[0])
    intro = f"{setting[:1].upper()}{setting[1:]}; {say('launches', sorted(launches))}, slowest PE of each."
    return Part("Time", intro, [table], drawings)


def _no_star(fastest: Rows) -> list[str]:
    """Return, for each reason, a sentence on the comparisons (of table fastest) left without a star."""
    told = []
    rows = [row for row in fastest if row["pes"] > 1]
    at = {pes: len(each) for (pes,), each in group(rows, "pes").items()}
    for (why,), found in group((row for row in rows if row["unstarred"]), "unstarred").items():
        whole = [pes for (pes,), each in group(found, "pes").items() if len(each) == at[pes]]
        cases = [count(pes, "PE") for pes in whole]
        cases += [f"D = {row['dim']} on {count(row['pes'], 'PE')}" for row in found if row["pes"] not in whole]
        told.append(say("no_star", why, [] if len(found) == len(rows) else cases))
    return told


def _scaling(rows: Rows, looks: charts.Looks) -> Part:
    known = _known(rows)
    text = "" if known else "There is no sound time with 1 PE to compare with, so speedups are unknown."
    drawings = []
    for found in group(known, "dim").values():
        one, at = best(row for row in found if row["pes"] == 1), where(found[0], "graph", "dim")
        if len({row["pes"] for row in found}) > 1:
            svg = charts.scaling(found, looks, at)
            drawings.append(Drawing(svg, f"{at}: speedup over 1 PE ({one['label']})."))
    return Part("Scaling", text, (), drawings)


def _bytes(rows: Rows, looks: charts.Looks) -> Part:
    widest = max(row["dim"] for row in rows if row["pes"] > 1)
    found = [
        row
        | {"equal": f"{row['equal_volumes']}; ".removeprefix("; "), "rate": row["bytes_wire"] / row["median_s"] / 1e9}
        for row in rows
        if row["pes"] > 1 and row["dim"] == widest
    ]
    at = where(found[0], "graph", "dim")
    table = grid("bytes", sorted(found, key=lambda row: row["label"]), graph=found[0]["graph"])
    svg = charts.volumes(found, looks, at)
    return Part("Bytes on the wire", "", [table], [Drawing(svg, f"{at}: bytes on the wire; hatched: by formula.")])


def checks(tables: dict[str, Rows]) -> Grid | None:
    """Return the errors of the techniques, of those that swept the settings shown elsewhere and every failed one."""
    labels = {row["label"] for row in tables["aggregate"]}
    rows = [row for row in tables["checks"] if row["label"] in labels or row["failed"]]
    if not rows:
        return None
    none = {name: None for column, name in _COUNTS.items() if not any(row[column] for row in rows)}
    conditions = ("machine", "device", "dtype") if varied(tables["checks"], "machine", "device", "dtype") else ()
    alike: dict[tuple[str, ...], Row] = {}
    for row in rows:
        told = row | {"who": row["label"] + (f" ({where(row, *conditions)})" if conditions else "")}
        texts = ("{graph}", "{error:.1e}", "{tolerance:.0e}", "{passed} {failed} {unchecked}")
        same = alike.setdefault(tuple(Filled()(text, row) for text in texts), told)
        if same is not told:
            same["who"] += f"; {told['who']}"
    return grid("checks", list(alike.values()), none)
