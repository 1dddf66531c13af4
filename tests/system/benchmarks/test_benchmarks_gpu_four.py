"""All runs on the GPUs of a host: which tests --pes picks, and what benchmarks/gpu_four.py makes of records."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.benchmarks import script
from support.ranks import changed_environment

from mgg import hashed

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def four():
    return script("gpu_four")


def collected(*options):
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/gpu/test_gpu_auto.py", *options]
    done = subprocess.run(
        command, cwd=ROOT, env=changed_environment({"PYTEST_ADDOPTS": ""}), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return set(re.findall(r"^tests/\S+::\S+", done.stdout, re.MULTILINE))


@pytest.mark.slow
def test_option_pes_selects_the_cases():
    everything, two = collected(), collected("--pes", "2")
    assert two == {case for case in everything if "[2]" in case}
    assert set() < two < everything


def record(technique, median, groups=1, **others):
    fields = {"dataset": "web-like", "dtype": "fp32", "dim": 64, "pes": 4, "chosen": False, "predicted": None}
    fields |= {"transfer": None, "compute": None, "technique": technique, "median": median, "groups": groups}
    return fields | others


def test_pick_is_compared_with_techniques_without_workgroups(four):
    records = [record("halo", 3e-3, chosen=True, predicted=6e-3), record("mgg", 2e-3), record("mgg", 1e-3, groups=2)]
    found = four.compared(records, 4)
    assert found["auto_over_fastest"] == {"web-like fp32 D=64": 1.5}
    assert found["cost_model_error"] == {"mean": 1.0, "largest": 1.0}


def test_halo_is_compared_with_parts_fewer_pes_and_the_released_kernel(four):
    records = [record("halo", 0.33e-3, transfer=0.1e-3, compute=0.3e-3), record("local", 1e-3, pes=1)]
    found = four.compared(records, 4)
    assert found["halo_over_larger_part"] == {"web-like halo fp32 D=64 P=4": pytest.approx(1.1)}
    assert found["halo_ms_by_pes"] == {"web-like fp32 D=64": {1: 1.0, 4: pytest.approx(0.33)}}
    assert found["halo_fp32_over_released_cola"]["least"] == pytest.approx(3.0)  # 0.99 ms
    assert found["halo_bf16_over_released_cola"] == {"mean": None, "least": None}


def test_failed_or_slow_case_is_reported_and_the_next_runs(four, tmp_path):
    host = four.Host(tmp_path, tmp_path, 2, "mpi", 1.0, 60.0)
    assert not host.run("breaks", [sys.executable, "-c", "print('why'); raise SystemExit(3)"], 60)
    assert not host.run("lasts", [sys.executable, "-c", "import time; time.sleep(600)"], host.now() + 0.5)
    assert not host.run("late", [sys.executable, "-c", ""], host.now())
    assert host.run("works", [sys.executable, "-c", ""], 60)
    assert host.failures[0] == "breaks: code 3: why"
    assert [failure.split(":")[0] for failure in host.failures] == ["breaks", "lasts", "late"]
    assert [job["code"] for job in host.jobs] == [3, 124, 0]


def test_outcomes_match_pytest(four, tmp_path):
    cases = "import pytest\ndef test_good(): pass\ndef test_bad(): assert 0\n"
    cases += "def test_skipped(): pytest.skip('<skipped ')\n@pytest.fixture\ndef broken(): raise OSError\n"
    (tmp_path / "test_it.py").write_text(cases + "def test_error(broken): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--junitxml=it.xml", "test_it.py"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    outcomes = {"passed": 1, "skipped": 1, "failed": ["test_it::test_bad", "test_it::test_error"]}
    assert four.outcomes(tmp_path / "it.xml") == outcomes


def test_records_of_several_runs_are_one_readable_file(four, tmp_path):
    host = four.Host(tmp_path, tmp_path, 2, "mpi", 1.0, 60.0)
    for groups in (1, 2):
        lines = hashed.lines([record("halo", dim, dim=dim, error=1e-8 * groups, tolerance=1.5e-8) for dim in (16, 64)])
        (tmp_path / f"products-web-like-2-{groups}.jsonl").write_text(lines)
    assert [each["groups"] for each in host.gathered("products")] == [1, 1, 2, 2]
    whole = (tmp_path / "products.jsonl").read_text()
    assert len(list(hashed.read_lines(whole, "products.jsonl", ""))) == 4
    assert [failure.split(":")[-1] for failure in host.failures] == [" error 2e-08 of 1.5e-08"] * 2
