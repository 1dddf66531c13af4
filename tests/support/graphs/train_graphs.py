"""Small graphs with features, labels and splits, and their layouts for any number of PEs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from mgg.graph.csr import Csr, from_arcs
from support.graphs import make_layout, planted, random_csr, typed_csr


def directed() -> tuple[Csr, dict[str, np.ndarray]]:
    """Directed, weighted, with sparse features; class 3 occurs outside all splits only, some nodes have no label."""
    rng = np.random.default_rng(2)
    nodes, arcs = 240, 1500
    weights = rng.uniform(0.2, 2, arcs).astype(np.float32)
    csr = from_arcs(rng.integers(0, nodes, arcs), (nodes * rng.random(arcs) ** 2).astype(int), n=nodes, weights=weights)
    features = (rng.random((nodes, 40)) * (rng.random((nodes, 40)) < 0.1)).astype(np.float32)
    splits = rng.integers(0, 4, nodes).astype(np.uint8)
    labels = np.where(splits > 0, rng.integers(0, 3, nodes), rng.integers(-1, 4, nodes)).astype(np.int32)
    return csr, {"features": features, "labels": labels, "splits": splits}


def three_nodes() -> tuple[Csr, dict[str, np.ndarray]]:
    """Fewer nodes than some jobs have PEs; one node per split."""
    data = {
        "features": np.eye(3, 2, dtype=np.float32),
        "labels": np.array([1, 1, 1], np.int32),
        "splits": np.array([1, 2, 3], np.uint8),
    }
    return random_csr(3, 5), data


def typed() -> tuple[Csr, dict[str, np.ndarray]]:
    """Directed, with arcs of seven types, and features."""
    csr, data = directed()
    return typed_csr(csr.rows, 1200, 7), data


def featureless() -> tuple[Csr, dict[str, np.ndarray]]:
    """``typed`` without features and without nodes to validate on."""
    csr, data = typed()
    splits = np.where(data["splits"] == 2, 3, data["splits"])
    return csr, {"labels": data["labels"], "splits": splits}


def tasks() -> tuple[Csr, dict[str, np.ndarray]]:
    """Six binary labels per node, which follow from features and neighbors; some are unknown, the last is always 0."""
    csr, data = planted()
    rng = np.random.default_rng(7)
    data["features"] = rng.normal(size=(csr.rows, 12)).astype(np.float32)
    mixed = csr.to_scipy(np.float64) @ data["features"] / 8 + data["features"]
    answers = (mixed[:, :6] > 0.5).astype(np.uint8)
    answers[:, 5] = 0
    answers[rng.random(answers.shape) < 0.1] = 255
    splits = rng.integers(1, 4, csr.rows).astype(np.uint8)
    return csr, {"features": data["features"], "tasks": answers, "splits": splits}


GRAPHS = {make.__name__: make for make in (planted, directed, three_nodes, typed, featureless, tasks)}


def layouts_below(new_folder: Callable[[str], Path]) -> Callable[[str, int], Path]:
    """``layouts(name, pes)``: the folder of a layout of one of ``GRAPHS``, made once."""
    folders = {name: new_folder(name) for name in GRAPHS}

    @cache
    def layout(name: str, pes: int) -> Path:
        csr, node_data = GRAPHS[name]()
        return make_layout(folders[name], csr, pes, scheme="edge_balanced", **node_data)

    return layout


def node_data(nodes=60):
    rng = np.random.default_rng(0)
    return {
        "features": rng.random((nodes, 5), np.float32),
        "labels": rng.integers(0, 3, nodes).astype(np.int32),
        "splits": np.tile(np.arange(4), nodes // 4).astype(np.uint8),
    }
