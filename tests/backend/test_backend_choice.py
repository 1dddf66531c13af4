"""What ``--backend auto`` stands for, with any GPUs and hosts."""

import pytest
from support.ranks import mpiexec

from mgg import backend
from mgg.backend import choice

#: Asks on every rank; the last words are the hosts of the ranks and the GPUs that each of them sees.
ASK = """
import platform
from mgg import backend
from mgg.backend import choice
hosts, seen = {hosts!r}, {seen!r}
rank = backend.job_rank()
platform.node = lambda: hosts[rank]
choice.gpus = lambda: seen[rank].split()
print(backend.resolve("auto", lambda: len(hosts)))
"""


@pytest.fixture(autouse=True)
def without_a_launcher(monkeypatch):
    for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("gpus", "mpi", "of_one", "of_two"),
    [
        ([], True, "mpi", "simulated"),
        ([], False, "simulated", "simulated"),
        (["0"], True, "nvshmem", "simulated"),
        (["0", "1"], False, "nvshmem", "simulated"),
    ],
)
def test_without_a_launcher(gpus, mpi, of_one, of_two, monkeypatch):
    monkeypatch.setattr(choice, "gpus", lambda: gpus)
    monkeypatch.setattr(choice, "_has_mpi", lambda: mpi)
    assert backend.resolve("auto", lambda: 1) == of_one
    assert backend.resolve("auto", lambda: 2) == of_two
    assert backend.resolve("mpi", lambda: 2) == "mpi"


def test_ranks_without_mpi(monkeypatch):
    """Starting them says what is missing."""
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setattr(choice, "_has_mpi", lambda: False)
    assert backend.resolve("auto", lambda: 2) == "mpi"
    assert backend.resolve("simulated", lambda: 2) == "simulated"


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("hosts", "seen", "expected"),
    [
        ("aa", ["0 1", "0 1"], "nvshmem"),
        ("aa", ["0", "1"], "nvshmem"),
        ("aabb", ["0 1", "0 1", "0 1", "0 1"], "nvshmem"),
        ("abab", ["0", "0", "1", "1"], "nvshmem"),
        ("aa", ["0", "0"], "mpi"),
        ("aab", ["0 1", "0 1", ""], "mpi"),
        ("aabb", ["", "", "", ""], "mpi"),
    ],
)
def test_every_rank_of_every_host_needs_a_gpu(hosts, seen, expected):
    done = mpiexec(len(hosts), ["-c", ASK.format(hosts=hosts, seen=seen)])
    assert done.stdout.replace("\n", "") == expected * len(hosts)  # lines of several ranks may mix
    lacking = expected == "mpi" and any(seen)
    assert done.stderr.count("as ranks lack GPUs: " + ("b has 0 for 1" if "b" in hosts else "a has 1 for 2")) == lacking
