"""Sections that compare the papers' figures, and our own claims, with the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mgg.report.page import lookups
from mgg.report.page.findings import Finding
from mgg.report.page.parts import Part, Section
from mgg.report.papers import (
    advisor,
    counters,
    intergroup_bytes,
    methods,
    mgg_sweep,
    overlap,
    pairs,
    preparation,
    reached,
    repaid,
    sweeps,
    transfers,
    volumes,
)
from mgg.report.papers.catalogue import EXPERIMENTS
from mgg.report.papers.kinds import Experiment
from mgg.report.papers.verdicts import left_out, telling, verdict
from mgg.report.tables.comparisons import CLOSE, DISAGREES, of
from mgg.report.tables.compute import Rows

Tables = dict[str, Rows]
#: For each field of an ``Experiment``: the function for its parts (from tables, figure name, field value) and, if the
#: field stands for the whole figure, the function for the sentences on the outcome.
_KINDS: dict[str, tuple[Callable[[Tables, str, Any], list[Part]], Callable[[Tables, Any], str] | None]] = {
    "volumes": (volumes.parts, volumes.outcome),
    "transfers": (transfers.parts, transfers.outcome),
    "sweep": (sweeps.parts, sweeps.outcome),
    "mgg_sweep": (mgg_sweep.parts, mgg_sweep.outcome),
    "overlap": (overlap.parts, overlap.outcome),
    "lookups": (lookups.parts, lookups.outcome),
    "faults": (counters.fault_parts, counters.fault_outcome),
    "occupancy": (counters.occupancy_parts, counters.occupancy_outcome),
    "preparation": (preparation.parts, None),
    "repaid": (repaid.parts, repaid.outcome),
    "reached": (reached.parts, None),
}
_NOTHING = "The records of this report hold nothing to compare here"


def sections(tables: dict[str, Rows], chosen: Sequence[tuple[str, str]]) -> list[Section]:
    """Return a section for each (figure, note) in ``chosen``, and for measurements of other figures."""
    shown = [EXPERIMENTS[name] for name, _ in chosen]
    found = [_section(tables, name, note) for name, note in chosen]
    others = [
        None if any(each.mgg_sweep for each in shown) else mgg_sweep.section(tables),
        None if any(each.overlap for each in shown) else overlap.section(tables),
    ]
    return [*found, *(each for each in others if each)]


def outcomes(tables: dict[str, Rows], chosen: Sequence[tuple[str, str]]) -> list[Finding]:
    """Return each figure's outcome, for the top of the page."""
    names = [name for name, _ in chosen]
    found = [
        Finding(
            EXPERIMENTS[name].title, _outcome(tables, name, EXPERIMENTS[name]) or _nothing(tables, EXPERIMENTS[name])
        )
        for name in names
    ]
    if not any(EXPERIMENTS[name].overlap for name in names) and (text := overlap.outcome(tables)):
        found.append(Finding(overlap.HEADING, text))
    return found


def _section(tables: dict[str, Rows], name: str, note: str) -> Section:
    shown = EXPERIMENTS[name]
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
    for kind, (made, _) in _KINDS.items():
        if value := getattr(shown, kind):
            parts += made(tables, name, value)
    if rows := _rows(tables, name):
        parts.append((methods if shown.together else pairs).part(tables, name, shown, rows))
    parts += advisor.parts(tables, name, shown.advisor)
    if shown.intergroup_bytes and (counted := intergroup_bytes.part(tables, shown.intergroup_bytes)):
        parts.append(counted)
    return parts


def _outcome(tables: dict[str, Rows], name: str, shown: Experiment) -> str:
    """Return sentences on what was measured; empty if nothing was."""
    for kind, (_, outcome) in _KINDS.items():
        if outcome and (value := getattr(shown, kind)):
            return outcome(tables, value)
    rows = _rows(tables, name)
    told = methods.told(shown) if shown.together else shown.versus
    sentences = [verdict(versus, found) for versus in told if (found := telling(of(versus, rows)))]
    if shown.preparation and (told_ := preparation.outcome(tables, shown.preparation)):
        sentences.append(told_)
    return " ".join([*sentences, *left_out(rows), *advisor.outcomes(tables, shown.advisor)])


def _nothing(tables: dict[str, Rows], shown: Experiment) -> str:
    """Say that there is nothing to show and, if known, what is missing."""
    lacking = sweeps.lacking(tables["aggregate"], shown.sweep) if shown.sweep else ""
    if shown.faults:
        lacking = f"page faults of {shown.faults} were not asked for (mgg aggregate --faults)"
    if shown.occupancy:
        lacking = "these timings were not profiled (mgg aggregate --profile)"
    if any(versus.memory for versus in shown.versus) and not any(row["gpu_memory_bytes"] for row in tables["training"]):
        lacking = "memory is measured on GPUs alone, and no run says what it held of one"
    return f"{_NOTHING}: {lacking or 'one side or both were not measured, or not together'}."


def _rows(tables: dict[str, Rows], name: str) -> Rows:
    return [row for row in tables["figures"] if row["figure"] == name]
