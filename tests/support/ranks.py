"""Start MPI ranks of this Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def mpiexec(
    ranks: int, arguments: list[str], *, timeout: float = 240, **environment: str
) -> subprocess.CompletedProcess:
    """Run ``python arguments`` on ``ranks`` MPI ranks; the mpiexec beside this Python comes first."""
    beside = Path(sys.executable).with_name("mpiexec")
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    assert launcher, "no mpiexec: pip install mpich"
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [launcher, "-n", str(ranks), sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)} | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )
