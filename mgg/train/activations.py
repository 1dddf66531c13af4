"""Which activations a training keeps, makes again or holds elsewhere, so that it fits into the memory that it may take.

The cheapest way by predicted seconds: stage by stage (``mgg.model.activations``), a second forward pass against the
way to page-locked memory, or to mapped files, and back. All PEs choose alike, since passes are collective.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, product
from typing import Any

import numpy as np

from mgg.aggregate import parse_options
from mgg.aggregate.auto import forecast
from mgg.backend import mapped
from mgg.backend.api import World, name_pes
from mgg.backend.machine import host_memory
from mgg.config import Activations
from mgg.layout import PeLayout
from mgg.model import Chain
from mgg.model.activations import Mode, Stage, stages_of
from mgg.model.arrays import arrays_of
from mgg.model.halo.turned import Turning
from mgg.model.module import Held, in_order
from mgg.train import memory
from mgg.train.memory import FLOAT, Input, Need, ShortError, Working
from mgg.train.targets import Targets
from mgg.train.technique import widths

_log = logging.getLogger(__name__)
#: Most combinations of modes that are tried out for whether any of them fits.
WAYS = 1_000
#: Of the probe: rows and columns of a dense product, and bytes that go out and come back.
_ROWS, _COLUMNS, _BYTES, _TIMES = 1024, 256, 2**22, 3
#: Forward passes that an epoch takes as long as: one in training, two on the way back, an evaluation.
_PASSES = 4


@dataclass(frozen=True)
class Footprint:
    """A stage on one PE, in numbers of 4 bytes, by what its modules hold (``Held``).

    Attributes:
        given: its input; none of the first stage, whose input is among the features.
        lasting: made once for all passes.
        saved: that it saves for its backward pass, and that stays until the next pass unless it is forgotten.
        kept: that it saves, too, and that goes module by module on the way back.
        peak: the most that a module holds beside ``saved``, and ``kept`` of those before it in the stage.
        alone: the most that a module holds, its input included, where all others have nothing in memory.
        passing: the gradient by its output.
    """

    given: int
    lasting: int
    saved: int
    kept: int
    peak: int
    alone: int
    passing: int = 0


@dataclass(frozen=True)
class Account:
    """What a training takes of one PE, by what becomes of its stages' activations.

    Attributes:
        need: where all are kept.
        held: of all modules there.
        stages: of each.
        working: beside what they hold.
    """

    need: Need
    held: Held
    stages: list[Footprint]
    working: Working

    def with_modes(self, modes: Sequence[Mode]) -> Need:
        """The need where stages are in ``modes``; where all are kept, ``need``."""
        stays = kept = peak = 0
        for place, (mode, stage) in enumerate(zip(modes, self.stages, strict=True)):
            # A stage holds its input where the one before it does not keep it.
            given = stage.given if place and modes[place - 1] != "keep" else 0
            if mode == "keep":
                most, after = given + stage.peak, given + stage.kept
            elif mode == "recompute":  # what it saves is made again while the gradient by its output waits
                most, after = stage.given + stage.saved + stage.peak + stage.passing, stage.given
            elif self.working.room.gpu:  # all of it comes back, its input, too
                most, after = stage.given + stage.saved + stage.peak, 0
            else:  # on the way back all of it is in mapped files
                most, after = stage.alone, 0
            if self.working.room.gpu and place and modes[place - 1] == "host":  # on its way, out and back
                most += self._moved(place - 1)
            stays += stage.lasting + (stage.saved if mode == "keep" else 0)
            peak, kept = max(peak, kept + most), kept + after
        held = self.held._replace(stays=stays, kept=kept, peak=peak)
        return replace(self.need, activations=self.working.bytes_with(held))

    def outside(self, modes: Sequence[Mode]) -> int:
        """Bytes that are held elsewhere; inputs once, by the stage that made them where that is held elsewhere, too."""
        places = [place for place, mode in enumerate(modes) if mode == "host"]
        again = sum(self.stages[place].given for place in places if place - 1 in places)
        return FLOAT * (sum(map(self._moved, places)) - again)

    def moved(self, place: int) -> int:
        """Bytes that a stage moves, its input included."""
        return FLOAT * self._moved(place)

    def _moved(self, place: int) -> int:
        stage = self.stages[place]
        return stage.given + stage.saved + stage.kept


def account(chain: Chain, stages: Sequence[Stage], features: int, need: Need, working: Working) -> Account:
    """That of a PE, which takes ``need`` where all activations are kept; ``features`` are their columns."""
    every, found, columns, rows = list(chain.each_held(features, working.room)), [], features, working.room.rows
    each = iter(every)
    for place, stage in enumerate(stages):
        modules = list(islice(each, len(stage.modules)))
        whole = in_order(modules, columns)
        inputs = [rows * width for width in (columns, *(held.columns for held in modules[:-1]))]
        inputs[0] *= place > 0
        found.append(
            Footprint(
                given=inputs[0],
                lasting=whole.lasting,
                saved=whole.stays - whole.lasting,
                kept=whole.kept,
                peak=whole.peak,
                alone=max(
                    given + max(held.stays - held.lasting, held.peak)
                    for given, held in zip(inputs, modules, strict=True)
                ),
                passing=rows * whole.columns,
            )
        )
        columns = whole.columns
    return Account(need, in_order(every, features), found, working)


@dataclass(frozen=True)
class Limits:
    """What all PEs may take, the same on every PE.

    Attributes:
        accounts: of the PEs.
        places: PEs that share memory, and what is free there.
        hosts: PEs that share a host, and how much may be held elsewhere there.
        cap: bytes that a PE may take at most.
    """

    accounts: list[Account]
    places: list[tuple[list[int], int | None]]
    hosts: list[tuple[list[int], int | None]]
    cap: int | None

    @classmethod
    def of(cls, world: World, mine: Account, cap: int | None) -> Limits:
        """Collective."""
        shared = [(pes, left) for pes, _, left in host_memory.places(world, None)]
        room = 0 if world.gpu else mapped.room()[1]
        hosts = [
            (pes, left if world.gpu else min(rooms)) for pes, rooms, left in host_memory.places(world, room, hosts=True)
        ]
        return cls(world.gather(mine), shared, hosts, cap)

    def over(self, modes: Sequence[Mode]) -> float:
        """Bytes that are lacking where most are; 0 or less: it fits."""
        needs = [account.with_modes(modes).total for account in self.accounts]
        outside = [account.outside(modes) for account in self.accounts]
        if any(left is not None and sum(outside[pe] for pe in pes) > left for pes, left in self.hosts):
            return math.inf
        short = [sum(needs[pe] for pe in pes) - left for pes, left in self.places if left is not None]
        if self.cap is not None:
            short.append(max(needs) - self.cap)
        return max(short, default=0)

    def most(self, modes: Sequence[Mode]) -> int:
        """Bytes of the PE that takes most."""
        return max(account.with_modes(modes).total for account in self.accounts)


@dataclass(frozen=True)
class Seconds:
    """Predicted seconds of an epoch with all activations kept, and by stage what else the other modes take."""

    epoch: float
    more: list[dict[Mode, float]]

    def of(self, modes: Sequence[Mode]) -> float:
        """Of an epoch."""
        return self.epoch + sum(more[mode] for mode, more in zip(modes, self.more, strict=True))


def seconds_of(
    world: World, layout: PeLayout, stages: Sequence[Stage], technique: str, options: dict[str, Any], dtype: str,
    mine: Account,
) -> Seconds:  # fmt: skip
    """By the cost model of products and by what a probe takes here (collective, the same on every PE)."""
    dense, there, back = _probe(world)
    model, parsed = forecast(world, layout, "forward", dtype), parse_options(technique, options)
    arcs, rows = layout.forward.local.arcs + layout.forward.remote.arcs, layout.rows
    forward = []
    for stage in stages:
        taken = 0.0
        for module in stage.modules:
            crossing = widths(module) or [width for width in (module.fetched,) if width > 1]
            for width in crossing:
                known = model.seconds(technique, width, parsed) if module.width else None
                taken += known or float(model.machine.rates["rows"].seconds(arcs, rows, 4 * width, 4 * width))
            taken += 2 * rows * dense * sum(math.prod(each.shape) for each in module.parameters if len(each.shape) > 1)
        forward.append(taken)
    moved = [mine.moved(place) * (there + back) for place in range(len(stages))]
    slowest = np.max(world.gather([forward, moved]), axis=0)
    work, ways = slowest.tolist()
    more: list[dict[Mode, float]] = []
    for place, (again, way) in enumerate(zip(work, ways, strict=True)):
        # On GPUs transfers go beside the forward pass of the next stage, and the backward one, of two passes.
        beside = 3 * work[min(place + 1, len(work) - 1)] if world.gpu else 0.0
        more.append({"keep": 0.0, "recompute": again, "host": max(0.0, way - beside)})
    return Seconds(_PASSES * sum(work), more)


def _probe(world: World) -> tuple[float, float, float]:
    """Seconds of a multiplication in a dense product, and of a byte that goes out, and comes back (collective)."""
    xp, clock = world.xp, world.clock()
    arrays, shapes = arrays_of(world), ((_ROWS, _COLUMNS), (_COLUMNS, _COLUMNS))
    x, w = (xp.zeros(shape, np.float32) for shape in shapes)
    inside, outside = xp.zeros(_BYTES, np.uint8), world.outside(_BYTES)
    actions: list[tuple[Callable[[], Any], float]] = [
        (lambda: arrays.product(x, w), 2 * _ROWS * _COLUMNS**2),
        (lambda: world.transfer(outside.bytes, inside), _BYTES),
        (lambda: world.transfer(inside, outside.bytes), _BYTES),
    ]
    least = [math.inf] * len(actions)
    for _ in range(_TIMES):
        for number, (action, size) in enumerate(actions):
            clock.start()
            action()
            least[number] = min(least[number], clock.stop() / size)
    outside.close()
    dense, there, back = np.max(world.gather(least), axis=0).tolist()
    return dense, there, back


def chosen(able: Sequence[Sequence[Mode]], limits: Limits, seconds: Seconds) -> list[Mode] | None:
    """The modes that fit at the fewest predicted seconds, step by step; None: none do.

    Each step changes the stage that takes the fewest seconds for the bytes that it saves; in the end what is not needed
    is taken back, the slowest first.

    Args:
        able: of each stage the modes other than ``keep`` that it may be in.
        limits: what there is.
        seconds: what the modes take.
    """
    modes: list[Mode] = ["keep"] * len(able)
    whole = [sum(account.moved(place) for account in limits.accounts) for place in range(len(able))]
    while (short := limits.over(modes)) > 0:
        steps = []
        for place, others in enumerate(able):
            for mode in others if modes[place] == "keep" else others[others.index(modes[place]) + 1 :]:
                changed = [*modes[:place], mode, *modes[place + 1 :]]
                saved, cost = short - limits.over(changed), seconds.more[place][mode]
                if saved > -math.inf:
                    # What lowers no peak by itself may do so together with others.
                    steps.append((saved <= 0, cost / max(saved if saved > 0 else whole[place], 1), place, changed))
        modes = min(steps)[-1] if steps else ["recompute" if "recompute" in others else "keep" for others in able]
        if not steps:
            break
    if limits.over(modes) > 0:
        return None
    slowest = sorted(range(len(able)), key=lambda place: -seconds.more[place][modes[place]])
    # What one stage no longer needs may make others unnecessary that were looked at before.
    for place in slowest * len(able):
        kept: list[Mode] = [*modes[:place], "keep", *modes[place + 1 :]]
        if limits.over(kept) <= 0:
            modes = kept
    return modes


def decide(
    world: World, layout: PeLayout, chain: Chain, how: tuple[str, dict[str, Any], str], given: Input,
    learned: Targets, turned: Turning, copies: int, limited: tuple[Activations, int | None],
) -> tuple[Need, list[Stage]]:  # fmt: skip
    """What a training takes, and the stages of ``chain`` in their modes; rank 0 says whether it fits (collective).

    Args:
        world, layout, chain, given, turned, copies: as of ``memory.need``.
        how: technique, its options, and the type of embeddings.
        learned: what is learned.
        limited: what becomes of activations, and the bytes that a PE may take.

    Raises:
        ShortError: it does not fit.
    """
    (technique, options, dtype), (asked, cap), stages = how, limited, stages_of(chain)
    targets = learned.memory, learned.passing
    whole = memory.need(world, layout, chain, technique, options, dtype, given, *targets, turned, copies)
    working = memory.working_of(world, layout, chain, given, learned.passing)
    mine = account(chain, stages, layout.manifest.features, whole, working)
    limits = Limits.of(world, mine, cap)
    able = [_able(stage, options) for stage in stages]
    kept: list[Mode] = ["keep"] * len(stages)
    modes, seconds = kept, None
    if asked == "recompute" or asked == "host":  # noqa: PLR1714 - by which mypy knows them
        modes = [asked if asked in others else "keep" for others in able]
        _tell_kept(world, stages, modes, asked)
    elif asked == "auto" and limits.over(kept) > 0:
        most: list[Mode] = [others[-1] if others else "keep" for others in able]
        modes = min(kept, most, key=limits.most)
        # Nothing is measured for a training that fits in no way.
        ways = product(*(["keep", *others] for others in able))
        if any(limits.over(list(way)) <= 0 for way in islice(ways, WAYS)) or next(ways, None) is not None:
            seconds = seconds_of(world, layout, stages, technique, options, dtype, mine)
            modes = chosen(able, limits, seconds) or modes
    need = mine.with_modes(modes)
    _check(world, limits, modes, need, asked)
    for stage, mode in zip(stages, modes, strict=True):
        stage.mode = mode
    if world.rank == 0 and (cap is not None or modes != kept):
        allowed = "" if cap is None else f" of {cap} allowed"
        spared = told(stages, bool(world.gpu))
        at = "" if seconds is None else f", at about {seconds.of(modes):.2g} s an epoch"
        most_bytes = limits.most(modes)
        _log.warning("memory: about %d bytes a PE%s: fits%s%s", most_bytes, allowed, spared and f" with {spared}", at)
    return need, stages


def _able(stage: Stage, options: dict[str, Any]) -> list[Mode]:
    if not stage.spared:
        return []
    # Rows of the last epoch, and random numbers of roundings, go with the order of the products.
    return ["host"] if options.get("stale") or options.get("wire") else ["recompute", "host"]


def modes_by_name(stages: Sequence[Stage]) -> dict[str, str]:
    """What becomes of the activations of stages that do not keep them, by name."""
    return {stage.name or f"stage{place}": stage.mode for place, stage in enumerate(stages) if stage.mode != "keep"}


def told(stages: Sequence[Stage], gpu: bool) -> str:
    """The same for messages; empty where all are kept."""
    by_name, parts = modes_by_name(stages), []
    where = "page-locked host memory" if gpu else "mapped files"
    for mode, what in (("recompute", "recomputed"), ("host", f"in {where}")):
        if names := [name for name, each in by_name.items() if each == mode]:
            parts.append(f"activations of {', '.join(names)} {what}")
    return " and ".join(parts)


def _tell_kept(world: World, stages: Sequence[Stage], modes: Sequence[Mode], asked: str) -> None:
    left = [stage.name for stage, mode in zip(stages, modes, strict=True) if mode == "keep"]
    if left and world.rank == 0:
        _log.warning("activations %s: those of %s are kept: %s", asked, ", ".join(left), _WHY)


_WHY = (
    "they are the same in every pass, arcs share them, their modules do not say what they save, or rows are stale or"
    " packed"
)


def _check(world: World, limits: Limits, modes: Sequence[Mode], need: Need, asked: Activations) -> None:
    """Raise ShortError on every PE where the training does not fit (collective)."""
    needs = [account.with_modes(modes) for account in limits.accounts]
    over = [pe for pe, each in enumerate(needs) if limits.cap is not None and each.total > limits.cap]
    spared = "" if asked != "auto" or {*modes} == {"keep"} else ", with activations recomputed or held elsewhere"
    if over:
        pe = max(over, key=lambda each: needs[each].total)
        parts = ", ".join(f"{part} {size}" for part, size in asdict(needs[pe]).items())
        help_ = "--activations auto, " if asked != "auto" else ""
        raise ShortError(
            f"{name_pes(over)}: training needs about {needs[pe].total} bytes of memory{spared} and --memory-per-pe"
            f" allows {limits.cap} (largest PE: {parts}): allow that many, or take {help_}more PEs, fewer hidden"
            " columns, or a technique that holds less"
        ).on_every_pe()
    for pes, left in limits.hosts:
        outside = sum(limits.accounts[pe].outside(modes) for pe in pes)
        if left is not None and outside > left:
            where = "their host has" if world.gpu else f"{mapped.room()[0]} has"
            raise ShortError(
                f"{name_pes(pes)}: {outside} bytes of activations are to be held elsewhere and {where} {left} free: "
                + ("use more hosts" if world.gpu else "set TMPDIR to a folder on a disk with more room")
            ).on_every_pe()
    memory.check(world, need)
