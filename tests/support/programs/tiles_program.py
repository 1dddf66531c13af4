"""How columns are assigned to lanes (mgg/kernel/cuda/arguments.py)."""

from mgg.kernel.column_tiles import column_tiles
from mgg.kernel.cuda.arguments import even_lanes, row_tiles


def main():
    for vectors in range(1, 140):
        for widest in (1, 8, 32):
            for tiles in (list(column_tiles(4 * vectors - 3, 4, widest)), list(row_tiles(4 * vectors - 3, 4, widest))):
                ends = [first + 4 * lanes * count for lanes, first, count in tiles]
                # Tiles follow one another; less than half of the last one is idle, or it has 16 lanes or fewer.
                assert [first for _, first, _ in tiles] == [0, *ends[:-1]] and ends[-1] >= 4 * vectors
                assert all(lanes <= widest and lanes & (lanes - 1) == 0 for lanes, _, _ in tiles)
                assert ends[-1] - 4 * vectors < 2 * tiles[-1][0]
        slots = {lanes: -(-vectors // lanes) * lanes for lanes in (8, 16, 32)}
        found = even_lanes(vectors, 8)
        if vectors > 16:
            assert slots[found] == min(slots.values()) and all(
                slots[more] > slots[found] for more in slots if more > found
            )
        else:
            assert found // 2 < vectors <= max(found, 8) or found == 8
    assert list(row_tiles(80, 4, 32)) == [(16, 0, 1), (4, 64, 1)]
    assert list(row_tiles(172, 4, 32)) == [(32, 0, 1), (16, 128, 1)]
    assert list(row_tiles(602, 4, 32)) == [(32, 0, 4), (16, 512, 1), (8, 576, 1)]
    assert list(row_tiles(602, 4, 8)) == [(8, 0, 19)] == list(column_tiles(602, 4, 8))
    assert [even_lanes(each, 8) for each in (1, 4, 12, 17, 25, 33, 64)] == [1, 4, 16, 8, 32, 8, 32]
