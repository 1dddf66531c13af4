"""Weights that were trained elsewhere: PyTorch Geometric's logits, and a line for every file that does not fit."""

import hashlib
import json
import logging
import shutil

import numpy as np
import pyarrow.parquet
import pytest
from safetensors.numpy import save_file
from support.programs.train_program import run
from support.ranks.stopped import BASE
from support.records import alter

from mgg import layout
from mgg.backend import simulated
from mgg.errors import InputError
from mgg.model import build, settings_of
from mgg.model.module import Chain
from mgg.model.zoo import sgc
from mgg.records import InferenceRecord, read_predicted, read_run
from mgg.train.evaluate import evaluate
from mgg.train.import_weights import fitted, read
from mgg.train.infer import infer
from mgg.train.run.output import digest


def inferred(folder, pes, **options):
    """The record, of the first PE."""
    parts = [layout.load(folder, rank) for rank in range(pes)]
    return simulated.run(pes, lambda world: infer(world, parts[world.rank], **{"technique": "halo", **options}))[0]


@pytest.mark.parametrize("graph", ["planted", "tasks"])
def test_inference_with_a_runs_weights_gives_its_predictions(graph, layouts, tmp_path):
    """On other PEs, with another technique; running statistics are among them."""
    options = {**BASE, "settings": {"hidden": 8, "layers": 2}, "model": "gin"}
    record = run("simulated", layouts(graph, 1), 1, out=tmp_path / "run", **options)[0].record
    weights, out = tmp_path / "run/weights.safetensors", tmp_path / "out"
    given = {"model": "gin", "weights": weights, "out": out, "settings": options["settings"], "technique": "ring"}
    found = inferred(layouts(graph, 2), 2, **given)
    assert sorted(path.name for path in out.iterdir()) == ["inference.json", "predictions.parquet"]
    mine, theirs = (pyarrow.parquet.read_table(folder / "predictions.parquet") for folder in (out, tmp_path / "run"))
    assert mine.schema == theirs.schema and mine["node"] == theirs["node"] and mine["label"] == theirs["label"]
    if graph == "planted":
        assert mine.equals(theirs)
    else:
        first, second = (np.array(table["logit"].to_pylist()) for table in (mine, theirs))
        assert np.abs(first - second).max() <= 1e-5 * np.abs(second).max()
    assert read_predicted(out) == found and isinstance(found, InferenceRecord)
    assert (found.pes, found.technique, found.metric) == (2, "ring", record.metric)
    assert found.settings == {name: record.settings[name] for name in found.settings} and "hidden" in found.settings
    assert "learning_rate" not in found.settings and found.layout != record.layout
    assert found.weights_file == hashlib.sha256(weights.read_bytes()).hexdigest()
    scores = evaluate(out)
    assert scores["test"] == pytest.approx(record.test_accuracy) and scores["train"] is not None
    assert scores == evaluate(tmp_path / "run")


def test_predictions_folder_holds_the_user_model(layouts, tmp_path):
    model = shutil.copyfile(sgc.__file__, tmp_path / "own_sgc.py")
    chain = chain_of("sgc", layouts("planted", 1))
    save_file(arrays_of(chain), tmp_path / "w.safetensors")
    given = {"weights": tmp_path / "w.safetensors", "technique": "auto"}
    records = [
        inferred(layouts("planted", 2), 2, model=name, out=tmp_path / f"out{number}", **given)
        for number, name in enumerate(("sgc", str(model)))
    ]
    assert [each.model_file for each in records] == [None, hashlib.sha256(model.read_bytes()).hexdigest()]
    assert records[0].weights == records[1].weights == digest("", arrays_of(chain)) and records[0].chosen
    tables = [pyarrow.parquet.read_table(tmp_path / f"out{number}/predictions.parquet") for number in range(2)]
    assert tables[0].equals(tables[1])
    kept = tmp_path / "out1/model/own_sgc.py"
    assert inferred(layouts("planted", 2), 2, model=str(kept), out=tmp_path / "again", **given).model == "own_sgc"
    kept.write_text("")
    with pytest.raises(InputError, match=r"own_sgc\.py: altered since .*: inference\.json names .* mgg infer"):
        inferred(layouts("planted", 2), 2, model=str(kept), out=tmp_path / "again", **given)


def chain_of(model, folder, **settings):
    facts = layout.read_manifest(folder)
    return build(model, settings_of(model, settings), facts.features, facts.classes or facts.tasks, facts.nodes)


def arrays_of(chain: Chain, seed: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {each.name: rng.normal(0, 0.3, each.shape).astype(np.float32) for each in chain.parameters}


#: By what is wrong: a change of the arrays of a model of 3 features, hidden 4 and 2 classes, what is mapped, the line.
HERE = {"layer0.weight": (3, 4), "layer0.bias": (4,), "layer1.weight": (4, 2), "layer1.bias": (2,)}
MISFITS = {
    "missing and unknown": (
        lambda a: a.update({"conv0.lin.weight": a.pop("layer0.weight").T}), (),
        r"w\.npz: does not fit the model: missing layer0\.weight \[3, 4\] \(nearest: conv0\.lin\.weight \[4, 3\]\);"
        r" unknown conv0\.lin\.weight \[4, 3\]: --map THEIRS=OURS renames",
    ),
    "transposed": (
        lambda a: a.update({"layer0.weight": a["layer0.weight"].T}), (),
        r"does not fit the model: of another shape layer0\.weight \[4, 3\] for layer0\.weight \[3, 4\]: --map",
    ),
    "another number of them": (
        lambda a: a.update({"x": a.pop("layer0.bias")[:3]}), ("x=layer0.bias.reshape",),
        r"of another shape x \[3\] for layer0\.bias \[4\]",
    ),
    "one too many": (lambda a: a.update(tracked=np.array(3)), (), r"the model: unknown tracked \[\]: --map"),
    "no equals": (None, ("layer0.bias",), r"^--map layer0\.bias: expected THEIRS=OURS"),
    "not theirs": (None, ("layer0.bia=layer0.bias",), r"has no layer0\.bia; did you mean layer0\.bias"),
    "not ours": (None, ("layer0.bias=layer0.bia",), r"the model has no layer0\.bia; did you mean layer0\.bias"),
    "twice": (None, ("layer0.bias=layer0.bias", "layer0.bias="), r"expected THEIRS=OURS, once for each"),
    "two for one": (
        None, ("layer0.bias=layer1.bias",), r"both layer0\.bias and layer1\.bias would be layer1\.bias: --map one of",
    ),
    "infinite": (lambda a: a["layer1.bias"].__setitem__(1, -np.inf), (), r"layer1\.bias has values that are not"),
    "too large": (
        lambda a: a.update({"layer1.bias": np.array([1.0, 1e39])}), (), r"values that are not finite as float32",
    ),
    "whole numbers": (
        lambda a: a.update({"layer1.bias": np.array([1, 2])}), (), r"bias is of type int64, and not of floats",
    ),
}  # fmt: skip


@pytest.fixture
def gcn():
    return build("gcn", settings_of("gcn", {"hidden": 4}), 3, 2)


@pytest.mark.parametrize("case", MISFITS)
def test_weights_that_do_not_fit_are_refused_in_one_line(case, gcn, tmp_path):
    change, maps, said = MISFITS[case]
    arrays = arrays_of(gcn)
    assert {name: array.shape for name, array in arrays.items()} == HERE
    if change:
        change(arrays)
    np.savez(tmp_path / "w.npz", **arrays)
    with pytest.raises(InputError, match=said) as caught:
        fitted(tmp_path / "w.npz", read(tmp_path / "w.npz")[0], maps, gcn)
    assert "\n" not in str(caught.value)


def test_weights_are_renamed_and_transposed_by_map(gcn, tmp_path):
    arrays = arrays_of(gcn)
    theirs = {
        "a": np.ascontiguousarray(arrays["layer0.weight"].T), "b": arrays["layer0.bias"][None, :, None],
        "layer1.weight": arrays["layer1.weight"], "layer1.bias": arrays["layer1.bias"], "steps": np.array(7),
    }  # fmt: skip
    save_file(theirs, tmp_path / "w.safetensors")
    maps = ("a=layer0.weight.T", "b=layer0.bias.reshape", "steps=")
    found, content = read(tmp_path / "w.safetensors")
    got, note = fitted(tmp_path / "w.safetensors", found, maps, gcn)
    assert note == "" and content == hashlib.sha256((tmp_path / "w.safetensors").read_bytes()).hexdigest()
    assert got.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(got[name], array)
        assert got[name].dtype == np.float32 and got[name].flags.c_contiguous


def bf16(array):
    """The bits of bfloat16, of numbers that it holds, as safetensors writes them."""
    return (np.asarray(array, np.float32).view(np.uint32) >> 16).astype("<u2")


def test_other_float_types_are_converted_with_a_note(gcn, tmp_path):
    """A file written by hand, by the format's own description: a header of JSON, then the bytes."""
    halves = {name: np.round(array * 8).astype(np.float32) for name, array in arrays_of(gcn).items()}
    types = {"layer0.weight": "BF16", "layer0.bias": "F16", "layer1.weight": "F64", "layer1.bias": "F32"}
    makers = {"BF16": bf16, "F16": np.float16, "F64": np.float64, "F32": np.float32}
    parts, header, at = [], {}, 0
    for name, kind in types.items():
        parts.append(np.asarray(makers[kind](halves[name])).tobytes())
        header[name] = {"dtype": kind, "shape": HERE[name], "data_offsets": [at, at + len(parts[-1])]}
        at += len(parts[-1])
    text = json.dumps(header).encode()
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))
    got, note = fitted(path, read(path)[0], (), gcn)
    assert note == f"{path}: arrays of type BF16, F16, F64 are converted to float32"
    for name, array in halves.items():
        np.testing.assert_array_equal(got[name], array)


FILES = {
    "absent": ("w.npz", None, "No such file"),
    "a folder": ("run.npz", "folder", "is neither a .safetensors nor a .npz file; in PyTorch: safetensors.torch.save"),
    "torn npz": ("w.npz", b"PK\3\4", "w.npz: cannot be read, or torn"),
    "a pickle": ("w.npz", b"\x80\4N.", "w.npz: cannot be read, or torn"),
    "torn safetensors": ("w.safetensors", b"\xff" * 20, "w.safetensors: cannot be read, or torn"),
}


@pytest.mark.parametrize("case", FILES)
def test_broken_weight_file_is_refused_in_one_line(case, tmp_path):
    name, content, said = FILES[case]
    path = tmp_path / name
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(path)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_failed_inference_writes_nothing(layouts, tmp_path, caplog):
    folder, out = layouts("planted", 2), tmp_path / "out"
    arrays = {name: array.astype(np.float64) for name, array in arrays_of(chain_of("gcn", folder)).items()}
    np.savez(tmp_path / "w.npz", **arrays)
    given = {"model": "gcn", "weights": tmp_path / "w.npz", "out": out}
    for wrong, said in (
        ({"settings": {"learning_rate": 1.0}}, "setting learning_rate: only affects training"),
        ({"settings": {"hiden": 1}}, "setting of model gcn: hiden: unknown field; did you mean hidden"),
        ({"settings": {"hidden": 8}}, r"of another shape layer0\.weight"),
        ({"technique": "hallo"}, "technique 'hallo'"),
        ({"options": {"stale": 1}}, "technique halo: option stale: only affects training"),
        ({"options": {"boundary": 0.5}}, "technique halo: option boundary: only affects training"),
        ({"out": tmp_path}, "exists and is not an output of this command"),
    ):
        with pytest.raises(InputError, match=said):
            inferred(folder, 2, **{**given, **wrong})
    arrays["layer0.weight"][:] = 1e30
    np.savez(tmp_path / "large.npz", **arrays)
    with pytest.raises(InputError, match=r"its output is not finite or beyond 1e\+18, first in layer layer\d \("):
        inferred(folder, 2, **given | {"weights": tmp_path / "large.npz"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["large.npz", "w.npz"]
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        inferred(folder, 2, **given)
    messages = [each.message for each in caplog.records]
    assert messages == [f"{tmp_path / 'w.npz'}: arrays of type float64 are converted to float32"]
    alter(out / "inference.json", files={})
    with pytest.raises(InputError, match=r"predictions\.parquet: altered .*: inference\.json .*: run mgg infer again"):
        evaluate(out)
    with pytest.raises(InputError, match="not a run folder"):
        read_run(out)


def test_pes_with_different_weights_are_refused(layouts, tmp_path):
    folder = layouts("planted", 2)
    parts = [layout.load(folder, rank) for rank in range(2)]
    for rank in range(2):
        np.savez(tmp_path / f"w{rank}.npz", **arrays_of(chain_of("gcn", folder), seed=rank))

    def program(world):
        path = tmp_path / f"w{world.rank}.npz"
        with pytest.raises(InputError, match=rf"w{world.rank}\.npz: PE 1 read another file than PE 0"):
            infer(world, parts[world.rank], model="gcn", technique="halo", weights=path, out=tmp_path / "out")

    simulated.run(2, program)
    assert not (tmp_path / "out").exists()
