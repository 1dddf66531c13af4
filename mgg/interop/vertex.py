"""Vertex programs for PyTorch, as a differentiable function and as a module with parameters."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch

from mgg.errors import InputError
from mgg.interop.graph import Graph, array_of, tensor_of
from mgg.model.initialization import initial_weights
from mgg.model.module import Parameter, Pass
from mgg.model.program import VertexLayer, Weight
from mgg.model.program.plan import ProgramPlan
from mgg.vertex.ir import Value
from mgg.vertex.trace import Program

#: Type of the computation for each input type.
_REALS: dict[torch.dtype, type] = {torch.float32: np.float32, torch.float64: np.float64}
#: Name of the layers that run programs; it shows only in messages.
_NAME = "interop"


def apply(
    graph: Graph, program: Program, x: torch.Tensor, parameters: Mapping[str, Any], *, training: bool = False,
    seed: int = 0, epoch: int = 0, place: int = 0,
) -> torch.Tensor:  # fmt: skip
    """Run a vertex program on this PE's rows, with gradients by ``x`` and every tensor in ``parameters`` (collective).

    Nothing is copied, except possibly tensors that are not contiguous: the program reads the tensors' memory, and the
    result is the memory that it wrote. Backward is also collective: every PE must compute the same function, and either
    all or none may ask for its gradients. Gradients by parameters are this PE's share, which ``Graph.sum_gradients``
    sums. There are no gradients of gradients.

    Args:
        graph: this PE's part of the graph.
        program: made by ``V.program`` (docs/guides/vertex.md).
        x: float32 or float64 [rows, *shape], on ``graph.device``; the program sees it as ``x`` of that shape.
        parameters: the program's parameters by name: tensors of the type of ``x``, the same on every PE; or numbers,
            strings or None, which are passed on unchanged.
        training: whether dropout is active.
        seed, epoch, place: determine its masks; ``place`` is the index of the program's first dropout in the model.

    Returns:
        [rows, *shape of the program's output], of the type of ``x``.

    Raises:
        InputError: the program has an error (``VertexProgramError``) or several outputs, tensors have another
            shape, type or device, or the graph is closed.
    """
    graph.check_open()
    tensors = {name: value for name, value in parameters.items() if isinstance(value, torch.Tensor)}
    _check(graph, x, tensors)
    _check_plain({name: value for name, value in parameters.items() if name not in tensors})
    given = {
        name: Weight(tuple(value.shape)) if name in tensors else value for name, value in parameters.items()
    }  # fmt: skip
    layer = _layer(graph, program, tuple(x.shape[1:]), given, place)
    gradients = torch.is_grad_enabled() and any(each.requires_grad for each in (x, *tensors.values()))
    plan = layer.plan(training=training, gradients=gradients)
    work = _Work(graph, layer, plan, _REALS[x.dtype], training, seed, epoch, tuple(tensors), gradients)
    result: torch.Tensor = _Program.apply(work, x, *tensors.values())
    return result


class VertexModule(torch.nn.Module):
    """A vertex program over a graph with its parameters; ``forward(x)`` is ``apply`` for this PE's rows (collective).

    Parameters have the program's names and start with the same values on every PE. Dropout follows ``train()`` and
    ``eval()``: the buffer ``passes`` counts the training passes, each of which has its own masks.

    Args:
        graph: this PE's part of the graph; copies of the module share it.
        program: made by ``V.program``.
        parameters: the program's parameters by name: a ``Weight``, from which a Parameter is made; a tensor, which
            becomes a Parameter unless it is one; or a number, a string or None, which is passed on unchanged.
        seed: seed of initial values and masks; give every module of a model its own.
        place: index of the program's first dropout in the model; its later ones count on from there.

    Raises:
        InputError: ``program`` is not a vertex program, or a parameter is none of these.
    """

    def __init__(
        self, graph: Graph, program: Program, parameters: Mapping[str, Any], *, seed: int = 0, place: int = 0
    ) -> None:
        super().__init__()
        self.graph, self.program, self.seed, self.place = graph, _checked(program), seed, place
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))
        self._given = {
            name: value for name, value in parameters.items() if not isinstance(value, Weight | torch.Tensor)
        }
        _check_plain(self._given)
        self._names = [name for name in parameters if name not in self._given]
        weights = {name: value for name, value in parameters.items() if isinstance(value, Weight)}
        made = initial_weights([Parameter(name, each.shape, each.init) for name, each in weights.items()], seed)
        for name, value in parameters.items():
            if isinstance(value, Weight):
                if value.decay:
                    raise InputError(
                        f"parameter {name}: decay is the optimizer's in PyTorch (weight_decay): leave it out"
                    )
                if value.shared:
                    raise InputError(f"parameter {name}: shared is for layers of a model; give modules one tensor")
                self._register(name, torch.from_numpy(made[name]).to(graph.device, torch.get_default_dtype()))
            elif isinstance(value, torch.Tensor):
                self._register(name, value)

    def _register(self, name: str, value: torch.Tensor) -> None:
        if not value.is_floating_point():
            raise InputError(f"parameter {name} is {value.dtype}: a parameter is of real numbers")
        if not value.is_leaf:
            raise InputError(f"parameter {name} is computed from other tensors: give those to mgg.interop.apply")
        try:
            self.register_parameter(name, value if isinstance(value, torch.nn.Parameter) else torch.nn.Parameter(value))
        except KeyError:
            raise InputError(f"parameter {name}: a torch.nn.Module has that attribute already: rename it") from None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the program's output, [rows, *shape], for ``x`` [rows, *shape] (collective)."""
        epoch = 0
        if self.training:
            epoch = int(self.passes)
            self.passes += 1
        parameters = {**self._given, **{name: getattr(self, name) for name in self._names}}
        return apply(
            self.graph, self.program, x, parameters, training=self.training, seed=self.seed, epoch=epoch,
            place=self.place,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the program's name and its constant parameters."""
        return ", ".join([self.program.name, *(f"{name}={value!r}" for name, value in self._given.items())])


@dataclass(frozen=True)
class _Work:
    """One call of ``apply``.

    Attributes:
        names: names of the tensors that follow ``x``.
        gradients: whether any gradient will be needed.
    """

    graph: Graph
    layer: VertexLayer
    plan: ProgramPlan
    real: type
    training: bool
    seed: int
    epoch: int
    names: tuple[str, ...]
    gradients: bool

    def run_of(self, tensors: tuple[torch.Tensor, ...]) -> Pass:
        """Return the pass over the graph with these parameters (collective)."""
        neighborhood = self.graph.neighborhood(self.real, self.plan.fetched)
        weights = {
            f"{self.layer.name}.{name}": array_of(tensor.detach())
            for name, tensor in zip(self.names, tensors, strict=True)
        }
        return Pass(neighborhood, weights, {}, self.training, self.epoch, self.seed)


class _Program(torch.autograd.Function):
    """A vertex program as an autograd function; gradients follow the program's own schedule."""

    @staticmethod
    def forward(ctx: Any, work: _Work, x: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        with work.graph.ordered():
            output, kept = work.layer.worked_off(work.plan, _columns(x), work.run_of(tensors), gradients=work.gradients)
            result = _apart(tensor_of(output), x)
            if work.gradients:
                # As saved tensors they are freed after backward, and PyTorch detects earlier writes to the inputs.
                values = [value for value in kept if value.inputs]
                ctx.work, ctx.values = work, values
                ctx.save_for_backward(x, *tensors, *(tensor_of(kept[value]) for value in values))
        return result.reshape(len(x), *work.plan.output.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        work: _Work = ctx.work
        count = 1 + len(work.names)
        inputs, kept = ctx.saved_tensors[:count], dict(zip(ctx.values, ctx.saved_tensors[count:], strict=True))
        names = ("x", *work.names)
        wanted = [
            name
            for name, needed in zip(names, ctx.needs_input_grad[1:], strict=True)
            if needed and name in work.plan.by
        ]
        found = dict(zip(wanted, _Gradients.apply(work, kept, wanted, gradients[0], *inputs), strict=True))
        return (None, *(found.get(name) for name in names))


class _Gradients(torch.autograd.Function):
    """Gradients of a vertex program; asking for gradients of these raises InputError."""

    @staticmethod
    def forward(
        ctx: Any, work: _Work, kept: dict[Value, torch.Tensor], wanted: list[str], gradient: torch.Tensor,
        x: torch.Tensor, *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:  # fmt: skip
        likes = dict(zip(("x", *work.names), (x, *tensors), strict=True))
        with work.graph.ordered():
            run_of = work.run_of(tensors)
            found = work.layer.leaves(work.plan, _columns(x), run_of)
            found |= {value: array_of(tensor) for value, tensor in kept.items()}
            by = work.layer.backed(work.plan, found, _columns(gradient), run_of, wanted)
            return tuple(_apart(tensor_of(by[name]), gradient).reshape(likes[name].shape) for name in wanted)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        raise InputError("vertex programs have no gradients of gradients")


def _columns(x: torch.Tensor) -> Any:
    """Return the memory of ``x`` [rows, *shape] as an array [rows, columns]."""
    return array_of(x.detach().reshape(len(x), prod(x.shape[1:])))


def _apart(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return ``tensor``, or a copy if it shares memory with ``other``, which PyTorch may change in place."""
    return tensor.clone() if tensor.data_ptr() == other.data_ptr() else tensor


def _layer(graph: Graph, program: Program, shape: tuple[int, ...], given: dict[str, Any], place: int) -> VertexLayer:
    """Return the program as a layer for these shapes; each combination is traced once."""
    key = program, shape, tuple(sorted(given.items(), key=lambda item: item[0])), place
    if key not in graph.programs:
        relations = graph.layout.manifest.relations
        graph.programs[key] = VertexLayer(
            _NAME, program, prod(shape), given, shape=shape, relations=relations, place=place
        )
    return graph.programs[key]


def _checked(program: Any) -> Program:
    if not isinstance(program, Program):
        raise InputError(f"{program!r} is no vertex program: decorate it with @V.program")
    return program


def _check_plain(given: Mapping[str, Any]) -> None:
    """Raise InputError for a constant parameter of an unsupported type."""
    for name, value in given.items():
        if not (value is None or isinstance(value, numbers.Number | str)):
            raise InputError(
                f"parameter {name} is a {type(value).__name__}: give a torch.Tensor, a number, a string or None"
            )


def _check(graph: Graph, x: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise InputError unless ``x`` has this PE's rows and the parameters match it."""
    if not isinstance(x, torch.Tensor):
        raise InputError(f"x is a {type(x).__name__}: expected a torch.Tensor")
    for name, tensor in {"x": x, **tensors}.items():
        if tensor.layout != torch.strided:
            raise InputError(f"{name} is stored as {tensor.layout}: make it dense ({name}.to_dense())")
        if tensor.device != graph.device:
            raise InputError(f"{name} is on {tensor.device}: this PE computes on {graph.device}")
    if x.dim() < 2 or x.shape[0] != graph.rows or 0 in x.shape[1:]:
        raise InputError(
            f"x has shape {tuple(x.shape)}: PE {graph.world.rank} has {graph.rows} rows, [rows, columns] or more axes"
        )
    only = "on GPUs" if graph.world.gpu else "over a graph with bf16 embeddings" if graph.dtype == "bf16" else ""
    if x.dtype not in _REALS or (only and x.dtype != torch.float32):
        able = "torch.float32" if only else "torch.float32 or torch.float64"
        raise InputError(f"x is {x.dtype}: vertex programs {only or 'on CPU ranks'} take {able}")
    for name, tensor in tensors.items():
        if tensor.dtype != x.dtype:
            raise InputError(f"parameter {name} is {tensor.dtype} and x is {x.dtype}: give both one type")
