"""Predicted time and memory of a graph on many PEs, beyond mgg's commands: python benchmarks/scaling.py OUT PATHS.

PATHS are partitions and layouts that mgg made. Its commands count volumes and balance; /usr/bin/time measures these
stages. Nothing is multiplied or trained here. For a partition: products by the cost model (mgg predict), for the graph
and for one --grow times as large with the same proportions; for the latter also the options that move fewer bytes, with
the resource that limits each (--covers GRAPH counts least vertex covers for one of them, which takes minutes). For a
layout: its size, the time to read its manifest, and the memory per PE that mgg train predicts for GCN on a GPU, of the
largest PEs and ``SAMPLE`` others. OUT gets scaling.jsonl, a line per path.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
from common import OUT, Results, row, run

from mgg import layout
from mgg.aggregate.auto import Forecast
from mgg.cost import machines
from mgg.cost.product import MachineModel, SplitCounts
from mgg.graph.cover import cover_size
from mgg.graph.csr import row_ids
from mgg.graph.store import Graph
from mgg.layout import LayoutManifest, PeLayout
from mgg.model import build as build_model
from mgg.model import settings_of
from mgg.records import Partition, read_partition
from mgg.train import memory

#: The model and its sizes for the predictions.
MODEL, FEATURES, HIDDEN, CLASSES = "gcn", 128, 128, 47
TECHNIQUES = ("halo", "cola", "broadcast_pipelined", "mgg")
#: Number of PEs whose memory is predicted, beside those with the most rows, arcs and halo rows, and of PEs for covers.
SAMPLE = 16
#: Share of rows that boundary sampling keeps; bytes of quantized rows, including scales, relative to fp32.
SHARE, BITS = 0.1, {"int8": 0.28, "int4": 0.16, "int2": 0.10}
Limits = dict[str, float]


def grown(split: SplitCounts, factor: int) -> SplitCounts:
    """The split with ``factor`` times the rows, arcs and halo rows, in the same proportions."""
    counts = ("rows", "arcs", "remote_arcs", "halo_rows", "outside_arcs", "outside_rows", "fused_rows")
    return replace(split, **{name: factor * getattr(split, name) for name in counts})


def covers(graph: Graph, bounds: np.ndarray, members: int) -> tuple[float, float]:
    """The share of crossing rows that a least vertex cover leaves, within hosts and between hosts.

    Between hosts a row counts once per host. The rows are those of ``SAMPLE`` PEs at even distances.
    """
    owners = np.searchsorted(bounds, np.arange(bounds[-1]), side="right") - 1
    chosen = np.linspace(0, len(bounds) - 2, min(SAMPLE, len(bounds) - 1)).astype(int)
    of_chosen, found = np.isin(owners, chosen), []
    for lo, block in graph.blocks():
        kept = of_chosen[block.indices]
        found.append(((lo + row_ids(block))[kept], block.indices[kept].astype(np.int64)))
    targets, sources = (np.concatenate(column) for column in zip(*found, strict=True))
    to, at = owners[targets], owners[sources]
    same = to // members == at // members
    counts = []
    for pick, place in ((same & (to != at), to), (~same, to // members)):
        rows = left = 0
        for pe in chosen:
            arcs = np.flatnonzero(pick & (at == pe))
            names = sources[arcs] * len(bounds) + place[arcs]
            rows, left = rows + len(np.unique(names)), left + cover_size(names, targets[arcs])
        counts.append(left / max(1, rows))
    return counts[0], counts[1]


def ways(machine: MachineModel, split: SplitCounts, dim: int, covered: tuple[float, float] | None) -> dict[str, Limits]:
    """Limits of a product by technique halo, by options that move fewer bytes between hosts, and by features."""
    near: np.ndarray = split.halo_rows * (1 - split.outside_share_of_rows)
    outside = split.halo_rows - near
    groups = np.arange(split.pes) // split.members
    crossing = {"rows": (split, "fp32"), "bf16": (split, "bf16")}
    if covered is not None:
        crossing["cover"] = _with_rows(split, covered[0] * near, covered[1] * outside, covered[1] * split.fused_rows)
    # Sampled rows are sent to each PE separately.
    every = np.bincount(groups, outside)
    crossing[f"boundary {SHARE}"] = _with_rows(split, SHARE * near, SHARE * outside, SHARE * every)
    crossing |= {way: (replace(split, fused_rows=left * split.fused_rows), "fp32") for way, left in BITS.items()}
    made = {way: _limits(machine, each, dim, "halo", dtype) for way, (each, dtype) in crossing.items()}
    if split.groups > 1:
        beside = _limits(machine, replace(split, fused_rows=np.zeros_like(split.fused_rows)), dim, "halo", "fp32")
        rows = made["rows"]
        late = rows["between"] + rows["messages"]
        # A product of either direction has two mailboxes and what it sends.
        held = rows["memory"] + 6 * 4 * dim * float(split.fused_rows_a_pe.max())
        made["stale"] = beside | {
            "seconds": max(beside["seconds"], late), "between": rows["between"], "memory": held,
        }  # fmt: skip
    made["features"] = _limits(machine, split, dim, "features", "fp32")
    order = ["rows", "cover", "features", "stale"]
    return {way: made[way] for way in [*order, *(each for each in made if each not in order)] if way in made}


def _with_rows(split: SplitCounts, near: np.ndarray, outside: np.ndarray, fused: np.ndarray) -> tuple[SplitCounts, str]:
    return replace(split, halo_rows=near + outside, outside_rows=int(outside.sum()), fused_rows=fused), "fp32"


def _limits(machine: MachineModel, split: SplitCounts, dim: int, name: str, dtype: str) -> Limits:
    """The parts of a product's time, from the cost model without messages between hosts, then also without their bytes.

    Seconds of the slowest PE, some of which overlap: ``between``: bytes through the ports between hosts; ``messages``:
    latency and calls of messages there. ``memory``: bytes of a GPU for arcs and matrices of both plans only.
    """
    whole, unlimited = {"latency": 0.0, "message": 0.0}, {"bandwidth": 1e30}
    cost, bytes_alone, inside = (
        Forecast(_with_network(machine, changed), split, dtype).cost(name, dim)
        for changed in ({}, whole, whole | unlimited)
    )
    assert cost is not None and bytes_alone is not None and inside is not None
    rows, arcs, columns = split.rows.max(), split.arcs.max(), (2 if dtype == "bf16" else 4) * dim
    matrices = columns * (rows + split.halo_rows.max() + split.fused_rows_a_pe.max()) + 4 * dim * rows
    if name == "features":  # all arcs; a column or more of all rows twice, and what is packed
        rows, arcs, columns = split.rows.sum(), split.arcs.sum(), 4 * -(-dim // split.pes)
        matrices = columns * (2 * rows + split.pes * split.rows.max())
    return {
        "seconds": cost.seconds, "arithmetic": cost.arithmetic, "inside": inside.transfer,
        "between": bytes_alone.transfer - inside.transfer, "messages": cost.transfer - bytes_alone.transfer,
        "barriers": cost.fixed, "memory": float(2 * (4 * arcs + 8 * rows + matrices)),
    }  # fmt: skip


def _with_network(machine: MachineModel, changed: dict[str, float]) -> MachineModel:
    """``machine`` with these changes of its network between hosts."""
    links = machine.links
    network = {links.network: links[links.network].model_copy(update=changed)}
    return machine.model_copy(update={"links": links.model_copy(update={"links": {**links.links, **network}})})


def sample(manifest: LayoutManifest) -> list[int]:
    """PEs that represent all: the largest ones, and others at even distances."""
    counts = manifest.forward
    largest = [int(np.argmax(each)) for each in (np.diff(manifest.bounds), counts.arcs, counts.halo_rows)]
    evenly = np.linspace(0, manifest.pes - 1, min(SAMPLE, manifest.pes)).astype(int).tolist()
    return sorted({*largest, *evenly})


def need(part: PeLayout) -> memory.TrainingMemory:
    """GPU memory of a training of the model on this PE, as mgg train predicts it, without labels."""
    facts = part.manifest.model_copy(update={"features": FEATURES, "classes": CLASSES})
    chain = build_model(MODEL, settings_of(MODEL, {"hidden": HIDDEN}), FEATURES, CLASSES, facts.nodes)
    dense = memory.Input(part.rows * FEATURES, sparse=False, copied=False)
    gpu: Any = SimpleNamespace(gpu="any", gather=lambda value: None)  # there are no other PEs
    return memory.need(gpu, replace(part, manifest=facts), chain, "halo", {}, "fp32", dense, targets=0, losses=0)


def of_layout(folder: Path) -> dict[str, Any]:
    """Size of a layout, and memory per PE."""
    started = time.perf_counter()
    manifest = layout.read_manifest(folder)
    reading = time.perf_counter() - started
    by_pe = np.zeros(manifest.pes, np.int64)
    for name, shard in manifest.files.items():
        by_pe[int(name.split("/")[0].removeprefix("pe-"))] += shard.bytes
    needs = [need(layout.load(folder, pe, manifest)) for pe in sample(manifest)]
    most = max(needs, key=lambda each: each.total)
    return {
        "graph": manifest.name, "scheme": manifest.scheme, "pes": manifest.pes, "files": len(manifest.files),
        "bytes": int(by_pe.sum()), "largest_pe_bytes": int(by_pe.max()), "manifest_seconds": reading,
        "manifest_bytes": (folder / "layout.yaml").stat().st_size, "need": {**vars(most), "total": most.total},
        "need_mean": float(np.mean([each.total for each in needs])), "asked_pes": len(needs),
    }  # fmt: skip


def of_partition(found: Partition, machine: MachineModel, dim: int, grow: int, graph: Graph | None) -> dict[str, Any]:
    """Products by technique, then ``ways`` of the grown graph; covers only if the partition keeps the nodes' order."""
    split, covered = SplitCounts.of(found), None
    if graph is not None and found.order is None:
        covered = covers(graph, np.array(found.bounds), found.workgroup)
    products: dict[int, dict[str, Limits]] = {}
    for factor in (1, grow):
        costs = Forecast(machine, grown(split, factor)).costs(dim)
        products[factor] = {
            name: {key: getattr(costs[name], key) for key in ("seconds", "arithmetic", "transfer", "hidden")}
            for name in TECHNIQUES if name in costs
        }  # fmt: skip
    return {
        "graph": found.name, "scheme": found.scheme, "pes": found.pes, "workgroup": found.workgroup, "dim": dim,
        "products": products, "covers": covered, "ways": ways(machine, grown(split, grow), dim, covered),
    }  # fmt: skip


def in_words(line: dict[str, Any]) -> list[str]:
    """Rows of Markdown: MB of a PE's memory, or milliseconds of products (arithmetic / transfer / hidden transfer)."""
    name = line["graph"], line["scheme"], f"{line['pes']} PEs"
    if "need" in line:
        return [row(*name, *(f"{key} {size / 1e6:.4g}" for key, size in line["need"].items()))]
    rows = []
    for factor, products in line["products"].items():
        cells = []
        for of in products.values():
            seconds, *parts = (f"{1e3 * each:.3g}" for each in of.values())
            cells.append(f"{seconds} ({' / '.join(parts)})")
        rows.append(row(*name, f"x {factor}", *cells))
    if line["covers"]:
        near, far = line["covers"]
        rows.append(row(*name, f"covers leave {near:.3f} of rows within hosts, {far:.3f} between"))
    for way, found in line["ways"].items():
        *seconds, held = found.values()
        parts = {key: each for key, each in found.items() if key not in ("seconds", "memory")}
        times = (f"{1e3 * each:.2f}" for each in seconds)
        rows.append(row(*name, way, *times, f"{held / 1e9:.1f}", max(parts, key=parts.__getitem__)))
    return rows


@click.command()
@OUT
@click.argument("paths", type=click.Path(path_type=Path, exists=True, file_okay=False), nargs=-1, required=True)
@click.option("--dim", type=click.IntRange(1), default=128, show_default=True, help="columns of a product")
@click.option("--machine", default="h200", show_default=True, help="for predictions of products")
@click.option("--grow", type=click.IntRange(1), default=100, show_default=True, help="factor of the larger graph")
@click.option("--covers", "graph", type=click.Path(path_type=Path, exists=True), help="graph of the partitions")
def main(out: Path, paths: tuple[Path, ...], dim: int, machine: str, grow: int, graph: Path | None) -> None:
    """Print the figures of every path, and write records into OUT."""
    results, priced = Results(out / "scaling.jsonl"), machines.find(machine)
    results.say(f"products: {', '.join(TECHNIQUES)}; ways: all, parts, GB, what takes the most")
    for path in paths:
        if (path / "layout.yaml").exists():
            line = of_layout(path)
        else:
            line = of_partition(read_partition(path), priced, dim, grow, Graph.open(graph) if graph else None)
        results.record(path=str(path), **line)
        results.say("\n".join(in_words(line)))


if __name__ == "__main__":
    run(main)
