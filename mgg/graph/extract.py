"""Properties of a graph: degrees, averaged edge span, communities (the extractor of GNNAdvisor, OSDI'21, section 3)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mgg.errors import MachineError
from mgg.graph.budget import MIB
from mgg.graph.reorder import needed_bytes
from mgg.graph.reorder.rabbit import cluster
from mgg.graph.reorder.span import averaged_edge_span, pays, span_of
from mgg.graph.reorder.structure import adjacency, both_directions
from mgg.graph.store import Graph


def extract(graph: Graph, limit: int | None, report: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Return properties of a graph by name, as Python numbers.

    They are: the manifest's counts; arcs per row (``degree_*``, with population deviations); the averaged edge span in
    the current numbering (``span``) and whether the paper's test would reorder (``reorder_pays``); the number and sizes
    of the communities that rabbit order finds at resolution 1, the span in rabbit order (``span_rabbit``), and the
    seconds that finding both took (``rabbit_seconds``).

    Args:
        graph: an opened graph folder.
        limit: bytes that the process may take; None: leave out communities, which need the graph in memory.
        told: called with a message before each slow step.

    Raises:
        InputError: a part of the graph is damaged.
        MachineError: communities need more than ``limit``.
    """
    facts = graph.manifest
    if limit is not None:
        need = needed_bytes("rabbit", facts.nodes, facts.arcs, symmetric=facts.symmetric)
        if need > limit:
            raise MachineError(
                f"{graph.path}: communities need about {need // MIB} MiB of memory: raise --memory, or leave them out"
                " by --no-communities"
            )
    span = averaged_edge_span(graph)
    found = {
        "dataset": facts.name,
        "nodes": facts.nodes,
        "arcs": facts.arcs,
        "symmetric": facts.symmetric,
        "weighted": facts.weighted,
        "relations": facts.relations,
        "features": facts.features,
        "classes": facts.classes,
        "order": facts.order,
        **_sizes("degree", np.diff(graph.offsets())),
        "empty_rows": int(np.count_nonzero(np.diff(graph.offsets()) == 0)),
        "span": span,
        "reorder_pays": pays(span, facts.nodes),
    }
    if limit is None:
        return found
    report("finding communities")
    offsets, indices = adjacency(graph)
    cluster(np.array([0, 1, 2]), np.array([1, 0], indices.dtype))  # load compiled code first, so that it is not timed
    began = time.perf_counter()
    rank, community = cluster(*((offsets, indices) if facts.symmetric else both_directions(offsets, indices)))
    seconds, sizes = time.perf_counter() - began, np.bincount(community)
    return found | {
        "communities": len(sizes), **_sizes("community", sizes), "span_rabbit": span_of(offsets, indices, rank),
        "rabbit_seconds": seconds,
    }  # fmt: skip


def _sizes(name: str, counts: np.ndarray) -> dict[str, Any]:
    return {
        f"{name}_mean": float(counts.mean()),
        f"{name}_deviation": float(counts.std()),
        f"{name}_largest": int(counts.max()),
    }
