"""The folder: same bytes for the same records, whole or not at all, one clear line for bad input."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.records import alter, altered, file_of
from synthetic_records import ORIGIN, aggregate, split, sweep, train, write_all, write_run, write_split

import mgg.report
from mgg.errors import InputError, MachineError
from mgg.records import write_lines
from mgg.report.tables.columns import TABLES


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "in" / "a.jsonl"
    write_lines(path, sweep(graphs=["cora"], dims=[16], pes=[1, 2]))
    return path


def test_report_has_a_page_and_every_table_twice(records, tmp_path):
    mgg.report.build([records], tmp_path / "deep" / "out", "t")
    names = {f"{name}.{kind}" for name in TABLES for kind in ("csv", "parquet")}
    made = set(snapshot(tmp_path / "deep" / "out"))
    assert {name for name in made if "/" not in name} == names | {"index.html"}
    assert {name.split("/")[0] for name in made if name.endswith(".svg")} == {"figures_aggregate"}


def test_same_records_give_the_same_bytes_in_any_order(tmp_path):
    """And given twice."""
    paths = write_all(tmp_path / "in")
    mgg.report.build(paths, tmp_path / "one", "t")
    mgg.report.build([*paths[::-1], *paths[:2]], tmp_path / "two", "t")
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "two")


@pytest.mark.slow
def test_another_process_gives_the_same_bytes(records, tmp_path, drawn):
    mgg.report.build([records], tmp_path / "one", "t")
    code = "import sys, mgg.report; mgg.report.build([sys.argv[1]], sys.argv[2], 't')"
    environment = os.environ | {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    command = [sys.executable, "-c", code, str(records), str(tmp_path / "two")]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path)
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "two")


def test_earlier_report_is_replaced(records, tmp_path):
    out = tmp_path / "out"
    mgg.report.build([records], out, "first")
    (out / "knobs.csv").touch()  # a table of schema version 3
    mgg.report.build([records], out, "second")
    assert "<title>second</title>" in (out / "index.html").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


@pytest.mark.parametrize("step", ["pa.parquet.write_table", "_sync_all", "rename"])
def test_failure_leaves_the_old_report(records, tmp_path, monkeypatch, step):
    out = tmp_path / "out"
    mgg.report.build([records], out, "first")
    before = snapshot(out)

    def full(self_or_table, *_):
        if step != "rename" or self_or_table.name.endswith(".part"):
            raise OSError(28, "No space left on device")
        return real_rename(self_or_table, *_)

    real_rename = Path.rename
    place = {"_sync_all": "mgg.files._sync_all", "rename": "pathlib.Path.rename"}
    monkeypatch.setattr(place.get(step, "pyarrow.parquet.write_table"), full)
    with pytest.raises(MachineError, match=r"out: cannot be written: No space left on device"):
        mgg.report.build([records], out, "second")
    monkeypatch.undo()
    assert snapshot(out) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_foreign_folder_is_refused(records, tmp_path):
    out = tmp_path / "home"
    out.mkdir()
    (out / "thesis.tex").write_text("x")
    (out / "index.html").write_text("a web site")
    with pytest.raises(InputError, match=r"home: exists and is not an output of this command"):
        mgg.report.build([records], out, "t")
    assert snapshot(out) == {"index.html": b"a web site", "thesis.tex": b"x"}
    with pytest.raises(InputError, match="exists and is not a folder"):
        mgg.report.build([records], out / "thesis.tex", "t")


def test_bad_input_writes_nothing(records, tmp_path):
    lines = records.read_text().splitlines()
    lines[2] = lines[2][:40]
    records.write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"a\.jsonl: line 3: not JSON"):
        mgg.report.build([records], tmp_path / "out", "t")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"median": "fast"}, r"a\.jsonl: line 1: field median"),
        ({"median": -1.0}, r"a\.jsonl: record 1: field median: -1\.0 is not a time"),
        ({"q1": 0.0}, r"a\.jsonl: record 1: field q1: 0\.0 is not a time"),
        ({"low": 9.0}, r"a\.jsonl: record 1: fields low, median, high are not in ascending order"),
        ({"pes": 0}, r"a\.jsonl: record 1: field pes: 0 is not a number of PEs"),
        ({"surprise": 1}, r"a\.jsonl: line 1: field surprise"),
    ],
)
def test_altered_record_is_named(tmp_path, fields, message):
    path = tmp_path / "a.jsonl"
    path.write_text(file_of(altered(aggregate().model_dump_json(), **fields)))
    with pytest.raises(InputError, match=message):
        mgg.report.build([path], tmp_path / "out", "t")


def test_report_without_records_is_refused(tmp_path):
    with pytest.raises(InputError, match="no records given"):
        mgg.report.build([], tmp_path / "out", "t")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(InputError, match=r"empty\.jsonl: holds no records"):
        mgg.report.build([tmp_path / "empty.jsonl"], tmp_path / "out", "t")
    with pytest.raises(InputError, match=r"absent\.jsonl: No such file"):
        mgg.report.build([tmp_path / "absent.jsonl"], tmp_path / "out", "t")
    with pytest.raises(InputError, match=r"holds no run\.json; give a run folder"):
        mgg.report.build([tmp_path], tmp_path / "out", "t")


def test_duplicate_measurements_name_both_files(tmp_path):
    write_lines(tmp_path / "a.jsonl", [aggregate(), aggregate(pes=4)])
    write_lines(tmp_path / "b.jsonl", [aggregate(seconds=[0.5])])
    with pytest.raises(
        InputError, match=r"a\.jsonl and .*b\.jsonl: hold two different results .*technique halo"
    ) as found:
        mgg.report.build([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "out", "t")
    assert "\n" not in str(found.value)
    write_lines(tmp_path / "c.jsonl", [aggregate(), aggregate(seconds=[0.5])])
    with pytest.raises(InputError, match=r"c\.jsonl: holds two different results"):
        mgg.report.build([tmp_path / "c.jsonl"], tmp_path / "out", "t")


def test_newest_result_of_two_runs_counts(tmp_path, caplog):
    """In whatever order they are given; what is left out is said."""
    day = {"run_id": "second", "recorded_at": "2026-02-04T00:00:00Z"}
    write_lines(tmp_path / "old.jsonl", [aggregate(seconds=[0.5]), aggregate(pes=4)])
    write_lines(tmp_path / "new.jsonl", [aggregate(seconds=[0.25], **day)])
    paths = [tmp_path / "old.jsonl", tmp_path / "new.jsonl"]
    for number, order in enumerate((paths, paths[::-1])):
        mgg.report.build(order, tmp_path / str(number), "t")
        (told,) = caplog.messages
        assert told.startswith(
            f"{paths[0]}: left out, as there is a newer result of the same measurement (dataset cora"
        )
        caplog.clear()
    assert snapshot(tmp_path / "0") == snapshot(tmp_path / "1")
    rows = pq.read_table(tmp_path / "0" / "aggregate.parquet").to_pylist()
    assert [(row["pes"], row["median_s"], row["run_id"]) for row in rows] == [
        (2, 0.25, "second"), (4, 0.003, ORIGIN["run_id"]),
    ]  # fmt: skip
    graphs = pq.read_table(tmp_path / "0" / "graphs.parquet")
    assert [(row["run_id"], row["recorded_at"]) for row in graphs.to_pylist()] == [
        (f"{ORIGIN['run_id']}, second", day["recorded_at"])
    ]
    assert graphs.schema.metadata[b"mgg.schema_version"] == b"4" and graphs.schema.metadata[b"mgg.table"] == b"graphs"


def test_identical_partitions_count_once(tmp_path, caplog):
    again = split().model_copy(update={"run_id": "second", "recorded_at": "2026-02-04T00:00:00Z"})
    folders = [write_split(tmp_path / name, record) for name, record in (("p1", split()), ("p2", again))]
    mgg.report.build(folders, tmp_path / "out", "t")
    assert len(pq.read_table(tmp_path / "out" / "quality.parquet")) == 1 and not caplog.messages


def test_duplicate_runs_name_both_folders(tmp_path):
    folders = [write_run(tmp_path / name, train(loss=loss)) for name, loss in (("r1", 0.5), ("r2", 0.6))]
    with pytest.raises(InputError, match=r"r1 and .*r2: hold two different results"):
        mgg.report.build(folders, tmp_path / "out", "t")


def test_runs_over_different_partitions_are_distinct(given, tmp_path):
    schemes = (None, "metis", "range")
    mgg.report.build(
        given(runs=[train(loss=n, scheme=scheme) for n, scheme in enumerate(schemes)]), tmp_path / "o", "t"
    )
    lines = pq.read_table(tmp_path / "o" / "accuracy.parquet").to_pylist()
    assert [(line["seeds"], line["scheme"]) for line in lines] == [(1, ""), (1, "metis"), (1, "range")]
    page = (tmp_path / "o" / "index.html").read_text(encoding="utf-8")
    assert all(text in page for text in ("scheme not noted", "metis", "range"))


def test_duplicate_partitions_name_both_folders(tmp_path):
    made = split()
    other = made.model_copy(update={"quality": made.quality.model_copy(update={"edge_cut": 1})})
    folders = [write_split(tmp_path / name, record) for name, record in (("p1", made), ("p2", other), ("p3", made))]
    mgg.report.build([folders[0], folders[2]], tmp_path / "out", "t")
    with pytest.raises(InputError, match=r"p1 and .*p2: hold two different .*scheme edge_balanced, pes 4"):
        mgg.report.build(folders[:2], tmp_path / "out", "t")


def test_altered_partition_is_named(tmp_path):
    folder = write_split(tmp_path / "p", split())
    file = folder / "partition.json"
    alter(file, pes=5)
    with pytest.raises(InputError, match=r"p/partition\.json: bounds: they do not cut"):
        mgg.report.build([folder], tmp_path / "out", "t")
    file.write_text(file.read_text()[:80])
    with pytest.raises(InputError, match=r"p/partition\.json: not JSON"):
        mgg.report.build([folder], tmp_path / "out", "t")
