"""Technique ``halo``, ours: each needed remote row crosses once, while the PE works on what is there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from mgg.aggregate.costs import Cost, Machine, Workload, fetched_rows, finished, meetings, network_blocks, slowest
from mgg.aggregate.group_needs import Told, room, told
from mgg.aggregate.halo_on_cpus import FetchedHalo
from mgg.aggregate.halo_on_gpus import PulledHalo
from mgg.aggregate.mailbox import Mailbox
from mgg.aggregate.near_far import Part, far_part, near_part
from mgg.aggregate.needs import POINTER, Case, Need
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.outbox import Outbox
from mgg.aggregate.plan import Plan
from mgg.aggregate.workgroups import WorkgroupOptions, Workgroups, check_members, makes_groups, mates_of, members_of
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray, Work
from mgg.layout import PeLayout


class Halo(Plan):
    """PEs fetch the rows that they need into a halo of their own; no float atomics, so the same bits every time.

    On GPUs a launch pulls the halo beside one that works and hides the transfer. CPU ranks fetch, then work. With
    several workgroups that is the near part; rows of other workgroups are put into mailboxes meanwhile, each once a
    workgroup (CoLa 4.2), and then the far part is added, whose rows mates pull from each other's mailboxes.
    """

    name = "halo"
    kernels = ("halo", "pull")
    least_volume = True
    dtypes = ("fp32", "bf16")
    Options = WorkgroupOptions

    @classmethod
    def need(cls, case: Case) -> Need:
        """One matrix of rows and halo, and the arcs in the order of the work; nothing of the layout as it is."""
        if case.size == 1:
            return super().need(case)
        product, members = case.product, members_of(case.options, case.layout)
        arcs = case.arc * (product.local.arcs + product.remote.arcs) + POINTER * product.halo
        if makes_groups(case.size, members):
            return _need_of_workgroups(case, arcs, mates_of(case.rank, members))
        columns = case.embeddings(case.heights.max() + max(case.counts.halo_rows)) + case.matrix(case.rows)
        lengths = [np.diff(csr.indptr) for csr in (product.local, product.remote)]
        return Need(0, columns, arcs, case.cut(lengths[0]) + case.cut(lengths[1][lengths[1] > 0]))

    @classmethod
    def told(cls, case: Case) -> Told | None:
        """With several workgroups, what of symmetric memory the PE needs."""
        members = members_of(case.options, case.layout)
        return told(case, members) if makes_groups(case.size, members) else None

    @classmethod
    def cost(cls, work: Workload, machine: Machine) -> Cost | None:
        """On GPUs a pull beside a launch that works, and the same for the far part; on CPU ranks fetches, then passes.

        None for an option ``workgroup`` other than the split's, whose halos are not known.
        """
        options, split, moved, summed = work.options, work.split, work.moved, work.summed
        assert isinstance(options, WorkgroupOptions)
        if options.workgroup not in (None, split.members):
            return None
        if split.pes == 1:
            return slowest(machine.rates["rows"].seconds(split.arcs, split.rows, moved, summed), 0, 0)
        if machine.gpu:
            return _launches(work, machine)
        rate, passes = machine.rates["rows"], 1 if split.groups == 1 else 3  # mates'; own mailbox's, other mailboxes'
        touched = np.minimum(passes * split.rows, split.remote_arcs)
        local = rate.seconds(split.local_arcs, split.rows, moved, summed)
        remote = rate.seconds(split.remote_arcs, touched, moved, summed, passes)
        sums = local + remote + finished(work, machine)
        return slowest(sums, fetched_rows(work, machine), meetings(split, machine))

    @classmethod
    def least(cls, case: Case) -> int:
        """The halo as a whole besides."""
        return super().least(case) + case.embeddings(case.product.halo)

    @classmethod
    def reach(cls, layout: PeLayout, options: TechniqueOptions) -> Sequence[int]:
        """The workgroup."""
        return mates_of(layout.rank, members_of(options, layout))

    @classmethod
    def check(cls, world: World, layout: PeLayout, options: TechniqueOptions) -> None:
        """The PEs make whole workgroups."""
        check_members(cls.name, members_of(options, layout), world.size)

    @cached_property
    def _members(self) -> int:
        return members_of(self.options, self.layout)

    def _build(self) -> None:
        pulls = self._pulls = bool(self.world.gpu) and self.world.size > 1
        self.meets = pulls and self.world.shmem
        mates = mates_of(self.world.rank, self._members)
        self._near = self._work(near_part(self.host, mates), self._input, self._max_rows, accumulate=False)
        self._groups: Workgroups | None = None
        if self._members < self.world.size:
            self._groups = Workgroups(self.world, self.host, self._members)
            self._build_far(self._groups)

    def _build_far(self, groups: Workgroups) -> None:
        self._mailbox = mailbox = Mailbox(self.world, groups)
        part = far_part(self.host, groups, mailbox.firsts, mailbox.rows)
        sent, halo = sum(map(len, groups.asked.values())), part.halo if self._pulls else 0
        sent, halo = (max(column) for column in zip(*self.world.gather((sent, halo)), strict=True))
        self._mail = self._allocate(mailbox.rows + halo, groups.mates)
        self._outbox = Outbox(self.world, groups.asked, self._allocate(sent, [self.world.rank]), self._embeddings)
        self._far = self._work(part, self._mail, mailbox.rows, accumulate=True)

    def _work(self, part: Part, matrix: SymmetricArray, rows: int, *, accumulate: bool) -> PulledHalo | FetchedHalo:
        """What fetches the halo of ``part`` and computes it (collective); ``rows`` of ``matrix`` are not its halo."""
        if not self._pulls:
            return FetchedHalo(self.world, part, matrix, rows, self._embeddings, self.max_dim, accumulate)
        flags = None
        if self.meets:
            flags = self.world.symmetric(2 * len(part.pes), part.pes)
            self._symmetric.append(flags)
        return PulledHalo(self.world, part, matrix, rows, self._embeddings, flags, accumulate)

    def _allocate_input(self, elements: int) -> SymmetricArray:
        """With room for the halo behind the rows, so that both are one matrix."""
        if self.world.gpu and self.world.size > 1:
            mates = mates_of(self.world.rank, self._members)
            halo = int(self.host.halo_ptr[mates.stop] - self.host.halo_ptr[mates.start])
            elements += self._floats(max(self.world.gather(halo)))
        return super()._allocate_input(elements)

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        # GPUs add in the output itself: a row's sums are made in registers.
        sums = self.accumulator(out.shape[1]) if self.host.halo and not self._pulls else out
        self._step("all", source, sums)
        self.world.operators.finish(sums, out)

    def part(self, name: str, dim: int, out: Array) -> bool:
        """The halo pulled alone, or all work with the halo as it is; GPUs do both side by side."""
        if not self._pulls:
            return False
        self._step(name, self._input_view(dim), out)
        return True

    def _step(self, step: str, source: SymmetricArray, sums: Array) -> None:
        """``all``, ``transfer`` or ``compute``."""
        groups, crosses = self._groups, step != "compute"
        if groups is None:
            self._near(self.world, sums, step)
            return
        coming = self._send(groups, source) if crosses else None
        self._near(self.world, sums, step)
        if coming is not None:
            coming.wait()
            self._arrive(groups)
        self._far(self.world, sums, step)
        if self.meets and crosses:
            self.world.barrier()  # mates have read this PE's mailbox, so that others may write into it

    def _send(self, groups: Workgroups, source: SymmetricArray) -> Work:
        """Put this PE's rows into the mailboxes of the other workgroups, one message each, beside other work."""
        world, mail = self.world, self._view(self._mail, self._mailbox.rows, source.local.shape[1])
        with world.aside() as work:
            self._outbox.send(world, source.local, mail, self._mailbox.slots)
            for target in self._mailbox.slots if self.meets else ():
                world.signal(target)
        return work

    def _arrive(self, groups: Workgroups) -> None:
        """Wait until the mailboxes are filled: this PE's, where mates meet before they read each other's; else all."""
        if self.meets:
            for owner in groups.wanted:
                self.world.wait_signal(owner)
        else:
            self.world.barrier()


def _launches(work: Workload, machine: Machine) -> Cost:
    """On GPUs a pull beside a launch that works for the near part, while messages cross, then for the far part.

    That waits for messages and mates, and reads and writes the sums of the rows that it adds to.
    """
    split, moved, summed = work.split, work.moved, work.summed
    rate, link = machine.rates["pulled"], machine.links[machine.links.rows]
    far_arcs = split.remote_arcs * split.outside_share_of_arcs
    far_rows = split.halo_rows * split.outside_share_of_rows
    near = rate.seconds(split.arcs - far_arcs, split.rows, moved, summed)
    pulls = min(1, split.members - 1)  # a PE without mates has nobody to pull from
    fetched, fixed = link.seconds(split.halo_rows - far_rows, moved, pulls), meetings(split, machine)
    if split.groups == 1:
        return slowest(near, fetched, fixed, machine.exposed)
    crossing = network_blocks(work, machine, split.fused_rows_a_pe, split.groups - 1)
    far = rate.seconds(far_arcs, np.minimum(split.rows, far_arcs), moved, 2 * summed)
    from_mates = link.seconds(far_rows - split.received_rows, moved, pulls)
    first = slowest(near, fetched + crossing, fixed, machine.exposed)
    return first + slowest(far, from_mates, 0, machine.exposed)


def _need_of_workgroups(case: Case, arcs: int, mates: range) -> Need:
    """GPU memory with several workgroups: the near part's matrix, mailbox, all messages, the order of both parts."""
    product, most, owners = case.product, room(case, len(mates)), np.arange(case.size)
    near = (owners >= mates.start) & (owners < mates.stop)
    held = case.heights.max() + most.near + most.mailbox + most.far + most.sent
    columns = case.embeddings(held) + case.matrix(case.rows)
    lists = product.send_rows.dtype.itemsize * sum(told(case, len(mates)).messages)
    is_near = np.repeat(near, np.diff(product.halo_ptr))[product.remote.indices]
    rows = np.repeat(np.arange(case.rows), np.diff(product.remote.indptr))
    lengths = [np.diff(product.local.indptr)]
    lengths += [np.bincount(rows[kept], minlength=case.rows) for kept in (is_near, ~is_near)]
    cuts = case.cut(lengths[0]) + sum(case.cut(each[each > 0]) for each in lengths[1:])
    return Need(0, columns, arcs + lists, cuts)
