"""Run a vertex program on a GPU: generated kernels (``mgg.vertex.cuda``), with matrices and halos between them."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from mgg import files
from mgg.backend.offloaded_arrays import OutsideArrays
from mgg.kernel import random
from mgg.kernel.compile import Build
from mgg.kernel.schedule import Splits
from mgg.vertex.arcs import ArcTables, pointers
from mgg.vertex.crossing import ROWWISE
from mgg.vertex.cuda import THREADS, Kernel, gathered, is_odd, kernel_of, source_of
from mgg.vertex.cuda.execution import DEFAULT, Execution
from mgg.vertex.cuda.grouped import Grouped, cut
from mgg.vertex.cuda.launches import Launch, planned
from mgg.vertex.ir import D, E, P, R, S, Space, T, Value
from mgg.vertex.products import by_type
from mgg.vertex.run import Inner, Part, Scaled, Step, Work, array_of, dense, do, made_by, needs
from mgg.vertex.units import is_count, is_returned
from mgg.vertex.warp_layout import pitch

#: Mean arcs per row from which the rows that arcs read are padded for 16-byte loads.
COPIED = 8
_WRITING = threading.Lock()


@dataclass(frozen=True)
class Pieces:
    """A ``RowSchedule`` on the GPU, as kernels read it.

    Attributes:
        begin, target, split_rows, split_first, slots: the schedule's.
        slot_rows: int32 [slots], the row of each partial sum.
        splits: the rows that were cut, in host memory.
        order: int32 [pieces], the pieces in the order of processing; None: ascending.
    """

    begin: Any
    target: Any
    slot_rows: Any
    split_rows: Any
    split_first: Any
    slots: int
    splits: Splits
    order: Any = None

    @classmethod
    def of(cls, cut: Any) -> Self:
        """Take the arrays of a ``DeviceSchedule``."""
        return cls(cut.begin, cut.target, cut.slot_rows, cut.split_rows, cut.split_first, cut.slots, cut.splits)

    @classmethod
    def made(cls, ptr: np.ndarray, how: Execution, upload: Callable[[np.ndarray], Any]) -> Self:
        """Cut rows whose arcs begin at ``ptr``."""
        cut = how.cut(ptr)
        order = how.order(cut)
        slot_rows = np.repeat(cut.split_rows, np.diff(cut.split_first)).astype(np.int32)
        begin, target, rows, split_rows, first = map(
            upload, (cut.begin, cut.target, slot_rows, cut.split_rows, cut.split_first)
        )
        return cls(
            begin, target, rows, split_rows, first, cut.slots, cut.splits, None if order is None else upload(order)
        )


@dataclass(eq=False)
class DeviceTables:
    """``ArcTables`` in GPU memory; each array is uploaded on first use.

    Attributes:
        arcs: returns the tables (the first call is collective).
        rows: number of rows of D.
        upload: copies an array to the GPU.
        operators: the GPU's operators, with ``schedule`` and ``kernel``.
        outside: where arrays with an entry per arc are, which kernels then read and write over the bus; None: in GPU
            memory.
    """

    arcs: Callable[[], ArcTables]
    rows: int
    upload: Callable[[np.ndarray], Any]
    operators: Any
    outside: OutsideArrays | None = None
    _made: dict[str, Any] = field(default_factory=dict)

    def rows_of(self, space: Space) -> int:
        """Return the number of rows of ``space``."""
        if space in (P, D):
            return 1 if space is P else self.rows
        return self.arcs().type_count if space is T else self.arcs().rows_of(space)

    def items(self, over: Space, rows: Space) -> np.ndarray:
        """Return int64 [rows + 1] on the host, where the arcs or runs of each row begin in their list."""
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
        """Return ``mgg.vertex.cuda.grouped.cut`` of the arcs or runs of each type, on the GPU."""
        key = f"{over!r} {length}"
        if key not in self._made:
            self._made[key] = tuple(map(self.upload, cut(self.items(over, T), length)))
        found: tuple[Any, Any, Any] = self._made[key]
        return found

    def mean(self, launch: Launch) -> float:
        """Return the mean number of items per row in the list of ``launch``."""
        if launch.over is None:
            return 1.0
        ptr = self.items(launch.over, launch.rows)
        return float(ptr[-1]) / max(len(ptr) - 1, 1)

    def pointer(self, over: Space, rows: Space) -> Any:
        """Return ``items`` on the GPU; always the same array, because its identity is the key of its schedule."""
        return self._once(f"{over!r}{rows!r}", lambda: self.items(over, rows))

    def pieces(self, over: Space, rows: Space, how: Execution) -> Pieces:
        """Return the pieces of a list's rows, on the GPU."""
        if how.plain:
            return Pieces.of(self.operators.schedule(self.pointer(over, rows), 1)[1])
        key = f"{how.arcs} {how.rows} {over!r}{rows!r}"
        if key not in self._made:
            self._made[key] = Pieces.made(self.items(over, rows), how, self.upload)
        found: Pieces = self._made[key]
        return found

    def counter(self, kernel: str) -> Any:
        """Return uint32 [1], from which the blocks of a kernel draw their numbers; 0 between launches."""
        return self._once(f"next of {kernel}", lambda: np.zeros(1, np.uint32))

    def table(self, name: str, over: Space | None, rows: Space) -> Any:
        """Return the array ``name`` of ``mgg.vertex.cuda.TABLES`` for a launch."""
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
        outside = self.outside if name in ("ends", "arcs", "targets", "run_of", "types") else None
        return self._once(name + kind, make[name], outside.upload if outside else self.upload)

    def empty(self, space: Space, dense: Any) -> Callable[..., Any]:
        """Return what allocates values of ``space``: ``dense.empty``, or memory outside the GPU."""
        return self.outside.empty if self.outside is not None and space in (E, R) else dense.empty

    @cached_property
    def _types(self) -> np.ndarray:
        tables = self.arcs()
        return np.zeros(len(tables.ends), np.int32) if tables.types is None else tables.types

    def _once(
        self, name: str, make: Callable[[], np.ndarray], upload: Callable[[np.ndarray], Any] | None = None
    ) -> Any:
        if name not in self._made:
            self._made[name] = (upload or self.upload)(np.ascontiguousarray(make()))
        return self._made[name]


class DeviceWork:
    """``Work`` as kernels, compiled on first use.

    Args:
        work: the steps.
        tables: the PE's tables.
        name: file name of the kernels.
        how: how threads share the arcs.
    """

    def __init__(self, work: Work, tables: DeviceTables, name: str = "program", how: Execution = DEFAULT) -> None:
        self._tables, self._wanted = tables, work.wanted
        self._steps, self._twins, reads, self._gone = _planned(work)
        launches = [step for step in self._steps if isinstance(step, Launch)]
        self._given = {*work.wanted} - work.kept  # read by other code, which needs contiguous rows
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
        whole = {*self._given}  # values read by other work than kernels
        for step, values in reversed([*zip(self._steps, reads, strict=True)]):
            view = is_view(step) or step in self._twins
            if not isinstance(step, Launch) and (not view or step in whole):
                whole.update(values)
        self._apart = {*self._padded, *(x for v in self._padded if is_view(v) for x in v.inputs)}
        for launch in launches:
            self._apart |= {v for v in launch.outputs if v.space in (D, S) and is_odd(v, launch.layout)} - whole
        self._counts: dict[Value, Any] = {}
        self._read = {x for values in reads for x in values}
        #: Per launch over out-arcs, the values that only the rows' owners need, and what the owners make of them.
        self._returns: dict[Launch, dict[Value, Value]] = {}
        if how.rows == "given":
            self._returns = _returns(self._steps, reads, work.wanted)

    @property
    def builds(self) -> list[Build]:
        """The source file of the kernels, if there are any."""
        return [self._build] if self._kernels or self._grouped else []

    def run(self, found: dict[Value, Any], part: Part, draws: tuple[int, Any]) -> None:
        """Run the steps like ``Work.run``; the epoch of ``draws`` is float64 [1] on the GPU."""
        for value in self._read & found.keys():  # sums of earlier work are float64, but kernels read ``part.real``
            if value.space is P and found[value].dtype == np.float64 != part.real:
                found[value] = found[value].astype(part.real)
        started: dict[Value, Any] = {}
        finished: set[Value] = set()
        for step, gone in zip(self._steps, self._gone, strict=True):
            if started and not isinstance(step, Launch) and _is_collective(step):
                finished |= self._finish(started, found, part)
            if isinstance(step, Launch):
                launch = self._launch if step.over is None else partial(part.dense.arc_work, self._launch)
                launch(self._kernels[step], found, part, draws, started)
            elif step not in finished:
                self._do(step, found, part, draws)
            for value in gone:
                found.pop(value, None)
        for value in self._wanted:
            found[value] = array_of(value, found, part, draws)

    def _do(self, step: Value | Scaled | Inner, found: dict[Value, Any], part: Part, draws: tuple[int, Any]) -> None:
        """Run a step other than a launch."""
        value = step if isinstance(step, Value) else step.result
        if isinstance(step, Value) and step in self._grouped:
            found[step] = part.dense.arc_work(self._by_type, self._grouped[step], found, part)
            return
        if isinstance(step, Value) and is_count(step):  # constant, so computed once
            self._counts[step] = self._counts[step] if step in self._counts else do(step, found, part, draws)
            found[value] = self._counts[step]
        elif value in self._twins:
            found[value] = found[self._twins[value]][: self._tables.rows_of(D)]
        else:
            found[value] = self._done(step, found, part, draws)
        if value in self._read and found[value].dtype != part.real:
            found[value] = found[value].astype(part.real)

    def _done(self, step: Value | Scaled | Inner, found: dict[Value, Any], part: Part, draws: tuple[int, Any]) -> Any:
        """Return the result of a step other than a launch, which needs contiguous rows."""
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
        """Return an array for ``value``, with padded rows if kernels expect them."""
        rows, empty = self._tables.rows_of(value.space), self._tables.empty(value.space, part.dense)
        if value not in self._apart:
            return empty((rows, *value.shape), kind)
        array = empty((rows, pitch(value.size)), kind)
        return array[(slice(None), *[None] * (len(value.shape) - 1), slice(value.size))]

    def _rows(self, array: Any, value: Value, part: Part) -> Any:
        """Return ``array`` as kernels read it: dense, with all rows of its space, each of them contiguous."""
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
        """Return the rows of ``value`` as kernel arguments. A copy made for them is kept for later reads."""
        array = self._rows(found[value], value, part)
        if value not in self._given:
            found[value] = array
        return _strided(array, value)

    def _start(self, launch: Launch, found: dict[Value, Any], part: Part, started: dict[Value, Any]) -> None:
        """Start to return the halo's rows of what ``launch`` sums, which are complete."""
        for value, total in self._returns[launch].items():
            rows = found[value].reshape(len(found[value]), value.size)
            assert not rows.size or _address(rows) == _address(found[value]), "later sums go to the same memory"
            started[total] = part.start_return(rows)

    def _finish(self, started: dict[Value, Any], found: dict[Value, Any], part: Part) -> set[Value]:
        """Finish all returns, because the side stream finishes them in order; return the values they make."""
        finished = {*started}
        for total, each in started.items():
            rows = part.finish_return(each)
            found[total] = rows.reshape(len(rows), *total.shape)
        started.clear()
        return finished

    def _launch(
        self, kernel: Kernel, found: dict[Value, Any], part: Part, draws: tuple[int, Any], started: dict[Value, Any]
    ) -> None:
        launch, tables, empty = kernel.launch, self._tables, part.dense.empty
        start = partial(self._start, launch, found, part, started) if launch in self._returns else None
        results = []
        for value in launch.results:
            kind = np.int64 if value.op == "winner" else part.real
            found[value] = self._empty(value, kind, part)
            results.append(_strided(found[value], value))
        if launch.layout.columns * launch.layout.heads == 0 or not tables.rows_of(launch.rows):
            for value in launch.totals:
                found[value] = part.dense.zeros((1, *value.shape), part.real)
            if start is not None:
                start()
            return
        arrays = [self._read_rows(value, found, part) for value in kernel.reads]
        masks: list[Any] = []
        if kernel.masks:
            seed, epoch = draws
            masks = [epoch, np.int64(random.device_base(seed)), np.int64(random.STREAMS)]
            masks += [np.int64(part.place + value["place"]) for value in kernel.masks]
        totals = launched(kernel, self._build, tables, arrays, results, empty, part.real, masks, start)
        for value, array in zip(launch.totals, totals, strict=True):
            found[value] = part.dense.column_sums(array).reshape(1, *value.shape)
            if value in self._read:
                found[value] = found[value].astype(part.real)


def launched(
    kernel: Kernel, build: Build, tables: Any, arrays: Sequence[tuple[Any, np.int32]],
    results: Sequence[tuple[Any, np.int32]], empty: Callable[..., Any], real: Any = np.float32,
    masks: Sequence[Any] = (), halo_done: Callable[[], None] | None = None,
) -> list[Any]:  # fmt: skip
    """Launch a kernel, and the kernel that combines the rows it cut.

    Args:
        kernel: the kernel, whose launch has rows and columns.
        build: the file with its source.
        tables: like ``DeviceTables``: ``rows_of``, ``pieces``, ``counter``, ``table``, ``operators``.
        arrays: arrays that it reads, each with the distance of its rows in entries.
        results: arrays that it writes, likewise.
        empty: allocates an array of a shape and a type.
        real: type of the parts of cut rows.
        masks: arguments of its masks.
        halo_done: for sums per source without totals: compute the halo's rows first, then call this.

    Returns:
        float64 [workers, entries] per total of the launch, still to be summed over workers.
    """
    launch, how = kernel.launch, kernel.how
    rows, over = launch.rows, launch.over
    pieces, partials = None, []
    count = tables.rows_of(rows)
    if over is not None:
        pieces = tables.pieces(over, rows, how)
        count = len(pieces.target)
        for value in launch.partials:
            shape = max(pieces.slots, 1), max(pitch(value.size), 1)
            partials.append(empty(shape, real))
            if value.op == "winner":
                partials += [empty(shape, np.int64) for _ in range(2)]
    blocks = -(-count // kernel.per_block)
    blocks = min(blocks, kernel.blocks or blocks)
    totals = [empty((blocks * kernel.per_block, value.size), np.float64) for value in launch.totals]
    common = [
        *(tables.table(name, over, rows) for name in kernel.tables), *(x for pair in arrays for x in pair),
        *partials, *(x for pair in results for x in pair), *totals, *masks,
    ]  # fmt: skip
    call = tables.operators.kernel(build, kernel.name)
    if pieces is None:
        call((blocks, kernel.tiles), (THREADS,), (np.int32(count), *common))
        return totals
    counter = [tables.counter(f"{build.source} {kernel.name}")] if how.blocks == "atomic" else []
    own, split = pieces.splits.before(tables.rows) if halo_done is not None else (0, 0)
    parts = [(slice(own, count), slice(split, None)), (slice(own), slice(split))]
    for some, cut_rows in parts if halo_done is not None else parts[:1]:
        target, split_rows = pieces.target[some], pieces.split_rows[cut_rows]
        order = [pieces.order] if how.rows == "sorted" else []  # then all pieces are one part
        common_of = [pieces.begin[some.start :], target, pieces.slot_rows, *order, *counter, *common]
        if len(target):
            blocks = -(-len(target) // kernel.per_block)
            blocks = min(blocks, kernel.blocks or blocks)
            call((blocks, kernel.tiles), (THREADS,), (np.int32(len(target)), *common_of))
        if partials and len(split_rows):
            tables.operators.kernel(build, f"{kernel.name}_combine")(
                (-(-len(split_rows) // (THREADS // 32)), launch.layout.tiles), (THREADS,),
                (np.int32(len(split_rows)), *common_of, split_rows, pieces.split_first[cut_rows.start :]),
            )  # fmt: skip
        if halo_done is not None and some.start == own:
            halo_done()
    return totals


def _returns(
    steps: Sequence[Launch | Value | Scaled | Inner], reads: Sequence[Sequence[Value]], wanted: Sequence[Value]
) -> dict[Launch, dict[Value, Value]]:
    """Return per launch over out-arcs the values that it sums for the rows' owners alone, and what owners make of them.

    The halo's rows of these are computed first, so that they travel while the launch computes the others.
    """
    readers = Counter([*wanted, *(x for values in reads for x in values)])
    totals = {step.inputs[0]: step for step in steps if isinstance(step, Value) and is_returned(step)}
    found = {}
    for step in steps:
        if isinstance(step, Launch) and step.over is E and step.rows is S and not step.totals:
            returned = {v: totals[v] for v in step.outputs if v in totals and readers[v] == 1}
            if returned:
                found[step] = returned
    return found


def _is_collective(step: Value | Scaled | Inner) -> bool:
    if not isinstance(step, Value):
        return True
    return step.op == "product" or is_returned(step) or (step.op == "cast" and step.space is S)


def _planned(work: Work) -> tuple[list[Launch | Value | Scaled | Inner], dict[Value, Value], list[Any], list[Any]]:
    """Return the steps, the twins (``with_twins``), the values each step reads, and the values released after it."""
    steps, twins = with_twins(work.steps)
    found = planned(steps, work.known, work.wanted)
    reads = [step.reads if isinstance(step, Launch) else _operands(step, twins) for step in found]
    last = {value: n for n, values in enumerate(reads) for value in values}
    gone = [[x for x in {*values} if last[x] == n and x not in work.stay] for n, values in enumerate(reads)]
    return found, twins, reads, gone


def launched_steps(work: Work) -> tuple[list[tuple[list[Value], list[Value]]], dict[Value, Value]]:
    """Return per step on a GPU the values it makes and those released after it; and the values that share arrays."""
    steps, twins, _, gone = _planned(work)
    made = [[*step.results] if isinstance(step, Launch) else made_by(step) for step in steps]
    return [*zip(made, gone, strict=True)], twins


def _operands(step: Value | Scaled | Inner, twins: Mapping[Value, Value]) -> list[Value]:
    if isinstance(step, Value) and step in twins:
        return [twins[step]]
    return [x.inputs[0] if x.op == "cast" and x.inputs[0].space is P else x for x in needs(step)]


def with_twins(steps: Sequence[Step]) -> tuple[list[Step], dict[Value, Value]]:
    """Find products of vertex rows that are the first rows of a product of source rows.

    The rows of sources are the vertices' and then the halo's, so a product made of both is computed once. Return the
    steps, reordered so that the larger product comes first, and the larger product by the smaller one.
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
    """Keys of values of vertices and sources; equal keys mean the same formula of the same rows."""

    def __init__(self) -> None:
        self._known: dict[Value, int] = {}
        self._numbers: dict[tuple[Any, ...], int] = {}

    def of(self, v: Value) -> int:
        """Return the key of ``v``."""
        if v not in self._known:
            if v.op == "cast":
                self._known[v] = self.of(v.inputs[0])
            else:
                alike = v.op in ROWWISE and v.space in (D, S)
                made_of = (v.op, v.shape, v.attributes, *map(self.of, v.inputs)) if alike else (v,)
                self._known[v] = self._numbers.setdefault(made_of, len(self._numbers))
        return self._known[v]


def is_view(step: Step | Launch) -> bool:
    """Return whether a step only makes a view."""
    return isinstance(step, Value) and step.op == "reshape"


def _is_apart(array: Any, value: Value) -> bool:
    """Return whether there are gaps between the rows of an array."""
    return hasattr(array, "strides") and len(array) > 1 and array.strides[0] > value.size * array.itemsize


def _stride(array: Any, value: Value) -> int:
    """Return the distance of rows in entries."""
    return int(array.strides[0] // array.itemsize) if len(array) > 1 and value.size else value.size


def _strided(array: Any, value: Value) -> tuple[Any, np.int32]:
    """Return an array and the distance of its rows, as kernel arguments."""
    return array, np.int32(_stride(array, value))


def _whole_rows(array: Any) -> bool:
    """Return whether each row is contiguous."""
    step = array.itemsize
    for length, stride in zip(array.shape[:0:-1], array.strides[:0:-1], strict=True):
        if length > 1 and stride != step:
            return False
        step *= length
    return True


def _address(array: Any) -> int:
    return int(array.data.ptr)


def build_of_text(name: str, text: str, bits: int) -> Build:
    """Write ``text`` to a file in the cache, named by ``name`` and the text's hash, unless it exists.

    Args:
        name: prefix of the file name.
        text: kernels (``mgg.vertex.cuda.source_of``).
        bits: width of the ids at the ends of arcs, 32 or 64.
    """
    key = hashlib.sha256(text.encode()).hexdigest()[:32]
    path = files.cache_folder("vertex") / f"{name}_{key}.cu"
    with _WRITING:  # PEs may be threads of one process, whose unfinished files have one name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            files.make_folder(path.parent)
            files.write_text(path, text)
    return Build(str(path), {"MGG_INDEX_BITS": bits})
