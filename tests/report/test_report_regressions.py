"""Two reports side by side: which rows pair, what is worse, and what the command says of it."""

import json

import pyarrow as pa
import pyarrow.parquet
import pytest
from synthetic_records import MACHINE, aggregate, train

import mgg.report
from mgg.errors import InputError
from mgg.report.tables.collect import collect
from mgg.report.tables.compute import compute, to_arrow
from mgg.report.tables.regressions import regressions


@pytest.fixture
def reports(given, tmp_path):
    """Two report folders of records and runs: the tables that are compared, or, if ``whole``, all."""

    def make(whole=False, **sides):
        for name, (records, runs) in sides.items():
            paths, folder = given(records, runs), tmp_path / name
            if whole:
                mgg.report.build(paths, folder, "t")
                continue
            folder.mkdir()
            found = compute(collect(paths))
            for table in ("machines", "aggregate", "training"):
                pa.parquet.write_table(to_arrow(table, found[table]), folder / f"{table}.parquet")
        return [tmp_path / name for name in sides]

    return make


def product(median, spread=0.01, **changes):
    return aggregate(seconds=[median * (1 - spread), median, median * (1 + spread)], **changes)


def told(rows):
    return [(row["technique"], row["measure"], row["first"], row["second"], row["result"]) for row in rows]


def test_threshold_applies_to_times_and_accuracies(reports):
    one, two = reports(
        a=([product(0.100), product(0.2, technique="cola"), product(0.3, technique="mgg")], [train(test_accuracy=0.8)]),
        b=([product(0.112), product(0.1, technique="cola"), product(0.3, technique="mgg")], [train(test_accuracy=0.7)]),
    )
    rows = regressions(one, two, 0.1)
    assert sorted(told(rows)) == [
        ("cola", "median_s", 0.2, 0.1, "better"),
        ("halo", "median_s", 0.012, 0.012, "same"),
        ("halo", "median_s", 0.1, 0.112, "worse"),
        ("halo", "test_accuracy", 0.8, 0.7, "worse"),
        ("mgg", "median_s", 0.3, 0.3, "same"),
    ]
    assert {round(row["change"], 6) for row in rows} == {-0.5, 0.0, 0.12, -0.125}
    assert [row["result"] for row in regressions(one, two, 0.13)].count("worse") == 0
    assert [row["result"] for row in regressions(two, one, 0.15)].count("worse") == 1  # cola, by 100 %


def test_improvement_from_zero_has_no_ratio(reports):
    one, two = reports(a=([], [train(test_accuracy=0.0)]), b=([], [train(test_accuracy=0.5)]))
    for sides, result in (((one, two), "better"), ((two, one), "worse"), ((one, one), "same")):
        assert [row["result"] for row in regressions(*sides, 0.05) if row["measure"] == "test_accuracy"] == [result]


@pytest.mark.parametrize(
    "changes",
    [{"dataset": "pubmed"}, {"graph_hash": "c1" * 32}, {"pes": 4}, {"dim": 64}, {"dtype": "bf16", "tolerance": 1e-2},
     {"direction": "transpose"}, {"scheme": "metis"}, {"backend": "simulated"}, {"technique": "cola"},
     {"options": {"split": "cover"}}, {"machine_id": "be" * 8}, {"emulated": "20GB/s,5us"},
     {"machine": MACHINE.model_copy(update={"threads": 2})}],
)  # fmt: skip
def test_different_measurements_are_not_paired(reports, changes):
    one, two = reports(a=([product(0.1), product(0.1, technique="ring")], []),
                       b=([product(0.9, **changes), product(0.1, technique="ring")], []))  # fmt: skip
    rows = regressions(one, two, 0.05)
    assert sorted(row["result"] for row in rows) == ["only in first", "only in second", "same"]
    assert [row["second"] for row in rows if row["result"] == "only in first"] == [None]


@pytest.mark.parametrize("changes", [{"mgg_version": "9.0.0"}, {"commit": "ff" * 20}, {"versions": {"mgg": "9"}},
                                     {"options": {"ps": 16}, "defaults": {"ps": 16}}])  # fmt: skip
def test_versions_and_default_options_are_paired(reports, changes):
    one, two = reports(a=([product(0.1)], []), b=([product(0.2, **changes)], []))
    assert told(regressions(one, two, 0.05)) == [("halo", "median_s", 0.1, 0.2, "worse")]


@pytest.mark.parametrize("changes", [{"seed": 1}, {"model": "gin"}, {"settings": {"hidden": 8}}, {"side": "pyg"}])
def test_trainings_are_paired_by_model_settings_and_seed(reports, changes):
    one, two = reports(a=([], [train(), train(seed=9)]), b=([], [train(**changes), train(seed=9)]))
    assert [row["result"] for row in regressions(one, two, 0.05)].count("only in first") == 2


@pytest.mark.parametrize("spread", [0.3, 0.01])
def test_overlapping_launches_are_reported(reports, spread):
    one, two = reports(a=([product(0.1, spread)], []), b=([product(0.12, spread)], []))
    assert [(row["result"], row["overlap"]) for row in regressions(one, two, 0.05)] == [("worse", spread == 0.3)]


def test_csv_files_are_enough_to_compare(reports):
    one, two = reports(True, a=([product(0.1)], [train(epochs=2)]), b=([product(0.2)], [train(test_accuracy=0.5)]))
    expected = regressions(one, two, 0.05)
    for file in one.glob("*.parquet"):
        file.unlink()
    assert regressions(one, two, 0.05) == expected


def test_incomparable_reports_are_refused(reports, tmp_path):
    one, two = reports(a=([product(0.1)], []), b=([product(0.1, pes=4)], []))
    with pytest.raises(InputError, match="no measurement is in both"):
        regressions(one, two, 0.05)
    with pytest.raises(InputError, match=r"not a report folder of mgg report \(no machines.parquet\)"):
        regressions(one, tmp_path, 0.05)
    twice = [product(0.1), product(0.2, versions={"mgg": "9"}, commit="ab" * 20)]
    one, two = reports(c=(twice, []), d=([product(0.1)], []))
    with pytest.raises(InputError, match=rf"two rows of one measurement \(halo on cora\).*{'ab' * 20}"):
        regressions(one, two, 0.05)
    for table in ("machines", "aggregate", "training"):
        found = pa.parquet.read_table(one / f"{table}.parquet")
        old = found.replace_schema_metadata({"mgg.schema_version": "3"})
        pa.parquet.write_table(old, one / f"{table}.parquet")
    with pytest.raises(InputError, match=rf"^{one}/.* has version 3 of the tables.*: mgg report RECORDS --out {one}$"):
        regressions(two, one, 0.05)
    (two / "aggregate.parquet").write_bytes(b"no")
    with pytest.raises(InputError, match=r"aggregate.parquet: not readable"):
        regressions(two, two, 0.05)


def test_command_ends_with_code_4_for_regressions(reports, ends, capsys):
    one, two = reports(a=([product(0.1)], [train()]), b=([product(0.104), product(1.0, dim=64)], [train()]))

    def compare(*words):
        return ends("compare", one, two, *words), *capsys.readouterr()

    code, told, _ = compare()
    lines = told.splitlines()
    assert code == 0
    assert lines[0].split() == ["dataset", "technique", "what", "pes", "dtype", "measure", "A", "B", "change", "result"]
    assert lines[-1] == "3 same, 1 only in second" and "+4.0%" in told
    code, told, error = compare("--threshold", "3.5%")
    assert code == 4 and told.splitlines()[-1] == "1 worse, 1 only in second, 2 same"
    assert error == "mgg: 1 of 4 measurements are worse by more than 3.5%\n"
    code, told, _ = compare("--threshold", "3.5%", "--json")
    assert code == 4 and json.loads(told)["rows"] == regressions(one, two, 0.035)
    assert [compare("--threshold", wrong)[0] for wrong in ("3", "-1%", "x%", "nan%")] == [2] * 4
