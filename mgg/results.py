"""What lies in a results folder of the workflow, and which of it the configs of its runs name."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgg.errors import InputError, MachineError
from mgg.files import write_text

#: Folders of stages whose outputs configs name, in results and in those of an experiment. Report and jobs.jsonl are of
#: the newest config.
_STAGES = (
    "retrieve", "graph", "graph_natural", "graph_scatter", "graph_shard", "partition", "layout", "predict", "aggregate",
    "train",
)  # fmt: skip
_BESIDE = ("logs", "benchmarks")
_NOTES = ".kept"
LOCK = ".lock"


@dataclass(frozen=True)
class Unnamed:
    """What no config names: a file or folder, the bytes in it, and whether it is logs or benchmarks of outputs."""

    path: Path
    size: int
    beside: bool


def note(results: Path, who: Mapping[str, Any], where: Iterable[str], config_hash: str, outputs: Iterable[str]) -> None:
    """Note what a run's config names, in place of what its command named before.

    Args:
        results: folder of all results.
        who: what tells a command from others: its config files (``configs``, absolute paths) and other settings.
        where: the places of its jobs. What the same command named in other places stays, unless its config has changed.
        config_hash: of its config.
        outputs: what it names, paths below ``results``.
    """
    folder = results / _NOTES
    for file, earlier in _notes(results):
        if earlier["who"] == who and (earlier["config_hash"] != config_hash or earlier["where"] == sorted(where)):
            file.unlink(missing_ok=True)
    told = {"who": dict(who), "where": sorted(where), "config_hash": config_hash, "outputs": sorted(outputs)}
    text = json.dumps(told, sort_keys=True, indent=1)
    number = 1 + max((int(file.stem) for file, _ in _notes(results)), default=0)
    folder.mkdir(exist_ok=True)
    write_text(folder / f"{number}.json", text + "\n")


def unnamed(results: Path) -> list[Unnamed]:
    """What no config that is still there names, the largest first.

    Raises:
        InputError: no run has noted what it names, or a note cannot be read.
    """
    notes = [note for _, note in _notes(results)]
    if not notes:
        raise InputError(
            f"{results}: no run of the workflow has noted here what its config names: run one of them first"
        )
    named = {
        output.removesuffix(".jsonl")
        for note in notes
        if all(Path(file).is_file() for file in note["who"]["configs"])
        for output in note["outputs"]
    }
    found = [
        Unnamed(path, size_of(path), bool({*folder.relative_to(results).parts} & {*_BESIDE}))
        for folder in _stage_folders(results)
        for path in _not_in(folder, results, named)
    ]
    return sorted(found, key=lambda each: (-each.size, str(each.path)))


def remove(results: Path, paths: Iterable[Path]) -> None:
    """Remove ``paths``.

    Raises:
        MachineError: a run is working in ``results``, or something cannot be removed.
    """
    with _alone(results):
        for path in paths:
            try:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            except OSError as error:
                raise MachineError(f"{path}: cannot be removed: {error.strerror}") from None
            for parent in path.parents:  # folders that are empty now
                if parent == results or any(parent.iterdir()):
                    break
                parent.rmdir()


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    files = path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]
    return sum(each.lstat().st_size for each in files if each.is_symlink() or each.is_file())


def _notes(results: Path) -> list[tuple[Path, dict[str, Any]]]:
    found = []
    for file in sorted((results / _NOTES).glob("[0-9]*.json"), key=lambda file: int(file.stem)):
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            assert told["who"]["configs"] is not None and told["outputs"] is not None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{file}: cannot be read ({error}): remove it, and run what it was of again") from None
        found.append((file, told))
    return found


def _stage_folders(results: Path) -> Iterator[Path]:
    """By stage the folders of outputs, logs and benchmarks, of experiments too."""
    for base in (results, *sorted(results.glob("experiments/*"))):
        for kind in (base, *(base / name for name in _BESIDE)):
            yield from (kind / stage for stage in _STAGES if (kind / stage).is_dir())


def _not_in(folder: Path, results: Path, named: set[str]) -> Iterator[Path]:
    """The topmost files and folders below ``folder`` that are neither named nor around what is."""
    for path in sorted(folder.iterdir()):
        name = _output_of(path.relative_to(results))
        if path.name.startswith(".") or name in named:
            continue
        if any(each.startswith(f"{name}/") for each in named):
            yield from _not_in(path, results, named)
        else:
            yield path


def _output_of(path: Path) -> str:
    """The output, without its ending, that a path below results is, or is a log, benchmark or checkpoint of."""
    parts = [part for part in path.parts if part not in _BESIDE]
    name = "/".join(parts)
    for ending in (".jsonl", ".log", ".checkpoint"):
        name = name.removesuffix(ending)
    return name


@contextmanager
def _alone(results: Path) -> Iterator[None]:
    """Keep runs of the workflow on this host out; raises MachineError where one is at work."""
    with (results / LOCK).open("a+", encoding="utf-8") as file:
        with suppress(BlockingIOError, PermissionError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.seek(0)
            holder = file.readline().strip()
            if not holder:
                yield
                return
            raise MachineError(
                f"{results}: {holder} was working here and has not left: run the workflow once more first"
            )
        raise MachineError(f"{results}: a run of the workflow is working here: wait for it or end it")
