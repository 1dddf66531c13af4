"""Contents of the workflow's results folder, and which of them the configs of its runs still name."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from mgg.errors import InputError, MachineError
from mgg.files import write_text

#: Stage folders whose outputs configs name, in the results folder and in those of experiments. The report and
#: jobs.jsonl always belong to the newest config, so they are not listed.
_STAGES = (
    "retrieve", "graph", "graph_natural", "graph_scatter", "graph_shard", "describe", "partition", "layout", "tune",
    "predict", "links", "aggregate", "train", "lookup_samples", "lookup",
)  # fmt: skip
_BESIDE = ("logs", "benchmarks")
_NOTES = ".kept"
_LOCK = ".lock"


@dataclass(frozen=True)
class Note:
    """The outputs that a run's config names.

    Attributes:
        configs: the run's config files besides the default one, as paths relative to the results folder.
        given: other settings of its command: values of ``--config``, the experiment.
        where: the places of its jobs.
        config_hash: hash of its config.
        outputs: the outputs it names, as paths relative to the results folder.
    """

    configs: Sequence[str]
    given: Sequence[str]
    where: Sequence[str]
    config_hash: str
    outputs: Sequence[str]

    def gone(self, results: Path) -> list[str]:
        """Return the config files that no longer exist."""
        return [file for file in self.configs if not (results / file).is_file()]

    def replaces(self, other: Note) -> bool:
        """Return whether ``other`` is from the same command, either in the same place or with an older config."""
        same = (self.configs, self.given) == (other.configs, other.given)
        return same and (self.config_hash != other.config_hash or self.where == other.where)


@dataclass(frozen=True)
class Unnamed:
    """A file or folder that no config names, its bytes, and whether it is under logs or benchmarks."""

    path: Path
    size: int
    beside: bool


def keep(results: Path, note: Note) -> None:
    """Write down what a run's config names, replacing earlier notes of the same command.

    Raises:
        OSError, MggError: the note cannot be written.
    """
    earlier = _notes(results)
    number = 1 + max((int(file.stem) for file in earlier), default=0)
    (results / _NOTES).mkdir(exist_ok=True)
    write_text(results / _NOTES / f"{number}.json", json.dumps(asdict(note), sort_keys=True, indent=1) + "\n")
    for file, other in earlier.items():
        if note.replaces(other):
            file.unlink(missing_ok=True)


def unnamed(results: Path) -> tuple[list[Unnamed], list[str]]:
    """Return what no existing config names, largest first, and the config files that no longer exist.

    Raises:
        InputError: no run has left a note, a note is unreadable, or none of the configs exists any more.
    """
    notes = list(_notes(results).values())
    gone = sorted({os.path.normpath(results / file) for note in notes for file in note.gone(results)})
    living = [note for note in notes if not note.gone(results)]
    if not notes:
        raise InputError(
            f"{results}: no run of the workflow has noted here what its config names: run one of them first"
        )
    if not living:
        raise InputError(f"{results}: no config of its runs is there any more, as {gone[0]}: run one of them first")
    named = {output.removesuffix(".jsonl") for note in living for output in note.outputs}
    found = [
        Unnamed(path, size_of(path), bool(beside))
        for base, beside, stage in _stage_folders(results)
        for path in _not_in(base / beside / stage, base / beside, base.relative_to(results), named)
    ]
    return sorted(found, key=lambda each: (-each.size, str(each.path))), gone


def remove(results: Path) -> tuple[list[Unnamed], list[str]]:
    """Remove everything that ``unnamed`` lists, and return its result.

    Raises:
        InputError: as ``unnamed``.
        MachineError: a run is working in ``results``, or something cannot be removed.
    """
    with _alone(results):
        found, gone = unnamed(results)
        for path in (each.path for each in found):
            try:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                for parent in path.parents:  # remove folders that became empty
                    if parent == results or any(parent.iterdir()):
                        break
                    parent.rmdir()
            except OSError as error:
                raise MachineError(f"{path}: cannot be removed: {error.strerror}") from None
    return found, gone


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]
    return sum(each.lstat().st_size for each in files if each.is_symlink() or each.is_file())


def _notes(results: Path) -> dict[Path, Note]:
    found = {}
    for file in (results / _NOTES).glob("*.json"):
        try:
            if not file.stem.isdecimal():
                raise ValueError("no number")
            found[file] = Note(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{file}: cannot be read ({error}): remove it, and run what it was of again") from None
    return found


def _stage_folders(results: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield each stage folder as (results or experiment folder, "" or logs or benchmarks, stage)."""
    for base in (results, *sorted(results.glob("experiments/*"))):
        for beside in ("", *_BESIDE):
            for stage in _STAGES:
                if (base / beside / stage).is_dir():
                    yield base, beside, stage


def _not_in(folder: Path, above: Path, base: Path, named: set[str]) -> Iterator[Path]:
    """Yield the topmost files and folders below ``folder`` that are not named and contain nothing named.

    Args:
        folder: a stage's folder or a folder in it.
        above: the folder that contains the stage's folder.
        base: the prefix of outputs' names that stands for ``above``.
        named: the named outputs, without endings.
    """
    for path in sorted(folder.iterdir()):
        name = str(base / path.relative_to(above))
        for ending in (".jsonl", ".log", ".checkpoint"):
            name = name.removesuffix(ending)
        if path.name.startswith(".") or name in named:
            continue
        if any(each.startswith(f"{name}/") for each in named):
            yield from _not_in(path, above, base, named)
        else:
            yield path


@contextmanager
def _alone(results: Path) -> Iterator[None]:
    """Lock out runs of the workflow; raises MachineError if one is active."""
    try:
        file = (results / _LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise MachineError(f"{results / _LOCK}: cannot be written: {error.strerror}") from None
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            why = (
                "a run of the workflow is working here"
                if isinstance(error, PermissionError | BlockingIOError)
                else error
            )
            raise MachineError(f"{results}: {why}: wait for it or end it") from None
        file.seek(0)
        holder = file.readline().strip()
        if holder:
            raise MachineError(
                f"{results}: {holder} was working here and has not left: run the workflow once more first"
            )
        yield
