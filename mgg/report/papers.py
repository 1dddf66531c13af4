"""The sections that set a paper's figures beside the records: comparisons, and the knobs of MGG's kernel."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from mgg.report import figures, knobs
from mgg.report.comparisons import AGREES, CLOSE, DISAGREES, LEAST, cases, mean_ratio
from mgg.report.experiments import STAND_INS, Experiment, Versus, experiment
from mgg.report.findings import Finding
from mgg.report.knobs import START, Knobs, Times
from mgg.report.numbers import ABSENT, count, listing, number, percent, quantity, time_unit, within
from mgg.report.parts import Cell, Drawing, Grid, Part, Section
from mgg.report.tables import SETTING, Row, Rows, graph_names, group, shared

SHADES = 8
EVEN = 1.03  # a mean ratio within 3 % of 1 says nothing
_MIXED = "mixed"  # the mean goes one way, most of the comparisons do not
#: What the page calls the paper's number.
_CLAIMED = {"average": "paper's average", "graph": "in the paper", "bound": "paper: more than"}
_SWEPT = "Knobs of the kernel, swept"
_NOTHING = (
    "The records of this report hold nothing to compare here: one side or both were not measured, or not together."
)


def sections(tables: dict[str, Rows], chosen: Sequence[tuple[str, str]]) -> list[Section]:
    """A section for each (figure, note) of ``chosen``, and one for knobs that were swept but are in none of them."""
    found = [_section(tables, name, note) for name, note in chosen]
    swept = _knob_parts(tables)
    if swept and not any(experiment(name).knobs for name, _ in chosen):
        found.append(Section("knobs", _SWEPT, _knob_intro(), swept))
    return found


def outcomes(tables: dict[str, Rows], chosen: Sequence[tuple[str, str]]) -> list[Finding]:
    """What came out of each figure, for the head of the page."""
    found = []
    for name, _ in chosen:
        shown = experiment(name)
        rows = [row for row in tables["figures"] if row["figure"] == name]
        text = " ".join(_verdict(versus, _rows_of(versus, rows)) for versus in shown.versus if _rows_of(versus, rows))
        if shown.knobs and tables["knobs"]:
            text = _search_text(tables["knobs"])
        found.append(Finding(shown.title, text or _NOTHING))
    return found


def _rows_of(versus: Versus, rows: Rows) -> Rows:
    return [row for row in rows if (row["subject"], row["rival"]) == (versus.subject.name, versus.rival.name)]


def _section(tables: dict[str, Rows], name: str, note: str) -> Section:
    shown = experiment(name)
    intro = f"{shown.source}; the paper's machine: {shown.machine}. {shown.says}"
    parts = _knob_parts(tables) if shown.knobs else []
    rows = [row for row in tables["figures"] if row["figure"] == name]
    if rows:
        parts.append(_comparison(tables, name, shown, rows))
    if not parts:
        parts.append(Part("No comparison", _NOTHING))
    if note:
        parts.append(Part("Remark", note))
    return Section(name, shown.title, intro, parts)


def _comparison(tables: dict[str, Rows], name: str, shown: Experiment, rows: Rows) -> Part:
    names = graph_names(tables["graphs"])
    sentences, grids, drawings = [], [], []
    for number_, versus in enumerate(shown.versus, 1):
        found = _with_cases(_rows_of(versus, rows))
        if not found:
            continue
        sentences.append(_verdict(versus, found))
        grids.append(_grid(versus, found, names))
        paper = _CLAIMED[versus.claimed]
        svg = figures.ratios(found, names, f"{name}r{number_}", versus.subject.name, versus.rival.name, paper)
        caption = f"Time of “{versus.rival.name}” over that of “{versus.subject.name}”"
        caption += "; hatched: what the paper gives." if any(row["paper"] for row in found) else "."
        drawings.append(Drawing(Markup(svg), caption))
    on_cpus = [row["device"] != "GPUs" for row in rows]
    if any(on_cpus):
        these = "These PEs" if all(on_cpus) else "Some of these PEs"
        sentences.append(f"{these} were CPU cores, which move and compute in other ways than the paper's GPUs.")
    if any(row["ratio"] < LEAST for row in rows):
        sentences.append(f"Ratios below {LEAST} are of times too short to be seen; in a mean they count as {LEAST}.")
    sentences += _stand_ins(tables["graphs"], rows)
    beyond = sorted({row["pes"] for row in rows if row["oversubscribed"]})
    if beyond:
        sentences.append(
            f"With {listing([str(p) for p in beyond])} PEs they shared {shared(rows)}, which blurs all of it."
        )
    return Part("Here", " ".join(sentences), grids, drawings)


def _stand_ins(graphs: Rows, rows: Rows) -> list[str]:
    """A sentence on the generated graphs among those of ``rows``: what each stands for, and how large both are."""
    shown = {(row["dataset"], row["graph_hash"]) for row in rows}
    told = [
        f"{row['dataset']} ({row['nodes']:,} nodes) for {STAND_INS[row['dataset']][0]} "
        f"({STAND_INS[row['dataset']][1]:,})"
        for row in graphs
        if (row["dataset"], row["graph_hash"]) in shown and row["dataset"] in STAND_INS
    ]
    return [f"Generated graphs stand for the paper's: {listing(told)}."] if told else []


def _with_cases(rows: Rows) -> Rows:
    """The rows in the order of the page, each with the name of its case."""
    ordered = sorted(rows, key=lambda row: (row["model"], row["pes"], row["dim"] or 0, row["options"]))
    return [{**row, "case": case} for row, case in zip(ordered, cases(ordered), strict=True)]


def _verdict(versus: Versus, rows: Rows) -> str:
    """What came out, and whether that is what the paper says; a sentence for each of the paper's numbers."""
    claims = group(
        ({**row, "claim": row["paper"] or 0.0, "gpus": row["device"] == "GPUs"} for row in rows), "claim", "gpus"
    )
    devices = {gpus for _, gpus in claims}
    numbers = {claim for claim, _ in claims}
    sentences = []
    for (claim, gpus), found in claims.items():
        sentence = _sentence(versus, found, claim or None, len(numbers) > 1)
        sentences.append(("On GPUs, " if gpus else "On CPU cores, ") + sentence if len(devices) > 1 else sentence)
    return " ".join(sentences)


def _sentence(versus: Versus, rows: Rows, claim: float | None, several: bool) -> str:
    mean = mean_ratio(rows)
    over = f"the geometric mean of {len(rows)} comparisons" if len(rows) > 1 else "one comparison"
    text = f"“{versus.rival.name}” took {number(mean)} times as long as “{versus.subject.name}” ({over})"
    if several:
        by_graph = claim is not None and claim == versus.claim(rows[0]["dataset"])
        cases = [row["dataset"] if by_graph else row["model"] or f"D = {row['dim']}" for row in rows]
        text = f"{listing(sorted(set(cases)))}: {text}"
    expected = versus.expects_slower(claim)
    if versus.alike_on_cpus and all(row["device"] != "GPUs" for row in rows):
        return f"{text}: noise, since CPU cores run the same code for both."
    if expected is None:
        return f"{text}."
    found = Counter(row["verdict"] for row in rows)
    verdict = AGREES if (mean > 1) == expected else DISAGREES
    if 2 * found[CLOSE] > len(rows) or 1 / EVEN < mean < EVEN:
        verdict = CLOSE
    elif 2 * found[verdict] < len(rows):
        verdict = _MIXED
    text += f": {verdict}" + (f" ({_CLAIMED[versus.claimed]} {claim:g})" if claim else "")
    if len(rows) > 1:
        text += f"; {found[AGREES]} of {len(rows)} go the paper's way"
        text += f", {found[CLOSE]} too close to call" if found[CLOSE] else ""
    return f"{text}."


def _grid(versus: Versus, rows: Rows, names: dict[tuple[str, str], str]) -> Grid:
    unit = time_unit([row["subject_median"] for row in rows])
    groups = []
    for key, found in group(rows, "dataset", "graph_hash", *SETTING).items():
        lines = []
        for row in found:
            cells = [
                Cell(within(row["subject_median"], unit)),
                Cell(within(row["rival_median"], unit)),
                Cell(number(row["ratio"])),
                Cell(f"{row['paper']:g}" if row["paper"] else ABSENT),
                Cell(row["verdict"] or ABSENT),
            ]
            lines.append((_unbroken(row["case"]), cells))
        first = found[0]
        conditions = ", ".join(filter(None, (first["machine"], first["device"], first["direction"], first["dtype"])))
        groups.append((f"{names[key[0], key[1]]} ({conditions})", lines))
    subject, rival = versus.subject.name, versus.rival.name
    columns = [
        f"{subject} ({unit.name})",
        f"{rival} ({unit.name})",
        "ratio",
        _CLAIMED[versus.claimed],
        "verdict",
    ]
    note = (
        "Medians of the slowest PE: of a product, or of an epoch where a model is named. Ratio: the second time over "
        "the first. Verdict: on which of the two is slower, not on by how much."
    )
    note += _options_note(versus, rows)
    return Grid(f"{subject} against {rival}", "case", columns, groups, note)


def _options_note(versus: Versus, rows: Rows) -> str:
    """The options that all the comparisons share, those that tell the sides apart left out."""
    first, *others = [json.loads(row["options"]) for row in rows]
    apart = {*versus.subject.options, *versus.rival.options}
    kept = {key: value for key, value in first.items() if key not in apart}
    told = [f"{key}={value}" for key, value in sorted(kept.items()) if all(each.get(key) == value for each in others)]
    return f" Options of {versus.subject.technique}: {', '.join(told)}." if told else ""


def _unbroken(case: str) -> str:
    """The case with line breaks after commas alone."""
    return ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in case.split(", "))


def _knob_intro() -> str:
    return (
        "MGG's kernel at different sizes of neighbor partitions (ps), interleaving distances (dist) and warps a block "
        "(wpb)."
    )


def _knob_parts(tables: dict[str, Rows]) -> list[Part]:
    names = graph_names(tables["graphs"])
    found = knobs.sweeps(tables["aggregate"])
    if not found:
        return []
    summary = Part(
        "Best, default, and the paper's search", _search_text(tables["knobs"]), [_summary(tables["knobs"], names)]
    )
    return [summary, *(_sweep(rows, names, f"k{index}") for index, rows in enumerate(found.values(), 1))]


def _search_text(rows: Rows) -> str:
    text = (
        f"The search of MGG's section 6 starts at {START} and raises ps, dist and wpb in turn; it is played on the "
        "times measured here."
    )
    ended = [row for row in rows if row["search"] is not None]
    if ended:
        gains = [1 - row["search"] / row["start"] for row in ended]
        over = max(row["search"] / row["best"] for row in ended)
        steps = listing(sorted({str(row["search_steps"]) for row in ended}, key=int))
        text += (
            f" It would measure {steps} settings, take {percent(max(gains))} off its start at most, and end at most "
            f"{number(over)} times the best measured time."
        )
    return text


def _summary(rows: Rows, names: dict[tuple[str, str], str]) -> Grid:
    unit = time_unit([row["best"] for row in rows])
    groups = []
    for key, found in group(rows, "dataset", "graph_hash", *SETTING).items():
        lines = []
        for row in found:
            best, end, usual = (_at(row, which) for which in ("best", "search", "default"))
            gain = f"{number(row['default'] / row['best'])} x" if row["default"] else ABSENT
            cells = [
                Cell(within(row["best"], unit), best, True),
                Cell(within(row["default"], unit), usual),
                Cell(gain),
                Cell(within(row["start"], unit), str(START)),
                Cell(within(row["search"], unit), f"{end}; {row['search_steps']} settings" if end else ""),
                Cell(str(row["settings"])),
            ]
            lines.append((f"{count(row['pes'], 'PE')}, D = {row['dim']}", cells))
        groups.append((f"{names[key[0], key[1]]} ({found[0]['machine']}, {found[0]['device']})", lines))
    columns = [f"best ({unit.name})", f"default ({unit.name})", "default / best", f"start ({unit.name})"]
    columns += [f"end of the search ({unit.name})", "settings measured"]
    return Grid("Best and default setting", "PEs, width", columns, groups, "Small: ps, dist, wpb.")


def _at(row: Row, which: str) -> str:
    values = [row[f"{which}_{name}"] for name in knobs.NAMES]
    return "" if None in values else str(Knobs(*values))


def _sweep(rows: Rows, names: dict[tuple[str, str], str], key: str) -> Part:
    """The two planes of the paper's figure: ps and dist at the lowest wpb, wpb and dist at the search's ps."""
    first, times = rows[0], knobs.times(rows)
    tried = knobs.search(times)
    end = min(tried or times, key=lambda at: (times[at], at))
    marks = dict.fromkeys(tried, "searched") | ({end: "search ends"} if tried else {})
    usual = knobs.default(first)
    if usual:
        marks[usual] = f"default, {marks[usual]}" if usual in marks else "default"
    lowest = min(at.wpb for at in times)
    planes = [
        ("ps", f"wpb = {lowest}", {at: time for at, time in times.items() if at.wpb == lowest}),
        ("wpb", f"ps = {end.ps}", {at: time for at, time in times.items() if at.ps == end.ps}),
    ]
    where = f"{names[first['dataset'], first['graph_hash']]}, {count(first['pes'], 'PE')}, D = {first['dim']}"
    intro = f"{len(times)} settings."
    grids, drawings = [], []
    for knob, fixed, plane in planes:
        if len({getattr(at, knob) for at in plane}) == 1:
            intro += f" With {fixed} only one {knob} was measured."
            continue
        grids.append(_plane(plane, knob, f"{where}: {knob} (down) and dist (across), {fixed}", marks))
        svg = figures.lines(_curves(plane, knob), f"{knob} ({fixed})", f"{key}{knob}", f"{where}, {fixed}")
        drawings.append(Drawing(Markup(svg), f"{where}: median time of one aggregation over {knob}, {fixed}."))
    return Part(f"{where} ({first['machine']}, {first['device']})", intro, grids, drawings)


def _curves(plane: Times, knob: str) -> dict[str, list[tuple[int, float]]]:
    """For each dist the times over the other knob."""
    return {
        f"dist = {dist}": sorted((getattr(at, knob), time) for at, time in plane.items() if at.dist == dist)
        for dist in sorted({at.dist for at in plane})
    }


def _plane(plane: Times, knob: str, caption: str, marks: Mapping[Knobs, str]) -> Grid:
    unit = time_unit(list(plane.values()))
    low, high = min(plane.values()), max(plane.values())
    at = {(getattr(each, knob), each.dist): each for each in plane}

    def cell(value: int, dist: int) -> Cell:
        here = at.get((value, dist))
        if here is None:
            return Cell(ABSENT)
        time = plane[here]
        heat = round(SHADES * (time - low) / (high - low)) if high > low else 0
        return Cell(within(time, unit), marks.get(here, ""), time == low, heat)

    dists = sorted({each.dist for each in plane})
    values = sorted({getattr(each, knob) for each in plane})
    lines = [(f"{knob} = {value}", [cell(value, dist) for dist in dists]) for value in values]
    note = f"Median times in {unit.name}; the stronger the shade, the longer. Longest: {quantity(high)}."
    return Grid(caption, knob, [f"dist = {dist}" for dist in dists], [("", lines)], note)
