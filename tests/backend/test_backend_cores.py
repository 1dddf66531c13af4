import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mgg.backend.machine import cores
from mgg.backend.machine.cores import ENOUGH, Found, said, share, withheld
from mgg.errors import InputError

ALL = frozenset(range(32))
PLENTY = frozenset(range(16))


def one(*numbers):
    return frozenset(numbers)


@pytest.mark.parametrize(
    ("masks", "allowed", "taken"),
    [
        # Equal parts of the free ones, by the cores and not by the ranks.
        ([one(0), one(16)], ALL, [one(*range(16)), one(*range(16, 32))]),
        ([one(20), one(3)], ALL, [one(*range(16, 32)), one(*range(16))]),
        # No core that is not allowed.
        ([one(0), one(1)], one(0, 1), [one(0), one(1)]),
        ([one(0), one(1)], one(0, 1, 6, 7), [one(0, 6), one(1, 7)]),
        ([one(0), one(1)], one(0, 1, 6), [one(0, 6), one(1, 6)]),
        # Somebody wanted both there; sockets; enough.
        ([one(0), one(0)], ALL, [one(0), one(0)]),
        ([ALL, ALL], ALL, [ALL, ALL]),
        ([PLENTY, ALL - PLENTY], ALL, [PLENTY, ALL - PLENTY]),
        ([one(*range(ENOUGH)), one(*range(ENOUGH, 2 * ENOUGH))], ALL, None),
    ],
)
def test_free_cores_are_shared_equally(masks, allowed, taken):
    assert [share(masks, allowed, place) for place in range(2)] == (taken or masks)


@pytest.mark.parametrize(
    ("allowed", "environment", "whole", "kept"),
    [
        (ALL, {}, 32, None),
        (ALL, {"SLURM_JOB_ID": "1", "SLURM_CPUS_ON_NODE": "32"}, 32, None),
        (PLENTY, {"SLURM_JOB_ID": "1", "SLURM_CPUS_ON_NODE": "16"}, 32, None),
        (ALL, {"SLURM_JOB_ID": "1", "SLURM_CPUS_ON_NODE": "2"}, 32, "Slurm has given this job 2 cores"),
        (ALL, {"SLURM_JOB_ID": "1", "SLURM_JOB_CPUS_PER_NODE": "32(x2),16"}, 32, "Slurm has given this job 16 cores"),
        (PLENTY, {"SLURM_JOB_ID": "1", "SLURM_JOB_CPUS_PER_NODE": "32(x2),16"}, 32, None),
        (ALL, {"SLURM_JOB_ID": "1"}, 32, "Slurm has given this job unknown cores"),
        (ALL, {"PBS_JOBID": "1"}, 32, "PBS does not confine this job"),
        (PLENTY, {"PBS_JOBID": "1"}, 32, None),
    ],
)
def test_cores_of_other_jobs_are_not_taken(allowed, environment, whole, kept):
    found = withheld(allowed, environment, whole)
    assert found is None if kept is None else found.startswith(kept)


def test_message_names_binding_and_taken_cores(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    masks = [one(0), one(1)]
    line = said(masks, ALL, share(masks, ALL, 0), None)
    assert line == "2 ranks on this host, each bound to 1 core by Open MPI; took 16 of the 32 allowed cores each"
    kept = said(masks, ALL, masks[0], "MGG_BIND=keep")
    assert kept.startswith("2 ranks on this host, each bound to 1 core by Open MPI, and left there: MGG_BIND=keep;")
    assert said([one(0), one(0)], ALL, one(0), None).startswith("2 ranks on this host share 1 core:")
    assert said([ALL, ALL], ALL, ALL, None) is None
    assert said([one(0, 1), one(0, 1)], one(0, 1), one(0, 1), None) is None  # a host of two cores


def test_invalid_mgg_bind_is_refused(monkeypatch):
    monkeypatch.setenv("MGG_BIND", "core")
    with pytest.raises(InputError, match="MGG_BIND=core: takes auto, keep, spread"):
        cores.find("here")


class Gathered:
    """The control of two ranks of a host, this one the first."""

    rank, size = 0, 2

    def __init__(self, other):
        self.other, self.calls = other, 0

    def gather(self, value):
        return [value, self.other if isinstance(value, Found) else value]


IN_A_PROCESS = """
import os, sys, threading
sys.path.insert(0, {tests!r})
from backend.test_backend_cores import Gathered
from mgg.backend.machine import cores
from mgg.backend.machine.cores import Found
ready, end, seen = threading.Event(), threading.Event(), []
def other():
    ready.set(); end.wait(); seen.append(sorted(os.sched_getaffinity(0)))
first, second = sorted(os.sched_getaffinity(0))[:2]
os.sched_setaffinity(0, [first])
thread = threading.Thread(target=other); thread.start(); ready.wait()
cores.launcher = lambda: os.getppid()
cores.ENOUGH = 99
every = frozenset([first, second])
cores._granted = lambda: every
# The other rank has a core that this host lacks.
cores.spread(Gathered(Found("here", frozenset([4095]), every | {{4095}}, None)), "here")
end.set(); thread.join()
print([sorted(os.sched_getaffinity(0)), seen[0], [first, second]])
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_all_threads_of_a_rank_are_rebound():
    code = IN_A_PROCESS.format(tests=str(Path(__file__).parents[1]))
    environment = {**os.environ}
    for name in ("SLURM_JOB_ID", "PBS_JOBID", "MGG_BIND"):
        environment.pop(name, None)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    mine, threads, every = json.loads(done.stdout)
    assert mine == threads == every
    assert "took" in done.stderr


def test_query_of_granted_cores_keeps_the_affinity():
    before = os.sched_getaffinity(0)
    assert cores._granted() >= before
    assert os.sched_getaffinity(0) == before
