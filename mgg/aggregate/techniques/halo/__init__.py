"""Technique ``halo``, MGG's own: each needed remote row crosses once, while the PE works on the rows it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import cast

import numpy as np

from mgg.aggregate.boundary_sampling import BoundarySample, boundary_bytes
from mgg.aggregate.embeddings import Form
from mgg.aggregate.memory_model import MemoryCase, PlanMemory
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.plan import Plan
from mgg.aggregate.techniques.halo.memory import need_of_halo, sizes_of_halo
from mgg.aggregate.techniques.halo.on_cpus import FetchedHaloProduct
from mgg.aggregate.techniques.halo.on_gpus import PulledHaloProduct
from mgg.aggregate.workgroups import Workgroups, mates_of, members_of
from mgg.aggregate.workgroups.cover import HaloOptions, SumsOfRows, arriving
from mgg.aggregate.workgroups.intra_inter_group import GroupArcs, far_part, near_part
from mgg.aggregate.workgroups.leaving import Leaving, LeavingSizes, gains, leaving
from mgg.aggregate.workgroups.mailbox import Mailbox
from mgg.aggregate.workgroups.memory import HaloSizes, halo_sizes
from mgg.aggregate.workgroups.outbox import Outbox
from mgg.aggregate.workgroups.quantized_rows import Wire, bits_of, crossing_bytes, rounding_bound
from mgg.aggregate.workgroups.stale import Stale
from mgg.backend.api import Array, SideWork, SymmetricArray, World
from mgg.cost.product import Cost, MachineModel, Workload, fetched_rows, finished, meetings, network_blocks, slowest
from mgg.kernel.compile import Build, build_of
from mgg.layout import PeLayout


class Halo(Plan):
    """PEs fetch the rows that they need into their own halo; without float atomics, so results repeat bit by bit.

    On GPUs one launch pulls the halo while another computes, which hides the transfer. CPU ranks fetch, then compute.
    With several workgroups this is the near part. Meanwhile, rows of other workgroups are put into mailboxes, each row
    once per workgroup (CoLa 4.2). The far part then adds them; mates pull its rows from each other's mailboxes. With
    option ``split``, sums of rows may cross instead of rows (``cover.py``). With ``wire``, rows cross packed
    (``quantized_rows.py``); the receiver unpacks them, so mates find embeddings in mailboxes.
    """

    name = "halo"
    kernels = ("halo", "pull")
    least_volume = True
    dtypes = ("fp32", "bf16")
    Options = HaloOptions
    _stale: Stale | None = None
    _wire: Wire | None = None
    _sample: BoundarySample | None = None

    @classmethod
    def need(cls, case: MemoryCase) -> PlanMemory:
        """See ``need_of_halo``; on one PE, the memory of one row-wise product."""
        if case.size == 1:
            return super().need(case)
        sent = cls._leaves(case)
        found = need_of_halo(case, members_of(case.options, case.layout), sent)
        if case.options.boundary == 1:
            return found
        base = case.base()  # the product over the sample also has the arcs in the layout's order
        return replace(
            found, layout=base.layout, columns=found.columns + boundary_bytes(case, sent),
            schedules=found.schedules + case.local_cut(),
        )  # fmt: skip

    @classmethod
    def exchanged_sizes(cls, case: MemoryCase) -> HaloSizes | LeavingSizes | None:
        """Return the symmetric memory that this PE needs, if there are several workgroups, sums or samples."""
        members, sent = members_of(case.options, case.layout), cls._leaves(case)
        if sent is None and case.options.boundary < 1:
            return halo_sizes(case, members)
        return sizes_of_halo(case, members, sent)

    @classmethod
    def count(cls, world: World, layout: PeLayout, direction: str, options: TechniqueOptions) -> None:
        """Find what leaves the PEs of several workgroups, if sums may (collective)."""
        cls._sends(layout, direction, options, world)

    @classmethod
    def _leaves(cls, case: MemoryCase) -> Leaving | None:
        return cls._sends(case.layout, case.direction, case.options)

    @staticmethod
    def _sends(
        layout: PeLayout, direction: str, options: TechniqueOptions, world: World | None = None
    ) -> Leaving | None:
        """Return the rows and sums that leave the PE, if sums may; collective with a ``world``."""
        assert isinstance(options, HaloOptions)
        way, members = options.way(direction), members_of(options, layout)
        if not gains(layout, way):
            return None
        # Each epoch's sample drops sums of owner after owner.
        return leaving(layout, direction, members, way, separate=options.boundary < 1, world=world)

    @classmethod
    def cost(cls, work: Workload, machine: MachineModel) -> Cost | None:
        """Return the time of the pull and the launches on GPUs, of fetches and then passes on CPU ranks.

        None for a ``workgroup`` other than the split's, whose halos are unknown; for a ``split`` whose sums were not
        counted; for ``stale``, because its transfers overlap an epoch and not a product; and for ``boundary``, whose
        products are not those of the graph. Unless measured, packing a row is assumed to take as long as a product
        with one arc, and so is unpacking.
        """
        options, split = work.options, work.split
        if options.split != "rows" and split.pes > 1:
            if options.split not in split.ways:
                return None
            split = split.ways[options.split]
        if options.workgroup not in (None, split.members) or options.stale or options.boundary < 1:
            return None
        packed = crossing_bytes(options, work.dtype, 1, work.dim) if split.groups > 1 else None
        cost = _cost(replace(work, split=split, crossing=packed), machine)
        if packed is not None:
            cost += slowest(_packed(work, machine, split.fused_rows_a_pe, packed), 0, 0)
        if split.sums is None:
            return cost
        # Sums are computed before anything crosses; where a workgroup adds them up, its PEs wait for each other.
        sums = machine.rates["rows"].seconds(split.sum_arcs, split.sums, work.moved, work.summed)
        return slowest(sums, 0, meetings(split, machine, 1) if 1 < split.members < split.pes else 0) + cost

    @classmethod
    def choices(cls) -> list[TechniqueOptions]:
        """Return the options that send rows, or the smaller cover of rows and sums."""
        return [HaloOptions(), HaloOptions(split="cover")]

    @classmethod
    def least(cls, case: MemoryCase) -> int:
        """Return the least host memory, including the whole halo if its size is known."""
        known = not gains(case.layout, case.options.way(case.direction))
        return super().least(case) + (case.embeddings(case.product.halo) if known else 0)

    @classmethod
    def reach(cls, layout: PeLayout, options: TechniqueOptions) -> Sequence[int]:
        """Return the workgroup."""
        return mates_of(layout.rank, members_of(options, layout))

    @classmethod
    def reweighs(cls, layout: PeLayout, options: TechniqueOptions) -> bool:
        """Return True for rows within one workgroup, where arcs are one part; sums use the layout's weights."""
        assert isinstance(options, HaloOptions)
        plain = options.split == "rows" and options.boundary == 1
        return members_of(options, layout) >= layout.size and (plain or layout.size == 1)

    @classmethod
    def builds(cls, options: TechniqueOptions, dtype: str, shmem: bool) -> list[Build]:
        """Return the kernels, including those that pack."""
        made = super().builds(options, dtype, shmem)
        packs = bits_of(options, dtype) is not None
        return [*made, build_of("wire", 32, bf16=dtype == "bf16")] if packs else made

    def rounding(self, halo: np.ndarray) -> np.ndarray | None:
        """See ``Plan``."""
        if self._wire is None:
            return None
        return rounding_bound(self.layout, self.direction, halo, self._members, self._wire.form.bits, self.dtype)

    def begin(self, seed: int, epoch: Array | None) -> None:
        """See ``Plan``."""
        if self._wire is not None:
            self._wire.begin(seed, epoch)
        if self._sample is not None:
            self._sample.begin(seed, epoch)

    def reweigh(self, local: Array, remote: Array) -> None:
        """See ``Plan``."""
        self._near.reweigh(local, remote)

    @cached_property
    def _members(self) -> int:
        return members_of(self.options, self.layout)

    def _rows_of_input(self) -> int:
        """Reserve room for sums behind the rows; from now on, ``host`` is the product over received rows and sums."""
        rows, world = super()._rows_of_input(), self.world
        self._sent = self._sends(self.layout, self.direction, self.options, world)
        if self._sent is None:
            return rows
        self.host = arriving(world, self.layout, self.direction, self._sent, self._members)
        return max(world.gather(self.layout.rows + self._sent.made))

    def _build(self) -> None:
        if self._sent is not None:
            self._sums_of_rows = SumsOfRows(self.world, self._sent, self.max_dim, self._element)
        pulls = self._pulls = bool(self.world.gpu) and self.world.size > 1
        self.self_synchronizing = pulls and self.world.shmem
        mates = mates_of(self.world.rank, self._members)
        self._near = self._work(near_part(self.host, mates), self._input, self._max_rows, accumulate=False)
        self._groups: Workgroups | None = None
        if self.options.boundary < 1 and self.world.size > 1:
            self._sample = BoundarySample(
                self.world, self.layout, self.host, self._sent, self.options.boundary, self._embeddings,
                lambda rows: self._alone(self._floats(rows)),
            )  # fmt: skip
        if self._members < self.world.size:
            self._groups = Workgroups(self.world, self.host, self._members)
            self._build_far(self._groups)

    def _build_far(self, groups: Workgroups) -> None:
        self._mailbox = mailbox = Mailbox(self.world, groups)
        part = far_part(self.host, groups, mailbox.firsts, mailbox.rows)
        sent, halo = sum(map(len, groups.asked.values())), part.halo if self._pulls else 0
        sent, halo = (max(column) for column in zip(*self.world.gather((sent, halo)), strict=True))
        self._mail = self._letters = self._allocate(mailbox.rows + halo, groups.mates)
        bits, self._form = bits_of(self.options, self.dtype), cast(Form, self._embeddings)
        if bits is not None:
            sums = 0 if self._sent is None else self._sent.made
            self._wire = Wire(self.world, self.layout, self.direction, bits, sums)
            self._form = self._wire.form
            self._letters = self._alone(self._form.floats(mailbox.rows, self.max_dim))
        self._outbox = self._sender(self._alone(self._form.floats(sent, self.max_dim)))
        if self.options.stale:
            self._stale = Stale(self.world, mailbox, sent, self._form, self._sender, self._alone)
        self._far = self._work(part, self._mail, mailbox.rows, accumulate=True)

    def _sender(self, memory: SymmetricArray) -> Outbox:
        """Return the sender of rows to other workgroups, which packs them in ``memory``."""
        assert self._groups is not None
        if self._wire is not None:
            return self._wire.outbox(self._groups.asked, memory)
        return Outbox(self.world, self._groups.asked, memory, self._embeddings)

    def close(self) -> None:
        """Free the symmetric arrays once no transfer to them is pending (collective)."""
        if self._stale is not None:
            self._stale.wait_for_rows()
        super().close()

    def _alone(self, floats: int) -> SymmetricArray:
        """Allocate symmetric memory that only this PE addresses; ``close`` frees it (collective)."""
        made = self.world.symmetric(floats, [self.world.rank])
        self._symmetric.append(made)
        return made

    @property
    def stale(self) -> Stale | None:
        """State for option ``stale``, if it is set and there are several workgroups."""
        return self._stale

    @property
    def sample(self) -> BoundarySample | None:
        """Sampler for option ``boundary``, if it is below 1 and there are several PEs."""
        return self._sample

    def _work(
        self, part: GroupArcs, matrix: SymmetricArray, rows: int, *, accumulate: bool
    ) -> PulledHaloProduct | FetchedHaloProduct:
        """Return the operator of ``part`` (collective); ``matrix`` has ``rows`` rows before the halo."""
        if not self._pulls:
            return FetchedHaloProduct(self.world, part, matrix, rows, self._embeddings, self.max_dim, accumulate)
        flags = None
        if self.self_synchronizing:
            flags = self.world.symmetric(2 * len(part.pes), part.pes)
            self._symmetric.append(flags)
        return PulledHaloProduct(self.world, part, matrix, rows, self._embeddings, flags, accumulate)

    def _allocate_input(self, elements: int) -> SymmetricArray:
        """Allocate room for the halo behind the rows, so that both are one matrix."""
        if self.world.gpu and self.world.size > 1:
            mates = mates_of(self.world.rank, self._members)
            halo = int(self.host.halo_ptr[mates.stop] - self.host.halo_ptr[mates.start])
            elements += self._floats(max(self.world.gather(halo)))
        return super()._allocate_input(elements)

    def _begin(self, source: SymmetricArray) -> None:
        if self._sent is not None:
            self._sums_of_rows(source)

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        # GPUs add in the output itself, because they accumulate a row in registers.
        sums = self.accumulator(out.shape[1]) if self.host.halo and not self._pulls else out
        self._step("all", source, sums)
        self.world.operators.finish(sums, out)

    def part(self, name: str, dim: int, out: Array) -> bool:
        """Pull the halo alone, or compute with the present halo; only GPUs can separate the two."""
        if not self._pulls or (self._sample is not None and self._sample.drawn):
            return False
        source = self._input_view(dim)
        if name == "compute":
            self._begin(source)
        self._step(name, source, out)
        return True

    def _step(self, step: str, source: SymmetricArray, sums: Array) -> None:
        """Run the step ``all``, ``transfer`` or ``compute``."""
        groups, crosses = self._groups, step != "compute"
        if self._sample is not None and self._sample.drawn:
            self._sample(self.world, source, sums)
            if self.self_synchronizing:
                self.world.barrier()  # after it, others may write into this PE's mailbox again
            return
        if groups is None:
            self._near(self.world, sums, step)
            return
        if self._stale is not None and self._stale.training:
            self._late(self._stale, source, sums)
            return
        coming = self._send(groups, source) if crosses else None
        self._near(self.world, sums, step)
        if coming is not None:
            coming.wait()
            self._arrive(groups)
            if self._wire is not None:
                self._open(self._letters_of(source.local.shape[1]).local, source.local.shape[1])
        self._far(self.world, sums, step)
        if self.self_synchronizing and crosses:
            self.world.barrier()  # mates have read this PE's mailbox, so others may write into it again

    def _late(self, stale: Stale, source: SymmetricArray, sums: Array) -> None:
        """Compute with rows that other workgroups sent an epoch ago, while sending them the rows for the next epoch."""
        world = self.world
        arrived, coming = stale.turn(source.local)
        self._near(world, sums, "all")
        if coming is not None:
            coming.wait()
            world.barrier()
        self._open(arrived, source.local.shape[1])
        self._far(world, sums, "all")

    def _open(self, arrived: Array, dim: int) -> None:
        """Turn the rows that ``arrived`` in the mailbox into embeddings."""
        mail = self._view(self._mail, self._mailbox.rows, dim).local
        if self._wire is not None:
            self._wire.unpack(arrived, mail[: self._mailbox.filled])
        else:
            mail[...] = arrived
        if not self.self_synchronizing:
            self.world.barrier()  # mates read each other's mailboxes

    def _letters_of(self, dim: int) -> SymmetricArray:
        """Return the mailbox in the format in which rows cross."""
        if self._wire is None:
            return self._view(self._mail, self._mailbox.rows, dim)
        return self._form.matrix(self._letters, self._mailbox.rows, dim)

    def _send(self, groups: Workgroups, source: SymmetricArray) -> SideWork:
        """Put this PE's rows into the mailboxes of other workgroups, one message each, overlapped with other work."""
        world, letters = self.world, self._letters_of(source.local.shape[1])
        with world.side_stream() as work:
            self._outbox.send(world, source.local, letters, self._mailbox.slots)
            for target in self._mailbox.slots if self.self_synchronizing else ():
                world.signal(target)
        return work

    def _arrive(self, groups: Workgroups) -> None:
        """Wait until mailboxes are filled: only this PE's if the launch waits for mates, else all mailboxes."""
        if self.self_synchronizing:
            for owner in groups.wanted:
                self.world.wait_signal(owner)
        else:
            self.world.barrier()


def _packed(work: Workload, machine: MachineModel, rows: np.ndarray, crossing: int) -> np.ndarray:
    """Return the seconds in which each PE packs and unpacks as many rows as it receives."""
    if "packed" in machine.rates:
        return np.asarray(machine.rates["packed"].seconds(0, rows, 0, work.summed))
    rate = machine.rates["rows"]
    both = rate.seconds(rows, rows, work.moved, crossing) + rate.seconds(rows, rows, crossing, work.moved)
    return np.asarray(both)


def _cost(work: Workload, machine: MachineModel) -> Cost:
    """Return the cost of the product once the sums are made."""
    split, moved, summed = work.split, work.moved, work.summed
    if split.pes == 1:
        return slowest(machine.rates["rows"].seconds(split.arcs, split.rows, moved, summed), 0, 0)
    if machine.gpu:
        return _launches(work, machine)
    rate, passes = machine.rates["rows"], 1 if split.groups == 1 else 3  # mates; own mailbox; mates' mailboxes
    touched = np.minimum(passes * split.rows, split.remote_arcs)
    local = rate.seconds(split.local_arcs, split.rows, moved, summed)
    remote = rate.seconds(split.remote_arcs, touched, moved, summed, passes)
    sums = local + remote + finished(work, machine)
    return slowest(sums, fetched_rows(work, machine), meetings(split, machine))


def _launches(work: Workload, machine: MachineModel) -> Cost:
    """Return the cost on GPUs: a near launch beside its pull and the messages, then a far launch beside its pull.

    The far launch waits for messages and mates, and reads and writes the sums of the rows that it adds to.
    """
    split, moved, summed = work.split, work.moved, work.summed
    rate, link = machine.rates["pulled"], machine.links[machine.links.rows]
    far_arcs = split.remote_arcs * split.outside_share_of_arcs
    far_rows = split.halo_rows * split.outside_share_of_rows
    near = rate.seconds(split.arcs - far_arcs, split.rows, moved, summed)
    pulls = min(1, split.members - 1)  # a PE without mates pulls nothing
    fetched, fixed = link.seconds(split.halo_rows - far_rows, moved, pulls), meetings(split, machine)
    if split.groups == 1:
        return slowest(near, fetched, fixed, machine.exposed)
    crossing = network_blocks(work, machine, split.fused_rows_a_pe, split.groups - 1)
    far = rate.seconds(far_arcs, np.minimum(split.rows, far_arcs), moved, 2 * summed)
    from_mates = link.seconds(far_rows - split.received_rows, moved, pulls)
    first = slowest(near, fetched + crossing, fixed, machine.exposed)
    return first + slowest(far, from_mates, 0, machine.exposed)
