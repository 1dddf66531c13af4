"""Cores that ranks take beside those that the launcher bound them to, and the message about it."""

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
HALF = frozenset(range(16))


def mask(*numbers):
    return frozenset(numbers)


@pytest.mark.parametrize(
    ("masks", "allowed", "taken"),
    [
        # Equal parts of the free cores, in the order of the cores that the ranks are bound to.
        ([mask(0), mask(16)], ALL, [mask(*range(16)), mask(*range(16, 32))]),
        ([mask(20), mask(3)], ALL, [mask(*range(16, 32)), mask(*range(16))]),
        # Only cores that are allowed.
        ([mask(0), mask(1)], mask(0, 1), [mask(0), mask(1)]),
        ([mask(0), mask(1)], mask(0, 1, 6, 7), [mask(0, 6), mask(1, 7)]),
        ([mask(0), mask(1)], mask(0, 1, 6), [mask(0, 6), mask(1, 6)]),
        # Not moved: bound to the same core on purpose, not bound, bound to a socket, bound to enough cores.
        ([mask(0), mask(0)], ALL, [mask(0), mask(0)]),
        ([ALL, ALL], ALL, [ALL, ALL]),
        ([HALF, ALL - HALF], ALL, [HALF, ALL - HALF]),
        ([mask(*range(ENOUGH)), mask(*range(ENOUGH, 2 * ENOUGH))], ALL, None),
    ],
)
def test_free_cores_are_shared_equally(masks, allowed, taken):
    assert [share(masks, allowed, place) for place in range(2)] == (taken or masks)


@pytest.mark.parametrize(
    ("allowed", "environment", "cores_of_host", "reason"),
    [
        (ALL, {}, 32, None),
        (ALL, {"SLURM_JOB_ID": "1", "SLURM_CPUS_ON_NODE": "32"}, 32, None),
        (HALF, {"SLURM_JOB_ID": "1", "SLURM_CPUS_ON_NODE": "16"}, 32, None),
        (ALL, {"SLURM_JOB_ID": "1", "SLURM_CPUS_ON_NODE": "2"}, 32, "Slurm has given this job 2 cores"),
        (ALL, {"SLURM_JOB_ID": "1", "SLURM_JOB_CPUS_PER_NODE": "32(x2),16"}, 32, "Slurm has given this job 16 cores"),
        (HALF, {"SLURM_JOB_ID": "1", "SLURM_JOB_CPUS_PER_NODE": "32(x2),16"}, 32, None),
        (ALL, {"SLURM_JOB_ID": "1"}, 32, "Slurm has given this job unknown cores"),
        (ALL, {"PBS_JOBID": "1"}, 32, "PBS does not confine this job"),
        (HALF, {"PBS_JOBID": "1"}, 32, None),
    ],
)
def test_cores_of_other_jobs_are_not_taken(allowed, environment, cores_of_host, reason):
    found = withheld(allowed, environment, cores_of_host)
    assert found is None if reason is None else found.startswith(reason)


def test_message_names_binding_and_taken_cores(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    masks = [mask(0), mask(1)]
    line = said(masks, ALL, share(masks, ALL, 0), None)
    assert line == "2 ranks on this host, each bound to 1 core by Open MPI; took 16 of the 32 allowed cores each"
    kept = said(masks, ALL, masks[0], "MGG_BIND=keep")
    assert kept.startswith("2 ranks on this host, each bound to 1 core by Open MPI, and left there: MGG_BIND=keep;")
    assert said([mask(0), mask(0)], ALL, mask(0), None).startswith("2 ranks on this host share 1 core:")
    assert said([ALL, ALL], ALL, ALL, None) is None
    assert said([mask(0, 1), mask(0, 1)], mask(0, 1), mask(0, 1), None) is None  # a host of two cores


def test_invalid_mgg_bind_is_refused(monkeypatch):
    monkeypatch.setenv("MGG_BIND", "core")
    with pytest.raises(InputError, match="MGG_BIND=core: takes auto, keep, spread"):
        cores.find("here")


class TwoRanks:
    """A World of two ranks on one host, of which this is the first; ``other`` is what the second gathers."""

    rank, size = 0, 2

    def __init__(self, other):
        self.other, self.calls = other, 0

    def gather(self, value):
        return [value, self.other if isinstance(value, Found) else value]


BOUND_PROCESS = """
import os, sys, threading
sys.path.insert(0, {tests!r})
from backend.test_backend_cores import TwoRanks
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
# The other rank is bound to a core that this host lacks.
cores.spread(TwoRanks(Found("here", frozenset([4095]), every | {{4095}}, None)), "here")
end.set(); thread.join()
print([sorted(os.sched_getaffinity(0)), seen[0], [first, second]])
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_all_threads_of_a_rank_are_rebound():
    code = BOUND_PROCESS.format(tests=str(Path(__file__).parents[1]))
    environment = {**os.environ}
    for name in ("SLURM_JOB_ID", "PBS_JOBID", "MGG_BIND"):
        environment.pop(name, None)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    main_thread, other_thread, both_cores = json.loads(done.stdout)
    assert main_thread == other_thread == both_cores
    assert "took" in done.stderr


def test_query_of_granted_cores_keeps_the_affinity():
    before = os.sched_getaffinity(0)
    assert cores._granted() >= before
    assert os.sched_getaffinity(0) == before
