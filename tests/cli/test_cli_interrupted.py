"""Ctrl-C ends every command with one line and 130, also while libraries are loaded; nothing half-written stays."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.ranks import changed_environment, mpiexec

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
GENERATED = ["generate", "planted", "--scale", "0.05", "--out", "out"]
#: A module that a command alone imports, and the command.
WAYS = {
    "retrieve": ("mgg.graph.retrieve", ["digits", "--out", "out"]),
    "graph": ("mgg.graph.build", ["digits", "--out", "out"]),
    "generate": ("mgg.graph.generate", ["planted", "--out", "out"]),
    "partition": ("mgg.partition", ["graph", "--pes", "2", "--out", "out"]),
    "layout": ("mgg.layout", ["graph", "part", "--out", "out"]),
    "aggregate": ("mgg.aggregate.job", ["layout", "--technique", "halo", "--dim", "4", "--out", "out"]),
    "predict": ("mgg.cost.machines", ["graph", "--pes", "2"]),
    "report": ("mgg.report", ["records.jsonl", "--out", "out"]),
    "doctor": ("mgg.backend.machine.probe", []),
}


#: How a shell script starts what it puts in the background.
IGNORING = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")


def interrupted(folder: Path, module: str, error: str, *command: str, under=()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*under, sys.executable, "-c", AT_IMPORT, module, error, *command], cwd=folder, env=changed_environment({}),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("error", ["", "numpy.core.multiarray failed to import"])
@pytest.mark.parametrize("module", ["click", "mgg.cli.group", "numpy", "mgg.graph.build"])
def test_ctrl_c_while_the_libraries_are_loaded(module, error, tmp_path):
    done = interrupted(tmp_path, module, error, "graph", "digits", "--out", "out")
    assert (done.returncode, done.stderr.splitlines(), done.stdout) == (130, [LINE], "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", WAYS)
def test_ctrl_c_is_the_same_for_every_command(command, tmp_path):
    module, arguments = WAYS[command]
    done = interrupted(tmp_path, module, "", command, *arguments)
    assert (done.returncode, done.stderr.splitlines(), done.stdout) == (130, [LINE], "")


@pytest.mark.parametrize("module", ["mgg.cli.group", "mgg.train"])
def test_the_second_ctrl_c_of_a_training_tells_of_its_checkpoints(module, tmp_path):
    done = interrupted(tmp_path, module, "", "train", "layout", "--model", "gcn", "--out", "out")
    expected = f"{LINE} with --resume, which goes on from the newest checkpoint if there is one"
    assert (done.returncode, done.stderr.splitlines()) == (130, [expected])


def test_what_ctrl_c_broke_is_shown_on_request(tmp_path):
    done = interrupted(tmp_path, "mgg.graph.build", "", "graph", "digits", "--out", "out", "--debug")
    assert done.returncode == 130 and "KeyboardInterrupt" in done.stderr and done.stderr.splitlines()[-1] == LINE


def test_what_was_started_with_ctrl_c_ignored_goes_on(tmp_path):
    done = interrupted(tmp_path, "mgg.graph.generate", "", *GENERATED, under=IGNORING)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "1"])
def test_tests_that_were_started_with_ctrl_c_ignored_send_it_all_the_same(workers, tmp_path):
    """Theirs is heard in what they start, by workers of pytest-xdist, too."""
    tests = [f"{__file__}::{test_ctrl_c_is_the_same_for_every_command.__name__}[generate]"]
    done = subprocess.run(
        [*IGNORING, sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider", *tests],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


@pytest.mark.slow
def test_ctrl_c_while_an_output_is_made_leaves_nothing(tmp_path):
    program = [sys.executable, "-m", "mgg.cli", "generate", "web-like", "--scale", "0.5", "--out", "out"]
    with subprocess.Popen(program, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not list(tmp_path.iterdir()):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=120)
    assert (process.returncode, *told) == (130, "", f"{LINE}\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.sentinel
@pytest.mark.slow
@pytest.mark.mpi
def test_one_rank_tells(tmp_path):
    """All of them hear it."""
    done = mpiexec(2, ["-c", AT_IMPORT, "mgg.aggregate.job", "", "aggregate", str(tmp_path), *WAYS["aggregate"][1][1:]])
    assert done.returncode == 130
    assert [line for line in done.stderr.splitlines() if line.startswith("mgg: ")] == [LINE]
