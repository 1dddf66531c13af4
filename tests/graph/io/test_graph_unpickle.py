import os
import pickle
import struct
import tracemalloc

import numpy as np
import pytest
from graph_helpers import Runs, boxed, python2, python2_array, python2_csr
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from mgg.errors import InputError, MachineError
from mgg.graph.budget import limited, resident
from mgg.graph.io import unpickle
from mgg.graph.io.unpickle import read_pickle


@pytest.fixture
def read(tmp_path):
    def reader(data: bytes):
        (tmp_path / "file.pickle").write_bytes(data)
        return read_pickle(tmp_path / "file.pickle")

    return reader


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize("dtype", ["f4", "i8", "b1"])
def test_python3_pickles_of_boxed_matrices_are_read(read, protocol, dtype):
    matrix = sparse.random(7, 5, 0.4, format="csr", rng=0).astype(dtype)
    found = read(pickle.dumps(boxed(matrix), protocol=protocol))
    assert found.shape == (7, 5)
    assert found.dtype == matrix.dtype
    assert (found != matrix).nnz == 0
    dense = np.arange(6).astype(dtype).reshape(2, 3).T
    found = read(pickle.dumps(boxed(dense), protocol=protocol))
    assert found.dtype == dense.dtype
    assert np.array_equal(found, dense)


def holds_itself():
    box = boxed(None)
    box[()] = box
    return box


@pytest.mark.parametrize(
    "value",
    [
        boxed(1, 2, shape=(2,)),
        boxed("text"),
        boxed(np.array(["a", "b"])),
        boxed(np.zeros(2, "V4")),
        holds_itself(),
    ],
)
def test_boxes_of_other_objects_are_refused(read, value):
    with pytest.raises(InputError, match=r"file\.pickle: (not a whole pickle of arrays|refused)") as caught:
        read(pickle.dumps(value, protocol=4))
    assert "\n" not in str(caught.value)


def test_a_sparse_matrix_of_objects_is_refused(read):
    matrix = sparse.csr_matrix(np.eye(2))
    matrix.data = boxed(1, 2, shape=(2,))
    with pytest.raises(InputError, match="not a whole pickle of arrays"):
        read(pickle.dumps(boxed(matrix), protocol=4))


@pytest.mark.parametrize(
    ("protocol", "function", "arguments"),
    [*((protocol, os.system, "touch ran") for protocol in range(6)), (4, eval, "open('ran', 'w')")],
)
def test_code_is_refused_and_named(read, tmp_path, monkeypatch, protocol, function, arguments):
    monkeypatch.chdir(tmp_path)
    module = {"posix": "posix"}.get(function.__module__, "__builtin__" if protocol < 3 else "builtins")
    with pytest.raises(InputError, match=rf"file\.pickle: refused: .*{module}\.{function.__name__}"):
        read(pickle.dumps(Runs(function, arguments), protocol=protocol))
    with pytest.raises(InputError, match=rf"refused: .*{function.__name__}|refused: .*_codecs.encode"):
        read(pickle.dumps(boxed(Runs(function, arguments)), protocol=protocol))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (b"(S'touch ran'\nios\nsystem\n.", "os.system"),
        (python2(b"cnumpy\nload\nU\x03ran\x85R"), "numpy.load"),
        (python2(b"cnumpy\nndarray.tofile\n"), "numpy.ndarray.tofile"),
        (python2(b"c__builtin__\ngetattr\n"), "__builtin__.getattr"),
        (python2(b"ccopy_reg\n_reconstructor\n"), "copy_reg._reconstructor"),
        (python2(b"}U\x01kcsubprocess\nPopen\ns"), "subprocess.Popen"),
    ],
)
def test_every_other_global_is_refused_and_named(read, program, name):
    with pytest.raises(InputError, match=f"refused: this pickle asks for {name}, which is code"):
        read(program)


@pytest.mark.parametrize(
    "program",
    [
        python2_array(np.zeros(2), dtype=b"O8"),
        python2_array(np.zeros(2, "f4"), dtype=b"f8"),
        b"cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85R",
        b"cnumpy.core.multiarray\n_reconstruct\nc__builtin__\nlist\n\x85R",
        b"cnumpy\nndarray\n",
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n\x85R",
        b"]",
        b"Pname\n",
        b"\x82\x01",
        b"cscipy.sparse.csr\ncsr_matrix\n)\x81}b",
    ],
)
def test_malformed_arrays_are_refused(read, program):
    with pytest.raises(InputError, match="not a whole pickle of arrays"):
        read(python2(program))


@pytest.mark.parametrize(
    ("part", "values"),
    [("indices", [0, 9]), ("indices", [0, -1]), ("indptr", [0, 5, 2]), ("indptr", [0, 1]), ("indptr", [-7, 1, 2])],
)
def test_malformed_sparse_matrices_never_reach_scipy(read, part, values):
    matrix = sparse.csr_matrix(np.eye(2, 3, dtype=np.float32))
    setattr(matrix, part, np.array(values, np.int32))
    with pytest.raises(InputError, match="not a whole pickle of arrays"):
        read(python2(python2_csr(matrix)))


@pytest.mark.parametrize(
    "target", [b"cnumpy.core.multiarray\n_reconstruct\n", b"cnumpy\ndtype\n", b"cscipy.sparse.csr\ncsr_matrix\n"]
)
@pytest.mark.parametrize("state", [b"}U\x08pollutedK\x01s", b"N}U\x08pollutedK\x01s\x86"])
def test_a_pickle_cannot_change_the_reader(read, target, state):
    with pytest.raises(InputError):
        read(python2(target + state + b"b"))
    assert not [name for name in vars(unpickle) if hasattr(getattr(unpickle, name), "polluted")]


def test_every_truncation_is_reported(read):
    whole = python2(python2_csr(sparse.csr_matrix(np.eye(3, dtype=np.float32))))
    for length in range(len(whole)):
        with pytest.raises(InputError, match=r"file\.pickle"):
            read(whole[:length])


@given(st.binary(max_size=60))
def test_random_bytes_are_reported_or_data(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "random.pickle"
    path.write_bytes(b"\x80\x02" + data)
    try:
        value = read_pickle(path)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(value, (np.ndarray, sparse.csr_matrix, dict))


GREEDY = {
    "a memo of 64 GiB": b"]r" + struct.pack("<I", 2**32 - 1),
    "a memo written as text": b"]p4294967295\n",
    "bytes": b"\x8e" + struct.pack("<Q", 2**40) + b"x",
    "a text": b"\x8d" + struct.pack("<Q", 2**40) + b"x",
    "a bytearray": b"\x96" + struct.pack("<Q", 2**40) + b"x",
    "a number": b"\x8b" + struct.pack("<i", 2**31 - 1) + b"x",
    "a frame": b"\x95" + struct.pack("<Q", 2**40) + b"]",
    "a list by its class": b"c__builtin__\nlist\n](K\x01K\x02e\x85R",
    "a dictionary by its class": b"ccollections\ndefaultdict\nc__builtin__\nlist\n}K\x01K\x02s\x86R",
    "sets": b"\x8f\x8f",
}


@pytest.mark.parametrize("program", GREEDY.values(), ids=list(GREEDY))
def test_claims_beyond_the_file_size_are_refused_before_loading(read, program):
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"file\.pickle: not a whole pickle of arrays"):
            read(python2(program))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("program", [b"]" * 2**20, b"N" * 2**20, b"](" + b"]a" * 2**19])
def test_pickle_beyond_free_memory_is_refused(read, program, monkeypatch):
    monkeypatch.setattr(unpickle, "_Restricted", None)
    with limited(resident() + 32 * 2**20), pytest.raises(MachineError, match=r"file\.pickle.* raise --memory"):
        read(python2(program))


def test_file_larger_than_memory_is_refused(tmp_path):
    path = tmp_path / "large.pickle"
    with path.open("wb") as file:
        file.truncate(2**33)
    with limited(2**32), pytest.raises(MachineError, match=r"large\.pickle: reading it may take 8192 MiB"):
        read_pickle(path)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_estimated_memory_is_an_upper_bound(protocol):
    """What objects and their tables take, by their sizes and growth, is below what is counted."""
    graph = {node: list(range(node * 1000, node * 1000 + 40)) for node in range(1000)}
    program = pickle.dumps(graph, protocol=protocol)
    tracemalloc.start()
    try:
        assert unpickle.read_object(program, "graph") == graph
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < unpickle._needed(program) < 5 * peak
