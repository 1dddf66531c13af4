"""Somebody's own file with a mistake: the others work, and who asks for it is told file, line and error."""

import sys

import pytest

from mgg import registry
from mgg.aggregate import technique
from mgg.errors import InputError
from mgg.graph.generate import name_of
from mgg.graph.reorder import find_order
from mgg.graph.sources import find_loader
from mgg.model import build, models, settings_of
from mgg.partition.schemes import scheme

#: What finds a name, and one that is there, by package.
FINDERS = {
    "mgg.model": (settings_of, "gcn"),
    "mgg.aggregate": (technique, "halo"),
    "mgg.graph.sources": (find_loader, "table"),
    "mgg.graph.reorder": (find_order, "rabbit"),
    "mgg.partition.schemes": (scheme, "metis"),
}


@pytest.fixture
def add(tmp_path, monkeypatch):
    """``add(package, text)``: a file ``mine.py`` of a package."""

    def added(package, text):
        path = tmp_path / "mine.py"
        path.write_text(text)
        monkeypatch.setattr(sys.modules[package], "__path__", [*sys.modules[package].__path__, str(tmp_path)])
        monkeypatch.delitem(sys.modules, f"{package}.mine", raising=False)
        registry._loaded.cache_clear()
        return path

    yield added
    for package in FINDERS:
        sys.modules.pop(f"{package}.mine", None)
    registry._loaded.cache_clear()


@pytest.mark.parametrize(
    ("text", "line", "error"),
    [
        ("\nimport nope\n", 2, "ModuleNotFoundError: No module named 'nope'"),
        ("x = 1\ny = x +\n", 2, "SyntaxError: invalid syntax"),
        ("def broken():\n    return later\n\n\nbroken()\n", 2, "NameError: name 'later' is not defined"),
    ],
)
@pytest.mark.parametrize("package", FINDERS)
def test_a_file_that_cannot_be_loaded_breaks_nothing_else(package, text, line, error, add):
    find, there = FINDERS[package]
    path = add(package, text)
    find(there)
    with pytest.raises(InputError) as raised:
        find("mine")
    assert f"; {path}, line {line}: cannot be loaded: {error}" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_generators_are_told_of_too(add):
    path = add("mgg.graph.sources", "import nope")
    with pytest.raises(InputError, match=f"unknown generator 'mine'; .*; {path}, line 1"):
        name_of("mine", None)


def test_a_model_without_settings_is_told_what_it_lacks(add):
    path = add("mgg.model", "def build(settings, sizes):\n    return None\n")
    assert {"gcn", "mine"} <= set(models())
    with pytest.raises(InputError, match=rf"^{path}: has build and no class Settings\(ModelSettings\)"):
        settings_of("mine")


TWICE = """
from mgg.model.layers import Linear
from mgg.model.module import Chain
from mgg.model.settings import ModelSettings, Sizes


class Settings(ModelSettings):
    hidden: int = 8


def build(settings, sizes):
    return Chain(Linear("layer0", sizes.features, settings.hidden), Linear("layer0", settings.hidden, sizes.classes))
"""


def test_layers_of_one_name_are_refused(add):
    add("mgg.model", TWICE)
    with pytest.raises(InputError, match=r"^model mine: two modules have a weight layer0\.weight: give each"):
        build("mine", settings_of("mine"), 4, 2)
