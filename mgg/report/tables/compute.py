"""Compute every table of the report as rows, from the records alone."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from pydantic import BaseModel

from mgg.latency_record import LatencyRecord
from mgg.lookup_record import LookupRecord
from mgg.record import AggregateRecord, Common, Origin, PartitionRecord, PredictionRecord, TrainRecord
from mgg.report.tables import spread
from mgg.report.tables.collect import GIB, Collection, Named, canonical
from mgg.report.tables.columns import TABLES, schema
from mgg.report.tables.numbers import count, listing

Row = dict[str, Any]
Rows = list[Row]
Measured = Common | LatencyRecord | LookupRecord

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
#: Endings of columns that the fields of records lack, by unit.
_ENDINGS = {"seconds": "_s", "bytes": "_bytes"}
#: Parts of an epoch's time.
PHASES = ("aggregate", "dense", "communication", "other")


def compute(collection: Collection) -> dict[str, Rows]:
    """Compute sorted rows of the tables made from records alone; those without records are empty."""
    graphs = _graphs(collection)
    found = {
        "machines": _machines(collection),
        "graphs": graphs,
        "partitions": _partitions(collection.timings),
        "quality": _sorted(map(_quality, collection.partitions), "quality"),
        "halos": _halos(collection.partitions),
        "aggregate": [_timing(timing) for timing in collection.timings],
        "training": [_training(number, run) for number, run in enumerate(collection.runs, 1)],
        "predictions": _sorted(map(_prediction, collection.predictions), "predictions"),
        "latencies": _sorted(map(_latency, collection.latencies), "latencies"),
        "lookups": _sorted(map(_lookup, collection.lookups), "lookups"),
        "described": _sorted(
            (noted(each, "described") | {"rabbit_s": each.rabbit_seconds} for each in collection.described), "described"
        ),
        "epochs": [
            {"run": number, **noted(epoch, "epochs"), "epoch_s": epoch.seconds, **origin_of(run.record)}
            for number, run in enumerate(collection.runs, 1)
            for epoch in run.epochs
        ],
    }
    names = graph_names(graphs)
    for row in (row for rows in found.values() for row in rows if "graph_hash" in row):
        row["graph"] = names[row["dataset"], row["graph_hash"]]
    aggregate = found["aggregate"] = _judged(found["aggregate"])
    accuracy = _accuracy(found["training"])
    return found | {"fastest": _fastest(aggregate), "checks": _checks(aggregate), "accuracy": accuracy}


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


def listed(rows: Iterable[Row], column: str, limit: int = 6) -> str:
    """List the distinct values of a column in ascending order; beyond ``limit`` the rest is counted."""
    return listing([str(value) for value in sorted({row[column] for row in rows})], limit)


def graph_names(graphs: Rows) -> dict[tuple[str, str], str]:
    """Return the page's name of each graph by (dataset, graph_hash); the hash separates graphs of equal name."""
    often = Counter(row["dataset"] for row in graphs)
    return {
        (name, code): name if often[name] == 1 else f"{name} ({code[:8]})"
        for name, code in ((row["dataset"], row["graph_hash"]) for row in graphs)
    }


def options_but(row: Row, ignored: Iterable[str]) -> str:
    """Return the options of a row without those ``ignored``; equal options give equal text."""
    return canonical({key: value for key, value in json.loads(row["options"]).items() if key not in ignored})


def noted(record: BaseModel, table: str) -> Row:
    """Return the columns of a table that are fields of its record, whose names may lack the unit."""
    fields = type(record).model_fields
    found = {
        column.name: column.name if column.name in fields else column.name.removesuffix(_ENDINGS.get(column.unit, ""))
        for column in TABLES[table]
    }
    return {name: getattr(record, field) for name, field in found.items() if field in fields}


def _sorted(rows: Iterable[Row], table: str) -> Rows:
    """Sort rows by their columns, left to right; empty values first."""
    names = [column.name for column in TABLES[table]]
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in names])


def _once(rows: Iterable[Row], table: str) -> Rows:
    found: dict[str, Rows] = defaultdict(list)
    for row in rows:
        found[canonical({column: value for column, value in row.items() if column not in _ORIGIN})].append(row)
    return _sorted((each[0] | joined(each) for each in found.values()), table)


def _machines(collection: Collection) -> Rows:
    rows = []
    everything: list[Named[Any]] = [*collection.timings, *collection.runs, *collection.latencies, *collection.lookups]
    for name in {entry.machine for entry in everything}:
        records: list[Measured] = [entry.record for entry in everything if entry.machine == name]
        first, versions = records[0], {name: each for record in records for name, each in record.versions.items()}
        rows.append(
            {
                "machine": name,
                "cpu": first.machine.cpu,
                "cores_min": min(record.machine.cores for record in records),
                "cores_max": max(record.machine.cores for record in records),
                "threads": first.machine.threads,
                "memory_gib": round(first.machine.memory_bytes / GIB),
                "gpus": _gpus(records),
                "system": first.machine.system,
                "place": first.machine.place or "",
                "emulated": getattr(first, "emulated", None) or "",
                "versions": ", ".join(f"{name} {version}" for name, version in sorted(versions.items())),
                "backends": ", ".join(sorted({record.backend for record in records})),
                "timings": sum(isinstance(record, (AggregateRecord, LookupRecord)) for record in records),
                "runs": sum(isinstance(record, TrainRecord) for record in records),
                **joined(map(origin_of, records)),
            }
        )
    return sorted(rows, key=lambda row: int(row["machine"][1:]))


def _gpus(records: Iterable[Measured]) -> str:
    """List each GPU model with the largest number in one job."""
    most: Counter[str] = Counter()
    for record in records:
        most |= Counter(record.machine.gpus)
    return ", ".join(f"{number} x {model}" for model, number in sorted(most.items()))


def _graphs(collection: Collection) -> Rows:
    timed: list[Named[Any]] = [*collection.timings, *collection.runs]
    records = [*(each.record for each in timed), *collection.predictions, *collection.described]
    found = [(each, each.dataset, each.arcs) for each in records]
    found += [(each, each.name, _arcs(each)) for each in collection.partitions]
    rows = [
        noted(record, "graphs")
        | {"dataset": name, "arcs": arcs, "arcs_per_node": arcs / record.nodes if record.nodes else 0.0}
        for record, name, arcs in found
    ]
    return _once(rows, "graphs")


def _arcs(record: PartitionRecord) -> int:
    return sum(record.quality.arcs_per_pe)


def _partitions(timings: Iterable[Named[AggregateRecord]]) -> Rows:
    rows = (
        noted(record, "partitions") | {"edge_cut_share": record.edge_cut / record.arcs if record.arcs else 0.0}
        for record in (timing.record for timing in timings)
    )
    return _once(rows, "partitions")


def _quality(record: PartitionRecord) -> Row:
    quality, arcs = record.quality, _arcs(record)
    return {
        **noted(quality, "quality"),
        **noted(record, "quality"),
        "dataset": record.name,
        "edge_cut_share": quality.edge_cut / arcs if arcs else 0.0,
        "halo_rows": sum(quality.halo_rows_per_pe),
        "halo_rows_max": max(quality.halo_rows_per_pe),
        "redundant_cg": 1 - quality.v_fc / quality.v_cg if quality.v_cg else None,
        "redundant_fr": 1 - quality.v_fc / quality.v_fr if quality.v_fr else None,
    }


def _halos(partitions: Iterable[PartitionRecord]) -> Rows:
    """Return pairs of different PEs; partitions that differ only in workgroup and D have the same halos."""
    rows = [
        noted(record, "halos") | {"dataset": record.name, "pe": pe, "owner": owner, "rows": many}
        for record in partitions
        for pe, counts in enumerate(record.quality.halo_rows_per_pair or [])
        for owner, many in enumerate(counts)
        if owner != pe
    ]
    return _once(rows, "halos")


def _prediction(record: PredictionRecord) -> Row:
    told = {"options": canonical(record.options), "links": canonical(record.links), "model_machine": record.machine}
    return noted(record, "predictions") | told | {"predicted_s": record.seconds, "overlapped_s": record.hidden}


def _latency(latency: Named[LatencyRecord]) -> Row:
    record = latency.record
    return {
        **_measured(latency, "latencies"),
        "transfers": len(record.seconds),
        "low_s": min(record.seconds),
        "high_s": max(record.seconds),
    }


def _measured(named: Named[Any], table: str) -> Row:
    """Return the columns of a table that every measurement has, and those that are fields of its record."""
    record = named.record
    options = {name: canonical(getattr(record, name)) for name in ("options", "defaults") if hasattr(record, name)}
    return {
        **noted(record, table),
        **options,
        "machine": named.machine,
        "device": _device(record),
        "label": named.label,
        "oversubscribed": record.machine.oversubscribed(record.pes),
    }


def _device(record: Measured) -> str:
    """Return the kind of device. PEs as threads with a GPU each (unified memory) compare with ranks with a GPU each."""
    if record.machine.gpus or record.backend == "nvshmem":
        return "GPUs"
    return "CPU ranks" if record.backend == "mpi" else "CPU threads"


def shared(rows: Iterable[Row]) -> str:
    """Return what oversubscribed PEs share (GPUs or cores); empty if no row is oversubscribed."""
    beyond = [row for row in rows if row["oversubscribed"]]
    if not beyond:
        return ""
    return "GPUs" if all(row["device"] == "GPUs" for row in beyond) else "cores"


def _judged(rows: Rows) -> Rows:
    """Return the rows of table aggregate, sorted, with what needs the others: speedup and stars."""
    baseline = {
        key: min(row["median_s"] for row in found)
        for key, found in group(sound(row for row in rows if row["pes"] == 1), *SETTING, "dim").items()
    }
    for row in rows:
        one = baseline.get(tuple(row[column] for column in (*SETTING, "dim")))
        row["speedup"] = one / row["median_s"] if one else None
        row["efficiency"] = row["speedup"] / row["pes"] if one else None
    for found in group(sound(rows), *COMPARISON).values():
        if len(found) > 1:
            spread.judge(found)
    return _sorted(rows, "aggregate")


def sound(rows: Iterable[Row]) -> Rows:
    """Return rows without failed checks: a wrong result never wins and is no baseline."""
    return [row for row in rows if row["check"] != "failed"]


def _timing(timing: Named[AggregateRecord]) -> Row:
    record = timing.record
    return {
        **_measured(timing, "aggregate"),
        "decided": canonical(record.decided) if record.decided else "",
        "faults_untold": record.faults_untold or "",
        "profile_untold": record.profile_untold or "",
        "launches": len(record.launches),
        "iterations": len(record.seconds),
        "fastest": False,
        "close": False,
        "starred": False,
        "bytes_pe_max": max(record.bytes_per_pe, default=0),
        "fault_s": record.fault_seconds,
        "overlap_ratio": record.median / max(record.compute, record.transfer)
        if record.compute and record.transfer
        else None,
        "equal_volumes": _equal_volumes(record),
        "check": _check(record),
    }


def _lookup(lookup: Named[LookupRecord]) -> Row:
    record = lookup.record
    return {
        **_measured(lookup, "lookups"),
        "launches": len(record.launches),
        "iterations": record.timed,
        "rows_per_s": record.rate,
        "remote_share": record.remote_share,
        "bytes_wire_mean": record.bytes_wire / record.timed,
        "bytes_ids_mean": record.bytes_ids / record.timed,
        "v_fr_mean": record.v_fr / record.timed,
        "check": _check(record),
    }


def _equal_volumes(record: AggregateRecord) -> str:
    if record.pes == 1:
        return ""
    volumes = {"V_CG": record.v_cg, "V_FR": record.v_fr, "V_FC": record.v_fc}
    return ", ".join(name for name, volume in volumes.items() if volume == record.bytes_wire)


def _check(record: AggregateRecord | LookupRecord) -> str:
    if record.error is None or record.tolerance is None:
        return "not checked"
    # The comparison makes a NaN error fail.
    return "passed" if record.error <= record.tolerance else "failed"


def _fastest(aggregate: Rows) -> Rows:
    rows = []
    for found in group(sound(aggregate), *COMPARISON).values():
        if len(found) < 2:
            continue
        first, second, *others = sorted(found, key=lambda row: (row["median_s"], row["label"]))
        kept = {column: first[column] for column in (*COMPARISON, "label", "median_s", "oversubscribed")}
        ratio = second["median_s"] / first["median_s"]
        why = spread.unstarred(first, [second, *others])
        told = {"runner_up": second["label"], "ratio": ratio, "close": first["close"], "unstarred": why}
        rows.append(kept | {"compared": len(found)} | told | joined(found))
    return _sorted(rows, "fastest")


def _checks(aggregate: Rows) -> Rows:
    columns = ("machine", *GRAPH, "device", "dtype", "label")
    rows = []
    for found in group(aggregate, *columns).values():
        often = Counter(row["check"] for row in found)
        checked = [row for row in found if row["check"] != "not checked"]
        # NaN counts as the largest error.
        worst = max((row["error"] for row in checked), key=lambda e: (math.isnan(e), e), default=None)
        rows.append(
            {
                **{column: found[0][column] for column in columns},
                "passed": often["passed"],
                "failed": often["failed"],
                "unchecked": often["not checked"],
                "error": worst,
                "tolerance": min((row["tolerance"] for row in checked), default=None),
                **joined(found),
            }
        )
    return rows


def _training(number: int, run: Named[TrainRecord]) -> Row:
    record = run.record
    return {
        "run": number,
        **_measured(run, "training"),
        "model_label": run.model_label,
        "settings": canonical(record.settings),
        "weights": record.weights or "",
        "epochs_asked": record.asked_epochs or record.epochs,
        "scheme": record.scheme or "",
        **{f"{p}_s": _known(statistics.median, (getattr(epoch, p) for epoch in run.epochs)) for p in PHASES},
        "activations": canonical(record.activations) if record.activations else "",
    }


def _known(statistic: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    """Return a statistic of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return statistic(known) if known else None


def _accuracy(training: Rows) -> Rows:
    rows = []
    for found in group(training, *ALIKE).values():
        test = [row["test_accuracy"] for row in found]
        rows.append(
            {
                **{column: found[0][column] for column in ALIKE},
                "seeds": len(found),
                "test_mean": statistics.fmean(test),
                "test_deviation": statistics.stdev(test) if len(test) > 1 else None,
                "test_min": min(test),
                "test_max": max(test),
                "validation_mean": _known(statistics.fmean, (row["validation_accuracy"] for row in found)),
                "train_mean": statistics.fmean(row["train_accuracy"] for row in found),
                "epoch_s": statistics.median(row["median_s"] for row in found),
                "bytes_wire": max(row["bytes_wire"] for row in found),
                "gpu_memory_bytes": _known(max, (row["gpu_memory_bytes"] for row in found)),
                "oversubscribed": any(row["oversubscribed"] for row in found),
                **joined(found),
            }
        )
    return rows
