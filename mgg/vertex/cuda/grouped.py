"""Products by type on a GPU: rows of arcs or runs times the matrix of their type, and sums of x^T y by type.

All types share one launch of kernels/include/mgg/grouped.cuh: arcs or runs are sorted by type and cut where a type
ends. Kernels read the rows of an arc's ends in place, without copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgg.vertex.ir import D, E, R, S, Space, T, Value
from mgg.vertex.products import base, reads
from mgg.vertex.warp_layout import power

#: Threads per block, and rows per tile (of items, or of a sum).
WARP = 32
#: Most columns per tile.
COLUMNS = 64
#: Least items per part of a type's sum, and the most parts besides those that the ends of types add.
PART, PARTS = 256, 2048
#: The table of an arc's or a run's row in another space.
OWNERS = {
    (E, S): "ends", (E, D): "targets", (E, R): "run_of", (E, T): "types", (R, D): "run_targets", (R, T): "run_types",
}  # fmt: skip
_NULL = np.uint64(0)


@dataclass(frozen=True)
class Grouped:
    """The kernels of a product by type (``mgg.vertex.products.by_type``).

    Attributes:
        name: name of the kernel.
        value: the product.
    """

    name: str
    value: Value

    @property
    def over(self) -> Space:
        """The space of the items, E or R."""
        return self.value.inputs[0].space

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a type's matrix."""
        x, w = self.value.inputs
        if self.value.op == "gram":
            return x.size, w.size
        return x.size, self.value.size

    @property
    def columns(self) -> int:
        """Columns per tile."""
        return max(8, min(COLUMNS, power(self.shape[1])))

    @property
    def text(self) -> str:
        """The source of the kernels."""
        (k, m), opening = self.shape, 'extern "C" __global__ void __launch_bounds__(32, 16)'
        owned = "const int *few{0}, const long long *many{0}, const float *x{0}, int step{0}"
        if self.value.op == "matmul":
            return (
                f"{opening} {self.name}(const int *types, const long long *begin, const long long *items,"
                f" {owned.format(0)}, const float *w, float *y, int y_step) {{\n"
                f"mgg::grouped_product<{k}, {m}, {self.columns}>("
                "types, begin, items, {few0, many0}, x0, step0, w, y, y_step);\n}\n"
            )
        return (
            f"{opening} {self.name}(const long long *begin, const long long *items, {owned.format(0)},"
            f" {owned.format(1)}, float *parts) {{\n"
            f"mgg::grouped_gram<{k}, {m}, {self.columns}>("
            "begin, items, {few0, many0}, x0, step0, {few1, many1}, x1, step1, parts);\n}\n"
            f"{opening} {self.name}_sum(const long long *firsts, const float *parts, float *result) {{\n"
            f"mgg::grouped_sum<{k * m}>(firsts, parts, result);\n}}\n"
        )

    def run(
        self, tables: Any, kernel: Callable[[str], Any], rows_of: Callable[[Value], tuple[Any, np.int32]],
        empty: Callable[[tuple[int, ...]], Any],
    ) -> Any:  # fmt: skip
        """Return the product, [rows, *shape].

        Args:
            tables: the PE's ``DeviceTables``.
            kernel: returns a kernel by name.
            rows_of: returns the array of a value as kernels read it, and the distance of its rows in entries.
            empty: allocates an array of a shape.
        """
        over, value = self.over, self.value
        x, y = (
            (*self._owner(tables, each), *rows_of(name)) for each, name in zip(value.inputs, reads(value), strict=True)
        )
        items, (k, m) = tables.table("arcs", over, T), self.shape
        if value.op == "matmul":
            types, begin, _ = tables.stretches(over, WARP)
            result = empty((tables.rows_of(over), *value.shape))
            if len(types):
                tiles = -(-m // self.columns)
                given = [types, begin, items, *x, y[2], result, np.int32(value.size)]
                kernel(self.name)((len(types), tiles), (WARP,), given)
            return result
        _, begin, firsts = tables.stretches(over, max(PART, -(-tables.rows_of(over) // PARTS)))
        parts = empty((max(len(begin) - 1, 1), k * m))
        if len(begin) > 1:
            tiles = -(-k // WARP) * -(-m // self.columns)
            given = [begin, items, *x, *y, parts]
            kernel(self.name)((len(begin) - 1, tiles), (WARP,), given)
        result = empty((len(firsts) - 1, *value.shape))
        kernel(f"{self.name}_sum")((len(firsts) - 1, -(-k * m // WARP)), (WARP,), (firsts, parts, result))
        return result

    def _owner(self, tables: Any, x: Value) -> tuple[Any, Any]:
        """Return the rows that arcs or runs read, as kernel arguments: int32, int64; neither: each its own row."""
        found = base(x)
        if found.op != "cast" or found.space is not self.over:
            return _NULL, _NULL
        table = tables.table(OWNERS[self.over, found.inputs[0].space], self.over, D)
        return (table, _NULL) if table.dtype.itemsize == 4 else (_NULL, table)


def cut(firsts: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut sorted items into stretches of one type, of at most ``length`` items.

    Args:
        firsts: int64 [types + 1], where the items of each type begin.
        length: at least 1.

    Returns:
        int32 [stretches], the type of each; int64 [stretches + 1], where each begins; int64 [types + 1], the first
        stretch of each type.
    """
    counts = -(-np.diff(firsts) // length)
    ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    types = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    begin = firsts[:-1][types] + (np.arange(ends[-1]) - ends[:-1][types]) * length
    return types, np.append(begin, firsts[-1]).astype(np.int64), ends
