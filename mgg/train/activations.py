"""Decide which activations a training keeps, recomputes or offloads, so that it fits into its memory; likewise arcs.

The choice minimizes predicted seconds. For each stage (``mgg.model.activations``) it compares a second forward pass
with transfers to and from page-locked memory or mapped files. All PEs choose the same, since passes are collective.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Sequence
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
from mgg.model.layers import Dropout
from mgg.model.module import ActivationMemory, in_order
from mgg.train import memory
from mgg.train.memory import FLOAT, Input, ShortError, TrainingMemory, Working
from mgg.train.resolve_auto import widths
from mgg.train.targets import Targets

_log = logging.getLogger(__name__)
#: What records call features and arcs that are outside the device, beside the names of stages.
FEATURES, ARCS = "features", "lists and values of arcs"
#: Limit on the combinations of modes that are tried to find whether any fits.
WAYS = 1_000
#: The probe: rows and columns of its dense product, bytes that it transfers out and back, and repetitions.
_ROWS, _COLUMNS, _BYTES, _TIMES = 1024, 256, 2**22, 3
#: Time of an epoch in forward passes: one in training, two for the backward pass, one evaluation.
_PASSES = 4
#: How often an epoch brings features that are outside the device: twice in training, for the first product and for the
#: gradient of its weights, once in the evaluation.
_STREAMS = 3


@dataclass(frozen=True)
class Footprint:
    """Memory of a stage on one PE, in numbers of 4 bytes, from the memory of its modules (``ActivationMemory``).

    Attributes:
        given: the stage's input; 0 for the first stage, whose input counts as features.
        lasting: values computed once for all passes.
        kept: values saved for the backward pass, which frees them module by module.
        peak: the most that a module needs, with ``kept`` of the modules before it in the stage.
        alone: the most that a module needs, forward with its input, while no other module has values in memory; on
            CPUs nor it what it saved.
        passing: the gradient of the stage's output.
        first: the most that the first module needs forward, with its input.
        saves: what each module saves.
        backs: the most that each module needs backward, on GPUs with what it saved.
    """

    given: int
    lasting: int
    kept: int
    peak: int
    alone: int
    passing: int = 0
    first: int = 0
    saves: tuple[int, ...] = ()
    backs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Account:
    """Memory of a training on one PE, as a function of the modes of its stages.

    Attributes:
        need: memory if all activations are kept.
        held: memory of all modules in that case.
        stages: footprint of each stage.
        working: memory on top of what modules hold.
        away: bytes of features, and of lists and values of arcs, that are outside the device.
    """

    need: TrainingMemory
    held: ActivationMemory
    stages: list[Footprint]
    working: Working
    away: int = 0

    def with_modes(self, modes: Sequence[Mode]) -> TrainingMemory:
        """Return the need for stages in ``modes``; equals ``need`` if all are kept."""
        stays = kept = peak = 0
        for place, (mode, stage) in enumerate(zip(modes, self.stages, strict=True)):
            # A stage holds its input itself if the stage before it does not keep it.
            given = stage.given if place and modes[place - 1] != "keep" else 0
            if mode == "keep":
                most, after = given + stage.peak, given + stage.kept
            elif mode == "recompute":  # saved values are recomputed while the gradient of the output waits
                most, after = stage.given + stage.peak + stage.passing, stage.given
            else:  # each module's arrays are outside the device while others work
                most, after = stage.alone, 0
            if self.working.room.gpu and place and modes[place - 1] == "host":  # in transfer, in the forward pass
                most = max(most, stage.first + self.stages[place - 1].saves[-1])
            stays += stage.lasting
            peak, kept = max(peak, kept + most), kept + after
        held = self.held._replace(stays=stays, kept=kept, peak=peak)
        return replace(self.need, activations=self.working.bytes_with(held))

    def outside(self, modes: Sequence[Mode]) -> int:
        """Return the offloaded bytes; an input counts once if the stage that made it is offloaded, too."""
        places = [place for place, mode in enumerate(modes) if mode == "host"]
        again = sum(self.stages[place].given for place in places if place - 1 in places)
        return FLOAT * (sum(self.moved(place) for place in places) - again) + self.away

    def early(self, modes: Sequence[Mode]) -> list[set[int]]:
        """Return by stage the modules whose arrays may return while the module behind them runs backward.

        The peak of all modules does not grow by it.
        """
        found: list[set[int]] = [set() for _ in modes]
        places = [place for place, mode in enumerate(modes) if mode == "host"]
        most = max((self.stages[place].alone for place in places), default=0)
        for place in places:
            stage, behind = self.stages[place], self.stages[place + 1 : place + 2] if place + 1 in places else []
            following = [*stage.backs[1:], *(each.backs[0] for each in behind)]
            found[place] = {n for n, back in enumerate(following) if back + stage.saves[n] <= most}
        return found

    def moved(self, place: int) -> int:
        """Return the numbers that a stage transfers, its input included."""
        stage = self.stages[place]
        return stage.given + stage.kept


def account(chain: Chain, stages: Sequence[Stage], features: int, need: TrainingMemory, working: Working) -> Account:
    """Return the PE's account; ``need`` is its memory if all activations are kept, ``features`` the feature columns."""
    every, found, columns, rows = list(chain.each_held(features, working.room)), [], features, working.room.rows
    each = iter(every)
    for place, stage in enumerate(stages):
        modules = list(islice(each, len(stage.modules)))
        whole = in_order(modules, columns)
        inputs = [rows * width for width in (columns, *(held.columns for held in modules[:-1]))]
        if place == 0:  # features, which count as such; streamed ones stay so until a module multiplies them
            begins = [n for n, module in enumerate(stage.modules) if not isinstance(module, Dropout)]
            apart = begins[0] + 1 if begins and working.room.streamed else 1
            inputs[:apart] = [0] * apart
        saves = [held.returns(given) for given, held in zip(inputs, modules, strict=True)]
        ahead = [given + held.alone[0] for given, held in zip(inputs, modules, strict=True)]
        first = ahead[0]
        if working.room.gpu:  # the arrays of the module before are in transfer
            ahead = [most + saved for most, saved in zip(ahead, (0, *saves), strict=False)]
            backs = [held.peak - held.kept + saved for held, saved in zip(modules, saves, strict=True)]
        else:
            backs = [held.alone[1] for held in modules]
        found.append(
            Footprint(
                given=inputs[0],
                lasting=whole.lasting,
                kept=whole.kept,
                peak=whole.peak,
                alone=max(*ahead, *backs),
                passing=rows * whole.columns,
                first=first,
                saves=tuple(saves),
                backs=tuple(backs),
            )
        )
        columns = whole.columns
    return Account(need, in_order(every, features), found, working)


@dataclass(frozen=True)
class MemoryLimits:
    """The memory limits of all PEs, the same on every PE.

    Attributes:
        accounts: account of each PE.
        places: groups of PEs that share memory, with the free bytes (None: unknown).
        hosts: groups of PEs that share a host, with the bytes that may be offloaded there (None: unknown).
        cap: limit on the bytes of a PE.
    """

    accounts: list[Account]
    places: list[tuple[list[int], int | None]]
    hosts: list[tuple[list[int], int | None]]
    cap: int | None

    @classmethod
    def of(cls, world: World, mine: Account, cap: int | None) -> MemoryLimits:
        """Gather the limits of all PEs (collective)."""
        shared = [(pes, left) for pes, _, left in host_memory.places(world, None)]
        room = 0 if world.gpu else mapped.room()[1]
        hosts = [
            (pes, left if world.gpu else min(rooms)) for pes, rooms, left in host_memory.places(world, room, hosts=True)
        ]
        return cls(world.gather(mine), shared, hosts, cap)

    def over(self, modes: Sequence[Mode]) -> float:
        """Return the largest shortage in bytes; 0 or less if the training fits."""
        needs = [account.with_modes(modes).total for account in self.accounts]
        outside = [account.outside(modes) for account in self.accounts]
        if any(left is not None and sum(outside[pe] for pe in pes) > left for pes, left in self.hosts):
            return math.inf
        short = [sum(needs[pe] for pe in pes) - left for pes, left in self.places if left is not None]
        if self.cap is not None:
            short.append(max(needs) - self.cap)
        return max(short, default=0)

    def least(self, able: Sequence[Sequence[Mode]]) -> float:
        """Return the least shortage in bytes that modes out of ``able`` leave; 0 if there are too many to try all."""
        ways, found = product(*(["keep", *others] for others in able)), math.inf
        for way in islice(ways, WAYS):
            found = min(found, self.over(list(way)))
            if found <= 0:
                break
        return found if found <= 0 or next(ways, None) is None else 0

    def most(self, modes: Sequence[Mode]) -> int:
        """Return the bytes of the PE that needs most."""
        return max(account.with_modes(modes).total for account in self.accounts)


@dataclass(frozen=True)
class Seconds:
    """Predicted seconds of an epoch with all activations kept, and the extra seconds of each mode by stage."""

    epoch: float
    more: list[dict[Mode, float]]

    def of(self, modes: Sequence[Mode]) -> float:
        """Return the seconds of an epoch."""
        return self.epoch + sum(more[mode] for mode, more in zip(modes, self.more, strict=True))


def seconds_of(
    world: World, layout: PeLayout, stages: Sequence[Stage], technique: str, options: dict[str, Any], dtype: str,
    mine: Account,
) -> Seconds:  # fmt: skip
    """Predict seconds from the cost model of products and a probe here (collective, the same on every PE)."""
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
    moved = [FLOAT * mine.moved(place) * (there + back) for place in range(len(stages))]
    streamed = [0.0] * len(stages)  # while features are brought, nothing else can be done
    streamed[0] = FLOAT * rows * layout.manifest.features * back * mine.working.room.streamed
    slowest = np.max(world.gather([forward, moved, streamed]), axis=0)
    work, ways, streams = slowest.tolist()
    more: list[dict[Mode, float]] = []
    for place, (again, way, stream) in enumerate(zip(work, ways, streams, strict=True)):
        # On GPUs transfers overlap the work of the next module or, backward, of the one behind, which costs two.
        beside = 3 * work[place] if world.gpu else 0.0
        more.append({"keep": 0.0, "recompute": again + stream, "host": max(0.0, way - beside)})
    return Seconds(_PASSES * sum(work) + _STREAMS * sum(streams), more)


def _probe(world: World) -> tuple[float, float, float]:
    """Measure seconds per operation of a dense product, per byte out, and per byte back (collective)."""
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


def chosen(able: Sequence[Sequence[Mode]], limits: MemoryLimits, seconds: Seconds) -> list[Mode] | None:
    """Search greedily for the modes that fit at the fewest predicted seconds; return None if none fit.

    Each step changes the stage with the fewest extra seconds per byte saved. The end undoes changes that turned out to
    be unnecessary, the slowest first.

    ``able`` has for each stage the modes other than ``keep`` that it supports.
    """
    modes: list[Mode] = ["keep"] * len(able)
    whole = [FLOAT * sum(account.moved(place) for account in limits.accounts) for place in range(len(able))]
    while (short := limits.over(modes)) > 0:
        steps = []
        for place, others in enumerate(able):
            for mode in others if modes[place] == "keep" else others[others.index(modes[place]) + 1 :]:
                changed = [*modes[:place], mode, *modes[place + 1 :]]
                saved, cost = short - limits.over(changed), seconds.more[place][mode]
                if saved > -math.inf:
                    # A change that lowers no peak by itself may do so together with others.
                    steps.append((saved <= 0, cost / max(saved if saved > 0 else whole[place], 1), place, changed))
        modes = min(steps)[-1] if steps else ["recompute" if "recompute" in others else "keep" for others in able]
        if not steps:
            break
    if limits.over(modes) > 0:
        return None
    slowest = sorted(range(len(able)), key=lambda place: -seconds.more[place][modes[place]])
    # Undoing one stage's change may make changes unnecessary that this loop visited before.
    for place in slowest * len(able):
        kept: list[Mode] = [*modes[:place], "keep", *modes[place + 1 :]]
        if limits.over(kept) <= 0:
            modes = kept
    return modes


def decide(
    world: World, layout: PeLayout, chain: Chain, how: tuple[str, dict[str, Any], str], given: Input,
    learned: Targets, turned: Turning, copies: int, limited: tuple[Activations, int | None],
) -> tuple[TrainingMemory, list[Stage], dict[str, str]]:  # fmt: skip
    """Return a training's need, the stages of ``chain`` with their modes set, and what is not kept on the device, by
    name with its mode; rank 0 logs the choice (collective).

    For the arguments see ``memory.need``; ``how``: technique, its options, and the type of embeddings; ``limited``: the
    requested handling of activations, and the limit on the bytes of a PE.

    Raises:
        ShortError: the training does not fit.
    """
    (technique, options, dtype), (asked, cap), stages = how, limited, stages_of(chain)
    targets = learned.memory, learned.passing

    def accounted(outside: Collection[str]) -> Account:
        placed, arcs = replace(given, outside=FEATURES in outside), ARCS in outside
        needed = memory.need(
            world, layout, chain, technique, options, dtype, placed, *targets, turned, copies, outside=arcs
        )
        working = memory.working_of(world, layout, chain, placed, learned.passing, outside=arcs)
        return account(chain, stages, layout.manifest.features, needed, working)

    outside = list[str]()
    mine = accounted(outside)
    limits = MemoryLimits.of(world, mine, cap)
    # Stale rows and the random numbers of roundings depend on the order of the products.
    ways_out: list[Mode] = ["host"] if options.get("stale") or options.get("wire") else ["recompute", "host"]
    able = [ways_out if stage.spared else [] for stage in stages]
    kept: list[Mode] = ["keep"] * len(stages)
    if asked == "auto" and world.gpu and layout.manifest.features and not given.sparse and limits.least(able) > 0:
        outside.append(FEATURES)
        mine = replace(accounted(outside), away=mine.need.features)
        limits = MemoryLimits.of(world, mine, cap)
    if asked == "auto" and memory.may_leave(chain, turned) and limits.least(able) > 0:
        outside.append(ARCS)
        without = accounted(outside)
        mine = replace(without, away=mine.away + mine.need.total - without.need.total)
        limits = MemoryLimits.of(world, mine, cap)
    modes, seconds = kept, None
    if asked == "recompute" or asked == "host":  # noqa: PLR1714 - by which mypy knows them
        modes = [asked if asked in others else "keep" for others in able]
        left = [stage.name for stage, mode in zip(stages, modes, strict=True) if mode == "keep"]
        if left and world.rank == 0:
            _log.warning(
                "activations %s: those of %s are kept: they are the same in every pass, arcs share them, their modules"
                " do not say what they save, or rows are stale or packed", asked, ", ".join(left),
            )  # fmt: skip
    elif asked == "auto" and limits.over(kept) > 0:
        most: list[Mode] = [others[-1] if others else "keep" for others in able]
        modes = min(kept, most, key=limits.most)
        if limits.least(able) <= 0:  # else it cannot fit, and nothing is measured
            seconds = seconds_of(world, layout, stages, technique, options, dtype, mine)
            modes = chosen(able, limits, seconds) or modes
    need = mine.with_modes(modes)
    _check(world, limits, modes, need, asked)
    for stage, mode, early in zip(stages, modes, mine.early(modes), strict=True):
        stage.mode, stage.early = mode, early
    if world.rank == 0 and (cap is not None or modes != kept or outside):
        allowed = "" if cap is None else f" of {cap} allowed"
        spared = modes_in_words(stages, bool(world.gpu), outside)
        at = "" if seconds is None else f", at about {seconds.of(modes):.2g} s per epoch"
        most_bytes = limits.most(modes)
        _log.warning("memory: about %d bytes per PE%s: fits%s%s", most_bytes, allowed, spared and f" with {spared}", at)
    return need, stages, modes_by_name(stages) | dict.fromkeys(outside, "host")


def modes_by_name(stages: Sequence[Stage]) -> dict[str, str]:
    """Return the mode of each stage that does not keep its activations, by name."""
    return {stage.name or f"stage{place}": stage.mode for place, stage in enumerate(stages) if stage.mode != "keep"}


def modes_in_words(stages: Sequence[Stage], gpu: bool, outside: Sequence[str]) -> str:
    """Describe the modes for messages, and what else is ``outside`` the device; empty if everything is on it."""
    by_name, parts = modes_by_name(stages), []
    where = "page-locked host memory" if gpu else "mapped files"
    for mode, what in (("recompute", "recomputed"), ("host", f"in {where}")):
        if names := [name for name, each in by_name.items() if each == mode]:
            parts.append(f"activations of {', '.join(names)} {what}")
    if outside:
        parts.append(f"{' and '.join(outside)} in {where}")
    return " and ".join(parts)


def _check(world: World, limits: MemoryLimits, modes: Sequence[Mode], need: TrainingMemory, asked: Activations) -> None:
    """Raise ShortError on every PE if the training does not fit (collective)."""
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
            more = "features or arcs" if world.gpu else "arcs"
            what = f"activations and {more}" if any(limits.accounts[pe].away for pe in pes) else "activations"
            raise ShortError(
                f"{name_pes(pes)}: {outside} bytes of {what} are to be held elsewhere and {where} {left} free: "
                + ("use more hosts" if world.gpu else "set TMPDIR to a folder on a disk with more room")
            ).on_every_pe()
    memory.check(world, need)
