"""Programs as CPU ranks work them off, units of numba loops between operations on rows, against the interpreter."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.graphs.arc_graphs import TYPES, drawn
from support.vertex.models import MODELS, differentiated
from support.vertex.work import drawn_work, worked_off

from mgg import files
from mgg.kernel.threads import deal, threads_per_pe
from mgg.vertex import products
from mgg.vertex.cpu import host
from mgg.vertex.interpret import ArcGraph


def check(data):
    wanted, graph, leaves, how, right = drawn_work(data)
    fused, balance = data.draw(st.booleans()), data.draw(st.sampled_from((0, products.BALANCE)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "BALANCE", balance)
        found = worked_off(wanted, graph, leaves, fused=fused, **how)
    for value, array, expected in zip(wanted, found, right, strict=True):
        if expected.size:
            assert np.abs(array - expected).max() <= 1e-9 * max(1, np.abs(expected).max()), value


@pytest.mark.usefixtures("interpreted")
@settings(max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_chosen_programs_match_the_interpreter(data):
    check(data)


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
@settings(max_examples=300, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_programs_match_the_interpreter(data):
    check(data)


def test_concurrent_threads_compile_a_unit_once(tmp_path, monkeypatch):
    """PEs may be threads: one of them writes the file, and all get one function."""
    monkeypatch.setattr(files, "cache_folder", tmp_path.joinpath)
    count = 8
    barrier = Barrier(count)

    def asked(source):
        barrier.wait()
        return host.compiled(source)

    with ThreadPoolExecutor(count) as threads:
        for number in range(10):
            source = f"def unit(x):\n    x[0] = {number}\n"
            assert len(set(threads.map(asked, [source] * count))) == 1
    assert len(list((tmp_path / "vertex").glob("unit_*.py"))) == 10


@pytest.mark.parametrize("name", ["gat", "gated"])
def test_number_of_threads_does_not_change_the_bits(name, monkeypatch):
    """Forward and backward: ``gat`` has a dropout of arcs, ``gated`` values of arcs and a unit that sums over all.

    That unit, of three, is not dealt out to threads. Both of ``gat`` are.
    """
    dealt = []
    monkeypatch.setattr(host, "deal", lambda ptr, work: dealt.append(deal(ptr, work)))
    rng, vertices, arcs = np.random.default_rng(0), 3_000, 60_000
    sources, kinds = (vertices * rng.random(arcs) ** 2).astype(np.int64), rng.integers(0, TYPES, arcs)
    targets, ids = np.sort(rng.integers(0, vertices, arcs)), rng.permutation(vertices)
    graph = ArcGraph.of(vertices, targets, sources, kinds, TYPES, ids)
    outputs, late, seeds = differentiated(MODELS[name])
    leaves = drawn([*outputs, *late, *seeds], graph)
    found = []
    for threads in (1, 2, 3):
        with threads_per_pe(threads, 1):
            found.append(worked_off([*outputs, *late], graph, leaves, outputs=len(outputs), seeds=seeds, draws=(3, 5)))
    assert len(dealt) == 3 * 2
    for several in found[1:]:
        for value, array, expected in zip([*outputs, *late], several, found[0], strict=True):
            np.testing.assert_array_equal(array, expected, str(value.op))
