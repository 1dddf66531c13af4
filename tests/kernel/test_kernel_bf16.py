"""bfloat16 on the host: rounding as PyTorch and the hardware round, and back."""

import numpy as np
import pytest

from mgg.kernel.bf16 import from_bf16, to_bf16


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (0.0, 0x0000), (-0.0, 0x8000), (1.0, 0x3F80), (-2.0, 0xC000), (np.inf, 0x7F80), (-np.inf, 0xFF80),
        (1 + 2**-8, 0x3F80), (1 + 3 * 2**-8, 0x3F82), (1 + 2**-8 + 2**-20, 0x3F81), (3.4028235e38, 0x7F80),
        (2.0**-133, 0x0001), (np.nan, 0x7FC0),
    ],
)  # fmt: skip
def test_rounding_is_to_nearest_ties_to_even(value, bits):
    assert to_bf16(np.array([value], np.float32)).tolist() == [bits]


def test_bf16_values_round_trip():
    bits = np.arange(2**16, dtype=np.uint16)
    numbers = from_bf16(bits)
    real = ~np.isnan(numbers)
    assert np.array_equal(to_bf16(numbers)[real], bits[real]) and real.sum() == 2**16 - 2 * 127


def test_rounding_error_is_at_most_half_a_unit():
    values = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    assert np.all(np.abs(from_bf16(to_bf16(values)) / values - 1) <= 2**-8)
