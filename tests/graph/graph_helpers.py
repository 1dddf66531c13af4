"""Random graphs and raw files that the tests of this folder share."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy import sparse

from mgg.graph.csr import from_arcs


def arrays(nodes: int = 40, arcs: int = 150, seed: int = 0) -> dict:
    """Arguments of write_graph for a random directed weighted graph with everything."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, nodes, (2, arcs))
    return {
        "csr": from_arcs(*ends, n=nodes, weights=rng.random(arcs, dtype=np.float32)),
        "name": "random",
        "source": {"seed": seed},
        "features": rng.standard_normal((nodes, 5)).astype(np.float32),
        "labels": rng.integers(-1, 4, nodes),
        "splits": rng.integers(0, 4, nodes),
        "classes": 4,
    }


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file under a folder with its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def python2_array(values: np.ndarray, dtype: bytes | None = None) -> bytes:
    """The opcodes with which Python 2 pickles an array (protocol 2)."""
    code = values.dtype.str[1:].encode() if dtype is None else dtype
    return b"".join(
        (
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R",
            b"(K\x01(" + b"".join(_number(length) for length in values.shape) + b"t",
            b"cnumpy\ndtype\n"
            + _text(code)
            + b"K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
            b"\x89" + _text(values.tobytes()) + b"tb",
        )
    )


def python2_csr(matrix: sparse.csr_matrix) -> bytes:
    """The opcodes with which Python 2 pickles a SciPy CSR matrix."""
    fields = [(b"data", matrix.data), (b"indices", matrix.indices), (b"indptr", matrix.indptr)]
    body = b"".join(_text(name) + python2_array(values) for name, values in fields)
    shape = b"(" + b"".join(_number(length) for length in matrix.shape) + b"t"
    return b"cscipy.sparse.csr\ncsr_matrix\n)\x81}(" + body + b"U\x06_shape" + shape + b"ub"


def python2_graph(graph: dict[int, list[int]]) -> bytes:
    """The opcodes with which Python 2 pickles a defaultdict of lists."""
    rows = (_number(v) + b"](" + b"".join(map(_number, neighbors)) + b"e" for v, neighbors in graph.items())
    return b"ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(" + b"".join(rows) + b"u"


def python2(program: bytes) -> bytes:
    """A whole pickle file."""
    return b"\x80\x02" + program + b"."


def _number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def _text(value: bytes) -> bytes:
    return b"T" + struct.pack("<i", len(value)) + value


@dataclass
class TinyPlanetoid:
    """A Planetoid data set of 11 nodes: 2 train, 3 validate, 3 test; node 9 is an isolated test id that is left out."""

    allx: np.ndarray = field(default_factory=lambda: np.eye(8, 4, dtype=np.float32))
    ally: np.ndarray = field(default_factory=lambda: np.eye(3, dtype=np.int32)[np.arange(8) % 3])
    tx: np.ndarray = field(default_factory=lambda: np.full((2, 4), 0.5, np.float32))
    ty: np.ndarray = field(default_factory=lambda: np.eye(3, dtype=np.int32)[[2, 1]])
    test: str = "10\n8\n"
    graph: dict = field(
        default_factory=lambda: {
            0: [1, 1, 0], 1: [0], 2: [3], 3: [2], 4: [5], 5: [], 6: [7], 7: [6], 8: [10], 10: [8], 9: []
        }
    )  # fmt: skip

    def write(self, folder: Path) -> Path:
        """Write the eight files of the data set ``tiny``."""
        folder.mkdir(parents=True, exist_ok=True)
        matrices = {"x": self.allx[:2], "allx": self.allx, "tx": self.tx}
        hot = {"y": self.ally[:2], "ally": self.ally, "ty": self.ty}
        for part, values in matrices.items():
            (folder / f"ind.tiny.{part}").write_bytes(python2(python2_csr(sparse.csr_matrix(values))))
        for part, values in hot.items():
            (folder / f"ind.tiny.{part}").write_bytes(python2(python2_array(values)))
        (folder / "ind.tiny.graph").write_bytes(python2(python2_graph(self.graph)))
        (folder / "ind.tiny.test.index").write_text(self.test)
        return folder


def boxed(*values, shape: tuple[int, ...] = ()) -> np.ndarray:
    """An array of objects."""
    box = np.empty(shape, object)
    for index, value in zip(np.ndindex(shape), values, strict=True):
        box[index] = value
    return box


class Runs:
    """What calls a function when it is unpickled."""

    def __init__(self, function, *arguments) -> None:
        self.call = function, arguments

    def __reduce__(self):
        return self.call


#: Runs the command line and prints the largest amount of memory that the process ever held, in KiB.
PEAK = """
import sys
from pathlib import Path
from mgg.cli.group import cli
cli.main(sys.argv[1:], standalone_mode=False)
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line))
"""


def peak(folder, *command: str) -> int:
    """The largest memory of a process that runs the command line, in MiB."""
    run = subprocess.run([sys.executable, "-c", PEAK, *command], cwd=folder, check=True, capture_output=True, text=True)
    return int(run.stdout.split()[-1]) // 2**10
