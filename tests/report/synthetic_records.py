"""Made-up but plausible records: times follow bytes and arcs, so that the pages look like real ones."""

from __future__ import annotations

import hashlib
import html
import itertools
import math
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mgg.records import (
    METRICS_FILE,
    PARTITION_FILE,
    RUN_FILE,
    AggregateRecord,
    EpochRecord,
    Machine,
    PartitionRecord,
    Quality,
    TrainRecord,
    as_json,
    write_lines,
)

MACHINE = Machine(cpu="AMD EPYC 9654 96-Core Processor", cores=2, memory_bytes=8 * 2**30, system="Linux 6.1.0")
OTHER = Machine(cpu="Intel Xeon Platinum 8480", cores=16, memory_bytes=64 * 2**30, system="Linux 6.8.0")
ORIGIN = {
    "run_id": "0123456789abcdef",
    "recorded_at": "2026-02-03T04:05:06Z",
    "mgg_version": "0.1.0",
    "commit": "5e" * 20,
    "config_hash": "c5" * 32,
    "machine_id": "ad" * 8,
}
#: Four GPUs, and options of MGG's kernel.
GPUS = MACHINE.model_copy(update={"gpus": ["NVIDIA H200"] * 4})
USUAL = {"ps": 16, "dist": 16, "wpb": 4, "neighbor_partition": True, "interleave": True, "primitive": "direct"}
VERSIONS = {"python": "3.11.2", "mgg": "0.1.0", "numpy": "2.4.6"}
GRAPHS = {"digits": (1797, 23_526), "cora": (2708, 10_556), "reddit-like": (23_296, 9_400_000)}
TECHNIQUES = ("broadcast", "cola", "halo", "mgg")


#: Fields of timings and trainings.
COMMON: dict[str, Any] = {
    **ORIGIN,
    "dataset": "cora",
    "nodes": 2708,
    "arcs": 10_556,
    "technique": "halo",
    "options": {},
    "backend": "mpi",
    "pes": 2,
    "dtype": "fp32",
    "machine": MACHINE,
    "versions": VERSIONS,
}


def code_of(dataset: str) -> str:
    """The hash of a made-up graph."""
    return f"{sum(map(ord, dataset)):064x}"[::-1]


def aggregate(**changes: Any) -> AggregateRecord:
    """One record, every field given, of launches of one product each; ``changes`` replace fields."""
    seconds = changes.pop("seconds", [0.002, 0.004, 0.003])
    launches = changes.pop("launches", seconds)
    q1, q3 = (float(value) for value in np.quantile(seconds, [0.25, 0.75]))
    fields: dict[str, Any] = {
        **COMMON,
        "graph_hash": "c0" * 32,
        "layout": "1a" * 32,
        "direction": "forward",
        "dim": 16,
        "scheme": "edge_balanced",
        "imbalance": 1.02,
        "edge_cut": 4000,
        "halo_rows": 1500,
        "warmup": 5,
        "seconds": seconds,
        "launches": launches,
        "low": min(launches),
        "median": float(np.median(launches)),
        "high": max(launches),
        "q1": q1,
        "q3": q3,
        "bytes_wire": 96_000,
        "bytes_per_pe": [50_000, 46_000],
        "v_cg": 173_312,
        "v_fr": 256_000,
        "v_fc": 96_000,
        "error": 2.5e-7,
        "tolerance": 1e-6,
    }
    return AggregateRecord(**(fields | changes))


def timed(median: float, technique: str = "mgg", spread: float = 0.01, **changes: Any) -> AggregateRecord:
    """A timing on four GPUs whose launches lie ``spread`` around its median."""
    seconds = [median * (1 - spread), median, median * (1 + spread)]
    options = (USUAL if technique == "mgg" else {}) | changes.pop("options", {})
    fields = {"pes": 4, "backend": "nvshmem", "machine": GPUS, "defaults": USUAL if technique == "mgg" else {}}
    return aggregate(technique=technique, options=options, seconds=seconds, **(fields | changes))


def sweep(
    techniques: Sequence[str] = TECHNIQUES,
    pes: Sequence[int] = (1, 2, 4),
    dims: Sequence[int] = (16, 64),
    graphs: Sequence[str] = tuple(GRAPHS),
) -> list[AggregateRecord]:
    """Records of every combination."""
    return [_made(*each) for each in itertools.product(graphs, pes, dims, enumerate(techniques))]


def _made(dataset: str, p: int, dim: int, named: tuple[int, str]) -> AggregateRecord:
    (index, technique), (nodes, arcs) = named, GRAPHS[dataset]
    draw = random.Random(f"{dataset} {p} {dim} {technique}")
    cut = 0 if p == 1 else int(arcs * 0.3 * (1 - 1 / p))
    halo = 0 if p == 1 else min(cut, int(nodes * 0.35 * (p - 1)))
    volumes = {"v_cg": 4 * dim * nodes * (p - 1), "v_fr": 4 * dim * cut, "v_fc": 4 * dim * halo}
    kind = {"broadcast": "v_cg", "mgg": "v_fr"}.get(technique, "v_fc")
    slow = {"mgg": 1.8, "broadcast": 1.5, "cola": 1.25, "halo": 1.0}.get(technique, 1 + 0.07 * index)
    base = 2e-5 + arcs * dim * 1.5e-10 * slow / min(p, 2) ** 0.9 + volumes[kind] * 2e-9
    seconds = [base * (1 + 0.08 * abs(draw.gauss(0, 1))) for _ in range(20)]
    each = [volumes[kind] // p] * (p - 1)
    return aggregate(
        dataset=dataset,
        graph_hash=code_of(dataset),
        nodes=nodes,
        arcs=arcs,
        technique=technique,
        options={"ps": 16, "interleave": True} if technique == "mgg" else {},
        pes=p,
        dim=dim,
        imbalance=1 + 0.02 * (p - 1),
        edge_cut=cut,
        halo_rows=halo,
        seconds=seconds,
        launches=[float(np.median(seconds[start : start + 5])) for start in range(0, 20, 5)],
        bytes_wire=volumes[kind],
        bytes_per_pe=[*each, volumes[kind] - sum(each)],
        error=draw.uniform(0.5, 4) * 1e-7,
        **volumes,
    )


def train(**changes: Any) -> TrainRecord:
    """One training record, every field given; ``changes`` replace fields."""
    fields: dict[str, Any] = {
        **COMMON,
        "graph_hash": code_of("cora"),
        "model": "gcn",
        "seed": 0,
        "epochs": 20,
        "settings": {"hidden": 16, "dropout": 0.5, "learning_rate": 0.01, "weight_decay": 0.0005},
        "features": 1433,
        "classes": 7,
        "parameters": 23_063,
        "loss": 0.52,
        "best_epoch": 15,
        "train_accuracy": 1.0,
        "validation_accuracy": 0.79,
        "test_accuracy": 0.815,
        "median": 0.012,
        "q1": 0.011,
        "q3": 0.013,
        "bytes_wire": 2_000_000,
    }
    return TrainRecord(**(fields | changes))


def epochs(record: TrainRecord, top: float = 0.8) -> list[EpochRecord]:
    """A falling loss and a rising accuracy."""
    draw = random.Random(f"{record.dataset} {record.model} {record.seed}")
    lines = []
    for epoch in range(1, record.epochs + 1):
        done = 1 - math.exp(-epoch / 25)
        noise = draw.gauss(0, 0.01)
        accuracy = min(1.0, max(0.0, 0.14 + (top - 0.14) * done + noise))
        lines.append(
            EpochRecord(
                epoch=epoch,
                loss=1.95 - 1.4 * done + 3 * abs(noise),
                train_accuracy=min(1.0, accuracy + 0.15),
                validation_loss=2.0 - 1.3 * done + 3 * abs(noise),
                validation_accuracy=accuracy,
                test_accuracy=accuracy + 0.01 if accuracy < 0.99 else accuracy,
                seconds=0.012,
            )
        )
    return lines


def write_run(folder: Path, record: TrainRecord, lines: Sequence[EpochRecord] | None = None) -> Path:
    """Write a run folder."""
    folder.mkdir(parents=True)
    lines = epochs(record) if lines is None else lines
    metrics = "".join(line.model_dump_json() + "\n" for line in lines).encode()
    (folder / METRICS_FILE).write_bytes(metrics)
    (folder / RUN_FILE).write_text(as_json(record, files={METRICS_FILE: hashlib.sha256(metrics).hexdigest()}))
    return folder


def split(dataset: str = "cora", pes: int = 4, *, scheme: str = "edge_balanced", workgroup: int = 2, dim: int = 16):
    """One partition record whose PEs all need 10 p + q + 1 rows of each other, three arcs a row."""
    nodes, arcs = GRAPHS.get(dataset, (50_000, 1_000_000))
    each = [arcs // pes] * (pes - 1)
    each.append(arcs - sum(each))
    pairs = [[0 if p == q else 10 * p + q + 1 for q in range(pes)] for p in range(pes)]
    halos = [sum(row) for row in pairs]
    groups = range(0, pes, workgroup)
    across = [[q for q in range(pes) if q // workgroup != p // workgroup] for p in range(pes)]
    crossing = [sum(pairs[p][q] for q in across[p]) for p in range(pes)]
    fused = [max(crossing[g : g + workgroup]) for g in groups]
    row = 4 * dim
    quality = Quality(
        dim=dim,
        nodes_per_pe=[nodes // pes] * (pes - 1) + [nodes - nodes // pes * (pes - 1)],
        arcs_per_pe=each,
        imbalance=max(each) * pes / arcs,
        edge_cut=3 * sum(halos),
        edge_cut_per_pe=[3 * halo for halo in halos],
        halo_rows_per_pe=halos,
        halo_rows_per_pair=pairs,
        v_cg=row * nodes * (pes - 1),
        v_fr=row * 3 * sum(halos),
        v_fc=row * sum(halos),
        arcs_per_workgroup=[sum(each[g : g + workgroup]) for g in groups],
        workgroup_imbalance=1.0,
        workgroup_edge_cut=3 * sum(crossing),
        workgroup_halo_rows=fused,
        vi_cg=row * nodes * max(0, pes - workgroup),
        vi_fr=row * 3 * sum(crossing),
        vi_fc=row * sum(crossing),
        vi_cola=row * sum(fused),
    )
    return PartitionRecord(
        name=dataset,
        graph_hash=code_of(dataset),
        nodes=nodes,
        pes=pes,
        scheme=scheme,
        workgroup=workgroup,
        order=None if scheme != "metis" else "ab" * 32,
        bounds=[nodes // pes * pe for pe in range(pes)] + [nodes],
        quality=quality,
        **ORIGIN,
    )


def write_split(folder: Path, record: PartitionRecord) -> Path:
    """Write a partition's folder, as far as the report reads it."""
    folder.mkdir(parents=True)
    (folder / PARTITION_FILE).write_text(as_json(record, indent=1))
    return folder


def write_given(folder: Path, records: Iterable[Any] = (), runs: Iterable[Any] = (), splits: Iterable[Any] = ()):
    """Files of records of any kinds, and folders of runs (records, or records and epochs) and of partitions."""
    made = [run if isinstance(run, tuple) else (run,) for run in runs]
    paths = [write_run(folder / f"run-{number}", *run) for number, run in enumerate(made)]
    paths += [write_split(folder / f"split-{number}", record) for number, record in enumerate(splits)]
    for kind in dict.fromkeys(map(type, records)):
        paths.append(folder / f"{kind.__name__}.jsonl")
        write_lines(paths[-1], [record for record in records if type(record) is kind])
    return paths


def write_all(folder: Path) -> list[Path]:
    """A whole experiment: 2 graphs, 4 techniques, 3 numbers of PEs, 2 widths, 5 partitions, training with 3 seeds."""
    paths = []
    for dataset in ("digits", "cora"):
        splits = [split(dataset, p, workgroup=8) for p in (2, 4, 8, 16, 32)]
        paths += write_given(folder / dataset, sweep(graphs=[dataset]), splits=splits)
    runs = []
    for model, top in (("gcn", 0.81), ("gin", 0.78)):
        for p in (1, 2):
            for seed in range(3):
                scores = {"test_accuracy": top + 0.003 * seed, "validation_accuracy": top - 0.02}
                moved = {"pes": p, "bytes_wire": 2_000_000 * (p - 1)}
                runs.append(train(model=model, seed=seed, epochs=30, best_epoch=20, **scores, **moved))
    return paths + write_given(folder / "train", runs=runs)


def words(page: str, section: str = "") -> str:
    """The text of a page, or of one of its sections, without figures; single spaces divide cells and paragraphs."""
    page = re.sub(r"(?s)<style>.*?</style>|<svg.*?</svg>", "", page)
    if section:
        page = page[page.index(f'<section id="{section}">') :].split("</section>", 1)[0]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"</?(abbr|a)\b[^>]*>", "", page))).split())
