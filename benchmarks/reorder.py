"""Time and quality of the orders: python benchmarks/reorder.py OUT --graphs products-like,reddit-like --scale 0.25.

Each graph's nodes are shuffled, then every order numbers them anew in a process of its own, which has compiled its
loops on a small graph before the clock starts. The clock covers reading the graph from its shards. V_FC is that of
``edge_balanced`` parts. Modularity is that of the communities which Rabbit order finds, beside networkit's PLM where
networkit is installed. A graph is a generator, a data set's name, or a file that ``mgg graph`` reads. OUT gets
reorder.jsonl, a line on the machine, then one an order; the others are compared with ``shuffled`` and ``natural``.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from common import OUT, Results, measured, run
from modularity import modularity

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

SEED = 2026
#: Of a graph and a small one of the same kind.
WARM = "from mgg.graph.reorder import permutation\nfrom mgg.graph.store import Graph\n"
ORDER = "permutation(Graph.open(paths[{place}]), {order!r})"
#: Columns of the table: name, key, unit, of what, and form.
COLUMNS = (
    ("seconds", "seconds", 1, "", ".2f"), ("Marcs/s", "arcs_a_second", 1e6, "", ".1f"), ("Q", "q", 1, "", ".4f"),
    ("Q/PLM", "q", 1, "plm_q", ".4f"), ("AES", "span", 1, "", ".0f"), ("V_FC MiB", "v_fc", 2**20, "", ".2f"),
    ("/shuffled", "v_fc", 1, "shuffled", ".3f"), ("/natural", "v_fc", 1, "natural", ".3f"),
    ("peak MiB", "peak_bytes", 2**20, "", ".0f"), ("needs MiB", "needed_bytes", 2**20, "", ".0f"),
)  # fmt: skip


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


def figures(graph: Graph, rank: np.ndarray | None, pes: int) -> dict[str, float | int]:
    """Averaged edge span, and V_FC of a product of one fp32 column (CoLa eq. 7), under ``rank``."""
    rank = np.arange(graph.manifest.nodes) if rank is None else rank.astype(np.int64)
    degree, span = np.empty(len(rank), np.int64), 0
    for lo, csr in graph.blocks():
        span += int(np.abs(rank[lo + row_ids(csr)] - rank[csr.indices]).sum())
        degree[rank[lo : lo + csr.rows]] = np.diff(csr.indptr)
    split = Split(bounds(np.concatenate([[0], np.cumsum(degree)]), pes), rank)
    v_fc = measure(graph.blocks, split.owners(), pes=pes, workgroup=pes, dim=1).v_fc
    return {"span": span / max(graph.manifest.arcs, 1), "v_fc": v_fc}


def communities(graph: Graph) -> dict[str, float | int]:
    """Modularity of what Rabbit order joins, and of networkit's PLM where it is installed."""
    offsets, indices = adjacency(graph)
    csr = Csr(offsets, indices, None, graph.manifest.nodes)
    if not graph.manifest.symmetric:
        offsets, indices = both_directions(offsets, indices)
    found = rabbit.cluster(offsets, indices)[1]
    values: dict[str, float | int] = {"q": modularity(csr, found), "communities": len(np.unique(found))}
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
        values["plm_q"] = modularity(csr, np.asarray(plm.getPartition().getVector()))
    return values


def row(line: dict[str, Any], baselines: dict[str, int]) -> str:
    """A row of the table; ``baselines``: V_FC of the orders that others are compared with."""
    cells = []
    for _, key, unit, of, form in COLUMNS:
        base = (baselines | line).get(of) if of else unit
        cells.append(f"{line[key] / base:{form}}" if key in line and base else "-")
    return "".join(f"{cell:>10}" for cell in (line["order"], *cells))


@click.command()
@OUT
@click.option("--graphs", default="products-like", show_default=True, help="separated by commas")
@click.option("--scale", type=click.FloatRange(0, min_open=True), default=0.25, show_default=True, help="of generators")
@click.option("--orders", "names", default="degree,rcm,rabbit,auto", show_default=True, help="separated by commas")
@click.option("--pes", type=click.IntRange(1), default=8, show_default=True, help="PEs that V_FC is for")
@click.option("--symmetrize", is_flag=True, help="add the reverse of every arc of a data set")
def main(out: Path, graphs: str, scale: float, names: str, pes: int, symmetrize: bool) -> None:
    """Number the nodes of each graph by every order, and print a table."""
    results = Results(out / "reorder.jsonl")
    results.about()
    for name in graphs.split(","):
        with tempfile.TemporaryDirectory(prefix="mgg-") as scratch:
            natural, hidden = make_pair(name, scale, Path(scratch), symmetrize)
            facts, small = hidden.manifest, Path(scratch) / "small"
            warm = from_arcs(np.arange(4), np.array([1, 2, 0, 4]), n=6, symmetrize=facts.symmetric)
            write_graph(small, warm, name="small", source={}, symmetric=facts.symmetric)
            results.say(f"{name}, scale {scale:g}: {facts.nodes} nodes, {facts.arcs} arcs, {pes} PEs")
            results.say("".join(f"{each:>10}" for each in ("order", *(column[0] for column in COLUMNS))))
            baselines: dict[str, int] = {}
            for order in ("shuffled", "natural", *names.split(",")):
                line: dict[str, Any] = {"graph": name, "scale": scale, "arcs": facts.arcs, "pes": pes, "order": order}
                if order in ("shuffled", "natural"):
                    line |= figures(hidden if order == "shuffled" else natural, None, pes)
                    baselines[order] = line["v_fc"]
                else:
                    prepare, timed = WARM + ORDER.format(place=1, order=order), ORDER.format(place=0, order=order)
                    line |= measured(prepare, timed, hidden.path, small)
                    line["arcs_a_second"] = facts.arcs / line["seconds"]
                    line["needed_bytes"] = needed_bytes(order, facts.nodes, facts.arcs, symmetric=facts.symmetric)
                    line["used"], rank = permutation(hidden, order)
                    line |= figures(hidden, rank, pes) | (communities(hidden) if order == "rabbit" else {})
                results.record(**line)
                results.say(row(line, baselines))


if __name__ == "__main__":
    run(main)
