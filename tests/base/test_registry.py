"""A mistake in one file of a package is told to who asks for what it holds; all others work as before."""

import importlib
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mgg.aggregate import TECHNIQUES
from mgg.cli.doctor import doctor
from mgg.errors import InputError
from mgg.graph import datasets, sources
from mgg.graph.generate import name_of
from mgg.graph.generators import GENERATORS
from mgg.graph.reorder import ORDERS
from mgg.graph.sources import LOADERS, loader_of
from mgg.model import MODELS, build, settings_of
from mgg.partition.schemes import SCHEMES

REGISTRIES = {
    "model": (MODELS, "gcn"),
    "technique": (TECHNIQUES, "halo"),
    "order": (ORDERS, "rcm"),
    "loader": (LOADERS, "npz"),
    "generator": (GENERATORS, "planted"),
    "partition scheme": (SCHEMES, "metis"),
}


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Put ``mine.py`` with a text into the package of a registry; nothing of it is left after the test."""

    def put(registry, text: str) -> Path:
        package = importlib.import_module(registry._package)
        registry.all()
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
        for each, _ in REGISTRIES.values():
            if each._package == registry._package:
                monkeypatch.setattr(each, "added", dict(each.added))
                monkeypatch.setattr(each, "_origins", dict(each._origins))
                monkeypatch.delitem(each.__dict__, "broken", raising=False)
        path = tmp_path / "mine.py"
        path.write_text(text)
        importlib.invalidate_caches()
        return path

    yield put
    monkeypatch.undo()
    for registry, _ in REGISTRIES.values():
        sys.modules.pop(f"{registry._package}.mine", None)
        vars(importlib.import_module(registry._package)).pop("mine", None)
        registry.__dict__.pop("broken", None)


MISTAKES = {
    "import": ("x = 1\nimport nope\n", ":2: ModuleNotFoundError: No module named 'nope'"),
    "syntax": ("x = 1\n\ndef f(:\n", ":3: SyntaxError: invalid syntax"),
    "exception": ("def f():\n    raise ValueError('two\\nlines')\nf()\n", ":2: ValueError: two lines"),
    "elsewhere": ("import json\njson.loads('{')\n", ":2: JSONDecodeError: Expecting property name"),
    "no text": ("\0", "Error: source code"),  # a SyntaxError; before Python 3.11.4 a ValueError
}


@pytest.mark.parametrize(
    ("what", "mistake"),
    [*(("model", mistake) for mistake in MISTAKES), *((what, "import") for what in REGISTRIES if what != "model")],
)
def test_plugin_error_is_one_line_with_file_and_line(what, mistake, file):
    registry, other = REGISTRIES[what]
    known, (text, line) = registry.all(), MISTAKES[mistake]
    path = file(registry, text)
    with pytest.raises(InputError) as caught:
        registry.find("mine")
    assert str(caught.value).startswith(f"{what} 'mine': {path}") and line in str(caught.value)
    assert "\n" not in str(caught.value) and caught.value.__cause__ is not None
    assert registry.all() == known and registry.find(other) is known[other]
    with pytest.raises(InputError, match=f"did you mean .*{other}.*could not be read: {path}"):
        registry.find(f"{other}x")


INCOMPLETE = {
    "no settings": (MODELS, "def build(settings, sizes): ...\n", "mine.py: a model needs a class Settings, a subclass"),
    "other settings": (MODELS, "def build(settings, sizes): ...\nclass Settings: ...\n", "needs a class Settings"),
    "no build": (
        MODELS, "from mgg.model.settings import ModelSettings as Settings\n", "a model needs a function build",
    ),
    "neither": (MODELS, "x = 1\n", "model 'mine' is unknown; .*mine.py has no class Settings and no function build"),
    "no split": (SCHEMES, "x = 1\n", "mine.py: a partition scheme needs a function split"),
    "nothing registered": (ORDERS, "x = 1\n", "unknown order 'mine'; .*mine.py has no order"),
    "nameless": (
        TECHNIQUES, "from mgg.aggregate.plan import Plan\nclass Mine(Plan): ...\n", "has no subclass of Plan",
    ),
    "abstract": (
        TECHNIQUES, "from mgg.aggregate.plan import Plan\nclass Mine(Plan):\n    name = 'own'\n",
        "mine.py:2: technique 'own' lacks _aggregate",
    ),
    "other options": (
        TECHNIQUES,
        "from mgg.aggregate.techniques.halo import Halo\nclass Mine(Halo):\n    name = 'own'\n    Options = dict\n",
        "mine.py:2: technique 'own': Options is no subclass",
    ),
    "a name twice": (
        TECHNIQUES, "from mgg.aggregate.techniques.ring import Ring\nclass Mine(Ring):\n    name = 'halo'\n",
        "technique 'halo' is there already, in mgg.aggregate.techniques.halo",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", INCOMPLETE)
def test_missing_attribute_of_a_plugin_is_named(case, file):
    registry, text, message = INCOMPLETE[case]
    known = registry.all()
    file(registry, text)
    with pytest.raises(InputError, match=message):
        registry.find("mine")
    assert registry.all() == known


def test_registrations_of_a_failing_plugin_are_undone(file):
    register = "from mgg.graph.sources import loader\n@loader('mine', '.npz')\ndef read(path): ...\n"
    file(LOADERS, f"{register}1 / 0\n")
    assert "mine" not in LOADERS.all() and loader_of(Path("a.npz")) == "npz"
    with pytest.raises(InputError, match=r"mine.py:4: ZeroDivisionError"):
        sources.find_loader("mine")


def test_valid_plugin_is_found(file):
    file(ORDERS, "from mgg.graph.reorder import order\n@order('own', lambda n, a, s: 0)\ndef rank(graph): ...\n")
    assert ORDERS.find("own").name == "own" and not ORDERS.broken


def test_plugin_importing_a_broken_one_is_not_blamed(file):
    path = file(MODELS, "from mgg.model.zoo.helper import x\n")
    (path.parent / "helper.py").write_text("\n\nimport nope\n")
    with pytest.raises(InputError, match=r"model 'mine': .*/helper.py:3: ModuleNotFoundError"):
        MODELS.find("mine")


def test_broken_loader_leaves_other_data_sets(file, tmp_path, monkeypatch):
    file(LOADERS, "import nope\n")
    text = datasets._path().read_text(encoding="utf-8").replace("loader: planetoid", "loader: mine")
    (tmp_path / "datasets.yaml").write_text(text)
    monkeypatch.setattr(datasets, "_path", lambda: tmp_path / "datasets.yaml")
    datasets.catalog.cache_clear()
    try:
        assert datasets.find("digits").loader == "digits" and datasets.find("cora").loader == "mine"
    finally:
        datasets.catalog.cache_clear()


def test_broken_generator_is_named(file):
    file(GENERATORS, "import nope\n")
    for ask in (datasets.find, lambda name: name_of(name, None)):
        with pytest.raises(InputError, match=r"generator 'mine': .*mine.py:1: ModuleNotFoundError"):
            ask("mine")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("[]", r"mine.py:2: model mine: build returned a list, not a Chain"),
        ("sizes.nope", r"model mine: .*mine.py:3: AttributeError: .*no attribute 'nope'"),
    ],
)
def test_error_in_a_models_build_is_named(made, message, file):
    file(MODELS, "from mgg.model.settings import ModelSettings as Settings\ndef build(settings, sizes):\n"
                 f"    return {made}\n")  # fmt: skip
    with pytest.raises(InputError, match=message):
        build("mine", settings_of("mine"), 4, 3)


def test_doctor_names_broken_files(file, monkeypatch):
    monkeypatch.setattr("mgg.backend.machine.probe.report", lambda: {"cpu": "one"})
    assert CliRunner().invoke(doctor).output == "cpu: one\n"
    path = file(TECHNIQUES, "import nope\n")
    expected = f"cpu: one\ncannot be read: {path}:1: ModuleNotFoundError: No module named 'nope'\n"
    assert CliRunner().invoke(doctor).output == expected
