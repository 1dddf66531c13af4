"""Search for settings in the first epochs of a training, one epoch per setting."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Literal

from pydantic import Field

from mgg.schema import Fixed
from mgg.tune.search import Search, best_of
from mgg.tune.setting import START, Setting, SettingRecord, Tried, times_of

#: Counted epochs with the search's start, which show how much epochs of one setting differ; another one before them
#: does not count.
STARTS = 2


class Tuning(Fixed):
    """The settings of MGG's kernel in a training, and how they were chosen."""

    tune: Literal["cached", "epochs"] = Field(description="the technique's option: who chose")
    forward: SettingRecord | None = Field(
        None, description="setting of products with A; None: there are none, or not yet"
    )
    transpose: SettingRecord | None = Field(None, description="the same of products with its transpose")
    tried: tuple[Tried, ...] = Field((), description="settings in their order, with the seconds of epochs")
    epochs: int = Field(0, ge=0, description="that the search took, the first of which does not count")
    seconds: float = Field(0.0, ge=0, description="of these epochs")
    preparing: float = Field(0.0, ge=0, description="seconds in which plans were made ready for settings")
    cost: float | None = Field(
        None, description="seconds that tuning took beyond as many epochs of the chosen setting; None: not over"
    )
    done: bool = Field(False, description="the search has ended")

    def following(self, search: Search) -> Setting | None:
        """Return the setting of the next epoch; None if the search has ended."""
        times = times_of(self.tried)
        if len(times.get(START, ())) < STARTS:
            return START
        return search.following(times)

    def prepared(self, seconds: float) -> Tuning:
        """Return a copy with ``seconds`` added to the time of preparing plans."""
        return self.model_copy(update={"preparing": self.preparing + seconds})

    def after(self, setting: Setting, seconds: float) -> Tuning:
        """Return a copy with one more epoch with ``setting``, which took ``seconds``."""
        counted = {"epochs": self.epochs + 1, "seconds": self.seconds + seconds}
        if not self.epochs:  # the first epoch includes one-time work
            return self.model_copy(update=counted)
        times = times_of(self.tried)
        times[setting] = (*times.get(setting, ()), seconds)
        return self.model_copy(update=counted | {"tried": tuple(Tried.of(*each) for each in times.items())})

    def chosen(self) -> Setting:
        """Return the fastest of the tried settings."""
        return best_of(times_of(self.tried))

    def ended(self, plans: Iterable[str]) -> Tuning:
        """Return a copy of the ended search, with the chosen setting of ``plans`` and the cost of the search."""
        best = self.chosen()
        knobs = SettingRecord(**best.options())
        cost = self.preparing + self.seconds - self.epochs * median(times_of(self.tried)[best])
        chosen = {name: knobs for name in ("forward", "transpose") if name in plans}
        return self.model_copy(update={"done": True, "cost": cost, **chosen})
