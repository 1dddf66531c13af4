"""Grow trees that forward rows to all PEs that need them, one tree at a time over the least busy links."""

from __future__ import annotations

import numba
import numpy as np

#: Link kinds: between mates, and between workgroups.
NEAR, FAR = 0, 1


@numba.njit(cache=True, nogil=True)
def grow(  # type: ignore[no-untyped-def]
    owners, needed, counts, chunks, batch, members, seconds, parents, stages
):
    """Grow a tree for each chunk of ``batch`` rows of each class (the last chunk of a class may be smaller).

    A tree adds the PE that it reaches soonest, given the load that earlier trees put on each PE's ports in each stage:
    Dijkstra's shortest paths, which are single links here, because every PE that forwards rows needs them itself. A
    stage lasts as long as its busiest port. A tree enters each workgroup once.

    Args:
        owners: int [C], the PE that owns the rows of each class.
        needed: bool [C, P], the PEs that need them, without their owner.
        counts: int64 [C], rows of each class.
        chunks: int64 [C + 1], first chunk of each class.
        batch: rows per chunk.
        seconds: float64 [2], time of a row on a link of kind ``NEAR`` and ``FAR``.
        parents: int16 [K, P], output: the PE that sends a chunk to each PE; -1: it does not receive the chunk.
        stages: int16 [K, P], output: the stage in which it arrives, from 0 on; -1: at its owner, or never.

    Returns:
        Seconds of each stage, float64 [P].
    """
    pes = needed.shape[1]
    # Seconds that each PE's ports send and receive in each stage.
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
                # Among links of the same time, prefer the one in the earlier stage, then the less busy one.
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
