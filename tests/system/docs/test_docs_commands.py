"""What the documentation shows: commands run as they stand there, or at least are commands; the examples run, too."""

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from support.ranks import forked
from support.workflow import ROOT

from mgg.cli.group import cli
from mgg.records import read_run

FILES = [*(each for each in sorted((ROOT / "docs").rglob("*.md")) if each.parent.name != "results"), ROOT / "README.md"]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in FILES}
BLOCK = re.compile(r'^```(\w*)(?: title="([^"]+)"| \{ \.python \})?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
#: Those of vertex.md and interop.md have tests of their own: tests/vertex and tests/interop.
RUN = [name for name, text in PAGES.items() if "\n```console\n" in text and name != "vertex.md"]
LESS = {"train": "--epochs 20", "aggregate": "--launches 1 --iterations 2"}
ENVIRONMENT = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
REAL = pytest.mark.skipif("MGG_DATA_DIR" not in os.environ, reason="Cora: set MGG_DATA_DIR to a folder that has it")


def blocks(name):
    """Language, title and text of each block of a page."""
    return [found.groups() for found in BLOCK.finditer(PAGES[name])]


def commands():
    """Each line of the documentation that begins with ``mgg`` or ``snakemake``, as words, with its page."""
    for name, page in PAGES.items():
        inline = re.findall(r"`((?:mgg|snakemake) [^`]+)`", page)
        shown = "\n".join(text for *_, text in blocks(name)).replace("\\\n", " ")
        for line in [*inline, *shown.splitlines()]:
            found = re.match(r"(?:\w+=\S+ )*(?:mpiexec -n \d+ )?((?:mgg|snakemake) .*)", line)
            text = re.split(r"\s{3,}|\s#|\s&&", found[1])[0].replace("\\|", "|") if found else "..."
            if not re.search(r"\.\.\.|[|<>:;]\s|\b(PATH|FILE|OUT|NAME|STAGE|COMMAND|DIR|ID)\b", text):
                yield name, text


def test_pages_with_commands_are_found():
    assert {"index.md", "own-graph.md", "own-model.md", "compare.md"} <= set(RUN)


def wrong(line):
    """What a line names that does not exist: command, options, profile or overlay."""
    program, *words = shlex.split(line)
    if program == "snakemake":
        return [word for word in words if word.startswith(("profiles/", "config/")) and not (ROOT / word).exists()]
    command = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return words[:1]
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    return [word for word in words if word.startswith("--") and word.split("=")[0] not in known]


def test_every_shown_command_exists():
    found = list(commands())
    assert len(found) > 150
    assert [(name, line, lack) for name, line in found if (lack := wrong(line))] == []


def run(line, folder):
    """Runs a line that a page shows; ranks start anew, other commands are forks of what has loaded MGG."""
    if line.startswith("mgg "):
        done = forked.run("mgg", shlex.split(line)[1:], folder, ENVIRONMENT, 240)
    else:
        done = subprocess.run(["bash", "-ec", line], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True,
                              check=False)  # fmt: skip
    slower = 4 if line.startswith("mgg compare ") else 0  # what is measured here and now is no matter
    assert done.returncode in (0, slower), (line, done.stderr)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("name", [pytest.param(name, marks=REAL) if name == "index.md" else name for name in RUN])
def test_commands_of_a_page_run(name, tmp_path):
    """In their order, in one folder, beside the files that the page shows; those of ranks do less."""
    for _, title, text in blocks(name):
        if title:
            (tmp_path / title).parent.mkdir(exist_ok=True)
            (tmp_path / title).write_text(text, encoding="utf-8")
    shown = "".join(text for language, _, text in blocks(name) if language == "console")
    for line in shown.replace("\\\n", " ").splitlines():
        ranks = re.match(r"mpiexec -n \d+ mgg (train|aggregate) ", line)
        run(f"{line} {LESS[ranks[1]]}" if ranks else line, tmp_path)
    if name == "index.md":
        runs = [read_run(tmp_path / each)[0] for each in ("run", "run-of-ranks")]
        assert all(each.dataset == "cora" and each.pes == 2 for each in runs)
        assert 0.80 < runs[0].test_accuracy < 0.83


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"),
    [pytest.param("cora", 80, marks=REAL), ("own_csv", 60), ("own_program", 85), ("read_report", None)],
)
def test_example_runs(name, least, tmp_path):
    """And says what its model reaches; 25 % are right by chance in own_csv, 10 % in own_program."""
    if name == "own_program" and not find_spec("torch"):
        pytest.skip("no PyTorch: pip install 'mgg[torch]'")
    done = forked.run("mgg", [str(ROOT / "examples" / f"{name}.py")], tmp_path, ENVIRONMENT, 240)
    assert done.returncode == 0, done.stderr
    if least is not None:
        assert float(re.search(r"test accuracy ([\d.]+)%", done.stdout)[1]) > least
    else:
        assert "halo" in done.stdout and "<svg" in (tmp_path / "accuracy.svg").read_text(encoding="utf-8")
