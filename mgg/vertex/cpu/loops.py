"""Generate loops over arcs: the work of a unit for every row and each of its arcs, as source for numba.

Values of an arc or of a row live in scalars and small buffers: arrays [arcs, columns] exist only for values that a
program stores. All computation is float64, rounded when results are stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mgg.vertex.ir import D, E, P, R, S, Space, T, Value
from mgg.vertex.units import Stage, Unit
from mgg.vertex.warp_layout import Axes, aligned, flat

#: Elementwise operations as expressions of their operands.
_EXPRESSIONS = {
    "negative": "(-{})", "reciprocal": "(1.0 / {})", "exp": "np.exp({})", "log": "np.log({})", "sqrt": "np.sqrt({})",
    "tanh": "np.tanh({})", "sigmoid": "sigmoid({})", "relu": "max({}, 0.0)", "leaky_relu": "leaky({}, {slope!r})",
    "elu": "elu({})", "abs": "abs({})", "power": "({} ** {exponent!r})", "stop": "{}",
    "add": "({} + {})", "subtract": "({} - {})", "multiply": "({} * {})", "divide": "({} / {})",
    "maximum": "max({}, {})", "minimum": "min({}, {})", "greater": "(1.0 if {} > {} else 0.0)",
    "equal": "(1.0 if {} == {} else 0.0)", "where": "({1} if {0} != 0.0 else {2})",
}  # fmt: skip


class _Writer:
    """Writes the lines of one function."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[Value, str] = {}  # arguments, buffers and scalars
        self.buffers: list[tuple[str, int]] = []
        self.masks = masks_of(unit)
        self.count = 0
        self.outside = {value: f"x{n}" for n, value in enumerate(outside_of(unit))}
        self.results = {value: f"y{n}" for n, value in enumerate(results_of(unit))}
        self.stored: set[Value] = set()

    def line(self, text: str) -> None:
        """Write a line."""
        self.lines.append("    " * self.depth + text)

    def name(self, prefix: str) -> str:
        """Return a new name."""
        self.count += 1
        return f"{prefix}{self.count}"

    def buffer(self, size: int) -> str:
        """Return the name of a new float64 buffer."""
        name = self.name("b")
        self.buffers.append((name, size))
        return name

    def loops(self, shape: Sequence[int], body: Callable[[Axes], str]) -> None:
        """Write loops that run ``body`` for every entry of ``shape``."""
        if 0 in shape:
            return
        axes = []
        for length in shape:
            axis = self.name("i") if length > 1 else "0"
            if length > 1:
                self.line(f"for {axis} in range({length}):")
                self.depth += 1
            axes.append(axis)
        self.line(body(tuple(axes)))
        self.depth -= sum(length > 1 for length in shape)

    # Values.

    def prepare(self, values: Sequence[Value], uses: Mapping[Value, int] | None = None) -> None:
        """Compute ``values``, operands first, into buffers and scalars: all of them, or with ``uses`` those that are
        not inlined as expressions.
        """
        for value in values:
            of_all = value.op == "cast" and value.inputs[0].space is P
            inline = of_all if uses is None else self._inline(value, uses)
            if value in self.names or value in self.outside or inline:
                continue
            if not value.shape:
                name = self.name("s")
                self._define(value, "", name)
            else:
                name = self.buffer(value.size)
                self._define(value, name, "")
            self.names[value] = name

    def _inline(self, value: Value, uses: Mapping[Value, int]) -> bool:
        if value.op != "mask" and value.op in (*_READS, "input"):
            return True
        return value.op in (*_EXPRESSIONS, "mask") and uses[value] == 1 and bool(value.shape)

    def _define(self, value: Value, buffer: str, scalar: str) -> None:
        def into(axes: Axes) -> str:
            return scalar or f"{buffer}[{flat(axes, value.shape)}]"

        x = value.inputs[0] if value.inputs else value
        if value.op in (*_EXPRESSIONS, "mask"):
            self.loops(value.shape, lambda axes: f"{into(axes)} = {self.read(value, axes, whole=True)}")
        elif value.op in ("dot", "sum_axis"):
            axis = len(x.shape) - 1 if value.op == "dot" else value["axis"]
            self.loops(value.shape, lambda axes: f"{into(axes)} = 0.0")

            def step(axes: Axes) -> str:
                rest = axes[:axis] + axes[axis + 1 :]
                term = " * ".join(self.read(each, aligned(axes, each.shape)) for each in value.inputs)
                return f"{into(rest)} += {term}"

            lengths = x.shape if value.op == "sum_axis" else (*value.shape, x.shape[-1])
            self.loops(lengths, step)
        elif value.op == "matmul":
            w = value.inputs[1]
            lead = len(x.shape) - 1
            self.loops(value.shape, lambda axes: f"{into(axes)} = 0.0")

            def product(axes: Axes) -> str:
                outer, inner, rest = axes[:lead], axes[lead], axes[lead + 1 :]
                return f"{into(outer + rest)} += {self.read(x, (*outer, inner))} * {self.read(w, (inner, *rest))}"

            self.loops((*x.shape, *w.shape[1:]), product)
        elif value.op in ("repeat_axis", "slice", "cast", "constant"):
            self.loops(value.shape, lambda axes: f"{into(axes)} = {self.read(value, axes)}")
        elif value.op == "reshape":
            source = self.buffer(value.size)
            self.loops(x.shape, lambda axes: f"{source}[{flat(axes, x.shape)}] = {self.read(x, axes)}")
            self.loops(value.shape, lambda axes: f"{into(axes)} = {source}[{flat(axes, value.shape)}]")
        elif value.op == "concat":
            first = 0
            for part in value.inputs:

                def copy(axes: Axes, part: Value = part, first: int = first) -> str:
                    return f"{into((*axes[:-1], f'({axes[-1]} + {first})'))} = {self.read(part, axes)}"

                self.loops(part.shape, copy)
                first += part.shape[-1]
        elif value.op == "pad":
            self.loops(value.shape, lambda axes: f"{into(axes)} = 0.0")
            begin = value["first"]
            self.loops(x.shape, lambda axes: f"{into((*axes[:-1], f'({axes[-1]} + {begin})'))} = {self.read(x, axes)}")
        else:
            raise AssertionError(f"{value.op} a {value.space.value}")

    def read(self, value: Value, axes: Axes, *, whole: bool = False) -> str:
        """Return the entry ``axes`` of ``value`` as an expression; ``whole``: do not use its name, if it has one."""
        if value in self.names and not whole:
            name = self.names[value]
            return f"{name}[{flat(axes, value.shape)}]" if value.shape else name
        if value in self.outside:
            return self._outer(value, value.space, axes)
        if value.op in _READS:
            return _READS[value.op](self, value, axes)
        operands = [self.read(x, aligned(axes, x.shape)) for x in value.inputs]
        return _EXPRESSIONS[value.op].format(*operands, **dict(value.attributes))

    def _repeated(self, value: Value, axes: Axes) -> str:
        return self.read(value.inputs[0], axes[: value["axis"]] + axes[value["axis"] + 1 :])

    def _slice(self, value: Value, axes: Axes) -> str:
        return self.read(value.inputs[0], (*axes[:-1], f"({axes[-1]} + {value['first']})"))

    def _won(self, value: Value, axes: Axes) -> str:
        return f"(1.0 if {self.read(value.inputs[0], axes)} == arc else 0.0)"

    def _cast(self, value: Value, axes: Axes) -> str:
        x = value.inputs[0]
        while x.op == "cast" and x not in self.outside and x not in self.names:
            x = x.inputs[0]
        if x in self.names:  # a value of the current row
            return self.read(x, axes)
        if x.op == "constant":
            return repr(x["value"])
        if x in self.outside:
            return self._outer(x, value.space, axes)
        raise AssertionError(f"cast of {x.op} a {x.space.value}: no array and not of the row at hand")

    def _outer(self, x: Value, seen_from: Space, axes: Axes) -> str:
        """Return an entry of an input array, which is [rows of its space, size], but [size] for P."""
        name, at = self.outside[x], flat(axes, x.shape)
        if x.space is P:
            return f"{name}[{at}]"
        by_arc = seen_from is self.unit.over
        row = {
            E: "arc",
            T: "types[arc]" if seen_from is E else "types[ptr[row]]" if self.unit.rows is R else "run_types[run]",
            D: "target" if by_arc or self.unit.rows is R else "row",
            S: "source" if by_arc else "row",
            R: "run" if by_arc and self.unit.rows is not R else "row",
        }[x.space]
        return f"{name}[{row}, {at}]"

    def _mask(self, value: Value, axes: Axes) -> str:
        n, rate = self.masks.index(value), value["rate"]
        row, end = ("source", "target") if value["flipped"] else ("target", "source")
        column = f"np.uint64(ids[{end}]) * np.uint64({value.size}) + np.uint64({flat(axes, value.shape)})"
        state = f"row_state(keys[{n}], np.uint64(ids[{row}]))"
        return f"({1 / (1 - rate)!r} if number_at({state}, {column}) >= np.float32({rate!r}) else 0.0)"


#: Operations that are computed at each read.
_READS: dict[str, Callable[[_Writer, Value, Axes], str]] = {
    "cast": _Writer._cast, "repeat_axis": _Writer._repeated, "slice": _Writer._slice, "won": _Writer._won,
    "mask": _Writer._mask, "constant": lambda writer, value, axes: repr(value["value"]),
}  # fmt: skip


def source_of(unit: Unit) -> str:
    """Return the source of a function, in numba's Python, that runs ``unit`` over the arcs of a range of rows.

    Its arguments: ``first`` and ``last``, the range; ``ptr``, where the arcs of each row begin; ``ends`` and ``arcs``,
    the other end of each arc and its number in the order by target; ``targets`` and ``run_types`` of runs; ``types``
    and ``run_of`` of arcs by target; ``ids`` of sources; ``keys``, one per mask in the order of ``masks_of``; then the
    arrays of ``outside_of`` and of ``results_of``. Arrays are [rows, size], but [size] for P; results in P and T must
    be 0 at the start.
    """
    writer = _Writer(unit)
    writer.line("for row in range(first, last):")
    writer.depth += 1
    if unit.rows is R:
        writer.line("target = targets[row]")
    for stage in unit.stages:
        _write_stage(writer, stage)
    for value, name in writer.results.items():
        if value.space is unit.rows:
            writer.loops(value.shape, partial(_store, writer, name, "row", value))
    names = ["first", "last", "ptr", "ends", "arcs", "targets", "run_types", "types", "run_of", "ids", "keys"]
    head = f"def unit({', '.join([*names, *writer.outside.values(), *writer.results.values()])}):"
    made = [f"    {name} = np.empty({size})" for name, size in writer.buffers]
    return "\n".join([head, *made, *writer.lines, ""])


def outside_of(unit: Unit) -> list[Value]:
    """Return the values that ``unit`` reads as arrays; it draws masks of arcs itself."""
    return [x for values in unit.reads.values() for x in values if (x.op, x.space) != ("mask", E)]


def results_of(unit: Unit) -> list[Value]:
    """Return the values that ``unit`` writes to arrays."""
    return [*unit.results, *unit.stored]


def masks_of(unit: Unit) -> list[Value]:
    """Return the masks of arcs that ``unit`` draws, in the order of its ``keys``."""
    return [x for x in unit.reads.get(E, ()) if x.op == "mask"]


#: Statements that identify an arc (or run), by the unit's items and rows.
_ENDS = {
    (E, D): ("source, target, run, arc = ends[k], row, run_of[k], k",),
    (E, R): ("source, run, arc = ends[k], row, k",),
    (E, S): ("source, target, arc = row, ends[k], arcs[k]", "run = run_of[arc]"),
    (R, D): ("target, run = row, k",),
}


#: Initial values of aggregations.
_STARTS = {"total": "0.0", "maximum_of": "-np.inf", "minimum_of": "np.inf", "winner": "-1.0"}


def _write_stage(writer: _Writer, stage: Stage) -> None:
    sums: dict[Value, str] = {}
    best: dict[Value, str] = {}  # the largest or smallest entry so far, for winners
    for value in stage.sums:
        if value.space is writer.unit.rows:
            sums[value] = name = writer.buffer(value.size)
            writer.line(f"{name}[:] = {_STARTS[value.op]}")
            if value.op == "winner":
                best[value] = writer.buffer(value.size)
                writer.line(f"{best[value]}[:] = {_STARTS[value['of']]}")
    writer.line("for k in range(ptr[row], ptr[row + 1]):")
    writer.depth += 1
    for line in _ENDS[writer.unit.over, writer.unit.rows]:
        writer.line(line)
    stored = [value for value in stage.values if value in writer.unit.stored and value not in writer.stored]
    writer.stored |= set(stored)
    writer.prepare(stage.values, _uses(stage.values, [x for value in stage.sums for x in value.inputs] + stored))
    for value in stage.sums:
        _write_aggregation(writer, value, sums, best)
    for value in stored:
        name = writer.results[value]
        writer.loops(value.shape, partial(_store, writer, name, "arc", value))
    writer.depth -= 1
    for value in stage.values:
        writer.names.pop(value, None)
    for value, name in sums.items():
        writer.names[value] = name if value.shape else f"{name}[0]"
        if value.op in ("maximum_of", "minimum_of"):
            writer.line("if ptr[row] == ptr[row + 1]:")
            writer.line(f"    {name}[:] = 0.0")
    writer.prepare(stage.rows)


def _uses(values: Sequence[Value], readers: Sequence[Value]) -> Counter[Value]:
    """Count the computations of each value without a name: one per reader, two for readers that read repeatedly."""
    uses = Counter(readers)
    for value in values:
        for x in value.inputs:
            again = value.op in ("matmul", "gram", "reshape") or (x.shape != value.shape and value.op in _EXPRESSIONS)
            uses[x] += 2 if again else 1
    return uses


def _write_aggregation(
    writer: _Writer, value: Value, sums: Mapping[Value, str], best: Mapping[Value, str]
) -> None:  # fmt: skip
    x = value.inputs[0]
    if value.space is not writer.unit.rows:
        name, row = writer.results[value], "types[arc], " if value.space is T else ""
        if value.op == "total":
            writer.loops(value.shape, lambda axes: f"{name}[{row}{flat(axes, value.shape)}] += {writer.read(x, axes)}")
            return
        y, lead = value.inputs[1], len(x.shape) - 1

        def outer(axes: Axes) -> str:
            first, inner, rest = axes[:lead], axes[lead], axes[lead + 1 :]
            term = f"{writer.read(x, (*first, inner))} * {writer.read(y, (*first, *rest))}"
            return f"{name}[{row}{flat((inner, *rest), value.shape)}] += {term}"

        writer.loops((*x.shape, *y.shape[lead:]), outer)
    elif value.op == "total":
        writer.loops(value.shape, lambda axes: f"{sums[value]}[{flat(axes, value.shape)}] += {writer.read(x, axes)}")
    elif value.op == "winner":
        taken, most = sums[value], best[value]
        sign = ">" if value["of"] == "maximum_of" else "<"

        def win(axes: Axes) -> str:
            at, entry = flat(axes, value.shape), writer.name("v")
            first = f"ids[source] < ids[ends[int({taken}[{at}])]]" if writer.unit.rows is not S else "False"
            earlier = f"{entry} == {most}[{at}] and ({taken}[{at}] < 0 or {first})"
            return (
                f"{entry} = {writer.read(x, axes)}\n{'    ' * writer.depth}"
                f"if {entry} {sign} {most}[{at}] or ({earlier}):\n{'    ' * writer.depth}    "
                f"{most}[{at}], {taken}[{at}] = {entry}, arc"
            )

        writer.loops(value.shape, win)
    else:
        sign = ">" if value.op == "maximum_of" else "<"

        def better(axes: Axes) -> str:
            entry, goal = writer.name("v"), f"{sums[value]}[{flat(axes, value.shape)}]"
            indent = "    " * writer.depth
            return (
                f"{entry} = {writer.read(x, axes)}\n{indent}if {entry} {sign} {goal} or {entry} != {entry}:\n"
                f"{indent}    {goal} = {entry}"
            )

        writer.loops(value.shape, better)


def _store(writer: _Writer, name: str, row: str, value: Value, axes: Axes) -> str:
    return f"{name}[{row}, {flat(axes, value.shape)}] = {writer.read(value, axes)}"
