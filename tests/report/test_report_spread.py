"""Which timings count as within the spread of the fastest, and it with them: those that begin before it ends."""

import pytest
from synthetic_records import aggregate

from mgg.record import write_lines
from mgg.report.collect import collect
from mgg.report.tables import compute


@pytest.mark.parametrize(
    ("q1", "close"),
    [(0.5, True), (1.125, True), (1.25, True), (1.375, False)],
    ids=["below the median", "between median and third quartile", "at the third quartile", "beyond it"],
)
def test_a_runner_up_that_begins_before_the_fastest_ends_is_marked_and_so_is_the_fastest(q1, close, tmp_path):
    records = [
        aggregate(technique="halo", q1=0.75, median=1.0, q3=1.25),
        aggregate(technique="cola", q1=q1, median=1.5, q3=1.75),
    ]
    write_lines(tmp_path / "records.jsonl", records)
    found = compute(collect([tmp_path / "records.jsonl"]))
    marked = {row["label"]: (row["fastest"], row["close"]) for row in found["aggregate"]}
    assert marked == {"halo": (True, close), "cola": (False, close)}
    assert [row["close"] for row in found["fastest"]] == [close]
