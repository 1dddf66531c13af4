import hashlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from graph_helpers import arrays, files_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mgg.errors import InputError
from mgg.graph import manifest as manifests
from mgg.graph.csr import Csr, from_arcs
from mgg.graph.store import Graph, shards, write_graph
from mgg.graph.store.parts import PartWriter, SortedRows

EVERYTHING = "offsets", "adjacency", "weights", "features", "labels", "splits"


def same(a, b):
    return np.array_equal(a, b) and a.dtype == b.dtype


def assert_reads(graph: Graph, given: dict, lo: int, hi: int) -> None:
    csr, block = given["csr"], graph.rows(lo, hi)
    arcs = slice(csr.indptr[lo], csr.indptr[hi])
    assert same(block.indptr, csr.indptr[lo : hi + 1] - csr.indptr[lo])
    assert same(block.indices, csr.indices[arcs])
    assert same(block.weights, csr.weights[arcs])
    assert block.columns == csr.columns
    assert same(graph.features(lo, hi), given["features"][lo:hi])
    assert same(graph.labels(lo, hi), given["labels"][lo:hi].astype(np.int32))
    assert same(graph.splits(lo, hi), given["splits"][lo:hi].astype(np.uint8))


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 60), st.integers(0, 300), st.integers(0, 2**16), st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_any_row_range_round_trips(tmp_path, small_parts, nodes, arcs, seed, cut):
    given = arrays(nodes, arcs, seed)
    write_graph(tmp_path / "graph", **given)
    graph = Graph.open(tmp_path / "graph")
    lo, hi = sorted(int(share * nodes) for share in cut)
    assert_reads(graph, given, lo, hi)
    assert_reads(graph, given, 0, nodes)
    assert same(graph.offsets(), given["csr"].indptr)


def test_manifest_describes_the_folder(written):
    manifest = Graph.open(written).manifest
    assert (manifest.nodes, manifest.features, manifest.classes, manifest.weighted) == (40, 5, 4, True)
    assert (manifest.index_dtype, manifest.order, manifest.symmetric, manifest.name) == (
        "int32",
        "natural",
        False,
        "random",
    )
    for kind in EVERYTHING:
        assert len(manifest.parts(kind)) > 3, kind
    found = {name for name in files_of(written) if name != "manifest.yaml"}
    assert found == set(manifest.shards)
    for name, shard in manifest.shards.items():
        data = (written / name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (shard.bytes, shard.sha256)


def test_weights_features_and_labels_are_optional(tmp_path):
    csr = from_arcs(np.array([0, 1]), np.array([1, 0]), n=2)
    manifest = write_graph(tmp_path / "graph", csr, name="bare", source={})
    graph = Graph.open(tmp_path / "graph")
    assert manifest.symmetric
    assert graph.rows(0, 2).weights is graph.features(0, 2) is graph.labels(0, 2) is graph.splits(0, 2) is None


def test_wide_ids_round_trip(tmp_path, monkeypatch):
    monkeypatch.setattr("mgg.graph.csr.NARROW_NODES", 3)
    csr = from_arcs(np.array([0, 2]), np.array([1, 1]), n=3)
    assert write_graph(tmp_path / "graph", csr, name="wide", source={}).index_dtype == "int64"
    assert same(Graph.open(tmp_path / "graph").rows(0, 3).indices, np.array([1, 1], np.int64))


def cuts(folder, degrees: list[int], step: int) -> list[tuple[int, int]]:
    """Row ranges of the parts that a PartWriter makes of rows which it is given ``step`` at a time."""
    with ThreadPoolExecutor(1) as pool:
        writer = PartWriter(folder, 0, pool.submit, waiting=2)
        for lo in range(0, len(degrees), step):
            block = np.array(degrees[lo : lo + step])
            writer.add(SortedRows(block, {"adjacency": np.zeros(block.sum(), np.int32)}))
        parts = writer.finish().values()
    ends = [part.first + part.rows for part in parts]
    assert [part.arcs for part in parts] == [
        sum(degrees[part.first : end]) for part, end in zip(parts, ends, strict=True)
    ]
    return [(part.first, end) for part, end in zip(parts, ends, strict=True)]


@pytest.mark.parametrize("step", [1, 2, 3, 7])
def test_adjacency_parts_end_at_rows(monkeypatch, tmp_path, step):
    monkeypatch.setattr(shards, "ARCS_PER_PART", 10)
    assert cuts(tmp_path, [4, 4, 22, 0, 1, 9, 0], step) == [(0, 2), (2, 3), (3, 7)]
    monkeypatch.setattr(shards, "VERTICES_PER_PART", 2)
    assert cuts(tmp_path, [4, 4, 22, 0, 1, 9, 0], step) == [(0, 2), (2, 3), (3, 4), (4, 6), (6, 7)]


def test_rows_reads_only_the_parts_it_needs(written):
    graph = Graph.open(written)
    manifest = graph.manifest
    needed = {name for kind in ("offsets", "adjacency", "weights") for name, s in manifest.parts(kind) if s.first < 10}
    for name in manifest.shards.keys() - needed:
        (written / name).unlink()
    first = graph.rows(0, 10)
    assert same(first.indices, arrays()["csr"].indices[: first.arcs])
    with pytest.raises(InputError, match="No such file"):
        graph.rows(0, 40)


def test_range_outside_the_graph_is_a_programming_error(written):
    with pytest.raises(ValueError, match=r"rows 0\.\.41"):
        Graph.open(written).rows(0, 41)


def test_same_input_gives_the_same_bytes(tmp_path, small_parts):
    write_graph(tmp_path / "a", **arrays())
    write_graph(tmp_path / "b", **arrays())
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    other = arrays() | {"source": {"seed": 1}}
    write_graph(tmp_path / "c", **other)
    assert Graph.open(tmp_path / "a").hash != Graph.open(tmp_path / "c").hash


def test_files_have_the_documented_types(written):
    """docs/reference/format.md: one column of this name and physical type, no Arrow schema, one row group."""
    expected = {
        "offsets": ("offset", "INT64", {}),
        "adjacency": ("neighbor", "INT32", {}),
        "weights": ("weight", "FLOAT", {}),
        "features": ("features", "FIXED_LEN_BYTE_ARRAY", {b"mgg.dtype": b"float32", b"mgg.width": b"5"}),
        "labels": ("label", "INT32", {}),
        "splits": ("split", "INT32", {}),
    }
    for kind, (name, physical, metadata) in expected.items():
        file = pq.ParquetFile(written / kind / "part-00001.parquet")
        column = file.schema.column(0)
        assert (len(file.schema), column.name, column.physical_type) == (1, name, physical)
        assert file.num_row_groups == 1
        assert column.max_definition_level == 0, "required"
        assert file.metadata.metadata == metadata
    raw = (written / "manifest.yaml").read_bytes()
    body, digest = raw[:-71], raw[-71:]
    assert digest == b"hash: " + hashlib.sha256(body).hexdigest().encode() + b"\n"
    assert Graph.open(written).hash == yaml.safe_load(raw)["hash"]


def read_all(folder):
    graph = Graph.open(folder)
    n = graph.manifest.nodes
    csr = graph.rows(0, n)
    values = csr.indptr, csr.indices, csr.weights, graph.features(0, n), graph.labels(0, n), graph.splits(0, n)
    return [value.tobytes() for value in values]


def test_part_altered_after_verification_is_detected(written):
    graph = Graph.open(written)
    graph.rows(0, 40)
    path = written / "adjacency" / "part-00001.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"adjacency/part-00001\.parquet: altered"):
        graph.rows(0, 40)


def rehashed(folder, change):
    """Apply ``change`` to the manifest's values and make its hash agree again, as a wrong writer would."""
    path = folder / "manifest.yaml"
    values = yaml.safe_load(path.read_text())
    del values["hash"]
    change(values)
    body = yaml.safe_dump(values, sort_keys=False).encode()
    path.write_bytes(body + f"hash: {hashlib.sha256(body).hexdigest()}\n".encode())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.update(nodes=-1), "nodes: input should be greater than or equal to 1"),
        (lambda v: v.update(nodes=41), "40 vertices"),
        (lambda v: v.update(arcs=v["arcs"] + 1), "adjacency parts hold|weights parts hold"),
        (lambda v: v.update(schema_version=2), "schema_version"),
        (lambda v: v.update(index_dtype="int16"), "index_dtype"),
        (lambda v: v.update(color="red"), "color: unknown field"),
        (lambda v: v.pop("name"), "name"),
        (lambda v: v.update(weighted=False), "weights parts do not belong here"),
        (lambda v: v["shards"].pop("labels/part-00000.parquet"), "labels/part-00001.parquet begins at vertex 7"),
        (lambda v: v["shards"].update({"../secret": dict(v["shards"]["labels/part-00000.parquet"])}), "shards"),
        (lambda v: v["shards"]["splits/part-00002.parquet"].update(rows=6), "splits/part-00003.parquet begins"),
        (lambda v: v["shards"]["splits/part-00002.parquet"].update(arcs=6), "arcs belong to adjacency"),
    ],
)
def test_wrong_manifest_field_is_named(written, change, message):
    rehashed(written, change)
    with pytest.raises(InputError, match=message) as caught:
        Graph.open(written)
    assert str(written / "manifest.yaml") in str(caught.value)


@pytest.mark.parametrize("text", ["", "hash: 0\n", "just text\n", "- a\n- list\n", "{unclosed\n", "\x00\n"])
def test_unreadable_manifest_is_refused(written, text):
    body = text.encode()
    (written / "manifest.yaml").write_bytes(body + f"hash: {hashlib.sha256(body).hexdigest()}\n".encode())
    with pytest.raises(InputError, match=r"manifest\.yaml"):
        Graph.open(written)


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        ("labels", np.arange(7, dtype=np.float64), r"labels/part-00001\.parquet: not a part of labels"),
        ("labels", np.arange(7), r"labels/part-00001\.parquet: not a part of labels"),
        ("labels", np.arange(7, dtype=np.uint8), r"labels/part-00001\.parquet: not a part of labels"),
        ("offsets", np.arange(9, 1, -1), "offsets"),
        ("features", np.zeros((3, 4), np.float32), r"features/part-00001\.parquet: not a part of features.*width 5"),
        ("adjacency", None, r"adjacency/part-00001\.parquet: arc 0: node id 40 is outside"),
    ],
)
def test_invalid_stored_values_are_refused(written, kind, values, message):
    shard = Graph.open(written).manifest.shards[f"{kind}/part-00001.parquet"]
    values = np.full(shard.arcs, 40, np.int32) if values is None else values
    name, made = shards.write_part(written, kind, 1, values, first=shard.first, rows=shard.rows)
    rehashed(written, lambda v: v["shards"].update({name: made.model_dump(exclude_none=True)}))
    with pytest.raises(InputError, match=message):
        read_all(written)


def bad(field, index, value):
    def change(given):
        given[field] = given[field].astype(np.float64) if field == "features" else given[field].copy()
        given[field][index] = value

    return change


def bad_csr(**changes):
    def change(given):
        csr = given["csr"]
        given["csr"] = Csr(**{f: getattr(csr, f) for f in ("indptr", "indices", "weights", "columns")} | changes)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (bad("features", (17, 3), np.nan), "random: feature of node 17, column 3 is nan"),
        (bad("features", (39, 0), -np.inf), "feature of node 39, column 0 is -inf"),
        (bad("features", (1, 1), 1e300), r"feature of node 1, column 1 is 1e\+300"),
        (bad("labels", 5, 4), "label of node 5 is 4; classes are 0..3"),
        (bad("labels", 5, -2), "label of node 5 is -2"),
        (bad("splits", 6, 4), "split of node 6 is 4"),
        (lambda g: g.update(features=g["features"][:-1]), "features have shape"),
        (lambda g: g.update(labels=g["labels"][:-1]), "labels must be 40 integers"),
        (lambda g: g.update(labels=g["labels"] * 1.0), "labels must be 40 integers"),
        (lambda g: g.update(labels=np.full(40, -1), classes=None), "labels without a class"),
        (lambda g: g.update(splits=g["splits"][:-1]), "splits must be 40 integers"),
        (bad_csr(indices=np.zeros(arrays()["csr"].arcs, np.int32)), "do not ascend or repeat"),
        (bad_csr(indices=np.full(arrays()["csr"].arcs, 40, np.int32)), "node id 40 is outside"),
        (bad_csr(weights=np.full(arrays()["csr"].arcs, np.nan, np.float32)), "weight of arc 0 is nan"),
        (bad_csr(columns=41), "must be square"),
        (bad_csr(indptr=np.arange(41)), "row offsets"),
    ],
)
def test_bad_values_are_named_and_nothing_is_written(tmp_path, change, message):
    given = arrays()
    change(given)
    with pytest.raises(InputError, match=message):
        write_graph(tmp_path / "graph", **given)
    assert list(tmp_path.iterdir()) == []


def test_number_of_classes_defaults_to_the_largest_label(tmp_path):
    given = arrays() | {"classes": None}
    given["labels"] = np.arange(40) % 3
    assert write_graph(tmp_path / "graph", **given).classes == 3


def test_manifest_hashes_are_yaml_strings(tmp_path):
    manifest = manifests.Manifest.model_construct(shards={}, source={"sha256": "1e" + "0" * 62})
    manifests.save(tmp_path, manifest)
    assert f'sha256: "1e{"0" * 62}"' in (tmp_path / "manifest.yaml").read_text()


def test_exploding_yaml_aliases_are_refused(written):
    body = (written / "manifest.yaml").read_bytes().rpartition(b"hash: ")[0]
    laughs = b"x:\n  a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]\n"
    laughs += b"".join(b"  a%d: &a%d [%s]\n" % (k, k, b", ".join([b"*a%d" % (k - 1)] * 9)) for k in range(1, 12))
    body += laughs
    (written / "manifest.yaml").write_bytes(body + f"hash: {hashlib.sha256(body).hexdigest()}\n".encode())
    with pytest.raises(InputError, match="YAML aliases"):
        Graph.open(written)
