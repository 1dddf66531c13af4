"""Trees along which rows are forwarded to all PEs that need them, one after another where links are least busy."""

from __future__ import annotations

import numba
import numpy as np

#: A link between mates, and one to another workgroup.
NEAR, FAR = 0, 1


@numba.njit(cache=True, nogil=True)
def grow(  # type: ignore[no-untyped-def]
    owners, needed, counts, chunks, batch, members, seconds, parents, stages
):
    """Fill in a tree for each chunk of ``batch`` rows of each class (the last one of a class may be shorter).

    A tree grows by the PE that it reaches soonest, given what earlier trees take of each PE's ports in each stage:
    Dijkstra's shortest paths, which are single links here, as every PE that forwards rows needs them itself. A stage
    lasts as long as its busiest port. A tree enters each workgroup once.

    Args:
        owners: int [C], the PE that has the rows of each class.
        needed: bool [C, P], the PEs that need them, their owner not among them.
        counts: int64 [C], how many rows.
        chunks: int64 [C + 1], first chunk of each class.
        batch: rows of a chunk.
        members: PEs of a workgroup.
        seconds: float64 [2], that a row takes over a link, ``NEAR`` and ``FAR``.
        parents: int16 [K, P], written: from whom each PE has the rows of a chunk; -1: it does not get them.
        stages: int16 [K, P], written: when, from 0; -1: its owner has them before, and others never.

    Returns:
        Seconds of each stage, float64 [P].
    """
    pes = needed.shape[1]
    # What leaves and what enters each PE in a stage, in seconds.
    sent, received = np.zeros((pes, 2, pes)), np.zeros((pes, 2, pes))
    busiest = np.zeros(pes)
    tree, left = np.empty(pes, np.int64), np.empty(pes, np.bool_)
    entered = np.empty(-(-pes // members), np.bool_)
    for each in range(owners.size):
        for chunk in range(chunks[each], chunks[each + 1]):
            rows = min(batch, counts[each] - (chunk - chunks[each]) * batch)
            parents[chunk, :], stages[chunk, :] = -1, -1
            entered[:] = False
            tree[0], size, missing = owners[each], 1, 0
            entered[owners[each] // members] = True
            for pe in range(pes):
                left[pe] = needed[each, pe]
                missing += left[pe]
            while missing:
                # Of links that take as little, the one of the earlier stage, then the one that is less busy.
                least, first, load, source, target = np.inf, pes, np.inf, -1, -1
                for at in range(size):
                    here = tree[at]
                    stage = stages[chunk, here] + 1
                    for pe in range(pes):
                        near = here // members == pe // members
                        if not left[pe] or (not near and entered[pe // members]):
                            continue
                        kind = NEAR if near else FAR
                        out, into = sent[stage, kind, here], received[stage, kind, pe]
                        more = max(0.0, max(out, into) + rows * seconds[kind] - busiest[stage])
                        if (more, stage, out + into) < (least, first, load):
                            least, first, load, source, target = more, stage, out + into, here, pe
                kind = NEAR if source // members == target // members else FAR
                sent[first, kind, source] += rows * seconds[kind]
                received[first, kind, target] += rows * seconds[kind]
                busiest[first] = max(busiest[first], sent[first, kind, source], received[first, kind, target])
                parents[chunk, target], stages[chunk, target] = source, first
                entered[target // members], left[target] = True, False
                tree[size] = target
                size += 1
                missing -= 1
    return busiest
