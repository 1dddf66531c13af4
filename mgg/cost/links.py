"""The links of a machine: times of memory, peers and networks, measured in the job or given (docs/concepts/costs.md).

A link moves ``rows`` of ``width`` bytes in ``calls`` requests in

    calls latency + rows (message + width / bandwidth)

seconds, LogGP's linear model of messages (Alexandrov et al., SPAA'95). Measurements run on all PEs at once, because
products use the links in that way.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from mgg.backend import World
from mgg.config import MAX_PES, LinkConfig
from mgg.errors import InputError
from mgg.network import Network
from mgg.schema import Fixed, nearest

#: Bytes of a bandwidth measurement: larger than the caches, and small enough for a fraction of a second.
GPU_BYTES, CPU_BYTES = 256 * 2**20, 16 * 2**20
#: Link classes of a PE's own memory, on GPUs and on hosts.
MEMORY = ("hbm", "ram")
MEASURED = "measured"
#: Columns of gathered rows: 64, 256 and 512 bytes.
WIDTHS = (16, 64, 128)
#: Timings of each probe. If a PE works alone, the smallest counts, because other work on the machine can only add to
#: it; if PEs wait for each other, the median counts, because waits are part of it.
REPEATS = 9
#: Most rounds of a probe whose bandwidth is impossible because other work disturbed it, and rounds of barriers, of
#: which the fastest counts.
ROUNDS = 4
#: If the second fastest round took this many times as long as the fastest, either of them may be the outlier.
APART = 10


class Link(Fixed):
    """One class of links.

    Attributes:
        latency: seconds per request.
        bandwidth: bytes per second and PE, with all PEs at once.
        message: seconds per row in addition to its bytes.
        source: origin of the values: ``measured``, ``given``, or a reference.
    """

    latency: float = Field(ge=0, allow_inf_nan=False)
    bandwidth: float = Field(gt=0, allow_inf_nan=False)
    message: float = Field(0.0, ge=0, allow_inf_nan=False)
    source: str = MEASURED

    def seconds(self, rows: Any, width: float, calls: Any = 1) -> Any:
        """Return seconds for ``rows`` of ``width`` bytes in ``calls`` requests; numbers or arrays."""
        return calls * self.latency + rows * (self.message + width / self.bandwidth)


class Links(Fixed):
    """The links between the PEs of a job.

    Attributes:
        links: links by class, of ``LINK_CLASSES``.
        rows: class of the link over which PEs of one workgroup fetch rows; they move blocks by the classes
            ``broadcast`` and ``shift``.
        network: class of the link between workgroups.
        ports: network ports of a workgroup, which its PEs share.
        barrier: seconds of a barrier of two PEs; one of G PEs takes log2 G times as long.
        barrier_again: the same in the second fastest round of the measurement; 0: there was none.
        far_barrier: the same for two workgroups. The default, 5 messages of table 4 of CoLa, is an assumption.
    """

    links: dict[str, Link]
    rows: str
    network: str
    ports: int = Field(8, ge=1)
    barrier: float = Field(ge=0, allow_inf_nan=False)
    barrier_again: float = Field(0.0, ge=0, allow_inf_nan=False)
    far_barrier: float = Field(1e-5, ge=0, allow_inf_nan=False)

    def __getitem__(self, name: str) -> Link:
        return self.links[name]

    def beyond(self) -> list[str]:
        """Return the classes with a measured bandwidth beyond the memory that they end in, which is impossible."""
        memory = next((self.links[name].bandwidth for name in MEMORY if name in self.links), np.inf)
        return [name for name, link in self.links.items() if link.source == MEASURED and link.bandwidth > memory]

    def doubtful(self) -> bool:
        """Whether rounds of barriers differ too much to keep the fastest one for later jobs."""
        return self.barrier_again >= APART * self.barrier > 0

    def over(self, network: Network) -> Links:
        """Return these links with an emulated ``network`` between workgroups, in which every PE has a port."""
        name = str(network)
        link = Link(latency=network.latency, bandwidth=network.bandwidth, source="emulated")
        far = {"network": name, "ports": MAX_PES, "far_barrier": network.latency}
        return self.model_copy(update={"links": self.links | {name: link}, **far})

    def changed(self, given: Mapping[str, LinkConfig], network: str | None = None) -> Links:
        """Return these links with fields of the classes in ``given`` replaced, and another ``network`` class.

        Raises:
            InputError: an unknown class, or a new one without latency and bandwidth.
        """
        links = dict(self.links)
        for name, values in given.items():
            fields = values.model_dump(exclude_none=True)
            if name not in links and not {"latency", "bandwidth"} <= set(fields):
                raise InputError(f"link {name}: this machine has none, so latency and bandwidth are both needed")
            links[name] = Link(**(links[name].model_dump() if name in links else {}) | fields | {"source": "given"})
        if network is not None and network not in links:
            if network not in GIVEN:
                raise InputError(f"link class {network!r}: unknown between workgroups; {nearest(network, GIVEN)}")
            links[network] = GIVEN[network]
        return self.model_copy(update={"links": links, "network": network or self.network})


_PORT = "line rate of a port (InfiniBand Trade Association roadmap, 4 lanes); latency and message: CoLa table 4"
#: Links that cannot be measured inside one host. The message of 1.95 us follows from CoLa's table 4: 8 MB in rows of
#: 128 bytes took 128.2 ms by fine-grained requests through NVSHMEM's proxy. The latency is the time of 0.25 MB there
#: without that of its bytes.
GIVEN: dict[str, Link] = {
    "infiniband-hdr": Link(latency=50e-6, bandwidth=25e9, message=1.95e-6, source=f"HDR, 200 Gbit/s: {_PORT}"),
    "infiniband-ndr": Link(latency=50e-6, bandwidth=50e9, message=1.95e-6, source=f"NDR, 400 Gbit/s: {_PORT}"),
    "pcie": Link(latency=10e-6, bandwidth=50e9, message=0, source="PCIe 5.0 x16, 80 % of the 63 GB/s of its encoding"),
}


def measure(world: World) -> Links:
    """Measure this job's links (collective); every PE gets the same values.

    Raises:
        MachineError: a GPU has too little free memory.
    """
    gpu = bool(world.gpu)
    probe = Probe(world, GPU_BYTES if gpu else CPU_BYTES)
    memory, cache = MEMORY[0 if gpu else 1], "cache"
    links = {memory: probe.copy()}
    most = links[memory].bandwidth  # received bytes are written to memory
    links[cache] = probe.rows(world.rank, most)
    rows, network = cache, "infiniband-ndr" if gpu else "mpi"
    near, far = partners(world, probe)
    if far is not None and not gpu:  # GPUs do not fetch from another host
        rows = "mpi"
        links[rows] = probe.rows(far, most)
    if near is not None:
        rows = "nvlink" if gpu else "shared_memory"
        links[rows] = probe.rows(near, most)
    if world.size > 1:
        links["broadcast"] = probe.blocks(world.broadcast, most)
        links["shift"] = probe.blocks(probe.shift, most)
    taken = links[rows].model_copy(update={"source": f"taken from {rows}, not measured"})
    for name in (network, "broadcast", "shift"):
        links.setdefault(name, GIVEN.get(name, taken))
    if gpu:
        links["pcie"] = GIVEN["pcie"]
    barrier, again = probe.barrier()
    made = Links(links=links, rows=rows, network=network, barrier=barrier, barrier_again=again)
    probe.close()
    return _agreed(world, made)


def _agreed(world: World, mine: Links) -> Links:
    """Return the slowest PE's value of each field, because a product ends with its slowest PE (collective)."""
    every = world.gather(mine)
    links = {
        name: Link(
            latency=max(each[name].latency for each in every),
            bandwidth=min(each[name].bandwidth for each in every),
            message=max(each[name].message for each in every),
            source=link.source,
        )
        for name, link in every[0].links.items()
    }
    barriers = {name: max(getattr(each, name) for each in every) for name in ("barrier", "barrier_again")}
    return every[0].model_copy(update={"links": links} | barriers)


def partners(world: World, probe: Probe) -> tuple[int | None, int | None]:
    """Return the next PE whose memory this one addresses, and the next whose memory it does not (collective).

    PEs agree on which of the two are None.
    """
    others = [(world.rank + step) % world.size for step in range(1, world.size)]
    near = [pe for pe in others if pe in probe.array.peers]
    far = [pe for pe in others if pe not in probe.array.peers]
    all_near, all_far = (all(world.gather(bool(found))) for found in (near, far))
    return (near[0] if all_near else None), (far[0] if far and (all_far or not all_near) else None)


class Probe:
    """Buffers and timers for measuring links (collective)."""

    def __init__(self, world: World, size: int) -> None:
        self._world = world
        self._elements = size // 4
        self.array = world.symmetric(self._elements, world.addressable)
        self.out = world.xp.empty(self._elements, np.float32)

    def close(self) -> None:
        """Free the array (collective)."""
        self._world.free(self.array)

    def typical(self, action: Callable[[], object]) -> float:
        """Return the median seconds of ``action``, in which PEs wait for each other (collective)."""
        return statistics.median(self._taken(action))

    def least(self, action: Callable[[], object]) -> float:
        """Return the smallest seconds of ``action`` on all PEs at once (collective)."""
        return min(self._taken(action))

    def _taken(self, action: Callable[[], object]) -> list[float]:
        clock = self._world.clock()
        taken = []
        action()
        for _ in range(REPEATS):
            self._world.barrier()
            clock.start()
            action()
            taken.append(clock.stop())
        return taken

    def copy(self) -> Link:
        """Measure a copy inside the PE's memory, counting bytes read and written."""
        source, out, few = self.array.local, self.out, 256

        def move(count: int) -> None:
            out[:count] = source[:count]

        return self._by_size(lambda: (self.least(lambda: move(few)), self.least(lambda: move(self._elements))),
                             8 * self._elements, np.inf)  # fmt: skip

    def rows(self, pe: int, most: float) -> Link:
        """Measure random rows of ``pe`` at several widths; the bandwidth is at most ``most`` bytes per second."""
        slowest, seconds = 1 / most, np.inf
        for _ in range(ROUNDS):
            terms, again = self._times_of_rows(pe)
            seconds = np.minimum(seconds, again)
            latency, message, inverse = fit(terms, seconds, (0.0, 0.0, slowest))
            # At the limit, wider rows took no longer than memory takes, or less: a disturbed measurement.
            if all(self._world.gather(inverse > slowest)):
                break
        return Link(latency=latency, message=message, bandwidth=min(most, 1 / inverse))

    def _times_of_rows(self, pe: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the factors of a link's terms [samples, 3], and the seconds [samples]."""
        world, generator = self._world, np.random.default_rng(world_seed(self._world))
        terms, seconds = [], []
        for dim in WIDTHS:
            height = self._elements // dim
            view, out = self.array.view(height, dim), self.out.reshape(-1)[: height * dim].reshape(height, dim)
            for count in (1, height // 8, height):
                chosen = world.upload(generator.integers(0, height, count).astype(np.int32))
                seconds.append(self.least(lambda: world.get_rows(view, pe, chosen, out[:count])))  # noqa: B023
                terms.append([1.0, float(count), float(4 * dim * count)])
        return np.array(terms), np.array(seconds)

    def blocks(self, move: Callable[[Any, int], object], most: float) -> Link:
        """Measure blocks by a collective, one per root; the bandwidth is at most ``most`` bytes per second."""
        world, few, many = self._world, 256, self._elements // 4

        def turns(count: int) -> None:
            for root in range(world.size):
                move(self.out[:count], root)

        def timed() -> tuple[float, float]:
            small, large = (self.typical(lambda: turns(count)) / world.size for count in (few, many))  # noqa: B023
            return small, large

        return self._by_size(timed, 4 * (many - few), most)

    def _by_size(self, timed: Callable[[], tuple[float, float]], size: int, most: float) -> Link:
        """Fit a link from the times of few bytes and of ``size`` more (collective).

        If the two times do not differ enough, the bandwidth follows from the larger one alone.
        """
        small = large = np.inf
        for _ in range(ROUNDS):
            small, large = map(min, (small, large), timed())
            measurable = 2 * small < large and size <= most * (large - small)
            if all(self._world.gather(measurable)):
                break
        return Link(latency=small, bandwidth=min(most, size / (large - small if measurable else large)))

    def shift(self, values: Any, _: int) -> None:
        """Send ``values`` to the next PE."""
        count = len(values)
        self._world.shift(values, self.array.local[:count], 1)

    def barrier(self) -> tuple[float, float]:
        """Return the seconds of a barrier of two PEs, from barriers of all, in the two fastest rounds."""
        if self._world.size == 1:
            return 0.0, 0.0
        rounds = sorted(self.typical(self._world.barrier) for _ in range(ROUNDS))
        first, second = (seconds / float(np.log2(self._world.size)) for seconds in rounds[:2])
        return first, second


def world_seed(world: World) -> int:
    """Return the PE's random seed; PEs draw different rows."""
    return 2026 + world.rank


def fit(terms: np.ndarray, seconds: np.ndarray, least: Sequence[float] | None = None) -> list[float]:
    """Fit coefficients of ``terms`` [samples, k] to ``seconds`` [samples], minimizing relative errors.

    Coefficients are at least ``least``, or 0 by default.
    """
    from scipy.optimize import nnls  # a top-level import would cost every rank of every job half a second

    base = np.zeros(terms.shape[1]) if least is None else np.array(least)
    found, _ = nnls(terms / seconds[:, None], 1 - terms @ base / seconds)
    return [float(value) for value in found + base]
