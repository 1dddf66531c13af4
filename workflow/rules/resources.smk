# A job's cluster requests: memory (MB on each host) and time (minutes), computed from the nodes, arcs and features of its data
# set and doubled after an attempt that lacked it. Memory is at least twice what was measured on CPU cores (products-like at
# scale 0.02 and 0.1, orkut-like at 0.05, 1 and 4 PEs); time is ample. A profile's values replace both and also double
# (site.smk).
import math

from mgg.backend.machine.slurm import time_limits
from mgg.errors import MachineError
from mgg.graph.size import expected_size

# Memory of the two Snakemakes around a cluster job plus an interpreter with MGG's libraries; and of an MPI rank, possibly with
# CUDA's libraries.
PROCESS_MB = 1500
RANK_MB = 2000
# Largest time of a job in minutes; less if its partition grants less.
LONGEST = 24 * 60


def size_of(wildcards):
    """Return nodes, arcs and features of a job's data set; None for a job without a graph."""
    if "dataset" not in wildcards.keys():
        return None
    return expected_size(wildcards.dataset, DATASETS[wildcards.dataset], SETTINGS.graph.scale)


def said_by_profile(name, rulename, wildcards):
    """Return a rule's resource from the profile; None if the profile does not set it."""
    resource = workflow.get_rule(rulename).resources.get(name)
    given = {"input": [], "attempt": 1, "threads": 1, "rulename": rulename, "async_run": workflow.async_run}
    return resource and resource.evaluate(wildcards, **given).value


def hosts_of(rulename, wildcards):
    """Return over how many cluster nodes the profile spreads a job; 1 if it does not say."""
    return said_by_profile("nodes", rulename, wildcards) or 1


@cache
def granted():
    """Return the largest minutes per partition; empty if Slurm is missing or does not answer."""
    if not (workflow.is_main_process and workflow.non_local_exec):
        return {}
    try:
        return time_limits()
    except MachineError:
        return {}


def longest(rulename, wildcards):
    """Return a job's largest minutes: asking for more than the partition grants would wait forever."""
    named = said_by_profile("slurm_partition", rulename, wildcards) or ""
    return min(LONGEST, max((granted().get(each, LONGEST) for each in str(named).split(",")), default=LONGEST))


def memory(need, ranks=False):
    """Resource function: MB for `need(size)` bytes plus the processes themselves, including one MPI rank per PE.

    Ranks and their needs are distributed over the job's hosts, which all get what the fullest needs.
    """

    def asked(wildcards, rulename):
        bytes_mb = need(size_of(wildcards)) / 1e6
        if ranks:
            pes = int(wildcards.pes)
            fullest = math.ceil(pes / hosts_of(rulename, wildcards))
            bytes_mb = (RANK_MB * pes + bytes_mb) * fullest / pes
        return PROCESS_MB + int(bytes_mb) << lacked("memory", rulename, wildcards)

    return asked


def budgeted(need=lambda size: 0):
    """Resource function: MB of a job that stays within graph.memory, or of `need(size)` bytes if that is more."""

    def asked(wildcards, rulename):
        least = max(GRAPH_MB, PROCESS_MB + int(need(size_of(wildcards)) / 1e6))
        return least << lacked("memory", rulename, wildcards)

    return asked


def minutes(need, least=10):
    """Resource function: minutes for `need(size)` of work."""

    def asked(wildcards, rulename):
        usual = least + math.ceil(need(size_of(wildcards)))
        return min(longest(rulename, wildcards), usual << lacked("time", rulename, wildcards))

    return asked


def sets_of_options(section, name):
    """Return how many sets of options a technique's variants have."""
    from mgg.aggregate import variants  # takes a second, so jobs without variants skip it

    return len(variants.expand(name, section.options.get(name, {}), section.variants[name]))


def products(section):
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


def generated(wildcards, rulename):
    """Return a generator's MB; for a streaming one, its budget."""
    need = budgeted() if streamed(wildcards.dataset) else memory(reordered)
    return need(wildcards, rulename)


def reordered(size):
    """Return the bytes of a graph that is renumbered or drawn in memory."""
    return 50 * size.arcs + 100 * size.nodes + 8 * size.nodes * size.features


def partitioned(size):
    """Return the bytes of a METIS partition, which has the graph in memory; other schemes stream its shards.

    V_cover needs the arcs between PEs, and once more those that leave one PE, with their counterparts.
    """
    arcs = 200 if SETTINGS.partition.scheme == "metis" else 80 if SETTINGS.partition.cover else 10
    return 50 * size.nodes + arcs * size.arcs


def multiplied(size):
    """Return the bytes of the layouts of all PEs, their embeddings and the float64 product, at the largest width."""
    return 60 * size.arcs + 200 * size.nodes * max([*SETTINGS.aggregate.dims, *SETTINGS.tune.dims])


def trained(size):
    """Return the bytes of the layouts of all PEs, features, activations and gradients; other sides store values of arcs."""
    return (2000 if SETTINGS.train.sides else 60) * size.arcs + 4000 * size.nodes + 24 * size.nodes * size.features


def table_rows():
    """Return the rows of all tables of stage lookup together."""
    from mgg.lookup.criteo_like import TABLES  # takes a second, so jobs of other stages skip it

    return sum(TABLES) * SETTINGS.lookup.scale


def looked_up(_):
    """Return the bytes of the tables, of the sides' buffers for a batch, and of the float64 sums."""
    lookup = SETTINGS.lookup
    return 8 * lookup.dim * table_rows() + 120 * lookup.dim * 26 * max(lookup.batches) + 104 * lookup.samples


MINUTES = {
    # Arcs of the source per minute; compressed text is the slowest.
    "graph": minutes(lambda size: size.arcs / 30e6, least=20),
    "generate": minutes(lambda size: size.arcs / 10e6),
    "order": minutes(lambda size: size.arcs / 20e6),
    "partition": minutes(lambda size: size.arcs / 20e6),
    "layout": minutes(lambda size: size.arcs / 10e6),
    # Arcs times columns per minute on CPU cores; GPUs need a small part of it, see profiles/dgx.
    "aggregate": minutes(lambda size: size.arcs * products(SETTINGS.aggregate) / 5e9, least=30),
    # On CPU cores the start of the search needs a call per arc; 16 settings, two directions, 12 products each.
    "tune": minutes(
        lambda size: size.arcs * (sum(SETTINGS.tune.dims) / 12e6 + len(SETTINGS.tune.dims) / 1e5), least=30
    ),
    # Table entries that a CPU core fills per minute.
    "lookup": minutes(lambda _: table_rows() * SETTINGS.lookup.dim * SETTINGS.lookup.launches / 3e9, least=30),
    "train": minutes(
        lambda size: (size.arcs * 200 + size.nodes * size.features * 50) * SETTINGS.train.epochs / 5e9, least=60
    ),
}
