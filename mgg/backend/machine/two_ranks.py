"""Program of the two ranks of ``mgg doctor --slurm``: ``python -m mgg.backend.machine.two_ranks FILE TEXT``."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path


def main(file: str, text: str) -> None:
    """Print two JSON lines about this rank.

    The first has the node, the GPUs that the rank sees and whether the node has ``file`` with the content ``text``. The
    second has rank, size and a sum over MPI; it is missing if MPI does not start.
    """
    try:
        seen = Path(file).read_text(encoding="utf-8") == text
    except OSError:
        seen = False
    host = socket.gethostname().partition(".")[0]
    # Slurm's name of the node differs from the host's if one machine runs several slurmd.
    node = os.environ.get("SLURMD_NODENAME") or host
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or os.environ.get("SLURM_STEP_GPUS", "")
    _say({"node": node, "host": host, "gpus": gpus, "seen": seen})
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    summed = world.allreduce(world.rank + 1)
    _say({"rank": world.rank, "size": world.size, "sum": summed})


def _say(values: dict[str, object]) -> None:
    # The newline is part of the string: unbuffered, print would write it separately, and the other rank in between.
    print(json.dumps(values) + "\n", end="", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
