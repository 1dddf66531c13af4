"""Redirects, schemes, and addresses where nobody answers."""

import io

import pytest
import requests
import urllib3
from download_site import DATA, SHA, cut, status

from mgg.errors import InputError, MachineError
from mgg.graph.io import download as module
from mgg.graph.io.download import fetch


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


def test_circular_redirects_are_refused(site, path):
    site.script = [status(302, Location=site.url)] * 50
    with pytest.raises(MachineError, match="Exceeded 10 redirects"):
        fetch(site.url, path)
    assert len(site.asked) == 11


@pytest.mark.parametrize("scheme", ["ftp", "file"])
def test_redirects_to_other_schemes_are_refused(site, path, scheme):
    site.script = [status(302, Location=f"{scheme}:///etc/passwd")]
    with pytest.raises(MachineError, match="redirected to where it must not go"):
        fetch(site.url, path)


def test_http_needs_permission(site, path, monkeypatch):
    monkeypatch.delenv("MGG_ALLOW_HTTP")
    with pytest.raises(InputError, match="only https is safe; set MGG_ALLOW_HTTP=1"):
        fetch(site.url, path)
    assert site.asked == [] and list(path.parent.iterdir()) == []
    path.with_name(f"{path.name}.part").write_bytes(b"begun while it was allowed")
    with pytest.raises(InputError, match="only https is safe"):
        fetch(site.url, path)
    assert len(list(path.parent.iterdir())) == 1


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


def test_unreachable_server_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("MGG_ALLOW_HTTP", "1")
    monkeypatch.setattr(module, "PATIENCE", urllib3.Retry(total=1, backoff_factor=0))
    with pytest.raises(MachineError, match=r"127\.0\.0\.1:9/file: cannot be downloaded \(Connection refused\)"):
        fetch("http://127.0.0.1:9/file", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://[::1", "Invalid IPv6 URL"),
        ("http://me:secret@example.org:99999/x?key=secret", "Port out of range 0-65535"),
        ("http://example.org:http/x", "Port could not be cast to integer value"),
        ("http://me:secret@example..org/x?key=secret", "Failed to parse: 'example..org', label empty or too long"),
        (f"http://{'a' * 5000}.org", "Failed to parse: 'aaa"),
        ("http://:80/x", "No host specified"),
        ("http://\xff/x", "invalid start byte"),
    ],
)
def test_redirect_to_an_invalid_address_is_not_retried(site, path, address, said):
    """It ends at once: asked again, the server would say the same."""
    site.script = [status(302, Location=address)]
    with pytest.raises(MachineError) as caught:
        fetch(site.url, path)
    message = str(caught.value)
    assert f"{site.url}: cannot be downloaded (redirected to an address that cannot be understood: " in message
    assert said in message and "secret" not in message and len(message) < 400 and "\n" not in message
    assert len(site.asked) == 1
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("address", ["://[::1", "://me:secret@example.org:99999/x?key=secret", "://", "://a b/x"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_invalid_address_is_refused(tmp_path, monkeypatch, scheme, address):
    monkeypatch.setenv("MGG_ALLOW_HTTP", "1" if scheme == "http" else "0")
    with pytest.raises(InputError, match=f"^{scheme}:.*: is no address of a file") as caught:
        fetch(scheme + address, tmp_path / "file")
    assert "secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
