"""mgg/records/__init__.py: records survive the disk; a broken one is named by file, line and field."""

import re

import pytest
from support.records import altered, file_of
from support.site import rendered_page

from mgg.backend.machine.facts import these_versions, this_machine
from mgg.cost.links import Links
from mgg.cost.product import MachineModel
from mgg.errors import InputError, MachineError
from mgg.origin import origin
from mgg.records import (
    RUN_FILE,
    AggregateRecord,
    EpochRecord,
    Origin,
    TrainRecord,
    Used,
    add_lines,
    as_json,
    read_lines,
    read_run,
    write_lines,
)
from mgg.records.job import JobRecord, read_used
from mgg.records.lookup import LookupRecord
from mgg.records.prediction import PredictionRecord

AGGREGATE = {
    "dataset": "digits", "graph_hash": "0" * 64, "layout": "1" * 64, "nodes": 3, "arcs": 4, "technique": "halo",
    "options": {}, "backend": "mpi", "pes": 2, "dtype": "fp32", "direction": "forward", "dim": 16,
    "scheme": "edge_balanced", "imbalance": 1.0, "edge_cut": 2, "halo_rows": 2, "warmup": 1, "seconds": [0.1, 0.2],
    "launches": [0.1, 0.2], "low": 0.1, "median": 0.15, "high": 0.2, "q1": 0.1, "q3": 0.2,
    "bytes_wire": 128, "bytes_per_pe": [64, 64], "v_cg": 192, "v_fr": 128, "v_fc": 128,
    "error": 1e-8, "tolerance": 1e-6,
}  # fmt: skip


@pytest.mark.parametrize(
    ("section", "models"),
    [
        ("Origin", [Origin]),
        ("Timings and trainings", [AggregateRecord, TrainRecord, EpochRecord]),
        ("Predictions", [PredictionRecord]),
        ("Lookups", [LookupRecord]),
        ("Machines", [MachineModel, Links]),
        ("Jobs", [JobRecord]),
    ],
)
def test_format_page_has_every_field(section, models):
    text = rendered_page("docs/reference/format.md")
    tables = re.search(rf"^### {section}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)[1]
    stated = re.findall(r"^\| (`.*?`) \|", tables, re.MULTILINE)
    fields = [name for cell in stated for name in re.findall(r"`(\w+)`", cell)]
    of_all = () if models == [Origin] else Origin.model_fields
    assert sorted(fields) == sorted(name for model in models for name in model.model_fields if name not in of_all)


@pytest.fixture
def made() -> AggregateRecord:
    return AggregateRecord(**AGGREGATE, machine=this_machine(), versions=these_versions(), **origin())


def test_failed_write_leaves_the_old_file(tmp_path, made, monkeypatch):
    path = tmp_path / "new" / "p2.jsonl"
    write_lines(path, [made])
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(MachineError, match="No space left"):
        write_lines(path, [made, made])
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pes": "two"}, "line 2: field pes"),
        ({"unknown": 1}, "line 2: field unknown"),
        ({"seconds": []}, "line 2: field seconds"),
        ({"schema_version": 2}, "line 2: field schema_version: Input should be 3: run mgg aggregate again"),
        (b"", "holds no records"),
        (b"{", "line 1: not JSON"),
        (b"\xff\xfe", "not UTF-8 text"),
    ],
)
def test_invalid_record_names_its_line_and_field(tmp_path, made, change, message):
    path, good = tmp_path / "p2.jsonl", as_json(made)
    path.write_bytes(change if isinstance(change, bytes) else file_of(good, altered(good, **change)).encode())
    with pytest.raises(InputError, match=message):
        read_lines(path, AggregateRecord)


def changes_of_lines(lines):
    """Whole lines taken out, there twice, moved, or from another file: every one of them, wherever it is."""
    count = len(lines)
    for at in range(count):
        yield lines[:at] + lines[at + 1 :]
        yield lines[: at + 1] + lines[at:]
        for to in range(count):
            if to != at:
                others = lines[:at] + lines[at + 1 :]
                yield others[:to] + lines[at : at + 1] + others[to:]
    yield from (lines[:end] for end in range(1, count))
    yield from (lines[begin:] for begin in range(1, count))
    yield lines + lines


@pytest.mark.parametrize("count", [1, 3])
def test_removed_added_or_moved_lines_are_detected(tmp_path, made, count):
    records, path = [made.model_copy(update={"dim": dim}) for dim in range(1, count + 1)], tmp_path / "p2.jsonl"
    for each in records:  # one by one, as commands add them
        add_lines(path, [each], replace=False)
    assert read_lines(path, AggregateRecord) == records
    lines = path.read_text().splitlines(keepends=True)
    write_lines(tmp_path / "whole.jsonl", records)
    assert (tmp_path / "whole.jsonl").read_text() == "".join(lines)
    write_lines(tmp_path / "other.jsonl", records[::-1])
    other = (tmp_path / "other.jsonl").read_text().splitlines(keepends=True)
    seen = 0
    for changed in [*changes_of_lines(lines), [*lines[:-1], *other[-1:]], lines + other]:
        if changed == lines:  # of one line, what is the same in both files
            continue
        path.write_text("".join(changed))
        message = "holds no records" if not changed else r"p2\.jsonl: (line \d: is not the line|its last lines)"
        with pytest.raises(InputError, match=message):
            read_lines(path, AggregateRecord)
        if changed:
            with pytest.raises(InputError, match=r"p2\.jsonl: .*run mgg aggregate again"):
                add_lines(path, [made], replace=False)
            assert path.read_text() == "".join(changed), "what was altered is not made to fit"
        seen += 1
    assert seen >= count * count
    path.write_text("\n".join(lines))
    assert read_lines(path, AggregateRecord) == records, "blank lines are none"


def test_unchained_lines_of_earlier_versions_are_refused(tmp_path, made):
    path = tmp_path / "p2.jsonl"
    path.write_text(as_json(made))
    with pytest.raises(InputError, match="line 1: has no previous, so it is of an earlier MGG: run mgg aggregate"):
        read_lines(path, AggregateRecord)


def used(memory: int, cpu_seconds: float, seconds: float) -> dict:
    return {"used": {"memory": memory, "cpu_seconds": cpu_seconds, "seconds": seconds}}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([used(10, 1.0, 2.0), used(30, 4.0, 3.0), used(20, 5.0, 6.0)], (30, 5.0, 6.0)),
        ([{}, used(10, 1.0, 2.0), {"used": None}], (10, 1.0, 2.0)),
        ([{}], None),
    ],
    ids=["the most", "some older", "all older"],
)
def test_job_usage_is_the_maximum_of_its_records(tmp_path, made, lines, expected):
    good = made.model_dump_json(exclude={"used"})
    (tmp_path / "p2.jsonl").write_text(file_of(*(altered(good, **line) for line in lines)))
    (tmp_path / RUN_FILE).write_text(altered(good, **lines[0]))
    expected = Used(**dict(zip(Used.model_fields, expected, strict=True))) if expected else None
    for paths in ([tmp_path / "p2.jsonl"], [tmp_path, tmp_path / "p2.jsonl"]):
        assert read_used(paths) == expected
    for each in read_lines(tmp_path / "p2.jsonl", AggregateRecord):
        assert each.model_copy(update={"used": None}) == made


def test_job_usage_ignores_other_files(tmp_path, made):
    with pytest.raises(InputError, match=r"not a run folder \(no run\.json\); make it with mgg train"):
        read_run(tmp_path)
    with pytest.raises(InputError, match=r"run\.json: No such file"):
        read_used([tmp_path])
    (tmp_path / "p2.jsonl").write_text(file_of(altered(made.model_dump_json(), **used(-1, 1.0, 1.0))))
    with pytest.raises(InputError, match=r"line 1: field used\.memory"):
        read_used([tmp_path / "p2.jsonl"])
