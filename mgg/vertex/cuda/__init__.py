"""CUDA of launches: the kernels of a vertex program as text, over kernels/include/mgg/vertex.cuh.

- The arcs (or runs) of a row are a piece; those of a long row several, of bounded length (``mgg.kernel.schedule``).
- As many lanes of a warp as the columns need have an arc between them (``mgg.vertex.lanes``). A piece has a group of
  lanes, for one arc at once or more, and each lane has loads of several more under way. What an arc has lives in
  registers (``mgg.vertex.cuda.values``). When the piece's arcs are done, its lanes put together what they have found.
- A row that is one piece is then finished and written. Of other rows the parts are kept, and a second kernel combines
  them, a warp a row, always in the same order.
- Sums of all arcs, or of all rows, stay in lanes, in double precision, until a bounded number of blocks have done all
  pieces or rows. Each group then writes a row of its sums, and these rows are added up elsewhere.
- A softmax takes one pass (``mgg.vertex.online``): where its maximum rises, sums relative to it are multiplied.
- Other ways to share the arcs among threads are there to compare with (``mgg.vertex.cuda.execution``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from mgg.vertex.cuda.execution import DEFAULT, STATIC_BLOCKS, Execution
from mgg.vertex.cuda.grouped import Grouped
from mgg.vertex.cuda.launches import Launch
from mgg.vertex.cuda.values import ITEMS, ROWS_OF, TABLES, Values, lead, plus, row_of, type_of
from mgg.vertex.ir import D, E, S, Value
from mgg.vertex.lanes import COLUMN, HEAD, WARP, Layout, flat, pitch, power, wide

#: Threads a block, and blocks of a launch whose lanes keep sums of all arcs: so many at most, and what their sums take.
THREADS, ALL_BLOCKS, ALL_BYTES = 256, 528, 64 << 20
#: Blocks that a multiprocessor has at once, at least: they bound the registers of a thread.
RESIDENT = 3
#: Registers of loads under way, about, and arcs under way, at most.
IN_FLIGHT, UNDER_WAY = 48, 8


@dataclass(frozen=True)
class Kernel:
    """A launch as text.

    Attributes:
        name: of the kernel; that of the rows that were cut ends in ``_combine``.
        launch: what it does.
        group: lanes of a piece, a power of two up to 32.
        text: both kernels; of a launch without entries none.
        tables: names of tables (``cuda_values.TABLES``) that it reads, in the order of its arguments.
        reads: values of which it reads arrays [rows, step], float32 or for winners int64, likewise.
        masks: which it draws, likewise.
        how: arcs are shared among threads.
    """

    name: str
    launch: Launch
    group: int = 1
    text: str = ""
    tables: Sequence[str] = ()
    reads: Sequence[Value] = ()
    masks: Sequence[Value] = ()
    how: Execution = DEFAULT

    @property
    def per_block(self) -> int:
        """Pieces or rows that a block has at once."""
        return 1 if self.how.groups == "block" else THREADS // self.group

    @property
    def blocks(self) -> int | None:
        """How many it has at most, where lanes keep sums of all arcs or all blocks run at once."""
        most = max(1, STATIC_BLOCKS // self.tiles) if self.how.blocks == "static" else None
        if not self.launch.totals:
            return most
        size = sum(v.size for v in self.launch.totals) * 8 * self.per_block
        return max(1, min(most or ALL_BLOCKS, ALL_BYTES // max(size, 1)))

    @property
    def tiles(self) -> int:
        """Blocks that have the columns of the same rows."""
        tiles = self.launch.layout.tiles
        return -(-tiles // (THREADS // WARP)) if self.how.groups == "block" else tiles


def gathered(launch: Launch) -> list[Value]:
    """Arrays of which arcs read a row at their other end, and which need padding to be loaded 16 bytes at once."""
    items = ITEMS[launch.over, launch.rows]
    return [
        v
        for v in launch.reads
        if launch.over is E and v.space in (S, D) and items[ROWS_OF[v.space]] != "row" and is_odd(v, launch.layout)
    ]


def is_odd(v: Value, layout: Layout) -> bool:
    """Whether rows of ``v`` need padding to be loaded and stored 16 bytes at once."""
    wide_enough = layout.heads == 1 and v.shape[-1:] == (v.size,) == (layout.columns,)
    return wide_enough and v.size % layout.vector > 0 and v.op != "winner"


def kernel_of(
    name: str, launch: Launch, mean: float, padded: Collection[Value] = (), how: Execution = DEFAULT
) -> Kernel:
    """``launch`` as CUDA, for lists with ``mean`` items a row; rows of ``padded`` arrays are ``lanes.pitch`` apart.

    ``how`` is for launches that go over arcs or runs; others have no choices.
    """
    if not prod(launch.layout.shape):
        return Kernel(name, launch)  # there is nothing to do
    if launch.over is None:
        how = DEFAULT
    launch = replace(launch, layout=replace(launch.layout, whole=how.idle))
    mean = 1.0 if how.arcs == "parallel" else mean
    lanes = launch.layout.lanes
    if launch.over is None or how.arcs != "together":
        at_once = 1
    else:
        most = WARP // lanes
        at_once = most if how.groups != "adaptive" else min(most, power(max(1, round(mean / 4))))
    values = Values(launch, padded)
    text = _Writer(name, values, lanes * at_once, mean, how).text()
    return Kernel(name, launch, lanes * at_once, text, values.tables, values.reads, values.masks, how)


def source_of(kernels: Sequence[Kernel], grouped: Sequence[Grouped] = ()) -> str:
    """A file with all of them."""
    headers = ["vertex", "grouped"] if grouped else ["vertex"]
    lines = ["// Kernels of a vertex program, written by mgg.vertex.cuda."]
    lines += dict.fromkeys(f"// {kernel.how}" for kernel in kernels if kernel.how != DEFAULT)
    lines += [f'#include "mgg/{name}.cuh"' for name in headers]
    return "\n".join([*lines, "", *(kernel.text for kernel in kernels), *(product.text for product in grouped)])


class _Writer:
    """The text of one launch: the kernel of pieces, and that of rows that were cut."""

    def __init__(self, name: str, values: Values, group: int, mean: float, how: Execution) -> None:
        self.kernel, self.values, self.group, self.mean, self.how = name, values, group, mean, how
        self.launch, self.layout = values.launch, values.launch.layout
        self.partials = {v: f"a{n}" for n, v in enumerate(self.launch.sums) if v in self.launch.partials}
        self.narrow_sums: set[Value] = set()  # that lanes add up of their arcs in the window
        self.tops = {*self.launch.shifts.values()}

    def text(self) -> str:
        """All of it."""
        launch, values, adds = self.launch, self.values, []
        sums = {v: f"a{n}" for n, v in enumerate(launch.sums)}
        self.narrow_sums = {v for v in sums if v.op not in ("gram", "winner") and not wide(values.axes(v))
                            and values.is_narrow(v.inputs[0])}  # fmt: skip
        for top in self.tops:
            self._raised(top, sums)
        for v, name in sums.items() if launch.over is not None else ():
            if v in self.narrow_sums - self.tops:
                values.line("narrow", values.in_window(partial(self._added, v, name)))
            elif v not in self.tops:
                adds.append(self._added(v, name))
        for n, v in enumerate(launch.stored, len(launch.outputs)):
            place, fits = row_of(f"y{n}", values.item("arc"), f"r{n}"), values.fits(values.step(v))
            adds.append(f"if (active) {{ {self._written(v, place, values.lane(v), fits=fits)} }}")
        values.complete(self.partials)
        outputs = []
        for n, v in enumerate(launch.outputs):
            outputs.append(self._written(v, row_of(f"y{n}", "row", f"r{n}"), values.lane(v), own=True))
        pieces = self._pieces(sums, adds, outputs) if launch.over is not None else self._rows(sums, outputs)
        return pieces + (self._combine(outputs) if launch.over is not None and self.partials else "")

    # Statements for sums and what is written.

    def _columns(self, v: Value, name: str) -> tuple[str, str]:
        """A loop over the columns of a lane, if there are any, and the entry of its part of ``v`` called ``name``."""
        return ("MGG_EACH ", f"{name}[e]") if wide(self.values.axes(v)) else ("", name)

    def _started(self, v: Value, name: str, kind: str = "float") -> str:
        """The declaration of a sum of nothing so far."""
        start = {"maximum_of": "-INFINITY", "minimum_of": "INFINITY"}.get(_aggregation(v), "0.0f")
        if v.op == "winner":
            kind, start = "mgg::Winner", f"{{{start}, -1, -1}}"
        each, goal = self._columns(v, name)
        return f"{kind} {name}[L::COUNT]; {each}{goal} = {start};" if each else f"{kind} {name} = {start};"

    def _added(self, v: Value, name: str) -> str:
        """An arc, to a sum; a lane without one has the row's last one again."""
        values, axes = self.values, self.values.axes(v)
        each, goal = self._columns(v, name)
        if v.op == "total" and v not in self.narrow_sums:
            return each + _taken(v, goal, values.counted(v.inputs[0], axes))
        text = values.gram(v, axes) if v.op == "gram" else values.entry(v.inputs[0], axes)
        if v.op == "winner":
            source = "0" if self.launch.rows is S or "source" not in values.items else values.id_of("source")
            text += f", {source}, {values.item('arc' if self.launch.over is E else 'run')}"
        taken = each + _taken(v, goal, text)
        return taken if v.op in ("maximum_of", "minimum_of") else f"if (active) {{ {taken} }}"

    def _scaled(self, top: Value, sums: Mapping[Value, str], by: str, *, narrow: bool | None = None) -> list[str]:
        """Statements that multiply the sums relative to ``top``, or those that are ``narrow``, with a number."""
        found = []
        for v, relative in self.launch.shifts.items():
            if relative is top and narrow in (None, v in self.narrow_sums):
                each, goal = self._columns(v, sums[v])
                found.append(f"{each}{goal} *= {by};")
        return found

    def _raised(self, top: Value, sums: Mapping[Value, str]) -> None:
        """Lines by which a maximum takes arcs, and sums that are relative to it follow."""
        values, name = self.values, sums[top]
        by = values.raised(top, name, partial(self._scaled, top, sums))
        if by is not None:
            for text in self._scaled(top, sums, by, narrow=True):
                values.line("narrow", text)
            shared = values.name("n")
            values.line("window", f"float {shared} = 1.0f;")
            values.line("narrow", f"{shared} = {by};")
            values.line("scaled", f"{shared} = L::to_head({shared});")
            for text in self._scaled(top, sums, shared, narrow=False):
                values.line("scaled", text)

    def _reduced(self, v: Value, name: str, *, narrow: bool = False) -> str:
        """What lanes of other arcs have found, put together; ``narrow``: each of its own arcs in the window."""
        each, goal = self._columns(v, name)
        if v in self.tops:
            return ""
        if v.op == "winner":
            return f"{each}mgg::win<L, {_largest(v)}>({goal});"
        prefix = "narrow_" if narrow else ""
        if v.op in ("total", "gram"):
            return f"{each}L::{prefix}total({goal});"
        return f"{each}L::template {prefix}extreme<{_largest(v)}>({goal});"

    def _met(self, sums: Mapping[Value, str], *, narrow: bool) -> list[str]:
        """Maxima of all lanes, to which sums are relative from here on; ``narrow``: lanes had all arcs of a window."""
        found = []
        for top in [v for v in self.launch.sums if v in self.tops]:
            if narrow and top in self.narrow_sums:
                found.append(f"{sums[top]} = L::to_head({sums[top]});")
            else:
                by = self.values.name("n")
                found += [f"const float {by} = L::meet({sums[top]});", *self._scaled(top, sums, by)]
        return found

    def _finished(self, v: Value, name: str) -> str:
        """What there is of no arcs is 0: lanes have taken those of others."""
        each, goal = self._columns(v, name)
        if v.op == "winner" or (v not in self.launch.shifts and v.op not in ("maximum_of", "minimum_of", "total")):
            return ""
        return f"if (empty) {{ {each}{goal} = 0.0f; }}"

    def _leading(self, v: Value) -> str:
        """The condition that a lane is the first of those that have the same of ``v``."""
        axes, heads = self.values.axes(v), self.layout.shape[:-1]
        conditions = ["lead"] if wide(axes) else ["lead", "first == 0"]
        if not wide(axes) or len(axes) > 1 or axes[0] == COLUMN:  # which has not all heads in one axis
            conditions += [
                f"{self.layout.head_axis(n)} == 0"
                for n, length in enumerate(heads)
                if length > 1 and (n >= len(v.shape) or v.shape[n] == 1)
            ]
        return " && ".join(conditions)

    def _written(self, v: Value, place: str, name: str, *, own: bool = False, fits: bool = False) -> str:
        """A lane's part to memory; ``own``: to an array of ``v``."""
        axes, condition = self.values.axes(v), self._leading(v)
        if not wide(axes):
            value = f"{name}.arc" if v.op == "winner" else name
            return f"if ({condition}) ({place})[{flat(axes, v.shape)}] = {value};"
        row = plus(place, lead(axes, v))
        if v.op == "winner":
            arcs = self.values.name("w")
            copied = f"long long {arcs}[L::COUNT]; MGG_EACH {arcs}[e] = {name}[e].arc;"
            return f"if ({condition}) {{ {copied} L::write<false>({row}, {arcs}, first, COLUMNS); }}"
        if own:
            return f"if ({condition}) {self.values.moved('write', v, name, row)}"
        return f"if ({condition}) L::write<{'true' if fits else 'false'}>({row}, {name}, first, COLUMNS);"

    def _part(self, v: Value, slot: str) -> list[str]:
        """Where the part of a cut row in a slot is kept: a number, of a winner its entry, its source and its arc."""
        n = [*self.partials].index(v)
        at = f"{slot} * {pitch(v.size)}ll + {flat(self.values.axes(v), v.shape)}"
        return [f"{array}{n}[{at}]" for array in (("p", "pi", "pa") if v.op == "winner" else ("p",))]

    def _parted(self, v: Value, name: str) -> str:
        """What a piece of a cut row has found."""
        if v.op != "winner":
            n, step = [*self.partials].index(v), pitch(v.size)
            return self._written(v, row_of(f"p{n}", "~goal", step), name, fits=self.values.fits(step))
        each, goal = self._columns(v, name)
        best, source, arc = self._part(v, "~goal")
        condition = self._leading(v) + (" && first + L::place(e) < COLUMNS" if each else "")
        return f"{each}if ({condition}) {{ {best} = {goal}.best; {source} = {goal}.id; {arc} = {goal}.arc; }}"

    # Kernels.

    def _arguments(self) -> list[str]:
        """Of both kernels, in order: rows, tables, arrays, parts of cut rows, results, masks."""
        values, launch = self.values, self.launch
        found = ["int count"]
        if launch.over is not None:
            found += ["const long long *begin", "const int *goals", "const int *slot_rows"]
            found += ["const int *order"] * (self.how.rows == "sorted")
            found += ["unsigned *next"] * (self.how.blocks == "atomic")
        found += [f"const {TABLES[name]} *{name}" for name in values.tables]
        found += [each for n, v in enumerate(values.reads) for each in (f"const {type_of(v)} *x{n}", f"int s{n}")]
        for n, v in enumerate(self.partials):
            found += [f"float *p{n}"] + ([f"long long *pi{n}", f"long long *pa{n}"] if v.op == "winner" else [])
        found += [each for n, v in enumerate(launch.results) for each in (f"{type_of(v)} *y{n}", f"int r{n}")]
        found += [f"double *t{n}" for n in range(len(launch.totals))]
        if values.masks:
            found += ["const double *epoch", "long long base", "long long streams"]
            found += [f"long long place{n}" for n in range(len(values.masks))]
        return found

    def _opening(self, name: str, extra: Sequence[str], group: int, how: Execution = DEFAULT) -> list[str]:
        """Arguments, and which head and columns a lane has."""
        layout = self.layout
        number, tile, ahead = _numbers(how, layout)
        worker = "(blockIdx.x * blockDim.x + threadIdx.x) / L::GROUP"
        if how.groups == "block":
            worker = number
        elif how != DEFAULT:  # there may be many: no number of threads
            worker = f"{number} * (blockDim.x / L::GROUP) + threadIdx.x / L::GROUP"
        return [
            f'extern "C" __global__ void __launch_bounds__({THREADS}, {RESIDENT}) {name}(',
            "    " + ",\n    ".join([*self._arguments(), *extra]),
            ") {",
            *ahead,
            f"using L = mgg::Lanes<{group}, {layout.lanes}, {layout.head_lanes}, {layout.vector}, {layout.parts}>;",
            f"constexpr int COLUMNS = {layout.columns}, HEADS = {layout.heads};",
            "const int lane = threadIdx.x & 31, place = lane % L::LANES;",
            f"const int tile = {tile} / {layout.column_tiles};",
            f"const int my_head = tile * {layout.head_tile} + place / L::HEAD_LANES;",
            f"const int {HEAD} = my_head < HEADS ? my_head : 0;",
            f"const int first = my_head < HEADS ? ({tile} % {layout.column_tiles} * L::PARTS * L::HEAD_LANES"
            " + place % L::HEAD_LANES) * L::VEC : COLUMNS;",
            "const bool lead = my_head < HEADS;",
            "const auto at = [&](int e) {"
            " const int column = first + L::place(e); return column < COLUMNS ? column : 0; };",
            "const int narrow_own = tile * L::HEADS + lane % L::HEADS,"
            " narrow_head = narrow_own < HEADS ? narrow_own : 0;",
            "(void)at; (void)h; (void)lead; (void)place; (void)narrow_head;",
            f"const int worker = {worker};",
            *(
                f"const unsigned long long key{n} = mgg::Draws{{epoch, base, streams, place{n}}}.key();"
                for n in range(len(self.values.masks))
            ),
        ]

    def _rows(self, sums: Mapping[Value, str], outputs: list[str]) -> str:
        """Rows that are each worked out by themselves, and sums of all of them."""
        adds = []
        for v, name in sums.items():
            each, goal = self._columns(v, name)
            adds.append(f"{each}{goal} += {self.values.entry(v.inputs[0], self.values.axes(v))};")
        loop = "for (int begins = 0; begins < count; begins += gridDim.x * (blockDim.x / L::GROUP)) {"
        return "\n".join([
            *self._opening(self.kernel, (), self.group), *(self._started(v, sums[v], "double") for v in sums),
            loop if sums else "{ constexpr int begins = 0;",
            "const bool writes = begins + worker < count; const int row = writes ? begins + worker : 0;",
            *self.values.parts["rows"], *self.values.parts["after"],
            "if (writes) {", *outputs, *adds, "}", "}",
            *(self._written(v, row_of(f"t{n}", "worker", v.size), sums[v]) for n, v in enumerate(sums)), "}", "",
        ])  # fmt: skip

    def _pieces(self, sums: Mapping[Value, str], adds: list[str], outputs: list[str]) -> str:
        """Pieces of rows: a group of lanes a piece."""
        parts, partials, totals = self.values.parts, self.partials.items(), self.launch.totals
        piece = "present ? begins + worker : 0"
        lines = [
            *self._opening(self.kernel, (), self.group, self.how),
            f"constexpr int U = {self._under_way()};", "const int mine = lane % L::GROUP / L::LANES;",
            *(self._started(v, f"d{sums[v]}", "double") for v in totals),
            f"const int workers = gridDim.x{' * (blockDim.x / L::GROUP)' * (self.how.groups != 'block')};",
            "for (int begins = 0; begins < count; begins += workers) {",
            "const bool present = begins + worker < count;"
            f" const int piece = {f'order[{piece}]' if self.how.rows == 'sorted' else piece};",
            "const int goal = goals[piece];",
            "const long long row = goal < 0 ? slot_rows[~goal] : goal, start = begin[piece];",
            "const int length = present ? static_cast<int>(begin[piece + 1] - start) : 0;",
            "(void)row;",
            *parts["rows"],
            *(self._started(v, name) for v, name in sums.items()),
            "const int most = mgg::most_of_warp<L>(length), last = max(length - 1, 0);",
            "const long long origin = length ? start : 0; (void)origin; (void)last;",
            *self._loop(adds),
        ]  # fmt: skip
        if partials or outputs:
            lines += [
                *self._met(sums, narrow=True),
                *(self._reduced(v, name, narrow=v in self.narrow_sums) for v, name in partials),
                "const bool empty = length == 0; (void)empty;",
                *(self._finished(v, name) for v, name in partials),
                *parts["after"],
                "if (present && mine == 0) {", "if (goal >= 0) {", *outputs, "} else {",
                *(self._parted(v, name) for v, name in partials),
                "}", "}",
            ]  # fmt: skip
        for v in totals:  # of many rows: their sums are rounded no further
            each, goal = self._columns(v, sums[v])
            lines.append(f"{each}d{goal} += {goal};")
        lines.append("}")
        for n, v in enumerate(totals):
            name = f"d{sums[v]}"
            written = self._written(v, row_of(f"t{n}", "worker", v.size), name)
            lines += [self._reduced(v, name, narrow=v in self.narrow_sums), f"if (mine == 0) {{ {written} }}"]
        return "\n".join([*lines, "}", ""])

    def _in_windows(self) -> bool:
        """Whether lanes make numbers of arcs for each other."""
        return any(self.values.parts[part] for part in ("start", "fetched", "narrow"))

    def _under_way(self) -> int:
        """Of how many arcs a lane has loads under way, or asks others."""
        found = min(UNDER_WAY, self.layout.head_lanes) if self._in_windows() else UNDER_WAY
        at_once = self.group // self.layout.lanes
        while found > 1 and (self.values.words * found > IN_FLIGHT or found * at_once > 2 * self.mean + 1):
            found //= 2
        return found

    def _loop(self, adds: list[str]) -> list[str]:
        """Over the arcs of a piece."""
        parts = self.values.parts
        loads = [*parts["indices"], *parts["loads"]]
        arcs = [
            "MGG_ARCS {", "const bool active = L::arc(base, block + u, mine) < length; (void)active;",
            *parts["arcs"], *adds, "}",
        ]  # fmt: skip
        if any("k[u]" in line for line in [*loads, *arcs]):
            loads.insert(0, "long long k[U]; MGG_ARCS k[u] = origin + min(L::arc(base, block + u, mine), last);")
        if not self._in_windows():
            return [
                "for (int base = 0; base < most; base += L::ARCS * U) {",
                "constexpr int block = 0;",
                *loads,
                *arcs,
                "}",
            ]
        # The first rows of a window are under way while lanes make numbers of its arcs.
        first, rest = ([], []) if self.values.late else (["constexpr int block = 0;", *loads], arcs)
        return [
            "const int holder = (lane & ~(L::GROUP - 1)) + mine * L::HEADS + place / L::HEAD_LANES;",
            "const int own = lane % L::GROUP / L::HEADS;",
            "const auto place_of = [&](int first) { return origin + min(first + own, last); }; (void)place_of;",
            *parts["start"],
            "for (int base = 0; base < most; base += L::WINDOW) {", *parts["window"], "{",
            "const int h = narrow_head; (void)h;", "const long long k = place_of(base); (void)k;",
            *parts["fetched"], "}", *first, "{",
            "const int h = narrow_head; (void)h;", "const long long k = place_of(base); (void)k;",
            "const bool active = base + own < length; (void)active;", *parts["narrow"], "}", *parts["scaled"], *rest,
            f"MGG_BLOCKS for (int block = {'U' if rest else '0'}; block < L::HEAD_LANES; block += U) {{",
            "if (base + block * L::ARCS >= most) break;", *loads, *arcs, "}", "}",
        ]  # fmt: skip

    def _combine(self, outputs: list[str]) -> str:
        """Rows that were cut, from what their pieces found: a warp a row."""
        parts, partials = self.values.parts, self.partials.items()
        taken, shares = [], {}
        for top in [v for v in self.launch.sums if v in self.tops]:
            name, found, by, shares[top] = self.partials[top], *(self.values.name("n") for _ in range(3))
            taken.append(f"const float {found} = {self._part(top, 'slot')[0]}, {by} = mgg::raise({name}, {found});")
            taken += self._scaled(top, self.partials, by)
            taken.append(f"const float {shares[top]} = {found} == {name} ? 1.0f : expf({found} - {name});")
        for v, name in partials:
            each, goal = self._columns(v, name)
            text = ", ".join(self._part(v, "slot"))
            if v not in self.tops:
                share = f"{shares[self.launch.shifts[v]]} * " if v in self.launch.shifts else ""
                taken.append(each + _taken(v, goal, share + text))
        return "\n".join([
            *self._opening(f"{self.kernel}_combine", ["const int *rows", "const int *first_slot"], WARP),
            "const int mine = lane / L::LANES;",
            "if (worker >= count) return;",
            "const long long row = rows[worker]; const bool empty = false; (void)empty; (void)row;",
            *_needed(parts["rows"], [*parts["after"], *outputs]),
            *(self._started(v, name) for v, name in partials),
            "for (int slot = first_slot[worker] + mine; slot < first_slot[worker + 1]; slot += L::ARCS) {",
            *taken, "}", "__syncwarp();", *self._met(self.partials, narrow=False),
            *(self._reduced(v, name) for v, name in partials),
            *parts["after"], "if (mine == 0) {", *outputs, "}", "}", "",
        ])  # fmt: skip


def _numbers(how: Execution, layout: Layout) -> tuple[str, str, list[str]]:
    """What says which block and which tile of columns a thread is of, and the lines before it."""
    number, tile, ahead = "blockIdx.x", "blockIdx.y", []
    if how.blocks == "atomic":  # the last one to draw leaves 0 behind
        ahead = [
            "__shared__ unsigned drawn;",
            "if (threadIdx.x == 0) drawn = atomicInc(next, gridDim.x * gridDim.y - 1);",
            "__syncthreads();",
            "const int number = drawn % gridDim.x, strip = drawn / gridDim.x;",
        ]
        number, tile = "number", "strip"
    if how.groups == "block":
        ahead.append(f"const int mine_of_all = {tile} * {THREADS // WARP} + threadIdx.x / {WARP};")
        ahead.append(f"if (mine_of_all >= {layout.tiles}) return;")
        tile = "mine_of_all"
    return number, tile, ahead


#: Names that ``Values`` gives, but for those of loops.
_NAMES = re.compile(r"\b[inqvw]\d+\b")


def _needed(lines: Sequence[str], later: Sequence[str]) -> list[str]:
    """Those of ``lines``, each of which makes what it names first, that ``later`` ones read."""
    kept, read = [], set(_NAMES.findall(" ".join(later)))
    for line in reversed(lines):
        names = _NAMES.findall(line)
        if names[0] in read:
            kept.append(line)
            read.update(names)
    return kept[::-1]


def _aggregation(v: Value) -> str:
    """Of which a winner is the arc; otherwise the sum itself."""
    return str(v["of"]) if v.op == "winner" else v.op


def _largest(v: Value) -> str:
    """Whether an extreme, or a winner, is that of the largest; as C++ has it."""
    return "true" if _aggregation(v) == "maximum_of" else "false"


def _taken(v: Value, goal: str, text: str) -> str:
    """The statement that takes ``text`` into a sum; of a winner, its members."""
    if v.op in ("total", "gram"):
        return f"{goal} += {text};"
    if v.op == "winner":
        return f"{goal}.template take<{_largest(v)}>({{{text}}});"
    return f"L::template take_extreme<{_largest(v)}>({goal}, {text});"
