"""benchmarks/jobs.py: what it says of a workflow's tiny jobs, with a program in Snakemake's place."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.workflow import ROOT

#: Makes the outputs that it is told, and runs the jobs that it is told.
PROGRAM = """\
import sys
from pathlib import Path
folder = Path(sys.argv[sys.argv.index("--directory") + 1])
made, runs, code = sys.argv[4:7]
(folder / "out").mkdir()
for number in made.split(","):
    (folder / "out" / number).touch()
for number in runs.split(","):
    with (folder / "runs" / number).open("a") as file:
        print("run", file=file)
sys.exit(int(code))
"""


@pytest.mark.parametrize(
    ("made", "runs", "ended", "code", "said"),
    [
        ("0,1,2", "0,1,2", 0, 0, " s a job; 3 outputs, 3 runs"),
        ("0,2", "0,2", 0, 4, "jobs: 3 jobs, but 2 outputs, 2 runs; not made once: 1\n"),
        ("0,2", "0,1,2", 0, 4, "jobs: 3 jobs, but 2 outputs, 3 runs; not made once: 1\n"),
        ("0,1,2", "0,1,2,2", 0, 4, "jobs: 3 jobs, but 3 outputs, 4 runs; not made once: 2\n"),
        ("0,1,2", "0,1,1", 0, 4, "jobs: 3 jobs, but 3 outputs, 3 runs; not made once: 1, 2\n"),
        ("0,1,2,3", "0,1,2,3", 0, 4, "jobs: 3 jobs, but 4 outputs, 4 runs; not made once: 3\n"),
        ("0", "0", 1, 1, "jobs: Snakemake ended with code 1: 1 outputs, 1 runs\n"),
    ],
)
def test_each_job_has_to_run_once(tmp_path: Path, made: str, runs: str, ended: int, code: int, said: str):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(ROOT / "benchmarks/jobs.py"), "--jobs", "3", "--program", str(program)]
    run = subprocess.run(
        [*command, "--", made, runs, str(ended)], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert run.returncode == code, run.stderr
    assert said in (run.stderr if code else run.stdout)
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]
