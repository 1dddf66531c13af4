"""Step 2: sort one range of rows, merge repeats and write its parts."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from mgg import hashed
from mgg.errors import InputError, MachineError
from mgg.files import Kind
from mgg.graph.budget import MIB
from mgg.graph.csr import Csr, index_dtype
from mgg.graph.external import kernels
from mgg.graph.external.memory import Memory
from mgg.graph.external.scattering import Scattered
from mgg.graph.manifest import ARC_KINDS, Sha256, Shard, ShardName
from mgg.graph.store import shards
from mgg.graph.store.parts import PartWriter, SortedRows
from mgg.graph.store.shards import Kind as PartKind
from mgg.schema import Closed, parsed

FILE = "shards.yaml"
#: uint32 [rows], little-endian: arcs of each row.
DEGREES_FILE = "degrees.bin"
KIND = Kind(FILE, (DEGREES_FILE, *ARC_KINDS))
#: Bytes per arc for sorting, and per sorted arc: the keys twice and the columns. Payloads add the order twice, and the
#: values as read and as sorted.
SORTING, SORTED = 20, 4
SORTING_PAYLOAD, SORTED_PAYLOAD = 48, 12
#: Bytes for encoding a part in addition to its values: pages, compressed pages and the file.
ENCODING = 40 * MIB
#: Minimum bytes for sorting.
LEAST_SORTING = 16 * MIB
#: Maximum ids of a task: its degrees take 8 bytes each.
TASK_IDS = 2**20
#: Maximum arcs sorted at once: more do not sort faster.
TASK_ARCS = 2**22


class Shards(Closed):
    """``shards.yaml``: the sorted rows of one of ``of`` ranges."""

    scattered: str = Field(description="hash of the scattered graph that they belong to")
    number: int = Field(ge=1)
    of: int = Field(ge=1)
    first: int = Field(ge=0)
    rows: int = Field(ge=0)
    arcs: int = Field(ge=0)
    loops: int = Field(ge=0, description="self-loops among the arcs")
    counted: bool = Field(description="weights of an unweighted graph are here: some of its arcs repeat others")
    fingerprint: list[int] = Field(min_length=4, max_length=4, description="sums of kernels.fingerprint")
    degrees: Sha256 = Field(description="hash of degrees.bin")
    parts: dict[ShardName, Shard]

    def of_kind(self, kind: PartKind) -> list[tuple[int, Shard]]:
        """Return number and entry of the parts of one kind, in order."""
        count = sum(name.startswith(f"{kind}/") for name in self.parts)
        return [(k, self.parts[shards.part_name(kind, k)]) for k in range(count)]


@dataclass(frozen=True)
class Task:
    """Ids low..high-1, which have ``keys`` spooled arcs."""

    low: int
    high: int
    keys: int


def load(folder: Path) -> Shards:
    """Read ``shards.yaml``; raises InputError that names the error."""
    values, _ = hashed.load(folder / FILE, "shards", "mgg graph-shard")
    return parsed(Shards, values, f"{folder / FILE}: ")


def shard(scattered: Scattered, folder: Path, memory: Memory, *, number: int = 1, of: int = 1) -> Shards:
    """Fill the existing ``folder`` with the parts of range ``number`` (from 1) of ``of``.

    Args:
        scattered: the spooled graph.
        folder: gets the parts, the degrees (``degrees.bin``, uint32 [rows]) and ``shards.yaml``.
        memory: limit of memory and threads.
        number: number of the range.
        of: number of ranges, the same in all calls.

    Raises:
        InputError: the spool is not whole.
        MachineError: a single row needs more than the memory.
    """
    if not 1 <= number <= of:
        raise InputError(f"part {number} of {of}: parts are numbered from 1")
    ids = _Ids(scattered)
    low, high = _range(scattered, ids, number, of)
    first, last = ids.rank(low), ids.rank(high)
    counting = scattered.facts.repeats == "sum" and not scattered.facts.weighted
    written, repeats = _write(scattered, folder, ids, low, high, memory)
    # Arcs without weights need counts only if some repeat; that is rare, and known only after the first pass.
    counted = counting and repeats > 0
    if counted:
        written, _ = _write(scattered, folder, ids, low, high, memory, count=True)
    made = Shards(
        scattered=scattered.hash, number=number, of=of, first=first, rows=last - first, counted=counted, **written
    )
    hashed.save(folder / FILE, made.model_dump(exclude_none=True))
    return made


def sorted_blocks(scattered: Scattered, memory: Memory) -> Iterator[tuple[int, Csr]]:
    """Yield the sorted rows of the whole graph block by block, each block with its first row.

    Raises:
        InputError: the spool is not whole.
        MachineError: a single row needs more than the memory.
    """
    ids, first = _Ids(scattered), 0
    shares = _shares(memory, bool(scattered.spool.payloads))
    with ThreadPoolExecutor(memory.workers) as pool:
        for rows in _sorted_rows(scattered, ids, 0, ids.ids, shares, pool, count=False):
            indptr = np.concatenate(([0], np.cumsum(rows.degrees)))
            arcs = rows.arcs
            yield first, Csr(indptr, arcs["adjacency"], arcs.get("weights"), ids.nodes, arcs.get("arc_types"))
            first += len(rows.degrees)


def _write(
    scattered: Scattered, folder: Path, ids: _Ids, low: int, high: int, memory: Memory, count: bool = False
) -> tuple[dict[str, Any], int]:
    """Write the parts of ids low..high-1; with ``count``, each arc's weight is the number of arcs merged into it.

    Returns the fields of :class:`Shards` that describe them, and the number of arcs merged with others.
    """
    first, ones = ids.rank(low), scattered.facts.repeats == "sum"
    sums, digest, arcs, loops, repeats = np.zeros(4, np.uint64), hashlib.sha256(), 0, 0, 0
    with ThreadPoolExecutor(memory.workers) as pool, (folder / DEGREES_FILE).open("wb") as degrees:
        shares = _shares(memory, count or bool(scattered.spool.payloads))
        writer = PartWriter(folder, first, pool.submit, shares.encoders)
        for rows in _sorted_rows(scattered, ids, low, high, shares, pool, count):
            _add_fingerprint(first, rows, sums, ones)
            first += len(rows.degrees)
            block = rows.degrees.astype("<u4").tobytes()
            degrees.write(block)
            digest.update(block)
            arcs += int(rows.degrees.sum())
            loops += rows.loops
            repeats += rows.repeats
            writer.add(rows)
        parts = writer.finish()
    counts = {"arcs": arcs, "loops": loops, "fingerprint": sums.tolist()}
    return counts | {"degrees": digest.hexdigest(), "parts": parts}, repeats


class _Ids:
    """Maps spooled ids to node numbers, which are the same or the ids' ranks."""

    def __init__(self, scattered: Scattered) -> None:
        self.ids, self.nodes = scattered.facts.ids, scattered.facts.nodes
        self.words = scattered.seen
        self.before = None if self.words is None else kernels.bits_before(self.words)

    def rank(self, bound: int) -> int:
        """Return the number of nodes with an id below ``bound``."""
        if self.words is None or self.before is None:
            return bound
        return self.nodes if bound >= self.ids else int(kernels.rank(self.words, self.before, np.uint64(bound)))

    def id_of(self, node: int) -> int:
        """Return the id of a node; ``ids`` for the node after the last."""
        if self.words is None or self.before is None:
            return node
        if node >= self.nodes:
            return self.ids
        word = int(np.searchsorted(self.before, node, side="right")) - 1
        out = np.empty(1, np.int64)
        kernels.set_bits(self.words[word : word + 1], node - int(self.before[word]), out)
        return 64 * word + int(out[0])

    def renumber(self, keys: np.ndarray) -> None:
        if self.words is not None:
            kernels.renumber(keys, self.words, self.before)


def _range(scattered: Scattered, ids: _Ids, number: int, of: int) -> tuple[int, int]:
    """Return the ids of a range; ranges are multiples of VERTICES_PER_PART nodes with about equally many arcs."""
    step = shards.VERTICES_PER_PART
    starts = [ids.id_of(node) for node in range(0, ids.nodes, step)]
    before = np.concatenate([[0], np.cumsum(scattered.spool.counts())])
    buckets = np.arange(len(before)) << scattered.spool.shift
    held = np.interp(starts, buckets, before)

    def bound(k: int) -> int:
        if k in (0, of):
            return 0 if k == 0 else ids.ids
        at = int(np.searchsorted(held, scattered.facts.keys * k / of))
        return starts[at] if at < len(starts) else ids.ids

    return bound(number - 1), bound(number)


@dataclass(frozen=True)
class _Shares:
    """The division of the free memory.

    Attributes:
        encoders: parts that are encoded at once.
        sorting: bytes for all tasks that are read, sorted or wait to be written.
        arc: bytes per arc of a task.
        tasks: tasks that run at once.
    """

    encoders: int
    sorting: int
    arc: int
    tasks: int


def _shares(memory: Memory, payloads: bool) -> _Shares:
    arc, ready = (SORTING_PAYLOAD, SORTED_PAYLOAD) if payloads else (SORTING, SORTED)
    # One part is being filled, and each encoder has another one.
    part = shards.ARCS_PER_PART * ready
    # With payloads, a second part of the same size is in memory while its kinds are encoded one by one.
    held = part * (2 if payloads else 1)
    free = memory.free(LEAST_SORTING + ENCODING + part + held) - held
    encoders = max(1, min(memory.workers, free // 2 // (ENCODING + part)))
    sorting = max(free - encoders * (ENCODING + part), LEAST_SORTING)
    return _Shares(encoders, sorting, arc, 2 * memory.workers + 1)


def _sorted_rows(
    scattered: Scattered, ids: _Ids, low: int, high: int, shares: _Shares, pool: ThreadPoolExecutor, count: bool
) -> Iterator[SortedRows]:
    """Yield the rows of ids low..high-1 in order; sorts as many tasks at once as fit into the memory."""
    most = max(1, min(TASK_ARCS, shares.sorting // (shares.arc * (shares.tasks // 2 + 1))))
    running: deque[tuple[Future[SortedRows], int]] = deque()
    held = 0
    for task in _tasks(scattered, low, high, most):
        need = task.keys * shares.arc
        if need > shares.sorting:
            raise MachineError(
                f"{scattered.facts.name}: row {task.low} has {task.keys} arcs, which need {need // MIB} MiB at once: "
                f"raise --memory by {(need - shares.sorting) // MIB + 1} MiB"
            )
        while running and (held + need > shares.sorting or len(running) == shares.tasks):
            future, bytes_held = running.popleft()
            yield future.result()
            held -= bytes_held
        running.append((pool.submit(_sort, scattered, ids, task, count), need))
        held += need
    while running:
        yield running.popleft()[0].result()


def _tasks(scattered: Scattered, low: int, high: int, most: int) -> Iterator[Task]:
    """Cut ids low..high-1 into tasks of at most ``most`` keys, or one id, and at most TASK_IDS ids."""
    spool, width = scattered.spool, 1 << scattered.spool.shift
    counts = spool.counts()
    start, held = low, 0
    for bucket in range(low >> spool.shift, -(-high // width)):
        first, last = max(low, bucket * width), min(high, (bucket + 1) * width)
        whole = last - first == min(width, scattered.facts.ids - bucket * width)
        if whole and held + counts[bucket] <= most and last - start <= TASK_IDS:
            held += int(counts[bucket])
            continue
        if start < first:
            yield Task(start, first, held)
        start, held = first, 0
        if whole and counts[bucket] <= most and last - first <= TASK_IDS:
            held = int(counts[bucket])
            continue
        yield from _split(spool.row_counts(bucket)[first - bucket * width : last - bucket * width], first, most)
        start, held = last, 0
    if start < high:
        yield Task(start, high, held)


def _split(counts: np.ndarray, first: int, most: int) -> Iterator[Task]:
    ends = np.cumsum(counts)
    lo, before = 0, 0
    while lo < len(counts):
        hi = min(max(int(np.searchsorted(ends, before + most, side="right")), lo + 1), lo + TASK_IDS)
        yield Task(first + lo, first + hi, int(ends[hi - 1]) - before)
        lo, before = hi, int(ends[hi - 1])


def _sort(scattered: Scattered, ids: _Ids, task: Task, count: bool) -> SortedRows:
    """Load and sort the arcs of a task, and merge repeats; with ``count``, count the arcs merged into each."""
    first, last = ids.rank(task.low), ids.rank(task.high)
    keys, payloads = scattered.spool.load(task.low, task.high, task.keys)
    ids.renumber(keys)
    bits = max(1, (ids.nodes - 1).bit_length())
    kernels.squeeze(keys, first, bits)
    span = bits + max(0, last - first - 1).bit_length()
    order = np.arange(len(keys) if payloads else 0, dtype=np.int32)
    if "types" in payloads:  # equal keys by type, then in the order of the source
        order = np.argsort(payloads["types"], kind="stable").astype(np.int32)
        keys = keys[order]
    keys, order = kernels.radix_sort(keys, np.empty_like(keys), order, np.empty_like(order), span)
    types = payloads["types"][order] if "types" in payloads else np.empty(0, np.int32)
    degrees = np.zeros(last - first, np.int64)
    columns = np.empty(len(keys), index_dtype(ids.nodes))
    kept = np.empty(len(keys) if count else len(order), np.int32)
    arcs, loops = kernels.unique_arcs(keys, types, bits, first, degrees, columns, kept)
    rows = SortedRows(degrees, {"adjacency": columns[:arcs]}, repeats=len(keys) - arcs, loops=loops)
    if types.size:
        rows.arcs["arc_types"] = types[kept[:arcs]]
    if count:
        rows.arcs["weights"] = np.diff(kept[:arcs], append=np.int32(len(keys))).astype(np.float32)
    if "weights" in payloads:
        weights, repeats = payloads["weights"], scattered.facts.repeats
        if repeats == "first" or not rows.repeats:
            rows.arcs["weights"] = weights[order[kept[:arcs]]]
        else:
            merged, starts = np.empty(arcs, np.float32), np.append(kept[:arcs], np.int32(len(keys)))
            bad = kernels.merge_weights(starts, order, weights, repeats == "max", merged)
            if bad >= 0:
                row = first + int(np.searchsorted(np.cumsum(degrees), bad, side="right"))
                raise InputError(
                    f"{scattered.facts.name}: the weights of the arcs from node {columns[bad]} to node {row} add up to"
                    " more than float32 holds (--repeats sum)"
                )
            rows.arcs["weights"] = merged
    return rows


def _add_fingerprint(first: int, rows: SortedRows, sums: np.ndarray, ones: bool) -> None:
    """Add the arcs of rows to the sums; with ``ones``, arcs without weights weigh 1, as others may weigh more."""
    plain = np.ones(len(rows.arcs["adjacency"]) if ones else 0, np.float32)
    weights = rows.arcs.get("weights", plain)
    types = rows.arcs.get("arc_types", np.empty(0, np.int32))
    # Adding zero turns -0.0, which equals 0.0, into the same bits.
    bits = (weights + np.float32(0)).view(np.uint32)
    kernels.fingerprint(first, rows.degrees, rows.arcs["adjacency"], bits, types, sums)
