"""Errors of servers and networks: which are tried again, and after how long."""

import threading
import time

import pytest
import urllib3
from download_site import DATA, cut, head, send, status

from mgg.errors import MachineError
from mgg.graph.io import download as module
from mgg.graph.io.download import fetch


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 416])
def test_permanent_errors_are_not_retried(site, path, code):
    site.script = [status(code)]
    with pytest.raises(MachineError, match=rf"cannot be downloaded \(HTTP {code} "):
        fetch(site.url, path)
    assert len(site.asked) == 1
    assert list(path.parent.iterdir()) == []


def test_failed_download_without_data_leaves_no_file(site, path):
    site.script = [cut(0)] * 9
    with pytest.raises(MachineError, match=r"cannot be downloaded \(IncompleteRead\)$"):
        fetch(site.url, path)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("asked", ["7", "Sat, 21 Nov 2026 07:28:00 GMT"])
def test_retry_after_header_is_obeyed(site, path, monkeypatch, asked):
    waits = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", waits.append)
    monkeypatch.setattr("urllib3.util.retry.time.time", lambda: 1_795_246_073.0)
    site.script = [status(503, Retry_After=asked)]
    fetch(site.url, path)
    assert waits == [7]


def test_too_long_retry_after_is_reported(site, path):
    site.script = [status(429, Retry_After=86400)]
    with pytest.raises(MachineError, match="HTTP 429 Too Many Requests; the server asks to wait: 86400"):
        fetch(site.url, path)
    assert len(site.asked) == 1


@pytest.mark.parametrize("asked", ["soon", "1" * 5000, "Sat, 21 Nov 99999 07:28:00 GMT"])
def test_invalid_retry_after_is_ignored(site, path, asked):
    site.script = [status(503, Retry_After=asked)]
    fetch(site.url, path)
    assert path.read_bytes() == DATA


def test_waits_between_retries_grow(site, path, monkeypatch):
    waits = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", waits.append)
    monkeypatch.setattr(module, "PATIENCE", urllib3.Retry(total=4, backoff_factor=1, backoff_jitter=0.5))
    site.script = [status(500)] * 4
    fetch(site.url, path)
    assert [int(wait) for wait in waits] == [2, 4, 8]


def test_silent_connection_is_retried(site, path, monkeypatch):
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


def test_trickling_connection_is_retried(site, path, monkeypatch):
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
