"""Process limits (``ulimit``) that stop MGG: checked before they break a library, or named in the error afterwards."""

from __future__ import annotations

import errno
import re
import resource
from collections.abc import Iterator

from mgg.errors import MachineError

#: Bytes of address space that every command needs, mostly for libraries; with less, some of them abort or hang.
ADDRESSES = 1200 * 2**20
#: Open files that MGG asks for; a layout of 8 PEs in one process needs 400.
_FILES = 65536
_SHORT = re.compile("allocate|map segment|thread-local|find/load shared object", re.IGNORECASE)


def prepare() -> None:
    """Raise this process's limit on open files; call it before any library is loaded.

    Raises:
        MachineError: the limit on address space is too low.
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
    """Return the error about the process limit that caused ``error``, however wrapped, or None if no limit did."""
    for each in _causes(error):
        if isinstance(each, OSError) and each.errno in (errno.EMFILE, errno.ENFILE):
            files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            whose = f"this process may have {files}" if each.errno == errno.EMFILE else "this host has no more"
            return MachineError(f"too few file descriptors, {whose}: raise the limit (ulimit -n, or the job's)")
        if isinstance(each, RuntimeError) and "can't start new thread" in str(each):
            return MachineError("no thread can be started: raise the limit of processes (ulimit -u) or addresses (-v)")
    limit, last = _addresses(), _causes(error)[-1]
    short = isinstance(last, MemoryError) or getattr(last, "errno", None) == errno.ENOMEM
    # The dynamic loader reports the cause only in the message text.
    short = short or (isinstance(last, (ImportError, OSError)) and bool(_SHORT.search(str(last))))
    if limit is None or not short:
        return None
    reason = " ".join(f"{type(last).__name__} {last}".split())
    return MachineError(f"{_of_addresses(limit)}, which may be too few ({reason}): raise it (ulimit -v, or the job's)")


def _addresses() -> int | None:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _of_addresses(limit: int) -> str:
    return f"the limit on addresses of this process is {limit} bytes"


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and its chain of causes and contexts, suppressed ones included."""

    def walk() -> Iterator[BaseException]:
        each: BaseException | None = error
        while each is not None:
            yield each
            each = each.__cause__ or each.__context__

    return list(walk())
