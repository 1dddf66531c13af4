"""How much GPU memory a technique takes on a PE, before anything is allocated; and that every PE has that much left.

Predictions count what is allocated, array by array, and are meant to be within a fifth of the peak: kernels, contexts
and the rounding of allocators are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mgg.aggregate.plan import Plan, TechniqueOptions
from mgg.aggregate.schedule import Schedule
from mgg.backend import World
from mgg.backend.api import name_pes
from mgg.errors import MachineError
from mgg.kernel.schedule import LARGEST_TASK, PIECES_PER_TASK
from mgg.layout import PeLayout, Product

_FLOAT, _POINTER = 4, 8
#: Bytes of a neighbor partition: its row, its first arc and the one past its last.
_PARTITION = 24
#: Bytes of a piece and of a task of a row-wise product (mgg/kernel/schedule.py).
_PIECE, _TASK = 12, 8


@dataclass(frozen=True)
class Need:
    """Bytes of GPU memory on one PE.

    Attributes:
        layout: the product's arrays as the layout has them.
        columns: matrices: input, result, buffers.
        arcs: what the technique makes of the arcs.
        schedules: the cuts of row-wise products, with their partial sums.
    """

    layout: int
    columns: int
    arcs: int = 0
    schedules: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.layout + self.columns + self.arcs + self.schedules


class Case:
    """One PE's part of a product at a width, and what arrays of it take.

    Args:
        layout: what the PE holds.
        direction: ``forward`` or ``transpose``.
        dim: most embedding columns.
        options: of the technique.
    """

    def __init__(self, layout: PeLayout, direction: str, dim: int, options: TechniqueOptions):
        self.layout, self.dim, self.options = layout, dim, options
        self.product: Product = layout.product(direction)
        self.counts = layout.manifest.direction(direction)
        self.rows, self.size, self.rank = layout.rows, layout.size, layout.rank
        self.heights = np.diff(layout.bounds)
        weights = self.product.local.weights
        self.arc = self.product.local.indices.dtype.itemsize + (0 if weights is None else _FLOAT)

    def matrix(self, rows: int) -> int:
        """A float32 matrix of ``rows``."""
        return _FLOAT * int(rows) * self.dim

    def pointers(self, rows: int) -> int:
        """The row pointers of a CSR."""
        return _POINTER * (int(rows) + 1)

    def base(self) -> Need:
        """What every plan holds: the layout's arrays, the input and one result."""
        product = self.product
        ids = product.local.indices.dtype.itemsize
        lists = ids * (product.halo + len(product.send_rows)) + _POINTER * (3 * self.size + 2)
        arcs = product.local.arcs + product.remote.arcs
        layout = 2 * self.pointers(self.rows) + self.arc * arcs + lists
        return Need(layout, self.matrix(self.heights.max()) + self.matrix(self.rows))

    def remote_by_owner(self) -> np.ndarray:
        """Remote arcs by the PE that owns their column, int64 [P]."""
        product = self.product
        ends = np.concatenate(([0], np.cumsum(np.bincount(product.remote.indices, minlength=product.halo))))
        return np.diff(ends[product.halo_ptr])

    def cut(self, lengths: np.ndarray) -> int:
        """The cut of a row-wise product whose rows have ``lengths`` arcs, and its partial sums."""
        pieces = np.maximum(-(-lengths // LARGEST_TASK), 1)
        tasks = int(lengths.sum()) / LARGEST_TASK + int(pieces.sum()) / PIECES_PER_TASK
        slots = int(pieces[pieces > 1].sum())
        return _PIECE * int(pieces.sum()) + int(_TASK * tasks) + self.matrix(slots)

    def local_cut(self) -> int:
        """The cut of the local arcs."""
        return self.cut(np.diff(self.product.local.indptr))

    def owner_cuts(self) -> int:
        """The cuts of the remote arcs of each owner; rows without arcs have no piece there."""
        arcs = self.remote_by_owner()
        return int(sum(_PIECE * min(self.rows, count) + _TASK * count // PIECES_PER_TASK for count in arcs))

    def owner_parts(self) -> int:
        """The remote CSR cut by owner, every part with all rows."""
        return self.size * self.pointers(self.rows) + self.arc * self.product.remote.arcs


def _local(case: Case) -> Need:
    base = case.base()
    return Need(base.layout, base.columns, 0, case.local_cut())


def _halo(case: Case) -> Need:
    base = case.base()
    packed = int(np.diff(case.product.send_ptr).max())
    sums = case.rows if case.size > 1 else 0
    columns = base.columns + case.matrix(max(case.counts.halo_rows) + packed + sums)
    sends = case.product.local.indices.dtype.itemsize * len(case.product.send_rows)
    return Need(base.layout, columns, case.owner_parts() + sends, case.local_cut() + case.owner_cuts())


def _cola(case: Case) -> Need:
    from mgg.aggregate.cola import GPU_BUFFER_BYTES

    base, halo = case.base(), case.product.halo
    buffer = max(1, min(GPU_BUFFER_BYTES // (_FLOAT * case.dim), halo))
    columns = base.columns + case.matrix(buffer + (case.rows if halo else 0))
    arcs = case.pointers(halo) + case.arc * case.product.remote.arcs
    return Need(base.layout, columns, arcs, case.local_cut())


def _fused(case: Case) -> Need:
    """MGG's kernel: neighbor partitions and the place of each remote arc's row."""
    given = case.options.schedule() if hasattr(case.options, "schedule") else None
    ps = given.ps if isinstance(given, Schedule) else None
    lengths = [np.diff(csr.indptr) for csr in (case.product.local, case.product.remote)]
    pieces = sum(int(np.count_nonzero(each) if ps is None else (-(-each // ps)).sum()) for each in lengths)
    base = case.base()
    return Need(base.layout, base.columns, _PARTITION * pieces + _POINTER * (case.product.remote.arcs + case.size))


def _staged(buffers: int) -> Callable[[Case], Need]:
    """Techniques that receive all rows of an owner at a time."""

    def need(case: Case) -> Need:
        base = case.base()
        others = np.delete(case.heights, case.rank).max(initial=0)
        columns = base.columns + buffers * case.matrix(others)
        return Need(base.layout, columns, case.owner_parts(), case.local_cut() + case.owner_cuts())

    return need


def _broadcast(case: Case) -> Need:
    copies = getattr(case.options, "replication", 1)
    if copies == 1 or case.size % copies**2:  # the technique refuses the latter
        return _staged(1)(case)
    base, groups = case.base(), case.size // copies
    height = case.heights.reshape(groups, copies).max(axis=1)
    mine = int(height[case.rank // copies])
    columns = base.columns + case.matrix(2 * copies * mine + copies * height.max() + mine)
    # Of the arcs of its group's rows, a PE takes those of every copies-th super-block.
    first = case.rank // copies * copies
    arcs, blocks = sum(case.counts.arcs[first : first + copies]) // copies, groups // copies
    made = blocks * case.pointers(copies * mine) + case.arc * arcs
    pieces = blocks * copies * mine + arcs // LARGEST_TASK
    return Need(base.layout, columns, made, _PIECE * pieces + _TASK * pieces // PIECES_PER_TASK)


def _zero_copy(case: Case) -> Need:
    """The input is in host memory; every width has columns of its own, one width is counted."""
    base, product = case.base(), case.product
    arcs = product.local.arcs + product.remote.arcs
    made = case.pointers(case.rows) + case.arc * arcs
    lengths = np.diff(product.local.indptr) + np.diff(product.remote.indptr)
    return Need(base.layout, case.matrix(case.rows), made, case.cut(lengths))


#: Technique -> what it takes; others: what every plan holds, and a row-wise product.
_NEEDS: dict[str, Callable[[Case], Need]] = {
    "broadcast": _broadcast,
    "broadcast_pipelined": _staged(2),
    "cola": _cola,
    "direct": _fused,
    "halo": _halo,
    "local": _local,
    "mgg": _fused,
    "mgg_uvm": _fused,
    "ring": _staged(2),
    "zero_copy": _zero_copy,
}


def need(plan: type[Plan], layout: PeLayout, direction: str, dim: int, options: TechniqueOptions) -> Need:
    """What a plan and its product of ``dim`` columns take on the PE of ``layout``."""
    return _NEEDS.get(plan.name, _local)(Case(layout, direction, dim, options))


def check(
    world: World, plan: type[Plan], layout: PeLayout, direction: str, dim: int, options: TechniqueOptions
) -> None:
    """Raise MachineError on every PE where one GPU has too little memory left (collective); CPUs are not asked."""
    if not world.gpu:
        return
    free = world.free_memory()
    mine = None if free is None else (need(plan, layout, direction, dim, options).total, free)
    everywhere = world.gather(mine)
    short = [pe for pe, both in enumerate(everywhere) if both is not None and both[0] > both[1]]
    if short:
        needed, left = everywhere[short[0]]
        raise MachineError(
            f"{name_pes(short)}: technique {plan.name} at D = {dim} needs {needed} bytes of GPU memory, {left} are"
            " free: use more PEs, fewer columns or another technique"
        ).on_every_pe()
