"""Dense features in page-locked memory: products stream them, other modules read them in place."""

import shutil
from pathlib import Path

import pytest
from support.graphs import random_layout
from support.programs.train_program import assert_close, on_ranks

from mgg.model.features import streamed_bytes
from mgg.records import read_run
from mgg.train.activations import FEATURES

FAKE = str(Path(__file__).parents[2] / "support" / "fake_gpu" / "run.py")
NODES, COLUMNS = 2000, 400


def test_streamed_features_take_two_blocks_on_the_device():
    for rows, columns in ((8, 3), (2000, 400), (10**7, 128), (10**6, 10_000)):
        assert streamed_bytes(rows, columns) <= rows * columns
    assert streamed_bytes(10**7, 128) == 8 << 20


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile the kernels for the host")
@pytest.mark.parametrize(
    ("model", "settings", "pes", "share"),
    [
        ("gcn", {"hidden": 32}, 2, 0.6), ("sage", {"hidden": 32, "dropout": 0.0}, 1, 0.65),
        ("gat", {"hidden": 4}, 1, 0.5), ("gin", {"hidden": 16, "layers": 2}, 1, 0.7),
    ],
)  # fmt: skip
def test_streamed_features_match_device_features(model, settings, pes, share, tmp_path):
    """Loss and gradients within 1e-5 of those of features on the device, and the same bits every time."""
    folder = random_layout(tmp_path, nodes=NODES, features=COLUMNS, degree=4, pes=pes)
    each = {"technique": "halo", "model": model, "settings": settings, "folder": str(folder)}

    def ran(kind, **way):
        return on_ranks(kind, pes, tmp_path / "out.npz", [{**each, **way}] * 2, "nvshmem", [FAKE])

    ran("train", epochs=3, out=str(tmp_path / "kept"))
    kept, _ = read_run(tmp_path / "kept")
    cap = int(share * kept.memory_predicted)
    ran("train", epochs=3, out=str(tmp_path / "outside"), memory_per_pe=cap)
    record, _ = read_run(tmp_path / "outside")
    assert record.activations[FEATURES] == "host" and FEATURES not in kept.activations
    assert record.gpu_memory < kept.gpu_memory
    (expected, _), (found, again) = ran("gradients"), ran("gradients", memory_per_pe=cap)
    assert_close(found, expected)
    assert all(again[name].tobytes() == array.tobytes() for name, array in found.items())
