"""GNNAdvisor's Decider (OSDI'21, section 6) three ways: as printed, as released, and fitted to what a GPU took."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from pydantic import Field
from scipy.optimize import nnls

from mgg.errors import InputError
from mgg.kernel.groups import WARP, Setting, count, tiling
from mgg.schema import Fixed

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


#: What the seconds of a product are a sum of, each with a coefficient that is at least 0: a launch; a step of a warp
#: over an arc (a load a lane); bytes that are gathered; a group; a float that is written or added by an atomic; a
#: block; and the steps that one thread does one after the other for a group, the tail of the launch.
TERMS = ("call", "step", "gathered", "group", "written", "block", "serial")


def terms(lengths: np.ndarray, dim: int, setting: Setting) -> np.ndarray:
    """What the coefficients of ``TERMS`` multiply, float64 [7], counted exactly from the arcs of each row."""
    found = count(lengths, setting)
    floats, _, tiles = tiling(dim, 4, setting)  # plans pad rows
    steps = -(-dim // (floats * setting.dw))
    arcs = int(lengths.sum())
    a_warp = 1 if setting.aligned else WARP / setting.dw
    longest = min(setting.ngs, int(lengths.max(initial=0)))
    blocks = -(-found.groups // setting.a_block) * tiles
    return np.array(
        [1, arcs * steps / a_warp, 4 * arcs * dim, found.groups, found.writes * dim, blocks, longest * steps],
        np.float64,
    )


class Fit(Fixed):
    """Seconds of a product by ``terms``: what benchmarks/gpu_gnnadvisor.py fits to a sweep on one GPU."""

    coefficients: tuple[float, ...] = Field(min_length=len(TERMS), max_length=len(TERMS))

    def seconds(self, counted: np.ndarray) -> Any:
        """For ``counted`` [..., 7]."""
        return counted @ np.array(self.coefficients)

    def choose(self, lengths: np.ndarray, dim: int, like: Setting) -> Setting:
        """``like`` with the ngs, dw and tpb of ``GRID`` that take least by the fit."""
        choices = grid(like)
        taken = self.seconds(np.stack([terms(lengths, dim, each) for each in choices]))
        return choices[int(np.argmin(taken))]


def fit(counted: np.ndarray, seconds: Sequence[float]) -> Fit:
    """The coefficients, none below 0, whose seconds are off the measured ones by least, relative and squared.

    Args:
        counted: float64 [samples, 7], of ``terms``.
        seconds: measured, each above 0.
    """
    scaled = counted / np.asarray(seconds)[:, None]
    size = np.maximum(scaled.max(axis=0), np.finfo(np.float64).tiny)  # columns are of very different sizes
    found, _ = nnls(scaled / size, np.ones(len(scaled)))
    return Fit(coefficients=tuple((found / size).tolist()))


#: Fits by a word of the driver's name of a GPU: what ``benchmarks/gpu_gnnadvisor.py`` prints there. There is none yet.
FITTED: dict[str, Fit] = {}


def fit_for(gpu: str) -> Fit:
    """The fit for ``gpu``, the driver's name of a model, empty on CPUs; raises InputError where there is none."""
    words: Iterable[str] = re.split(r"\W+", gpu.lower())
    found = next((made for name, made in FITTED.items() if name in words), None)
    if found is None:
        which = f"for {gpu!r}" if gpu else "for CPUs"
        raise InputError(
            f"technique gnnadvisor: option decide: fitted has no constants {which}: take paper, artifact or ngs, dw and"
            " tpb of your own, or fit it on the GPU by benchmarks/gpu_gnnadvisor.py"
        )
    return found
