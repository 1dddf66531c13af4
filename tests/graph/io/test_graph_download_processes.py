"""Downloads that are killed, that share a file, or that cannot be written."""

import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from download_site import DATA, alone, cut, ranged

from mgg.errors import MachineError
from mgg.graph.io.download import fetch

CHILD = """
import sys, resource
from pathlib import Path
from mgg.errors import MggError
from mgg.graph.io.download import fetch
if len(sys.argv) > 3:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
try:
    fetch(sys.argv[1], Path(sys.argv[2]))
except MggError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def start(*arguments):
    return subprocess.Popen([sys.executable, "-c", CHILD, *map(str, arguments)], stdout=subprocess.PIPE, text=True)


def test_killed_download_is_resumed(site, path):
    site.script = [lambda site, handler: ranged(site, handler, step=1000)]
    child = start(site.url, path)
    part = Path(f"{path}.part")
    while not (part.exists() and part.stat().st_size > 20_000):
        assert child.poll() is None
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    kept = part.stat().st_size
    assert 20_000 < kept < len(DATA)
    assert not path.exists()
    site.sent = 0
    fetch(site.url, path)
    assert path.read_bytes() == DATA
    assert site.asked[-1] == ("/set/file.bin", f"bytes={kept}-")
    assert alone(path)


def test_full_disk_keeps_the_received_part(site, path):
    child = start(site.url, path, 100_000)
    said, _ = child.communicate()
    assert child.returncode == MachineError.exit_code, said
    assert re.search(r"file\.bin: cannot be written: ", said)
    assert Path(f"{path}.part").stat().st_size == 100_000
    assert not path.exists()
    fetch(site.url, path)
    assert site.asked[-1] == ("/set/file.bin", "bytes=100000-")
    assert path.read_bytes() == DATA


def test_processes_download_a_file_once(site, path):
    site.script = [lambda site, handler: ranged(site, handler, step=5000)]
    children = [start(site.url, path) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    for child in children:
        child.stdout.close()
    assert path.read_bytes() == DATA
    assert len(site.asked) == 1
    assert alone(path)


def test_threads_download_a_file_once(site, path):
    site.script = [lambda site, handler: ranged(site, handler, step=20_000), *([cut(5000)] * 3)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: fetch(site.url, path), range(8)))
    assert path.read_bytes() == DATA
    assert len(site.asked) == 1
    assert alone(path)


def test_unwritable_cache_is_refused(site, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(MachineError, match=r"cannot be written: (Not a directory|File exists)"):
        fetch(site.url, tmp_path / "file" / "file.bin")
