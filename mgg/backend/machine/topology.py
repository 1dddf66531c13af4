"""Finds the PEs joined by fast links: NVLink or PCIe of one socket (from nvidia-smi); host memory for CPU ranks."""

from __future__ import annotations

import platform
import re
import subprocess

from mgg.backend.api import World

#: Bus id -> bus id -> nvidia-smi's word for the link between the two GPUs.
Joined = dict[str, dict[str, str]]


def matrix() -> str:
    """Return the output of ``nvidia-smi topo -m``; empty if it cannot run."""
    return _nvidia_smi("topo", "-m")


def connections(printed: str) -> dict[int, list[str]]:
    """Return each GPU's row of that matrix: its links to all GPUs (X: itself; NV18: 18 NVLinks; others: PCIe)."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", printed)
    rows = [row.split() for row in plain.splitlines() if re.match(r"GPU\d+\s+(X|NV\d|SYS|NODE|PHB|PXB|PIX)", row)]
    return {int(row[0].removeprefix("GPU")): row[1 : len(rows) + 1] for row in rows}


def joined(printed: str, numbers: str) -> Joined:
    """Return the links between the GPUs of this host.

    Args:
        printed: the output of ``matrix``.
        numbers: lines ``number, bus id`` of the same GPUs, as nvidia-smi --query-gpu=index,pci.bus_id prints them.
    """
    buses = dict(line.split(", ", 1) for line in numbers.splitlines() if ", " in line)
    rows = connections(printed)
    names = [_short(buses.get(str(number), "")) for number in rows]
    return {name: dict(zip(names, words, strict=False)) for name, words in zip(names, rows.values(), strict=True)}


def domain(world: World) -> tuple[set[int], str]:
    """Return the PEs that fast links join with this PE (itself included), and the name of these links (collective).

    On a host with NVLink, they are the GPUs that NVLink joins; otherwise, the GPUs of one socket. If nvidia-smi does
    not report the links, they are all GPUs of the host. They never extend beyond a host, as no PE addresses memory
    there, nor beyond a workgroup if the network between workgroups is emulated.
    """
    if world.emulated is not None:
        return set(world.emulated.mates(world.rank, world.size)), "workgroups of the emulated network"
    members = world.gather((platform.node(), _short(world.gpu_bus)))
    node, mine = members[world.rank]
    host = [pe for pe, (other, _) in enumerate(members) if other == node]
    asks = bool(world.gpu) and world.rank == host[0]
    links = world.gather(
        joined(matrix(), _nvidia_smi("--query-gpu=index,pci.bus_id", "--format=csv,noheader")) if asks else {}
    )
    of_host, buses = links[host[0]], [members[pe][1] for pe in host]
    if not world.gpu:
        return set(host), "memory of one host"
    if any(one not in of_host or other not in of_host[one] for one in buses for other in buses):
        return set(host), "one host, of which nvidia-smi tells no links"
    nvlink = any(of_host[one][other].startswith("NV") for one in buses for other in buses)
    near = {pe for pe, bus in zip(host, buses, strict=True) if bus == mine or _fast(of_host[mine][bus], nvlink)}
    return near, "NVLink" if nvlink else "PCIe of one socket"


def _fast(words: str, nvlink: bool) -> bool:
    return words.startswith("NV") if nvlink else words != "SYS"


def _short(bus: str) -> str:
    """Return a bus id in lower case without leading zeros: the driver and nvidia-smi write bus ids differently."""
    return bus.lower().lstrip("0")


def _nvidia_smi(*words: str) -> str:
    """Return the output of nvidia-smi; empty if it cannot run."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *words], capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
