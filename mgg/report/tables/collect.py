"""Read the records of a report, refuse what would mislead, and name machines, techniques and models."""

from __future__ import annotations

import json
import logging
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from mgg.errors import InputError
from mgg.graph_record import GraphRecord
from mgg.latency_record import LatencyRecord
from mgg.lookup_record import LookupRecord
from mgg.record import (
    PARTITION_FILE,
    RUN_FILE,
    AggregateRecord,
    Common,
    EpochRecord,
    Origin,
    PartitionRecord,
    PredictionRecord,
    TrainRecord,
    holds,
    read_lines,
    read_partition,
    read_run,
)

GIB = 2**30
#: Libraries that train in place of MGG; both sides are to be compared, so their versions do not separate records.
BESIDE = ("torch", "torch-geometric")

T = TypeVar("T")
Key = tuple[str, ...]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Named(Generic[T]):
    """A record with the report's names of its machine, technique and model, and the epochs of a training run."""

    record: T
    machine: str
    label: str = ""
    model_label: str = ""
    epochs: Sequence[EpochRecord] = ()


@dataclass(frozen=True)
class Collection:
    """Every record of a report once, in an order independent of the files' order."""

    timings: Sequence[Named[AggregateRecord]]
    runs: Sequence[Named[TrainRecord]]
    partitions: Sequence[PartitionRecord]
    latencies: Sequence[Named[LatencyRecord]]
    lookups: Sequence[Named[LookupRecord]]
    predictions: Sequence[PredictionRecord]
    described: Sequence[GraphRecord]


def collect(paths: Iterable[str | Path]) -> Collection:
    """Read records (``.jsonl`` files: aggregate, latencies, lookups, predictions, graphs) and run or partition folders.

    A record that is given twice counts once. Of different results of one measurement only the newest counts, since
    showing both would mislead; a warning says what was left out.

    Raises:
        InputError: names the file, line or field that is wrong, or two files that contradict each other: results of one
            measurement by one run, or of the same second.
    """
    found: dict[type[Origin], dict[Key, list[tuple[Any, Path]]]] = {kind: defaultdict(list) for kind in _KEYS}
    for path in map(Path, paths):
        for result in _read(path):
            kind = type(_origin(result))
            found[kind][_key(_origin(result))].append((result, path))
    if not any(found.values()):
        raise InputError(
            "report: no records given; name .jsonl files of mgg aggregate, mgg lookup, mgg predict, mgg describe or mgg"
            " links --latency, run folders of mgg train or folders of mgg partition"
        )
    return _name({kind: [_newest(key, results[key]) for key in sorted(results)] for kind, results in found.items()})


def _read(path: Path) -> list[Any]:
    """Read the results of a file or folder; that of a run is its record and its epochs."""
    if (path / PARTITION_FILE).is_file():
        return [read_partition(path)]
    if path.is_dir():
        return [_read_run(path)]
    kinds = (PredictionRecord, GraphRecord, LatencyRecord, LookupRecord)
    records = read_lines(path, next((each for each in kinds if holds(path, each)), AggregateRecord))
    for number, record in enumerate(records, 1):
        if isinstance(record, (AggregateRecord, LookupRecord)):
            _check_values(record, f"{path}: record {number}")
    return records


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


def _newest(key: Key, results: list[tuple[T, Path]]) -> T:
    """Return the newest result of one measurement; raises InputError if two have the same run or time."""
    # Compared as text, because a diverged loss is NaN, which differs from itself.
    distinct = {repr(result): (result, path) for result, path in sorted(results, key=lambda each: str(each[1]))}
    ordered = sorted(distinct.values(), key=lambda each: (_origin(each[0]).recorded_at, str(each[1])))
    told = ", ".join(key[:-1])
    for index, (result, path) in enumerate(ordered):
        for other, second in ordered[index + 1 :]:
            one, two = _origin(result), _origin(other)
            same = one.run_id == two.run_id or one.recorded_at == two.recorded_at
            if same and _measured(result) != _measured(other):
                files = f"{path}: holds" if path == second else f"{path} and {second}: hold"
                raise InputError(f"{files} two different results of one measurement ({told}); give only one")
    newest = ordered[-1][0]
    older = {str(path) for result, path in ordered if _measured(result) != _measured(newest)}
    if older:
        _log.warning("%s: left out, as there is a newer result of the same measurement (%s)", ", ".join(older), told)
    return newest


def _origin(result: Any) -> Origin:
    record: Origin = result[0] if isinstance(result, tuple) else result
    return record


def _measured(result: Any) -> str:
    record = _origin(result)
    return repr((record.model_dump(exclude=set(Origin.model_fields)), result[1:] if isinstance(result, tuple) else ()))


def _read_run(folder: Path) -> tuple[TrainRecord, list[EpochRecord]]:
    if not (folder / RUN_FILE).is_file():
        raise InputError(
            f"{folder}: holds no {RUN_FILE}; give a run folder of mgg train, a folder of mgg partition or a .jsonl file"
        )
    record, epochs = read_run(folder)
    _check_values(record, str(folder / RUN_FILE))
    return record, epochs


def _check_values(record: AggregateRecord | TrainRecord | LookupRecord, where: str) -> None:
    """Reject impossible times, which would become infinite speedups and false winners."""
    fields = ("q1", "median", "q3") if isinstance(record, TrainRecord) else ("low", "median", "high")
    for field in {*fields, "q1", "q3"}:
        value = getattr(record, field)
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{where}: field {field}: {value} is not a time in seconds; measure it again")
    values = [getattr(record, field) for field in fields]
    if values != sorted(values):
        raise InputError(f"{where}: fields {', '.join(fields)} are not in ascending order; measure it again")
    if record.pes < 1:
        raise InputError(f"{where}: field pes: {record.pes} is not a number of PEs; measure it again")


_GRAPH = ("graph {dataset}", "{graph_hash:.12}")
_HOW = ("technique {technique}", "options {options}", "P {pes}")
#: What was measured, by kind of record; last comes what is too long for messages, such as the environment.
_KEYS: dict[type[Origin], Key] = {
    AggregateRecord: (*_GRAPH, "{backend}, {dtype}", "{scheme}", "{direction}", "D {dim}", *_HOW, "{place}"),
    TrainRecord: (
        *_GRAPH, "{backend}, {dtype}, side {side}", "model {model}", "{given}", "seed {seed}", "{metric}",
        "partition scheme {noted}", "{picked}", *_HOW, "{place}",
    ),
    PartitionRecord: (
        "graph {name}", "{graph_hash:.12}", "partition scheme {scheme}", "P {pes}", "workgroup {workgroup}",
        "D {quality.dim}", "",
    ),
    LatencyRecord: (
        "{grain} transfer of {bytes} bytes", "rows of {row_bytes}", "link {link}", "{backend}", "P {pes}", "{place}",
    ),
    LookupRecord: (
        "samples {dataset}", "{samples_hash:.12}", "{backend}", "side {side}", "D {dim}", "batches of {batch}",
        "P {pes}", "{place}",
    ),
    PredictionRecord: (
        *_GRAPH, "prediction for {machine}, {dtype}", *_HOW, "D {dim}",
        "scheme {scheme}, workgroup {workgroup}, network {network}", "{links}",
    ),
    GraphRecord: ("facts of graph {dataset}", "{graph_hash:.12}", ""),
}  # fmt: skip


def _key(record: Origin) -> Key:
    values = dict(record)
    values |= {name: canonical(values[name]) for name in ("options", "links") if name in values}
    if isinstance(record, (Common, LatencyRecord, LookupRecord)):
        values["place"] = repr(environment(record))
    if isinstance(record, TrainRecord):
        values["picked"] = "picked by auto" if record.chosen else "named"
        values |= {"given": canonical(_given(record)), "noted": record.scheme or "not noted"}
    return tuple(part.format_map(values) for part in _KEYS[type(record)])


def _given(record: TrainRecord) -> dict[str, Any]:
    """Return a run's inputs besides its seed; runs of a model with different inputs are kept apart."""
    started = "random" if record.weights is None else record.weights[:12]
    file = {} if record.model_file is None else {"file": record.model_file[:12]}
    return record.settings | {"epochs": record.asked_epochs or record.epochs, "weights": started} | file


def _name(found: dict[type[Origin], list[Any]]) -> Collection:
    records, runs = found[AggregateRecord], found[TrainRecord]
    everything: list[AggregateRecord | TrainRecord] = [*records, *(run for run, _ in runs)]
    places = {environment(record) for record in (*everything, *found[LatencyRecord], *found[LookupRecord])}
    machines = {identity: f"M{number}" for number, identity in enumerate(sorted(places, key=repr), 1)}

    techniques = _Labels()
    models = _Labels()
    for record in everything:
        # One comparison: records that differ only in technique and options (or the model's settings).
        where = (record.graph_hash, record.backend, record.dtype, record.pes, environment(record))
        if isinstance(record, AggregateRecord):
            techniques.add((*where, record.scheme, record.direction, record.dim), record.technique, record.options)
        else:
            # Seeds are excluded, because results are averaged over them; any other difference forbids a mean.
            settings = _given(record)
            given = (record.model, canonical(settings), record.scheme)
            techniques.add((*where, *given), record.technique, record.options)
            models.add((record.graph_hash,), record.model, settings)

    def named(record: Any, *more: Any) -> Named[Any]:
        return Named(record, machines[environment(record)], *more)

    def label(run: TrainRecord) -> str:
        technique = techniques.label(run.technique, run.options)
        return f"{'auto: ' if run.chosen else ''}{technique}{', unfused' if run.side == 'unfused' else ''}"

    return Collection(
        timings=[named(record, techniques.label(record.technique, record.options)) for record in records],
        runs=[named(run, label(run), models.label(run.model, _given(run)), epochs) for run, epochs in runs],
        partitions=found[PartitionRecord],
        latencies=[named(record) for record in found[LatencyRecord]],
        lookups=[named(record) for record in found[LookupRecord]],
        predictions=found[PredictionRecord],
        described=found[GraphRecord],
    )


class _Labels:
    """Short names: a technique's options appear only if one comparison has the technique more than once.

    So options that a tuner sets per job do not split related records.
    """

    def __init__(self) -> None:
        self._cells: dict[tuple[Hashable, ...], dict[str, dict[str, Any]]] = defaultdict(dict)

    def add(self, cell: tuple[Hashable, ...], name: str, options: dict[str, Any]) -> None:
        """Note that the comparison ``cell`` has ``name`` with ``options``."""
        self._cells[(name, *cell)][canonical(options)] = options

    def label(self, name: str, options: dict[str, Any]) -> str:
        """Return ``name``, followed by the options that distinguish it from its namesakes."""
        if name not in self._varying:
            return name
        shown = [f"{key}={options[key]}" for key in self._varying[name] if key in options]
        return f"{name} ({', '.join(shown) or 'no options'})"

    @cached_property
    def _varying(self) -> dict[str, list[str]]:
        """For each name that occurs more than once in a comparison, the options that differ there."""
        found: dict[str, set[str]] = defaultdict(set)
        for (name, *_), namesakes in self._cells.items():
            for key in {key for options in namesakes.values() for key in options}:
                if len({canonical([key in options, options.get(key)]) for options in namesakes.values()}) > 1:
                    found[str(name)].add(key)
        return {name: sorted(keys) for name, keys in found.items()}
