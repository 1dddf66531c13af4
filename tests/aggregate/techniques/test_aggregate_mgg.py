"""What the techniques that fetch a row an arc hand to the kernel."""

import numpy as np
import pytest
from support.devices.strict import StrictOperators, StrictWorld, unwrap
from support.graphs import make_layout, random_csr

from mgg import layout
from mgg.aggregate import all_techniques, prepare
from mgg.aggregate.neighbor_partitions.plan import Partitioned
from mgg.backend import simulated
from mgg.errors import InputError
from mgg.tune.setting import Setting


class Recorder(StrictOperators):
    """Operators that note the kernel's knobs."""

    def __init__(self):
        self.knobs = []

    def mgg(self, *arrays, **knobs):
        self.knobs.append(knobs)
        super().mgg(*arrays, **knobs)


def knobs(tmp_path, technique, options, shmem=True):
    folder = make_layout(tmp_path, random_csr(60, 600), 2)
    found = []

    def program(world):
        strict = StrictWorld(world)
        strict.operators, strict.shmem = Recorder(), shmem
        plan = prepare(technique, strict, layout.load(folder, world.rank), "forward", 8, options)
        plan(3)
        found.append(strict.operators.knobs)
        plan.close()

    simulated.run(2, program)
    assert found[0] == found[1] and len(found[0]) == 1
    return found[0][0]


DEFAULT = {
    "ps": 32, "dist": 16, "wpb": 4, "interleave": True, "asynchronous": True, "primitive": "direct", "batch": None,
    "requests": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({}, {}),
        ({"ps": 2, "dist": 3, "wpb": 5}, {"ps": 2, "dist": 3, "wpb": 5}),
        ({"neighbor_partition": False}, {"ps": None}),
        ({"interleave": False}, {"interleave": False}),
        ({"asynchronous": False}, {"asynchronous": False}),
        ({"primitive": "thread"}, {"primitive": "thread"}),
        ({"ps_remote": 3}, {"ps": 3}),  # the kernel asks for what a warp fetches
        ({"ps": 4, "ps_remote": 9}, {"ps": 9}),
    ],
)
def test_every_option_of_mgg_reaches_the_kernel(tmp_path, options, changed):
    assert knobs(tmp_path, "mgg", options) == DEFAULT | changed


@pytest.mark.parametrize(("shmem", "primitive"), [(True, "warp"), (False, "direct")])
def test_technique_direct_switches_every_option_off(tmp_path, shmem, primitive):
    plain = {"ps": None, "dist": 1, "asynchronous": False, "primitive": primitive, "batch": 1}
    assert knobs(tmp_path, "direct", {}, shmem) == DEFAULT | plain


def test_changed_setting_cuts_partitions_again(tmp_path):
    folder, found = make_layout(tmp_path, random_csr(60, 600), 2), []

    class Counted(Recorder):
        def mgg(self, local, *arrays, **knobs):
            super().mgg(local, *arrays, **knobs)
            self.knobs[-1]["pieces"] = len(local.rows)

    def program(world):
        strict = StrictWorld(world)
        strict.operators, strict.shmem = Counted(), True
        part = layout.load(folder, world.rank)
        products = []
        plan = prepare("mgg", strict, part, "forward", 8, {})
        for setting in ((1, 1, 1), (1, 2, 4), (32, 16, 4)):
            plan.take(Setting(*setting))
            plan.write(8, strict.upload(np.ones((part.rows, 8), np.float32)))
            products.append(strict.download(plan(8)))
        plan.close()
        rows = [int((np.diff(part.forward.local.indptr) > 0).sum()), part.forward.local.arcs]
        found.append((strict.operators.knobs, rows))
        assert all(np.array_equal(products[0], product) for product in products), "sums of ones are exact"

    simulated.run(2, program)
    for knobs, (rows, arcs) in found:
        tried = [tuple(each[name] for name in ("ps", "dist", "wpb", "pieces")) for each in knobs]
        assert tried == [(1, 1, 1, arcs), (1, 2, 4, arcs), (32, 16, 4, rows)]


def test_nvshmem_primitives_are_refused_without_nvshmem(tmp_path):
    with pytest.raises(InputError, match="technique mgg: option primitive: block needs --backend nvshmem"):
        knobs(tmp_path, "mgg", {"primitive": "block"}, shmem=False)


def test_only_named_classes_are_techniques():
    assert Partitioned not in all_techniques().values() and {"mgg", "direct"} <= all_techniques().keys()


class Partitions(StrictOperators):
    """Operators that note how long the partitions of each kind are, row by row."""

    def mgg(self, local, indices, local_weights, remote, sources, remote_weights, *arrays, **knobs):
        self.lengths = [
            [(int(row), int(stop - start)) for row, start, stop in zip(*map(unwrap, each), strict=True)]
            for each in ((part.rows, part.starts, part.stops) for part in (local, remote))
        ]


@pytest.mark.parametrize(("ps", "ps_remote"), [(32, None), (5, 2), (2, 7)])
def test_ps_remote_cuts_remote_partitions(tmp_path, ps, ps_remote):
    csr = random_csr(60, 900)
    folder = make_layout(tmp_path, csr, 2)

    def program(world):
        strict, part = StrictWorld(world), layout.load(folder, world.rank)
        strict.operators = Partitions()
        plan = prepare("mgg", strict, part, "forward", 8, {"ps": ps, "ps_remote": ps_remote})
        plan(3)
        return strict.operators.lengths, part.lo, part.hi

    for (local, remote), lo, hi in simulated.run(2, program):
        for lengths, size, mine in ((local, ps, True), (remote, ps_remote or ps, False)):
            expected = []
            for row in range(lo, hi):
                columns = csr.indices[csr.indptr[row] : csr.indptr[row + 1]]
                arcs = sum((lo <= column < hi) == mine for column in columns)
                expected += [(row - lo, min(size, arcs - k)) for k in range(0, arcs, size)]
            assert lengths == expected
