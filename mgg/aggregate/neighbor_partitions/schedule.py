"""How MGG assigns neighbor partitions to warps and blocks (MGG 5.1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelSchedule:
    """Parameters of the kernel.

    Attributes:
        ps: arcs per neighbor partition; None: whole rows.
        ps_remote: arcs per partition of remote arcs; None: ``ps``.
        merge: a block requests a row once even if several of its arcs need it.
        dist: pairs of a local and a remote partition that a warp owns (interleaving distance).
        wpb: warps per block.
        interleave: a warp owns pairs; otherwise a warp has partitions of one kind.
        asynchronous: remote rows are in flight while the local partition is summed.
        primitive: how remote rows are fetched, one of ``mgg.kernel.compile.PRIMITIVES``; CPU ranks have one way.
        batch: largest number of remote rows in flight per warp; None: as many as its shared memory holds.
    """

    ps: int | None
    dist: int
    wpb: int
    interleave: bool = True
    asynchronous: bool = True
    primitive: str = "direct"
    batch: int | None = None
    ps_remote: int | None = None
    merge: bool = False

    @property
    def remote(self) -> int | None:
        """Arcs per neighbor partition of remote arcs; None: whole rows."""
        return self.ps_remote or self.ps

    @property
    def share(self) -> int:
        """Pairs of partitions that a block owns."""
        return self.dist * self.wpb
