"""Threads of a CPU PE, among which the rows of row-wise products are dealt; one unless a job asks for more.

Ranges of rows have equal numbers of arcs. Whichever thread works one off sums a row in the order of its arcs, so bits
depend on neither the number of threads nor their speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np

#: Ranges per thread: fast threads take over work of slow ones.
_RANGES = 8


class _Team:
    """The threads beside the caller; ``count`` of a PE, the caller included."""

    count = 1
    pool: ThreadPoolExecutor | None = None


def threads_of_pe() -> int:
    """How many each PE of this process has."""
    return _Team.count


@contextmanager
def threads_per_pe(count: int, pes: int) -> Iterator[None]:
    """Until the end each of ``pes`` PEs of this process has ``count`` threads."""
    if count == 1:
        yield
        return
    with ThreadPoolExecutor((count - 1) * pes, thread_name_prefix="product") as pool:
        _Team.count, _Team.pool = count, pool
        try:
            yield
        finally:
            _Team.count, _Team.pool = 1, None


def deal(indptr: np.ndarray, work: Callable[[int, int], None]) -> None:
    """Call ``work(first, last)`` for ranges that are all rows of ``indptr`` int64 [rows + 1], and wait for the end."""
    rows, pool = len(indptr) - 1, _Team.pool
    if pool is None:
        work(0, rows)
        return
    ranges = _Team.count * _RANGES
    arcs = np.linspace(indptr[0], indptr[-1], ranges + 1)[1:-1]
    edges = [0, *np.searchsorted(indptr[:-1], arcs).tolist(), rows]
    turns = iter(range(ranges))  # threads take from it under the interpreter lock

    def some() -> None:
        for turn in turns:
            work(edges[turn], edges[turn + 1])

    others = [pool.submit(some) for _ in range(_Team.count - 1)]
    some()
    for other in others:
        other.result()
