"""Rows or sums: what crosses is as little as an independent cover says, and products stay what they are."""

import shutil
import time
from dataclasses import replace
from functools import wraps

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from support.devices.strict import HostsWorld
from support.graphs import expected_product, make_layout, matrix, random_csr, scaled_error
from support.programs.spmm_program import inputs

from mgg import layout, partition
from mgg.aggregate import parse_options, prepare
from mgg.aggregate.auto import Forecast, split_of
from mgg.aggregate.predict import Question, predict
from mgg.aggregate.workgroups import leaving as covered
from mgg.backend import simulated
from mgg.cost.machines import H200
from mgg.cost.product import SplitCounts
from mgg.errors import InputError
from mgg.graph.cover import least_cover

WAYS = ["columns", "cover"]


def crossings(csr, pes, members, direction, way):
    """Rows and sums that cross between workgroups, and those that cross within, from pairs of row and column alone.

    A row of a PE goes once to each mate or other workgroup; what another workgroup sends arrives at the mate with the
    sender's local rank, and whoever needs it there gets it from that mate. A sum for a row of another workgroup is
    added up, from the sums of its mates, by the PE that has the local rank of the row's owner.
    """
    rows, columns = (each.tolist() for each in matrix(csr).nonzero())
    if direction == "transpose":
        rows, columns = columns, rows
    owner = (np.searchsorted(np.arange(pes + 1) * csr.rows // pes, np.arange(csr.rows), side="right") - 1).tolist()
    between, within, graphs = 0, set(), {}
    for target, source in zip(rows, columns, strict=True):
        p, q = owner[source], owner[target]
        if p != q:
            inside = p // members == q // members
            ends = ("PE", p, q) if inside else ("group", p // members, q // members)
            graphs.setdefault(ends, []).append((source, target))
    for (kind, *_), arcs in graphs.items():
        sums = {target for _, target in arcs} if way == "columns" else targets_of_cover(arcs)
        sent = {("sum", target) for _, target in arcs if target in sums}
        sent |= {("row", source) for source, target in arcs if target not in sums}
        between += len(sent) if kind == "group" else 0
        for source, target in arcs:
            p, q = owner[source], owner[target]
            what = ("sum", p, target) if target in sums else ("row", source)
            if (
                kind == "PE" or p % members != q % members
            ):  # of another workgroup: a sum to add up, or a row from a mate
                within.add((what, q))
    return between, len(within)


def targets_of_cover(arcs):
    """Those of the least cover with the fewest targets, by networkx: least by its size, fewest by its sources first."""
    graph = networkx.Graph((("row", source), ("sum", target)) for source, target in arcs)
    top = {node for node in graph if node[0] == "sum"}
    found = set()
    for part in networkx.connected_components(graph):
        both = graph.subgraph(part)
        mates = networkx.bipartite.hopcroft_karp_matching(both, top & part)
        # Networkx starts from unmatched nodes of ``top_nodes``, so the sources have to be these.
        cover = networkx.bipartite.to_vertex_cover(both, mates, part - top)
        assert all(a in cover or b in cover for a, b in both.edges)
        found |= {name for kind, name in cover if kind == "sum"}
    return found


def moved(world, folder, direction, members, way, dtype="fp32"):
    """Bytes put and fetched by this PE in one product of 5 columns."""
    part = layout.load(folder, world.rank)
    plan = prepare("halo", world, part, direction, 5, {"workgroup": members, "split": way}, dtype)
    plan(5)
    plan.close()
    return world.counters.bytes.get("put", 0), world.counters.bytes.get("get", 0)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 60), st.integers(0, 400), st.sampled_from([(1, 1), (3, 3), (4, 2), (4, 1), (6, 3), (6, 2)]),
    st.integers(0, 10**6), st.sampled_from(["forward", "transpose"]), st.sampled_from(WAYS),
    st.sampled_from(["fp32", "bf16"]), st.booleans(),
)  # fmt: skip
def test_cover_bytes_match_an_independent_cover(
    tmp_path_factory, nodes, arcs, shape, seed, direction, way, dtype, hosts
):
    csr, (pes, members) = random_csr(nodes, arcs, seed=seed), shape
    folder = make_layout(tmp_path_factory.mktemp("graph"), csr, pes)
    world_of = (lambda world: HostsWorld(world, members)) if hosts else lambda world: world
    counted = simulated.run(pes, lambda world: moved(world_of(world), folder, direction, members, way, dtype))
    expected = [5 * (2 if dtype == "bf16" else 4) * rows for rows in crossings(csr, pes, members, direction, way)]
    assert np.sum(counted, axis=0).tolist() == expected


@pytest.mark.parametrize("hosts", [False, True], ids=["ranks", "hosts"])
@pytest.mark.parametrize("members", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_bits_do_not_depend_on_late_pes(tmp_path, dtype, members, hosts):
    """Inputs rewritten at once after each product, PEs late by turns; the first input again on another plan."""
    csr = random_csr(200, 3_000, weighted=True)
    folder = make_layout(tmp_path, csr, 4)

    def program(raw):
        world, part = HostsWorld(raw, members) if hosts else raw, layout.load(folder, raw.rank)
        found = []
        for _ in range(2):
            plan = prepare("halo", world, part, "forward", 9, {"workgroup": members, "split": "cover"}, dtype)
            for round_ in range(1, 6):
                plan.write(9, world.upload(inputs(part.node_ids, 9) * round_))
                time.sleep(1e-3 * ((raw.rank + round_) % 4 == 0))
                found.append(world.download(plan(9)))
            plan.close()
        return found

    parts = simulated.run(4, program)
    for round_, products_ in enumerate(zip(*parts, strict=True)):
        # A sum in bf16 is rounded as often as an embedding: once.
        error = scaled_error(
            np.concatenate(products_), *expected_product(matrix(csr), inputs(np.arange(200), 9) * (round_ % 5 + 1))
        )
        assert error <= (1e-6 if dtype == "fp32" else 2**-8 + 2**-16)
    assert all(np.array_equal(found[at], found[at + 5]) for found in parts for at in range(5))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 90), st.integers(0, 10**6))
def test_cover_is_minimum_by_linear_programming(sources, targets, arcs, seed):
    """By linear programming, whose least fractional cover of a bipartite graph is as large as its least cover."""
    rng = np.random.default_rng(seed)
    rows, columns = np.sort(rng.integers(0, sources, arcs)), rng.integers(0, targets, arcs).astype(np.int32)
    chosen = least_cover(np.searchsorted(rows, np.arange(sources + 1)), columns, targets)
    size = chosen.sum() + len(set(rows[~chosen[columns]]))
    touched = np.zeros((arcs, sources + targets))
    touched[np.arange(arcs), rows] = touched[np.arange(arcs), sources + columns] = -1
    least = linprog(np.ones(sources + targets), touched, -np.ones(arcs)).fun if arcs else 0
    assert size == pytest.approx(least)


@pytest.mark.parametrize(("members", "direction"), [(4, "forward"), (2, "transpose")])
def test_cost_model_counts_crossing_rows_and_sums(tmp_path, members, direction):
    csr = random_csr(300, 2_000)
    make_layout(tmp_path, csr, 4)
    partition.build(tmp_path / "graph", tmp_path / "part", pes=4, scheme="equal_nodes", workgroup=members, dim=5)
    layout.build(tmp_path / "graph", tmp_path / "part", tmp_path / "layout")

    def program(world):
        part = layout.load(tmp_path / "layout", world.rank)
        split, plans = split_of(world, part, direction, WAYS), []
        for way in WAYS:
            plans.append(prepare("halo", world, part, direction, 1, {"split": way}))
        made = []
        for plan in plans:
            shares = [] if plan._sent.combined is None else plan._sent.combined.shares
            parts = [len(share.places) for share in shares if share.pe != world.rank]
            every = plan._sent.sums.arcs + sum(len(share.places) for share in shares)
            made.append((plan.host.remote.arcs, plan.host.halo + sum(parts), plan._sent.made, every))
        return split, made

    found = simulated.run(4, program)
    for at, way in enumerate(WAYS):
        between, within = crossings(csr, 4, members, direction, way)
        for split, _ in found:
            counted = split.ways[way]
            assert counted.fused_rows.sum() == between and (members == 2 or counted.halo_rows.sum() == within)
            for name, each in zip(
                ("remote_arcs", "halo_rows", "sums", "sum_arcs"), zip(*(sizes[at] for _, sizes in found), strict=True),
                strict=True,
            ):  # fmt: skip
                assert getattr(counted, name).tolist() == list(each)


def test_auto_picks_a_cover_where_it_is_cheaper():
    def counted(halo, sum_arcs):
        four = [np.full(4, count) for count in (10_000, 200_000, 50_000, halo)]
        made = np.full(4, 100), np.full(4, sum_arcs)
        return SplitCounts(*four, 4, 0, 0, np.zeros(1, int), *(made if sum_arcs else (None, None)))

    rows, few, useless = counted(4_000_000, 0), counted(2_000_000, 1_000), counted(4_000_000, 10**7)
    for cover, taken in ((few, "cover"), (useless, "rows")):
        said = Forecast(H200, replace(rows, ways={"cover": cover}))
        assert said.pick("halo", 128).split == taken
        costs = [said.seconds("halo", 128, parse_options("halo", {"split": way})) for way in ("rows", "cover")]
        assert said.costs(128)["halo"].seconds == min(costs) and said.cost(
            "halo", 128, parse_options("halo", {"split": "columns"})
        ) is None  # fmt: skip


def test_predictions_and_records_name_the_cover(tmp_path):
    """Of a layout; a graph's or a partition's sums are not counted, which is said."""
    folder = make_layout(tmp_path, random_csr(300, 3_000), 4)
    asked = Question(["halo"], [16], variants={"halo": [{"split": ["rows", "cover"]}]})
    found = predict([folder], H200, asked)
    assert [record.options for record in found] == [{}, {"split": "cover"}]
    assert found[1].transfer < found[0].transfer and sum(record.chosen for record in found) <= 1
    with pytest.raises(InputError, match="does not cover halo"):
        predict([tmp_path / "partition-4"], H200, replace(asked, variants={"halo": [{"split": "cover"}]}))


def test_covers_are_stored_with_the_layout(tmp_path, monkeypatch):
    """Found once for all jobs; made anew where the file is damaged, not taken for other arcs, and in no way needed."""
    folder, asked = make_layout(tmp_path, random_csr(60, 300), 2), []

    def counting(*given):
        asked.append(given)
        return least_cover(*given)

    monkeypatch.setattr(covered, "least_cover", wraps(least_cover)(counting))

    def found(direction="forward", of=folder):
        before, part = len(asked), layout.load(of, 0)
        sums = covered.leaving(part, direction, 2, "cover").sums
        return (sums.indptr.tolist(), sums.indices.tolist()), len(asked) - before

    exact, times = found()
    (path,) = (folder / "pe-0000").glob("*.json")
    assert times == 1 and found() == (exact, 0)
    assert found("transpose")[1] == 1 and found("transpose")[1] == 0
    path.write_text(path.read_text().replace('"bits": "', '"bits": "AA'))
    assert found() == (exact, 1) and found() == (exact, 0)
    path.unlink()
    path.mkdir()  # what cannot be read or written
    assert found() == (exact, 1) and found() == (exact, 1)
    copy = make_layout(tmp_path / "other", random_csr(60, 300, seed=5), 2)
    for each in (folder / "pe-0000").glob("*.json"):
        if each.is_file():
            shutil.copy(each, copy / "pe-0000")
    assert found(of=copy)[1] == 1
