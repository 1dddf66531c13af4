"""What a training takes is predicted from shapes, and refused in one line where it does not fit."""

import tracemalloc

import numpy as np
import pytest
from support.graphs import make_layout, random_csr, typed_csr
from support.train_program import run

from mgg import layout
from mgg.backend import launch
from mgg.errors import NOT_ENOUGH_MEMORY, MachineError
from mgg.model import settings_of
from mgg.train import Trainer, memory

NODES = 8000


def folder_of(tmp_path, columns, density, pes=1, types=0):
    rng = np.random.default_rng(0)
    features = rng.random((NODES, columns), np.float32) * (rng.random((NODES, columns)) < density)
    data = {
        **({"features": features.astype(np.float32)} if columns else {}),
        "labels": rng.integers(0, 7, NODES).astype(np.int32),
        "splits": np.tile(np.arange(4, dtype=np.uint8), NODES // 4),
    }
    csr = typed_csr(NODES, 5 * NODES, types) if types else random_csr(NODES, 5 * NODES)
    return make_layout(tmp_path, csr, pes, **data)


@pytest.mark.parametrize(
    ("model", "columns", "density", "settings"),
    [
        ("gcn", 100, 1, {"hidden": 64}),
        ("gcn", 30, 1, {"hidden": 64, "dropout": 0.0}),
        ("gcn", 200, 0.05, {"hidden": 64}),
        ("gin", 100, 1, {"hidden": 64, "layers": 3}),
        ("gin", 16, 1, {"hidden": 64, "layers": 2}),
        ("sage", 100, 1, {"hidden": 64}),
        ("gat", 100, 1, {"hidden": 16, "heads": 4}),
        ("appnp", 100, 1, {"hidden": 64}),
        ("sgc", 100, 1, {}),
        ("rgcn", 50, 1, {}),
        ("rgcn", 50, 0.05, {}),
        ("rgcn", 50, 1, {"bases": 4}),
        ("rgcn", 400, 1, {"hidden": 4}),
        ("rgcn", 16, 1, {"hidden": 128}),
        ("rgcn", 0, 1, {"bases": 4}),
    ],
)
def test_the_prediction_is_near_the_peak(model, columns, density, settings, tmp_path):
    folder = folder_of(tmp_path, columns, density, types=20 * (model == "rgcn"))

    def epochs(world):
        trainer = Trainer(
            world, layout.load(folder, 0), model=model, technique="halo", options={},
            settings=settings_of(model, settings), seed=0,
        )  # fmt: skip
        for epoch in (1, 2):
            trainer.step(epoch)
            trainer.evaluate(epoch)
        trainer.close()
        return trainer.need.total

    def program(world):
        epochs(world)  # what is compiled and imported at the first use does not count
        tracemalloc.start()
        predicted = epochs(world)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return predicted, peak

    predicted, peak = launch("simulated", lambda: 1, program)[0]
    assert 0.8 < predicted / peak < 1.25


@pytest.mark.parametrize(("pes", "named"), [(1, "PE 0"), (2, "PEs 0, 1")])
def test_too_little_memory_is_said_before_it_is_taken(pes, named, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 2**20)
    # The first words have the workflow ask for more.
    message = rf"^{NOT_ENOUGH_MEMORY}: {named}: training needs about \d+ bytes of memory and .* host has 1048576 free "
    message += r".*activations \d+"
    with pytest.raises(MachineError, match=message):
        run("simulated", folder_of(tmp_path, 30, 1, pes), pes, model="gcn", technique="halo", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_is_free_is_the_least_of_host_and_container(tmp_path):
    proc, group = tmp_path / "meminfo", tmp_path / "group"
    proc.write_text("MemTotal:  9000 kB\nMemAvailable:  5000 kB\n")
    assert memory.available(proc, group) == 5000 * 1024
    group.mkdir()
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("900000\n")
    (group / "memory.stat").write_text("anon 5\nactive_file 100000\ninactive_file 200000\n")
    assert memory.available(proc, group) == 5000 * 1024
    (group / "memory.max").write_text("1000000\n")
    assert memory.available(proc, group) == 1_000_000 - 900_000 + 300_000
    assert memory.available(tmp_path / "nothing", tmp_path / "nothing") is None
