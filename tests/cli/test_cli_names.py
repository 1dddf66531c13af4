"""Names that commands take: listed, and completed by shells."""

import json
import shutil
import subprocess
import sys

import pytest
import yaml
from support.ranks.commands import mgg
from support.workflow import ROOT

from mgg.aggregate import TECHNIQUES
from mgg.cli import names
from mgg.errors import InputError
from mgg.model import models

DATASETS = yaml.safe_load((ROOT / "config/datasets.yaml").read_text(encoding="utf-8"))["datasets"]


def files(*parts, but=()):
    return {path.stem for path in (ROOT.joinpath(*parts)).glob("*") if path.stem not in ("__init__", *but)}


def test_every_kind_of_name_is_listed():
    found = {kind: [row["name"] for row in names.rows(kind)[0]] for kind in names.KINDS}
    assert all(each == sorted(each) and each for each in found.values())
    assert set(found["datasets"]) == set(DATASETS) and found["models"] == models()
    assert {"mgg", "halo", "cola", "local"} <= set(found["techniques"]) and "planted" in found["generators"]
    assert set(found["schemes"]) == files("mgg/partition/schemes", but=["__pycache__"])
    assert set(found["experiments"]) == files("config/experiments", but=["predicted_scaling"])  # it has no figure


def test_names_are_listed_as_table_or_json(tmp_path):
    [cora] = [row for row in json.loads(mgg("list", "datasets", "--json", cwd=tmp_path).stdout)["datasets"]
              if row["name"] == "cora"]  # fmt: skip
    assert {key: cora[key] for key in ("nodes", "features", "classes", "loader")} == {
        "nodes": 2708, "features": 1433, "classes": 7, "loader": "planetoid",
    }  # fmt: skip
    header, *lines = mgg("list", "schemes", cwd=tmp_path).stdout.splitlines()
    assert header.split() == ["name", "about"]
    place = header.index("about")
    assert all(line[place - 1] == " " != line[place] for line in lines) and len(lines) == 3


def test_broken_file_is_reported_beside_the_others(monkeypatch, tmp_path):
    monkeypatch.setitem(TECHNIQUES.__dict__, "broken", {"odd": InputError("odd.py:3: NameError: x")})
    said = mgg("list", "techniques", cwd=tmp_path)
    assert "\nhalo " in said.stdout and said.stderr == "mgg: could not be read: odd.py:3: NameError: x\n"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("mgg aggregate x --technique mgg,ha", ["plain,mgg,halo"]),
        ("mgg train x --model gat", ["plain,gat", "plain,gatedgcn", "plain,gatv2"]),
        ("mgg train x --model ./m", ["file,./m"]),
        ("mgg graph pub", ["plain,pubmed"]),
        ("mgg graph x --order r", ["plain,rabbit", "plain,rcm"]),
        ("mgg graph x --loader me", ["plain,metis"]),
        ("mgg partition x --scheme me", ["plain,metis"]),
        ("mgg report x --figure mgg_fig10", ["plain,mgg_fig10a", "plain,mgg_fig10b", "plain,mgg_fig10c"]),
        ("mgg generate plan", ["plain,planted"]),
        ("mgg li", ["plain,list", "plain,links"]),
        ("mgg graph_sc", []),  # internal
    ],
)
def test_shell_completes_names(tmp_path, typed, offered):
    asked = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_MGG_COMPLETE": "bash_complete"}
    assert mgg(cwd=tmp_path, **asked).stdout.split() == offered


def test_completion_scripts_load_and_bash_offers_names(tmp_path):
    """The script, read by bash, calls the command and takes its answer."""
    scripts = {shell: mgg("completion", shell, cwd=tmp_path).stdout for shell in ("zsh", "fish", "bash")}
    for shell, script in scripts.items():
        assert f"_MGG_COMPLETE={shell}_complete" in script
        if shutil.which(shell):
            assert subprocess.run([shell, "-n"], input=script, text=True, check=False).returncode == 0
    (tmp_path / "mgg").write_text(f'#!/bin/sh\nexec {sys.executable} -m mgg.cli "$@"\n')
    (tmp_path / "mgg").chmod(0o755)
    asked = 'COMP_WORDS=(mgg partition x --scheme equal_); COMP_CWORD=4; _mgg_completion mgg; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", f'PATH="$PWD:$PATH"\n{scripts["bash"]}\n{asked}'], cwd=tmp_path,
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.strip() == "equal_nodes"
