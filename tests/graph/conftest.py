"""Small graphs and the mirror of real data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from graph_helpers import arrays

from mgg.graph import shards
from mgg.graph.store import write_graph

#: Read once: some tests unset the variable.
MIRROR = os.environ.get("MGG_DATA_DIR")


@pytest.fixture
def mirror() -> Path:
    """The folder $MGG_DATA_DIR."""
    if not MIRROR:
        pytest.skip("MGG_DATA_DIR is not set: no real data here")
    return Path(MIRROR)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut graphs into many parts: 7 vertices, 20 arcs, 3 feature rows (of 5 columns) each."""
    monkeypatch.setattr(shards, "VERTICES_PER_PART", 7)
    monkeypatch.setattr(shards, "ARCS_PER_PART", 20)
    monkeypatch.setattr(shards, "FEATURE_BYTES_PER_PART", 60)


@pytest.fixture
def written(tmp_path: Path, small_parts: None) -> Path:
    """A graph folder of many parts."""
    write_graph(tmp_path / "graph", **arrays())
    return tmp_path / "graph"
