"""Sums of weighted rows on CPU ranks: the loops of products and of per-arc operations; and copies of single rows.

Sums are float64, in the order of the arcs. The sums of a block of columns stay in registers during the loop over its
arcs. LLVM does not keep a NumPy array in registers, so that loop is written with LLVM vectors. It also prefetches rows,
since a product mostly waits for them. Processors drop prefetches while too many are under way, so rows of matrices that
exceed the caches are prefetched twice. The product of two float32 numbers is exact in float64, so processors with and
without fused multiply-add get the same bits.
All code is in one file, because numba does not recompile a function when another file that it inlines changes.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: Columns per vector.
LANES = 8
#: Bytes per cache line.
_LINE = 64
#: Cache lines between the row that is added and the one that is prefetched into L1, or into L2.
_NEAR, _FAR = 144, 480
#: Bytes of matrices that caches hold; rows of larger ones are prefetched into L2, too.
_CACHED = 16 << 20
#: Whether registers hold the sums of 128 columns: 16 of 32 registers, with 8 float64 each. Otherwise they hold 32.
_WIDE = "avx512f" in binding.get_host_cpu_features() and binding.get_host_cpu_features()["avx512f"]
_DOUBLE = ir.DoubleType()
_SUMS, _MASK = ir.VectorType(_DOUBLE, LANES), ir.VectorType(ir.IntType(1), LANES)
_INT, _WORD, _BYTES = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
_L1, _L2 = _WORD(3), _WORD(2)  # as llvm.prefetch numbers them


def _typed(_, vectors, arcs, indices, weights, b, c, row, column, before, after):  # type: ignore[no-untyped-def]
    """Sum ``weights[k] * b[indices[k]]`` over the arcs k, for a block of columns, into ``c[row]``.

    Args:
        vectors: literal; the block is columns ``column .. column + LANES * vectors``. 0: the rest, fewer than LANES.
        arcs: int64 (first, end).
        indices: ids [arcs].
        weights: float32 or float64 [arcs]; empty: ones.
        b: float32, float64 or uint16 (bfloat16) [*, D]; the entries of a row are contiguous.
        c: float32 or float64 [rows, D], likewise.
        row, column: int64.
        before: start the sum with the value in ``c``, otherwise with 0.
        after: add ``c`` to the sum at the end.
    """
    if not isinstance(vectors, types.IntegerLiteral):
        return None
    given = (vectors, arcs, indices, weights, b, c, row, column, before, after)
    return types.void(*given), _block


_add_block: Any = intrinsic(prefer_literal=True)(_typed)


def _block(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Emit the instructions of ``_add_block``."""
    _, arcs, indices, weights, b, c, row, column, before, after = (
        _Entries(context, builder, kind, value) if isinstance(kind, types.Array) else value
        for kind, value in zip(signature.args, values, strict=True)
    )
    count = signature.args[0].literal_value
    start, stop = cgutils.unpack_tuple(builder, arcs)
    memory = _Columns(builder, None if count else _left(builder, c.sizes[1], column))
    lanes, zero = range(count or 1), ir.Constant(_SUMS, None)
    out = c.address(row, column)
    sums = [cgutils.alloca_once_value(builder, zero) for _ in lanes]
    for lane in lanes:
        builder.store(zero, sums[lane])
    with builder.if_then(before):
        for lane in lanes:
            builder.store(_widen(builder, memory.load(out, c.type, lane)), sums[lane])
    size, last = len(lanes) * LANES * _bytes(b.type), builder.sub(indices.sizes[0], _INT(1))
    lines = [*range(0, size, _LINE), size - 1]  # a row may begin inside a line
    large = builder.icmp_signed(">", builder.mul(*b.sizes), _INT(_CACHED // _bytes(b.type)))

    def fetch(k: Any, distance: int, level: Any) -> None:
        later = builder.add(k, _INT(distance // len(lines)))
        later = builder.select(builder.icmp_signed("<", later, last), later, last)
        memory.fetch(b.address(_id(builder, indices, later), column), lines, level)

    exact = _DOUBLE not in (b.type, weights.type)
    one = _unknown_one(builder) if exact and count >= 8 else None
    with builder.if_else(builder.icmp_signed("!=", weights.sizes[0], _INT(0))) as sides:
        for side, weighted in zip(sides, (True, False), strict=True):
            with side, cgutils.for_range_slice(builder, start, stop, _INT(1), intp=_INT) as (k, _):
                with builder.if_then(large):
                    fetch(k, _FAR, _L2)
                fetch(k, _NEAR, _L1)
                here = b.address(_id(builder, indices, k), column)
                factor = one
                if weighted:
                    weight = weights.load(k)
                    factor = _all(builder, weight if weight.type == _DOUBLE else builder.fpext(weight, _DOUBLE))
                flags = ("contract",) if factor and exact else ()
                for lane in lanes:
                    entries = _widen(builder, memory.load(here, b.type, lane))
                    if factor:
                        entries = builder.fmul(factor, entries, flags=flags)
                    builder.store(builder.fadd(builder.load(sums[lane]), entries, flags=flags), sums[lane])
    with builder.if_then(after):
        for lane in lanes:
            held = _widen(builder, memory.load(out, c.type, lane))
            builder.store(builder.fadd(held, builder.load(sums[lane])), sums[lane])
    for lane in lanes:
        total = builder.load(sums[lane])
        if c.type != _DOUBLE:  # rounds
            total = builder.fptrunc(total, ir.VectorType(c.type, LANES))
        memory.store(total, out, c.type, lane)
    return context.get_dummy_value()


class _Entries:
    """An array's entries: their LLVM ``type``, their ``sizes`` per axis, and where they are."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        array = context.make_array(kind)(context, builder, value)
        self.type = context.get_data_type(kind.dtype)
        self.sizes = cgutils.unpack_tuple(builder, array.shape)
        self._builder = builder
        self._place = lambda *at: cgutils.get_item_pointer(context, builder, kind, array, at)

    def address(self, *at: Any) -> Any:
        """Return the address of an entry."""
        return self._builder.bitcast(self._place(*at), _BYTES)

    def load(self, *at: Any) -> Any:
        """Load an entry."""
        return self._builder.load(self._place(*at))


class _Columns:
    """Loads and stores of a block's vectors; if there is a ``mask``, only of its lanes."""

    def __init__(self, builder: Any, mask: Any) -> None:
        self._builder, self._mask = builder, mask

    def load(self, row: Any, scalar: Any, lane: int) -> Any:
        """Load vector ``lane`` of the block."""
        kind = ir.VectorType(scalar, LANES)
        address, align = self._address(row, scalar, lane), _bytes(scalar)
        if self._mask is None:
            return self._builder.load(address, align=align)
        call = self._intrinsic(f"llvm.masked.load.{_name(scalar)}.p0", kind, [address.type, _WORD, _MASK, kind])
        return self._builder.call(call, [address, _WORD(align), self._mask, ir.Constant(kind, None)])

    def store(self, value: Any, row: Any, scalar: Any, lane: int) -> None:
        """Store vector ``lane`` of the block."""
        address, align = self._address(row, scalar, lane), _bytes(scalar)
        if self._mask is None:
            self._builder.store(value, address, align=align)
            return
        kinds = [value.type, address.type, _WORD, _MASK]
        call = self._intrinsic(f"llvm.masked.store.{_name(scalar)}.p0", ir.VoidType(), kinds)
        self._builder.call(call, [value, address, _WORD(align), self._mask])

    def fetch(self, row: Any, lines: list[int], level: Any) -> None:
        """Prefetch the cache lines at these offsets into ``level``."""
        call = self._intrinsic("llvm.prefetch.p0", ir.VoidType(), [_BYTES, _WORD, _WORD, _WORD])
        for offset in lines:
            # Arguments: read access, cache level, data.
            self._builder.call(call, [self._builder.gep(row, [_INT(offset)]), _WORD(0), level, _WORD(1)])

    def _address(self, row: Any, scalar: Any, lane: int) -> Any:
        place = self._builder.gep(row, [_INT(lane * LANES * _bytes(scalar))])
        return self._builder.bitcast(place, ir.VectorType(scalar, LANES).as_pointer())

    def _intrinsic(self, name: str, result: Any, kinds: list[Any]) -> Any:
        return cgutils.get_or_insert_function(self._builder.module, ir.FunctionType(result, kinds), name)


def _left(builder: Any, columns: Any, column: Any) -> Any:
    """Return the mask of the columns from ``column`` on."""
    numbers = ir.Constant(ir.VectorType(_INT, LANES), list(range(LANES)))
    return builder.icmp_signed("<", numbers, _all(builder, builder.sub(columns, column)))


def _unknown_one(builder: Any) -> Any:
    """Return a vector of ones that LLVM does not know, so that it makes fused multiply-adds of additions.

    On Zen 5 additions compete with conversions to float64 for execution units, and fused multiply-adds do not.
    """
    kind = ir.FunctionType(_DOUBLE, [_DOUBLE])
    return _all(builder, builder.asm(kind, "", "=x,0", [_DOUBLE(1.0)], False))


def _all(builder: Any, scalar: Any) -> Any:
    """Return a vector with ``scalar`` in every lane."""
    one = builder.insert_element(ir.Constant(ir.VectorType(scalar.type, LANES), ir.Undefined), scalar, _WORD(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_WORD, LANES), None))


def _id(builder: Any, indices: Any, k: Any) -> Any:
    found = indices.load(k)
    return found if found.type == _INT else builder.sext(found, _INT)


def _widen(builder: Any, vector: Any) -> Any:
    """Convert a vector of float64, float32 or bfloat16 to float64."""
    if vector.type.element == ir.IntType(16):
        words = ir.VectorType(_WORD, LANES)
        high = builder.shl(builder.zext(vector, words), ir.Constant(words, [16] * LANES))
        vector = builder.bitcast(high, ir.VectorType(ir.FloatType(), LANES))
    return vector if vector.type == _SUMS else builder.fpext(vector, _SUMS)


def _bytes(scalar: Any) -> int:
    if isinstance(scalar, ir.IntType):
        return int(scalar.width) // 8
    return 8 if scalar == _DOUBLE else 4


def _name(scalar: Any) -> str:
    return f"v{LANES}{'i' if isinstance(scalar, ir.IntType) else 'f'}{8 * _bytes(scalar)}"


@numba.njit(cache=True, nogil=True, inline="always")  # a call would count references to all arrays, for every row
def _add_arcs(arcs, indices, weights, b, c, row, before, after):  # type: ignore[no-untyped-def]
    """Run ``_add_block`` for all columns."""
    columns, column = c.shape[1], 0
    if _WIDE:
        while columns - column >= 16 * LANES:
            _add_block(16, arcs, indices, weights, b, c, row, column, before, after)
            column += 16 * LANES
        if columns - column >= 8 * LANES:
            _add_block(8, arcs, indices, weights, b, c, row, column, before, after)
            column += 8 * LANES
    while columns - column >= 4 * LANES:
        _add_block(4, arcs, indices, weights, b, c, row, column, before, after)
        column += 4 * LANES
    if columns - column >= 2 * LANES:
        _add_block(2, arcs, indices, weights, b, c, row, column, before, after)
        column += 2 * LANES
    if columns - column >= LANES:
        _add_block(1, arcs, indices, weights, b, c, row, column, before, after)
        column += LANES
    if column < columns:
        _add_block(0, arcs, indices, weights, b, c, row, column, before, after)


@numba.njit(cache=True, nogil=True)
def spmm_rows(indptr, indices, weights, b, c, accumulate, first, last):  # type: ignore[no-untyped-def]
    """Run ``mgg.kernel.cpu.spmm_rows`` for rows first..last; empty ``weights`` stand for ones."""
    for row in range(first, last):
        if not accumulate or indptr[row] < indptr[row + 1]:
            _add_arcs((indptr[row], indptr[row + 1]), indices, weights, b, c, row, accumulate, False)


@numba.njit(cache=True, nogil=True)
def spmm_partitions(rows, starts, stops, indices, weights, b, acc):  # type: ignore[no-untyped-def]
    """Run ``mgg.kernel.cpu.spmm_partitions``; ``weights`` as in ``spmm_rows``."""
    for i in range(rows.size):
        _add_arcs((starts[i], stops[i]), indices, weights, b, acc, rows[i], False, True)


@numba.njit(cache=True, nogil=True)
def spmm_columns(colptr, rows, weights, b, acc):  # type: ignore[no-untyped-def]
    """Run ``mgg.kernel.cpu.spmm_columns``; ``weights`` as in ``spmm_rows``."""
    first = colptr[0]
    for j in range(colptr.size - 1):
        row = b[j]  # a view, because numba does not vectorize a loop over part of a matrix
        for k in range(colptr[j] - first, colptr[j + 1] - first):
            weight, sums = np.float64(weights[k]) if weights.size else 1.0, acc[rows[k]]
            for d in range(sums.size):
                sums[d] += weight * row[d]


@numba.njit(cache=True, nogil=True)
def pick_rows(x, places, out):  # type: ignore[no-untyped-def]
    """Set ``out[k] = x[places[k]]``; several times as fast as NumPy for narrow rows."""
    for k in range(places.size):
        place = places[k]
        for d in range(x.shape[1]):
            out[k, d] = x[place, d]


@numba.njit(cache=True, nogil=True)
def put_rows(x, places, out):  # type: ignore[no-untyped-def]
    """Set ``out[places[k]] = x[k]``; several times as fast as NumPy for narrow rows."""
    for k in range(places.size):
        place = places[k]
        for d in range(x.shape[1]):
            out[place, d] = x[k, d]
