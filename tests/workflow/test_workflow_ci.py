"""What continuous integration does about Slurm and Chromium: stand-ins for make, apt-get and Slurm's programs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.workflow import ROOT

sys.path.append(str(ROOT / "tests/system/slurm"))
from slurm_cluster import PROGRAMS

#: What .ci/run itself needs of the machine.
TOOLS = ("bash", "dirname", "mktemp", "rm", "tee", "tail", "test", "mkdir", "touch", "echo", "id", "env")
MAKE = """\
case "$*" in
    *slurm-packages) echo slurmctld munge;;
    test-slurm) echo "test-slurm, not fetched: ${SLURM_NOT_FETCHED:-false}";;
    test|test-all) echo "tests: $*";;
    demo) mkdir -p results/report; echo page > results/report/index.html;;
esac
"""
APT = """\
echo "apt-get $*" >> {asked}
case "$*" in {failing}) echo "E: no network" >&2; exit 100;; esac
"""
DONE = "== Slurm and Chromium installed after"
SKIPPED = "cannot be fetched, see above; the tests that use them are skipped"


def ci(folder: Path, failing: str, installed: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    """A run as root where apt-get fails with arguments of a pattern, and only these programs of Slurm are there."""
    programs, asked = folder / "bin", folder / "asked"
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", folder / ".ci/run")
    (folder / "tests/system/slurm").mkdir(parents=True)
    shutil.copy(ROOT / "tests/system/slurm/slurm_cluster.py", folder / "tests/system/slurm")
    programs.mkdir()
    asked.touch()
    scripts = {"make": MAKE, "apt-get": APT.format(asked=asked, failing=failing), "id": "echo 0"}
    scripts |= {"python3": f'exec {sys.executable} "$@"'} | dict.fromkeys((*installed, "setpriv"), ":")
    for name in TOOLS:
        if name not in scripts:
            (programs / name).symlink_to(shutil.which(name))
    for name, script in scripts.items():
        (programs / name).write_text(f"#!{shutil.which('bash')}\n{script}\n")
        (programs / name).chmod(0o755)
    return subprocess.run(
        [shutil.which("bash"), str(folder / ".ci/run")], env={"PATH": str(programs)}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("failing", "said", "not_fetched"),
    [
        ("none", DONE, "false"),
        ("update*", DONE, "false"),
        ("*--download-only*", SKIPPED, "true"),
        ("update*|install*", SKIPPED, "true"),
    ],
)
def test_slurm_tests_are_skipped_only_without_a_network(tmp_path: Path, failing: str, said: str, not_fetched: str):
    """Lists of packages that are old may do."""
    run = ci(tmp_path, failing, PROGRAMS[:2])
    assert run.returncode == 0, run.stderr
    assert said in run.stdout and f"test-slurm, not fetched: {not_fetched}\n" in run.stdout
    assert "slurmctld munge" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize("failing", ["*--simulate*", "*recommends?slurmctld*"])
def test_missing_or_broken_packages_are_an_error(tmp_path: Path, failing: str):
    run = ci(tmp_path, failing)
    assert run.returncode == 100 and "test-slurm" not in run.stdout


def test_installed_programs_need_no_download(tmp_path: Path):
    """apt-get is not asked."""
    run = ci(tmp_path, "*", (*PROGRAMS, "chromium"))
    assert run.returncode == 0 and "== Slurm and Chromium are installed\n" in run.stdout
    assert run.stdout.endswith("tests: test-all\n")  # all tiers; their summary is the last line
    assert "not fetched: false" in run.stdout and not (tmp_path / "asked").read_text()
