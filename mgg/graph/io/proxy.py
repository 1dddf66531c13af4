"""Checks the environment's proxies before anything is sent: requests reports some wrong settings as network errors."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import requests
import urllib3
from requests.utils import prepend_scheme_if_needed, select_proxy
from urllib3.util import parse_url

from mgg.errors import InputError, MachineError

_SOCKS = ("socks4", "socks4a", "socks5", "socks5h")


class CheckedProxies(requests.adapters.HTTPAdapter):
    """The adapter of a session, which also checks the proxies of redirects."""

    def send(self, request: requests.PreparedRequest, *rest: Any, **options: Any) -> requests.Response:
        """Send a request; raises InputError or MachineError if its proxy's settings cannot work."""
        proxy = select_proxy(str(request.url), options.get("proxies"))
        if proxy:
            _check(proxy)
        return super().send(request, *rest, **options)


def _check(proxy: str) -> None:
    """Check a proxy's address; messages leave it out, as it may contain a password."""
    name = next((name for name, value in os.environ.items() if _is_proxy(name) and value == proxy), "the proxy")
    try:
        found = parse_url(prepend_scheme_if_needed(proxy, "http"))
    except (urllib3.exceptions.HTTPError, ValueError, TypeError):
        found = None
    if found is None or not found.host:
        raise InputError(
            f"{name}: is not the address of a proxy: write http://host:port or http://user:password@host:port, special"
            " characters of the password as %XX"
        )
    if found.scheme in _SOCKS:
        if importlib.util.find_spec("socks") is None:
            raise MachineError(f"{name}: {found.scheme} needs the package PySocks: pip install 'requests[socks]'")
    elif found.scheme not in ("http", "https"):
        raise InputError(f"{name}: scheme {found.scheme} is none of proxies: {', '.join(('http', 'https', *_SOCKS))}")


def _is_proxy(name: str) -> bool:
    return name.lower().endswith("_proxy")
