import bz2
import gzip
import io
import lzma
import random
import stat
import struct
import tarfile
import zipfile

import pytest
from graph_helpers import files_of

from mgg.errors import InputError
from mgg.graph.io import archive as module
from mgg.graph.io.archive import relative_name, unpack

FILES = {"set/raw/edge.csv": b"0,1\n1,2\n", "set/README": b"text", "top.bin": bytes(range(256)) * 5000}
PACK = {".tar": bytes, ".tar.gz": gzip.compress, ".tar.bz2": bz2.compress, ".tar.xz": lzma.compress}


def tar_bytes(entries):
    """A tar archive of (TarInfo or name, content) pairs."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, content in entries:
            member = tarfile.TarInfo(info) if isinstance(info, str) else info
            if member.isreg():
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zip_bytes(entries, compression=zipfile.ZIP_DEFLATED):
    """A zip archive of (ZipInfo or name, content) pairs."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as packed:
        for info, content in entries:
            packed.writestr(info, content, compress_type=compression)
    return buffer.getvalue()


def make(tmp_path, suffix, entries):
    path = tmp_path / f"archive{suffix}"
    path.write_bytes(zip_bytes(entries) if suffix == ".zip" else PACK[suffix](tar_bytes(entries)))
    return path


def refuse(path, folder, message, limit=None):
    """``unpack`` refuses the archive, names it, and leaves nothing."""
    with pytest.raises(InputError, match=message) as caught:
        unpack(path, folder, limit)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert not folder.exists()


@pytest.mark.parametrize("suffix", [".zip", *PACK])
def test_every_kind_of_archive_is_unpacked(tmp_path, suffix):
    path = make(tmp_path, suffix, FILES.items())
    assert list(unpack(path, tmp_path / "out")) == sorted(FILES)
    assert files_of(tmp_path / "out") == dict(sorted(FILES.items()))


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
def test_chosen_members_are_unpacked_under_other_names(tmp_path, suffix):
    path = make(tmp_path, suffix, FILES.items())
    hashes = unpack(path, tmp_path / "out", members={"set/raw/edge.csv": "edges.csv"})
    assert list(hashes) == ["edges.csv"]
    assert files_of(tmp_path / "out") == {"edges.csv": FILES["set/raw/edge.csv"]}
    with pytest.raises(InputError, match=r"nodes\.csv: the archive has no such member"):
        unpack(path, tmp_path / "other", members={"nodes.csv": "nodes.csv"})
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("suffix", [".zip", ".tar"])
def test_leftovers_of_macos_and_folders_are_skipped(tmp_path, suffix):
    entries = [("./a/x", b"1"), ("__MACOSX/a/._x", b"2"), ("a/.DS_Store", b"3"), ("empty/", b"")]
    if suffix == ".tar":
        folder = tarfile.TarInfo("empty")
        folder.type = tarfile.DIRTYPE
        entries[3] = (folder, b"")
    assert list(unpack(make(tmp_path, suffix, entries), tmp_path / "out")) == ["a/x"]
    assert files_of(tmp_path / "out") == {"a/x": b"1"}


def test_other_files_of_the_folder_are_kept(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    path = make(tmp_path, ".zip", FILES.items())
    unpack(path, tmp_path / "out")
    assert files_of(tmp_path / "out") == {**FILES, "mine": b"x"}
    with pytest.raises(InputError, match="is already in"):
        unpack(path, tmp_path / "out")
    assert files_of(tmp_path / "out") == {**FILES, "mine": b"x"}


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up", "a\\b", "..", "new\nline", "x" * 300])
def test_unsafe_member_names_are_refused(tmp_path, suffix, name):
    refuse(make(tmp_path, suffix, [("good", b"1"), (name, b"2")]), tmp_path / "out", "not a name inside the folder")
    assert {path.name for path in tmp_path.iterdir()} == {f"archive{suffix}"}


@pytest.mark.parametrize("suffix", [".zip", ".tar"])
@pytest.mark.parametrize("second", ["a/b", "a", "a/b/c", "./a//b"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_colliding_member_names_are_refused(tmp_path, suffix, second):
    refuse(make(tmp_path, suffix, [("a/b", b"1"), (second, b"2")]), tmp_path / "out", "has this name twice")


def link_of_zip():
    link = zipfile.ZipInfo("odd")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    return zip_bytes([("good", b"1"), (link, b"/etc/passwd")])


def encrypted():
    data = bytearray(zip_bytes([("secret", b"1")]))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return data


def later_version():
    """Python's own reader raises NotImplementedError there."""
    data = bytearray(zip_bytes([("a", b"1")]))
    needed = data.index(b"PK\x01\x02") + 6
    data[needed : needed + 2] = (99).to_bytes(2, "little")
    return data


def lying():
    data = bytearray(zip_bytes([("liar", bytes(100_000))]))
    for at in (22, data.index(b"PK\x01\x02") + 24):
        data[at : at + 4] = struct.pack("<I", 10)
    return data


def sparse():
    member = tarfile.TarInfo("holes")
    member.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.size": str(10**12), "GNU.sparse.map": "0,0"}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member)
    return buffer.getvalue()


def negative(kind):
    header = tarfile.TarInfo("back")
    header.type = kind
    data = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    data[124:136] = b"\xff" + (256**11 - 512).to_bytes(11, "big")
    data[148:156] = b"%06o\0 " % tarfile.calc_chksums(data)[0]
    return data + bytes(10240)


NEGATIVE = "has this name twice|cut off or altered"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.tar", tar_bytes([("a\udcff", b"1")]), "not a name inside the folder"),
        ("a.zip", link_of_zip(), "odd: a link or device"),
        ("a.zip", encrypted(), "secret: encrypted"),
        ("a.zip", later_version(), r"cut off or altered \(zip file version 9\.9\)"),
        ("a.zip", zip_bytes([("a", b"1" * 999)], zipfile.ZIP_BZIP2), "a: compressed in a way other than deflate"),
        ("a.zip", zip_bytes([("a", b"1" * 999)], zipfile.ZIP_LZMA), "a: compressed in a way other than deflate"),
        ("a.zip", lying(), "liar: cut off or altered"),
        ("a.tar", sparse(), "unpacks to more than|cut off or altered"),
        ("a.tar", tar_bytes([(tarfile.TarInfo("a" * 20_000), b"")]), "a header of"),
        *(("a.tar", negative(kind), NEGATIVE) for kind in (tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME)),
        ("page.zip", b"<html>not found</html>", "its first member: cut off or altered"),
        ("text.gz", gzip.compress(b"0 1\n" * 1000, mtime=0), "its first member: cut off or altered"),
        ("gone.zip", None, "No such file"),
    ],
)
def test_unsupported_archives_are_refused(tmp_path, monkeypatch, name, data, message):
    monkeypatch.setattr(module, "MAX_HEADER", 2**14)
    if data is not None:
        (tmp_path / name).write_bytes(data)
    refuse(tmp_path / name, tmp_path / "out", message, limit=None if data is None else 10**6)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
@pytest.mark.parametrize("target", ["/etc/passwd", "good"])
def test_tar_links_and_devices_are_refused(tmp_path, kind, target):
    link = tarfile.TarInfo("odd")
    link.type, link.linkname = kind, target
    refuse(make(tmp_path, ".tar.gz", [("good", b"1"), (link, b"")]), tmp_path / "out", "odd: a link or device")


@pytest.mark.parametrize("suffix", [".zip", *PACK])
def test_size_limit_counts_all_members(tmp_path, suffix):
    path = make(tmp_path, suffix, [("a", bytes(600)), ("b", bytes(400)), ("c", b"")])
    assert list(unpack(path, tmp_path / "fits", limit=1000)) == ["a", "b", "c"]
    refuse(path, tmp_path / "out", "b: the archive unpacks to more than 999 bytes", limit=999)


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz", ".tar.bz2", ".tar.xz"])
def test_decompression_bomb_is_refused_by_default(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(module, "MIN_LIMIT", 2**20)
    path = make(tmp_path, suffix, [("bomb", bytes(2**25))])
    assert path.stat().st_size < 2**25 // 200
    refuse(path, tmp_path / "out", "bomb: the archive unpacks to more than")


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
def test_too_many_members_are_refused(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(module, "MAX_MEMBERS", 3)
    entries = [(f"f{i}", b"") for i in range(4)]
    assert len(unpack(make(tmp_path, suffix, entries[:3]), tmp_path / "fits")) == 3
    refuse(make(tmp_path, suffix, entries), tmp_path / "out", "f3: the archive has more than 3 members")


@pytest.mark.parametrize("suffix", [".zip", *PACK])
def test_truncated_archive_is_refused(tmp_path, suffix):
    rng = random.Random(0)
    entries = [(f"f{i}", rng.randbytes(700)) for i in range(5)]
    data = make(tmp_path, suffix, entries).read_bytes()
    # Behind the members of a plain tar archive come only zeros, of which the first 512 are needed.
    need = 5 * (512 + 1024) + 512 if suffix == ".tar" else len(data)
    path = tmp_path / f"cut{suffix}"
    for length in {0, 1, 5, 511, 512, 1536, need - 1, *(rng.randrange(need) for _ in range(15))}:
        path.write_bytes(data[:length])
        refuse(path, tmp_path / "out", "cut off or altered")


@pytest.mark.parametrize("suffix", [".zip", *PACK])
def test_altered_byte_is_detected_or_harmless(tmp_path, suffix):
    rng = random.Random(1)
    entries = {f"f{i}": rng.randbytes(300) for i in range(4)}
    data = make(tmp_path, suffix, entries.items()).read_bytes()
    path = tmp_path / f"altered{suffix}"
    for number in range(50):
        at = rng.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ rng.randrange(1, 256)]) + data[at + 1 :])
        out = tmp_path / f"out{number}"
        try:
            unpack(path, out)
        except InputError:
            assert not out.exists()
        else:  # a plain tar archive has no checksum of contents: sha256 is for that
            assert suffix == ".tar" or set(files_of(out).values()) <= set(entries.values())


@pytest.mark.parametrize(
    ("name", "found"), [("a/b", "a/b"), ("./a//b/", "a/b"), ("a..b", "a..b"), ("é", "é"), ("", None), (".", None)]
)
def test_relative_member_names_are_normalized(name, found):
    assert relative_name(name) == found
