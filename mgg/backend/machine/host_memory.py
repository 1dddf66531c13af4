"""Memory that this host can still give: what its kernel says, within the limits of the job's or container's cgroups."""

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
    """How a version of cgroups calls a group's limit, what it uses, and in ``memory.stat`` what it caches of files."""

    limit: str
    used: str
    cached: tuple[str, str]


# Of version 1 the totals: the others leave out the groups below.
_V1 = _Version("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file"))
_V2 = _Version("memory.max", "memory.current", ("active_file", "inactive_file"))
#: Version 1 has no word for no limit: it says the largest number of whole pages, whose size differs.
_NO_LIMIT = 2**62


def available(named: Path = Path("/proc/self/cgroup"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that this process may still take.

    A job of Slurm has its limit in a group of its own or in one above, and each group counts what those below use: what
    the tightest of them leaves is left.

    Args:
        named: the file that names the groups of this process.
        groups: where the groups are.
    """
    # psutil asks the kernel about the host alone.
    left = [_left(group, version) for group, version in _groups(named, groups)]
    return min([int(psutil.virtual_memory().available), *(each for each in left if each is not None)])


def mappable(size: int) -> bool:
    """Whether the limits of this process (``ulimit -v``) let it map ``size`` bytes more."""
    if not size:
        return True
    try:
        # Memory that is only read is not reserved, so that limits of the host as a whole do not count.
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ).close()
    except (OSError, OverflowError):
        return False
    return True


def places(world: World, mine: T, *, hosts: bool = False) -> Iterator[tuple[list[int], list[T], int | None]]:
    """PEs that share memory, what each said, and the bytes that are free there; GPUs share none (collective)."""
    by_gpu = bool(world.gpu) and not hosts
    everywhere = world.gather((platform.node(), mine, world.free_memory() if by_gpu else available()))
    groups: dict[Hashable, list[int]] = {}
    for pe, (host, _, _) in enumerate(everywhere):
        groups.setdefault(pe if by_gpu else host, []).append(pe)
    for pes in groups.values():
        said = [everywhere[pe][2] for pe in pes if everywhere[pe][2] is not None]
        yield pes, [everywhere[pe][1] for pe in pes], min(said, default=None)


def _groups(named: Path, groups: Path) -> Iterator[tuple[Path, _Version]]:
    """The groups of this process that may limit its memory, and those above them.

    A container may name its group as its host does, and see as the root what is that group there: folders that are not
    there are passed over.
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
        # A process outside of its namespace's root has a path that begins with "..".
        group = root.joinpath(*(part for part in path.split("/") if part not in ("", "..")))
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                yield folder, version


def _left(group: Path, version: _Version) -> int | None:
    """What a group leaves of its limit; None without one."""
    try:
        limit = int((group / version.limit).read_text(encoding="ascii"))
        used = int((group / version.used).read_text(encoding="ascii"))
        facts = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
        # What is cached of files goes when memory is short.
        cached = sum(int(facts.get(name, 0)) for name in version.cached)
    except (OSError, ValueError):
        return None  # no limit ("max"), or no such group
    return None if limit >= _NO_LIMIT else max(limit - used + cached, 0)
