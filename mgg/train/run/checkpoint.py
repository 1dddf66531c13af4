"""Checkpoints of a training run: the newest two intact files ``RUN.checkpoint/epoch-NNNNNN.safetensors``.

A file stores all state that the next epoch depends on, so a resumed run gives the same bits as an uninterrupted one:
weights, running statistics, Adam's moments, the best weights so far, the epochs, stale rows of other workgroups
(technique ``halo``), and the run's identity as metadata. Random numbers have no state: they are computed from seed,
epoch and node. Each file is written under a temporary name, flushed and renamed, and carries a hash of its content
that reveals a torn file. A thread writes it while the training continues.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from mgg.errors import InputError, MachineError
from mgg.files import make_folder, sync
from mgg.model import Array
from mgg.records import EpochRecord, Frozen, read_run
from mgg.schema import Closed
from mgg.train.run.identity import Identity, difference
from mgg.train.run.output import WEIGHTS_FILE, EpochColumns, digest
from mgg.tune.epochs import Tuning

KEPT = 2
#: Version of the checkpoint format; earlier versions can be read, too.
VERSION: Literal[3] = 3
#: Most seconds that a training waits for the previous checkpoint, also as a share of the stall time: other PEs must not
#: take rank 0 for stalled.
LONGEST_PAUSE, PAUSE_SHARE = 10.0, 0.25
#: Errors from reading a file that is not a checkpoint, or a torn one.
_TORN = (OSError, SafetensorError, ValidationError, ValueError, KeyError)
_NAME = re.compile(r"epoch-(\d+)\.safetensors")
#: Files that MGG writes into a checkpoint folder (safetensors first writes a file of its own name, which a kill may
#: leave behind), and NFS's names for removed files that are still open.
_OWN, _REMOVED = re.compile(r"epoch-\d+\.(safetensors|part)|\.tmp\w{6}"), re.compile(r"\.nfs.*")
_log = logging.getLogger(__name__)


class History(Closed):
    """The epochs so far, and the best one."""

    epochs: list[EpochRecord] = Field(default_factory=list)
    best_epoch: int = Field(default=0, description="1-based; 0 before the first epoch")
    best_loss: float | None = Field(default=None, description="validation loss of best_epoch")
    bytes_wire: int = Field(default=0, description="bytes of embeddings that crossed PEs in an epoch, all PEs")
    tuning: Tuning | None = Field(default=None, description="settings of MGG's kernel, where they were tuned")


class _Meta(Frozen):
    schema_version: Literal[1, 2, 3] = VERSION
    identity: Identity
    #: The epochs are stored as tensors; version 1 has them here.
    history: History


@dataclass
class Checkpoint:
    """State after the last epoch of ``history``: named groups of arrays by name (weights, moments and so on)."""

    history: History
    groups: dict[str, dict[str, Array]] = field(default_factory=dict)


def to_records(values: dict[str, Array], given: dict[str, Array]) -> list[EpochRecord]:
    """Return the epochs from the result of ``EpochColumns.arrays``.

    Raises:
        ValueError: the columns differ in length, or are not those of an ``EpochRecord``.
        KeyError: ``given`` has a field that is not in ``values``.
    """
    columns = {name: column.tolist() for name, column in values.items()}
    for name, has in given.items():
        columns[name] = [value if there else None for value, there in zip(columns[name], has.tolist(), strict=True)]
    return [EpochRecord(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


class Checkpoints:
    """The checkpoint folder of one run, which ``stall_after`` seconds without progress would end; rank 0 uses it."""

    def __init__(self, folder: Path, identity: Identity, stall_after: float) -> None:
        self.folder, self._identity = folder, identity
        self._pause = min(LONGEST_PAUSE, PAUSE_SHARE * stall_after)
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[Path] | None = None
        self._saved = time.monotonic()
        self._seconds = 0.0  # writing time of the last checkpoint
        self._anew = False  # the folder's checkpoints belong to an earlier run
        self._skipped: dict[Path, bool] = {}  # files that ``load`` skipped: True for torn, False for unreadable
        self._columns = EpochColumns()

    def start_anew(self) -> None:
        """Ignore the folder's checkpoints, with a warning; this run's first checkpoint replaces them."""
        self._anew = True
        found = _newest_first(self.folder)
        if not found:
            return
        epoch, begun = _epoch(found[0]), False
        with suppress(InputError):  # written by a later MGG
            begun = self.begun()
        if begun:
            _log.warning("%s holds epoch %d: starting anew; --resume goes on from it", self.folder, epoch)
        else:
            _log.warning("%s holds epoch %d, not of this run or not whole: starting anew", self.folder, epoch)

    def due(self, every: float, epoch: float) -> bool:
        """Return whether to save now, so that a fault costs at most ``every`` seconds of work.

        The next chance comes after another epoch of ``epoch`` seconds, and a checkpoint counts once it is on the disk.
        """
        return time.monotonic() - self._saved + epoch + self._seconds > every

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint in the background and remove all but the newest two intact ones.

        The checkpoint must not change any more, and its epochs must begin with those of the previous one.

        If a slow disk is still writing the previous one, this one is skipped with a warning.

        Raises:
            MachineError: as ``wait``, for the previous checkpoint.
        """
        self._saved = time.monotonic()
        if self._writing is not None and futures.wait([self._writing], self._pause).not_done:
            done = len(checkpoint.history.epochs)
            _log.warning("%s: too slow, so there is no checkpoint after epoch %d", self.folder, done)
            return
        self.wait()
        self._writing = self._writer.submit(self._write, checkpoint)

    def wait(self) -> Path | None:
        """Wait until the last checkpoint of this run is written; return its path, or None if there was none.

        Raises:
            MachineError: the disk is full or fails.
        """
        return None if self._writing is None else self._writing.result()

    def _wait_for_any(self) -> None:
        """Wait as ``wait``, but turn a failed write into a warning, because the run's own outcome matters more."""
        try:
            self.wait()
        except MachineError as error:
            _log.warning("%s", error)

    def newest(self) -> Path | None:
        """Return the newest checkpoint of this run once all are written; a failed write is a warning."""
        self._wait_for_any()
        read = (path for path in _newest_first(self.folder) if path not in self._skipped)
        return None if self._anew else next(read, None)

    def _write(self, checkpoint: Checkpoint) -> Path:
        started = time.monotonic()
        self._columns.extend(checkpoint.history.epochs[len(self._columns) :])
        values, given = self._columns.arrays()
        tensors = {
            f"{group}/{name}": np.ascontiguousarray(array)
            for group, arrays in (checkpoint.groups | {"epochs": values, "given": given}).items()
            for name, array in arrays.items()
        }
        meta = _Meta(identity=self._identity, history=checkpoint.history)
        said = meta.model_dump_json(exclude={"history": {"epochs"}})
        path = self.folder / f"epoch-{len(checkpoint.history.epochs):06d}.safetensors"
        part = path.with_suffix(".part")
        try:
            make_folder(self.folder)
            part.touch()
            mode = part.stat().st_mode
            # The thread shares its core with the training, so neither this nor the hash copies the arrays.
            save_file(tensors, part, {"mgg": said, "sha256": digest(said, tensors)})
            part.chmod(mode)  # safetensors makes the file readable by its owner only
            sync(part)
            part.replace(path)
            sync(self.folder)
            for old in self._superseded(path):
                old.unlink(missing_ok=True)
            self._anew, self._skipped = False, {}
        except (OSError, SafetensorError) as error:
            why = getattr(error, "strerror", None) or " ".join(str(error).split())
            raise MachineError(f"{path}: cannot be written: {why}") from None
        finally:
            with suppress(OSError):  # a partial file would fill the disk
                part.unlink()
        self._seconds = time.monotonic() - started
        return path

    def _superseded(self, written: Path) -> list[Path]:
        """Return the checkpoints to remove once ``written`` exists; torn ones do not count among the newest two."""
        found = _newest_first(self.folder)
        whole = [path for path in found if path == written or not self._skipped.get(path)]
        kept = [written] if self._anew else whole[:KEPT]
        return [path for path in found if path not in kept]

    def load(self) -> Checkpoint | None:
        """Return the newest intact checkpoint, or None if there are no checkpoints.

        A torn one is skipped with a warning, and removed once the next is written; an unreadable one stays.

        Raises:
            InputError: it belongs to another run (names what differs) or a later MGG, or no checkpoint is intact.
        """
        for path in _newest_first(self.folder):
            try:
                meta, groups = _read(path)
                epochs = to_records(groups.pop("epochs", {}), groups.pop("given", {}))
            except _TORN as error:
                self._skipped[path] = _readable(path)
                _log.warning("%s: torn or altered (%s), trying the one before", path, " ".join(str(error).split())[:80])
                continue
            self._check(path, meta.identity)
            return Checkpoint(meta.history.model_copy(update={"epochs": meta.history.epochs + epochs}), groups)
        if self._skipped:
            last = [*self._skipped][-1]
            raise InputError(f"{last}: torn or altered, and no whole checkpoint beside it: remove {self.folder}")
        return None

    def begun(self) -> bool:
        """Whether the newest intact checkpoint belongs to this run."""
        for path in _newest_first(self.folder):
            with suppress(*_TORN):
                return difference(_read(path)[0].identity, self._identity) is None
        return False

    def clear(self) -> None:
        """Remove the checkpoints, and their folder unless it contains other files: the run is complete without them."""
        self._wait_for_any()
        with suppress(OSError):
            for path in self.folder.iterdir():
                if _OWN.fullmatch(path.name) and not path.is_dir():
                    path.unlink()
            self.folder.rmdir()

    def _check(self, path: Path, found: Identity) -> None:
        if found.layout is None or found.device is None:
            what, go_on = "is of an earlier MGG, which did not note the layout and whether it ran on CPUs or GPUs", ""
        elif differs := difference(found, self._identity):
            what, go_on = f"is of a run {differs}", "run it as before to go on; "
        else:
            return
        raise InputError(
            f"{path}: {what}: {go_on}to start anew take another output folder or remove {self.folder} (--weights takes"
            " the weights alone, over any layout, on any number of PEs)"
        )


def _newest_first(folder: Path) -> list[Path]:
    """Return the checkpoints in ``folder`` by descending epoch; names have more than six digits after 999,999."""
    found = [path for path in folder.glob("epoch-*.safetensors") if _NAME.fullmatch(path.name)]
    return sorted(found, key=_epoch, reverse=True)


def _epoch(path: Path) -> int:
    """Return the last epoch of a checkpoint from its name."""
    return int(path.stem.removeprefix("epoch-"))


def folder_of(out: Path) -> Path:
    """Return the checkpoint folder of the run ``out``."""
    return out.with_name(f"{out.name}.checkpoint")


def check_folder(out: Path) -> None:
    """Raise InputError early if the run ``out`` cannot write its checkpoint folder."""
    folder = folder_of(out)
    instead = "the checkpoints of this run go there: move it away, or choose another output folder"
    if not folder.is_dir():
        if folder.exists() or folder.is_symlink():
            raise InputError(f"{folder}: exists and is not a folder; {instead}")
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir() or not (_OWN.fullmatch(path.name) or _REMOVED.fullmatch(path.name)):
            raise InputError(f"{path}: is no checkpoint, but {instead}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: cannot be written, but {instead}")


def kept_choices(out: Path) -> tuple[str, str | None] | None:
    """Return technique and setting ``backward`` of the newest intact checkpoint of the run ``out``.

    Without a checkpoint, return those of the finished run, else None.
    """
    for path in _newest_first(folder_of(out)):
        try:
            identity = _read(path)[0].identity
            return identity.technique, identity.settings.get("backward")
        except _TORN:
            continue
    with suppress(InputError):
        record = read_run(out)[0]
        return record.technique, record.settings.get("backward")
    return None


def read_weights(path: Path, model: str) -> dict[str, Array]:
    """Read weights and running statistics by name, from a finished run or the last epoch of a checkpoint.

    Args:
        path: a run's folder, its weights.safetensors, a checkpoint, or a folder of checkpoints.
        model: name of the model that the weights must belong to.

    Raises:
        InputError: there are no weights, they are torn or altered, or they belong to another model.
    """
    file = path
    if path.is_dir():
        inside = [path / WEIGHTS_FILE, *_newest_first(path)]
        file = next((each for each in inside if each.is_file()), path / WEIGHTS_FILE)
    try:
        with safe_open(file, framework="numpy") as opened:
            facts = json.loads((opened.metadata() or {})["mgg"])
        if "identity" in facts:
            _, groups = _read(file)
            found = groups["weights"] | groups.get("state", {})
        else:
            found, said = load_file(file), facts.pop("sha256")
            if said != digest(json.dumps(facts, sort_keys=True), found):
                raise ValueError("its content does not match its hash")
        theirs = facts.get("identity", facts)["model"]
    except _TORN as error:
        raise InputError(f"{file}: no weights of mgg train, or torn ({' '.join(str(error).split())[:80]})") from None
    if theirs != model:
        raise InputError(f"{file}: weights of model {theirs}, this run has model {model}")
    return found


def _read(path: Path) -> tuple[_Meta, dict[str, dict[str, Array]]]:
    """Read a checkpoint's metadata and groups of arrays; raise ``_TORN``, or InputError if a later MGG wrote it."""
    with safe_open(path, framework="numpy") as file:
        header = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    if header["sha256"] != digest(header["mgg"], tensors):
        raise ValueError("its content does not match its hash")
    facts = json.loads(header["mgg"])
    if facts["schema_version"] > VERSION:
        raise InputError(
            f"{path}: is of a later MGG (version {facts['schema_version']} of checkpoints, this one reads up to"
            f" {VERSION}): run that one, or to start anew take another output folder or remove {path.parent}"
        )
    groups: dict[str, dict[str, Array]] = {}
    for key, values in tensors.items():
        group, name = key.split("/", 1)
        groups.setdefault(group, {})[name] = values
    return _Meta.model_validate(facts), groups


def _readable(path: Path) -> bool:
    """Whether the file's bytes can be read, torn or not; safetensors reports an empty file as a disk error."""
    try:
        with path.open("rb") as file:
            while file.read(1 << 20):
                pass
    except OSError:
        return False
    return True
