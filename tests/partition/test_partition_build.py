import sys

import numpy as np
import pytest
from support.graphs import random_csr
from support.records import alter, changed

from mgg import partition
from mgg.errors import InputError
from mgg.graph.store import write_graph


@pytest.fixture
def graph(tmp_path):
    write_graph(tmp_path / "graph", random_csr(200, 1500), name="test", source={})
    return tmp_path / "graph"


@pytest.mark.parametrize("scheme", partition.schemes())
def test_partition_round_trips(graph, tmp_path, scheme):
    made = partition.build(graph, tmp_path / "p", pes=3, scheme=scheme, workgroup=2, dim=8)
    assert partition.load(tmp_path / "p") == made
    assert made.quality.dim == 8 and len(made.bounds) == 4
    order = partition.load_order(tmp_path / "p", made)
    assert (order is not None) == (scheme == "metis")
    names = {path.name for path in (tmp_path / "p").iterdir()}
    assert names == {"partition.json"} | ({"order.npy"} if scheme == "metis" else set())


def test_partition_without_order_replaces_one_with_order(graph, tmp_path):
    for scheme in ("metis", "equal_nodes"):
        partition.build(graph, tmp_path / "p", pes=3, scheme=scheme, workgroup=2, dim=8)
    assert [path.name for path in (tmp_path / "p").iterdir()] == ["partition.json"]


def test_unknown_scheme_names_the_nearest(graph, tmp_path):
    with pytest.raises(InputError, match="edge_balanced"):
        partition.build(graph, tmp_path / "p", pes=3, scheme="edge_balance", workgroup=2, dim=8)
    assert not (tmp_path / "p").exists()


def test_unwritable_folder_is_refused_first(graph, monkeypatch):
    module = sys.modules["mgg.partition.build"]  # the package's attribute is its function
    monkeypatch.setattr(module, "measure", lambda *given, **options: pytest.fail("it has cut the graph"))
    with pytest.raises(InputError, match=r"^/proc/.*/p: cannot be written"):
        partition.build(graph, "/proc/self/p", pes=3, scheme="equal_nodes", workgroup=2, dim=8)


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values.update(bounds=[0, 5, 200]),
        lambda values: values.update(bounds=[0, 150, 100, 200]),
        lambda values: values.update(bounds=[0, 50, 100, 199]),
        lambda values: values.update(surprise=1),
        lambda values: values.pop("graph_hash"),
        lambda values: values.update(schema_version=99),
        lambda values: values.update(order="0"),
        lambda values: values["quality"].pop("vi_cola"),
        lambda values: values["quality"]["arcs_per_pe"].pop(),
        lambda values: values["quality"]["halo_rows_per_pair"].pop(),
        lambda values: values["quality"]["halo_rows_per_pair"][1].pop(),
        lambda values: values["quality"]["arcs_per_workgroup"].pop(),
        lambda values: values["quality"].update(edge_cut=-1),
    ],
)
def test_altered_partition_is_named(graph, tmp_path, change):
    partition.build(graph, tmp_path / "p", pes=3, scheme="equal_nodes", workgroup=2, dim=8)
    file = tmp_path / "p" / "partition.json"
    file.write_text(changed(file.read_text(), change))
    with pytest.raises(InputError, match=r"partition\.json"):
        partition.load(tmp_path / "p")


def altered_order(graph, tmp_path, change):
    """A METIS partition whose order.npy ``change`` has altered, with a hash that fits."""
    import hashlib

    partition.build(graph, tmp_path / "p", pes=3, scheme="metis", workgroup=2, dim=8)
    file = tmp_path / "p" / "order.npy"
    np.save(file, change(np.load(file)))
    record = tmp_path / "p" / "partition.json"
    alter(record, order=hashlib.sha256(file.read_bytes()).hexdigest())
    return partition.load(tmp_path / "p")


def negative(order):
    """The last place, counted from the end."""
    return np.where(order == len(order) - 1, -1, order).astype(order.dtype)


def swapped(order):
    """Two nodes of one PE change places."""
    at = np.argsort(order)
    order[at[0]], order[at[1]] = order[at[1]], order[at[0]]
    return order


@pytest.mark.parametrize(
    "change",
    [
        lambda order: order[:-1],
        lambda order: order + 1,
        lambda order: order - 1,
        negative,
        np.zeros_like,
        lambda order: order.astype(float),
        lambda order: order[:, None],
        swapped,
    ],
)
def test_invalid_order_is_named(graph, tmp_path, change):
    record = altered_order(graph, tmp_path, change)
    with pytest.raises(InputError, match=r"order\.npy: not a permutation of 200 nodes"):
        partition.load_order(tmp_path / "p", record)


@pytest.mark.parametrize("harm", ["flip", "truncate", "remove"])
def test_damaged_order_is_named(graph, tmp_path, harm):
    record = partition.build(graph, tmp_path / "p", pes=3, scheme="metis", workgroup=2, dim=8)
    file = tmp_path / "p" / "order.npy"
    data = bytearray(file.read_bytes())
    if harm == "remove":
        file.unlink()
    else:
        data[-4] ^= 1
        file.write_bytes(data if harm == "flip" else data[:50])
    with pytest.raises(InputError, match=r"order\.npy: .*: run mgg partition again$"):
        partition.load_order(tmp_path / "p", record)
