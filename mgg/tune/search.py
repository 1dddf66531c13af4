"""The search of MGG (OSDI'23, section 6): choose the next setting to measure from the times of earlier ones.

From 1, 1, 1 it raises ps, then dist, then wpb, each until the time rises. Then it lowers ps by one value at a time and
raises wpb again, as long as that gives one of the three lowest times. The result is the fastest setting.

Choices where the paper is open or cannot be followed: values double, because steps of one cannot end after about ten
settings among 32 x 16 x 16; a time has risen only if it exceeds the last one by more than times of one setting differ;
the next knob starts from the fastest value of the last one; and the number of settings has a limit. The default setting
may be measured last, so that the result is never slower.

The search is a function of the times: stored times are enough to resume it, and PEs with the same times agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from statistics import median, quantiles

from mgg.tune.setting import NAMES, START, Setting

#: Measured seconds by setting.
Times = Mapping[Setting, Sequence[float]]
#: The paper's ranges, in powers of two.
VALUES: dict[str, tuple[int, ...]] = {"ps": (1, 2, 4, 8, 16, 32), "dist": (1, 2, 4, 8, 16), "wpb": (1, 2, 4, 8, 16)}
#: Most settings to try.
BUDGET = 16
#: Lowering ps continues as long as it gives one of this many lowest times.
LOWEST = 3


class _Unknown(Exception):  # noqa: N818 - ends a walk, no error
    """The walk reached a setting that was not measured."""


class Search:
    """The search for the fastest setting.

    Args:
        able: whether a setting can run; others are skipped. The answer may be known only once a setting is tried.
        values: ascending values of each knob.
        budget: most settings to try, ``last`` included; None: no limit.
        last: setting to try at the end, or None.
    """

    def __init__(
        self,
        able: Callable[[Setting], bool] = lambda setting: True,
        *,
        values: Mapping[str, Sequence[int]] = VALUES,
        budget: int | None = BUDGET,
        last: Setting | None = None,
    ) -> None:
        self._able, self._values, self._budget, self._last = able, values, budget, last

    def following(self, times: Times) -> Setting | None:
        """Return the setting to measure after those of ``times``; None if the search has ended."""
        waiting = self._last is not None and self._last not in times and self._able(self._last)
        if self._budget is None or len(times) + waiting < self._budget:
            seen = self._walk(times)
            if seen and seen[-1] not in times:
                return seen[-1]
        return self._last if waiting else None

    def path(self, times: Times) -> list[Setting]:
        """Return the settings of ``times`` on the walk, each once, in order; without ``last``."""
        found = [setting for setting in dict.fromkeys(self._walk(times)) if setting in times]
        return found[: self._budget]

    def run(self, measure: Callable[[Setting], Sequence[float]]) -> dict[Setting, list[float]]:
        """Search with ``measure``, which returns a setting's seconds; return all tried settings' times in order."""
        times: dict[Setting, list[float]] = {}
        while (setting := self.following(times)) is not None:
            times[setting] = list(measure(setting))
        return times

    def _walk(self, times: Times) -> list[Setting]:
        """Return the settings of the walk, with repeats; it ends at the first one that was not measured, if any."""
        seen: list[Setting] = []
        if self._able(START):
            with suppress(_Unknown):
                self._steps(times, seen)
        return seen

    def _steps(self, times: Times, seen: list[Setting]) -> None:
        at = _look(START, times, seen)
        for knob in NAMES:
            at = self._rise(at, knob, times, seen)
        while True:
            lower = [at._replace(ps=ps, wpb=START.wpb) for ps in self._values["ps"] if ps < at.ps]
            lower = [setting for setting in lower if self._able(setting)]
            if not lower:
                return
            third = sorted(median(times[each]) for each in set(seen))[:LOWEST][-1]
            at = self._rise(_look(lower[-1], times, seen), "wpb", times, seen)
            if worse(times[at], [third], noise_of(times, seen)):
                return

    def _rise(self, best: Setting, knob: str, times: Times, seen: list[Setting]) -> Setting:
        """Raise ``knob`` until the time rises; return the fastest setting."""
        first = getattr(best, knob)
        for value in self._values[knob]:
            higher = best._replace(**{knob: value})
            if value <= first or not self._able(higher):
                continue
            _look(higher, times, seen)
            if worse(times[higher], times[best], noise_of(times, seen)):
                break
            if median(times[higher]) < median(times[best]):
                best = higher
        return best


def _look(setting: Setting, times: Times, seen: list[Setting]) -> Setting:
    seen.append(setting)
    if setting not in times:
        raise _Unknown
    return setting


def best_of(times: Times) -> Setting:
    """Return the setting of ``times`` with the lowest median, the smallest of equal ones."""
    return min(times, key=lambda setting: (median(times[setting]), setting))


def noise_of(times: Times, seen: Iterable[Setting]) -> float:
    """Return how much times of one setting differ: the median over ``seen`` of interquartile range over median.

    Returns 0 if no setting was measured more than once.
    """
    spreads = []
    for seconds in (times[setting] for setting in set(seen)):
        if len(seconds) > 1 and median(seconds) > 0:
            low, _, high = quantiles(seconds, n=4, method="inclusive")
            spreads.append((high - low) / median(seconds))
    return median(spreads) if spreads else 0.0


def worse(these: Sequence[float], those: Sequence[float], noise: float) -> bool:
    """Whether the median of ``these`` exceeds the median of ``those`` by more than the share ``noise``."""
    return median(these) > median(those) * (1 + noise)
