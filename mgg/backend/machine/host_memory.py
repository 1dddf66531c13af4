"""Free memory of this host, within the limits of the job's or container's cgroups."""

from __future__ import annotations

import mmap
import platform
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from mgg.backend.api import World

T = TypeVar("T")


@dataclass(frozen=True)
class _Version:
    """A cgroup version's names of a group's limit, its usage, and its file cache in ``memory.stat``."""

    limit: str
    used: str
    cached: tuple[str, str]


# Version 1 needs the totals: its other counters leave out the groups below.
_V1 = _Version("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file"))
_V2 = _Version("memory.max", "memory.current", ("active_file", "inactive_file"))
#: Version 1 writes "no limit" as the largest number of whole pages, which depends on the page size.
_NO_LIMIT = 2**62


def available(named: Path = Path("/proc/self/cgroup"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that this process may still allocate.

    A Slurm job has its limit in its own group or in one above, and each group counts the usage of the groups below. So
    the group with the least memory left decides.

    Args:
        named: the file that names the groups of this process.
        groups: the folder of the groups.
    """
    # psutil knows the host's memory, not the groups.
    left = [_left(group, version) for group, version in _groups(named, groups)]
    return min([int(psutil.virtual_memory().available), *(each for each in left if each is not None)])


def mappable(size: int) -> bool:
    """Return whether the limits of this process (``ulimit -v``) let it map ``size`` more bytes."""
    if not size:
        return True
    try:
        # The system reserves nothing for read-only memory, so only this process's limits count, not the host's.
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ).close()
    except (OSError, OverflowError):
        return False
    return True


def places(world: World, mine: T, *, hosts: bool = False) -> Iterator[tuple[list[int], list[T], int | None]]:
    """Yield the PEs that share a memory, their ``mine`` values, and the free bytes of that memory (collective).

    GPU PEs share no memory, so each is a group of its own unless ``hosts`` asks for the hosts' memory.
    """
    by_gpu = bool(world.gpu) and not hosts
    everywhere = world.gather((platform.node(), mine, world.free_memory() if by_gpu else available()))
    groups: dict[Hashable, list[int]] = {}
    for pe, (host, _, _) in enumerate(everywhere):
        groups.setdefault(pe if by_gpu else host, []).append(pe)
    for pes in groups.values():
        said = [everywhere[pe][2] for pe in pes if everywhere[pe][2] is not None]
        yield pes, [everywhere[pe][1] for pe in pes], min(said, default=None)


def _groups(named: Path, groups: Path) -> Iterator[tuple[Path, _Version]]:
    """Yield the groups of this process that may limit its memory, and the groups above them.

    A container may name its group as the host does but see that group as its root, so yielded folders may not exist.
    """
    try:
        lines = named.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root, version = groups, _V2
        elif "memory" in controllers.split(","):
            root, version = groups / "memory", _V1
        else:
            continue
        # The path of a process outside its namespace's root begins with "..".
        group = root.joinpath(*(part for part in path.split("/") if part not in ("", "..")))
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                yield folder, version


def _left(group: Path, version: _Version) -> int | None:
    """Return the bytes left in a group; None without a limit."""
    try:
        limit = int((group / version.limit).read_text(encoding="ascii"))
        used = int((group / version.used).read_text(encoding="ascii"))
        facts = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
        # The system drops cached files if memory is short.
        cached = sum(int(facts.get(name, 0)) for name in version.cached)
    except (OSError, ValueError):
        return None  # no limit ("max"), or no such group
    return None if limit >= _NO_LIMIT else max(limit - used + cached, 0)
