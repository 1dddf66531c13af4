"""Settings of MGG's kernel, and their measured times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pydantic import Field

from mgg.schema import Fixed

NAMES = ("ps", "dist", "wpb")


class Setting(NamedTuple):
    """Arcs per neighbor partition, interleaving distance, and warps per block."""

    ps: int
    dist: int
    wpb: int

    def __str__(self) -> str:
        return f"{self.ps}, {self.dist}, {self.wpb}"

    def options(self) -> dict[str, int]:
        """Return the setting as options of the technique."""
        return self._asdict()


#: The first setting of the search.
START = Setting(1, 1, 1)


class SettingRecord(Fixed):
    """A setting as stored in records."""

    ps: int = Field(ge=1, le=32, description="arcs of a neighbor partition")
    dist: int = Field(ge=1, le=16, description="interleaving distance")
    wpb: int = Field(ge=1, le=16, description="warps a block")

    @property
    def setting(self) -> Setting:
        """Return the setting as the kernel takes it."""
        return Setting(self.ps, self.dist, self.wpb)


class Tried(SettingRecord):
    """A setting that was measured."""

    seconds: tuple[float, ...] = Field(min_length=1, description="of products or epochs, each the slowest PE's")

    @classmethod
    def of(cls, setting: Setting, seconds: Iterable[float]) -> Tried:
        """Return the record of ``setting`` and its times."""
        return cls(**setting.options(), seconds=tuple(seconds))


def times_of(tried: Iterable[Tried]) -> dict[Setting, tuple[float, ...]]:
    """Return the seconds by setting, in the order of ``tried``."""
    return {each.setting: each.seconds for each in tried}
