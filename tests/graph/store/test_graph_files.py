import errno
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from graph_helpers import arrays, files_of
from support.ranks.syncs import note_syncs

from mgg.errors import InputError, MachineError
from mgg.files import Kind, check_output, remove_leftovers, replace_folder, write_file, write_text
from mgg.graph.manifest import KIND
from mgg.graph.store import Graph, write_graph

MARKER = KIND.marker


def write_marked(path):
    """A folder with its marker alone."""
    with replace_folder(path, KIND) as folder:
        write_file(folder / MARKER, b"x")


@pytest.mark.parametrize("write", [lambda path: write_text(path, "x"), write_marked])
def test_new_folders_are_synced_to_disk(write, tmp_path, monkeypatch):
    synced = note_syncs(monkeypatch)
    write(tmp_path / "a/b/c")
    assert {str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/a/b"} <= {*synced}
    assert str(tmp_path.parent) not in synced


def test_failure_leaves_the_old_folder(tmp_path):
    write_graph(tmp_path / "graph", **arrays())
    before = files_of(tmp_path)
    with pytest.raises(RuntimeError), replace_folder(tmp_path / "graph", KIND) as folder:
        write_file(folder / "offsets" / "x", b"half")
        raise RuntimeError
    assert files_of(tmp_path) == before


def test_full_disk_is_one_line(tmp_path):
    with pytest.raises(MachineError, match="No space left"), replace_folder(tmp_path / "graph", KIND):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_target_of_a_link_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    write_graph(tmp_path / "link", **arrays())
    assert (tmp_path / "link").is_symlink()
    assert Graph.open(tmp_path / "real").manifest.nodes == 40


def test_foreign_folders_and_files_are_never_replaced(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("too")
    before = files_of(tmp_path)
    for name in ("home", "file"):
        with pytest.raises(InputError, match=name):
            write_graph(tmp_path / name, **arrays())
    with pytest.raises(InputError, match="cannot be written"):
        write_graph(tmp_path / "file" / "graph", **arrays())
    assert files_of(tmp_path) == before


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, MachineError), (errno.EDQUOT, MachineError), (errno.EROFS, InputError)]
)
def test_full_disk_is_no_input_error(number, kind, tmp_path, monkeypatch):
    def refuse(path, *given, **options):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(kind, match=rf"^{tmp_path}/x: cannot be written: {os.strerror(number)}$"):
        check_output(tmp_path / "x", Kind("marker"))


KILLED = """
import os, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from graph_helpers import arrays
from mgg.graph import store
from mgg.graph.store import shards
shards.VERTICES_PER_PART, shards.ARCS_PER_PART = 7, 20
write, left = shards.write_part, [{after}]
def dying(*args, **options):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), 9)
    return write(*args, **options)
shards.write_part = dying
store.write_graph(Path({out!r}), **arrays(seed=1))
"""


@pytest.mark.parametrize("after", [0, 9])
@pytest.mark.parametrize("existing", [False, True])
def test_killed_writer_leaves_the_old_graph(tmp_path, after, existing):
    """The old graph stays as it was, and the next run clears away what the killed one left."""
    out = tmp_path / "graph"
    if existing:
        write_graph(out, **arrays())
    before = files_of(out)
    code = textwrap.dedent(KILLED).format(tests=str(Path(__file__).parents[1]), after=after, out=str(out))
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert files_of(out) == before
    assert out.exists() == existing
    assert len(list(tmp_path.glob(".graph.*.part"))) == 1
    write_graph(out, **arrays(seed=1))
    assert [p.name for p in tmp_path.iterdir()] == ["graph"]
    assert Graph.open(out).manifest.source == {"seed": 1}


def test_folders_of_live_and_remote_writers_are_kept(tmp_path):
    kept = {f".graph.{socket.gethostname()}.{os.getppid()}.part", ".graph.elsewhere.1.part", ".graph.notes"}
    for name in kept:
        (tmp_path / name).mkdir()
    write_graph(tmp_path / "graph", **arrays())
    assert {p.name for p in tmp_path.iterdir()} == {*kept, "graph"}


def test_leftovers_of_any_host_are_removed(tmp_path):
    """Those of live processes of this host stay, and what only looks alike."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    here = socket.gethostname()
    gone = [".a.other.1.part", ".b.node.example.org.22.old", f".c.{here}.{dead.pid}.part"]
    kept = [f".d.{here}.{os.getpid()}.part", "e.other.1.part", ".f.other.part"]
    for name in gone + kept:
        (tmp_path / "deep" / name / "inside").mkdir(parents=True)
    (tmp_path / ".g.jsonl.other.5.part").touch()
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == sorted(kept)
