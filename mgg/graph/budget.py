"""Amounts of memory as users write them; every start of the workflow reads one, so what computes is not imported."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from pydantic import ByteSize, TypeAdapter, ValidationError

from mgg.errors import InputError, MachineError

MIB = 2**20
#: Bytes that a process of stage graph may hold unless it is told otherwise.
DEFAULT = 4 * 2**30
_LIMIT = ContextVar("limit", default=DEFAULT)


@contextmanager
def limited(limit: int) -> Iterator[None]:
    """Let loaders that hold things whole ask :func:`fit` whether they stay below ``limit`` bytes of this process."""
    token = _LIMIT.set(limit)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def fit(need: int, what: str) -> None:
    """Raise MachineError unless ``need`` bytes more leave this process within its budget; ``what`` takes them."""
    limit, used = _LIMIT.get(), resident()
    if used + need > limit:
        raise MachineError(
            f"{what} may take {-(-need // MIB)} MiB of memory beside the {used // MIB} MiB that are held:"
            f" raise --memory ({limit // MIB} MiB)"
        )


def resident() -> int:
    """Bytes of memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def parse_size(text: str) -> int:
    """Bytes of ``1GiB``, ``800MB`` or ``1073741824``; InputError for anything else."""
    try:
        return int(TypeAdapter(ByteSize).validate_python(text[:40]))
    except (ValidationError, OverflowError):
        raise InputError(f"{text[:40]!r} is not an amount of memory; write for example 1GiB or 800MB") from None
