"""Writes sorted rows as parts of the adjacency: cuts them as in docs/reference/format.md encodes parts in parallel."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mgg.graph.manifest import Shard
from mgg.graph.store import shards
from mgg.graph.store.shards import Kind


@dataclass(frozen=True)
class SortedRows:
    """Consecutive sorted rows.

    Attributes:
        degrees: int64 [rows], arcs per row.
        arcs: kind -> the values of all arcs in order: "adjacency" and, if present, "weights" and "arc_types".
        repeats: number of arcs that were merged with others.
        loops: number of self-loops among the arcs.
    """

    degrees: np.ndarray
    arcs: dict[Kind, np.ndarray]
    repeats: int = 0
    loops: int = 0


class PartWriter:
    """Writes the parts of consecutive rows; part numbers begin at 0."""

    def __init__(
        self, folder: Path, first: int, submit: Callable[..., Future[tuple[str, Shard]]], waiting: int
    ) -> None:
        """Write into ``folder`` from row ``first`` on; ``submit`` runs calls, at most ``waiting`` of them at once."""
        self.parts: dict[str, Shard] = {}
        self._folder, self._submit, self._waiting = folder, submit, waiting
        self._first, self._number = first, 0
        self._degrees = np.empty(0, np.int64)
        self._arcs: dict[Kind, deque[np.ndarray]] = {}
        self._running: deque[Future[tuple[str, Shard]]] = deque()

    def add(self, rows: SortedRows) -> None:
        """Append rows and write the parts that are certainly complete."""
        self._degrees = np.concatenate([self._degrees, rows.degrees])
        for kind, values in rows.arcs.items():
            self._arcs.setdefault(kind, deque()).append(values)
        self._cut(last=False)

    def finish(self) -> dict[str, Shard]:
        """Write the rest and return all parts: name -> manifest entry."""
        self._cut(last=True)
        while self._running:
            self._collect()
        return self.parts

    def _cut(self, last: bool) -> None:
        ends = np.cumsum(self._degrees)
        lo, arcs = 0, 0
        while lo < len(ends):
            first = self._first + lo
            limit = lo + shards.VERTICES_PER_PART - first % shards.VERTICES_PER_PART
            hi = min(max(int(np.searchsorted(ends, arcs + shards.ARCS_PER_PART, side="right")), lo + 1), limit)
            if hi >= len(ends) and hi != limit and not last:
                # The next row may still fit into this part. A single row that is too long could be written already, but
                # waiting for the next rows does no harm.
                break
            self._write(first, hi - lo, int(ends[hi - 1]) - arcs)
            lo, arcs = hi, int(ends[hi - 1])
        self._first += lo
        self._degrees = self._degrees[lo:]

    def _write(self, first: int, rows: int, arcs: int) -> None:
        for kind, blocks in self._arcs.items():
            while len(self._running) >= self._waiting:
                self._collect()
            values = _take(blocks, arcs)
            self._running.append(
                self._submit(shards.write_part, self._folder, kind, self._number, values, first=first, rows=rows)
            )
        self._number += 1

    def _collect(self) -> None:
        name, shard = self._running.popleft().result()
        self.parts[name] = shard


def _take(blocks: deque[np.ndarray], count: int) -> np.ndarray:
    """Remove the first ``count`` values from the queue and return them; at least one block stays."""
    taken, missing = [], count
    while missing > len(blocks[0]):
        missing -= len(blocks[0])
        taken.append(blocks.popleft())
    taken.append(blocks[0][:missing])
    blocks[0] = blocks[0][missing:]
    return taken[0] if len(taken) == 1 else np.concatenate(taken)
