"""The Python API: what the command line makes, from a script."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from support.ranks import mpiexec
from support.ranks.commands import mgg as commands

import mgg
from mgg import api
from mgg.errors import InputError
from mgg.records import AggregateRecord, read_lines, read_run


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """digits on two PEs, each a workgroup, by the command line."""
    folder = tmp_path_factory.mktemp("api")
    commands("graph", "digits", "--out", "graph", cwd=folder)
    commands("partition", "graph", "--pes", 2, "--workgroup", 1, "--out", "part", cwd=folder)
    commands("layout", "graph", "part", "--out", "layout", cwd=folder)
    return folder / "layout"


def test_import_of_mgg_loads_nothing_else():
    loaded = "name for name in sys.modules if name.partition('.')[0] in ('numpy', 'click', 'mgg')"
    code = f"import sys, mgg; print(*({loaded}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["mgg"]


def test_subpackages_are_functions_and_stay_packages():
    from mgg.train import Trainer

    assert mgg.train.Trainer is Trainer and mgg.train.__wrapped__ is api.train
    assert all(callable(getattr(mgg, name)) for name in mgg._CALLED)
    assert set(mgg._CALLED) == {name for name in api.__all__ if name.islower()}
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        mgg.trian  # noqa: B018


def test_training_has_the_curve_of_the_command_line(layout, tmp_path):
    words = ("--model", "gcn", "--epochs", 4, "--seed", 3, "--set", "hidden=8", "--backend", "simulated")
    commands("train", layout, *words, "--out", "cli", cwd=tmp_path)
    run = mgg.train(layout, model="gcn", epochs=4, seed=3, settings={"hidden": 8}, backend="simulated")
    theirs, epochs = read_run(tmp_path / "cli")
    assert run.metrics["loss"].tolist() == [epoch.loss for epoch in epochs]
    assert (run.test_accuracy, run.record.settings) == (theirs.test_accuracy, theirs.settings)
    predicted = run.predictions
    test = predicted[predicted["split"] == 3]
    assert (test["prediction"] == test["label"]).mean() == pytest.approx(run.test_accuracy)
    assert sum(array.size for array in run.weights.values()) >= run.record.parameters


def test_training_takes_memory_threads_and_network(layout, tmp_path):
    """The bits of a training without them; the report keeps it apart."""
    same = {"model": "gcn", "epochs": 2, "settings": {"hidden": 8}}
    plain = mgg.train(layout, **same, backend="simulated")
    held = mgg.train(
        layout, **same, backend="simulated", memory_per_pe="1GiB", activations="recompute",
        emulate_network="1GB/s,1us",
    )  # fmt: skip
    assert held.metrics["loss"].tolist() == plain.metrics["loss"].tolist()
    found = held.record
    assert found.memory_per_pe == 2**30 and {*found.activations.values()} == {"recompute"}
    assert found.emulated is not None and plain.record.emulated is None
    row = mgg.report(plain, held, out=tmp_path / "report").table("training")
    assert sorted(map(bool, row["activations"])) == [False, True]
    with pytest.raises(InputError, match="emulate_network: 'fast'"):
        mgg.aggregate(layout, emulate_network="fast")
    with pytest.raises(InputError, match="--threads 1024: 2 PEs"):
        mgg.aggregate(layout, backend="simulated", threads=1024)


@pytest.mark.parametrize(("call", "options", "message"), [
    (mgg.train, {"threads": 0}, "threads: input should be greater than or equal to 1, found 0"),
    (mgg.train, {"activations": "drop"}, "activations: input should be 'auto', 'keep', 'recompute' or 'host'"),
    (mgg.train, {"epochs": 0}, "epochs: "), (mgg.train, {"seed": -1}, "seed: "),
    (mgg.train, {"dtype": "fp16"}, "dtype: "), (mgg.train, {"emulate_network": ""}, "emulate_network: ''"),
    (mgg.train, {"memory_per_pe": ""}, "memory_per_pe: '' is not an amount of memory"),
    (mgg.aggregate, {"threads": 0}, "threads: "), (mgg.aggregate, {"dim": [8, 0]}, "dim: .*found 0"),
    (mgg.aggregate, {"launches": 0}, "launches: "), (mgg.aggregate, {"iterations": 0}, "iterations: "),
    (mgg.aggregate, {"technique": []}, "technique: none is named"), (mgg.aggregate, {"pes": 0}, "pes: .*found 0"),
])  # fmt: skip
def test_argument_out_of_range_is_named(call, options, message):
    with pytest.raises(InputError, match=message):
        call("nowhere", **options)


def test_graph_and_product_of_a_file(tmp_path):
    """Against SciPy's count of the arcs; the product itself is checked where it is timed."""
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, 30, (90, 2)), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    np.savetxt(tmp_path / "mine.csv", pairs, fmt="%d", delimiter=",", header="von,nach", comments="")
    with pytest.raises(InputError, match="von"):
        mgg.graph(tmp_path / "mine.csv", column={"source": "vonn"})
    made = mgg.graph(
        tmp_path / "mine.csv", column={"source": "von", "target": "nach"}, symmetrize=True, out=tmp_path / "g"
    )
    matrix = sp.coo_array((np.ones(len(pairs)), pairs.T))
    assert made.path == tmp_path / "g" and made.manifest.arcs == (matrix + matrix.T).nnz
    timed = mgg.aggregate(made, technique=["mgg", "halo"], dim=[2, 5], pes=2, launches=1, iterations=2)
    assert timed.table[["technique", "dim", "pes"]].values.tolist() == [
        [name, dim, 2] for name in ("mgg", "halo") for dim in (2, 5)
    ]
    assert (timed.table["error"] <= timed.table["tolerance"]).all()
    assert read_lines(timed.path, AggregateRecord) == timed.records
    report = mgg.report(timed, out=tmp_path / "report")
    assert report.page.is_file() and sorted(report.table("aggregate")["dim"]) == [2, 2, 5, 5]
    with pytest.raises(InputError, match=r"no table 'trainings'; it has .*aggregate"):
        report.table("trainings")


def test_arguments_that_layouts_and_ranks_exclude_are_refused(layout, monkeypatch):
    with pytest.raises(InputError, match="a layout of 2 PEs, and pes=4"):
        mgg.train(layout, model="gcn", pes=4)
    monkeypatch.setenv("PMI_SIZE", "2")
    for source, words in (("digits", {"out": "run"}), (layout, {})):
        with pytest.raises(InputError, match=f"{source}: 2 ranks need one layout folder"):
            mgg.train(source, model="gcn", **words)


@pytest.mark.slow
def test_temporary_files_are_removed_at_exit():
    code = "import mgg; print(mgg.graph('digits').path.parents[1])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() and not Path(done.stdout.strip()).exists()


@pytest.mark.slow
@pytest.mark.mpi
def test_api_works_on_ranks(layout, tmp_path):
    code = f"import mgg; run = mgg.train({str(layout)!r}, model='gcn', epochs=3, out='run'); print(run.record.pes)"
    (tmp_path / "script.py").write_text(code)
    done = mpiexec(2, ["script.py"], cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.split() == ["2", "2"], done.stderr


@pytest.mark.parametrize(("call", "options", "message"), [
    (mgg.train, {"epochs": "3"}, "^epochs: input should be a number, found '3'"),
    (mgg.train, {"settings": ["hidden=3"]}, r"^settings: takes a dictionary, values by name, found \['hidden=3'\]"),
    (mgg.train, {"options": "split=cover"}, "^options: takes a dictionary"),
    (mgg.train, {"resume": True}, "^resume: needs out"),
    (mgg.aggregate, {"dim": "16"}, "^dim: input should be a number, found '16'"),
    (mgg.aggregate, {"options": ["split=cover"]}, "^options: takes a dictionary"),
])  # fmt: skip
def test_an_argument_of_another_type_is_refused_by_its_name(call, options, message):
    with pytest.raises(InputError, match=message):
        call("nowhere", **options)
