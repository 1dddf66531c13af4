"""Plan the kernel launches of a schedule on a GPU: loops over arcs stage by stage, and work on rows between them.

A launch has one layout of lanes. Values that depend on a row's sums are computed in the launch that makes the sums, if
every lane has what it needs for them. The others are computed from arrays, in a launch over rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from mgg.vertex.cpu.loops import outside_of
from mgg.vertex.interpret import ELEMENTWISE, ROW_WISE
from mgg.vertex.ir import D, E, P, R, S, Space, T, Value, broadcast, walk
from mgg.vertex.online_softmax import joined, shift
from mgg.vertex.products import by_type
from mgg.vertex.run import Inner, Scaled, Step, needs
from mgg.vertex.units import Stage, Unit, is_count
from mgg.vertex.warp_layout import Axes, Layout, aligned, flat, wide


@dataclass(frozen=True)
class Launch:
    """A kernel, and the kernel that combines the rows it cut.

    Attributes:
        over: E or R, the items summed; None: each row is computed by itself.
        rows: the space of the sums: D, S, R or T.
        layout: the layout of its lanes.
        sums: sums over arcs or runs; sums to P are over all rows.
        after: values of rows, computed from sums and arrays, operands first.
        stored: values of arcs to write.
        outputs: those of ``sums`` and ``after`` to write.
        reads: values whose arrays it reads.
    """

    over: Space | None
    rows: Space
    layout: Layout
    sums: tuple[Value, ...] = ()
    after: tuple[Value, ...] = ()
    stored: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    reads: tuple[Value, ...] = ()

    @property
    def totals(self) -> tuple[Value, ...]:
        """The sums to P."""
        return tuple(v for v in self.sums if v.space is P and self.rows is not P)

    @property
    def partials(self) -> tuple[Value, ...]:
        """The sums per row, whose parts are stored if a row is cut."""
        return tuple(v for v in self.sums if v not in self.totals)

    @property
    def results(self) -> tuple[Value, ...]:
        """All values that it writes row by row."""
        return (*self.outputs, *self.stored)

    @cached_property
    def shifts(self) -> dict[Value, Value]:
        """The sums relative to a maximum of the same launch, and that maximum."""
        tops = {v for v in self.sums if v.op == "maximum_of"}
        found = ((v, shift(v.inputs[0], tops)) for v in self.sums if v.op == "total")
        return {v: top for v, top in found if top is not None}


def is_lazy(v: Value) -> bool:
    """Return whether ``v`` takes its operands' rows alone: it is computed where it is read, or in a launch of rows."""
    if v.space is E or v.op == "all_types" or is_count(v):
        return False
    if v.op == "cast":
        return v.space is R or v.inputs[0].space in (P, T)
    in_rows = v.op == "matmul" and v.inputs[1].space is not P and not by_type(v)
    return v.op in ELEMENTWISE or v.op in ROW_WISE or v.op == "mask" or in_rows


def planned(
    steps: Iterable[Step], given: Iterable[Value], wanted: Collection[Value]
) -> list[Launch | Value | Scaled | Inner]:
    """Return the launches, and between them the values that take other work (matrices, halos), in order.

    Args:
        steps: single steps, all of which are needed.
        given: values that have arrays at the start, including the inputs.
        wanted: values to have arrays at the end, except inputs, constants and casts of parameters.
    """
    steps = [*steps]
    planner = _Planner({*given}, steps)
    for step in steps:
        if isinstance(step, Unit):
            planner.unit(step)
        elif isinstance(step, Scaled | Inner):
            planner.need(needs(step))
            planner.add(step)
        elif not is_lazy(step):
            planner.other(step)
    planner.need(wanted)
    while planner.pending:  # a launch for one sum may include others
        planner.sum_up(planner.pending[0])
    return planner.found


class _Planner:
    def __init__(self, arrays: set[Value], steps: Iterable[Step]) -> None:
        self.arrays = arrays
        self.found: list[Launch | Value | Scaled | Inner] = []
        #: Sums over all rows, which any launch over these rows can include.
        self.pending = [v for v in steps if isinstance(v, Value) and v.op == "total" and v.space is P
                        and v.inputs[0].space in (D, S) and is_lazy(v.inputs[0])]  # fmt: skip
        self.read = {x for step in steps for x in needs(step)}

    def add(self, step: Launch | Value | Scaled | Inner) -> None:
        self.found.append(step)
        if isinstance(step, Launch):
            self.arrays.update((*step.results, *step.totals))
        else:
            self.arrays.add(step if isinstance(step, Value) else step.result)

    def other(self, v: Value) -> None:
        """Add a value that no launch over rows makes."""
        if v in self.arrays:
            return
        if v in self.pending:
            if v in self.read:
                self.sum_up(v)
            return
        finer = v.inputs[0].space if v.inputs else v.space
        if v.op in ("total", "gram") and v.space is T and finer is R and not is_count(v) and not by_type(v):
            self.need(self._few(v.inputs))
            reads = _read(v.inputs, self.arrays)
            self.add(Launch(R, T, Layout(v.shape), (v,), outputs=(v,), reads=tuple(reads)))
            return
        self.need(needs(v))
        self.add(v)

    def need(self, values: Iterable[Value]) -> None:
        """Add the launches over rows that make arrays of ``values``."""
        found = dict.fromkeys(v.inputs[0] if _of_all(v) and v not in self.arrays else v for v in values)
        lacking = [v for v in found if v not in self.arrays and is_lazy(v)]
        for v in [v for v in lacking if v.op == "reshape" and not _of_all(v.inputs[0])]:  # reshaping takes no launch
            self.need(v.inputs)
            if v.inputs[0] in self.arrays:
                self.add(v)
                lacking.remove(v)
        lacking = [*dict.fromkeys([*self._few(lacking), *lacking])]
        for space in (P, T, D, S, R):
            for layout, group in _groups([v for v in lacking if v.space is space], self.arrays):
                self._rows(space, layout, group, self._taken_along(space, group))

    def sum_up(self, v: Value) -> None:
        """Add a sum over all rows that no other launch includes."""
        x = v.inputs[0]
        self.pending.remove(v)
        if x in self.arrays or not self._ready(v, x.space):
            self.need(v.inputs)
            self.add(v)
        else:
            self._rows(x.space, Layout(x.shape), [], [v])

    def _ready(self, v: Value, space: Space) -> bool:
        """Return whether a launch over rows of ``space`` can compute the sum ``v``."""
        inside = [x for x in _inside(v.inputs, self.arrays) if x not in self.arrays]
        made = all(is_lazy(x) or x.op == "constant" or _of_all(x) for x in inside)
        return v.inputs[0].space is space and bool(inside) and made and not self._few(v.inputs)

    def _taken_along(self, space: Space, group: Sequence[Value]) -> list[Value]:
        """Return the pending sums that share reads with a launch for ``group`` and fit its layout or widen it."""
        found: list[Value] = []
        for v in self.pending:
            ends = [*group, *(x.inputs[0] for x in found)]
            shared = {*_read(v.inputs, self.arrays)} & {*_read(ends, self.arrays)}
            if self._ready(v, space) and shared and _layout([*ends, v.inputs[0]], self.arrays) is not None:
                found.append(v)
        return found

    def _rows(self, space: Space, layout: Layout, outputs: Sequence[Value], sums: Sequence[Value]) -> None:
        """Add a launch over rows."""
        ends = [*outputs, *(v.inputs[0] for v in sums)]
        after = tuple(v for v in _inside(ends, self.arrays) if v not in self.arrays)
        reads = tuple(_read(ends, self.arrays))
        self.pending = [v for v in self.pending if v not in sums]
        self.add(Launch(None, space, (_layout(ends, self.arrays) if sums else None) or layout, tuple(sums), after, (),
                        tuple(outputs), reads))  # fmt: skip

    def _few(self, values: Iterable[Value]) -> list[Value]:
        """Return the operands of ``values`` in P or T to compute once beforehand, not for every row that reads them."""
        found = {
            x: None
            for v in walk(values, self.arrays.__contains__)
            if v not in self.arrays and v.space not in (P, T)
            for x in v.inputs
            if x.space in (P, T) and x not in self.arrays and is_lazy(x) and not _of_all(x)
        }
        return list(found)

    def unit(self, unit: Unit) -> None:
        """Add the launches of a loop over arcs."""
        self.need(outside_of(unit))
        made = [v for stage in unit.stages for v in (*stage.sums, *stage.rows) if not _of_all(v)]
        known = self.arrays | {v for v in made if v.space is not E}
        launches: list[Launch] = []
        stages = joined(unit.stages, unit.stored)
        for stage in stages:
            tops = {v for v in stage.sums if v.op == "maximum_of"} if len(stages) < len(unit.stages) else set()
            launches += self._stage(unit, stage, known - tops)
        if not all(map(_is_whole, launches)):
            launches = [each for stage in unit.stages for each in self._stage(unit, stage, known)]
        own = {v for each in launches for v in (*each.sums, *each.after)}
        wanted = {*unit.results}
        wanted.update(x for v in made if v not in own for x in _read([v], known - {v}))
        for each in launches:
            wanted.update(each.reads)
        for each in launches:
            self.need(each.reads)
            outputs = [v for v in (*each.sums, *each.after) if v in wanted and v not in each.totals]
            self.add(replace(each, outputs=tuple(outputs)))
        self.need(unit.results)

    def _stage(self, unit: Unit, stage: Stage, known: set[Value]) -> Iterator[Launch]:
        to_types = [v for v in stage.sums if v.space is T and unit.rows is not T]
        for v in to_types:
            yield Launch(unit.over, T, Layout(v.shape), (v,), reads=tuple(_read(v.inputs, known)))
        ends = [v for v in stage.sums if v not in to_types]
        ends += [v for v in unit.stored if v in stage.values and v not in self.arrays]
        pending = [v for v in stage.rows if not _of_all(v)]
        for layout, group in _groups(ends, known):
            sums = [v for v in group if v.space is not E]
            inside, after = {v for v in sums if v.space is unit.rows}, []
            for v in list(pending):
                if fits(v, layout, inside, known - {*pending} - {*stage.sums}):
                    inside.add(v)
                    after.append(v)
                    pending.remove(v)
            stored = [v for v in group if v.space is E]
            made = [x for v in sums for x in v.inputs]
            reads = dict.fromkeys([*_read(made, known), *_read(stored, known - {*stored})])
            reads |= dict.fromkeys(x for v in after for x in _read(v.inputs, known) if x not in inside)
            yield Launch(unit.over, unit.rows, layout, tuple(sums), tuple(after), tuple(stored), (), tuple(reads))


def _is_whole(launch: Launch) -> bool:
    """Return whether all values relative to a maximum are summed with it, and each lane has one entry of it."""
    tops = {x for v in launch.sums for x in walk(v.inputs, launch.reads.__contains__) if x.op == "maximum_of"}
    axes = [launch.layout.axes(top.shape) for top in tops & {*launch.shifts.values()}]
    return tops <= {*launch.sums} and not any(each is None or wide(each) for each in axes)


def operands(v: Value, axes: Axes) -> list[tuple[Value, Axes]] | None:
    """Return the operands' entries that entry ``axes`` of ``v`` depends on; None: there are many, or it varies."""
    if v.op == "repeat_axis":
        axis = v["axis"]
        return [(v.inputs[0], axes[:axis] + axes[axis + 1 :])]
    if v.op == "slice":
        return [(v.inputs[0], (*axes[:-1], f"({axes[-1]} + {v['first']})" if v["first"] else axes[-1]))]
    if v.op == "transpose":
        return [(v.inputs[0], axes[::-1])]
    if v.op == "reshape":
        return [(v.inputs[0], unflattened(flat(axes, v.shape), v.inputs[0].shape))]
    if v.op in ELEMENTWISE or v.op in ("leaky_relu", "power", "cast"):
        return [(x, aligned(axes, x.shape)) for x in v.inputs]
    return None


def unflattened(place: str, shape: Sequence[int]) -> Axes:
    """Return the axes of the entry at ``place`` in C order."""
    if len(shape) == 1:
        return ("0" if shape[0] == 1 else place if place.isalnum() else f"({place})",)
    axes: list[str] = []
    stride = 1
    for length in reversed(shape):
        over = f"({place})" if stride == 1 else f"(({place}) / {stride})"
        axes.append("0" if length == 1 else over if len(axes) == len(shape) - 1 else f"({over} % {length})")
        stride *= length
    return tuple(reversed(axes))


def in_lanes(v: Value, axes: Axes, layout: Layout) -> bool:
    """Return whether ``axes`` is the entry of ``v`` that the lane holds."""
    own = layout.axes(v.shape)
    return own is not None and (own == axes or _place(own, v) == _place(axes, v))


def _place(axes: Axes, v: Value) -> str:
    place = flat(axes, v.shape)
    while place.startswith("(") and _closes(place) == len(place) - 1:
        place = place[1:-1]
    return place


def _closes(text: str) -> int:
    depth = 0
    for n, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if not depth:
            return n
    return -1


def reduced(v: Value, layout: Layout) -> bool:
    """Return whether ``v`` sums over the columns of a head, which the lanes of that head hold."""
    if v.op == "dot":
        shape = broadcast([x.shape for x in v.inputs])
    elif v.op == "sum_axis" and v["axis"] == len(v.inputs[0].shape) - 1:
        shape = v.inputs[0].shape
    else:
        return False
    return bool(shape) and shape == layout.shape and layout.column_tiles == 1


def fits(v: Value, layout: Layout, inside: Collection[Value], known: Collection[Value]) -> bool:
    """Return whether lanes can compute ``v`` from the values they hold (``inside``) and the arrays ``known``."""
    axes = layout.axes(v.shape)
    if axes is None:
        return False
    if reduced(v, layout):
        parts: list[tuple[Value, Axes]] | None = [
            (x, aligned(layout.axes(layout.shape) or (), x.shape)) for x in v.inputs
        ]
    else:
        parts = operands(v, axes)
    if parts is None:
        return v.op == "mask"
    for operand, entry in parts:
        x = operand
        while x.op == "cast" and x not in inside and x not in known:
            x = x.inputs[0]
        if x in inside:
            if not in_lanes(x, entry, layout):
                return False
        elif x.op != "constant" and x.space is not P and x not in known:
            return False
    return True


def _groups(values: Sequence[Value], arrays: Collection[Value]) -> list[tuple[Layout, list[Value]]]:
    """Group the values that can share a layout; return each layout with its values, in the order of ``values``."""
    groups: list[tuple[Layout, list[Value]]] = []
    for v in sorted(values, key=lambda v: -v.size):
        for n, (_, group) in enumerate(groups):
            apart = "gram" in (v.op, group[0].op) or not v.size
            layout = None if apart else _layout([*group, v], arrays)
            if layout is not None:
                groups[n] = layout, [*group, v]
                break
        else:
            layout = _layout([v], arrays)
            groups.append((layout or Layout(v.shape), [v]))
    order = {v: n for n, v in enumerate(values)}
    return [(layout, sorted(group, key=order.__getitem__)) for layout, group in groups]


def _layout(values: Sequence[Value], arrays: Collection[Value]) -> Layout | None:
    """Return the widest layout that includes every value; None: no layout does."""
    shapes = {v.shape: False for v in values}
    for v in _inside(values, arrays):
        if v in arrays:
            continue
        if v.op == "dot":
            shapes[broadcast([x.shape for x in v.inputs])] = True
        elif v.op == "sum_axis" and v["axis"] == len(v.inputs[0].shape) - 1:
            shapes[v.inputs[0].shape] = True
    if any(v.size for v in values):  # empty values need no lanes
        shapes = {shape: together for shape, together in shapes.items() if prod(shape)}
    for shape in sorted(shapes, key=lambda shape: (-prod(shape), not shapes[shape])):
        layout = Layout(shape, shapes[shape])
        if all(layout.includes(v.shape) for v in values):
            return layout
    return None


def _inside(values: Iterable[Value], arrays: Collection[Value]) -> Iterator[Value]:
    """Yield ``values`` and all they are made of, operands first, down to ``arrays`` and leaves."""
    first = set(values)
    return walk(first, lambda v: v in arrays and v not in first)


def _read(values: Iterable[Value], arrays: Collection[Value]) -> list[Value]:
    """Return the ``arrays`` that ``values`` are made of, including the values that are arrays themselves."""
    return [v for v in walk(values, arrays.__contains__) if v in arrays]


def _of_all(v: Value) -> bool:
    return v.op == "cast" and v.inputs[0].space is P
