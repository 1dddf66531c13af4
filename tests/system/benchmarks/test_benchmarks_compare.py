"""benchmarks/compare.py: ratios of the same round, and trainings that do not begin alike."""

import subprocess
import sys

import pytest
from support.benchmarks import FOLDER, script
from support.graphs.train_graphs import layouts_below


def test_ratios_compare_the_same_round():
    """Quotients of medians would say 0.75."""
    runs = {"a": [{"seconds": each} for each in (1.0, 2.0, 4.0)], "b": [{"seconds": each} for each in (1.5, 1.0, 6.0)]}
    rows = script("compare").table(runs).splitlines()[2:]
    assert rows == ["| seconds | a | 2 | 1 | 4 | 1 |", "| seconds | b | 1.5 | 1 | 6 | 1.5 |"]


@pytest.mark.slow
@pytest.mark.parametrize(("other", "code"), [("--seed 0 --threads 2", 0), ("--seed 1", 4)])
def test_trainings_must_begin_with_the_same_loss(other, code, tmp_path):
    folder = layouts_below(lambda name: tmp_path / name)("directed", 1)
    options = ["--rounds", "1", "--way", "--seed 0", "--way", other, "--", "mgg", "train", str(folder)]
    command = [sys.executable, str(FOLDER / "compare.py"), str(tmp_path / "out"), *options]
    run = subprocess.run(
        [*command, "--model", "gcn", "--epochs", "3"], check=False, capture_output=True, text=True, timeout=240
    )
    assert run.returncode == code, run.stderr
    assert ("| epoch, ms | --seed 0 |" in run.stdout) == (code == 0)
    assert ("the first loss is" in run.stderr.splitlines()[-1]) == (code == 4)
