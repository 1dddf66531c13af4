"""MPI ranks as forks of a process with the imports done, which take most of a short test's time.

``mpiexec`` starts this file, without imports, as each rank. It hands its environment and files to the server, which
forks the actual rank, and ends with the exit code of that one. If that rank ends by ``_exit``, without MPI's knowledge,
and the others are killed, ``mpiexec`` may end with their 9: tests that check for another code start ranks as usual.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

#: Modules that the server imports. None of them starts MPI or reads the environment of a rank.
IMPORTS = (
    "mgg.aggregate",
    "mgg.layout",
    "mgg.train",
    "mgg.cli.group",
    "mgg.backend.simulated",
    "support.programs.spmm_program",
)
#: The same for the stand-ins of CuPy and nvshmem4py.
GPU_IMPORTS = (*IMPORTS, "blas", "launches", "mgg.backend.threads", "mgg.backend.gpu")
FAKE_GPU = Path(__file__).parents[1] / "fake_gpu"
#: The script that runs a program with the stand-ins.
FAKE = str(FAKE_GPU / "run.py")
#: Most bytes of a message to the server.
_LARGEST = 2**20


@cache
def _server(gpus: bool) -> tuple[Any, str]:
    """The server of this process, and its address; it ends when its standard input does, with this process."""
    import subprocess

    from support.ranks import changed_environment

    address = f"\0mgg-ranks-{os.getpid()}-{gpus}"
    paths = [str(FAKE_GPU)] * gpus
    environment = changed_environment({})
    environment["PYTHONPATH"] = os.pathsep.join([*paths, environment["PYTHONPATH"]])
    names = json.dumps(GPU_IMPORTS if gpus else IMPORTS)
    server = subprocess.Popen(
        [sys.executable, __file__, "serve", address[1:], names],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert server.stdout is not None and server.stdout.readline() == b"ready\n"
    return server, address


def ready(gpus: bool = True) -> list[str]:
    """The argument ``under`` of ``mpiexec``; ``gpus``: for ranks that run ``fake_gpu/run.py``."""
    return [sys.executable, "-S", "-E", __file__, "rank", _server(gpus)[1][1:]]


def _rank(address: str, arguments: list[str]) -> None:
    """Have the server run ``arguments`` with this process's files and environment."""
    handles = [0, 1, 2] + [int(os.environ["PMI_FD"])] * ("PMI_FD" in os.environ)
    message = json.dumps([arguments, str(Path.cwd()), dict(os.environ), handles]).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST)
        server.connect(f"\0{address}")
        server.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handles))])
        code = int(server.recv(16) or b"1")
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def _warm() -> None:
    """Load compiled functions; freeze objects, so that garbage collection in the ranks copies no pages of theirs."""
    import gc

    from mgg.backend import simulated, watchdog
    from support.programs import world_program

    watchdog._compiled()
    simulated.run(2, world_program.program)
    gc.collect()
    gc.freeze()


def _serve(address: str, names: list[str]) -> None:
    """Fork a rank for each client until standard input ends; kill a rank whose client has gone."""
    import importlib
    import selectors

    for name in names:
        importlib.import_module(name)
    _warm()
    selector = selectors.DefaultSelector()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"\0{address}")
    listener.listen(64)
    selector.register(listener, selectors.EVENT_READ, ("new", 0))
    selector.register(0, selectors.EVENT_READ, ("over", 0))
    ranks: dict[int, tuple[socket.socket, int]] = {}
    os.write(1, b"ready\n")
    while True:
        for key, _ in selector.select():
            what, pid = key.data
            if what == "over":
                os._exit(0)
            elif what == "new":
                client = listener.accept()[0]
                message, handles, *_ = socket.recv_fds(client, _LARGEST, 8)
                pid = os.fork()
                if pid == 0:
                    for other, process in ranks.values():
                        other.close()
                        os.close(process)
                    client.close()
                    listener.close()
                    selector.close()
                    return _run_in_child(*json.loads(message), handles)
                for handle in handles:
                    os.close(handle)
                ranks[pid] = client, os.pidfd_open(pid)
                selector.register(ranks[pid][1], selectors.EVENT_READ, ("ended", pid))
                selector.register(client, selectors.EVENT_READ, ("left", pid))
            elif what == "left" and pid in ranks:
                os.kill(pid, signal.SIGKILL)
                selector.unregister(key.fileobj)
            elif what == "ended":
                selector.unregister(key.fileobj)
                client, process = ranks.pop(pid)
                os.close(process)
                with suppress(KeyError):
                    selector.unregister(client)
                with suppress(OSError):  # it has been killed
                    client.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
                client.close()


def _run_in_child(
    arguments: list[str], folder: str, environment: dict[str, str], numbers: list[int], handles: list[int]
) -> None:
    """Run the rank, with the client's files under their original numbers."""
    import runpy

    for number, handle in zip(numbers, handles, strict=True):
        os.dup2(handle, number)
    for handle in {*handles} - {*numbers}:
        os.close(handle)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments if arguments[0] != "-m" else arguments[1:]
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
    elif arguments[0] == "-m":
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve(sys.argv[2], json.loads(sys.argv[3]))
    else:
        _rank(sys.argv[2], sys.argv[4:])  # argv[3] is the interpreter
