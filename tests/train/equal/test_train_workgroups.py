"""Trainings whose rows of other workgroups are an epoch late (PipeGCN), packed, or a random share (BNS-GCN), beside a
simulation of all PEs in NumPy."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.devices.late import LateWorld
from support.graphs.train_graphs import directed
from support.models.simulated_gcn import EPOCHS, GRAPHS, SEED, SETTINGS, losses_of
from support.programs.train_program import checkpoint_files, on_ranks, run, tables
from support.ranks.stopped import stop_at

from mgg import layout
from mgg.aggregate import measure, oracle, parse_options, prepare
from mgg.aggregate.boundary_sampling import sampled
from mgg.aggregate.measure import TimingProtocol, products
from mgg.backend import launch
from mgg.errors import CheckError, InputError
from mgg.kernel import cpu
from mgg.kernel.random import STREAMS, uniform_at
from mgg.train import train

FAKE = str(Path(__file__).parents[2] / "support" / "fake_gpu" / "run.py")
SHARE = 0.4
COMMON = {"model": "gcn", "technique": "halo", "epochs": EPOCHS, "seed": SEED, "settings": SETTINGS}


def trained(folder, pes, options, **changes):
    return run("simulated", folder, pes, **COMMON | changes, options=options)


def simulated(name, bounds, members, late):
    """Losses; far rows are those of an epoch ago if ``late``."""
    a = GRAPHS[name]()[0].to_scipy(np.float64).toarray()
    group = (np.searchsorted(bounds, np.arange(len(a)), side="right") - 1) // members
    near, before = group[:, None] == group[None, :], {}

    def product(epoch, place, back, rows):
        matrix = a.T if back else a
        older = before.get(place, rows) if late else rows
        before[place] = rows
        return (matrix * near) @ rows + (matrix * ~near) @ older

    return losses_of(name, product)


def losses(results):
    assert len({tuple(epoch.loss for epoch in each.epochs) for each in results}) == 1
    return [epoch.loss for epoch in results[0].epochs]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "members", "change"),
    [
        ("directed", 1, {"stale": 1}), ("directed", 2, {"stale": 1}), ("few nodes", 1, {"stale": 1}),
        ("directed", 2, {"boundary": SHARE}), ("few nodes", 4, {"boundary": SHARE}),
    ],
)  # fmt: skip
def test_stale_losses_match_a_simulation(folders, name, members, change):
    folder = folders(name, 4)
    bounds = layout.load(folder, 0).bounds
    exact = simulated(name, bounds, members, late=False)
    expected = simulated(name, bounds, members, late=True) if "stale" in change else simulated_samples(name, bounds)
    assert max(np.abs(np.array(expected) / exact - 1)) > 1e-3
    found = trained(folder, 4, {"workgroup": members, **change})
    np.testing.assert_allclose(losses(found), expected, rtol=2e-5)
    options = {"workgroup": members, "split": "rows", "stale": 0, "boundary": 1.0, "wire": None}
    assert found[0].record.options == options | change
    np.testing.assert_allclose(losses(trained(folder, 4, {"workgroup": members})), exact, rtol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"workgroup": 2, "stale": 1}, {"workgroup": 2, "stale": 1, "wire": "int4"}, {"boundary": SHARE}]
)
def test_resumed_stale_run_has_the_same_bits(options, folders, tmp_path):
    """Its checkpoint holds what other workgroups sent in the last epoch."""
    given = COMMON | {"epochs": 12, "settings": SETTINGS | {"dropout": 0.5}, "options": options}
    run("simulated", folders("directed", 4), 4, out=tmp_path / "whole", **given)
    stop_at(5, folders("directed", 4), 4, out=tmp_path / "run", **given)
    assert len(checkpoint_files(tmp_path / "run")) == 1
    run("simulated", folders("directed", 4), 4, out=tmp_path / "run", resume=True, **given)
    assert tables(tmp_path / "run") == tables(tmp_path / "whole")


@pytest.mark.slow
def test_stale_rows_may_arrive_in_the_next_epoch(folders):
    """Nothing that is sent leaves before its PE waits for it, when inputs and buffers have had other contents."""
    folder = folders("directed", 4)

    def program(world):
        late, part = LateWorld(world), layout.load(folder, world.rank)
        return train(late, part, **COMMON, options={"workgroup": 2, "stale": 1}), late.pending

    found = launch("simulated", lambda: 4, program)
    assert [pending for _, pending in found] == [0] * 4
    expected = simulated("directed", layout.load(folder, 0).bounds, 2, late=True)
    np.testing.assert_allclose(losses([each for each, _ in found]), expected, rtol=2e-5)


@pytest.mark.slow
def test_stale_option_with_one_workgroup_is_exact_and_reported(folders, caplog):
    for pes, members in ((1, 1), (2, 2)):
        folder = folders("directed", pes)
        caplog.clear()
        late, exact = (trained(folder, pes, {"workgroup": members, "stale": stale}) for stale in (1, 0))
        assert losses(late) == losses(exact)
        warnings = [each.getMessage() for each in caplog.records if "stale" in each.getMessage()]
        assert warnings == ["technique halo: option stale changes nothing: all PEs are one workgroup"]


WIRE_SEED = 0x77697265


@pytest.mark.slow
def test_stochastic_rounding_depends_on_epoch_and_product(folders, monkeypatch):
    drawn, pack = set(), cpu.pack_rows

    def noting(source, rows, ids, draws, bits, out):
        drawn.add((draws.seed, int(draws.epoch[0]), draws.place, source.shape[1]))
        pack(source, rows, ids, draws, bits, out)

    monkeypatch.setattr(cpu, "pack_rows", noting)
    found = trained(folders("directed", 4), 4, {"workgroup": 1, "wire": "int8"}, epochs=2)
    assert found[0].record.options["wire"] == "int8"
    classes = int(directed()[1]["labels"].max()) + 1
    # Forward places are even, the last layer's transposed product comes first; evaluations have no epoch.
    forward, back = [(0, 8), (2, classes)], [(1, classes), (3, 8)]
    training = {(2 ^ WIRE_SEED, epoch, place, columns) for epoch in (1, 2) for place, columns in (*forward, *back)}
    assert drawn == training | {(2 ^ WIRE_SEED, 0, 0, 8), (2 ^ WIRE_SEED, 0, 0, classes)}


@pytest.mark.slow
def test_quantized_runs_repeat_and_stay_close_to_fp32(folders):
    def curve(wire):
        options, settings = {"workgroup": 1, "wire": wire}, SETTINGS | {"dropout": 0.5}
        return losses(trained(folders("directed", 4), 4, options, settings=settings, epochs=5))

    exact, found = np.array(curve(None)), {wire: curve(wire) for wire in ("bf16", "int8", "int4", "int2")}
    assert found["int4"] == curve("int4")
    off = [np.abs(np.array(each) / exact - 1).max() for each in found.values()]
    assert 0 < off[0] < 1e-2 and off[1] < 2e-2 and off[2] < 0.2 and off[1] < off[3]


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


def simulated_samples(name, bounds):
    def product(epoch, place, back, rows):
        matrix, _ = weighted(name, bounds, epoch)
        return (matrix.T if back else matrix) @ rows

    return losses_of(name, product)


@pytest.mark.parametrize(
    ("pes", "members", "dtype", "direction"),
    [(2, 1, "fp32", "forward"), (4, 2, "fp32", "transpose"), (4, 4, "bf16", "forward")],
)
def test_boundary_products_and_bytes_match_the_sample(folders, pes, members, dtype, direction):
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
    element, off = (4, 5e-5) if dtype == "fp32" else (2, 0.2)
    for number, epoch in enumerate((1, 2, None)):
        matrix, crossing = (dense("directed"), None) if epoch is None else weighted("directed", bounds, epoch)
        result = np.concatenate([each[number][0] for each in found])
        np.testing.assert_allclose(result, (matrix if direction == "forward" else matrix.T) @ x, atol=off)
        if epoch is not None:
            assert 0 < crossing.sum() < crossing.size
            assert sum(each[number][1] for each in found) == crossing.sum() * dim * element


def test_boundary_samples_are_unbiased(folders):
    part = layout.load(folders("directed", 2), 0)
    for direction in ("forward", "transpose"):
        remote = part.product(direction).remote
        weights = np.ones(remote.arcs) if remote.weights is None else remote.weights
        mean = np.mean([sampled(part, direction, SHARE, SEED, each).remote.weights for each in range(1000)], axis=0)
        # Six deviations of a weight that is 0 or a / p.
        assert (np.abs(mean - weights) <= 6 * np.abs(weights) * np.sqrt((1 / SHARE - 1) / 1000)).all()


def test_timings_check_one_boundary_sample(folders, monkeypatch):
    folder = folders("directed", 4)

    def program(world):
        how = TimingProtocol("transpose", 1, 1, check=True)
        return list(products(world, layout.load(folder, world.rank), "halo", [3], {"boundary": SHARE}, how))

    (record,) = launch("simulated", lambda: 4, program)[0]
    _, crossing = weighted("directed", layout.load(folder, 0).bounds, 1, seed=oracle.SEED)
    assert (record.options["boundary"], record.bytes_wire) == (SHARE, crossing.sum() * 3 * 4)
    assert record.error <= oracle.TOLERANCE["fp32"]
    monkeypatch.setattr(measure, "sampled", lambda part, direction, share, *given: sampled(part, direction, 1, *given))
    with pytest.raises(CheckError, match="differs from the float64 product"):
        launch("simulated", lambda: 4, program)


def test_invalid_workgroup_options_are_refused_in_one_line(folders, caplog):
    for options, how in (({"boundary": 0.5}, "left out"), ({"stale": 1}, "late"), ({"wire": "int8"}, "packed")):
        said = rf"option {next(iter(options))}: model gat fetches rows of other PEs .* never {how}"
        with pytest.raises(InputError, match=said):
            run("simulated", folders("few nodes", 2), 2, model="gat", technique="halo", options=options, epochs=1)
    for other in ({"stale": 1}, {"split": "cover"}):
        with pytest.raises(InputError, match=r"technique halo: option boundary: .* leave one out"):
            parse_options("halo", {"boundary": 0.5} | other)
    trained(folders("few nodes", 1), 1, {"boundary": SHARE}, epochs=1)
    assert "option boundary changes nothing: one PE has no rows of others" in caplog.text


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("backend", "a_host", "stale", "boundary"), [("mpi", None, (2,), 4), ("nvshmem", 2, (1, 2), 2)]
)
def test_stale_and_sampled_trainings_run_on_ranks_and_simulated_gpus(
    folders, backend, a_host, stale, boundary, tmp_path, monkeypatch
):
    """One start of the ranks for trainings with late rows in workgroups of ``stale`` PEs, and one with a sample."""
    folder, before = folders("directed", 4), [FAKE] if a_host else []
    for name in ("FAKE_PES_A_HOST", "FAKE_GPUS") if a_host else ():
        monkeypatch.setenv(name, str(a_host))
    chosen = [{"workgroup": members, "stale": 1} for members in stale] + [{"workgroup": boundary, "boundary": SHARE}]
    calls = [{**COMMON, "folder": str(folder), "options": options} for options in chosen]
    found = [each["curve"][:, 1] for each in on_ranks("train", 4, tmp_path / "out.npz", calls, backend, before)]
    bounds = layout.load(folder, 0).bounds
    expected = [simulated("directed", bounds, members, late=True) for members in stale]
    np.testing.assert_allclose(found, [*expected, simulated_samples("directed", bounds)], rtol=2e-5)
