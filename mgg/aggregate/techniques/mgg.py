"""Technique ``mgg``: row-wise aggregation that fetches a remote row per arc while it sums local rows (MGG 4, 5).

CPU ranks follow the paper's order of work; they fetch the remote rows of one thread block at a time.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from mgg.aggregate.neighbor_partitions.plan import Partitioned
from mgg.aggregate.neighbor_partitions.schedule import KernelSchedule
from mgg.aggregate.neighbor_partitions.settings import entry_of, key_of
from mgg.aggregate.options import TechniqueOptions
from mgg.backend import World
from mgg.config import Assigned
from mgg.errors import InputError
from mgg.layout import PeLayout
from mgg.tune.setting import NAMES, START

_log = logging.getLogger(__name__)


class PipelineOptions(TechniqueOptions):
    """Parameters and ablations of the pipeline, within the ranges of the paper's search (section 6)."""

    ps: int = Field(32, ge=1, le=32, description="arcs of a neighbor partition")
    dist: int = Field(
        16, ge=1, le=16, description="pairs of local and remote partitions a warp (interleaving distance)"
    )
    wpb: int = Field(4, ge=1, le=16, description="warps a block")
    neighbor_partition: bool = Field(True, description="cut rows into partitions of ps arcs (figure 10a)")
    interleave: bool = Field(True, description="mix local and remote partitions (figure 10b)")
    asynchronous: bool = Field(
        True,
        description="fetch remote rows while the local partition is summed (figure 6); over NVLink that is so with"
        " primitive direct alone, and CPU ranks fetch first",
    )

    def schedule(self, primitive: str = "direct") -> KernelSchedule:
        """Return the schedule for these options."""
        ps = self.ps if self.neighbor_partition else None
        return KernelSchedule(ps, self.dist, self.wpb, self.interleave, self.asynchronous, primitive)


class MggOptions(PipelineOptions):
    """Pipeline options, plus how remote rows are fetched and who chooses the parameters."""

    tune: Literal["none", "cached", "epochs"] = Field(
        "none",
        description="who chooses ps, dist and wpb, which are left out then: none: their values here; cached: the table"
        " of mgg tune; epochs: a search in the first epochs of a training (docs/concepts/tuning.md)",
    )

    primitive: Literal["direct", "warp", "thread", "block"] = Field(
        "direct",
        description="how GPUs fetch a remote row: loads of the peer's memory, or NVSHMEM's get by a warp, a thread or a"
        " block (figure 10c); CPU ranks have one way",
    )
    ps_remote: int | None = Field(
        None, ge=1, le=32, description="arcs of a partition of remote arcs, fewer for slow links (4.1); none: ps"
    )
    merge: bool = Field(
        False,
        description="a block asks once for a row that several of its arcs need (5.1); GPUs by primitive direct alone",
    )

    @model_validator(mode="after")
    def _cuts(self) -> MggOptions:
        if self.ps_remote is not None and not self.neighbor_partition:
            raise ValueError("ps_remote: with neighbor_partition false rows stay whole: leave one of them out")
        if self.merge and self.primitive != "direct":
            raise ValueError(f"merge: rows are loaded once per block, primitive {self.primitive} gets one per arc")
        return self

    @property
    def per_direction(self) -> bool:
        """Whether each direction has a setting of its own."""
        return self.tune != "none"

    @model_validator(mode="after")
    def _one_chooses(self) -> MggOptions:
        if self.tune != "none":
            fields, chosen = type(self).model_fields, self.model_fields_set
            # A job passes all options on, including parameters at their defaults.
            whole = chosen == set(fields)
            given = [n for n in NAMES if getattr(self, n) != fields[n].default or (n in chosen and not whole)]
            if given:
                raise ValueError(f"tune: {self.tune} chooses {', '.join(NAMES)}: leave {', '.join(given)} out")
            if not self.neighbor_partition:
                raise ValueError(f"tune: {self.tune} chooses ps, which neighbor_partition: false leaves without effect")
        return self


#: Keys with a logged warning that the table lacks them; each is logged once per process.
_reported: set[Path] = set()


class Mgg(Partitioned):
    """Paired local and remote neighbor partitions: a warp owns up to ``dist`` pairs, a block has ``wpb`` warps."""

    name = "mgg"
    Options = MggOptions

    @classmethod
    def resolved(
        cls, world: World, layout: PeLayout, direction: str, dim: int, options: TechniqueOptions, dtype: str
    ) -> TechniqueOptions:
        """Return the options with the tuning table's setting if ``tune`` is ``cached``.

        Without an entry for this case, log one warning and keep the defaults.

        Raises:
            InputError: ``tune`` is ``epochs`` outside of a training, or ``cached`` with an emulated network.
        """
        assert isinstance(options, MggOptions)
        if options.tune == "epochs":
            raise InputError(
                f"technique {cls.name}: option tune: epochs is for mgg train alone: take cached, after mgg tune"
            ).on_every_pe()
        if options.tune == "none":
            return options
        if world.emulated is not None:
            raise InputError(
                f"technique {cls.name}: option tune: cached: the table is of this machine's own network, and"
                " --emulate-network takes another: leave one of the two out"
            ).on_every_pe()
        key = key_of(world, layout, direction, dim, options, dtype)
        entry = entry_of(world, key)
        if entry is not None:
            return options.model_copy(update=entry.chosen.setting.options())
        if world.rank == 0 and key.path not in _reported:
            _reported.add(key.path)
            _log.warning(
                "technique %s: option tune: cached: nothing was tuned for %s, D = %d, %s on these PEs, so the defaults"
                " are taken: run mgg tune --dim %d on this layout", cls.name, direction, dim, dtype, dim,
            )  # fmt: skip
        return options

    @classmethod
    def by_width(cls, options: TechniqueOptions) -> bool:
        """Return whether settings come from the table, which has one for each width."""
        assert isinstance(options, MggOptions)
        return options.tune == "cached"

    @classmethod
    def finest(cls, options: TechniqueOptions) -> int | None:
        """Return the arcs of the smallest partition; if the table chooses, those of the search's start."""
        assert isinstance(options, MggOptions)
        return START.ps if options.tune != "none" else super().finest(options)

    @classmethod
    def schedule(cls, options: Assigned, shmem: bool) -> KernelSchedule:
        """Return the schedule for these options."""
        assert isinstance(options, MggOptions)
        return replace(options.schedule(options.primitive), ps_remote=options.ps_remote, merge=options.merge)
