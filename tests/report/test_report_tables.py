"""The tables: numbers against ones worked out by hand, and their documentation."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.site import rendered_page
from synthetic_records import GRAPHS, MACHINE, ORIGIN, OTHER, aggregate, split, sweep, train

from mgg.records import AggregateRecord, Origin
from mgg.report.tables import columns
from mgg.report.tables.columns import ABOUT, TABLES, TYPES
from mgg.report.tables.compute import to_arrow
from mgg.report.tables.spread import judge

#: pandas' types of the columns, as docs/reference/tables.md has them.
PANDAS = {"text": "string", "integer": "Int64", "number": "Float64", "yes/no": "boolean"}


def timed(technique, pes, median, **changes):
    return aggregate(technique=technique, pes=pes, seconds=[0.9 * median, median, 1.1 * median], **changes)


def by_label(rows):
    return {(row["label"], row["pes"]): row for row in rows}


def test_speedup_is_against_the_best_time_on_one_pe(tables):
    records = [timed("halo", 1, 8.0), timed("mgg", 1, 10.0), timed("halo", 4, 4.0), timed("mgg", 4, 20.0)]
    rows = by_label(tables([*records, timed("halo", 2, 4.0, dim=64)])["aggregate"])
    assert {key: row["speedup"] for key, row in rows.items()} == {
        ("halo", 1): 1, ("mgg", 1): 0.8, ("halo", 4): 2, ("mgg", 4): pytest.approx(0.4), ("halo", 2): None,
    }  # fmt: skip
    assert (rows["halo", 4]["efficiency"], rows["halo", 2]["efficiency"]) == (0.5, None)


@given(st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=8))
def test_the_fastest_has_the_smallest_median(medians):
    rows = [
        {"label": f"t{number}", "low_s": 0.9 * t, "median_s": t, "high_s": 1.1 * t, "launches": 3, "pes": 2,
         "close": False, "oversubscribed": False}
        for number, t in enumerate(medians)
    ]  # fmt: skip
    judge(rows)
    assert [row["fastest"] for row in rows] == [t == min(medians) for t in medians]
    near = [row["low_s"] <= max(row["high_s"] for row in rows if row["fastest"]) for row in rows]
    assert [row["close"] for row in rows] == (near if sum(near) > 1 else [False] * len(rows))


def test_single_technique_is_not_called_the_fastest(tables):
    found = tables([timed("halo", 1, 1.0), timed("halo", 2, 1.0)])
    assert not any(row["fastest"] for row in found["aggregate"])
    assert found["fastest"] == []


def test_wrong_result_is_never_fastest_or_baseline(tables):
    records = [timed("bad", 1, 0.1, error=2e-6), timed("halo", 1, 1.0), timed("mgg", 1, 2.0)]
    found = tables(records)
    rows = by_label(found["aggregate"])
    assert rows["bad", 1]["check"] == "failed"
    assert not rows["bad", 1]["fastest"]
    assert rows["halo", 1]["fastest"]
    assert rows["halo", 1]["speedup"] == 1
    assert [row["failed"] for row in found["checks"]] == [1, 0, 0]


def test_unchecked_results_are_counted_separately(tables):
    records = [aggregate(pes=1), aggregate(pes=2, error=None, tolerance=None), aggregate(pes=4, error=9e-7)]
    (row,) = tables(records)["checks"]
    assert (row["passed"], row["failed"], row["unchecked"]) == (2, 0, 1)
    assert (row["error"], row["tolerance"]) == (9e-7, 1e-6)


def test_bytes_name_the_equal_volumes(tables):
    volumes = {"v_cg": 300, "v_fr": 100, "v_fc": 100}
    records = [
        aggregate(technique="broadcast", bytes_wire=300, bytes_per_pe=[100, 200], **volumes),
        aggregate(technique="halo", bytes_wire=100, bytes_per_pe=[100, 0], **volumes),
        aggregate(technique="odd", bytes_wire=99, bytes_per_pe=[], **volumes),
        aggregate(technique="one", pes=1, bytes_wire=0, bytes_per_pe=[0], v_cg=0, v_fr=0, v_fc=0),
    ]
    rows = {row["technique"]: row for row in tables(records)["aggregate"]}
    equal = {"broadcast": "V_CG", "halo": "V_FR, V_FC", "odd": "", "one": ""}
    assert {name: row["equal_volumes"] for name, row in rows.items()} == equal
    assert [rows[name]["bytes_pe_max"] for name in ("broadcast", "odd")] == [200, 0]


def test_options_are_named_only_where_a_comparison_needs_them(tables):
    mixed = [aggregate(technique="mgg", options={"ps": ps, "wpb": 4}) for ps in (16, 32)]
    tuned = [aggregate(technique="cola", pes=p, options={"fusion": p > 2}) for p in (2, 4)]
    rows = tables([*mixed, *tuned])["aggregate"]
    assert sorted({row["label"] for row in rows}) == ["cola", "mgg (ps=16)", "mgg (ps=32)"]
    assert '{"ps": 32, "wpb": 4}' in [row["options"] for row in rows]


def test_machines_differ_by_hardware_and_software_only(tables):
    few = MACHINE.model_copy(update={"cores": 1, "memory_bytes": MACHINE.memory_bytes - 4096})
    gpus = OTHER.model_copy(update={"gpus": ["NVIDIA H200"] * 2})
    records = [aggregate(pes=1, machine=few), aggregate(pes=4), aggregate(pes=2, machine=gpus)]
    found = tables([*records, aggregate(pes=8, versions={"mgg": "9"})])
    assert [row["machine"] for row in found["machines"]] == ["M1", "M2", "M3"]
    assert {(row["cores_min"], row["cores_max"]) for row in found["machines"]} == {(1, 2), (2, 2), (16, 16)}
    assert [row["gpus"] for row in found["machines"]] == ["", "", "2 x NVIDIA H200"]
    assert {row["pes"]: row["oversubscribed"] for row in found["aggregate"]} == {1: False, 2: False, 4: True, 8: True}


def test_machine_has_the_most_gpus_of_any_job(tables):
    """Jobs on two and on four GPUs of a machine do not make six of them."""
    granted = [OTHER.model_copy(update={"gpus": ["NVIDIA H200"] * count}) for count in (2, 4)]
    for machines in (granted, granted[::-1]):
        records = [aggregate(pes=pes, machine=machine) for pes, machine in zip((2, 3), machines, strict=True)]
        assert [row["gpus"] for row in tables(records)["machines"]] == ["4 x NVIDIA H200"]


def test_times_of_two_machines_are_never_compared(tables):
    records = [timed("halo", 1, 1.0), timed("mgg", 1, 2.0, machine=OTHER), timed("halo", 2, 2.0, machine=OTHER)]
    found = tables(records)
    assert found["fastest"] == []
    assert [row["speedup"] for row in found["aggregate"]] == [1, 1, 1]


def test_emulated_network_is_a_separate_machine(tables):
    """The faster side of the two networks together is starred among its own alone."""
    held = {"emulated": "emulated 20 GB/s, 5 us"}
    records = [timed(name, 2, median) for name, median in (("halo", 1.0), ("mgg", 2.0))]
    records += [timed(name, 2, median, **held) for name, median in (("halo", 6.0), ("mgg", 3.0))]
    found = tables(records, [train(), train(**held)])
    names = {row["emulated"]: row["machine"] for row in found["machines"]}
    assert sorted(names) == ["", held["emulated"]] and len(set(names.values())) == 2
    fastest = {row["machine"]: (row["label"], row["compared"]) for row in found["fastest"]}
    assert fastest == {names[""]: ("halo", 2), names[held["emulated"]]: ("mgg", 2)}
    assert [row["seeds"] for row in found["accuracy"]] == [1, 1]


def test_accuracy_is_a_mean_over_seeds(tables):
    runs = [train(seed=seed, test_accuracy=score) for seed, score in enumerate((0.80, 0.82, 0.84))]
    rows = tables([], [*runs, train(pes=1, test_accuracy=0.5)])["accuracy"]
    one, three = rows
    assert (one["seeds"], one["test_mean"], one["test_deviation"]) == (1, 0.5, None)
    assert three["seeds"] == 3
    assert three["test_mean"] == pytest.approx(0.82)
    assert three["test_deviation"] == pytest.approx(0.02)
    assert (three["test_min"], three["test_max"]) == (0.80, 0.84)


def test_runs_without_validation_nodes_have_no_validation_mean(tables):
    found = tables([], [train(seed=seed, validation_accuracy=None) for seed in (0, 1)])
    assert [row["validation_mean"] for row in found["accuracy"]] == [None]
    assert {row["validation_accuracy"] for row in found["training"]} == {None}


def a_run(column, *labels, **given):
    """Runs that differ in one field, and the names that tell them apart."""
    ((field, values),) = given.items()
    return column, [{field: value} for value in values], labels


@pytest.mark.parametrize(("pes", "seeds"), [((2, 2), (0, 1)), ((2, 4), (0, 0))])
@pytest.mark.parametrize(
    ("column", "changes", "labels"),
    [
        a_run("model_label", "gcn (hidden=16)", "gcn (hidden=64)", settings=({"hidden": 16}, {"hidden": 64})),
        a_run("model_label", "gcn (epochs=100)", "gcn (epochs=200)", asked_epochs=(100, 200)),
        a_run("model_label", f"gcn (weights={'a' * 12})", "gcn (weights=random)", weights=("a" * 64, None)),
        a_run("model_label", *(f"gcn (weights={each * 12})" for each in "ab"), weights=("a" * 64, "b" * 64)),
        a_run("model_label", *(f"gcn (file={each * 12})" for each in "ab"), model_file=("a" * 64, "b" * 64)),
        a_run("label", "halo (ps=16)", "halo (ps=32)", options=({"ps": 16}, {"ps": 32})),
    ],
)
def test_runs_of_other_settings_are_distinct(tables, column, changes, labels, pes, seeds):
    """Whatever else differs: a mean over seeds is one over the seeds alone."""
    if column == "label" and pes[0] != pes[1]:
        labels = ("halo", "halo")  # options are named only where a comparison needs them
    runs = [train(pes=p, seed=seed, **each) for p, seed, each in zip(pes, seeds, changes, strict=True)]
    rows = tables(runs=runs)["accuracy"]
    assert [(row[column], row["seeds"]) for row in rows] == [(label, 1) for label in labels]


def test_epochs_refer_to_their_run(tables):
    found = tables([], [train(seed=seed, epochs=3) for seed in (0, 1)])
    assert [(row["run"], row["epoch"]) for row in found["epochs"]] == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
    assert [row["run"] for row in found["training"]] == [1, 2]


def test_graphs_and_partitions_are_listed_once(tables):
    found = tables(sweep(dims=[16]))
    assert (len(found["graphs"]), len(found["partitions"])) == (len(GRAPHS), 3 * len(GRAPHS))


def test_table_has_the_partition_quality(tables):
    found = tables(splits=[split(pes=4, workgroup=2), split(pes=2, workgroup=2), split(pes=1)])
    still, two, row = found["quality"]
    assert (still["pes"], two["pes"], row["pes"]) == (1, 2, 4)
    assert (still["redundant_cg"], still["redundant_fr"]) == (None, None)
    # Rows p need 10 p + q + 1 rows of each q: (2 + 3 + 4) + (11 + 13 + 14) + (21 + 22 + 24) + (31 + 32 + 33).
    assert (row["halo_rows"], row["halo_rows_max"], row["edge_cut"]) == (210, 96, 630)
    assert row["edge_cut_share"] == 630 / 10_556
    assert (row["v_cg"], row["v_fr"], row["v_fc"]) == (64 * 2708 * 3, 64 * 630, 64 * 210)
    assert row["redundant_cg"] == pytest.approx(1 - 210 / (2708 * 3))
    assert row["redundant_fr"] == pytest.approx(2 / 3)
    # Across the workgroups (0, 1) and (2, 3): 3 + 4, 13 + 14, 21 + 22, 31 + 32.
    assert (row["vi_cg"], row["vi_fr"], row["vi_fc"]) == (64 * 2708 * 2, 64 * 3 * 140, 64 * 140)
    assert [two[name] for name in ("vi_cg", "vi_fr", "vi_fc", "vi_cola")] == [0, 0, 0, 0]
    graph = {"dataset": "cora", "graph_hash": row["graph_hash"], "nodes": 2708, "arcs": 10_556}
    assert found["graphs"] == [graph | ORIGIN | {"arcs_per_node": 10_556 / 2708, "graph": "cora"}]
    assert found["machines"] == found["partitions"] == []


def test_halo_table_has_every_pair_once(tables):
    splits = [split(pes=3), split(pes=3, workgroup=3), split(pes=2), split(pes=2, scheme="metis")]
    rows = tables([], splits=splits)["halos"]
    assert len(rows) == 6 + 2 + 2
    found = {(row["scheme"], row["pes"], row["pe"], row["owner"]): row["rows"] for row in rows}
    assert found["edge_balanced", 3, 2, 1] == 22
    assert found["metis", 2, 0, 1] == 2


@pytest.mark.parametrize(("runs", "splits"), [((), ()), ([train(), train(seed=1)], [split(pes=1), split()])])
def test_every_row_has_the_documented_columns(tables, runs, splits):
    found = tables(sweep(graphs=["cora"]), runs, splits)
    assert len(found["graphs"]) == 1
    for name, rows in found.items():
        names = [column.name for column in TABLES[name]]
        # Rows of a graph have its name on the page, too; others may have columns of what they are made of.
        assert all(row["graph"] == "cora" for row in rows if "graph_hash" in row), name
        assert all(row.keys() >= set(names) for row in rows), name
        assert to_arrow(name, rows).column_names == names


def test_csv_and_parquet_are_equal(report, tmp_path):
    report(sweep(graphs=["cora"], dims=[16]), runs=[train(epochs=5)], splits=[split()])
    for name in TABLES:
        table = pa.parquet.read_table(tmp_path / "out" / f"{name}.parquet")
        types = pa.csv.ConvertOptions(column_types=table.schema, strings_can_be_null=False)
        again = pa.csv.read_csv(tmp_path / "out" / f"{name}.csv", convert_options=types)
        assert again.to_pylist() == table.to_pylist(), name
        assert all(field.metadata[b"description"] for field in table.schema)
        dtypes = {column.name: PANDAS[column.kind] for column in TABLES[name]}
        typed = pd.read_csv(tmp_path / "out" / f"{name}.csv", dtype=dtypes)
        whole = pd.read_parquet(tmp_path / "out" / f"{name}.parquet", dtype_backend="numpy_nullable")
        assert dict(typed.dtypes) == dict(whole.dtypes) == dtypes, name


def test_column_names_have_units_and_one_type():
    types = {}
    for table, found in TABLES.items():
        for name, kind, unit, *_ in found:
            assert unit != "seconds" or name.endswith("_s"), (table, name)
            assert unit != "bytes" or "bytes" in name or name.startswith(("v_", "vi_")), (table, name)
            assert not hasattr(pd.DataFrame, name), (table, name)
            assert types.setdefault(name, (kind, unit)) == (kind, unit), (table, name)


def test_every_column_is_described():
    """Every column has a meaning, that of a record's field if it is one, and a line of the page made of them."""
    assert [column.name for column in columns.ORIGIN] == list(Origin.model_fields)
    for name, found in TABLES.items():
        assert len({column.name for column in found}) == len(found), name
        assert all(column.kind in TYPES and column.meaning for column in found), name
    assert all(about.startswith("one row per ") for about in ABOUT.values())
    meanings = {column.name: column.meaning for column in TABLES["aggregate"]}
    assert meanings["high_s"] == AggregateRecord.model_fields["high"].description
    assert meanings["options"].startswith("JSON: ") and "None" not in meanings["error"]
    lines = [line for line in rendered_page("docs/reference/tables.md").splitlines() if line.startswith("| `")]
    assert len(lines) == len(columns.ORIGIN) + sum(len(each) - len(columns.ORIGIN) for each in TABLES.values())
