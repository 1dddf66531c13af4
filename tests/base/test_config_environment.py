"""pyproject.toml, constraints.txt and environment.yml say the same."""

import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.workflow import ROOT

PYTHONS = ("3.11.0", "3.12.0", "3.13.0")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINS = [
    Requirement(line)
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


def _pin(name: str, python: str) -> str:
    markers = {"python_version": python.rsplit(".", 1)[0], "python_full_version": python}
    found = [
        next(iter(pin.specifier)).version
        for pin in PINS
        if canonicalize_name(pin.name) == canonicalize_name(name) and (not pin.marker or pin.marker.evaluate(markers))
    ]
    assert len(found) == 1, f"{name} on Python {python}: {found}"
    return found[0]


@pytest.mark.parametrize("python", PYTHONS)
def test_every_dependency_and_extra_is_pinned_within_its_bounds(python: str):
    extras = PROJECT["optional-dependencies"]
    unpinned = extras["gpu-cuda12"]  # the pins are of CUDA 13
    for text in [*PROJECT["dependencies"], *(line for extra in extras.values() for line in extra)]:
        wanted = Requirement(text)
        assert text in unpinned or wanted.specifier.contains(_pin(wanted.name, python)), text
        assert any(bound.operator == "<" for bound in wanted.specifier), f"{text} has no upper bound"


def test_pins_are_exact_and_name_no_index():
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert "://" not in text and "--" not in text
    assert [str(pin) for pin in PINS if [bound.operator for bound in pin.specifier] != ["=="]] == []


def test_conda_environment_installs_the_same():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    *conda, last = environment["dependencies"]
    assert "pip" in conda
    assert last["pip"] == ["--constraint constraints.txt", "-e .[gpu,ogb,torch]"]
    assert {"gpu", "ogb", "torch"} <= set(PROJECT["optional-dependencies"])
    (python,) = [line for line in conda if line.startswith("python ")]
    lowest = re.search(r">=([\d.]+)", python)
    assert lowest and lowest[1] == PROJECT["requires-python"].removeprefix(">=")
