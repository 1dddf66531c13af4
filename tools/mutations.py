"""Mutation tests: make one mistake at a time in a copy of the tree, run tests, and print which test noticed it.

tools/mutations.yaml has the mistakes. The quick tests (``make test``) run first, those nearest to the file before the
others; then the slow ones. A test that also fails without the mistake has not noticed it.
"""

import argparse
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = (".git", ".venv*", "results", ".snakemake", ".mypy_cache", ".ruff_cache", ".pytest_cache", "dist", "build")
#: Part of the tree -> folders of its tests, the nearest first.
CONCERNED = {
    "mgg/kernel": ("kernel", "aggregate", "model"),
    "kernels/aggregate": ("kernel", "aggregate", "backend"),
    "kernels/model": ("model", "kernel", "train"),
    "mgg/partition": ("partition", "layout"),
    "mgg/layout": ("layout", "partition", "aggregate"),
    "mgg/aggregate": ("aggregate", "backend"),
    "mgg/backend": ("backend", "aggregate", "train"),
    "mgg/model": ("model", "train"),
    "mgg/train": ("train", "cli"),
    "mgg/interop": ("interop",),
    "mgg/report": ("report", "cli"),
    "mgg/cli": ("cli", "train"),
    "mgg/graph": ("graph",),
    "mgg/workflow": ("workflow",),
    "workflow/rules": ("workflow",),
}
#: Instead of a test's name.
HANG, CRASH = "(hangs)", "(crashes)"
TIERS = {"quick": "not slow or sentinel", "slow": "slow and not sentinel"}


@dataclass(frozen=True)
class Mistake:
    """``old`` occurs once in ``file``; if ``new`` replaces it, some test should fail."""

    file: str
    old: str
    new: str

    @property
    def part(self) -> str:
        """The folder of its file."""
        return self.file.rpartition("/")[0]

    @property
    def problem(self) -> str | None:
        """Why it no longer applies; None if it does."""
        path = ROOT / self.file
        if not path.exists():
            return f"{self.file}: no such file"
        count = path.read_text(encoding="utf-8").count(self.old)
        return None if count == 1 else f"{self.file}: {count} times, not once: {self.old!r}"

    def tests(self, far: bool) -> list[list[str]]:
        """Its tests in steps: of the module, of its folders, with ``far`` all; each step without those before."""
        part = next((part for part in CONCERNED if self.file.startswith(f"{part}/")), "")
        folders = [f"tests/{name}" for name in CONCERNED.get(part, ())]
        words = set(re.findall("[a-z0-9]{3,}", self.file.removeprefix(part).rpartition(".")[0]))
        files = [path for folder in folders for path in sorted((ROOT / folder).rglob("test_*.py"))]
        # The module's own tests, then tests whose name shares a word with its path.
        named = sorted(
            (path for path in files if words & set(path.stem.split("_")[2:])),
            key=lambda path: not path.stem.endswith(f"_{Path(self.file).stem}"),
        )
        first = [str(path.relative_to(ROOT)) for path in named]
        rest = ["tests", *(f"--ignore={folder}" for folder in folders)] if far or not folders else []
        return [
            step
            for step in (first, [*folders, *(f"--ignore={name}" for name in first)] if folders else [], rest)
            if step
        ]


class Tree:
    """A copy of the working tree, from which tests import."""

    def __init__(self, path: Path, once: bool):
        self.path, self.once = path, once
        shutil.copytree(ROOT, path, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)

    def fails(self, *tests: str, limit: float) -> str | None:
        """The first of these tests that fails, or None; HANG if they take longer than ``limit`` seconds."""
        paths = [str(self.path), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", *tests]
        with subprocess.Popen(
            command, cwd=self.path, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as run:  # fmt: skip
            try:
                output = run.communicate(timeout=limit)[0]
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                return HANG
        if run.returncode in (0, 5):  # all passed, or none was selected
            return None
        if run.returncode < 0:
            return CRASH
        found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
        if not found:
            raise SystemExit(f"{' '.join(command)}\n{output[-2000:]}")
        return found[1]

    def notices(self, mistake: Mistake, limit: float, far: bool) -> dict[str, str | None]:
        """By tier, a test that fails with the mistake but not without; slow tests run if no quick one fails."""
        for tier, marks in TIERS.items():
            for tests in mistake.tests(far):
                if failed := self._failing(mistake, ["-m", marks, *tests], limit):
                    return dict.fromkeys(TIERS) | {tier: failed}
        return dict.fromkeys(TIERS)

    def _failing(self, mistake: Mistake, asked: list[str], limit: float) -> str | None:
        path = self.path / mistake.file
        right, times = path.read_text(encoding="utf-8"), path.stat()
        while True:
            try:
                path.write_text(right.replace(mistake.old, mistake.new), encoding="utf-8")
                self._forget_compiled(path)
                failed = self.fails(*asked, limit=limit)
            finally:
                path.write_text(right, encoding="utf-8")
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
                self._forget_compiled(path)
            if self.once or failed in (None, HANG, CRASH) or not self.fails(failed, limit=limit):
                return failed
            asked = [*asked, f"--deselect={failed}"]

    def _forget_compiled(self, changed: Path) -> None:
        """Remove Numba's caches of functions that include one of the changed file: Numba does not notice that."""
        texts = {path: path.read_text(encoding="utf-8") for path in (self.path / "mgg").rglob("*.py")}
        stale, rest = {changed}, {path for path, text in texts.items() if "numba" in text} - {changed}
        while found := {
            path
            for path in rest
            if any(re.search(rf"import .*\b{each.stem}\b|\b{each.stem} import", texts[path]) for each in stale)
        }:
            stale, rest = stale | found, rest - found
        for path in stale:
            for cache in path.parent.glob(f"__pycache__/{path.stem}.*.nb?"):
                cache.unlink()


def main() -> int:
    """Returns 0 if every mistake still applies, whatever the tests notice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", default=ROOT / "tools/mutations.yaml", type=Path, help="the mistakes")
    parser.add_argument("--apply", action="store_true", help="only print mistakes that no longer apply")
    parser.add_argument("--only", default="", help="only mistakes in files whose path contains this")
    parser.add_argument("--far", action="store_true", help="also run tests of other folders")
    parser.add_argument("--once", action="store_true", help="assume that every test passes without the mistake")
    parser.add_argument("--jobs", type=int, default=1, help="mistakes at a time, each in a copy of the tree")
    parser.add_argument("--limit", type=float, default=900, help="seconds after which tests count as hanging")
    parser.add_argument(
        "--out", type=Path, help="append a JSON line per mistake; mistakes in the file are not tried again"
    )
    options = parser.parse_args()

    given = yaml.safe_load(options.file.read_text(encoding="utf-8"))
    mistakes = [Mistake(file, *pair) for file, pairs in given.items() if options.only in file for pair in pairs]
    problems = [mistake.problem for mistake in mistakes if mistake.problem]
    print("\n".join([*problems, f"{len(mistakes)} mistakes, {len(problems)} do not apply any more"]), flush=True)
    if options.apply or problems:
        return 1 if problems else 0

    known: list[dict] = []
    if options.out and options.out.exists():
        known = [json.loads(line) for line in options.out.read_text(encoding="utf-8").splitlines()]
    done = {Mistake(entry["file"], entry["old"], entry["new"]): entry for entry in known}
    trees: queue.Queue[Tree] = queue.Queue()

    def trial(mistake: Mistake) -> dict:
        if mistake not in done:
            tree = trees.get()
            try:
                done[mistake] = asdict(mistake) | tree.notices(mistake, options.limit, options.far)
            finally:
                trees.put(tree)
            if options.out:
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(done[mistake]) + "\n")
        return done[mistake]

    with tempfile.TemporaryDirectory(prefix="mutations-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        for number in range(options.jobs):
            trees.put(Tree(Path(folder) / str(number) / "tree", options.once))
        # Shuffled, so that an interrupted run has results for all folders.
        show(list(pool.map(trial, random.Random(0).sample(mistakes, len(mistakes)))))
    return 0


def show(found: list[dict]) -> None:
    """Print Markdown: which tier noticed, by folder; then the mistakes that quick tests did not notice."""
    counts = Counter((entry["file"].rpartition("/")[0], who(entry)) for entry in found)
    print("| folder | mistakes | quick tests | slow tests alone | none |\n| --- | --- | --- | --- | --- |")
    for part in [*sorted({part for part, _ in counts}), ""]:
        row = [sum(count for (p, w), count in counts.items() if (p == part or not part) and w == who) for who in SEEN]
        print(f"| {part or 'all'} | {sum(row)} | {' | '.join(map(str, row))} |")
    for entry in found:
        if who(entry) != "quick":
            print(f"- {entry['file']}: `{entry['old'].strip()}` -> `{entry['new'].strip()}`: {entry['slow'] or 'none'}")


SEEN = ("quick", "slow", "none")


def who(entry: dict) -> str:
    """The tier that noticed."""
    return next((tier for tier in TIERS if entry[tier]), "none")


if __name__ == "__main__":
    sys.exit(main())
