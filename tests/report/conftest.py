"""Reports of made-up records."""

import csv

import pytest
from synthetic_records import write_run, write_split

import mgg.report
from mgg.record import write_lines


@pytest.fixture
def report(tmp_path):
    """The rows of a table and the page of a report that sets ``figures`` beside records."""

    def make(records, *figures, table="figures", runs=(), splits=(), notes=None):
        paths = [write_run(tmp_path / f"run-{number}", run) for number, run in enumerate(runs)]
        paths += [write_split(tmp_path / f"split-{number}", split) for number, split in enumerate(splits)]
        if records:
            write_lines(tmp_path / "a.jsonl", records)
            paths.append(tmp_path / "a.jsonl")
        mgg.report.build(paths, tmp_path / "out", "t", figures, notes or {})
        with (tmp_path / "out" / f"{table}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        return rows, (tmp_path / "out" / "index.html").read_text(encoding="utf-8")

    return make
