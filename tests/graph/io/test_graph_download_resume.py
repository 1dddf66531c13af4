"""Downloads that go on where they ended: what has arrived is kept as far as it can be trusted."""

from pathlib import Path

import pytest
from download_site import CHANGED, DATA, SHA, alone, cut, ranged

from mgg.errors import InputError, MachineError
from mgg.graph.io.download import fetch, fits


def test_complete_file_takes_one_request(site, path):
    fetch(site.url, path, sha256=SHA, size=len(DATA))
    assert path.read_bytes() == DATA
    assert site.asked == [("/set/file.bin", None)]
    assert alone(path)
    fetch(site.url, path, sha256=SHA)
    assert len(site.asked) == 1
    assert alone(path)


@pytest.mark.parametrize("wrong", [b"x" * len(DATA), b"short"])
def test_file_with_a_wrong_hash_is_replaced(site, path, wrong):
    path.parent.mkdir()
    path.write_bytes(wrong)
    assert not fits(path, SHA, len(DATA))
    fetch(site.url, path, sha256=SHA, size=len(DATA))
    assert path.read_bytes() == DATA


def test_empty_file_is_downloaded(site, path):
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


def test_corrupt_parts_are_not_retried_forever(site, path):
    site.data = CHANGED
    site.script = [cut(100_000), cut(300_000), cut(100_000)]
    with pytest.raises(InputError, match="does not have sha256"):
        fetch(site.url, path, sha256=SHA)
    assert len(site.asked) == 4
    assert list(path.parent.iterdir()) == []


def test_complete_part_is_not_sent_again(site, path):
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


def test_verified_file_needs_no_request(site, path):
    path.parent.mkdir()
    Path(f"{path}.part").write_bytes(DATA)
    Path(f"{path}.part.json").write_text(f'{{"url": "{site.url}", "etag": null, "modified": null, "total": null}}')
    fetch(site.url, path, sha256=SHA)
    assert site.asked == []
    assert path.read_bytes() == DATA
    assert alone(path)


def test_part_longer_than_the_file_is_discarded(site, path):
    path.parent.mkdir()
    Path(f"{path}.part").write_bytes(DATA + b"more")
    Path(f"{path}.part.json").write_text(f'{{"url": "{site.url}", "etag": "\\"v1\\"", "modified": null, "total": 9}}')
    fetch(site.url, path)
    assert path.read_bytes() == DATA


@pytest.mark.parametrize(
    "note", ["", "{", "[]", '{"url": 1}', '{"url": "http://other", "etag": "\\"v1\\"", "modified": null, "total": 9}']
)
def test_part_of_unknown_origin_is_discarded(site, path, note):
    path.parent.mkdir()
    Path(f"{path}.part").write_bytes(b"anything")
    Path(f"{path}.part.json").write_text(note)
    fetch(site.url, path, sha256=SHA)
    assert path.read_bytes() == DATA
    assert site.asked == [("/set/file.bin", None)]
