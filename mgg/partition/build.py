"""Make, store and read a partition: a folder with ``partition.json`` and, if nodes move, ``order.npy``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mgg import npy
from mgg.errors import InputError
from mgg.files import Kind, check_output, replace_folder, write_file
from mgg.graph.store import Graph
from mgg.origin import origin
from mgg.partition.quality import measure
from mgg.partition.schemes import scheme as find_scheme
from mgg.records import PARTITION_FILE, PartitionRecord, as_json, read_partition

ORDER_FILE = "order.npy"
KIND = Kind(PARTITION_FILE, (ORDER_FILE,))


def build(
    graph_path: str | Path, out: str | Path, *, pes: int, scheme: str, workgroup: int, dim: int, cover: bool = False
) -> PartitionRecord:
    """Partition the graph folder ``graph_path`` and write the folder ``out``; ``cover``: see ``measure``.

    Raises:
        InputError: an unknown scheme, or a graph that cannot be read (named).
        MachineError: the scheme needs more memory than this machine has, or the disk is full or fails.
    """
    split = find_scheme(scheme)
    graph = Graph.open(graph_path)
    check_output(out, KIND)
    made = split(graph, pes)
    quality = measure(graph.blocks, made.owners(), pes=pes, workgroup=workgroup, dim=dim, cover=cover)
    with replace_folder(out, KIND) as folder:
        record = PartitionRecord(
            name=graph.manifest.name,
            graph_hash=graph.hash,
            nodes=graph.manifest.nodes,
            pes=pes,
            scheme=scheme,
            workgroup=workgroup,
            order=None if made.order is None else npy.save(folder / ORDER_FILE, made.order),
            bounds=made.bounds.tolist(),
            quality=quality,
            **origin(),
        )
        write_file(folder / PARTITION_FILE, as_json(record, indent=1).encode())
    return record


def load(folder: str | Path) -> PartitionRecord:
    """Read a partition's record; raise InputError, which names the file and the problem."""
    try:
        return read_partition(folder)
    except InputError as error:
        raise InputError(f"{error}: make the partition with mgg partition") from None


def load_order(folder: str | Path, record: PartitionRecord) -> np.ndarray | None:
    """Return the position of each node, int32 or int64 [n], or None if no node moves.

    Args:
        folder: the partition.
        record: the result of :func:`load`.

    Raises:
        InputError: ``order.npy`` is missing, truncated or altered, is not a permutation, or changes the order of a
            PE's nodes.
    """
    if record.order is None:
        return None
    path = Path(folder) / ORDER_FILE
    order = npy.load(path, record.order, "run mgg partition again")
    if order.shape != (record.nodes,) or order.dtype.kind != "i" or not _keeps_order(order, record.bounds):
        raise InputError(f"{path}: not a permutation of {record.nodes} nodes that keeps the order of each PE's nodes")
    return order


def _keeps_order(order: np.ndarray, bounds: list[int]) -> bool:
    """Whether ``order`` is a permutation in which the nodes of each PE ascend."""
    nodes = np.full(len(order), -1, np.int64)
    if len(order) and (order.min() < 0 or order.max() >= len(order)):
        return False
    nodes[order] = np.arange(len(order))
    starts = np.zeros(len(order), bool)
    starts[[lo for lo in bounds if lo < len(order)]] = True
    return bool(np.all(nodes >= 0) and np.all((np.diff(nodes) > 0) | starts[1:]))
