"""What a product takes, from how its graph is split: each technique adds up its own (``Plan.cost``) from what is here.

The time of a PE is arithmetic + transfer + fixed - hidden, of a product that of its slowest PE (docs/costs.md).
Volumes are CoLa's (ICS'25, equations 5 to 7 and table 3), overlap is MGG's pipeline (OSDI'23, section 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from mgg.config import Assigned
from mgg.cost.links import Fixed, Links
from mgg.kernel.bf16 import ELEMENTS
from mgg.record import Partition

FLOAT, INDEX = 4, 4


class Rate(Fixed):
    """Seconds of an operator: of a call, and of what it touches; all coefficients are at least 0.

    Attributes:
        call: of a call.
        arc: of an arc.
        arc_byte: of a byte of a gathered row.
        row: of a row of the result.
        row_byte: of a byte of it.
        power: how far the work on arcs and rows covers the transfer of their bytes: the p of the p-norm of both. 1 adds
            them up, as a core does one after the other; large powers leave the longer of them.
    """

    call: float = Field(0.0, ge=0, allow_inf_nan=False)
    arc: float = Field(0.0, ge=0, allow_inf_nan=False)
    arc_byte: float = Field(0.0, ge=0, allow_inf_nan=False)
    row: float = Field(0.0, ge=0, allow_inf_nan=False)
    row_byte: float = Field(0.0, ge=0, allow_inf_nan=False)
    power: float = Field(1.0, ge=1, allow_inf_nan=False)

    def seconds(self, arcs: Any, rows: Any, gathered: float, written: float, calls: Any = 1) -> Any:
        """Seconds for rows of ``gathered`` bytes an arc, ``written`` bytes a row; numbers or arrays."""
        touched = arcs * self.arc + rows * self.row
        moved = arcs * gathered * self.arc_byte + rows * written * self.row_byte
        if self.power == 1:
            return calls * self.call + touched + moved
        return calls * self.call + (touched**self.power + moved**self.power) ** (1 / self.power)

    def values(self) -> tuple[float, ...]:
        """The coefficients in the order of ``terms``."""
        return self.call, self.arc, self.arc_byte, self.row, self.row_byte

    def scaled(self, work: float, moved: float) -> Rate:
        """An operator that takes ``work`` times as long for arcs and rows, ``moved`` times for their bytes."""
        return Rate(
            call=self.call, arc=work * self.arc, arc_byte=moved * self.arc_byte, row=work * self.row,
            row_byte=moved * self.row_byte, power=self.power,
        )  # fmt: skip


RATE_TERMS = ("call", "arc", "arc_byte", "row", "row_byte")


def terms(arcs: Any, rows: Any, gathered: float, written: float) -> tuple[Any, ...]:
    """What the coefficients of a ``Rate`` multiply in one call, where they add up."""
    return 1, arcs, arcs * gathered, rows, rows * written


#: Operators that techniques' costs ask for, of all machines, of GPUs and of CPUs; classes of links for blocks.
_RATES, _OF_GPUS, _OF_CPUS = ("rows", "partitions", "columns"), ("pulled", "blocking"), ("finish",)
BLOCKS = ("broadcast", "shift")


class Machine(Fixed):
    """What products run on.

    Attributes:
        name: what predictions call it.
        gpu: PEs are GPUs.
        links: what joins them.
        rates: seconds of the operators: ``rows`` (row-wise product), ``partitions`` (neighbor partitions with atomics),
            ``columns`` (column-wise product); of CPUs ``finish`` (rounding the sums); of GPUs ``pulled`` (rows and halo
            in one pass) and ``blocking`` (of technique ``direct`` what a warp waits for each remote row); where it was
            measured, ``packed`` (a row packed into few bits and unpacked, by its bytes as embeddings).
        exposed: share of the shorter of transfer and arithmetic that a pipeline does not hide.
        staged: the same of a pipeline of stages.
        whole: host memory of all PEs is one piece, so that a product reads it in place.
        basis: where links and rates are from: measured, fitted, or not measured.
    """

    name: str
    gpu: bool
    links: Links
    rates: dict[str, Rate]
    exposed: float = 1.0
    staged: float = 1.0
    whole: bool = False
    basis: str

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Nothing that a technique's cost asks for is missing."""
        needed = _RATES + (_OF_GPUS if self.gpu else _OF_CPUS)
        if missing := [name for name in needed if name not in self.rates]:
            raise ValueError(f"rates: {', '.join(missing)} missing")
        if missing := sorted({self.links.rows, self.links.network, *BLOCKS} - set(self.links.links)):
            raise ValueError(f"links: {', '.join(missing)} missing")
        return self


@dataclass(frozen=True)
class Split:
    """How a graph is split over PEs, as far as it decides the time of a product.

    Attributes:
        rows, arcs, remote_arcs, halo_rows: int64 [P], of each PE.
        members: PEs of a workgroup; the last may have fewer.
        outside_arcs: arcs whose column another workgroup owns, of all PEs.
        outside_rows: rows of other workgroups in all halos, once a PE.
        fused_rows: int64 [workgroups], the same once a workgroup (VI_CoLa, 4.2).
        sums, sum_arcs: int64 [P], of each PE the sums of its rows that it makes for others, and their arcs; None: it
            makes none. A sum counts among halo rows as a row, and takes an arc.
        ways: the same graph where sums may cross, by option ``split`` of technique halo, as far as that was counted.
    """

    rows: np.ndarray
    arcs: np.ndarray
    remote_arcs: np.ndarray
    halo_rows: np.ndarray
    members: int
    outside_arcs: int
    outside_rows: int
    fused_rows: np.ndarray
    sums: np.ndarray | None = None
    sum_arcs: np.ndarray | None = None
    ways: Mapping[str, Split] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Partition) -> Split:
        """The split of a partition's record, for as many PEs as that has."""
        quality = record.quality
        row = FLOAT * quality.dim
        return cls(
            rows=np.array(quality.nodes_per_pe),
            arcs=np.array(quality.arcs_per_pe),
            remote_arcs=np.array(quality.edge_cut_per_pe),
            halo_rows=np.array(quality.halo_rows_per_pe),
            members=min(record.workgroup, record.pes),
            outside_arcs=quality.workgroup_edge_cut,
            outside_rows=quality.vi_fc // row,
            fused_rows=np.array(quality.workgroup_halo_rows),
        )

    @property
    def pes(self) -> int:
        """P."""
        return len(self.rows)

    @property
    def groups(self) -> int:
        """Number of workgroups."""
        return -(-self.pes // self.members)

    @cached_property
    def local_arcs(self) -> np.ndarray:
        """Arcs whose column the PE owns, int64 [P]."""
        return self.arcs - self.remote_arcs

    @cached_property
    def outside_share_of_arcs(self) -> float:
        """The share of remote arcs that leave the workgroup, taken alike for every PE."""
        return self.outside_arcs / max(1, int(self.remote_arcs.sum()))

    @cached_property
    def outside_share_of_rows(self) -> float:
        """The share of halo rows that another workgroup owns, taken alike for every PE."""
        return self.outside_rows / max(1, int(self.halo_rows.sum()))

    @cached_property
    def received_arcs(self) -> np.ndarray:
        """Arcs to rows that the PE itself receives from its counterparts: one in G of those outside, float64 [P]."""
        return self.remote_arcs * self.outside_share_of_arcs / self.members

    @cached_property
    def received_rows(self) -> np.ndarray:
        """Halo rows of each PE that it receives itself, and need not fetch from a mate, float64 [P]."""
        return self.halo_rows * self.outside_share_of_rows / self.members

    @cached_property
    def fused_rows_a_pe(self) -> np.ndarray:
        """Rows that cross to the workgroup of each PE, dealt out to its PEs, float64 [P]."""
        groups = np.arange(self.pes) // self.members
        return self.fused_rows[groups] / np.bincount(groups)[groups]


@dataclass(frozen=True)
class Workload:
    """A product of D columns on a split graph.

    Attributes:
        split: the graph.
        dim: D.
        options: of the technique.
        dtype: type of the embeddings; sums are float32.
        crossing: bytes of a row that crosses between workgroups; None: those of a row of embeddings.
    """

    split: Split
    dim: int
    options: Assigned
    dtype: str = "fp32"
    crossing: int | None = None

    @property
    def moved(self) -> int:
        """Bytes of a row of embeddings."""
        return int(np.dtype(ELEMENTS[self.dtype]).itemsize) * self.dim

    @property
    def summed(self) -> int:
        """Bytes of a row of the result."""
        return FLOAT * self.dim


@dataclass(frozen=True)
class Cost:
    """Seconds of the slowest PE.

    Attributes:
        arithmetic: of its operators.
        transfer: of its transfers.
        fixed: of barriers and launches.
        hidden: how much of the shorter of the first two goes on beside the longer one.
    """

    arithmetic: float
    transfer: float
    fixed: float
    hidden: float = 0.0

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.arithmetic + self.transfer + self.fixed - self.hidden

    def __add__(self, then: Cost) -> Cost:
        """That of a step and the next, which waits for other PEs."""
        return Cost(*(getattr(self, each.name) + getattr(then, each.name) for each in fields(self)))


def slowest(arithmetic: Any, transfer: Any, fixed: float, exposed: float = 1.0, beside: Any = None) -> Cost:
    """The cost of the PE that ends last.

    Args:
        arithmetic, transfer: seconds, numbers or float64 [P].
        fixed: seconds, the same on every PE.
        exposed: share of the shorter that overlap does not hide.
        beside: the part of ``transfer`` that can be hidden at all; None: all of it.
    """
    work, moves, able = np.broadcast_arrays(
        *(np.asarray(each, float) for each in (arithmetic, transfer, transfer if beside is None else beside))
    )
    hidden = (1 - exposed) * np.minimum(work + moves - able, able)
    last = int(np.argmax(work + moves - hidden))
    return Cost(float(work.flat[last]), float(moves.flat[last]), fixed, float(hidden.flat[last]))


def meetings(split: Split, machine: Machine, count: int = 2) -> float:
    """Seconds of ``count`` barriers: one before rows of others are read, one before they may be overwritten.

    PEs of a workgroup meet in log2 G steps, workgroups in log2 W messages.
    """
    inside = machine.links.barrier * float(np.log2(min(split.pes, split.members)))
    between = machine.links.far_barrier * float(np.log2(split.groups))
    return count * (inside + between)


def fetched_rows(work: Workload, machine: Machine) -> np.ndarray:
    """Seconds in which each CPU PE gets its halo, each row once: V_FC (eq. 7), VI_CoLa between workgroups (4.2)."""
    split, links = work.split, machine.links
    # A request for each mate, and with several workgroups one more, for what that has received.
    calls = (split.members - 1) * min(2, split.groups)
    near = np.asarray(links[links.rows].seconds(split.halo_rows - split.received_rows, work.moved, calls))
    if split.groups == 1:
        return near
    # A row of another workgroup crosses once, in one message a pair of PEs (4.3); mates fetch it from who has it.
    return near + network_blocks(work, machine, split.fused_rows_a_pe, calls=split.groups - 1)


def network_blocks(work: Workload, machine: Machine, rows: Any, calls: int, latencies: int = 1) -> Any:
    """Seconds in which ``rows`` a PE cross between workgroups in ``calls`` messages; mates share the ports.

    Of messages that follow one another without waiting the latency counts once (LogGP); ``latencies``: how often it
    counts.
    """
    link = machine.links[machine.links.network]
    row = work.moved if work.crossing is None else work.crossing
    moved = crowd(work, machine) * np.asarray(rows) * row / link.bandwidth
    return latencies * link.latency + calls * link.message + moved


def crowd(work: Workload, machine: Machine) -> float:
    """PEs of a workgroup that share a port."""
    return max(1.0, work.split.members / machine.links.ports)


def fetched_arcs(work: Workload, machine: Machine, calls: Any = 1) -> np.ndarray:
    """Seconds in which each PE gets a row for every remote arc: V_FR (eq. 6)."""
    return one_by_one(work, machine, work.split.remote_arcs, work.split.outside_share_of_arcs, calls)


def one_by_one(work: Workload, machine: Machine, rows: np.ndarray, outside_share: float, calls: Any) -> np.ndarray:
    """Seconds in which each PE gets ``rows`` by requests of its own, a message a row between workgroups."""
    links, outside = machine.links, rows * outside_share
    near = np.asarray(links[links.rows].seconds(rows - outside, work.moved, calls))
    if work.split.groups == 1:
        return near
    far = links[links.network]
    return near + far.latency + outside * (far.message + crowd(work, machine) * work.moved / far.bandwidth)


def all_blocks(work: Workload, machine: Machine, by: str = "broadcast") -> float:
    """Seconds in which every PE gets all rows of all others, a PE at a time: V_CG (eq. 5).

    Between workgroups a block goes from port to port, once through each workgroup; the slower link decides.
    """
    split, links = work.split, machine.links
    if split.pes == 1:
        return 0.0
    received = split.rows.sum() - split.rows.min()
    times = split.pes if by == "broadcast" else split.pes - 1
    near = float(links[by].seconds(received, work.moved, times))
    if split.groups == 1:
        return near
    far = links[links.network]
    return max(near, times * far.latency + float(received) * work.moved / far.bandwidth)


def stages(work: Workload, machine: Machine) -> np.ndarray:
    """Seconds of a product in stages, one an owner: the sums are read and written again at each."""
    split = work.split
    rate = machine.rates["rows"]
    first = rate.seconds(split.local_arcs, split.rows, work.summed, work.summed)
    others = split.pes - 1
    # A stage touches the rows that have arcs to its owner; at most one an arc.
    touched = np.minimum(split.rows * others, split.remote_arcs)
    again = rate.seconds(split.remote_arcs, touched, work.summed, 2 * work.summed, others)
    return np.asarray(first + again + finished(work, machine))


def finished(work: Workload, machine: Machine) -> np.ndarray:
    """Seconds of rounding the sums into the result; nothing where sums are float32 anyway."""
    if machine.gpu or work.split.pes == 1:
        return np.zeros(work.split.pes)
    return np.asarray(machine.rates["finish"].seconds(0, work.split.rows, 0, work.summed))


def relative_errors(predicted: Sequence[float], measured: Sequence[float]) -> dict[str, float]:
    """Mean and largest of max(p / m, m / p) - 1, and the mean of log p / m: how far predictions are off."""
    logs = np.log(np.asarray(predicted, float) / np.asarray(measured, float))
    off = np.exp(np.abs(logs)) - 1
    return {"mean": float(off.mean()), "largest": float(off.max()), "bias": float(logs.mean())}
