"""Memory budgets of stage graph, and their notation; imports stay light, as every start of the workflow needs it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from pydantic import ByteSize, TypeAdapter, ValidationError

from mgg.errors import InputError, MachineError

MIB = 2**20
#: Default limit of a process of stage graph, in bytes.
DEFAULT = 4 * 2**30
_LIMIT = ContextVar("limit", default=DEFAULT)


@contextmanager
def limited(limit: int) -> Iterator[None]:
    """Set the limit that :func:`fit` checks for loaders that keep whole files in memory: bytes of this process."""
    token = _LIMIT.set(limit)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def fit(need: int, what: str) -> None:
    """Raise MachineError if ``need`` more bytes for ``what`` take this process over its budget."""
    limit, used = _LIMIT.get(), resident()
    if used + need > limit:
        raise MachineError(
            f"{what} may take {-(-need // MIB)} MiB of memory beside the {used // MIB} MiB that are held:"
            f" raise --memory ({limit // MIB} MiB)"
        )


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def parse_size(text: str, option: str = "") -> int:
    """Return the bytes of ``1GiB``, ``800MB`` or ``1073741824``; raises InputError, naming ``option``, for others."""
    try:
        return int(TypeAdapter(ByteSize).validate_python(text[:40]))
    except (ValidationError, OverflowError):
        raise InputError(
            f"{option and f'{option}: '}{text[:40]!r} is not an amount of memory; write for example 1GiB or 800MB"
        ) from None
