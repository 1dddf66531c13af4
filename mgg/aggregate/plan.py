"""The seam between whoever wants A B and the techniques that compute it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mgg.aggregate.embeddings import Embeddings
from mgg.aggregate.memory_model import DOUBLE, Case, Need
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.workgroups import WorkgroupOptions, spanning, within_hosts
from mgg.aggregate.workgroups.stale import Stale
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray, name_pes, told_of_gpu_memory
from mgg.cost.product import Cost, Machine, Workload
from mgg.errors import InputError, MggError
from mgg.graph.csr import Csr
from mgg.kernel.bf16 import ELEMENTS
from mgg.kernel.compile import Build, build_of
from mgg.layout import PeLayout

if TYPE_CHECKING:
    from mgg.aggregate.boundary import Sample


class Plan(ABC):
    """One technique, ready for one layout and direction.

    The plan alone synchronizes. ``plan.input(D)`` may be written as soon as ``plan(D)`` has returned, and ``plan(D)``
    sees what every PE wrote before it called it; callers never add barriers.

    Attributes:
        name: config value of the technique.
        deterministic: by default the same inputs and P give the same bits (``repeats``: with the plan's options).
        dtypes: types of embeddings that it takes; sums are float32.
        single_pe: runs on one PE alone.
        one_process: on GPUs its PEs are threads of one process.
        unified: on GPUs its inputs are unified memory, whose pages move.
        rough: on GPUs ``cost`` leaves out what uneven rows take, so that ``auto`` does not trust it.
        least_volume: each needed row crosses once (V_FC, CoLa's equation 7), so that no technique moves less.
        pitched: on GPUs the rows of embeddings are padded (``row_pitch``); no whole blocks of them are sent.
        sums_apart: on CPUs it sums in ``accumulator`` where rows come from other PEs.
        direction: ``forward`` or ``transpose``.
        host: the product's arrays as the layout has them; plans are worked out from these.
        meets: the technique itself waits for other PEs' rows and until they have read this PE's.
    """

    name: ClassVar[str]
    #: Sources of kernels that its products ask for on GPUs, beside ``rows`` and ``gather``; all are compiled ahead.
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
    #: The technique reads other PEs' input rows, so it must wait until all are written.
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
        self.options = options
        self._check_reach()
        self._sums: Array | None = None
        self._views: dict[tuple[int, int], SymmetricArray] = {}
        self.meets = False
        # Every PE allocates as many rows as the largest one, because symmetric arrays have one size.
        self._max_rows = self._rows_of_input()
        self._input = self._allocate_input(self._floats(self._max_rows))
        self._symmetric = [self._input]
        try:
            with told_of_gpu_memory(world):
                self._build()
        except MggError as error:
            # Freeing is collective: an error of one PE alone ends the job instead.
            if error.everywhere:
                self.close()
            raise

    @classmethod
    def settled(
        cls, world: World, layout: PeLayout, direction: str, dim: int, options: TechniqueOptions, dtype: str
    ) -> TechniqueOptions:
        """The options that a plan is made with, where ``options`` leave some to what was measured (collective)."""
        return options

    @classmethod
    def by_width(cls, options: TechniqueOptions) -> bool:
        """Whether ``options`` stand for others at other widths, so that each width is measured on a plan of its own."""
        return False

    @classmethod
    def need(cls, case: Case) -> Need:
        """GPU memory of a plan and its product on one PE; by default, of one row-wise product of the local arcs."""
        base = case.base()
        return Need(base.layout, base.columns, 0, case.local_cut())

    @classmethod
    def least(cls, case: Case) -> int:
        """Bytes of host memory that no product on a CPU PE can do without: its input, its result and their sums."""
        sums = DOUBLE * case.rows * case.dim if cls.sums_apart and case.product.halo else 0
        return case.embeddings(case.heights[case.rank]) + case.matrix(case.rows) + sums

    @classmethod
    def told(cls, case: Case) -> object:
        """What the other PEs have to know of this one for ``need``: each finds it in ``case.told``."""
        return None

    @classmethod
    def cost(cls, work: Workload, machine: Machine) -> Cost | None:
        """Seconds of a product by the cost model (docs/costs.md); None where the model says nothing of the technique.

        What the technique cannot run at all (``single_pe``, ``one_process``, ``dtypes``) is not asked for.
        """
        return None

    @classmethod
    def choices(cls) -> list[TechniqueOptions]:
        """The options that ``auto`` chooses among, of those that the cost model knows; the defaults come first."""
        return [cls.Options()]

    @classmethod
    def reach(cls, layout: PeLayout, options: TechniqueOptions) -> Sequence[int]:
        """The PEs whose inputs the PE of ``layout`` addresses, in order, itself among them."""
        return range(layout.size) if cls.reads_inputs else [layout.rank]

    @classmethod
    def beyond(cls, world: World, layout: PeLayout, options: TechniqueOptions) -> list[int]:
        """The PEs of ``reach`` whose memory this PE does not address."""
        return [pe for pe in cls.reach(layout, options) if pe not in world.addressable]

    @classmethod
    def builds(cls, options: TechniqueOptions, dtype: str, shmem: bool) -> list[Build]:
        """The kernels that GPUs compile for it ahead; ``shmem``: kernels may call NVSHMEM."""
        bf16 = dtype == "bf16"
        made = [build_of(name, 32, bf16=bf16) for name in ("gather", "rows", "narrow_rows", *cls.kernels)]
        return made + ([build_of("rows", 32)] if bf16 else [])

    @classmethod
    def reweighs(cls, layout: PeLayout, options: TechniqueOptions) -> bool:
        """Whether its plans take other weights of arcs between products (``reweigh``)."""
        return False

    def reweigh(self, local: Array, remote: Array) -> None:
        """Multiply by other weights from the next product on; those of the layout, whose arcs have some, are lost.

        Args:
            local, remote: float32 [arcs] on the PE's device, in the order of the layout.
        """
        for weights, given in zip(self._arc_weights(), (local, remote), strict=False):
            weights[...] = given

    def _arc_weights(self) -> Sequence[Any]:
        """What products read the weights of local and of remote arcs from: on CPUs the layout's arrays."""
        return self.host.local.weights, self.host.remote.weights

    @classmethod
    def generated(cls, layout: PeLayout, direction: str, dims: Iterable[int], options: TechniqueOptions) -> list[Build]:
        """Those that are written for a layout and the widths ``dims``, likewise compiled before any is measured."""
        return []

    @cached_property
    def local(self) -> Csr:
        """The local arcs on the PE's device, for the operators; uploaded at first use."""
        return uploaded_csr(self.world, self.host.local)

    def input(self, dim: int) -> Array:
        """This PE's rows of the symmetric input on its device [rows, dim]: write B here before the call.

        float32, or bfloat16 as uint16: see ``write``. On GPUs rows may be padded: a slice of a wider matrix.

        Raises:
            ValueError: ``dim`` is not in 1..max_dim.
        """
        return self._input_view(dim).local[: self.layout.rows]

    def write(self, dim: int, values: Array) -> None:
        """Take float32 ``values`` [rows, dim] of the PE's device as this PE's rows of the input, rounded if need be."""
        self.world.operators.write(values, self.input(dim))

    def __call__(self, dim: int, out: Array | None = None) -> Array:
        """Aggregate (collective).

        Args:
            dim: embedding columns, as in ``input``; the same on every PE.
            out: float32 [rows, dim] on the PE's device to write into; a new array without it.

        Returns:
            This PE's rows of A B (forward) or A^T B (transpose), float32 [rows, dim], on its device.
        """
        source = self._input_view(dim)
        self._begin(source)
        if out is None:
            out = self.world.xp.empty((self.host.rows, dim), np.float32)
        if self.reads_inputs and not self.meets:
            self.world.barrier()
        self._aggregate(source, out)
        if not self.meets:
            self.world.barrier()
        return out

    def part(self, name: str, dim: int, out: Array) -> bool:
        """Do one part of a product alone, for timing (collective); what ``out`` holds then is undefined.

        Args:
            name: ``transfer``, or ``compute`` with what was transferred last.
            dim, out: as in a call.

        Returns:
            Whether the technique has such a part: those have that transfer inside their own launch.
        """
        return False

    def rounding(self, halo: np.ndarray) -> np.ndarray | None:
        """By how much a product may differ beyond the rounding of its type, float64 [rows, D]; None: not at all.

        Args:
            halo: float32 [halo, D], the rows of other PEs in the order of the layout.
        """
        return None

    def begin(self, seed: int, epoch: Array | None) -> None:  # noqa: B027
        """A pass over the layers begins: of a training in ``epoch``, float64 [1] on the device, or of none."""

    @property
    def repeats(self) -> bool:
        """With its options the same inputs and P give the same bits."""
        return self.deterministic

    def facts(self, dim: int) -> dict[str, Any]:
        """Fields of a record on products of ``dim`` columns that the technique alone knows."""
        return {}

    @property
    def stale(self) -> Stale | None:
        """What it keeps from one training pass to the next; None: nothing."""
        return None

    @property
    def sample(self) -> Sample | None:
        """What draws the rows that a training pass works with; None: it works with all."""
        return None

    def forget(self, dim: int) -> None:  # noqa: B027
        """Give back what is kept for products of ``dim`` columns alone: there are no more of them for now."""

    def close(self) -> None:
        """Free the symmetric arrays (collective)."""
        self._views.clear()
        while self._symmetric:
            self.world.free(self._symmetric.pop())

    def accumulator(self, dim: int) -> Array:
        """An uninitialized accumulator [rows, dim], the same memory every time."""
        if self._sums is None:
            self._sums = self.world.operators.accumulator(self.host.rows, self.max_dim)
        return self._sums.reshape(-1)[: self.host.rows * dim].reshape(self.host.rows, dim)

    def sums(self, out: Array) -> Array:
        """Where the partial sums of ``out`` are added up: in ``out`` itself unless accumulators are more precise."""
        if self.world.size == 1 or self.world.operators.accumulator(0, 0).dtype == out.dtype:
            return out
        return self.accumulator(out.shape[1])

    def _rows_of_input(self) -> int:
        """Rows of every PE's input (collective)."""
        return int(np.diff(self.layout.bounds).max())

    def _begin(self, source: SymmetricArray) -> None:  # noqa: B027
        """Make what others read of this PE beside what was written, before they may; ``source`` is the input."""

    def _input_view(self, dim: int) -> SymmetricArray:
        if not 1 <= dim <= self.max_dim:
            raise ValueError(f"{dim} columns asked of a plan made for 1..{self.max_dim}")
        return self._view(self._input, self._max_rows, dim)

    def _view(self, array: SymmetricArray, rows: int, dim: int) -> SymmetricArray:
        """``array`` as embeddings [rows, dim], the same object every time."""
        key = id(array), dim
        if key not in self._views:
            self._views[key] = self._embeddings.matrix(array, rows, dim)
        return self._views[key]

    def _floats(self, rows: int) -> int:
        """Floats that take as much memory as ``rows`` of ``max_dim`` embeddings."""
        return self._embeddings.floats(rows, self.max_dim)

    def _allocate_input(self, elements: int) -> SymmetricArray:
        """The symmetric input of ``elements`` floats (collective); for techniques that keep it elsewhere."""
        return self.world.symmetric(elements, self.reach(self.layout, self.options))

    def _allocate(self, rows: int, reach: Sequence[int]) -> SymmetricArray:
        """Symmetric memory for ``rows`` embeddings of ``max_dim`` columns, freed with the plan (collective)."""
        made = self.world.symmetric(self._floats(rows), reach)
        self._symmetric.append(made)
        return made

    def _check_reach(self) -> None:
        """Refuse PEs that do not address what the technique does, on every PE alike (collective)."""
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
        """PEs of a workgroup that would keep ``reach`` within a host, where the partition's does not (collective).

        None where ``options`` name a workgroup, or where it is not the workgroup that reaches beyond.
        """
        if not isinstance(options, WorkgroupOptions) or options.workgroup is not None:
            return None
        members = within_hosts(world)
        others = options.model_copy(update={"workgroup": members})
        return None if any(world.gather(bool(cls.beyond(world, layout, others)))) else members

    @classmethod
    def between_hosts(cls, options: TechniqueOptions) -> str:
        """What to do where the technique's ``reach`` is beyond a host, for a message."""
        return "take halo or cola with workgroup=G, where G divides the PEs of every host"

    @classmethod
    def check(cls, world: World, layout: PeLayout, options: TechniqueOptions) -> None:
        """Refuse what the technique cannot run, on every PE alike (collective); raises InputError, MachineError."""
        return None

    def _build(self) -> None:  # noqa: B027
        """Make what products need beside the input (collective); arrays in ``_symmetric`` are freed with the plan."""

    @abstractmethod
    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        """Compute ``out`` [rows, D] from the inputs of all PEs, ``source`` [max rows, D]; no barriers needed."""


def uploaded_csr(world: World, csr: Csr) -> Csr:
    """``csr`` with its arrays on the PE's device; arc types stay behind."""
    weights = None if csr.weights is None else world.upload(csr.weights)
    return Csr(world.upload(csr.indptr), world.upload(csr.indices), weights, csr.columns)
