"""Memory and time of a job, from those of its processes (mgg/backend/machine/facts.py)."""

import subprocess
import sys

import numpy as np
import pytest

from mgg.backend.machine import facts
from mgg.backend.machine.facts import Process

A, B = ("a", ""), ("b", "")
MIB = 2**20


@pytest.mark.parametrize(
    ("processes", "memory", "cpu", "seconds"),
    [
        ([Process(A, 1, 10, 1.0, 5.0)], 10, 1.0, 5.0),
        ([Process(A, 1, 10, 1.0, 5.0), Process(A, 2, 20, 2.0, 4.0), Process(B, 1, 29, 4.0, 6.0)], 30, 7.0, 6.0),
        # Nodes of Slurm on one host.
        ([Process(("a", "node1"), 1, 10, 1.0, 5.0), Process(("a", "node2"), 2, 20, 2.0, 5.0)], 20, 3.0, 5.0),
        # Threads of one process report one after the other, in any order.
        ([Process(A, 1, 12, 1.1, 5.1), Process(A, 1, 10, 1.0, 5.0), Process(A, 2, 5, 1.0, 5.0)], 17, 2.1, 5.1),
    ],
    ids=["one", "two hosts", "two nodes of a host", "threads"],
)
def test_usage_is_memory_of_fullest_node_and_time_of_all(processes, memory, cpu, seconds):
    used = facts.used_by(processes)
    assert (used.memory, used.cpu_seconds, used.seconds) == (memory, pytest.approx(cpu), seconds)


def test_usage_is_unknown_if_one_process_cannot_tell(tmp_path, monkeypatch):
    assert facts.used_by([Process(A, 1, 10, 1.0, 5.0), None]) is None
    monkeypatch.setattr(facts, "_PROCESS", tmp_path)
    assert facts.this_process() is None
    (tmp_path / "status").write_text("VmRSS:\t 100 kB\n")
    (tmp_path / "stat").write_text(f"1 (a) b) S {' '.join(['0'] * 30)}")
    assert facts.this_process() is None
    (tmp_path / "status").write_text("VmPeak:\t 200 kB\nVmHWM:\t 100 kB\n")
    assert facts.this_process().memory == 100 * 1024


USAGE = "from mgg.backend.machine import facts; print(*facts.this_process()[2:])"


def test_usage_excludes_the_parent_process():
    array = np.ones(300 * MIB, np.uint8)
    parent = facts.this_process()
    assert parent.memory > array.nbytes and parent.cpu_seconds > 0 and parent.seconds > 0
    # Started by fork and exec, as by a launcher: getrusage would give the parent's peak to the child. With a preexec_fn
    # subprocess does not use vfork.
    used = subprocess.run([sys.executable, "-c", USAGE], capture_output=True, text=True, check=True, preexec_fn=int)
    memory, cpu, seconds = map(float, used.stdout.split())
    assert 10 * MIB < memory < 250 * MIB and cpu > 0 and 0 < seconds < parent.seconds
