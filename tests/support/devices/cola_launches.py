"""Launches of technique cola's kernel on stand-ins for CuPy.

What mgg/kernel/cuda/cola.py passes is held against the parameters in kernels/aggregate/cola.cu, then carried out as the
kernel does, from addresses alone.
"""

import re

import numpy as np

from mgg.graph.csr import Csr
from mgg.kernel.cola import HUB_ARCS, column_schedule
from mgg.kernel.cuda.cola import WARPS, ColaKernel
from support.devices.parameters import at, parameters, passed, source
from support.devices.strict import StrictArray, StrictOperators

PARAMETERS = parameters("cola", "name")
assert re.search(r"#define MGG_COLA_WARPS (\d+)", source("cola"))[1] == str(WARPS)


class Launching(StrictOperators):
    """Operators whose kernels are carried out here."""

    processors = 132

    def __init__(self):
        self.launched = []

    def kernel(self, build, name):
        assert build.source == "cola" and build.defines == {"MGG_INDEX_BITS": 32}
        self.launched.append(name)
        lanes, vector = map(int, re.fullmatch(r"spmm_cola_(\d+)_(\d)(?:_weighted)?", name).groups())
        return lambda grid, block, given: self._launch(lanes, vector, name.endswith("weighted"), grid, block, given)

    def _launch(self, lanes, vector, weighted, grid, block, given):
        assert block == (32 * WARPS,)
        run(passed(PARAMETERS, given), lanes, vector, weighted, grid)


def run(v, lanes, vector, weighted, grid):
    """The kernel, a tile of columns after the other."""
    assert (grid[0] - v["hub_blocks"]) * WARPS >= v["task_count"] and (v["hub_blocks"] > 0) == (v["hub_count"] > 0)
    # What is added to C looks at its alignment.
    assert v["hub_count"] == 0 or v["hubs"] % (4 * vector) == v["hub_stride"] % vector == 0
    columns = v["hub_first"] + v["hub_count"]
    begin, sources = at(v["begin"], np.int64, columns + 1), at(v["sources"], np.uint64, columns)
    rows, weights = at(v["rows"], np.int32, begin[-1]), at(v["weights"], np.float32, begin[-1] * weighted)
    holders = at(v["holders"], np.uint64, 3)
    assert not np.any(holders % np.uint64(4 * vector)) and v["stride"] % vector == 0
    tasks = at(v["tasks"], np.int32, 2 * v["task_count"]).reshape(-1, 2)
    for tile in range(grid[1]):
        first = v["first_column"] + tile * lanes * vector
        width = min(lanes * vector, v["columns"] - first)
        assert width > 0

        def row(column):
            holder, place = int(sources[column]) >> 48, int(sources[column]) & ((1 << 48) - 1)
            return at(int(holders[holder]) + 4 * (place * v["stride"] + first), np.float32, width)  # noqa: B023

        for hub in range(v["hub_count"]):
            at(v["hubs"] + 4 * (hub * v["hub_stride"] + first), np.float32, width)[:] = row(v["hub_first"] + hub)
        for column in (column for start, count in tasks.tolist() for column in range(start, start + count)):
            for k in range(begin[column], begin[column + 1]):
                goal = at(v["acc"] + 4 * (int(rows[k]) * v["acc_stride"] + first), np.float32, width)
                goal += row(column) * (weights[k] if weighted else 1)


def check(lengths, dim, weighted, names, pitch=None):
    """One product of columns of so many arcs, twice, against float64; rows are ``pitch`` apart."""
    rng = np.random.default_rng(dim)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    weights = rng.standard_normal(indptr[-1]).astype(np.float32) if weighted else None
    columns = Csr(indptr, rng.integers(0, 50, indptr[-1]).astype(np.int32), weights, 50)
    matrices = [StrictArray(rng.uniform(-1, 1, (20, pitch or dim)).astype(np.float32)[:, :dim]) for _ in range(3)]
    owner, place = rng.integers(0, 3, len(lengths)), rng.integers(0, 20, len(lengths))
    sources = owner.astype(np.uint64) << np.uint64(48) | place.astype(np.uint64)
    chosen = rng.permutation(len(lengths))
    operators = Launching()
    holders = StrictArray(np.array([matrix.data.ptr for matrix in matrices], np.uint64))
    kernel = ColaKernel(operators, column_schedule(columns, chosen, sources[chosen]), holders)
    acc = StrictArray(np.ones((50, dim), np.float32))
    b = np.stack([matrices[i]._data[j] for i, j in zip(owner, place, strict=True)]).astype(np.float64)
    for times in (1, 2):
        kernel(matrices[0], acc)
        expected = 1 + times * (columns.to_scipy(np.float64).T @ b)
        assert np.abs(acc._data - expected).max() <= 1e-3
    assert operators.launched == names, operators.launched


def main():
    """Widths of one tile, of several and of two launches; hubs beside other columns, hubs alone, no column at all."""
    mixed = [3, 0, HUB_ARCS, 1, 0, 40, HUB_ARCS + 5, HUB_ARCS - 1, *range(40)]
    check(mixed, 16, True, ["spmm_cola_4_4_weighted"])
    check(mixed, 128, False, ["spmm_cola_32_4"])
    check(mixed, 41, True, ["spmm_cola_32_1_weighted", "spmm_cola_16_1_weighted"])
    check(list(range(40)), 150, True, ["spmm_cola_32_2_weighted", "spmm_cola_16_2_weighted"])
    check(mixed, 41, True, ["spmm_cola_16_4_weighted"], pitch=44)
    check([2 * HUB_ARCS] * 3, 1, False, ["spmm_cola_1_1"])
    check([0, 0], 8, False, [])
