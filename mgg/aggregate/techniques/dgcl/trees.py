"""The plan of an all-gather along trees (DGCL): which rows a PE gets, from which PE, and in which stage."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mgg.aggregate.workgroups import mates_of
from mgg.backend import World
from mgg.graph.csr import index_dtype
from mgg.kernel.trees import grow
from mgg.layout import PeLayout, Product

#: Stage -> rows of a PE's matrix, in order of arrival.
Leaving = dict[int, np.ndarray]


@dataclass(frozen=True)
class TreeStage:
    """One PE's transfers between two barriers.

    Attributes:
        pulls: mate -> rows of its matrix, and the first row of this PE's matrix that receives them.
        puts: PE of another workgroup -> rows of this PE's matrix, and the first row of that PE's that receives them.
    """

    pulls: dict[int, tuple[np.ndarray, int]] = field(default_factory=dict)
    puts: dict[int, tuple[np.ndarray, int]] = field(default_factory=dict)

    @property
    def sent(self) -> int:
        """Number of rows that are put."""
        return sum(len(rows) for rows, _ in self.puts.values())


@dataclass(frozen=True)
class Forwarding:
    """One PE's part of an all-gather.

    Attributes:
        stages: its transfers, in the same number of stages on every PE.
        places: int64 [H], the row of its matrix, behind its own rows, where each halo row arrives.
        crosses: for each stage, whether any PE puts rows in it.
    """

    stages: list[TreeStage]
    places: np.ndarray
    crosses: list[bool]


def planned(world: World, layout: PeLayout, product: Product, members: int, batch: int, slow: float) -> Forwarding:
    """Plan the trees of all rows, the same on every PE; return this PE's part of them (collective).

    Args:
        batch: rows that share one tree.
        slow: time of a row between workgroups, relative to the time between mates.
    """
    rank, pes = world.rank, range(world.size)
    classes = _Classes(world, product, layout.rows)
    chunks = np.concatenate([[0], np.cumsum(-(-classes.counts // batch))])
    parents = np.empty((int(chunks[-1]), world.size), np.int16)
    stages = np.empty_like(parents)
    seconds = np.array([1.0, slow])
    grow(classes.owners, classes.needed, classes.counts, chunks, batch, members, seconds, parents, stages)
    count = int(stages.max(initial=-1)) + 1
    far = parents // members != np.arange(world.size) // members
    crosses = [bool(np.any(far & (stages == stage))) for stage in range(count)]

    mine = classes.chunks_of_rows(chunks, batch)
    halo = np.concatenate(world.exchange([mine[product.sends_to(pe)] for pe in pes]))
    giver, arrives = parents[halo, rank], stages[halo, rank]
    places = np.empty(len(halo), np.int64)
    # Rows that one PE sends in a stage are adjacent, ordered by owner and row.
    places[np.lexsort((np.arange(len(halo)), giver, arrives))] = layout.rows + np.arange(len(halo))
    firsts = [
        {int(stage): int(places[(giver == pe) & (arrives == stage)].min()) for stage in set(arrives[giver == pe])}
        for pe in pes
    ]
    held, chunk = _held(rank, product, mine, halo, places)
    leaving = [_leaving(held, stages[chunk, pe], parents[chunk, pe] == rank) for pe in pes]

    # Mates learn which rows to pull; a PE of another workgroup learns where to put its rows.
    mates, made = mates_of(rank, members), [TreeStage() for _ in range(count)]
    pulled: list[Leaving] = world.exchange([rows if pe in mates else {} for pe, rows in enumerate(leaving)])
    wanted: list[dict[int, int]] = world.exchange([{} if pe in mates else each for pe, each in enumerate(firsts)])
    for pe in pes:
        for stage, rows in pulled[pe].items():
            made[stage].pulls[pe] = rows, firsts[pe][stage]
        for stage, first in wanted[pe].items():
            made[stage].puts[pe] = leaving[pe][stage], first
    return Forwarding(made, places, crosses)


def _held(
    rank: int, product: Product, mine: np.ndarray, halo: np.ndarray, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of this PE's matrix that other PEs also need, by owner and row, and their chunks."""
    own, before = np.flatnonzero(mine >= 0), int(product.halo_ptr[rank])
    held = np.concatenate([places[:before], own, places[before:]])
    held = held.astype(index_dtype(int(held.max(initial=0)) + 1))
    return held, np.concatenate([halo[:before], mine[own], halo[before:]])


def _leaving(held: np.ndarray, stages: np.ndarray, taken: np.ndarray) -> Leaving:
    """Return the rows of ``held`` that are ``taken``, by stage."""
    return {int(stage): held[taken & (stages == stage)] for stage in sorted(set(stages[taken]))}


class _Classes:
    """Rows of all PEs, grouped by the set of PEs that need them (collective).

    Classes needed by the fewest PEs come first: they leave no choice, so the others can use the remaining links.

    Args:
        product: lists which rows this PE sends to which PEs.
        rows: number of rows that this PE owns.

    Attributes:
        owners: int64 [C], the PE that owns the rows of a class.
        needed: bool [C, P], the PEs that need them.
        counts: int64 [C], rows per class.
    """

    def __init__(self, world: World, product: Product, rows: int) -> None:
        needed = np.zeros((rows, world.size), bool)
        for pe in range(world.size):
            needed[product.sends_to(pe), pe] = True
        self._all, self._rows = rows, np.flatnonzero(needed.any(axis=1))
        sets, self._class, counts = np.unique(
            np.packbits(needed[self._rows], axis=1), axis=0, return_inverse=True, return_counts=True
        )
        gathered = world.gather((sets, counts))
        everyone = np.unpackbits(np.concatenate([each for each, _ in gathered]), axis=1, count=world.size).astype(bool)
        owners = np.repeat(np.arange(world.size), [len(each) for each, _ in gathered])
        order = np.argsort(everyone.sum(axis=1), kind="stable")
        self.owners, self.needed = owners[order], everyone[order]
        self.counts = np.concatenate([each for _, each in gathered])[order]
        # The classes of this PE keep their order among all classes.
        self._mine = np.argsort(order)[owners == world.rank]

    def chunks_of_rows(self, chunks: np.ndarray, batch: int) -> np.ndarray:
        """Return the chunk of each row of this PE, int64 [rows]; -1 if no PE needs the row.

        Args:
            chunks: int64 [C + 1], first chunk of each class.
            batch: rows per chunk.
        """
        found = np.full(self._all, -1, np.int64)
        order = np.argsort(self._class, kind="stable")
        sorted_ = self._class[order]
        within = np.arange(len(order)) - np.searchsorted(sorted_, sorted_)
        found[self._rows[order]] = chunks[self._mine[sorted_]] + within // batch
        return found
