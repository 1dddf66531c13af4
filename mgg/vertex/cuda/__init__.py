"""Generate CUDA kernels for the launches of a vertex program, over kernels/include/mgg/vertex.cuh.

- The arcs (or runs) of a row form one piece; a long row has several pieces of bounded length
  (``mgg.kernel.schedule``).
- As many lanes of a warp as the columns need share an arc (``mgg.vertex.warp_layout``). A group of lanes handles one
  or more arcs of a piece at once, and each lane keeps the loads of several further arcs in flight. The data of an arc
  stays in registers (``mgg.vertex.cuda.values``). After the last arc of a piece, the lanes combine their results.
- A row of a single piece is finished and written at once. The partial results of other rows are stored, and a second
  kernel combines them, one warp per row, always in the same order.
- Sums over all arcs or all rows stay in lanes, in double precision, while a bounded number of blocks process all pieces
  or rows. Then each group writes one row of its sums, and these rows are added up elsewhere.
- A softmax takes one pass (``mgg.vertex.online_softmax``): when its maximum rises, sums relative to it are rescaled.
- Alternative ways to share the arcs among threads exist for comparison (``mgg.vertex.cuda.execution``).
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
from mgg.vertex.warp_layout import COLUMN, HEAD, WARP, Layout, flat, pitch, power, wide

#: Threads per block; and for launches whose lanes keep sums over all arcs, the most blocks and the most bytes of sums.
THREADS, ALL_BLOCKS, ALL_BYTES = 256, 528, 64 << 20
#: Least number of resident blocks per multiprocessor, which bounds the registers per thread.
RESIDENT = 3
#: Approximate number of registers for loads in flight, and the most arcs in flight per lane.
IN_FLIGHT, UNDER_WAY = 48, 8


@dataclass(frozen=True)
class Kernel:
    """The CUDA source of a launch.

    Attributes:
        name: name of the kernel; the second kernel, for cut rows, has the suffix ``_combine``.
        launch: the launch.
        group: lanes per piece, a power of two up to 32.
        text: source of both kernels; empty for a launch without entries.
        tables: names of the tables (keys of ``cuda_values.TABLES``) that it reads, in argument order.
        reads: values whose arrays [rows, step] it reads, float32 or int64 (winners), in argument order.
        masks: masks that it draws, in argument order.
        how: how threads share the arcs.
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
        """Pieces or rows per block at once."""
        return 1 if self.how.groups == "block" else THREADS // self.group

    @property
    def blocks(self) -> int | None:
        """Most blocks of the launch, if lanes keep sums over all arcs or all blocks run at once; otherwise None."""
        most = max(1, STATIC_BLOCKS // self.tiles) if self.how.blocks == "static" else None
        if not self.launch.totals:
            return most
        size = sum(v.size for v in self.launch.totals) * 8 * self.per_block
        return max(1, min(most or ALL_BLOCKS, ALL_BYTES // max(size, 1)))

    @property
    def tiles(self) -> int:
        """Blocks that share the columns of the same rows."""
        tiles = self.launch.layout.tiles
        return -(-tiles // (THREADS // WARP)) if self.how.groups == "block" else tiles


def gathered(launch: Launch) -> list[Value]:
    """Return the arrays that arcs read at their other ends and that need padding for 16-byte loads."""
    items = ITEMS[launch.over, launch.rows]
    return [
        v
        for v in launch.reads
        if launch.over is E and v.space in (S, D) and items[ROWS_OF[v.space]] != "row" and is_odd(v, launch.layout)
    ]


def is_odd(v: Value, layout: Layout) -> bool:
    """Return whether rows of ``v`` need padding for 16-byte loads and stores."""
    wide_enough = layout.heads == 1 and v.shape[-1:] == (v.size,) == (layout.columns,)
    return wide_enough and v.size % layout.vector > 0 and v.op != "winner"


def kernel_of(
    name: str, launch: Launch, mean: float, padded: Collection[Value] = (), how: Execution = DEFAULT
) -> Kernel:
    """Return CUDA for ``launch`` and lists with ``mean`` items per row; rows of ``padded`` arrays have ``lanes.pitch``.

    ``how`` applies only to launches over arcs or runs.
    """
    if not prod(launch.layout.shape):
        return Kernel(name, launch)
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
    """Return a source file with all kernels and grouped products."""
    headers = ["vertex", "grouped"] if grouped else ["vertex"]
    lines = ["// Kernels of a vertex program, written by mgg.vertex.cuda."]
    lines += dict.fromkeys(f"// {kernel.how}" for kernel in kernels if kernel.how != DEFAULT)
    lines += [f'#include "mgg/{name}.cuh"' for name in headers]
    return "\n".join([*lines, "", *(kernel.text for kernel in kernels), *(product.text for product in grouped)])


class _Writer:
    """Writes the source of one launch: the kernel over pieces, and the kernel that combines cut rows."""

    def __init__(self, name: str, values: Values, group: int, mean: float, how: Execution) -> None:
        self.kernel, self.values, self.group, self.mean, self.how = name, values, group, mean, how
        self.launch, self.layout = values.launch, values.launch.layout
        self.partials = {v: f"a{n}" for n, v in enumerate(self.launch.sums) if v in self.launch.partials}
        self.narrow_sums: set[Value] = set()  # sums that each lane takes over its own arcs of a window
        self.tops = {*self.launch.shifts.values()}

    def text(self) -> str:
        """Return the source of all kernels of the launch."""
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

    # Statements for sums and stores.

    def _columns(self, v: Value, name: str) -> tuple[str, str]:
        """Return a loop over the lane's columns of ``v``, if any, and the entry in it of the variable ``name``."""
        return ("MGG_EACH ", f"{name}[e]") if wide(self.values.axes(v)) else ("", name)

    def _started(self, v: Value, name: str, kind: str = "float") -> str:
        """Return the declaration of an empty sum."""
        start = {"maximum_of": "-INFINITY", "minimum_of": "INFINITY"}.get(_aggregation(v), "0.0f")
        if v.op == "winner":
            kind, start = "mgg::Winner", f"{{{start}, -1, -1}}"
        each, goal = self._columns(v, name)
        return f"{kind} {name}[L::COUNT]; {each}{goal} = {start};" if each else f"{kind} {name} = {start};"

    def _added(self, v: Value, name: str) -> str:
        """Return the statement that adds an arc to a sum; a lane without an arc repeats the last arc of its row."""
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
        """Return statements that multiply the sums relative to ``top`` by ``by``; ``narrow`` selects which of them."""
        found = []
        for v, relative in self.launch.shifts.items():
            if relative is top and narrow in (None, v in self.narrow_sums):
                each, goal = self._columns(v, sums[v])
                found.append(f"{each}{goal} *= {by};")
        return found

    def _raised(self, top: Value, sums: Mapping[Value, str]) -> None:
        """Write the lines that update a maximum with arcs and rescale the sums relative to it."""
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
        """Return the statement that combines a sum across lanes; ``narrow``: each summed its own arcs of windows."""
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
        """Return statements that combine maxima across lanes and make sums relative to them; ``narrow``: a window."""
        found = []
        for top in [v for v in self.launch.sums if v in self.tops]:
            if narrow and top in self.narrow_sums:
                found.append(f"{sums[top]} = L::to_head({sums[top]});")
            else:
                by = self.values.name("n")
                found += [f"const float {by} = L::meet({sums[top]});", *self._scaled(top, sums, by)]
        return found

    def _finished(self, v: Value, name: str) -> str:
        """Return the statement that sets results without arcs to 0: their lanes have added arcs of other rows."""
        each, goal = self._columns(v, name)
        if v.op == "winner" or (v not in self.launch.shifts and v.op not in ("maximum_of", "minimum_of", "total")):
            return ""
        return f"if (empty) {{ {each}{goal} = 0.0f; }}"

    def _leading(self, v: Value) -> str:
        """Return the condition that a lane is the first of those with the same entries of ``v``."""
        axes, heads = self.values.axes(v), self.layout.shape[:-1]
        conditions = ["lead"] if wide(axes) else ["lead", "first == 0"]
        if not wide(axes) or len(axes) > 1 or axes[0] == COLUMN:  # the heads are not merged into one axis
            conditions += [
                f"{self.layout.head_axis(n)} == 0"
                for n, length in enumerate(heads)
                if length > 1 and (n >= len(v.shape) or v.shape[n] == 1)
            ]
        return " && ".join(conditions)

    def _written(self, v: Value, place: str, name: str, *, own: bool = False, fits: bool = False) -> str:
        """Return the statement that stores a lane's part of ``v``; ``own``: to an array of ``v`` itself."""
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
        """Return where a slot keeps its part of a cut row: one number, or for a winner its entry, source and arc."""
        n = [*self.partials].index(v)
        at = f"{slot} * {pitch(v.size)}ll + {flat(self.values.axes(v), v.shape)}"
        return [f"{array}{n}[{at}]" for array in (("p", "pi", "pa") if v.op == "winner" else ("p",))]

    def _parted(self, v: Value, name: str) -> str:
        """Return the statement that stores the partial result of a piece of a cut row."""
        if v.op != "winner":
            n, step = [*self.partials].index(v), pitch(v.size)
            return self._written(v, row_of(f"p{n}", "~goal", step), name, fits=self.values.fits(step))
        each, goal = self._columns(v, name)
        best, source, arc = self._part(v, "~goal")
        condition = self._leading(v) + (" && first + L::place(e) < COLUMNS" if each else "")
        return f"{each}if ({condition}) {{ {best} = {goal}.best; {source} = {goal}.id; {arc} = {goal}.arc; }}"

    # Kernels.

    def _arguments(self) -> list[str]:
        """Return the arguments of both kernels in order: rows, tables, arrays, parts of cut rows, results, masks."""
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
        """Return the signature, and the declarations of a lane's head and columns."""
        layout = self.layout
        number, tile, ahead = _numbers(how, layout)
        worker = "(blockIdx.x * blockDim.x + threadIdx.x) / L::GROUP"
        if how.groups == "block":
            worker = number
        elif how != DEFAULT:  # with many blocks, the number of a thread would overflow
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
        """Return the kernel of a launch over rows alone, and of sums over all rows."""
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
        """Return the kernel over pieces of rows, with one group of lanes per piece."""
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
        for v in totals:  # sums over many rows, accumulated in double precision
            each, goal = self._columns(v, sums[v])
            lines.append(f"{each}d{goal} += {goal};")
        lines.append("}")
        for n, v in enumerate(totals):
            name = f"d{sums[v]}"
            written = self._written(v, row_of(f"t{n}", "worker", v.size), name)
            lines += [self._reduced(v, name, narrow=v in self.narrow_sums), f"if (mine == 0) {{ {written} }}"]
        return "\n".join([*lines, "}", ""])

    def _in_windows(self) -> bool:
        """Return whether lanes compute numbers of arcs for each other."""
        return any(self.values.parts[part] for part in ("start", "fetched", "narrow"))

    def _under_way(self) -> int:
        """Return the number of arcs whose loads, or exchanges between lanes, a lane has in flight."""
        found = min(UNDER_WAY, self.layout.head_lanes) if self._in_windows() else UNDER_WAY
        at_once = self.group // self.layout.lanes
        while found > 1 and (self.values.words * found > IN_FLIGHT or found * at_once > 2 * self.mean + 1):
            found //= 2
        return found

    def _loop(self, adds: list[str]) -> list[str]:
        """Return the loop over the arcs of a piece."""
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
        # The first rows of a window are loaded while lanes compute the numbers of its arcs.
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
        """Return the kernel that combines the parts of cut rows, one warp per row."""
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
    """Return the expressions of a thread's block and tile of columns, and the lines that precede them."""
    number, tile, ahead = "blockIdx.x", "blockIdx.y", []
    if how.blocks == "atomic":  # the last draw resets the counter to 0
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


#: Names that ``Values`` generates, except those of loops.
_NAMES = re.compile(r"\b[inqvw]\d+\b")


def _needed(lines: Sequence[str], later: Sequence[str]) -> list[str]:
    """Return the ``lines`` that ``later`` lines depend on; each line defines the first name in it."""
    kept, read = [], set(_NAMES.findall(" ".join(later)))
    for line in reversed(lines):
        names = _NAMES.findall(line)
        if names[0] in read:
            kept.append(line)
            read.update(names)
    return kept[::-1]


def _aggregation(v: Value) -> str:
    """Return the operation of the sum ``v``; for a winner, the extreme it belongs to."""
    return str(v["of"]) if v.op == "winner" else v.op


def _largest(v: Value) -> str:
    """Return, as a C++ literal, whether an extreme or winner takes the largest value."""
    return "true" if _aggregation(v) == "maximum_of" else "false"


def _taken(v: Value, goal: str, text: str) -> str:
    """Return the statement that adds ``text`` to a sum; for a winner, ``text`` is its members."""
    if v.op in ("total", "gram"):
        return f"{goal} += {text};"
    if v.op == "winner":
        return f"{goal}.template take<{_largest(v)}>({{{text}}});"
    return f"L::template take_extreme<{_largest(v)}>({goal}, {text});"
