"""Trainings whose rows cross between workgroups in few bits: what is drawn when, and the same bits every run."""

import numpy as np
import pytest
from support.graphs import make_layout
from support.stopped import stop_at
from support.train_graphs import directed
from support.train_program import run, tables

from mgg.errors import InputError
from mgg.kernel import cpu

SETTINGS = {"hidden": 8, "dropout": 0.5, "learning_rate": 0.05}
COMMON = {"model": "gcn", "technique": "halo", "seed": 2, "settings": SETTINGS}
SEED = 0x77697265


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    csr, data = directed()
    return make_layout(tmp_path_factory.mktemp("wire"), csr, 4, **data)


def losses(folder, epochs=5, **options):
    found = run("simulated", folder, 4, **COMMON, epochs=epochs, options={"workgroup": 1} | options)
    assert len({tuple(epoch.loss for epoch in each.epochs) for each in found}) == 1
    return [epoch.loss for epoch in found[0].epochs]


@pytest.mark.slow
def test_numbers_are_those_of_the_epoch_and_the_product(folder, monkeypatch):
    drawn, pack = set(), cpu.pack_rows

    def noting(source, rows, ids, draws, bits, out):
        drawn.add((draws.seed, int(draws.epoch[0]), draws.place, source.shape[1]))
        pack(source, rows, ids, draws, bits, out)

    monkeypatch.setattr(cpu, "pack_rows", noting)
    found = run("simulated", folder, 4, **COMMON, epochs=2, options={"workgroup": 1, "wire": "int8"})
    assert found[0].record.options["wire"] == "int8"
    classes = int(directed()[1]["labels"].max()) + 1
    # Forward places are even, the last layer's transposed product comes first; evaluations have no epoch.
    forward, back = [(0, 8), (2, classes)], [(1, classes), (3, 8)]
    trained = {(2 ^ SEED, epoch, place, columns) for epoch in (1, 2) for place, columns in (*forward, *back)}
    assert drawn == trained | {(2 ^ SEED, 0, 0, 8), (2 ^ SEED, 0, 0, classes)}


@pytest.mark.slow
def test_every_run_has_the_same_bits_near_to_those_of_fp32(folder):
    exact = np.array(losses(folder))
    off = []
    for wire in ("bf16", "int8", "int4", "int2"):
        found = losses(folder, wire=wire)
        assert found == losses(folder, wire=wire)
        off.append(np.abs(np.array(found) / exact - 1).max())
    assert 0 < off[0] < 1e-2 and off[1] < 2e-2 and off[2] < 0.2 and off[1] < off[3]


@pytest.mark.slow
@pytest.mark.parametrize("stale", [0, 1])
def test_a_resumed_run_has_the_same_bits(folder, tmp_path, stale):
    """With ``stale``, its checkpoint holds packed rows."""
    options = COMMON | {"epochs": 12, "options": {"workgroup": 2, "wire": "int4", "stale": stale}}
    run("simulated", folder, 4, out=tmp_path / "whole", **options)
    stop_at(4, folder, 4, out=tmp_path / "run", **options)
    run("simulated", folder, 4, out=tmp_path / "run", resume=True, **options)
    assert tables(tmp_path / "run") == tables(tmp_path / "whole")


def test_rows_that_models_fetch_are_refused(folder):
    with pytest.raises(InputError, match=r"option wire: model gat fetches rows of other PEs .* never packed"):
        run("simulated", folder, 4, model="gat", technique="halo", options={"wire": "int8"}, epochs=1)
