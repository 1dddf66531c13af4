"""The size that a graph is expected to have, by which jobs are given memory and time."""

import pytest

from mgg.config import DatasetConfig
from mgg.graph.build import build
from mgg.graph.generate import generate
from mgg.graph.size import Size, expected_size


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("cora", {}, Size(2708, 10556, 1433)),  # arcs as stored
        ("ogbn-products", {}, Size(2449029, 2 * 61859140, 100)),  # edges, each of which is two arcs
        ("ogbn-arxiv", {}, Size(169343, 1166243, 128)),
        ("ogbn-arxiv", {"symmetrize": True}, Size(169343, 2 * 1166243, 128)),
        ("ogbn-products", {"symmetrize": True}, Size(2449029, 2 * 61859140, 100)),
        ("reddit-like", {"features": 602, "classes": 41}, Size(232965, 114615892, 602)),
        ("reddit-like", {"scale": 0.5}, Size(116482, 57307946, 0)),
        ("half-a-reddit", {"generator": "reddit-like", "scale": 0.5}, Size(116482, 57307946, 0)),
    ],
)
def test_sizes_match_their_publishers(name: str, options: dict, expected: Size):
    assert expected_size(name, DatasetConfig(**options)) == expected


def test_scale_multiplies_all_generators():
    assert expected_size("reddit-like", DatasetConfig(scale=0.5), 0.1).nodes == 11648
    assert expected_size("cora", DatasetConfig(), 0.1).nodes == 2708


@pytest.mark.parametrize("name", ["planted", "web-like"])
def test_generated_graphs_are_within_the_expected_size(tmp_path, name: str):
    scale = 1.0 if name == "planted" else 0.002
    made = generate(name, tmp_path / "graph", scale=scale)
    size = expected_size(name, DatasetConfig(scale=scale))
    assert 0.5 * size.arcs < made.arcs <= size.arcs
    assert (made.nodes, made.features) == (size.nodes, size.features)


def test_user_files_are_within_the_expected_size(tmp_path):
    (tmp_path / "edges.csv").write_text("".join(f"{v},{v + 1}\n" for v in range(5000)))
    made = build(tmp_path / "edges.csv", tmp_path / "graph")
    guessed = expected_size("mine", DatasetConfig(source=str(tmp_path / "edges.csv")))
    assert made.arcs <= guessed.arcs < 3 * made.arcs
    known = expected_size("mine", DatasetConfig(source=str(tmp_path / "graph"), symmetrize=True))
    assert known == Size(made.nodes, 2 * made.arcs, 0)
