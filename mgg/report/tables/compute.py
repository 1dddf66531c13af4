"""Compute every table of the report as rows, from the records alone."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
from pydantic import BaseModel

from mgg.records import AggregateRecord, Origin, PartitionRecord, TrainRecord
from mgg.records.graph import GraphRecord
from mgg.records.latency import LatencyRecord
from mgg.records.lookup import LookupRecord
from mgg.records.prediction import PredictionRecord
from mgg.report.tables import spread
from mgg.report.tables.collect import GIB, MEASURED, Named, canonical
from mgg.report.tables.columns import TABLES, schema
from mgg.report.tables.numbers import count

Row = dict[str, Any]
Rows = list[Row]
#: Records that tell what a graph is.
_OF_GRAPHS = (AggregateRecord, TrainRecord, PredictionRecord, GraphRecord, PartitionRecord)

#: Columns of a graph; ``graph``, its name on the page, is no column of the tables (``graph_names``).
GRAPH = ("dataset", "graph_hash", "graph")
#: Columns for the conditions of a timing; only rows that share them are compared.
SETTING = ("machine", *GRAPH, "device", "scheme", "direction", "dtype")
COMPARISON = (*SETTING, "dim", "pes")
#: Columns that the training runs of a mean share.
ALIKE = ("machine", *GRAPH, "device", "dtype", "model_label", "label", "scheme", "pes", "metric")
#: Text for a scheme that a record does not name.
NOT_NOTED = "scheme not noted"
#: Ending of a time by the check of its result.
WRONG = {"failed": "; wrong result", "not checked": "; not checked", "passed": ""}
#: Columns for the origin of a row's record or records, and what divides those of several.
_ORIGIN, _BETWEEN = tuple(Origin.model_fields), ", "
#: Parts of an epoch's time.
PHASES = ("aggregate", "dense", "communication", "other")


def compute(found: dict[type[Origin], list[Named]]) -> dict[str, Rows]:
    """Compute sorted rows of the tables made from records alone; those without records are empty.

    Rows have all columns of their table, and may have more.
    """
    runs, splits = list(enumerate(found[TrainRecord], 1)), [each.record for each in found[PartitionRecord]]
    tables = {
        "machines": _machines([each for kind in MEASURED for each in found[kind]]),
        "graphs": _once(_graph(each.record) for kind in _OF_GRAPHS for each in found[kind]),
        "partitions": _once(_partition(each.record) for each in found[AggregateRecord]),
        "quality": list(map(_quality, splits)),
        "halos": _once(row for record in splits for row in _halos(record)),
        "aggregate": [{"timing": number, **_timing(each)} for number, each in enumerate(found[AggregateRecord])],
        "training": [{"run": number, **_training(run)} for number, run in runs],
        "predictions": [_prediction(each.record) for each in found[PredictionRecord]],
        "latencies": list(map(_latency, found[LatencyRecord])),
        "lookups": list(map(_lookup, found[LookupRecord])),
        "described": [noted(each.record, "described") for each in found[GraphRecord]],
        "epochs": [
            {"run": number, **noted(epoch, "epochs"), "epoch_s": epoch.seconds, **origin_of(run.record)}
            for number, run in runs
            for epoch in run.epochs
        ],
    }
    names = graph_names(tables["graphs"])
    for row in (row for rows in tables.values() for row in rows if "graph_hash" in row):
        row["graph"] = names[row["dataset"], row["graph_hash"]]
    _judge(tables["aggregate"])
    tables |= {"fastest": _fastest(tables["aggregate"]), "checks": _checks(tables["aggregate"])}
    tables |= {"accuracy": _accuracy(tables["training"])}
    return {name: rows if name == "machines" else _sorted(rows, name) for name, rows in tables.items()}


def origin_of(record: Origin) -> Row:
    """Return the origin columns of a row made from one record."""
    return {column: getattr(record, column) for column in _ORIGIN}


def joined(rows: Iterable[Row]) -> Row:
    """Return the origin columns of a row made from ``rows``: distinct values in ascending order; the latest time."""
    rows = list(rows)
    found: Row = {}
    for column in _ORIGIN:
        values = {value for row in rows if row[column] for value in row[column].split(_BETWEEN)}
        found[column] = _BETWEEN.join(sorted(values)) or None
    found["recorded_at"] = max(row["recorded_at"] for row in rows)
    return found


def to_arrow(name: str, rows: Rows) -> pa.Table:
    """Convert a table to Arrow with the documented columns and types."""
    return pa.Table.from_pylist(rows, schema=schema(name))


def group(rows: Iterable[Row], *columns: str) -> dict[tuple[Any, ...], Rows]:
    """Group rows by their values of ``columns``, in ascending order."""
    found: dict[tuple[Any, ...], Rows] = defaultdict(list)
    for row in rows:
        found[tuple(row[column] for column in columns)].append(row)
    return {key: found[key] for key in sorted(found)}


def varied(rows: Rows, *columns: str) -> list[str]:
    """Return the ``columns`` with several values in ``rows``."""
    return [column for column in columns if len({row[column] for row in rows}) > 1]


def best(rows: Iterable[Row]) -> Row:
    """Return the fastest row; of equal ones the first by name."""
    return min(rows, key=lambda row: (row["median_s"], row["label"]))


def where(row: Row, *columns: str) -> str:
    """Describe a row by ``columns``: ``cora, 2 PEs, D = 16``; empty values are left out."""
    shown = {"pes": lambda pes: count(pes, "PE"), "dim": "D = {}".format}
    return ", ".join(shown.get(column, str)(row[column]) for column in columns if row[column] not in ("", None))


def graph_names(graphs: Rows) -> dict[tuple[str, str], str]:
    """Return the page's name of each graph by (dataset, graph_hash); the hash separates graphs of equal name."""
    often = Counter(row["dataset"] for row in graphs)
    keys = [(row["dataset"], row["graph_hash"]) for row in graphs]
    return {(name, code): name if often[name] == 1 else f"{name} ({code[:8]})" for name, code in keys}


def options_but(row: Row, ignored: Iterable[str]) -> str:
    """Return the options of a row without those ``ignored``; equal options give equal text."""
    return canonical({key: value for key, value in json.loads(row["options"]).items() if key not in ignored})


def alike(rows: Iterable[Row], ignored: Iterable[str], *columns: str) -> list[Rows]:
    """Group rows by ``columns`` and their options without those ``ignored``, which rows then have as ``others``."""
    ignored = tuple(ignored)
    return list(group([row | {"others": options_but(row, ignored)} for row in rows], *columns, "others").values())


def noted(record: BaseModel, table: str) -> Row:
    """Return the columns of a table that are fields of its record.

    What a field maps becomes JSON with sorted keys; a text that is not known is empty, origins apart.
    """
    found: Row = {}
    for column in TABLES[table]:
        if column.field in type(record).model_fields:
            value = getattr(record, column.field)
            if value is None and column.kind == "text" and column.name not in _ORIGIN:
                value = ""
            found[column.name] = canonical(value) if isinstance(value, dict) else value
    return found


def _sorted(rows: Iterable[Row], table: str) -> Rows:
    """Sort rows by their columns, left to right; empty values first."""
    names = [column.name for column in TABLES[table]]
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in names])


def _once(rows: Iterable[Row]) -> Rows:
    found: dict[str, Rows] = defaultdict(list)
    for row in rows:
        found[canonical({column: value for column, value in row.items() if column not in _ORIGIN})].append(row)
    return [each[0] | joined(each) for each in found.values()]


def _machines(found: list[Named]) -> Rows:
    rows, machines = [], sorted({each.machine for each in found}, key=lambda name: int(name[1:]))
    for machine in machines:
        records = [each.record for each in found if each.machine == machine]
        first, cores = records[0], [record.machine.cores for record in records]
        versions = {name: each for record in records for name, each in record.versions.items()}
        # Of each GPU model the largest number in one job.
        gpus = reduce(or_, (Counter(record.machine.gpus) for record in records))
        rows.append(
            {
                **noted(first.machine, "machines"),
                "machine": machine,
                "cores_min": min(cores),
                "cores_max": max(cores),
                "memory_gib": round(first.machine.memory_bytes / GIB),
                "gpus": ", ".join(f"{number} x {model}" for model, number in sorted(gpus.items())),
                "emulated": getattr(first, "emulated", None) or "",
                "versions": ", ".join(f"{name} {version}" for name, version in sorted(versions.items())),
                "backends": ", ".join(sorted({record.backend for record in records})),
                "timings": sum(isinstance(record, (AggregateRecord, LookupRecord)) for record in records),
                "runs": sum(isinstance(record, TrainRecord) for record in records),
                **joined(map(origin_of, records)),
            }
        )
    return rows


def _graph(record: Any) -> Row:
    split = isinstance(record, PartitionRecord)
    name, arcs = (record.name, _arcs(record)) if split else (record.dataset, record.arcs)
    each = arcs / record.nodes if record.nodes else 0.0
    return noted(record, "graphs") | {"dataset": name, "arcs": arcs, "arcs_per_node": each}


def _arcs(record: PartitionRecord) -> int:
    return sum(record.quality.arcs_per_pe)


def _partition(record: AggregateRecord) -> Row:
    return noted(record, "partitions") | {"edge_cut_share": record.edge_cut / record.arcs if record.arcs else 0.0}


def _quality(record: PartitionRecord) -> Row:
    quality, arcs = record.quality, _arcs(record)
    return {
        **noted(quality, "quality"),
        **noted(record, "quality"),
        "edge_cut_share": quality.edge_cut / arcs if arcs else 0.0,
        "dataset": record.name,
        "halo_rows": sum(quality.halo_rows_per_pe),
        "halo_rows_max": max(quality.halo_rows_per_pe),
        "redundant_cg": 1 - quality.v_fc / quality.v_cg if quality.v_cg else None,
        "redundant_fr": 1 - quality.v_fc / quality.v_fr if quality.v_fr else None,
    }


def _halos(record: PartitionRecord) -> Rows:
    """Return pairs of different PEs; partitions that differ only in workgroup and D have the same halos."""
    return [
        noted(record, "halos") | {"dataset": record.name, "pe": pe, "owner": owner, "rows": many}
        for pe, counts in enumerate(record.quality.halo_rows_per_pair or [])
        for owner, many in enumerate(counts)
        if owner != pe
    ]


def _prediction(record: PredictionRecord) -> Row:
    told = {"model_machine": record.machine, "predicted_s": record.seconds, "overlapped_s": record.hidden}
    return noted(record, "predictions") | told


def _latency(latency: Named) -> Row:
    seconds = latency.record.seconds
    ends = {"low_s": min(seconds), "high_s": max(seconds)}
    return _measured(latency, "latencies") | ends | {"transfers": len(seconds)}


def _measured(named: Named, table: str) -> Row:
    """Return the columns of a table that every measurement has, and those that are fields of its record."""
    record = named.record
    gpus = record.machine.gpus or record.backend == "nvshmem"
    return {
        **noted(record, table),
        "machine": named.machine,
        # PEs as threads with a GPU each (unified memory) compare with ranks with a GPU each.
        "device": "GPUs" if gpus else "CPU ranks" if record.backend == "mpi" else "CPU threads",
        "label": named.label,
        "oversubscribed": record.machine.oversubscribed(record.pes),
    }


def shared(rows: Iterable[Row]) -> str:
    """Return what oversubscribed PEs share (GPUs or cores); empty if no row is oversubscribed."""
    beyond = [row for row in rows if row["oversubscribed"]]
    if not beyond:
        return ""
    return "GPUs" if all(row["device"] == "GPUs" for row in beyond) else "cores"


def _judge(rows: Rows) -> None:
    """Give rows of table aggregate what needs the others: speedup and stars."""
    ones = group(sound(row for row in rows if row["pes"] == 1), *SETTING, "dim")
    for setting, found in group(rows, *SETTING, "dim").items():
        one = min((row["median_s"] for row in ones.get(setting, ())), default=None)
        for row in found:
            row["speedup"] = one / row["median_s"] if one else None
            row["efficiency"] = row["speedup"] / row["pes"] if one else None
    for found in group(sound(rows), *COMPARISON).values():
        if len(found) > 1:
            spread.judge(found)


def sound(rows: Iterable[Row]) -> Rows:
    """Return rows without failed checks: a wrong result never wins and is no baseline."""
    return [row for row in rows if row["check"] != "failed"]


def _timing(timing: Named) -> Row:
    record: AggregateRecord = timing.record
    volumes = {"V_CG": record.v_cg, "V_FR": record.v_fr, "V_FC": record.v_fc} if record.pes > 1 else {}
    longer = max(record.compute, record.transfer) if record.compute and record.transfer else None
    return {
        **_measured(timing, "aggregate"),
        "launches": len(record.launches),
        "iterations": len(record.seconds),
        "fastest": False,
        "close": False,
        "starred": False,
        "bytes_pe_max": max(record.bytes_per_pe, default=0),
        "overlap_ratio": record.median / longer if longer else None,
        "equal_volumes": ", ".join(name for name, volume in volumes.items() if volume == record.bytes_wire),
        "check": _check(record),
    }


def _lookup(lookup: Named) -> Row:
    record: LookupRecord = lookup.record
    means = {f"{name}_mean": getattr(record, name) / record.timed for name in ("bytes_wire", "bytes_ids", "v_fr")}
    return {
        **_measured(lookup, "lookups"),
        **means,
        "launches": len(record.launches),
        "iterations": record.timed,
        "rows_per_s": record.rate,
        "remote_share": record.remote_share,
        "check": _check(record),
    }


def _check(record: AggregateRecord | LookupRecord) -> str:
    if record.error is None or record.tolerance is None:
        return "not checked"
    # The comparison makes a NaN error fail.
    return "passed" if record.error <= record.tolerance else "failed"


def _fastest(aggregate: Rows) -> Rows:
    rows = []
    for found in group(sound(aggregate), *COMPARISON).values():
        if len(found) > 1:
            first, second, *others = sorted(found, key=lambda row: (row["median_s"], row["label"]))
            told = {"runner_up": second["label"], "ratio": second["median_s"] / first["median_s"]}
            why = spread.unstarred(first, [second, *others])
            rows.append(first | told | {"compared": len(found), "unstarred": why} | joined(found))
    return rows


def _checks(aggregate: Rows) -> Rows:
    rows = []
    for found in group(aggregate, "machine", *GRAPH, "device", "dtype", "label").values():
        often = Counter(row["check"] for row in found)
        counts = {"passed": often["passed"], "failed": often["failed"], "unchecked": often["not checked"]}
        checked = [row for row in found if row["check"] != "not checked"]
        # NaN counts as the largest error.
        error = max((row["error"] for row in checked), key=lambda e: (math.isnan(e), e), default=None)
        tolerance = min((row["tolerance"] for row in checked), default=None)
        rows.append(found[0] | counts | {"error": error, "tolerance": tolerance} | joined(found))
    return rows


def _training(run: Named) -> Row:
    record: TrainRecord = run.record
    return {
        **_measured(run, "training"),
        **{f"{p}_s": _known(statistics.median, (getattr(epoch, p) for epoch in run.epochs)) for p in PHASES},
        "model_label": run.model_label,
        "epochs_asked": record.asked_epochs or record.epochs,
        "activations": canonical(record.activations) if record.activations else "",
    }


def _known(statistic: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    """Return a statistic of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return statistic(known) if known else None


def _accuracy(training: Rows) -> Rows:
    rows = []
    for found in group(training, *ALIKE).values():
        of = {column: [row[column] for row in found] for column in found[0]}
        test = of["test_accuracy"]
        told = {
            "seeds": len(found),
            "test_mean": statistics.fmean(test),
            "test_deviation": statistics.stdev(test) if len(test) > 1 else None,
            "test_min": min(test),
            "test_max": max(test),
            "validation_mean": _known(statistics.fmean, of["validation_accuracy"]),
            "train_mean": statistics.fmean(of["train_accuracy"]),
            "epoch_s": statistics.median(of["median_s"]),
            "bytes_wire": max(of["bytes_wire"]),
            "gpu_memory_bytes": _known(max, of["gpu_memory_bytes"]),
            "oversubscribed": any(of["oversubscribed"]),
        }
        rows.append(found[0] | told | joined(found))
    return rows
