"""Build wheel and sdist into dist/, then install each into a bare environment and run `mgg doctor` and `mgg demo`."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PIP = ["-m", "pip", "--quiet", "--disable-pip-version-check"]


def main() -> None:
    """Build and try everything; exit code 1 if a command fails."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        builder = _environment(Path(folder) / "builder")
        _run([builder, *PIP, "install", "build>=1.2,<2"])
        _run([builder, "-m", "build", "--outdir", str(dist), str(ROOT)])  # the wheel is made from the sdist
        for file in sorted(dist.iterdir()):
            python = _environment(Path(folder) / file.name)
            _run([python, *PIP, "install", "--constraint", str(ROOT / "constraints.txt"), str(file)])
            mgg = str(Path(python).with_name("mgg"))
            facts = json.loads(_run([mgg, "doctor", "--json"], cwd=folder, stdout=subprocess.PIPE))
            _run([mgg, "graph", "digits", "--out", str(Path(folder) / f"{file.name}-graph")], cwd=folder)
            _run([mgg, "init", "digits", "--out", str(Path(folder) / f"{file.name}.yaml")], cwd=folder)
            demo = Path(folder) / f"{file.name}-demo"
            _run([mgg, "demo", "--out", str(demo)], cwd=folder)
            if not (demo / "results" / "report" / "index.html").is_file():
                sys.exit(f"error: {file.name}: mgg demo made no page")
            print(f"{file.name}: {file.stat().st_size} bytes; mgg doctor answers with {len(facts)} facts", flush=True)


def _environment(folder: Path) -> str:
    _run([sys.executable, "-m", "venv", str(folder)])
    return str(folder / "bin" / "python")


def _run(words: list[str], **options: Any) -> str:
    done = subprocess.run(words, check=False, text=True, **options)
    if done.returncode:
        sys.exit(f"error: {' '.join(words)} ended with {done.returncode}")
    return done.stdout or ""


if __name__ == "__main__":
    main()
