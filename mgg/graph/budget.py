"""Amounts of memory as users write them; every start of the workflow reads one, so what computes is not imported."""

from __future__ import annotations

from pydantic import ByteSize, TypeAdapter, ValidationError

from mgg.errors import InputError


def parse_size(text: str) -> int:
    """Bytes of ``1GiB``, ``800MB`` or ``1073741824``; InputError for anything else."""
    try:
        return int(TypeAdapter(ByteSize).validate_python(text[:40]))
    except (ValidationError, OverflowError):
        raise InputError(f"{text[:40]!r} is not an amount of memory; write for example 1GiB or 800MB") from None
