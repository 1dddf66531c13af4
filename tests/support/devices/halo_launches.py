"""Launches of technique halo's kernels on stand-ins for CuPy.

What mgg/kernel/cuda/halo.py passes is held against the parameters in pull.cu, halo.cu and rows.cu, then carried out as
the kernels do, from addresses alone. The pull comes as late as it may: a chunk at a time, when a sum waits for it.
"""

import re
from itertools import pairwise
from types import SimpleNamespace

import cupy as cp
import numpy as np
from cuda.bindings import driver

from mgg.graph.csr import from_arcs
from mgg.kernel.bf16 import from_bf16, to_bf16
from mgg.kernel.cuda import CudaOperators
from mgg.kernel.cuda.arguments import row_tiles, vector_width
from mgg.kernel.cuda.halo import _THREADS, HaloKernel
from mgg.kernel.halo import HaloPeers, halo_schedule
from support.devices.parameters import at, packed, parameters, passed, source
from support.devices.strict import StrictArray, StrictOperators
from support.graphs import awkward_graphs, products

PARAMETERS = {
    "pull": parameters("pull", "halo_pull_##lanes##_##vec"),
    "halo": parameters("halo", "name"),
    "rows": parameters("rows", "spmm_rows_combine_##vec"),
}
THREADS = {"pull": _THREADS, "halo": int(re.search(r"#define MGG_ROWS_THREADS (\d+)", source("halo"))[1]), "rows": 256}
assert f"kThreads = {_THREADS}," in source("pull")
PES, RANK, DIMS = 3, 1, (5, 64, 76, 300, 5)
NAN = {np.float32: np.nan, np.uint16: 0x7FC0}


class Kernel:
    """One of a cubin, launched by CuPy or by the driver."""

    def __init__(self, operators, build, name, number):
        self._operators, self._build = operators, build
        self.max_threads_per_block, self.kernel = THREADS[build.source], SimpleNamespace(ptr=number)
        kind, lanes, vector, weighted = re.fullmatch(r"([a-z_]+?)(?:_(\d+))?_(\d)(_weighted)?", name).groups()
        assert kind == {"pull": "halo_pull", "halo": "spmm_halo", "rows": "spmm_rows_combine"}[build.source]
        self.shape = SimpleNamespace(lanes=int(lanes or 32), vector=int(vector), weighted=bool(weighted))

    def __call__(self, grid, block, given):
        assert not self._operators.dependents
        self.run(grid, block, passed(PARAMETERS[self._build.source], given), early=False)

    def launched(self, config, addresses):
        grid, block = ((config.gridDimX, config.gridDimY), (config.blockDimX,))
        early = [each.value.programmaticStreamSerializationAllowed for each in getattr(config, "attrs", [])] == [1]
        self.run(grid, block, packed(PARAMETERS[self._build.source], addresses), early)

    def run(self, grid, block, values, early):
        assert block == (THREADS[self._build.source],) and min(grid) > 0
        element = np.uint16 if "MGG_BF16" in self._build.defines else np.float32
        if self._build.source != "rows":  # padded rows are loaded 16 bytes at a time
            assert self.shape.vector * np.dtype(element).itemsize == 16 or values["b_stride"] % 8
        self._operators.run(self._build.source, (*grid, 1)[:2], values, self.shape, element, early)


class Launching(StrictOperators):
    """Operators whose kernels are carried out here, ``dependents`` or not."""

    processors, _all_shared_memory = 4, 228 << 10
    carveout, combining = CudaOperators.carveout, CudaOperators.combining

    def __init__(self, dependents):
        self.dependents, self.urgent, self.stream = dependents, cp.cuda.Stream(), Stream(self)
        self.launched, self._made, self._pulling = [], [], None
        driver.cuLaunchKernelEx = self._launch

    def kernel(self, build, name):
        self._made.append(Kernel(self, build, name, len(self._made)))
        return self._made[-1]

    def _launch(self, config, function, addresses, _):
        assert config.hStream == cp.cuda.get_current_stream().ptr and self.dependents
        self._made[function].launched(config, addresses)
        return (driver.CUresult.CUDA_SUCCESS,)

    def run(self, kind, grid, v, shape, element, early):
        aside = cp.cuda.get_current_stream() is self.urgent
        meanwhile = self._pulling is not None and not self.dependents
        self.launched.append(kind + " aside" * aside + " early" * early + " meanwhile" * meanwhile)
        if kind == "pull":
            self._pulling = pull(v, grid, element)
            next(self._pulling)
            return
        if self.dependents and not early:
            self.finish()
        (add_up if kind == "halo" else combine)(v, grid, shape, element, self)
        if early:
            self.finish()  # the sums end when it has

    def advance(self):
        """The next chunk comes."""
        assert self._pulling is not None, "waits for ever"
        next(self._pulling)

    def finish(self):
        """All of the pull is over."""
        for _ in self._pulling or ():
            pass
        self._pulling = None


class Stream(cp.cuda.Stream):
    """That of the caller; who waits here for another one's launch has its results."""

    def __init__(self, operators):
        super().__init__()
        self._operators = operators

    def wait_event(self, event):
        super().wait_event(event)
        self._operators.finish()


def pull(v, grid, element):
    """kernels/aggregate/pull.cu, chunk by chunk."""
    assert v["chunk"] > 0 and v["chunk"] % 32 == 0 and grid[1] == 1
    chunks, warps, size, rank = -(-v["count"] // v["chunk"]), grid[0] * _THREADS // 32, v["size"], v["rank"]
    arrived, products = at(v["arrived"], np.int32, chunks + 2), at(v["products"], np.uint32, 2)
    flags = [at(address, np.int32, 2 * size) for address in at(v["peer_flags"], np.uint64, size)]
    others = [pe for pe in range(size) if pe != rank]

    def meet(first):
        for pe in others:
            flags[pe][first + rank] = epoch
            assert flags[rank][first + pe] == epoch

    epoch = products[0] + 1
    assert arrived[-1] == (epoch - 1) * grid[0]
    arrived[-1] += grid[0]
    products[1] = epoch
    meet(0)
    yield
    for place, wanted in enumerate(at(v["sources"], np.uint64, v["count"]).tolist()):
        [owner] = at(v["peer_rows"] + 8 * (wanted >> 48), np.uint64, 1)
        theirs = row_of(int(owner), wanted & ((1 << 48) - 1), v["b_stride"], 0, v["columns"], element)
        row_of(v["b"], v["halo_first"] + place, v["b_stride"], 0, v["columns"], element)[:] = theirs
        if (place + 1) % v["chunk"] == 0 or place + 1 == v["count"]:
            arrived[place // v["chunk"]] += warps
            yield
    arrived[-2] += warps
    products[0] = epoch
    meet(size)


def add_up(v, grid, shape, element, operators):
    """kernels/aggregate/halo.cu, a block after the other."""
    early, late, tiles = v["early"], v["late"], v["tiles"]
    assert grid == ((early + late) * tiles, 1) and 0 <= v["first_column"] < v["columns"]
    assert v["b"] % (np.dtype(element).itemsize * shape.vector) == 0 and v["b_stride"] % shape.vector == 0
    assert v["partial_stride"] % shape.vector == 0
    blocks, needs = at(v["blocks"], np.int32, early + late + 1), at(v["needs"], np.int32, late)
    tasks = at(v["tasks"], np.int32, 2 * blocks[-1]).reshape(-1, 2)
    for number in range(grid[0]):
        if number < early * tiles:
            tile, block, need = number // early, number % early, -1
        else:
            tile, place = divmod(number - early * tiles, late)
            block, need = early + place, needs[place]
        arrived = at(v["arrived"], np.int32, need + 1) if v["pull_warps"] else np.zeros(0, np.int32)
        while np.any(arrived < at(v["product"], np.uint32, 1) * v["pull_warps"]):
            operators.advance()
        first = v["first_column"] + tile * shape.lanes * shape.vector
        width = min(shape.lanes * shape.vector, v["columns"] - first)
        for piece, count in tasks[blocks[block] : blocks[block + 1]].tolist():
            for one in range(piece, piece + count):
                add_piece(v, one, first, width, shape.weighted, element)


def add_piece(v, piece, first, width, weighted, element):
    """Some columns of the sum of a piece."""
    start, stop = at(v["begin"] + 8 * piece, np.int64, 2).tolist()
    rows = [
        row_of(v["b"], row, v["b_stride"], first, width, element)
        for row in at(v["indices"] + 4 * start, np.int32, stop - start).tolist()
    ]
    b = np.array(rows, element).reshape(-1, width)
    weights = at(v["weights"] + 4 * start, np.float32, stop - start)[:, None] if weighted else 1
    total = ((from_bf16(b) if element is np.uint16 else b).astype(np.float64) * weights).sum(axis=0)
    [to] = at(v["target"] + 4 * piece, np.int32, 1).tolist()
    if to < 0:
        row_of(v["partial"], ~to, v["partial_stride"], first, width)[:] = total
    else:
        goal = row_of(v["c"], to, v["c_stride"], first, width)
        goal[:] = total + (goal if v["accumulate"] else 0)


def combine(v, grid, shape, *_):
    """``spmm_rows_combine`` of kernels/aggregate/rows.cu."""
    assert grid[0] * THREADS["rows"] // 32 >= v["row_count"] and grid[1] * 32 * shape.vector >= v["columns"]
    first = at(v["first"], np.int32, v["row_count"] + 1).tolist()
    for row, slots in zip(at(v["rows"], np.int32, v["row_count"]), pairwise(first), strict=True):
        goal = row_of(v["c"], int(row), v["c_stride"], 0, v["columns"])
        parts = [row_of(v["partial"], slot, v["partial_stride"], 0, v["columns"]) for slot in range(*slots)]
        goal[:] = np.sum(parts, axis=0) + (goal if v["accumulate"] else 0)


def row_of(matrix, row, stride, first, width, element=np.float32):
    """Some columns of a row."""
    return at(matrix + np.dtype(element).itemsize * (row * stride + first), element, width)


class Job:
    """PE 1 of three, its product, and what the others hold."""

    def __init__(self, csr, bounds, element, self_synchronizing, accumulate):
        rng = np.random.default_rng(0)
        self.bounds, self.element, self.self_synchronizing, self.accumulate = (
            bounds,
            element,
            self_synchronizing,
            accumulate,
        )
        self.product = product = products(csr, bounds)[RANK]
        self.a = csr.to_scipy(np.float64)[bounds[RANK] : bounds[RANK + 1]]
        self.height = int(np.diff(bounds).max()) + 40
        self.nodes = rng.integers(-8, 9, (csr.rows, max(DIMS))).astype(np.float32)  # exact in bfloat16
        room = (self.height + product.halo) * (max(DIMS) + 8)
        self.memory = [np.zeros(room, element) for _ in range(PES)]
        self.flags = [np.zeros(2 * PES, np.int32) for _ in range(PES)]
        rows, flags = (
            StrictArray(np.array([one.ctypes.data for one in each], np.uint64)) for each in (self.memory, self.flags)
        )
        self.schedule = halo_schedule(product.local, product.remote, self.height, empty=not accumulate)
        owners = np.repeat(np.arange(PES, dtype=np.uint64), np.diff(product.halo_ptr))
        self.owners, self.rows = owners[self.schedule.pulled], product.halo_rows[self.schedule.pulled]
        self.sources = self.owners << np.uint64(48) | self.rows.astype(np.uint64)
        self.peers = HaloPeers(rows, flags if self_synchronizing else None, RANK, PES)

    def write(self, dim):
        """Everybody's rows; this PE's matrix, whose halo holds what is no number."""
        stride = -(-dim // 8) * 8 if self.self_synchronizing else dim
        for pe, memory in enumerate(self.memory):
            b = memory[: (self.height + self.product.halo) * stride].reshape(-1, stride)[:, :dim]
            mine = self.nodes[self.bounds[pe] : self.bounds[pe + 1], :dim]
            b[:] = NAN[self.element]
            b[: len(mine)] = to_bf16(mine) if self.element is np.uint16 else mine
            if pe == RANK:
                found = b
        return found

    def halo(self, dim):
        values = self.nodes[self.bounds[self.owners.astype(int)] + self.rows, :dim]
        return to_bf16(values) if self.element is np.uint16 else values


def check(dependents, job, expected):
    """Products of several widths; ``expected``: the launches of a whole one."""
    operators = Launching(dependents)
    kernel = HaloKernel(operators, job.schedule, job.sources, job.height, job.product.rows, job.peers)
    epoch, pulls = 0, expected[0].startswith("pull")
    alone = list(dict.fromkeys(each.split()[0] for each in expected[pulls:]))
    for dim in DIMS:
        b, exact, wanted = job.write(dim), job.a @ job.nodes[:, :dim], job.halo(dim)
        # Columns that the tiles of the first launch leave over.
        others = len(list(row_tiles(dim, vector_width(StrictArray(b)), 32))) - 1
        for part, launches in (
            ("all", with_others(expected, others)),
            ("transfer", ["pull"] * pulls),
            ("compute", with_others(alone, others)),
            ("all", with_others(expected, others)),
        ):
            if part != "compute":
                b[job.height :] = NAN[job.element]
                epoch += 1
                for flags in job.flags:
                    flags[:] = epoch - 1
                job.flags[RANK][:] = epoch
            out = np.full((job.product.rows, dim + 3), 2.0 if job.accumulate else np.nan, np.float32)
            before = out.copy()
            operators.launched.clear()
            with operators.stream:
                kernel(StrictArray(b), StrictArray(out[:, :dim]), accumulate=job.accumulate, part=part)
            operators.finish()
            assert operators.launched == launches, (operators.launched, launches)
            assert np.array_equal(b[job.height :], wanted)
            counts = [
                epoch if job.self_synchronizing and number in (RANK, PES + RANK) else epoch - 1
                for number in range(2 * PES)
            ]
            assert job.flags[0].tolist() == job.flags[2].tolist() == counts
            if part == "transfer":
                assert np.array_equal(out, before, equal_nan=True)
            else:
                assert np.abs(out[:, :dim] - exact - 2 * job.accumulate).max() <= 1e-2
                assert np.array_equal(out[:, dim:], before[:, dim:], equal_nan=True)


def with_others(launches, others):
    """``launches`` with so many more that sum, before parts of rows are added up."""
    if not any(each.startswith("halo") for each in launches):
        return launches
    last = launches[-1:] if launches[-1] == "rows" else []
    return launches[: len(launches) - len(last)] + ["halo"] * others + last


def cut_rows(weighted):
    """1,500 nodes, with rows that are cut because both kinds of their arcs are many."""
    rng, hubs = np.random.default_rng(3), np.repeat([500, 950], 1500)
    rows, columns = (
        np.append(hubs, rng.integers(0, 1500, 8_000)),
        np.append(np.tile(np.arange(1500), 2), rng.integers(0, 1500, 8_000)),
    )
    weights = rng.standard_normal(len(rows)).astype(np.float32) if weighted else None
    return from_arcs(rows, columns, n=1500, weights=weights), np.array([0, 450, 1050, 1500])


def main(dependents):
    """Sums beside the pull, or those that wait after it.

    Cut rows; no halo, with and without others to meet; late rows alone; no arcs, with rows to write and without.
    """
    whole = ["pull", "halo early", "rows"] if dependents else ["pull aside", "halo meanwhile", "halo", "rows"]
    once, bounds = whole[:2], np.array([0, 100, 300, 400])
    near, none = awkward_graphs()["no remote arcs"], from_arcs(np.zeros(0, np.int64), np.zeros(0, np.int64), n=400)
    far = from_arcs(np.arange(100, 300).repeat(2), np.arange(400) % 100, n=400)
    check(dependents, Job(*cut_rows(weighted=True), np.float32, self_synchronizing=True, accumulate=False), whole)
    check(dependents, Job(*cut_rows(weighted=False), np.uint16, self_synchronizing=False, accumulate=True), whole)
    check(dependents, Job(near, bounds, np.float32, self_synchronizing=True, accumulate=False), once)
    check(dependents, Job(near, bounds, np.float32, self_synchronizing=False, accumulate=False), ["halo"])
    late = whole[:2] if dependents else ["pull aside", "halo"]
    check(dependents, Job(far, bounds, np.uint16, self_synchronizing=True, accumulate=True), late)
    check(dependents, Job(none, bounds, np.float32, self_synchronizing=True, accumulate=False), once)
    check(dependents, Job(none, bounds, np.float32, self_synchronizing=True, accumulate=True), whole[:1])
