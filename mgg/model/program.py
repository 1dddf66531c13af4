"""Vertex programs as layers of a model (``mgg.vertex``): ten lines of what one vertex does, trained on every PE."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal, get_args

import numpy as np

from mgg.backend.api import Array
from mgg.errors import InputError, MachineError
from mgg.kernel import sums
from mgg.model.module import Composite, Features, Held, Module, Parameter, Pass
from mgg.model.propagate import dense
from mgg.vertex import host
from mgg.vertex.autodiff import differentiated
from mgg.vertex.explain import explain
from mgg.vertex.ir import D, E, S, Value, walk
from mgg.vertex.passes import optimized
from mgg.vertex.run import Part, live_columns, run
from mgg.vertex.trace import Program, Trace
from mgg.vertex.units import Rows, Schedule, schedule

Init = Literal["glorot", "zeros", "ones"]


@dataclass(frozen=True)
class Weight:
    """A parameter of a program that is trained: its shape, first values and L2 penalty.

    Raises:
        InputError: what it is given is none of these.
    """

    shape: tuple[int, ...]
    init: Init = "glorot"
    decay: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.shape, tuple):
            raise InputError(f"Weight({self.shape!r}): its shape is a tuple: Weight((inputs, outputs)), Weight((n,))")
        if self.init not in get_args(Init):
            raise InputError(f"Weight of init {self.init!r}: it is one of {', '.join(get_args(Init))}")


@dataclass(frozen=True)
class _Plan:
    """A program with its gradients, ready to be worked off.

    Attributes:
        trace: what it was made of.
        output: of vertices.
        by: gradients by the input and by the parameters, by name; none of a program that only evaluates.
        seed: the gradient by the output; None likewise.
        schedule: steps of both.
    """

    trace: Trace
    output: Value
    by: dict[str, Value]
    seed: Value | None
    schedule: Schedule


class VertexLayer(Module):
    """A vertex program over the rows of a PE, on CPU ranks.

    Parameters are called ``name.`` and what the program calls them. The input is the feature ``x`` of the vertices; the
    output's axes become one.

    Args:
        name: of the layer.
        program: that ``V.program`` made.
        columns: of the input; the program sees ``x`` with this shape, or with ``shape``.
        parameters: of the program, by name: a ``Weight``, or a number, a string or None, which it gets as it is.
        shape: of ``x`` for the program, [heads, columns] for example; as many numbers as ``columns``.
        relations: how many types of arcs the graph has.
        place: which dropout of the model the program's first one is; those after it count on.

    Attributes:
        fused: a pass over arcs makes all that it can; else see ``mgg.vertex.units.schedule``.

    Raises:
        InputError: a mistake in the program (``VertexProgramError``), it has several outputs, or arguments do not fit.
    """

    def __init__(
        self, name: str, program: Program, columns: int, parameters: Mapping[str, Any], *,
        shape: tuple[int, ...] | None = None, relations: int = 0, place: int = 0,
    ) -> None:  # fmt: skip
        if not isinstance(program, Program):
            raise InputError(f"layer {name}: {program!r} is no vertex program: decorate it with @V.program")
        for key, value in parameters.items():
            if isinstance(value, tuple | list):
                raise InputError(f"layer {name}: parameter {key} is {value!r}: to train it, write Weight({value!r})")
        if shape is not None and prod(shape) != columns:
            raise InputError(f"layer {name}: shape {shape} of x: its {prod(shape)} numbers are not {columns} columns")
        self.name, self.program, self.columns = name, program, columns
        self.shape, self.relations, self.place, self.fused = shape or (columns,), relations, place, True
        weights = {key: value for key, value in parameters.items() if isinstance(value, Weight)}
        self.given = {key: value.shape if isinstance(value, Weight) else value for key, value in parameters.items()}
        self.parameters = [
            Parameter(f"{name}.{key}", each.shape, each.init, each.decay) for key, each in weights.items()
        ]
        crossing = [value.size for value in self._values() if _crosses(value)]
        # Even without rows to fetch, the ids at the ends of arcs have to be known.
        self.fetched = max([1, *crossing])

    def _values(self) -> list[Value]:
        return list(walk([self._trained.output, *self._trained.by.values()]))

    def unfuse(self) -> None:
        """From here on a pass over arcs makes one value alone."""
        self.fused = False
        for plan in ("_trained", "_evaluated"):
            vars(self).pop(plan, None)

    @cached_property
    def _trained(self) -> _Plan:
        return self._plan(training=True)

    @cached_property
    def _evaluated(self) -> _Plan:
        return self._plan(training=False)

    def _plan(self, *, training: bool) -> _Plan:
        trace = self.program.trace({"x": self.shape}, self.given, types=self.relations, training=training)
        if len(trace.outputs) != 1:
            raise InputError(
                f"layer {self.name}: program {trace.name} returns {len(trace.outputs)} values, a layer has one"
            )
        if not training:
            (output,) = optimized(trace.outputs)
            return _Plan(trace, output, {}, None, schedule([output], fused=self.fused))
        (output,), by, (seed,) = differentiated(trace)
        return _Plan(trace, output, by, seed, schedule([output], list(by.values()), [seed], fused=self.fused))

    def explained(self) -> str:
        """What is done in training: values with their lines, passes over arcs, what crosses, what is kept."""
        plan = self._trained
        return explain(plan.trace)

    def memory(self, columns: int) -> Held:
        """What the schedule keeps, and the most that it holds at once; by arcs what a program keeps of them."""
        plan = self._trained
        kept = [value for value in plan.schedule.kept if value.space in (D, S)]
        peak = max(live_columns(plan.schedule.forward), live_columns(plan.schedule.backward))
        rows, halo = (sum(value.size for value in kept if value.space in spaces) for spaces in ((D, S), (S,)))
        arc = max(live_columns(steps, (E,)) for steps in (plan.schedule.forward, plan.schedule.backward))
        stored = sum(value.size for value in plan.schedule.carried)
        return Held(plan.output.size, rows, peak + plan.output.size, halo, arc, stored)

    def forward(self, x: Features, run_of: Pass) -> Array:
        """The program's output, [rows, columns]."""
        plan = self._trained if run_of.training else self._evaluated
        found = self._leaves(plan, x, run_of)
        run(
            plan.schedule.forward,
            found,
            self._part(run_of),
            draws=_draws(run_of),
            wanted=[plan.output, *plan.schedule.kept, *plan.schedule.carried],
        )
        if run_of.training:
            stays = {*plan.schedule.kept, *plan.schedule.carried}
            self._kept = {value: array for value, array in found.items() if not value.inputs or value in stays}
        return self._owned(found, plan.output, plan.schedule.kept, len(run_of.graph.node_ids))

    def _owned(self, found: dict[Value, Any], value: Value, kept: Collection[Value], rows: int) -> Array:
        """``value`` [rows, columns] as an array of the caller's, who may change it."""
        array = found[value]
        shared = len(array) != rows or value in kept or not value.inputs
        return (np.array(np.broadcast_to(array, (rows, *value.shape))) if shared else array).reshape(rows, value.size)

    def backward(self, gradient: Array, run_of: Pass, inputs: bool = True) -> Array | None:
        """Gradients of the input and, float64, of the parameters."""
        plan, found = self._trained, self._kept
        del self._kept
        assert plan.seed is not None
        found[plan.seed] = gradient.reshape(len(gradient), *plan.output.shape)
        wanted = {name: value for name, value in plan.by.items() if inputs or name != "x"}
        steps = [Rows(plan.schedule.again), *plan.schedule.backward]
        run(steps, found, self._part(run_of), draws=_draws(run_of), wanted=wanted.values())
        for parameter in self.parameters:
            by = found[wanted[parameter.name.removeprefix(f"{self.name}.")]]
            run_of.gradients[parameter.name] = by[0].astype(np.float64)
        if not inputs:
            return None
        return self._owned(found, wanted["x"], (plan.seed,), len(gradient))

    def _leaves(self, plan: _Plan, x: Features, run_of: Pass) -> dict[Value, Any]:
        """What the program reads: the input, parameters, what is built in."""
        tables = run_of.graph.tables(loops=self.program.loops)
        built_in = {
            "norm": lambda: run_of.graph.norm(loops=self.program.loops),
            "weight": lambda: (
                np.ones(len(tables.ends), run_of.graph.real) if tables.weights is None else tables.weights
            ),
        }
        found: dict[Value, Any] = {}
        for name, value in plan.trace.inputs.items():
            if name == "x":
                found[value] = x if len(self.shape) == 1 else dense(x).reshape(x.shape[0], *self.shape)
            else:
                found[value] = built_in[name]()
        for name, value in plan.trace.parameters.items():
            found[value] = run_of.weights[f"{self.name}.{name}"][None]
        return found

    def _part(self, run_of: Pass) -> Part:
        graph = run_of.graph
        if not isinstance(graph.node_ids, np.ndarray):
            raise MachineError(f"layer {self.name}: vertex programs run on CPU ranks: --backend mpi").on_every_pe()
        tables = graph.tables(loops=self.program.loops)

        def product(rows: Array, weights: Array | None, back: bool) -> Array:
            none = np.empty(0, graph.real)
            weights = none if weights is None else weights
            if not back:
                out = np.empty((tables.rows, rows.shape[1]), graph.real)
                sums.spmm_rows(tables.ptr, tables.ends, weights, graph.halo.fetch(rows), out, False)
                return out
            out = np.empty((tables.sources, rows.shape[1]), graph.real)
            turned = weights[tables.out_arcs] if len(weights) else weights
            sums.spmm_rows(tables.out_ptr, tables.out_ends, turned, rows, out, False)
            return graph.halo.give_back(out)

        return Part(
            tables, run_of.arrays, graph.halo.fetch, graph.halo.give_back, product, work=host.run, real=graph.real,
            place=self.place,
        )  # fmt: skip


def programs_of(module: Module) -> list[VertexLayer]:
    """The vertex programs among the layers of ``module``, in their order."""
    if isinstance(module, Composite):
        return [layer for each in module.modules for layer in programs_of(each)]
    return [module] if isinstance(module, VertexLayer) else []


def _crosses(value: Value) -> bool:
    """Whether rows go to other PEs, or their gradients come back."""
    if value.op == "product":
        return True
    spaces = [value.space, *(x.space for x in value.inputs[:1])]
    return value.op in ("cast", "total") and set(spaces) == {D, S}


def _draws(run_of: Pass) -> tuple[int, int]:
    epoch = run_of.epoch if run_of.training else 0
    return run_of.seed, int(epoch[0] if isinstance(epoch, np.ndarray) else epoch)
