"""Vertex programs as layers of a model (``mgg.vertex``): ten lines of what one vertex does, trained on every PE."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from mgg.vertex.ir import D, E, R, S, Value, walk
from mgg.vertex.passes import optimized
from mgg.vertex.run import Part, live_columns, run
from mgg.vertex.trace import Program, Trace
from mgg.vertex.units import Rows, Schedule, Unit, schedule

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
        arcs: what ``V.keep`` keeps.
        by: gradients by the inputs and by the parameters, by name; none of a program that only evaluates.
        seeds: the gradients by the output and by what is kept; none likewise.
        schedule: steps of both.
    """

    trace: Trace
    output: Value
    arcs: tuple[Value, ...]
    by: dict[str, Value]
    seeds: tuple[Value, ...]
    schedule: Schedule


class VertexLayer(Module):
    """A vertex program over the rows of a PE, on CPU ranks.

    Parameters are called ``name.`` and what the program calls them. The input is the feature ``x`` of the vertices; the
    output's axes become one. Values of arcs go from layer to layer by names, past the modules in between: what one
    keeps, later ones read, until another one keeps something of the same name. They stay on the PE of the arc's target.

    Args:
        name: of the layer.
        program: that ``V.program`` made.
        columns: of the input; the program sees ``x`` with this shape, or with ``shape``.
        parameters: of the program, by name: a ``Weight``, or a number, a string or None, which it gets as it is.
        shape: of ``x`` for the program, [heads, columns] for example; as many numbers as ``columns``.
        relations: how many types of arcs the graph has.
        place: which dropout of the model the program's first one is; those after it count on.
        arcs: features of arcs that the program reads, by name, with their shapes; earlier layers keep them.
        keeps: what the program's ``V.keep`` outputs are called, in their order.

    Raises:
        InputError: a mistake in the program (``VertexProgramError``), it has several outputs of vertices or others than
            ``keeps`` of arcs, or arguments do not fit.
    """

    def __init__(
        self, name: str, program: Program, columns: int, parameters: Mapping[str, Any], *,
        shape: tuple[int, ...] | None = None, relations: int = 0, place: int = 0,
        arcs: Mapping[str, tuple[int, ...]] | None = None, keeps: Sequence[str] = (),
    ) -> None:  # fmt: skip
        if not isinstance(program, Program):
            raise InputError(f"layer {name}: {program!r} is no vertex program: decorate it with @V.program")
        for key, value in parameters.items():
            if isinstance(value, tuple | list):
                raise InputError(f"layer {name}: parameter {key} is {value!r}: to train it, write Weight({value!r})")
        if shape is not None and prod(shape) != columns:
            raise InputError(f"layer {name}: shape {shape} of x: its {prod(shape)} numbers are not {columns} columns")
        self.name, self.program, self.columns = name, program, columns
        self.shape, self.relations, self.place = shape or (columns,), relations, place
        self.arcs, self.keeps = dict(arcs or {}), tuple(keeps)
        if self.keeps and program.loops:
            raise InputError(f"layer {name}: program {program.name} has loops=True: arcs that it adds keep nothing")
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

    @cached_property
    def _trained(self) -> _Plan:
        return self._plan(training=True)

    @cached_property
    def _evaluated(self) -> _Plan:
        return self._plan(training=False)

    def _plan(self, *, training: bool) -> _Plan:
        trace = self.program.trace(
            {"x": self.shape}, self.given, arc_inputs=self.arcs, types=self.relations, training=training
        )
        of_arcs = sum(value.space is E for value in trace.outputs)
        if len(trace.outputs) - of_arcs != 1:
            raise InputError(
                f"layer {self.name}: program {trace.name} returns {len(trace.outputs) - of_arcs} values of the vertex,"
                " a layer has one"
            )
        if of_arcs != len(self.keeps):
            raise InputError(
                f"layer {self.name}: program {trace.name} keeps {of_arcs} values of arcs: name each, in the order in"
                f" which they are returned: VertexLayer(..., keeps=('f',)), not keeps={self.keeps}"
            )
        if not training:
            output, *kept = optimized(trace.outputs)
            return _Plan(trace, output, tuple(kept), {}, (), schedule([output, *kept]))
        (output, *kept), by, seeds = differentiated(trace)
        plan = schedule([output, *kept], list(by.values()), seeds)
        return _Plan(trace, output, tuple(kept), by, tuple(seeds), plan)

    def explained(self) -> str:
        """What is done in training: values with their lines, passes over arcs, what crosses, what is kept."""
        plan = self._trained
        return explain(plan.trace)

    def memory(self, columns: int) -> Held:
        """What the schedule keeps, and the most that it holds at once; runs count as arcs."""
        plan = self._trained
        kept = [value for value in plan.schedule.kept if value.space in (D, S)]
        peak = max(live_columns(plan.schedule.forward), live_columns(plan.schedule.backward))
        rows, halo = (sum(value.size for value in kept if value.space in spaces) for spaces in ((D, S), (S,)))
        forward, backward = plan.schedule.forward, plan.schedule.backward
        stays = {value for step in forward if isinstance(step, Unit) for value in step.stored}
        stays |= {value for value in plan.schedule.kept if value.space is R}
        arcs = 2 * max(live_columns(forward, (E,)), live_columns(backward, (E,)))
        runs = sum(value.size for value in plan.schedule.kept if value.space is R)
        arcs += max(live_columns(forward, (R,)) - runs, live_columns(backward, (R,)))
        return Held(plan.output.size, rows, peak + plan.output.size, halo, arcs, sum(value.size for value in stays))

    def forward(self, x: Features, run_of: Pass) -> Array:
        """The program's output, [rows, columns]."""
        plan = self._trained if run_of.training else self._evaluated
        found = self._leaves(plan, x, run_of)
        run(
            plan.schedule.forward,
            found,
            self._part(run_of),
            draws=_draws(run_of),
            wanted=[plan.output, *plan.arcs, *plan.schedule.kept],
        )
        for name, value in zip(self.keeps, plan.arcs, strict=True):
            run_of.arcs[name] = self._of_arcs(found[value], value, run_of)
        if run_of.training:
            stays = {*plan.schedule.kept, *plan.schedule.stored}
            self._kept = {value: array for value, array in found.items() if not value.inputs or value in stays}
        return self._owned(found, plan.output, plan.schedule.kept, len(run_of.graph.node_ids))

    def _owned(self, found: dict[Value, Any], value: Value, kept: Collection[Value], rows: int) -> Array:
        """``value`` [rows, columns] as an array of the caller's, who may change it."""
        array = found[value]
        shared = len(array) != rows or value in kept or not value.inputs
        return (np.array(np.broadcast_to(array, (rows, *value.shape))) if shared else array).reshape(rows, value.size)

    def backward(self, gradient: Array, run_of: Pass, inputs: bool = True) -> Array | None:
        """Gradients of the input and, float64, of the parameters; those by values of arcs are left in ``run_of``."""
        plan, found = self._trained, self._kept
        del self._kept
        found[plan.seeds[0]] = gradient.reshape(len(gradient), *plan.output.shape)
        for name, seed in zip(self.keeps, plan.seeds[1:], strict=True):
            by_arcs = run_of.arc_gradients.pop(name, None)  # None: no layer has read it
            found[seed] = np.zeros((1, *seed.shape), run_of.graph.real) if by_arcs is None else by_arcs
            found[seed] = found[seed].reshape(-1, *seed.shape)
        wanted = {name: value for name, value in plan.by.items() if inputs or name != "x"}
        steps = [Rows(plan.schedule.again), *plan.schedule.backward]
        run(steps, found, self._part(run_of), draws=_draws(run_of), wanted=wanted.values())
        for parameter in self.parameters:
            by = found[wanted[parameter.name.removeprefix(f"{self.name}.")]]
            run_of.gradients[parameter.name] = by[0].astype(np.float64)
        for name in self.arcs:
            if name in wanted:
                mine, others = self._of_arcs(found[wanted[name]], wanted[name], run_of), run_of.arc_gradients.get(name)
                run_of.arc_gradients[name] = mine if others is None else mine + others
        if not inputs:
            return None
        return self._owned(found, wanted["x"], plan.seeds, len(gradient))

    def _of_arcs(self, array: Array, value: Value, run_of: Pass) -> Array:
        """Values of arcs as they go from layer to layer, [arcs, columns]."""
        rows = run_of.graph.tables(loops=self.program.loops).rows_of(E)
        return np.broadcast_to(array, (rows, *value.shape)).reshape(rows, value.size)

    def _leaves(self, plan: _Plan, x: Features, run_of: Pass) -> dict[Value, Any]:
        """What the program reads: the input, parameters, what is built in."""
        tables = run_of.graph.tables(loops=self.program.loops)
        built_in = {
            "norm": lambda: run_of.graph.norm(loops=self.program.loops),
            "scaler": lambda: run_of.graph.scaler(loops=self.program.loops),
            "weight": lambda: (
                np.ones(len(tables.ends), run_of.graph.real) if tables.weights is None else tables.weights
            ),
        }
        found: dict[Value, Any] = {}
        for name, value in plan.trace.inputs.items():
            if name == "x":
                found[value] = x if len(self.shape) == 1 else dense(x).reshape(x.shape[0], *self.shape)
            elif name in self.arcs:
                found[value] = self._read(name, run_of).reshape(-1, *value.shape)
            else:
                found[value] = built_in[name]()
        for name, value in plan.trace.parameters.items():
            found[value] = run_of.weights[f"{self.name}.{name}"][None]
        return found

    def _read(self, name: str, run_of: Pass) -> Array:
        """What an earlier layer kept, [arcs, columns]."""
        array, columns = run_of.arcs.get(name), prod(self.arcs[name])
        if array is None:
            raise InputError(
                f"layer {self.name}: its program reads e.{name}, which no layer before it keeps (keeps=('{name}',)): to"
                " begin with, make it of e.weight, of e.type or of both ends"
            ).on_every_pe()
        if array.shape[1] != columns:
            raise InputError(
                f"layer {self.name}: e.{name} is {self.arcs[name]}, what an earlier layer keeps as {name} has"
                f" {array.shape[1]} numbers"
            ).on_every_pe()
        return array

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
