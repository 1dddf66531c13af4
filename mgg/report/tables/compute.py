"""Compute every table of the report as rows, from the records alone."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from mgg.latency_record import LatencyRecord
from mgg.lookup_record import LookupRecord
from mgg.record import AggregateRecord, Common, PartitionRecord, PredictionRecord
from mgg.report.tables import spread
from mgg.report.tables.collect import GIB, Collection, Latency, Lookup, Run, Timing, canonical
from mgg.report.tables.columns import TABLES, schema
from mgg.report.tables.origins import joined, origin_of, without

Row = dict[str, Any]
Rows = list[Row]

#: Columns for the conditions of a timing; only rows that share them are compared.
SETTING = ("machine", "dataset", "graph_hash", "device", "scheme", "direction", "dtype")
COMPARISON = (*SETTING, "dim", "pes")
#: Text for a scheme that a record does not name.
NOT_NOTED = "scheme not noted"
#: Fields that identify a record's kind.
_KINDS = {"kind", "schema_version"}
#: Parts of an epoch's time.
PHASES = ("aggregate", "dense", "communication", "other")


def compute(collection: Collection) -> dict[str, Rows]:
    """Compute sorted rows of every table in ``columns.TABLES`` but choices, figures, knobs; empty without records."""
    aggregate = _aggregate(collection.timings)
    training = [_training(number, run) for number, run in enumerate(collection.runs, 1)]
    return {
        "machines": _machines(collection),
        "graphs": _graphs(collection),
        "partitions": _partitions(collection.timings),
        "quality": _sorted((_quality(record) for record in collection.partitions), "quality"),
        "halos": _halos(collection.partitions),
        "aggregate": aggregate,
        "fastest": _fastest(aggregate),
        "checks": _checks(aggregate),
        "training": training,
        "accuracy": _accuracy(training),
        "predictions": _predictions(collection.predictions),
        "latencies": _latencies(collection.latencies),
        "lookups": _sorted(map(_lookup, collection.lookups), "lookups"),
        "described": _sorted((record.model_dump(exclude=_KINDS) for record in collection.described), "described"),
        "epochs": [
            {"run": number, **epoch.model_dump(), **origin_of(run.record)}
            for number, run in enumerate(collection.runs, 1)
            for epoch in run.epochs
        ],
    }


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


def graph_names(graphs: Rows) -> dict[tuple[str, str], str]:
    """Return the page's name of each graph by (dataset, graph_hash); the hash separates graphs of equal name."""
    often = Counter(row["dataset"] for row in graphs)
    return {
        (name, code): name if often[name] == 1 else f"{name} ({code[:8]})"
        for name, code in ((row["dataset"], row["graph_hash"]) for row in graphs)
    }


def _sorted(rows: Iterable[Row], table: str) -> Rows:
    """Sort rows by their columns, left to right; empty values first."""
    names = [column.name for column in TABLES[table]]
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in names])


def _once(rows: Iterable[Row], table: str) -> Rows:
    found: dict[str, Rows] = defaultdict(list)
    for row in rows:
        found[canonical(without(row))].append(row)
    return _sorted((each[0] | joined(each) for each in found.values()), table)


def _machines(collection: Collection) -> Rows:
    rows = []
    everything = [*collection.entries, *collection.latencies, *collection.lookups]
    for name in {entry.machine for entry in everything}:
        entries = [entry for entry in everything if entry.machine == name]
        records: list[Common | LatencyRecord | LookupRecord] = [entry.record for entry in entries]
        first, versions = records[0], {name: each for record in records for name, each in record.versions.items()}
        rows.append(
            {
                "machine": name,
                "cpu": first.machine.cpu,
                "cores_min": min(record.machine.cores for record in records),
                "cores_max": max(record.machine.cores for record in records),
                "threads": first.machine.threads,
                "memory": round(first.machine.memory_bytes / GIB),
                "gpus": _gpus(records),
                "system": first.machine.system,
                "place": first.machine.place or "",
                "emulated": getattr(first, "emulated", None) or "",
                "versions": ", ".join(f"{name} {version}" for name, version in sorted(versions.items())),
                "backends": ", ".join(sorted({record.backend for record in records})),
                "timings": sum(isinstance(entry, (Timing, Lookup)) for entry in entries),
                "runs": sum(isinstance(entry, Run) for entry in entries),
                **joined(map(origin_of, records)),
            }
        )
    return sorted(rows, key=lambda row: int(row["machine"][1:]))


def _gpus(records: Iterable[Common | LatencyRecord | LookupRecord]) -> str:
    """List each GPU model with the largest number in one job."""
    most: Counter[str] = Counter()
    for record in records:
        most |= Counter(record.machine.gpus)
    return ", ".join(f"{count} x {model}" for model, count in sorted(most.items()))


def _graphs(collection: Collection) -> Rows:
    rows = []
    for entry in collection.entries:
        record = entry.record
        share = record.arcs / record.nodes if record.nodes else 0.0
        rows.append({**_graph(record), "nodes": record.nodes, "arcs": record.arcs, "arcs_per_node": share})
    for partition in collection.partitions:
        nodes, arcs = partition.nodes, sum(partition.quality.arcs_per_pe)
        share = arcs / nodes if nodes else 0.0
        rows.append({**_split_graph(partition), "nodes": nodes, "arcs": arcs, "arcs_per_node": share})
    for prediction in collection.predictions:
        facts = prediction.model_dump(include={"dataset", "graph_hash", "nodes", "arcs"})
        share = facts["arcs"] / facts["nodes"] if facts["nodes"] else 0.0
        rows.append(facts | {"arcs_per_node": share} | origin_of(prediction))
    for graph in collection.described:
        facts = graph.model_dump(include={"dataset", "graph_hash", "nodes", "arcs"})
        rows.append(facts | {"arcs_per_node": graph.arcs / graph.nodes} | origin_of(graph))
    return _once(rows, "graphs")


def _graph(record: Common) -> Row:
    return {"dataset": record.dataset, "graph_hash": record.graph_hash, **origin_of(record)}


def _partitions(timings: Iterable[Timing]) -> Rows:
    rows = []
    for timing in timings:
        record = timing.record
        rows.append(
            {
                **_graph(record),
                "scheme": record.scheme,
                "direction": record.direction,
                "pes": record.pes,
                "imbalance": record.imbalance,
                "edge_cut": record.edge_cut,
                "edge_cut_share": record.edge_cut / record.arcs if record.arcs else 0.0,
                "halo_rows": record.halo_rows,
            }
        )
    return _once(rows, "partitions")


def _split_graph(record: PartitionRecord) -> Row:
    return {"dataset": record.name, "graph_hash": record.graph_hash, **origin_of(record)}


def _quality(record: PartitionRecord) -> Row:
    quality = record.quality
    arcs = sum(quality.arcs_per_pe)
    needed = quality.v_fc
    return {
        **_split_graph(record),
        **quality.model_dump(include={column.name for column in TABLES["quality"]}),
        "scheme": record.scheme,
        "pes": record.pes,
        "workgroup": record.workgroup,
        "edge_cut_share": quality.edge_cut / arcs if arcs else 0.0,
        "halo_rows": sum(quality.halo_rows_per_pe),
        "halo_rows_max": max(quality.halo_rows_per_pe),
        "redundant_cg": 1 - needed / quality.v_cg if quality.v_cg else None,
        "redundant_fr": 1 - needed / quality.v_fr if quality.v_fr else None,
    }


def _halos(partitions: Iterable[PartitionRecord]) -> Rows:
    """Return pairs of different PEs; partitions that differ only in workgroup and D have the same halos."""
    rows = [
        {**_split_graph(record), "scheme": record.scheme, "pes": record.pes, "pe": pe, "owner": owner, "rows": count}
        for record in partitions
        for pe, counts in enumerate(record.quality.halo_rows_per_pair or [])
        for owner, count in enumerate(counts)
        if owner != pe
    ]
    return _once(rows, "halos")


def _predictions(records: Iterable[PredictionRecord]) -> Rows:
    names = {column.name for column in TABLES["predictions"]}
    rows = [
        record.model_dump(include=names)
        | {
            "model_machine": record.machine,
            "options": canonical(record.options),
            "links": canonical(record.links),
        }
        for record in records
    ]
    return _sorted(rows, "predictions")


def _latencies(latencies: Iterable[Latency]) -> Rows:
    rows = [
        each.record.model_dump(include={column.name for column in TABLES["latencies"]})
        | {
            "machine": each.machine,
            "device": _device(each.record),
            "transfers": len(each.record.seconds),
            "low": min(each.record.seconds),
            "high": max(each.record.seconds),
            "oversubscribed": each.record.machine.oversubscribed(each.record.pes),
        }
        for each in latencies
    ]
    return _sorted(rows, "latencies")


def _device(record: Common | LatencyRecord | LookupRecord) -> str:
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


def _aggregate(timings: Iterable[Timing]) -> Rows:
    rows = [_timing(timing) for timing in timings]
    baseline = {
        key: min(row["median"] for row in found)
        for key, found in group(sound(row for row in rows if row["pes"] == 1), *SETTING, "dim").items()
    }
    for row in rows:
        one = baseline.get(tuple(row[column] for column in (*SETTING, "dim")))
        row["speedup"] = one / row["median"] if one else None
        row["efficiency"] = row["speedup"] / row["pes"] if one else None
    for found in group(sound(rows), *COMPARISON).values():
        if len(found) > 1:
            spread.judge(found)
    return _sorted(rows, "aggregate")


def sound(rows: Iterable[Row]) -> Rows:
    """Return rows without failed checks: a wrong result never wins and is no baseline."""
    return [row for row in rows if row["check"] != "failed"]


def _timing(timing: Timing) -> Row:
    record = timing.record
    return {
        **record.model_dump(include={column.name for column in TABLES["aggregate"]}),
        "machine": timing.machine,
        "device": _device(record),
        "label": timing.label,
        "options": canonical(record.options),
        "defaults": canonical(record.defaults),
        "decided": canonical(record.decided) if record.decided else "",
        "faults_untold": record.faults_untold or "",
        "profile_untold": record.profile_untold or "",
        "launches": len(record.launches),
        "iterations": len(record.seconds),
        "fastest": False,
        "close": False,
        "starred": False,
        "oversubscribed": record.machine.oversubscribed(record.pes),
        "bytes_pe_max": max(record.bytes_per_pe, default=0),
        "hidden": record.median / max(record.compute, record.transfer) if record.compute and record.transfer else None,
        "equals": _equals(record),
        "check": _check(record),
    }


def _lookup(lookup: Lookup) -> Row:
    record = lookup.record
    return {
        **record.model_dump(include={column.name for column in TABLES["lookups"]}),
        "machine": lookup.machine,
        "device": _device(record),
        "launches": len(record.launches),
        "iterations": record.timed,
        "rate": record.rate,
        "remote_share": record.remote_share,
        "bytes_wire": record.bytes_wire / record.timed,
        "bytes_ids": record.bytes_ids / record.timed,
        "v_fr": record.v_fr / record.timed,
        "oversubscribed": record.machine.oversubscribed(record.pes),
        "check": _check(record),
    }


def _equals(record: AggregateRecord) -> str:
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
        first, second, *others = sorted(found, key=lambda row: (row["median"], row["label"]))
        kept = {column: first[column] for column in (*COMPARISON, "label", "median", "oversubscribed")}
        ratio = second["median"] / first["median"]
        why = spread.unstarred(first, [second, *others])
        told = {"runner_up": second["label"], "ratio": ratio, "close": first["close"], "unstarred": why}
        rows.append(kept | {"compared": len(found)} | told | joined(found))
    return _sorted(rows, "fastest")


def _checks(aggregate: Rows) -> Rows:
    columns = ("machine", "dataset", "graph_hash", "device", "dtype", "label")
    rows = []
    for key, found in group(aggregate, *columns).items():
        count = Counter(row["check"] for row in found)
        checked = [row for row in found if row["check"] != "not checked"]
        # NaN counts as the largest error.
        worst = max((row["error"] for row in checked), key=lambda e: (math.isnan(e), e), default=None)
        rows.append(
            {
                **dict(zip(columns, key, strict=True)),
                "passed": count["passed"],
                "failed": count["failed"],
                "unchecked": count["not checked"],
                "error": worst,
                "tolerance": min((row["tolerance"] for row in checked), default=None),
                **joined(found),
            }
        )
    return rows


def _training(number: int, run: Run) -> Row:
    record = run.record
    return {
        "run": number,
        **record.model_dump(include={column.name for column in TABLES["training"]}),
        "machine": run.machine,
        "device": _device(record),
        "model_label": run.model_label,
        "label": run.label,
        "settings": canonical(record.settings),
        "weights": record.weights or "",
        "asked_epochs": record.asked_epochs or record.epochs,
        "scheme": record.scheme or "",
        **{phase: _median(getattr(epoch, phase) for epoch in run.epochs) for phase in PHASES},
        "options": canonical(record.options),
        "activations": canonical(record.activations) if record.activations else "",
        "oversubscribed": record.machine.oversubscribed(record.pes),
    }


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _accuracy(training: Rows) -> Rows:
    columns = ("machine", "dataset", "graph_hash", "device", "dtype", "model_label", "label", "scheme", "pes", "metric")
    rows = []
    for key, found in group(training, *columns).items():
        test = _values(found, "test_accuracy")
        rows.append(
            {
                **dict(zip(columns, key, strict=True)),
                "seeds": len(found),
                "test_mean": statistics.fmean(test),
                "test_deviation": statistics.stdev(test) if len(test) > 1 else None,
                "test_min": min(test),
                "test_max": max(test),
                "validation_mean": _mean(_values(found, "validation_accuracy")),
                "train_mean": statistics.fmean(_values(found, "train_accuracy")),
                "epoch": statistics.median(_values(found, "median")),
                "bytes_wire": max(row["bytes_wire"] for row in found),
                "gpu_memory": max((row["gpu_memory"] for row in found if row["gpu_memory"] is not None), default=None),
                "oversubscribed": any(row["oversubscribed"] for row in found),
                **joined(found),
            }
        )
    return rows


def _values(rows: Sequence[Row], column: str) -> list[float]:
    return [row[column] for row in rows]
