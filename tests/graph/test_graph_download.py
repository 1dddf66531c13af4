import gzip
import hashlib
import http.server
import io
import random
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests
import urllib3

from mgg.errors import InputError, MachineError
from mgg.graph import download as module
from mgg.graph import progress
from mgg.graph.download import fetch, fits

DATA = random.Random(0).randbytes(300_000)
CHANGED = random.Random(1).randbytes(300_000)
SHA = hashlib.sha256(DATA).hexdigest()


@dataclass
class Site:
    """A server's one file, how it answers each request in turn (``script``, then ``ranged``), and what was asked."""

    data: bytes = DATA
    tag: str | None = '"v1"'
    modified: str | None = None
    script: list = field(default_factory=list)
    asked: list = field(default_factory=list)
    sent: int = 0
    url: str = ""

    def answer(self, handler):
        self.asked.append((handler.path, handler.headers.get("Range")))
        (self.script.pop(0) if self.script else ranged)(self, handler)


def head(site, handler, status, **headers):
    handler.send_response(status)
    if site.tag:
        headers.setdefault("ETag", site.tag)
    if site.modified:
        headers.setdefault("Last-Modified", site.modified)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), str(value))
    handler.end_headers()


def send(site, handler, data):
    site.sent += len(data)
    handler.wfile.write(data)


def ranged(site, handler, cut=None, step=None):
    """Answer like a good server; ``cut`` ends the connection after so many bytes, ``step`` sends slowly."""
    asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    condition = handler.headers.get("If-Range")
    first = int(asked[1]) if asked and condition in (None, site.tag, site.modified) else 0
    if first and first >= len(site.data):
        head(site, handler, 416, Content_Range=f"bytes */{len(site.data)}", Content_Length=0)
        return
    body = site.data[first:]
    extra = {"Content_Range": f"bytes {first}-{len(site.data) - 1}/{len(site.data)}"} if first else {}
    head(site, handler, 206 if first else 200, Content_Length=len(body), **extra)
    for at in range(0, len(body[:cut]), step or len(site.data)):
        send(site, handler, body[:cut][at : at + (step or len(site.data))])
        if step:
            time.sleep(0.002)


def cut(length):
    return lambda site, handler: ranged(site, handler, cut=length)


def status(code, **headers):
    return lambda site, handler: head(site, handler, code, Content_Length=0, **headers)


def whole(data=None, length=None, **headers):
    """Answer 200 with everything, whatever is asked; ``length`` is a Content-Length, 0 for none."""

    def answer(site, handler):
        body = site.data if data is None else data
        if length != 0:
            headers["Content_Length"] = length or len(body)
        head(site, handler, 200, **headers)
        send(site, handler, body)

    return answer


def changed(site, handler):
    """From now on the server has another file of the same size."""
    site.data, site.tag = CHANGED, '"v2"' if site.tag else None
    ranged(site, handler)


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


def alone(path):
    """Whether nothing but the file is in its folder."""
    return [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_whole_file_in_one_request(site, path):
    fetch(site.url, path, sha256=SHA, size=len(DATA))
    assert path.read_bytes() == DATA
    assert site.asked == [("/set/file.bin", None)]
    assert alone(path)
    fetch(site.url, path, sha256=SHA)
    assert len(site.asked) == 1
    assert alone(path)


@pytest.mark.parametrize("wrong", [b"x" * len(DATA), b"short"])
def test_a_file_that_does_not_fit_is_replaced(site, path, wrong):
    path.parent.mkdir()
    path.write_bytes(wrong)
    assert not fits(path, SHA, len(DATA))
    fetch(site.url, path, sha256=SHA, size=len(DATA))
    assert path.read_bytes() == DATA


def test_an_empty_file(site, path):
    site.data = b""
    fetch(site.url, path)
    assert path.read_bytes() == b""


@pytest.mark.parametrize("known", [{"sha256": SHA}, {"size": len(DATA)}, {}])
def test_cut_connections_are_resumed(site, path, known):
    site.script = [cut(100_000), cut(0), cut(1), cut(50_000)]
    fetch(site.url, path, **known)
    assert path.read_bytes() == DATA
    assert site.sent == len(DATA)
    assert [asked for _, asked in site.asked[1:]] == [
        "bytes=100000-", "bytes=100000-", "bytes=100001-", "bytes=150001-"
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_cut_at_random_places_many_times(site, path, seed):
    rng = random.Random(seed)
    site.script = [cut(rng.randrange(1, 15_000)) for _ in range(30)]
    fetch(site.url, path, sha256=SHA)
    assert path.read_bytes() == DATA
    assert site.sent == len(DATA)


def test_attempts_without_progress_end(site, path):
    site.script = [cut(1000)] + [cut(0)] * 99
    with pytest.raises(MachineError, match=r"cannot be downloaded \(.*1000 bytes are kept") as caught:
        fetch(site.url, path, sha256=SHA)
    assert "\n" not in str(caught.value)
    assert len(site.asked) == 1 + 3
    assert not path.exists()
    site.script = []
    fetch(site.url, path, sha256=SHA)
    assert site.sent == len(DATA)


@pytest.mark.parametrize("known", [{"sha256": SHA}, {}])
def test_a_server_that_ignores_ranges(site, path, known):
    site.script = [cut(100_000), whole()]
    fetch(site.url, path, **known)
    assert path.read_bytes() == DATA
    assert len(site.asked) == 2


def test_without_validator_only_a_hash_allows_to_resume(site, path):
    site.tag = None
    site.script = [cut(100_000), changed]
    fetch(site.url, path)
    assert path.read_bytes() == CHANGED
    assert site.asked[1] == ("/set/file.bin", None)


def test_without_validator_but_with_a_hash_it_is_resumed(site, path):
    site.tag = None
    site.script = [cut(100_000)]
    fetch(site.url, path, sha256=SHA)
    assert site.sent == len(DATA)


def test_a_date_serves_as_validator(site, path):
    site.tag, site.modified = 'W/"weak"', "Sat, 21 Nov 2026 07:28:00 GMT"
    site.script = [cut(100_000)]
    fetch(site.url, path)
    assert path.read_bytes() == DATA
    assert site.sent == len(DATA)


def test_a_file_that_changes_between_attempts(site, path):
    site.script = [cut(100_000), changed]
    fetch(site.url, path)
    assert path.read_bytes() == CHANGED
    assert len(site.asked) == 2  # the server was told which version the range is for, and sent all of the new one


def rude(site, handler):
    """Answer a range although the file is another one by now."""
    site.data, site.tag = CHANGED, '"v2"'
    first = int(handler.headers["Range"][6:-1])
    head(site, handler, 206, Content_Range=f"bytes {first}-{len(CHANGED) - 1}/{len(CHANGED)}")
    send(site, handler, CHANGED[first:])


def test_a_changed_file_behind_a_range_is_noticed(site, path):
    site.script = [cut(100_000), rude]
    fetch(site.url, path)
    assert path.read_bytes() == CHANGED


def test_two_versions_stitched_together_are_fetched_anew_once(site, path):
    site.tag = None
    site.script = [cut(100_000), changed, lambda site, handler: (setattr(site, "data", DATA), ranged(site, handler))]
    fetch(site.url, path, sha256=SHA)
    assert path.read_bytes() == DATA
    assert [asked for _, asked in site.asked] == [None, "bytes=100000-", None]


def test_wrong_parts_are_not_fetched_anew_for_ever(site, path):
    site.data = CHANGED
    site.script = [cut(100_000), cut(300_000), cut(100_000)]
    with pytest.raises(InputError, match="does not have sha256"):
        fetch(site.url, path, sha256=SHA)
    assert len(site.asked) == 4
    assert list(path.parent.iterdir()) == []


def test_a_range_that_begins_elsewhere_is_not_believed(site, path):
    def elsewhere(site, handler):
        head(site, handler, 206, Content_Range=f"bytes 5-{len(DATA) - 1}/{len(DATA)}")
        send(site, handler, DATA[5:])

    site.script = [cut(100_000), elsewhere]
    fetch(site.url, path)
    assert path.read_bytes() == DATA


@pytest.mark.parametrize("known", [{"sha256": SHA}, {"size": len(DATA)}])
def test_a_wrong_file_is_not_kept_and_not_tried_again(site, path, known):
    site.data = CHANGED[:-1]
    with pytest.raises(InputError, match=r"http.*file\.bin: the file there (has 299999 bytes|does not have sha256)"):
        fetch(site.url, path, **known)
    assert len(site.asked) == 1
    assert list(path.parent.iterdir()) == []


def test_an_endless_file_is_bounded_by_its_size(site, path):
    site.script = [whole(DATA * 20, length=0)]
    with pytest.raises(InputError, match="has more than 300000 bytes"):
        fetch(site.url, path, sha256=SHA, size=len(DATA))
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("suffix", [".zip", ".gz", ".tgz", ".npz", ".bz2", ".xz"])
def test_a_page_instead_of_an_archive_without_hash(site, tmp_path, suffix):
    site.data = b"\n<!DOCTYPE html><html>Sign in</html>"
    with pytest.raises(InputError, match=rf"is no \{suffix} file \(it is a web page\)"):
        fetch(site.url, tmp_path / f"file{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_a_page_instead_of_a_known_file(site, path):
    site.data = b"<html>moved</html>"
    with pytest.raises(InputError, match=r"does not have sha256 \w+ \(it is a web page\)"):
        fetch(site.url, path, sha256=SHA)


@pytest.mark.parametrize("known", [{"sha256": SHA}, {"size": len(DATA)}])
def test_a_content_length_that_is_too_short(site, path, known):
    site.script = [whole(length=1000)] * 2
    with pytest.raises(InputError, match="the file there"):
        fetch(site.url, path, **known)


def test_a_content_length_that_is_too_long(site, path):
    site.script = [whole(length=len(DATA) + 5)]
    fetch(site.url, path, sha256=SHA)
    assert path.read_bytes() == DATA
    assert len(site.asked) == 1


def test_a_content_length_that_is_too_long_and_no_hash(site, path):
    site.script = [whole(length=len(DATA) + 5)]
    fetch(site.url, path)
    assert path.read_bytes() == DATA
    assert site.asked[1] == ("/set/file.bin", f"bytes={len(DATA)}-")


def test_no_content_length_at_all(site, path):
    site.script = [whole(length=0)]
    fetch(site.url, path, sha256=SHA)
    assert path.read_bytes() == DATA


def test_chunked_answers(site, path):
    def chunked(site, handler, end=b"0\r\n\r\n"):
        handler.protocol_version = "HTTP/1.1"
        head(site, handler, 200, Transfer_Encoding="chunked", Connection="close")
        for at in range(0, len(DATA), 70_000):
            part = DATA[at : at + 70_000]
            handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        handler.wfile.write(end)

    site.script = [lambda site, handler: chunked(site, handler, end=b""), chunked]
    fetch(site.url, path)
    assert path.read_bytes() == DATA


@pytest.mark.parametrize("encoding", ["gzip", "br"])
def test_compressed_answers_are_refused(site, path, encoding):
    site.script = [whole(gzip.compress(DATA), Content_Encoding=encoding)]
    with pytest.raises(MachineError, match=f"the server compresses it \\({encoding}\\)"):
        fetch(site.url, path)
    assert len(site.asked) == 1


def test_a_gz_file_that_is_called_compressed_is_taken_as_it_is(site, tmp_path):
    site.data = gzip.compress(DATA)
    site.script = [whole(Content_Encoding="x-gzip")]
    fetch(site.url, tmp_path / "file.gz")
    assert (tmp_path / "file.gz").read_bytes() == site.data


def test_what_is_whole_already_is_not_sent_again(site, path):
    site.script = [cut(len(DATA)), ranged]
    path.parent.mkdir()
    Path(f"{path}.part").write_bytes(DATA)
    Path(f"{path}.part.json").write_text(
        f'{{"url": "{site.url}", "etag": "\\"v1\\"", "modified": null, "total": null}}'
    )
    site.script = []
    fetch(site.url, path)
    assert site.sent == 0
    assert site.asked == [("/set/file.bin", f"bytes={len(DATA)}-")]
    assert path.read_bytes() == DATA
    assert alone(path)


def test_what_is_known_to_be_whole_needs_no_request(site, path):
    path.parent.mkdir()
    Path(f"{path}.part").write_bytes(DATA)
    Path(f"{path}.part.json").write_text(f'{{"url": "{site.url}", "etag": null, "modified": null, "total": null}}')
    fetch(site.url, path, sha256=SHA)
    assert site.asked == []
    assert path.read_bytes() == DATA
    assert alone(path)


def test_more_than_the_server_has_is_thrown_away(site, path):
    path.parent.mkdir()
    Path(f"{path}.part").write_bytes(DATA + b"more")
    Path(f"{path}.part.json").write_text(f'{{"url": "{site.url}", "etag": "\\"v1\\"", "modified": null, "total": 9}}')
    fetch(site.url, path)
    assert path.read_bytes() == DATA


@pytest.mark.parametrize(
    "note", ["", "{", "[]", '{"url": 1}', '{"url": "http://other", "etag": "\\"v1\\"", "modified": null, "total": 9}']
)
def test_a_part_of_unknown_origin_is_thrown_away(site, path, note):
    path.parent.mkdir()
    Path(f"{path}.part").write_bytes(b"anything")
    Path(f"{path}.part.json").write_text(note)
    fetch(site.url, path, sha256=SHA)
    assert path.read_bytes() == DATA
    assert site.asked == [("/set/file.bin", None)]


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 416])
def test_no_retry_where_none_can_help(site, path, code):
    site.script = [status(code)]
    with pytest.raises(MachineError, match=rf"cannot be downloaded \(HTTP {code} "):
        fetch(site.url, path)
    assert len(site.asked) == 1
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_errors_that_may_pass_are_tried_again(site, path, code):
    site.script = [status(code), status(code)]
    fetch(site.url, path, sha256=SHA)
    assert len(site.asked) == 3


def test_nothing_is_left_where_nothing_arrived(site, path):
    site.script = [cut(0)] * 9
    with pytest.raises(MachineError, match=r"cannot be downloaded \(IncompleteRead\)$"):
        fetch(site.url, path)
    assert list(path.parent.iterdir()) == []


def test_errors_in_the_middle_keep_what_has_arrived(site, path):
    site.script = [cut(100_000), status(503), status(503)]
    fetch(site.url, path, sha256=SHA)
    assert site.sent == len(DATA)


@pytest.mark.parametrize("asked", ["7", "Sat, 21 Nov 2026 07:28:00 GMT"])
def test_the_server_may_say_how_long_to_wait(site, path, monkeypatch, asked):
    waits = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", waits.append)
    monkeypatch.setattr("urllib3.util.retry.time.time", lambda: 1_795_246_073.0)
    site.script = [status(503, Retry_After=asked)]
    fetch(site.url, path)
    assert waits == [7]


def test_a_wait_that_is_too_long_is_told_instead(site, path):
    site.script = [status(429, Retry_After=86400)]
    with pytest.raises(MachineError, match="HTTP 429 Too Many Requests; the server asks to wait: 86400"):
        fetch(site.url, path)
    assert len(site.asked) == 1


@pytest.mark.parametrize("asked", ["soon", "1" * 5000, "Sat, 21 Nov 99999 07:28:00 GMT"])
def test_a_wait_that_is_no_time(site, path, asked):
    site.script = [status(503, Retry_After=asked)]
    fetch(site.url, path)
    assert path.read_bytes() == DATA


def test_waits_grow(site, path, monkeypatch):
    waits = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", waits.append)
    monkeypatch.setattr(module, "PATIENCE", urllib3.Retry(total=4, backoff_factor=1, backoff_jitter=0.5))
    site.script = [status(500)] * 4
    fetch(site.url, path)
    assert [int(wait) for wait in waits] == [2, 4, 8]


def test_a_connection_that_falls_silent(site, path, monkeypatch):
    def silent(site, handler):
        head(site, handler, 200, Content_Length=len(DATA))
        send(site, handler, DATA[:1000])
        handler.wfile.flush()
        quiet.wait(60)

    quiet = threading.Event()
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    site.script = [silent]
    fetch(site.url, path)
    quiet.set()
    assert path.read_bytes() == DATA
    assert site.sent == len(DATA)


def test_a_connection_that_only_trickles(site, path, monkeypatch):
    def trickle(site, handler):
        head(site, handler, 200, Content_Length=len(DATA))
        while True:
            send(site, handler, DATA[site.sent : site.sent + 1])
            handler.wfile.flush()
            time.sleep(0.02)

    monkeypatch.setattr(module, "TIMEOUT", 0.3)
    site.script = [trickle]
    fetch(site.url, path)
    assert path.read_bytes() == DATA
    assert len(site.asked) == 2


def test_redirects_are_followed(site, path):
    site.script = [status(302, Location="/elsewhere/file.bin"), cut(1000), status(307, Location=site.url)]
    fetch(site.url, path, sha256=SHA)
    assert path.read_bytes() == DATA
    assert [asked for asked, _ in site.asked] == [
        "/set/file.bin",
        "/elsewhere/file.bin",
        "/set/file.bin",
        "/set/file.bin",
    ]
    assert site.asked[3][1] == "bytes=1000-"


def test_redirects_in_a_circle(site, path):
    site.script = [status(302, Location=site.url)] * 50
    with pytest.raises(MachineError, match="Exceeded 10 redirects"):
        fetch(site.url, path)
    assert len(site.asked) == 11


@pytest.mark.parametrize("scheme", ["ftp", "file"])
def test_redirects_to_other_schemes(site, path, scheme):
    site.script = [status(302, Location=f"{scheme}:///etc/passwd")]
    with pytest.raises(MachineError, match="redirected to where it must not go"):
        fetch(site.url, path)


def test_http_needs_permission(site, path, monkeypatch):
    monkeypatch.delenv("MGG_ALLOW_HTTP")
    with pytest.raises(InputError, match="only https is safe; set MGG_ALLOW_HTTP=1"):
        fetch(site.url, path)
    assert site.asked == []


def test_https_does_not_fall_back_to_http(site, path, monkeypatch):
    def send(self, request, **options):
        answer = requests.Response()
        answer.status_code, answer.url, answer.request = 302, request.url, request
        answer.headers["Location"] = site.url
        answer.raw = urllib3.HTTPResponse(io.BytesIO(), preload_content=False)
        return answer

    monkeypatch.delenv("MGG_ALLOW_HTTP")
    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    with pytest.raises(MachineError, match="redirected to where it must not go: No connection adapters"):
        fetch("https://example.org/file.bin", path)
    assert site.asked == []


def test_no_server_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("MGG_ALLOW_HTTP", "1")
    monkeypatch.setattr(module, "PATIENCE", urllib3.Retry(total=1, backoff_factor=0))
    with pytest.raises(MachineError, match=r"127\.0\.0\.1:9/file: cannot be downloaded \(Connection refused\)"):
        fetch("http://127.0.0.1:9/file", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


CHILD = """
import sys, resource
from pathlib import Path
from mgg.errors import MggError
from mgg.graph.download import fetch
if len(sys.argv) > 3:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
try:
    fetch(sys.argv[1], Path(sys.argv[2]))
except MggError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def start(*arguments):
    return subprocess.Popen([sys.executable, "-c", CHILD, *map(str, arguments)], stdout=subprocess.PIPE, text=True)


def test_a_killed_download_is_resumed(site, path):
    site.script = [lambda site, handler: ranged(site, handler, step=1000)]
    child = start(site.url, path)
    part = Path(f"{path}.part")
    while not (part.exists() and part.stat().st_size > 20_000):
        assert child.poll() is None
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    kept = part.stat().st_size
    assert 20_000 < kept < len(DATA)
    assert not path.exists()
    site.sent = 0
    fetch(site.url, path)
    assert path.read_bytes() == DATA
    assert site.asked[-1] == ("/set/file.bin", f"bytes={kept}-")
    assert alone(path)


def test_a_full_disk_keeps_what_has_arrived(site, path):
    child = start(site.url, path, 100_000)
    said, _ = child.communicate()
    assert child.returncode == MachineError.exit_code, said
    assert re.search(r"file\.bin: cannot be written: ", said)
    assert Path(f"{path}.part").stat().st_size == 100_000
    assert not path.exists()
    fetch(site.url, path)
    assert site.asked[-1] == ("/set/file.bin", "bytes=100000-")
    assert path.read_bytes() == DATA


def test_processes_that_want_the_same_file_wait_for_each_other(site, path):
    site.script = [lambda site, handler: ranged(site, handler, step=5000)]
    children = [start(site.url, path) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    for child in children:
        child.stdout.close()
    assert path.read_bytes() == DATA
    assert len(site.asked) == 1
    assert alone(path)


def test_threads_that_want_the_same_file_wait_for_each_other(site, path):
    site.script = [lambda site, handler: ranged(site, handler, step=20_000), *([cut(5000)] * 3)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: fetch(site.url, path), range(8)))
    assert path.read_bytes() == DATA
    assert len(site.asked) == 1
    assert alone(path)


def test_a_folder_that_cannot_be_written(site, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(MachineError, match=r"cannot be written: (Not a directory|File exists)"):
        fetch(site.url, tmp_path / "file" / "file.bin")


def test_progress_is_lines_where_there_is_no_terminal(site, path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "REPORT_EVERY", 0.0)
    site.script = [lambda site, handler: ranged(site, handler, step=100_000), ranged]
    fetch(site.url, path)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1] == "file.bin: 0.3 of 0.3 MB (100%)"


def test_short_downloads_are_silent(site, path, capsys):
    fetch(site.url, path)
    assert capsys.readouterr() == ("", "")


def test_progress_is_a_bar_on_a_terminal(site, path, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    fetch(site.url, path)
    said = capsys.readouterr()
    assert said.out == ""
    assert "file.bin" in said.err
    assert "━" in said.err


def test_a_redirect_to_an_address_that_is_none(site, path):
    site.script = [status(302, Location="http://[::1")]
    with pytest.raises(
        MachineError, match=r"cannot be downloaded \(answer that cannot be understood: Invalid IPv6 URL"
    ):
        fetch(site.url, path)
    assert len(site.asked) == 1
    assert list(path.parent.iterdir()) == []


def test_lengths_of_too_many_digits_are_not_believed(site, path):
    digits = "1" * 5000

    def astray(site, handler):
        head(site, handler, 206, Content_Range=f"bytes {digits}-{digits}/{digits}", Content_Length=0)

    site.script = [whole(length=digits)]
    fetch(site.url, path)
    assert path.read_bytes() == DATA
    path.unlink()
    site.script = [cut(1000), astray]
    fetch(site.url, path, sha256=SHA)
    assert path.read_bytes() == DATA
