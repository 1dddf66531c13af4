"""Models of the user's own: trained as those of MGG are, checked alike, and part of what a run is."""

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from support.programs.train_program import assert_close, checkpoint_files, gradients, result_arrays, run, tables
from support.ranks.stopped import BASE, stop_at
from support.records import alter
from support.workflow import ROOT

from mgg import layout
from mgg.backend import simulated
from mgg.errors import InputError
from mgg.model import build, check_names, find, settings_of
from mgg.model.layers import Linear
from mgg.model.module import Chain
from mgg.model.zoo import gcn
from mgg.records import read_run
from mgg.train import Trainer, train
from mgg.train.evaluate import evaluate
from mgg.train.expected_kernels import of_training
from mgg.train.model import built

DOCS = (ROOT / "docs/guides/own-model.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"^```python title=\"gained.py\"\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
GCN = Path(gcn.__file__).read_text(encoding="utf-8")
HEAD = "from mgg.model.settings import ModelSettings as Settings\n"


def written(folder, text, name="mine.py"):
    """The path of a file with ``text``."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.slow
def test_documented_example_has_right_gradients(layouts, tmp_path):
    """On two PEs those of one, and that of its own layer is a difference quotient of the loss."""
    model = written(tmp_path, EXAMPLE, "gained.py")
    alone, two = (
        gradients("simulated", layouts("planted", pes), pes, model=model, technique="halo")[0] for pes in (1, 2)
    )
    assert_close(two, alone)

    def program(world):
        part = layout.load(layouts("planted", 1), 0)
        settings = settings_of(model, {"dropout": 0.0})
        trainer = Trainer(world, part, model=model, technique="halo", options={}, settings=settings, seed=3)
        losses = []
        for gain in (0.5, 0.49, 0.51):
            trainer.weights["layer0.gain"][...] = gain
            losses.append(trainer.loss_and_gradients(1))
        return losses

    (_, exact), (below, _), (above, _) = simulated.run(1, program)[0]
    assert exact["layer0.gain"][0] == pytest.approx((above - below) / 0.02, rel=1e-2)
    assert abs(exact["layer0.gain"][0]) > 1e-3


@pytest.mark.slow
def test_run_is_named_after_the_model_file_and_keeps_a_copy(layouts, tmp_path):
    model, out = written(tmp_path, EXAMPLE, "gained.py"), tmp_path / "run"
    result = run("simulated", layouts("planted", 2), 2, model=model, out=out, **BASE)[0]
    record = read_run(out)[0]
    assert (record.model, record.model_file) == ("gained", sha256(EXAMPLE)) and record == result.record
    kept = out / "model/gained.py"
    assert kept.read_text(encoding="utf-8") == EXAMPLE
    assert evaluate(out)["test"] == pytest.approx(record.test_accuracy)
    run("simulated", layouts("planted", 2), 2, model=str(kept), out=tmp_path / "again", **BASE)
    assert tables(tmp_path / "again") == tables(out)
    run("simulated", layouts("planted", 2), 2, model=model, out=out, **BASE)  # may take its place
    kept.write_text(f"{EXAMPLE}\n", encoding="utf-8")
    said = r"^.*run/model/gained\.py: altered since the run was written: .* train again$"
    with pytest.raises(InputError, match=said):
        find(str(kept))


def test_copied_model_file_trains_like_the_built_in_model(layouts, tmp_path):
    """The same bits, memory and kernels, and whatever auto picks."""
    model, options = written(tmp_path, GCN, "own_gcn.py"), {**BASE, "technique": "auto"}
    mine, theirs = (run("simulated", layouts("planted", 2), 2, model=name, **options)[0] for name in (model, "gcn"))
    assert mine.record.technique == theirs.record.technique and mine.record.chosen
    assert (theirs.record.model_file, mine.record.model_file) == (None, sha256(GCN))
    expected = result_arrays(theirs)
    for name, array in result_arrays(mine).items():
        np.testing.assert_array_equal(array, expected[name])

    def need(world):
        part, given = layout.load(layouts("planted", 1), 0), {"technique": "halo", "options": {}, "seed": 0}
        made = (Trainer(world, part, model=name, settings=settings_of(name), **given) for name in (model, "gcn"))
        return [each.need for each in made]

    first, second = simulated.run(1, need)[0]
    assert first == second
    assert of_training(model, "halo", {}, "fp32") == of_training("gcn", "halo", {}, "fp32")


MISTAKES = {
    "import": ("x = 1\nimport nope\n", r"{file}:2: ModuleNotFoundError: No module named 'nope'"),
    "syntax": ("x = 1\n\ndef f(:\n", r"{file}:3: SyntaxError: invalid syntax"),
    "exception": ("def f():\n    raise ValueError('two\\nlines')\nf()\n", r"{file}:2: ValueError: two lines"),
    "elsewhere": ("import json\njson.loads('{{')\n", r"{file}:2: JSONDecodeError: Expecting property name"),
    "no text": ("\0", r"{file}.*Error: source code"),
    "exit": ("x = 1\nraise SystemExit(0)\n", r"{file}:2: SystemExit: 0"),
    "a file beside it": ("import beside\n", r"{file}:1: ModuleNotFoundError: No module named 'beside'"),
    "no settings": ("def build(settings, sizes): ...\n", r"{file}: a model needs a class Settings, a subclass of mgg"),
    "no build": (HEAD, r"{file}: a model needs a function build\(settings, sizes\)"),
    "neither": ("x = 1\n", r"{file}: has no class Settings and no function build, so it is no model"),
    "no chain": (f"{HEAD}def build(settings, sizes):\n    return []\n", r"{file}:2: model mine: build returned a list"),
    "raises": (f"{HEAD}def build(settings, sizes):\n    return sizes.nope\n", r"model mine: {file}:3: AttributeError"),
    "a layer twice": (
        f"{HEAD}from mgg.model.layers import Linear\nfrom mgg.model.module import Chain\ndef build(settings, sizes):\n"
        "    return Chain(Linear('a', sizes.features, 8), Linear('a', 8, sizes.classes))\n",
        r"{file}:4: model mine: two layers are called 'a' \(a\.weight\): give each a name of its own",
    ),
    "no modules": (
        f"{HEAD}from mgg.model.module import Chain\ndef build(settings, sizes):\n    return Chain(1, 2)\n",
        r"model mine: {file}:4: Chain: 1 is no layer",
    ),
    "unknown setting": (f"{HEAD}def build(settings, sizes): ...\n", r"setting of model mine: hidden: unknown field"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_error_in_the_model_file_is_one_line(mistake, tmp_path):
    text, said = MISTAKES[mistake]
    path = written(tmp_path, text.replace("{{", "{"))
    (tmp_path / "beside.py").write_text("")
    with pytest.raises(InputError) as caught:
        build(path, settings_of(path, {"hidden": 4} if mistake == "unknown setting" else {}), 4, 3)
    assert re.search(said.replace("{file}", re.escape(path)), str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["beside.py", "mine.py"], "nothing is left beside it"


PATHS = {
    "absent": ("./absent.py", r"^model './absent\.py': No such file or directory, seen from /"),
    "no py": ("./mine.txt", r"^model './mine\.txt': is no \.py file"),
    "a folder": ("folder.py", r"^model 'folder\.py': Is a directory, seen from /"),
    "of MGG's": ("./gcn.py", r"^model './gcn\.py': gcn is a model of MGG's: rename the file, or ask for --model gcn"),
    "a dot": ("a.b.py", r"^model 'a\.b\.py': results are called by the file's name: rename it to letters"),
    "a name": ("mine", r"^model 'mine' is unknown; "),
}


@pytest.mark.parametrize("case", PATHS)
def test_path_without_a_model_is_refused(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.py").mkdir()
    for name in ("mine.txt", "gcn.py", "a.b.py", "mine.py"):
        (tmp_path / name).write_text(GCN)
    path, said = PATHS[case]
    with pytest.raises(InputError, match=said):
        find(path)
    if case != "a name":
        with pytest.raises(InputError, match=said):
            check_names([path])


def test_model_without_programs_has_nothing_to_explain(tmp_path):
    text = HEAD + (
        "from mgg.model.layers import Linear\nfrom mgg.model.module import Chain\n"
        "def build(settings, sizes):\n    return Chain(Linear('layer0', sizes.features, sizes.classes))\n"
    )
    model = find(written(tmp_path, text))
    assert built(model, settings_of(model), 4, 3, 9, 0, fused=True).parameters
    with pytest.raises(InputError, match="side unfused: model mine has no vertex program"):
        built(model, settings_of(model), 4, 3, 9, 0, fused=False)
    with pytest.raises(InputError, match="setting kernels=groups=warp: model mine has no vertex program"):
        built(model, settings_of(model, {"kernels": "groups=warp"}), 4, 3, 9, 0, fused=True)


def test_model_names_are_checked_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a/mine.py", "b/mine.py"):
        written(tmp_path, "raise SystemExit\n", name)
    check_names(["gcn", "a/mine.py", "a/mine.py", "unknown"])
    with pytest.raises(InputError, match=r"^models 'a/mine\.py' and 'b/mine\.py': results of both .* called mine: ren"):
        check_names(["a/mine.py", "b/mine.py"])


def test_changed_model_file_is_read_again(tmp_path):
    path = written(tmp_path, EXAMPLE)
    first = find(path)
    assert find(path).file is first.file and find(path, sha256(EXAMPLE)).name == "mine"
    written(tmp_path, EXAMPLE.replace("5e-4", "1e-3"))
    assert (settings_of(path).weight_decay, settings_of(first).weight_decay) == (1e-3, 5e-4)
    with pytest.raises(InputError, match=rf"the file has changed: .* asked for is {sha256(EXAMPLE)[:12]}: run the wo"):
        find(path, sha256(EXAMPLE))


def test_resume_refuses_a_changed_model_file(layouts, tmp_path):
    path, out = written(tmp_path, EXAMPLE), tmp_path / "run"
    options = {"model": path, "out": out, **BASE}
    stop_at(5, layouts("planted", 1), 1, **options)
    written(tmp_path, f"{EXAMPLE}\n")
    refusal = f"with model file of sha256 {sha256(EXAMPLE)[:12]}, this run has model file of sha256"
    other = sha256(f"{EXAMPLE}\n")[:12]
    with pytest.raises(
        InputError, match=rf"epoch-000005\.safetensors: is of a run {refusal} {other}: run it as before"
    ):
        run("simulated", layouts("planted", 1), 1, resume=True, **options)
    written(tmp_path, EXAMPLE)
    run("simulated", layouts("planted", 1), 1, resume=True, **options)
    assert not checkpoint_files(out)
    alter(out / "run.json", model="gcn")
    with pytest.raises(InputError, match=f"run: is a finished run {refusal} none: take another output folder"):
        run("simulated", layouts("planted", 1), 1, resume=True, **{**options, "model": "gcn"})


def test_pes_with_different_model_files_are_refused(layouts, tmp_path):
    """As hosts that have files of their own at one path."""
    folder = layouts("planted", 3)
    paths = [written(tmp_path, text, f"{pe}/mine.py") for pe, text in enumerate((EXAMPLE, EXAMPLE, GCN))]

    def program(world):
        with pytest.raises(InputError) as caught:
            train(world, layout.load(folder, world.rank), model=paths[world.rank], **BASE)
        return str(caught.value), caught.value.everywhere

    for said, everywhere in simulated.run(3, program):
        assert everywhere and said == (
            f"model mine: PE 2 found another file than PE 0 (sha256 {sha256(GCN)[:12]} instead of"
            f" {sha256(EXAMPLE)[:12]}): give the hosts of all PEs the same one"
        )


@pytest.mark.parametrize("part", ["forward", "backward"])
def test_exception_of_a_user_layer_names_its_line(part, layouts, tmp_path):
    wrong = {"forward": ("self._x = x\n", "self._x = x @ x\n"), "backward": (".inner(gradient, self._x)", ".innner(1)")}
    text = EXAMPLE.replace(*wrong[part])
    line = next(number for number, each in enumerate(text.splitlines(), 1) if wrong[part][1].strip() in each)
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=rf"^model mine: {path}:{line}: (ValueError|AttributeError): "):
        gradients("simulated", layouts("planted", 1), 1, model=path, technique="halo")


def test_internal_exception_is_not_blamed_on_the_model_file(layouts, tmp_path, monkeypatch):
    monkeypatch.setattr("mgg.model.layers.Elu.forward", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gradients("simulated", layouts("planted", 1), 1, model=written(tmp_path, EXAMPLE), technique="halo")


class Wrong(Linear):
    """Its gradient by the weights is changed after the backward pass."""

    def __init__(self, change, inputs, outputs):
        super().__init__("mine", inputs, outputs)
        self._change = change

    def backward(self, gradient, run, inputs=True):
        found = super().backward(gradient, run, inputs)
        changed = self._change(run.gradients.pop("mine.weight"))
        if changed is not None:
            run.gradients["mine.weight"] = changed
        return found


WRONG = {
    "none": (lambda gradient: None, 0, r"^parameter mine\.weight: backward has set no gradient"),
    "turned": (lambda gradient: gradient.T.copy(), 0, r"^parameter mine\.weight: it is \[\d+, \d+\], and its gradient"),
    "flat": (lambda gradient: gradient.reshape(-1), 0, r"^parameter mine\.weight: it is .* gradient \[\d+\]"),
    "columns": (lambda gradient: gradient, 3, r"^model gcn: its output is \[\d+, \d+\], and not \[\d+, \d+\]"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_user_layer_is_refused(case, layouts, monkeypatch):
    change, more, said = WRONG[case]
    monkeypatch.setattr(
        gcn, "build", lambda settings, sizes: Chain(Wrong(change, sizes.features, sizes.classes + more))
    )
    with pytest.raises(InputError, match=said) as raised:
        gradients("simulated", layouts("planted", 2), 2, model="gcn", technique="halo")
    assert raised.value.everywhere


UNFIT = {
    "Linear('a', 5, sizes.classes)": r"^layer a\.weight: it is made for 5 columns, and its input has 32$",
    "convolution('a', 7, sizes.classes)": r"^layer a: it is made for 7 columns, and its input has 32$",
    "Linear('a', sizes.features, sizes.classes), Bias('b', 3)": r"^layer b\.bias: it is made for 3 columns",
    "Linear('a', sizes.features, sizes.classes), BatchNorm('b', 3)": r"^layer b\.scale: it is made for 3 columns",
    "Linear('a', sizes.features, sizes.classes), LayerNorm('b', 3)": r"^layer b\.scale: it is made for 3 columns",
    "Linear('a', sizes.features, sizes.classes), MeanOfHeads(3)": r"^MeanOfHeads\(3\): its input has 10 columns",
    "Embedding('a', 5, sizes.classes)": r"^layer a\.weight: it has 5 rows, and the graph \d+ nodes: give it sizes\.nod",
    "Residual(Linear('a', sizes.features, sizes.classes))": r"^layer Residual: it is made for 10 columns, and .* 32$",
    "Relu, Linear('a', sizes.features, sizes.classes)": r"mine\.py:8: Chain: <class .*Relu'> is no layer",
    "Dropout(2.0, 0), Linear('a', sizes.features, sizes.classes)": r"mine\.py:8: Dropout\(2\.0, 0\): the rate is",
    "Dropout(0.5, 'b'), Linear('a', sizes.features, sizes.classes)": r"mine\.py:8: Dropout\(0\.5, 'b'\): the place",
    "Linear('a', sizes.features, sizes.classes, '5e-4')": r"mine\.py:8: parameter a\.weight: decay '5e-4': ",
    "Linear('a', sizes.features, sizes.classes / 2)": r"mine\.py:8: parameter a\.weight: shape \(32, 5\.0\): ",
    "Relu()": r"mine\.py:7: model mine: no layer of it has a parameter",
}


@pytest.mark.parametrize("layers", UNFIT)
def test_layers_that_do_not_fit_are_told_by_name(layers, layouts, tmp_path):
    imports = "".join(f"from mgg.model.{each} import *\n" for each in ("layers", "module", "propagate"))
    model = written(tmp_path, f"{HEAD}{imports}\n\ndef build(settings, sizes):\n    return Chain({layers})\n")
    with pytest.raises(InputError, match=UNFIT[layers]):
        gradients("simulated", layouts("planted", 2), 2, model=model, technique="halo")
