"""A Slurm cluster on this machine: munge, slurmctld and two slurmd with stand-ins for GPUs, all in one folder.

``python tests/system/slurm/slurm_cluster.py`` starts one and stops it when its standard input ends, or at Ctrl-C: a
cluster ends with the process that holds the other end of that pipe, however that process ends. A line ``kill NODE``
there is a power cut, ``start NODE`` brings the node back; each is answered with ``done``, other lines with what could
be asked. Needs root.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

#: Where Slurm's programs look when SLURM_CONF is not set; Snakemake's plugin unsets it inside jobs.
SYSTEM_CONF = Path("/etc/slurm/slurm.conf")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel")
NODES = ("node1", "node2")
GPUS = 8
READY = "the cluster is up"
PREFIX = "mgg-slurm-"
#: Root's own folder: in one that all may write, somebody's link could lead root to another file.
LOCK = Path("/run/mgg-slurm.lock")

# Jobs of 8 tasks of 8 cores must fit wherever the tests run: cores, memory and GPUs are stated, not looked up. A job is
# in partition cpu or gpu where its profile says so, else in batch; sbatch refuses those in closed.
CONF = """\
ClusterName=mgg
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=pmi2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=20
SlurmctldTimeout=20
KillWait=5
MinJobAge=3600
FirstJobId={first}
PropagateResourceLimits=NONE
NodeName=DEFAULT CPUs=128 Boards=1 SocketsPerBoard=2 CoresPerSocket=64 ThreadsPerCore=1 RealMemory=2000000 \
Gres=gpu:h200:{gpus}
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]}
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]}
PartitionName=batch Nodes=ALL Default=YES MaxTime=1-00:00:00 DefaultTime=00:10:00 State=UP
PartitionName=cpu Nodes=ALL MaxTime=1-00:00:00 DefaultTime=00:10:00 State=UP
PartitionName=gpu Nodes=ALL MaxTime=1-00:00:00 DefaultTime=00:10:00 State=UP
PartitionName=closed Nodes=ALL MaxTime=1-00:00:00 DefaultTime=00:10:00 State=DRAIN
"""


class Cluster:
    """The daemons, in the order in which they start; ``stop`` ends them and everything that they started."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.daemons: list[subprocess.Popen] = []

    def start(self) -> None:
        """Returns when both nodes take jobs."""
        self._configure()
        munge = ("--socket", "munge.socket"), ("--pid-file", "munge.pid"), ("--log-file", "munge.log")
        files = [word for option, name in (*munge, ("--seed-file", "munge.seed")) for word in (option, self._at(name))]
        self._daemon("munged", "--foreground", "--force", "--key-file", self._at("munge.key"), *files)
        self._wait("munge does not answer", (self.folder / "munge.socket").exists)
        self._daemon("slurmctld", "-D", "-i")
        self._wait("slurmctld does not answer", lambda: "is UP" in self._ask("scontrol", "ping"))
        for node in NODES:
            self._daemon("slurmd", "-D", "-N", node)
        self._wait("the nodes do not come up", lambda: self._states() == ["idle"] * 2)

    def kill_node(self, node: str) -> None:
        """Kill its slurmd, and all that it has started, at once."""
        [daemon] = [each for each in self.daemons if each.args[-1] == node]
        self.daemons.remove(daemon)
        daemon.kill()
        daemon.wait()
        for pid in of_node(node):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node that was killed; returns when it takes jobs."""
        self._daemon("slurmd", "-D", "-N", node)
        self._wait(f"{node} does not come back", lambda: set(self._states()) <= {"idle", "mixed", "allocated"})

    def obey(self, words: list[str]) -> str:
        """Carry out an order; returns the answer."""
        alive = [node for node in NODES if any(daemon.args[-1] == node for daemon in self.daemons)]
        orders = {("kill" if node in alive else "start", node) for node in NODES}
        if tuple(words) not in orders:
            return f"no such order: {' '.join(words)}; now there are: {', '.join(map(' '.join, sorted(orders)))}"
        order, node = words
        (self.kill_node if order == "kill" else self.start_node)(node)
        return "done"

    def _states(self) -> list[str]:
        return self._ask("sinfo", "-hN", "-p", "cpu", "-o%T").split()

    def stop(self) -> None:
        """End jobs and daemons; nothing that they have started stays."""
        for state in ("PENDING", "RUNNING"):
            self._ask("scancel", "--state", state, "--user", "root")
        for daemon in reversed(self.daemons):
            daemon.terminate()
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(3)
        end_descendants()

    def _configure(self) -> None:
        ports = [free_port() for _ in range(1 + len(NODES))]
        host = socket.gethostname().split(".")[0]
        # MPICH names shared memory after job and step: a number that an earlier cluster gave would meet what a killed
        # job of that one left. Slurm's numbers end at 67 million.
        first = 1 + int(time.time()) % 60_000_000
        text = CONF.format(host=host, folder=self.folder, ports=ports, gpus=GPUS, first=first)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\nConstrainCores=no\n")
        # slurmd wants a device for each GPU; containers may not make any.
        for number in range(GPUS):
            (self.folder / f"gpu{number}").symlink_to("/dev/null")
        gres = f"NodeName=node[1-2] Name=gpu Type=h200 File={self.folder}/gpu[0-{GPUS - 1}]\n"
        (self.folder / "gres.conf").write_text(f"AutoDetect=off\n{gres}")
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir()
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o400)

    def _at(self, name: str) -> str:
        return str(self.folder / name)

    def _daemon(self, *command: str) -> None:
        name = "-".join(word for word in (command[0], *command[-1:]) if not word.startswith(("-", "/")))
        with (self.folder / f"{name}.out").open("wb") as log:
            # A supervisor that is killed takes its daemons along.
            tied = ("setpriv", "--pdeathsig", "KILL", "--", *command)
            daemon = subprocess.Popen(tied, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment())
        self.daemons.append(daemon)

    def _environment(self) -> dict[str, str]:
        return os.environ | {"SLURM_CONF": self._at("slurm.conf")}

    def _ask(self, *command: str) -> str:
        """What a command prints; nothing where it fails."""
        try:
            asked = subprocess.run(
                command, env=self._environment(), capture_output=True, text=True, timeout=20, check=False
            )
        except subprocess.TimeoutExpired:
            return ""
        return asked.stdout

    def _wait(self, complaint: str, ready: Callable[[], bool]) -> None:
        for _ in range(300):
            if ready():
                return
            if any(daemon.poll() is not None for daemon in self.daemons):
                break
            time.sleep(0.1)
        said = "".join(f"\n{log.name}: {log.read_text(errors='replace')[-2000:]}" for log in self.folder.glob("*.out"))
        raise RuntimeError(f"{complaint}{said}")


def of_node(node: str) -> list[int]:
    """The processes that jobs have on a node, and those of Slurm that look after them first."""
    tasks, shepherds = [], []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"SLURMD_NODENAME={node}".encode() in (process / "environ").read_bytes().split(b"\0"):
                tasks.append(int(process.name))
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                if Path(f"/proc/{parent}/comm").read_text() == "slurmstepd\n":
                    shepherds.append(parent)
    return shepherds + tasks


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def adopt_orphans() -> None:
    """Become the parent of descendants that lose theirs (slurmd's, which outlive it): PR_SET_CHILD_SUBREAPER."""
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)


def end_descendants() -> None:
    """Kill all descendants of this process; see adopt_orphans."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := [int(word) for word in children.read_text().split()]:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def claim_system_conf(folder: Path) -> None:
    """Let SYSTEM_CONF lead to this cluster's; one that is somebody's own, or of another live test, is left alone."""
    if SYSTEM_CONF.is_symlink() and PREFIX in str(SYSTEM_CONF.readlink()):
        SYSTEM_CONF.unlink()  # of a test that was killed: we hold the lock, so it is gone
    if SYSTEM_CONF.is_symlink() or SYSTEM_CONF.exists():
        raise RuntimeError(f"{SYSTEM_CONF}: this machine has a Slurm of its own; tests do not touch it")
    SYSTEM_CONF.parent.mkdir(parents=True, exist_ok=True)
    SYSTEM_CONF.symlink_to(folder / "slurm.conf")


def main() -> int:
    """One cluster, from its start to the end of standard input."""
    adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another test cluster runs on this machine", file=sys.stderr)
            return 1
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        cluster = Cluster(folder)
        try:
            claim_system_conf(folder)
            cluster.start()
            print(f"{READY}: {folder}", flush=True)
            for line in sys.stdin:
                print(cluster.obey(line.split()), flush=True)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            cluster.stop()
            if SYSTEM_CONF.is_symlink() and SYSTEM_CONF.readlink().parent == folder:
                SYSTEM_CONF.unlink()
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
