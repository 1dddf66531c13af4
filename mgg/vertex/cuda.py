"""CUDA of launches: the kernels of a vertex program as text, over kernels/include/mgg/vertex.cuh.

What an arc has lives in registers. A lane has its columns of a value (``mgg.vertex.lanes``); a sum over the last axis
that its lanes have together takes shuffles, and any other entry is worked out again where it is read, so that every
program has a kernel. Loads of several arcs are under way at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isinf, isnan, prod

from mgg.vertex.ir import D, E, P, R, S, Space, T, Value
from mgg.vertex.lanes import COLUMN, HEAD, WARP, Axes, aligned, flat, pitch, power, wide
from mgg.vertex.launches import Launch, in_lanes, operands, reduced

#: Threads a block, and blocks of a launch whose lanes keep sums of all arcs: so many at most, and what their sums take.
THREADS, ALL_BLOCKS, ALL_BYTES = 256, 528, 64 << 20
#: Registers of loads under way, about.
IN_FLIGHT = 48
#: Lanes of a head from which its arcs' numbers are made by one lane each, and asked for.
WINDOWED = 4

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
#: name it. ``item`` is the arc or the run.
_ITEMS: dict[tuple[Space | None, Space], dict[str, str]] = {
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
#: Types of these tables.
TABLES = {
    "ends": "mgg::Index", "arcs": "long long", "targets": "int", "run_of": "long long", "types": "int",
    "run_targets": "long long", "run_types": "int", "ids": "long long",
}  # fmt: skip
_OF = {S: "source", D: "target", E: "arc", R: "run", T: "type"}


@dataclass
class Kernel:
    """A launch as text.

    Attributes:
        name: of the kernel; that of the rows that were cut ends in ``_combine``.
        text: both.
        tables: names of tables that it reads, in the order of its arguments.
        reads, partials, results: values, likewise; of ``partials`` the parts of cut rows are kept, in three arrays if
            it is a winner.
        masks: which it draws.
        group: lanes of a piece.
        layout: of its lanes.
    """

    name: str
    launch: Launch
    group: int
    text: str = ""
    tables: list[str] = field(default_factory=list)
    reads: list[Value] = field(default_factory=list)
    masks: list[Value] = field(default_factory=list)

    @property
    def partials(self) -> list[Value]:
        """Sums of rows."""
        return [v for v in self.launch.sums if v not in self.launch.totals]

    @property
    def blocks(self) -> int | None:
        """How many it has at most, where lanes keep sums of all arcs."""
        if not self.launch.totals:
            return None
        size = sum(v.size for v in self.launch.totals) * 4 * (THREADS // self.group)
        return max(1, min(ALL_BLOCKS, ALL_BYTES // max(size, 1)))


def gathered(launch: Launch) -> list[Value]:
    """Arrays of which arcs read a row at their other end, in columns that take padding to be loaded 16 bytes at once."""
    items, layout = _ITEMS[launch.over, launch.rows], launch.layout
    return [
        v
        for v in launch.reads
        if launch.over is E and v.space in (S, D) and items[_OF[v.space]] != "row" and v.op != "winner"
        and layout.heads == 1 and v.shape[-1:] == (v.size,) == (layout.columns,) and v.size % layout.vector
    ]  # fmt: skip


def kernel_of(name: str, launch: Launch, mean: float, padded: Collection[Value] = ()) -> Kernel:
    """``launch`` as CUDA, for lists with ``mean`` items a row; rows of ``padded`` arrays are ``lanes.pitch`` apart."""
    if not prod(launch.layout.shape):
        return Kernel(name, launch, 1)  # there is nothing to do
    lanes = launch.layout.lanes
    at_once = 1 if launch.over is None else min(WARP // lanes, power(max(1, round(mean / 4))))
    kernel = Kernel(name, launch, lanes * at_once)
    _Writer(kernel, mean, padded).write()
    return kernel


def source_of(kernels: Sequence[Kernel]) -> str:
    """A file with all of them."""
    return "\n".join(
        ["// Kernels of a vertex program, written by mgg.vertex.cuda.", '#include "mgg/vertex.cuh"', ""]
        + [kernel.text for kernel in kernels]
    )


def number(x: float) -> str:
    """A float literal."""
    if isnan(x):
        return "NAN"
    if isinf(x):
        return "INFINITY" if x == inf else "(-INFINITY)"
    return f"{float(x)!r}f"


class _Writer:
    """The lines of one kernel.

    Text is collected by where it goes: ``rows``, before the loop over a row's arcs; ``indices`` and ``loads``, for
    each of the arcs under way; ``arcs``, what is made of them; ``after``, when the row's sums are complete.

    Where a head has several lanes, each of these would make the same of an arc's numbers. So a warp takes a window of
    arcs: first each lane makes the numbers of one arc and head (``narrow``), then all lanes of its columns ask for them.
    """

    def __init__(self, kernel: Kernel, mean: float, padded: Collection[Value]) -> None:
        self.kernel, self.launch, self.layout = kernel, kernel.launch, kernel.launch.layout
        self.mean, self.padded = mean, padded
        self.items = _ITEMS[self.launch.over, self.launch.rows]
        self.parts: dict[str, list[str]] = {
            part: [] for part in ("head", "rows", "narrow", "indices", "loads", "arcs", "after")
        }
        self.names: dict[Value, str] = {}
        self.known: dict[str, str] = {}  # of items
        self.windowed = self.launch.over is not None and self.layout.head_lanes >= WINDOWED
        self.narrow_names: dict[Value, str] = {}
        self.narrow_known: dict[str, str] = {}
        self.asked: dict[str, str] = {}  # what lanes ask for of an arc, and the array that has it
        self.narrowing = False
        self.narrow_sums: set[Value] = set()  # that lanes add up of their arcs in the window
        self.of_rows: set[Value] = set()  # those with names made before the loop over arcs
        self.words, self.count = 0, 0
        self.looping = False

    def line(self, part: str, text: str) -> None:
        self.parts[part].append(text)

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # Where things are.

    def table(self, name: str) -> str:
        """A table, which becomes an argument."""
        if name not in self.kernel.tables:
            self.kernel.tables.append(name)
        return name

    def array(self, v: Value) -> str:
        """The array of a value, likewise."""
        if v not in self.kernel.reads:
            self.kernel.reads.append(v)
        return f"x{self.kernel.reads.index(v)}"

    def item(self, what: str) -> str:
        """A number of the arc or row at hand: its source, target, run, type, or which arc it is."""
        text, known = self.items[what], self.narrow_known if self.narrowing else self.known
        if text == "row":
            return "row"
        if text == "k":
            return "k" if self.narrowing else "k[u]"
        if what in known:
            return known[what]
        table, inner = text[:-1].split("[")
        if inner == "row":
            name = self.known[what] = self.narrow_known[what] = self.name("i")
            self.line("rows", f"const {TABLES[table]} {name} = __ldg({self.table(table)} + row);")
            return name
        if self.narrowing:
            name, at = self.name("i"), "k" if inner == "k" else self.item(inner)
            self.line("narrow", f"const {TABLES[table]} {name} = {_loaded(table)}({self.table(table)} + {at});")
        elif self.windowed:
            name = self.ask(TABLES[table], self.in_window(lambda: self.item(what)), "indices")
        else:
            at = "k[u]" if inner == "k" else self.item(inner)
            name = f"{self.name('i')}"
            self.line("indices", f"{TABLES[table]} {name}[U];")
            self.line("indices", f"MGG_ARCS {name}[u] = {_loaded(table)}({self.table(table)} + {at});")
            name += "[u]"
        known[what] = name
        return name

    def in_window(self, make: Callable[[], str]) -> str:
        """What ``make`` says of the arc that a lane has in the window."""
        before, self.narrowing = self.narrowing, True
        name = make()
        self.narrowing = before
        return name

    def ask(self, kind: str, name: str, part: str) -> str:
        """``name``, which each lane has of its arc in the window, for the arcs that are under way."""
        if name not in self.asked:
            self.asked[name] = self.name("w")
            here, text = self.name("q"), f"__shfl_sync(mgg::kAll, {self.asked[name]}, L::holder(holder, block + u))"
            self.line("narrow", f"{self.asked[name]} = {name};")
            self.line("head", f"{kind} {self.asked[name]} = 0;")
            if part == "arcs":
                self.line(part, f"const {kind} {here} = {text};")
                self.known[name] = here
            else:
                self.line(part, f"{kind} {here}[U]; MGG_ARCS {here}[u] = {text};")
                self.known[name] = f"{here}[u]"
        return self.known[name]

    def is_narrow(self, v: Value) -> bool:
        """Whether one lane can make what an arc and head has of ``v``."""
        if not self.windowed or wide(self.layout.axes(v.shape) or (COLUMN,)) or reduced(v, self.layout):
            return False
        if v.op == "constant" or v in self.launch.reads or not v.inputs:
            return v.op != "winner"
        return all(self.is_narrow(x) for x in v.inputs)

    def narrow(self, v: Value) -> str:
        """The number that a lane makes of ``v`` for its arc and head in the window."""
        if v in self.narrow_names:
            return self.narrow_names[v]
        axes = self.layout.axes(v.shape) or ()
        name, lead = self.name("n"), flat(axes, v.shape)
        if v in self.launch.reads:
            text = f"__ldg({self.place(v)}" + (")" if lead == "0" else f" + {lead})")
        else:
            text = self.made(v, axes)
        if self.changes(v):
            self.line("narrow", f"const float {name} = {text};")
        else:
            self.line("rows", f"const float {name} = [&] {{ const int h = narrow_head; (void)h; return {text}; }}();")
        self.narrow_names[v] = name
        return name

    def changes(self, v: Value) -> bool:
        """Whether ``v`` differs among the arcs of a row."""
        if not self.looping or v.op == "constant" or v.space is P:
            return False
        if v.op == "won" or (v.op == "mask" and v.space is E):
            return True
        memory = v in self.launch.reads or not v.inputs
        if memory and v.space is not E:
            return self.items[_OF[v.space]] != "row" and "[row]" not in self.items[_OF[v.space]]
        return memory or any(self.changes(x) for x in v.inputs)

    def step(self, v: Value) -> int:
        """Numbers from row to row of an array that is written."""
        return pitch(v.size) if v in self.padded else v.size

    def aligned(self, v: Value) -> str:
        """Whether a lane's columns in a row of an array are loaded and stored at once, as C++ has it."""
        return "true" if self.layout.aligned(self.step(v)) else "false"

    def place(self, v: Value) -> str:
        """Where the row of the array ``v`` begins."""
        if v.space is P:
            return self.array(v)
        array = self.array(v)
        return f"{array} + static_cast<long long>({self.item(_OF[v.space])}) * s{array[1:]}"

    # A lane's part of a value.

    def lane(self, v: Value) -> str:
        """The name of a lane's part: an array, of its columns, or a number where they do not differ."""
        while v.op == "cast" and v not in self.launch.reads and v not in self.names:
            v = v.inputs[0]
        if self.narrowing:
            return self.narrow(v)
        if v in self.names:
            return self.names[v]
        axes = self.layout.axes(v.shape)
        assert axes is not None, v
        changes = self.changes(v)
        if changes and self.is_narrow(v):
            self.names[v] = self.ask("float", self.in_window(lambda: self.narrow(v)), "arcs")
            return self.names[v]
        part = ("arcs" if changes else "rows") if self.looping else "after"
        if part == "rows":
            self.of_rows.add(v)
        name = self.name("v")
        if v in self.launch.reads:
            name = self._loaded(v, axes, name, changes)
        elif reduced(v, self.layout):
            whole = self.layout.axes(self.layout.shape) or ()
            term = " * ".join(self.entry(x, aligned(whole, x.shape)) for x in v.inputs)
            self.line(part, f"float {name} = 0.0f;")
            self.line(part, f"MGG_EACH {name} += first + L::place(e) < COLUMNS ? {term} : 0.0f;")
            self.line(part, f"{name} = L::of_head({name});")
        else:
            text = self.made(v, axes)
            self.line(
                part,
                f"float {name}[L::COUNT]; MGG_EACH {name}[e] = {text};"
                if wide(axes)
                else f"const float {name} = {text};",
            )
        self.names[v] = name
        return name

    def _loaded(self, v: Value, axes: Axes, name: str, changes: bool) -> str:
        kind = _type(v)
        lead = _lead(axes, v)
        place = self.place(v) if lead == "0" else f"{self.place(v)} + {lead}"
        part = "loads" if changes else "rows" if self.looping else "after"
        fits = self.aligned(v)
        if not wide(axes):
            if changes:
                self.words += 1
                self.line(part, f"{kind} {name}[U]; MGG_ARCS {name}[u] = __ldg({place});")
                return f"{name}[u]"
            self.line(part, f"const {kind} {name} = __ldg({place});")
            return name
        if changes:
            self.words += self.layout.count
            self.line(
                part, f"{kind} {name}[U][L::COUNT]; MGG_ARCS L::read<{fits}>({name}[u], {place}, first, COLUMNS);"
            )
            return f"{name}[u]"
        self.line(part, f"{kind} {name}[L::COUNT]; L::read<{fits}>({name}, {place}, first, COLUMNS);")
        return name

    def entry(self, v: Value, axes: Axes) -> str:
        """The entry ``axes`` of ``v``, for column ``e`` of a lane."""
        while v.op == "cast" and v not in self.launch.reads and v not in self.names:
            v = v.inputs[0]
        if v.op == "constant":
            return number(v["value"])
        if in_lanes(v, axes, self.layout):
            name = self.lane(v)
            return f"{name}[e]" if wide(self.layout.axes(v.shape) or ()) else name
        if v in self.launch.reads:
            at = flat(axes, v.shape)
            return f"__ldg({self.place(v)}" + (")" if at == "0" else f" + {at})")
        return self.made(v, axes)

    def made(self, v: Value, axes: Axes) -> str:
        """The entry ``axes`` of ``v``, of its operands."""
        if v.op == "constant":
            return number(v["value"])
        if v.op == "mask":
            return self._mask(v, axes)
        if v.op == "won":
            return f"({self.entry(v.inputs[0], axes)} == {self.item('arc')} ? 1.0f : 0.0f)"
        parts = operands(v, axes)
        if parts is not None:
            given = [self.entry(*part) for part in parts]
            numbers = {key: number(x) for key, x in v.attributes if isinstance(x, int | float)}
            return _EXPRESSIONS.get(v.op, "{}").format(*given, **numbers)
        return getattr(self, f"_{v.op}")(v, axes)

    def _over(self, lengths: Sequence[int], term: Callable[..., str]) -> str:
        """The sum of a term over all indices below ``lengths``."""
        names = [self.name("j") for _ in lengths]
        loops = " ".join(
            f"for (int {name} = 0; {name} < {length}; ++{name})" for name, length in zip(names, lengths, strict=True)
        )
        sum_of = self.name("sum")
        return f"[&] {{ float {sum_of} = 0.0f; {loops} {sum_of} += {term(*names)}; return {sum_of}; }}()"

    def _dot(self, v: Value, axes: Axes) -> str:
        return self._over(
            [v.inputs[0].shape[-1]],
            lambda j: " * ".join(self.entry(x, aligned((*axes, j), x.shape)) for x in v.inputs),
        )

    def _sum_axis(self, v: Value, axes: Axes) -> str:
        x, axis = v.inputs[0], v["axis"]
        return self._over([x.shape[axis]], lambda j: self.entry(x, _fitting((*axes[:axis], j, *axes[axis:]), x.shape)))

    def _matmul(self, v: Value, axes: Axes) -> str:
        x, w = v.inputs
        lead = len(x.shape) - 1
        return self._over(
            [x.shape[-1]],
            lambda j: (
                f"{self.entry(x, _fitting((*axes[:lead], j), x.shape))}"
                f" * {self.entry(w, _fitting((j, *axes[lead:]), w.shape))}"
            ),
        )

    def _gram(self, v: Value, axes: Axes) -> str:
        x, y = v.inputs
        lead = x.shape[:-1]
        return self._over(
            lead,
            lambda *j: (
                f"{self.entry(x, _fitting((*j, axes[0]), x.shape))}"
                f" * {self.entry(y, _fitting((*j, *axes[1:]), y.shape))}"
            ),
        )

    def _concat(self, v: Value, axes: Axes) -> str:
        *parts, last = v.inputs
        begins = [sum(x.shape[-1] for x in v.inputs[:n]) for n in range(len(v.inputs))]
        text = self.entry(last, _fitting((*axes[:-1], f"max({axes[-1]} - {begins[-1]}, 0)"), last.shape))
        for x, begin in reversed([*zip(parts, begins, strict=False)]):
            at = f"min(max({axes[-1]} - {begin}, 0), {x.shape[-1] - 1})"
            if x.shape[-1]:
                text = f"({axes[-1]} < {begin + x.shape[-1]} ? {self.entry(x, _fitting((*axes[:-1], at), x.shape))} : {text})"
        return text

    def _pad(self, v: Value, axes: Axes) -> str:
        x, first = v.inputs[0], v["first"]
        if not x.shape[-1]:
            return "0.0f"
        at = f"min(max({axes[-1]} - {first}, 0), {x.shape[-1] - 1})"
        inside = f"{axes[-1]} >= {first} && {axes[-1]} < {first + x.shape[-1]}"
        return f"({inside} ? {self.entry(x, _fitting((*axes[:-1], at), x.shape))} : 0.0f)"

    def _mask(self, v: Value, axes: Axes) -> str:
        if v not in self.kernel.masks:
            self.kernel.masks.append(v)
        n, rate, at = self.kernel.masks.index(v), v["rate"], flat(axes, v.shape)
        if v.space is E:
            row, column = self.id_of("target"), f"{self.id_of('source')} * {v.size}ull + ({at})"
        else:
            row, column = f"__ldg({self.table('ids')} + row)", at
        return f"mgg::kept(key{n}, {row}, {column}, {number(rate)}, {number(1 / (1 - rate))})"

    def id_of(self, end: str) -> str:
        """What the graph calls the vertex at an end of the arc."""
        known = f"id of {end}"
        if self.narrowing:
            if known not in self.narrow_known:
                at, name = self.item(end), self.name("i")
                part = "rows" if at == "row" or at in self.known.values() else "narrow"
                self.line(part, f"const long long {name} = __ldg({self.table('ids')} + {at});")
                self.narrow_known[known] = name
            return self.narrow_known[known]
        if known not in self.known:
            at = self.item(end)
            name = self.name("i")
            if at.endswith("[u]"):
                self.line("loads", f"long long {name}[U]; MGG_ARCS {name}[u] = __ldg({self.table('ids')} + {at});")
                name += "[u]"
            else:
                self.line("rows", f"const long long {name} = __ldg({self.table('ids')} + {at});")
            self.known[known] = name
        return self.known[known]

    # The kernels.

    def write(self) -> None:
        """All of it."""
        launch = self.launch
        sums = {v: f"a{n}" for n, v in enumerate(launch.sums)}
        self.looping = True
        adds: list[str] = []
        for v, name in sums.items():
            if (
                v.op in ("total", "maximum_of", "minimum_of")
                and not wide(self._axes(v))
                and self.is_narrow(v.inputs[0])
            ):
                self.narrow_sums.add(v)
                self.narrowing = True
                self.line("narrow", self._added(v, name)[0])
                self.narrowing = False
            else:
                adds += self._added(v, name)
        for n, v in enumerate(launch.stored, len(launch.outputs)):
            place = f"y{n} + static_cast<long long>({self.item('arc')}) * {v.size}"
            adds.append(f"if (active) {{ {self._written(v, place, self.lane(v))} }}")
        self.looping = False
        self.names = {v: name for v, name in self.names.items() if v in self.of_rows}
        self.names |= {v: name for v, name in sums.items() if v not in launch.totals}
        outputs = [
            self._written(v, f"y{n} + static_cast<long long>(row) * {self.step(v)}", self.lane(v), self.aligned(v))
            for n, v in enumerate(launch.outputs)
        ]
        masks = [
            f"const unsigned long long key{n} = mgg::Draws{{epoch, base, streams, place{n}}}.key();"
            for n in range(len(self.kernel.masks))
        ]
        pieces = self._pieces(sums, adds, outputs, masks)
        combine = self._combine(outputs, masks) if launch.over is not None and self.kernel.partials else ""
        self.kernel.text = pieces + combine

    def _axes(self, v: Value) -> Axes:
        axes = self.layout.axes(v.shape)
        assert axes is not None, v
        return axes

    def _started(self, v: Value, name: str) -> str:
        """The declaration of a sum of nothing so far."""
        op = v["of"] if v.op == "winner" else v.op
        start = {"maximum_of": "-INFINITY", "minimum_of": "INFINITY"}.get(op, "0.0f")
        kind = "float"
        if v.op == "winner":
            kind, start = "mgg::Winner", f"{{{start}, -1, -1}}"
        if wide(self._axes(v)):
            return f"{kind} {name}[L::COUNT]; MGG_EACH {name}[e] = {start};"
        return f"{kind} {name} = {start};"

    def _added(self, v: Value, name: str) -> list[str]:
        axes, x = self._axes(v), v.inputs[0]
        entry = self._gram(v, axes) if v.op == "gram" else self.entry(x, axes)
        each, goal = ("MGG_EACH ", f"{name}[e]") if wide(axes) else ("", name)
        if v.op in ("total", "gram"):
            return [f"if (active) {{ {each}{goal} += {entry}; }}"]
        largest = _largest(v)
        if v.op == "winner":
            source = "0" if self.launch.rows is S or "source" not in self.items else self.id_of("source")
            arc = self.item("arc" if self.launch.over is E else "run")
            return [f"if (active) {{ {each}{goal}.template take<{largest}>({{{entry}, {source}, {arc}}}); }}"]
        return [f"if (active) {{ {each}L::template take_extreme<{largest}>({goal}, {entry}); }}"]

    def _reduced(self, v: Value, name: str, *, loop: bool = True) -> str:
        """What the lanes of all arcs at once have found, put together."""
        each, goal = ("MGG_EACH ", f"{name}[e]") if wide(self._axes(v)) else ("", name)
        if v in self.narrow_sums and loop:
            return f"L::{'narrow_total' if v.op == 'total' else f'template narrow_extreme<{_largest(v)}>'}({goal});"
        if v.op in ("total", "gram"):
            return f"{each}L::total({goal});"
        largest = _largest(v)
        if v.op == "winner":
            return f"{each}mgg::win<L, {largest}>({goal});"
        return f"{each}L::template extreme<{largest}>({goal});"

    def _finished(self, v: Value, name: str) -> str:
        """An extreme of no arcs is 0; a winner is its arc."""
        each, goal = ("MGG_EACH ", f"{name}[e]") if wide(self._axes(v)) else ("", name)
        return f"if (empty) {{ {each}{goal} = 0.0f; }}" if v.op in ("maximum_of", "minimum_of") else ""

    def _written(self, v: Value, place: str, name: str, fits: str = "false") -> str:
        """A lane's part to memory: of lanes that have the same, by the first."""
        axes = self._axes(v)
        alone = [f"{axis} == 0" for axis in self._missing(v)]
        if not wide(axes):
            condition = " && ".join(["lead", *alone])
            at = flat(axes, v.shape)
            value = f"{name}.arc" if v.op == "winner" else name
            return f"if ({condition}) ({place})[{at}] = {value};"
        condition = " && ".join(["lead", *[each for each in alone if not each.startswith("first")]])
        lead = _lead(axes, v)
        row = place if lead == "0" else f"{place} + {lead}"
        if v.op == "winner":
            arcs = self.name("w")
            return f"if ({condition}) {{ long long {arcs}[L::COUNT]; MGG_EACH {arcs}[e] = {name}[e].arc; L::write<false>({row}, {arcs}, first, COLUMNS); }}"
        return f"if ({condition}) L::write<{fits}>({row}, {name}, first, COLUMNS);"

    def _missing(self, v: Value) -> list[str]:
        """Places of a lane that ``v`` does not depend on."""
        axes = self._axes(v)
        text = " ".join(axes)
        found = [] if COLUMN in text else ["first"]
        if len(axes) == 1 and wide(axes) and axes[0] != COLUMN:
            return found
        lead = self.layout.shape[:-1]
        for n, length in enumerate(lead):
            has = n < len(v.shape) and v.shape[n] != 1
            if length > 1 and not has:
                stride = prod(lead[n + 1 :])
                over = HEAD if stride == 1 else f"({HEAD} / {stride})"
                found.append(over if prod(lead[:n]) == 1 else f"({over} % {length})")
        return found

    def arguments(self) -> list[str]:
        """Of both kernels, in order: rows, tables, arrays, parts of cut rows, results, masks."""
        kernel, launch = self.kernel, self.launch
        found = ["int count"]
        if launch.over is not None:
            found += ["const long long *begin", "const int *goals", "const int *slot_rows"]
        found += [f"const {TABLES[name]} *{name}" for name in kernel.tables]
        found += [f"const {_type(v)} *x{n}" for n, v in enumerate(kernel.reads)]
        found += [f"int s{n}" for n, _ in enumerate(kernel.reads)]
        if launch.over is not None:
            for n, v in enumerate(kernel.partials):
                found += [f"float *p{n}"] + ([f"long long *pi{n}", f"long long *pa{n}"] if v.op == "winner" else [])
        found += [f"{_type(v)} *y{n}" for n, v in enumerate(launch.results)]
        found += [f"float *t{n}" for n in range(len(launch.totals))]
        if kernel.masks:
            found += ["const double *epoch", "long long base", "long long streams"]
            found += [f"long long place{n}" for n in range(len(kernel.masks))]
        return found

    def _opening(self, name: str, extra: Sequence[str], group: int) -> list[str]:
        layout = self.layout
        return [
            f'extern "C" __global__ void __launch_bounds__({THREADS}, 3) {name}(',
            "    " + ",\n    ".join([*self.arguments(), *extra]),
            ") {",
            f"using L = mgg::Lanes<{group}, {layout.lanes}, {layout.head_lanes}, {layout.vector}, {layout.parts}>;",
            f"constexpr int COLUMNS = {layout.columns}, HEADS = {layout.heads};",
            "const int lane = threadIdx.x & 31, place = lane % L::LANES;",
            f"const int tile = blockIdx.y / {layout.column_tiles};",
            f"const int my_head = tile * {layout.head_tile} + place / L::HEAD_LANES;",
            f"const int {HEAD} = my_head < HEADS ? my_head : 0;",
            f"const int first = my_head < HEADS ? (blockIdx.y % {layout.column_tiles} * L::PARTS * L::HEAD_LANES + place % L::HEAD_LANES) * L::VEC : COLUMNS;",
            "const bool lead = my_head < HEADS;",
            "const auto at = [&](int e) { const int column = first + L::place(e); return column < COLUMNS ? column : 0; };",
            "const int narrow_own = tile * L::HEADS + lane % L::HEADS, narrow_head = narrow_own < HEADS ? narrow_own : 0;",
            "(void)at; (void)h; (void)lead; (void)place; (void)narrow_head;",
            "const int worker = (blockIdx.x * blockDim.x + threadIdx.x) / L::GROUP;",
        ]  # fmt: skip

    def _pieces(self, sums: Mapping[Value, str], adds: list[str], outputs: list[str], masks: list[str]) -> str:
        launch, kernel, parts = self.launch, self.kernel, self.parts
        lines = self._opening(kernel.name, (), kernel.group) + masks
        if launch.over is None:
            lines += [
                "const bool writes = worker < count; const int row = writes ? worker : 0;",
                *parts["rows"], *parts["after"],
                "if (!writes) return;", *outputs, "}", "",
            ]  # fmt: skip
            return "\n".join(lines)
        under_way = min(8, self.layout.head_lanes) if self.windowed else 8
        while under_way > 1 and (
            self.words * under_way > IN_FLIGHT or under_way * kernel.group // self.layout.lanes > 2 * self.mean + 1
        ):
            under_way //= 2
        lines += [f"constexpr int U = {under_way};", "const int mine = lane % L::GROUP / L::LANES;"]
        lines += [self._started(v, sums[v]) for v in launch.totals]
        lines += [
            "const int workers = gridDim.x * (blockDim.x / L::GROUP);",
            "for (int begins = 0; begins < count; begins += workers) {",
            "const bool present = begins + worker < count; const int piece = present ? begins + worker : 0;",
            "const int goal = goals[piece];",
            "const long long row = goal < 0 ? slot_rows[~goal] : goal, start = begin[piece];",
            "const int length = present ? static_cast<int>(begin[piece + 1] - start) : 0;",
            "(void)row;",
            *parts["rows"],
            *[self._started(v, sums[v]) for v in kernel.partials],
            "const int most = mgg::most_of_warp(length);",
            *self._loop(adds),
        ]
        if kernel.partials or outputs:
            lines += [self._reduced(v, sums[v]) for v in kernel.partials]
            lines += ["const bool empty = length == 0; (void)empty;"]
            lines += [self._finished(v, sums[v]) for v in kernel.partials]
            lines += parts["after"]
            lines += ["if (present && mine == 0) {", "if (goal >= 0) {", *outputs, "} else {"]
            lines += [self._parted(n, v, sums[v]) for n, v in enumerate(kernel.partials)]
            lines += ["}", "}"]
        lines += ["}"]
        for n, v in enumerate(launch.totals):
            lines += [self._reduced(v, sums[v])]
            lines += [
                f"if (mine == 0) {{ {self._written(v, f't{n} + static_cast<long long>(worker) * {v.size}', sums[v])} }}"
            ]
        return "\n".join([*lines, "}", ""])

    def _loop(self, adds: list[str]) -> list[str]:
        """Over the arcs of a row."""
        parts = self.parts
        arcs = [
            "long long k[U]; MGG_ARCS k[u] = L::arc(base, block + u, mine) < length"
            " ? start + L::arc(base, block + u, mine) : 0;",
            *parts["indices"], *parts["loads"],
            "MGG_ARCS {", "const bool active = L::arc(base, block + u, mine) < length;", *parts["arcs"], *adds, "}",
        ]  # fmt: skip
        if not self.windowed:
            return [
                "for (int base = 0; base < most; base += L::ARCS * U) {", "constexpr int block = 0;", *arcs, "}"
            ]  # fmt: skip
        return [
            "const int holder = (lane & ~(L::GROUP - 1)) + mine * L::HEADS + place / L::HEAD_LANES;",
            "for (int base = 0; base < most; base += L::WINDOW) {", *parts["head"], "{",
            "const int own = base + lane % L::GROUP / L::HEADS, h = narrow_head; (void)h;",
            "const bool active = own < length; (void)active;",
            "const long long k = active ? start + own : 0;", *parts["narrow"], "}",
            "MGG_BLOCKS for (int block = 0; block < L::HEAD_LANES; block += U) {",
            "if (base + block * L::ARCS >= most) break;", *arcs, "}", "}",
        ]  # fmt: skip

    def _parted(self, n: int, v: Value, name: str) -> str:
        """What a piece of a cut row has found."""
        if v.op != "winner":
            fits = "true" if self.layout.aligned(pitch(v.size)) else "false"
            return self._written(v, f"p{n} + static_cast<long long>(~goal) * {pitch(v.size)}", name, fits)
        axes = self._axes(v)
        at = flat(axes, v.shape)
        each, goal = ("MGG_EACH ", f"{name}[e]") if wide(axes) else ("", name)
        inside = "first + L::place(e) < COLUMNS" if wide(axes) else "true"
        missing = [f"{place} == 0" for place in self._missing(v) if not (wide(axes) and place == "first")]
        condition = " && ".join(["lead", inside, *missing])
        return (
            f"{each}if ({condition}) {{ p{n}[~goal * {pitch(v.size)}ll + {at}] = {goal}.best;"
            f" pi{n}[~goal * {pitch(v.size)}ll + {at}] = {goal}.id; pa{n}[~goal * {pitch(v.size)}ll + {at}] = {goal}.arc; }}"
        )

    def _combine(self, outputs: list[str], masks: list[str]) -> str:
        """Rows that were cut, from what their pieces found: a warp a row."""
        kernel, parts = self.kernel, self.parts
        extra = ["const int *rows", "const int *first_slot"]
        lines = self._opening(f"{kernel.name}_combine", extra, WARP) + masks
        names = [f"a{self.launch.sums.index(v)}" for v in kernel.partials]
        lines += [
            "const int mine = lane / L::LANES;",
            "if (worker >= count) return;",
            "const long long row = rows[worker]; const bool empty = false; (void)empty;",
            *parts["rows"],
            *[self._started(v, name) for v, name in zip(kernel.partials, names, strict=True)],
            "for (int slot = first_slot[worker] + mine; slot < first_slot[worker + 1]; slot += L::ARCS) {",
        ]
        for n, (v, name) in enumerate(zip(kernel.partials, names, strict=True)):
            axes = self._axes(v)
            at = f"slot * {pitch(v.size)}ll + {flat(axes, v.shape)}"
            each, goal = ("MGG_EACH ", f"{name}[e]") if wide(axes) else ("", name)
            largest = _largest(v)
            if v.op == "winner":
                lines += [f"{each}{goal}.template take<{largest}>({{p{n}[{at}], pi{n}[{at}], pa{n}[{at}]}});"]
            elif v.op in ("maximum_of", "minimum_of"):
                lines += [f"{each}L::template take_extreme<{largest}>({goal}, p{n}[{at}]);"]
            else:
                lines += [f"{each}{goal} += p{n}[{at}];"]
        lines += ["}", "__syncwarp();"]
        lines += [self._reduced(v, name, loop=False) for v, name in zip(kernel.partials, names, strict=True)]
        lines += [*parts["after"], "if (mine == 0) {", *outputs, "}", "}", ""]
        return "\n".join(lines)


def _fitting(axes: Axes, shape: Sequence[int]) -> Axes:
    """``axes`` with 0 where there is one entry."""
    return tuple("0" if length == 1 else axis for axis, length in zip(axes, shape, strict=True))


def _largest(v: Value) -> str:
    """Whether an extreme, or a winner, is that of the largest; as C++ has it."""
    return "true" if (v["of"] if v.op == "winner" else v.op) == "maximum_of" else "false"


def _type(v: Value) -> str:
    """Of the entries of an array."""
    return "long long" if v.op == "winner" else "float"


def _lead(axes: Axes, v: Value) -> str:
    """Where the columns of a lane's head begin in a row of ``v``."""
    if not wide(axes):
        return flat(axes, v.shape)
    if len(axes) == 1 and axes[0] != COLUMN:
        return f"{HEAD} * COLUMNS"
    return flat(tuple("0" if COLUMN in axis else axis for axis in axes), v.shape)


def _loaded(table: str) -> str:
    return "mgg::load_once" if table in ("ends", "arcs", "types", "run_of") else "__ldg"
