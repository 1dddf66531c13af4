"""Symmetric graphs: one plan multiplies by the matrix and by its transpose."""

import dataclasses

import numpy as np
import pytest
from support.graphs import make_layout, symmetrized
from support.programs.train_program import gradients, layouts

from mgg import layout
from mgg.aggregate import parse_options
from mgg.backend import launch
from mgg.graph.csr import Csr, from_arcs
from mgg.model.neighborhood import Neighborhood, one_plan

PES = 3


def random_graph(*, weighted: bool) -> Csr:
    """40 nodes of random arcs in both directions, with weights that are the same in both if there are any."""
    random = np.random.default_rng(3)
    csr = symmetrized(from_arcs(random.integers(0, 40, 150), random.integers(0, 40, 150), n=40))
    rows = np.repeat(np.arange(40), np.diff(csr.indptr))
    weights = (1 + rows * csr.indices % 7 + rows + csr.indices).astype(np.float32)
    return Csr(csr.indptr, csr.indices, weights if weighted else None, 40)


def folder_of(tmp_path, csr: Csr):
    random = np.random.default_rng(4)
    data = {"features": random.random((40, 6), np.float32), "labels": (np.arange(40) % 4).astype(np.int32)}
    return make_layout(tmp_path, csr, PES, splits=(1 + np.arange(40) % 3).astype(np.uint8), **data)


@pytest.mark.parametrize(
    ("technique", "options", "weighted"),
    [
        ("halo", {}, True), ("halo", {"split": "cover"}, False), ("halo", {"stale": 1, "workgroup": 1}, False),
        ("halo", {"boundary": 0.5}, True), ("halo", {"wire": "int8", "workgroup": 1}, False), ("cola", {}, True),
        ("broadcast", {}, False), ("mgg", {}, True),
    ],
    ids=str,
)  # fmt: skip
def test_one_plan_of_a_symmetric_graph_has_the_bits_of_two(technique, options, weighted, tmp_path, monkeypatch):
    folder = folder_of(tmp_path, random_graph(weighted=weighted))
    given = {"model": "gcn", "technique": technique, "options": options}
    one = gradients("simulated", folder, PES, **given)
    monkeypatch.setattr("mgg.model.neighborhood.one_plan", lambda *_: False)
    two = gradients("simulated", folder, PES, **given)
    for mine, theirs in zip(one, two, strict=True):
        assert mine.keys() == theirs.keys()
        for name, array in mine.items():
            np.testing.assert_array_equal(array, theirs[name], err_msg=name)


@pytest.mark.parametrize(
    ("technique", "options", "shared"),
    [
        ("halo", {}, True), ("cola", {}, True), ("mgg", {}, True), ("halo", {"split": "columns"}, False),
        ("halo", {"stale": 1}, False), ("halo", {"boundary": 0.5}, False), ("halo", {"wire": "int4"}, False),
        ("mgg", {"tune": "cached"}, False),
    ],
    ids=str,
)  # fmt: skip
def test_plans_with_state_per_direction_stay_two(technique, options, shared, tmp_path):
    folder = folder_of(tmp_path, random_graph(weighted=False))
    parsed = parse_options(technique, options)
    parts = layouts("simulated", folder, PES)
    assert launch("simulated", lambda: PES, lambda world: one_plan(world, parts(world.rank), parsed)) == [shared] * PES


def test_asymmetric_matrices_have_two_plans(tmp_path):
    """A directed graph; and one that counts as symmetric, but has other weights one way on one PE alone."""
    directed = from_arcs(np.arange(39), np.arange(1, 40), n=40)
    symmetric = folder_of(tmp_path / "s", random_graph(weighted=True))
    parts = {"directed": layouts("simulated", folder_of(tmp_path / "d", directed), PES)}

    def changed(rank: int) -> layout.PeLayout:
        part = layout.load(symmetric, rank)
        assert part.manifest.symmetric
        local = part.transpose.local
        other = dataclasses.replace(local, weights=local.weights + np.float32(rank == 1))
        return dataclasses.replace(part, transpose=dataclasses.replace(part.transpose, local=other))

    parts["changed"] = [changed(rank) for rank in range(PES)].__getitem__

    def same(world, part):
        graph = Neighborhood.prepare(world, part, "halo", {}, 4)
        try:
            return graph.transposed is graph.plan
        finally:
            graph.close()

    for part in parts.values():
        assert launch("simulated", lambda: PES, lambda world, part=part: same(world, part(world.rank))) == [False] * 3
    unchanged = [layout.load(symmetric, rank) for rank in range(PES)]
    assert launch("simulated", lambda: PES, lambda world: same(world, unchanged[world.rank])) == [True] * PES
