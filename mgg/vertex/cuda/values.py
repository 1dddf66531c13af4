"""CUDA of values: what a lane makes of an arc or a row, as lines and expressions of a kernel (``mgg.vertex.cuda``).

A lane has its columns of a value (``mgg.vertex.lanes``), in registers. A sum over the last axis that the lanes of a
head have together takes shuffles; any other entry is worked out again where it is read, so that every program has a
kernel.

Where a head has several lanes, each of them would make the same of an arc's numbers: of its ends, its score, its mask.
So a group of lanes takes a window of arcs. First each lane makes the numbers of one arc and one head of it (these are
called narrow), then all lanes of this head ask for them by shuffles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import inf, isinf, isnan

from mgg.vertex.cuda.launches import Launch, in_lanes, operands, reduced
from mgg.vertex.ir import D, E, P, R, S, Space, T, Value
from mgg.vertex.lanes import COLUMN, HEAD, Axes, aligned, flat, pitch, wide
from mgg.vertex.rewrites.factors import Tameness

#: Lanes of a head from which its arcs' numbers are made by one lane each, and asked for.
WINDOWED = 4
#: The longest sum that the compiler may unroll as it likes: all terms of longer ones would not fit the registers.
UNROLLED = 16

#: Operations by entry, of their operands and attributes.
_EXPRESSIONS = {
    "negative": "(-{})", "reciprocal": "(1.0f / {})", "exp": "expf({})", "log": "logf({})", "sqrt": "sqrtf({})",
    "tanh": "tanhf({})", "sigmoid": "mgg::sigmoid({})", "relu": "mgg::larger({}, 0.0f)",
    "leaky_relu": "mgg::leaky_relu({}, {slope})", "elu": "mgg::elu({})", "abs": "fabsf({})",
    "power": "powf({}, {exponent})", "stop": "{}", "add": "({} + {})", "subtract": "({} - {})",
    "multiply": "({} * {})", "divide": "({} / {})", "maximum": "mgg::larger({}, {})",
    "minimum": "mgg::smaller({}, {})", "greater": "({} > {} ? 1.0f : 0.0f)", "equal": "({} == {} ? 1.0f : 0.0f)",
    "where": "({0} != 0.0f ? {1} : {2})",
}  # fmt: skip
#: What a list of arcs or runs tells of its item ``k``, by what is summed and for which rows; those that need a table
#: name it. ``arc`` and ``run`` within brackets are items themselves.
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
#: Types of these tables, and those of which each entry is read once.
TABLES = {
    "ends": "mgg::Index", "arcs": "long long", "targets": "int", "run_of": "long long", "types": "int",
    "run_targets": "long long", "run_types": "int", "ids": "long long",
}  # fmt: skip
_READ_ONCE = ("ends", "arcs", "types", "run_of")
#: The item that is the row of a space.
ROWS_OF = {S: "source", D: "target", E: "arc", R: "run", T: "type"}


class Values:
    """The lines that make the values of a launch, and the expressions that read them.

    Args:
        launch: of which rows and values.
        padded: arrays of which rows are ``lanes.pitch`` apart.

    Attributes:
        parts: lines by where they go: ``rows``, before the loop over a row's arcs; ``start``, what is read of the first
            window; ``window``, what is declared for a window; ``fetched``, what a lane reads for its arc in the window;
            ``narrow``, what it makes of that; ``scaled``, what follows from all arcs in it; ``indices`` and ``loads``,
            for each of the arcs under way; ``arcs``, what is made of them; ``after``, when the row's sums are complete.
        tables, reads, masks: that the lines need, in the order of the kernel's arguments.
        windowed: lanes make narrow values for each other.
        looping: lines are those of arcs, not of rows whose sums are complete.
        late: some of ``loads`` take what is ``narrow``.
        words: registers of loads, and of what is made ahead, for an arc under way.
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
        self._early: set[str] = set()  # names of what is read for an arc in the window
        self._names: dict[Value, str] = {}
        self._known: dict[str, str] = {}  # names of items, and of what lanes ask for
        self._narrowing = False  # lines are those of a lane's own arc in the window; these have other names:
        self._narrow_names: dict[Value, str] = {}
        self._narrow_known: dict[str, str] = {}
        self._of_rows: set[Value] = set()  # values with names made before the loop over arcs
        self._zeros: dict[Value, str] = {}  # names of numbers that are 0 for lanes without an arc
        self._tame = Tameness()
        self._ahead = False  # lines are those of all arcs under way, before any of them is taken
        self._count = 0

    def line(self, part: str, text: str) -> None:
        """Add a line to a part."""
        self.parts[part].append(text)

    def name(self, prefix: str) -> str:
        """A new one."""
        self._count += 1
        return f"{prefix}{self._count}"

    def complete(self, sums: dict[Value, str]) -> None:
        """The loop over arcs is over: from here on, lines are for rows that have ``sums``, by their names."""
        self.looping = False
        self._names = {v: name for v, name in self._names.items() if v in self._of_rows} | sums

    def raised(self, top: Value, name: str, scaled: Callable[[str], list[str]]) -> str | None:
        """Lines by which the maximum ``top`` of a row, so far ``name``, takes an arc or those in the window.

        Args:
            top: the maximum.
            name: of the number.
            scaled: statements that multiply what is relative to it with a number.

        Returns:
            That number where lanes make it of the arcs in the window, and nothing is multiplied yet.
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

    # Where things are.

    def table(self, name: str) -> str:
        """A table, which becomes an argument."""
        if name not in self.tables:
            self.tables.append(name)
        return name

    def array(self, v: Value) -> str:
        """The array of a value, likewise."""
        if v not in self.reads:
            self.reads.append(v)
        return f"x{self.reads.index(v)}"

    def fixed(self, what: str) -> bool:
        """Whether an item is the same for all arcs of a row."""
        return self.items[what] == "row" or self.items[what].endswith("[row]")

    def item(self, what: str) -> str:
        """A number of the arc or row at hand: its source, target, run, type, or which arc it is."""
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
        """What the graph calls the vertex at an end of the arc."""
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
        """A number of memory that a lane has of its arc in the window, under way before anything is made of any."""
        self.line("window", f"{kind} {name};")
        self.line("fetched", f"{name} = {text};")
        self._early.add(name)

    def step(self, v: Value) -> int:
        """Numbers from row to row of an array that is written."""
        return pitch(v.size) if v in self.padded else v.size

    def fits(self, step: int) -> bool:
        """Whether a lane's columns of rows ``step`` apart are loaded and stored at once."""
        return self.layout.aligned(step)

    def moved(self, how: str, v: Value, mine: str, row: str, known: bool = False) -> str:
        """``read``s or ``write``s a lane's columns of a row; ``known``: do as is known now, not as the array has it."""
        given = (mine, row) if how == "read" else (row, mine)
        arguments = f"({given[0]}, {given[1]}, first, COLUMNS"
        if known or v.op == "winner" or self.fits(self.step(v)) or not self.fits(pitch(v.size)):
            return f"L::{how}<{'true' if self.fits(self.step(v)) else 'false'}>{arguments});"
        n = f"s{self.reads.index(v)}" if how == "read" else f"r{self.launch.results.index(v)}"
        return f"L::{how}{arguments}, {n});"

    def _place(self, v: Value) -> str:
        """Where the row of the array ``v`` begins."""
        array = self.array(v)
        return array if v.space is P else row_of(array, self.item(ROWS_OF[v.space]), f"s{array[1:]}")

    # What a lane makes for others.

    def in_window(self, make: Callable[[], str]) -> str:
        """What ``make`` says of the arc that a lane has in the window."""
        before, self._narrowing = self._narrowing, True
        text = make()
        self._narrowing = before
        return text

    def _ask(self, kind: str, name: str, part: str) -> str:
        """``name``, which each lane has of its arc in the window, for the arcs that are under way."""
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
        """Whether one lane can make what an arc and head has of ``v``."""
        axes = self.layout.axes(v.shape)
        if not self.windowed or axes is None or wide(axes):
            return False
        if v.op == "constant" or v in self.launch.reads or not v.inputs:
            return v.op != "winner"
        return not reduced(v, self.layout) and all(self.is_narrow(x) for x in v.inputs)

    def _narrow(self, v: Value) -> str:
        """The number that a lane makes of ``v`` for its arc and head in the window."""
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
        """Whether ``v`` differs among the arcs of a row."""
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
        """Which entry of ``v`` a lane has for column ``e``."""
        axes = self.layout.axes(v.shape)
        assert axes is not None, v
        return axes

    def lane(self, v: Value) -> str:
        """The name of a lane's part: an array, of its columns, or a number where they do not differ."""
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
        """A lane's part of an array; part ``loads`` has it for each of the arcs under way."""
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
        """``v``, or what it is cast from as far as there is no array and no name of it."""
        while v.op == "cast" and v not in self.launch.reads and v not in self._names:
            v = v.inputs[0]
        return v

    def entry(self, v: Value, axes: Axes) -> str:
        """The entry ``axes`` of ``v``, for column ``e`` of a lane."""
        v = self._seen(v)
        if v.op == "constant":
            return number(v["value"])
        if in_lanes(v, axes, self.layout):
            name = self.lane(v)
            return f"{name}[e]" if wide(self.axes(v)) else name
        return self._number(v, axes) if v in self.launch.reads else self._made(v, axes)

    def counted(self, v: Value, axes: Axes) -> str:
        """The entry ``axes`` of what an arc has of ``v``; of lanes without one, which have the row's last arc, 0."""
        v = self._seen(v)
        if v.op == "multiply" and v not in self.launch.reads and v not in self._names:
            for share, x in (v.inputs, v.inputs[::-1]):
                own = aligned(axes, share.shape)
                if not wide(own) and in_lanes(share, own, self.layout) and self._tame.of(x, overflow=True):
                    return f"{self._zeroed(share)} * {self.entry(x, aligned(axes, x.shape))}"
        return f"(active ? {self.entry(v, axes)} : 0.0f)"

    def _zeroed(self, v: Value) -> str:
        """The number that a lane has of ``v``, 0 without an arc."""
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
        """The entry ``axes`` of an array."""
        return f"__ldg({plus(self._place(v), flat(axes, v.shape))})"

    # Operations.

    def _made(self, v: Value, axes: Axes) -> str:
        """The entry ``axes`` of ``v``, of its operands."""
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
        """The sum of a term over all indices below ``lengths``."""
        names = [self.name("j") for _ in lengths]
        loops = " ".join(
            ('_Pragma("unroll 4") ' if length > UNROLLED else "") + f"for (int {name} = 0; {name} < {length}; ++{name})"
            for name, length in zip(names, lengths, strict=True)
        )
        sum_of = self.name("sum")
        return f"[&] {{ float {sum_of} = 0.0f; {loops} {sum_of} += {term(*names)}; return {sum_of}; }}()"

    def _product(self, *factors: tuple[Value, Axes]) -> str:
        """Of entries, whose axes are 0 where there is one."""
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
        """What an arc or a row adds to the entry ``axes`` of a gram."""
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
        """The entry of ``x`` whose columns begin at ``first``; outside, of its first or last one."""
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
    """A float literal."""
    if isnan(x):
        return "NAN"
    if isinf(x):
        return "INFINITY" if x == inf else "(-INFINITY)"
    return f"{float(x)!r}f"


def type_of(v: Value) -> str:
    """Of the entries of an array."""
    return "long long" if v.op == "winner" else "float"


def plus(place: str, offset: str) -> str:
    """A place and so many numbers further."""
    return place if offset == "0" else f"{place} + {offset}"


def row_of(array: str, row: str, step: int | str) -> str:
    """Where a row of an array begins, whose rows are ``step`` numbers apart."""
    return f"{array} + static_cast<long long>({row}) * {step}"


def lead(axes: Axes, v: Value) -> str:
    """Where the columns of a lane's head begin in a row of ``v``; of a number, its place."""
    if not wide(axes):
        return flat(axes, v.shape)
    if len(axes) == 1 and axes[0] != COLUMN:
        return f"{HEAD} * COLUMNS"
    return flat(tuple("0" if COLUMN in axis else axis for axis in axes), v.shape)
