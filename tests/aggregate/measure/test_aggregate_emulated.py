"""Commands with ``--emulate-network``: records say so, the cost model goes by it, mistakes are one line."""

import json
import logging

import numpy as np
import pytest
from support.graphs import random_csr, write_graph

from mgg import layout, partition
from mgg.aggregate import auto
from mgg.aggregate.predict import Question, changed, predict
from mgg.backend import simulated
from mgg.backend.emulated import emulating
from mgg.config import validate
from mgg.cost import machines
from mgg.cost.machines import H200
from mgg.errors import InputError
from mgg.network import Network
from mgg.records import AggregateRecord, read_lines, read_run

NETWORK = Network(20e9, 5e-6)
TOLD = "emulated 20 GB/s, 5 us"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A graph with labels, and a layout for 4 PEs in workgroups of 2."""
    made = tmp_path_factory.mktemp("emulated")
    csr = random_csr(60, 400)
    rng = np.random.default_rng(0)
    split = rng.permutation(np.arange(60) % 3 + 1).astype(np.uint8)
    features, labels = rng.standard_normal((60, 4)).astype(np.float32), rng.integers(0, 3, 60).astype(np.int32)
    write_graph(made / "graph", csr, name="test", source={}, features=features, labels=labels, splits=split)
    for members in (2, 4):
        partition.build(
            made / "graph", made / f"split-{members}", pes=4, scheme="equal_nodes", workgroup=members, dim=4
        )
        layout.build(made / "graph", made / f"split-{members}", made / f"layout-{members}")
    return made


@pytest.mark.slow
def test_records_name_the_emulated_network(folder, tmp_path, ends):
    """The graph of a run is trained, and taken up again, with the network that it began with."""
    common = ["--backend", "simulated", "--emulate-network", "20GB/s,5us", "--out"]
    timed = ["aggregate", folder / "layout-2", "--technique", "halo,ring", "--dim", 4, "--iterations", 1]
    assert ends(*timed, "--launches", 1, *common, tmp_path / "held.jsonl") == 0
    assert {each.emulated for each in read_lines(tmp_path / "held.jsonl", AggregateRecord)} == {TOLD}
    train = ["train", folder / "layout-2", "--model", "gcn", "--epochs", 2, "--backend", "simulated", "--out"]
    assert ends(*train, tmp_path / "plain") == ends(*train[:-3], *common, tmp_path / "held") == 0
    plain, held = (read_run(tmp_path / name) for name in ("plain", "held"))
    assert (plain[0].emulated, held[0].emulated) == (None, TOLD)
    assert [each.loss for each in plain[1]] == [each.loss for each in held[1]]
    assert ends(*train, tmp_path / "held", "--resume") == 2


@pytest.mark.parametrize(
    ("members", "network", "said"),
    [
        (4, "20GB/s,5us", "--emulate-network: the 4 PEs of this layout are one workgroup"),
        (2, "20GB,5us", "'20GB,5us' is no bandwidth"),
    ],
)
def test_invalid_networks_are_one_line(folder, tmp_path, ends, capfd, members, network, said):
    for command in (["aggregate", "--technique", "halo", "--dim", 4], ["train", "--model", "gcn"]):
        chosen = ["--backend", "simulated", "--emulate-network", network, "--out", tmp_path / "out"]
        assert ends(command[0], folder / f"layout-{members}", *command[1:], *chosen) == 2
        (line,) = capfd.readouterr().err.strip().split("\n")
        assert said in line and not (tmp_path / "out").exists()


def test_emulated_products_refuse_stale_rows(folder, tmp_path, ends, capfd):
    chosen = ["--technique", "halo", "--set", "stale=1", "--dim", 4, "--backend", "simulated"]
    assert ends("aggregate", folder / "layout-2", *chosen, "--out", tmp_path / "out") == 2
    assert "option stale is of trainings: products have no epochs" in capfd.readouterr().err


def test_cost_model_uses_the_emulated_network(folder, monkeypatch):
    """A network slower than all else makes the transfers of every technique that crosses it as much longer."""

    known = H200.model_copy(update={"gpu": False, "rates": H200.rates | {"finish": H200.rates["rows"]}})

    def measured(world, refresh=False):
        assert type(world) is simulated.SimulatedWorld  # nothing of the emulated network is measured or kept
        return known, None

    def program(world):
        part = layout.load(folder / "layout-2", world.rank)
        plain = auto.forecast(world, part, "forward")
        ways = [auto.forecast(emulating(world, each, 2), part, "forward") for each in (NETWORK, Network(1e3, 0.25))]
        return plain, *ways

    monkeypatch.setattr(machines, "found_or_measured", measured)
    plain, fast, slow = simulated.run(4, program)[0]
    assert plain.machine == known
    assert fast.machine.links.links.keys() - plain.machine.links.links.keys() == {TOLD}
    link = fast.machine.links[fast.machine.links.network]
    assert (link.bandwidth, link.latency, link.message) == (20e9, 5e-6, 0)
    # The most that crosses to a PE of its workgroup's rows, in one message; and two barriers of one round.
    crossing = 0.25 + max(slow.split.fused_rows_a_pe) * 4 * 16 / 1e3
    assert slow.seconds("halo", 16) == pytest.approx(crossing + 2 * 0.25, rel=0.02)
    assert slow.seconds("ring", 16) > slow.seconds("halo", 16) > 1000 * fast.seconds("halo", 16)


def test_predictions_report_when_nothing_crosses_the_network(folder, caplog):
    caplog.set_level(logging.WARNING)
    for members, times in ((2, 0), (4, 1)):
        predict([folder / f"layout-{members}"], changed(H200, {}, None, NETWORK), Question(["halo"], [16]))
        assert caplog.text.count("P=4: all PEs are one workgroup, so that nothing crosses the emulated") == times


def test_predictions_name_the_emulated_network(folder, tmp_path, ends):
    here = changed(H200, {}, None, NETWORK)
    (held,) = predict([folder / "layout-2"], here, Question(["halo"], [16]))
    assert held.network == TOLD and held.links[TOLD] == {"latency": 5e-6, "bandwidth": 20e9, "message": 0}
    with pytest.raises(InputError, match="--network infiniband-hdr: --emulate-network also sets"):
        changed(H200, {}, "infiniband-hdr", NETWORK)
    out = tmp_path / "said.jsonl"
    assert ends("predict", folder / "layout-2", "--dim", 16, "--emulate-network", "20GB/s,5us", "--out", out) == 0
    assert {json.loads(line)["network"] for line in out.read_text().splitlines()} == {TOLD}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"aggregate": {"emulate_network": "20GB/s"}}, "aggregate.emulate_network"),
        ({"aggregate": {"emulate_network": "20GB/s,5us"}}, "2 PEs are one workgroup of partition.workgroup"),
        ({"train": {"emulate_network": "20GB/s,5us"}}, "train.emulate_network: 2 PEs are one workgroup"),
        ({"predict": {"emulate_network": "1GB/s,5us", "network": "infiniband-hdr"}}, "both say what joins workgroups"),
    ],
)
def test_invalid_networks_in_a_config_are_refused(values, said):
    with pytest.raises(InputError) as refused:
        validate(values)
    assert said in str(refused.value)
    validate({"aggregate": {"emulate_network": "20GB/s,5us"}, "partition": {"workgroup": 1}})


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.ERROR)
