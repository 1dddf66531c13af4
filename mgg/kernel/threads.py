"""Threads of a CPU PE that share the rows of products and of vertex programs; one unless a job asks for more.

Rows are split into ranges with equal numbers of arcs. Every thread sums a row in the order of its arcs, so the bits
depend neither on the number of threads nor on their speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np

#: Ranges per thread, so that fast threads can take over work from slow ones.
_RANGES = 8


class _Team:
    """The extra threads of a process; ``count`` is the number per PE, including the PE's calling thread."""

    count = 1
    pool: ThreadPoolExecutor | None = None


def threads_of_pe() -> int:
    """Return the number of threads of each PE of this process."""
    return _Team.count


@contextmanager
def threads_per_pe(count: int, pes: int) -> Iterator[None]:
    """Give each of ``pes`` PEs of this process ``count`` threads within the context."""
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
    """Call ``work(first, last)`` for ranges that cover all rows of ``indptr``, int64 [rows + 1]; wait for all calls."""
    rows, pool = len(indptr) - 1, _Team.pool
    if pool is None:
        work(0, rows)
        return
    ranges = _Team.count * _RANGES
    arcs = np.linspace(indptr[0], indptr[-1], ranges + 1)[1:-1]
    edges = [0, *np.searchsorted(indptr[:-1], arcs).tolist(), rows]
    turns = iter(range(ranges))  # threads draw from it under the interpreter lock

    def some() -> None:
        for turn in turns:
            work(edges[turn], edges[turn + 1])

    others = [pool.submit(some) for _ in range(_Team.count - 1)]
    some()
    for other in others:
        other.result()
