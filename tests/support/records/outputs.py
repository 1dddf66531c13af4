"""A small output of each kind that MGG reads back, functions that read it, and random changes of bytes and lines."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from pydantic import BaseModel

from mgg import layout, partition
from mgg.aggregate import parse_options
from mgg.aggregate.job import AggregateJob
from mgg.aggregate.measure import TimingProtocol
from mgg.aggregate.predict import Question, predict
from mgg.cost import machines
from mgg.graph.build import gather, scatter, shard
from mgg.graph.retrieve import retrieve
from mgg.graph.source_description import check_files, description
from mgg.graph.store import Graph
from mgg.kernel import compile as kernels
from mgg.origin import origin
from mgg.records import RUN_FILE, AggregateRecord, EpochRecord, add_lines, read_lines, run_file, write_lines
from mgg.records.job import JobRecord
from mgg.report.tables.collect import collect
from mgg.report.tables.jobs import read_jobs
from mgg.train.evaluate import evaluate
from mgg.train.run.checkpoint import Checkpoint, Checkpoints, History, read_weights
from mgg.train.run.identity import Identity
from mgg.train.run.output import PREDICTIONS_FILE, WEIGHTS_FILE
from support.graphs import make_layout, planted
from support.programs.train_program import run

MATRIX = "%%MatrixMarket matrix coordinate real general\n6 6 8\n" + "".join(
    f"{row} {column} {weight}\n"
    for row, column, weight in (
        (1, 2, 0.5), (2, 1, 1.5), (3, 6, 2), (4, 5, 0.25), (5, 1, 1), (6, 2, 3), (6, 3, 4), (1, 6, 5),
    )
)  # fmt: skip


class Kind(NamedTuple):
    """An output: its files, and a function that reads everything that any command uses of it."""

    name: str
    files: list[Path]
    read: Callable[[], Any]


def make(folder: Path) -> list[Kind]:
    """One of each kind below ``folder``."""
    csr, data = planted()
    layout_folder = make_layout(folder, csr, 2, scheme="metis", **data)
    out = folder / "records"
    retrieve("digits", out / "raw")
    timing = TimingProtocol("forward", 0, 2, check=True)
    job = AggregateJob(layout_folder, "simulated", [4], ["fp32"], timing, False, out / "aggregate.jsonl")
    job.run([("halo", parse_options("halo", {})), ("mgg", parse_options("mgg", {}))])
    predictions = predict([layout_folder], machines.H200, Question(["halo", "mgg"], [4]))
    add_lines(out / "predict.jsonl", predictions, replace=True)
    machines.write(out / "links.json", machines.H200)
    jobs = [JobRecord(stage="layout", rule="layout", wildcards={"pes": str(pes)}, seconds=pes, ended=9e8, **origin())
            for pes in (1, 2)]  # fmt: skip
    write_lines(out / "jobs.jsonl", jobs)
    settings = {"hidden": 4}
    run("simulated", layout_folder, 2, model="gcn", technique="halo", epochs=3, settings=settings, out=out / "run")
    weights = read_weights(out / "run", "gcn")
    epoch = EpochRecord(epoch=1, loss=0.5, train_accuracy=1, test_accuracy=1, seconds=1)
    checkpoints = _checkpoints(out / "checkpoint")
    checkpoints.save(Checkpoint(History(epochs=[epoch], best_epoch=1, best_loss=0.5), {"weights": weights}))
    checkpoints.wait()
    (out / "graph.mtx").write_text(MATRIX)
    scatter(out / "graph.mtx", out / "buckets")
    shard(out / "buckets", out / "shards", number=1, of=1)
    run_folder = out / "run"
    _cubin(out)
    return [
        Kind("raw data", [out / "raw" / "source.yaml"], lambda: _raw(out / "raw")),
        Kind("buckets and shards", [*_files(out / "buckets"), *_files(out / "shards")], lambda: _gathered(out)),
        Kind("graph", _files(folder / "graph"), lambda: _graph(folder / "graph")),
        Kind("partition", _files(folder / "partition-2"), lambda: _partition(folder / "partition-2")),
        Kind("layout", _files(layout_folder), lambda: [layout.load(layout_folder, pe) for pe in range(2)]),
        Kind("timings", [out / "aggregate.jsonl"], lambda: collect([out / "aggregate.jsonl"])),
        Kind("timings to add to", [out / "aggregate.jsonl"],
             lambda: read_lines(out / "aggregate.jsonl", AggregateRecord)),
        Kind("predictions", [out / "predict.jsonl"], lambda: collect([out / "predict.jsonl"])),
        Kind("machine", [out / "links.json"], lambda: machines.find(str(out / "links.json"))),
        Kind("jobs", [out / "jobs.jsonl"], lambda: read_jobs(out / "jobs.jsonl")),
        Kind("run", [run_folder / RUN_FILE, run_folder / "metrics.jsonl"], lambda: collect([run_folder])),
        Kind("scores", [run_folder / RUN_FILE, run_folder / PREDICTIONS_FILE], lambda: evaluate(run_folder)),
        Kind("metrics", [run_folder / "metrics.parquet"], lambda: run_file(run_folder, "metrics.parquet").read_bytes()),
        Kind("checkpoint", _files(out / "checkpoint"), lambda: _checkpoints(out / "checkpoint").load()),
        Kind("kernel", [path for path in _files(out / "cache") if path.suffix != ".lock"], lambda: _cubin(out)),
        Kind("weights", [run_folder / WEIGHTS_FILE], lambda: read_weights(run_folder, "gcn")),
    ]  # fmt: skip


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def _checkpoints(folder: Path) -> Checkpoints:
    facts = {"model": "gcn", "dataset": "test", "graph_hash": "0", "pes": 2, "technique": "halo", "seed": 0}
    return Checkpoints(folder, Identity(**facts, layout="0", device="CPUs", options={}, settings={}), 45)


def _raw(folder: Path) -> Any:
    found = description(folder)
    check_files(folder, found)
    return found


def _gathered(out: Path) -> Any:
    """The graphs of the shards, and of shards made anew from the buckets."""
    shutil.rmtree(out / "again", ignore_errors=True)
    gather(out / "buckets", [out / "shards"], out / "gathered")
    shard(out / "buckets", out / "again", number=1, of=1)
    gather(out / "buckets", [out / "again"], out / "gathered-again")
    return [_graph(out / name) for name in ("gathered", "gathered-again")]


def _graph(folder: Path) -> Any:
    graph = Graph.open(folder)
    n = graph.manifest.nodes
    parts = [getattr(graph, what)(0, n) for what in ("features", "labels", "splits", "tasks", "ids")]
    return graph.manifest, graph.offsets(), graph.rows(0, n), parts


def _cubin(out: Path) -> bytes:
    """The cubin that a launch would load, by a compiler whose output is always the same."""
    (out / "k.cu").write_text("// nothing")
    patches = {"find_nvcc": lambda: "nvcc", "nvcc_version": lambda _: "release 13"}
    patches |= {"cache_folder": lambda: out / "cache"}
    patches |= {"_compile": lambda nvcc, source, path, *_: path.write_bytes(bytes(range(256)) * 8)}
    with mock.patch.multiple(kernels, **patches):
        return kernels.cubin(out / "k.cu", "sm_90", {}).read_bytes()


def _partition(folder: Path) -> Any:
    record = partition.load(folder)
    return record, partition.load_order(folder, record)


def contents(value: Any) -> Any:
    """A value that can be compared by ==: equal if all numbers and texts in it are."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, BaseModel):
        return type(value).__name__, contents(value.model_dump())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: contents(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: contents(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [contents(each) for each in value]
    return repr(value)


def changed(data: bytes, rng: np.random.Generator) -> bytes:
    """``data`` with one bit flipped, or a byte replaced, removed or added; often a digit replaced, or a line moved."""
    lines = data.splitlines(keepends=True)
    if len(lines) > 1 and rng.random() < 0.1:
        return _line_changed(lines, rng)
    at = int(rng.integers(len(data)))
    digits = [place for place, byte in enumerate(data) if 48 <= byte < 58] if rng.random() < 0.5 else []
    if digits:
        at = int(rng.choice(digits))
        return data[:at] + bytes([48 + int(rng.integers(10))]) + data[at + 1 :]
    byte, kind = bytes([int(rng.integers(256))]), int(rng.integers(4))
    flipped = bytes([data[at] ^ (1 << int(rng.integers(8)))])
    return data[:at] + (flipped, byte, b"", byte + data[at : at + 1])[kind] + data[at + 1 :]


def _line_changed(lines: list[bytes], rng: np.random.Generator) -> bytes:
    """One line removed, moved or repeated."""
    at, to, kind = int(rng.integers(len(lines))), int(rng.integers(len(lines))), int(rng.integers(3))
    others = lines[:at] + lines[at + 1 :]
    moved = others if kind == 0 else [*others[:to], lines[at], *others[to:]] if kind == 1 else [*lines, lines[at]]
    return b"".join(moved)
