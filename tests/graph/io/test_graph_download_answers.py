"""What a server answers: lengths, encodings, pages instead of files."""

import gzip

import pytest
from download_site import CHANGED, DATA, SHA, whole

from mgg.errors import InputError, MachineError
from mgg.graph.io.download import fetch


@pytest.mark.parametrize("known", [{"sha256": SHA}, {"size": len(DATA)}])
def test_wrong_file_is_removed_and_not_retried(site, path, known):
    site.data = CHANGED[:-1]
    with pytest.raises(InputError, match=r"http.*file\.bin: the file there (has 299999 bytes|does not have sha256)"):
        fetch(site.url, path, **known)
    assert len(site.asked) == 1
    assert list(path.parent.iterdir()) == []


def test_endless_file_is_cut_off_at_its_size(site, path):
    site.script = [whole(DATA * 20, length=0)]
    with pytest.raises(InputError, match="has more than 300000 bytes"):
        fetch(site.url, path, sha256=SHA, size=len(DATA))
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("suffix", [".zip", ".gz", ".tgz", ".npz", ".bz2", ".xz"])
def test_html_page_instead_of_an_archive_is_refused(site, tmp_path, suffix):
    site.data = b"\n<!DOCTYPE html><html>Sign in</html>"
    with pytest.raises(InputError, match=rf"is no \{suffix} file \(it is a web page\)"):
        fetch(site.url, tmp_path / f"file{suffix}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("known", [{"sha256": SHA}, {"size": len(DATA)}])
def test_too_short_content_length_is_detected(site, path, known):
    site.script = [whole(length=1000)] * 2
    with pytest.raises(InputError, match="the file there"):
        fetch(site.url, path, **known)


@pytest.mark.parametrize("encoding", ["gzip", "br"])
def test_compressed_responses_are_refused(site, path, encoding):
    site.script = [whole(gzip.compress(DATA), Content_Encoding=encoding)]
    with pytest.raises(MachineError, match=f"the server compresses it \\({encoding}\\)"):
        fetch(site.url, path)
    assert len(site.asked) == 1


def test_gz_file_served_as_gzip_encoding_is_kept_compressed(site, tmp_path):
    site.data = gzip.compress(DATA)
    site.script = [whole(Content_Encoding="x-gzip")]
    fetch(site.url, tmp_path / "file.gz")
    assert (tmp_path / "file.gz").read_bytes() == site.data
