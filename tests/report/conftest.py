"""Reports of made-up records."""

import csv
from itertools import count

import pytest
from matplotlib.figure import Figure
from synthetic_records import write_given

import mgg.report
from mgg.records import write_lines
from mgg.report.tables.collect import collect
from mgg.report.tables.comparisons import compare
from mgg.report.tables.compute import compute

EMPTY = b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'


@pytest.fixture
def drawn():
    """For tests of the figures themselves: Matplotlib saves them."""


@pytest.fixture(autouse=True)
def sketched(request, monkeypatch):
    """Elsewhere figures are plotted, but saved empty, because saving takes most of a report's time."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(Figure, "savefig", lambda _, file, **__: file.write(EMPTY))


@pytest.fixture
def given(tmp_path):
    """Writes records, runs and partitions; their paths."""
    numbers = count()
    return lambda *made, **others: write_given(tmp_path / f"in-{next(numbers)}", *made, **others)


@pytest.fixture
def tables(given):
    """Computes the tables of records, and the comparisons of some figures."""

    def make(records=(), runs=(), splits=(), figures=()):
        found = compute(collect(given(records, runs, splits)))
        return found | {"figures": compare(figures, found["aggregate"], found["training"]), "jobs": []}

    return make


@pytest.fixture
def report(given, tmp_path):
    """The rows of a table and the page of a report that sets ``figures`` beside records."""

    def make(records=(), *figures, table="figures", runs=(), splits=(), notes=None, jobs=(), title="t"):
        if jobs:
            write_lines(tmp_path / "jobs.jsonl", jobs)
        file = tmp_path / "jobs.jsonl" if jobs else None
        mgg.report.build(given(records, runs, splits), tmp_path / "out", title, figures, notes or {}, file)
        with (tmp_path / "out" / f"{table}.csv").open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        return rows, (tmp_path / "out" / "index.html").read_text(encoding="utf-8")

    return make


@pytest.fixture
def page(report):
    """The page of a report."""
    return lambda *made, **others: report(*made, **others)[1]
