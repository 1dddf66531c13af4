"""bfloat16 on the host: the upper 16 bits of a float32, kept as uint16 (NumPy has no such type)."""

from __future__ import annotations

import numpy as np

#: Type of embeddings -> type of the array that holds them.
ELEMENTS: dict[str, type] = {"fp32": np.float32, "bf16": np.uint16}
#: Bits of a number that is none.
_NAN = 0x7FC0


def to_bf16(values: np.ndarray) -> np.ndarray:
    """float32 [...] rounded to the nearest bfloat16, ties to even: uint16 [...]."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint16(_NAN), rounded.astype(np.uint16))


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """The float32 numbers [...] that uint16 ``bits`` stand for."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
