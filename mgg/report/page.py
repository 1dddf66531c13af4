"""The page: one self-contained HTML text from the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mgg.record import METRIC_NAMES
from mgg.report import (
    advisor,
    choice,
    figures,
    findings,
    foreseen,
    foreseen_parts,
    jobs,
    knobs,
    lookups,
    papers,
    phases,
    predictions,
    quality,
)
from mgg.report.columns import ABOUT, TABLES
from mgg.report.experiments import stand_in
from mgg.report.numbers import ABSENT, bytes_unit, count, listing, number, percent, quantity, time_unit, within
from mgg.report.parts import Cell, Drawing, Grid, Part, Section
from mgg.report.spread import FEWEST
from mgg.report.tables import NOT_NOTED, SETTING, Row, Rows, graph_names, group, shared, varied
from mgg.report.terms import linked


class Page(NamedTuple):
    """The HTML of a report, and its sections that have figures, by their kind."""

    html: str
    illustrated: dict[str, list[Section]]


def render(tables: dict[str, Rows], title: str, experiments: Sequence[tuple[str, str]] = ()) -> Page:
    """The whole report; every text from the records is escaped.

    ``experiments``: names of the papers' figures to show, each with a remark or "".
    """
    folder = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["linked"] = linked
    everything, tables = tables, tables | {"aggregate": advisor.telling(knobs.telling(tables["aggregate"]))}
    told = [each for each in (lookups.section(tables), choice.section(tables), predictions.section(tables)) if each]
    experiments, ahead = foreseen.divided(experiments)
    labels = [row["label"] for row in tables["aggregate"]]
    styles = figures.Styles(labels)
    sections = {
        "aggregate": _sections(tables, styles),
        "train": _training(tables),
        "papers": [*papers.sections(everything, experiments), *foreseen_parts.sections(tables, ahead), *told],
        "jobs": jobs.section(tables),
    }
    html = environment.get_template("page.html.j2").render(
        title=title,
        compared=findings.compared(everything),
        findings=[
            *findings.held(tables),
            *papers.outcomes(everything, experiments),
            *choice.findings(tables),
            *findings.others(tables),
        ],
        cautions=findings.cautions(tables),
        fastest=_fastest(tables),
        machines=_machines(tables["machines"]),
        graphs=_graphs(tables),
        partitions=_partitions(tables),
        quality=quality.section(tables),
        papers=sections["papers"],
        where="What ran where" if tables["machines"] else "Graphs",
        sections=sections["aggregate"],
        checks=_checks(tables),
        training=sections["train"],
        running=sections["jobs"],
        has_timings=bool(tables["aggregate"]),
        has_runs=bool(tables["training"]),
        files=[(name, ABOUT[name], f"{len(everything[name]):,}") for name in TABLES],
    )
    return Page(html, sections)


def _pivot(
    rows: Rows,
    caption: str,
    cell: Callable[[Row], Cell],
    *,
    note: str = "",
) -> Grid:
    """Rows of one setting: a row group a width, a row a technique, a column a number of PEs."""
    pes = sorted({each["pes"] for each in rows})
    groups = []
    for (dim,), of_dim in group(rows, "dim").items():
        lines = []
        for (label,), found in group(of_dim, "label").items():
            at = {each["pes"]: cell(each) for each in found}
            lines.append((label, [at.get(p, Cell(ABSENT)) for p in pes]))
        groups.append((f"D\N{NO-BREAK SPACE}= {dim}", lines))
    return Grid(caption, "technique", _pes_headings(rows), groups, note)


def _pes_headings(rows: Rows) -> list[str]:
    """A column heading for each number of PEs in ``rows``."""
    headings = []
    for (pes,), found in group(rows, "pes").items():
        headings.append(count(pes, "PE") + (f" (more than {shared(found)})" if shared(found) else ""))
    return headings


def _setting(row: Row) -> str:
    """The conditions of a comparison in words."""
    product = "forward product A B" if row["direction"] == "forward" else "transposed product A^T B"
    return f"machine {row['machine']}, {row['device']}, {product}, {row['dtype']}, partition scheme {row['scheme']}"


#: What the signs beside times mean.
_SIGNS = (
    f"{figures.STAR}: its slowest launch was faster than the fastest launch of every other technique, with at least "
    f"{FEWEST} launches of each. {figures.NEAR}: too close to call, launches overlap."
)


def _fastest(tables: dict[str, Rows]) -> Grid | None:
    rows = [row for row in tables["fastest"] if row["pes"] > 1]
    if not rows:
        return None
    names = graph_names(tables["graphs"])
    several = len(group(rows, *SETTING)) > len(group(rows, "dataset", "graph_hash"))
    pes = sorted({row["pes"] for row in rows})
    groups = []
    for _, found in group(rows, "dataset", "graph_hash", *SETTING).items():
        heading = names[found[0]["dataset"], found[0]["graph_hash"]]
        lines = []
        for (dim,), of_dim in group(found, "dim").items():
            at = {row["pes"]: _winner(row) for row in of_dim}
            lines.append((f"D\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{dim}", [at.get(p, Cell(ABSENT)) for p in pes]))
        groups.append((f"{heading} ({_setting(found[0])})" if several else heading, lines))
    note = f"x: time of the next technique over that of the fastest. {_SIGNS} 1 PE is left out: nothing moves there."
    long = any(len(label) > figures.LONGEST for row in rows for label in (row["label"], row["runner_up"]))
    caption = "Fastest of each comparison in these runs"
    return Grid(caption, "width", _pes_headings(rows), groups, note, prose=long)


def _winner(row: Row) -> Cell:
    sign = "" if row["unstarred"] else f"{figures.STAR} "
    sign = f"{figures.NEAR} " if row["close"] else sign
    why = f"; {row['unstarred']}" if row["unstarred"] else ""
    return Cell(
        f"{sign}{row['label']}, {quantity(row['median'])}", f"next: {row['runner_up']}, {number(row['ratio'])} x{why}"
    )


def _machines(rows: Rows) -> Grid | None:
    """A column a machine: its properties are sentences rather than numbers."""
    if not rows:
        return None
    fields: dict[str, Callable[[Row], str]] = {
        "processor": lambda row: row["cpu"],
        "cores": lambda row: _span(row["cores_min"], row["cores_max"]),
        "memory": lambda row: f"{row['memory']} GiB",
        "GPUs": lambda row: row["gpus"] or "none",
        "system": lambda row: row["system"],
        "place": lambda row: row["place"] or "by hand",
        "backends": lambda row: row["backends"],
        "records": lambda row: f"{count(row['timings'], 'timing')}, {count(row['runs'], 'training run')}",
        "versions": lambda row: row["versions"],
        "commit": lambda row: row["commit"] or "unknown",
        "id": lambda row: row["machine_id"],
    }
    lines = [(name, [Cell(text(row)) for row in rows]) for name, text in fields.items()]
    return Grid("Machines and software", "machine", [row["machine"] for row in rows], [("", lines)], prose=True)


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}, by job"


def _graphs(tables: dict[str, Rows]) -> Grid:
    names = graph_names(tables["graphs"])
    lines = [
        (
            names[row["dataset"], row["graph_hash"]],
            [
                Cell(f"{row['nodes']:,}"),
                Cell(f"{row['arcs']:,}"),
                Cell(number(row["arcs_per_node"])),
                Cell(row["graph_hash"][:12]),
            ],
        )
        for row in tables["graphs"]
    ]
    columns = ["nodes", "arcs", "arcs a node", "hash"]
    note = ""
    if any(stand_in(row["dataset"]) for row in tables["graphs"]):
        columns.append("stands for")
        for (_, cells), row in zip(lines, tables["graphs"], strict=True):
            real = stand_in(row["dataset"])
            cells.append(Cell(real.name, f"{real.nodes:,} nodes, {real.counted}") if real else Cell(ABSENT))
        note = "A graph that stands for another one is generated; nothing measured on it is a number of the other."
    return Grid("Graphs", "graph", columns, [("", lines)], note, words=["stands for"])


def _partitions(tables: dict[str, Rows]) -> Grid | None:
    """How the timed products were split, as far as the section on partitions does not say it."""
    names = graph_names(tables["graphs"])
    told = {(row["graph_hash"], row["scheme"], "forward", row["pes"]) for row in tables["quality"]}
    rows = [
        row
        for row in tables["partitions"]
        if row["pes"] > 1 and (row["graph_hash"], row["scheme"], row["direction"], row["pes"]) not in told
    ]
    groups = []
    for key, found in group(rows, "dataset", "graph_hash").items():
        lines = []
        for row in found:
            cut = f"{row['edge_cut']:,} ({percent(row['edge_cut_share'])})"
            cells = [number(row["imbalance"]), cut, f"{row['halo_rows']:,}"]
            lines.append((f"{row['pes']} PEs, {row['scheme']}, {row['direction']}", [Cell(text) for text in cells]))
        groups.append((names[key], lines))
    if not groups:
        return None
    columns = ["imbalance (1 is even)", "edge cut, arcs", "halo rows, all PEs"]
    return Grid("How each graph was split", "PEs, scheme, product", columns, groups)


def _sections(tables: dict[str, Rows], styles: figures.Styles) -> list[Section]:
    names = graph_names(tables["graphs"])
    graphs = {(row["dataset"], row["graph_hash"]): row for row in tables["graphs"]}
    sections = []
    for number_, (key, rows) in enumerate(group(tables["aggregate"], "dataset", "graph_hash").items(), 1):
        graph = graphs[key]
        intro = f"{graph['nodes']:,} nodes, {graph['arcs']:,} arcs."
        anchor = f"graph-{number_}"
        parts: list[Part] = []
        for index, (setting, found) in enumerate(group(rows, *SETTING).items(), 1):
            fastest = group(tables["fastest"], *SETTING).get(setting, [])
            parts += _setting_parts(found, fastest, styles, f"g{number_}s{index}", names[key])
        sections.append(Section(anchor, f"Graph {names[key]}", intro, parts))
    return sections


def _setting_parts(rows: Rows, fastest: Rows, styles: figures.Styles, key: str, name: str) -> list[Part]:
    parts = [_time_part(rows, fastest, styles, key, name, _setting(rows[0]))]
    if any(row["pes"] > 1 for row in rows):
        parts += [_scaling_part(rows, styles, key, name), _bytes_part(rows, styles, key, name)]
    return parts


def _time_part(rows: Rows, fastest: Rows, styles: figures.Styles, key: str, name: str, where: str) -> Part:
    unit = time_unit([row["median"] for row in rows])

    def cell(row: Row) -> Cell:
        sign = figures.mark(row)
        marks = {"failed": "; wrong result", "not checked": "; not checked", "passed": ""}[row["check"]]
        small = f"{within(row['low'], unit)} to {within(row['high'], unit)}{marks}"
        return Cell(f"{sign} {within(row['median'], unit)}".lstrip(), small, sign == figures.STAR)

    note = " ".join([_SIGNS, "With 1 PE nothing moves, and nothing is marked.", *_no_star(fastest)])
    caption = f"{name}: median time of one aggregation ({unit.name}); below it the fastest and the slowest launch"
    grid = _pivot(rows, caption, cell, note=note)
    drawings = [
        Drawing(
            Markup(figures.times(found, styles, f"{key}t{dim}", f"{name}, D = {dim}")),
            f"{name}, D = {dim}: median time of one aggregation. Whiskers: fastest to slowest launch.{_near(found)}",
        )
        for (dim,), found in group(rows, "dim").items()
    ]
    return Part("Time", f"{where[:1].upper()}{where[1:]}; {_launches(rows)}, slowest PE of each.", [grid], drawings)


def _launches(rows: Rows) -> str:
    """How the products of ``rows`` were timed."""
    return listing(
        sorted(
            f"{count(launches, 'launch', 'launches')} of {count(products // launches, 'timed product')} after "
            f"{warmup} untimed"
            for launches, products, warmup in {(row["launches"], row["iterations"], row["warmup"]) for row in rows}
        )
    )


def _no_star(fastest: Rows) -> list[str]:
    """For each reason a sentence on the comparisons, of table fastest, that it leaves without a star."""
    told = []
    rows = [row for row in fastest if row["pes"] > 1]
    for (why,), found in group((row for row in rows if row["unstarred"]), "unstarred").items():
        cases = listing([f"D = {row['dim']} on {count(row['pes'], 'PE')}" for row in found])
        told.append(f"No star{'' if len(found) == len(rows) else f' for {cases}'}: {why}.")
    return told


def _near(rows: Rows) -> str:
    """What the sign means, where it stands in the figure of ``rows``."""
    return f" {figures.NEAR}: too close to call." if figures.NEAR in map(figures.mark, rows) else ""


def _scaling_part(rows: Rows, styles: figures.Styles, key: str, name: str) -> Part:
    known = [row for row in rows if row["speedup"] is not None and row["check"] != "failed"]
    if not known:
        text = "There is no sound time with 1 PE to compare with, so speedups are unknown."
        return Part("Scaling", text)

    def cell(row: Row) -> Cell:
        sign = figures.mark(row)
        return Cell(f"{sign} {number(row['speedup'])}".lstrip(), percent(row["efficiency"]), sign == figures.STAR)

    grids = [_pivot(known, f"{name}: speedup against the best time with 1 PE (times); below it the efficiency", cell)]
    drawings = []
    baselines = []
    for (dim,), found in group(known, "dim").items():
        one = min((row for row in found if row["pes"] == 1), key=lambda row: (row["median"], row["label"]))
        baselines.append(f"D = {dim}: {one['label']}, {quantity(one['median'])}")
        if len({row["pes"] for row in found}) > 1:
            svg = Markup(figures.scaling(found, styles, f"{key}s{dim}", f"{name}, D = {dim}"))
            drawings.append(Drawing(svg, f"{name}, D = {dim}: speedup against the best time with 1 PE."))
    text = (
        "Speedup: the best time with 1 PE, whatever the technique, divided by the time; P times on P PEs would be "
        f"ideal. Efficiency: speedup over PEs. Best with 1 PE: {'; '.join(baselines)}."
    )
    return Part("Scaling", text, grids, drawings)


def _bytes_part(rows: Rows, styles: figures.Styles, key: str, name: str) -> Part:
    widest = max(row["dim"] for row in rows if row["pes"] > 1)
    found = [row for row in rows if row["pes"] > 1 and row["dim"] == widest]
    unit = bytes_unit([row["bytes_wire"] for row in found])

    def cell(row: Row) -> Cell:
        return Cell(within(row["bytes_wire"], unit), f"= {row['equals']}" if row["equals"] else "")

    grid = _pivot(found, f"{name}: bytes on the wire of one aggregation ({unit.name}), all PEs", cell)
    pes = sorted({row["pes"] for row in found})
    volumes = []
    for column, title in (
        ("v_fc", "V_FC: each needed row once"),
        ("v_fr", "V_FR: a row an arc"),
        ("v_cg", "V_CG: broadcast all"),
    ):
        at = {row["pes"]: row[column] for row in found}
        volumes.append((title, [Cell(within(at[p], unit)) for p in pes]))
    # Plain headings: bytes mean the same with more PEs than cores.
    grid = Grid(
        grid.caption,
        grid.corner,
        [count(p, "PE") for p in pes],
        [*grid.groups, ("CoLa paper, for comparison", volumes)],
    )
    drawing = Drawing(
        Markup(figures.volumes(found, styles, f"{key}b", f"{name}, D = {widest}")),
        f"{name}, D = {widest}: bytes counted where they crossed PEs; hatched: what the CoLa paper's formulas give.",
    )
    text = (
        "V_CG: every PE sends all of its rows to all others. V_FR: one row for every arc between PEs. V_FC: each row "
        f"that a PE needs, once: the least possible. Shown for D = {widest}; bytes are proportional to D."
    )
    return Part("Bytes on the wire", text, [grid], [drawing])


def _checks(tables: dict[str, Rows]) -> Grid | None:
    names = graph_names(tables["graphs"])
    groups = []
    several = len(group(tables["checks"], "machine", "device", "dtype")) > 1
    # Of swept techniques the settings that the page shows elsewhere, and every one that failed.
    labels = {row["label"] for row in tables["aggregate"]}
    rows = [row for row in tables["checks"] if row["label"] in labels or row["failed"]]
    for key, found in group(rows, "dataset", "graph_hash").items():
        lines = []
        for row in found:
            where = f" ({row['machine']}, {row['device']}, {row['dtype']})" if several else ""
            verdict = "FAILED" if row["failed"] else "passed" if row["passed"] else "not checked"
            cells = [
                Cell(f"{row['error']:.1e}" if row["error"] is not None else ABSENT),
                Cell(f"{row['tolerance']:.0e}" if row["tolerance"] is not None else ABSENT),
                Cell(str(row["passed"])),
                Cell(str(row["failed"])),
                Cell(str(row["unchecked"])),
                Cell(verdict, best=bool(row["failed"])),
            ]
            lines.append((f"{row['label']}{where}", cells))
        groups.append((names[key], lines))
    columns = ["largest error", "tolerance", "passed", "failed", "not checked", "verdict"]
    return Grid("Result checks", "technique", columns, groups) if groups else None


def _training(tables: dict[str, Rows]) -> list[Section]:
    names = graph_names(tables["graphs"])
    epochs = group(tables["epochs"], "run")
    sections = []
    graphs = group(tables["training"], "dataset", "graph_hash")
    for index, (key, runs) in enumerate(graphs.items(), 1):
        rows = [row for row in tables["accuracy"] if (row["dataset"], row["graph_hash"]) == key]
        drawings: list[Drawing] = []
        for number_, ((label,), found) in enumerate(group(runs, "model_label").items(), 1):
            points = {
                name: [e for run in some for e in epochs[run["run"],]] for name, some in _curve_runs(found).items()
            }
            drawings += _curve_drawings(points, f"t{index}m{number_}", f"{label} on {names[key]}", _metric_name(found))
        parts = [Part("Accuracy and curves", _metric_text(rows), [_accuracy_grid(rows, names[key])], drawings)]
        by_phase = phases.part(runs, f"t{index}p", names[key])
        parts += [by_phase] if by_phase else []
        sections.append(Section(f"train-{index}", f"Training on {names[key]}", "", parts))
    return sections


_MEANINGS = {
    "accuracy": "Accuracy is the share of nodes put into the right class",
    "micro_f1": "Micro-F1 is that of all yes-or-no labels of the nodes together",
    "roc_auc": "ROC-AUC is the mean over the yes-or-no labels of the nodes",
}


def _metric_name(rows: Rows) -> str:
    """What the scores of ``rows`` are."""
    return listing(sorted({METRIC_NAMES[row["metric"]] for row in rows}))


def _metric_text(rows: Rows) -> str:
    told = [_MEANINGS[metric] for metric in sorted({row["metric"] for row in rows})]
    return (
        f"{'. '.join(told)}, at the epoch with the best validation score, or by the setting selection with the least"
        " validation loss, or the last (SGC, R-GCN, RGAT)."
    )


def _accuracy_grid(rows: Rows, name: str) -> Grid:
    metric = _metric_name(rows)
    columns = [
        "PEs",
        f"test {metric}",
        "lowest to highest",
        "validation",
        "training",
        "seeds",
        "time an epoch",
        "bytes",
    ]
    unit = time_unit([row["epoch"] for row in rows])
    volume = bytes_unit([row["bytes_wire"] for row in rows])
    columns[-2:] = [f"time an epoch ({unit.name})", f"bytes an epoch ({volume.name})"]
    held = [row["gpu_memory"] for row in rows if row["gpu_memory"] is not None]
    room = bytes_unit(held)
    columns += [f"GPU memory ({room.name})"] if held else []
    varying = varied(rows, "machine", "device", "dtype", "scheme")
    groups = []
    for (model,), found in group(rows, "model_label").items():
        lines = []
        for row in found:
            where = f" ({', '.join(row[column] or NOT_NOTED for column in varying)})" if varying else ""
            spread = f" ± {100 * row['test_deviation']:.1f}" if row["test_deviation"] is not None else ""
            cells = [
                str(row["pes"]) + (f" (more than {shared([row])})" if shared([row]) else ""),
                f"{percent(row['test_mean']).removesuffix(' %')}{spread} %",
                f"{percent(row['test_min'])} to {percent(row['test_max'])}" if row["seeds"] > 1 else ABSENT,
                percent(row["validation_mean"]),
                percent(row["train_mean"]),
                str(row["seeds"]),
                within(row["epoch"], unit),
                within(row["bytes_wire"], volume),
                *([within(row["gpu_memory"], room)] if held else []),
            ]
            lines.append((f"{row['label']}{where}", [Cell(text) for text in cells]))
        groups.append((f"model {model}", lines))
    note = f"Test {metric}: mean over seeds ± sample standard deviation. {findings.ONE_LAUNCH}"
    return Grid(f"{name}: {metric} at the epoch that counts, and cost", "technique", columns, groups, note)


def _curve_runs(runs: Rows) -> dict[str, Rows]:
    """Runs by curve: one for each technique and number of PEs; where that is too many, one for each technique."""
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
        lines = [line for line in figures.curves(points, column) if line.middle or column == "loss"]
        if not lines:
            continue  # runs without validation nodes
        ends = [
            f"{line.name} {percent(line.middle[-1]) if options else number(line.middle[-1])}"
            for line in lines
            if line.middle
        ]
        alt = f"Line chart: {what} over epochs, {name}. Last epoch: {listing(ends, 12)}."
        svg = Markup(figures.training(lines, axis, f"{key}{column}", alt, **options))
        yield Drawing(svg, f"{name}: {what} over epochs.{hint}")
