"""Run backward passes of vertex programs in the *turned* schedule on one PE (``mgg.vertex.turned``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from mgg.backend.api import Array, World
from mgg.kernel.compile import Build
from mgg.layout import PeLayout, Product
from mgg.layout.halo_matrix import dealt
from mgg.model.arrays import Arrays
from mgg.model.halo import FetchedHalo, Halo, NoHalo, host_halo
from mgg.vertex.arcs import ArcTables
from mgg.vertex.cuda.device import DeviceTables, DeviceWork
from mgg.vertex.cuda.execution import DEFAULT, Execution
from mgg.vertex.ir import E, R, S, Value
from mgg.vertex.out_arcs import Crossing, out_arcs
from mgg.vertex.run import Part, Work, array_of, contiguous, dense
from mgg.vertex.turned import Turned

#: A winner, an arc number, is sent as two numbers that float32 represents: the higher bits and these lower ones.
LOW_BITS = 20


class Turning(NamedTuple):
    """The most entries that turned layers fetch at once: per row, and per arc."""

    rows: int
    arcs: int


NOTHING_TURNED = Turning(0, 0)


@dataclass(eq=False)
class Outward:
    """State shared by all turned layers of a model.

    Attributes:
        world, layout: the PEs and this PE's part; None: there is only one PE.
        halo: fetches the rows at which this PE's out-arcs end.
        real: type of the computation.
        columns: the most entries per arc sent at once.
    """

    world: World | None = None
    layout: PeLayout | None = None
    halo: Halo = field(default_factory=NoHalo)
    real: Any = np.float32
    columns: int = 0

    @property
    def transpose(self) -> Product | None:
        """The layout's transpose if there are several PEs, else None."""
        return None if self.layout is None or self.layout.size == 1 else self.layout.transpose

    def close(self) -> None:
        """Free the symmetric array (collective)."""
        self.halo.close()


class OutArcs:
    """The arcs that begin at this PE's rows, and the transfers of what they need from other PEs.

    Args:
        outward: the model's shared state.
        arcs: the arcs that end at this PE's rows.
        forward: the layout's product.
        ids: ids of this PE's rows, on the host.
        arrays: operations of the PE's device.
    """

    def __init__(
        self, outward: Outward, arcs: ArcTables, forward: Product, ids: np.ndarray, arrays: Arrays
    ) -> None:  # fmt: skip
        self._outward, self._arcs, self._arrays = outward, arcs, arrays
        self._ids = ids
        if outward.transpose is not None:
            assert outward.world is not None
            self._ids = host_halo(outward.world, outward.transpose, ids)
        self.tables = out_arcs(arcs, outward.transpose, self._ids)
        self.on_device: DeviceTables | None = None
        if arrays.operators is not None:
            self.on_device = DeviceTables(lambda: self.tables, len(self._ids), arrays.upload, arrays.operators)
        self.ids = arrays.upload(self._ids)
        self._crossing = Crossing.of(arcs, forward, outward.transpose)
        self._places: dict[bool, Array] = {}
        self._halo: Halo = NoHalo()
        self._weights: Array | None = None
        self._keys: tuple[Array, Array, Array] | None = None
        if outward.columns and outward.transpose is not None:
            assert outward.world is not None and outward.layout is not None
            sent = outward.world.gather(self._crossing.send_ptr)
            part = dealt(outward.layout, self._crossing.receive_ptr, sent)
            self._halo = FetchedHalo(outward.world, part, outward.columns, real=outward.real)

    @property
    def weights(self) -> Array:
        """The weight of each arc on the device, always the same array."""
        if self._weights is None:
            given, count = self.tables.weights, self.tables.rows_of(E)
            self._weights = self._arrays.upload(np.ones(count, self._outward.real) if given is None else given)
        return self._weights

    def rows(self, x: Array) -> Array:
        """Return this PE's rows, [rows, columns], followed by those at which its out-arcs end (collective)."""
        return self._outward.halo.fetch(x)

    def of_arcs(self, x: Array, *, runs: bool) -> Array:
        """Return values of this PE's in-arcs or, with ``runs``, of their runs, [arcs, columns], followed by those of
        out-arcs that end elsewhere (collective).
        """
        if self._outward.transpose is None:
            return x
        if runs not in self._places:
            sent = self._crossing.send
            self._places[runs] = self._arrays.upload(self._arcs.arc_runs[sent] if runs else sent)
        there = self._halo.fetch(self._arrays.rows(x, self._places[runs]))
        return self._below(x, there[len(self._crossing.send) :])

    def winners(self, rows: Array) -> Array:
        """Map fetched winners ``rows``, int64 [rows, columns], to out-arcs of this PE; -1 for other arcs."""
        if self._outward.transpose is None:
            return rows
        # Not a cached property: CPython 3.11 locks those, and PEs that are threads wait for each other in this call.
        self._keys = self._keys or self._numbered()
        own, (bases, keys, numbers) = self._arcs.rows, self._keys
        wanted = np.add(rows[own:], bases)
        if not len(keys):
            return self._below(rows[:own], np.subtract(np.multiply(wanted, 0), 1))
        assert self._outward.world is not None
        flat = wanted.reshape(wanted.size)
        at = np.minimum(self._outward.world.xp.searchsorted(keys, flat), len(keys) - 1)
        found = np.where(np.equal(keys[at], flat), numbers[at], -1)
        return self._below(rows[:own], found.reshape(wanted.shape))

    def _below(self, x: Array, y: Array) -> Array:
        """Return the rows of ``x`` followed by those of ``y``."""
        both = self._arrays.empty((len(x) + len(y), x.shape[1]), x.dtype)
        both[: len(x)], both[len(x) :] = x, y
        return both

    def _numbered(self) -> tuple[Array, Array, Array]:
        """Return the first arc number on the PE of each halo row, [halo, 1]; the sorted global numbers of the arcs that
        end elsewhere; and the number of each of these among the out-arcs (collective).
        """
        upload, count = self._arrays.upload, self._arcs.rows_of(E)
        outward = self._outward
        assert outward.world is not None and outward.transpose is not None
        ptr, send = self._crossing.send_ptr, self._crossing.send
        there = outward.world.exchange([send[ptr[pe] : ptr[pe + 1]] for pe in range(outward.world.size)])
        first = np.concatenate(([0], np.cumsum(outward.world.gather(count))))[:-1]
        keys = np.concatenate([base + numbers for base, numbers in zip(first, there, strict=True)])
        order = np.argsort(keys, kind="stable")
        bases = np.repeat(first, np.diff(outward.transpose.halo_ptr))[:, None]
        return upload(bases), upload(keys[order]), upload(count + order)

    def close(self) -> None:
        """Free the symmetric array (collective)."""
        self._halo.close()


class TurnedWork:
    """A backward pass ``turned`` over the arcs ``out``.

    Args:
        turned: the three parts of the pass.
        out: the arcs.
        on_device: returns a part over in-arcs in the form that the PE's device runs.
        name: name of the program.
        how: how kernels share arcs among threads.
    """

    def __init__(
        self, turned: Turned, out: OutArcs, on_device: Callable[[Work], Any], name: str, how: Execution = DEFAULT
    ) -> None:
        self._turned, self._out = turned, out
        self._before, self._after = on_device(turned.before), on_device(turned.after)
        own = turned.own
        self._own: Work | DeviceWork = own if out.on_device is None else DeviceWork(own, out.on_device, name, how)
        self._steady: dict[Value, Array] = {}

    @property
    def builds(self) -> list[Build]:
        """The kernels that it needs; none on a host."""
        return [x for work in (self._before, self._own, self._after) if not isinstance(work, Work) for x in work.builds]

    def run(self, found: dict[Value, Any], part: Part, draws: tuple[int, Any] = (0, 0)) -> None:
        """Run the pass like ``Work.run`` (collective)."""
        turned, out = self._turned, self._out
        self._before.run(found, part, draws)
        given: dict[Value, Any] = {}
        wanted = [v for v in turned.steady if v not in self._steady]
        if wanted:
            self._steady.update(self._fetched(wanted, found, part, draws))
        if turned.fetched:
            given.update(self._fetched(turned.fetched, found, part, draws))
        if turned.crossing:
            given.update(self._crossed(found, part, draws))
        for value in turned.own.reads:
            if value in self._steady:
                given[value] = self._steady[value]
            elif value not in given:
                array = out.weights if value.space is E else array_of(value, found, part, draws)
                # S has no halo here.
                given[value] = array[: part.rows] if value.space is S else array
        there = replace(part, rows=len(out.ids), arcs=lambda: out.tables, ids=out.ids)
        self._own.run(given, there, draws)
        for value, sums in turned.home.items():
            found[value] = _whole(given[sums], sums, part.rows).reshape(part.rows, *value.shape)
        for value in turned.results:
            found[value] = given[value]
        self._after.run(found, part, draws)

    def _fetched(
        self, values: Sequence[Value], found: dict[Value, Any], part: Part, draws: tuple[int, Any]
    ) -> dict[Value, Any]:
        """Fetch ``values`` of D for all ends of out-arcs, in one transfer."""
        parts = []
        for value in values:
            rows = _whole(array_of(value, found, part, draws), value, part.rows)
            rows = rows.reshape(part.rows, value.size)
            parts += [_high(rows).astype(part.real), _low(rows).astype(part.real)] if value.op == "winner" else [rows]
        rows = self._out.rows(contiguous(parts[0]) if len(parts) == 1 else _beside(parts, part))
        result, first = {}, 0
        for value in values:
            columns = value.size
            mine = rows if len(parts) == 1 else rows[:, first : first + columns].copy()
            first += columns
            if value.op == "winner":
                low = rows[:, first : first + columns].astype(np.int64)
                first += columns
                high = np.multiply(mine.astype(np.int64), 1 << LOW_BITS)
                mine = self._out.winners(np.subtract(np.add(high, low), 1))
            result[value] = mine.reshape(len(rows), *value.shape)
        return result

    def _crossed(self, found: dict[Value, Any], part: Part, draws: tuple[int, Any]) -> dict[Value, Any]:
        """Fetch the crossing values of E and R for all out-arcs, one transfer each."""
        result = {}
        for value in self._turned.crossing:
            count = part.rows_of(value.space)
            array = _whole(array_of(value, found, part, draws), value, count).reshape(count, value.size)
            array = self._out.of_arcs(contiguous(array.astype(part.real, copy=False)), runs=value.space is R)
            result[value] = array.reshape(len(array), *value.shape)
        return result


def _whole(x: Any, value: Value, rows: int) -> Any:
    x = dense(x)
    return x if len(x) == rows else np.broadcast_to(x, (rows, *value.shape))


def _beside(parts: Sequence[Array], part: Part) -> Array:
    """Return the columns of all ``parts`` side by side."""
    beside, first = part.dense.empty((part.rows, sum(x.shape[1] for x in parts)), part.real), 0
    for x in parts:
        beside[:, first : first + x.shape[1]] = x
        first += x.shape[1]
    return beside


def _high(winners: Array) -> Array:
    return np.right_shift(np.add(winners, 1), LOW_BITS)


def _low(winners: Array) -> Array:
    return np.bitwise_and(np.add(winners, 1), (1 << LOW_BITS) - 1)
