"""Equal remote requests of a block merged (MGG 5.1): counted arc by arc, on CPU ranks and in the kernel."""

from itertools import chain, pairwise
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.devices.strict import StrictWorld
from support.graphs import make_layout, matrix, random_csr, relative_error
from support.programs.spmm_program import inputs

from mgg import layout
from mgg.aggregate import prepare, technique
from mgg.backend import simulated
from mgg.kernel.requests import bounds, merged

PES, DIM = 3, 5


def partitions(csr, lo, hi, local, size):
    """Of a PE with the rows lo .. hi the columns of each of its partitions, one kind of arcs."""
    found = []
    for row in range(lo, hi):
        columns = [int(column) for column in csr.indices[csr.indptr[row] : csr.indptr[row + 1]]]
        kept = [column for column in columns if (lo <= column < hi) == local]
        found += [kept[k : k + size] for k in range(0, len(kept), size)]
    return found


def warps(local, remote, dist, interleave):
    """The remote partitions of each warp, as kernels/aggregate/mgg.cu deals them out."""
    if interleave:
        count = ceil(max(len(local), len(remote)) / dist)
        return [remote[w * len(remote) // count : (w + 1) * len(remote) // count] for w in range(count)]
    return [[]] * ceil(len(local) / dist) + [remote[k : k + dist] for k in range(0, len(remote), dist)]


def requests(csr, lo, hi, options, gpu):
    """Rows that the blocks of a PE ask for, each once a block."""
    dist, wpb, interleave = options["dist"], options["wpb"], options.get("interleave", True)
    local, remote = (partitions(csr, lo, hi, kind, options["ps"]) for kind in (True, False))
    if gpu:
        each = warps(local, remote, dist, interleave)
        blocks = [list(chain(*each[first : first + wpb])) for first in range(0, len(each), wpb)]
    else:
        blocks = [remote[first : first + dist * wpb] for first in range(0, len(remote), dist * wpb)]
    return sum(len({column for part in block for column in part}) for block in blocks)


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"ps": 4, "dist": 2, "wpb": 3},
        {"ps": 32, "dist": 16, "wpb": 4},
        {"ps": 3, "dist": 1, "wpb": 1},
        {"ps": 4, "dist": 5, "wpb": 2, "interleave": False},
    ],
)
def test_merged_block_requests_a_row_once(tmp_path, options, gpu):
    """The product is the same, and what moves is a row a request."""
    csr = random_csr(60, 1_500, weighted=True)
    folder = make_layout(tmp_path, csr, PES)

    def program(raw):
        world, part = StrictWorld(raw) if gpu else raw, layout.load(folder, raw.rank)
        found = []
        for merge in (True, False):
            plan = prepare("mgg", world, part, "forward", 2 * DIM, options | {"merge": merge})
            plan.input(DIM)[:] = world.upload(inputs(part.node_ids, DIM))
            before = world.counters.bytes.get("get", 0)
            out = plan(DIM)
            found.append((world.download(out) if gpu else out, world.counters.bytes.get("get", 0) - before))
        return found, part.lo, part.hi

    every = simulated.run(PES, program)
    for number in range(2):
        whole = np.concatenate([found[number][0] for found, _, _ in every])
        assert relative_error(whole, matrix(csr), inputs(np.arange(60), DIM)) <= 1e-6
    saved = 0
    for (once, each), lo, hi in every:
        arcs = sum(map(len, partitions(csr, lo, hi, False, 1)))
        assert once[1] == 4 * DIM * requests(csr, lo, hi, options, gpu) and each[1] == 4 * DIM * arcs
        saved += each[1] - once[1]
    assert saved > 0 or options["ps"] == 3


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=6), st.integers(0, 40), st.integers(1, 9),
    st.integers(1, 4), st.booleans(),
)  # fmt: skip
def test_merged_requests_match_the_arcs(blocks, local, dist, wpb, interleave):
    sources = np.array([source for block in blocks for source in block], np.uint64)
    arcs = np.cumsum([0, *map(len, blocks)])
    wanted, first, place = merged(sources, arcs)
    assert [wanted[a:b].tolist() for a, b in pairwise(first)] == [sorted(set(b)) for b in blocks]
    assert np.array_equal(wanted[place], sources)
    of_block = np.repeat(np.arange(len(blocks)), np.diff(arcs))
    assert all(first[b] <= p < first[b + 1] for b, p in zip(of_block, place, strict=True))
    remote = list(range(len(sources)))
    each = warps([0] * local, remote, dist, interleave) if local or remote else []
    expected = [sum(map(len, each[:k])) for k in range(0, len(each), wpb)] + [len(remote)]
    assert bounds(local, len(remote), dist, wpb, interleave).tolist() == expected


def test_mgg_uvm_has_no_request_options():
    assert technique("mgg_uvm").Options.model_fields.keys() & {"merge", "ps_remote"} == set()
