import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import matrix, random_csr

from mgg import partition
from mgg.errors import InputError
from mgg.graph.store import write_graph
from mgg.partition.quality import measure


def brute_force(a, bounds, dim):
    """Figures counted arc by arc, with Python sets."""
    owner = np.searchsorted(bounds, np.arange(a.shape[0]), side="right") - 1
    pes = len(bounds) - 1
    arcs, cut, needed = [0] * pes, 0, [set() for _ in range(pes)]
    for row, column in zip(*a.nonzero(), strict=True):
        arcs[owner[row]] += 1
        if owner[row] != owner[column]:
            cut += 1
            needed[owner[row]].add(int(column))
    halos = [len(rows) for rows in needed]
    n, e_r, n_r = a.shape[0], cut, sum(halos)
    return arcs, cut, halos, 4 * n * dim * (pes - 1), 4 * e_r * dim, 4 * n_r * dim


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(0, 400), st.integers(1, 7), st.integers(0, 10**6), st.sampled_from([1, 16, 41]))
def test_quality_equals_a_count_arc_by_arc(nodes, arcs, pes, seed, dim):
    csr = random_csr(nodes, arcs, seed=seed)
    bounds = np.sort(np.random.default_rng(seed).integers(0, nodes + 1, pes + 1))
    bounds[0], bounds[-1] = 0, nodes
    whole = csr.to_scipy()

    def rows(lo, hi):
        from mgg.graph.csr import Csr

        part = whole[lo:hi]
        return Csr(part.indptr.astype(np.int64), part.indices, None, nodes)

    quality = measure(rows, bounds, dim)
    expected = brute_force(matrix(csr), bounds, dim)
    found = (quality.arcs_per_pe, quality.edge_cut, quality.halo_rows_per_pe, quality.v_cg, quality.v_fr, quality.v_fc)
    assert found == expected
    if csr.arcs:
        assert quality.imbalance == pytest.approx(max(expected[0]) * pes / csr.arcs)


@pytest.fixture
def graph(tmp_path):
    write_graph(tmp_path / "graph", random_csr(200, 1500), name="test", source={})
    return tmp_path / "graph"


@pytest.mark.parametrize("scheme", ["edge_balanced", "equal_nodes"])
def test_a_partition_is_read_back_as_written(graph, tmp_path, scheme):
    made = partition.build(graph, tmp_path / "p", pes=3, scheme=scheme, workgroup=2, dim=8)
    assert partition.load(tmp_path / "p") == made
    assert made.quality.dim == 8 and len(made.bounds) == 4


def test_unknown_scheme_names_the_nearest(graph, tmp_path):
    with pytest.raises(InputError, match="edge_balanced"):
        partition.build(graph, tmp_path / "p", pes=3, scheme="edge_balance", workgroup=2, dim=8)
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values.update(bounds=[0, 5, 200]),
        lambda values: values.update(bounds=[0, 150, 100, 200]),
        lambda values: values.update(bounds=[0, 50, 100, 199]),
        lambda values: values.update(surprise=1),
        lambda values: values.pop("graph_hash"),
        lambda values: values.update(schema_version=99),
    ],
)
def test_an_altered_partition_is_named(graph, tmp_path, change):
    partition.build(graph, tmp_path / "p", pes=3, scheme="equal_nodes", workgroup=2, dim=8)
    file = tmp_path / "p" / "partition.json"
    values = json.loads(file.read_text())
    change(values)
    file.write_text(json.dumps(values))
    with pytest.raises(InputError, match=r"partition\.json"):
        partition.load(tmp_path / "p")


def test_a_truncated_partition_is_named(graph, tmp_path):
    partition.build(graph, tmp_path / "p", pes=3, scheme="equal_nodes", workgroup=2, dim=8)
    file = tmp_path / "p" / "partition.json"
    file.write_text(file.read_text()[:100])
    with pytest.raises(InputError, match=r"partition\.json"):
        partition.load(tmp_path / "p")
