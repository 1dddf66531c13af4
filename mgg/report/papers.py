"""The sections that set the papers' figures, and our own claims, beside the records."""

from __future__ import annotations

from collections.abc import Sequence

from mgg.report import advisor, between, hidden, knob_parts, lookups, methods, pairs, sweeps, transfers, volumes
from mgg.report.comparisons import CLOSE, DISAGREES, of
from mgg.report.experiments import Experiment, experiment
from mgg.report.findings import Finding
from mgg.report.parts import Part, Section
from mgg.report.tables import Rows
from mgg.report.verdicts import left_out, telling, verdict

_NOTHING = "The records of this report hold nothing to compare here"


def sections(tables: dict[str, Rows], chosen: Sequence[tuple[str, str]]) -> list[Section]:
    """A section for each (figure, note) of ``chosen``, and what was measured for figures that are not among them."""
    shown = [experiment(name) for name, _ in chosen]
    found = [_section(tables, name, note) for name, note in chosen]
    others = [
        None if any(each.knobs for each in shown) else knob_parts.section(tables),
        None if any(each.hidden for each in shown) else hidden.section(tables),
    ]
    return [*found, *(each for each in others if each)]


def outcomes(tables: dict[str, Rows], chosen: Sequence[tuple[str, str]]) -> list[Finding]:
    """What came out of each figure, for the head of the page."""
    names = [name for name, _ in chosen]
    found = [
        Finding(experiment(name).title, _outcome(tables, name, experiment(name)) or _nothing(tables, experiment(name)))
        for name in names
    ]
    if not any(experiment(name).hidden for name in names) and (text := hidden.outcome(tables["aggregate"])):
        found.append(Finding(hidden.HEADING, text))
    return found


def _section(tables: dict[str, Rows], name: str, note: str) -> Section:
    shown = experiment(name)
    measured = f"; the paper's machine: {shown.machine}" if shown.machine else ""
    parts = _parts(tables, name, shown) or [Part("No comparison", _nothing(tables, shown))]
    if shown.departs and any(
        row["device"] == "GPUs" and row["verdict"] in (CLOSE, DISAGREES) for row in _rows(tables, name)
    ):
        parts.append(Part("Why it can go another way", shown.departs))
    if note:
        parts.append(Part("Remark", note))
    return Section(name, shown.title, f"{shown.source}{measured}. {shown.says}", parts)


def _parts(tables: dict[str, Rows], name: str, shown: Experiment) -> list[Part]:
    parts = []
    if shown.volumes:
        parts += volumes.parts(tables, name, shown.volumes)
    if shown.transfers:
        parts += transfers.parts(tables, name, shown.transfers)
    if shown.sweep:
        parts += sweeps.parts(tables, name, shown.sweep)
    if shown.knobs:
        parts += knob_parts.parts(tables)
    if shown.hidden:
        parts += hidden.parts(tables)
    if shown.lookups:
        parts += lookups.compared(tables["lookups"], shown.lookups)
    if rows := _rows(tables, name):
        parts.append((methods if shown.together else pairs).part(tables, name, shown, rows))
    parts += advisor.parts(tables, name, shown.advisor)
    if shown.between and (counted := between.part(tables, shown.between)):
        parts.append(counted)
    return parts


def _outcome(tables: dict[str, Rows], name: str, shown: Experiment) -> str:  # noqa: PLR0911 - a kind a line
    """The sentences on what was measured; empty where nothing was."""
    if shown.volumes:
        return volumes.outcome(tables["quality"], shown.volumes)
    if shown.transfers:
        return transfers.outcome(tables["latencies"], shown.transfers)
    if shown.sweep:
        return sweeps.outcome(tables["aggregate"], shown.sweep)
    if shown.knobs:
        return knob_parts.outcome(tables["knobs"]) if tables["knobs"] else ""
    if shown.hidden:
        return hidden.outcome(tables["aggregate"])
    if shown.lookups:
        return lookups.outcome(tables["lookups"], shown.lookups)
    rows = _rows(tables, name)
    told = methods.told(shown) if shown.together else shown.versus
    sentences = [verdict(versus, found) for versus in told if (found := telling(of(versus, rows)))]
    return " ".join([*sentences, *left_out(rows), *advisor.outcomes(tables, shown.advisor)])


def _nothing(tables: dict[str, Rows], shown: Experiment) -> str:
    """That there is nothing to show, and as far as it is known what is missing."""
    lacking = sweeps.lacking(tables["aggregate"], shown.sweep) if shown.sweep else ""
    if any(versus.memory for versus in shown.versus) and not any(row["gpu_memory"] for row in tables["training"]):
        lacking = "memory is measured on GPUs alone, and no run says what it held of one"
    return f"{_NOTHING}: {lacking or 'one side or both were not measured, or not together'}."


def _rows(tables: dict[str, Rows], name: str) -> Rows:
    return [row for row in tables["figures"] if row["figure"] == name]
