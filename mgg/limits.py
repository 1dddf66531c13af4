"""Limits of a process (``ulimit``) that keep MGG from working: found before they break a library, or named after."""

from __future__ import annotations

import errno
import re
import resource
from collections.abc import Iterator

from mgg.errors import MachineError

#: Bytes of addresses that every command needs, to load its libraries above all: below that some of them abort or hang.
ADDRESSES = 1200 * 2**20
#: Files that a process opens without being asked twice: a layout of 8 PEs in one process has 400.
_FILES = 65536
_SHORT = re.compile("allocate|map segment|thread-local|find/load shared object", re.IGNORECASE)


def prepare() -> None:
    """Let this process open as many files as it may; to be called before any library is loaded.

    Raises:
        MachineError: its addresses are too few.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    limit = _addresses()
    if limit is not None and limit < ADDRESSES:
        raise MachineError(
            f"{_of_addresses(limit)}, and MGG needs {ADDRESSES} at least: raise it (ulimit -v, or the job's)"
        )


def lack_behind(error: BaseException) -> MachineError | None:
    """What of this process's limits an error comes from, whatever it was taken for on its way here; None if of none."""
    for each in _causes(error):
        if isinstance(each, OSError) and each.errno in (errno.EMFILE, errno.ENFILE):
            files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            whose = f"this process may have {files}" if each.errno == errno.EMFILE else "this host has no more"
            return MachineError(f"too few file descriptors, {whose}: raise the limit (ulimit -n, or the job's)")
        if isinstance(each, RuntimeError) and "can't start new thread" in str(each):
            return MachineError("no thread can be started: raise the limit of processes (ulimit -u) or addresses (-v)")
    limit, last = _addresses(), _causes(error)[-1]
    short = isinstance(last, MemoryError) or getattr(last, "errno", None) == errno.ENOMEM
    # What loads a library says it in words alone.
    short = short or (isinstance(last, (ImportError, OSError)) and bool(_SHORT.search(str(last))))
    if limit is None or not short:
        return None
    told = " ".join(f"{type(last).__name__} {last}".split())
    return MachineError(f"{_of_addresses(limit)}, which may be too few ({told}): raise it (ulimit -v, or the job's)")


def _addresses() -> int | None:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _of_addresses(limit: int) -> str:
    return f"the limit on addresses of this process is {limit} bytes"


def _causes(error: BaseException) -> list[BaseException]:
    """An error and those that were being handled when it was raised, told or not."""

    def walk() -> Iterator[BaseException]:
        each: BaseException | None = error
        while each is not None:
            yield each
            each = each.__cause__ or each.__context__

    return list(walk())
