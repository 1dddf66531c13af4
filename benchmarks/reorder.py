"""Time and quality of the orders: python benchmarks/reorder.py OUT --graphs products-like,reddit-like --scale 0.25.

Each graph's nodes are shuffled, then every order numbers them anew in a process of its own, which has compiled its
loops on a small graph before the clock starts. The clock covers reading the graph from its shards. V_FC is that of
``edge_balanced`` parts. Modularity is that of the communities which Rabbit order finds, beside networkit's PLM where
networkit is installed. A graph is a generator, a data set's name, or a file that ``mgg graph`` reads. OUT gets one file
of JSON lines a graph.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click
import numpy as np
from common import run
from modularity import modularity
from pydantic import BaseModel, Field

from mgg.backend.machine.facts import these_versions, this_machine
from mgg.graph.build import build
from mgg.graph.csr import Csr, from_arcs, row_ids
from mgg.graph.generate import generate
from mgg.graph.generators import generators
from mgg.graph.reorder import needed_bytes, permutation, rabbit
from mgg.graph.reorder.structure import adjacency, both_directions
from mgg.graph.store import Graph, write_graph
from mgg.partition.quality import measure
from mgg.partition.schemes import Split
from mgg.partition.schemes.edge_balanced import bounds
from mgg.record import Machine, write_lines

SEED = 2026
#: For Rabbit order of products-like at scale 0.25, 8 PEs, 2 cores.
TARGETS = (
    "targets: V_FC <= 0.5 of shuffled and <= 1.6 of natural, modularity >= 0.97 of PLM, >= 8 million arcs a second"
)


class ReorderRecord(BaseModel):
    """One order of one graph; ``shuffled`` and ``natural`` are the orders that the others are compared with."""

    graph: str
    nodes: int
    arcs: int = Field(description="stored arcs of the shuffled graph")
    symmetric: bool
    pes: int
    order: str = Field(description="what was asked for")
    used: str = Field(description="what auto chose")
    seconds: float | None = Field(None, description="permutation(), reading included, compiling excluded")
    peak_bytes: int | None = Field(None, description="peak resident set of the process")
    needed_bytes: int | None = Field(None, description="what the order says that it needs")
    span: float = Field(description="averaged edge span")
    v_fc: int = Field(description="bytes of one product of 1 fp32 column, CoLa eq. 7")
    modularity: float | None = Field(None, description="of the communities that Rabbit order finds")
    communities: int | None = None
    plm_modularity: float | None = Field(None, description="of networkit's PLM on the same graph")
    plm_seconds: float | None = None
    machine: Machine
    versions: dict[str, str]


def make_pair(name: str, scale: float, folder: Path, symmetrize: bool) -> tuple[Graph, Graph]:
    """The graph as it comes and with its nodes shuffled."""
    natural, hidden = folder / "natural", folder / "shuffled"
    if name in generators():
        for path, shuffle in ((natural, False), (hidden, True)):
            generate(name, path, scale=scale, shuffle=shuffle)
    else:
        build(name, natural, symmetrize=symmetrize)
        graph = Graph.open(natural)
        csr = graph.rows(0, graph.manifest.nodes)
        rank = np.random.Generator(np.random.PCG64(SEED)).permutation(csr.rows)
        moved = from_arcs(rank[row_ids(csr)], rank[csr.indices], n=csr.rows)
        write_graph(hidden, moved, name=name, source={}, symmetric=graph.manifest.symmetric)
    return Graph.open(natural), Graph.open(hidden)


def timed(path: Path, small: Path, name: str) -> tuple[str, np.ndarray | None, float, int]:
    """Order used, rank, seconds and peak resident bytes of one order; runs in a fresh process."""
    permutation(Graph.open(small), name)
    started = time.perf_counter()
    used, rank = permutation(Graph.open(path), name)
    seconds = time.perf_counter() - started
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return used, rank, seconds, 1024 * int(status.split("VmHWM:")[1].split()[0])


def figures(graph: Graph, rank: np.ndarray | None, pes: int) -> dict[str, float | int]:
    """Averaged edge span and V_FC under ``rank``."""
    rank = np.arange(graph.manifest.nodes) if rank is None else rank.astype(np.int64)
    degree, span = np.empty(len(rank), np.int64), 0
    for lo, csr in graph.blocks():
        rows = np.repeat(np.arange(lo, lo + csr.rows), np.diff(csr.indptr))
        span += int(np.abs(rank[rows] - rank[csr.indices]).sum())
        degree[rank[lo : lo + csr.rows]] = np.diff(csr.indptr)
    split = Split(bounds(np.concatenate([[0], np.cumsum(degree)]), pes), rank)
    v_fc = measure(graph.blocks, split.owners(), pes=pes, workgroup=pes, dim=1).v_fc
    return {"span": span / max(graph.manifest.arcs, 1), "v_fc": v_fc}


def communities(graph: Graph) -> dict[str, float | int | None]:
    """Modularity of what Rabbit order joins, and of networkit's PLM where it is installed."""
    offsets, indices = adjacency(graph)
    csr = Csr(offsets, indices, None, graph.manifest.nodes)
    if not graph.manifest.symmetric:
        offsets, indices = both_directions(offsets, indices)
    found = rabbit.cluster(offsets, indices)[1]
    values: dict[str, float | int | None] = {"modularity": modularity(csr, found), "communities": len(np.unique(found))}
    if importlib.util.find_spec("networkit"):
        import networkit  # not a dependency: installed for this benchmark alone

        rows = row_ids(csr)
        once = rows < csr.indices if graph.manifest.symmetric else rows != csr.indices
        whole = networkit.Graph(csr.rows)
        whole.addEdges((rows[once].astype(np.uint64), csr.indices[once].astype(np.uint64)))
        started = time.perf_counter()
        plm = networkit.community.PLM(whole)
        plm.run()
        values["plm_seconds"] = time.perf_counter() - started
        values["plm_modularity"] = modularity(csr, np.asarray(plm.getPartition().getVector()))
    return values


def measured(name: str, scale: float, names: list[str], pes: int, symmetrize: bool) -> list[ReorderRecord]:
    """A record of each order of one graph."""
    with tempfile.TemporaryDirectory(prefix="mgg-") as scratch:
        natural, hidden = make_pair(name, scale, Path(scratch), symmetrize)
        facts, small = hidden.manifest, Path(scratch) / "small"
        warm = from_arcs(np.arange(4), np.array([1, 2, 0, 4]), n=6, symmetrize=facts.symmetric)
        write_graph(small, warm, name="small", source={}, symmetric=facts.symmetric)
        common = {
            "graph": f"{name} {scale:g}" if name in generators() else name,
            **{"nodes": facts.nodes, "arcs": facts.arcs, "symmetric": facts.symmetric, "pes": pes},
            **{"machine": this_machine(), "versions": these_versions()},
        }
        records = [
            ReorderRecord(order=order, used="natural", **common, **figures(graph, None, pes))
            for order, graph in (("shuffled", hidden), ("natural", natural))
        ]
        for order in names:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                used, rank, seconds, peak = process.submit(timed, hidden.path, small, order).result()
            need = needed_bytes(order, facts.nodes, facts.arcs, symmetric=facts.symmetric)
            cost = {"seconds": seconds, "peak_bytes": peak, "needed_bytes": need}
            found = communities(hidden) if order == "rabbit" else {}
            figure = figures(hidden, rank, pes)
            records.append(ReorderRecord(order=order, used=used, **common, **cost, **found, **figure))
        return records


def table(records: list[ReorderRecord]) -> str:
    """The records of one graph, one line an order."""
    hidden, natural = records[:2]
    head = f"{hidden.graph}: {hidden.nodes} nodes, {hidden.arcs} arcs, {hidden.pes} PEs"
    columns = ["order", "seconds", "Marcs/s", "Q", "Q/PLM", "AES", "V_FC MiB", "/shuffled", "/natural"]
    columns += ["peak MiB", "needs MiB"]
    lines = [head, "".join(f"{column:>10}" for column in columns)]
    for one in records:
        cells = [
            one.order,
            _cell(one.seconds, 1, ".2f"),
            _cell(one.seconds and one.arcs / one.seconds, 1e6, ".1f"),
            _cell(one.modularity, 1, ".4f"),
            _cell(one.modularity, one.plm_modularity, ".4f"),
            _cell(one.span, 1, ".0f"),
            _cell(one.v_fc, 2**20, ".2f"),
            _cell(one.v_fc, hidden.v_fc, ".3f"),
            _cell(one.v_fc, natural.v_fc, ".3f"),
            _cell(one.peak_bytes, 2**20, ".0f"),
            _cell(one.needed_bytes, 2**20, ".0f"),
        ]
        lines.append("".join(f"{cell:>10}" for cell in cells))
    return "\n".join(lines)


def _cell(value: float | None, unit: float | None, form: str) -> str:
    return f"{value / unit:{form}}" if value is not None and unit else "-"


@click.command()
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--graphs", default="products-like", show_default=True, help="separated by commas")
@click.option("--scale", type=click.FloatRange(0, min_open=True), default=0.25, show_default=True, help="of generators")
@click.option("--orders", "names", default="degree,rcm,rabbit,auto", show_default=True, help="separated by commas")
@click.option("--pes", type=click.IntRange(1), default=8, show_default=True, help="PEs that V_FC is for")
@click.option("--symmetrize", is_flag=True, help="add the reverse of every arc of a data set")
def main(out: Path, graphs: str, scale: float, names: str, pes: int, symmetrize: bool) -> None:
    """Number the nodes of each graph by every order, print a table, and write the records into OUT."""
    out.mkdir(parents=True, exist_ok=True)
    click.echo(TARGETS)
    for graph in graphs.split(","):
        records = measured(graph, scale, names.split(","), pes, symmetrize)
        click.echo(table(records))
        write_lines(out / f"{Path(records[0].graph).name.replace(' ', '-')}.jsonl", records)


if __name__ == "__main__":
    run("reorder", main)
