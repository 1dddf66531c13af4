"""The interface between code that needs the product A B and the techniques that compute it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mgg.aggregate.embeddings import Embeddings
from mgg.aggregate.memory_model import DOUBLE, MemoryCase, PlanMemory
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.workgroups import WorkgroupOptions, members_of, spanning, within_hosts
from mgg.aggregate.workgroups.stale import Stale
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray, gpu_memory_errors, name_pes
from mgg.cost.product import Cost, MachineModel, Workload
from mgg.errors import InputError, MggError
from mgg.graph.csr import Csr
from mgg.kernel.bf16 import ELEMENTS
from mgg.kernel.compile import Build, build_of
from mgg.layout import PeLayout

if TYPE_CHECKING:
    from mgg.aggregate.boundary_sampling import BoundarySample


class Plan(ABC):
    """One technique, prepared for one layout and direction.

    The plan does all synchronization; callers never add barriers. ``plan.input(D)`` may be written as soon as
    ``plan(D)`` has returned, and ``plan(D)`` sees everything that each PE wrote before its own call.

    Attributes:
        name: config value of the technique.
        deterministic: with default options, the same inputs and P give the same bits (``repeats``: with the plan's
            options).
        dtypes: supported types of the embeddings; sums are float32.
        single_pe: the technique runs on one PE only.
        one_process: on GPUs, the PEs are threads of one process.
        unified: on GPUs, the inputs are unified memory, whose pages migrate.
        rough: on GPUs, ``cost`` ignores the time lost to uneven rows, so ``auto`` does not trust it.
        least_volume: each needed row crosses once (V_FC, CoLa's equation 7), so no technique moves less.
        pitched: on GPUs, rows of embeddings are padded (``row_pitch``); set it only where no whole blocks are sent.
        sums_apart: on CPUs, the technique sums in ``accumulator`` when rows come from other PEs.
        host: the product's arrays in the layout's order, in host memory; plans are derived from them.
        self_synchronizing: the technique itself waits for other PEs' rows and until those PEs have read this PE's rows.
    """

    name: ClassVar[str]
    #: Kernel sources that its products use on GPUs besides ``rows`` and ``gather``; all are compiled ahead of time.
    kernels: ClassVar[tuple[str, ...]] = ()
    deterministic: ClassVar[bool] = True
    dtypes: ClassVar[tuple[str, ...]] = ("fp32",)
    single_pe: ClassVar[bool] = False
    one_process: ClassVar[bool] = False
    unified: ClassVar[bool] = False
    rough: ClassVar[bool] = False
    least_volume: ClassVar[bool] = False
    pitched: ClassVar[bool] = True
    sums_apart: ClassVar[bool] = True
    #: The technique reads other PEs' input rows, so it must wait until all PEs have written them.
    reads_inputs: ClassVar[bool] = True
    Options: ClassVar[type[TechniqueOptions]] = TechniqueOptions

    def __init__(
        self, world: World, layout: PeLayout, direction: str, max_dim: int, options: TechniqueOptions, dtype: str
    ):
        self.world = world
        self.dtype, self._element = dtype, ELEMENTS[dtype]
        self._embeddings = Embeddings(self._element, self.pitched and bool(world.gpu))
        self.direction = direction
        self.host = layout.product(direction)
        self.layout = layout
        self.max_dim = max_dim
        self.options: Any = options  # of the technique's own class
        self._check_reach()
        self._sums: Array | None = None
        self._views: dict[tuple[int, int], SymmetricArray] = {}
        self.self_synchronizing = False
        # Every PE allocates as many rows as the largest one, because symmetric arrays have one size.
        self._max_rows = self._rows_of_input()
        self._input = self._allocate_input(self._floats(self._max_rows))
        self._symmetric = [self._input]
        try:
            with gpu_memory_errors(world):
                self._build()
        except MggError as error:
            # Freeing is collective, so after an error of one PE alone the job ends instead.
            if error.everywhere:
                self.close()
            raise

    @classmethod
    def resolved(
        cls, world: World, layout: PeLayout, direction: str, dim: int, options: TechniqueOptions, dtype: str
    ) -> TechniqueOptions:
        """Return the options of a plan, with measured values where ``options`` ask for them (collective)."""
        return options

    @classmethod
    def by_width(cls, options: TechniqueOptions) -> bool:
        """Return whether ``options`` resolve differently per width, so that each width needs a plan of its own."""
        return False

    @classmethod
    def need(cls, case: MemoryCase) -> PlanMemory:
        """Return the GPU memory of a plan and its product on one PE; by default, of one row-wise local product."""
        base = case.base()
        return PlanMemory(base.layout, base.columns, 0, case.local_cut())

    @classmethod
    def least(cls, case: MemoryCase) -> int:
        """Return the bytes of host memory that any product on a CPU PE needs: its input, its result and its sums."""
        sums = DOUBLE * case.rows * case.dim if cls.sums_apart and case.product.halo else 0
        return case.embeddings(case.heights[case.rank]) + case.matrix(case.rows) + sums

    @classmethod  # noqa: B027
    def count(cls, world: World, layout: PeLayout, direction: str, options: TechniqueOptions) -> None:
        """Find together what ``exchanged_sizes`` and ``need`` of each PE count (collective); by default nothing."""

    @classmethod
    def exchanged_sizes(cls, case: MemoryCase) -> object:
        """Return what the other PEs must know for ``need``; each PE finds it in ``case.exchanged_sizes``."""
        return None

    @classmethod
    def cost(cls, work: Workload, machine: MachineModel) -> Cost | None:
        """Return the predicted seconds per product (docs/concepts/costs.md); None if the cost model does not cover it.

        Callers do not ask for cases that the technique cannot run (``single_pe``, ``one_process``, ``dtypes``).
        """
        return None

    @classmethod
    def choices(cls) -> list[TechniqueOptions]:
        """Return the options that ``auto`` chooses among, all known to the cost model; the defaults come first."""
        return [cls.Options()]

    @classmethod
    def reach(cls, layout: PeLayout, options: TechniqueOptions) -> Sequence[int]:
        """Return the PEs whose inputs this PE addresses, in order and including itself."""
        return range(layout.size) if cls.reads_inputs else [layout.rank]

    @classmethod
    def beyond(cls, world: World, layout: PeLayout, options: TechniqueOptions) -> list[int]:
        """Return the PEs of ``reach`` whose memory this PE cannot address."""
        return [pe for pe in cls.reach(layout, options) if pe not in world.addressable]

    @classmethod
    def builds(cls, options: TechniqueOptions, dtype: str, shmem: bool) -> list[Build]:
        """Return the kernels that GPUs compile ahead of time; ``shmem``: kernels may call NVSHMEM."""
        bf16 = dtype == "bf16"
        made = [build_of(name, 32, bf16=bf16) for name in ("gather", "rows", "narrow_rows", *cls.kernels)]
        return made + ([build_of("rows", 32)] if bf16 else [])

    @classmethod
    def reweighs(cls, layout: PeLayout, options: TechniqueOptions) -> bool:
        """Return whether ``reweigh`` can replace the arc weights between products."""
        return False

    def reweigh(self, local: Array, remote: Array) -> None:
        """Use other arc weights from the next product on; they replace the layout's weights, which must exist.

        Args:
            local, remote: float32 [arcs] on the PE's device, in the order of the layout.
        """
        for weights, given in zip(self._arc_weights(), (local, remote), strict=False):
            weights[...] = given

    def _arc_weights(self) -> Sequence[Any]:
        """Return the arrays from which products read local and remote weights; on CPUs, the layout's arrays."""
        return self.host.local.weights, self.host.remote.weights

    @classmethod
    def generated(cls, layout: PeLayout, direction: str, dims: Iterable[int], options: TechniqueOptions) -> list[Build]:
        """Return the kernels generated for this layout and the widths ``dims``, also compiled ahead of time."""
        return []

    @cached_property
    def local(self) -> Csr:
        """The local arcs on the PE's device, for the operators; uploaded at first use."""
        return uploaded_csr(self.world, self.host.local)

    def input(self, dim: int) -> Array:
        """Return this PE's rows of the symmetric input on its device, [rows, dim]: write B here before the call.

        The type is float32, or bfloat16 as uint16 (see ``write``). On GPUs the rows may be padded: the result is then a
        slice of a wider matrix.

        Raises:
            ValueError: ``dim`` is not in 1..max_dim.
        """
        return self._input_view(dim).local[: self.layout.rows]

    def write(self, dim: int, values: Array) -> None:
        """Copy float32 ``values`` [rows, dim] from the PE's device to the input, rounded to its type."""
        self.world.operators.write(values, self.input(dim))

    def __call__(self, dim: int, out: Array | None = None) -> Array:
        """Compute the product (collective).

        Args:
            dim: embedding columns, as in ``input``; the same on every PE.
            out: float32 [rows, dim] on the PE's device to write into; None: a new array.

        Returns:
            This PE's rows of A B (forward) or A^T B (transpose), float32 [rows, dim], on its device.
        """
        source = self._input_view(dim)
        self._begin(source)
        if out is None:
            out = self.world.xp.empty((self.host.rows, dim), np.float32)
        if self.reads_inputs and not self.self_synchronizing:
            self.world.barrier()
        self._aggregate(source, out)
        if not self.self_synchronizing:
            self.world.barrier()
        return out

    def part(self, name: str, dim: int, out: Array) -> bool:
        """Run one part of a product alone, for timing (collective); ``out`` is undefined afterwards.

        Args:
            name: ``transfer``, or ``compute`` on the rows of the last transfer.
            dim, out: as in a call.

        Returns:
            Whether the technique can run its parts alone: only those that transfer inside their own launch can.
        """
        return False

    def rounding(self, halo: np.ndarray) -> np.ndarray | None:
        """Return the allowed error beyond the rounding of the dtype, float64 [rows, D]; None: zero.

        Args:
            halo: float32 [halo, D], the rows of other PEs in the order of the layout.
        """
        return None

    def begin(self, seed: int, epoch: Array | None) -> None:  # noqa: B027
        """Start a pass over the layers: of training ``epoch``, float64 [1] on the device, or outside of training."""

    @property
    def repeats(self) -> bool:
        """Whether, with the plan's options, the same inputs and P give the same bits."""
        return self.deterministic

    def facts(self, dim: int) -> dict[str, Any]:
        """Return record fields about products of ``dim`` columns that only the technique knows."""
        return {}

    @property
    def stale(self) -> Stale | None:
        """State kept from one training pass to the next; None: no state."""
        return None

    @property
    def sample(self) -> BoundarySample | None:
        """Sampler of the rows that a training pass uses; None: a pass uses all rows."""
        return None

    def forget(self, dim: int) -> None:  # noqa: B027
        """Free what is kept only for products of ``dim`` columns."""

    def close(self) -> None:
        """Free the symmetric arrays (collective)."""
        self._views.clear()
        while self._symmetric:
            self.world.free(self._symmetric.pop())

    def accumulator(self, dim: int) -> Array:
        """Return an uninitialized accumulator [rows, dim], the same memory every time."""
        if self._sums is None:
            self._sums = self.world.operators.accumulator(self.host.rows, self.max_dim)
        return self._sums.reshape(-1)[: self.host.rows * dim].reshape(self.host.rows, dim)

    def sums(self, out: Array) -> Array:
        """Return the array for the partial sums of ``out``: ``out`` itself unless accumulators are more precise."""
        if self.world.size == 1 or self.world.operators.accumulator(0, 0).dtype == out.dtype:
            return out
        return self.accumulator(out.shape[1])

    def _rows_of_input(self) -> int:
        """Return the number of rows of every PE's input (collective)."""
        return int(np.diff(self.layout.bounds).max())

    def _begin(self, source: SymmetricArray) -> None:  # noqa: B027
        """Compute what other PEs read of this PE besides the written rows of ``source``, before they read it."""

    def _input_view(self, dim: int) -> SymmetricArray:
        if not 1 <= dim <= self.max_dim:
            raise ValueError(f"{dim} columns asked of a plan made for 1..{self.max_dim}")
        return self._view(self._input, self._max_rows, dim)

    def _view(self, array: SymmetricArray, rows: int, dim: int) -> SymmetricArray:
        """Return ``array`` as embeddings [rows, dim], the same object every time."""
        key = id(array), dim
        if key not in self._views:
            self._views[key] = self._embeddings.matrix(array, rows, dim)
        return self._views[key]

    def _floats(self, rows: int) -> int:
        """Return how many floats take as much memory as ``rows`` embeddings of ``max_dim`` columns."""
        return self._embeddings.floats(rows, self.max_dim)

    def _allocate_input(self, elements: int) -> SymmetricArray:
        """Allocate the symmetric input of ``elements`` floats (collective); techniques may place it elsewhere."""
        return self.world.symmetric(elements, self.reach(self.layout, self.options))

    def _allocate(self, rows: int, reach: Sequence[int]) -> SymmetricArray:
        """Allocate symmetric memory for ``rows`` embeddings of ``max_dim`` columns; ``close`` frees it (collective)."""
        made = self.world.symmetric(self._floats(rows), reach)
        self._symmetric.append(made)
        return made

    def _check_reach(self) -> None:
        """Raise InputError on every PE if one of them cannot address a PE of its ``reach`` (collective)."""
        unreached = self.world.gather(self.beyond(self.world, self.layout, self.options))
        lacking = [pe for pe, others in enumerate(unreached) if others]
        if lacking:
            pe = lacking[0]
            members = self.members_within(self.world, self.layout, self.options)
            remedy = f"{spanning(self.world, self.layout)}, or take workgroup={members}" if members else ""
            raise InputError(
                f"technique {self.name}: PE {pe} would address memory of {name_pes(unreached[pe])}, on another host:"
                f" {remedy or self.between_hosts(self.options)}"
            ).on_every_pe()

    @classmethod
    def members_within(cls, world: World, layout: PeLayout, options: TechniqueOptions) -> int | None:
        """Return a workgroup size that keeps ``reach`` within a host where the partition's does not (collective).

        None if ``options`` set a workgroup, or if a smaller workgroup does not help.
        """
        if not isinstance(options, WorkgroupOptions) or options.workgroup is not None:
            return None
        members = within_hosts(world)
        others = options.model_copy(update={"workgroup": members})
        return None if any(world.gather(bool(cls.beyond(world, layout, others)))) else members

    @classmethod
    def between_hosts(cls, options: TechniqueOptions) -> str:
        """Return advice, for an error message, for a ``reach`` that spans hosts."""
        return "take halo or cola with workgroup=G, where G divides the PEs of every host"

    @classmethod
    def check(cls, world: World, layout: PeLayout, options: TechniqueOptions) -> None:
        """Raise InputError or MachineError on every PE if the technique cannot run (collective).

        By default, if workgroups of PEs are not whole.
        """
        if isinstance(options, WorkgroupOptions) and world.size % (members := members_of(options, layout)):
            raise InputError(
                f"technique {cls.name}: option workgroup: {members} must divide the number of PEs, {world.size}"
            ).on_every_pe()

    def _build(self) -> None:  # noqa: B027
        """Prepare what products need besides the input (collective); ``close`` frees the arrays in ``_symmetric``."""

    @abstractmethod
    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        """Compute ``out`` [rows, D] from the inputs of all PEs, ``source`` [max rows, D]; no barriers needed."""


def uploaded_csr(world: World, csr: Csr) -> Csr:
    """Return ``csr`` with its arrays on the PE's device, without arc types."""
    weights = None if csr.weights is None else world.upload(csr.weights)
    return Csr(world.upload(csr.indptr), world.upload(csr.indices), weights, csr.columns)
