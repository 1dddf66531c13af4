"""Vertex programs as layers of a model (``mgg.vertex``): a few lines about one vertex, trained on every PE."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import Any, Literal, get_args

import numpy as np

from mgg.backend.api import Array
from mgg.errors import InputError
from mgg.kernel.compile import Build
from mgg.model.halo.turned import TurnedWork, Turning
from mgg.model.layers import Dropout
from mgg.model.module import ActivationMemory, Chain, Composite, Features, Given, Module, Parameter, Pass, check_columns
from mgg.model.neighborhood import Neighborhood
from mgg.model.program.plan import ProgramPlan, crosses
from mgg.vertex.autodiff import differentiated
from mgg.vertex.cpu import host
from mgg.vertex.cuda.device import DeviceWork
from mgg.vertex.cuda.execution import DEFAULT
from mgg.vertex.explain import explain
from mgg.vertex.ir import D, E, P, R, S, Value
from mgg.vertex.products import of_arcs
from mgg.vertex.rewrites.passes import optimized
from mgg.vertex.run import Part, Work, dense
from mgg.vertex.trace import Program
from mgg.vertex.turned import Turned
from mgg.vertex.units import Unit, is_count, is_returned, schedule
from mgg.vertex.warp_layout import pitch

Init = Literal["glorot", "zeros", "ones"]
#: Entries of 4 bytes per piece that is a single arc: its begin (two), target, row, and place in the order.
_PIECE = 5


@dataclass(frozen=True)
class Weight:
    """A trained parameter of a program: its shape, initialization and L2 penalty.

    Attributes:
        name: its name after the layer's, if other than the program's.
        shared: the full name of a parameter that several layers share; each of them declares it identically.

    Raises:
        InputError: the shape is no tuple, or the initialization is unknown.
    """

    shape: tuple[int, ...]
    init: Init = "glorot"
    decay: float = 0.0
    name: str | None = None
    shared: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.shape, tuple):
            raise InputError(f"Weight({self.shape!r}): its shape is a tuple: Weight((inputs, outputs)), Weight((n,))")
        if self.init not in get_args(Init):
            raise InputError(f"Weight of init {self.init!r}: it is one of {', '.join(get_args(Init))}")


class VertexLayer(Module):
    """A vertex program over the rows of a PE.

    Parameters are named ``name.`` plus the program's name for them. The input is the vertex feature ``x``; the axes of
    the output are merged into one. Values of arcs go from layer to layer by name, past the modules in between: later
    layers read what a layer keeps, until another layer keeps a value of the same name. They stay on the PE of the arc's
    target.

    Args:
        name: name of the layer.
        program: a program made by ``V.program``.
        columns: columns of the input; the program sees ``x`` with this shape, or with ``shape``.
        parameters: for each parameter of the program by name, a ``Weight``, or a number, a string or None, which is
            passed to the program unchanged.
        shape: shape of ``x`` for the program, such as [heads, columns]; as many entries as ``columns``.
        relations: number of arc types in the graph.
        place: index in the model of the program's first dropout; the others follow it.
        arcs: shapes by name of the arc features that the program reads; earlier layers keep them.
        keeps: names of the program's ``V.keep`` outputs, in order.

    Attributes:
        fused: whether a pass over arcs computes all it can; otherwise see ``mgg.vertex.units.schedule``.
        turns: whether gradients take the *turned* schedule (``turn``).
        how: how generated kernels share arcs among threads; set it before the first pass.

    Raises:
        InputError: the program has a mistake (``VertexProgramError``), has several vertex outputs or arc outputs other
            than ``keeps``, or its arguments do not fit.
    """

    saved = ("_kept",)

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
        self.fused, self.turns, self.how = True, False, DEFAULT
        self.arcs, self.keeps = dict(arcs or {}), tuple(keeps)
        if self.keeps and program.loops:
            raise InputError(f"layer {name}: program {program.name} has loops=True: arcs that it adds keep nothing")
        weights = {key: value for key, value in parameters.items() if isinstance(value, Weight)}
        self.given = {key: value.shape if isinstance(value, Weight) else value for key, value in parameters.items()}
        #: Which arcs the layer uses.
        self._over = {"loops": program.loops, "typed": bool(relations or self.arcs or self.keeps)}
        self._device: dict[Work | Turned, tuple[Any, DeviceWork | TurnedWork]] = {}
        #: The program's name of each parameter.
        self._keys = {each.shared or f"{name}.{each.name or key}": key for key, each in weights.items()}
        if len(self._keys) < len(weights):
            raise InputError(f"layer {name}: two of its parameters have one name: {', '.join(self._keys)}")
        self.parameters = [
            Parameter(known, each.shape, each.init, each.decay, bool(each.shared))
            for known, each in zip(self._keys, weights.values(), strict=True)
        ]
        self._known: tuple[Neighborhood, Part] | None = None
        values = self._trained.values
        products = [v for v in values if v.op == "product" and not is_count(v)]
        #: Columns of the products that plans compute.
        self._products = [v.size for v in products if len(v.inputs) > 1 and not v["back"]]
        self.width = max((v.size for v in products if len(v.inputs) > 1), default=0)
        crossing = [v.size for v in values if crosses(v)] + [v.size for v in products if len(v.inputs) == 1]
        # The ids at the ends of arcs are needed even without rows to fetch.
        of_arcs = any(v.space not in (D, P) and v.inputs for v in values)
        self.fetched = max([int(of_arcs), *crossing])
        self.returned = sum(v.size for v in values if is_returned(v))
        self.takes_sparse = len(self.shape) == 1 and not self._trained.takes_dense(False)

    @property
    def products(self) -> list[int]:
        """Columns of each product with A."""
        return self._products

    def unfuse(self) -> None:
        """Make each pass over arcs compute a single value from now on."""
        self.fused = False
        self._plan_anew()

    def turn(self) -> None:
        """Take the *turned* schedule from now on: the PE that has a source computes its gradient."""
        self.turns = True
        self._plan_anew()

    def turning(self) -> Turning:
        """Return the most that the layer fetches at once in the *turned* schedule."""
        plan = self._trained
        cases = [plan.turned(constant, inputs) for constant in (True, False) for inputs in (True, False)]
        parts = [part for part in cases if part is not None]
        rows = [v.size for v in plan.values if v.op == "product" and v["back"] and not is_count(v)]
        rows += [most for part in parts for most in (part.columns, sum(v.size for v in part.steady))]
        return Turning(max(rows, default=0), max((v.size for part in parts for v in part.crossing), default=0))

    def _plan_anew(self) -> None:
        for plan in ("_trained", "_evaluated", "_differentiated"):
            vars(self).pop(plan, None)

    @cached_property
    def _trained(self) -> ProgramPlan:
        return self._plan(training=True, gradients=True)

    @cached_property
    def _evaluated(self) -> ProgramPlan:
        return self._plan(training=False, gradients=False) if self._trained.trace.dropouts else self._trained

    @cached_property
    def _differentiated(self) -> ProgramPlan:
        return self._plan(training=False, gradients=True)

    def plan(self, *, training: bool, gradients: bool) -> ProgramPlan:
        """Return the program's plan for a kind of pass.

        Args:
            training: whether dropout is active.
            gradients: whether ``backed`` will be called; plans with active dropout always have gradients.
        """
        if training or not self._trained.trace.dropouts:
            return self._trained
        return self._differentiated if gradients else self._evaluated

    def _plan(self, *, training: bool, gradients: bool) -> ProgramPlan:
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
        if not gradients:
            output, *kept = optimized(trace.outputs)
            steps = schedule([output, *kept], fused=self.fused)
            return ProgramPlan(trace, output, tuple(kept), {}, (), steps, self.turns)
        (output, *kept), by, seeds = differentiated(trace)
        steps = schedule([output, *kept], list(by.values()), seeds, fused=self.fused)
        return ProgramPlan(trace, output, tuple(kept), by, tuple(seeds), steps, self.turns)

    @property
    def spared(self) -> bool:
        """False if layers share values of arcs: earlier layers keep these in any case."""
        return not (self.arcs or self.keeps)

    @property
    def arcs_may_leave(self) -> bool:
        """Whether kernels or compiled loops alone make and read its values of arcs, which may be anywhere."""
        products = any(of_arcs(value) for value in self._trained.values)
        return self.spared and not self.relations and not products and self.how.arcs != "parallel"

    def each_saved(self, change: Callable[[Array], Array]) -> None:
        """Replace the saved arrays, except those equal in every pass (parameters, built-in inputs, cached values) and
        those that are outside the device in any case.
        """
        if "_kept" in vars(self):
            constant, found = vars(self)["_kept"]
            stays = {*self._trained.fixed(constant), *self._trained.trace.parameters.values()}
            stays |= {v for name, v in self._trained.trace.inputs.items() if name != "x" or constant}
            if self._known is not None and self._known[0].outside is not None:
                stays |= {v for v in found if v.space in (E, R)}
            self._kept = constant, {v: x if v in stays else change(x) for v, x in found.items()}

    def explained(self) -> str:
        """Describe the training pass: values with their lines, passes over arcs, transfers, kept values."""
        plan = self._trained
        return explain(plan.trace)

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Estimate cached values, values kept for backward, and the peak; runs count as arcs."""
        plan, constant = self._trained, given.constant
        once, backward = {*plan.fixed(constant)}, plan.backward(constant, given.inputs)
        stays = given.floats(given.arrays(once) - plan.leaves)
        if constant and given.sparse and plan.takes_dense(True):
            stays += columns * given.rows
        every = given.arrays(plan.reads(constant))
        reads = every - plan.leaves - once
        copied = given.floats([plan.output]) * (plan.output in reads or not plan.output.inputs)
        # The gradients by kept arc values exist when the backward pass begins.
        ahead, back = given.most(plan.forward(constant, True)) + copied, given.most(backward, {*plan.seeds})
        peak = max(ahead, given.most(backward, {*reads, *plan.seeds}))
        if given.gpu and self.how.arcs == "parallel":
            # The summand of each arc is written, and each arc is a piece of both arc lists.
            units = [step for step in (*plan.schedule.forward, *plan.schedule.backward) if isinstance(step, Unit)]
            added = max((_added(stage.sums) for unit in units for stage in unit.stages), default=0)
            peak, ahead, back = (most + given.arcs * (2 * _PIECE + added) for most in (peak, ahead, back))
        kept = given.floats(reads.difference(plan.seeds).union(plan.arcs))
        apart = constant or given.streamed
        saves = kept + given.rows * columns * (not apart and plan.trace.inputs.get("x") in every)
        return ActivationMemory(plan.output.size, stays, kept, peak, stays, ahead, back, saves)

    def forward(self, x: Features, run_of: Pass) -> Array:
        """Return the program's output, [rows, columns]; put its kept arc values into ``run_of``."""
        check_columns(self.name, self.columns, x)
        plan = self._trained if run_of.training else self._evaluated
        output, kept = self.worked_off(plan, x, run_of, gradients=run_of.training)
        if run_of.training:
            self._kept = x is run_of.constant, kept
        return output

    def worked_off(
        self, plan: ProgramPlan, x: Features, run_of: Pass, *, gradients: bool
    ) -> tuple[Array, dict[Value, Any]]:
        """Return the output, [rows, columns], and with ``gradients`` the values that ``backed`` needs (collective)."""
        constant = x is run_of.constant
        part, work = self._part(run_of.graph), plan.forward(constant, gradients)
        once = self._once(plan, x, part, run_of, constant)
        found = self.leaves(plan, x, run_of) | once
        self._on_device(work, run_of.graph).run(found, part, _draws(run_of))
        found |= once
        for name, value in zip(self.keeps, plan.arcs, strict=True):
            run_of.arcs[name] = self._of_arcs(found[value], value, run_of)
        stays = plan.reads(constant) if gradients else set()
        kept = {value: found[value] for value in stays if value in found}
        return self._owned(found, plan.output, {*stays, *once}, len(run_of.graph.node_ids)), kept

    def _once(self, plan: ProgramPlan, x: Features, part: Part, run_of: Pass, constant: bool) -> dict[Value, Any]:
        """Return the values that never change, computed on first use."""
        graph, of, known = plan.once.get(constant, (None, None, {}))
        if graph is not run_of.graph or (constant and of is not x):
            found = self.leaves(plan, x, run_of)
            work = self._on_device(plan.making(constant), run_of.graph)
            work.run(found, part, _draws(run_of))
            known = {value: found[value] for value in plan.fixed(constant)}
            if constant and plan.takes_dense(True):
                known[plan.trace.inputs["x"]] = dense(found[plan.trace.inputs["x"]])
            plan.once[constant] = run_of.graph, x if constant else None, known
        return known

    def _owned(self, found: dict[Value, Any], value: Value, kept: Collection[Value], rows: int) -> Array:
        """Return ``value`` [rows, columns] as an array that the caller owns and may change."""
        array = dense(found[value])
        if len(array) != rows:
            array = np.broadcast_to(array, (rows, *value.shape))
        if len(found[value]) != rows or value in kept or not value.inputs:
            array = array.copy()
        return array.reshape(rows, value.size)

    def backward(self, gradient: Array, run_of: Pass, inputs: bool = True) -> Array | None:
        """Return the gradient by the input; put those by parameters (float64) and by arc values into ``run_of``."""
        plan, (constant, found) = self._trained, self._kept
        del self._kept
        run_of.arcs.clear()  # every layer has saved what it needs of these
        for name, seed in zip(self.keeps, plan.seeds[1:], strict=True):
            by_arcs = run_of.arc_gradients.pop(name, None)  # None: no layer read it
            if by_arcs is None:
                by_arcs = run_of.arrays.zeros((1, seed.size), run_of.graph.real)
            found[seed] = by_arcs.reshape(len(by_arcs), *seed.shape)
        names = [name for name in plan.by if inputs or name != "x"]
        by = self.backed(plan, found, gradient, run_of, names, constant=constant)
        for parameter in self.parameters:
            found_by = by[self._keys[parameter.name]].astype(np.float64, copy=False)
            others = run_of.gradients.get(parameter.name) if parameter.shared else None
            run_of.gradients[parameter.name] = found_by if others is None else others + found_by
        for name in self.arcs:
            if name in plan.by:
                mine, before = self._of_arcs(by[name], plan.by[name], run_of), run_of.arc_gradients.get(name)
                run_of.arc_gradients[name] = mine if before is None else mine + before
        return by["x"] if inputs else None

    def backed(
        self, plan: ProgramPlan, found: dict[Value, Any], gradient: Array, run_of: Pass, names: Collection[str], *,
        constant: bool = False,
    ) -> dict[str, Array]:  # fmt: skip
        """Return the gradients by ``names``: ``x`` [rows, columns], parameters and values of arcs (collective).

        Args:
            plan: a plan of the program with its gradients.
            found: the values returned by ``worked_off``; the call consumes them.
            gradient: the gradient by the output, [rows, columns].
            run_of: the pass of ``worked_off``.
            names: keys of ``plan.by``.
            constant: whether the input was the pass's constant.
        """
        found[plan.seeds[0]] = gradient.reshape(len(gradient), *plan.output.shape)
        work = self._on_device(plan.backward(constant, "x" in names), run_of.graph)
        work.run(found, self._part(run_of.graph), _draws(run_of))
        return {
            name: self._owned(found, value, plan.seeds, len(gradient))
            if name == "x"
            else found[value].reshape(value.shape) if value.space is P else found[value]
            for name, value in ((name, plan.by[name]) for name in names)
        }  # fmt: skip

    def _of_arcs(self, array: Array, value: Value, run_of: Pass) -> Array:
        """Return values of arcs in the form passed between layers, [arcs, columns]."""
        rows = run_of.graph.tables(**self._over).rows_of(E)
        array = array if len(array) == rows else np.broadcast_to(array, (rows, *value.shape))
        return array.reshape(rows, value.size)

    def builds(
        self, graph: Neighborhood, *, trains_constant: bool, evaluates_constant: bool, inputs: bool
    ) -> list[Build]:
        """Return the kernels that training and evaluation will need on the PE's device; none on a host (collective).

        Args:
            graph: the PE's part of the graph.
            trains_constant, evaluates_constant: whether the input is the constant of training or evaluation passes.
            inputs: whether the gradient by the input is needed.
        """
        works: list[Work | Turned] = []
        for plan, constant, trains in (
            (self._trained, trains_constant, True), (self._evaluated, evaluates_constant, False)
        ):  # fmt: skip
            works += [plan.making(constant), plan.forward(constant, trains)]
        works.append(self._trained.backward(trains_constant, inputs))
        done = (self._on_device(work, graph) for work in works)
        return [build for work in done if not isinstance(work, Work) for build in work.builds]

    def _on_device(self, work: Work | Turned, graph: Neighborhood) -> Work | DeviceWork | TurnedWork:
        """Return ``work`` in the form that the PE's device runs."""
        if isinstance(work, Turned):
            out = graph.out_arcs(**self._over)
            if self._device.get(work, (None, None))[0] is not out:
                done = TurnedWork(work, out, lambda part: self._on_device(part, graph), self.program.name, self.how)
                self._device[work] = out, done
            return self._device[work][1]
        tables = graph.device_tables(**self._over)
        if tables is None:
            return work
        if self._device.get(work, (None, None))[0] is not tables:
            self._device[work] = tables, DeviceWork(work, tables, self.program.name, self.how)
        return self._device[work][1]

    def leaves(self, plan: ProgramPlan, x: Features, run_of: Pass) -> dict[Value, Any]:
        """Return what the program reads: input, parameters, built-in inputs, and arc values of earlier layers."""
        graph, loops, found = run_of.graph, self.program.loops, {}
        for name, value in plan.trace.inputs.items():
            if name == "x":
                found[value] = x if len(self.shape) == 1 else dense(x).reshape(x.shape[0], *self.shape)
            elif name in self.arcs:
                found[value] = self._read(name, run_of).reshape(-1, *value.shape)
            elif name == "norm":
                found[value] = graph.norm_on_device(loops=loops)
            elif name == "scaler":
                found[value] = graph.scaler(loops=loops)
            elif value in plan.leaves:
                found[value] = graph.arc_weights(**self._over)
        for name, key in self._keys.items():
            found[plan.trace.parameters[key]] = run_of.weights[name][None]
        return found

    def _read(self, name: str, run_of: Pass) -> Array:
        """Return the values that an earlier layer kept, [arcs, columns]."""
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

    def _part(self, graph: Neighborhood) -> Part:
        """Return the PE's part for this layer; the part of the last graph is cached."""
        if self._known is None or self._known[0] is not graph or self._known[1].dense is not graph.arrays:
            self._known = graph, self._part_of(graph)
        return self._known[1]

    def _part_of(self, graph: Neighborhood) -> Part:
        arrays, loops = graph.arrays, self.program.loops

        def product(value: Value, rows: Array, _: Any, before: Array | None, after: Array | None) -> Array:
            plan = graph.transposed if value["back"] else graph.plan
            if len(value.inputs) == 1 or plan is None:
                given = rows if before is None else arrays.scale_rows(rows, before)
                out = self._over_arcs(graph, given, value["back"], weighted=len(value.inputs) > 1)
            else:
                given = _given(graph, plan, rows, before)
                out = plan(rows.shape[1])
                if loops and after is not None:
                    return arrays.add_and_scale(out, given, after)
                if loops:
                    return arrays.combined(out, 1, given, 1)
            return out if after is None else arrays.scale_rows(out, after, out=out)

        def fetch(x: Array) -> Array:  # looks up graph.halo on each call, because wider rows may replace it
            return graph.halo.fetch(x)

        def start_return(gradient: Array) -> Any:
            return graph.halo.start_return(gradient)

        def finish_return(started: Any) -> Array:
            return graph.halo.finish_return(started)

        return Part(
            len(graph.node_ids), partial(graph.tables, **self._over), arrays, graph.node_ids, graph.degrees + loops,
            fetch, start_return, finish_return, product, work=host.run, real=graph.real, place=self.place,
        )  # fmt: skip

    def _over_arcs(self, graph: Neighborhood, rows: Array, back: bool, *, weighted: bool) -> Array:
        """Multiply by a matrix that no plan has: ones per arc, or a data type that plans do not support."""
        arrays, tables, device = graph.arrays, graph.tables(**self._over), graph.device_tables(**self._over)
        if back and self.turns:
            return self._over_out_arcs(graph, rows, weighted=weighted)
        given, space = (rows, S) if back else (graph.halo.fetch(rows), D)
        weights = graph.arc_weights(**self._over) if weighted and tables.weights is not None else None
        if weights is not None and back:
            weights = weights[tables.out_arcs if device is None else device.table("arcs", E, S)]
        if device is not None:
            ptr, ends = device.pointer(E, space), device.table("ends", E, space)
        else:
            ptr, ends = (tables.out_ptr, tables.out_ends) if back else (tables.ptr, tables.ends)
        out = arrays.arc_sums(ptr, ends, weights, given)
        return graph.halo.give_back(out) if back else out

    def _over_out_arcs(self, graph: Neighborhood, rows: Array, *, weighted: bool) -> Array:
        """Multiply by the transposed matrix in the *turned* schedule."""
        out = graph.out_arcs(**self._over)
        tables, device = out.tables, out.on_device
        if device is not None:
            ptr, ends = device.pointer(E, S), device.table("ends", E, S)
            weights = out.weights[device.table("arcs", E, S)] if weighted else None
        else:
            ptr, ends = tables.out_ptr, tables.out_ends
            weights = tables.weights[tables.out_arcs] if weighted and tables.weights is not None else None
        return graph.arrays.arc_sums(ptr, ends, weights, out.rows(rows))


def _given(graph: Neighborhood, plan: Any, rows: Array, scale: Array | None) -> Array:
    """Write ``rows``, times ``scale`` [rows, 1], as the input of ``plan``; return them before any rounding."""
    if scale is not None and graph.dtype == "fp32":
        return graph.arrays.scale_rows(rows, scale, plan.input(rows.shape[1]))
    rows = rows if scale is None else graph.arrays.scale_rows(rows, scale)
    plan.write(rows.shape[1], rows)
    return rows


def programs_of(module: Module) -> list[VertexLayer]:
    """Return the vertex programs among the layers of ``module``, in order."""
    if isinstance(module, Composite):
        return [layer for each in module.modules for layer in programs_of(each)]
    return [module] if isinstance(module, VertexLayer) else []


def asked_of(chain: Chain, layer: VertexLayer, *, training: bool = True) -> tuple[bool, bool]:
    """Return whether the input of ``layer`` in ``chain`` never changes, and whether its gradient is needed."""
    before: list[Module] = []
    for module in chain.modules:
        if layer in programs_of(module):
            # Dropouts that drop nothing pass their input on.
            idle = all(isinstance(each, Dropout) and not (training and each.rate) for each in before)
            return module is layer and idle, any(each.parameters for each in before)
        before.append(module)
    raise AssertionError(f"{layer.name} is not in the chain")


def _added(sums: Collection[Value]) -> int:
    """Return the floats that an arc adds to separate sums of a launch; a winner is its entry and two ids."""
    return sum(pitch(v.size) * (5 if v.op == "winner" else 1) for v in sums if v.space is not P)


def _draws(run_of: Pass) -> tuple[int, Any]:
    epoch = run_of.epoch if run_of.training else 0
    return run_of.seed, int(epoch[0]) if isinstance(epoch, np.ndarray) else epoch
