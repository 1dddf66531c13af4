"""Arcs on disk, bucketed by row: written once in the order of the source, read back by row range.

The file is a sequence of segments. A segment stores its keys bucket by bucket, so a bucket is one slice of each
segment, and one table of positions finds all slices. A bucket has 2^shift rows. When larger ids occur, the width
doubles, which only merges neighboring columns of that table. Writing is sequential, and only the table stays in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from mgg.errors import InputError
from mgg.graph.external import kernels

#: Maximum buckets of a spool, an even number.
BUCKETS = 1024
#: Keys per read when a bucket is searched for some of its rows.
SLICE = 2**20
#: Values stored with the keys, each in its own file.
PAYLOADS = {"weights": np.dtype("<f4"), "types": np.dtype("<i4")}


@dataclass(frozen=True)
class Index:
    """The positions of buckets in a spool.

    Attributes:
        shift: a bucket has ``2 ** shift`` rows.
        table: int64 [segments, buckets + 1], position in the file where each slice begins and ends.
        sums: uint64 [buckets], the sum of each bucket's arcs (kernels.add_sums).
    """

    shift: int
    table: np.ndarray
    sums: np.ndarray


class SpoolWriter:
    """Collects keys in memory and writes a segment whenever the memory is full, while the next one is collected."""

    def __init__(self, folder: Path, capacity: int, payloads: tuple[str, ...]) -> None:
        """Write into ``folder``; keep three times ``capacity`` keys, and as many payloads, in memory."""
        self._keys = [np.empty(capacity, np.uint64) for _ in range(2)]
        self._sorted = np.empty(capacity, np.uint64)
        self._values = [{name: np.empty(capacity, PAYLOADS[name]) for name in payloads} for _ in range(2)]
        self._origin = np.empty(capacity if payloads else 0, np.int32)
        self._folder = folder
        self._files: dict[str, BinaryIO] = {}
        self._pool = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None
        self._filling, self._held = 0, 0
        self._ends: list[np.ndarray] = []
        self._sums = np.zeros(BUCKETS, np.uint64)
        self._shift = 0

    def __enter__(self) -> SpoolWriter:
        for name in ("keys", *self._values[0]):
            self._files[name] = (self._folder / f"{name}.bin").open("wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True)
        for file in self._files.values():
            file.close()

    def add(self, keys: np.ndarray, payloads: dict[str, np.ndarray]) -> None:
        """Append uint64 keys and, for each of them, a value of every payload."""
        start = 0
        while start < len(keys):
            room = len(self._sorted) - self._held
            stop = min(len(keys), start + room)
            here = slice(self._held, self._held + stop - start)
            self._keys[self._filling][here] = keys[start:stop]
            for name, values in payloads.items():
                self._values[self._filling][name][here] = values[start:stop]
            self._held += stop - start
            start = stop
            if self._held == len(self._sorted):
                self._flush()

    def finish(self, largest: int) -> Index:
        """Write the rest and return the index; ``largest`` is the largest row id."""
        self._flush()
        self._wait()
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        while max(largest, 0) >> self._shift >= BUCKETS:
            self._widen()
        table = np.array(self._ends, np.int64).reshape(len(self._ends), BUCKETS + 1)
        segments = np.concatenate([[0], np.cumsum(table[:, -1])[:-1]]) if len(table) else np.empty(0)
        return Index(self._shift, table + segments.astype(np.int64)[:, None], self._sums)

    def _flush(self) -> None:
        self._wait()
        if self._held:
            self._writing = self._pool.submit(self._write, self._filling, self._held)
        self._filling, self._held = 1 - self._filling, 0

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def _write(self, filled: int, count: int) -> None:
        keys = self._keys[filled][:count]
        while int(keys.max() >> np.uint64(32)) >> self._shift >= BUCKETS:
            self._widen()
        ends = np.empty(BUCKETS + 1, np.int64)
        shift = np.uint64(32 + self._shift)
        kernels.bucket(keys, shift, ends)
        kernels.distribute(keys, shift, ends, self._sorted, self._origin)
        self._ends.append(ends)
        self._files["keys"].write(self._sorted[:count].data)
        payloads = {name: values[self._origin[:count]] for name, values in self._values[filled].items()}
        for name, values in payloads.items():
            self._files[name].write(values.data)
        kernels.add_sums(self._sorted[:count], *_hashable(payloads), shift, self._sums)

    def _widen(self) -> None:
        self._shift += 1
        half = BUCKETS // 2
        for k, ends in enumerate(self._ends):
            self._ends[k] = np.concatenate([ends[::2], np.full(half, ends[-1])])
        self._sums = np.concatenate([self._sums[::2] + self._sums[1::2], np.zeros(half, np.uint64)])


@dataclass(frozen=True)
class Spool:
    """The files of a SpoolWriter, opened for reading; threads may share it.

    Attributes:
        folder: the folder of its files.
        index: the positions in its files.
        payloads: names of the values stored with the keys.
    """

    folder: Path
    index: Index
    payloads: tuple[str, ...]

    @property
    def shift(self) -> int:
        """Return the shift: a bucket has ``2 ** shift`` rows."""
        return self.index.shift

    def counts(self) -> np.ndarray:
        """Return the number of keys per bucket, int64 [buckets]."""
        return np.diff(self.index.table, axis=1).sum(axis=0)

    def row_counts(self, bucket: int) -> np.ndarray:
        """Return the number of keys per row, int64 [rows of the bucket]."""
        counts = np.zeros(1 << self.shift, np.int64)
        for begin, end in self._slices(bucket, bucket + 1):
            for lo in range(begin, end, SLICE):
                kernels.rows_of(self._read("keys", lo, min(lo + SLICE, end)), bucket << self.shift, counts)
        return counts

    def load(self, low: int, high: int, count: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Read the ``count`` keys of rows low..high-1, by bucket and then in the order added, and their payloads."""
        keys = np.empty(count, np.uint64)
        payloads = {name: np.empty(count, PAYLOADS[name]) for name in self.payloads}
        width, at = 1 << self.shift, 0
        first, last = low >> self.shift, -(-high // width)
        whole_low, whole_high = -(-low // width), high >> self.shift
        if whole_low >= whole_high:
            at = self._load_some(first, last, low, high, keys, payloads, at)
        else:
            if first < whole_low:
                at = self._load_some(first, whole_low, low, high, keys, payloads, at)
            at = self._load_all(whole_low, whole_high, keys, payloads, at)
            if whole_high < last:
                at = self._load_some(whole_high, last, low, high, keys, payloads, at)
        if at != count:
            raise InputError(f"{self.folder}: rows {low}..{high - 1} hold {at} arcs, expected {count}; scatter again")
        return keys, payloads

    def _load_all(self, first: int, last: int, keys: np.ndarray, payloads: dict[str, np.ndarray], at: int) -> int:
        start = at
        for begin, end in self._slices(first, last):
            here = slice(at, at + end - begin)
            self._read("keys", begin, end, keys[here])
            for name, values in payloads.items():
                self._read(name, begin, end, values[here])
            at = here.stop
        sums = np.zeros(2, np.uint64)
        whole = {name: values[start:at] for name, values in payloads.items()}
        kernels.add_sums(keys[start:at], *_hashable(whole), np.uint64(63), sums)
        self._verify(first, last, sums)
        return at

    def _load_some(
        self, first: int, last: int, low: int, high: int, keys: np.ndarray, payloads: dict[str, np.ndarray], at: int
    ) -> int:
        sums = np.zeros(2, np.uint64)
        origin = np.empty(SLICE if payloads else 0, np.int32)
        for begin, end in self._slices(first, last):
            for lo in range(begin, end, SLICE):
                hi = min(lo + SLICE, end)
                block = self._read("keys", lo, hi)
                values = {name: self._read(name, lo, hi) for name in payloads}
                kernels.add_sums(block, *_hashable(values), np.uint64(63), sums)
                stop = kernels.keep_rows(block, low, high, keys, at, origin)
                for name, kept in payloads.items():
                    kept[at:stop] = values[name][origin[: stop - at]]
                at = stop
        self._verify(first, last, sums)
        return at

    def _verify(self, first: int, last: int, sums: np.ndarray) -> None:
        if self.index.sums[first:last].sum(dtype=np.uint64) != sums.sum(dtype=np.uint64):
            raise InputError(f"{self.folder}: altered: the arcs are not those that were scattered; scatter again")

    def _slices(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield begin and end in the file of buckets first..last-1, segment by segment, without empty slices."""
        for begin, end in zip(*(self.index.table[:, bucket].tolist() for bucket in (first, last)), strict=True):
            if begin < end:
                yield begin, end

    def _read(self, name: str, begin: int, end: int, out: np.ndarray | None = None) -> np.ndarray:
        dtype = np.dtype("<u8") if name == "keys" else PAYLOADS[name]
        out = np.empty(end - begin, dtype) if out is None else out
        path = self.folder / f"{name}.bin"
        with path.open("rb", buffering=0) as file:
            file.seek(begin * dtype.itemsize)
            view, done = out.data.cast("B"), 0
            while done < len(view):
                got = file.readinto(view[done:])
                if not got:
                    raise InputError(f"{path}: truncated; scatter again")
                done += got
        return out


def _hashable(payloads: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the bits of the weights, and the types, in the form for kernels.add_sums."""
    weights = payloads.get("weights", np.empty(0, np.float32))
    return weights.view(np.uint32), payloads.get("types", np.empty(0, np.int32))
