"""Transfers by their size: what moves, in how many requests, and the paper's numbers beside ours in the report."""

import csv
import html

import pytest
from pydantic import ValidationError
from support.devices.strict import HostsWorld

from mgg import report
from mgg.backend import simulated
from mgg.cost import latency
from mgg.cost.links import REPEATS
from mgg.errors import InputError
from mgg.records import read_lines, write_lines
from mgg.records.latency import LatencyRecord
from mgg.report.papers.catalogue import EXPERIMENTS

SIZES = (2**9, 2**10)
#: By size each repetition and the one before that does not count; the smallest comes once more, untimed.
TIMES = {size: REPEATS + 1 + (size == min(SIZES)) for size in SIZES}


class Counting(HostsWorld):
    """GPUs on hosts of two that note how many rows each request moves."""

    def __init__(self, world):
        super().__init__(world, 2)
        self.gpu, self.asked = "strict", []

    def get_rows(self, source, pe, rows, out, operation="get"):
        self.asked.append(("get", pe, len(rows)))
        super().get_rows(source, pe, rows, out, operation)

    def put_rows(self, target, pe, first, values, alone=False):
        self.asked.append(("put", pe, len(values)))
        super().put_rows(target, pe, first, values, alone)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(latency, "SIZES", SIZES)


def test_each_link_is_timed_by_rows_and_in_one_transfer(small):
    def program(raw):
        world = Counting(raw)
        return latency.measure(world), world.asked, dict(world.counters.bytes)

    found = simulated.run(4, program)
    records = found[0][0]
    cases = [(each.link, each.grain, each.bytes) for each in records]
    assert cases == [(link, g, s) for link in ("nvlink", "network") for s in SIZES for g in ("fine", "coarse")]
    assert all(other == records for other, _, _ in found), "slowest PE: the same on every one"
    assert all(len(each.seconds) == REPEATS and each.row_bytes == 128 and each.pes == 4 for each in records)
    for rank, (_, asked, counted) in enumerate(found):
        # On the own host all rows by one launch; to the other one a message a row, or one for all of them.
        gets = [("get", rank ^ 1, size // 128) for size in SIZES for _ in range(TIMES[size])]
        puts = [
            ("put", (rank + 2) % 4, step)
            for size in SIZES
            for step in (1, size // 128)
            for _ in range(TIMES[size] * (size // 128 // step))
        ]
        assert asked == gets + puts
        moved = sum(size * times for size, times in TIMES.items())
        assert counted == {"get": moved, "put": 2 * moved}


def test_one_sided_rows_are_one_request_each(small, monkeypatch):
    """As between CPU ranks of several hosts: no memory of another PE is addressed."""
    asked = []

    def program(world):
        monkeypatch.setattr(type(world), "get_rows", lambda *a: asked.append((a[0].rank, a[2], len(a[3]))))
        monkeypatch.setattr(latency, "partners", lambda world, probe: (None, 1 - world.rank))
        return latency.measure(world)

    records = simulated.run(2, program)[0]
    assert {each.link for each in records} == {"mpi"}
    steps = [step for size in SIZES for step in (*(1,) * (TIMES[size] * size // 128), *(size // 128,) * TIMES[size])]
    assert [(pe, rows) for rank, pe, rows in asked if rank == 0] == [(1, step) for step in steps]


def test_single_pe_has_no_link():
    with pytest.raises(InputError, match="--latency takes two PEs or more"):
        simulated.run(1, latency.measure)


@pytest.fixture
def records(small):
    return simulated.run(2, latency.measure)[0]


def test_latency_records_are_validated(records):
    values = records[0].model_dump()
    for wrong in ({"median": 1.0}, {"bytes": 100}, {"grain": "middling"}, {"pes": 1}):
        with pytest.raises(ValidationError):
            LatencyRecord(**(values | wrong))


@pytest.mark.slow
@pytest.mark.parametrize(("gpus", "fine", "said"), [(0, 1, "no verdict"), (2, 1, "paper's direction"), (2, 9, "other")])
def test_report_shows_the_papers_latencies(records, tmp_path, gpus, fine, said):
    """At 8 MiB over NVLink the paper's rows take 41.46 / 44.31 of one transfer."""
    made = []
    for grain, us in (("fine", 30.0 * fine), ("coarse", 60.0)):
        machine = records[0].machine.model_copy(update={"gpus": ["NVIDIA H200"] * gpus})
        changes = {"grain": grain, "bytes": 2**23, "seconds": [us * 1e-6], "median": us * 1e-6, "machine": machine}
        changes |= {"link": "nvlink" if gpus else "shared_memory"}
        made.append(LatencyRecord(**(records[0].model_dump() | changes)))
    write_lines(tmp_path / "l.jsonl", made)
    assert read_lines(tmp_path / "l.jsonl", LatencyRecord) == made
    report.build([tmp_path / "l.jsonl"], tmp_path / "out", "t", ["cola_table4"])
    page = html.unescape((tmp_path / "out" / "index.html").read_text(encoding="utf-8"))
    ratio = f"{0.5 * fine:.2f}" if fine > 1 else "0.500"
    assert f"{ratio} times as long as at once, 0.936 times over NVLink in the paper" in page and said in page
    assert "paper 41.5 µs" in page and "paper 44.3 µs" in page and "InfiniBand, fine" not in page
    with (tmp_path / "out" / "latencies.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    medians = {row["grain"]: float(row["median_s"]) for row in rows}
    assert medians == pytest.approx({"coarse": 6e-5, "fine": 3e-5 * fine})


def test_papers_latencies_match_its_text():
    """What its text derives from the table: 8 MB at once over InfiniBand are 16.9 GB/s, if its ms are microseconds."""
    shown = EXPERIMENTS["cola_table4"].transfers
    assert 2**23 / shown.seconds("InfiniBand", "coarse")[2**23] / 1e9 == pytest.approx(16.9, rel=0.01)
    assert all(list(shown.seconds(link, "fine")) == list(latency.SIZES) for link in shown.printed)
