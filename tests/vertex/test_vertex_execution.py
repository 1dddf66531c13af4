"""Other ways to share arcs among threads: the same results, and what each way is said to be."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from support.graphs.arc_graphs import drawn
from support.vertex import models as vertex_models
from support.vertex.work import tables_of, worked_off
from test_vertex_cuda import MODELS, compare, crowded

from mgg.vertex import cuda, ir
from mgg.vertex.cuda import device
from mgg.vertex.cuda.execution import DEFAULT, Execution
from mgg.vertex.cuda.launches import Launch
from mgg.vertex.interpret import evaluate
from mgg.vertex.ir import D, E, P, S
from mgg.vertex.warp_layout import Layout

GROUPS, ARCS, BLOCKS, ROWS = (
    ("adaptive", "warp", "block"), ("together", "sequence", "parallel"), ("hardware", "atomic", "static"),
    ("given", "sorted"),
)  # fmt: skip
EVERY = [Execution(*each) for each in itertools.product(GROUPS, ARCS, BLOCKS, ROWS)]
#: Each choice of each kind is in one of them, or in the default.
SOME = [Execution("adaptive", "sequence", "atomic"), Execution("warp", "parallel", "hardware", "sorted"),
        Execution("block", "together", "static")]  # fmt: skip


def summed(columns):
    """A launch of sums and of an extreme of each row, and of sums of all arcs."""
    x, y = ir.leaf("x", S, (columns,)), ir.leaf("y", D, (columns,))
    arcs = ir.binary("multiply", ir.cast(x, E), ir.cast(y, E))
    rows = ir.total(arcs, D), ir.maximum_of(arcs, D)
    return Launch(E, D, Layout((columns,)), (*rows, ir.total(arcs, P)), outputs=rows, reads=(x, y))


# Lanes of a warp that have nothing to do, and three warps of columns, of which lanes make numbers for each other.
@pytest.mark.slow
@pytest.mark.parametrize("columns", [7, 300])
def test_every_execution_option_gives_the_same_result(columns, kernels, monkeypatch):
    monkeypatch.setattr(cuda, "STATIC_BLOCKS", 3)  # so that a block has several rows
    graph, launch = crowded(), summed(columns)
    leaves = drawn(launch.sums, graph)
    expected = evaluate(launch.sums, graph, leaves)
    made = [cuda.kernel_of(f"sum_{n}", launch, 30.0, (), how) for n, how in enumerate(EVERY)]
    build = device.build_of_text("every", cuda.source_of(made), 32)
    tables = device.DeviceTables(lambda: tables_of(graph), graph.vertices, np.ascontiguousarray, kernels)
    for one in made:
        arrays = [(leaves[v["name"]].astype(np.float32), np.int32(columns)) for v in one.reads]
        results = [(np.full((graph.vertices, columns), np.nan, np.float32), np.int32(columns)) for _ in range(2)]
        kernels.launched.clear()
        [total] = device.launched(one, build, tables, arrays, results, lambda *of: np.full(of[0], np.nan, of[1]))
        found = [*(array for array, _ in results), total.sum(0)]
        compare(launch.sums, found, expected, 1e-5)
        # Row 3 has 200 arcs and more.
        assert len(kernels.launched) == (1 if one.how.arcs == "sequence" else 2)


@pytest.mark.slow
@pytest.mark.parametrize("how", SOME, ids=str)
def test_execution_options_work_for_a_model(how, kernels):
    graph = crowded()
    outputs, late, seeds = vertex_models.differentiated(MODELS["gat, eight heads of eight"])
    wanted = [*outputs, *late]
    leaves = drawn([*wanted, *seeds], graph, 1)
    found = worked_off(wanted, graph, leaves, outputs=len(outputs), seeds=seeds, draws=(3, 5), kernels=kernels, how=how)
    compare(wanted, found, evaluate(wanted, graph, leaves, masks=(3, 5)), 1e-4)


def kernel(how, columns=4, mean=8.0):
    x = ir.leaf("x", S, (columns,))
    total = ir.total(ir.cast(x, E), D)
    launch = Launch(E, D, Layout((columns,)), (total,), outputs=(total,), reads=(x,))
    return cuda.kernel_of("k", launch, mean, (), how)


# Of four columns a lane has all: eight arcs of a row are two lanes of its group, and 32 groups are a warp's.
@pytest.mark.parametrize(
    ("how", "rows", "lanes"),
    [
        (DEFAULT, 128, 2),
        (Execution(arcs="sequence"), 256, 1),
        (Execution("warp"), 8, 32),
        (Execution("warp", "sequence"), 8, 32),
        (Execution("block", "sequence"), 1, 32),
        (Execution(arcs="parallel"), 256, 1),
    ],
    ids=str,
)
def test_execution_options_set_rows_per_block_and_lanes_per_row(how, rows, lanes):
    made = kernel(how)
    assert (made.per_block, made.group) == (rows, lanes)


def test_wide_rows_are_shared_by_the_warps_of_a_block():
    """Of 602 columns a warp has 128."""
    tiles = {groups: kernel(Execution(groups, "sequence"), 602).tiles for groups in GROUPS}
    assert tiles == {"adaptive": 5, "warp": 5, "block": 1}
    assert kernel(Execution("block"), 2000).tiles == 2


def test_static_blocks_are_bounded():
    assert kernel(DEFAULT).blocks is None
    assert kernel(Execution(blocks="static")).blocks == 396
    assert kernel(Execution(blocks="static"), 602).blocks == 79


def test_rows_are_cut_and_sorted_by_option():
    lengths = np.array([3, 0, 500, 1, 500])
    ptr = np.append(0, np.cumsum(lengths))
    whole = Execution(arcs="sequence", rows="sorted")
    cut = whole.cut(ptr)
    assert cut.target.tolist() == [0, 1, 2, 3, 4] and cut.slots == 0
    assert whole.order(cut).tolist() == [2, 4, 0, 3, 1]
    assert replace(whole, rows="given").order(cut) is None
    apart = Execution(arcs="parallel").cut(ptr)
    assert np.diff(apart.begin).tolist() == [1] * 3 + [0] + [1] * 1001
    assert apart.split_rows.tolist() == [0, 2, 4] and apart.slots == 1003


def test_execution_options_change_the_kernel_hash():
    texts = {cuda.source_of([kernel(how)]) for how in EVERY}
    assert len(texts) == len(EVERY)
    assert "groups=block,rows=sorted" in cuda.source_of([kernel(Execution("block", rows="sorted"))])


def test_execution_options_are_parsed_from_text():
    for how in EVERY:
        assert Execution.parsed(str(how)) == how
    assert str(DEFAULT) == "" and str(Execution("block", "sequence")) == "groups=block,arcs=sequence"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("groups=wrap", "'groups=wrap': groups is one of adaptive, warp, block"),
        ("group=warp", "'group=warp': no choice is called 'group'; did you mean groups"),
        ("warp", "'warp': no choice is called 'warp'; "),
        ("rows=sorted,rows=given", "'rows=given': rows is given twice"),
    ],
)
def test_invalid_execution_options_are_one_line(text, said):
    with pytest.raises(ValueError, match=said) as refusal:
        Execution.parsed(text)
    assert "\n" not in str(refusal.value)
