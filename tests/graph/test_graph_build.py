import csv
import gzip
import re
import runpy

import numpy as np
import pytest
from graph_helpers import files_of
from support.workflow import ROOT

from mgg.errors import NOT_ENOUGH_MEMORY, InputError, MachineError
from mgg.graph import sources
from mgg.graph.build import build, scatter
from mgg.graph.csr import row_ids
from mgg.graph.datasets import catalog
from mgg.graph.generate import generate
from mgg.graph.generators import GENERATORS, Generator
from mgg.graph.retrieve import retrieve
from mgg.graph.source import Source
from mgg.graph.source_description import describe, description
from mgg.graph.sources import Arcs, ArcStream, StreamedGraph
from mgg.graph.store import Graph


@pytest.fixture
def raw(tmp_path):
    retrieve("digits", tmp_path / "raw")
    return tmp_path / "raw"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("digit", "unknown data set 'digit'; did you mean digits"),
        ("pubmedd", "did you mean pubmed"),
        ("reddit-like", "is a generator, not a data set: mgg generate reddit-like"),
        ("./digits", "./digits: no such file or folder"),
        ("graph.mtx", "graph.mtx: no such file or folder"),
    ],
)
def test_unknown_sources_are_refused(tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        build(source, "out")
    assert list(tmp_path.iterdir()) == []


def test_folder_without_a_known_format_needs_a_loader(tmp_path):
    (tmp_path / "raw").mkdir()
    said = r"raw: a folder that neither .*, so --loader must say .*, digits, edges, .* \(docs/concepts/data\.md\)"
    with pytest.raises(InputError, match=said):
        build(tmp_path / "raw", tmp_path / "out")
    (tmp_path / "raw.dat").write_text("")
    with pytest.raises(InputError, match=r"raw\.dat: its ending says nothing, so --loader"):
        build(tmp_path / "raw.dat", tmp_path / "out")


@pytest.mark.parametrize("order", ["natural", "degree"])
def test_graph_has_the_users_name(raw, tmp_path, order):
    (tmp_path / "a.csv").write_text("0,1\n1,2\n")
    assert build(tmp_path / "a.csv", tmp_path / "graph", order=order, name="mine").name == "mine"
    assert build(tmp_path / "graph", tmp_path / "other", order=order, name="yours").name == "yours"
    assert build(raw, tmp_path / "digits", name="digits").name == "digits"
    assert scatter(tmp_path / "a.csv", tmp_path / "scattered", name="mine").name == "mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [("cora", "is that of a real data set"), ("planted", "is that of a generator"), ("../a", "only letters"), ("", "")],
)
def test_invalid_graph_name_is_refused(tmp_path, name, message):
    (tmp_path / "a.csv").write_text("0,1\n1,2\n")
    with pytest.raises(InputError, match=f"name {name!r}: {message}"):
        build(tmp_path / "a.csv", tmp_path / "graph", name=name)
    assert not (tmp_path / "graph").exists()


def test_altered_raw_file_is_refused(raw, tmp_path):
    (raw / "digits.csv.gz").write_bytes(gzip.compress(b"0," * 64 + b"1\n"))
    with pytest.raises(InputError, match=r"digits\.csv\.gz: truncated or altered"):
        build(raw, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text", ["name: digits\n", "[", "files: 3\n", "\xff", "name: d\nloader: l\nlicence: n\nf: 1\n"]
)
def test_unreadable_source_file_is_refused(raw, tmp_path, text):
    (raw / "source.yaml").write_bytes(text.encode("latin1"))
    with pytest.raises(InputError, match=r"source\.yaml"):
        build(raw, tmp_path / "out")


def test_source_file_cannot_point_outside_its_folder(raw, tmp_path):
    describe(raw, description(raw).model_copy(update={"files": {"../secret": "0" * 64}}))
    with pytest.raises(InputError, match=r"source\.yaml: files"):
        build(raw, tmp_path / "out")


def test_counts_that_differ_from_the_catalog_are_refused(raw, tmp_path, monkeypatch):
    wrong = catalog()["digits"].model_copy(update={"arcs": 24680})
    monkeypatch.setattr("mgg.graph.source.catalog", lambda: {"digits": wrong})
    with pytest.raises(InputError, match="digits: the graph has 24678 arcs, expected 24680"):
        build(raw, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_manifest_does_not_depend_on_the_folder(raw, tmp_path):
    raw.rename(tmp_path / "elsewhere")
    build(tmp_path / "elsewhere", tmp_path / "a")
    build("digits", tmp_path / "b")
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    assert Graph.open(tmp_path / "a").manifest.source["licence"] == "CC-BY-4.0"


def test_symmetrize_adds_reverse_arcs(tmp_path, monkeypatch):
    arcs = Arcs(np.array([0, 1, 2]), np.array([1, 2, 2]))
    directed = StreamedGraph(ArcStream(lambda: iter([arcs]), 3))
    monkeypatch.setattr("mgg.graph.source.find_loader", lambda name: lambda path: directed)
    plain = build(tmp_path, tmp_path / "plain", loader="any")
    both = build(tmp_path, tmp_path / "both", loader="any", symmetrize=True)
    assert (plain.arcs, plain.symmetric, both.arcs, both.symmetric) == (2, False, 4, True)
    assert (plain.listed_arcs, plain.dropped_loops, both.dropped_loops) == (3, 1, 1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("plantd", {}, "unknown generator 'plantd'; did you mean planted"),
        ("planted", {"scale": 0}, "scale must be above 0"),
        ("planted", {"scale": -1}, "scale must be above 0"),
        ("planted", {"scale": float("nan")}, "scale must be above 0"),
        ("planted", {"scale": float("inf")}, "scale must be above 0"),
        ("planted", {"seed": -1}, "seed must not be negative"),
        ("reddit-like", {"features": 5}, "features and classes are given together"),
        ("planted", {"features": 5, "classes": 3}, "has features and classes of its own"),
    ],
)
def test_invalid_generator_options_are_refused(tmp_path, name, options, message):
    with pytest.raises(InputError, match=message):
        generate(name, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_graph_larger_than_memory_is_one_line(tmp_path, monkeypatch):
    def make(scale, seed, shuffle):
        raise MemoryError

    monkeypatch.setitem(GENERATORS.added, "huge", Generator("huge", make, 0))
    with pytest.raises(MachineError, match=rf"^{NOT_ENOUGH_MEMORY}: huge at scale 2\.0 does not fit"):
        generate("huge", tmp_path / "out", scale=2)
    assert list(tmp_path.iterdir()) == []


def program_of(heading):
    """The first program of docs/concepts/data.md below a heading, as it stands there."""
    _, _, below = (ROOT / "docs/concepts/data.md").read_text(encoding="utf-8").partition(f"\n{heading}\n")
    return re.search(r"```python\n(.*?)```", below, re.DOTALL)[1]


def test_documented_program_for_another_split_works(raw, tmp_path, monkeypatch):
    """The program of docs/concepts/data.md, as it stands there."""
    monkeypatch.chdir(tmp_path)
    natural = build(raw, "graph")
    (tmp_path / "program.py").write_text(program_of("## Splits"))
    runpy.run_path("program.py")
    made = Graph.open("graph2")
    assert (made.manifest.name, made.manifest.arcs) == ("mine", natural.arcs)
    assert np.bincount(made.splits(0, natural.nodes)).tolist() == [0, 898, 449, 450]
    assert np.array_equal(made.labels(0, natural.nodes), Graph.open("graph").labels(0, natural.nodes))


def test_documented_program_for_named_nodes_works(tmp_path, monkeypatch):
    """What refuses names points to it."""
    monkeypatch.chdir(tmp_path)
    arcs = [("alice", "bob"), ("NA", "alice"), ("bob", "10"), ("bob, jr.", "NA")]
    rows = "".join(f'0.{i},"{a}",{b}\n' for i, (a, b) in enumerate(arcs, 1))
    (tmp_path / "named.csv").write_text("weight,source,target\n" + rows)
    with pytest.raises(InputError, match="source is 'alice', not a whole number: number the nodes first") as caught:
        build("named.csv", "graph")
    (tmp_path / "program.py").write_text(program_of("### " + str(caught.value).rpartition(", ")[2].rstrip(")")))
    indexer = runpy.run_path("program.py")["names"].get_indexer
    build("edges.csv", "graph")
    graph = Graph.open("graph")
    with (tmp_path / "names.csv").open(newline="") as file:
        names = {int(row["id"]): row["name"] for row in csv.DictReader(file)}
    assert indexer([*names.values(), "nobody"]).tolist() == [*names, -1]
    assert graph.ids(0, 5) is None
    csr = graph.rows(0, 5)
    ends = zip(csr.weights.tolist(), csr.indices.tolist(), row_ids(csr).tolist(), strict=True)
    assert [(names[a], names[b]) for _, a, b in sorted(ends)] == arcs


@pytest.mark.parametrize("make", [build, scatter])
def test_required_labels_must_exist(tmp_path, make):
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    for path, loader in ((tmp_path / "edges.csv", None), (tmp_path, "table")):
        with pytest.raises(InputError) as caught:
            make(path, tmp_path / "out", loader=loader, labels=True, name="mine")
        assert str(caught.value).startswith(f"{path}: nodes have no labels, and --labels (")
        assert "graph.datasets.mine.labels" in str(caught.value)
        assert not (tmp_path / "out").exists()
    (tmp_path / "nodes.csv").write_text("label\n1\n0\n")
    assert make(tmp_path, tmp_path / "out", loader="table", labels=True).classes == 2


def test_boolean_labels_are_labels(tmp_path):
    tasks = np.array([[0, 1], [1, 0]], np.uint8)
    arcs = sources.ArcStream(lambda: iter([sources.Arcs(np.array([0]), np.array([1]))]), 2)
    asked = Source("mine", sources.StreamedGraph(arcs, tasks=tasks), {})
    assert build(asked, tmp_path / "out", labels=True).tasks == 2
    with pytest.raises(InputError, match=r"^mine: nodes have no labels"):
        build(Source("mine", sources.StreamedGraph(arcs), {}), tmp_path / "none", labels=True)


def test_unknown_loader_and_order_are_refused(raw, tmp_path):
    with pytest.raises(InputError, match="unknown loader 'digit'; did you mean digits"):
        build(raw, tmp_path / "out", loader="digit")
    with pytest.raises(InputError, match="unknown order 'random'"):
        build(raw, tmp_path / "out", order="random")


def test_foreign_output_folder_is_refused_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "mine").write_text("x")
    monkeypatch.setattr("mgg.graph.generate.generators", lambda: {"planted": Generator("planted", None, 0)})
    with pytest.raises(InputError, match="not an output of this command"):
        generate("planted", tmp_path)
