"""A job's cluster requests: memory (MB on each host) and time (minutes), doubled after an attempt that lacked it.

They are computed from the nodes, arcs and features of its data set. Memory is at least twice what was measured on CPU
cores (products-like at scale 0.02 and 0.1, orkut-like at 0.05, 1 and 4 PEs); time is ample. A profile's values replace
both and also double.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

from snakemake.resources import Resources

from mgg.backend.machine.slurm import time_limits
from mgg.config import AggregateConfig
from mgg.errors import MachineError
from mgg.graph.budget import parse_size
from mgg.graph.size import expected_size
from mgg.workflow.failures import Failures
from mgg.workflow.launch import JobLaunch
from mgg.workflow.plan import WorkflowPlan

#: Memory of the two Snakemakes around a cluster job plus an interpreter with MGG's libraries; and of an MPI rank,
#: possibly with CUDA's libraries.
PROCESS_MB = 1500
RANK_MB = 2000
#: Largest time of a job in minutes; less if its partition grants less.
LONGEST = 24 * 60


class ResourceRequests:
    """Resource functions of the rules."""

    def __init__(self, workflow: Any, plan: WorkflowPlan, launch: JobLaunch, failures: Failures):
        self.workflow, self.plan, self.launch, self.failures = workflow, plan, launch, failures
        settings = plan.settings
        #: Memory request of a job of stage graph: its budget plus overhead that the budget does not count.
        self.graph_mb = parse_size(settings.graph.memory) * 5 // 4 // 2**20
        self.minutes = {
            # Arcs of the source per minute; compressed text is the slowest.
            "graph": self.time(lambda size: size.arcs / 30e6, least=20),
            "generate": self.time(lambda size: size.arcs / 10e6),
            "order": self.time(lambda size: size.arcs / 20e6),
            "partition": self.time(lambda size: size.arcs / 20e6),
            "layout": self.time(lambda size: size.arcs / 10e6),
            # Arcs times columns per minute on CPU cores; GPUs need a small part of it, see profiles/dgx.
            "aggregate": self.time(lambda size: size.arcs * products(settings.aggregate) / 5e9, least=30),
            # On CPU cores the start of the search needs a call per arc; 16 settings, two directions, 12 products each.
            "tune": self.time(
                lambda size: size.arcs * (sum(settings.tune.dims) / 12e6 + len(settings.tune.dims) / 1e5), least=30
            ),
            # Table entries that a CPU core fills per minute.
            "lookup": self.time(
                lambda _: self.table_rows() * settings.lookup.dim * settings.lookup.launches / 3e9, least=30
            ),
            "train": self.time(
                lambda size: (size.arcs * 200 + size.nodes * size.features * 50) * settings.train.epochs / 5e9, least=60
            ),
        }

    def size_of(self, wildcards: Any) -> Any:
        """Return nodes, arcs and features of a job's data set; None for a job without a graph."""
        if "dataset" not in wildcards.keys():  # noqa: SIM118
            return None
        return expected_size(wildcards.dataset, self.plan.datasets[wildcards.dataset], self.plan.settings.graph.scale)

    def hosts_of(self, rulename: str, wildcards: Any) -> int:
        """Return over how many cluster nodes the profile spreads a job; 1 if it does not say."""
        return self.launch.said_by_profile("nodes", rulename, wildcards) or 1

    @cached_property
    def granted(self) -> dict[str, Any]:
        """Return the largest minutes per partition; empty if Slurm is missing or does not answer."""
        if not (self.workflow.is_main_process and self.workflow.non_local_exec):
            return {}
        try:
            return time_limits()
        except MachineError:
            return {}

    def longest(self, rulename: str, wildcards: Any) -> int:
        """Return a job's largest minutes: asking for more than the partition grants would wait forever."""
        named = self.launch.said_by_profile("slurm_partition", rulename, wildcards) or ""
        return min(LONGEST, max((self.granted.get(each, LONGEST) for each in str(named).split(",")), default=LONGEST))

    def memory(self, need: Callable[[Any], float], ranks: bool = False) -> Callable[..., int]:
        """Resource function: MB for `need(size)` bytes plus the processes themselves, including one MPI rank per PE.

        Ranks and their needs are distributed over the job's hosts, which all get what the fullest needs.
        """

        def asked(wildcards: Any, rulename: str) -> int:
            bytes_mb = need(self.size_of(wildcards)) / 1e6
            if ranks:
                pes = int(wildcards.pes)
                fullest = math.ceil(pes / self.hosts_of(rulename, wildcards))
                bytes_mb = (RANK_MB * pes + bytes_mb) * fullest / pes
            return PROCESS_MB + int(bytes_mb) << self.failures.lacked("memory", rulename, wildcards)

        return asked

    def budgeted(self, need: Callable[[Any], float] = lambda size: 0) -> Callable[..., int]:
        """Resource function: MB of a job that stays within graph.memory, or of `need(size)` bytes if that is more."""

        def asked(wildcards: Any, rulename: str) -> int:
            least = max(self.graph_mb, PROCESS_MB + int(need(self.size_of(wildcards)) / 1e6))
            return least << self.failures.lacked("memory", rulename, wildcards)

        return asked

    def time(self, need: Callable[[Any], float], least: int = 10) -> Callable[..., int]:
        """Resource function: minutes for `need(size)` of work."""

        def asked(wildcards: Any, rulename: str) -> int:
            usual = least + math.ceil(need(self.size_of(wildcards)))
            return min(self.longest(rulename, wildcards), usual << self.failures.lacked("time", rulename, wildcards))

        return asked

    def generated(self, wildcards: Any, rulename: str) -> int:
        """Return a generator's MB; for a streaming one, its budget."""
        need = self.budgeted() if self.plan.streamed(wildcards.dataset) else self.memory(reordered)
        return need(wildcards, rulename)

    def partitioned(self, size: Any) -> float:
        """Return the bytes of a METIS partition, which has the graph in memory; other schemes stream its shards.

        V_cover needs the arcs between PEs, and once more those that leave one PE, with their counterparts.
        """
        partition = self.plan.settings.partition
        return 50 * size.nodes + (200 if partition.scheme == "metis" else 80 if partition.cover else 10) * size.arcs

    def multiplied(self, size: Any) -> float:
        """Return the bytes of all layouts, their embeddings and the float64 product, at the largest width."""
        dims = [*self.plan.settings.aggregate.dims, *self.plan.settings.tune.dims]
        return 60 * size.arcs + 200 * size.nodes * max(dims)

    def trained(self, size: Any) -> float:
        """Return the bytes of all layouts, features, activations and gradients; other sides store values of arcs."""
        arcs = 2000 if self.plan.settings.train.sides else 60
        return arcs * size.arcs + 4000 * size.nodes + 24 * size.nodes * size.features

    def table_rows(self) -> float:
        """Return the rows of all tables of stage lookup together."""
        from mgg.lookup.criteo_like import TABLES  # takes a second, so jobs of other stages skip it

        return sum(TABLES) * self.plan.settings.lookup.scale

    def looked_up(self, _: Any) -> float:
        """Return the bytes of the tables, of the sides' buffers for a batch, and of the float64 sums."""
        lookup = self.plan.settings.lookup
        return 8 * lookup.dim * self.table_rows() + 120 * lookup.dim * 26 * max(lookup.batches) + 104 * lookup.samples

    def doubled(self, what: str, given: Any, most: Callable[..., float]) -> Callable[..., Any]:
        """Resource function: the profile's value, doubled after each attempt that lacked it, up to `most`."""

        def asked(wildcards: Any, input: Any, attempt: int, threads: int, rulename: str, async_run: Any) -> Any:
            first = given.evaluate(
                wildcards, input=input, attempt=attempt, threads=threads, rulename=rulename, async_run=async_run
            ).value
            lacking = self.failures.lacked(what, rulename, wildcards) if isinstance(first, int) else 0
            return max(first, min(most(rulename, wildcards), first << lacking)) if lacking else first

        return asked

    def double_what_the_profile_gives(self) -> None:
        """Double the profile's memory and time, except values that define their own growth by Snakemake's `attempt`."""
        settings = self.workflow.resource_settings
        most: dict[str, tuple[str, Callable[..., float]]]
        most = {"mem_mb": ("memory", lambda *job: math.inf), "runtime": ("time", self.longest)}
        for each in self.workflow.rules:
            given = Resources.from_mapping(settings.overwrite_resources.get(each.name, {}))
            for name in most.keys() & given.keys():
                if not re.search(r"\battempt\b", str(given[name].raw)):
                    what, largest = most[name]
                    each.resources.update({name: self.doubled(what, given[name], largest)})


def sets_of_options(section: AggregateConfig, name: str) -> int:
    """Return how many sets of options a technique's variants have."""
    from mgg.aggregate import variants  # takes a second, so jobs without variants skip it

    return len(variants.expand(name, section.options.get(name, {}), section.variants[name]))


def products(section: AggregateConfig) -> int:
    """Return the columns of all products of a job of stage aggregate, including the float64 reference products."""
    # `auto` also has one set of options: it picks one of the others.
    sets = sum(sets_of_options(section, name) if section.variants.get(name) else 1 for name in section.techniques)
    return (
        sum(section.dims)
        * sets
        * len(section.dtypes)
        * (
            section.launches * (section.warmup + section.iterations * (1 + section.breakdown))
            + section.iterations * section.faults
            + 4 * section.check
            + 4 * section.profile
        )
    )


def reordered(size: Any) -> float:
    """Return the bytes of a graph that is renumbered or drawn in memory."""
    return 50 * size.arcs + 100 * size.nodes + 8 * size.nodes * size.features
