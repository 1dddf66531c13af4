"""Technique ``cola``: column-wise remote SpMM that fetches each remote row once, fused by workgroup (CoLa 3 to 5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from mgg.aggregate.memory_model import POINTER, TASK, MemoryCase, PlanMemory
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.owners import by_owner
from mgg.aggregate.plan import Plan, uploaded_csr
from mgg.aggregate.techniques.cola.on_cpus import BUFFER_BYTES, FetchedColumns
from mgg.aggregate.techniques.cola.on_gpus import PulledColumns
from mgg.aggregate.workgroups import WorkgroupOptions, Workgroups, makes_groups, mates_of, members_of
from mgg.aggregate.workgroups.columns_by_mate import columns_by_mate
from mgg.aggregate.workgroups.memory import HaloSizes, halo_sizes, room
from mgg.aggregate.workgroups.outbox import Outbox
from mgg.backend.api import Array, SideWork, SymmetricArray
from mgg.cost.product import Cost, MachineModel, Workload, finished, meetings, network_blocks, one_by_one, slowest
from mgg.graph.csr import Csr
from mgg.kernel.cola import HUB_ARCS
from mgg.kernel.schedule import LARGEST_TASK, PIECES_PER_TASK
from mgg.layout import PeLayout
from mgg.layout.split import transposed


class ColaOptions(WorkgroupOptions):
    """Workgroups, and the paper's optimizations one by one (table 8)."""

    fusion: bool = Field(True, description="a row crosses to a workgroup once, not once per PE (4.2)")
    coalesced: bool = Field(True, description="rows for another workgroup cross in one message (4.3)")
    pipelined: bool = Field(True, description="the rows of the next workgroup cross while those of one are used (5.1)")


def fused_members(options: TechniqueOptions, layout: PeLayout) -> int:
    """Return the PEs per workgroup; without fusion, all PEs form one workgroup."""
    assert isinstance(options, ColaOptions)
    return members_of(options, layout) if options.fusion else layout.size


class Cola(Plan):
    """Row-wise SpMM on columns in this PE's memory and column-wise on mates' columns; one phase per workgroup.

    GPUs fetch and spread a row in one launch; CPU ranks work in batches.
    """

    name = "cola"
    kernels = ("cola", "columns")
    least_volume = True
    deterministic = False  # on GPUs, float atomics make the last bits vary
    Options = ColaOptions

    @classmethod
    def need(cls, case: MemoryCase) -> PlanMemory:
        """Return the memory of local arcs, remote arcs by column and hub rows; with workgroups, also of the buffers."""
        product, halo = case.product, case.product.halo
        hubs = int(np.count_nonzero(np.bincount(product.remote.indices, minlength=1) >= HUB_ARCS))
        columns = case.base().columns + case.embeddings(hubs)
        # Each remote arc appears once, by column or by row. Each column stores where it begins and where its row is.
        arcs = case.arc * product.remote.arcs + 2 * POINTER * halo
        tasks = TASK * (product.remote.arcs // LARGEST_TASK + halo // PIECES_PER_TASK)
        members = fused_members(case.options, case.layout)
        groups = case.size // members
        if makes_groups(case.size, members):
            buffers = min(2, groups - 1) + int(case.options.coalesced)
            columns += buffers * case.embeddings(room(case, members).message)
            received = np.diff(product.halo_ptr)[case.rank % members :: members].sum()  # its own share is empty
            arcs += (groups - 1) * case.pointers(case.rows) - 2 * POINTER * int(received)
        layout = case.pointers(case.rows) + case.arc * product.local.arcs
        return PlanMemory(layout, columns, arcs, case.local_cut() + tasks)

    @classmethod
    def exchanged_sizes(cls, case: MemoryCase) -> HaloSizes | None:
        """Return the symmetric memory that this PE needs, if there are several workgroups."""
        members = fused_members(case.options, case.layout)
        return halo_sizes(case, members) if makes_groups(case.size, members) else None

    @classmethod
    def cost(cls, work: Workload, machine: MachineModel) -> Cost | None:
        """Return the time of own rows (row-wise) and mates' rows (column-wise), overlapped with messages (5.1)."""
        options, split = work.options, work.split
        if options.workgroup not in (None, split.members) or split.pes % split.members:
            return None
        rates, links, moved, summed = machine.rates, machine.links, work.moved, work.summed
        mates = split.members if options.fusion else split.pes
        phases = split.pes // mates
        # Rows that counterparts send arrive in this PE's memory and are multiplied there row-wise.
        own_rows, own_arcs = (split.received_rows, split.received_arcs) if phases > 1 else (0.0, 0.0)
        halo, arcs = split.halo_rows - own_rows, split.remote_arcs - own_arcs
        # GPUs need one launch per phase; CPU ranks fetch batches from each mate.
        calls = phases * (mates > 1) if machine.gpu else phases * (mates - 1) + halo * moved / BUFFER_BYTES
        local = rates["rows"].seconds(split.local_arcs, split.rows, moved, summed)
        touched = np.minimum((phases - 1) * split.rows, own_arcs)
        own = rates["rows"].seconds(own_arcs, touched, moved, 2 * summed, phases - 1)
        spread = rates["columns"].seconds(arcs, halo, summed, moved, calls)
        if phases == 1:
            fetched, crossing = one_by_one(work, machine, halo, split.outside_share_of_rows, calls), np.zeros(1)
        else:
            fetched = links[links.rows].seconds(halo, moved, calls)
            # Each message waits for the previous phase.
            crossing = network_blocks(work, machine, split.fused_rows_a_pe, phases - 1, latencies=phases - 1)
            if not options.coalesced:
                crossing = crossing + split.fused_rows_a_pe * links[links.network].message
        fixed = meetings(split, machine, phases + 1)
        exposed = machine.staged if options.pipelined else 1.0
        sums = local + own + spread + finished(work, machine)
        return slowest(sums, fetched + crossing, fixed, exposed, beside=crossing)

    @classmethod
    def reach(cls, layout: PeLayout, options: TechniqueOptions) -> Sequence[int]:
        """Return the workgroup; all PEs if rows are fetched from other workgroups, which requires their addresses."""
        assert isinstance(options, ColaOptions)
        return mates_of(layout.rank, fused_members(options, layout)) if options.coalesced else range(layout.size)

    @classmethod
    def between_hosts(cls, options: TechniqueOptions) -> str:
        """Blame ``coalesced`` or ``fusion`` if one is off: then that, not the workgroup, makes ``reach`` span hosts."""
        assert isinstance(options, ColaOptions)
        off = [name for name in ("fusion", "coalesced") if not getattr(options, name)]
        if not off:
            return super().between_hosts(options)
        given = " and ".join(f"{name}=false" for name in off)
        return (
            f"with {given} rows are fetched by address: between hosts fusion and coalesced must be on, and workgroup=G,"
            " where G divides the PEs of every host"
        )

    def _build(self) -> None:
        world, options = self.world, self.options
        self._coalesced, self._pipelined = options.coalesced, options.pipelined
        self._groups = Workgroups(world, self.host, fused_members(options, self.layout))
        self._own = [uploaded_csr(world, self.host.local), *map(self._own_part, range(1, self._groups.count))]
        self._make_room()
        columns = transposed(self.host.remote).csr
        self._columns = [self._columns_of(phase, columns) for phase in range(self._groups.count)]

    def _columns_of(self, phase: int, columns: Csr) -> FetchedColumns | PulledColumns:
        """Return the operator that spreads the mates' rows in ``phase``; ``columns``: all remote arcs by column."""
        joined = mates_of(self.world.rank, members_of(self.options, self.layout))
        parts = columns_by_mate(self.host, self._groups, phase, joined)
        if self.world.gpu:
            return PulledColumns(self.world, columns, parts, self._memory(phase))
        return FetchedColumns(self.world, columns, parts)

    def _own_part(self, phase: int) -> Csr:
        """Return the arcs to rows that this PE receives for ``phase``; columns are positions in the received rows."""
        owner = self._groups.counterpart(phase)
        part = by_owner(self.host, halo_columns=True)[owner]
        places = self._groups.places[owner].astype(part.indices.dtype)
        return uploaded_csr(
            self.world, Csr(part.indptr, places[part.indices], part.weights, len(self._groups.wanted[owner]))
        )

    def _make_room(self) -> None:
        """Allocate two buffers for received rows and one for packed rows."""
        groups, world = self._groups, self.world
        most = max(max(map(len, groups.wanted.values()), default=0), max(map(len, groups.asked.values()), default=0))
        self._room = max(world.gather(most))
        self._buffers = [self._allocate(self._room, groups.mates) for _ in range(min(2, groups.count - 1))]
        if groups.count > 1 and self._coalesced:
            memory = self._allocate(self._room, [world.rank])  # room for one message at a time
            self._outboxes = {
                pe: Outbox(world, {pe: rows}, memory, self._embeddings) for pe, rows in groups.asked.items()
            }
        else:
            self._lists = {pe: world.upload(rows) for pe, rows in groups.wanted.items()}

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        acc = self.sums(out) if self.host.halo else out
        phases, coming = self._groups.count, None
        for phase in range(phases):
            if phase:
                coming = coming or self._distribute(phase, source)
                coming.wait()
                self.world.barrier()  # what the mates receive has arrived, and their previous buffer is free
                coming = None
            if self._pipelined and phase + 1 < phases:
                coming = self._distribute(phase + 1, source)
            self._multiply(phase, source, acc)
        self.world.operators.finish(acc, out)

    def _distribute(self, phase: int, source: SymmetricArray) -> SideWork:
        """Send, or fetch, the rows for ``phase`` (4.2.2, algorithm 2)."""
        dim, world, groups = source.local.shape[1], self.world, self._groups
        buffer = self._buffer(phase, dim)
        with world.side_stream() as work:
            if self._coalesced:
                target = groups.target(phase)
                self._outboxes[target].send(world, source.local, buffer, {target: 0})
            else:
                owner = groups.counterpart(phase)
                rows = self._lists[owner]
                world.get_rows(source, owner, rows, buffer.local[: len(rows)], "get_between")
        return work

    def _buffer(self, phase: int, dim: int) -> SymmetricArray:
        return self._view(self._memory(phase), self._room, dim)

    def _memory(self, phase: int) -> SymmetricArray:
        """Return the array with the rows for ``phase``."""
        return self._buffers[phase % len(self._buffers)] if phase else self._input

    def _multiply(self, phase: int, source: SymmetricArray, acc: Array) -> None:
        """Add the product with the rows of one workgroup (algorithm 1)."""
        held = self._buffer(phase, acc.shape[1]) if phase else source
        own = self._own[phase]
        if not phase or len(own.indices):
            self.world.operators.spmm_rows(own.indptr, own.indices, own.weights, held.local, acc, phase > 0)
        self._columns[phase](self.world, held, acc)
