"""GNNAdvisor's Decider (OSDI'21, section 6) three ways: as printed, as released, and by a sweep on the GPU."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from mgg.errors import InputError
from mgg.kernel.groups import WARP, Setting

#: What each of them chooses.
CHOOSES = {"paper": ("ngs", "dw"), "artifact": ("ngs", "dw", "tpb"), "fitted": ("ngs", "dw", "tpb")}
#: Work of a thread that the paper aims at: arcs times columns (equation 5, WPT).
WORK = 1024
#: The ends of ngs.
LEAST, MOST = 1, 1024
#: Of the released Decider: most warps a block, shared memory in KB as its driver assumes unless told, what share of it
#: a block may take, and words a warp that its estimate adds.
_WARPS, _SHARED_KB, _SHARE, _GAP = 8, 100, 0.4, 100


def as_printed(dim: int) -> tuple[int, int]:
    """ngs and dw by equations 5 and 6: 32 workers from 32 columns on, else 16, and about ``WORK`` a thread.

    The paper's bound on shared memory, tpb / 32 * 4 D bytes, binds tpb alone, and the kernel here has tiles of columns.
    """
    dw = WARP if dim >= WARP else WARP // 2
    return _within(round(WORK * dw / dim)), dw


def as_released(lengths: np.ndarray, dim: int) -> tuple[int, int, int]:
    """ngs, dw and tpb as the artifact's ``param.py`` computes them for its first layer.

    The mean degree is the group's size; a block has as many warps as their neighbors' ids and rows fit into its part of
    shared memory, at most 8. Where that is less than one, which the artifact cannot launch, it is one here.
    """
    ngs = int(lengths.sum() / max(len(lengths), 1))
    estimate = _WARPS * 4 * (ngs + dim + _GAP) / 1e3
    warps = int(min(estimate, _SHARE * _SHARED_KB) * 1e3 / (4 * (ngs + dim)))
    return _within(ngs), min(WARP, dim), WARP * max(1, min(warps, _WARPS))


def _within(ngs: int) -> int:
    return min(max(ngs, LEAST), MOST)


#: The settings that the fit chooses among.
GRID = {
    "ngs": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
    "dw": (1, 2, 4, 8, 16, 32),
    "tpb": (32, 64, 128, 256, 512, 1024),
}


def grid(like: Setting) -> list[Setting]:
    """``like`` with every combination of ``GRID``."""
    return [replace(like, ngs=ngs, dw=dw, tpb=tpb) for ngs, dw, tpb in product(*GRID.values())]


@dataclass(frozen=True)
class Fit:
    """The settings that were best on a GPU: what benchmarks/gpu_gnnadvisor.py fits to a sweep of several graphs.

    Attributes:
        picks: by embedding columns, the ngs, dw and tpb whose times over each graph's best are least on the average.
    """

    picks: Mapping[int, tuple[int, int, int]]

    def choose(self, dim: int, like: Setting) -> Setting:
        """``like`` with the ngs, dw and tpb of the width that ``dim`` columns are nearest to, by their ratio."""
        nearest = min(self.picks, key=lambda swept: abs(math.log(swept / dim)))
        ngs, dw, tpb = self.picks[nearest]
        return replace(like, ngs=ngs, dw=dw, tpb=tpb)


#: Fits by a word of the driver's name of a GPU: what ``benchmarks/gpu_gnnadvisor.py`` prints there.
FITTED: dict[str, Fit] = {
    "h200": Fit({16: (128, 32, 64), 64: (512, 32, 32), 128: (128, 32, 64)}),
}


def fit_for(gpu: str) -> Fit:
    """The fit for ``gpu``, the driver's name of a model, empty on CPUs; raises InputError where there is none."""
    words: Iterable[str] = re.split(r"\W+", gpu.lower())
    found = next((made for name, made in FITTED.items() if name in words), None)
    if found is None:
        which = f"for {gpu!r}" if gpu else "for CPUs"
        raise InputError(
            f"technique gnnadvisor: option decide: fitted has no sweep {which}: take paper, artifact or ngs, dw and"
            " tpb of your own, or fit it on the GPU by benchmarks/gpu_gnnadvisor.py"
        )
    return found
