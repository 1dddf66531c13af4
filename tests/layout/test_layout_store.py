import shutil

import numpy as np
import pytest
from support.graphs import build_layout, random_csr, typed_csr

from mgg import hashed, layout
from mgg.errors import InputError, MachineError
from mgg.graph.budget import resident
from mgg.graph.external import Memory
from mgg.graph.store import write_graph


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """What ``made`` copies, beside its graph and partition."""
    rng = np.random.default_rng(0)
    return build_layout(
        tmp_path_factory.mktemp("built"),
        random_csr(120, 900, weighted=True),
        3,
        scheme="edge_balanced",
        features=rng.random((120, 5)).astype(np.float32),
        labels=rng.integers(0, 4, 120).astype(np.int32),
        splits=rng.integers(0, 4, 120).astype(np.uint8),
    )


@pytest.fixture
def made(built, tmp_path):
    shutil.copytree(built.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / built.name


@pytest.mark.parametrize("scheme", ["equal_nodes", "metis"])
def test_bytes_do_not_depend_on_memory_or_threads(tmp_path, scheme):
    folder = build_layout(tmp_path, typed_csr(500, 20_000, 3), 3, scheme=scheme)
    again = Memory(resident() + 2**30, workers=3)
    assert layout.build(tmp_path / "graph", tmp_path / "partition-3", tmp_path / "again", again).files
    assert (folder / "layout.yaml").read_bytes() == (tmp_path / "again" / "layout.yaml").read_bytes()
    assert not list((tmp_path / "again").glob(".*"))


def test_too_little_memory_is_refused_beforehand(made, tmp_path):
    with pytest.raises(InputError, match=r"^memory of 100 MiB is too small: at least \d+ MiB are needed$"):
        layout.build(tmp_path / "graph", tmp_path / "partition-3", tmp_path / "out", Memory(100 * 2**20))
    assert not (tmp_path / "out").exists()


def test_arrays_start_at_64_bytes_and_need_no_pickle(made):
    for path in made.rglob("*.npy"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        assert (path.stat().st_size - array.nbytes) % 64 == 0, path


@pytest.mark.parametrize("harm", ["flip", "truncate", "remove"])
def test_damaged_array_is_named(made, harm):
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


def test_altered_manifest_is_named(made):
    path = made / "layout.yaml"
    whole = path.read_text()
    for altered in (whole.replace("pes: 3", "pes: 2"), whole[:-100], whole.replace("- 0\n", "- 1\n", 1), ""):
        assert altered != whole
        path.write_text(altered)
        with pytest.raises(InputError, match=r"layout\.yaml: truncated or altered"):
            layout.load(made, 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda values: values.update(pes=4), "bounds"),
        (lambda values: values.update(bounds=[0, 50, 40, 120]), "bounds"),
        (lambda values: values.update(surprise=1), "surprise"),
        (lambda values: values.pop("bounds"), "bounds"),
        (lambda values: values.update(schema_version=99), "schema_version"),
        (lambda values: values["forward"]["halo_rows"].pop(), "halo rows"),
        (lambda values: values["files"].pop("pe-0000/forward.local.indptr.npy"), r"forward\.local\.indptr\.npy"),
        (lambda values: values["files"].pop("pe-0000/forward.local.weights.npy"), r"forward\.local\.weights\.npy"),
        (lambda values: values["files"].pop("pe-0000/features.npy"), r"pe-0000/features\.npy"),
        (lambda values: values.update(permuted=True), r"pe-0000/nodes\.npy is missing"),
        (lambda values: values.update(ids=True), r"pe-0000/ids\.npy is missing"),
        (lambda values: values.update(features=6), r"features\.npy: has shape"),
        (lambda values: values.update(bounds=[0, 1, 2, 120]), "has shape"),
    ],
)
def test_inconsistent_manifest_is_named(made, change, said):
    path = made / "layout.yaml"
    values, _ = hashed.load(path, "layout", "mgg layout")
    change(values)
    hashed.save(path, values)
    with pytest.raises(InputError, match=said):
        layout.load(made, 0)


def test_only_a_layout_is_replaced(made, tmp_path):
    for folder in ("graph", "partition-3"):
        before = sorted(path.name for path in (tmp_path / folder).iterdir())
        with pytest.raises(InputError, match="not an output of this command"):
            layout.build(tmp_path / "graph", tmp_path / "partition-3", tmp_path / folder)
        assert sorted(path.name for path in (tmp_path / folder).iterdir()) == before
    (made / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="not an output of this command"):
        layout.build(tmp_path / "graph", tmp_path / "partition-3", made)
    assert (made / "thesis.tex").exists()


def test_partition_of_another_graph_is_refused(made, tmp_path):
    write_graph(tmp_path / "other", random_csr(120, 900, seed=5), name="other", source={})
    with pytest.raises(InputError, match="another graph"):
        layout.build(tmp_path / "other", tmp_path / "partition-3", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_failed_build_leaves_the_old_layout(made, tmp_path, monkeypatch):
    from mgg.layout import store

    before = {path: path.read_bytes() for path in made.rglob("*.npy")}

    def broken(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.Growing, "end", broken)
    with pytest.raises(MachineError, match="No space"):
        layout.build(tmp_path / "graph", tmp_path / "partition-3", made)
    assert {path: path.read_bytes() for path in made.rglob("*.npy")} == before
    assert not list(tmp_path.glob(".layout*"))
