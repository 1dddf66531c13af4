"""A vertex program's work on a GPU: generated kernels (``mgg.vertex.cuda``), and between them matrices and halos."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from mgg import files
from mgg.kernel import random
from mgg.kernel.compile import Build
from mgg.vertex.arcs import ArcTables, pointers
from mgg.vertex.crossing import ROWWISE
from mgg.vertex.cuda import THREADS, Kernel, gathered, is_odd, kernel_of, source_of
from mgg.vertex.cuda.execution import DEFAULT, Execution
from mgg.vertex.cuda.grouped import Grouped, cut
from mgg.vertex.cuda.launches import Launch, planned
from mgg.vertex.ir import D, E, P, R, S, Space, T, Value
from mgg.vertex.lanes import pitch
from mgg.vertex.products import by_type
from mgg.vertex.run import Inner, Part, Scaled, Step, Work, array_of, dense, do, made_by, needs
from mgg.vertex.units import is_count

#: Arcs a row from which rows that arcs read are padded to be loaded 16 bytes at once.
COPIED = 8


@dataclass(frozen=True)
class Pieces:
    """A ``RowSchedule`` as kernels read it, on the GPU.

    Attributes:
        begin, target, split_rows, split_first, slots: as of that.
        slot_rows: int32 [slots], the row of each partial sum.
        order: int32 [pieces], which piece is worked off when; None: as they are.
    """

    begin: Any
    target: Any
    slot_rows: Any
    split_rows: Any
    split_first: Any
    slots: int
    order: Any = None

    @classmethod
    def of(cls, schedule: Any) -> Self:
        """What there is of a ``DeviceSchedule``."""
        names = ("begin", "target", "slot_rows", "split_rows", "split_first", "slots")
        return cls(*(getattr(schedule, name) for name in names))

    @classmethod
    def made(cls, ptr: np.ndarray, how: Execution, upload: Callable[[np.ndarray], Any]) -> Self:
        """Of rows whose arcs begin at ``ptr``."""
        cut = how.cut(ptr)
        order = how.order(cut)
        slot_rows = np.repeat(cut.split_rows, np.diff(cut.split_first)).astype(np.int32)
        begin, target, rows, split_rows, first = map(
            upload, (cut.begin, cut.target, slot_rows, cut.split_rows, cut.split_first)
        )
        return cls(begin, target, rows, split_rows, first, cut.slots, None if order is None else upload(order))


@dataclass(eq=False)
class DeviceTables:
    """``ArcTables`` in a GPU's memory, each array when it is first asked for.

    Attributes:
        arcs: the tables (collective when they are first asked for).
        rows: of D.
        upload: of an array.
        operators: of the GPU: it has ``schedule`` and ``kernel``.
    """

    arcs: Callable[[], ArcTables]
    rows: int
    upload: Callable[[np.ndarray], Any]
    operators: Any
    _made: dict[str, Any] = field(default_factory=dict)

    def rows_of(self, space: Space) -> int:
        """How many rows ``space`` has."""
        if space in (P, D):
            return 1 if space is P else self.rows
        return self.arcs().type_count if space is T else self.arcs().rows_of(space)

    def items(self, over: Space, rows: Space) -> np.ndarray:
        """int64 [rows + 1], where the arcs or runs of each row begin in their list; on the host."""
        tables = self.arcs()
        return {
            (E, D): lambda: tables.ptr,
            (E, R): lambda: tables.runs,
            (E, S): lambda: tables.out_ptr,
            (R, D): lambda: tables.row_runs,
            (E, T): lambda: pointers(np.sort(self._types), tables.type_count),
            (R, T): lambda: pointers(np.sort(tables.run_types), tables.type_count),
        }[over, rows]()

    def stretches(self, over: Space, length: int) -> tuple[Any, Any, Any]:
        """What ``mgg.vertex.cuda.grouped.cut`` makes of the arcs or runs of each type, on the GPU."""
        key = f"{over!r} {length}"
        if key not in self._made:
            self._made[key] = tuple(map(self.upload, cut(self.items(over, T), length)))
        found: tuple[Any, Any, Any] = self._made[key]
        return found

    def mean(self, launch: Launch) -> float:
        """Items a row of the list that ``launch`` goes over."""
        if launch.over is None:
            return 1.0
        ptr = self.items(launch.over, launch.rows)
        return float(ptr[-1]) / max(len(ptr) - 1, 1)

    def pointer(self, over: Space, rows: Space) -> Any:
        """``items`` on the GPU; the same array every time, by which its cut into pieces is known."""
        return self._once(f"{over!r}{rows!r}", lambda: self.items(over, rows))

    def pieces(self, over: Space, rows: Space, how: Execution) -> Pieces:
        """How the rows of a list are cut and ordered, on the GPU."""
        if how.plain:
            return Pieces.of(self.operators.schedule(self.pointer(over, rows), 1)[1])
        key = f"{how.arcs} {how.rows} {over!r}{rows!r}"
        if key not in self._made:
            self._made[key] = Pieces.made(self.items(over, rows), how, self.upload)
        found: Pieces = self._made[key]
        return found

    def counter(self, kernel: str) -> Any:
        """uint32 [1], 0 between launches: from which the blocks of a kernel draw their numbers."""
        return self._once(f"next of {kernel}", lambda: np.zeros(1, np.uint32))

    def table(self, name: str, over: Space | None, rows: Space) -> Any:
        """The array ``name`` of ``mgg.vertex.cuda.TABLES`` for a launch."""
        tables = self.arcs()
        make: dict[str, Callable[[], np.ndarray]] = {
            "ends": lambda: tables.out_ends.astype(tables.ends.dtype) if rows is S else tables.ends,
            "arcs": lambda: (
                tables.out_arcs if rows is S
                else np.argsort(self._types if over is E else tables.run_types, kind="stable")
            ),
            "targets": lambda: np.repeat(np.arange(tables.rows, dtype=np.int32), np.diff(tables.ptr)),
            "run_of": lambda: tables.arc_runs,
            "types": lambda: self._types,
            "run_targets": lambda: tables.run_targets,
            "run_types": lambda: tables.run_types.astype(np.int32),
            "ids": lambda: tables.ids,
        }  # fmt: skip
        kind = f" {over!r}{rows!r}" if name in ("ends", "arcs") and rows in (S, T) else ""
        if name == "ends" and rows is T:
            kind = ""
        return self._once(name + kind, make[name])

    @cached_property
    def _types(self) -> np.ndarray:
        tables = self.arcs()
        return np.zeros(len(tables.ends), np.int32) if tables.types is None else tables.types

    def _once(self, name: str, make: Callable[[], np.ndarray]) -> Any:
        if name not in self._made:
            self._made[name] = self.upload(np.ascontiguousarray(make()))
        return self._made[name]


class DeviceWork:
    """``Work`` as kernels, compiled when they are first run.

    Args:
        work: the steps.
        tables: of the PE.
        name: what the file of the kernels is called.
        how: arcs are shared among threads.
    """

    def __init__(self, work: Work, tables: DeviceTables, name: str = "program", how: Execution = DEFAULT) -> None:
        self._tables, self._wanted = tables, work.wanted
        self._steps, self._twins, reads, self._gone = _planned(work)
        launches = [step for step in self._steps if isinstance(step, Launch)]
        self._given = {*work.wanted} - work.kept  # to others, who want rows that follow each other
        means = [tables.mean(launch) for launch in launches]
        self._padded = {
            v for launch, mean in zip(launches, means, strict=True) if mean >= COPIED for v in gathered(launch)
        }
        self._kernels = {
            launch: kernel_of(f"vertex_{n}", launch, mean, self._padded, how)
            for n, (launch, mean) in enumerate(zip(launches, means, strict=True))
        }
        self._grouped = {
            step: Grouped(f"vertex_by_type_{n}", step)
            for n, step in enumerate(self._steps)
            if isinstance(step, Value) and by_type(step)
        }
        over_arcs = any(launch.over is not None for launch in launches)
        bits = tables.arcs().ends.dtype.itemsize * 8 if over_arcs else 32
        self._build = build_of_text(name, source_of([*self._kernels.values()], [*self._grouped.values()]), bits)
        whole = {*self._given}  # what work other than kernels reads
        for step, values in reversed([*zip(self._steps, reads, strict=True)]):
            view = is_view(step) or step in self._twins
            if not isinstance(step, Launch) and (not view or step in whole):
                whole.update(values)
        self._apart = {*self._padded, *(x for v in self._padded if is_view(v) for x in v.inputs)}
        for launch in launches:
            self._apart |= {v for v in launch.outputs if v.space in (D, S) and is_odd(v, launch.layout)} - whole
        self._counts: dict[Value, Any] = {}
        self._read = {x for values in reads for x in values}

    @property
    def builds(self) -> list[Build]:
        """The file of its kernels, if it has any."""
        return [self._build] if self._kernels or self._grouped else []

    def run(self, found: dict[Value, Any], part: Part, draws: tuple[int, Any]) -> None:
        """As ``Work.run``; the epoch of ``draws`` is float64 [1] on the GPU."""
        for value in self._read & found.keys():  # sums of earlier work are float64, and kernels read ``part.real``
            if value.space is P and found[value].dtype == np.float64 != part.real:
                found[value] = found[value].astype(part.real)
        for step, gone in zip(self._steps, self._gone, strict=True):
            if isinstance(step, Launch):
                launch = self._launch if step.over is None else partial(part.dense.arc_work, self._launch)
                launch(self._kernels[step], found, part, draws)
            elif step in self._grouped:
                found[step] = part.dense.arc_work(self._by_type, self._grouped[step], found, part)
            else:
                value = step if isinstance(step, Value) else step.result
                if isinstance(step, Value) and is_count(step):  # which never changes
                    self._counts[step] = self._counts[step] if step in self._counts else do(step, found, part, draws)
                    found[value] = self._counts[step]
                elif value in self._twins:
                    found[value] = found[self._twins[value]][: self._tables.rows_of(D)]
                else:
                    found[value] = self._done(step, found, part, draws)
                if value in self._read and found[value].dtype != part.real:
                    found[value] = found[value].astype(part.real)
            for value in gone:
                found.pop(value, None)
        for value in self._wanted:
            found[value] = array_of(value, found, part, draws)

    def _done(self, step: Value | Scaled | Inner, found: dict[Value, Any], part: Part, draws: tuple[int, Any]) -> Any:
        """What a step that is no launch makes, of rows that follow each other."""
        if is_view(step):
            return do(step, found, part, draws)
        apart = {x: found[x] for x in _operands(step, self._twins) if x.space is not P and _is_apart(found.get(x), x)}
        given = found | {x: array.copy() for x, array in apart.items()} if apart else found
        if isinstance(step, Value) and step.op == "matmul" and step in self._apart:
            x, weight = (array_of(each, given, part, draws) for each in step.inputs)
            if len(x.shape) == 2 and len(weight) == 1 and not hasattr(x, "toarray"):
                out = self._empty(step, part.real, part)
                return part.dense.product(x, weight.reshape(weight.shape[1:]), out)
        return do(step, given, part, draws)

    def _empty(self, value: Value, kind: Any, part: Part) -> Any:
        """An array for ``value``, its rows padded where kernels read it so."""
        rows = self._tables.rows_of(value.space)
        if value not in self._apart:
            return part.dense.empty((rows, *value.shape), kind)
        array = part.dense.empty((rows, pitch(value.size)), kind)
        return array[(slice(None), *[None] * (len(value.shape) - 1), slice(value.size))]

    def _rows(self, array: Any, value: Value, part: Part) -> Any:
        """``array`` as kernels read it: dense, of as many rows as its space, each of them contiguous."""
        given, padded = dense(array), pitch(value.size)
        steps = {padded} if value in self._padded else {value.size, padded}
        whole = len(given) == self._tables.rows_of(value.space) and _whole_rows(given)
        if whole and _stride(given, value) in steps and not _address(given) % 16:
            return given
        copy = self._empty(value, given.dtype, part)
        copy[...] = given
        return copy

    def _by_type(self, product: Grouped, found: dict[Value, Any], part: Part) -> Any:
        return product.run(
            self._tables,
            lambda name: self._tables.operators.kernel(self._build, name),
            lambda value: self._read_rows(value, found, part),
            lambda shape: part.dense.empty(shape, part.real),
        )

    def _read_rows(self, value: Value, found: dict[Value, Any], part: Part) -> tuple[Any, np.int32]:
        """The rows of ``value`` as a kernel's arguments. A copy that took is not taken again."""
        array = self._rows(found[value], value, part)
        if value not in self._given:
            found[value] = array
        return _strided(array, value)

    def _launch(self, kernel: Kernel, found: dict[Value, Any], part: Part, draws: tuple[int, Any]) -> None:
        launch, tables, empty = kernel.launch, self._tables, part.dense.empty
        results = []
        for value in launch.results:
            kind = np.int64 if value.op == "winner" else part.real
            found[value] = self._empty(value, kind, part)
            results.append(_strided(found[value], value))
        if launch.layout.columns * launch.layout.heads == 0 or not tables.rows_of(launch.rows):
            for value in launch.totals:
                found[value] = part.dense.zeros((1, *value.shape), part.real)
            return
        arrays = [self._read_rows(value, found, part) for value in kernel.reads]
        masks: list[Any] = []
        if kernel.masks:
            seed, epoch = draws
            masks = [epoch, np.int64(random.device_base(seed)), np.int64(random.STREAMS)]
            masks += [np.int64(part.place + value["place"]) for value in kernel.masks]
        totals = launched(kernel, self._build, tables, arrays, results, empty, part.real, masks)
        for value, array in zip(launch.totals, totals, strict=True):
            found[value] = part.dense.column_sums(array).reshape(1, *value.shape)
            if value in self._read:
                found[value] = found[value].astype(part.real)


def launched(
    kernel: Kernel, build: Build, tables: Any, arrays: Sequence[tuple[Any, np.int32]],
    results: Sequence[tuple[Any, np.int32]], empty: Callable[..., Any], real: Any = np.float32,
    masks: Sequence[Any] = (),
) -> list[Any]:  # fmt: skip
    """Launch a kernel, and that of the rows that it cut.

    Args:
        kernel: whose launch has rows and columns.
        build: the file that has it.
        tables: as ``DeviceTables``: ``rows_of``, ``pieces``, ``counter``, ``table``, ``operators``.
        arrays: that it reads, with the numbers from row to row.
        results: arrays that it writes, likewise.
        empty: makes an array of a shape and a type.
        real: type of parts of rows that are cut.
        masks: arguments of its masks.

    Returns:
        For each of the launch's totals float64 [workers, entries], of which the sums are to be added up.
    """
    launch, how = kernel.launch, kernel.how
    rows, over = launch.rows, launch.over
    pieces, first, partials = None, [], []
    count = tables.rows_of(rows)
    if over is not None:
        pieces = tables.pieces(over, rows, how)
        count = len(pieces.target)
        first = [pieces.begin, pieces.target, pieces.slot_rows]
        first += [pieces.order] * (how.rows == "sorted")
        first += [tables.counter(f"{build.source} {kernel.name}")] if how.blocks == "atomic" else []
        for value in launch.partials:
            shape = max(pieces.slots, 1), max(pitch(value.size), 1)
            partials.append(empty(shape, real))
            if value.op == "winner":
                partials += [empty(shape, np.int64) for _ in range(2)]
    blocks = -(-count // kernel.per_block)
    blocks = min(blocks, kernel.blocks or blocks)
    totals = [empty((blocks * kernel.per_block, value.size), np.float64) for value in launch.totals]
    common = [
        *first, *(tables.table(name, over, rows) for name in kernel.tables), *(x for pair in arrays for x in pair),
        *partials, *(x for pair in results for x in pair), *totals, *masks,
    ]  # fmt: skip
    call = tables.operators.kernel(build, kernel.name)
    call((blocks, kernel.tiles), (THREADS,), (np.int32(count), *common))
    if pieces is not None and partials and len(pieces.split_rows):
        call = tables.operators.kernel(build, f"{kernel.name}_combine")
        split = len(pieces.split_rows)
        call(
            (-(-split // (THREADS // 32)), launch.layout.tiles), (THREADS,),
            (np.int32(split), *common, pieces.split_rows, pieces.split_first),
        )  # fmt: skip
    return totals


def _planned(work: Work) -> tuple[list[Launch | Value | Scaled | Inner], dict[Value, Value], list[Any], list[Any]]:
    """Its steps, the products that are others' first rows, what each step reads, and what goes when it is done."""
    steps, twins = with_twins(work.steps)
    found = planned(steps, work.known, work.wanted)
    reads = [step.reads if isinstance(step, Launch) else _operands(step, twins) for step in found]
    last = {value: n for n, values in enumerate(reads) for value in values}
    gone = [[x for x in {*values} if last[x] == n and x not in work.stay] for n, values in enumerate(reads)]
    return found, twins, reads, gone


def launched_steps(work: Work) -> tuple[list[tuple[list[Value], list[Value]]], dict[Value, Value]]:
    """Of each step on a GPU what it makes, and what goes when it is done; and the values whose arrays others' are."""
    steps, twins, _, gone = _planned(work)
    made = [[*step.results] if isinstance(step, Launch) else made_by(step) for step in steps]
    return [*zip(made, gone, strict=True)], twins


def _operands(step: Value | Scaled | Inner, twins: Mapping[Value, Value]) -> list[Value]:
    if isinstance(step, Value) and step in twins:
        return [twins[step]]
    return [x.inputs[0] if x.op == "cast" and x.inputs[0].space is P else x for x in needs(step)]


def with_twins(steps: Sequence[Step]) -> tuple[list[Step], dict[Value, Value]]:
    """``steps``, and of products of rows of vertices those of which they are the first rows, which come before them.

    A source's rows are those of the vertices and then those of the halo, so what is made of both is made once.
    """
    values = [step for step in steps if isinstance(step, Value) and step.op == "matmul"]
    keys = _Keys()
    of_sources = {keys.of(v): v for v in values if v.space is S}
    twins = {v: of_sources[keys.of(v)] for v in values if v.space is D and keys.of(v) in of_sources}
    makes = {v: step for step in steps for v in made_by(step)}
    found: dict[int, Step] = {}

    def put(step: Step) -> None:
        if id(step) in found:
            return
        for x in [twins[step]] if isinstance(step, Value) and step in twins else needs(step):
            if x in makes:
                put(makes[x])
        found[id(step)] = step

    for step in steps:
        put(step)
    return [*found.values()], twins


class _Keys:
    """What values of vertices and of sources are made of: equal keys are the same formula of the same rows."""

    def __init__(self) -> None:
        self._known: dict[Value, int] = {}
        self._numbers: dict[tuple[Any, ...], int] = {}

    def of(self, v: Value) -> int:
        """The key of ``v``."""
        if v not in self._known:
            if v.op == "cast":
                self._known[v] = self.of(v.inputs[0])
            else:
                alike = v.op in ROWWISE and v.space in (D, S)
                made_of = (v.op, v.shape, v.attributes, *map(self.of, v.inputs)) if alike else (v,)
                self._known[v] = self._numbers.setdefault(made_of, len(self._numbers))
        return self._known[v]


def is_view(step: Step | Launch) -> bool:
    """Whether a step makes no array of its own."""
    return isinstance(step, Value) and step.op == "reshape"


def _is_apart(array: Any, value: Value) -> bool:
    """Whether the rows of an array do not follow each other."""
    return hasattr(array, "strides") and len(array) > 1 and array.strides[0] > value.size * array.itemsize


def _stride(array: Any, value: Value) -> int:
    """Numbers from row to row."""
    return int(array.strides[0] // array.itemsize) if len(array) > 1 and value.size else value.size


def _strided(array: Any, value: Value) -> tuple[Any, np.int32]:
    """As a kernel's arguments."""
    return array, np.int32(_stride(array, value))


def _whole_rows(array: Any) -> bool:
    """Whether each row is contiguous."""
    step = array.itemsize
    for length, stride in zip(array.shape[:0:-1], array.strides[:0:-1], strict=True):
        if length > 1 and stride != step:
            return False
        step *= length
    return True


def _address(array: Any) -> int:
    return int(array.data.ptr)


def build_of_text(name: str, text: str, bits: int) -> Build:
    """The file of ``text`` in the cache, called by ``name`` and its hash, written unless it is there.

    Args:
        name: what the text is of.
        text: kernels (``mgg.vertex.cuda.source_of``).
        bits: of the ids at the ends of arcs, 32 or 64.
    """
    key = hashlib.sha256(text.encode()).hexdigest()[:32]
    path = files.cache_folder("vertex") / f"{name}_{key}.cu"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        files.make_folder(path.parent)
        files.write_text(path, text)
    return Build(str(path), {"MGG_INDEX_BITS": bits})
