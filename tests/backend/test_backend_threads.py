"""``--threads``: the results of one thread, the number in records, and an error of one line if cores lack."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
from support.graphs import make_layout, random_csr

from mgg.backend.machine import cores
from mgg.errors import InputError
from mgg.records import AggregateRecord, read_lines, read_run


@pytest.fixture
def check_threads():
    """``check(threads, (host, cores), ...)``: the check for PEs that Slurm bound to these cores of their hosts."""

    def check(threads, *members):
        world = SimpleNamespace(gather=lambda _: [(host, frozenset(mask), "Slurm") for host, mask in members])
        cores.check_threads(world, threads, "a")

    return check


@pytest.mark.parametrize(
    ("threads", "members"),
    [
        (2, [("a", {0, 1})]),
        (2, [("a", {0, 1}), ("b", {0, 1})]),
        (2, [("a", {0, 1, 2, 3}), ("a", {0, 1, 2, 3})]),
        (2, [("a", {0, 1}), ("a", {2, 3})]),
    ],
)
def test_threads_up_to_the_cores_are_accepted(check_threads, threads, members):
    check_threads(threads, *members)


@pytest.mark.parametrize(
    ("threads", "members", "line"),
    [
        (3, [("a", {0, 1})], "--threads 3: the PE on a may use 2 cores: give 2 at most, or the job more"),
        (2, [("a", {0, 1, 2})] * 2, "--threads 2: 2 PEs on a may use 3 cores: give 1 at most, or the job more"),
        (2, [("b", {0, 1}), ("a", {0, 1}), ("a", {0, 1})], "--threads 2: 2 PEs on a may use 2 cores: give 1"),
        (
            2,
            [("a", {0, 1}), ("a", {2})],
            "--threads 2: PE 1 is bound to 1 core by Slurm: start ranks with 2 cores each"
            " (mpiexec --map-by slot:PE=2 or -bind-to core:2, srun --cpus-per-task=2)",
        ),
    ],
)
def test_too_few_cores_are_refused_in_one_line(check_threads, threads, members, line):
    with pytest.raises(InputError) as refused:
        check_threads(threads, *members)
    assert str(refused.value).startswith(line)
    assert refused.value.everywhere


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A layout for one PE, with labels."""
    csr, rng = random_csr(300, 4_000), np.random.default_rng(0)
    data = {
        "features": rng.standard_normal((300, 20)).astype(np.float32),
        "labels": rng.integers(0, 3, 300).astype(np.int32),
        "splits": (np.arange(300) % 3 + 1).astype(np.uint8),
    }
    return make_layout(tmp_path_factory.mktemp("threads"), csr, 1, **data)


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_two_threads_give_the_losses_of_one(model, folder, tmp_path, ends):
    train = ["train", folder, "--model", model, "--epochs", 3, "--technique", "local", "--backend", "simulated"]
    for threads in (1, 2):
        assert ends(*train, "--threads", threads, "--out", tmp_path / f"run-{threads}") == 0
    (one, losses), (two, same) = (read_run(tmp_path / f"run-{threads}")[:2] for threads in (1, 2))
    assert (one.machine.threads, two.machine.threads) == (1, 2)
    assert [epoch.loss for epoch in losses] == [epoch.loss for epoch in same]
    aggregate = ["aggregate", folder, "--technique", "local", "--dim", 16, "--backend", "simulated", "--launches", 1]
    assert ends(*aggregate, "--threads", 2, "--out", tmp_path / "timed.jsonl") == 0
    assert [record.machine.threads for record in read_lines(tmp_path / "timed.jsonl", AggregateRecord)] == [2]


COMMANDS = [["aggregate", "--technique", "local", "--dim", 4], ["train", "--model", "gcn"]]


@pytest.mark.parametrize("command", COMMANDS, ids=["aggregate", "train"])
def test_command_refuses_more_threads_than_cores(folder, tmp_path, ends, capsys, monkeypatch, command):
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: {0})
    code = ends(*command, folder, "--threads", 2, "--backend", "simulated", "--out", tmp_path / "out")
    assert code == InputError.exit_code
    assert "--threads 2: the PE on " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_threads_with_side_pyg_are_refused(folder, tmp_path, ends, capsys):
    pytest.importorskip("torch_geometric")
    code = ends("train", folder, "--model", "gcn", "--side", "pyg", "--threads", 2, "--out", tmp_path / "out")
    assert code == InputError.exit_code
    assert "--threads 2: side pyg has one thread per PE: leave it out" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS, ids=["aggregate", "train"])
def test_threads_on_gpus_are_refused(folder, tmp_path, ends, capsys, command):
    code = ends(*command, folder, "--threads", 2, "--backend", "nvshmem", "--out", tmp_path / "out")
    assert code == InputError.exit_code
    assert "--threads 2: PEs with GPUs compute products there" in capsys.readouterr().err
