import shutil

import numpy as np
import pytest
from text_helpers import arcs_of, load, refused

from mgg.errors import InputError
from mgg.graph.sources import gin

TEXT = """\
4
3 7
5 2 1 2
0 1 0
5 3 0 0 2
1 -1
9 0
0 3
2 2
0 1 0
0 2 0 1
"""
ARCS = [(0, 1), (0, 2), (1, 0), (2, 0), (2, 0), (2, 2), (4, 4), (5, 4), (5, 5)]
TAGS = [5, 0, 5, 9, 0, 0]
SIZES = [3, 1, 0, 2]
LABELS = [3, 3, 3, 0, 1, 1]


def write(folder, text=TEXT, name="tiny", folds=None):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.txt").write_bytes(text.encode() if isinstance(text, str) else text)
    for fold, graphs in (folds or {}).items():
        (folder / gin.FOLDS).mkdir(exist_ok=True)
        (folder / gin.FOLDS / f"{fold}.txt").write_text("".join(f"{graph}\n" for graph in graphs))
    return folder


def drain(path):
    """The graph, and its arcs as pairs of target and source."""
    graph = load("gin", path)
    return graph, [(target, source) for source, target in arcs_of(graph.arcs)]


def test_small_file_matches_hand_written_graph(tmp_path):
    for _ in range(2):
        graph, arcs = drain(write(tmp_path))
        assert arcs == ARCS
    assert graph.arcs.nodes == 6
    assert graph.labels.tolist() == LABELS
    assert graph.classes == 4
    assert graph.splits is None
    features = np.concatenate(list(graph.features.read()))
    assert features.dtype == np.float32
    assert features.tolist() == [[float(tag == value) for value in (0, 5, 9)] for tag in TAGS]


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("\n", "\r\n"),
        TEXT.replace("\n", "\n\n \t\n"),
        "\n\n" + TEXT.removesuffix("\n"),
        TEXT.replace(" ", "\t  "),
        TEXT.replace("\n", " \n") + "\n\n",
    ],
)
def test_blanks_are_ignored(tmp_path, text):
    graph, arcs = drain(write(tmp_path, text))
    assert arcs == ARCS
    assert graph.labels.tolist() == LABELS


def test_folder_file_and_archive_are_equal(tmp_path):
    folds = {"train_idx-1": [0, 1, 2], "test_idx-1": [3], "test_idx-2": [1]}
    folder = write(tmp_path / "outer" / "tiny", folds=folds)
    (folder / ".DS_Store").write_bytes(b"x")
    shutil.make_archive(str(tmp_path / "tiny"), "zip", tmp_path / "outer")
    for path in (folder, folder.parent, folder / "tiny.txt", tmp_path / "tiny.zip"):
        graph, arcs = drain(path)
        assert arcs == ARCS
        assert graph.splits.tolist() == [1, 1, 1, 2, 3, 3]


def test_unpacked_archive_is_removed_with_the_graph(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    write(tmp_path / "outer" / "tiny")
    shutil.make_archive(str(tmp_path / "tiny"), "zip", tmp_path / "outer")
    graph, _ = drain(tmp_path / "tiny.zip")
    assert len(list((tmp_path / "scratch").iterdir())) == 1
    del graph
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    ("folds", "expected"),
    [
        ({"train_idx-1": [2, 3, 1], "test_idx-1": [0], "test_idx-2": [1]}, [3, 2, 1, 1]),
        ({"train_idx-1": [0, 1], "test_idx-1": [2]}, [1, 1, 3, 0]),
    ],
)
def test_first_fold_is_the_split(tmp_path, folds, expected):
    graph, _ = drain(write(tmp_path, folds=folds))
    assert graph.splits.tolist() == np.repeat(expected, SIZES).tolist()


@pytest.mark.parametrize(
    ("folds", "message"),
    [
        ({"train_idx-1": [0, 4], "test_idx-1": [2]}, r"train_idx-1\.txt: line 2: graph is 4, outside 0\.\.3"),
        ({"train_idx-1": [0, 2], "test_idx-1": [2]}, r"10fold_idx: the test split names node 2, which is already"),
        ({"train_idx-1": [0]}, r"test_idx-1\.txt: cannot be read"),
    ],
)
def test_mismatched_folds_are_named(tmp_path, folds, message):
    refused("gin", write(tmp_path, folds=folds), message)


def at(line, new):
    lines = TEXT.splitlines()
    lines[line - 1] = new
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (at(3, "5 2 1 3"), r"line 3: neighbor '3' is outside 0\.\.2"),
        (at(4, "0 1 9223372036854775808"), r"line 4: '9223372036854775808' is beyond 2\^63"),
        (at(4, "0 1 one"), "line 4: expected a whole number, found 'one'"),
        (at(4, "0 1 -"), "line 4: expected a whole number, found '-'"),
        (at(4, "0"), "line 4: a number is missing"),
        (at(4, "0 2 0"), "line 4: the line ends after 1 of the neighbors"),
        (at(4, "0 1 0 1"), "line 4: found '1' where the line should end"),
        (at(4, "0 1 0 0.25 1e3"), "line 4: found '0.25' where .*attributes after the neighbors are not supported"),
        (at(4, "0 -1"), "line 4: -1 cannot be a number"),
        (at(1, "5"), "line 12: the file ends within graph 4"),
        (at(1, "3"), "line 9: more text after the 3 graphs that line 1 announces"),
        (at(1, "0"), "line 1: 0 graphs"),
        (at(1, "99999999999"), "line 1: 99999999999 graphs; .*not more than fit this file"),
        (at(1, "4 4"), "line 1: found '4' where the line should end"),
        (at(2, "4 7"), "line 12: the file ends within graph 1"),
        (at(2, "3 7 1"), "line 2: found '1' where"),
        (at(2, "-3 7"), "line 2: -3 cannot be a number"),
        (at(2, "99999999999 7"), "line 12: the file ends within graph 0"),
        ("", "line 1: a number is missing"),
        ("2\n0 1\n0 0\n", "its graphs have no nodes"),
    ],
)
def test_bad_text_is_named_by_its_line(tmp_path, text, message):
    refused("gin", write(tmp_path, text), rf"tiny\.txt: ({message})")


def test_every_truncation_is_reported(tmp_path):
    for length in range(len(TEXT) - 1):
        with pytest.raises(InputError, match=r"tiny\.txt: "):
            drain(write(tmp_path, TEXT[:length]))


def collection(seed, graphs=60):
    """A random collection: its text, arcs, tags and labels, from plain Python."""
    rng = np.random.default_rng(seed)
    lines, arcs, tags, labels, first = [str(graphs)], [], [], [], 0
    for _ in range(graphs):
        size, label = int(rng.integers(0, 12)), int(rng.integers(-2, 3))
        lines.append(f"{size} {label}")
        labels.append((size, label))
        for node in range(size):
            neighbors = rng.integers(0, size, rng.integers(0, 9)).tolist()
            tags.append(int(rng.integers(0, 5)))
            lines.append(" ".join(map(str, [tags[-1], len(neighbors), *neighbors])))
            arcs += [(first + node, first + other) for other in neighbors]
        first += size
    return "\n".join(lines), arcs, tags, labels


@pytest.mark.parametrize("block", [1, 100, 1000, 2**22])
def test_blocks_and_chunks_do_not_change_the_graph(tmp_path, monkeypatch, block):
    monkeypatch.setattr(gin, "BLOCK", block)
    monkeypatch.setattr(gin, "CHUNK_ARCS", 5)
    text, expected, tags, labels = collection(seed=block)
    graph, arcs = drain(write(tmp_path, text))
    assert arcs == expected
    values = sorted({label for _, label in labels})
    assert graph.labels.tolist() == [values.index(label) for size, label in labels for _ in range(size)]
    assert np.concatenate(list(graph.features.read())).argmax(axis=1).tolist() == tags


def test_line_numbers_count_over_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(gin, "BLOCK", 50)
    lines = collection(seed=3)[0].split("\n")
    lines[200] += " 1"
    refused("gin", write(tmp_path, "\n".join(lines)), r"tiny\.txt: line 201: (found '1'|neighbor)")


def test_folder_with_several_files_needs_a_name(tmp_path):
    refused("gin", tmp_path, r"expected one file \*\.txt, found 0")
    write(tmp_path)
    write(tmp_path, name="other")
    refused("gin", tmp_path, r"expected one file \*\.txt, found 2")
    refused("gin", tmp_path / "nothing.zip", r"nothing\.zip")
