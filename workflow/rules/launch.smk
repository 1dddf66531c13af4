# Launch of a job's PEs: the rule's backend determines the number of ranks and GPUs, the profile the launcher and the number
# of nodes.
from pathlib import PurePath

from mgg.backend.api import DEFAULT_TIMEOUT
from mgg.backend.machine.slurm_job import ALLOCATION
from mgg.naming import place_name
from mgg.origin import this_host
from snakemake.iocontainers import Wildcards

# Seconds after the first rank's end at which srun ends the others, overriding the site's WaitTime (default: never). Ranks end
# together; if one dies, the others report it within DEFAULT_TIMEOUT and some seconds, or ten epochs if those take longer. The
# wait covers ranks that cannot, in MPI's own calls and above all its start. --kill-on-bad-exit would act before these reports
# and before ranks that were also told to stop have ended.
SRUN_WAIT = int(DEFAULT_TIMEOUT) + 60
# Each rule's resource from the profile, or else from the rule itself.
SITE = {}
# Per rule, functions of wildcards: where and on what a job runs, and over how many nodes.
PLACES = {}
NODES = {}
# Per rule, a function of wildcards: the number of nodes with a job's GPUs; 1 for a job without GPUs.
GPU_NODES = {}


def hand_on_allocation():
    """Keep the Slurm variables that mpiexec reads to start ranks on all nodes of its job.

    The plugin removes Slurm's variables from the Snakemake that runs a job's command. The Snakemake around it saves them
    under another name, and this function restores them.
    """
    for name in ALLOCATION:
        if workflow.is_main_process:
            # These belong to the Slurm job that the run was started in; its own jobs are others.
            os.environ.pop(f"MGG_{name}", None)
        elif name in os.environ:
            os.environ[f"MGG_{name}"] = os.environ[name]
        elif "SLURM_JOB_ID" in os.environ and f"MGG_{name}" in os.environ:
            os.environ[name] = os.environ[f"MGG_{name}"]


def settle(rulename, backend):
    """Adapt a rule's requests for ranks to the backend, whatever the profile says."""
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
            # By default Slurm fills the first node with ranks and distributes GPUs arbitrarily.
            words.append(f"--ntasks-per-node={-(-pes // count)}")
            if not no_gpus(wildcards):
                model = said("gpu_model", wildcards)
                words.append(f"--gpus-per-node={f'{model}:' if model else ''}{pes // count}")
        return " ".join(words)

    def place(wildcards):
        """Return scheduler, devices and their model, launcher, and part of the cluster; for local jobs the kind of host."""
        # A profile may omit the launcher for one rank, which still counts as the same place.
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
    # The Slurm plugin rejects MPI jobs with one task.
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
    """Slurm gives every node of a job the same number of GPUs, so each needs the same number of ranks."""
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
    """Parameter function: the launcher of the PEs, empty for one process on this host.

    srun also starts a single PE, because Slurm sends its messages (such as that time is over) to what srun started. Its
    options state everything, because srun hardly uses the job's own requests.
    """

    def command(wildcards, resources):
        starter = SITE[rulename]("mpi", wildcards)
        if not starter:
            return ""
        program, *options = starter.split(maxsplit=1)
        if PurePath(program).name != "srun":
            return f"{starter} -n {resources.tasks}"
        nodes = resources.get("nodes", 1)
        # These precede the profile's own options, because srun takes the last of two equal ones.
        words = [program, f"--wait={SRUN_WAIT}", *options, f"--nodes={nodes}", f"--ntasks={resources.tasks}"]
        if nodes > 1 and resources.tasks % nodes == 0:
            words.append(f"--ntasks-per-node={resources.tasks // nodes}")
        cores = resources.get("cpus_per_task")
        return " ".join([*words, *([f"--cpus-per-task={cores}"] if cores else [])])

    return command


hand_on_allocation()
