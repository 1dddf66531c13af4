"""Technique ``seastar``: neighbor access of Seastar (EuroSys'21, sections 6.3 and 7.2) on one PE.

``mgg.vertex`` generates the kernel from a program that sums neighbors. The options are the ways in which such kernels
share arcs among threads (``mgg.vertex.cuda.execution``). CPUs have one way: ``local``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import Field

from mgg.aggregate.memory_model import FLOAT, POINTER, MemoryCase, PlanMemory
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.plan import Plan
from mgg.backend.api import Array, SymmetricArray
from mgg.graph.csr import Csr
from mgg.kernel.compile import Build
from mgg.layout import PeLayout
from mgg.vertex import ir
from mgg.vertex.cuda import Kernel, kernel_of, source_of
from mgg.vertex.cuda.device import Pieces, build_of_text, launched
from mgg.vertex.cuda.execution import DEFAULT, Arcs, Blocks, Execution, Groups, Rows
from mgg.vertex.cuda.launches import Launch
from mgg.vertex.ir import D, E, S
from mgg.vertex.warp_layout import Layout, pitch

#: Bytes of a 32-bit index: a piece's place in the order of work, a slot's row, or a cut row.
_ID = 4


class SeastarOptions(TechniqueOptions):
    """How threads share the arcs."""

    groups: Groups = Field(
        DEFAULT.groups,
        description="threads of a row: as many lanes as its columns need (6.3.1), a warp, or a block (Basic of 7.2)",
    )
    arcs: Arcs = Field(
        DEFAULT.arcs,
        description="long rows cut, several arcs of a row at once; or each row whole, one arc after the other (6.3.2);"
        " or each arc by itself, added up by a second launch",
    )
    blocks: Blocks = Field(
        DEFAULT.blocks,
        description="who gives a block its rows: the GPU as earlier blocks end, a counter that blocks draw from"
        " (6.3.3), or nobody: as many blocks as run at once have every n-th group of rows",
    )
    rows: Rows = Field(DEFAULT.rows, description="as they are given, or sorted, those of most arcs first (6.3.3)")


@dataclass
class _Arcs:
    """The local arcs in the form that kernels read (``mgg.vertex.cuda.device.launched``)."""

    rows: int
    ends: Array
    cut: Pieces
    next: Array
    operators: Any

    def rows_of(self, space: ir.Space) -> int:
        return self.rows

    def pieces(self, over: ir.Space, rows: ir.Space, how: Execution) -> Pieces:
        return self.cut

    def counter(self, kernel: str) -> Array:
        return self.next

    def table(self, name: str, over: ir.Space, rows: ir.Space) -> Array:
        assert name == "ends"
        return self.ends


class Seastar(Plan):
    """A generated kernel that sums neighbors in one launch, with a second launch if rows are cut."""

    name = "seastar"
    single_pe = True
    reads_inputs = False  # there is only one PE
    Options = SeastarOptions

    @classmethod
    def need(cls, case: MemoryCase) -> PlanMemory:
        """Return the memory of arcs without row pointers, of pieces, and of the partial sums of cut rows."""
        how, product = Execution(**case.options.model_dump()), case.product.local
        pieces = np.maximum(-(-np.diff(product.indptr) // how.longest(product.indptr)), 1)
        several = pieces[pieces > 1]
        count, slots = int(pieces.sum()), int(several.sum())
        ids = POINTER * (count + 1) + _ID * count * (1 + (how.rows == "sorted"))
        ids += _ID * (slots + 2 * len(several) + 1)
        partial = FLOAT * slots * pitch(case.dim)
        return PlanMemory(case.arc * product.arcs, case.base().columns, ids + partial)

    @classmethod
    def generated(cls, layout: PeLayout, direction: str, dims: Iterable[int], options: TechniqueOptions) -> list[Build]:
        """Return a kernel for each width."""
        csr, how = layout.product(direction).local, Execution(**options.model_dump())
        return [_kernel(csr, dim, how)[1] for dim in dims] if layout.size == 1 and csr.rows else []

    def _build(self) -> None:
        self._how = Execution(**self.options.model_dump())
        self._made: dict[int, tuple[Kernel, Build]] = {}

    @cached_property
    def _arcs(self) -> _Arcs:
        csr, up = self.host.local, self.world.upload
        cut = Pieces.made(csr.indptr, self._how, up)
        return _Arcs(csr.rows, up(csr.indices), cut, up(np.zeros(1, np.uint32)), self.world.operators)

    @cached_property
    def _weights(self) -> Array | None:
        weights = self.host.local.weights
        return None if weights is None else self.world.upload(weights)

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        operators: Any = self.world.operators  # on GPUs they have kernels besides the table of operators
        if not self.world.gpu:
            csr = self.local
            operators.spmm_rows(csr.indptr, csr.indices, csr.weights, source.local, out, False)
        elif self.host.rows:
            self._launch(source.local, out)

    def _launch(self, b: Array, out: Array) -> None:
        dim = out.shape[1]
        if dim not in self._made:
            self._made[dim] = _kernel(self.host.local, dim, self._how)
        kernel, build = self._made[dim]
        arrays = [
            (b, np.int32(b.strides[0] // b.itemsize)) if value.space is S else (self._weights, np.int32(1))
            for value in kernel.reads
        ]
        # Rows are written 16 bytes at once where their length allows it.
        apart = out.strides[0] != dim * out.itemsize or out.data.ptr % 16
        result = self.world.xp.empty(out.shape, np.float32) if apart else out
        launched(kernel, build, self._arcs, arrays, [(result, np.int32(dim))], self.world.xp.empty, np.float32)
        if apart:
            out[...] = result

    def forget(self, dim: int) -> None:
        """Drop the name of the compiled kernel, which is all that is kept per width."""
        self._made.pop(dim, None)


def _kernel(csr: Csr, dim: int, how: Execution) -> tuple[Kernel, Build]:
    """Return the kernel for products of ``dim`` columns; it reads the rows of B and any arc weights."""
    b, weight = ir.leaf("b", S, (dim,)), ir.leaf("weight", E, ())
    row = ir.cast(b, E)
    total = ir.total(row if csr.weights is None else ir.binary("multiply", row, weight), D)
    reads = (b,) if csr.weights is None else (b, weight)
    launch = Launch(E, D, Layout((dim,)), (total,), outputs=(total,), reads=reads)
    kernel = kernel_of("neighbors", launch, csr.arcs / csr.rows, {b}, how)
    return kernel, build_of_text("seastar", source_of([kernel]), csr.indices.dtype.itemsize * 8)
