"""The quality of a partition, against a count arc by arc with Python sets."""

import networkx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.graphs import matrix, random_csr

from mgg import partition
from mgg.graph.csr import Csr, from_arcs
from mgg.graph.store import shards, write_graph
from mgg.partition import quality
from mgg.partition.quality import measure


def brute_force(a, owner, pes, workgroup, dim):
    """The fields of Quality that follow from the arcs."""
    groups = -(-pes // workgroup)
    arcs, cut, group_cut = [0] * pes, [0] * pes, 0
    needed, group_needed = [set() for _ in range(pes)], [set() for _ in range(groups)]
    for row, column in zip(*a.nonzero(), strict=True):
        p, q = int(owner[row]), int(owner[column])
        arcs[p] += 1
        if p != q:
            cut[p] += 1
            needed[p].add(int(column))
        if p // workgroup != q // workgroup:
            group_cut += 1
            group_needed[p // workgroup].add(int(column))
    pairs = [[sum(owner[node] == q for node in needed[p]) for q in range(pes)] for p in range(pes)]
    crossing = sum(pairs[p][q] for p in range(pes) for q in range(pes) if p // workgroup != q // workgroup)
    outside = [sum(q // workgroup != p // workgroup for q in range(pes)) for p in range(pes)]
    fused = [len(nodes) for nodes in group_needed]
    halos = [len(nodes) for nodes in needed]
    row = 4 * dim
    return {
        "dim": dim,
        "nodes_per_pe": [int(np.sum(owner == p)) for p in range(pes)],
        "arcs_per_pe": arcs,
        "edge_cut": sum(cut),
        "edge_cut_per_pe": cut,
        "halo_rows_per_pe": halos,
        "halo_rows_per_pair": pairs,
        "v_cg": row * a.shape[0] * (pes - 1),
        "v_fr": row * sum(cut),
        "v_fc": row * sum(halos),
        "arcs_per_workgroup": [sum(arcs[first : first + workgroup]) for first in range(0, pes, workgroup)],
        "workgroup_edge_cut": group_cut,
        "workgroup_halo_rows": fused,
        "vi_cg": row * sum(outside[owner[node]] for node in range(a.shape[0])),
        "vi_fr": row * group_cut,
        "vi_fc": row * crossing,
        "vi_cola": row * sum(fused),
        "span": sum(abs(int(r) - int(c)) for r, c in zip(*a.nonzero(), strict=True)) / max(1, sum(arcs)),
    }


def covers(a, owner):
    """Rows and sums of least covers of all pairs of PEs: as many as networkx matches."""
    graphs = {}
    for row, column in zip(*a.nonzero(), strict=True):
        if owner[row] != owner[column]:
            graph = graphs.setdefault((owner[column], owner[row]), networkx.Graph())
            graph.add_edge(("row", int(column)), ("sum", int(row)))
    return sum(len(networkx.max_weight_matching(graph, maxcardinality=True)) for graph in graphs.values())


def blocks_of(csr, rows):
    """``walk`` over blocks of so many rows."""
    whole = csr.to_scipy()

    def walk():
        for lo in range(0, csr.rows, rows):
            part = whole[lo : lo + rows]
            yield lo, Csr(part.indptr.astype(np.int64), part.indices, None, csr.columns)

    return walk


@settings(max_examples=30)
@given(
    st.integers(1, 60), st.integers(0, 400), st.integers(1, 20), st.integers(1, 9), st.integers(0, 10**6),
    st.sampled_from([1, 16, 41]), st.integers(1, 70), st.booleans(),
)  # fmt: skip
@example(60, 400, 70, 3, 1, 16, 7, False)  # more PEs and workgroups than bits of a word
@example(60, 400, 130, 1, 2, 16, 60, False)
@example(60, 400, 130, 1, 2, 16, 60, True)
@example(40, 300, 9, 4, 3, 16, 11, False)  # the last workgroup is smaller
def test_quality_matches_a_count_arc_by_arc(nodes, arcs, pes, workgroup, seed, dim, rows, in_order):
    csr = random_csr(nodes, arcs, seed=seed)
    owner = np.random.default_rng(seed).integers(0, pes, nodes).astype(np.uint16)
    if in_order:
        owner.sort()
    cover = seed % 3 == 0
    found = measure(blocks_of(csr, rows), owner, pes=pes, workgroup=workgroup, dim=dim, cover=cover).model_dump()
    expected = brute_force(matrix(csr), owner, pes, workgroup, dim)
    expected["v_cover"] = 4 * dim * covers(matrix(csr), owner) if cover else None
    if pes > quality.MOST_PAIRED:
        expected["halo_rows_per_pair"] = None
    balance, group_balance = found.pop("imbalance"), found.pop("workgroup_imbalance")
    assert found == expected
    if csr.arcs:
        assert balance == pytest.approx(max(expected["arcs_per_pe"]) * pes / csr.arcs)
        sizes = [min(workgroup, pes - first) for first in range(0, pes, workgroup)]
        each = [arcs / size for arcs, size in zip(expected["arcs_per_workgroup"], sizes, strict=True)]
        assert group_balance == pytest.approx(max(each) * pes / csr.arcs)


def test_volumes_match_the_cola_paper():
    """CYT, com-Youtube: V_CG of table 2 and VI_CG of table 3, in MiB, for 16 GPUs in 2 hosts and k = 32."""
    nodes = 1_134_890
    owner = (np.arange(nodes) * 16 // nodes).astype(np.uint16)
    csr = from_arcs(np.array([0]), np.array([nodes - 1]), n=nodes)
    found = measure(blocks_of(csr, nodes), owner, pes=16, workgroup=8, dim=32)
    assert round(found.v_cg / 2**20, 2) == 2078.05
    assert round(found.vi_cg / 2**20, 2) == 1108.29
    assert (found.v_fc, found.vi_fc, found.vi_cola) == (128, 128, 128)


def test_graph_parts_are_read_once(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "ARCS_PER_PART", 50)
    csr = random_csr(300, 3000)
    write_graph(tmp_path / "graph", csr, name="test", source={})
    read = []
    real = shards.read_part
    monkeypatch.setattr(shards, "read_part", lambda path, kind, *a, **k: read.append(path) or real(path, kind, *a, **k))
    made = partition.build(tmp_path / "graph", tmp_path / "p", pes=4, scheme="equal_nodes", workgroup=2, dim=16)
    adjacency = [path for path in read if path.parent.name == "adjacency"]
    assert len(adjacency) == len(set(adjacency)) > 20
    owner = (np.searchsorted(made.bounds, np.arange(300), side="right") - 1).astype(np.uint16)
    expected = brute_force(matrix(csr), owner, 4, 2, 16)
    assert expected.items() <= made.quality.model_dump().items()
