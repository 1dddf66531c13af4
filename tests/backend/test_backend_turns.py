"""PEs as threads work one at a time, as compute-sanitizer needs them to."""

import subprocess
import sys

from support.ranks import changed_environment

PROGRAM = """
import time
from mgg.backend import simulated
from support.ranks.turns import Turns

working, most, idle = [], [], []
turns = Turns(lambda: idle.append(len(working)))

def work():
    working.append(1)
    most.append(len(working))
    time.sleep(0.01)
    working.pop()

def program(world):
    with turns:
        for _ in range(3):
            work()
            world.barrier()
            work()
            world.signal((world.rank + 1) % 3)
            world.wait_signal((world.rank + 2) % 3)
            work()
            world.gather(world.rank)
    world.barrier()

simulated.run(3, program)
print(len(most), max(most), max(idle))
"""


def test_one_pe_works_at_a_time():
    command, environment = [sys.executable, "-c", PROGRAM], changed_environment({})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "27 1 0\n", done.stderr
