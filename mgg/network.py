"""Networks that are emulated, as users write them: ``20GB/s,5us``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import AfterValidator, ByteSize, TypeAdapter, ValidationError, WithJsonSchema

#: Seconds of a unit of latency.
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
#: The largest bandwidth, bytes a second, and latency, seconds: as of links that are given.
_FASTEST, _LONGEST = 1e15, 1.0


@dataclass(frozen=True)
class Network:
    """A network between workgroups, in which every PE has a port of its own, in both directions at once.

    Attributes:
        bandwidth: bytes a second of a port.
        latency: seconds from the last byte's departure to its arrival.
    """

    bandwidth: float
    latency: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """The network of ``20GB/s,5us``, or ``200Gbit/s,5us``.

        Raises:
            ValueError: anything else, or values that no network has.
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
        """What records and the report call it: ``emulated 20 GB/s, 5 us``."""
        return f"emulated {self.bandwidth / 1e9:g} GB/s, {self.latency * 1e6:g} us"


def _parsed(text: str) -> str:
    Network.parse(text)
    return text


#: The text of a network, checked.
NetworkText = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": rf"^[0-9.]+ *[A-Za-z]+/s *, *[0-9.]+ *({'|'.join(_UNITS)})$"}),
    AfterValidator(_parsed),
]
