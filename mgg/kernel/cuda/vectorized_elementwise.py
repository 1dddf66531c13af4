"""Elementwise kernels on matrices that use a GPU's full memory bandwidth; CuPy compiles each at its first use."""

from __future__ import annotations

import re
from typing import Any

import cupy as cp
from cupy import ElementwiseKernel
from cupy.lib.stride_tricks import as_strided

_PREAMBLE = """
struct alignas(16) mgg_four { float v[4]; };
struct alignas(4 * sizeof(RESULT)) mgg_result { RESULT v[4]; };
#define MGG_READ(name)                                                       \\
    mgg_four name##_;                                                        \\
    if (begin + 4 <= entries) name##_ = ((const mgg_four *)&name[0])[i];     \\
    else for (T k = 0; begin + k < entries; ++k) name##_.v[k] = name[begin + k];
#define MGG_READ_OF_ROW(name)                                                                        \\
    mgg_four name##_;                                                                                \\
    const float *const name##_at = &name[0] + (unsigned long long)row * pitch_of_##name + first;     \\
    if (there >= 4 && (unsigned long long)name##_at % 16 == 0) name##_ = *(const mgg_four *)name##_at; \\
    else for (int k = 0; k < 4; ++k) if (k < there) name##_.v[k] = name##_at[k];
"""
_LARGEST_32_BIT = 2**32 - 4


class ByFours:
    """An elementwise kernel on float32 matrices of one shape, with four entries per thread.

    With one entry per thread, as in CuPy, too few bytes are in flight to use a GPU's memory bandwidth. If rows are
    padded (a plan's input) or a matrix does not begin at a multiple of 16 bytes, a thread's entries are from one row.

    Args:
        read: names of the input matrices; the result may overwrite one of them.
        others: declarations of the other inputs.
        expression: value of an entry, from entries of the matrices, ``row``, ``column`` and the other inputs.
        preamble: functions that the expression calls.
        result: type of the result's entries, ``float32`` or ``uint16``.
    """

    def __init__(
        self, name: str, read: str, others: str, expression: str, preamble: str = "", result: str = "float32"
    ) -> None:  # fmt: skip
        matrices = read.split()
        self._matrices = len(matrices)
        declared = [f"raw float32 {matrix}" for matrix in matrices] + ([others] if others else [])
        operands = " ".join(f"const float {matrix}v = {matrix}_.v[k];" for matrix in matrices)
        for matrix in matrices:
            expression = re.sub(rf"\b{matrix}\b", f"{matrix}v", expression)
        pitches = ", ".join(f"int64 pitch_of_{matrix}" for matrix in [*matrices, "out"])
        plain = {"float32": "float", "uint16": "unsigned short"}[result]

        def compiled(kind: str, counts: str, body: str) -> dict[int, ElementwiseKernel]:
            # 64-bit divisions are slow, so matrices that allow it use 32-bit counts.
            return {
                bits: ElementwiseKernel(
                    ", ".join([f"uint{bits} columns", counts.format(bits), *declared]), f"raw {result} out", body,
                    f"{name}{kind}_{bits}",
                    preamble=f"typedef {unsigned} T;\ntypedef {plain} RESULT;\n{_PREAMBLE}{preamble}",
                )
                for bits, unsigned in ((32, "unsigned"), (64, "unsigned long long"))
            }  # fmt: skip

        self._whole = compiled("", "uint{} entries", f"""
            const T begin = (T)i * 4;
            T row = begin / columns, column = begin - row * columns;
            {" ".join(f"MGG_READ({matrix})" for matrix in matrices)}
            mgg_result found;
            for (int k = 0; k < 4; ++k) {{
                if (begin + k < entries) {{ {operands} found.v[k] = {expression}; }}
                if (++column == columns) {{ column = 0; ++row; }}
            }}
            if (begin + 4 <= entries) ((mgg_result *)&out[0])[i] = found;
            else for (T k = 0; begin + k < entries; ++k) out[begin + k] = found.v[k]
            """)  # fmt: skip
        self._of_rows = compiled("_of_rows", pitches, f"""
            const T fours = (columns + 3) / 4, row = (T)i / fours, first = ((T)i - row * fours) * 4;
            const int there = columns - first < 4 ? (int)(columns - first) : 4;
            {" ".join(f"MGG_READ_OF_ROW({matrix})" for matrix in matrices)}
            mgg_result found;
            for (int k = 0; k < 4; ++k)
                if (k < there) {{ const T column = first + k; (void)column; {operands} found.v[k] = {expression}; }}
            RESULT *const place = &out[0] + (unsigned long long)row * pitch_of_out + first;
            if (there >= 4 && (unsigned long long)place % sizeof(found) == 0) *(mgg_result *)place = found;
            else for (int k = 0; k < 4; ++k) if (k < there) place[k] = found.v[k]
            """)  # fmt: skip

    def __call__(self, *operands: Any, out: cp.ndarray) -> cp.ndarray:
        """Fill ``out``; pass the operands in the order of their declaration.

        Args:
            operands: matrices [rows, columns], or vectors, of the shape of ``out``, which are copied if their rows are
                not contiguous; then the others.
            out: the result, with contiguous rows.

        Raises:
            ValueError: shapes differ, or the rows of ``out`` are not contiguous.
            TypeError: a type differs from its declaration.
        """
        matrices, others = operands[: self._matrices], operands[self._matrices :]
        if any(matrix.shape != out.shape for matrix in matrices) or not 1 <= out.ndim <= 2:
            shapes = ", ".join(str(matrix.shape) for matrix in (*matrices, out))
            raise ValueError(f"matrices or vectors of one shape are needed, found {shapes}")
        if not out.size:
            return out
        if not _has_rows(out):
            raise ValueError(f"the rows of the result must be contiguous, found strides {out.strides}")
        given = [*(matrix if _has_rows(matrix) else cp.ascontiguousarray(matrix) for matrix in matrices), out]
        columns, bits = out.shape[-1], 32 if out.size <= _LARGEST_32_BIT else 64
        if all(matrix.flags.c_contiguous and matrix.data.ptr % 16 == 0 for matrix in given):
            self._whole[bits](columns, out.size, *given[:-1], *others, out, size=-(-out.size // 4))
            return out
        rows = out.size // columns
        pitches = [matrix.strides[0] // matrix.itemsize if matrix.ndim > 1 else columns for matrix in given]
        flat = [
            as_strided(matrix, ((rows - 1) * pitch + columns,), (matrix.itemsize,))
            for matrix, pitch in zip(given, pitches, strict=True)
        ]
        self._of_rows[bits](columns, *pitches, *flat[:-1], *others, flat[-1], size=rows * -(-columns // 4))
        return out


def _has_rows(matrix: cp.ndarray) -> bool:
    """Return whether rows are contiguous and consecutive, padded or not; a vector is one row."""
    size, (*steps, step) = matrix.shape[-1] * matrix.itemsize, matrix.strides
    along = step == matrix.itemsize or matrix.shape[-1] == 1
    return along and all((each >= size and each % matrix.itemsize == 0) or len(matrix) == 1 for each in steps)
