"""A server with one file that answers as a test wants it to."""

import hashlib
import random
import re
import time
from dataclasses import dataclass, field

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


def alone(path):
    """Whether nothing but the file is in its folder."""
    return [entry.name for entry in path.parent.iterdir()] == [path.name]
