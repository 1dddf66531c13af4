"""Base of techniques that aggregate neighbor partitions row by row and fetch one remote row per arc."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mgg.aggregate.memory_model import PARTITION, POINTER, MemoryCase, PlanMemory
from mgg.aggregate.neighbor_partitions.on_cpus import Blocks, blocks_cost, pieces
from mgg.aggregate.neighbor_partitions.on_gpus import Fused, block_arcs
from mgg.aggregate.neighbor_partitions.schedule import KernelSchedule
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.plan import Plan
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray, gpu_memory_errors
from mgg.config import Assigned
from mgg.cost.product import Cost, MachineModel, Workload, fetched_arcs, meetings, slowest
from mgg.errors import InputError
from mgg.kernel.compile import Build, build_of
from mgg.kernel.requests import merged
from mgg.kernel.schedule import remote_sources
from mgg.layout import PeLayout
from mgg.tune.setting import Setting


class Partitioned(Plan):
    """One launch of MGG's kernel on GPUs; blocks in the same order on CPU ranks."""

    _fused: Fused | None = None
    deterministic = False  # on GPUs, float atomics make the last bits vary

    @classmethod
    def check(cls, world: World, layout: PeLayout, options: TechniqueOptions) -> None:
        """Check that NVSHMEM is available if the primitive needs it."""
        primitive = cls.schedule(options, world.shmem).primitive
        if primitive != "direct" and world.gpu and not world.shmem:
            raise InputError(
                f"technique {cls.name}: option primitive: {primitive} needs --backend nvshmem"
            ).on_every_pe()
        if primitive != "direct":
            world.check_shmem()

    def _build(self) -> None:
        schedule = self.schedule(self.options, self.world.shmem)
        if self._fused is not None:
            self._fused.take(schedule)
        elif self.world.gpu:
            self._fused = Fused(self.world, self.host, schedule, self.max_dim)
        else:
            self._blocks = Blocks(
                self.world, self.host, self.max_dim,
                ps=schedule.ps, remote=schedule.remote, share=schedule.share, interleave=schedule.interleave,
                merge=schedule.merge,
            )  # fmt: skip

    @classmethod
    def reweighs(cls, layout: PeLayout, options: TechniqueOptions) -> bool:
        """Return True: partitions keep the layout's order of the arcs."""
        return True

    def _arc_weights(self) -> Sequence[Any]:
        return super()._arc_weights() if self._fused is None else self._fused.weights

    def take(self, setting: Setting) -> None:
        """Use another setting from the next product on; all PEs must switch between the same products."""
        self.options = self.options.model_copy(update=setting.options())
        with gpu_memory_errors(self.world):
            self._build()

    @classmethod
    def builds(cls, options: TechniqueOptions, dtype: str, shmem: bool) -> list[Build]:
        """Return the kernels, including MGG's with the primitive that fetches remote rows."""
        schedule = cls.schedule(options, shmem)
        made = build_of("mgg", 32, schedule.primitive, merge=schedule.merge)
        return [*super().builds(options, dtype, shmem), made]

    @classmethod
    def need(cls, case: MemoryCase) -> PlanMemory:
        """Return the memory of MGG's kernel: neighbor partitions and the source of each remote arc's row."""
        schedule, ps = cls.schedule(case.options, shmem=False), cls.finest(case.options)
        remote = schedule.ps_remote or ps
        lengths = [(np.diff(csr.indptr), ps) for csr, ps in ((case.product.local, ps), (case.product.remote, remote))]
        pieces = sum(int(np.count_nonzero(each) if ps is None else (-(-each // ps)).sum()) for each, ps in lengths)
        arcs = case.ids * case.product.local.arcs + case.weight * (case.product.local.arcs + case.product.remote.arcs)
        made = PARTITION * pieces + POINTER * (case.product.remote.arcs + case.size)
        fetched = 0
        if schedule.merge:
            product = case.product
            sources = remote_sources(product.remote.indices, product.halo_ptr, product.halo_rows)
            # The finest setting has the smallest blocks, which can merge the fewest requests.
            finest = schedule if ps == schedule.ps else replace(schedule, ps=ps, dist=1, wpb=1)
            requests, first, _ = merged(sources, block_arcs(product, finest))
            fetched = case.embeddings(len(requests))
            made += requests.nbytes + first.nbytes
        return PlanMemory(arcs, case.base().columns + fetched, made)

    @classmethod
    def cost(cls, work: Workload, machine: MachineModel) -> Cost | None:
        """Return the time of sums overlapped with a fetch per arc (MGG 5); without overlap on CPU ranks."""
        schedule, split = cls.schedule(work.options, shmem=machine.gpu), work.split
        if schedule.merge:  # a split does not say how many requests are equal
            return None
        if not machine.gpu:
            return blocks_cost(
                work, machine, ps=schedule.ps, remote=schedule.remote, share=schedule.share,
                interleave=schedule.interleave,
            )  # fmt: skip
        made = pieces(split.local_arcs, split, schedule.ps) + pieces(split.remote_arcs, split, schedule.remote)
        fetched = fetched_arcs(work, machine) if split.pes > 1 else np.zeros(1)
        if schedule.batch == 1:
            # A warp waits for each row, so arcs count, not bytes.
            fetched = fetched + machine.rates["blocking"].seconds(split.remote_arcs, made, work.moved, work.summed)
        sums = machine.rates["partitions"].seconds(split.arcs, made, work.moved, work.summed)
        exposed = machine.exposed if schedule.asynchronous else 1.0
        return slowest(sums, fetched, meetings(split, machine), exposed)

    @classmethod
    def finest(cls, options: TechniqueOptions) -> int | None:
        """Return the arcs of the smallest neighbor partitions that may be used; None: rows stay whole."""
        return cls.schedule(options, shmem=False).ps

    @classmethod
    @abstractmethod
    def schedule(cls, options: Assigned, shmem: bool) -> KernelSchedule:
        """Return the schedule for ``options``; ``shmem``: kernels may call NVSHMEM."""

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        if self._fused is not None:
            self._fused(source, out)
        else:
            self._blocks(source, self.accumulator(out.shape[1]), out)
