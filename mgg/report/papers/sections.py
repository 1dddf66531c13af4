"""The sections that set the papers' figures, and our own claims, beside the records."""

from __future__ import annotations

from collections.abc import Sequence

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

_NOTHING = "The records of this report hold nothing to compare here"


def sections(tables: dict[str, Rows], chosen: Sequence[tuple[str, str]]) -> list[Section]:
    """A section for each (figure, note) of ``chosen``, and what was measured for figures that are not among them."""
    shown = [EXPERIMENTS[name] for name, _ in chosen]
    found = [_section(tables, name, note) for name, note in chosen]
    others = [
        None if any(each.mgg_sweep for each in shown) else mgg_sweep.section(tables),
        None if any(each.overlap for each in shown) else overlap.section(tables),
    ]
    return [*found, *(each for each in others if each)]


def outcomes(tables: dict[str, Rows], chosen: Sequence[tuple[str, str]]) -> list[Finding]:
    """What came out of each figure, for the head of the page."""
    names = [name for name, _ in chosen]
    found = [
        Finding(
            EXPERIMENTS[name].title, _outcome(tables, name, EXPERIMENTS[name]) or _nothing(tables, EXPERIMENTS[name])
        )
        for name in names
    ]
    if not any(EXPERIMENTS[name].overlap for name in names) and (text := overlap.outcome(tables["aggregate"])):
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
    if shown.volumes:
        parts += volumes.parts(tables, name, shown.volumes)
    if shown.transfers:
        parts += transfers.parts(tables, name, shown.transfers)
    if shown.sweep:
        parts += sweeps.parts(tables, name, shown.sweep)
    if shown.mgg_sweep:
        parts += mgg_sweep.parts(tables)
    if shown.overlap:
        parts += overlap.parts(tables)
    if shown.lookups:
        parts += lookups.compared(tables["lookups"], shown.lookups)
    if shown.faults:
        parts += counters.fault_parts(tables, name, shown.faults)
    if shown.occupancy:
        parts += counters.occupancy_parts(tables, shown.occupancy)
    if shown.preparation:
        parts += preparation.parts(tables, shown.preparation)
    if shown.repaid:
        parts += repaid.parts(tables, shown.repaid)
    if rows := _rows(tables, name):
        parts.append((methods if shown.together else pairs).part(tables, name, shown, rows))
    parts += advisor.parts(tables, name, shown.advisor)
    if shown.intergroup_bytes and (counted := intergroup_bytes.part(tables, shown.intergroup_bytes)):
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
    if shown.mgg_sweep:
        return mgg_sweep.outcome(tables["knobs"]) if tables["knobs"] else ""
    if shown.overlap:
        return overlap.outcome(tables["aggregate"])
    if shown.lookups:
        return lookups.outcome(tables["lookups"], shown.lookups)
    if shown.faults:
        return counters.fault_outcome(tables["aggregate"], shown.faults)
    if shown.occupancy:
        return counters.occupancy_outcome(tables["aggregate"], shown.occupancy)
    if shown.repaid:
        return repaid.outcome(tables, shown.repaid)
    rows = _rows(tables, name)
    told = methods.told(shown) if shown.together else shown.versus
    sentences = [verdict(versus, found) for versus in told if (found := telling(of(versus, rows)))]
    if shown.preparation and (told_ := preparation.outcome(tables["aggregate"], shown.preparation)):
        sentences.append(told_)
    return " ".join([*sentences, *left_out(rows), *advisor.outcomes(tables, shown.advisor)])


def _nothing(tables: dict[str, Rows], shown: Experiment) -> str:
    """That there is nothing to show, and as far as it is known what is missing."""
    lacking = sweeps.lacking(tables["aggregate"], shown.sweep) if shown.sweep else ""
    if shown.faults:
        lacking = f"page faults of {shown.faults} were not asked for (mgg aggregate --faults)"
    if shown.occupancy:
        lacking = "these timings were not profiled (mgg aggregate --profile)"
    if any(versus.memory for versus in shown.versus) and not any(row["gpu_memory"] for row in tables["training"]):
        lacking = "memory is measured on GPUs alone, and no run says what it held of one"
    return f"{_NOTHING}: {lacking or 'one side or both were not measured, or not together'}."


def _rows(tables: dict[str, Rows], name: str) -> Rows:
    return [row for row in tables["figures"] if row["figure"] == name]
