"""SIGTERM, SIGUSR1 and Ctrl-C end ``mgg train`` with exit code 5 and one line, whenever they come; signals that are
repeated change nothing, a second Ctrl-C ends it at once.
"""

import signal
import subprocess
import sys
import time

import pytest
from support.programs.train_program import checkpoint_files
from support.ranks import changed_environment, mpiexec

from mgg.records import read_run

#: ``mgg`` whose rank VICTIM gets SIGNAL when it begins to import MODULE.
SIGNALLED = """
import importlib.abc, os, signal, sys
victim, number, module = int(sys.argv.pop(1)), int(sys.argv.pop(1)), sys.argv.pop(1)
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == module and int(os.environ.get("PMI_RANK", "0")) == victim:
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Finder())
from mgg.cli import main
main()
"""
BEFORE = "mgg: stopped before the first epoch of this run: run the same command again"


def command(folder, out, *options):
    return ["train", str(folder), "--model", "gcn", "--out", str(out), *options]


def signalled(program, victim, number, module, layout, out):
    """The exit code and lines of a training of one rank."""
    start = [sys.executable, "-c", program, str(victim), str(int(number)), module]
    done = subprocess.run(
        [*start, *command(layout, out)], check=False, capture_output=True, text=True, timeout=60,
        env=changed_environment({}),
    )  # fmt: skip
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("number", "module"),
    [
        (signal.SIGTERM, "mgg.cli.group"), pytest.param(signal.SIGUSR1, "mgg.train.phases", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_signal_during_imports_ends_the_training(number, module, layouts, tmp_path):
    assert signalled(SIGNALLED, 0, number, module, layouts("planted", 1), tmp_path / "run") == (5, [BEFORE])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_background_training_ignores_ctrl_c_but_obeys_other_signals(layouts, tmp_path):
    """As shell scripts start it in the background."""
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); signal.raise_signal(signal.SIGINT)"
    given = ignoring + SIGNALLED, 0, signal.SIGTERM, "mgg.train"
    assert signalled(*given, layouts("planted", 1), tmp_path / "run") == (5, [BEFORE])


@pytest.mark.slow
@pytest.mark.mpi
def test_signal_to_one_rank_during_imports_ends_all_ranks(layouts, tmp_path):
    arguments = ["1", str(int(signal.SIGTERM)), "mgg.cli.group"]
    done = mpiexec(2, ["-c", SIGNALLED, *arguments, *command(layouts("planted", 2), tmp_path / "run")])
    assert done.returncode == 5
    assert [line for line in done.stderr.splitlines() if line.startswith("mgg: ")] == [BEFORE]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.sentinel), signal.SIGTERM])
def test_signals_end_the_training_after_a_checkpoint(number, layouts, tmp_path):
    """But for Ctrl-C, whose second one ends it at once, they go on until the process is gone: while it writes the
    checkpoint, and while the interpreter ends."""
    out = tmp_path / "run"
    program = [sys.executable, "-m", "mgg.cli", *command(layouts("planted", 1), out, "--epochs", "300")]
    program += ["--checkpoint-every", "1e-9", "--resume"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not checkpoint_files(out):
            time.sleep(0.002)
        process.send_signal(number)
        deadline = time.monotonic() + 60
        while number != signal.SIGINT and process.poll() is None and time.monotonic() < deadline:
            process.send_signal(number)
            time.sleep(0.001)
        errors = process.communicate(timeout=60)[1]
    assert process.returncode == 5, errors
    stopped = int(errors.split("stopped after epoch ")[1].split()[0])
    assert checkpoint_files(out)[-1].name == f"epoch-{stopped:06d}.safetensors"
    assert not out.exists()
    if number != signal.SIGINT:
        done = subprocess.run(program, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert len(read_run(out)[1]) == 300


#: What Ctrl-C does from the first time on, and in programs that were started to ignore it.
PRESSED = """
import signal, sys
if sys.argv[1] == "ignored":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
from mgg.cli import stop
stop.listen()
signal.raise_signal(signal.SIGINT)
print(stop.asked.is_set(), flush=True)
signal.raise_signal(signal.SIGINT)
print("here")
"""


@pytest.mark.parametrize(("case", "said"), [("heard", "True\n"), ("ignored", "False\nhere\n")])
def test_second_ctrl_c_ends_the_training_at_once(case, said):
    done = subprocess.run([sys.executable, "-c", PRESSED, case], check=False, capture_output=True, text=True)
    assert done.stdout == said
    assert done.stderr.endswith("KeyboardInterrupt\n") == (case == "heard")
