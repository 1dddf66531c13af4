"""Make a layout, with a folder for each PE of a partitioned graph, within a memory budget."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.files import replace_folder
from mgg.graph import external
from mgg.graph.budget import MIB
from mgg.graph.csr import Csr, inverse
from mgg.graph.external import Memory, scattering, sharding
from mgg.graph.manifest import Manifest
from mgg.graph.source import stored_arcs
from mgg.graph.sources import Arcs, StreamedGraph
from mgg.graph.store import Graph
from mgg.layout import nodes, store
from mgg.layout.split import save_product
from mgg.partition import load as load_partition
from mgg.partition import load_order
from mgg.records import PartitionRecord

#: Folder inside the new layout in which arcs are sorted.
SCRATCH = ".scratch"
#: Bytes per arc for reading and cutting a block, weight and type included; and bytes that compiled loops and allocators
#: hold from the first direction on.
CUTTING, LOADED = 48, 48 * MIB


def build(
    graph_path: str | Path, partition_path: str | Path, out: str | Path, memory: Memory | None = None
) -> store.LayoutManifest:
    """Write the layout of a partitioned graph; memory and threads do not change its bytes.

    Args:
        graph_path: the graph folder.
        partition_path: one of its partitions.
        out: the layout; an existing one is replaced once the new one is complete.
        memory: limits on memory and threads. Sorting temporarily takes 8 bytes of disk per arc next to ``out``, 16 with
            weights or types.

    Raises:
        InputError: a graph or partition that cannot be read, a partition of another graph, or too little memory.
        MachineError: a single row needs more than the memory, or the disk is full.
    """
    memory = memory or Memory.beside()
    graph = Graph.open(graph_path)
    partition = load_partition(partition_path)
    if (partition.graph_hash, partition.nodes) != (graph.hash, graph.manifest.nodes):
        raise InputError(f"{partition_path}: made for another graph than {graph_path}: run mgg partition again")
    memory = _sorting(memory, graph.manifest, partition)
    order = load_order(partition_path, partition)
    with replace_folder(out, store.KIND) as folder:
        forward, transpose = _save_products(folder, graph, order, np.asarray(partition.bounds, np.int64), memory)
        manifest = _manifest(graph, partition, forward, transpose)
        ranges = [range(*ends) for ends in zip(partition.bounds, partition.bounds[1:], strict=False)]
        parts = ranges if order is None else np.split(inverse(order), partition.bounds[1:-1])
        nodes.save(folder, graph, parts, permuted=order is not None)
        manifest.files = store.describe_files(folder, memory.workers)
        store.write_manifest(folder, manifest)
    return manifest


def _sorting(memory: Memory, facts: Manifest, partition: PartitionRecord) -> Memory:
    """Return the memory left for sorting; raise InputError with the least amount needed if it cannot suffice."""
    largest = max((shard.arcs or 0 for _, shard in facts.parts("adjacency")), default=0)
    # Words of a halo's bits with their counts; row pointers of halos; arcs of a block; blocks of node data.
    cutting = facts.nodes * 3 // 8 + 8 * partition.pes**2 + CUTTING * largest + 2 * nodes.BLOCK_BYTES
    order = 0 if partition.order is None else int(facts.index_dtype[3:]) // 8 * facts.nodes
    least = scattering.LEAST_PAYLOAD if facts.weighted or facts.relations else scattering.LEAST
    memory.free(max(cutting + LOADED + order + least, order and 2 * order + 18 * facts.nodes))
    return replace(memory, limit=memory.limit - cutting)


def _save_products(
    folder: Path, graph: Graph, order: np.ndarray | None, bounds: np.ndarray, memory: Memory
) -> tuple[store.Direction, store.Direction]:
    for pe in range(len(bounds) - 1):
        (folder / store.pe_folder(pe)).mkdir()
    scratch = folder / SCRATCH
    blocks = graph.blocks() if order is None else _sorted(graph, order, scratch, memory, turned=False)
    forward = save_product(folder, "forward", blocks, graph.manifest, bounds)
    blocks = _sorted(graph, order, scratch, memory, turned=True)
    return forward, save_product(folder, "transpose", blocks, graph.manifest, bounds)


def _sorted(
    graph: Graph, order: np.ndarray | None, scratch: Path, memory: Memory, *, turned: bool
) -> Iterator[tuple[int, Csr]]:
    """Yield rows of the matrix, or its transpose if ``turned``, in partition order; sorts arcs as stage graph does."""
    arcs = stored_arcs(graph)

    def read() -> Iterator[Arcs]:
        for chunk in arcs.read():
            ends = (chunk.targets, chunk.sources) if order is None else (order[chunk.targets], order[chunk.sources])
            yield replace(chunk, targets=ends[turned], sources=ends[not turned])

    stream = StreamedGraph(replace(arcs, read=read, repeats="first", loops="keep"))
    scratch.mkdir()
    scattered = external.scatter(stream, scratch, name=graph.manifest.name, source={}, memory=memory)
    yield from sharding.sorted_blocks(scattered, memory)
    shutil.rmtree(scratch)


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
