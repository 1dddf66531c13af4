"""How generated kernels share arcs among threads, blocks and time: the choices of Seastar (EuroSys'21), section 6.3.

Programs use the defaults. The other choices exist for comparison, as in the paper's figure 12. They change which thread
sums what, and so the order of sums; the results stay bitwise reproducible.
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

#: Blocks of a launch whose blocks all run at once: three per multiprocessor of a large GPU. The number does not depend
#: on the GPU in use, because sums over all arcs are summed per block: every GPU gets the same bits.
STATIC_BLOCKS = 132 * 3


@dataclass(frozen=True)
class Execution:
    """Choices for launches over arcs.

    Attributes:
        groups: threads per row (or part of a row). ``adaptive``: as many lanes as the columns need, so that a warp has
            several rows (6.3.1). ``warp``: one warp. ``block`` (the paper's Basic): one block, whose warps take
            columns; warps beyond the last column are idle.
        arcs: ``together``: long rows are cut, and lanes that the columns do not need take further arcs of the row.
            ``sequence`` (6.3.2): rows stay whole, one arc after the other. ``parallel``: each arc is processed alone
            and writes its summand; a second launch sums these in order.
        blocks: how blocks get their rows. ``hardware``: the GPU starts blocks as earlier ones end (6.3.3). ``atomic``:
            each block draws from a counter. ``static``: as many blocks as run at once; each takes every n-th group of
            rows.
        rows: the order of rows: ``given``, or ``sorted`` by falling number of arcs (6.3.3).
    """

    groups: Groups = "adaptive"
    arcs: Arcs = "together"
    blocks: Blocks = "hardware"
    rows: Rows = "given"

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Parse ``groups=block,arcs=sequence``; empty: the defaults. Raises ValueError with a one-line message."""
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
        """Return the choices that differ from the defaults, as ``parsed`` reads them."""
        return ",".join(
            f"{each.name}={asdict(self)[each.name]}" for each in fields(self) if asdict(self)[each.name] != each.default
        )

    @property
    def idle(self) -> bool:
        """Whether lanes of a warp that the columns do not need stay idle."""
        return self.groups != "adaptive" and self.arcs != "together"

    @property
    def plain(self) -> bool:
        """Whether rows are cut and ordered as by default."""
        return self.arcs == "together" and self.rows == "given"

    def longest(self, ptr: np.ndarray) -> int:
        """Return the most arcs per piece, for rows whose arcs begin at ``ptr``, integers [rows + 1]."""
        if self.arcs == "together":
            return task_size(int(ptr[-1] - ptr[0]), len(ptr) - 1)
        return 1 if self.arcs == "parallel" else max(int(np.diff(ptr).max(initial=0)), 1)

    def cut(self, ptr: np.ndarray) -> RowSchedule:
        """Cut the rows into pieces."""
        return row_schedule(ptr, self.longest(ptr))

    def order(self, cut: RowSchedule) -> np.ndarray | None:
        """Return int32 [pieces], the pieces in the order of processing; None: the order of ``cut``."""
        if self.rows == "given":
            return None
        return np.argsort(-np.diff(cut.begin), kind="stable").astype(np.int32)


DEFAULT = Execution()
