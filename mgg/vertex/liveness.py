"""How many numbers the work of a vertex program holds at once, from which arrays live at the same time."""

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
    """What a PE's part of a program has, and so how large arrays of it are.

    Attributes:
        rows, halo, arcs: of the PE. Runs count as arcs.
        gpu: units are launches of kernels.
    """

    rows: int
    halo: int
    arcs: int
    gpu: bool = False

    def arrays(self, values: Iterable[Value]) -> set[Value]:
        """The values that have an array of their own, and so those of all ``values``."""
        return {self._array(v) for v in values}

    def floats(self, values: Iterable[Value]) -> int:
        """Of their arrays, 4 bytes each."""
        return sum(map(self._size, self.arrays(values)))

    def most(self, work: Work | Turned, given: Collection[Value] = ()) -> int:
        """The most that are held at once of what ``work`` makes and of what is ``given`` to it alone."""
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
                users[array] += array is v or users[array] > 0  # else somebody else has it
            most = max(most, held)
            for array in (self._array(v, shared) for v in gone):
                held -= self._size(array) if users[array] == 1 else 0
                users[array] -= users[array] > 0
        return most

    def _array(self, v: Value, shared: dict[Value, Value] | None = None) -> Value:
        """The value whose array that of ``v`` is."""
        while True:
            x = (shared or {}).get(v)
            if x is None and (v.op == "reshape" or (v.op == "cast" and not (v.space is S and self.halo))):
                x = v.inputs[0]
            if x is None:
                return v
            v = x

    def _size(self, v: Value) -> int:
        if v.op == "total" and v.space is D and v.inputs[0].space is S:
            return v.size * (self.rows + self.halo)  # what goes home is the first rows of what was to be given back
        rows = {D: self.rows, S: self.rows + self.halo, E: self.arcs, R: self.arcs}.get(v.space, 0)
        return rows * v.size * (1 + (v.op == "winner"))
