"""The logs of a training's attempts (``fault_program.py``), and the work that a fault cost."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple


class Attempt(NamedTuple):
    """An attempt of a training: epoch -> when it ``began``, and when a checkpoint after it was ``asked`` for."""

    began: dict[int, float]
    asked: dict[int, float]


def read_attempts(log: Path) -> list[Attempt]:
    """The attempts of a training in order."""
    found: list[Attempt] = []
    for line in log.read_text().splitlines():
        kind, epoch, when = line.split()
        if kind == "start":
            found.append(Attempt({}, {}))
        else:
            (found[-1].began if kind == "epoch" else found[-1].asked)[int(epoch)] = float(when)
    return found


def newest_checkpoint(out: Path) -> int:
    """The epoch of the newest checkpoint of the training of ``out``; 0 if there is none."""
    files = out.with_name(f"{out.name}.checkpoint").glob("*.safetensors")
    return max((int(file.stem.removeprefix("epoch-")) for file in files), default=0)


def work_lost(log: Path, newest: int, interval: float) -> str:
    """The work that the last attempt repeated; asserts that it is at most ``interval`` seconds and one epoch.

    The attempt before it had a checkpoint of epoch ``newest``; the last one must have begun with the next epoch.
    """
    *earlier, last = read_attempts(log)
    first = earlier[-1] if earlier else Attempt({}, {})
    assert min(last.began) == newest + 1, "the last attempt did not begin after the newest checkpoint"
    again = [when for epoch, when in first.began.items() if epoch > newest]
    if not again:
        return "nothing"
    # The last requested checkpoint is on the disk, or it was being written and the one before it is.
    assert newest in [0, *first.asked][-2:]
    unwritten = [when for epoch, when in first.asked.items() if epoch > newest]
    # A checkpoint is put off by the time of the epoch before, and the next epoch may take longer.
    longest = max((after - before for before, after in pairwise(again)), default=0)
    assert min([again[-1], *unwritten]) - again[0] <= interval + longest
    return f"{len(again)} epochs, {again[-1] - again[0]:.2f} s"
