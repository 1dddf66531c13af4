"""The terms of a product's cost, from how its graph is split; each technique combines them in its ``Plan.cost``.

The time of a PE is arithmetic + transfer + fixed - hidden; the time of a product is that of its slowest PE
(docs/concepts/costs.md). Volumes follow CoLa (ICS'25, equations 5 to 7 and table 3), overlap follows MGG's pipeline
(OSDI'23, section 5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from mgg.cost.links import Fixed, Links
from mgg.kernel.bf16 import ELEMENTS
from mgg.records import Partition

FLOAT, INDEX = 4, 4


class Rate(Fixed):
    """Seconds of an operator per call, arc, row and byte; all coefficients are at least 0.

    Attributes:
        call: seconds per call.
        arc: seconds per arc.
        arc_byte: seconds per byte of a gathered row.
        row: seconds per row of the result.
        row_byte: seconds per byte of the result.
        power: overlap of work (on arcs and rows) with transfer (of their bytes), as the p of their p-norm: 1 adds them
            up, as for a core that does one after the other; large powers approach the longer one.
    """

    call: float = Field(0.0, ge=0, allow_inf_nan=False)
    arc: float = Field(0.0, ge=0, allow_inf_nan=False)
    arc_byte: float = Field(0.0, ge=0, allow_inf_nan=False)
    row: float = Field(0.0, ge=0, allow_inf_nan=False)
    row_byte: float = Field(0.0, ge=0, allow_inf_nan=False)
    power: float = Field(1.0, ge=1, allow_inf_nan=False)

    def seconds(self, arcs: Any, rows: Any, gathered: float, written: float, calls: Any = 1) -> Any:
        """Return seconds for ``gathered`` bytes per arc and ``written`` bytes per row; numbers or arrays."""
        touched = arcs * self.arc + rows * self.row
        moved = arcs * gathered * self.arc_byte + rows * written * self.row_byte
        if self.power == 1:
            return calls * self.call + touched + moved
        return calls * self.call + (touched**self.power + moved**self.power) ** (1 / self.power)

    def values(self) -> tuple[float, ...]:
        """Return the coefficients in the order of ``terms``."""
        return self.call, self.arc, self.arc_byte, self.row, self.row_byte

    def scaled(self, work: float, moved: float) -> Rate:
        """Return the rate with coefficients ``work`` times as long for arcs and rows, ``moved`` times for bytes."""
        return Rate(
            call=self.call, arc=work * self.arc, arc_byte=moved * self.arc_byte, row=work * self.row,
            row_byte=moved * self.row_byte, power=self.power,
        )  # fmt: skip


RATE_TERMS = ("call", "arc", "arc_byte", "row", "row_byte")


def terms(arcs: Any, rows: Any, gathered: float, written: float) -> tuple[Any, ...]:
    """Return the factors of a ``Rate``'s coefficients in one call, for ``power`` 1."""
    return 1, arcs, arcs * gathered, rows, rows * written


#: Operators that techniques' costs use, on all machines, on GPUs and on CPUs; link classes for blocks.
_RATES, _OF_GPUS, _OF_CPUS = ("rows", "partitions", "columns"), ("pulled", "blocking"), ("finish",)
BLOCKS = ("broadcast", "shift")


class MachineModel(Fixed):
    """A machine that products run on.

    Attributes:
        gpu: whether PEs are GPUs.
        links: the links between PEs.
        rates: rates by operator: ``rows`` (row-wise product), ``partitions`` (neighbor partitions with atomics),
            ``columns`` (column-wise product); on CPUs ``finish`` (rounding the sums); on GPUs ``pulled`` (rows and halo
            in one pass) and ``blocking`` (a warp's wait per remote row in technique ``direct``); if measured,
            ``packed`` (packing a row into few bits and unpacking it, per byte of embeddings).
        exposed: share of the shorter of transfer and arithmetic that a pipeline does not hide.
        staged: the same for a pipeline of stages.
        whole: whether all PEs share one piece of host memory, which a product reads in place.
        basis: origin of links and rates: measured, fitted, or not measured.
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
        """Check that all rates and links that techniques' costs use are present."""
        needed = _RATES + (_OF_GPUS if self.gpu else _OF_CPUS)
        if missing := [name for name in needed if name not in self.rates]:
            raise ValueError(f"rates: {', '.join(missing)} missing")
        if missing := sorted({self.links.rows, self.links.network, *BLOCKS} - set(self.links.links)):
            raise ValueError(f"links: {', '.join(missing)} missing")
        return self


@dataclass(frozen=True)
class SplitCounts:
    """The facts about a graph's split over PEs that determine the time of a product.

    Attributes:
        rows, arcs, remote_arcs, halo_rows: counts of each PE, int64 [P].
        members: PEs per workgroup; the last one may have fewer.
        outside_arcs: arcs of all PEs whose column another workgroup owns.
        outside_rows: rows of other workgroups in all halos, counted once per PE.
        fused_rows: the same, counted once per workgroup, int64 [workgroups] (VI_CoLa, 4.2).
        sums, sum_arcs: partial sums of its rows that each PE computes for others, and their arcs, int64 [P]; None:
            there are none. A sum counts among halo rows as a row, and takes an arc.
        ways: the splits in which sums may cross, by option ``split`` of technique halo, as far as they were counted.
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
    ways: Mapping[str, SplitCounts] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Partition) -> SplitCounts:
        """Return the split in a partition's record, for the record's number of PEs."""
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
        """Number of PEs, P."""
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
        """Share of remote arcs that leave the workgroup, assumed equal for all PEs."""
        return self.outside_arcs / max(1, int(self.remote_arcs.sum()))

    @cached_property
    def outside_share_of_rows(self) -> float:
        """Share of halo rows that another workgroup owns, assumed equal for all PEs."""
        return self.outside_rows / max(1, int(self.halo_rows.sum()))

    @cached_property
    def received_arcs(self) -> np.ndarray:
        """Arcs to rows that the PE itself receives from its counterparts: 1 / G of the outside ones, float64 [P]."""
        return self.remote_arcs * self.outside_share_of_arcs / self.members

    @cached_property
    def received_rows(self) -> np.ndarray:
        """Halo rows that each PE receives itself and need not fetch from a mate, float64 [P]."""
        return self.halo_rows * self.outside_share_of_rows / self.members

    @cached_property
    def fused_rows_a_pe(self) -> np.ndarray:
        """Rows that cross to each PE's workgroup, divided by its PEs, float64 [P]."""
        groups = np.arange(self.pes) // self.members
        return self.fused_rows[groups] / np.bincount(groups)[groups]


@dataclass(frozen=True)
class Workload:
    """A product of D columns on a split graph.

    Attributes:
        dim: D.
        dtype: type of the embeddings; sums are float32.
        crossing: bytes per row between workgroups; None: as for a row of embeddings.
    """

    split: SplitCounts
    dim: int
    options: Any
    dtype: str = "fp32"
    crossing: int | None = None

    @property
    def moved(self) -> int:
        """Bytes per row of embeddings."""
        return int(np.dtype(ELEMENTS[self.dtype]).itemsize) * self.dim

    @property
    def summed(self) -> int:
        """Bytes per row of the result."""
        return FLOAT * self.dim


@dataclass(frozen=True)
class Cost:
    """Cost of a product: seconds of the slowest PE.

    Attributes:
        arithmetic: seconds of its operators.
        transfer: seconds of its transfers.
        fixed: seconds of barriers and launches.
        hidden: part of the shorter of the first two that overlaps the longer one.
    """

    arithmetic: float
    transfer: float
    fixed: float
    hidden: float = 0.0

    @property
    def seconds(self) -> float:
        """Return the total seconds."""
        return self.arithmetic + self.transfer + self.fixed - self.hidden

    def __add__(self, then: Cost) -> Cost:
        """Return the cost of two steps of which the second waits for other PEs."""
        return Cost(*(getattr(self, each.name) + getattr(then, each.name) for each in fields(self)))


def slowest(arithmetic: Any, transfer: Any, fixed: float, exposed: float = 1.0, beside: Any = None) -> Cost:
    """Return the cost of the PE that ends last.

    Args:
        arithmetic, transfer: seconds, numbers or float64 [P].
        fixed: seconds, the same on every PE.
        exposed: share of the shorter of the two that overlap does not hide.
        beside: the part of ``transfer`` that can be hidden; None: all of it.
    """
    work, moves, able = np.broadcast_arrays(
        *(np.asarray(each, float) for each in (arithmetic, transfer, transfer if beside is None else beside))
    )
    hidden = (1 - exposed) * np.minimum(work + moves - able, able)
    last = int(np.argmax(work + moves - hidden))
    return Cost(float(work.flat[last]), float(moves.flat[last]), fixed, float(hidden.flat[last]))


def meetings(split: SplitCounts, machine: MachineModel, count: int = 2) -> float:
    """Return seconds of ``count`` barriers: one before remote rows are read, one before they may be overwritten.

    A barrier takes log2 G steps in a workgroup of G PEs, and log2 W messages between W workgroups.
    """
    inside = machine.links.barrier * float(np.log2(min(split.pes, split.members)))
    between = machine.links.far_barrier * float(np.log2(split.groups))
    return count * (inside + between)


def fetched_rows(work: Workload, machine: MachineModel) -> np.ndarray:
    """Return each CPU PE's seconds to fetch its halo rows once: V_FC (eq. 7), VI_CoLa between workgroups (4.2)."""
    split, links = work.split, machine.links
    # One request per mate and, with several workgroups, another one for the rows that the mate has received.
    calls = (split.members - 1) * min(2, split.groups)
    near = np.asarray(links[links.rows].seconds(split.halo_rows - split.received_rows, work.moved, calls))
    if split.groups == 1:
        return near
    # A row of another workgroup crosses once, in one message per pair of PEs (4.3); mates fetch it from the receiver.
    return near + network_blocks(work, machine, split.fused_rows_a_pe, calls=split.groups - 1)


def network_blocks(work: Workload, machine: MachineModel, rows: Any, calls: int, latencies: int = 1) -> Any:
    """Return seconds in which ``rows`` per PE cross between workgroups in ``calls`` messages; mates share the ports.

    The latency counts ``latencies`` times: once for messages that follow each other without waiting (LogGP).
    """
    link = machine.links[machine.links.network]
    row = work.moved if work.crossing is None else work.crossing
    moved = crowd(work, machine) * np.asarray(rows) * row / link.bandwidth
    return latencies * link.latency + calls * link.message + moved


def crowd(work: Workload, machine: MachineModel) -> float:
    """Return the PEs of a workgroup per port, at least 1."""
    return max(1.0, work.split.members / machine.links.ports)


def fetched_arcs(work: Workload, machine: MachineModel, calls: Any = 1) -> np.ndarray:
    """Return each PE's seconds to fetch a row for every remote arc: V_FR (eq. 6)."""
    return one_by_one(work, machine, work.split.remote_arcs, work.split.outside_share_of_arcs, calls)


def one_by_one(work: Workload, machine: MachineModel, rows: np.ndarray, outside_share: float, calls: Any) -> np.ndarray:
    """Return each PE's seconds to fetch ``rows`` by its own requests, one message per row between workgroups."""
    links, outside = machine.links, rows * outside_share
    near = np.asarray(links[links.rows].seconds(rows - outside, work.moved, calls))
    if work.split.groups == 1:
        return near
    far = links[links.network]
    return near + far.latency + outside * (far.message + crowd(work, machine) * work.moved / far.bandwidth)


def all_blocks(work: Workload, machine: MachineModel, by: str = "broadcast") -> float:
    """Return seconds in which every PE receives all rows of all others, one PE at a time: V_CG (eq. 5).

    Between workgroups a block passes from port to port, once through each workgroup; the slower link decides.
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


def stages(work: Workload, machine: MachineModel) -> np.ndarray:
    """Return seconds of a product in stages, one per owner; each stage reads and writes the sums again."""
    split = work.split
    rate = machine.rates["rows"]
    first = rate.seconds(split.local_arcs, split.rows, work.summed, work.summed)
    others = split.pes - 1
    # A stage touches the rows that have arcs to its owner, at most one per arc.
    touched = np.minimum(split.rows * others, split.remote_arcs)
    again = rate.seconds(split.remote_arcs, touched, work.summed, 2 * work.summed, others)
    return np.asarray(first + again + finished(work, machine))


def finished(work: Workload, machine: MachineModel) -> np.ndarray:
    """Return seconds of rounding the sums into the result; 0 if sums are float32 already."""
    if machine.gpu or work.split.pes == 1:
        return np.zeros(work.split.pes)
    return np.asarray(machine.rates["finish"].seconds(0, work.split.rows, 0, work.summed))
