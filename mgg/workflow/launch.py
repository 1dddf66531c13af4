"""Launch of a job's PEs: the backend determines the ranks and GPUs, the profile the launcher and the nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from snakemake.iocontainers import Wildcards
from snakemake.logging import logger
from snakemake.shell import shell

from mgg.backend.api import DEFAULT_TIMEOUT
from mgg.backend.choice import enough
from mgg.backend.job import shares_gpus
from mgg.backend.machine.slurm_job import ALLOCATION
from mgg.config import Config
from mgg.naming import place_name
from mgg.origin import this_host
from mgg.workflow import refuse

#: Seconds after the first rank's end at which srun ends the others, overriding the site's WaitTime (default: never).
#: Ranks end together; if one dies, the others report it within DEFAULT_TIMEOUT and some seconds, or ten epochs if those
#: take longer. The wait covers ranks that cannot, in MPI's own calls and above all its start. --kill-on-bad-exit would
#: act before these reports and before ranks that were also told to stop have ended.
SRUN_WAIT = int(DEFAULT_TIMEOUT) + 60


def ranks(backend: str) -> Callable[[Any], int]:
    """Resource function: the MPI ranks of a job."""
    return lambda wildcards: 1 if backend == "simulated" else int(wildcards.pes)


def mpiexec(backend: str) -> Callable[[Any], str]:
    """Resource function: this host's MPI launcher, none for a single rank. Cluster profiles have their own."""
    return lambda wildcards: "mpiexec" if ranks(backend)(wildcards) > 1 else ""


def prepare_environment(workflow: Any) -> None:
    """Set what a job's commands find, and how they end."""
    # Without an activated environment, use the mgg and mpiexec of snakemake's own.
    if shutil.which("mgg") is None:
        os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))
    # Kill the jobs of a killed snakemake, so that none of them writes at the same time as the next run's.
    if shutil.which("setpriv"):
        shell.prefix("set -euo pipefail; exec setpriv --pdeathsig KILL -- ")
    hand_on_allocation(workflow)


def hand_on_allocation(workflow: Any) -> None:
    """Keep the Slurm variables that mpiexec reads to start ranks on all nodes of its job.

    The plugin removes Slurm's variables from the Snakemake that runs a job's command. The Snakemake around it saves
    them under another name, and this function restores them.
    """
    for name in ALLOCATION:
        if workflow.is_main_process:
            # These belong to the Slurm job that the run was started in; its own jobs are others.
            os.environ.pop(f"MGG_{name}", None)
        elif name in os.environ:
            os.environ[f"MGG_{name}"] = os.environ[name]
        elif "SLURM_JOB_ID" in os.environ and f"MGG_{name}" in os.environ:
            os.environ[name] = os.environ[f"MGG_{name}"]


def refuse_broken_names(workflow: Any, results: str) -> None:
    """End a cluster run if a quote, backslash or line break in a name would break a script or run as a command.

    Snakemake puts names unescaped between single quotes in a job script: spaces, $ and ; are safe there. The schema
    restricts the names of data sets, models and so on.
    """
    names = [("the working folder", Path.cwd()), ("the workflow's folder", workflow.basedir), ("results", results)]
    names += [("--configfile", file) for file in workflow.overwrite_configfiles]
    names += [("--config", word) for word in workflow.config_settings.config_args or ()]
    for what, name in names if workflow.non_local_exec else ():
        if re.search(r"['\\]|[^\S ]", str(name)):
            refuse(f"{what}: {str(name)!r}: on a cluster this cannot have single quotes, backslashes or line breaks")


class JobLaunch:
    """How and where the jobs of rules with PEs start."""

    def __init__(self, workflow: Any):
        self.workflow = workflow
        #: Each rule's resource from the profile, or else from the rule itself.
        self.said: dict[str, Callable[..., Any]] = {}
        #: Per rule, functions of wildcards: where and on what a job runs, and over how many nodes.
        self.places: dict[str, Callable[[Any], str]] = {}
        self.nodes: dict[str, Callable[[Any], int]] = {}
        #: Per rule, a function of wildcards: the number of nodes with a job's GPUs; 1 for a job without GPUs.
        self.gpu_nodes: dict[str, Callable[[Any], int]] = {}

    def said_by_profile(self, name: str, rulename: str, wildcards: Any) -> Any:
        """Return a rule's resource from the profile; None if the profile does not set it."""
        resource = self.workflow.get_rule(rulename).resources.get(name)
        given = {"input": [], "attempt": 1, "threads": 1, "rulename": rulename, "async_run": self.workflow.async_run}
        return resource and resource.evaluate(wildcards, **given).value

    @cached_property
    def gpus_here(self) -> int:
        """Return how many GPUs of this host jobs can use; asked once, in a subprocess, if there is a driver."""
        if not self.workflow.is_main_process or shutil.which("nvidia-smi") is None:
            return 0
        doctor = subprocess.run(["mgg", "doctor", "--json"], capture_output=True, text=True, check=False)
        facts = json.loads(doctor.stdout) if doctor.returncode == 0 else {}
        usable = str(facts.get("backend nvshmem", "")).startswith("works")
        return sum(bool(re.fullmatch(r"GPU \d+", name)) for name in facts) if usable else 0

    def on_gpus(self, backend: str, pes: int) -> bool:
        """Return whether a local job runs on GPUs: `auto` uses them if there is one per PE, or if they are shared."""
        return backend == "nvshmem" or (backend == "auto" and enough(self.gpus_here, pes, shares_gpus()))

    def gpus(self, backend: str) -> Callable[..., int]:
        """Resource function: one GPU per PE, all if they are shared, or none. Cluster profiles set it."""

        def number(wildcards: Any) -> int:
            pes = int(wildcards.pes)
            if not self.on_gpus(backend, pes):
                return 0
            return min(pes, self.gpus_here) if shares_gpus() else pes

        return number

    def warn_of_mixed_devices(self, settings: Config) -> None:
        """Warn of jobs that `auto` leaves to CPU ranks although there are GPUs: their times are not comparable."""
        beyond = [pes for pes in settings.partition.pes if self.gpus_here and not self.on_gpus("auto", pes)]
        if settings.aggregate.backend == "auto" and beyond:
            logger.warning(
                f"partition.pes: on this host with {self.gpus_here} GPUs jobs of {', '.join(map(str, beyond))} PEs"
                " compute on CPU cores; the report does not compare them with those on GPUs"
            )

    def settle(self, rulename: str, backend: str) -> None:
        """Adapt a rule's requests for ranks to the backend, whatever the profile says."""
        resources = self.workflow.get_rule(rulename).resources
        set_by_profile = self.workflow.resource_settings.overwrite_resources.get(rulename, {})
        defaults = {"mpi": mpiexec(backend), "gpu": self.gpus(backend)}
        resources.update({name: default for name, default in defaults.items() if name not in set_by_profile})
        given = {name: resources.get(name) for name in ("mpi", "gpu", "gpu_model", "nodes", "slurm_extra")}
        if backend == "nvshmem" and not given["gpu"].is_evaluable() and given["gpu"].value == 0:
            refuse(f"{rulename}.backend: nvshmem needs GPUs, and the profile gives its jobs none (gpu: 0)")

        def said(name: str, wildcards: Any, attempt: int = 1) -> Any:
            rest = {"input": [], "threads": 1, "rulename": rulename, "async_run": self.workflow.async_run}
            return given[name].evaluate(wildcards, attempt=attempt, **rest).value

        def alone(wildcards: Any) -> bool:
            return ranks(backend)(wildcards) == 1

        def no_gpus(wildcards: Any) -> bool:
            return backend in ("simulated", "mpi") or not said("gpu", wildcards)

        def nodes(wildcards: Any) -> Any:
            return 1 if alone(wildcards) else said("nodes", wildcards)

        def slurm_extra(wildcards: Any, attempt: int) -> str:
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

        def place(wildcards: Any) -> str:
            """Return scheduler, devices and model, launcher, part of the cluster; of local jobs the kind of host."""
            # A profile may omit the launcher for one rank, which still counts as the same place.
            several = Wildcards(fromdict={**wildcards, "pes": str(max(2, int(wildcards.pes)))})
            program, *options = (said("mpi", several) or "").split() or [""]
            launched = "_".join([PurePath(program).name, *options]) if backend != "simulated" else ""
            devices = "cpus" if no_gpus(wildcards) else "gpus_shared" if shares_gpus() else "gpus"
            if "nodes" in resources:
                model = "" if no_gpus(wildcards) else (given["gpu_model"] and said("gpu_model", wildcards)) or ""
                site = [
                    self.said_by_profile(name, rulename, wildcards)
                    for name in ("slurm_partition", "clusters", "constraint")
                ]
                return place_name("slurm", devices, model, launched, *site)
            return place_name("local", "threads" if backend == "simulated" else devices, launched, this_host()[:6])

        self.said[rulename] = said
        self.places[rulename] = place
        self.nodes[rulename] = nodes if "nodes" in resources else lambda wildcards: 1
        # The Slurm plugin rejects MPI jobs with one task.
        resources.update(
            {
                "tasks": ranks(backend),
                "mpi": lambda wildcards: "" if alone(wildcards) else said("mpi", wildcards),
                "gpu": lambda wildcards: 0 if no_gpus(wildcards) else said("gpu", wildcards),
            }
        )
        if "gpu_model" in resources:
            resources.update(
                {"gpu_model": lambda wildcards: "" if no_gpus(wildcards) else said("gpu_model", wildcards)}
            )
        if "nodes" in resources:
            resources.update({"nodes": nodes, "slurm_extra": slurm_extra})
            self.gpu_nodes[rulename] = lambda wildcards: 1 if no_gpus(wildcards) else nodes(wildcards)

    def refuse_uneven_ranks(self) -> None:
        """Slurm gives every node of a job the same number of GPUs, so each needs the same number of ranks."""
        for job in self.workflow.dag.needrun_jobs():
            name = job.rule.name
            nodes = self.gpu_nodes[name](job.wildcards) if name in self.gpu_nodes else 1
            if nodes > 1 and int(job.wildcards.pes) % nodes:
                refuse(
                    f"{name}: {job.wildcards.pes} PEs do not divide evenly over the {nodes} nodes that the profile"
                    f" gives them, so no number of GPUs a node fits: take a multiple of {nodes} (partition.pes,"
                    f" train.pes), or change `nodes` of rule {name} in the profile"
                )

    def launcher(self, rulename: str) -> Callable[..., str]:
        """Parameter function: the launcher of the PEs, empty for one process on this host.

        srun also starts a single PE, because Slurm sends its messages (such as that time is over) to what srun started.
        Its options state everything, because srun hardly uses the job's own requests.
        """

        def command(wildcards: Any, resources: Any) -> str:
            starter = self.said[rulename]("mpi", wildcards)
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
