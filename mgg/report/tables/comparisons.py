"""Table figures: every comparison of a paper's figure found in the records, both times, and the paper's statement."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from statistics import geometric_mean

from mgg.report.papers.catalogue import EXPERIMENTS, claimed_as
from mgg.report.papers.kinds import Side, Versus, claim_on
from mgg.report.tables.compute import GRAPH, SETTING, Row, Rows, best, group, joined, options_but, sound
from mgg.report.tables.spread import FEW, undecided

AGREES, DISAGREES, CLOSE = "the paper's direction", "not the paper's direction", "too close to call"
#: Verdicts of undecided comparisons.
UNDECIDED = (CLOSE, FEW)
#: Reasons why a comparison says nothing.
CPUS, ONE_WORKGROUP = "CPU cores", "one workgroup"
#: Smallest ratio in a mean, because transfers may be too short to measure.
LEAST = 0.01
#: Columns that two training runs must share to be compared.
_RUN = (
    "machine", *GRAPH, "device", "dtype", "scheme", "model", "settings", "weights", "pes", "seed",
    "epochs_asked", "activations",
)  # fmt: skip


def compare(names: Sequence[str], aggregate: Rows, training: Rows) -> Rows:
    """Compute the rows of table figures in the order of ``names``; measurements of only one side give none.

    They also have the compared values (seconds, or bytes of GPU memory) as ``mine``, the subject's, and ``other``.
    """
    # What a product takes beyond the same launches without transfers.
    products = [
        row | {"transfers_s": None if row["compute_s"] is None else max(row["median_s"] - row["compute_s"], 0.0)}
        for row in sound(aggregate)
    ]
    kinds = (products, (*SETTING, "dim", "pes"), {"model": ""}), (training, _RUN, {"direction": "", "dim": None})
    return [
        subject | what | _outcome(versus, subject, rival) | {"figure": name}
        for name in names
        for versus in EXPERIMENTS[name].versus
        for rows, columns, what in kinds
        for subject, rival in _pairs(versus, rows, columns)
    ]


def mean_ratio(rows: Rows) -> float:
    """Return the geometric mean of rival time over subject time; unmeasurably short transfers count as ``LEAST``."""
    return geometric_mean([max(row["ratio"], LEAST) for row in rows])


def of(versus: Versus, rows: Rows) -> Rows:
    """Return the rows of table figures that compare the sides of ``versus``."""
    return [row for row in rows if (row["subject"], row["rival"]) == (versus.subject.name, versus.rival.name)]


def _pairs(versus: Versus, rows: Rows, columns: Sequence[str]) -> Iterable[tuple[Row, Row]]:
    """Pair rows: for one technique those that differ only in its options, for two techniques the best of each."""
    endings = tuple(filter(None, (versus.subject.ending, versus.rival.ending)))
    if endings and "direction" in columns:
        # The same graph in another order is another data set; only its name shows the relation of two products.
        stems = (next((end for end in endings if row["dataset"].endswith(end)), "") for row in rows)
        rows = [row | {"stem": row["dataset"].removesuffix(end)} for row, end in zip(rows, stems, strict=True)]
        columns = ("stem", *(column for column in columns if column not in GRAPH))
    ignored = {*versus.subject.options, *versus.rival.options}
    for found in group(rows, *columns).values():
        subjects, rivals = (timings(side, found) for side in (versus.subject, versus.rival))
        if versus.subject.technique == versus.rival.technique and not endings:
            alike = {options_but(row, ignored): row for row in rivals}
            yield from ((row, alike[same]) for row in subjects if (same := options_but(row, ignored)) in alike)
        elif subjects and rivals:
            yield best(subjects), best(rivals)


def timings(side: Side, rows: Rows) -> Rows:
    """Return the rows of table aggregate, or training, that match ``side``."""

    def fits(row: Row) -> bool:
        options = json.loads(row["options"])
        return (
            row["technique"] == side.technique
            and row.get("side", "mgg") == side.trained_by
            and row["dataset"].endswith(side.ending)
            and all(options.get(key) == value for key, value in side.options.items())
        )

    return [row for row in rows if fits(row) and row.get(side.column) is not None]


def _outcome(versus: Versus, subject: Row, rival: Row) -> Row:
    dataset, model = claimed_as(subject["dataset"]), subject.get("model")
    keys = (claim_on(model, dataset), dataset, model) if model else (
        claim_on(dataset, subject["pes"]), dataset, f"D={subject['dim']}"
    )  # fmt: skip
    claim = versus.claim(*keys)
    mine, other = subject[versus.subject.column], rival[versus.rival.column]
    ratio = other / max(mine, 1e-9)  # the remaining transfer time may be too short for the clock
    expected, untold, memory = versus.expects_slower(claim), _untold(versus, subject), versus.memory
    verdict = ""
    if expected is not None and not untold:
        why = _undecided(subject, rival) if versus.subject.column == "median_s" else ""
        verdict = why or (AGREES if (ratio > 1) == expected else DISAGREES)
    return {
        "subject": versus.subject.name,
        "rival": versus.rival.name,
        "subject_median_s": None if memory else mine,
        "rival_median_s": None if memory else other,
        "subject_memory_bytes": mine if memory else None,
        "rival_memory_bytes": other if memory else None,
        "ratio": ratio,
        "paper": claim,
        "verdict": verdict,
        "untold": untold,
        "mine": mine,
        "other": other,
        **joined((subject, rival)),
    }


def _untold(versus: Versus, subject: Row) -> str:
    """Return why a comparison says nothing; empty if it does."""
    members = subject.get("workgroup") or json.loads(subject["options"]).get("workgroup")
    if versus.alike_in_one_workgroup and members and members >= subject["pes"]:
        return ONE_WORKGROUP
    return CPUS if versus.untold_on_cpus and subject["device"] != "GPUs" else ""


def _undecided(subject: Row, rival: Row) -> str:
    """Return the verdict if the times of two products, or epochs, are indistinguishable; else empty."""
    if "model" in subject:
        # A training is one launch, so its only spread is that of its epochs.
        return CLOSE if subject["q1_s"] <= rival["q3_s"] and rival["q1_s"] <= subject["q3_s"] else ""
    why = undecided(subject, rival)
    return FEW if why == FEW else CLOSE if why else ""
