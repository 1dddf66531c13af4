"""A X as a differentiable PyTorch function: forward through a plan of A, backward through one of A^T."""

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
from mgg.layout import PeLayout
from mgg.model.neighborhood import Neighborhood, halo_by
from mgg.model.program import VertexLayer

T = TypeVar("T")

#: Accepted tensor types, by type of the graph's embeddings.
_TAKES = {"fp32": (torch.float32,), "bf16": (torch.float32, torch.bfloat16)}


class Graph:
    """One PE's part of a graph, ready to aggregate tensors (collective: every PE makes its own).

    Rows are this PE's nodes in the layout's order; ``node_ids`` identifies them.

    Args:
        world: the PEs; on GPUs, PyTorch must use the World's stream, which ``run`` ensures.
        layout: this PE's part of the layout.
        width: most columns that will be aggregated; sizes the symmetric memory, which is allocated once.
        technique, options: how to aggregate (docs/concepts/techniques.md).
        dtype: how embeddings and their gradients are stored and sent, ``fp32`` or ``bf16``; sums are float32.

    Attributes:
        rows: number of nodes of this PE.
        nodes: number of nodes of all PEs.
        device: the device that tensors must be on.
        programs: traced programs, by their tracing arguments.

    Raises:
        InputError: ``width`` is invalid, or as :func:`mgg.aggregate.prepare`.
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
                    f"option {option}: needs the epoch, which PyTorch does not tell: leave it out, or use mgg train"
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
        self._technique, self._options = technique, dict(options or {})
        self._neighborhoods: dict[type, tuple[int, Neighborhood]] = {}
        self.programs: dict[Any, VertexLayer] = {}
        self._inputs: dict[tuple[bool, int], torch.Tensor] = {}
        self.device = self._input(1, False).device

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        """Return this graph itself: copies of a model share the graph."""
        return self

    def input(self, columns: int) -> torch.Tensor:
        """Return this PE's rows of the symmetric input [rows, columns]; ``aggregate`` takes them without a copy.

        All widths share one memory, which every ``aggregate`` of another tensor overwrites. If PyTorch still needs the
        old values for a gradient, backward raises an error. The memory is valid until ``close``.

        Args:
            columns: 1 to ``width``.

        Returns:
            float32, or bfloat16 if the graph's embeddings are.
        """
        self.check_open()
        if not 1 <= columns <= self.width:
            raise InputError(f"{columns} columns: this graph was opened for 1..{self.width} (width)")
        return self._input(columns, False).detach()

    @cached_property
    def node_ids(self) -> torch.Tensor:
        """Source ids of this PE's nodes, int64 [rows]: ``data.x[graph.node_ids]`` are their features."""
        return self._uploaded(self.layout.source_ids)

    @cached_property
    def x(self) -> torch.Tensor | None:
        """Features, float32 [rows, columns], or None if the graph has none."""
        return None if self.layout.features is None else self._uploaded(self.layout.features)

    @cached_property
    def y(self) -> torch.Tensor | None:
        """Labels, int64 [rows], -1 for none, or None if the graph has no classes (see ``tasks``)."""
        return None if self.layout.labels is None else self._uploaded(self.layout.labels).long()

    @cached_property
    def tasks(self) -> torch.Tensor | None:
        """Several yes-or-no labels per node, float32 [rows, tasks]: 0, 1, NaN if unknown; None if there are none."""
        found = self.layout.tasks
        if found is None:
            return None
        return self._uploaded(np.where(found == UNKNOWN, np.nan, found).astype(np.float32))

    @property
    def train_mask(self) -> torch.Tensor | None:
        """Training nodes, bool [rows], or None if the graph has no split."""
        return self._mask("train")

    @property
    def val_mask(self) -> torch.Tensor | None:
        """Validation nodes, bool [rows], or None if the graph has no split."""
        return self._mask("validation")

    @property
    def test_mask(self) -> torch.Tensor | None:
        """Test nodes, bool [rows], or None if the graph has no split."""
        return self._mask("test")

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of ``values`` over the PEs, on every PE, without a gradient (collective).

        The sum is in float64 and in rank order, so every PE and every run gets the same bits; integers are exact up to
        2^53.

        Args:
            values: a dense tensor of real numbers, of the same shape and type on every PE.

        Returns:
            A tensor of that shape: int64 for booleans (count of true) and integers, else the type of ``values``.

        Raises:
            InputError: ``values`` is not such a tensor.
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
        """Sum the gradients of replicated parameters over the PEs, in place (collective).

        Call it after ``backward`` with the same parameters on every PE; a missing gradient counts as zeros.
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
        """Free the symmetric memory (collective). Results stay valid; tensors from ``input`` do not."""
        self._inputs.clear()
        while self._neighborhoods:
            self._neighborhoods.popitem()[1][1].close()
        while self._plans:
            self._plans.popitem()[1].close()

    def neighborhood(self, real: type, columns: int) -> Neighborhood:
        """Return the graph as vertex programs see it, with rows of other PEs of up to ``columns`` (collective).

        Every PE must ask for the same. All widths share one object; a wider halo replaces the previous one.

        Args:
            real: float32 or float64.
            columns: 1 or more.

        Raises:
            InputError: float64 with another technique than ``halo`` in one workgroup.
        """
        width, found = self._neighborhoods.get(real, (0, None))
        if found is not None and width >= columns:
            return found
        how = self.world, self.layout, self._technique, self._options
        if found is None:
            found = Neighborhood.prepare(*how, 0, columns, self.dtype, real)
        else:
            found.halo.close()
            found.halo = halo_by(*how, columns, self.dtype, found.arrays, real)
        self._neighborhoods[real] = columns, found
        return found

    def product(self, x: torch.Tensor, transposed: bool) -> torch.Tensor:
        """Return A x, or A^T x, float32 [rows, columns], without a gradient (collective)."""
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
        """Copy ``x`` into the plan's input, rounded if needed, unless it is already that memory."""
        target = self._input(x.shape[1], transposed)
        if _memory(x) == _memory(target):
            if x.dtype == target.dtype and x.stride() == target.stride() and x.data_ptr() == target.data_ptr():
                return
            x = x.clone()
        target.copy_(x)
        # Tensors of other widths share this memory, which autograd cannot know.
        others = [other for key, other in self._inputs.items() if key[0] == transposed and other is not target]
        torch.autograd.graph.increment_version(others)

    def check_open(self) -> None:
        """Raise InputError if the graph is closed."""
        if not self._plans:
            raise InputError("this graph is closed")

    def _check(self, x: torch.Tensor) -> None:
        """Raise InputError unless ``x`` is an embedding of this PE's rows."""
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
        """Make CuPy submit to the World's stream in any thread; raise InputError if PyTorch is on another stream."""
        if self._stream is None:
            yield
            return
        if torch.cuda.current_stream(self._gpu).cuda_stream != self._stream.ptr:
            raise InputError("PyTorch works on another CUDA stream than MGG: call this within mgg.interop.run")
        with self.world.xp.cuda.Device(self._gpu), self._stream:
            yield


class _Aggregation(torch.autograd.Function):
    """A x or A^T x. Each is the other's gradient, so derivatives of any order are products."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, graph: Graph, transposed: bool) -> torch.Tensor:
        ctx.graph, ctx.transposed = graph, transposed
        return graph.product(x, transposed)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _Aggregation.apply(gradients[0], ctx.graph, not ctx.transposed), None, None


def aggregate(graph: Graph, x: torch.Tensor) -> torch.Tensor:
    """Return A x, with the gradient A^T g; higher derivatives also work (collective).

    ``x`` is copied once into the symmetric memory that other PEs read, unless it is ``graph.input(columns)``; the
    result is the memory that the product was written to. Backward is also collective: every PE must compute the same
    function, and either all or none may ask for its gradient.

    Args:
        graph: this PE's part of the graph.
        x: float32 [rows, columns] with any strides, on ``graph.device``; or bfloat16 if the graph's embeddings are.

    Returns:
        float32 [rows, columns]: row v is the sum of ``x`` over v's in-neighbors, times the arcs' weights if there are
        any.

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

    Under mpiexec or srun each rank is a PE and runs the program once; without a launcher the PEs are threads. Such
    threads share PyTorch's random numbers: make weights first, and copy them.

    Args:
        folder: a layout made by ``mgg layout``.
        program: called with this PE's ``Graph``; on GPUs it runs on the World's stream.
        width, technique, options, dtype: as in ``Graph``.
        backend: ``auto``, ``simulated``, ``mpi`` or ``nvshmem``.

    Returns:
        Results of the program: of every PE in rank order if PEs are threads, else of this rank alone.

    Raises:
        InputError: ``folder`` is not a layout, the number of ranks differs from its PEs, or as in ``Graph``.
        Exception: the program's own error; with several ranks, an error on one rank ends all of them.
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
    torch.set_num_threads(THREADS_PER_PE)  # as for all dense products of a CPU PE
    try:
        return launch_script(backend, lambda: layouts.read_manifest(folder).pes, pe)
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _on_stream(world: World) -> Iterator[None]:
    """Run PyTorch on the stream of a World of GPUs.

    Backward passes stay in the PE's own thread. PyTorch's default is one thread per GPU, where PEs that share the GPU
    would wait for each other.
    """
    stream = _stream(world)
    placed = nullcontext() if stream is None else torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr, _gpu(world)))
    with torch.autograd.set_multithreading_enabled(False), placed:
        yield


def _stream(world: World) -> Any:
    """Return the CuPy stream of a World of GPUs; None on CPUs."""
    return world.xp.cuda.get_current_stream() if world.gpu else None


def _gpu(world: World) -> int:
    """Return the number of this PE's GPU in this process."""
    return int(world.xp.cuda.runtime.getDevice())


def tensor_of(array: Array) -> torch.Tensor:
    """Return a tensor that shares the array's memory."""
    made: torch.Tensor = torch.from_dlpack(array)
    return made


def array_of(tensor: torch.Tensor) -> Array:
    """Return a NumPy or CuPy array that shares the tensor's memory, or a copy's if a negation is pending."""
    tensor = tensor.resolve_neg()
    if tensor.device.type == "cpu":
        return np.from_dlpack(tensor)
    import cupy

    return cupy.from_dlpack(tensor)


def _memory(tensor: torch.Tensor) -> int:
    """Return the start address of the memory behind the tensor."""
    return tensor.untyped_storage().data_ptr()
