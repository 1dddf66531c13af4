"""Make a layout: a folder for each PE of a partitioned graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.files import replace_folder
from mgg.graph.store import Graph
from mgg.layout import store
from mgg.layout.parts import Product
from mgg.layout.split import Arcs, numbered, split, transposed, with_arc_map
from mgg.partition import load as load_partition


def build(graph_path: str | Path, partition_path: str | Path, out: str | Path) -> store.LayoutManifest:
    """Write the layout of a partitioned graph.

    Raises:
        InputError: a graph or partition that cannot be read, or a partition of another graph.
    """
    graph = Graph.open(graph_path)
    partition = load_partition(partition_path)
    if (partition.graph_hash, partition.nodes) != (graph.hash, graph.manifest.nodes):
        raise InputError(f"{partition_path}: made for another graph than {graph_path}: run mgg partition again")
    bounds = np.asarray(partition.bounds, np.int64)
    forward_arcs = Arcs(graph.rows(0, graph.manifest.nodes))
    forward = split(forward_arcs, bounds)
    transpose = _transpose(forward_arcs, forward, bounds)
    manifest = store.LayoutManifest(
        name=graph.manifest.name,
        graph_hash=graph.hash,
        nodes=graph.manifest.nodes,
        arcs=graph.manifest.arcs,
        symmetric=graph.manifest.symmetric,
        weighted=graph.manifest.weighted,
        features=graph.manifest.features,
        classes=graph.manifest.classes,
        splits=bool(graph.manifest.parts("splits")),
        pes=partition.pes,
        scheme=partition.scheme,
        workgroup=partition.workgroup,
        bounds=partition.bounds,
        forward=_counts(forward),
        transpose=_counts(transpose),
    )
    with replace_folder(out, store.KIND) as folder:
        for pe in range(partition.pes):
            here = folder / store.pe_folder(pe)
            here.mkdir()
            store.save_product(here, "forward", forward[pe])
            store.save_product(here, "transpose", transpose[pe])
            lo, hi = partition.bounds[pe], partition.bounds[pe + 1]
            store.save_node_data(
                here, features=graph.features(lo, hi), labels=graph.labels(lo, hi), splits=graph.splits(lo, hi)
            )
        manifest.files = store.describe_files(folder)
        store.write_manifest(folder, manifest)
    return manifest


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
