"""Layouts of partitions that move nodes."""

import numpy as np
import pytest
from support.graphs import build_layout, random_csr

from mgg import layout, partition
from mgg.graph.csr import inverse
from mgg.layout import nodes


@pytest.mark.parametrize("scheme", partition.schemes())
def test_node_data_follow_their_nodes(scheme, tmp_path, monkeypatch):
    monkeypatch.setattr(nodes, "BLOCK_BYTES", 4 * 5 * 7)  # blocks of 7 nodes
    rng = np.random.default_rng(0)
    data = {
        "features": rng.random((120, 5)).astype(np.float32),
        "labels": rng.integers(0, 4, 120).astype(np.int32),
        "splits": rng.integers(0, 4, 120).astype(np.uint8),
    }
    folder = build_layout(tmp_path, random_csr(120, 900, weighted=True), 3, scheme=scheme, **data)
    order = partition.load_order(tmp_path / "partition-3", partition.load(tmp_path / "partition-3"))
    at = np.arange(120) if order is None else inverse(order)
    for pe in range(3):
        part = layout.load(folder, pe)
        mine = at[part.lo : part.hi]
        assert np.array_equal(part.source_ids, mine)
        for name, values in data.items():
            assert np.array_equal(getattr(part, name), values[mine])
        assert np.array_equal(part.node_ids, np.arange(part.lo, part.hi))
        assert (folder / f"pe-{pe:04d}" / "nodes.npy").exists() == (scheme == "metis")
        assert not (folder / f"pe-{pe:04d}" / "ids.npy").exists()


def test_halos_match_the_partition_quality(tmp_path):
    folder = build_layout(tmp_path, random_csr(300, 2500), 4, scheme="metis")
    quality = partition.load(tmp_path / "partition-4").quality
    manifest = layout.read_manifest(folder)
    assert manifest.forward.halo_rows == quality.halo_rows_per_pe
    assert manifest.forward.remote_arcs == quality.edge_cut_per_pe
    assert manifest.forward.arcs == quality.arcs_per_pe
    pairs = [np.diff(layout.load(folder, pe).forward.halo_ptr).tolist() for pe in range(4)]
    assert pairs == quality.halo_rows_per_pair
