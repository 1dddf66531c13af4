"""Effect of technique gnnadvisor's parameters on products: figures 12 and 14 of GNNAdvisor (OSDI'21)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from statistics import geometric_mean

from mgg.report.figures import charts
from mgg.report.page.parts import Cell, Drawing, Grid, Part
from mgg.report.tables.compute import SETTING, Row, Rows, graph_names, group, options_but, sound
from mgg.report.tables.mgg_sweep import id_
from mgg.report.tables.numbers import ABSENT, count, listing, number, percent, time_unit, within

#: Deciders of the parameters and their names on the page.
DECIDERS = {"paper": "as printed", "artifact": "as released", "fitted": "fitted"}
#: A pick is good within this factor of the grid's best; fewer settings do not count as a grid.
GOOD, FEWEST = 1.1, 4
#: GNNAdvisor 7.4: share of atomics that the leader saves, on average over three graphs.
SAVED = 0.4785

Names = dict[tuple[str, str], str]


def parts(tables: dict[str, Rows], name: str, shown: Sequence[str]) -> list[Part]:
    """Return a part for each item in ``shown`` of an ``Experiment``; none for what was not measured."""
    found = []
    for what in shown:
        part = _over(tables, name, what) if what in ("ngs", "dw") else _PARTS[what](tables)
        found += [part] if part else []
    return found


def outcomes(tables: dict[str, Rows], shown: Sequence[str]) -> list[str]:
    """Return a sentence for each of them that was measured."""
    return [part.intro for part in parts(tables, "", shown) if part.intro]


def telling(aggregate: Rows) -> Rows:
    """Return ``aggregate`` with only the best of each grid, because more would bury the other techniques."""
    dropped = set()
    for rows in _grids(aggregate).values():
        best = min(rows, key=lambda row: (row["median_s"], row["label"]))
        dropped |= {id_(row) for row in rows if row is not best and _options(row)["decide"] == "none"}
    return [row for row in aggregate if id_(row) not in dropped]


def _options(row: Row) -> dict[str, object]:
    found: dict[str, object] = json.loads(row["options"])
    return found


def _decided(row: Row) -> dict[str, int]:
    found: dict[str, int] = json.loads(row["decided"])
    return found


def _rows(aggregate: Rows) -> Rows:
    return [row for row in sound(aggregate) if row["technique"] == "gnnadvisor" and row["decided"]]


def _grids(aggregate: Rows) -> dict[tuple[object, ...], Rows]:
    """Return grids: timings that differ only in decider, ngs, dw and tpb, if the user set enough of them."""
    rows = [{**row, "others": options_but(row, ("ngs", "dw", "tpb", "decide"))} for row in _rows(aggregate)]
    found = group(rows, *SETTING, "dim", "pes", "others")
    return {
        key: rows
        for key, rows in found.items()
        if len({row["decided"] for row in rows if _options(row)["decide"] == "none"}) >= FEWEST
    }


def _where(row: Row, names: Names) -> str:
    return f"{names[row['dataset'], row['graph_hash']]} ({row['machine']}, {row['device']})"


def _over(tables: dict[str, Rows], name: str, option: str) -> Part | None:
    """Show times over ngs or dw: a figure per graph and width, a line for each other difference."""
    rows = [
        {**row, "x": _decided(row)[option], "others": options_but(row, [option])}
        for row in _rows(tables["aggregate"])
        if _options(row)["decide"] == "none"
    ]
    lines = [found for found in group(rows, *SETTING, "dim", "others").values() if len({r["x"] for r in found}) > 2]
    if not lines:
        return None
    rows = [row for found in lines for row in found]
    names, unit = graph_names(tables["graphs"]), time_unit([row["median_s"] for row in rows])
    points, groups, drawings, told = sorted({row["x"] for row in rows}), [], [], []
    for index, mine in enumerate(group(rows, *SETTING, "dim").values(), 1):
        series = _series(mine, option)
        where = f"{names[mine[0]['dataset'], mine[0]['graph_hash']]}, D = {mine[0]['dim']}"
        least = min(mine, key=lambda row: (row["median_s"], row["x"]))
        told.append(f"{least['x']} ({where})")
        body = [
            (
                label,
                [Cell(within(at[x], unit) if x in at else ABSENT, best=at.get(x) == min(at.values())) for x in points],
            )
            for label, at in series.items()
        ]
        groups.append((f"{where} ({mine[0]['machine']}, {mine[0]['device']}, {mine[0]['direction']})", body))
        curves = {label: sorted(at.items()) for label, at in series.items()}
        svg = charts.lines(curves, option, f"{name}{option}{index}", where)
        drawings.append(Drawing(svg, f"{where}: median time of one aggregation over {option}."))
    columns = [f"{option} = {x}" for x in points]
    grid = Grid(f"Time of one aggregation over {option}", "setting", columns, groups, f"Medians in {unit.name}.")
    return Part(f"Over {option}", f"The least time is at {option} {listing(told)}.{_on_cpus(rows)}", [grid], drawings)


def _series(rows: Rows, option: str) -> dict[str, dict[int, float]]:
    """Return times over an option, by those of ngs, dw and tpb that also differ in ``rows`` (one graph and width)."""
    others = [each for each in ("ngs", "dw", "tpb") if each != option]
    varying = [each for each in others if len({_decided(row)[each] for row in rows}) > 1]
    found: dict[str, dict[int, float]] = {}
    for row in sorted(rows, key=lambda row: [_decided(row)[each] for each in varying]):
        label = ", ".join(f"{each} = {_decided(row)[each]}" for each in varying) or "gnnadvisor"
        at = found.setdefault(label, {})
        at[row["x"]] = min(row["median_s"], at.get(row["x"], row["median_s"]))
    return found


def _on_cpus(rows: Rows) -> str:
    return " On CPU cores ngs alone changes what is done." if any(row["device"] != "GPUs" for row in rows) else ""


def _picks(tables: dict[str, Rows]) -> Part | None:
    """Compare the grid's best with each Decider's pick."""
    names, lines, ratios = graph_names(tables["graphs"]), [], dict[str, list[float]]()
    for rows in _grids(tables["aggregate"]).values():
        best = min((row for row in rows if _options(row)["decide"] == "none"), key=lambda row: row["median_s"])
        picked = {str(_options(row)["decide"]): row for row in rows if _options(row)["decide"] != "none"}
        for who, row in picked.items():
            ratios.setdefault(who, []).append(row["median_s"] / best["median_s"])
        lines.append((best, picked, len({row["decided"] for row in rows})))
    if not lines:
        return None
    unit, groups = time_unit([best["median_s"] for best, _, _ in lines]), []
    for key in dict.fromkeys((best["dataset"], best["graph_hash"], best["machine"]) for best, _, _ in lines):
        mine = [each for each in lines if (each[0]["dataset"], each[0]["graph_hash"], each[0]["machine"]) == key]
        body = []
        for best, picked, settings in mine:
            cells = [Cell(within(best["median_s"], unit), _setting(best), True)]
            for who in DECIDERS:
                pick = picked.get(who)
                cells.append(
                    Cell(f"{number(pick['median_s'] / best['median_s'])} x", _setting(pick)) if pick else Cell(ABSENT)
                )
            case = f"D = {best['dim']}, {best['direction']}"
            body.append((case, [*cells, Cell(str(settings))]))
        groups.append((_where(mine[0][0], names), body))
    columns = [f"best ({unit.name})", *DECIDERS.values(), "settings measured"]
    note = "Times over the best of the grid. Small: ngs, dw, tpb."
    grid = Grid("The grid's best and the picks", "width", columns, groups, note)
    return Part("Picks of the Decider", _judged(ratios) + _on_cpus([best for best, _, _ in lines]), [grid])


def _setting(row: Row) -> str:
    return ", ".join(str(_decided(row)[name]) for name in ("ngs", "dw", "tpb"))


def _judged(ratios: Mapping[str, list[float]]) -> str:
    """Describe how far the picks are from the best."""
    told = []
    for who, name in DECIDERS.items():
        if found := ratios.get(who):
            good = sum(ratio <= GOOD for ratio in found)
            told.append(
                f"{name} {number(geometric_mean(found))} times the grid's best on average, within 10 % of it in {good}"
                f" of {count(len(found), 'case')}"
            )
    return f"The Decider's picks take {', '.join(told)}." if told else ""


def _atomics(tables: dict[str, Rows]) -> Part | None:
    """Compare counted atomics with and without the leader."""
    rows = [row for row in _rows(tables["aggregate"]) if _options(row)["sums"] == "atomic"]
    pairs = []
    for found in group(
        [{**row, "others": options_but(row, ["leader"])} for row in rows], *SETTING, "dim", "others"
    ).values():
        by_leader = {_options(row)["leader"]: row for row in found}
        if len(by_leader) == 2:
            pairs.append((by_leader[False], by_leader[True]))
    if not pairs:
        return None
    names, groups = graph_names(tables["graphs"]), []
    for mine in group([{**alone, "joined": joined["atomics"]} for alone, joined in pairs], *SETTING).values():
        body = []
        for row in mine:
            saved = 1 - row["joined"] / row["atomics"] if row["atomics"] else None
            cells = [Cell(f"{row['atomics']:,}"), Cell(f"{row['joined']:,}"), Cell(percent(saved))]
            body.append((f"D = {row['dim']}; ngs, dw, tpb = {_setting(row)}", cells))
        groups.append((_where(mine[0], names), body))
    shares = [joined["atomics"] / alone["atomics"] for alone, joined in pairs if alone["atomics"]]
    mean = percent(1 - sum(shares) / len(shares)) if shares else ABSENT
    text = f"The leader saves {mean} of the atomics on average; in the paper {100 * SAVED:.2f} %."
    note = "Additions of a float that the kernel issues in one product, counted on the host."
    columns = ["without", "with the leader", "saved"]
    return Part("Atomics", text, [Grid("Atomics of a product", "width, setting", columns, groups, note)])


def _spans(tables: dict[str, Rows]) -> Part | None:
    """Show the averaged edge span of each graph that has one."""
    rows = [row for row in tables["quality"] if row["span"] is not None]
    names = graph_names(tables["graphs"])
    lines = {str(names[row["dataset"], row["graph_hash"]]): [Cell(number(row["span"]))] for row in rows}
    if not lines:
        return None
    note = "The mean distance between the ids of an arc's ends; a random order of n nodes has about n / 3."
    grid = Grid("Averaged edge span", "graph", ["span"], [("", sorted(lines.items()))], note)
    return Part("Averaged edge span", "", [grid])


_PARTS: dict[str, Callable[[dict[str, Rows]], Part | None]] = {
    "picks": _picks,
    "atomics": _atomics,
    "span": _spans,
}
