"""Generate CUDA for values: the lines and expressions by which a lane computes them (``mgg.vertex.cuda``).

A lane holds its columns of a value (``mgg.vertex.warp_layout``) in registers. Sums over the last axis whose terms are
spread over the lanes of a head take shuffles. Any other entry is recomputed where it is read, so that every program has
a kernel.

If a head has several lanes, each of them would compute the same per-arc numbers: ends, score, mask. Instead, a group of
lanes takes a window of arcs. First each lane computes the numbers of one arc and one head (called narrow values); then
all lanes of that head fetch them by shuffles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import inf, isinf, isnan

from mgg.vertex.cuda.launches import Launch, in_lanes, operands, reduced
from mgg.vertex.ir import D, E, P, R, S, Space, T, Value
from mgg.vertex.rewrites.factors import Tameness
from mgg.vertex.warp_layout import COLUMN, HEAD, Axes, aligned, flat, pitch, wide

#: Least number of lanes per head for which one lane computes the numbers of an arc and the others fetch them.
WINDOWED = 4
#: Longest sum that the compiler may unroll freely: the terms of longer sums would not fit the registers.
UNROLLED = 16

#: Expressions of elementwise operations, with their operands and attributes.
_EXPRESSIONS = {
    "negative": "(-{})", "reciprocal": "(1.0f / {})", "exp": "expf({})", "log": "logf({})", "sqrt": "sqrtf({})",
    "tanh": "tanhf({})", "sigmoid": "mgg::sigmoid({})", "relu": "mgg::larger({}, 0.0f)",
    "leaky_relu": "mgg::leaky_relu({}, {slope})", "elu": "mgg::elu({})", "abs": "fabsf({})",
    "power": "powf({}, {exponent})", "stop": "{}", "add": "({} + {})", "subtract": "({} - {})",
    "multiply": "({} * {})", "divide": "({} / {})", "maximum": "mgg::larger({}, {})",
    "minimum": "mgg::smaller({}, {})", "greater": "({} > {} ? 1.0f : 0.0f)", "equal": "({} == {} ? 1.0f : 0.0f)",
    "where": "({0} != 0.0f ? {1} : {2})",
}  # fmt: skip
#: The indices of item ``k`` in a list of arcs or runs, by the items summed and the rows of the sums, with the table
#: that holds each, if any. ``arc`` and ``run`` within brackets are items themselves.
ITEMS: dict[tuple[Space | None, Space], dict[str, str]] = {
    (E, D): {"source": "ends[k]", "target": "row", "arc": "k", "run": "run_of[k]", "type": "types[k]"},
    (E, R): {"source": "ends[k]", "target": "run_targets[row]", "arc": "k", "run": "row", "type": "run_types[row]"},
    (E, S): {"source": "row", "target": "ends[k]", "arc": "arcs[k]", "run": "run_of[arc]", "type": "types[arc]"},
    (E, T): {
        "source": "ends[arc]", "target": "targets[arc]", "arc": "arcs[k]", "run": "run_of[arc]", "type": "row",
    },
    (R, D): {"run": "k", "target": "row", "type": "run_types[k]"},
    (R, T): {"run": "arcs[k]", "target": "run_targets[run]", "type": "row"},
    (None, D): {"target": "row"},
    (None, S): {"source": "row"},
    (None, T): {"type": "row"},
    (None, P): {},
    (None, R): {"run": "row", "target": "run_targets[row]", "type": "run_types[row]"},
}  # fmt: skip
#: Element types of these tables, and the tables whose entries are read only once.
TABLES = {
    "ends": "mgg::Index", "arcs": "long long", "targets": "int", "run_of": "long long", "types": "int",
    "run_targets": "long long", "run_types": "int", "ids": "long long",
}  # fmt: skip
_READ_ONCE = ("ends", "arcs", "types", "run_of")
#: The item that indexes the rows of a space.
ROWS_OF = {S: "source", D: "target", E: "arc", R: "run", T: "type"}


class Values:
    """The lines that compute the values of a launch, and the expressions that read them.

    Args:
        launch: the launch.
        padded: arrays whose rows are ``lanes.pitch`` apart.

    Attributes:
        parts: lines by position: ``rows``, before the loop over a row's arcs; ``start``, reads for the first window;
            ``window``, declarations of a window; ``fetched``, what a lane reads for its arc in the window; ``narrow``,
            what it computes from that; ``scaled``, what depends on all arcs in the window; ``indices`` and ``loads``,
            for each arc in flight; ``arcs``, computations on these; ``after``, when the row's sums are complete.
        tables, reads, masks: tables, arrays and masks that the lines need, in the order of the kernel's arguments.
        windowed: whether lanes compute narrow values for each other.
        looping: whether new lines are for arcs, rather than for rows whose sums are complete.
        late: whether some of ``loads`` depend on ``narrow`` lines.
        words: registers per arc in flight for loads and for values computed ahead.
    """

    def __init__(self, launch: Launch, padded: Collection[Value]) -> None:
        self.launch, self.layout, self.padded = launch, launch.layout, padded
        self.items = ITEMS[launch.over, launch.rows]
        self.tables: list[str] = []
        self.reads: list[Value] = []
        self.masks: list[Value] = []
        self.parts: dict[str, list[str]] = {
            part: []
            for part in ("rows", "start", "window", "fetched", "narrow", "scaled", "indices", "loads", "arcs", "after")
        }
        self.windowed = launch.over is not None and self.layout.head_lanes >= WINDOWED
        self.looping, self.late, self.words = True, False, 0
        self._early: set[str] = set()  # names of values read ahead for an arc in the window
        self._names: dict[Value, str] = {}
        self._known: dict[str, str] = {}  # names of items, and of numbers fetched from other lanes
        self._narrowing = False  # new lines are for a lane's own arc in the window; their names are kept apart:
        self._narrow_names: dict[Value, str] = {}
        self._narrow_known: dict[str, str] = {}
        self._of_rows: set[Value] = set()  # values named before the loop over arcs
        self._zeros: dict[Value, str] = {}  # names of numbers that are 0 in lanes without an arc
        self._tame = Tameness()
        self._ahead = False  # new lines are for all arcs in flight, before any of them is processed
        self._count = 0

    def line(self, part: str, text: str) -> None:
        """Add a line to a part."""
        self.parts[part].append(text)

    def name(self, prefix: str) -> str:
        """Return a new name."""
        self._count += 1
        return f"{prefix}{self._count}"

    def complete(self, sums: dict[Value, str]) -> None:
        """End the loop over arcs: new lines are for rows whose ``sums`` (with their names) are complete."""
        self.looping = False
        self._names = {v: name for v, name in self._names.items() if v in self._of_rows} | sums

    def raised(self, top: Value, name: str, scaled: Callable[[str], list[str]]) -> str | None:
        """Write the lines that update the maximum ``top`` of a row with an arc, or with the arcs in the window.

        Args:
            top: the maximum.
            name: the name of the maximum so far.
            scaled: returns statements that multiply the sums relative to it by a number.

        Returns:
            The name of that number if lanes compute it from the arcs in the window (the sums are not multiplied yet),
            otherwise None.
        """
        score, by = top.inputs[0], self.name("n")
        if self.is_narrow(score):
            here = self.in_window(lambda: self.lane(score))
            self.line("narrow", f"const float {by} = L::narrow_raise({name}, {here});")
            self._narrow_names[top] = name
            return by
        self._ahead, most = True, self.name("n")
        here = self.lane(score)
        self._ahead = False
        self.line("loads", f"float {most} = {name}; MGG_ARCS {most} = mgg::highest({most}, {here});")
        self.line("loads", f"const float {by} = mgg::raise({name}, {most});")
        for text in scaled(by):
            self.line("loads", text)
        self._names[top] = name
        return None

    # Memory locations.

    def table(self, name: str) -> str:
        """Make a table an argument of the kernel; return its name."""
        if name not in self.tables:
            self.tables.append(name)
        return name

    def array(self, v: Value) -> str:
        """Make the array of a value an argument of the kernel; return its name."""
        if v not in self.reads:
            self.reads.append(v)
        return f"x{self.reads.index(v)}"

    def fixed(self, what: str) -> bool:
        """Return whether an item is the same for all arcs of a row."""
        return self.items[what] == "row" or self.items[what].endswith("[row]")

    def item(self, what: str) -> str:
        """Return an index of the current arc or row: its source, target, run or type, or the arc's own."""
        text, known = self.items[what], self._narrow_known if self._narrowing else self._known
        if text == "row":
            return "row"
        if text == "k":
            return "k" if self._narrowing else "k[u]"
        if what in known:
            return known[what]
        table, inner = text[:-1].split("[")
        kind = TABLES[table]
        if inner == "row":
            name = self._known[what] = self._narrow_known[what] = self.name("i")
            self.line("rows", f"const {kind} {name} = __ldg({self.table(table)} + row);")
            return name
        load = "mgg::load_once" if table in _READ_ONCE else "__ldg"
        if self._narrowing:
            name, entry = self.name("i"), f"{load}({self.table(table)} + %s)"
            if inner == "k":
                ahead = self.name("i")
                self.line("start", f"{kind} {ahead} = most ? {entry % 'place_of(0)'} : 0;")
                self.line("window", f"const {kind} {name} = {ahead};")
                self.line("window", f"if (base + L::WINDOW < most) {ahead} = {entry % 'place_of(base + L::WINDOW)'};")
                self._early.add(name)
            else:
                self._fetch(kind, name, entry % self.item(inner))
        elif self.windowed:
            name = self._ask(kind, self.in_window(lambda: self.item(what)), "indices")
        else:
            at = "k[u]" if inner == "k" else self.item(inner)
            name = self.name("i")
            self.line("indices", f"{kind} {name}[U];")
            self.line("indices", f"MGG_ARCS {name}[u] = {load}({self.table(table)} + {at});")
            name += "[u]"
        known[what] = name
        return name

    def id_of(self, end: str) -> str:
        """Return the graph's id of the vertex at an end of the arc."""
        what, known = f"id of {end}", self._narrow_known if self._narrowing else self._known
        if what not in known:
            at, name = self.item(end), self.name("i")
            load = f"__ldg({self.table('ids')} + {at})"
            if self.fixed(end):
                self.line("rows", f"const long long {name} = {load};")
            elif self._narrowing:
                self._fetch("long long", name, load)
            else:
                self.line("loads", f"long long {name}[U]; MGG_ARCS {name}[u] = {load};")
                name += "[u]"
            known[what] = name
        return known[what]

    def _fetch(self, kind: str, name: str, text: str) -> None:
        """Load a number for a lane's arc in the window, before anything is computed from such numbers."""
        self.line("window", f"{kind} {name};")
        self.line("fetched", f"{name} = {text};")
        self._early.add(name)

    def step(self, v: Value) -> int:
        """Return the distance of rows in the array of ``v``, in entries."""
        return pitch(v.size) if v in self.padded else v.size

    def fits(self, step: int) -> bool:
        """Return whether a lane's columns are loaded and stored as one vector, for rows ``step`` apart."""
        return self.layout.aligned(step)

    def moved(self, how: str, v: Value, mine: str, row: str, known: bool = False) -> str:
        """Return the statement that ``read``s or ``write``s a lane's columns; ``known``: the step is fixed now."""
        given = (mine, row) if how == "read" else (row, mine)
        arguments = f"({given[0]}, {given[1]}, first, COLUMNS"
        if known or v.op == "winner" or self.fits(self.step(v)) or not self.fits(pitch(v.size)):
            return f"L::{how}<{'true' if self.fits(self.step(v)) else 'false'}>{arguments});"
        n = f"s{self.reads.index(v)}" if how == "read" else f"r{self.launch.results.index(v)}"
        return f"L::{how}{arguments}, {n});"

    def _place(self, v: Value) -> str:
        """Return the address of the current row in the array of ``v``."""
        array = self.array(v)
        return array if v.space is P else row_of(array, self.item(ROWS_OF[v.space]), f"s{array[1:]}")

    # Values that a lane computes for others.

    def in_window(self, make: Callable[[], str]) -> str:
        """Return what ``make`` returns for the lane's own arc in the window."""
        before, self._narrowing = self._narrowing, True
        text = make()
        self._narrowing = before
        return text

    def _ask(self, kind: str, name: str, part: str) -> str:
        """Get ``name``, which lanes have for their arcs in the window, for the arcs in flight; return its new name."""
        if name not in self._known:
            kept, here = name, self.name("q")
            if name not in self._early:
                kept = self.name("w")
                self.line("window", f"{kind} {kept} = 0;")
                self.line("fetched" if name == "k" else "narrow", f"{kept} = {name};")
                self.late = self.late or (part != "arcs" and name != "k")
            text = f"__shfl_sync(mgg::kAll, {kept}, L::holder(holder, block + u))"
            if part == "arcs":
                self.line(part, f"const {kind} {here} = {text};")
            else:
                self.line(part, f"{kind} {here}[U]; MGG_ARCS {here}[u] = {text};")
                here += "[u]"
            self._known[name] = here
        return self._known[name]

    def is_narrow(self, v: Value) -> bool:
        """Return whether one lane can compute ``v`` for an arc and a head."""
        axes = self.layout.axes(v.shape)
        if not self.windowed or axes is None or wide(axes):
            return False
        if v.op == "constant" or v in self.launch.reads or not v.inputs:
            return v.op != "winner"
        return not reduced(v, self.layout) and all(self.is_narrow(x) for x in v.inputs)

    def _narrow(self, v: Value) -> str:
        """Return the name of the number ``v`` of a lane's arc and head in the window."""
        if v not in self._narrow_names:
            axes, name = self.axes(v), self.name("n")
            text = self._number(v, axes) if v in self.launch.reads else self._made(v, axes)
            if self._changes(v) and v in self.launch.reads:
                self._fetch("float", name, text)
            elif self._changes(v):
                self.line("narrow", f"const float {name} = {text};")
            else:
                make = f"[&] {{ const int h = narrow_head; (void)h; return {text}; }}()"
                self.line("rows", f"const float {name} = {make};")
            self._narrow_names[v] = name
        return self._narrow_names[v]

    def _changes(self, v: Value) -> bool:
        """Return whether ``v`` differs between the arcs of a row."""
        if not self.looping or v.op == "constant" or v.space is P:
            return False
        if v.op == "won" or (v.op == "mask" and v.space is E):
            return True
        memory = v in self.launch.reads or not v.inputs
        if memory and v.space is not E:
            return not self.fixed(ROWS_OF[v.space])
        return memory or any(self._changes(x) for x in v.inputs)

    # A lane's part of a value.

    def axes(self, v: Value) -> Axes:
        """Return the entry of ``v`` that a lane holds for column ``e``."""
        axes = self.layout.axes(v.shape)
        assert axes is not None, v
        return axes

    def lane(self, v: Value) -> str:
        """Return the name of a lane's part of ``v``: an array over its columns, or a number if they do not differ."""
        v = self._seen(v)
        if self._narrowing:
            return self._narrow(v)
        if v not in self._names:
            self._names[v] = self._lane(v)
        return self._names[v]

    def _lane(self, v: Value) -> str:
        axes, changes = self.axes(v), self._changes(v)
        arcs = "loads" if self._ahead else "arcs"
        if changes and self.is_narrow(v):
            return self._ask("float", self.in_window(lambda: self._narrow(v)), arcs)
        part = (arcs if changes else "rows") if self.looping else "after"
        if part == "rows":
            self._of_rows.add(v)
        name = self.name("v")
        if v in self.launch.reads:
            return self._loaded(v, axes, name, "loads" if changes else part)
        several = part == "loads"
        if several:
            self.words += self.layout.count if wide(axes) else 1
        here, size, each = (f"{name}[u]", "[U]", "MGG_ARCS ") if several else (name, "", "")
        if reduced(v, self.layout):
            whole = self.layout.axes(self.layout.shape) or ()
            term = " * ".join(self.entry(x, aligned(whole, x.shape)) for x in v.inputs)
            self.line(part, f"float {name}{size}; {each}{here} = 0.0f;")
            self.line(part, f"{each}MGG_EACH {here} += first + L::place(e) < COLUMNS ? {term} : 0.0f;")
            self.line(part, f"{each}{here} = L::of_head({here});")
        elif wide(axes):
            text = self._made(v, axes)
            self.line(part, f"float {name}{size}[L::COUNT]; {each}MGG_EACH {here}[e] = {text};")
        else:
            text = self._made(v, axes)
            self.line(part, f"float {name}{size}; {each}{here} = {text};")
        return here

    def _loaded(self, v: Value, axes: Axes, name: str, part: str) -> str:
        """Load a lane's part of an array; in part ``loads``, for each of the arcs in flight."""
        kind, place, several = type_of(v), plus(self._place(v), lead(axes, v)), part == "loads"
        here, arcs = (f"{name}[u]", "MGG_ARCS ") if several else (name, "")
        if several:
            self.words += self.layout.count if wide(axes) else 1
        if wide(axes):
            declared = f"{kind} {name}[U][L::COUNT];" if several else f"{kind} {name}[L::COUNT];"
            self.line(part, f"{declared} {arcs}{self.moved('read', v, here, place, several)}")
        elif several:
            self.line(part, f"{kind} {name}[U]; {arcs}{here} = __ldg({place});")
        else:
            self.line(part, f"const {kind} {name} = __ldg({place});")
        return here

    def _seen(self, v: Value) -> Value:
        """Return ``v``, or the value behind its casts as far as these have neither array nor name."""
        while v.op == "cast" and v not in self.launch.reads and v not in self._names:
            v = v.inputs[0]
        return v

    def entry(self, v: Value, axes: Axes) -> str:
        """Return the expression of entry ``axes`` of ``v``, for column ``e`` of a lane."""
        v = self._seen(v)
        if v.op == "constant":
            return number(v["value"])
        if in_lanes(v, axes, self.layout):
            name = self.lane(v)
            return f"{name}[e]" if wide(self.axes(v)) else name
        return self._number(v, axes) if v in self.launch.reads else self._made(v, axes)

    def counted(self, v: Value, axes: Axes) -> str:
        """Return the entry ``axes`` of an arc's ``v``, 0 in lanes without an arc (they repeat the row's last arc)."""
        v = self._seen(v)
        if v.op == "multiply" and v not in self.launch.reads and v not in self._names:
            for share, x in (v.inputs, v.inputs[::-1]):
                own = aligned(axes, share.shape)
                if not wide(own) and in_lanes(share, own, self.layout) and self._tame.of(x, overflow=True):
                    return f"{self._zeroed(share)} * {self.entry(x, aligned(axes, x.shape))}"
        return f"(active ? {self.entry(v, axes)} : 0.0f)"

    def _zeroed(self, v: Value) -> str:
        """Return the name of a lane's number ``v``, 0 without an arc."""
        v = self._seen(v)
        if v not in self._zeros:
            name = self.name("z")
            if self._changes(v) and self.is_narrow(v):
                self.line("narrow", f"const float {name} = active ? {self.in_window(lambda: self.lane(v))} : 0.0f;")
                self._zeros[v] = self._ask("float", name, "arcs")
            else:
                text = self.entry(v, self.axes(v))
                self.line("arcs", f"const float {name} = active ? {text} : 0.0f;")
                self._zeros[v] = name
        return self._zeros[v]

    def _number(self, v: Value, axes: Axes) -> str:
        """Return the entry ``axes`` of an array."""
        return f"__ldg({plus(self._place(v), flat(axes, v.shape))})"

    # Operations.

    def _made(self, v: Value, axes: Axes) -> str:
        """Return the entry ``axes`` of ``v``, computed from its operands."""
        parts = operands(v, axes)
        if parts is not None and v.op != "constant":
            given = [self.entry(*part) for part in parts]
            numbers = {key: number(x) for key, x in v.attributes if isinstance(x, int | float)}
            return _EXPRESSIONS.get(v.op, "{}").format(*given, **numbers)
        make: dict[str, Callable[[Value, Axes], str]] = {
            "constant": lambda v, axes: number(v["value"]), "mask": self._mask, "won": self._won, "dot": self._dot,
            "sum_axis": self._sum_axis, "matmul": self._matmul, "concat": self._concat, "pad": self._pad,
        }  # fmt: skip
        return make[v.op](v, axes)

    def _over(self, lengths: Sequence[int], term: Callable[..., str]) -> str:
        """Return the sum of a term over all indices below ``lengths``."""
        names = [self.name("j") for _ in lengths]
        loops = " ".join(
            ('_Pragma("unroll 4") ' if length > UNROLLED else "") + f"for (int {name} = 0; {name} < {length}; ++{name})"
            for name, length in zip(names, lengths, strict=True)
        )
        sum_of = self.name("sum")
        return f"[&] {{ float {sum_of} = 0.0f; {loops} {sum_of} += {term(*names)}; return {sum_of}; }}()"

    def _product(self, *factors: tuple[Value, Axes]) -> str:
        """Return the product of entries; on axes of length 1, they take index 0."""
        return " * ".join(self.entry(x, aligned(axes, x.shape)) for x, axes in factors)

    def _won(self, v: Value, axes: Axes) -> str:
        return f"({self.entry(v.inputs[0], axes)} == {self.item('arc')} ? 1.0f : 0.0f)"

    def _dot(self, v: Value, axes: Axes) -> str:
        return self._over([v.inputs[0].shape[-1]], lambda j: self._product(*((x, (*axes, j)) for x in v.inputs)))

    def _sum_axis(self, v: Value, axes: Axes) -> str:
        x, axis = v.inputs[0], v["axis"]
        return self._over([x.shape[axis]], lambda j: self._product((x, (*axes[:axis], j, *axes[axis:]))))

    def _matmul(self, v: Value, axes: Axes) -> str:
        x, w = v.inputs
        own = len(x.shape) - 1
        return self._over([x.shape[-1]], lambda j: self._product((x, (*axes[:own], j)), (w, (j, *axes[own:]))))

    def gram(self, v: Value, axes: Axes) -> str:
        """Return what an arc or a row adds to the entry ``axes`` of a gram."""
        x, y = v.inputs
        return self._over(x.shape[:-1], lambda *j: self._product((x, (*j, axes[0])), (y, (*j, *axes[1:]))))

    def _concat(self, v: Value, axes: Axes) -> str:
        *parts, last = v.inputs
        column, begins = axes[-1], [sum(x.shape[-1] for x in v.inputs[:n]) for n in range(len(v.inputs))]
        text = self._product((last, (*axes[:-1], f"max({column} - {begins[-1]}, 0)")))
        for x, begin in reversed([*zip(parts, begins, strict=False)]):
            if x.shape[-1]:
                text = f"({column} < {begin + x.shape[-1]} ? {self._shifted(x, axes, begin)} : {text})"
        return text

    def _pad(self, v: Value, axes: Axes) -> str:
        x, first = v.inputs[0], v["first"]
        if not x.shape[-1]:
            return "0.0f"
        inside = f"{axes[-1]} >= {first} && {axes[-1]} < {first + x.shape[-1]}"
        return f"({inside} ? {self._shifted(x, axes, first)} : 0.0f)"

    def _shifted(self, x: Value, axes: Axes, first: int) -> str:
        """Return the entry of ``x`` if its columns begin at ``first``; outside of it, its first or last entry."""
        return self._product((x, (*axes[:-1], f"min(max({axes[-1]} - {first}, 0), {x.shape[-1] - 1})")))

    def _mask(self, v: Value, axes: Axes) -> str:
        if v not in self.masks:
            self.masks.append(v)
        n, rate, at = self.masks.index(v), v["rate"], flat(axes, v.shape)
        if v.space is E:
            first, second = ("source", "target") if v["flipped"] else ("target", "source")
            row, column = self.id_of(first), f"{self.id_of(second)} * {v.size}ull + ({at})"
        else:
            row, column = f"__ldg({self.table('ids')} + row)", at
        return f"mgg::kept(key{n}, {row}, {column}, {number(rate)}, {number(1 / (1 - rate))})"


def number(x: float) -> str:
    """Return a float literal."""
    if isnan(x):
        return "NAN"
    if isinf(x):
        return "INFINITY" if x == inf else "(-INFINITY)"
    return f"{float(x)!r}f"


def type_of(v: Value) -> str:
    """Return the C type of an array's entries."""
    return "long long" if v.op == "winner" else "float"


def plus(place: str, offset: str) -> str:
    """Return the address ``offset`` entries after ``place``."""
    return place if offset == "0" else f"{place} + {offset}"


def row_of(array: str, row: str, step: int | str) -> str:
    """Return the address of a row of an array whose rows are ``step`` entries apart."""
    return f"{array} + static_cast<long long>({row}) * {step}"


def lead(axes: Axes, v: Value) -> str:
    """Return the offset of the lane's head in a row of ``v``; for a single number, its own offset."""
    if not wide(axes):
        return flat(axes, v.shape)
    if len(axes) == 1 and axes[0] != COLUMN:
        return f"{HEAD} * COLUMNS"
    return flat(tuple("0" if COLUMN in axis else axis for axis in axes), v.shape)
