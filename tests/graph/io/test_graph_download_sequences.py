"""Answers in a row that end well: what arrives, and from where on each request asks for it."""

import pytest
from download_site import CHANGED, DATA, SHA, changed, cut, head, ranged, send, status, whole

from mgg.graph.io.download import fetch

KNOWN, SIZED, UNKNOWN = {"sha256": SHA}, {"size": len(DATA)}, {}
LONG = "1" * 5000


def rude(site, handler):
    """Answer a range although the file is another one by now."""
    site.data, site.tag = CHANGED, '"v2"'
    first = int(handler.headers["Range"][6:-1])
    head(site, handler, 206, Content_Range=f"bytes {first}-{len(CHANGED) - 1}/{len(CHANGED)}")
    send(site, handler, CHANGED[first:])


def elsewhere(site, handler):
    """Answer another range than the one asked for."""
    head(site, handler, 206, Content_Range=f"bytes 5-{len(DATA) - 1}/{len(DATA)}")
    send(site, handler, DATA[5:])


def astray(site, handler):
    head(site, handler, 206, Content_Range=f"bytes {LONG}-{LONG}/{LONG}", Content_Length=0)


def back(site, handler):
    """The first version of the file again."""
    site.data = DATA
    ranged(site, handler)


def chunked(end):
    def answer(site, handler):
        handler.protocol_version = "HTTP/1.1"
        head(site, handler, 200, Transfer_Encoding="chunked", Connection="close")
        for at in range(0, len(DATA), 70_000):
            part = DATA[at : at + 70_000]
            handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        handler.wfile.write(end)

    return answer


CUTS = [cut(100_000), cut(0), cut(1), cut(50_000)]
FROM = [None, 100_000, 100_000, 100_001, 150_001]
DATED = {"tag": 'W/"weak"', "modified": "Sat, 21 Nov 2026 07:28:00 GMT"}
NO_TAG = {"tag": None}
#: How the server describes its file and answers, what is known of the file; what arrives, the first byte of each range.
CASES = {
    "cut, hash known": ({}, CUTS, KNOWN, DATA, FROM),
    "cut, size known": ({}, CUTS, SIZED, DATA, FROM),
    "cut, nothing known": ({}, CUTS, UNKNOWN, DATA, FROM),
    "ranges ignored, hash known": ({}, [cut(100_000), whole()], KNOWN, DATA, [None, 100_000]),
    "ranges ignored, nothing known": ({}, [cut(100_000), whole()], UNKNOWN, DATA, [None, 100_000]),
    "neither validator nor hash": (NO_TAG, [cut(100_000), changed], UNKNOWN, CHANGED, [None, None]),
    "hash without validator": (NO_TAG, [cut(100_000)], KNOWN, DATA, [None, 100_000]),
    "a date as validator": (DATED, [cut(100_000)], UNKNOWN, DATA, [None, 100_000]),
    "changed meanwhile": ({}, [cut(100_000), changed], UNKNOWN, CHANGED, [None, 100_000]),
    "changed behind a range": ({}, [cut(100_000), rude], UNKNOWN, CHANGED, [None, 100_000, None]),
    "two versions stitched": (NO_TAG, [cut(100_000), changed, back], KNOWN, DATA, [None, 100_000, None]),
    "another range": ({}, [cut(100_000), elsewhere], UNKNOWN, DATA, [None, 100_000, None]),
    "length too long, hash known": ({}, [whole(length=len(DATA) + 5)], KNOWN, DATA, [None]),
    "length too long": ({}, [whole(length=len(DATA) + 5)], UNKNOWN, DATA, [None, len(DATA)]),
    "no length": ({}, [whole(length=0)], KNOWN, DATA, [None]),
    "length of too many digits": ({}, [whole(length=LONG)], UNKNOWN, DATA, [None]),
    "range of too many digits": ({}, [cut(1000), astray], KNOWN, DATA, [None, 1000, None]),
    "chunked": ({}, [chunked(b""), chunked(b"0\r\n\r\n")], UNKNOWN, DATA, [None, len(DATA)]),
    "errors in the middle": ({}, [cut(100_000), status(503), status(503)], KNOWN, DATA, [None] + [100_000] * 3),
    **{
        f"HTTP {code}": ({}, [status(code)] * 2, KNOWN, DATA, [None] * 3) for code in (408, 429, 500, 502, 503, 504)
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_random_failures_end_with_the_right_file(site, path, case):
    described, script, known, expected, firsts = CASES[case]
    vars(site).update(described)
    site.script = list(script)
    fetch(site.url, path, **known)
    assert path.read_bytes() == expected
    assert [asked for _, asked in site.asked] == [None if first is None else f"bytes={first}-" for first in firsts]
    if case.startswith(("cut", "hash", "a date", "errors")):
        assert site.sent == len(DATA)
