"""The backend that ``--backend auto`` picks, by GPUs and hosts."""

import json

import pytest
from support.ranks import mpiexec
from support.ranks.ready import ready

from mgg import backend
from mgg.backend import choice
from mgg.errors import MachineError

#: Hosts of four ranks, the GPUs that each rank sees, the backend that all of them pick.
HOSTS = [
    ("aaaa", ["0 1 2 3"] * 4, "nvshmem"),
    ("aaaa", ["0", "1", "2", "3"], "nvshmem"),
    ("aabb", ["0 1"] * 4, "nvshmem"),
    ("abab", ["0", "0", "1", "1"], "nvshmem"),
    ("aaaa", ["0"] * 4, "mpi"),
    ("aaab", ["0 1 2"] * 3 + [""], "mpi"),
    ("aabb", [""] * 4, "mpi"),
]
CHOOSE = f"""
import json, platform, sys
from mgg import backend
from mgg.backend import choice
from mgg.errors import MachineError
rank = backend.job_rank()
def choose(hosts, seen):
    platform.node, choice.gpus = lambda: hosts[rank], lambda: seen[rank].split()
    return backend.resolve("auto", lambda: 4)
found = [choose(hosts, seen) for hosts, seen, _ in {HOSTS}]
choice.held_gpus = lambda: (4, 4, 1, 1)[rank]
try:
    choose("aabb", [""] * 4)
except MachineError as error:
    found.append(str(error).split(",")[0])
sys.stdout.write(json.dumps(found) + "\\n")
"""
#: Variables by which Slurm tells a job its GPUs of a host.
GRANTED_GPUS = ("SLURM_GPUS_ON_NODE", "SLURM_STEP_GPUS")


@pytest.fixture(autouse=True)
def no_launcher_variables(monkeypatch):
    for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "SLURM_STEP_NUM_TASKS", *GRANTED_GPUS):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("gpus", "mpi", "for_one_pe", "for_two_pes"),
    [
        ([], True, "mpi", "simulated"),
        ([], False, "simulated", "simulated"),
        (["0"], True, "nvshmem", "simulated"),
        (["0", "1"], False, "nvshmem", "simulated"),
    ],
)
def test_choice_without_launcher(gpus, mpi, for_one_pe, for_two_pes, monkeypatch):
    monkeypatch.setattr(choice, "gpus", lambda: gpus)
    monkeypatch.setattr(choice, "_has_mpi", lambda: mpi)
    assert backend.resolve("auto", lambda: 1) == for_one_pe
    assert backend.resolve("auto", lambda: 2) == for_two_pes
    assert backend.resolve("mpi", lambda: 2) == "mpi"


def test_ranks_without_mpi4py_still_choose_mpi(monkeypatch):
    """The start of that backend reports what is missing."""
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setattr(choice, "_has_mpi", lambda: False)
    assert backend.resolve("auto", lambda: 2) == "mpi"
    assert backend.resolve("simulated", lambda: 2) == "simulated"


@pytest.mark.slow
@pytest.mark.mpi
def test_auto_takes_mpi_unless_every_rank_has_a_gpu():
    """CPU ranks are refused if Slurm granted the job GPUs, counted over all hosts, once per host."""
    done = mpiexec(4, ["-c", CHOOSE], under=ready(gpus=False))
    assert done.returncode == 0, done.stderr
    refused = "backend auto: Slurm has given this job 5 GPUs"
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[each for *_, each in HOSTS] + [refused]] * 4
    assert done.stderr.count("as ranks lack GPUs: ") == 2
    assert done.stderr.count("a has 1 for 4") == done.stderr.count("b has 0 for 1") == 1


@pytest.mark.parametrize(
    ("variables", "granted"),
    [
        ({"SLURM_GPUS_ON_NODE": "2"}, 2),
        ({"SLURM_STEP_GPUS": "0,3,5"}, 3),
        ({"SLURM_GPUS_ON_NODE": "0", "SLURM_STEP_GPUS": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_ID": "7"}, 0),
    ],
)
def test_auto_refuses_cpu_if_slurm_granted_gpus(variables, granted, monkeypatch):
    """GPUs that the job sees without having requested them do not count."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(choice.importlib.util, "find_spec", lambda name: None)
    assert backend.resolve("mpi", lambda: 1) == "mpi"
    if not granted:
        assert backend.resolve("auto", lambda: 1) == "mpi"
        return
    with pytest.raises(
        MachineError, match=rf"this job {granted} GPUs, .*: CuPy is not installed: pip install 'mgg\[gpu\]'"
    ):
        backend.resolve("auto", lambda: 1)
    monkeypatch.setattr(choice, "gpus", lambda: ["0"])
    assert backend.resolve("auto", lambda: 1) == "nvshmem"
