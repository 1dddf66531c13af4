"""What the two ranks of ``mgg doctor --slurm`` run: ``python -m mgg.backend.machine.two_ranks FILE TEXT``."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path


def main(file: str, text: str) -> None:
    """Print two JSON lines: the node, the GPUs that this rank sees and whether the node has ``file`` with ``text``;
    then rank, size and a sum over MPI.

    The second line is missing where MPI does not start.
    """
    try:
        seen = Path(file).read_text(encoding="utf-8") == text
    except OSError:
        seen = False
    host = socket.gethostname().partition(".")[0]
    # Slurm's own name of the node, which one machine with several slurmd needs.
    node = os.environ.get("SLURMD_NODENAME") or host
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or os.environ.get("SLURM_STEP_GPUS", "")
    _say({"node": node, "host": host, "gpus": gpus, "seen": seen})
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    summed = world.allreduce(world.rank + 1)
    _say({"rank": world.rank, "size": world.size, "sum": summed})


def _say(values: dict[str, object]) -> None:
    # The end of the line in the same write: without a buffer print makes two, and the other rank's come between them.
    print(json.dumps(values) + "\n", end="", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
