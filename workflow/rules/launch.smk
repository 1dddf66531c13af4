# What starts the PEs of a job: the rule's backend decides how many ranks and GPUs there are, the profile with what and over
# how many nodes.
from pathlib import PurePath

from mgg.backend.api import DEFAULT_TIMEOUT
from mgg.backend.machine.slurm_job import ALLOCATION
from mgg.naming import place_name
from mgg.origin import this_host
from snakemake.iocontainers import Wildcards

# Seconds after the end of a first rank at which srun ends the others, whatever the site's WaitTime: by default it never does.
# Ranks end together, and of one that died the others say so within DEFAULT_TIMEOUT and some seconds, or ten epochs if those
# take longer. This is for where they cannot: in MPI's own calls, its start above all. --kill-on-bad-exit would come before
# what they say, and before the others end that are told to stop as well.
SRUN_WAIT = int(DEFAULT_TIMEOUT) + 60
# By rule what the profile says of a resource, else the rule itself.
SITE = {}
# By rule where and on what a job runs, for its wildcards, and over how many nodes.
PLACES = {}
NODES = {}
# By rule the number of nodes that a job's GPUs are on, for its wildcards; 1 for a job without GPUs.
GPU_NODES = {}


def hand_on_allocation():
    """Keep what mpiexec reads of its Slurm job, to start ranks on all of its nodes.

    The plugin takes Slurm's variables away from the Snakemake that runs a job's command. The one around it sets these
    aside under another name, and they are taken back here.
    """
    for name in ALLOCATION:
        if workflow.is_main_process:
            # Of a run that is started within a Slurm job: its jobs are others.
            os.environ.pop(f"MGG_{name}", None)
        elif name in os.environ:
            os.environ[f"MGG_{name}"] = os.environ[name]
        elif "SLURM_JOB_ID" in os.environ and f"MGG_{name}" in os.environ:
            os.environ[name] = os.environ[f"MGG_{name}"]


def settle(rulename, backend):
    """Let the backend have its way with what a rule of ranks asks for, whatever stands in the profile."""
    resources = workflow.get_rule(rulename).resources
    given = {name: resources.get(name) for name in ("mpi", "gpu", "gpu_model", "nodes", "slurm_extra")}
    if backend == "nvshmem" and not given["gpu"].is_evaluable() and given["gpu"].value == 0:
        refuse(f"{rulename}.backend: nvshmem needs GPUs, and the profile gives its jobs none (gpu: 0)")

    def said(name, wildcards, attempt=1):
        rest = {"input": [], "threads": 1, "rulename": rulename, "async_run": workflow.async_run}
        return given[name].evaluate(wildcards, attempt=attempt, **rest).value

    def alone(wildcards):
        return ranks(backend)(wildcards) == 1

    def no_gpus(wildcards):
        return backend in ("simulated", "mpi") or not said("gpu", wildcards)

    def nodes(wildcards):
        return 1 if alone(wildcards) else said("nodes", wildcards)

    def slurm_extra(wildcards, attempt):
        words = re.sub(r"--ntasks-per-node=\S+", "", said("slurm_extra", wildcards, attempt) or "").split()
        count = nodes(wildcards)
        if count > 1:
            pes = int(wildcards.pes)
            # By itself Slurm fills the first node with ranks, and shares out GPUs as it likes.
            words.append(f"--ntasks-per-node={-(-pes // count)}")
            if not no_gpus(wildcards):
                model = said("gpu_model", wildcards)
                words.append(f"--gpus-per-node={f'{model}:' if model else ''}{pes // count}")
        return " ".join(words)

    def place(wildcards):
        """Scheduler, devices and their model, launcher, what of the cluster; of local jobs which kind of host this is."""
        # A profile may leave the launcher out for one rank, which is in the same place all the same.
        several = Wildcards(fromdict={**wildcards, "pes": str(max(2, int(wildcards.pes)))})
        program, *options = (said("mpi", several) or "").split() or [""]
        launched = "_".join([PurePath(program).name, *options]) if backend != "simulated" else ""
        devices = "cpus" if no_gpus(wildcards) else "gpus_shared" if shares_gpus() else "gpus"
        if "nodes" in resources:
            model = "" if no_gpus(wildcards) else (given["gpu_model"] and said("gpu_model", wildcards)) or ""
            site = [
                said_by_profile(name, rulename, wildcards) for name in ("slurm_partition", "clusters", "constraint")
            ]
            return place_name("slurm", devices, model, launched, *site)
        return place_name("local", "threads" if backend == "simulated" else devices, launched, this_host()[:6])

    SITE[rulename] = said
    PLACES[rulename] = place
    NODES[rulename] = nodes if "nodes" in resources else lambda wildcards: 1
    # The Slurm plugin refuses MPI jobs of one task.
    resources.update(
        {
            "tasks": ranks(backend),
            "mpi": lambda wildcards: "" if alone(wildcards) else said("mpi", wildcards),
            "gpu": lambda wildcards: 0 if no_gpus(wildcards) else said("gpu", wildcards),
        }
    )
    if "gpu_model" in resources:
        resources.update({"gpu_model": lambda wildcards: "" if no_gpus(wildcards) else said("gpu_model", wildcards)})
    if "nodes" in resources:
        resources.update({"nodes": nodes, "slurm_extra": slurm_extra})
        GPU_NODES[rulename] = lambda wildcards: 1 if no_gpus(wildcards) else nodes(wildcards)


def refuse_uneven_ranks():
    """Slurm gives all nodes of a job as many GPUs, so their ranks must be as many, too."""
    for job in workflow.dag.needrun_jobs():
        name = job.rule.name
        nodes = GPU_NODES[name](job.wildcards) if name in GPU_NODES else 1
        if nodes > 1 and int(job.wildcards.pes) % nodes:
            refuse(
                f"{name}: {job.wildcards.pes} PEs do not divide evenly over the {nodes} nodes that the profile gives them, so"
                f" no number of GPUs a node fits: take a multiple of {nodes} (partition.pes, train.pes), or change `nodes`"
                f" of rule {name} in the profile"
            )


def launcher(rulename):
    """Parameter function: what starts the PEs, nothing for one process on this host.

    srun starts a single one, too: what Slurm has to say (that the time is over) it says to what srun has started. It has
    to be told everything, because it hardly looks at what its job asked for.
    """

    def command(wildcards, resources):
        starter = SITE[rulename]("mpi", wildcards)
        if not starter:
            return ""
        program, *options = starter.split(maxsplit=1)
        if PurePath(program).name != "srun":
            return f"{starter} -n {resources.tasks}"
        nodes = resources.get("nodes", 1)
        # Before the profile's own options: of two that are the same srun takes the last.
        words = [program, f"--wait={SRUN_WAIT}", *options, f"--nodes={nodes}", f"--ntasks={resources.tasks}"]
        if nodes > 1 and resources.tasks % nodes == 0:
            words.append(f"--ntasks-per-node={resources.tasks // nodes}")
        cores = resources.get("cpus_per_task")
        return " ".join([*words, *([f"--cpus-per-task={cores}"] if cores else [])])

    return command


hand_on_allocation()
