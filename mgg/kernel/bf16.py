"""bfloat16 on the host: the upper 16 bits of a float32, stored as uint16 because NumPy has no bfloat16."""

from __future__ import annotations

import numpy as np

#: Type of embeddings -> NumPy type of their arrays.
ELEMENTS: dict[str, type] = {"fp32": np.float32, "bf16": np.uint16}
#: Bits of NaN.
_NAN = 0x7FC0


def to_bf16(values: np.ndarray) -> np.ndarray:
    """Round float32 ``values`` [...] to the nearest bfloat16, ties to even; return uint16 [...]."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint16(_NAN), rounded.astype(np.uint16))


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """Return the float32 values [...] of the bfloat16 ``bits``, uint16."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
