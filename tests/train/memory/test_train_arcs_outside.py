"""Lists and values of arcs outside a PE's device: the same bits in less memory, where nothing else fits."""

import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from support.graphs import random_layout
from support.programs.train_program import assert_close, gradients, graphs_for, on_ranks

from mgg import layout
from mgg.backend import launch
from mgg.backend.host import CpuArrayMethods
from mgg.backend.offloaded_arrays import OutsideArrays
from mgg.errors import MachineError
from mgg.model import settings_of
from mgg.records import read_run
from mgg.train import Trainer
from mgg.train.activations import ARCS, MemoryLimits

FAKE = str(Path(__file__).parents[2] / "support" / "fake_gpu" / "run.py")
SETTINGS = {"hidden": 4, "heads": 4}


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    """A layout of one PE whose arcs take more than its rows."""
    return random_layout(tmp_path_factory.mktemp("dense"), nodes=1500, features=16, degree=100)


def test_offloaded_memory_is_reused_once_no_view_is_left():
    def program(world):
        outside = OutsideArrays(world)
        array = outside.empty((3, 4), np.float32)
        address, view = array.ctypes.data, array[1:].reshape(-1)[2:]
        del array
        other = outside.empty((3, 4), np.float32)
        assert other.ctypes.data != address
        del view
        assert outside.empty((2, 6), np.float32).ctypes.data == address
        assert outside.empty(0, np.int64).shape == (0,)
        np.testing.assert_array_equal(outside.upload(np.broadcast_to(np.float32(2), 5)), np.full(5, 2, np.float32))
        outside.close()

    launch("simulated", lambda: 1, program)


@pytest.mark.parametrize("pes", [1, 2])
@pytest.mark.parametrize("model", ["gat", pytest.param("gatv2", marks=pytest.mark.slow), "appnp", "rgcn", "gcn"])
def test_offloaded_arcs_give_the_same_bits(model, pes, layouts, monkeypatch, caplog):
    """Also of models whose arcs stay: they are typed, or there are no lists."""
    settings = {"appnp": {"arc_dropout": 0.5}}.get(model, {})
    same = {"folder": layouts(graphs_for(model)[-1], pes), "pes": pes, "model": model, "technique": "halo", "epoch": 5}
    expected = gradients("simulated", **same, settings=settings)
    monkeypatch.setattr(MemoryLimits, "least", lambda *_: 1)
    found = gradients("simulated", **same, settings=settings)
    for mine, theirs in zip(found, expected, strict=True):
        assert {name: array.tobytes() for name, array in mine.items()} == {
            name: array.tobytes() for name, array in theirs.items()
        }
    assert (f"fits with {ARCS} in mapped files" in caplog.text) == (model not in ("rgcn", "gcn"))


def test_training_with_mapped_arcs_stays_within_the_limit(dense):
    part = layout.load(dense, 0)

    def trained(cap):
        def epochs(world):
            trainer = Trainer(
                world, part, model="gat", technique="local", options={}, settings=settings_of("gat", SETTINGS), seed=0,
                memory_per_pe=cap,
            )  # fmt: skip
            losses = [trainer.epoch(epoch)[0] for epoch in (1, 2)]
            trainer.close()
            return trainer.need.total, trainer.activations, losses

        launch("simulated", lambda: 1, epochs)
        tracemalloc.start()
        found = launch("simulated", lambda: 1, epochs)[0]
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most, *found

    kept, need, modes, losses = trained(None)
    assert not modes
    cap = need // 3
    most, predicted, modes, found = trained(cap)
    assert modes[ARCS] == "host" and predicted <= cap
    assert most < 1.2 * cap and most < 0.5 * kept
    assert found == losses
    with pytest.raises(MachineError, match="of memory, with activations recomputed or held elsewhere"):
        trained(cap // 10)


def test_offloaded_arc_values_are_not_moved_twice(dense, monkeypatch):
    """Where activations leave the device, too."""
    part, moved, transfer = layout.load(dense, 0), [], CpuArrayMethods.transfer

    def noted(world, target, source):
        moved.append(source.nbytes)
        transfer(world, target, source)

    monkeypatch.setattr(CpuArrayMethods, "transfer", noted)

    def trained(cap):
        def program(world):
            trainer = Trainer(
                world, part, model="gat", technique="local", options={}, settings=settings_of("gat", SETTINGS), seed=0,
                fused=False, memory_per_pe=cap,
            )  # fmt: skip
            moved.clear()
            loss, _ = trainer.epoch(1)
            trainer.close()
            return trainer.need.total, trainer.activations, loss

        return launch("simulated", lambda: 1, program)[0]

    need, _, expected = trained(None)
    _, modes, found = trained(need // 28)
    assert modes == {"layer0": "host", ARCS: "host"} and found == expected
    assert moved and max(moved) < part.forward.local.arcs


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile the kernels for the host")
def test_offloaded_arcs_work_on_simulated_gpus(dense, tmp_path, monkeypatch):
    """Kernels address page-locked memory, without which the training fails."""
    each = {"technique": "halo", "model": "gat", "settings": SETTINGS, "epochs": 3, "folder": str(dense)}

    def ran(name, **way):
        calls = [{**each, **way, "out": str(tmp_path / name)}]
        return on_ranks("train", 1, tmp_path / "out.npz", calls, "nvshmem", [FAKE])[0], read_run(tmp_path / name)[0]

    expected, kept = ran("kept")
    cap = kept.memory_predicted // 2
    arrays, record = ran("outside", memory_per_pe=cap)
    assert record.activations[ARCS] == "host" and kept.activations == {}
    assert_close(arrays, expected)  # products sum features block by block
    monkeypatch.setenv("FAKE_LOCKABLE", "100000")
    with pytest.raises(AssertionError, match=r"\d{6} bytes of host memory cannot be page-locked"):
        ran("refused", memory_per_pe=cap)
