"""Tune MGG's kernel in a training: from the table, or by a search in its first epochs (docs/concepts/tuning.md)."""

from __future__ import annotations

import logging
import time
from typing import Any

from mgg.aggregate import parse_options
from mgg.aggregate.neighbor_partitions.settings import TECHNIQUE, able_on, limits_of
from mgg.backend import World
from mgg.errors import InputError
from mgg.train.trainer import Trainer
from mgg.tune.epochs import Tuning
from mgg.tune.search import Search
from mgg.tune.setting import NAMES, START, Setting, SettingRecord

_log = logging.getLogger(__name__)


def mode(technique: str, options: dict[str, Any]) -> str:
    """Return the technique's option tune; ``none`` if it has no such option."""
    return str(options.get("tune", "none")) if technique == TECHNIQUE else "none"


def at_first(technique: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options to build a training's plans with; a search over epochs starts at ``START``."""
    if mode(technique, options) != "epochs":
        return options
    return options | START.options() | {"tune": "none"}


class Tuner:
    """Applies the kernel settings of a training's record, and searches for them.

    All PEs decide from the same seconds, so they use the same settings. A resumed run continues from its checkpoint.

    The technique's ``options`` have tune other than none.

    Raises:
        InputError: the model does not use the technique on these PEs.
    """

    def __init__(self, world: World, trainer: Trainer, options: dict[str, Any]) -> None:
        self._world, self._trainer = world, trainer
        self._now: Setting | None = None
        usual = parse_options(TECHNIQUE, options)
        last = Setting(*(getattr(usual, name) for name in NAMES))
        self._search = Search(able_on(limits_of(world), trainer.columns or [1]), last=last)
        self.state = Tuning(tune=options["tune"])
        if not trainer.kernel_settings():
            raise InputError(
                f"technique {TECHNIQUE}: option tune: this model does not use the technique on these PEs: leave it out"
            ).on_every_pe()

    def begin(self, kept: Tuning | None) -> None:
        """Continue from the state that a checkpoint ``kept``, or start (collective)."""
        self.state = kept or self.state
        if self.state.tune == "cached":
            if kept is None:
                now = self._trainer.kernel_settings()
                found = {name: SettingRecord(**setting.options()) for name, setting in now.items()}
                self.state = self.state.model_copy(
                    update={"forward": found.get("forward"), "transpose": found.get("transpose"), "done": True}
                )
            else:
                named = {"forward": kept.forward, "transpose": kept.transpose}
                self._trainer.take({name: knobs.setting for name, knobs in named.items() if knobs is not None})
        elif self.state.done:
            self._take_everywhere(self.state.chosen())
        else:
            self._trainer.searching = True

    def before(self, epoch: int) -> None:
        """Apply the setting that ``epoch`` tries (collective)."""
        if self.state.done:
            return
        self._world.set_phase(epoch, "tuning")
        setting = self.state.following(self._search)
        assert setting is not None
        self._take_everywhere(setting)

    def after(self, seconds: float) -> None:
        """Record the epoch's ``seconds`` on the slowest PE; finish the search if it was the last one (collective)."""
        if self.state.done:
            return
        assert self._now is not None
        self.state = self.state.after(self._now, seconds)
        if self.state.following(self._search) is not None:
            return
        best = self.state.chosen()
        self._take_everywhere(best)
        self._trainer.searching = False
        self.state = self.state.ended(self._trainer.kernel_settings())

    def end(self) -> None:
        """Warn if the training ended before the search."""
        if not self.state.done and self._world.rank == 0:
            _log.warning(
                "technique %s: option tune: epochs: the %d epochs ended before the search did: nothing was chosen",
                TECHNIQUE, self.state.epochs,
            )  # fmt: skip

    def _take_everywhere(self, setting: Setting) -> None:
        if setting == self._now:
            return
        started = time.perf_counter()
        self._trainer.take(dict.fromkeys(self._trainer.kernel_settings(), setting))
        self._now = setting
        self.state = self.state.prepared(max(self._world.gather(time.perf_counter() - started)))
