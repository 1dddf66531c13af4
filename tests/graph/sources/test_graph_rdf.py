import numpy as np
import pytest
from text_helpers import gz, refused

from mgg.graph.io import text
from mgg.graph.sources import find_loader, rdf

TRIPLES = """\
# people
<urn:zoe> <urn:knows> <urn:adam> .
<urn:adam> <urn:name> "Adam \\"\\u00e9\\" <x>"@en .

_:b1 <urn:knows> <urn:zoe> . # blank nodes are entities too
<urn:adam> <urn:age> "7"^^<urn:int> .
<urn:adam> <urn:knows> <urn:adam> .
<urn:zoe> <urn:knows> <urn:adam> .
"""
# In byte order: '"7"^^<urn:int>', '"Adam ...', '<urn:adam>', '<urn:zoe>', '_:b1'; age, knows, name.
FORWARD = [(2, 3, 1), (1, 2, 2), (3, 4, 1), (0, 2, 0), (2, 2, 1), (2, 3, 1)]  # target, source, type
BOTH = sorted(FORWARD + [(source, target, kind + 3) for target, source, kind in FORWARD])


def write(folder, triples=TRIPLES, **tables):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tiny.nt").write_bytes(triples.encode() if isinstance(triples, str) else triples)
    for name, rows in tables.items():
        (folder / f"{name}.tsv").write_text(rows)
    return folder


def drain(path):
    graph = find_loader("rdf")(path)
    parts = list(graph.arcs.read())
    assert all(len(p.targets) == len(p.sources) == len(p.types) <= rdf.CHUNK_ARCS for p in parts)
    assert all(p.weights is None and p.types.dtype == np.int32 for p in parts)
    return graph, np.concatenate([np.stack([p.targets, p.sources, p.types], axis=1) for p in parts])


@pytest.mark.parametrize("chunk", [2**20, 4, 2])
def test_triples_match_a_hand_written_graph(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(rdf, "CHUNK_ARCS", chunk)
    for path in (write(tmp_path), tmp_path / "tiny.nt"):
        graph, arcs = drain(path)
        assert (graph.arcs.nodes, graph.arcs.relations) == (5, 6)
        assert sorted(map(tuple, arcs.tolist())) == BOTH
        assert graph.features is graph.labels is graph.splits is graph.classes is None
        assert np.array_equal(np.concatenate([p.types for p in graph.arcs.read()]), arcs[:, 2])


@pytest.mark.parametrize(
    "triples",
    [
        TRIPLES.replace("\n", "\r\n"),
        TRIPLES.replace("\n", "\n\n \t\n"),
        TRIPLES.removesuffix("\n"),
        TRIPLES.replace("\\u00e9", "é"),
        gz(TRIPLES.encode()),
        gz(TRIPLES.encode()[:60]) + gz(TRIPLES.encode()[60:]),
    ],
)
def test_other_spellings_give_the_same_graph(tmp_path, triples):
    _, arcs = drain(write(tmp_path, triples))
    assert sorted(map(tuple, arcs.tolist())) == BOTH


def test_order_of_lines_and_blocks_do_not_matter(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK", 16)
    _, arcs = drain(write(tmp_path, "\n".join(reversed(TRIPLES.splitlines()))))
    assert sorted(map(tuple, arcs.tolist())) == BOTH


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("<urn:zoe> <urn:knows>", "line 5: no N-Triples statement: Unexpected end"),
        ("<urn:zoe> <urn:knows> <urn:adam> . <urn:adam> <urn:knows> <urn:zoe> .", "line 5: "),
        ("<urn:zoe> <urn:knows> <urn:adam> <urn:graph> .", "line 5: "),
        ('"Zoe" <urn:name> <urn:zoe> .', "line 5: "),
        (b'<urn:zoe> <urn:name> "\xff" .', "line 5: .*UTF-8"),
    ],
)
@pytest.mark.parametrize("block", [2**20, 16])
def test_invalid_lines_are_named(tmp_path, monkeypatch, line, message, block):
    monkeypatch.setattr(text, "BLOCK", block)
    lines = TRIPLES.encode().split(b"\n")
    lines[4] = line.encode() if isinstance(line, str) else line
    refused("rdf", write(tmp_path, b"\n".join(lines)), rf"tiny\.nt: {message}")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# nothing\n", gz(b"")])
def test_file_without_triples_is_refused(tmp_path, content):
    refused("rdf", write(tmp_path, content), r"tiny\.nt: holds no triple")


COMPLETE = "id\tperson\tlabel_kind\n1\turn:zoe\tz\n2\turn:adam\ta\n"
TRAIN = "person\tid\tlabel_kind\nurn:zoe\t1.0\tz\n"
TEST = "person\tid\tlabel_kind\nurn:adam\t2.0\ta\n"


def test_tables_give_labels_and_split(tmp_path):
    graph, _ = drain(write(tmp_path, completeDataset=COMPLETE, trainingSet=TRAIN, testSet=TEST))
    assert graph.labels.tolist() == [-1, -1, 0, 1, -1]
    assert graph.splits.tolist() == [0, 0, 3, 1, 0]
    assert graph.classes == 2


@pytest.mark.parametrize(
    ("other", "same"), [("1.00", True), ("+1", True), ("01", True), ("1e0", False), ("1.5", False)]
)
def test_numerically_equal_class_names_are_one_class(tmp_path, other, same):
    tables = {"completeDataset": COMPLETE.replace("\tz", "\t1").replace("\ta", f"\t{other}")}
    assert drain(write(tmp_path, **tables))[0].classes == (1 if same else 2)


def test_every_table_is_optional(tmp_path):
    graph, _ = drain(write(tmp_path / "complete", completeDataset=COMPLETE))
    assert (graph.labels.tolist(), graph.splits, graph.classes) == ([-1, -1, 0, 1, -1], None, 2)
    tables = {"trainingSet(kind)": TRAIN.replace("\n", "\r\n"), "testSet(kind)": "\n" + TEST}
    graph, _ = drain(write(tmp_path / "split", **tables))
    assert graph.labels.tolist() == [-1, -1, 0, 1, -1]
    assert graph.splits.tolist() == [0, 0, 3, 1, 0]
    assert drain(tmp_path / "split" / "tiny.nt")[0].labels is None


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"trainingSet": TRAIN + "urn:eve\t3\tz\n"}, r"trainingSet\.tsv: line 3: urn:eve is not in the graph"),
        ({"trainingSet": TRAIN + "urn:zoe\t3\ta\n"}, r"trainingSet\.tsv: line 3: class a; before, it was z"),
        ({"trainingSet": TRAIN, "testSet": TRAIN}, r"testSet\.tsv: the test split names node 3, which is already"),
        (
            {"completeDataset": COMPLETE, "testSet": TEST.replace("\ta", "\tz")},
            r"testSet\.tsv: line 2: class z; before",
        ),
        ({"trainingSet": TRAIN + "urn:adam\t3\n"}, r"trainingSet\.tsv: line 3: expected 3 fields"),
        ({"trainingSet": TRAIN + "urn:adam\t3\t\n"}, r"trainingSet\.tsv: line 3: expected 3 fields with a class"),
        ({"trainingSet": "person\tid\n"}, r"trainingSet\.tsv: line 1: expected columns"),
        ({"trainingSet": "person\tbond\tlabel_kind\n"}, r"trainingSet\.tsv: line 1: expected columns"),
        ({"testSet": ""}, r"testSet\.tsv: line 1: expected columns"),
        ({"trainingSet(a)": TRAIN, "trainingSet(b)": TRAIN}, r"2 tables trainingSet\*\.tsv"),
    ],
)
def test_mismatched_tables_are_named(tmp_path, tables, message):
    refused("rdf", write(tmp_path, **tables), message)


def test_folder_with_several_files_needs_a_name(tmp_path):
    refused("rdf", tmp_path, r"expected one file that ends in \.nt, compressed or not, found 0")
    write(tmp_path / "inner", completeDataset=COMPLETE)
    (tmp_path / ".hidden.nt").write_bytes(b"")
    assert drain(tmp_path)[0].labels.tolist() == [-1, -1, 0, 1, -1]
    (tmp_path / "other.nt.gz").write_bytes(b"")
    refused("rdf", tmp_path, "found 2")
    refused("rdf", tmp_path / "nothing.nt", r"nothing\.nt: cannot be read")
