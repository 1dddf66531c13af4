"""Render the tables as one self-contained HTML page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from mgg.record import METRIC_NAMES
from mgg.report.figures import charts
from mgg.report.page import described, findings, glossary, lookups, phases, quality
from mgg.report.page.parts import Cell, Columns, Drawing, Grid, Part, Section, across, table
from mgg.report.papers import advisor, catalogue, predictions
from mgg.report.papers import sections as papers
from mgg.report.papers.catalogue import stand_in
from mgg.report.tables import choice, jobs, mgg_sweep
from mgg.report.tables.columns import ABOUT, TABLES
from mgg.report.tables.compute import ALIKE, NOT_NOTED, SETTING, Row, Rows, best, group, shared, varied, where
from mgg.report.tables.numbers import ABSENT, bytes_unit, count, listing, number, percent, quantity, time_unit, within


class Page(NamedTuple):
    """The HTML of a report, and its sections with figures by kind."""

    html: str
    illustrated: dict[str, list[Section]]


def render(tables: dict[str, Rows], title: str, experiments: Sequence[tuple[str, str]] = ()) -> Page:
    """Render the whole report; all text from records is escaped.

    ``experiments``: names of the papers' figures to show, each with a remark or "".
    """
    everything, tables = tables, tables | {"aggregate": advisor.telling(mgg_sweep.telling(tables["aggregate"]))}
    sections_told = (described, lookups, choice, predictions)
    told = [found for each in sections_told if (found := each.section(tables))]
    experiments, ahead = catalogue.divided(experiments)
    labels = [row["label"] for row in tables["aggregate"]]
    styles, compared = charts.Styles(labels), papers.sections(everything, experiments)
    sections = {
        "aggregate": _sections(tables, styles),
        "train": _training(tables),
        "papers": [*compared, *predictions.sections(tables, ahead), *told],
        "jobs": jobs.section(tables),
    }
    where = "What ran where" if tables["machines"] else "Graphs"
    grids = [grid for grid in (_machines(tables["machines"]), _graphs(tables["graphs"]), _partitions(tables)) if grid]
    timed = bool(tables["aggregate"] or tables["training"])
    split = quality.section(tables)
    html = _template().render(
        title=title,
        answers=findings.answers(tables, everything),
        overview=_overview(tables, styles),
        findings=[
            *papers.outcomes(compared),
            *choice.findings(tables),
            *findings.others(tables),
        ],
        fastest=_fastest(tables),
        chapters=[*sections["papers"], *sections["aggregate"], *sections["train"], *([split] if split else [])],
        checks=_checks(tables),
        after=[Section("where", where, "", [Part("", "", grids)], folded=timed), *sections["jobs"]],
        files=[(name, f"{count(len(everything[name]), 'row')}; {ABOUT[name]}") for name in TABLES if everything[name]],
        terms=glossary.terms(),
    )
    return Page(html, sections)


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"linked": glossary.linked, "hinted": glossary.hinted, "technique": glossary.technique}
    return environment.get_template("page.html.j2")


def _overview(tables: dict[str, Rows], styles: charts.Styles) -> list[Drawing]:
    """Return two figures for the first screen: the largest graph's widest products, or else the first training."""
    graphs = group(tables["aggregate"], "graph")
    if not graphs:
        parts = (part for section in _training(tables, "o") for part in section.parts)
        return [drawing for part in parts for drawing in part.drawings][:2]
    arcs = {(row["graph"],): row["arcs"] for row in tables["graphs"]}
    largest = next(key for key in arcs if key in graphs and arcs[key] == max(arcs[each] for each in graphs))
    found = max(group(graphs[largest], *SETTING, "dim").values(), key=lambda each: (len(each), each[0]["dim"]))
    at = where(found[0], "graph", "dim")
    drawings = [Drawing(charts.times(found, styles, "ot", at), f"{at}: median time, fastest to slowest launch.")]
    known = [row for row in found if row["speedup"] is not None and row["check"] != "failed"]
    if len({row["pes"] for row in known}) > 1:
        drawings.append(Drawing(charts.scaling(known, styles, "os", at), f"{at}: speedup over 1 PE."))
    elif found[0]["pes"] > 1:
        drawings.append(Drawing(charts.volumes(found, styles, "ob", at), f"{at}: bytes on the wire."))
    return drawings


def _pivot(rows: Rows, caption: str, cell: Callable[[Row], Cell], note: str = "") -> Grid:
    """Return rows of one setting: a group per width, a row per technique, a column per number of PEs."""
    pes = sorted({each["pes"] for each in rows})
    groups = []
    for (dim,), found in group(rows, "dim").items():
        lines = across(sorted(found, key=lambda row: row["label"]), "label", "pes", pes, cell)
        groups.append((f"D\N{NO-BREAK SPACE}= {dim}", lines))
    return Grid(caption, "technique", _pes_headings(rows), groups, note)


def _pes_headings(rows: Rows) -> list[str]:
    headings = []
    for (pes,), found in group(rows, "pes").items():
        headings.append(count(pes, "PE") + (f" (more than {shared(found)})" if shared(found) else ""))
    return headings


def _setting(row: Row) -> str:
    """Describe the conditions of a comparison in words."""
    product = "forward product A B" if row["direction"] == "forward" else "transposed product A^T B"
    return f"machine {row['machine']}, {row['device']}, {product}, {row['dtype']}, partition scheme {row['scheme']}"


def _fastest(tables: dict[str, Rows]) -> Grid | None:
    rows = [row for row in tables["fastest"] if row["pes"] > 1]
    if not rows:
        return None
    several = len(group(rows, *SETTING)) > len(group(rows, "graph"))
    pes = sorted({row["pes"] for row in rows})
    groups = []
    for found in group(rows, "graph", *SETTING).values():
        heading = found[0]["graph"]
        lines = across(found, lambda row: f"D\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{row['dim']}", "pes", pes, _winner)
        groups.append((f"{heading} ({_setting(found[0])})" if several else heading, lines))
    # The star's tooltip says when it is given.
    note = f"{charts.STAR} the fastest, {charts.NEAR} too close to call: launches overlap."
    note += " Small: the next technique, and its time over that of the fastest."
    long = any(len(label) > charts.LONGEST for row in rows for label in (row["label"], row["runner_up"]))
    caption = "Fastest of each comparison"
    return Grid(caption, "width", _pes_headings(rows), groups, note, prose=long)


def _winner(row: Row) -> Cell:
    sign = "" if row["unstarred"] else f"{charts.STAR} "
    sign = f"{charts.NEAR} " if row["close"] else sign
    text, small = f"{sign}{row['label']}, {quantity(row['median_s'])}", f"{row['runner_up']}, {number(row['ratio'])}x"
    return Cell(text, small, hint=row["unstarred"])


def _machines(rows: Rows) -> Grid | None:
    """Return one column per machine, because its properties are sentences rather than numbers."""
    if not rows:
        return None
    fields: dict[str, Callable[[Row], str]] = {
        "processor": lambda row: row["cpu"],
        "cores": lambda row: _span(row["cores_min"], row["cores_max"]),
        "threads per CPU PE": lambda row: str(row["threads"]),
        "memory": lambda row: f"{row['memory_gib']} GiB",
        "GPUs": lambda row: row["gpus"] or ABSENT,
        "system": lambda row: row["system"],
        "place": lambda row: row["place"] or "by hand",
        "network": lambda row: row["emulated"],
        "backends": lambda row: row["backends"],
        "records": lambda row: f"{count(row['timings'], 'timing')}, {count(row['runs'], 'training run')}",
        "versions": lambda row: row["versions"],
        "commit": lambda row: row["commit"] or "",
        "id": lambda row: row["machine_id"],
    }
    lines = [(name, [Cell(text(row)) for row in rows]) for name, text in fields.items() if any(map(text, rows))]
    if len(rows) == 1:
        # The top of the page already says what ran.
        lines = [line for line in lines if line[0] != "records"]
    return Grid("Machines and software", "machine", [row["machine"] for row in rows], [("", lines)], prose=True)


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}, by job"


def _graphs(rows: Rows) -> Grid:
    def stands_for(row: Row) -> Cell:
        real = stand_in(row["dataset"])
        return Cell(real.name, f"{real.nodes:,} nodes, {real.counted}") if real else Cell(ABSENT)

    columns: Columns = [
        ("nodes", lambda row: f"{row['nodes']:,}"),
        ("arcs", lambda row: f"{row['arcs']:,}"),
        ("degree", lambda row: number(row["arcs_per_node"])),
        ("hash", lambda row: row["graph_hash"][:12]),
    ]
    note = ""
    if any(stand_in(row["dataset"]) for row in rows):
        columns.append(("stands for", stands_for))
        note = "Stand-ins are generated: their numbers are not those of the real graphs."
    return table("Graphs", "graph", columns, rows, "graph", note, words=["stands for"])


def _partitions(tables: dict[str, Rows]) -> Grid | None:
    """Return how the timed products were split, unless the section on partitions covers it."""
    told = {(row["graph"], row["scheme"], "forward", row["pes"]) for row in tables["quality"]}
    rows = [
        row
        for row in tables["partitions"]
        if row["pes"] > 1 and (row["graph"], row["scheme"], row["direction"], row["pes"]) not in told
    ]
    columns: Columns = [
        ("imbalance (1 is even)", lambda row: number(row["imbalance"])),
        ("edge cut, arcs", lambda row: f"{row['edge_cut']:,} ({percent(row['edge_cut_share'])})"),
        ("halo rows, all PEs", lambda row: f"{row['halo_rows']:,}"),
    ]

    caption, corner = "How each graph was split", "PEs, scheme, product"
    return (
        table(caption, corner, columns, rows, "pes, scheme, direction", by=["graph"], heading="graph") if rows else None
    )


def _sections(tables: dict[str, Rows], styles: charts.Styles) -> list[Section]:
    sections, told = list[Section](), ""
    for number_, ((graph,), rows) in enumerate(group(tables["aggregate"], "graph").items(), 1):
        parts: list[Part] = []
        for index, (setting, found) in enumerate(group(rows, *SETTING).items(), 1):
            fastest = group(tables["fastest"], *SETTING).get(setting, [])
            shown = found, styles, f"g{number_}s{index}"
            first = _time_part(fastest, *shown)
            parts.append(replace(first, intro="Measured as above.") if first.intro == told else first)
            told = first.intro
            if any(row["pes"] > 1 for row in found):
                parts += [_scaling_part(*shown), _bytes_part(*shown)]
        sections.append(Section(f"graph-{number_}", f"Graph {graph}", "", parts))
    return sections


def _time_part(fastest: Rows, rows: Rows, styles: charts.Styles, key: str) -> Part:
    unit, setting = time_unit([row["median_s"] for row in rows]), _setting(rows[0])
    # The first section explains the techniques; elsewhere tooltips do.
    legend = [glossary.legend(row["technique"] for row in rows)] if key == "g1s1" else []

    def cell(row: Row) -> Cell:
        sign = charts.mark(row)
        marks = {"failed": "; wrong result", "not checked": "; not checked", "passed": ""}[row["check"]]
        small = f"{within(row['low_s'], unit)}\N{EN DASH}{within(row['high_s'], unit)}{marks}"
        known = row["speedup"] is not None
        hint = f"speedup {number(row['speedup'])}x, efficiency {percent(row['efficiency'])}" if known else ""
        return Cell(f"{sign} {within(row['median_s'], unit)}".lstrip(), small, sign == charts.STAR, hint=hint)

    note = " ".join([*_no_star(fastest), *legend])
    caption = f"{rows[0]['graph']}: median time of one aggregation ({unit.name}); small: fastest to slowest launch"
    grid = _pivot(rows, caption, cell, note)
    drawings = []
    for (dim,), found in group(rows, "dim").items():
        at = where(found[0], "graph", "dim")
        drawings.append(Drawing(charts.times(found, styles, f"{key}t{dim}", at), f"{at}: time."))
    return Part("Time", f"{setting[:1].upper()}{setting[1:]}; {_launches(rows)}, slowest PE of each.", [grid], drawings)


def _launches(rows: Rows) -> str:
    return listing(
        sorted(
            f"{count(launches, 'launch', 'launches')} of {count(products // launches, 'timed product')} after "
            f"{warmup} untimed"
            for launches, products, warmup in {(row["launches"], row["iterations"], row["warmup"]) for row in rows}
        )
    )


def _no_star(fastest: Rows) -> list[str]:
    """Return, for each reason, a sentence on the comparisons (of table fastest) left without a star."""
    told = []
    rows = [row for row in fastest if row["pes"] > 1]
    for (why,), found in group((row for row in rows if row["unstarred"]), "unstarred").items():
        at = {pes: len(each) for (pes,), each in group(rows, "pes").items()}
        whole = [pes for (pes,), each in group(found, "pes").items() if len(each) == at[pes]]
        cases = [count(pes, "PE") for pes in whole]
        cases += [f"D = {row['dim']} on {count(row['pes'], 'PE')}" for row in found if row["pes"] not in whole]
        told.append(f"No star{'' if len(found) == len(rows) else f' for {listing(cases)}'}: {why}.")
    return told


def _scaling_part(rows: Rows, styles: charts.Styles, key: str) -> Part:
    known = [row for row in rows if row["speedup"] is not None and row["check"] != "failed"]
    if not known:
        text = "There is no sound time with 1 PE to compare with, so speedups are unknown."
        return Part("Scaling", text)

    drawings = []
    for (dim,), found in group(known, "dim").items():
        one = best(row for row in found if row["pes"] == 1)
        if len({row["pes"] for row in found}) > 1:
            at = where(one, "graph", "dim")
            svg = charts.scaling(found, styles, f"{key}s{dim}", at)
            drawings.append(Drawing(svg, f"{at}: speedup over 1 PE ({one['label']})."))
    return Part("Scaling", "", (), drawings)


def _bytes_part(rows: Rows, styles: charts.Styles, key: str) -> Part:
    widest = max(row["dim"] for row in rows if row["pes"] > 1)
    found = [row for row in rows if row["pes"] > 1 and row["dim"] == widest]
    unit, at = bytes_unit([row["bytes_wire"] for row in found]), where(found[0], "graph", "dim")

    def cell(row: Row) -> Cell:
        rate = number(row["bytes_wire"] / row["median_s"] / 1e9)
        small = f"{row['equal_volumes']}; {rate}" if row["equal_volumes"] else rate
        return Cell(within(row["bytes_wire"], unit), small)

    caption = f"{found[0]['graph']}: bytes on the wire of one aggregation ({unit.name}), all PEs"
    # Plain headings: bytes do not depend on whether PEs share cores.
    columns = [count(p, "PE") for p in sorted({row["pes"] for row in found})]
    grid = replace(_pivot(found, f"{caption}; small: volume equaled; GB/s", cell), columns=columns)
    svg = charts.volumes(found, styles, f"{key}b", at)
    return Part("Bytes on the wire", "", [grid], [Drawing(svg, f"{at}: bytes on the wire; hatched: by formula.")])


def _checks(tables: dict[str, Rows]) -> Grid | None:
    several = len(group(tables["checks"], "machine", "device", "dtype")) > 1
    # For swept techniques, keep the settings shown elsewhere on the page and every failed one.
    labels = {row["label"] for row in tables["aggregate"]}
    rows = [row for row in tables["checks"] if row["label"] in labels or row["failed"]]
    counts = {"passed": "passed", "failed": "FAILED", "unchecked": "not checked"}
    shown = [column for column in counts if column == "passed" or any(row[column] for row in rows)]
    groups = []
    for (graph,), found in group(rows, "graph").items():
        alike: dict[tuple[str, ...], list[str]] = {}
        for row in found:
            at = f" ({where(row, 'machine', 'device', 'dtype')})" if several else ""
            error = f"{row['error']:.1e}" if row["error"] is not None else ABSENT
            tolerance = f"{row['tolerance']:.0e}" if row["tolerance"] is not None else ABSENT
            alike.setdefault((error, tolerance, *(str(row[column]) for column in shown)), []).append(row["label"] + at)
        lines = []
        for texts, who in alike.items():
            # Failures are highlighted.
            failed = "failed" in shown and texts[2 + shown.index("failed")] != "0"
            lines.append(("; ".join(who), [Cell(text, best=failed and n > 1) for n, text in enumerate(texts)]))
        groups.append((graph, lines))
    columns = ["largest error", "tolerance", *(counts[column] for column in shown)]
    return Grid("Error of each technique", "technique", columns, groups) if groups else None


def _training(tables: dict[str, Rows], key: str = "t") -> list[Section]:
    epochs = group(tables["epochs"], "run")
    sections = []
    for index, ((name,), runs) in enumerate(group(tables["training"], "graph").items(), 1):
        rows = [row for row in tables["accuracy"] if row["graph"] == name]
        drawings: list[Drawing] = []
        for number_, ((label,), found) in enumerate(group(runs, "model_label").items(), 1):
            points = {
                name: [e for run in some for e in epochs[run["run"],]] for name, some in _curve_runs(found).items()
            }
            drawings += _curve_drawings(points, f"{key}{index}m{number_}", f"{label} on {name}", _metric_name(found))
        parts = [Part("Accuracy and curves", _metric_text(runs), [_accuracy_grid(rows, runs, name)], drawings)]
        by_phase = phases.part(runs, f"{key}{index}p", name)
        parts += [by_phase] if by_phase else []
        sections.append(Section(f"train-{index}", f"Training on {name}", "", parts))
    return sections


_MEANINGS = {
    "accuracy": "Accuracy is the share of nodes put into the right class",
    "micro_f1": "Micro-F1 is that of all yes-or-no labels of the nodes together",
    "roc_auc": "ROC-AUC is the mean over the yes-or-no labels of the nodes",
}


#: For each value of setting selection, the epoch that counts.
_EPOCHS = {
    "validation": "epoch with the best validation score",
    "validation_loss": "epoch with the least validation loss",
    "last": "last epoch",
}


def _metric_name(rows: Rows) -> str:
    return listing(sorted({METRIC_NAMES[row["metric"]] for row in rows}))


def _metric_text(runs: Rows) -> str:
    told = [_MEANINGS[metric] for metric in sorted({row["metric"] for row in runs})]
    chosen = sorted({json.loads(row["settings"]).get("selection", "validation") for row in runs})
    return f"{'. '.join(told)}, at the {' or '.join(_EPOCHS[each] for each in chosen)}."


def _accuracy_grid(rows: Rows, runs: Rows, name: str) -> Grid:
    metric = _metric_name(rows)
    unit, volume = time_unit([row["epoch_s"] for row in rows]), bytes_unit([row["bytes_wire"] for row in rows])
    held = [row["gpu_memory_bytes"] for row in rows if row["gpu_memory_bytes"] is not None]
    room, seeds = bytes_unit(held), any(row["seeds"] > 1 for row in rows)
    varying = varied(rows, "machine", "device", "dtype", "scheme")

    def line(row: Row) -> str:
        return row["label"] + (f" ({', '.join(row[column] or NOT_NOTED for column in varying)})" if varying else "")

    def test(row: Row) -> str:
        spread = f" ± {100 * row['test_deviation']:.1f}" if row["test_deviation"] is not None else ""
        return f"{_bare(row['test_mean'])}{spread}"

    def epoch(row: Row) -> Cell:
        alike = [run for run in runs if all(run[column] == row[column] for column in ALIKE)]
        ends = min(run["q1_s"] for run in alike), max(run["q3_s"] for run in alike)
        return Cell(within(row["epoch_s"], unit), "\N{EN DASH}".join(within(end, unit) for end in ends))

    columns: Columns = [
        ("PEs", lambda row: str(row["pes"]) + (f" (more than {shared([row])})" if shared([row]) else "")),
        (f"test {metric} (%)", test),
        ("validation", lambda row: _bare(row["validation_mean"])),
        ("training", lambda row: _bare(row["train_mean"])),
        ("seeds", lambda row: str(row["seeds"])),
        (f"time per epoch ({unit.name})", epoch),
        (f"bytes per epoch ({volume.name})", lambda row: within(row["bytes_wire"], volume)),
    ]
    if seeds:
        columns.insert(2, ("lowest to highest", lambda row: f"{_bare(row['test_min'])} to {_bare(row['test_max'])}"))
    if held:
        columns.append((f"GPU memory ({room.name})", lambda row: within(row["gpu_memory_bytes"], room)))
    note = f"Test {metric}: mean over seeds ± deviation. " if seeds else ""
    note += f"Small: quartiles of the epochs. {findings.ONE_LAUNCH}"
    return table(
        f"{name}: {metric} at the epoch that counts, and cost", "technique", columns, rows, line, note,
        by=["model_label"], heading=lambda row: f"model {row['model_label']}",
    )  # fmt: skip


def _bare(share: float | None) -> str:
    """Format a share in percent without the sign, which the heading has."""
    return percent(share).removesuffix(" %")


def _curve_runs(runs: Rows) -> dict[str, Rows]:
    """Group runs into curves, one per technique and number of PEs, or per technique if that is too many."""
    varying = varied(runs, "device", "dtype", "machine", "scheme")
    fine: dict[str, Rows] = {}
    for (label, pes, *rest), found in group(runs, "label", "pes", *varying).items():
        fine[", ".join([label, count(pes, "PE"), *(what or NOT_NOTED for what in rest)])] = found
    if len(fine) <= 6:
        return fine
    return {f"{label}, all numbers of PEs": found for (label,), found in group(runs, "label").items()}


def _curve_drawings(points: dict[str, Rows], key: str, name: str, metric: str) -> Iterable[Drawing]:
    several = any(len({row["run"] for row in rows}) > 1 for rows in points.values())
    hint = " Line: median of the runs; band: lowest to highest." if several else ""
    kinds: list[tuple[str, str, str, dict[str, Any]]] = [
        ("loss", "training loss", "training loss (nats)", {}),
        ("validation_loss", "validation loss", "validation loss (nats)", {}),
        ("validation_accuracy", f"validation {metric}", f"validation {metric} (%)", {"share": True}),
    ]
    for column, what, axis, options in kinds:
        lines = [line for line in charts.curves(points, column) if line.middle or column == "loss"]
        if not lines:
            continue  # runs without validation nodes
        ends = [
            f"{line.name} {percent(line.middle[-1]) if options else number(line.middle[-1])}"
            for line in lines
            if line.middle
        ]
        alt = f"Line chart: {what} over epochs, {name}. Last epoch: {listing(ends, 12)}."
        svg = charts.training(lines, axis, f"{key}{column}", alt, **options)
        yield Drawing(svg, f"{name}: {what}.{hint}")
