"""The section on the workflow's jobs: when they ran, what they asked for and what they used."""

from __future__ import annotations

import re
import time
from xml.etree import ElementTree

import pytest
from synthetic_records import ORIGIN, aggregate

from mgg.errors import InputError
from mgg.records import write_lines
from mgg.records.job import JobRecord
from mgg.report import build
from mgg.report.figures import timeline
from mgg.report.tables import jobs as jobs_table
from mgg.report.tables.jobs import AGAIN, FITS, TOO_LARGE, TOO_SMALL, UNKNOWN
from mgg.report.tables.numbers import duration, utc

DAY = 86_400.0
NOON = 1_700_049_600.0  # 2023-11-15 12:00:00 UTC


def job(**changes) -> JobRecord:
    """A layout that took 100 seconds and asked for what it used twice over; ``changes`` replace fields."""
    fields = {
        **ORIGIN,
        "stage": "layout",
        "rule": "layout",
        "wildcards": {"dataset": "cora", "pes": "2"},
        "ended": NOON + 100,
        "seconds": 100.0,
        "memory": 2_000_000_000,
        "cpu_seconds": 80.0,
        "seen": 80.0,
        "runtime_asked": 3600.0,
        "memory_asked": 4_000_000_000,
        "cores_asked": 1,
        "granted": True,
    }
    return JobRecord(**fields | {"runtime_asked": 200.0} | changes)


@pytest.fixture
def shown_of(page):
    """The section of a report with these jobs."""
    return lambda *jobs: section(page([aggregate(pes=1)], jobs=jobs))


def tables(*records):
    """Tables jobs and requests."""
    rows = jobs_table.compute(records)
    return rows, jobs_table.compute_requests(rows)


def section(page: str) -> str:
    return page[page.index('<section id="jobs">') :].split("</section>", maxsplit=1)[0]


def test_timeline_skips_days_between_runs(shown_of):
    records = [
        job(stage="graph", rule="graph", wildcards={"dataset": "cora"}, ended=NOON - 3 * DAY, seconds=30.0),
        job(stage="graph", rule="order", wildcards={"dataset": "cora"}, ended=NOON - 3 * DAY + 40, seconds=20.0),
        job(),
    ]
    jobs, _ = tables(*records)
    assert [(row["workflow_run"], row["rule"]) for row in jobs] == [(1, "graph"), (1, "order"), (2, "layout")]
    assert [row["started"] for row in jobs] == ["2023-11-12 11:59:30", "2023-11-12 12:00:20", "2023-11-15 12:00:00"]
    shown = shown_of(*records)
    assert shown.count("<figure>") == 2
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", shown)
    assert captions == [
        "Run of 2023-11-15 12:00:00 UTC: 1 job in 100 s.",
        "Run of 2023-11-12 11:59:30 UTC: 2 jobs in 70.0 s.",
    ]


@pytest.mark.parametrize(("granted", "lull", "runs"), [(False, 59, 1), (False, 61, 2), (True, 599, 1), (True, 601, 2)])
def test_pause_divides_runs(granted, lull, runs):
    later = job(wildcards={"dataset": "cora", "pes": "4"}, ended=NOON + 200 + lull, granted=granted)
    jobs, _ = tables(job(granted=granted), later)
    assert max(row["workflow_run"] for row in jobs) == runs


def test_queue_time_is_no_pause(shown_of, drawn):
    later = job(wildcards={"dataset": "cora", "pes": "4"}, submitted=NOON + 110, ended=NOON + DAY, slurm_job="4711")
    jobs, _ = tables(job(), later)
    assert [row["workflow_run"] for row in jobs] == [1, 1]
    assert jobs[1]["waited_s"] == pytest.approx(DAY - 100 - 110)
    shown = shown_of(job(), later)
    assert "Slurm job 4711, waited 23.9 h</title>" in shown and "longest wait" in shown


def test_hover_texts_are_escaped(shown_of, drawn):
    shown = shown_of(job(wildcards={"dataset": "<b>&"}, attempts=2))
    assert "<title>layout dataset=&lt;b&gt;&amp;, 100 s, 2023-11-15 12:00:00 UTC, attempt 2</title>" in shown
    assert "<b>" not in shown


@pytest.mark.parametrize("count", [30, 150])
def test_figure_is_readable_with_many_jobs(drawn, count):
    jobs = [
        job(rule=rule, wildcards={"dataset": f"graph{number}"}, ended=NOON + 100 + number % 7)
        for rule in ("graph", "layout", "train")
        for number in range(count // 3)
    ]
    shown = str(timeline.parts(jobs_table.compute(jobs))[0].drawings[0].svg)
    assert shown.count("</title>") == len(jobs)
    width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', shown).groups())
    assert height < 2.5 * width
    assert (">graph3</text>" in shown) == (count == 30)


def test_jobs_without_times_are_only_in_tables(shown_of):
    records = [job(ended=None), job(rule="order", seconds=None, memory=None, ended=None)]
    jobs, found = tables(*records)
    assert [(row["workflow_run"], row["started_unix_s"]) for row in jobs] == [(None, None)] * 2
    assert "Jobs over time" not in shown_of(*records) and "Requested and used" in shown_of(*records)
    assert {row["verdict"] for row in found if row["rule"] == "order"} == {UNKNOWN}


@pytest.mark.parametrize(
    ("resource", "changes", "verdict", "factor", "enough"),
    [
        ("time", {}, FITS, None, None),
        ("time", {"runtime_asked": 36_000.0}, TOO_LARGE, 600 / 36_000, 10),  # never less than 10 minutes
        ("time", {"runtime_asked": 36_000.0, "seconds": 3_600.0}, TOO_LARGE, 0.2, 120),
        ("time", {"runtime_asked": 36_000.0, "seconds": 3_600.0, "attempts": 2}, AGAIN, None, None),
        ("time", {"runtime_asked": 660.0, "seconds": 3.0}, FITS, None, None),
        ("time", {"runtime_asked": 660.0, "seconds": 630.0}, TOO_SMALL, 2 * 630 / 660, 21),
        ("memory", {"memory_asked": 64_000_000_000}, TOO_LARGE, 1 / 16, 4000),
        ("memory", {"memory_asked": 2_100_000_000}, TOO_SMALL, 40 / 21, 4000),
        # The sum over ranks is an upper bound.
        ("memory", {"memory_asked": 1_900_000_000, "ranks": 8}, FITS, None, None),
        ("memory", {"memory_asked": 64_000_000_000, "seen": 40.0}, UNKNOWN, None, None),
        ("memory", {"memory_asked": 64_000_000_000, "memory": None}, UNKNOWN, None, None),
        ("cores", {"cores_asked": 8}, TOO_LARGE, 0.25, 2),
        ("cores", {"cores_asked": 8, "granted": False}, FITS, None, None),
        ("cores", {"cores_asked": 8, "ranks": 8}, FITS, None, None),  # a rank has one at least
        ("cores", {"cores_asked": 64, "ranks": 8}, TOO_LARGE, 1 / 8, 1),
    ],
)
def test_suggested_requests_are_listed(resource, changes, verdict, factor, enough):
    jobs, found = tables(job(**changes))
    [row] = [row for row in found if row["resource"] == resource]
    assert (row["verdict"], row["enough"]) == (verdict, enough)
    assert row["factor"] == (None if factor is None else pytest.approx(factor))
    field = {"time": "runtime", "memory": "mem_mb", "cores": "cpus_per_task"}[resource]
    grids = jobs_table.parts(jobs, found)[0].grids
    told = [cells[0].text for grid in grids[1:] for _, cells in grid.groups[0][1] if cells[0].text.startswith(field)]
    assert told == ([] if factor is None else [f"{field}: {enough}"])


def test_suggestion_follows_the_job_with_the_largest_share():
    """Not the largest job: the factor is for the requests of all."""
    large = job(wildcards={"dataset": "big"}, memory_asked=100_000_000_000, memory=5_000_000_000)
    small = job(memory_asked=10_000_000_000, memory=1_000_000_000)
    [row] = [row for row in tables(large, small)[1] if row["resource"] == "memory"]
    assert row["share"] == 0.1 and row["factor"] == pytest.approx(0.2) and row["enough"] == 20_000
    assert (row["asked"], row["used"], row["jobs"]) == (1e11, 5e9, 2)


def test_jobs_without_requests_show_only_times(shown_of):
    silent = job(runtime_asked=None, memory_asked=None, cores_asked=None)
    shown = shown_of(silent)
    assert tables(silent)[1] == [] and "Requested and used" not in shown and "Jobs over time" in shown


@pytest.mark.parametrize("granted", [True, False])
def test_local_jobs_are_not_counted_as_requests(shown_of, granted):
    local = job(rule="retrieve", runtime_asked=None, memory_asked=None, cores_asked=None, granted=False)
    shown = shown_of(local, job(granted=granted))
    assert ("A scheduler reserved what these jobs asked for." in shown) == granted
    assert ("Nothing was reserved on this machine" in shown) == (not granted)


def test_section_needs_the_jobs_file(tmp_path):
    write_lines(tmp_path / "a.jsonl", [aggregate()])
    build([tmp_path / "a.jsonl"], tmp_path / "out", "t", job_file=tmp_path / "jobs.jsonl")
    assert "How the workflow ran" not in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    with pytest.raises(InputError, match=r"a\.jsonl: line 1: field"):
        build([tmp_path / "a.jsonl"], tmp_path / "out", "t", job_file=tmp_path / "a.jsonl")


def test_times_of_day_are_utc(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert utc(NOON) == "2023-11-15 12:00:00"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.25, "0.250 s"), (119, "119 s"), (120, "2.00 min"), (7_200, "2.00 h"), (360_000, "100 h")]
)
def test_durations_are_formatted(seconds, text):
    assert duration(seconds) == text


def test_every_figure_is_a_file_too(page, tmp_path, drawn):
    text = page([aggregate()], jobs=[job(), job(ended=NOON - DAY)])
    files = sorted((tmp_path / "out").glob("figures_*/*.svg"))
    below = text[text.index('<section id="graph-1">') :]  # the first screen shows two of them before
    assert len(files) == below.count("<svg ") == len({file.name for file in files})
    assert [file.name for file in files if file.parent.name == "figures_jobs"] == [
        f"run-of-2023-11-{day}-{hour}-utc-1-job-in-100-s.svg" for day, hour in ((14, "11-58-20"), (15, "12-00-00"))
    ]
    for file in files:
        root = ElementTree.parse(file).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        used = set(re.findall(r"var\((--\w+)\)", file.read_text(encoding="utf-8")))
        assert used and all(f"{name}: #" in root.findtext("{http://www.w3.org/2000/svg}style", "") for name in used)
