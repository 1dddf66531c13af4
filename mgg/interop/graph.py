"""A X as a function that PyTorch differentiates: forward through a plan of A, backward through one of A^T."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from mgg import layout as layouts
from mgg.aggregate import prepare
from mgg.backend import World, launch_script, together
from mgg.backend.api import THREADS_PER_PE, Array
from mgg.config import MAX_DIM
from mgg.errors import InputError
from mgg.graph.check import SPLITS, UNKNOWN
from mgg.interop.neighborhoods import Neighborhoods
from mgg.layout import PeLayout
from mgg.model.program import VertexLayer

T = TypeVar("T")

#: Type of the graph's embeddings -> types of tensors that it takes.
_TAKES = {"fp32": (torch.float32,), "bf16": (torch.float32, torch.bfloat16)}


class Graph:
    """One PE's part of a graph, ready to aggregate tensors (collective: every PE makes its own).

    Rows are this PE's nodes, in the layout's order; ``node_ids`` says which ones they are.

    Args:
        world: the PEs; on GPUs, PyTorch must work on the World's stream, which ``run`` sees to.
        layout: what this PE holds.
        width: most columns that will be aggregated; the symmetric memory is taken once, for so many.
        technique, options: how to aggregate (docs/techniques.md).
        dtype: how embeddings and their gradients are stored and sent, ``fp32`` or ``bf16``; sums are float32.

    Attributes:
        rows: nodes of this PE.
        nodes: nodes of all PEs.
        device: where tensors must be.
        neighborhoods: the graph as vertex programs see it.
        programs: those that have been traced, by what they were traced with.

    Raises:
        InputError: a width that is none, or as :func:`mgg.aggregate.prepare`.
        MachineError: a GPU has too little memory left, or PyTorch does not see the World's GPU.
    """

    def __init__(
        self,
        world: World,
        layout: PeLayout,
        *,
        width: int,
        technique: str = "halo",
        options: Mapping[str, Any] | None = None,
        dtype: str = "fp32",
    ) -> None:
        if not isinstance(width, int) or not 1 <= width <= MAX_DIM:
            raise InputError(
                f"width is {width!r}: expected the most columns that will be aggregated, 1..{MAX_DIM}"
            ).on_every_pe()
        for option, off in (("stale", 0), ("boundary", 1), ("wire", None)):
            if (options or {}).get(option, off) != off:
                raise InputError(
                    f"option {option}: goes by epochs, which PyTorch does not tell: leave it out, or use mgg train"
                ).on_every_pe()
        self.world, self.layout, self.width, self.dtype = world, layout, width, dtype
        self.rows, self.nodes = layout.rows, layout.nodes
        self._stream = _stream(world)
        self._gpu = 0 if self._stream is None else _gpu(world)
        made = (
            prepare(technique, world, layout, direction, width, options, dtype)
            for direction in ("forward", "transpose")
        )
        self._plans = dict(zip((False, True), made, strict=True))
        self.neighborhoods = Neighborhoods(world, layout, technique, dict(options or {}), dtype)
        self.programs: dict[Any, VertexLayer] = {}
        self._inputs: dict[tuple[bool, int], torch.Tensor] = {}
        self.device = self._input(1, False).device

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        """Itself: copies of a model aggregate over the same graph."""
        return self

    def input(self, columns: int) -> torch.Tensor:
        """This PE's rows of the symmetric input [rows, columns]: ``aggregate`` takes them without a copy.

        One memory for all widths, which every ``aggregate`` of another tensor overwrites; where PyTorch still needed
        the values for a gradient, backward says so. It may be used until ``close``.

        Args:
            columns: 1 to ``width``.

        Returns:
            float32, or bfloat16 where the graph's embeddings are.
        """
        self.check_open()
        if not 1 <= columns <= self.width:
            raise InputError(f"{columns} columns: this graph was opened for 1..{self.width} (width)")
        return self._input(columns, False).detach()

    @cached_property
    def node_ids(self) -> torch.Tensor:
        """What the source calls this PE's nodes, int64 [rows]: ``data.x[graph.node_ids]`` are their features."""
        return self._uploaded(self.layout.source_ids)

    @cached_property
    def x(self) -> torch.Tensor | None:
        """Features, float32 [rows, columns], or None if the graph has none."""
        return None if self.layout.features is None else self._uploaded(self.layout.features)

    @cached_property
    def y(self) -> torch.Tensor | None:
        """Labels, int64 [rows], -1 where there is none, or None if the graph has no classes (see ``tasks``)."""
        return None if self.layout.labels is None else self._uploaded(self.layout.labels).long()

    @cached_property
    def tasks(self) -> torch.Tensor | None:
        """Several yes-or-no labels a node, float32 [rows, tasks]: 0, 1, NaN where unknown; None if there are none."""
        found = self.layout.tasks
        if found is None:
            return None
        return self._uploaded(np.where(found == UNKNOWN, np.nan, found).astype(np.float32))

    @property
    def train_mask(self) -> torch.Tensor | None:
        """Which nodes train, bool [rows], or None if the graph has no split."""
        return self._mask("train")

    @property
    def val_mask(self) -> torch.Tensor | None:
        """Which nodes validate, bool [rows], or None if the graph has no split."""
        return self._mask("validation")

    @property
    def test_mask(self) -> torch.Tensor | None:
        """Which nodes test, bool [rows], or None if the graph has no split."""
        return self._mask("test")

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of ``values`` over the PEs, on every PE, without a gradient (collective).

        Summed in float64 and in rank order, so that every PE and every run gets the same bits; whole numbers are exact
        up to 2^53.

        Args:
            values: a dense tensor of real numbers, of the same shape and type on every PE.

        Returns:
            A tensor of that shape: int64 of booleans (how many are true) and of integers, else of their own type.

        Raises:
            InputError: ``values`` are no such tensor.
        """
        if not isinstance(values, torch.Tensor):
            raise InputError(f"values is a {type(values).__name__}: expected a torch.Tensor")
        if values.layout != torch.strided or values.is_complex():
            raise InputError(f"values is {values.dtype}, stored as {values.layout}: expected dense real numbers")
        flat = values.detach().reshape(-1)
        if not flat.is_floating_point():
            flat = flat.long()
        elif flat.dtype == torch.bfloat16:  # NumPy has no such numbers
            flat = flat.float()
        with self.ordered():
            found = tensor_of(self.world.all_reduce(array_of(flat))).reshape(values.shape)
        return found.to(values.dtype) if values.is_floating_point() else found

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Add up the gradients of replicated parameters over the PEs, in place (collective).

        Call it after ``backward``, with the same parameters on every PE; one that has no gradient counts as zeros.
        """
        chosen = [parameter for parameter in parameters if parameter.requires_grad]
        if not chosen:
            return
        for parameter in chosen:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in chosen if parameter.grad is not None]
        wide = torch.float64 if any(gradient.dtype == torch.float64 for gradient in gradients) else torch.float32
        total = self.total(torch.cat([gradient.reshape(-1).to(wide) for gradient in gradients]))
        parts = total.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.reshape(gradient.shape))

    def close(self) -> None:
        """Free the symmetric memory (collective); results stay, tensors that ``input`` gave do not."""
        self._inputs.clear()
        self.neighborhoods.close()
        while self._plans:
            self._plans.popitem()[1].close()

    def product(self, x: torch.Tensor, transposed: bool) -> torch.Tensor:
        """A x, or A^T x, float32 [rows, columns], without a gradient (collective)."""
        self.check_open()
        self._check(x)
        with self.ordered(), torch.no_grad():
            self._write(x.detach(), transposed)
            return tensor_of(self._plans[transposed](x.shape[1]))

    def _input(self, columns: int, transposed: bool) -> torch.Tensor:
        key = transposed, columns
        if key not in self._inputs:
            made = tensor_of(self._plans[transposed].input(columns))
            self._inputs[key] = made.view(torch.bfloat16) if self.dtype == "bf16" else made
        return self._inputs[key]

    def _write(self, x: torch.Tensor, transposed: bool) -> None:
        """Copy ``x`` into the plan's input, rounded if need be, unless it is that memory."""
        target = self._input(x.shape[1], transposed)
        if _memory(x) == _memory(target):
            if x.dtype == target.dtype and x.stride() == target.stride() and x.data_ptr() == target.data_ptr():
                return
            x = x.clone()
        target.copy_(x)
        # Tensors of other widths lie in the same memory, which autograd cannot know.
        others = [other for key, other in self._inputs.items() if key[0] == transposed and other is not target]
        torch.autograd.graph.increment_version(others)

    def check_open(self) -> None:
        """Refuse a graph that is closed."""
        if not self._plans:
            raise InputError("this graph is closed")

    def _check(self, x: torch.Tensor) -> None:
        """Refuse what is no embeddings of this PE's rows."""
        if not isinstance(x, torch.Tensor):
            raise InputError(f"x is a {type(x).__name__}: expected a torch.Tensor")
        if x.layout != torch.strided:
            raise InputError(f"x is stored as {x.layout}: make it dense (x.to_dense())")
        if x.dim() != 2 or x.shape[0] != self.rows:
            raise InputError(
                f"x has shape {tuple(x.shape)}: PE {self.world.rank} has {self.rows} rows, [rows, columns]"
            )
        if not 1 <= x.shape[1] <= self.width:
            raise InputError(f"x has {x.shape[1]} columns: this graph was opened for 1..{self.width} (width)")
        if x.dtype not in _TAKES[self.dtype]:
            able = " or ".join(str(dtype) for dtype in _TAKES[self.dtype])
            raise InputError(f"x is {x.dtype}: a graph with {self.dtype} embeddings takes {able}")
        if x.device != self.device:
            raise InputError(f"x is on {x.device}: this PE computes on {self.device}")

    def _mask(self, split: str) -> torch.Tensor | None:
        return None if self._splits is None else self._splits == SPLITS[split]

    @cached_property
    def _splits(self) -> torch.Tensor | None:
        return None if self.layout.splits is None else self._uploaded(self.layout.splits)

    def _uploaded(self, array: np.ndarray) -> torch.Tensor:
        with self.ordered():
            return tensor_of(self.world.upload(np.asarray(array)))

    @contextmanager
    def ordered(self) -> Iterator[None]:
        """Let CuPy submit to the World's stream, whatever thread this is; refuse a PyTorch on another stream."""
        if self._stream is None:
            yield
            return
        if torch.cuda.current_stream(self._gpu).cuda_stream != self._stream.ptr:
            raise InputError("PyTorch works on another CUDA stream than MGG: call this within mgg.interop.run")
        with self.world.xp.cuda.Device(self._gpu), self._stream:
            yield


class _Aggregation(torch.autograd.Function):
    """A x or A^T x; each is the other's gradient, so any derivative of any order is a product."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, graph: Graph, transposed: bool) -> torch.Tensor:
        ctx.graph, ctx.transposed = graph, transposed
        return graph.product(x, transposed)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _Aggregation.apply(gradients[0], ctx.graph, not ctx.transposed), None, None


def aggregate(graph: Graph, x: torch.Tensor) -> torch.Tensor:
    """A x, with the gradient A^T g; derivatives of higher order work, too (collective).

    ``x`` is copied once, into the symmetric memory that other PEs read, unless it is ``graph.input(columns)``; the
    result is the memory that the product was written to. Backward is collective as well: every PE computes the same
    function, and all ask for its gradient or none does.

    Args:
        graph: this PE's part of the graph.
        x: float32 [rows, columns], strided in any way, on ``graph.device``; or bfloat16 where the graph's embeddings
            are.

    Returns:
        float32 [rows, columns]: row v is the sum of ``x`` over v's in-neighbours, times the arcs' weights if they have
        some.

    Raises:
        InputError: ``x`` has another shape, type or device, or the graph is closed.
    """
    result: torch.Tensor = _Aggregation.apply(x, graph, False)
    return result


def run(
    folder: str | Path,
    program: Callable[[Graph], T],
    *,
    width: int,
    technique: str = "halo",
    options: Mapping[str, Any] | None = None,
    dtype: str = "fp32",
    backend: str = "auto",
) -> list[T]:
    """Run ``program`` on every PE of a layout, each with its part of the graph, then close it.

    Under mpiexec or srun each rank is a PE and runs the program once; without a launcher the PEs are threads. PEs that
    are threads share PyTorch's random numbers: make weights before, and copy them.

    Args:
        folder: a layout, as ``mgg layout`` made it.
        program: gets this PE's ``Graph``; on GPUs it runs on the World's stream.
        width, technique, options, dtype: as in ``Graph``.
        backend: ``auto``, ``simulated``, ``mpi`` or ``nvshmem``.

    Returns:
        What the program returned: of every PE in rank order where they are threads, else of this rank alone.

    Raises:
        InputError: no layout, another number of ranks than the layout has PEs, or as in ``Graph``.
        Exception: what the program raised; of a job of several ranks, an error of one rank alone ends all of them.
    """

    def pe(world: World) -> T:
        part = together(world, lambda: layouts.load(folder, world.rank))
        with _on_stream(world):
            graph = Graph(world, part, width=width, technique=technique, options=options, dtype=dtype)
            result = program(graph)
            graph.close()
        return result

    if not isinstance(folder, str | os.PathLike):
        raise InputError(
            f"folder is a {type(folder).__name__}: expected the path of a layout; mgg.interop.shards makes a graph"
            " folder of a graph in memory, mgg partition and mgg layout make a layout of that"
        ).on_every_pe()
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS_PER_PE)  # as all dense products of a CPU PE
    try:
        return launch_script(backend, lambda: layouts.read_manifest(folder).pes, pe)
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _on_stream(world: World) -> Iterator[None]:
    """PyTorch on the stream of a World of GPUs.

    Backward passes stay in the PE's own thread: PyTorch would give each GPU one thread, where PEs that share the GPU
    would wait for each other.
    """
    stream = _stream(world)
    placed = nullcontext() if stream is None else torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr, _gpu(world)))
    with torch.autograd.set_multithreading_enabled(False), placed:
        yield


def _stream(world: World) -> Any:
    """The CuPy stream that a World of GPUs works on; None on CPUs."""
    return world.xp.cuda.get_current_stream() if world.gpu else None


def _gpu(world: World) -> int:
    """Number of this PE's GPU in this process."""
    return int(world.xp.cuda.runtime.getDevice())


def tensor_of(array: Array) -> torch.Tensor:
    """A tensor of the array's memory."""
    made: torch.Tensor = torch.from_dlpack(array)
    return made


def array_of(tensor: torch.Tensor) -> Array:
    """A NumPy or CuPy array of the tensor's memory, or of a copy where PyTorch has yet to negate what is there."""
    tensor = tensor.resolve_neg()
    if tensor.device.type == "cpu":
        return np.from_dlpack(tensor)
    import cupy

    return cupy.from_dlpack(tensor)


def _memory(tensor: torch.Tensor) -> int:
    """Where the memory that the tensor is a view of begins."""
    return tensor.untyped_storage().data_ptr()
