"""Launches on two streams: their order, and the graph that they become; on the stand-in for CuPy."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
FAKE = TESTS / "support" / "fake_gpu" / "run.py"
CODE = """
import cupy as cp
from mgg.kernel.fork import Fork, Streams
from support import device

told = []

def kernel(name):
    def launched(grid, block, arguments):
        stream = cp.cuda.get_current_stream()
        urgent = "urgent" if stream is streams.urgent else "stream"
        submitted.append(name)
        device.submit(lambda: told.append((name, urgent, *grid, *block, *arguments)))
    return launched, (1,), (2,), (3,)

def turn(fork):
    told.clear(), submitted.clear(), cp.cuda.launches.clear()
    fork.submit(streams)
    return [name for name, urgent, *_ in told], len(submitted), len(cp.cuda.launches)

streams, submitted = Streams(), []
assert streams.urgent.priority < 0
fork = Fork([kernel("pull")], [kernel("gate"), kernel("sum")], [kernel("combine")])
order = ["pull", "gate", "sum", "combine"]
with cp.cuda.Stream(non_blocking=True):
    # Step by step, then captured and launched, then launched alone.
    assert turn(fork) == (order, 4, 0)
    assert told == [(name, "urgent" if name == "pull" else "stream", 1, 2, 3) for name in order]
    assert turn(fork) == (order, 4, 1)
    assert turn(fork) == (order, 0, 1)
    # In a graph of somebody else its launches are part of that.
    stream = cp.cuda.get_current_stream()
    stream.begin_capture()
    assert turn(fork) == ([], 4, 0)
    graph = stream.end_capture()
    graph.launch()
    assert [name for name, *_ in told] == order
    # Without a branch aside there is nothing to put together.
    plain = Fork([], [kernel("sum")], [])
    assert [turn(plain) for _ in range(3)] == [(["sum"], 1, 0)] * 3
print("all is well")
"""


def test_forks_become_graphs():
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(FAKE), "-c", CODE],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "all is well\n", done.stderr
