"""Sections that compare the papers' figures, and our own claims, with the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mgg.report.page import lookups
from mgg.report.page.findings import Finding
from mgg.report.page.parts import Part, Section, read
from mgg.report.papers import advisor, compared, counters, overlap, preparation, sweeps, transfers, volumes
from mgg.report.papers.catalogue import EXPERIMENTS
from mgg.report.papers.kinds import Experiment
from mgg.report.tables import mgg_sweep
from mgg.report.tables.comparisons import CLOSE, DISAGREES
from mgg.report.tables.compute import Rows

Tables = dict[str, Rows]


def sections(tables: Tables, chosen: Sequence[tuple[str, str]]) -> list[Section]:
    """Return a section for each measured (figure, note) in ``chosen``, and for measurements of other figures."""
    measured = [(EXPERIMENTS[name], name, note) for name, note in chosen if name in EXPERIMENTS]
    others = [None if any(shown.mgg_sweep for shown, *_ in measured) else mgg_sweep.section(tables)]
    others += [None if any(shown.overlap for shown, *_ in measured) else overlap.section(tables)]
    return [*(_section(tables, *each) for each in measured), *(each for each in others if each)]


def outcomes(found: Sequence[Section]) -> list[Finding]:
    """Return what came out of ``sections``, for the top of the page."""
    return [Finding(section.heading, section.outcome) for section in found if section.outcome]


def _section(tables: Tables, shown: Experiment, name: str, note: str) -> Section:
    measured = f"; the paper's machine: {shown.machine}" if shown.machine else ""
    made = {kind: make(tables, name, value) for kind, make in _KINDS.items() if (value := getattr(shown, kind))}
    parts = [part for each in made.values() for part in each]
    # Comparisons come first.
    told = [part.outcome for kind in sorted(made, key="versus".__ne__) for part in made[kind] if part.outcome]
    if not parts:
        parts.append(Part("No comparison", _nothing(tables, shown)))
    rows = [row for row in tables["figures"] if row["figure"] == name and row["device"] == "GPUs"]
    if shown.departs and any(row["verdict"] in (CLOSE, DISAGREES) for row in rows):
        parts.append(Part("Why it can go another way", shown.departs))
    if note:
        parts.append(Part("Remark", note))
    intro = f"{shown.source}{measured}. {shown.says}"
    return Section(name, shown.title, intro, parts, outcome=" ".join(told) or _nothing(tables, shown))


def _nothing(tables: Tables, shown: Experiment) -> str:
    """Say that there is nothing to show and, if known, what is missing."""
    memory = any(versus.memory for versus in shown.versus)
    memory = memory and not any(row["gpu_memory_bytes"] for row in tables["training"])
    baseline = shown.sweep and sweeps.lacks_baseline(tables["aggregate"], shown.sweep)
    holds = {"memory": memory, "occupancy": shown.occupancy, "faults": shown.faults, "baseline": baseline, "": True}
    why = next(text for name, text in read("texts")["lacking"].items() if holds[name])
    why = why.format(baseline=baseline, faults=shown.faults)
    return f"The records of this report hold nothing to compare here: {why}."


#: For each field of an ``Experiment``: the function for its parts, from tables, figure name and field value.
_KINDS: dict[str, Callable[[Tables, str, Any], list[Part]]] = {
    "volumes": volumes.parts,
    "transfers": transfers.parts,
    "sweep": sweeps.parts,
    "mgg_sweep": mgg_sweep.parts,
    "overlap": overlap.parts,
    "lookups": lookups.parts,
    "faults": counters.faults,
    "occupancy": counters.occupancy,
    "preparation": preparation.parts,
    "repaid": preparation.renumbering,
    "reached": preparation.reached,
    "versus": compared.parts,
    "advisor": advisor.parts,
    "intergroup_bytes": volumes.between,
}
