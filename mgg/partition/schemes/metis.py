"""Few arcs between PEs: the multilevel k-way partitioner METIS (Karypis and Kumar 1998), called through pymetis."""

from __future__ import annotations

import numpy as np
import pymetis
from scipy import sparse

from mgg.errors import MachineError, memory_error
from mgg.graph.csr import index_dtype, inverse
from mgg.graph.reorder.structure import adjacency
from mgg.graph.store import Graph
from mgg.partition.schemes import Split, equal_nodes

SEED = 2025


def split(graph: Graph, pes: int) -> Split:
    """Split into parts with few arcs between them; the permutation makes the nodes of each part consecutive.

    METIS cuts the undirected pattern A + A^T. A node's weight is the number of arcs in its row, so METIS balances arcs
    as ``edge_balanced`` does, within its tolerance of 3 %. Nodes without arcs go to the PEs with the fewest nodes. The
    seed is fixed: the same graph and version of METIS give the same partition. With no more nodes than PEs, METIS would
    put all nodes on one PE, so they are split as by ``equal_nodes``.

    Unlike the other schemes, this one loads the graph into memory, and METIS adds some coarser copies of it.

    Raises:
        InputError: a part of the graph is damaged, or the graph is marked symmetric and is not.
        MachineError: METIS was built with 32-bit numbers and the graph has too many arcs for them, or there is not
            enough memory.
    """
    nodes = graph.manifest.nodes
    if pes == 1 or pes >= nodes or graph.manifest.arcs == 0:
        return Split(equal_nodes.bounds(nodes, pes))
    _check_width(graph.manifest.arcs)
    offsets, columns = adjacency(graph)
    pattern = _pattern(offsets, columns, graph.manifest.symmetric)
    owners = _cut(pattern, np.diff(offsets), pes)
    alone = np.flatnonzero(np.diff(pattern.indptr) == 0)
    owners[alone] = _dealt(np.bincount(np.delete(owners, alone), minlength=pes), nodes)
    order = inverse(np.argsort(owners, kind="stable").astype(index_dtype(nodes), copy=False))
    bounds = np.concatenate(([0], np.cumsum(np.bincount(owners, minlength=pes))))
    return Split(bounds.astype(np.int64), order)


def _check_width(arcs: int) -> None:
    most = np.iinfo(pymetis.zero_copy_dtype()).max
    if arcs > most:
        raise MachineError(
            f"--scheme metis: this METIS counts to {most:,} and the graph has {arcs:,} arcs:"
            " install pymetis from PyPI, which counts in 64 bits, or take --scheme edge_balanced"
        )


def _pattern(offsets: np.ndarray, columns: np.ndarray, symmetric: bool) -> sparse.csr_array:
    """Return the pattern of A + A^T without loops (any nonzero values), for A = (``offsets``, ``columns``)."""
    nodes = len(offsets) - 1
    loops = columns == np.repeat(np.arange(nodes, dtype=columns.dtype), np.diff(offsets))
    pattern = sparse.csr_array((~loops, columns, offsets), shape=(nodes, nodes))
    if loops.any():
        pattern.eliminate_zeros()
    return pattern if symmetric else pattern + pattern.T


def _cut(pattern: sparse.csr_array, weights: np.ndarray, pes: int) -> np.ndarray:
    _check_width(pattern.nnz)
    width = pymetis.zero_copy_dtype()
    adjacency = pymetis.CSRAdjacency(pattern.indptr.astype(width), pattern.indices.astype(width))
    options = pymetis.Options(seed=SEED)
    try:
        found = pymetis.part_graph(pes, adjacency, vweights=weights.astype(width), options=options)
    except (MemoryError, RuntimeError) as error:
        raise memory_error(f"METIS failed ({error}), most likely for that: take --scheme edge_balanced") from None
    return np.array(found.vertex_part, np.int64)


def _dealt(counts: np.ndarray, nodes: int) -> np.ndarray:
    """Return PEs for the nodes missing in ``counts`` [P] of ``nodes``, filling every PE up to the same number."""
    room = np.maximum(-(-nodes // len(counts)) - counts, 0)
    return np.repeat(np.arange(len(counts)), room)[: nodes - counts.sum()]
