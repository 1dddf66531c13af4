"""Proxies of the environment: those that no attempt can pass are refused at once, and no password is told."""

import os
import sys

import pytest
from download_site import DATA

from mgg.errors import InputError, MachineError
from mgg.graph.io.download import fetch


@pytest.fixture(autouse=True)
def proxy(monkeypatch):
    """Set the proxy for http."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    return lambda address, name="http_proxy": monkeypatch.setenv(name, address)


def refused(error, message, site, path, capsys):
    with pytest.raises(error, match=message) as caught:
        fetch(site.url, path)
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)
    assert capsys.readouterr().err == ""  # not tried again
    assert site.asked == [] and list(path.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
@pytest.mark.parametrize(
    "address",
    [
        "http://me:secret@",
        "http://me:secret@:3128",
        "http://me:secret@proxy:port",
        "http://me:secret@proxy:99999",
        "http://me:se/secret@proxy:1",
        "http://me:secret@[::1",
        "me:secret@127.0.0.1:9",
        "http://",
    ],
)
def test_invalid_proxy_addresses_are_refused(address, name, proxy, site, path, capsys):
    proxy(address, name)
    refused(InputError, rf"^{name}: is not the address of a proxy: write http://host:port", site, path, capsys)


def test_unsupported_proxy_schemes_are_refused(proxy, site, path, capsys):
    proxy("ftp://me:secret@127.0.0.1:9")
    refused(InputError, "^http_proxy: scheme ftp is none of proxies: http, https, socks4", site, path, capsys)


@pytest.mark.parametrize("scheme", ["socks4a", "socks5", "socks5h"])
def test_socks_proxy_without_its_package_is_refused(scheme, proxy, site, path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "socks", None)
    proxy(f"{scheme}://me:secret@127.0.0.1:9")
    refused(MachineError, rf"^http_proxy: {scheme} needs the package PySocks: pip install", site, path, capsys)


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_proxy_is_used(scheme, proxy, site, path):
    host = site.url.split("/")[2]
    proxy(f"{scheme}{host}")
    fetch("http://elsewhere.example/file.bin", path)
    assert path.read_bytes() == DATA
    assert [asked for asked, _ in site.asked] == ["http://elsewhere.example/file.bin"]


def test_no_proxy_hosts_bypass_the_proxy(proxy, site, path):
    proxy("http://me:secret@")
    proxy("127.0.0.1", "no_proxy")
    fetch(site.url, path)
    assert path.read_bytes() == DATA
