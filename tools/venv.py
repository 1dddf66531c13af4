"""Install MGG into a virtual environment: python tools/venv.py FOLDER [EXTRA ...].

If it is interrupted, the next call completes the work: a stamp file is written last and removed first, and an
environment without it is made anew.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STAMP = "mgg-installed.json"
LEFTOVER_SECONDS = 60


def main() -> None:
    """Bring the environment up to date."""
    folder = Path(sys.argv[1]).absolute()
    extras = set(sys.argv[2:])
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = _read(folder / STAMP)
        if done["key"] == _key(folder) and extras <= set(done["extras"]):
            return
        print(f"Installing MGG and what it needs into {folder.name}: a minute or two, once.", flush=True)
        _install(folder, extras | set(done["extras"]), fresh=done["python"] != sys.version)


def _install(folder: Path, extras: set[str], *, fresh: bool) -> None:
    stamp = folder / STAMP
    stamp.unlink(missing_ok=True)
    if fresh:
        _wait_for_leftovers(folder)
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)], "no virtual environment: install Python's venv module")
    target = f"{ROOT}[{','.join(sorted(extras))}]" if extras else str(ROOT)
    options = ["--quiet", "--disable-pip-version-check", "--constraint", str(ROOT / "constraints.txt")]
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", *options, "--editable", target]
    _run(pip, "pip could not install MGG: see above; a network or an index of packages is needed")
    part = stamp.with_suffix(".part")
    part.write_text(
        json.dumps({"key": _key(folder), "python": sys.version, "extras": sorted(extras)}), encoding="utf-8"
    )
    part.replace(stamp)


def _wait_for_leftovers(folder: Path) -> None:
    """Wait for processes of a killed set-up in its unfinished environment: ensurepip starts its own."""
    for _ in range(LEFTOVER_SECONDS * 10):
        if not any(_command(process).startswith(f"{folder}/bin/") for process in Path("/proc").glob("[0-9]*")):
            return
        time.sleep(0.1)
    sys.exit(f"error: processes are still running in {folder}, which has to be made anew: end them first")


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _key(folder: Path) -> str:
    """A hash of everything that the environment depends on, including its path, which its scripts contain."""
    parts = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt")]
    return hashlib.sha256(b"\0".join([*parts, sys.version.encode(), str(folder).encode()])).hexdigest()


def _read(stamp: Path) -> dict:
    try:
        return json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"key": None, "python": None, "extras": []}


def _run(command: list[str], complaint: str) -> None:
    """Run a command that dies with this process, so that a killed set-up does not write while the next one does."""
    tie = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if subprocess.run([*tie, *command], env=environment, check=False).returncode:
        sys.exit(f"error: {complaint}")


if __name__ == "__main__":
    main()
