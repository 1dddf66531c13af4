"""Fit the cost model's constants to measured products: ``python tools/fit_costs.py [MEASURED...]``.

MEASURED is a CSV of graph, technique, pes, dtype, dim, part (whole, transfer, arithmetic) and milliseconds, or records
of ``mgg aggregate --breakdown``. SPLITS holds a partition record per line, for every graph and number of PEs of
MEASURED. The output: the constants of ``mgg/cost/machines.py``, measured and predicted times, the in-sample errors of
the fit, how much longer than the fastest technique auto's picks took; then the same for each graph, fitted to the
others.

An operator that does all of another's work and more must cost at least as much (``LEAST``). The samples do not ensure
that: three of the graphs have so few remote arcs that an arc of a column-wise product would be fitted to cost nothing.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from mgg.aggregate import technique
from mgg.aggregate.auto import Forecast
from mgg.cost.links import GIVEN, Link, Links
from mgg.cost.product import MachineModel, Rate, SplitCounts, Workload
from mgg.records import AggregateRecord, Partition, read_lines

HERE = Path(__file__).parent
#: Measured separately: a device copy; random rows of 64 bytes at 275 GB/s, and of 128 bytes or more at 328 GB/s.
HBM, PEER, MESSAGE = 4.226e12, 328e9, 64 / 275e9 - 64 / 328e9


@dataclass(frozen=True)
class Sample:
    """A measured time."""

    graph: str
    technique: str
    pes: int
    dtype: str
    dim: int
    part: str
    seconds: float


Splits = dict[tuple[str, int], SplitCounts]
Constants = dict[str, float]

RATES = {
    "rows": ("call", "arc", "arc_byte", "row", "row_byte"),
    "pulled": ("call", "arc", "arc_byte", "row", "row_byte"),
    "partitions": ("call", "arc", "arc_byte", "row", "row_byte"),
    "columns": ("call", "arc", "arc_byte", "row_byte"),
    "blocking": ("arc", "row"),
}
#: The steps of the fit in order: (which samples, which constants).
STEPS: tuple[tuple[Callable[[Sample], bool], tuple[str, ...]], ...] = (
    (lambda s: s.technique == "local", tuple(f"rows.{name}" for name in RATES["rows"])),
    (lambda s: s.part == "transfer", ("nvlink.latency", "nvlink.bandwidth")),
    (lambda s: s.part == "arithmetic", tuple(f"pulled.{name}" for name in RATES["pulled"])),
    (lambda s: s.technique == "halo" and s.part == "whole", ("exposed",)),
    (lambda s: s.technique == "mgg", tuple(f"partitions.{name}" for name in RATES["partitions"])),
    (lambda s: s.technique == "broadcast", ("broadcast.latency", "broadcast.bandwidth")),
    (lambda s: s.technique == "broadcast_pipelined", ("staged",)),
    (lambda s: s.technique == "ring", ("shift.latency", "shift.bandwidth")),
    (lambda s: s.technique == "cola", tuple(f"columns.{name}" for name in RATES["columns"])),
    (lambda s: s.technique == "direct", tuple(f"blocking.{name}" for name in RATES["blocking"])),
)
START: Constants = {
    "call": 2e-5, "arc": 1e-12, "arc_byte": 1e-13, "row": 1e-11, "row_byte": 1e-12, "latency": 1e-5, "bandwidth": PEER,
    "exposed": 0.2, "staged": 0.5,
}  # fmt: skip
#: Lower bounds of an operator's coefficients: multiples of those of another, which is fitted before it. The pass over
#: rows and halo also waits for chunks; neighbor partitions sum by atomics what that pass keeps in registers; per arc a
#: column-wise product reads and writes a row of the result, where a row-wise product reads a row.
LEAST: dict[str, tuple[str, Constants]] = {
    "pulled": ("rows", {"arc": 1, "arc_byte": 1, "row": 1, "row_byte": 1}),
    "partitions": ("pulled", {"arc": 1, "arc_byte": 1, "row": 1, "row_byte": 1}),
    "columns": ("rows", {"arc": 1, "arc_byte": 2}),
}
#: The power of the rates: the least of 1, 1.5, 2, 2.5, 3, 3.5 and 4 with which picks for held-out graphs lose at most
#: 5 % (docs/results/costs.md).
POWER = 3.0
#: Bounds of the logarithm of a constant, below and above that of its start. A constant that the samples do not need
#: becomes tiny: it is set to 0 if it is NOTHING below its start.
BELOW, ABOVE, NOTHING = 30, 15, 14


def machine(values: Constants, name: str = "h200") -> MachineModel:
    """The machine with these constants; those that are missing are as at the start."""

    def value(key: str) -> float:
        return values.get(key, START[key.rpartition(".")[2]])

    def link(key: str, message: float = 0.0) -> Link:
        return Link(latency=value(f"{key}.latency"), bandwidth=value(f"{key}.bandwidth"), message=message)

    links = {"nvlink": link("nvlink", MESSAGE), "broadcast": link("broadcast"), "shift": link("shift")}
    links |= {"hbm": Link(latency=0, bandwidth=HBM), "pcie": GIVEN["pcie"]} | GIVEN
    rates = {key: Rate(**{term: value(f"{key}.{term}") for term in terms}, power=POWER) for key, terms in RATES.items()}
    return MachineModel(
        name=name, gpu=True, rates=rates, exposed=min(1, value("exposed")), staged=min(1, value("staged")),
        links=Links(links=links, rows="nvlink", network="infiniband-ndr", barrier=0), basis="fitted",
    )  # fmt: skip


def predicted(sample: Sample, splits: Splits, on: MachineModel) -> float:
    """The seconds that the model predicts for a sample."""
    plan = technique(sample.technique)
    cost = plan.cost(Workload(splits[sample.graph, sample.pes], sample.dim, plan.Options(), sample.dtype), on)
    assert cost is not None
    return {"whole": cost.seconds, "transfer": cost.transfer, "arithmetic": cost.arithmetic}[sample.part]


def log_errors(
    logs: np.ndarray, names: tuple[str, ...], known: Constants, samples: list[Sample], splits: Splits
) -> list[float]:
    """Logarithms of predicted over measured time, if the constants ``names`` have these logarithms."""
    on = machine(known | dict(zip(names, np.exp(logs).tolist(), strict=True)))
    return [float(np.log(predicted(each, splits, on) / each.seconds)) for each in samples]


def fitted(samples: list[Sample], splits: Splits) -> Constants:
    """Constants, at least 0, that minimize the logarithms of predicted over measured time, step by step."""
    values: Constants = {}
    for chosen, names in STEPS:
        found = [sample for sample in samples if chosen(sample)]
        if not found:
            continue
        start = np.log([START[name.rpartition(".")[2]] for name in names])
        below = np.maximum(start - BELOW, [at_least(name, values) for name in names])
        best = least_squares(
            log_errors,
            np.maximum(start, below + 1e-3),  # within the bounds
            args=(names, values, found, splits),
            bounds=(below, start + ABOVE),
            loss="soft_l1",
            f_scale=0.1,
        )
        values |= {
            name: float(np.exp(log)) if log > first - NOTHING else 0.0
            for name, log, first in zip(names, best.x, start, strict=True)
        }
    return values


def at_least(name: str, known: Constants) -> float:
    """The logarithm of a constant's lower bound (``LEAST``); minus infinity if it has none."""
    operator, _, term = name.partition(".")
    other, times = LEAST.get(operator, ("", {}))
    value = times.get(term, 0) * known.get(f"{other}.{term}", 0)
    return float(np.log(value)) if value else -np.inf


def read(paths: Iterable[Path]) -> list[Sample]:
    """The samples of all files, only of techniques at their defaults; of repeated measurements the last."""
    samples = {}
    for path in paths:
        for *key, seconds in _lines(path) if path.suffix == ".csv" else _records(path):
            samples[tuple(key)] = Sample(*key, seconds)
    return list(samples.values())


def _lines(path: Path) -> Iterator[tuple[Any, ...]]:
    """The fields of ``Sample`` for every line of a CSV."""
    with path.open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            key = line["graph"], line["technique"], int(line["pes"]), line["dtype"], int(line["dim"]), line["part"]
            yield *key, float(line["milliseconds"]) / 1e3


def _records(path: Path) -> Iterator[tuple[Any, ...]]:
    """The fields of ``Sample`` for every record of mgg aggregate."""
    for record in read_lines(path, AggregateRecord):
        times = {"whole": record.median, "transfer": record.transfer, "arithmetic": record.compute}
        for part, seconds in times.items():
            if seconds is not None and record.options == record.defaults:
                yield record.dataset, record.technique, record.pes, record.dtype, record.dim, part, seconds


def comparisons(samples: list[Sample]) -> dict[tuple[int, str, int], dict[str, Sample]]:
    """Whole fp32 products on several PEs, by (PEs, graph, D) and technique."""
    found: dict[tuple[int, str, int], dict[str, Sample]] = {}
    for each in samples:
        if each.pes > 1 and each.part == "whole" and each.dtype == "fp32":
            found.setdefault((each.pes, each.graph, each.dim), {})[each.technique] = each
    return dict(sorted(found.items()))


def picked(samples: dict[str, Sample], splits: Splits, on: MachineModel, without: str = "") -> tuple[str, float] | None:
    """The technique that ``auto`` would pick, and its measured time over the least; None if only one was measured."""
    choices = {name: sample for name, sample in samples.items() if name != without}
    if len(choices) < 2:
        return None
    split = next(splits[sample.graph, sample.pes] for sample in choices.values())
    pick = Forecast(on, split).order({name: predicted(sample, splits, on) for name, sample in choices.items()})[0]
    return pick, choices[pick].seconds / min(sample.seconds for sample in choices.values())


def report(samples: list[Sample], splits: Splits, on: MachineModel) -> None:
    """Print measured and predicted milliseconds of whole fp32 products, auto's picks, and errors by technique."""
    whole = pd.DataFrame(
        [
            vars(each)
            | {"ms": f"{1e3 * each.seconds:.2f} / {1e3 * seconds:.2f}", "log": np.log(seconds / each.seconds)}
            for each in samples
            if each.part == "whole"
            for seconds in [predicted(each, splits, on)]
        ]
    )
    key, cases = ["pes", "graph", "dim"], comparisons(samples)
    shown = whole[(whole.dtype == "fp32") & (whole.pes > 1)].pivot(index=key, columns="technique", values="ms")
    for heading, without in (("picked", ""), ("without halo", "halo")):
        picks = {case: pick for case, found in cases.items() if (pick := picked(found, splits, on, without))}
        shown[heading] = pd.Series(
            {case: f"{name}, {ratio:.2f}" for case, (name, ratio) in picks.items()}, dtype=object
        )
        ratios = np.array([ratio for _, ratio in picks.values()])
        if len(ratios):
            mean = np.exp(np.log(ratios).mean())
            click.echo(f"{heading}: {mean:.3f} of the least, at most {ratios.max():.2f}, {len(ratios)} comparisons")
    click.echo(f"\nmeasured / predicted, ms\n{shown.fillna('-').to_string()}\n")
    logs = pd.concat([whole, whole.assign(technique="all")]).groupby("technique").log
    error = lambda how: lambda each: f"{100 * how(np.exp(each.abs()) - 1):.0f} %"  # noqa: E731
    bias = {"bias": lambda each: f"{np.exp(each.mean()):.2f}"}
    click.echo(
        logs.agg(**{"samples": "size", "mean error": error(np.mean), "largest": error(np.max)} | bias).to_string()
    )


@click.command()
@click.argument("measured", type=click.Path(path_type=Path, exists=True), nargs=-1)
@click.option(
    "--splits", "folder", type=click.Path(path_type=Path, exists=True), default=HERE / "measured" / "splits.jsonl",
    help="partition records, one per line",
)  # fmt: skip
def main(measured: tuple[Path, ...], folder: Path) -> None:
    """Fit, and print constants, tables and errors."""
    samples = read(measured or [HERE / "measured" / "h200.csv"])
    records = read_lines(folder, Partition)
    splits = {(record.name, record.pes): SplitCounts.of(record) for record in records}
    constants = fitted(samples, splits)
    for name, value in constants.items():
        click.echo(f"{name:20} {value:.4g}")
    click.echo("\nIn sample: fitted to all graphs\n")
    report(samples, splits, machine(constants))
    for graph in sorted({each.graph for each in samples}):
        constants = fitted([each for each in samples if each.graph != graph], splits)
        click.echo(f"\nHeld out: {graph}, fitted to the others\n")
        report([each for each in samples if each.graph == graph], splits, machine(constants))


if __name__ == "__main__":
    main()
