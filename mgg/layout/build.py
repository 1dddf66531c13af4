"""Make a layout: a folder for each PE of a partitioned graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.files import replace_folder
from mgg.graph.csr import Csr
from mgg.graph.permutation import inverse
from mgg.graph.store import Graph
from mgg.layout import nodes, store
from mgg.layout.permute import permuted
from mgg.layout.split import Mapped, Splitter, mapped, sends
from mgg.partition import load as load_partition
from mgg.partition import load_order
from mgg.record import PartitionRecord


def build(graph_path: str | Path, partition_path: str | Path, out: str | Path) -> store.LayoutManifest:
    """Write the layout of a partitioned graph.

    Raises:
        InputError: a graph or partition that cannot be read, or a partition of another graph.
    """
    graph = Graph.open(graph_path)
    partition = load_partition(partition_path)
    if (partition.graph_hash, partition.nodes) != (graph.hash, graph.manifest.nodes):
        raise InputError(f"{partition_path}: made for another graph than {graph_path}: run mgg partition again")
    order = load_order(partition_path, partition)
    with replace_folder(out, store.KIND) as folder:
        forward, transpose = _save_products(folder, graph, order, np.asarray(partition.bounds, np.int64))
        manifest = _manifest(graph, partition, forward, transpose)
        at = np.arange(partition.nodes) if order is None else inverse(order)
        nodes.save(folder, graph, np.split(at, partition.bounds[1:-1]), permuted=order is not None)
        manifest.files = store.describe_files(folder)
        store.write_manifest(folder, manifest)
    return manifest


def _save_products(
    folder: Path, graph: Graph, order: np.ndarray | None, bounds: np.ndarray
) -> tuple[store.Direction, store.Direction]:
    """Make the PEs' folders with the products of both directions.

    At its peak it holds the adjacency and its transpose, 16 bytes an arc (32-bit ids, no weights or types).
    """
    for pe in range(len(bounds) - 1):
        (folder / store.pe_folder(pe)).mkdir()
    adjacency = _adjacency(graph, order)
    forward = _save_product(folder, "forward", adjacency, bounds)
    local = [arcs - remote for arcs, remote in zip(forward.arcs, forward.remote_arcs, strict=True)]
    transpose = mapped(adjacency, bounds, local)
    del adjacency
    return forward, _save_product(folder, "transpose", transpose, bounds)


def _save_product(folder: Path, direction: str, of: Csr | Mapped, bounds: np.ndarray) -> store.Direction:
    """Write one direction, a PE at a time; the send lists follow when every halo is known."""
    csr, position = (of, None) if isinstance(of, Csr) else (of.csr, of.position)
    splitter, halos = Splitter(csr, bounds, position), []
    counts = store.Direction(arcs=[], remote_arcs=[], halo_rows=[])
    for pe in range(len(bounds) - 1):
        cut = splitter.cut(pe)
        store.save_product(folder / store.pe_folder(pe), direction, **vars(cut))
        counts.arcs.append(cut.local.arcs + cut.remote.arcs)
        counts.remote_arcs.append(cut.remote.arcs)
        counts.halo_rows.append(len(cut.halo_rows))
        halos.append((cut.halo_ptr, cut.halo_rows))
    for pe in range(len(bounds) - 1):
        store.save_product(folder / store.pe_folder(pe), direction, **vars(sends(halos, pe)))
    return counts


def _adjacency(graph: Graph, order: np.ndarray | None) -> Csr:
    """The whole adjacency, in the order of the partition."""
    csr = graph.rows(0, graph.manifest.nodes)
    return csr if order is None else permuted(csr, order)


def _manifest(
    graph: Graph, partition: PartitionRecord, forward: store.Direction, transpose: store.Direction
) -> store.LayoutManifest:
    facts = graph.manifest
    return store.LayoutManifest(
        name=facts.name,
        graph_hash=graph.hash,
        nodes=facts.nodes,
        arcs=facts.arcs,
        symmetric=facts.symmetric,
        weighted=facts.weighted,
        features=facts.features,
        classes=facts.classes,
        tasks=facts.tasks,
        relations=facts.relations,
        splits=bool(facts.parts("splits")),
        ids=bool(facts.parts("ids")),
        permuted=partition.order is not None,
        pes=partition.pes,
        scheme=partition.scheme,
        workgroup=partition.workgroup,
        bounds=partition.bounds,
        forward=forward,
        transpose=transpose,
    )
