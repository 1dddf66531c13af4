"""Communication fusion (CoLa 4.2): which rows a workgroup needs from others, counted once for all of its PEs."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from mgg.aggregate.options import TechniqueOptions
from mgg.backend import World
from mgg.backend.machine.topology import domain
from mgg.layout import PeLayout, Product

AUTO = "auto"
_log = logging.getLogger(__name__)


class WorkgroupOptions(TechniqueOptions):
    """Which PEs address each other's memory; rows for other PEs are sent."""

    workgroup: Annotated[int, Field(ge=1)] | Literal["auto"] | None = Field(
        None,
        description="PEs joined by fast links, a divisor of P; none: the partition's, as far as they divide P; auto: as"
        " many as the machine joins, asked when the job starts",
    )


def resolved_workgroup(world: World, options: TechniqueOptions) -> TechniqueOptions:
    """Replace ``workgroup: auto`` by a number in ``options`` (collective)."""
    if not (isinstance(options, WorkgroupOptions) and options.workgroup == AUTO):
        return options
    return options.model_copy(update={"workgroup": joined_here(world)[0]})


def joined_here(world: World) -> tuple[int, str]:
    """Return the largest workgroup size, a divisor of P, within fast links, and the kind of links (collective)."""
    near, links = domain(world)
    near &= set(world.addressable)
    return _most(world, near), world.gather(links)[0]


def tell_difference(world: World, layout: PeLayout, chosen: Iterable[TechniqueOptions]) -> None:
    """Warn on rank 0 if techniques use the layout's workgroups but this machine joins others (collective)."""
    if not any(isinstance(each, WorkgroupOptions) and each.workgroup is None for each in chosen):
        return
    (found, links), noted = joined_here(world), members_of(WorkgroupOptions(), layout)
    if found != noted and world.rank == 0:
        _log.warning(
            "workgroups: this layout has them of %d PE%s, and here %d are joined (%s): workgroup=auto takes those, or"
            " partition with --workgroup %d", noted, "s" * (noted > 1), found, links, found,
        )  # fmt: skip


def members_of(options: TechniqueOptions, layout: PeLayout) -> int:
    """Return the PEs per workgroup: the option's, else the partition's reduced to a divisor of P."""
    assert isinstance(options, WorkgroupOptions)
    assert options.workgroup != AUTO, "settled before anything is made"
    if options.workgroup is not None:
        return int(options.workgroup)
    made_for, size = layout.manifest.workgroup, layout.size
    # The last host may have fewer PEs than the others; the common divisor divides those, too.
    return size if made_for >= size else math.gcd(made_for, size)


def mates_of(rank: int, members: int) -> range:
    """Return the PEs of the workgroup of PE ``rank``."""
    first = rank - rank % members
    return range(first, first + members)


def makes_groups(size: int, members: int) -> bool:
    """Return whether ``size`` PEs form several workgroups of ``members``."""
    return members < size and size % members == 0


def within_hosts(world: World) -> int:
    """Return the largest workgroup size, a divisor of P, where all mates address each other's memory (collective)."""
    return _most(world, set(world.addressable))


def _most(world: World, near: set[int]) -> int:
    """Return the largest workgroup size, a divisor of P, with all mates of each PE in its ``near`` (collective)."""
    sizes = [members for members in range(1, world.size + 1) if world.size % members == 0]
    mine = {members for members in sizes if set(mates_of(world.rank, members)) <= near}
    return max(mine.intersection(*world.gather(mine)))


def spanning(world: World, layout: PeLayout) -> str:
    """Describe, for an error message, a workgroup that spans hosts, and name one that does not (collective)."""
    sizes = sorted(set(world.gather(len(world.addressable))))
    hosts = f"hosts of {' and '.join(map(str, sizes))} PE{'s' if sizes != [1] else ''}"
    remedy = f"partition with --workgroup {within_hosts(world)} (config: partition.workgroup)"
    return f"workgroup {layout.manifest.workgroup} spans {hosts}: {remedy}"


class Workgroups:
    """P = W G PEs in workgroups of G consecutive ones, seen from one PE (collective).

    Phase j > 0 uses the rows of workgroup ``(group + j) mod W``. Each PE receives the rows of its counterpart, which is
    the PE with its own local rank in that workgroup: all rows that any PE of the receiving workgroup needs.

    Args:
        members: G, which divides P.

    Attributes:
        count: W.
        wanted: counterpart -> offsets in its rows of the rows that this workgroup needs, int [k], ascending.
        asked: PE whose counterpart is this PE -> offsets in this PE's rows that its workgroup needs.
        places: PE of another workgroup -> where this PE finds the halo rows which that PE owns, int64, in halo order:
            positions in the rows received by the mate with that PE's local rank.
    """

    def __init__(self, world: World, product: Product, members: int) -> None:
        self.rank, self._members = world.rank, members
        self.count = world.size // members
        self.wanted: dict[int, np.ndarray] = {}
        self.asked: dict[int, np.ndarray] = {}
        self.places: dict[int, np.ndarray] = {}
        counterparts = [self.counterpart(phase) for phase in range(1, self.count)]
        needs = world.exchange(
            [
                {owner: product.halo_of(owner) for owner in self._others(world.size) if self._meets(owner, pe)}
                if pe in self.mates
                else None
                for pe in range(world.size)
            ]
        )
        for owner in counterparts:
            self.wanted[owner] = np.unique(np.concatenate([needs[mate][owner] for mate in self.mates]))
        answers: list[Any] = [self.wanted.get(pe) for pe in range(world.size)]
        for mate in self.mates:
            answers[mate] = {owner: np.searchsorted(rows, needs[mate][owner]) for owner, rows in self.wanted.items()}
        received = world.exchange(answers)
        self.asked = {pe: received[pe] for pe in counterparts}
        for mate in self.mates:
            self.places |= received[mate]

    @property
    def mates(self) -> range:
        """The PEs of this workgroup, including this one."""
        return mates_of(self.rank, self._members)

    def _others(self, size: int) -> list[int]:
        return [pe for pe in range(size) if pe not in self.mates]

    def _meets(self, pe: int, mate: int) -> bool:
        return pe % self._members == mate % self._members

    def counterpart(self, phase: int) -> int:
        """Return the PE whose rows this one receives for ``phase``."""
        return (self.rank + phase * self._members) % (self.count * self._members)

    def target(self, phase: int) -> int:
        """Return the PE that receives this one's rows for ``phase`` (algorithm 3, line 10)."""
        return (self.rank - phase * self._members) % (self.count * self._members)

    def mate_of(self, pe: int) -> int:
        """Return the PE of this workgroup with the local rank of ``pe``."""
        return self.mates[pe % self._members]

    def members_in(self, phase: int) -> range:
        """Return the PEs of the workgroup whose rows are used in ``phase``."""
        return mates_of(self.counterpart(phase), self._members)
