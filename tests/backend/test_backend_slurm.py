"""What `mgg doctor --slurm` reads out of Slurm's answers; tests/slurm asks a real one."""

import json

import pytest
from click.testing import CliRunner

from mgg.backend import slurm
from mgg.cli import cli
from mgg.errors import InputError, MachineError


def test_partitions_by_state_and_kind_of_node():
    text = "cpu|2|64|257000|(null)|1-00:00:00|idle\ngpu*|3|128|2000000+|gpu:h200:8|infinite|mixed\n"
    found = slurm.parse_partitions(text + "gpu*|1|128|1000000|gpu:a100:4|infinite|down*\n")
    assert found["cpu"].described() == "nodes: 2 idle; each 64 cores, 251 GiB, no GPUs; jobs of at most 1-00:00:00"
    assert found["gpu"].default and found["gpu"].states == {"mixed": 3, "down*": 1}
    assert list(found["gpu"].kinds) == ["128 cores, 1953 GiB, gpu:h200:8", "128 cores, 977 GiB, gpu:a100:4"]


@pytest.mark.parametrize(
    "text",
    [
        "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4",
        "srun: MPI types are...\nsrun: pmix\nsrun: pmi2\nsrun: openmpi\n",
        "MPI plugin types are: none pmix pmi2, pmix\n",
    ],
)
def test_flavours_worth_trying(text: str):
    assert slurm.parse_flavours(text) == ["pmix", "pmi2"]


def said(**values: object) -> str:
    return json.dumps(values) + "\n"


def trial(script: str) -> slurm.Trial:
    return slurm._try("srun", ["sh", "-c", script])


def test_ranks_of_one_world_work():
    nodes = said(node="a", seen=True) + said(node="b", seen=True)
    both = nodes + said(rank=0, size=2, sum=3) + said(rank=1, size=2, sum=3)
    found = trial(f"echo 'Lmod: loaded'; printf '%s' '{both}'")
    assert found == slurm.Trial("srun", True, "work on a, b", {"a": True, "b": True})
    assert not trial(f"printf '%s' '{both}'; exit 1").works
    wrong = both.replace('"sum": 3', '"sum": 2')
    assert not trial(f"printf '%s' '{wrong}'").works


def test_ranks_apart_are_told_from_ranks_that_fail():
    apart = (said(node="a", seen=True) + said(rank=0, size=1, sum=1)) * 2
    assert "two worlds of one rank" in trial(f"printf '%s' '{apart}'").said
    script = "echo 'srun: error: no PMI here' >&2; echo 'srun: error: a: task 0: Exited with exit code 1' >&2; exit 1"
    assert trial(script).said == "fail: srun: error: no PMI here"


def test_a_folder_that_one_node_does_not_see_is_named():
    nodes, _ = slurm.parse_ranks(said(node="b", seen=False) + said(node="a", seen=True))
    assert slurm._visibility(nodes) == "the same on a; not on b: run from a folder that all nodes share"


def test_a_machine_without_slurm(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="no Slurm here: sinfo is not on PATH"):
        slurm.report(tmp_path)
    assert isinstance(CliRunner().invoke(cli, ["doctor", "--partition", "gpu"]).exception, InputError)


def test_partitions_that_cannot_be_chosen():
    partitions = slurm.parse_partitions("gpu|1|8|1024|(null)|1:00:00|idle\n")
    assert slurm._choose(partitions, "gpu") == "gpu"
    with pytest.raises(InputError, match="--partition cpu: the cluster has gpu"):
        slurm._choose(partitions, "cpu")
    with pytest.raises(InputError, match="no default partition"):
        slurm._choose(partitions, None)


def test_what_ranks_say_is_told_apart_on_one_line():
    text = (
        said(node="a", seen=True).strip() + said(node="b", seen=True).strip() + "\n{ not ours }\n" + said(size=2, sum=1)
    )
    assert slurm.parse_ranks(text) == ({"a": True, "b": True}, [(2, 1)])
