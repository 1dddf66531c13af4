"""Read the records of a report, refuse what would mislead, and name machines, techniques and models."""

from __future__ import annotations

import json
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from mgg.errors import InputError
from mgg.records import (
    PARTITION_FILE,
    RUN_FILE,
    AggregateRecord,
    Common,
    EpochRecord,
    Origin,
    PartitionRecord,
    TrainRecord,
    holds,
    read_lines,
    read_partition,
    read_run,
)
from mgg.records.graph import GraphRecord
from mgg.records.latency import LatencyRecord
from mgg.records.lookup import LookupRecord
from mgg.records.prediction import PredictionRecord

GIB = 2**30
#: Libraries that train in place of MGG; both sides are to be compared, so their versions do not separate records.
BESIDE = ("torch", "torch-geometric")

#: Records that were measured on a machine.
MEASURED = (AggregateRecord, TrainRecord, LatencyRecord, LookupRecord)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Named:
    """A record with the epochs of a training run, and the report's names of its machine, technique and model."""

    record: Any
    epochs: Sequence[EpochRecord] = ()
    machine: str = ""
    label: str = ""
    model_label: str = ""


def collect(paths: Iterable[str | Path]) -> dict[type[Origin], list[Named]]:
    """Read records (``.jsonl`` files: aggregate, latencies, lookups, predictions, graphs) and run or partition folders.

    A record that is given twice counts once. Of different results of one measurement only the newest counts, since
    showing both would mislead; a warning says what was left out. The order is independent of that of the files.

    Returns:
        The records by kind; every kind is there.

    Raises:
        InputError: names the file, line or field that is wrong, or two files that contradict each other: results of one
            measurement by one run, or of the same second.
    """
    found: dict[type[Origin], dict[tuple[str, str], list[tuple[Named, str]]]] = {
        kind: defaultdict(list) for kind in _KEYS
    }
    for path in map(Path, paths):
        for result in _read(path):
            found[type(result.record)][_key(result.record)].append((result, str(path)))
    if not any(found.values()):
        raise InputError(
            "report: no records given; name .jsonl files of mgg aggregate, mgg lookup, mgg predict, mgg describe or mgg"
            " links --latency, run folders of mgg train or folders of mgg partition"
        )
    return _name({kind: [_newest(key[0], results[key]) for key in sorted(results)] for kind, results in found.items()})


def _read(path: Path) -> list[Named]:
    if (path / PARTITION_FILE).is_file():
        return [Named(read_partition(path))]
    if path.is_dir():
        if not (path / RUN_FILE).is_file():
            others = "a folder of mgg partition or a .jsonl file"
            raise InputError(f"{path}: holds no {RUN_FILE}; give a run folder of mgg train, {others}")
        record, epochs = read_run(path)
        _check_values(record, ("q1", "median", "q3"), f"{path / RUN_FILE}")
        return [Named(record, epochs)]
    kinds = (PredictionRecord, GraphRecord, LatencyRecord, LookupRecord)
    records = read_lines(path, next((each for each in kinds if holds(path, each)), AggregateRecord))
    for number, each in enumerate(records, 1):
        if isinstance(each, (AggregateRecord, LookupRecord)):
            _check_values(each, ("low", "median", "high"), f"{path}: record {number}")
    return [Named(record) for record in records]


def canonical(values: Any) -> str:
    """Return JSON with sorted keys: equal values give equal text."""
    return json.dumps(values, sort_keys=True, ensure_ascii=False)


def environment(record: Common | LatencyRecord | LookupRecord) -> tuple[Hashable, ...]:
    """Return what two records must share for their times to be comparable: hardware, system, software, launch method,
    threads per PE, and the emulated network.

    Cores and the number of GPUs are left out, because a scheduler grants them per job on one machine; so are the
    versions of libraries that MGG is compared with rather than built on.
    """
    machine = record.machine
    memory = round(machine.memory_bytes / GIB)
    versions = canonical({name: version for name, version in record.versions.items() if name not in BESIDE})
    emulated = getattr(record, "emulated", None) or ""
    gpus = tuple(sorted(set(machine.gpus)))
    return (machine.cpu, memory, gpus, machine.system, versions, machine.place or "", emulated, machine.threads)


def _newest(told: str, results: list[tuple[Named, str]]) -> Named:
    """Return the newest result of one measurement; raises InputError if two have the same run or time."""
    # Compared as text, because a diverged loss is NaN, which differs from itself.
    distinct = {repr(result): (result, path) for result, path in sorted(results, key=lambda each: each[1])}
    ordered = sorted(distinct.values(), key=lambda each: (each[0].record.recorded_at, each[1]))
    for (result, path), (other, second) in combinations(ordered, 2):
        one, two = result.record, other.record
        same = one.run_id == two.run_id or one.recorded_at == two.recorded_at
        if same and _measured(result) != _measured(other):
            files = f"{path}: holds" if path == second else f"{path} and {second}: hold"
            raise InputError(f"{files} two different results of one measurement ({told}); give only one")
    newest = ordered[-1][0]
    if older := {path for result, path in ordered if _measured(result) != _measured(newest)}:
        _log.warning("%s: left out, as there is a newer result of the same measurement (%s)", ", ".join(older), told)
    return newest


def _measured(result: Named) -> str:
    return repr((result.record.model_dump(exclude=set(Origin.model_fields)), result.epochs))


def _check_values(record: AggregateRecord | TrainRecord | LookupRecord, fields: tuple[str, ...], where: str) -> None:
    """Reject impossible times, which would become infinite speedups and false winners."""
    for field in {*fields, "q1", "q3"}:
        value = getattr(record, field)
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{where}: field {field}: {value} is not a time in seconds; measure it again")
    values = [getattr(record, field) for field in fields]
    if values != sorted(values):
        raise InputError(f"{where}: fields {', '.join(fields)} are not in ascending order; measure it again")
    if record.pes < 1:
        raise InputError(f"{where}: field pes: {record.pes} is not a number of PEs; measure it again")


#: What was measured, by kind of record; the environment is part of it, too.
_KEYS: dict[type[Origin], str] = {
    AggregateRecord: "dataset graph_hash backend dtype scheme direction dim technique options pes",
    TrainRecord: "dataset graph_hash backend dtype side model given seed metric scheme chosen technique options pes",
    PartitionRecord: "name graph_hash scheme pes workgroup dim",
    LatencyRecord: "grain bytes row_bytes link backend pes",
    LookupRecord: "dataset samples_hash backend side dim batch pes",
    PredictionRecord: "dataset graph_hash machine dtype technique options pes dim scheme workgroup network",
    GraphRecord: "dataset graph_hash",
}


def _key(record: Origin) -> tuple[str, str]:
    """Return what was measured in words, and where."""
    values = dict(record)
    if isinstance(record, TrainRecord):
        values["given"] = _given(record)
    values |= {name: values[name][:12] for name in ("graph_hash", "samples_hash") if name in values}
    if isinstance(record, PartitionRecord):
        values["dim"] = record.quality.dim
    told = [(name, values[name]) for name in _KEYS[type(record)].split()]
    words = [f"{name} {value if isinstance(value, str) else canonical(value)}" for name, value in told]
    place = environment(record) if isinstance(record, (Common, LatencyRecord, LookupRecord)) else values.get("links")
    return ", ".join(words), repr(place)


def _given(record: TrainRecord) -> dict[str, Any]:
    """Return a run's inputs besides its seed; runs of a model with different inputs are kept apart."""
    started = "random" if record.weights is None else record.weights[:12]
    file = {} if record.model_file is None else {"file": record.model_file[:12]}
    return record.settings | {"epochs": record.asked_epochs or record.epochs, "weights": started} | file


def _name(found: dict[type[Origin], list[Named]]) -> dict[type[Origin], list[Named]]:
    places = sorted({environment(each.record) for kind in MEASURED for each in found[kind]}, key=repr)
    timings, runs = ([each.record for each in found[kind]] for kind in (AggregateRecord, TrainRecord))
    techniques = _labels((_cell(record), record.technique, record.options) for record in (*timings, *runs))
    models = _labels((run.graph_hash, run.model, _given(run)) for run in runs)

    def named(each: Named) -> Named:
        record = each.record
        if isinstance(record, TrainRecord):
            label = f"{'auto: ' * record.chosen}{techniques(record.technique, record.options)}"
            label += ", unfused" * (record.side == "unfused")
            each = replace(each, label=label, model_label=models(record.model, _given(record)))
        elif isinstance(record, AggregateRecord):
            each = replace(each, label=techniques(record.technique, record.options))
        return replace(each, machine=f"M{places.index(environment(record)) + 1}")

    return {kind: list(map(named, results)) if kind in MEASURED else results for kind, results in found.items()}


def _cell(record: AggregateRecord | TrainRecord) -> Hashable:
    """Return the comparison of a record: it shares it with those that differ only in technique and options."""
    where = (record.graph_hash, record.backend, record.dtype, record.pes, environment(record), record.scheme)
    if isinstance(record, AggregateRecord):
        return (*where, record.direction, record.dim)
    # Seeds are excluded, because results are averaged over them; any other difference forbids a mean.
    return (*where, record.model, canonical(_given(record)))


def _labels(cells: Iterable[tuple[Hashable, str, dict[str, Any]]]) -> Callable[[str, dict[str, Any]], str]:
    """Return what gives a name with its options: those that differ where one comparison has the name more than once.

    So options that a tuner sets per job do not split related records. ``cells``: comparisons, with names that they have
    and their options.
    """
    namesakes: dict[tuple[str, Hashable], list[dict[str, Any]]] = defaultdict(list)
    for cell, name, options in cells:
        namesakes[name, cell].append(options)
    varying: dict[str, set[str]] = defaultdict(set)
    for (name, _), found in namesakes.items():
        for key in {key for options in found for key in options}:
            if len({canonical([key in options, options.get(key)]) for options in found}) > 1:
                varying[name].add(key)

    def label(name: str, options: dict[str, Any]) -> str:
        shown = [f"{key}={options[key]}" for key in sorted(varying.get(name, ())) if key in options]
        return f"{name} ({', '.join(shown) or 'no options'})" if name in varying else name

    return label
