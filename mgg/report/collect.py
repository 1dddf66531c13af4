"""Read the records of a report, refuse what would mislead, and name machines, techniques and models."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from mgg.errors import InputError
from mgg.record import (
    PARTITION_FILE,
    RUN_FILE,
    AggregateRecord,
    Common,
    EpochRecord,
    PartitionRecord,
    PredictionRecord,
    TrainRecord,
    holds_predictions,
    read_lines,
    read_partition,
    read_run,
)

GIB = 2**30

T = TypeVar("T")
Key = tuple[str, ...]
Found = dict[Key, tuple[T, Path]]


@dataclass(frozen=True)
class Timing:
    """An aggregate record with the names that the report gives to its machine and technique."""

    record: AggregateRecord
    machine: str
    label: str


@dataclass(frozen=True)
class Run:
    """A training run with the names that the report gives to its machine, technique and model."""

    record: TrainRecord
    epochs: Sequence[EpochRecord]
    machine: str
    label: str
    model_label: str


@dataclass(frozen=True)
class Collection:
    """Every record of a report once, in an order that does not depend on the order of the files."""

    timings: Sequence[Timing]
    runs: Sequence[Run]
    partitions: Sequence[PartitionRecord]
    predictions: Sequence[PredictionRecord] = ()

    @property
    def entries(self) -> list[Timing | Run]:
        """Timings, then runs."""
        return [*self.timings, *self.runs]


def collect(paths: Iterable[str | Path]) -> Collection:
    """Read aggregate records and predictions (``.jsonl`` files), training runs and partitions (folders).

    A record that is given twice counts once. Two different measurements of the same thing are refused: the records
    hold no date, so neither can be preferred, and both side by side would mislead.

    Raises:
        InputError: names the file, line or field that is wrong, or the two files that contradict each other.
    """
    timings: Found[AggregateRecord] = {}
    runs: Found[tuple[TrainRecord, list[EpochRecord]]] = {}
    partitions: Found[PartitionRecord] = {}
    predictions: Found[PredictionRecord] = {}
    for path in map(Path, paths):
        if (path / PARTITION_FILE).is_file():
            partition = read_partition(path)
            _add(partitions, _partition_key(partition), partition, path)
        elif path.is_dir():
            run = _read_run(path)
            _add(runs, _train_key(run[0]), run, path)
        elif holds_predictions(path):
            for prediction in read_lines(path, PredictionRecord):
                _add(predictions, _prediction_key(prediction), prediction, path)
        else:
            for number, record in enumerate(read_lines(path, AggregateRecord), 1):
                _check_values(record, f"{path}: record {number}")
                _add(timings, _aggregate_key(record), record, path)
    if not (timings or runs or partitions or predictions):
        raise InputError(
            "report: no records given; name .jsonl files of mgg aggregate or mgg predict, run folders of mgg train or"
            " folders of mgg partition"
        )
    named = _name(_in_order(timings), _in_order(runs), _in_order(partitions))
    return replace(named, predictions=_in_order(predictions))


def canonical(values: Any) -> str:
    """JSON with sorted keys: equal values give equal text."""
    return json.dumps(values, sort_keys=True, ensure_ascii=False)


def environment(record: Common) -> tuple[Hashable, ...]:
    """What two records must share for their times to be comparable: hardware, system and software.

    Not part of it are the cores and the number of GPUs, which a scheduler grants job by job on one and the same
    machine.
    """
    machine = record.machine
    memory = round(machine.memory_bytes / GIB)
    versions = canonical(record.versions)
    return (machine.cpu, memory, tuple(sorted(set(machine.gpus))), machine.system, versions)


def _in_order(found: Found[T]) -> list[T]:
    return [found[key][0] for key in sorted(found)]


def _read_run(folder: Path) -> tuple[TrainRecord, list[EpochRecord]]:
    if not (folder / RUN_FILE).is_file():
        raise InputError(
            f"{folder}: holds no {RUN_FILE}; give a run folder of mgg train, a folder of mgg partition or a .jsonl file"
        )
    record, epochs = read_run(folder)
    _check_values(record, str(folder / RUN_FILE))
    return record, epochs


def _check_values(record: AggregateRecord | TrainRecord, where: str) -> None:
    """Refuse times that no clock gives: they would become infinite speedups and false winners."""
    for field in ("q1", "median", "q3"):
        value = getattr(record, field)
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{where}: field {field}: {value} is not a time in seconds; measure it again")
    if not record.q1 <= record.median <= record.q3:
        raise InputError(f"{where}: fields q1, median, q3 are not in ascending order; measure it again")
    if record.pes < 1:
        raise InputError(f"{where}: field pes: {record.pes} is not a number of PEs; measure it again")


def _add(found: Found[T], key: Key, item: T, path: Path) -> None:
    known, first = found.setdefault(key, (item, path))
    # Compared as text: a loss that diverged is NaN, and NaN differs from itself.
    if repr(known) != repr(item):
        files = f"{path}: holds" if first == path else f"{first} and {path}: hold"
        raise InputError(f"{files} two different results of one measurement ({', '.join(key[:-1])}); give only one")


def _common_key(record: Common) -> Key:
    """The end of every key: what was measured, and last the environment, which is too long for a message."""
    where = repr(environment(record))
    return (f"technique {record.technique}", f"options {canonical(record.options)}", f"P {record.pes}", where)


def _aggregate_key(record: AggregateRecord) -> Key:
    what = (f"{record.backend}, {record.dtype}", record.scheme, record.direction, f"D {record.dim}")
    return (f"graph {record.dataset}", record.graph_hash[:12], *what, *_common_key(record))


def _train_key(record: TrainRecord) -> Key:
    chosen = "picked by auto" if record.chosen else "named"
    scheme = f"partition scheme {record.scheme or 'not noted'}"
    run = (f"model {record.model}", canonical(_given(record)), f"seed {record.seed}", record.metric, scheme, chosen)
    what = (f"{record.backend}, {record.dtype}", *run)
    return (f"graph {record.dataset}", record.graph_hash[:12], *what, *_common_key(record))


def _given(record: TrainRecord) -> dict[str, Any]:
    """What a run was given beside its seed: runs of a model that differ here are different ones."""
    started = "random" if record.weights is None else record.weights[:12]
    return record.settings | {"epochs": record.asked_epochs or record.epochs, "weights": started}


def _partition_key(record: PartitionRecord) -> Key:
    what = (f"partition scheme {record.scheme}", f"P {record.pes}", f"workgroup {record.workgroup}")
    return (f"graph {record.name}", record.graph_hash[:12], *what, f"D {record.quality.dim}", "")


def _prediction_key(record: PredictionRecord) -> Key:
    how = (f"technique {record.technique}", f"options {canonical(record.options)}")
    what = (f"prediction for {record.machine}, {record.dtype}", *how, f"P {record.pes}")
    split = f"scheme {record.scheme}, workgroup {record.workgroup}, network {record.network}"
    links = canonical(record.links)
    return (f"graph {record.dataset}", record.graph_hash[:12], *what, f"D {record.dim}", split, links)


def _name(
    records: list[AggregateRecord],
    runs: list[tuple[TrainRecord, list[EpochRecord]]],
    partitions: list[PartitionRecord],
) -> Collection:
    everything: list[AggregateRecord | TrainRecord] = [*records, *(run for run, _ in runs)]
    found = sorted({environment(record) for record in everything}, key=repr)
    machines = {identity: f"M{number}" for number, identity in enumerate(found, 1)}

    techniques = _Labels()
    models = _Labels()
    for record in everything:
        # One comparison: records that differ in nothing but the technique and its options (or the model's settings).
        where = (record.graph_hash, record.backend, record.dtype, record.pes, environment(record))
        if isinstance(record, AggregateRecord):
            techniques.add((*where, record.scheme, record.direction, record.dim), record.technique, record.options)
        else:
            # Seeds are not part of a comparison: what differs beside them is no mean over seeds.
            settings = _given(record)
            given = (record.model, canonical(settings), record.scheme)
            techniques.add((*where, *given), record.technique, record.options)
            models.add((record.graph_hash,), record.model, settings)
    timings = [Timing(r, machines[environment(r)], techniques.label(r.technique, r.options)) for r in records]
    named = [
        Run(
            run,
            epochs,
            machines[environment(run)],
            f"{'auto: ' if run.chosen else ''}{techniques.label(run.technique, run.options)}",
            models.label(run.model, _given(run)),
        )
        for run, epochs in runs
    ]
    return Collection(timings, named, partitions)


class _Labels:
    """Short names: a technique's options are named only where one comparison holds the technique more than once.

    So options that a tuner sets job by job do not tear apart what belongs together.
    """

    def __init__(self) -> None:
        self._cells: dict[tuple[Hashable, ...], dict[str, dict[str, Any]]] = defaultdict(dict)

    def add(self, cell: tuple[Hashable, ...], name: str, options: dict[str, Any]) -> None:
        """Note that the comparison ``cell`` holds ``name`` with ``options``."""
        self._cells[(name, *cell)][canonical(options)] = options

    def label(self, name: str, options: dict[str, Any]) -> str:
        """``name``, followed by the options that tell it from its namesakes."""
        if name not in self._varying:
            return name
        shown = [f"{key}={options[key]}" for key in self._varying[name] if key in options]
        return f"{name} ({', '.join(shown) or 'no options'})"

    @cached_property
    def _varying(self) -> dict[str, list[str]]:
        """For each name that shares a comparison with itself: the options that differ there."""
        found: dict[str, set[str]] = defaultdict(set)
        for (name, *_), namesakes in self._cells.items():
            for key in {key for options in namesakes.values() for key in options}:
                if len({canonical([key in options, options.get(key)]) for options in namesakes.values()}) > 1:
                    found[str(name)].add(key)
        return {name: sorted(keys) for name, keys in found.items()}
