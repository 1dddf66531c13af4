"""Numbers ids beyond 2^32, which do not fit into the spool's keys, in ascending order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mgg.errors import InputError, MachineError
from mgg.graph.external import kernels
from mgg.graph.sources import Arcs, ArcStream

#: Ids of chunks that are collected before they are merged.
_HELD = 2**21


class WideIdsError(Exception):
    """A stream that does not know its nodes has an id beyond 2^32."""


def numbered(arcs: ArcStream, name: str, limit: int) -> tuple[ArcStream, np.ndarray]:
    """Renumber the nodes: return the arcs between node numbers, and the id of each node, int64 [nodes], ascending.

    Args:
        arcs: a stream whose nodes are the ids that occur.
        name: name of the graph, for errors.
        limit: bytes that the ids may take.

    Raises:
        InputError: the stream has an error, or the number of nodes differs from the one that the source states.
        MachineError: the ids do not fit into ``limit``.
    """
    known, waiting, held = np.empty(0, np.int64), list[np.ndarray](), 0
    for chunk in arcs.read():
        waiting.append(np.union1d(chunk.targets, chunk.sources).astype(np.int64, copy=False))
        held += len(waiting[-1])
        if held >= _HELD:
            known, waiting, held = _merged(known, waiting, name, limit), [], 0
    known = _merged(known, waiting, name, limit)
    if len(known) > kernels.IDS:
        raise InputError(f"{name}: {len(known)} nodes: at most {kernels.IDS} nodes are supported")
    if arcs.stated_nodes not in (None, len(known)):
        place = arcs.stated_in or name
        raise InputError(f"{place}: announces {arcs.stated_nodes} nodes, but the arcs join {len(known)}")

    def read() -> Iterator[Arcs]:
        for chunk in arcs.read():
            targets, sources = (np.searchsorted(known, ids) for ids in (chunk.targets, chunk.sources))
            yield replace(chunk, targets=targets, sources=sources)

    return replace(arcs, read=read, nodes=len(known), stated_nodes=None, stated_in=""), known


def _merged(known: np.ndarray, waiting: list[np.ndarray], name: str, limit: int) -> np.ndarray:
    known = np.unique(np.concatenate([known, *waiting]))
    if 2 * known.nbytes > limit:  # sorting needs a copy
        raise MachineError(
            f"{name}: {len(known)} ids or more, some beyond 2^32: a table of them does not fit the memory; raise"
            " --memory"
        )
    return known
