"""A world whose device arrays are no NumPy arrays: whatever a GPU would refuse, it refuses on any machine."""

from __future__ import annotations

import ctypes
import operator
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from mgg.backend.api import SymmetricArray
from mgg.backend.host import HostClock
from mgg.kernel import cpu
from mgg.kernel.bf16 import from_bf16
from mgg.kernel.random import Draws
from mgg.model.arrays import HostArrays
from support.devices import device
from support.devices.device import submit
from support.devices.on_host import generated, launch


class StrictArray:
    """An array of a device: host arrays never mix with it, and nothing reads it on the host without a download."""

    def __init__(self, data: np.ndarray, block: Any = None):
        self._data, self._block = data, block

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None) -> StrictArray:
        """Of NumPy's functions those that CuPy takes its own arrays in, and numbers beside them."""
        assert method == "__call__"
        given = [each if np.isscalar(each) else unwrap(each) for each in inputs]
        if out is not None:
            submit(lambda into=out[0]._data: ufunc(*given, out=into))
            return out[0]
        return _computed(lambda: ufunc(*given))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> StrictArray:
        if function is np.broadcast_to:
            return StrictArray(np.broadcast_to(self._data, args[1]), self._block)
        if function not in (np.where, np.einsum, np.concatenate):
            return NotImplemented
        given = [unwrap(each) if isinstance(each, StrictArray) else each for each in args]
        return _computed(lambda: function(*given, **kwargs))

    def __ne__(self, other: object) -> StrictArray:  # type: ignore[override]
        return np.not_equal(self, other)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("implicit conversion of a device array to a host array")

    def _refuse(self, *_: Any) -> Any:
        raise TypeError("a device array is read on the host")

    __int__ = __float__ = __bool__ = __index__ = __iter__ = _refuse

    shape = property(lambda self: self._data.shape)
    dtype = property(lambda self: self._data.dtype)
    size = property(lambda self: self._data.size)
    nbytes = property(lambda self: self._data.nbytes)
    itemsize = property(lambda self: self._data.itemsize)
    ndim = property(lambda self: self._data.ndim)
    strides = property(lambda self: self._data.strides)
    flags = property(lambda self: self._data.flags)
    T = property(lambda self: StrictArray(self._data.T, self._block))

    @property
    def data(self) -> SimpleNamespace:
        return SimpleNamespace(ptr=self._data.ctypes.data)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: Any) -> StrictArray:
        data, places = self._data, _index(index)
        if isinstance(index, StrictArray):  # a copy of the rows
            return made(places.shape + data.shape[1:], data.dtype, lambda: data[places])
        return StrictArray(data[places], self._block)

    def __setitem__(self, index: Any, value: Any) -> None:
        data, places, values = self._data, _index(index), value if np.isscalar(value) else unwrap(value)
        submit(lambda: data.__setitem__(places, values))

    def view(self, dtype: Any) -> StrictArray:
        return StrictArray(self._data.view(dtype), self._block)

    def copy(self) -> StrictArray:
        return made(self.shape, self.dtype, lambda data=self._data: data)

    def reshape(self, *shape: Any) -> StrictArray:
        try:
            return StrictArray(self._data.reshape(*shape, copy=False), self._block)
        except ValueError:
            return self.copy().reshape(*shape)

    def put(self, places: Any, values: Any, mode: str) -> None:
        data, to, put = self._data, unwrap(places), unwrap(values)
        submit(lambda: data.put(to, put, mode))

    def sum(self, axis: int, dtype: Any) -> StrictArray:
        shape = np.empty(self.shape).sum(axis=axis).shape
        return made(shape, dtype, lambda data=self._data: data.sum(axis=axis, dtype=dtype))

    def fill(self, value: float) -> None:
        submit(lambda data=self._data: data.fill(value))

    def swapaxes(self, first: int, second: int) -> StrictArray:
        return StrictArray(self._data.swapaxes(first, second), self._block)

    def astype(self, dtype: Any, copy: bool = True) -> StrictArray:
        if not copy and self.dtype == dtype:
            return self
        return made(self.shape, dtype, lambda data=self._data: data.astype(dtype))

    def _combine(self, other: Any, how: Any) -> StrictArray:
        mine, theirs = self._data, other if np.isscalar(other) else unwrap(other)
        like = how(np.empty_like(mine), theirs)
        return made(like.shape, like.dtype, lambda: how(mine, theirs))

    def __add__(self, other: Any) -> StrictArray:
        return self._combine(other, operator.add)

    def __mul__(self, other: Any) -> StrictArray:
        return self._combine(other, operator.mul)

    def _in_place(self, other: Any, how: Any) -> StrictArray:
        mine, theirs = self._data, other if np.isscalar(other) else unwrap(other)
        submit(lambda: how(mine, theirs, out=mine))
        return self

    def __iadd__(self, other: Any) -> StrictArray:
        return self._in_place(other, np.add)

    def __imul__(self, other: Any) -> StrictArray:
        return self._in_place(other, np.multiply)


def made(shape: Any, dtype: Any, value: Any) -> StrictArray:
    """A new array, into which the device puts what ``value()`` is then."""
    out = empty(shape, dtype)
    submit(lambda data=out._data: np.copyto(data, value()))
    return out


def _computed(value: Any) -> StrictArray:
    """A new array, into which the device puts ``value()``, like what it is of the numbers that there are now."""
    with np.errstate(all="ignore"):
        like = value()
    return made(like.shape, like.dtype, value)


def unwrap(array: Any) -> Any:
    """The data of a device array; None stays None, anything else is refused."""
    if array is None:
        return None
    if not isinstance(array, StrictArray):
        raise TypeError(f"a device array is needed, found {type(array).__name__}")
    return array._data


def _index(index: Any) -> Any:
    """Slices and whole numbers of Python are fine; arrays must be the device's."""
    if isinstance(index, tuple):
        return tuple(_index(part) for part in index)
    if isinstance(index, (int, np.integer)) or index is Ellipsis:
        return index
    if isinstance(index, slice):
        if any(isinstance(part, StrictArray) for part in (index.start, index.stop)):
            raise TypeError("a device array bounds a slice")
        return index
    return unwrap(index)


@cache
def _generated(path: Path, defines: tuple[tuple[str, Any], ...]) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        return generated(folder, SimpleNamespace(path=path, defines=dict(defines)))


class StrictOperators:
    """The CPU's operators for device arrays alone."""

    def gather_rows(self, source: Any, rows: Any, out: Any) -> None:
        assert source.dtype == out.dtype and source.dtype in (np.float32, np.uint16), (source.dtype, out.dtype)
        _submit(cpu.gather_rows, source, rows, out)

    def add_rows(self, source: Any, rows: Any, out: Any) -> None:
        assert source.dtype == out.dtype != np.uint16, (source.dtype, out.dtype)
        _submit(cpu.add_rows, source, rows, out)

    def pack_rows(self, source: Any, rows: Any, ids: Any, draws: Any, bits: int, out: Any) -> None:
        seed, epoch, place = draws
        plain, at = [unwrap(array) for array in (source, rows, ids, out)], unwrap(epoch)
        submit(lambda: cpu.pack_rows(*plain[:3], Draws(seed, at, place), bits, plain[3]))

    def unpack_rows(self, packed: Any, bits: int, out: Any) -> None:
        plain = unwrap(packed), unwrap(out)
        submit(lambda: cpu.unpack_rows(plain[0], bits, plain[1]))

    def spmm_rows(self, indptr: Any, indices: Any, weights: Any, b: Any, c: Any, accumulate: bool) -> None:
        _submit(cpu.spmm_rows, indptr, indices, weights, b, c, accumulate=accumulate)

    spmm_pieces = spmm_rows

    def accumulator(self, rows: int, columns: int) -> StrictArray:
        return empty((rows, columns), cpu.accumulator(0, 1).dtype)

    def spmm_partitions(self, rows: Any, starts: Any, stops: Any, indices: Any, weights: Any, b: Any, acc: Any) -> None:
        _submit(cpu.spmm_partitions, rows, starts, stops, indices, weights, b, acc)

    def spmm_columns(self, colptr: Any, rows: Any, weights: Any, b: Any, acc: Any) -> None:
        _submit(cpu.spmm_columns, colptr, rows, weights, b, acc)

    def mgg(
        self, local: Any, indices: Any, local_weights: Any, remote: Any, sources: Any, remote_weights: Any,
        own: Any, peers: Any, out: Any, requests: Any = None, **_: Any,
    ) -> None:  # fmt: skip
        """The fused kernel, from the addresses that it gets."""
        arrays = local, indices, local_weights, remote, sources, remote_weights, own, peers, out
        if requests is not None:
            submit(lambda: self._fetch_once(requests, own, peers, out.shape[1]))
        submit(lambda: self._mgg(*arrays))

    def _fetch_once(self, requests: Any, own: Any, peers: Any, dim: int) -> None:
        """What blocks ask for once, as far apart as the rows of ``own``."""
        pitch, first = unwrap(own).strides[0], requests.rows.data.ptr
        for place, source in enumerate(unwrap(requests.sources).tolist()):
            address = int(unwrap(peers)[source >> 48]) + (source & (1 << 48) - 1) * pitch
            ctypes.memmove(first + place * pitch, address, 4 * dim)

    def _mgg(
        self, local: Any, indices: Any, local_weights: Any, remote: Any, sources: Any, remote_weights: Any,
        own: Any, peers: Any, out: Any,
    ) -> None:  # fmt: skip
        sources, dim = unwrap(sources), out.shape[1]
        fetched = np.empty((len(sources), dim), np.float32)
        for place, source in enumerate(sources.tolist()):
            address = int(unwrap(peers)[source >> 48]) + (source & (1 << 48) - 1) * unwrap(own).strides[0]
            fetched[place] = (ctypes.c_float * dim).from_address(address)
        acc = np.zeros(out.shape)
        parts = [[unwrap(array) for array in (part.rows, part.starts, part.stops)] for part in (local, remote)]
        cpu.spmm_partitions(*parts[0], unwrap(indices), unwrap(local_weights), unwrap(own), acc)
        cpu.spmm_partitions(*parts[1], np.arange(len(sources)), unwrap(remote_weights), fetched, acc)
        cpu.finish(acc, unwrap(out))

    def gnnadvisor(self, groups: Any, indices: Any, weights: Any, b: Any, out: Any, setting: Any) -> None:
        """The kernel's groups, where their sums go, and the parts of rows that have several."""
        arrays = groups.targets, groups.starts, groups.to, groups.split_rows, groups.split_first
        plain = [unwrap(array) for array in (*arrays, indices, weights, b, out)]
        submit(lambda: self._gnnadvisor(*plain, setting))

    def _gnnadvisor(
        self, targets: Any, starts: Any, to: Any, rows: Any, first: Any, indices: Any, weights: Any, b: Any,
        out: Any, setting: Any,
    ) -> None:  # fmt: skip
        """In float64, as the CPU's operators sum: what a leader adds up has the place of its first group."""
        sums, count = np.zeros((len(targets), out.shape[1])), len(targets)
        cpu.spmm_partitions(np.arange(count), starts[:-1], starts[1:], indices, weights, b, sums)
        ends = np.ones(count, np.bool_)
        if setting.leader:
            ends[1:] = (np.diff(targets) != 0) | (np.arange(1, count) % setting.a_block == 0)
        writers = np.flatnonzero(ends)
        written = np.add.reduceat(sums, writers) if count else sums
        acc, parts = np.zeros(out.shape), np.full((len(written), out.shape[1]), np.nan)
        for place, value in zip(to[writers].tolist(), written, strict=True):
            if place < 0:
                parts[~place] = value
            else:
                acc[place] += value
        if setting.ordered:
            for row, begin, end in zip(rows, first[:-1], first[1:], strict=True):
                acc[row] = parts[begin:end].sum(axis=0)
        out[...] = acc

    def kernel(self, build: Any, name: str) -> Any:
        """A generated kernel, compiled for the host."""
        library = _generated(build.path, tuple(build.defines.items()))

        def call(grid: Any, block: Any, given: Any) -> None:
            plain = [unwrap(each) if isinstance(each, StrictArray) else np.asarray(each) for each in given]
            submit(lambda: launch(library, name, grid, block[0], *plain))

        return call

    def write(self, values: Any, out: Any) -> None:
        _submit(cpu.write, values, out)

    def widen_bf16(self, values: Any, out: Any) -> None:
        _submit(cpu.widen_bf16, values, out)

    def halo_kernel(self, schedule: Any, sources: Any, halo_first: int, rows: int, peers: Any) -> Any:
        return StrictHalo(schedule, sources, halo_first, rows, peers)

    def cola_kernel(self, schedule: Any, holders: Any) -> Any:
        return StrictCola(schedule, holders)

    def finish(self, acc: Any, c: Any) -> None:
        if acc is not c:
            _submit(cpu.finish, acc, c)


class StrictArrays:
    """Of the table of operations on device arrays what halos need."""

    def combined(self, x: Any, a: float, y: Any, b: float) -> Any:
        _submit(lambda first, other: HostArrays().combined(first, a, other, b), x, y)
        return x


def _submit(function: Any, *arrays: Any, **options: Any) -> None:
    plain = [unwrap(array) for array in arrays]
    submit(lambda: function(*plain, **options))


class StrictCola:
    """The launch of technique cola, from the addresses that it gets: a task after the other, then hubs."""

    def __init__(self, schedule: Any, holders: Any):
        self._schedule, self._holders = schedule, unwrap(holders)

    def __call__(self, held: Any, acc: Any) -> None:
        held, acc = unwrap(held), unwrap(acc)
        assert held.dtype == np.float32 and held.strides[1] == 4 and held.shape[1] == acc.shape[1]
        submit(lambda: self._launch(held, acc))

    def _launch(self, held: np.ndarray, acc: np.ndarray) -> None:
        schedule = self._schedule
        hubs = np.arange(schedule.light, len(schedule.sources))
        tasks = [range(first, first + count) for first, count in schedule.tasks.tolist()]
        for column in [*(column for task in tasks for column in task), *hubs.tolist()]:
            arcs = slice(int(schedule.begin[column]), int(schedule.begin[column + 1]))
            weights = None if schedule.weights is None else schedule.weights[arcs]
            row = self._row(int(schedule.sources[column]), acc.shape[1], held.strides[0])
            cpu.spmm_columns(schedule.begin[column : column + 2], schedule.rows[arcs], weights, row, acc)

    def _row(self, source: int, dim: int, pitch: int) -> np.ndarray:
        """float32 [1, dim], out of the holder's matrix, whose rows are ``pitch`` bytes apart."""
        address = int(self._holders[source >> 48]) + (source & (1 << 48) - 1) * pitch
        return np.array((ctypes.c_float * dim).from_address(address), np.float32).reshape(1, dim)


class StrictHalo:
    """The launch of technique halo, from the addresses that it gets: flags, the peers' rows, the order of the work."""

    def __init__(self, schedule: Any, sources: np.ndarray, halo_first: int, rows: int, peers: Any):
        self._schedule, self._sources, self._first, self._rows, self._peers = schedule, sources, halo_first, rows, peers
        self.weights = None if schedule.weights is None else StrictArray(schedule.weights.copy())
        self._epoch = 0

    def _flag(self, pe: int, number: int) -> Any:
        return ctypes.c_int.from_address(int(unwrap(self._peers.flags)[pe]) + 4 * number)

    def _meet(self, offset: int) -> None:
        """Set this PE's flag on the others and wait for theirs."""
        peers = self._peers
        others = [pe for pe in range(peers.size) if pe != peers.rank] if peers.flags is not None else []
        for pe in others:
            self._flag(pe, offset + peers.rank).value = self._epoch
        deadline = time.monotonic() + 60
        while any(self._flag(peers.rank, offset + pe).value < self._epoch for pe in others):
            assert time.monotonic() < deadline
            time.sleep(1e-4)

    def __call__(self, b: Any, out: Any, *, accumulate: bool = False, part: str = "all") -> None:
        b, out, dim = unwrap(b), unwrap(out), out.shape[1]
        assert b.shape == (self._first + len(self._sources), dim) and out.shape[0] == self._rows
        submit(lambda: self._launch(b, out, dim, accumulate, part))

    def _launch(self, b: np.ndarray, out: np.ndarray, dim: int, accumulate: bool, part: str) -> None:
        if part != "compute":
            self._pull(b, dim)
        if part != "transfer":
            self._sum(from_bf16(b) if b.dtype == np.uint16 else b, out, accumulate)

    def _pull(self, b: np.ndarray, dim: int) -> None:
        self._epoch += 1
        self._meet(0)
        for place, source in enumerate(self._sources.tolist()):
            address = int(unwrap(self._peers.rows)[source >> 48]) + (source & (1 << 48) - 1) * b.strides[0]
            kind = ctypes.c_float if b.dtype == np.float32 else ctypes.c_uint16
            b[self._first + place] = (kind * dim).from_address(address)
        self._meet(self._peers.size)

    def _sum(self, b: np.ndarray, out: np.ndarray, accumulate: bool) -> None:
        schedule, before = self._schedule, out.copy() if accumulate else 0
        target, dim = schedule.target, out.shape[1]
        # Parts of cut rows are summed in float64, as the CPU's operators sum.
        sums = np.zeros((len(target), dim))
        numbers = np.arange(len(target))
        cpu.spmm_partitions(
            numbers, schedule.begin[:-1], schedule.begin[1:], schedule.indices,
            None if self.weights is None else unwrap(self.weights), b, sums,
        )  # fmt: skip
        out[...] = 0
        out[target[target >= 0]] = sums[target >= 0]
        parts = np.empty((schedule.slots, dim))
        parts[-1 - target[target < 0]] = sums[target < 0]
        for row, first, last in zip(
            schedule.split_rows, schedule.split_first[:-1], schedule.split_first[1:], strict=True
        ):
            out[row] = parts[first:last].sum(axis=0)
        out += before


def empty(shape: Any, dtype: Any = np.float64) -> StrictArray:
    """As numpy.empty, filled with what would show in a result."""
    data, block = device.memory(shape, dtype)
    data.fill({"f": np.nan, "u": 7}.get(np.dtype(dtype).kind, -1))
    return StrictArray(data, block)


class Namespace:
    """What NumPy and CuPy both make arrays with."""

    empty = staticmethod(empty)

    def __getattr__(self, name: str) -> Any:
        if name not in ("zeros", "ones", "full", "arange"):
            raise AttributeError(
                f"xp.{name}: this stand-in for CuPy makes arrays by empty, zeros, ones, full and arange alone; what a"
                " plan prepares comes from NumPy by world.upload, what it computes from world.operators"
            )

        def make(*args: Any, **how: Any) -> StrictArray:
            value = getattr(np, name)(*args, **how)
            return made(value.shape, value.dtype, lambda: value)

        return make


class StrictTeam:
    """A team that takes device arrays alone."""

    def __init__(self, team: Any):
        self._team, self.pes = team, team.pes

    def broadcast(self, values: Any, root: int) -> None:
        self._team.broadcast(unwrap(values), root)

    def shift(self, send: Any, receive: Any, step: int) -> None:
        self._team.shift(unwrap(send), unwrap(receive), step)

    def all_gather(self, values: Any, out: Any) -> None:
        self._team.all_gather(unwrap(values), unwrap(out))

    def reduce_scatter(self, values: Any, out: Any) -> None:
        self._team.reduce_scatter(unwrap(values), unwrap(out))


class StrictWorld:
    """A simulated world that holds its data in strict arrays."""

    gpu = "strict"
    shmem = True
    emulated = None
    xp = Namespace()
    operators = StrictOperators()

    def __init__(self, world: Any):
        self._world, self.gpu_bus = world, str(world.rank)
        self.name, self.rank, self.size, self.counters = world.name, world.rank, world.size, world.counters
        self.barrier, self.gather, self.close = world.barrier, world.gather, world.close
        self.signal, self.wait_signal, self.note_collective = world.signal, world.wait_signal, world.note_collective
        self.side_stream, self.exchange = world.side_stream, world.exchange

    def upload(self, array: np.ndarray) -> StrictArray:
        if not isinstance(array, np.ndarray):
            raise TypeError(f"a host array is needed, found {type(array).__name__}")
        return StrictArray(array.copy())

    def download(self, array: StrictArray) -> np.ndarray:
        return unwrap(array).copy()

    def clock(self) -> HostClock:
        return HostClock()

    @property
    def addressable(self) -> Sequence[int]:
        return range(self.size)

    def symmetric(self, elements: int, reach: Sequence[int] | None = None) -> SymmetricArray:
        array = self._world.symmetric(elements, reach)
        return SymmetricArray(self.rank, {pe: StrictArray(copy) for pe, copy in array.peers.items()}, array)

    def managed(self, elements: int) -> SymmetricArray:
        return self.symmetric(elements)

    def host_symmetric(self, elements: int) -> SymmetricArray:
        array = self._world.host_symmetric(elements)
        peers = {pe: StrictArray(copy) for pe, copy in array.peers.items()}
        return SymmetricArray(self.rank, peers, array, None if array.whole is None else StrictArray(array.whole))

    def measure_memory(self) -> None:
        """Nothing."""

    def peak_memory(self) -> None:
        """Unknown."""

    def free_memory(self) -> None:
        return None

    def check_shmem(self) -> None:
        pass

    def free(self, array: SymmetricArray) -> None:
        array.peers = {}
        self._world.free(array.handle)

    def get_rows(self, source: SymmetricArray, pe: int, rows: Any, out: Any, operation: str = "get") -> None:
        source.copy_of(pe)  # as GPUs do: what has no address is not fetched
        wanted = rows if isinstance(rows, range) else unwrap(rows)
        self._world.get_rows(_inside(source), pe, wanted, unwrap(out), operation)

    def put_rows(self, target: SymmetricArray, pe: int, first: int, values: Any, alone: bool = False) -> None:
        assert not values.size or unwrap(values)[0].flags.c_contiguous
        # One message takes what pads the rows along.
        assert len(values) < 2 or unwrap(values).strides == _inside(target).local.strides
        self._world.put_rows(_inside(target), pe, first, unwrap(values), alone)

    def broadcast(self, values: Any, root: int) -> None:
        self._world.broadcast(values if isinstance(values, np.ndarray) else unwrap(values), root)

    def shift(self, send: Any, receive: Any, step: int) -> None:
        self._world.shift(unwrap(send), unwrap(receive), step)

    def team(self, pes: Sequence[int]) -> StrictTeam:
        return StrictTeam(self._world.team(pes))

    def all_reduce(self, values: Any) -> Any:
        if isinstance(values, np.ndarray):
            return self._world.all_reduce(values)
        return StrictArray(self._world.all_reduce(unwrap(values)))


def _inside(array: SymmetricArray) -> SymmetricArray:
    return SymmetricArray(array.rank, {pe: unwrap(copy) for pe, copy in array.peers.items()}, array.handle.handle)


class HostsWorld(StrictWorld):
    """GPUs on hosts of ``members`` PEs each: nothing addresses memory of another host."""

    def __init__(self, world: Any, members: int):
        super().__init__(world)
        self._members = members

    @property
    def addressable(self) -> Sequence[int]:
        first = self.rank - self.rank % self._members
        return range(first, min(first + self._members, self.size))

    def symmetric(self, elements: int, reach: Sequence[int] | None = None) -> SymmetricArray:
        reach = range(self.size) if reach is None else reach
        if set(reach) - set(self.addressable):
            raise AssertionError(f"PE {self.rank} asks for addresses of PEs {list(reach)}")
        return super().symmetric(elements, reach)
