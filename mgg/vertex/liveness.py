"""Peak memory of the work of a vertex program, from which arrays live at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from mgg.vertex.cuda.device import launched_steps
from mgg.vertex.ir import D, E, R, S, Value
from mgg.vertex.run import Work
from mgg.vertex.turned import Turned

View = Callable[[Value], Value | None]


@dataclass(frozen=True)
class Room:
    """The sizes of a PE's part of a program, which determine the sizes of its arrays.

    Attributes:
        rows, halo, arcs: the PE's numbers of rows, halo rows and arcs. Runs count as arcs.
        gpu: whether units are kernel launches.
    """

    rows: int
    halo: int
    arcs: int
    gpu: bool = False

    def arrays(self, values: Iterable[Value]) -> set[Value]:
        """Return the values whose arrays hold all ``values``, after merging views."""
        return {self._array(v) for v in values}

    def floats(self, values: Iterable[Value]) -> int:
        """Return the size of their arrays in entries of 4 bytes."""
        return sum(map(self._size, self.arrays(values)))

    def most(self, work: Work | Turned, given: Collection[Value] = ()) -> int:
        """Return the peak of what ``work`` makes plus ``given`` values that only it uses, in entries of 4 bytes."""
        if isinstance(work, Turned):
            stays = self.floats(v for v in work.before.wanted if v not in work.before.known)
            fetched = self.floats((*work.fetched, *work.steady, *work.crossing))
            return max(
                self.most(work.before, given), stays + fetched + self.most(work.own), stays + self.most(work.after)
            )
        steps, shared = launched_steps(work) if self.gpu else (work.lives, work.in_place)
        users = Counter(self._array(v, shared) for v in given)
        held = most = sum(map(self._size, users))
        for made, gone in steps:
            for v in made:
                array = self._array(v, shared)
                held += self._size(array) if array is v else 0
                users[array] += array is v or users[array] > 0  # otherwise another owner has the array
            most = max(most, held)
            for array in (self._array(v, shared) for v in gone):
                held -= self._size(array) if users[array] == 1 else 0
                users[array] -= users[array] > 0
        return most

    def _array(self, v: Value, shared: dict[Value, Value] | None = None) -> Value:
        """Return the value whose array ``v`` uses."""
        while True:
            x = (shared or {}).get(v)
            if x is None and (v.op == "reshape" or (v.op == "cast" and not (v.space is S and self.halo))):
                x = v.inputs[0]
            if x is None:
                return v
            v = x

    def _size(self, v: Value) -> int:
        if v.op == "total" and v.space is D and v.inputs[0].space is S:
            return v.size * (self.rows + self.halo)  # the result is a view of the array that was given back
        rows = {D: self.rows, S: self.rows + self.halo, E: self.arcs, R: self.arcs}.get(v.space, 0)
        return rows * v.size * (1 + (v.op == "winner"))
