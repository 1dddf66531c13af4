"""Make a layout: a folder for each PE of a partitioned graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.files import replace_folder
from mgg.graph.csr import Csr
from mgg.graph.store import Graph
from mgg.layout import nodes, store
from mgg.layout.parts import Product
from mgg.layout.permute import inverse, permuted
from mgg.layout.split import Arcs, numbered, split, transposed, with_arc_map
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
    bounds = np.asarray(partition.bounds, np.int64)
    forward_arcs = Arcs(_adjacency(graph, order))
    forward = split(forward_arcs, bounds)
    transpose = _transpose(forward_arcs, forward, bounds)
    manifest = _manifest(graph, partition, forward, transpose)
    with replace_folder(out, store.KIND) as folder:
        for pe in range(partition.pes):
            here = folder / store.pe_folder(pe)
            here.mkdir()
            store.save_product(here, "forward", forward[pe])
            store.save_product(here, "transpose", transpose[pe])
        at = np.arange(partition.nodes) if order is None else inverse(order)
        nodes.save(folder, graph, np.split(at, bounds[1:-1]), permuted=order is not None)
        manifest.files = store.describe_files(folder)
        store.write_manifest(folder, manifest)
    return manifest


def _adjacency(graph: Graph, order: np.ndarray | None) -> Csr:
    """The whole adjacency, in the order of the partition."""
    csr = graph.rows(0, graph.manifest.nodes)
    return csr if order is None else permuted(csr, order)


def _manifest(
    graph: Graph, partition: PartitionRecord, forward: list[Product], transpose: list[Product]
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
        relations=facts.relations,
        splits=bool(facts.parts("splits")),
        ids=bool(facts.parts("ids")),
        permuted=partition.order is not None,
        pes=partition.pes,
        scheme=partition.scheme,
        workgroup=partition.workgroup,
        bounds=partition.bounds,
        forward=_counts(forward),
        transpose=_counts(transpose),
    )


def _transpose(forward_arcs: Arcs, forward: list[Product], bounds: np.ndarray) -> list[Product]:
    arcs = transposed(forward_arcs.csr)
    numbers = numbered(forward, forward_arcs, bounds)
    return [with_arc_map(product, arcs, numbers, bounds, pe) for pe, product in enumerate(split(arcs, bounds))]


def _counts(products: list[Product]) -> store.Direction:
    return store.Direction(
        arcs=[product.local.arcs + product.remote.arcs for product in products],
        remote_arcs=[product.remote.arcs for product in products],
        halo_rows=[product.halo for product in products],
    )
