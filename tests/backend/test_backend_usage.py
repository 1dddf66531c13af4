"""mgg/backend/machine/facts.py: what a job has used, from what its processes say."""

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
        # Threads ask one after the other, in any order.
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


TOLD = "from mgg.backend.machine import facts; print(*facts.this_process()[2:])"


def test_usage_excludes_the_parent_process():
    held = np.ones(300 * MIB, np.uint8)
    mine = facts.this_process()
    assert mine.memory > held.nbytes and mine.cpu_seconds > 0 and mine.seconds > 0
    # Started by fork and exec, as from a launcher: they pass on what getrusage calls the peak (an idle function keeps
    # subprocess from vfork).
    used = subprocess.run([sys.executable, "-c", TOLD], capture_output=True, text=True, check=True, preexec_fn=int)
    memory, cpu, seconds = map(float, used.stdout.split())
    assert 10 * MIB < memory < 250 * MIB and cpu > 0 and 0 < seconds < mine.seconds
