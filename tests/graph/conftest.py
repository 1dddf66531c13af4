"""Small graphs, the mirror of real data, and a server to download from."""

from __future__ import annotations

import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
from download_site import Site
from graph_helpers import arrays

from mgg.graph.io import download as module
from mgg.graph.store import shards, write_graph

#: Read once: some tests unset the variable.
MIRROR = os.environ.get("MGG_DATA_DIR")


@pytest.fixture(scope="module", autouse=True)
def unflushed() -> Iterator[None]:
    """Flush nothing to the disk, which takes most of the time that small graphs take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def mirror() -> Path:
    """The folder $MGG_DATA_DIR."""
    if not MIRROR:
        pytest.skip("MGG_DATA_DIR is not set: no real data here")
    return Path(MIRROR)


def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut graphs into many parts: 7 vertices, 20 arcs, 3 feature rows (of 5 columns) each."""
    monkeypatch.setattr(shards, "VERTICES_PER_PART", 7)
    monkeypatch.setattr(shards, "ARCS_PER_PART", 20)
    monkeypatch.setattr(shards, "FEATURE_BYTES_PER_PART", 60)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut graphs into many parts."""
    cut_small(monkeypatch)


@pytest.fixture(scope="session")
def many_parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``written`` copies."""
    folder = tmp_path_factory.mktemp("written") / "graph"
    with pytest.MonkeyPatch.context() as patch:
        cut_small(patch)
        write_graph(folder, **arrays())
    return folder


@pytest.fixture
def written(tmp_path: Path, many_parts: Path, small_parts: None) -> Path:
    """A graph folder of many parts."""
    return shutil.copytree(many_parts, tmp_path / "graph")


@pytest.fixture
def site(monkeypatch):
    """A running server; retries do not wait."""
    site = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            site.answer(self)

        def log_message(self, *args):
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, request, address):
            pass  # clients that hang up are part of the tests

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}/set/file.bin"
    monkeypatch.setenv("MGG_ALLOW_HTTP", "1")
    monkeypatch.setattr(module, "PATIENCE", urllib3.Retry(total=3, backoff_factor=0))
    yield site
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "file.bin"


@pytest.fixture
def write(tmp_path):
    """Writes text or bytes to a file of the test's folder; its path."""

    def write(content, name="edges.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
