import hashlib
import http.server
import logging
import threading
import tracemalloc
import zipfile
from contextlib import contextmanager
from functools import partial

import pytest
import urllib3
import yaml
from graph_helpers import TinyPlanetoid, files_of

from mgg.errors import InputError, MachineError
from mgg.graph import datasets
from mgg.graph.datasets import Dataset, RawFile
from mgg.graph.io import download
from mgg.graph.retrieve import retrieve
from mgg.graph.source_description import check_sha256, describe, description
from mgg.graph.sources import planetoid


@pytest.fixture(autouse=True)
def apart(tmp_path, monkeypatch):
    """Keep the user's mirror and cache out of these tests, and do not wait for retries."""
    monkeypatch.delenv("MGG_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("MGG_ALLOW_HTTP", "1")
    monkeypatch.setattr(download, "PATIENCE", urllib3.Retry(total=0, backoff_factor=0))
    monkeypatch.setattr(planetoid, "VALIDATION", 3)


@contextmanager
def served(folder):
    """A web server on this host for the files of a folder; yields its address and the paths asked for."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *args):
            logging.getLogger(__name__).debug(args)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data set ``tiny`` served over HTTP; yields the folder that is served and the paths asked for."""
    raw = TinyPlanetoid().write(tmp_path / "served")
    with served(raw) as (address, asked):
        files = {
            path.name: RawFile(url=f"{address}/{path.name}", sha256=hashlib.sha256(path.read_bytes()).hexdigest())
            for path in sorted(raw.iterdir())
        }
        counts = {"nodes": 11, "arcs": 10, "features": 4, "classes": 3}
        made = Dataset(title="tiny", loader="planetoid", licence="none", mirror="a_mirror", **counts, files=files)
        monkeypatch.setattr(datasets, "catalog", lambda: {"tiny": made})
        monkeypatch.setattr("mgg.graph.source.catalog", lambda: {"tiny": made})
        yield raw, asked


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """A function that makes the data set ``packed`` of a text file and a zip archive; returns their folder."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "labels.txt").write_text("0\n")
    with zipfile.ZipFile(folder / "set.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("set/raw/edge.csv", "0,1\n")
        archive.writestr("set/README", "text")

    def make(**fields):
        options = {"unpack": True, **fields}
        files = {
            "labels.txt": RawFile(url=(folder / "labels.txt").as_uri()),
            "set.zip": RawFile(url=(folder / "set.zip").as_uri(), **options),
        }
        made = Dataset(title="t", loader="planetoid", licence="n", mirror="a_mirror", nodes=1, files=files)
        monkeypatch.setattr(datasets, "catalog", lambda: {"packed": made})
        return folder

    return make


def raw_files(folder):
    return {name: data for name, data in files_of(folder).items() if name != "source.yaml"}


def test_second_retrieval_uses_the_cache(tiny, tmp_path):
    raw, asked = tiny
    retrieve("tiny", tmp_path / "out", cache=tmp_path / "cache")
    assert raw_files(tmp_path / "out") == files_of(raw)
    assert yaml.safe_load((tmp_path / "out/source.yaml").read_text())["loader"] == "planetoid"
    assert len(asked) == 8
    retrieve("tiny", tmp_path / "again", cache=tmp_path / "cache")
    assert len(asked) == 8
    assert files_of(tmp_path / "again") == files_of(tmp_path / "out")


def test_default_cache_follows_xdg(tiny, tmp_path):
    retrieve("tiny", tmp_path / "out")
    assert raw_files(tmp_path / "out") == files_of(tmp_path / "xdg" / "mgg" / "tiny")


def test_altered_cache_is_downloaded_again(tiny, tmp_path):
    raw, _ = tiny
    retrieve("tiny", tmp_path / "out", cache=tmp_path / "cache")
    (tmp_path / "cache/tiny/ind.tiny.graph").write_bytes(b"altered")
    retrieve("tiny", tmp_path / "again", cache=tmp_path / "cache")
    assert raw_files(tmp_path / "again") == files_of(raw)


def test_complete_folder_needs_neither_cache_nor_network(tiny, tmp_path, caplog):
    raw, asked = tiny
    retrieve("tiny", tmp_path / "out", cache=tmp_path / "cache")
    before, inode = files_of(tmp_path / "out"), (tmp_path / "out").stat().st_ino
    assert caplog.messages == []
    for path in raw.iterdir():
        path.unlink()
    retrieve("tiny", tmp_path / "out", cache=tmp_path / "empty")
    assert len(asked) == 8
    assert (files_of(tmp_path / "out"), (tmp_path / "out").stat().st_ino) == (before, inode)
    assert caplog.messages == [
        f"{tmp_path / 'out'}: has the files of tiny already, as they were retrieved; nothing was retrieved"
    ]


def alter(out):
    (out / "ind.tiny.tx").write_bytes(b"altered")


def lose(out):
    (out / "ind.tiny.tx").unlink()


def nest(out):
    (out / "ind.tiny.tx").unlink()
    (out / "ind.tiny.tx").mkdir()
    (out / "ind.tiny.tx" / "mine").write_text("x")


def rename(out):
    describe(out, description(out).model_copy(update={"name": "other"}))


def restate(out):
    """As if the catalogue had another file since: the folder agrees with itself, but not with the catalogue."""
    (out / "ind.tiny.tx").write_bytes(b"older")
    made = description(out)
    describe(out, made.model_copy(update={"files": made.files | {"ind.tiny.tx": hashlib.sha256(b"older").hexdigest()}}))


def break_description(out):
    (out / "source.yaml").write_text("files: [")


@pytest.mark.parametrize("change", [alter, lose, nest, rename, restate, break_description])
def test_incomplete_folder_is_replaced(tiny, tmp_path, caplog, change):
    retrieve("tiny", tmp_path / "out", cache=tmp_path / "cache")
    before = files_of(tmp_path / "out")
    change(tmp_path / "out")
    assert files_of(tmp_path / "out") != before
    retrieve("tiny", tmp_path / "out", cache=tmp_path / "cache")
    assert files_of(tmp_path / "out") == before
    assert caplog.messages == []


@pytest.mark.parametrize("members", [None, {"set/README": "readme"}])
def test_unpacked_archive_is_recognized_by_its_members(tmp_path, packed, monkeypatch, members):
    packed(members=members)
    retrieve("packed", tmp_path / "out")
    (described,) = datasets.catalog().values()
    gone = {file: raw.model_copy(update={"url": "http://127.0.0.1:9/gone"}) for file, raw in described.files.items()}
    monkeypatch.setattr(datasets, "catalog", lambda: {"packed": described.model_copy(update={"files": gone})})
    before = files_of(tmp_path / "out")
    retrieve("packed", tmp_path / "out")
    assert files_of(tmp_path / "out") == before
    others = {"set.zip": gone["set.zip"].model_copy(update={"members": {"set/raw/edge.csv": "edges.csv"}})}
    monkeypatch.setattr(datasets, "catalog", lambda: {"packed": described.model_copy(update={"files": gone | others})})
    with pytest.raises(MachineError, match="cannot be downloaded"):
        retrieve("packed", tmp_path / "out")


def test_local_files_are_copied_again(packed, tmp_path):
    """They may be others since, where nothing states their hash."""
    folder = packed()
    retrieve("packed", tmp_path / "out")
    (folder / "labels.txt").write_text("1\n")
    retrieve("packed", tmp_path / "out")
    assert (tmp_path / "out" / "labels.txt").read_text() == "1\n"


@pytest.mark.parametrize("folder", ["a_mirror", "."])
def test_mirror_precedes_the_network(tiny, tmp_path, monkeypatch, folder):
    _, asked = tiny
    TinyPlanetoid().write(tmp_path / "mirror" / folder)
    monkeypatch.setenv("MGG_DATA_DIR", str(tmp_path / "mirror"))
    retrieve("tiny", tmp_path / "out")
    assert asked == []
    assert not (tmp_path / "xdg").exists()


def test_altered_mirror_is_refused(tiny, tmp_path, monkeypatch):
    path = TinyPlanetoid().write(tmp_path / "mirror" / "a_mirror") / "ind.tiny.tx"
    path.write_bytes(path.read_bytes()[:-1])
    monkeypatch.setenv("MGG_DATA_DIR", str(tmp_path / "mirror"))
    with pytest.raises(InputError, match=r"a_mirror/ind\.tiny\.tx: truncated or altered"):
        retrieve("tiny", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_mirror_is_named(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("MGG_DATA_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"MGG_DATA_DIR=.*nowhere: no such folder"):
        retrieve("tiny", tmp_path / "out")


def test_network_failure_is_one_line(tiny, tmp_path):
    raw, _ = tiny
    (raw / "ind.tiny.y").unlink()
    with pytest.raises(MachineError, match=r"ind\.tiny\.y: cannot be downloaded \(HTTP 404 .*MGG_DATA_DIR") as caught:
        retrieve("tiny", tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [("kora", "unknown data set 'kora'; did you mean cora"), ("planted", "mgg generate planted"), ("", "unknown data")],
)
def test_unknown_data_sets_are_refused(tmp_path, name, message):
    with pytest.raises(InputError, match=message):
        retrieve(name, tmp_path / "out")


def test_archives_are_unpacked_and_every_file_is_listed(packed, tmp_path):
    packed()
    retrieve("packed", tmp_path / "out")
    files = raw_files(tmp_path / "out")
    assert files == {"labels.txt": b"0\n", "set/README": b"text", "set/raw/edge.csv": b"0,1\n"}
    listed = yaml.safe_load((tmp_path / "out/source.yaml").read_text())["files"]
    assert listed == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    retrieve("packed", tmp_path / "out")  # over itself
    assert raw_files(tmp_path / "out") == files


def test_raw_folder_with_other_files_is_kept(packed, tmp_path):
    packed()
    retrieve("packed", tmp_path / "out")
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(InputError, match="not an output of this command"):
        retrieve("packed", tmp_path / "out")
    assert (tmp_path / "out" / "mine").read_text() == "x"


def test_archive_size_limit_is_checked(packed, tmp_path):
    packed(unpack=7)
    with pytest.raises(InputError, match=r"set\.zip: set/README: the archive unpacks to more than 7 bytes"):
        retrieve("packed", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    packed(unpack=8)
    retrieve("packed", tmp_path / "out")


@pytest.mark.parametrize("wrong", [{"sha256": "0" * 64}, {"bytes": 5}])
def test_archive_is_verified_before_unpacking(packed, tmp_path, wrong):
    packed(**wrong)
    with pytest.raises(InputError, match=r"set\.zip: truncated or altered"):
        retrieve("packed", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_damaged_archive_without_hash_is_refused(packed, tmp_path):
    folder = packed()
    (folder / "set.zip").write_bytes((folder / "set.zip").read_bytes()[:-9])
    with pytest.raises(InputError, match=r"set\.zip: .*cut off or altered.*; remove it to have it downloaded again"):
        retrieve("packed", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_archive_must_not_contain_a_source_file(packed, tmp_path):
    packed(members={"set/README": "source.yaml"})
    with pytest.raises(InputError, match="no data set may have a file of this name"):
        retrieve("packed", tmp_path / "out")


def test_mirror_files_replace_an_archive(packed, tmp_path, monkeypatch):
    packed(stand_in={"edge.csv.gz": hashlib.sha256(b"packed").hexdigest()})
    (tmp_path / "mirror" / "a_mirror").mkdir(parents=True)
    monkeypatch.setenv("MGG_DATA_DIR", str(tmp_path / "mirror"))
    retrieve("packed", tmp_path / "without")
    assert "set/README" in raw_files(tmp_path / "without")
    (tmp_path / "mirror" / "a_mirror" / "edge.csv.gz").write_bytes(b"packed")
    retrieve("packed", tmp_path / "with")
    assert raw_files(tmp_path / "with") == {"labels.txt": b"0\n", "edge.csv.gz": b"packed"}
    (tmp_path / "mirror" / "a_mirror" / "edge.csv.gz").write_bytes(b"altered")
    with pytest.raises(InputError, match=r"edge\.csv\.gz: truncated or altered"):
        retrieve("packed", tmp_path / "altered")


def test_file_url_without_a_file_is_refused(packed, tmp_path):
    (packed() / "labels.txt").unlink()
    with pytest.raises(InputError, match=r"labels\.txt: No such file"):
        retrieve("packed", tmp_path / "out")


def test_files_are_never_held_in_memory_whole(packed, tmp_path):
    folder = packed()
    with (folder / "labels.txt").open("wb") as file:
        file.truncate(2**26)
    with zipfile.ZipFile(folder / "set.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(2**26))
    tracemalloc.start()
    try:
        retrieve("packed", tmp_path / "out")
        check_sha256(tmp_path / "out" / "zeros", hashlib.sha256(bytes(2**20)).hexdigest())
    except InputError as error:
        assert "zeros: truncated or altered" in str(error)  # as it has to be: the hash above is that of fewer zeros
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert (tmp_path / "out" / "zeros").stat().st_size == 2**26
    assert peak < 2**24
