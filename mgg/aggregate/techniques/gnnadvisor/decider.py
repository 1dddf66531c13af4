"""GNNAdvisor's Decider (OSDI'21, section 6) three ways: as printed, as released, and by a sweep on the GPU."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from mgg.errors import InputError
from mgg.kernel.groups import WARP, GroupSetting

#: The parameters that each variant chooses.
CHOOSES = {"paper": ("ngs", "dw"), "artifact": ("ngs", "dw", "tpb"), "fitted": ("ngs", "dw", "tpb")}
#: The paper's target for the work of a thread: arcs times columns (equation 5, WPT).
WORK = 1024
#: The bounds of ngs.
LEAST, MOST = 1, 1024
#: Constants of the released Decider: most warps per block, its driver's default shared memory in KB, the share of it
#: that a block may take, and the extra words per warp in its estimate.
_WARPS, _SHARED_KB, _SHARE, _GAP = 8, 100, 0.4, 100


def as_printed(dim: int) -> tuple[int, int]:
    """Return ngs and dw by equations 5 and 6: 32 workers from 32 columns on, else 16, and about ``WORK`` per thread.

    The paper's bound on shared memory, tpb / 32 * 4 D bytes, limits only tpb, and this kernel tiles the columns.
    """
    dw = WARP if dim >= WARP else WARP // 2
    return _within(round(WORK * dw / dim)), dw


def as_released(lengths: np.ndarray, dim: int) -> tuple[int, int, int]:
    """Return ngs, dw and tpb as the artifact's ``param.py`` computes them for its first layer.

    The group size is the mean degree. A block has at most 8 warps, limited by how many warps' neighbor ids and rows fit
    its share of shared memory. If not even one fits, the artifact cannot launch; here the block has one warp.
    """
    ngs = int(lengths.sum() / max(len(lengths), 1))
    estimate = _WARPS * 4 * (ngs + dim + _GAP) / 1e3
    warps = int(min(estimate, _SHARE * _SHARED_KB) * 1e3 / (4 * (ngs + dim)))
    return _within(ngs), min(WARP, dim), WARP * max(1, min(warps, _WARPS))


def _within(ngs: int) -> int:
    return min(max(ngs, LEAST), MOST)


#: The settings that the fit chooses from.
GRID = {
    "ngs": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
    "dw": (1, 2, 4, 8, 16, 32),
    "tpb": (32, 64, 128, 256, 512, 1024),
}


@dataclass(frozen=True)
class Fit:
    """The best settings on a GPU; tools/fit_gnnadvisor.py fits them to sweeps of several graphs.

    Attributes:
        picks: for each number of embedding columns, the ngs, dw and tpb with the lowest average time relative to each
            graph's best.
    """

    picks: Mapping[int, tuple[int, int, int]]

    def choose(self, dim: int, like: GroupSetting) -> GroupSetting:
        """Return ``like`` with the ngs, dw and tpb of the swept width that is nearest to ``dim``, by ratio."""
        nearest = min(self.picks, key=lambda swept: abs(math.log(swept / dim)))
        ngs, dw, tpb = self.picks[nearest]
        return replace(like, ngs=ngs, dw=dw, tpb=tpb)


#: Fits by a word in the driver's name of a GPU; ``tools/fit_gnnadvisor.py`` prints them.
FITTED: dict[str, Fit] = {
    "h200": Fit({16: (128, 32, 64), 64: (512, 32, 32), 128: (128, 32, 64)}),
}


def fit_for(gpu: str) -> Fit:
    """Return the fit for ``gpu``, the driver's model name (empty on CPUs); raise InputError if there is none."""
    words: Iterable[str] = re.split(r"\W+", gpu.lower())
    found = next((made for name, made in FITTED.items() if name in words), None)
    if found is None:
        which = f"for {gpu!r}" if gpu else "for CPUs"
        raise InputError(
            f"technique gnnadvisor: option decide: fitted has no sweep {which}: take paper, artifact or ngs, dw and"
            " tpb of your own, or fit it to sweeps of the GPU by tools/fit_gnnadvisor.py"
        )
    return found
