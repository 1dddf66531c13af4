import concurrent.futures.thread
import gc
import gzip
import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from text_helpers import PACK

from mgg.errors import InputError
from mgg.graph.io import text
from mgg.graph.io.endings import find_file
from mgg.graph.io.text import LineFormat, TextColumn, blocks, read_rows

PAIR = (TextColumn("source"), TextColumn("target"))
MESSY = b"# head\r\n\n1\t2\r\n  3   4  \n% note with 0x1f\n\t5 \t 6\n   \n+7 -8\n9 10"
CLEAN = [(1, 2), (3, 4), (5, 6), (7, -8), (9, 10)]


@pytest.fixture
def file(tmp_path):
    def write(content):
        (tmp_path / "file").write_bytes(content)
        return tmp_path / "file"

    return write


def rows(path, layout, skip=0):
    return [
        row for part in read_rows(path, layout, skip) for row in zip(*(c.tolist() for c in part.columns), strict=True)
    ]


@pytest.mark.parametrize("suffix", PACK)
def test_blocks_cover_the_file_under_any_compression(file, monkeypatch, suffix):
    content = b"".join(b"%d line\n" % i for i in range(500)) + b"last"
    path = file(PACK[suffix](content))
    for size in (1, 3, 64, 4096, 10**6):
        monkeypatch.setattr(text, "BLOCK", size)
        found = list(blocks(path))
        assert b"".join(block.data for block in found) == content
        assert all(block.data.endswith(b"\n") for block in found[:-1])
        assert [block.first for block in found] == [
            1 + content[: len(content) - sum(len(b.data) for b in found[i:])].count(b"\n") for i in range(len(found))
        ]
        assert (len(found) > 2) == (size < 10**6)


@pytest.mark.parametrize("size", range(1, len(MESSY) + 2))
def test_messy_lines_may_be_cut_by_blocks(file, monkeypatch, size):
    monkeypatch.setattr(text, "BLOCK", size)
    path = file(MESSY)
    assert rows(path, LineFormat(PAIR)) == CLEAN
    found = [
        (part.line(row), int(part.columns[0][row]))
        for part in read_rows(path, LineFormat(PAIR))
        for row in range(part.count)
    ]
    assert found == [(3, 1), (4, 3), (6, 5), (8, 7), (9, 9)]


@pytest.mark.parametrize("size", [1, 7, 10**6])
def test_comma_separated_fields_are_read(file, monkeypatch, size):
    monkeypatch.setattr(text, "BLOCK", size)
    layout = LineFormat(
        (TextColumn("id"), TextColumn("x", "float64", empty=True), TextColumn("", "skip"), TextColumn("y", "float32")),
        ",",
    )
    found = rows_of_numbers = []
    for part in read_rows(file(b"1,0.5,what,2\r\n\r\n 2 , ,,-1e3 \n#3,,,\n4,nan,\xff,+.5"), layout):
        assert part.columns[2] is None
        assert [part.columns[i].dtype for i in (0, 1, 3)] == [np.int64, np.float64, np.float32]
        found += zip(*(part.columns[i].tolist() for i in (0, 1, 3)), strict=True)
    assert str(rows_of_numbers) == "[(1, 0.5, 2.0), (2, nan, -1000.0), (4, nan, 0.5)]"


def test_numbers_match_numpy(file, monkeypatch):
    rng = np.random.default_rng(1)
    whole, real = (
        rng.integers(-(2**63), 2**63 - 1, (3000, 2)),
        rng.standard_normal(3000) * 10.0 ** rng.integers(-30, 30, 3000),
    )
    path = file("".join(f"{a}\t{b}  {x!r}\n" for (a, b), x in zip(whole.tolist(), real.tolist(), strict=True)).encode())
    monkeypatch.setattr(text, "BLOCK", 1000)
    parts = list(read_rows(path, LineFormat((*PAIR, TextColumn("x", "float64")))))
    assert len(parts) > 100
    assert np.array_equal(np.concatenate([np.stack(part.columns[:2], 1) for part in parts]), whole)
    assert np.array_equal(np.concatenate([part.columns[2] for part in parts]), np.loadtxt(path, usecols=2))


@pytest.mark.parametrize("content", [b"", b"\n\n", b" \r\n\t", b"# only\n% comments", b"\xef\xbb\xbf"])
def test_files_without_numbers_have_no_rows(file, content):
    assert rows(file(content), LineFormat(PAIR)) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"1 x", "target is 'x', not a whole number"),
        (b"1.0 2", "source is '1.0', not a whole number"),
        (b"0x10 2", "source is '0x10', not a whole number"),
        (b"1 1_0", "target is '1_0', not a whole number"),
        (b"- 1", "source is '-', not a whole number"),
        (b"1 9223372036854775808", "target is '9223372036854775808', beyond 2^63"),
        (b"-9223372036854775809 0", "beyond 2^63"),
        (b"1 " + b"0" * 5000 + b"x", r"target is '0{37}\.\.\.', not a whole number"),
        (b"x " + b"0" * 5000 + b"1", "source is 'x'"),
        (b"0" * 5000 + b"1 x", "target is 'x'"),
        (b"1 " + b"9" * 5000, r"target is '9{37}\.\.\.', beyond 2\^63"),
        (b"1", r"1 fields, expected 2 \(source, target\)"),
        (b"1 2 3", "3 fields, expected 2"),
        (b"1 2\r3 4", "4 fields, expected 2"),
        (b"1 2 # why", "4 fields"),
        (b"1,2", "1 fields"),
        (b"\xff\xfe 1", r"source is '\\ufffd\\ufffd', not a whole number"),
        (b"1\x00 2", r"source is '1\\x00'"),
    ],
)
@pytest.mark.parametrize("size", [1, 30, 10**6])
def test_first_bad_line_is_named(file, monkeypatch, size, line, problem):
    monkeypatch.setattr(text, "BLOCK", size)
    path = file(b"# c\n\n" + b"1 2\n" * 20 + line + b"\n3 4\nworse\n")
    with pytest.raises(InputError, match=problem if "\\" in problem else None) as caught:
        rows(path, LineFormat(PAIR))
    assert str(caught.value).startswith(f"{path}: line 23: ")
    assert "\\" in problem or problem.replace("^", "") in str(caught.value).replace("^", "")
    assert "\n" not in str(caught.value)


def test_only_optional_fields_may_be_empty(file):
    layout = LineFormat((TextColumn("id"), TextColumn("weight", "float64", empty=True)), ",")
    with pytest.raises(InputError, match="line 2: id is '', not a whole number"):
        rows(file(b"1,\n,2\n"), layout)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_truncated_file_reports_what_was_read(file, monkeypatch, suffix):
    monkeypatch.setattr(text, "BLOCK", 5000)
    rng = np.random.default_rng(0)
    content = "".join(f"{a} {b}\n" for a, b in rng.integers(0, 10**6, (20_000, 2)).tolist()).encode()
    packed = PACK[suffix](content)
    for keep in (len(packed) - 3, len(packed) // 2, 20):
        seen = 0
        with pytest.raises(
            InputError, match=r"cut off or corrupt .* data after \d+ bytes of text \(\d+ lines\)"
        ) as caught:
            for part in read_rows(file(packed[:keep]), LineFormat(PAIR)):
                seen += part.count
        place = int(str(caught.value).split(" bytes")[0].split()[-1]), int(str(caught.value).split("(")[1].split()[0])
        assert place[1] == seen == content[: place[0]].count(b"\n")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("before", [0, 1, 1000, 300_000])
def test_endless_line_is_refused(file, before):
    path = file(gzip.compress(b"1 2\n" * before + b" " * 1_100_000 + b"\n" + b"3 4\n" * 10))
    with pytest.raises(InputError, match=f"line {before + 1} is longer than 1048576 bytes"):
        rows(path, LineFormat(PAIR))


def test_long_line_within_the_limit_is_read(file):
    assert rows(file(b"1 2\n" * 9 + b"#" * 1_048_575 + b"\n5 " + b" " * 1_000_000 + b"6"), LineFormat(PAIR)) == [
        (1, 2)
    ] * 9 + [(5, 6)]


def test_unreadable_files_are_refused(tmp_path):
    for path, problem in ((tmp_path / "none", "No such file"), (tmp_path, "directory")):
        with pytest.raises(InputError, match=f"cannot be read: .*{problem}"):
            list(blocks(path))


def test_folder_with_one_file_is_read(tmp_path):
    (tmp_path / "source.yaml").touch()
    (tmp_path / "a.TXT").touch()
    assert find_file(tmp_path, (".txt", ".edges")) == tmp_path / "a.TXT"
    assert find_file(tmp_path / "b", (".txt",)) == tmp_path / "b"
    (tmp_path / "c.edges").touch()
    for suffixes, count in (((".txt", ".edges"), 2), ((".csv",), 0)):
        with pytest.raises(InputError, match=rf"{count} files end in \{suffixes[0]}"):
            find_file(tmp_path, suffixes)


def test_abandoned_stream_leaves_no_thread(file, monkeypatch):
    monkeypatch.setattr(text, "BLOCK", 4)
    before = threading.active_count()
    parts = read_rows(file(b"1 2\n" * 1000), LineFormat(PAIR))
    assert next(parts).count == 1
    parts.close()
    for _ in range(500):  # nobody waits for them: they end by themselves
        if threading.active_count() == before:
            break
        time.sleep(0.01)
    assert threading.active_count() == before


def test_stream_may_be_collected_in_any_thread(file, monkeypatch):
    monkeypatch.setattr(text, "BLOCK", 4)
    names = file(b"1 2\n" * 1000)

    def give_up():
        cycle = [read_rows(names, LineFormat(PAIR))]
        cycle.append(cycle)
        next(cycle[0])

    for _ in range(20):
        give_up()
    collector = threading.Thread(target=gc.collect)
    with concurrent.futures.thread._global_shutdown_lock:
        collector.start()
        collector.join(20)
    assert not collector.is_alive()


BOMBS = {"one line": b"0", "blank lines": b"\n", "spaces": b"  7  8  \n"}


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS)
def test_gzip_bomb_needs_little_memory(tmp_path, bomb):
    """256 MiB of text in a few hundred KiB; the process may only have 150 MiB more than its imports take."""
    unit = BOMBS[bomb] * (2**20 // len(BOMBS[bomb]))
    with gzip.open(tmp_path / "bomb.gz", "wb", compresslevel=1) as packed:
        for _ in range(64 if bomb == "spaces" else 256):
            packed.write(unit)
    script = """
        import resource, sys
        from pathlib import Path
        from mgg.errors import InputError
        from mgg.graph.io.text import LineFormat, TextColumn, read_rows
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            for part in read_rows(Path(sys.argv[1]), LineFormat((TextColumn("source"), TextColumn("target")))):
                pass
        except InputError as error:
            print(error)
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "bomb.gz")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    *errors, grown = done.stdout.splitlines()
    assert float(grown) < 150
    assert bool(errors) == (bomb == "one line")


@pytest.mark.parametrize("comment", ["#1,2", " #1,2", "\t#1,2", "#,\r", "%1,2"])
@pytest.mark.parametrize("kind", ["skip", "text"])
def test_comments_are_skipped_for_any_columns(file, kind, comment):
    """Where the first column is not parsed as a number, a comment has the form of a row."""
    layout = LineFormat((TextColumn("name", kind), TextColumn("id")), ",")
    (part,) = read_rows(file(f"a,1\n{comment}\nb#,3\n".encode()), layout)
    tab = comment.startswith("\t")  # which a comma does not set apart from the field
    assert part.columns[1].tolist() == ([1, 2, 3] if tab else [1, 3])
    assert part.line(1 + tab) == 3


@pytest.mark.parametrize(
    ("number", "problem"),
    [("1" * 400_000 + "x", "longer than 4096 characters"), ("1" * 4000 + "x", "not a number")],
)
def test_long_numbers_are_refused_at_once(file, number, problem):
    """In a process that can be stopped: a pattern with two ways to match a digit would take hours."""
    path = file(f"1 {number}\n".encode())
    code = """
        import sys
        from pathlib import Path
        from mgg.graph.io.text import LineFormat, TextColumn, read_rows
        list(read_rows(Path(sys.argv[1]), LineFormat((TextColumn("id"), TextColumn("weight", "float64")))))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert f"line 1: weight is '{'1' * 37}...', {problem}" in done.stderr


@pytest.mark.parametrize("digits", range(1, 30, 4))
def test_numbers_in_every_form_are_read(digits):
    """Against float(), which takes the same forms and a few more."""
    for form in ("{}", "-{}", "{}.", ".{}", "{0}.{0}", "+{}e-{}", "{}E{}", "{}..", "{}e", "{}.e.", "e{}", "."):
        field = form.format("7" * digits, "1")
        try:
            float(field)
            expected = None
        except ValueError:
            expected = "not a number"
        assert text._not_number(field) == expected, field
