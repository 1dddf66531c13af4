import os
import shutil
import socket
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from text_helpers import arcs_of, features_of, load, refused

from mgg.errors import InputError
from mgg.graph.io import archive, text

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


def drain(path):
    """The graph, and its arcs as pairs of target and source."""
    graph = load("tu", path)
    return graph, [(target, source) for source, target in arcs_of(graph.arcs)]


def test_files_match_a_hand_written_graph(tmp_path):
    graph = load("tu", write(tmp_path))
    for _ in range(2):
        assert drain(tmp_path)[1] == ARCS
        assert features_of(graph).tolist() == np.float32([[1.5, -2], [0, 1e-3], [3, 4], [5, 6], [-0.25, 8]]).tolist()
    assert graph.arcs.nodes == 5
    assert graph.labels.tolist() == [1, 1, 0, 1, 1]
    assert graph.classes == 2
    assert graph.splits is None


def test_node_labels_become_one_hot_features_without_attributes(tmp_path):
    graph, _ = drain(write(tmp_path, node_attributes=None))
    assert features_of(graph).tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    graph, _ = drain(write(tmp_path, node_attributes=None, node_labels="2,1\n0,1\n2,1\n7,-3\n0,1\n"))
    assert features_of(graph)[3].tolist() == [0, 0, 1, 1, 0]
    assert features_of(graph)[0].tolist() == [0, 1, 0, 0, 1]


def test_optional_files_may_be_missing(tmp_path):
    graph, arcs = drain(write(tmp_path, node_attributes=None, node_labels=None, graph_labels=None))
    assert arcs == ARCS
    assert graph.features is graph.labels is graph.classes is None


def test_nodes_may_be_in_any_graph_order(tmp_path):
    graph, arcs = drain(write(tmp_path, graph_indicator="3\n3\n2\n1\n1\n", graph_labels="5\n6\n7\n"))
    assert arcs == ARCS
    assert graph.labels.tolist() == [2, 2, 1, 0, 0]


@pytest.mark.parametrize("ending", ["\r\n", "\n\n", " \n", "\n \r\n\n"])
def test_line_ends_and_blank_lines_are_ignored(tmp_path, ending):
    changed = {part: content.replace("\n", ending).removesuffix("\n") for part, content in FILES.items()}
    graph, arcs = drain(write(tmp_path, **changed))
    assert arcs == ARCS
    assert graph.labels.tolist() == [1, 1, 0, 1, 1]
    assert features_of(graph)[1].tolist() == np.float32([0, 1e-3]).tolist()


def test_folder_and_archive_are_equal(tmp_path):
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
        ({"A": "1, 2\n1\n"}, r"TINY_A\.txt: line 2: 1 fields, expected 2"),
        ({"A": "1, 2\n\n2, 3\n"}, r"TINY_A\.txt: line 3: joins node 2 of graph 1 and node 3 of graph 2"),
        ({"graph_indicator": "1\n1\n2\n3\n4\n"}, r"TINY_graph_indicator\.txt: line 5: graph is 4, outside 1\.\.3"),
        ({"graph_indicator": "1\n1\n0\n3\n3\n"}, r"TINY_graph_indicator\.txt: line 3: graph is 0, outside 1\.\.3"),
        ({"graph_indicator": "1\n1\n2\n3\n3\n3\n"}, r"TINY_node_attributes\.txt: ends after 5 of the 6 lines"),
        (
            {"graph_indicator": "1\n1\n2\n3\n"},
            r"TINY_(A\.txt: line 5: row is 5|node_attributes\.txt: line 5: one more)",
        ),
        ({"graph_indicator": ""}, r"TINY_graph_indicator\.txt: names no node"),
        ({"graph_indicator": None}, r"TINY_graph_indicator\.txt: cannot be read"),
        ({"graph_labels": "4\n-1\n"}, r"TINY_graph_indicator\.txt: line 4: graph is 3, outside 1\.\.2"),
        ({"graph_labels": "4\nx\n4\n"}, r"TINY_graph_labels\.txt: line 2: graph label is 'x'"),
        ({"graph_labels": "1, 2\n1, 2\n1, 2\n"}, r"TINY_graph_labels\.txt: line 1: 2 fields, expected 1"),
        ({"graph_labels": ""}, r"TINY_graph_labels\.txt: is empty"),
        (
            {"node_attributes": "1,2\n1,2\n1,nan\n1,2\n1,2\n"},
            r"node_attributes\.txt: line 3: attribute 2 is nan, not a",
        ),
        ({"node_attributes": "1,2\n1,2\n1\n1,2\n1,2\n"}, r"node_attributes\.txt: line 3: 1 fields, expected 2"),
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
def test_bad_files_are_named_by_line(tmp_path, changes, message):
    refused("tu", write(tmp_path, **changes), message)


def test_line_numbers_count_over_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK", 16)
    content = "1, 2\n" * 40
    _, arcs = drain(write(tmp_path, A=content))
    assert arcs == [(0, 1)] * 40
    with pytest.raises(InputError, match=r"TINY_A\.txt: line 41: joins node 3 of graph 2 and node 4 of graph 3"):
        drain(write(tmp_path, A=content + "3, 4\n"))


def test_decompression_bomb_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MIN_LIMIT", 2**10)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    write(tmp_path / "outer", A="1, 2\n" * 2**20)
    shutil.make_archive(str(tmp_path / "TINY"), "zip", tmp_path / "outer")
    with pytest.raises(InputError, match=r"TINY\.zip: .*more than"):
        drain(tmp_path / "TINY.zip")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_folder_with_several_collections_needs_a_name(tmp_path):
    write(tmp_path / "one")
    write(tmp_path / "two")
    refused("tu", tmp_path, r"expected one file \*_A\.txt, found 2")
    refused("tu", tmp_path / "nothing.zip", r"nothing\.zip")


def test_leftovers_of_a_killed_process_are_removed(tmp_path, monkeypatch):
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
    graph = load("tu", tmp_path / "TINY.zip")
    names = {entry.name for entry in scratch.iterdir()}
    assert left.name not in names
    assert {*others} < names
    assert len(names) == len(others) + 1
    assert graph.arcs.nodes == 5
