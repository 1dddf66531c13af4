"""What the attempts of a training noted, see ``fault_program.py``, and what of the first one a fault cost."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple


class Attempt(NamedTuple):
    """When an attempt of a training began its epochs, and when it asked for a checkpoint after them."""

    began: dict[int, float]
    asked: dict[int, float]


def read_attempts(log: Path) -> list[Attempt]:
    """The attempts of a training, one after the other."""
    found: list[Attempt] = []
    for line in log.read_text().splitlines():
        kind, epoch, when = line.split()
        if kind == "start":
            found.append(Attempt({}, {}))
        else:
            (found[-1].began if kind == "epoch" else found[-1].asked)[int(epoch)] = float(when)
    return found


def newest_checkpoint(out: Path) -> int:
    """The epoch after which the newest checkpoint of the training of ``out`` was asked for; 0 if there is none."""
    files = out.with_name(f"{out.name}.checkpoint").glob("*.safetensors")
    return max((int(file.stem.removeprefix("epoch-")) for file in files), default=0)


def work_lost(log: Path, newest: int, interval: float) -> str:
    """The work after the checkpoint of epoch ``newest`` of the last attempt but one, of which there is little enough.

    The last attempt began with the epoch after that.
    """
    *earlier, last = read_attempts(log)
    first = earlier[-1] if earlier else Attempt({}, {})
    assert min(last.began) == newest + 1, "it began somewhere else than after the newest checkpoint"
    again = [when for epoch, when in first.began.items() if epoch > newest]
    if not again:
        return "nothing"
    # The last one asked for is on the disk, or it was being written and the one before it is there.
    assert newest in [0, *first.asked][-2:]
    unwritten = [when for epoch, when in first.asked.items() if epoch > newest]
    # An epoch may take longer than the one before, which is all that is known when a checkpoint is put off.
    longest = max((after - before for before, after in pairwise(again)), default=0)
    assert min([again[-1], *unwritten]) - again[0] <= interval + longest
    return f"{len(again)} epochs, {again[-1] - again[0]:.2f} s"
