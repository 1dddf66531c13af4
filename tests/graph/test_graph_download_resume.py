"""Downloads that go on where they ended: what has arrived is kept as far as it can be trusted."""

import random
from pathlib import Path

import pytest
from download_site import CHANGED, DATA, SHA, alone, changed, cut, head, ranged, send, whole

from mgg.errors import InputError, MachineError
from mgg.graph.io.download import fetch, fits


def rude(site, handler):
    """Answer a range although the file is another one by now."""
    site.data, site.tag = CHANGED, '"v2"'
    first = int(handler.headers["Range"][6:-1])
    head(site, handler, 206, Content_Range=f"bytes {first}-{len(CHANGED) - 1}/{len(CHANGED)}")
    send(site, handler, CHANGED[first:])


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
