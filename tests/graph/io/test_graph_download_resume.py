"""Downloads that go on where they ended: what has arrived is kept as far as it can be trusted."""

from pathlib import Path

import pytest
from download_site import CHANGED, DATA, SHA, alone, cut, ranged

from mgg.errors import InputError, MachineError
from mgg.graph.io.download import fetch, fits


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


def test_wrong_parts_are_not_fetched_anew_for_ever(site, path):
    site.data = CHANGED
    site.script = [cut(100_000), cut(300_000), cut(100_000)]
    with pytest.raises(InputError, match="does not have sha256"):
        fetch(site.url, path, sha256=SHA)
    assert len(site.asked) == 4
    assert list(path.parent.iterdir()) == []


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
