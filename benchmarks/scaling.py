"""What a graph asks of many PEs: python benchmarks/scaling.py OUT --pes 8,64,1024 --layouts 8,64,1024.

Each graph is partitioned for every number of PEs by every scheme, and laid out for those of --layouts. Nothing is
multiplied or trained: volumes and balance are counted, times and memory of the two stages measured, and memory of a PE
and times of products predicted by the models that mgg train and mgg predict use. Every stage is a process of its own,
which has compiled its loops on a tiny graph before the clock starts; processor seconds are told beside the clock's, as
they depend less on what else the machine does. Predictions are also made for a graph --grow times as large that splits
in the same proportions, and of that for the ways to move less, with what limits each first (--covers counts covers for
one of them). OUT gets a file of JSON lines a graph; what it has already is not measured again.

A graph is a generator's name, made at the scale that gives it about 100 million arcs and shuffled where it stands for a
graph without locality, or a folder of mgg graph.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
from common import measured, run
from pydantic import BaseModel, Field

from mgg import layout
from mgg.aggregate.auto import Forecast
from mgg.backend.machine.facts import these_versions, this_machine
from mgg.cost import machines
from mgg.cost.product import Machine as CostMachine
from mgg.cost.product import Split
from mgg.errors import InputError
from mgg.graph.budget import parse_size
from mgg.graph.cover import cover_size
from mgg.graph.csr import row_ids
from mgg.graph.generate import generate
from mgg.graph.store import Graph
from mgg.layout import LayoutManifest, PeLayout
from mgg.model import build as build_model
from mgg.model import settings_of
from mgg.record import Machine, read_partition, write_lines
from mgg.train import memory

#: Scale at which a generator gives about 100 million arcs, and whether its nodes are shuffled.
GRAPHS = {"web-like": (1.27, False), "orkut-like": (0.48, True), "products-like": (0.9, False)}
#: The model whose memory is predicted, and what it is predicted and priced for.
MODEL, FEATURES, HIDDEN, CLASSES = "gcn", 128, 128, 47
TECHNIQUES = ("halo", "cola", "mgg", "broadcast_pipelined")
#: PEs of a layout whose memory is predicted: those with the most rows, arcs and halo rows, and evenly many others.
SAMPLE = 16
#: Share of the rows that boundary sampling keeps; bytes of rows of fewer bits, their scales included, to those of fp32.
SHARE, BITS = 0.1, {"int8": 0.28, "int4": 0.16, "int2": 0.10}
#: Of a graph, a tiny graph, the partition and the layout: compile the stage's loops on the tiny graph, then run it.
WARM = """
import shutil, tempfile
from mgg import layout, partition
asked, warm = {asked}, Path(tempfile.mkdtemp())
partition.build(paths[1], warm / "part", **asked | {{"pes": 3}})
if {stage!r} == "layout":
    layout.build(paths[1], warm / "part", warm / "layout")
shutil.rmtree(warm)
"""
STAGES = {
    "partition": "partition.build(paths[0], paths[2], **asked)",
    "layout": "layout.build(paths[0], paths[2], paths[3])",
}


class Spent(BaseModel):
    """What a stage took."""

    seconds: float = Field(description="by the clock, with whatever else the machine did")
    processor_seconds: float = Field(description="user and system time of the process, all its threads")
    peak_bytes: int = Field(description="largest resident set of the process")


class Laid(BaseModel):
    """A layout, and what it says of memory."""

    spent: Spent
    bytes: int = Field(description="size of all its files")
    files: int
    largest_pe_bytes: int = Field(description="of the arrays of one PE")
    manifest_bytes: int
    manifest_seconds: float = Field(description="reading and checking it, which every PE does")
    asked_pes: int = Field(description="PEs whose memory was predicted")
    need: dict[str, int] = Field(description="bytes of a GPU that GCN takes by technique halo, the PE with the most")
    need_mean: float = Field(description="the mean over the PEs asked")


class Product(BaseModel):
    """What the cost model says of a product, in seconds (docs/costs.md)."""

    seconds: float
    arithmetic: float
    transfer: float
    hidden: float


class Limits(BaseModel):
    """What the cost model says of a product one way, in seconds of the PE that ends last; some go on side by side."""

    seconds: float
    arithmetic: float
    inside: float = Field(description="transfers within a host")
    between: float = Field(description="bytes through the ports between hosts")
    messages: float = Field(description="latency and calls of the messages between hosts")
    barriers: float
    memory: float = Field(description="bytes of a GPU for arcs and matrices of the plans of both directions, no more")

    @property
    def first(self) -> str:
        """What takes the most time."""
        parts = self.model_dump(exclude={"seconds", "memory"})
        return max(parts, key=lambda name: float(parts[name]))


class ScalingRecord(BaseModel):
    """A graph, a scheme and a number of PEs."""

    graph: str
    nodes: int
    arcs: int
    shuffled: bool
    scheme: str
    pes: int
    workgroup: int
    dim: int = Field(description="columns that volumes are for, fp32")
    failed: str | None = Field(None, description="why there is no partition, or no layout")
    spent: Spent | None = Field(None, description="stage partition")
    arc_imbalance: float | None = None
    row_imbalance: float | None = None
    halo_mean: float | None = Field(None, description="halo rows a PE")
    halo_max: int | None = None
    remote_share: float | None = Field(None, description="arcs whose column another PE owns")
    v_cg: int | None = Field(None, description="bytes of a product, CoLa eq. 5 to 7")
    v_fr: int | None = None
    v_fc: int | None = None
    vi_fr: int | None = Field(None, description="between workgroups")
    vi_fc: int | None = None
    vi_cola: int | None = Field(None, description="between workgroups, a row once a workgroup")
    products: dict[str, Product] = Field({}, description="predicted, by technique")
    grown: int = Field(1, description="all counts of the split times so many, for grown_products")
    grown_products: dict[str, Product] = {}
    ways: dict[str, Limits] = Field({}, description="of a product of the grown graph, by what crosses")
    covers: tuple[float, float] | None = Field(None, description="share of rows left within and between hosts")
    layout: Laid | None = None
    machine: Machine
    versions: dict[str, str]

    @property
    def key(self) -> tuple[str, str, int]:
        """What it is of."""
        return self.graph, self.scheme, self.pes


class Bench:
    """One graph, and what was found of it."""

    def __init__(
        self, scratch: Path, workgroup: int, dim: int, limit: int, priced: str, grown: int, counts_covers: bool
    ) -> None:  # fmt: skip
        self.scratch, self.workgroup, self.dim, self.limit = scratch, workgroup, dim, limit
        self._priced, self._grown, self._covers = machines.find(priced), grown, counts_covers
        self._facts = {"machine": this_machine(), "versions": these_versions()}
        self._tiny = scratch / "tiny"
        generate("orkut-like", self._tiny, name="tiny", scale=0.001)

    def graph(self, name: str, scale: float) -> tuple[Graph, bool]:
        """The graph called ``name``, generated if it is no folder, and whether it is shuffled."""
        path = Path(name)
        if path.is_dir():
            opened = Graph.open(path)
            return opened, bool(opened.manifest.source.get("shuffle", False))
        if name not in GRAPHS:
            raise InputError(f"{name}: neither a folder nor one of {', '.join(GRAPHS)}")
        share, shuffled = GRAPHS[name]
        made = self.scratch / "graph"
        generate(name, made, name=f"{name}-100m", scale=share * scale, shuffle=shuffled)
        return Graph.open(made), shuffled

    def measure(self, stage: str, graph: Graph, part: Path, laid: Path, scheme: str, pes: int) -> Spent:
        """Run a stage in a process that may take ``limit`` bytes of memory."""
        asked = {"pes": pes, "scheme": scheme, "workgroup": self.workgroup, "dim": self.dim}
        paths = (graph.path, self._tiny, part, laid)
        found = measured(WARM.format(asked=asked, stage=stage), STAGES[stage], *paths, limit=self.limit)
        return Spent.model_validate(found)

    def partitioned(self, graph: Graph, shuffled: bool, scheme: str, pes: int, part: Path) -> ScalingRecord:
        """The record of a partition, which is left in ``part``."""
        facts = graph.manifest
        made = ScalingRecord(
            graph=facts.name, nodes=facts.nodes, arcs=facts.arcs, shuffled=shuffled, scheme=scheme, pes=pes,
            workgroup=self.workgroup, dim=self.dim, **self._facts,
        )  # fmt: skip
        try:
            made.spent = self.measure("partition", graph, part, part, scheme, pes)
        except ChildProcessError as error:
            made.failed = str(error)
            return made
        found = read_partition(part)
        quality, split = found.quality, Split.of(found)
        made.products = self._products(split)
        made.grown, made.grown_products = self._grown, self._products(grown(split, self._grown))
        if self._covers and found.order is None:
            made.covers = covers(graph, np.array(found.bounds), self.workgroup)
        made.ways = ways(self._priced, grown(split, self._grown), self.dim, made.covers)
        made.arc_imbalance = quality.imbalance
        made.row_imbalance = max(quality.nodes_per_pe) * pes / facts.nodes
        made.halo_mean, made.halo_max = float(np.mean(quality.halo_rows_per_pe)), max(quality.halo_rows_per_pe)
        made.remote_share = quality.edge_cut / max(1, facts.arcs)
        for name in ("v_cg", "v_fr", "v_fc", "vi_fr", "vi_fc", "vi_cola"):
            setattr(made, name, getattr(quality, name))
        return made

    def _products(self, split: Split) -> dict[str, Product]:
        costs = Forecast(self._priced, split).costs(self.dim)
        return {
            name: Product(seconds=cost.seconds, arithmetic=cost.arithmetic, transfer=cost.transfer, hidden=cost.hidden)
            for name, cost in costs.items()
            if name in TECHNIQUES
        }

    def laid_out(self, graph: Graph, scheme: str, pes: int, part: Path) -> Laid:
        """Make a layout, look at it and remove it."""
        folder = self.scratch / "layout"
        spent = self.measure("layout", graph, part, folder, scheme, pes)
        started = time.perf_counter()
        manifest = layout.read_manifest(folder)
        reading = time.perf_counter() - started
        by_pe = np.zeros(pes, np.int64)
        for name, shard in manifest.files.items():
            by_pe[int(name.split("/")[0].removeprefix("pe-"))] += shard.bytes
        chosen = sample(manifest)
        needs = [need(layout.load(folder, pe, manifest)) for pe in chosen]
        most = max(needs, key=lambda each: each.total)
        made = Laid(
            spent=spent, bytes=int(by_pe.sum()), files=len(manifest.files), largest_pe_bytes=int(by_pe.max()),
            manifest_bytes=(folder / "layout.yaml").stat().st_size, manifest_seconds=reading, asked_pes=len(chosen),
            need={**vars(most), "total": most.total}, need_mean=float(np.mean([each.total for each in needs])),
        )  # fmt: skip
        shutil.rmtree(folder)
        return made


def grown(split: Split, factor: int) -> Split:
    """A split of a graph with ``factor`` times the rows, arcs and halo rows, in the same proportions."""
    counts = ("rows", "arcs", "remote_arcs", "halo_rows", "outside_arcs", "outside_rows", "fused_rows")
    return replace(split, **{name: factor * getattr(split, name) for name in counts})


def covers(graph: Graph, bounds: np.ndarray, members: int) -> tuple[float, float]:
    """What a least vertex cover leaves of the rows that cross within hosts, and between hosts, a row once a host there:
    of those of ``SAMPLE`` PEs that are evenly many apart.
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
            mine = np.flatnonzero(pick & (at == pe))
            names = sources[mine] * len(bounds) + place[mine]
            rows, left = rows + len(np.unique(names)), left + cover_size(names, targets[mine])
        counts.append(left / max(1, rows))
    return counts[0], counts[1]


def ways(machine: CostMachine, split: Split, dim: int, covered: tuple[float, float] | None) -> dict[str, Limits]:
    """A product by technique halo over all rows and by what moves less between hosts, and by technique features."""
    near: np.ndarray = split.halo_rows * (1 - split.outside_share_of_rows)
    outside = split.halo_rows - near
    groups = np.arange(split.pes) // split.members
    crossing = {"rows": (split, "fp32"), "bf16": (split, "bf16")}
    if covered is not None:
        crossing["cover"] = _with_rows(split, covered[0] * near, covered[1] * outside, covered[1] * split.fused_rows)
    # Rows that are sampled cross to each PE by itself.
    every = np.bincount(groups, outside)
    crossing[f"boundary {SHARE}"] = _with_rows(split, SHARE * near, SHARE * outside, SHARE * every)
    crossing |= {way: (replace(split, fused_rows=left * split.fused_rows), "fp32") for way, left in BITS.items()}
    made = {way: _limits(machine, each, dim, "halo", dtype) for way, (each, dtype) in crossing.items()}
    if split.groups > 1:
        beside = _limits(machine, replace(split, fused_rows=np.zeros_like(split.fused_rows)), dim, "halo", "fp32")
        late = made["rows"].between + made["rows"].messages
        # A product of either direction has two mailboxes and what it sends.
        held = made["rows"].memory + 6 * 4 * dim * float(split.fused_rows_a_pe.max())
        told = {"seconds": max(beside.seconds, late), "between": made["rows"].between, "memory": held}
        made["stale"] = beside.model_copy(update=told)
    made["features"] = _limits(machine, split, dim, "features", "fp32")
    order = ["rows", "cover", "features", "stale"]
    return {way: made[way] for way in [*order, *(each for each in made if each not in order)] if way in made}


def _with_rows(split: Split, near: np.ndarray, outside: np.ndarray, fused: np.ndarray) -> tuple[Split, str]:
    return replace(split, halo_rows=near + outside, outside_rows=int(outside.sum()), fused_rows=fused), "fp32"


def _limits(machine: CostMachine, split: Split, dim: int, name: str, dtype: str) -> Limits:
    """By leaving out what the network between hosts takes for messages, then for bytes."""
    whole, unlimited = {"latency": 0.0, "message": 0.0}, {"bandwidth": 1e30}
    cost, bytes_alone, inside = (
        Forecast(_joined_by(machine, changed), split, dtype).cost(name, dim)
        for changed in ({}, whole, whole | unlimited)
    )
    assert cost is not None and bytes_alone is not None and inside is not None
    rows, arcs, columns = split.rows.max(), split.arcs.max(), (2 if dtype == "bf16" else 4) * dim
    matrices = columns * (rows + split.halo_rows.max() + split.fused_rows_a_pe.max()) + 4 * dim * rows
    if name == "features":  # all arcs; a column or more of all rows twice, and what is packed
        rows, arcs, columns = split.rows.sum(), split.arcs.sum(), 4 * -(-dim // split.pes)
        matrices = columns * (2 * rows + split.pes * split.rows.max())
    return Limits(
        seconds=cost.seconds, arithmetic=cost.arithmetic, inside=inside.transfer,
        between=bytes_alone.transfer - inside.transfer, messages=cost.transfer - bytes_alone.transfer,
        barriers=cost.fixed, memory=float(2 * (4 * arcs + 8 * rows + matrices)),
    )  # fmt: skip


def _joined_by(machine: CostMachine, changed: dict[str, float]) -> CostMachine:
    """``machine`` whose network between hosts has these figures instead."""
    links = machine.links
    network = {links.network: links[links.network].model_copy(update=changed)}
    return machine.model_copy(update={"links": links.model_copy(update={"links": {**links.links, **network}})})


def sample(manifest: LayoutManifest) -> list[int]:
    """PEs that stand for all: the largest ones, and others evenly."""
    counts = manifest.forward
    largest = [int(np.argmax(each)) for each in (np.diff(manifest.bounds), counts.arcs, counts.halo_rows)]
    evenly = np.linspace(0, manifest.pes - 1, min(SAMPLE, manifest.pes)).astype(int).tolist()
    return sorted({*largest, *evenly})


def need(part: PeLayout) -> memory.Need:
    """GPU memory that a training of the model takes on this PE, as mgg train says before it starts, without labels."""
    facts = part.manifest.model_copy(update={"features": FEATURES, "classes": CLASSES})
    chain = build_model(MODEL, settings_of(MODEL, {"hidden": HIDDEN}), FEATURES, CLASSES, facts.nodes)
    dense = memory.Input(part.rows * FEATURES, sparse=False, copied=False)
    gpu: Any = SimpleNamespace(gpu="any", gather=lambda mine: None)  # no other PE is there to ask
    return memory.need(gpu, replace(part, manifest=facts), chain, "halo", {}, "fp32", dense, targets=0, losses=0)


def read(path: Path) -> list[ScalingRecord]:
    """Records of an earlier run."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [ScalingRecord.model_validate_json(line) for line in lines]


def table(records: Sequence[ScalingRecord]) -> str:
    """A line a record, volumes in GB."""
    head = ("scheme", "PEs", "V_CG", "V_FR", "V_FC", "VI_FC", "VI_CoLa", "arcs x", "rows x", "halo mean", "halo max",
            "part s", "part MiB", "layout s", "layout MiB", "GB", "files", "PE MiB")  # fmt: skip
    rows = [head]
    for r in records:
        if r.spent is None:
            rows.append((r.scheme, str(r.pes), r.failed or "", *[""] * (len(head) - 3)))
            continue
        volumes = [f"{(value or 0) / 1e9:.2f}" for value in (r.v_cg, r.v_fr, r.v_fc, r.vi_fc, r.vi_cola)]
        laid = [""] * 5
        if r.layout is not None:
            spent = r.layout.spent
            laid = [f"{spent.processor_seconds:.1f}", f"{spent.peak_bytes / 2**20:.0f}", f"{r.layout.bytes / 1e9:.2f}",
                    str(r.layout.files), f"{r.layout.need['total'] / 2**20:.0f}"]  # fmt: skip
        rows.append((
            r.scheme, str(r.pes), *volumes, f"{r.arc_imbalance:.3f}", f"{r.row_imbalance:.3f}", f"{r.halo_mean:.0f}",
            str(r.halo_max), f"{r.spent.processor_seconds:.1f}", f"{r.spent.peak_bytes / 2**20:.0f}", *laid,
        ))  # fmt: skip
    widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def limits(records: Sequence[ScalingRecord]) -> str:
    """Predicted milliseconds of the ways to compute a product of the grown graph, and what takes the most of each."""
    lines = []
    for r in records:
        if r.covers is not None:
            near, far = r.covers
            lines.append(f"{r.scheme} {r.pes} PEs: covers leave {near:.3f} of rows within hosts, {far:.3f} between")
        for way, found in r.ways.items():
            times = found.model_dump(exclude={"memory"}).values()
            told = " | ".join(f"{1e3 * seconds:.2f}" for seconds in times)
            name = f"{r.graph}, {r.scheme}, {r.pes} PEs, x {r.grown}"
            lines.append(f"| {name} | {way} | {told} | {found.memory / 1e9:.1f} | {found.first} |")
    return "\n".join(lines)


def prices(records: Sequence[ScalingRecord]) -> str:
    """Predicted milliseconds of a product by technique, arithmetic / transfer in brackets, then of the grown graph."""
    lines = []
    for r in records:
        for label, products in (("", r.products), (f" x {r.grown}", r.grown_products)):
            told = [
                f"{name} {1e3 * each.seconds:.2f} ({1e3 * each.arithmetic:.2f} / {1e3 * each.transfer:.2f})"
                for name, each in products.items()
            ]
            lines.append(f"{r.scheme} {r.pes} PEs{label}: {', '.join(told)}")
    return "\n".join(lines)


def numbers(text: str) -> list[int]:
    """``8,64`` as numbers."""
    return [int(each) for each in text.split(",") if each]


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--graphs", default="web-like,orkut-like", show_default=True, help="generators or folders")
@click.option("--scale", type=float, default=1.0, show_default=True, help="of generated graphs, 1: 100 million arcs")
@click.option("--schemes", default="edge_balanced,metis", show_default=True, help="separated by commas")
@click.option("--pes", default="8,16,32,64,128,256,512,1024", show_default=True, help="numbers of PEs")
@click.option("--layouts", default="8,64,1024", show_default=True, help="numbers of PEs to make layouts for")
@click.option("--workgroup", type=click.IntRange(1), default=8, show_default=True, help="PEs of a host")
@click.option("--dim", type=click.IntRange(1), default=128, show_default=True, help="columns of the volumes")
@click.option("--machine", default="h200", show_default=True, help="that products are predicted for")
@click.option(
    "--grow", type=click.IntRange(1), default=100, show_default=True, help="of the larger graph predicted for"
)
@click.option("--covers", "counts_covers", is_flag=True, help="count least vertex covers, some minutes")
@click.option("--limit", default="12GiB", show_default=True, help="address space of a measured process")
@click.option(
    "--scratch", type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="folder for graphs, partitions and layouts",
)  # fmt: skip
def main(
    out: Path, graphs: str, scale: float, schemes: str, pes: str, layouts: str, workgroup: int, dim: int, machine: str,
    grow: int, counts_covers: bool, limit: str, scratch: Path | None,
) -> None:  # fmt: skip
    """Measure every graph, print a table of each, and write the records into OUT."""
    out.mkdir(parents=True, exist_ok=True)
    for name in graphs.split(","):
        with tempfile.TemporaryDirectory(prefix="mgg-", dir=scratch) as folder:
            bench = Bench(Path(folder), workgroup, dim, parse_size(limit), machine, grow, counts_covers)
            graph, shuffled = bench.graph(name, scale)
            path = out / f"{graph.manifest.name}.jsonl"
            records = read(path)
            for scheme in schemes.split(","):
                for count in numbers(pes):
                    if (graph.manifest.name, scheme, count) in {each.key for each in records}:
                        continue
                    part = bench.scratch / "part"
                    record = bench.partitioned(graph, shuffled, scheme, count, part)
                    if record.spent is not None and count in numbers(layouts):
                        try:
                            record.layout = bench.laid_out(graph, scheme, count, part)
                        except ChildProcessError as error:
                            record.failed = f"layout: {error}"
                    records.append(record)
                    write_lines(path, records)
                    click.echo(table(records[-1:]))
            click.echo(f"{graph.manifest.name}: {graph.manifest.nodes} nodes, {graph.manifest.arcs} arcs")
            click.echo(table(records))
            click.echo(prices(records))
            click.echo(limits(records))


if __name__ == "__main__":
    run("scaling", main)
