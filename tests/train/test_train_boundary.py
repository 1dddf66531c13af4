"""Trainings that work with a random share of each PE's halo (BNS-GCN), beside a simulation of all PEs in NumPy."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.late import LateWorld
from support.ranks import mpiexec
from support.simulated_gcn import EPOCHS, GRAPHS, SEED, SETTINGS, losses_of
from support.stopped import stop_at
from support.train_program import run, tables
from test_train_stale import losses
from test_train_stale import simulated as late_losses

from mgg import layout
from mgg.aggregate import measure, oracle, parse_options, prepare
from mgg.aggregate.boundary import sampled
from mgg.aggregate.measure import Protocol, products
from mgg.backend import launch
from mgg.errors import CheckError, InputError
from mgg.kernel.random import STREAMS, uniform_at

FAKE = str(Path(__file__).parents[1] / "support" / "fake_gpu" / "run.py")
SHARE = 0.4


@cache
def dense(name):
    return GRAPHS[name]()[0].to_scipy(np.float64).toarray()


def weighted(name, bounds, epoch, share=SHARE, seed=SEED):
    """A with the weights that its arcs have in an epoch, and the pairs of a PE and a node that cross, bool [P, n]."""
    a = dense(name)
    pe = np.searchsorted(bounds, np.arange(len(a)), side="right") - 1
    pes, nodes = np.divmod(np.arange((len(bounds) - 1) * len(a)), len(a))
    drawn = (uniform_at(seed, epoch * STREAMS + STREAMS - 1, nodes, pes) < np.float32(share)).reshape(-1, len(a))
    needed = np.array([(a[pe == owner] != 0).any(axis=0) & (pe != owner) for owner in range(len(bounds) - 1)])
    return np.where(pe[:, None] == pe, a, a * drawn[pe] / share), drawn & needed


def trained(folder, pes, members=None, share=SHARE, **options):
    chosen = {"workgroup": members, "boundary": share}
    common = {"model": "gcn", "technique": "halo", "epochs": EPOCHS, "seed": SEED, "settings": SETTINGS}
    return run("simulated", folder, pes, **common | options, options=chosen)


def simulated(name, bounds):
    def product(epoch, place, back, rows):
        matrix, _ = weighted(name, bounds, epoch)
        return (matrix.T if back else matrix) @ rows

    return losses_of(name, product)


@pytest.mark.parametrize("direction", ["forward", "transpose"])
@pytest.mark.parametrize(("pes", "members", "dtype"), [(2, 1, "fp32"), (4, 2, "fp32"), (4, 4, "bf16")])
def test_products_and_bytes_are_those_of_the_sample(folders, pes, members, dtype, direction):
    """In every epoch, with work aside as late as it may be; a pass that is no training's has all rows again."""
    folder = folders("directed", pes)
    bounds, dim = layout.load(folder, 0).bounds, 3
    x = oracle.embeddings(np.arange(bounds[-1]), dim)

    def program(world):
        part, late = layout.load(folder, world.rank), LateWorld(world)
        plan = prepare("halo", late, part, direction, dim, {"workgroup": members, "boundary": SHARE}, dtype)
        found = []
        for epoch in (1, 2, None):
            plan.sample.begin(SEED, None if epoch is None else np.array([float(epoch)]))
            plan.write(dim, oracle.embeddings(part.node_ids, dim))
            before = world.counters.embeddings()
            found.append((plan(dim), world.counters.embeddings() - before))
        plan.close()
        return found

    found = launch("simulated", lambda: pes, program)
    for number, epoch in enumerate((1, 2)):
        matrix, crossing = weighted("directed", bounds, epoch)
        exact = (matrix if direction == "forward" else matrix.T) @ x
        result = np.concatenate([each[number][0] for each in found])
        np.testing.assert_allclose(result, exact, atol=5e-5 if dtype == "fp32" else 0.2)
        assert 0 < crossing.sum() < crossing.size
        element = 4 if dtype == "fp32" else 2
        assert sum(each[number][1] for each in found) == crossing.sum() * dim * element
    exact = (dense("directed") if direction == "forward" else dense("directed").T) @ x
    np.testing.assert_allclose(
        np.concatenate([each[2][0] for each in found]), exact, atol=5e-5 if dtype == "fp32" else 0.2
    )


def test_samples_are_right_in_the_mean(folders):
    part = layout.load(folders("directed", 2), 0)
    for direction in ("forward", "transpose"):
        remote = part.product(direction).remote
        weights = np.ones(remote.arcs) if remote.weights is None else remote.weights
        mean = np.mean([sampled(part, direction, SHARE, SEED, each).remote.weights for each in range(1000)], axis=0)
        # Six deviations of a weight that is 0 or a / p.
        assert (np.abs(mean - weights) <= 6 * np.abs(weights) * np.sqrt((1 / SHARE - 1) / 1000)).all()


def test_timings_are_of_one_sample_and_checked_against_it(folders, monkeypatch):
    folder = folders("directed", 4)

    def program(world):
        how = Protocol("transpose", 1, 1, check=True)
        return list(products(world, layout.load(folder, world.rank), "halo", [3], {"boundary": SHARE}, how))

    (record,) = launch("simulated", lambda: 4, program)[0]
    _, crossing = weighted("directed", layout.load(folder, 0).bounds, 1, seed=oracle.SEED)
    assert (record.options["boundary"], record.bytes_wire) == (SHARE, crossing.sum() * 3 * 4)
    assert record.error <= oracle.TOLERANCE["fp32"]
    monkeypatch.setattr(measure, "sampled", lambda part, direction, share, *given: sampled(part, direction, 1, *given))
    with pytest.raises(CheckError, match="differs from the float64 product"):
        launch("simulated", lambda: 4, program)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "pes", "members"), [("directed", 2, 1), ("directed", 4, 2), ("few nodes", 4, 4)])
def test_losses_are_those_of_the_simulation(folders, name, pes, members):
    folder = folders(name, pes)
    found = trained(folder, pes, members)
    np.testing.assert_allclose(losses(found), simulated(name, layout.load(folder, 0).bounds), rtol=2e-5)
    assert found[0].record.options == {
        "workgroup": members,
        "split": "rows",
        "stale": 0,
        "boundary": SHARE,
        "wire": None,
    }
    exact = losses(trained(folder, pes, members, share=1))
    assert max(np.abs(np.array(losses(found)) / exact - 1)) > 1e-3


@pytest.mark.slow
def test_a_resumed_run_has_the_same_bits_and_another_share_is_another_run(folders, tmp_path):
    options = {
        "model": "gcn", "technique": "halo", "epochs": 12, "seed": 2, "settings": SETTINGS | {"dropout": 0.5},
        "options": {"boundary": SHARE},
    }  # fmt: skip
    folder = folders("directed", 4)
    run("simulated", folder, 4, out=tmp_path / "whole", **options)
    stop_at(5, folder, 4, out=tmp_path / "run", **options)
    with pytest.raises(InputError, match=r"whose option boundary is 0\.4, this run has 0\.5"):
        run("simulated", folder, 4, out=tmp_path / "run", resume=True, **options | {"options": {"boundary": 0.5}})
    run("simulated", folder, 4, out=tmp_path / "run", resume=True, **options)
    assert tables(tmp_path / "run") == tables(tmp_path / "whole")


def test_mistakes_are_one_line(folders, caplog):
    with pytest.raises(InputError, match="option boundary: model gat fetches rows of other PEs"):
        run("simulated", folders("few nodes", 2), 2, model="gat", technique="halo", options={"boundary": 0.5}, epochs=1)
    for other in ({"stale": 1}, {"split": "cover"}):
        with pytest.raises(InputError, match=r"technique halo: option boundary: .* leave one out"):
            parse_options("halo", {"boundary": 0.5} | other)
    trained(folders("few nodes", 1), 1, epochs=1)
    assert "option boundary changes nothing: one PE has no rows of others" in caplog.text


ON_RANKS = """
import json, sys
from mgg import layout
from mgg.backend import launch
from mgg.train import train

backend, folder, epochs, chosen, settings = sys.argv[-5:]

def program(world):
    part, common = layout.load(folder, world.rank), {"epochs": int(epochs), "settings": json.loads(settings)}
    found = [
        train(world, part, model="gcn", technique="halo", seed=2, options=options, **common)
        for options in json.loads(chosen)
    ]
    if world.rank == 0:
        print(json.dumps([[epoch.loss for epoch in each.epochs] for each in found]), flush=True)

launch(backend, lambda: 4, program)
"""


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(("backend", "a_host", "stale", "boundary"), [
    ("mpi", None, (1, 2), 4), ("nvshmem", 2, (1, 2), 2), ("nvshmem", 4, (), 4),
])  # fmt: skip
def test_ranks_and_gpus(folders, backend, a_host, stale, boundary):
    """One start of the ranks for trainings with late rows in workgroups of ``stale`` PEs, and one with a sample."""
    folder = folders("directed", 4)
    start = [FAKE] if a_host else []
    hosts = {"FAKE_PES_A_HOST": str(a_host), "FAKE_GPUS": str(a_host)} if a_host else {}
    chosen = [{"workgroup": members, "stale": 1} for members in stale] + [{"workgroup": boundary, "boundary": SHARE}]
    arguments = [backend, str(folder), str(EPOCHS), json.dumps(chosen), json.dumps(SETTINGS)]
    done = mpiexec(4, [*start, "-c", ON_RANKS, *arguments], **hosts)
    assert done.returncode == 0, done.stderr
    bounds = layout.load(folder, 0).bounds
    expected = [late_losses("directed", bounds, members, late=True) for members in stale]
    np.testing.assert_allclose(json.loads(done.stdout), [*expected, simulated("directed", bounds)], rtol=2e-5)
