import os
import shutil
import socket
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from mgg.errors import InputError
from mgg.graph.csr import from_arcs, is_symmetric
from mgg.graph.io import archive, text
from mgg.graph.sources import CHUNK_ARCS, find_loader

FILES = {
    "A": "1, 2\n2, 1\n3, 3\n1, 2\n5, 4\n",
    "graph_indicator": "1\n1\n2\n3\n3\n",
    "graph_labels": "4\n-1\n4\n",
    "node_labels": "2\n0\n2\n7\n0\n",
    "node_attributes": "1.5, -2\n  0.0,1e-3\n3,4\n5,6\n-0.25,8\n",
}
ARCS = [(0, 1), (1, 0), (2, 2), (0, 1), (4, 3)]


def write(folder, **changes):
    """The files of the collection TINY; a change of None leaves a file out."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, content in (FILES | changes).items():
        if content is not None:
            data = content.encode() if isinstance(content, str) else content
            (folder / f"TINY_{part}.txt").write_bytes(data)
    (folder / "README.txt").write_text("not read\n")
    return folder


def arcs_of(graph):
    parts = list(graph.arcs.read())
    assert all(len(part.targets) == len(part.sources) <= CHUNK_ARCS for part in parts)
    assert all(part.weights is part.types is None for part in parts)
    return [
        np.concatenate([np.empty(0, np.int64), *(getattr(p, end) for p in parts)]) for end in ("targets", "sources")
    ]


def features_of(graph):
    blocks = list(graph.features.read())
    assert all(block.dtype == np.float32 and block.shape[1] == graph.features.width for block in blocks)
    return np.concatenate(blocks)


def drain(path):
    graph = find_loader("tu")(path)
    arcs = list(zip(*map(np.ndarray.tolist, arcs_of(graph)), strict=True))
    if graph.features is not None:
        features_of(graph)
    return graph, arcs


def test_published_counts(mirror):
    graph = find_loader("tu")(mirror / "PROTEINS_full" / "PROTEINS_full.zip")
    targets, sources = arcs_of(graph)
    assert (graph.arcs.nodes, len(targets), graph.features.width, graph.classes) == (43471, 162088, 29, 2)
    assert graph.splits is None
    csr = from_arcs(targets, sources, n=43471)
    assert csr.arcs == 162088
    assert is_symmetric(csr)
    assert np.array_equal(graph.labels[targets], graph.labels[sources])
    features = features_of(graph)
    assert features.shape == (43471, 29)
    first = [5, 27, 23, 33.03681, 0, 11.8, 0.43, 15.34, 10.66, 4, 10, 9, 10, 6, 7, 8, 4, 11, 4, 10, 9, 272.08]
    assert features[0, :22] == pytest.approx(np.array(first, np.float32), abs=0)


def test_published_node_labels(mirror, tmp_path):
    folder = tmp_path / "raw"
    shutil.unpack_archive(mirror / "PROTEINS_full" / "PROTEINS_full.zip", folder)
    next(folder.rglob("*_node_attributes.txt")).unlink()
    graph = find_loader("tu")(folder)
    features = features_of(graph)
    lines = next(folder.rglob("*_node_labels.txt")).read_text().split()
    assert graph.features.width == 3
    assert features.argmax(axis=1).tolist() == list(map(int, lines))
    assert (features.sum(axis=1) == 1).all()


def test_by_hand(tmp_path):
    graph = find_loader("tu")(write(tmp_path))
    for _ in range(2):
        assert list(zip(*map(np.ndarray.tolist, arcs_of(graph)), strict=True)) == ARCS
        assert features_of(graph).tolist() == np.float32([[1.5, -2], [0, 1e-3], [3, 4], [5, 6], [-0.25, 8]]).tolist()
    assert graph.arcs.nodes == 5
    assert graph.labels.tolist() == [1, 1, 0, 1, 1]
    assert graph.classes == 2
    assert graph.splits is None


def test_node_labels_are_one_hot_where_there_are_no_attributes(tmp_path):
    graph, _ = drain(write(tmp_path, node_attributes=None))
    assert features_of(graph).tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    graph, _ = drain(write(tmp_path, node_attributes=None, node_labels="2,1\n0,1\n2,1\n7,-3\n0,1\n"))
    assert features_of(graph)[3].tolist() == [0, 0, 1, 1, 0]
    assert features_of(graph)[0].tolist() == [0, 1, 0, 0, 1]


def test_optional_files_are_optional(tmp_path):
    graph, arcs = drain(write(tmp_path, node_attributes=None, node_labels=None, graph_labels=None))
    assert arcs == ARCS
    assert graph.features is graph.labels is graph.classes is None


def test_nodes_need_not_be_sorted_by_graph(tmp_path):
    graph, arcs = drain(write(tmp_path, graph_indicator="3\n3\n2\n1\n1\n", graph_labels="5\n6\n7\n"))
    assert arcs == ARCS
    assert graph.labels.tolist() == [2, 2, 1, 0, 0]


def test_a_collection_without_arcs(tmp_path):
    graph, arcs = drain(write(tmp_path, A=""))
    assert arcs == []
    assert graph.arcs.nodes == 5


@pytest.mark.parametrize("ending", ["\r\n", "\n\n", " \n", "\n \r\n\n"])
def test_line_ends_and_blank_lines_do_not_matter(tmp_path, ending):
    changed = {part: content.replace("\n", ending).removesuffix("\n") for part, content in FILES.items()}
    graph, arcs = drain(write(tmp_path, **changed))
    assert arcs == ARCS
    assert graph.labels.tolist() == [1, 1, 0, 1, 1]
    assert features_of(graph)[1].tolist() == np.float32([0, 1e-3]).tolist()


def test_folder_and_archive_give_the_same(tmp_path):
    write(tmp_path / "outer" / "TINY")
    shutil.make_archive(str(tmp_path / "TINY"), "zip", tmp_path / "outer")
    for path in (tmp_path / "outer", tmp_path / "TINY.zip"):
        graph, arcs = drain(path)
        assert arcs == ARCS
        assert graph.labels.tolist() == [1, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"A": "1, 2\n0, 1\n"}, r"TINY_A\.txt: line 2: row is 0, outside 1\.\.5"),
        ({"A": "1, 2\n\n1, 6\n"}, r"TINY_A\.txt: line 3: column is 6, outside 1\.\.5"),
        ({"A": "1, -1\n"}, r"TINY_A\.txt: line 1: column is -1, outside"),
        ({"A": "1, 2147483648\n"}, r"TINY_A\.txt: line 1: column is 2147483648, outside"),
        (
            {"A": "1, 2\n1, 9223372036854775808\n"},
            r"TINY_A\.txt: line 2: column is '9223372036854775808', beyond 2\^63",
        ),
        ({"A": "1, 2\none, 2\n"}, r"TINY_A\.txt: line 2: row is 'one', not a whole number"),
        ({"A": "1, 2\n1, 2.5\n"}, r"TINY_A\.txt: line 2: column is '2.5', not a whole"),
        ({"A": "1, 2\n0x1, 2\n"}, r"TINY_A\.txt: line 2: row is '0x1', not a whole"),
        ({"A": "1, 2\n1\n"}, r"TINY_A\.txt: line 2: 1 fields, expected 2"),
        ({"A": "1, 2\n1, 2, 3\n"}, r"TINY_A\.txt: line 2: 3 fields, expected 2"),
        ({"A": "1, 2\n1,\n"}, r"TINY_A\.txt: line 2: column is ''"),
        ({"A": b"1, 2\n\xff, 1\n"}, r"TINY_A\.txt: line 2: row is"),
        ({"A": "1, 2\n\n2, 3\n"}, r"TINY_A\.txt: line 3: joins node 2 of graph 1 and node 3 of graph 2"),
        ({"graph_indicator": "1\n1\n2\n3\n4\n"}, r"TINY_graph_indicator\.txt: line 5: graph is 4, outside 1\.\.3"),
        ({"graph_indicator": "1\n1\n0\n3\n3\n"}, r"TINY_graph_indicator\.txt: line 3: graph is 0, outside 1\.\.3"),
        ({"graph_indicator": "1\n1\nx\n3\n3\n"}, r"TINY_graph_indicator\.txt: line 3: graph is 'x'"),
        ({"graph_indicator": "1\n1\n2\n3\n3\n3\n"}, r"TINY_node_attributes\.txt: ends after 5 of the 6 lines"),
        (
            {"graph_indicator": "1\n1\n2\n3\n"},
            r"TINY_(A\.txt: line 5: row is 5|node_attributes\.txt: line 5: one more)",
        ),
        ({"graph_indicator": ""}, r"TINY_graph_indicator\.txt: names no node"),
        ({"graph_indicator": None}, r"TINY_graph_indicator\.txt: cannot be read"),
        ({"graph_labels": "4\n-1\n"}, r"TINY_graph_indicator\.txt: line 4: graph is 3, outside 1\.\.2"),
        ({"graph_labels": "4\nx\n4\n"}, r"TINY_graph_labels\.txt: line 2: graph label is 'x'"),
        ({"graph_labels": "0.5\n1\n4\n"}, r"TINY_graph_labels\.txt: line 1: graph label is '0.5', not a whole"),
        ({"graph_labels": "1, 2\n1, 2\n1, 2\n"}, r"TINY_graph_labels\.txt: line 1: 2 fields, expected 1"),
        ({"graph_labels": ""}, r"TINY_graph_labels\.txt: is empty"),
        (
            {"node_attributes": "1,2\n1,2\n1,nan\n1,2\n1,2\n"},
            r"node_attributes\.txt: line 3: attribute 2 is nan, not a",
        ),
        ({"node_attributes": "1,2\n1,2\n1e39,2\n1,2\n1,2\n"}, r"node_attributes\.txt: line 3: attribute 1 is 1e\+39"),
        ({"node_attributes": "1,2\n1,2\n1,2\n1,2\n1,two\n"}, r"node_attributes\.txt: line 5: attribute 2 is 'two'"),
        ({"node_attributes": "1,2\n1,2\n1\n1,2\n1,2\n"}, r"node_attributes\.txt: line 3: 1 fields, expected 2"),
        ({"node_attributes": "1,2\n" * 6}, r"TINY_node_attributes\.txt: line 6: one more than the 5"),
        ({"node_attributes": ""}, r"TINY_node_attributes\.txt: is empty"),
        ({"node_attributes": None, "node_labels": "1\n" * 4}, r"TINY_node_labels\.txt: ends after 4 of the 5 lines"),
        ({"node_attributes": None, "node_labels": "1\n" * 6}, r"TINY_node_labels\.txt: line 6: one more than the 5"),
        (
            {"node_attributes": None, "node_labels": "1\n1\nC\n1\n1\n"},
            r"TINY_node_labels\.txt: line 3: node label is 'C'",
        ),
        ({"A": None}, r"expected one file \*_A\.txt, found 0"),
    ],
)
def test_files_that_are_wrong_are_named_by_line(tmp_path, changes, message):
    with pytest.raises(InputError, match=message) as caught:
        drain(write(tmp_path, **changes))
    assert "\n" not in str(caught.value)


def test_lines_keep_their_numbers_in_later_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK", 16)
    content = "1, 2\n" * 40
    _, arcs = drain(write(tmp_path, A=content))
    assert arcs == [(0, 1)] * 40
    with pytest.raises(InputError, match=r"TINY_A\.txt: line 41: joins node 3 of graph 2 and node 4 of graph 3"):
        drain(write(tmp_path, A=content + "3, 4\n"))


def test_a_truncated_archive_is_named(tmp_path):
    write(tmp_path / "outer" / "TINY")
    shutil.make_archive(str(tmp_path / "whole"), "zip", tmp_path / "outer")
    data = (tmp_path / "whole.zip").read_bytes()
    for length in range(0, len(data), 37):
        (tmp_path / "TINY.zip").write_bytes(data[:length])
        with pytest.raises(InputError, match=r"TINY\.zip"):
            drain(tmp_path / "TINY.zip")


def test_a_bomb_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MIN_LIMIT", 2**10)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    write(tmp_path / "outer", A="1, 2\n" * 2**20)
    shutil.make_archive(str(tmp_path / "TINY"), "zip", tmp_path / "outer")
    with pytest.raises(InputError, match=r"TINY\.zip: .*more than"):
        drain(tmp_path / "TINY.zip")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_which_collection(tmp_path):
    write(tmp_path / "one")
    write(tmp_path / "two")
    with pytest.raises(InputError, match=r"expected one file \*_A\.txt, found 2"):
        drain(tmp_path)
    with pytest.raises(InputError, match=r"nothing\.zip"):
        drain(tmp_path / "nothing.zip")


def test_what_a_killed_process_unpacked_goes_with_the_next(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    scratch.mkdir()
    write(tmp_path / "outer")
    shutil.make_archive(str(tmp_path / "TINY"), "zip", tmp_path / "outer")
    code = """
        import os, signal, sys, tempfile
        from pathlib import Path
        from mgg.graph.sources.collection import Unpacked
        tempfile.tempdir = sys.argv[2]
        unpacked = Unpacked(Path(sys.argv[1]))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), tmp_path / "TINY.zip", scratch], check=False)
    (left,) = scratch.iterdir()
    assert list(left.iterdir())
    others = [f"mgg-elsewhere-{2**30}-x", f"mgg-{socket.gethostname()}-{os.getppid()}-x", "mgg-x", "other"]
    for name in others:
        (scratch / name).mkdir()
    graph = find_loader("tu")(tmp_path / "TINY.zip")
    names = {entry.name for entry in scratch.iterdir()}
    assert left.name not in names
    assert {*others} < names
    assert len(names) == len(others) + 1
    assert graph.arcs.nodes == 5
