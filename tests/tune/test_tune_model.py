"""MGG's model: equations 1 to 3 by hand, and what a GPU cannot run."""

import pytest

from mgg.kernel.column_tiles import mgg_shared
from mgg.tune.model import BlockLimits, load, refusal
from mgg.tune.setting import Setting

A100 = BlockLimits(shared_memory=163 * 1024, threads=1024, registers=65536)


def test_equations_match_hand_calculations():
    found = load(Setting(16, 2, 4), 64, local=1001, remote=300, processors=108)
    assert (found.wpw, found.smem) == (2 * 16 * 64 * 2, 16 * 4 * 4 + 2 * 4 * 64 * 4)
    assert (found.warps, found.blocks) == (501, 126)
    assert found.blocks_per_sm == 126 / 108


def test_equation_1_admits_settings_that_our_kernel_refuses():
    grid = [Setting(ps, 1, wpb) for ps in (1, 32) for wpb in (1, 16)]
    assert all(load(at, 602, 1, 1, 108).smem <= 164 * 1024 for at in grid)
    # 128 columns a tile: two sums a warp, and of rows on their way 4096 bytes' worth, 8 of them.
    assert mgg_shared(602, 32, 16) == 16 * (2 + 8) * 128 * 4
    assert mgg_shared(16, 4, 2) == 2 * (2 + 4) * 16 * 4


@pytest.mark.parametrize(
    ("wpb", "shared", "limits", "said"),
    [
        (16, 163 * 1024, A100, ""),
        (1, 163 * 1024 + 1, A100, "166913 bytes of shared memory a block, this GPU has 166912"),
        (16, 0, BlockLimits(1, 256, 65536), "512 threads a block, this GPU has 256"),
        (16, 0, BlockLimits(1, 1024, 40959), "40960 registers a block, this GPU has 40959"),
    ],
)
def test_impossible_settings_are_excluded(wpb, shared, limits, said):
    assert refusal(Setting(1, 1, wpb), shared, limits) == said
