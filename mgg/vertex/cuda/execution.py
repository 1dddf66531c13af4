"""How generated kernels share arcs among threads, blocks and time: the choices of Seastar (EuroSys'21), section 6.3.

The defaults are what every program takes. The other choices are there to be compared with, as in the paper's figure 12;
they change who adds up what, and so the order of sums, but neither what is computed nor that it has the same bits in
every run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Literal, Self, get_args, get_type_hints

import numpy as np

from mgg.kernel.schedule import RowSchedule, row_schedule, task_size
from mgg.schema import nearest

Groups = Literal["adaptive", "warp", "block"]
Arcs = Literal["together", "sequence", "parallel"]
Blocks = Literal["hardware", "atomic", "static"]
Rows = Literal["given", "sorted"]

#: Blocks of a launch whose blocks all run at once: three a multiprocessor of a large GPU. A constant, not the GPU at
#: hand: sums of all arcs are added up by blocks, so every GPU gets the same bits.
STATIC_BLOCKS = 132 * 3


@dataclass(frozen=True)
class Execution:
    """Of launches that go over arcs.

    Attributes:
        groups: threads of a row (or of a part of it). ``adaptive``: as many lanes as its columns need, so that a warp
            has several rows (6.3.1); ``warp``; ``block`` (the paper's Basic): its warps take columns, those beyond the
            last column are idle.
        arcs: ``together``: long rows are cut, and lanes that columns do not need take further arcs of the row;
            ``sequence`` (6.3.2): a row is whole, one arc after the other; ``parallel``: each arc is by itself, what it
            adds is written, and a second launch adds this up in order.
        blocks: who gives a block its rows. ``hardware``: the GPU, as earlier blocks end (6.3.3); ``atomic``: a counter
            that each block draws from; ``static``: as many blocks as run at once, each has every n-th group of rows.
        rows: in the order ``given``, or ``sorted``, those of most arcs first (6.3.3).
    """

    groups: Groups = "adaptive"
    arcs: Arcs = "together"
    blocks: Blocks = "hardware"
    rows: Rows = "given"

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Of ``groups=block,arcs=sequence``; empty: the defaults. Raises ValueError with one line."""
        hints, given = get_type_hints(cls), dict[str, str]()
        for part in filter(None, text.split(",")):
            key, _, value = part.partition("=")
            if key not in hints:
                raise ValueError(f"{part!r}: no choice is called {key!r}; {nearest(key, hints)}")
            if value not in get_args(hints[key]):
                raise ValueError(f"{part!r}: {key} is one of {', '.join(get_args(hints[key]))}")
            if key in given:
                raise ValueError(f"{part!r}: {key} is given twice")
            given[key] = value
        return cls(**given)  # type: ignore[arg-type]

    def __str__(self) -> str:
        """What differs from the defaults, as ``parsed`` reads it."""
        return ",".join(
            f"{each.name}={asdict(self)[each.name]}" for each in fields(self) if asdict(self)[each.name] != each.default
        )

    @property
    def idle(self) -> bool:
        """Lanes of a warp that columns do not need have nothing to do."""
        return self.groups != "adaptive" and self.arcs != "together"

    @property
    def plain(self) -> bool:
        """Rows are cut and ordered as every launch has them."""
        return self.arcs == "together" and self.rows == "given"

    def longest(self, ptr: np.ndarray) -> int:
        """Most arcs of a piece of rows whose arcs begin at ``ptr``, integers [rows + 1]."""
        if self.arcs == "together":
            return task_size(int(ptr[-1] - ptr[0]), len(ptr) - 1)
        return 1 if self.arcs == "parallel" else max(int(np.diff(ptr).max(initial=0)), 1)

    def cut(self, ptr: np.ndarray) -> RowSchedule:
        """The pieces of these rows."""
        return row_schedule(ptr, self.longest(ptr))

    def order(self, cut: RowSchedule) -> np.ndarray | None:
        """int32 [pieces], the pieces in the order of work; None: that of ``cut``."""
        if self.rows == "given":
            return None
        return np.argsort(-np.diff(cut.begin), kind="stable").astype(np.int32)


DEFAULT = Execution()
