"""benchmarks/gpu_peers.py, gpu_models.py and gpu_programs.py on a CPU: what they compare agrees."""

import json
import subprocess
import sys

import pytest
from support.benchmarks import FOLDER
from support.graphs.train_graphs import layouts_below

ROWS = {
    "gpu_peers": (["--dims", "4,33"], "gpu_peers", 1 + 2 * 2),
    "gpu_models": (["--models", "gcn,transformer"], "gpu_models-p1", 2),
    "gpu_programs": (["--modules", "GATv2Conv;PNAConv", "--not-compiled"], "gpu_programs", 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_compared_products_agree(name, tmp_path):
    if name != "gpu_peers":
        pytest.importorskip("torch_geometric")
    folder, (options, file, lines) = layouts_below(lambda name: tmp_path / name)("planted", 1), ROWS[name]
    command = [sys.executable, str(FOLDER / f"{name}.py"), str(tmp_path / "out"), str(folder), *options]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr  # 4 where something differs by more than it may
    rows = [json.loads(line) for line in (tmp_path / "out" / f"{file}.jsonl").read_text().splitlines()]
    assert len(rows) == lines
    if name == "gpu_models":
        assert rows[0]["theirs"]["losses"] == pytest.approx(rows[0]["ours"]["losses"], rel=1e-4)
