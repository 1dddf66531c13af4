"""Code that the formats for graph classification share: they read many small graphs as one block-diagonal graph.

No arc joins two graphs. A node's label is its graph's class, as in GNNAdvisor's node-level runs on these sets (its
table 1: PROTEINS_full has 29 features and 2 classes).
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.graph.io.archive import unpack
from mgg.graph.sources import FeatureStream

#: float32 values per block of features: 16 MiB.
BLOCK_VALUES = 2**22


class Unpacked:
    """A folder, or an archive unpacked into a temporary folder, which is deleted together with this object.

    If a process is killed, its folder stays until another process on the same host unpacks an archive.

    Attributes:
        path: the folder.
        source: the original path, for errors.
    """

    def __init__(self, source: Path) -> None:
        """``source`` is a folder or an archive; InputError if it is neither (:func:`mgg.graph.io.archive.unpack`)."""
        self.source = self.path = source
        if not source.is_dir():
            _sweep(Path(tempfile.gettempdir()))
            self.path = Path(tempfile.mkdtemp(prefix=f"mgg-{socket.gethostname()}-{os.getpid()}-"))
            weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
            unpack(source, self.path)

    def only(self, pattern: str, *but: str) -> Path:
        """Return the only file in the folder that fits ``pattern``, except hidden ones and those in folders ``but``."""
        files = [file for file in self.path.rglob(pattern) if not self._aside(file, but) and file.is_file()]
        if len(files) != 1:
            raise InputError(f"{self.source}: expected one file {pattern}, found {len(files)}")
        return files[0]

    def _aside(self, file: Path, but: tuple[str, ...]) -> bool:
        parts = file.relative_to(self.path).parts
        return any(part.startswith((".", "__MACOSX")) or part in but for part in parts)


def _sweep(folder: Path) -> None:
    """Remove folders that killed processes of this host left; other hosts may share ``folder``, and theirs stay."""
    name = re.compile(rf"mgg-{re.escape(socket.gethostname())}-([0-9]+)-[^-]+")
    with suppress(OSError):
        for entry in folder.iterdir():
            found = name.fullmatch(entry.name)
            if found and not Path("/proc", found[1]).exists():
                shutil.rmtree(entry, ignore_errors=True)


def numbered(labels: np.ndarray) -> tuple[np.ndarray, int]:
    """Number any whole numbers [graphs] as classes in ascending order: int32 0..classes-1, and ``classes``."""
    values, classes = np.unique(labels, return_inverse=True)
    return classes.astype(np.int32), len(values)


def one_hot(columns: list[np.ndarray]) -> FeatureStream:
    """Return one-hot features: each column of integers [nodes] becomes one column per value, in ascending order."""
    coded = [numbered(column) for column in columns]
    starts = np.cumsum([0, *(count for _, count in coded)])
    nodes, width = len(columns[0]), int(starts[-1])
    rows = max(1, BLOCK_VALUES // width)

    def read() -> Iterator[np.ndarray]:
        for lo in range(0, nodes, rows):
            block = np.zeros((min(rows, nodes - lo), width), np.float32)
            for start, (codes, _) in zip(starts, coded, strict=False):
                block[np.arange(len(block)), start + codes[lo : lo + rows]] = 1
            yield block

    return FeatureStream(read, width)
