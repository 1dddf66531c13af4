"""Ctrl-C ends every command with one line and 130, also while libraries are loaded; nothing half-written stays."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.ranks import changed_environment, mpiexec
from support.ranks.commands import mgg

LINE = "mgg: interrupted; outputs appear only when they are whole: run the same command again"
#: ``mgg`` that gets Ctrl-C twice when it begins to import MODULE; ERROR is what a library makes of it, if anything.
AT_IMPORT = """
import importlib.abc, signal, sys
module, error = sys.argv.pop(1), sys.argv.pop(1)
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == module:
            try:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                if error:
                    raise ImportError(error) from None
                raise
sys.meta_path.insert(0, Finder())
from mgg.cli import main
main()
"""
ROOT = Path(__file__).resolve().parents[2]
GENERATE = ("generate", "planted", "--scale", "0.05", "--out", "out")
GRAPH = ("graph", "digits", "--out", "out")


#: How a shell script starts what it puts in the background.
IGNORING = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")


def interrupted(folder: Path, module: str, error: str, *command: str, under=()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*under, sys.executable, "-c", AT_IMPORT, module, error, *command], cwd=folder, env=changed_environment({}),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("module", "error", "command"),
    [
        ("click", "", GRAPH),
        ("mgg.cli.group", "no group", GRAPH),
        ("numpy", "numpy.core.multiarray failed to import", GRAPH),
        ("mgg.graph.build", "", GRAPH),
        ("mgg.graph.build", "numpy.core.multiarray failed to import", GRAPH),
        ("mgg.graph.generate", "", GENERATE),
        ("mgg.cost.machines", "", ("predict", "graph", "--pes", "2")),
        ("mgg.report", "", ("report", "records.jsonl", "--out", "out")),
        ("mgg.backend.machine.probe", "", ("doctor",)),
    ],
)
def test_ctrl_c_during_imports_is_one_line(module, error, command, tmp_path):
    done = interrupted(tmp_path, module, error, *command)
    assert (done.returncode, done.stderr.splitlines(), done.stdout) == (130, [LINE], "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("module", ["mgg.cli.group", "mgg.train"])
def test_second_ctrl_c_of_a_training_names_its_checkpoints(module, tmp_path):
    done = interrupted(tmp_path, module, "", "train", "layout", "--model", "gcn", "--out", "out")
    expected = f"{LINE} with --resume, which goes on from the newest checkpoint if there is one"
    assert (done.returncode, done.stderr.splitlines()) == (130, [expected])


def test_debug_shows_what_ctrl_c_interrupted(tmp_path):
    done = interrupted(tmp_path, "mgg.graph.build", "", *GRAPH, "--debug")
    assert done.returncode == 130 and "KeyboardInterrupt" in done.stderr and done.stderr.splitlines()[-1] == LINE


def test_background_command_ignores_ctrl_c(tmp_path):
    done = interrupted(tmp_path, "mgg.graph.generate", "", *GENERATE, under=IGNORING)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out").is_dir()


@pytest.mark.slow
def test_background_tests_can_send_ctrl_c():
    """Theirs is heard in what they start, by workers of pytest-xdist, too."""
    tests = [f"{__file__}::{test_debug_shows_what_ctrl_c_interrupted.__name__}"]
    done = subprocess.run(
        [*IGNORING, sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", *tests],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


def test_ctrl_c_during_output_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(folder):
        assert list(folder.iterdir()) and list(tmp_path.iterdir()) == [folder]
        raise KeyboardInterrupt

    monkeypatch.setattr("mgg.files._sync_all", interrupt)
    done = mgg(*GENERATE, cwd=tmp_path, code=130)
    assert (done.stdout, done.stderr) == ("", f"{LINE}\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.sentinel
@pytest.mark.slow
@pytest.mark.mpi
def test_one_rank_reports_ctrl_c(tmp_path):
    """All of them hear it."""
    words = ["aggregate", str(tmp_path), "--technique", "halo", "--dim", "4", "--out", "out"]
    done = mpiexec(2, ["-c", AT_IMPORT, "mgg.aggregate.job", "", *words])
    assert done.returncode == 130
    assert [line for line in done.stderr.splitlines() if line.startswith("mgg: ")] == [LINE]
