import json
import shutil
import socket

import numpy as np
import pytest
import yaml
from support.graphs import make_layout, random_csr

from mgg import layout, partition
from mgg.errors import InputError, MachineError
from mgg.graph.store import Graph, write_graph


@pytest.fixture
def made(tmp_path):
    rng = np.random.default_rng(0)
    return make_layout(
        tmp_path,
        random_csr(120, 900, weighted=True),
        3,
        scheme="edge_balanced",
        features=rng.random((120, 5)).astype(np.float32),
        labels=rng.integers(0, 4, 120).astype(np.int32),
        splits=rng.integers(0, 4, 120).astype(np.uint8),
    )


def test_node_data_and_counts_follow_the_ranges(made):
    graph = Graph.open(made.parent / "graph")
    manifest = layout.read_manifest(made)
    assert manifest.graph_hash == graph.hash and manifest.arcs == graph.manifest.arcs
    for pe in range(3):
        part = layout.load(made, pe)
        assert np.array_equal(part.features, graph.features(part.lo, part.hi))
        assert np.array_equal(part.labels, graph.labels(part.lo, part.hi))
        assert np.array_equal(part.splits, graph.splits(part.lo, part.hi))
        assert np.array_equal(part.node_ids, np.arange(part.lo, part.hi))
        for direction in ("forward", "transpose"):
            product = part.product(direction)
            assert manifest.direction(direction).halo_rows[pe] == product.halo
            assert manifest.direction(direction).remote_arcs[pe] == product.remote.arcs
            assert manifest.direction(direction).arcs[pe] == product.remote.arcs + product.local.arcs


def test_a_layout_is_the_same_bytes_every_time(made, tmp_path):
    again = tmp_path / "again"
    layout.build(tmp_path / "graph", tmp_path / "partition-3", again)
    files = sorted(path.relative_to(made) for path in made.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(again) for path in again.rglob("*") if path.is_file())
    for file in files:
        assert (made / file).read_bytes() == (again / file).read_bytes(), file


def test_arrays_start_at_64_bytes_and_need_no_pickle(made):
    for path in made.rglob("*.npy"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        assert (path.stat().st_size - array.nbytes) % 64 == 0, path


@pytest.mark.parametrize("harm", ["flip", "truncate", "remove"])
def test_a_harmed_array_is_named(made, harm):
    path = made / "pe-0001" / "forward.remote.indices.npy"
    data = bytearray(path.read_bytes())
    if harm == "flip":
        data[-3] ^= 1
        path.write_bytes(data)
    elif harm == "truncate":
        path.write_bytes(data[:-8])
    else:
        path.unlink()
    layout.load(made, 0)
    with pytest.raises(InputError, match=r"pe-0001/forward\.remote\.indices\.npy"):
        layout.load(made, 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values.update(pes=4),
        lambda values: values.update(surprise=1),
        lambda values: values.pop("bounds"),
        lambda values: values.update(schema_version=2),
        lambda values: values["files"].pop("pe-0000/forward.local.indptr.npy"),
    ],
)
def test_an_altered_manifest_is_named(made, change):
    path = made / "manifest.yaml"
    values = yaml.safe_load(path.read_text())
    change(values)
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(InputError, match=r"manifest\.yaml"):
        layout.load(made, 0)


def test_a_partition_of_another_graph_is_refused_and_nothing_is_written(made, tmp_path):
    write_graph(tmp_path / "other", random_csr(120, 900, seed=5), name="other", source={})
    with pytest.raises(InputError, match="another graph"):
        layout.build(tmp_path / "other", tmp_path / "partition-3", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_failing_build_leaves_the_old_layout(made, tmp_path, monkeypatch):
    from mgg.layout import store

    before = {path: path.read_bytes() for path in made.rglob("*.npy")}

    def broken(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "save_node_data", broken)
    with pytest.raises(MachineError, match="No space"):
        layout.build(tmp_path / "graph", tmp_path / "partition-3", made)
    assert {path: path.read_bytes() for path in made.rglob("*.npy")} == before
    assert not list(tmp_path.glob(".layout*"))


def test_there_is_no_pe_beyond_the_last(made):
    with pytest.raises(InputError, match="no PE 3"):
        layout.load(made, 3)


def test_what_a_killed_process_left_is_swept(made, tmp_path):
    left = tmp_path / f".layout-3.{socket.gethostname()}.999999999.part"
    shutil.copytree(made, left)
    layout.build(tmp_path / "graph", tmp_path / "partition-3", made)
    assert not left.exists()
    assert (
        json.loads((tmp_path / "partition-3" / "partition.json").read_text())["pes"]
        == partition.load(tmp_path / "partition-3").pes
    )
