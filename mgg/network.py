"""Emulated networks in the notation of users: ``20GB/s,5us``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import AfterValidator, ByteSize, TypeAdapter, ValidationError, WithJsonSchema

#: Seconds per unit of latency.
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
#: Largest bandwidth (bytes per second) and latency (seconds), the same limits as for configured links.
_FASTEST, _LONGEST = 1e15, 1.0


@dataclass(frozen=True)
class Network:
    """A network between workgroups in which every PE has its own full-duplex port.

    Attributes:
        bandwidth: bytes per second of a port.
        latency: seconds from the last byte's departure to its arrival.
    """

    bandwidth: float
    latency: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse text like ``20GB/s,5us`` or ``200Gbit/s,5us``.

        Raises:
            ValueError: the text has another form, or its values are out of range.
        """
        rate, _, delay = (part.strip() for part in text[:80].partition(","))
        found = re.fullmatch(rf"(\d+(?:\.\d+)?) *({'|'.join(_UNITS)})", delay)
        try:
            amount = TypeAdapter(ByteSize).validate_python(rate.removesuffix("/s")) if rate.endswith("/s") else 0
        except (ValidationError, OverflowError):
            amount = 0
        if not found or not 0 < amount <= _FASTEST or float(found[1]) * _UNITS[found[2]] > _LONGEST:
            raise ValueError(
                f"{text[:80]!r} is no bandwidth (up to 1 PB/s) and latency (0 to 1 s): write for example 20GB/s,5us"
            )
        return cls(float(amount), float(found[1]) * _UNITS[found[2]])

    def __str__(self) -> str:
        """Return the name in records and the report: ``emulated 20 GB/s, 5 us``."""
        return f"emulated {self.bandwidth / 1e9:g} GB/s, {self.latency * 1e6:g} us"


def _parsed(text: str) -> str:
    Network.parse(text)
    return text


#: Validated text of a network.
NetworkText = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": rf"^[0-9.]+ *[A-Za-z]+/s *, *[0-9.]+ *({'|'.join(_UNITS)})$"}),
    AfterValidator(_parsed),
]
