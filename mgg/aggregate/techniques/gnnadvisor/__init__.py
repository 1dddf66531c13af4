"""Technique ``gnnadvisor``: GNNAdvisor's kernel (OSDI'21, sections 4 to 6) on one PE, each optimization switchable.

CPUs sum the groups one after the other in float64. Dimension workers, threads, their mapping and the leader affect GPUs
only, but the count of atomics covers them on CPUs, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from mgg.aggregate.memory_model import DOUBLE, FLOAT, POINTER, VECTOR, MemoryCase, PlanMemory
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.plan import Plan
from mgg.aggregate.techniques.gnnadvisor import decider
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray
from mgg.errors import InputError
from mgg.kernel.groups import Groups, GroupSetting, count, groups_of
from mgg.layout import PeLayout
from mgg.layout.neighbor_partitions import NeighborPartitions, neighbor_partitions

#: Defaults of ``ngs``, ``dw`` and ``tpb`` if neither the user nor ``decide`` sets them.
NGS, DW, TPB = 16, 32, 128
#: Bytes of each id of a group: of its row and of the place of its sum.
_ID = 4


class GnnAdvisorOptions(TechniqueOptions):
    """The kernel's parameters (section 6), and switches for its optimizations."""

    ngs: int | None = Field(
        None, ge=1, le=1024, description=f"arcs of a neighbor group (4.1); none: {NGS}, or as decided"
    )
    dw: int | None = Field(
        None, ge=1, le=32, description=f"dimension workers, threads of a group (4.2); none: {DW}, or as decided"
    )
    tpb: int | None = Field(
        None, ge=32, le=1024, multiple_of=32, description=f"threads a block, whole warps; none: {TPB}, or as decided"
    )
    mapping: Literal["warp", "continuous"] = Field(
        "warp", description="a warp a group (figure 6b), or groups one behind the other across warps (figure 6a)"
    )
    leader: bool = Field(
        True, description="groups of a row within a block meet in shared memory, one of them writes (5.2)"
    )
    sums: Literal["ordered", "atomic"] = Field(
        "ordered",
        description="how sums of a row come together: in a fixed order, the same bits every time, or by float atomics,"
        " as in the paper",
    )
    decide: Literal["none", "paper", "artifact", "fitted"] = Field(
        "none",
        description="who chooses: these options; the Decider as printed (ngs, dw) or as released (ngs, dw, tpb); or"
        " what a sweep on this GPU found best (ngs, dw, tpb)",
    )

    @model_validator(mode="after")
    def _decided_once(self) -> Self:
        """Reject values for parameters that the Decider chooses."""
        given = [name for name in decider.CHOOSES.get(self.decide, ()) if getattr(self, name) is not None]
        if given:
            raise ValueError(f"{given[0]}: decide: {self.decide} chooses it: leave one of the two out")
        return self

    def settings(self, lengths: np.ndarray, dim: int, gpu: str | None) -> GroupSetting:
        """Return the launch parameters for a product of ``dim`` columns.

        Args:
            lengths: int64 [rows], arcs of each row.
            gpu: model of the GPU; None: of the models that ``fitted`` knows, the one that needs most memory.
        """
        given = GroupSetting(
            self.ngs or NGS, self.dw or DW, self.tpb or TPB,
            aligned=self.mapping == "warp", leader=self.leader, ordered=self.sums == "ordered",
        )  # fmt: skip
        if self.decide == "none":
            return given
        if self.decide == "paper":
            ngs, dw = decider.as_printed(dim)
            return replace(given, ngs=ngs, dw=dw)
        if self.decide == "artifact":
            ngs, dw, tpb = decider.as_released(lengths, dim)
            return replace(given, ngs=ngs, dw=dw, tpb=tpb)
        fits = decider.FITTED.values() if gpu is None else [decider.fit_for(gpu)]
        chosen = [fit.choose(dim, given) for fit in fits]
        return max(chosen, key=lambda each: count(lengths, each).groups)


class GnnAdvisor(Plan):
    """Neighbor groups, dimension workers, and one leader per row and block, in one launch."""

    name = "gnnadvisor"
    kernels = ("gnnadvisor",)
    single_pe = True
    reads_inputs = False  # there is only one PE
    sums_apart = False
    Options = GnnAdvisorOptions

    @classmethod
    def check(cls, world: World, layout: PeLayout, options: TechniqueOptions) -> None:
        """Check that ``fitted`` has constants for this GPU."""
        assert isinstance(options, GnnAdvisorOptions)
        if options.decide == "fitted":
            try:
                decider.fit_for(world.gpu)
            except InputError as error:
                raise error.on_every_pe() from None

    @classmethod
    def need(cls, case: MemoryCase) -> PlanMemory:
        """Return the memory of arcs without row pointers, of groups, and of the partial sums of split rows."""
        lengths = np.diff(case.product.local.indptr)
        setting = case.options.settings(lengths, case.dim, None)
        found = count(lengths, setting)
        ids = (2 if setting.ordered else 1) * _ID * found.groups + POINTER * (found.groups + 1)
        partial = slots = 0
        if setting.ordered:
            slots = _ID * (2 * found.split + 1)
            partial = FLOAT * found.slots * -(-case.dim // VECTOR) * VECTOR
        arcs = case.arc * case.product.local.arcs
        return PlanMemory(arcs, case.base().columns, ids + slots, partial)

    @classmethod
    def least(cls, case: MemoryCase) -> int:
        """Return the least host memory, including the float64 sums, which are separate from the result."""
        return super().least(case) + DOUBLE * case.rows * case.dim

    def _build(self) -> None:
        self._lengths = np.diff(self.host.local.indptr)
        self._settings: dict[int, GroupSetting] = {}
        self._groups: dict[GroupSetting, Groups] = {}
        self._parts: dict[int, NeighborPartitions] = {}
        csr = self.host.local
        self._indices = self.world.upload(csr.indices)
        self._weights = None if csr.weights is None else self.world.upload(csr.weights)
        if self.world.gpu:
            self._groups_for(self.setting(self.max_dim))

    @property
    def repeats(self) -> bool:
        """Whether results repeat bit by bit, which atomics prevent."""
        return self.options.sums == "ordered"

    def setting(self, dim: int) -> GroupSetting:
        """Return the launch parameters for ``dim`` columns."""
        if dim not in self._settings:
            self._settings[dim] = self.options.settings(self._lengths, dim, self.world.gpu)
        return self._settings[dim]

    def facts(self, dim: int) -> dict[str, Any]:
        """Return the number of atomics that the kernel issues on a GPU, and the chosen parameters."""
        setting = self.setting(dim)
        chosen = {"ngs": setting.ngs, "dw": setting.dw, "tpb": setting.tpb}
        return {"atomics": count(self._lengths, setting).atomics(setting, dim), "decided": chosen}

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        dim = out.shape[1]
        setting = self.setting(dim)
        operators: Any = self.world.operators  # on GPUs they have the kernel besides the table of operators
        if self.world.gpu:
            groups = self._groups_for(setting)
            operators.gnnadvisor(groups, self._indices, self._weights, source.local, out, setting)
            return
        if setting.ngs not in self._parts:
            self._parts[setting.ngs] = neighbor_partitions(self.host.local.indptr, setting.ngs)
        parts, acc = self._parts[setting.ngs], self.accumulator(dim)
        acc[...] = 0
        operators.spmm_partitions(
            parts.rows, parts.starts, parts.stops, self._indices, self._weights, source.local, acc
        )
        operators.finish(acc, out)

    def forget(self, dim: int) -> None:
        """Free the groups that no other width shares."""
        gone = self._settings.pop(dim, None)
        if gone is not None and gone not in self._settings.values() and gone != self.setting(self.max_dim):
            self._groups.pop(gone, None)

    def _groups_for(self, setting: GroupSetting) -> Groups:
        """Return the groups on the device; they are built at the first product with this setting."""
        if setting not in self._groups:
            made, up = groups_of(self.host.local.indptr, setting), self.world.upload
            targets = up(made.targets)
            self._groups[setting] = replace(
                made, targets=targets, starts=up(made.starts), to=up(made.to) if setting.ordered else targets,
                split_rows=up(made.split_rows), split_first=up(made.split_first),
            )  # fmt: skip
        return self._groups[setting]
