"""Every use of what Snakemake and its Slurm plugin do not publish; each says why no public way exists.

They are looked at before they are used. If one is not what it is in the versions of constraints.txt, the run ends with
one line, because otherwise a promise of docs/guides/workflow.md would be broken unseen.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any

from snakemake.jobs import Job

from mgg.workflow import refuse

PLUGIN = "snakemake-executor-plugin-slurm"


def need(holds: bool, package: str, what: str) -> None:
    """End the run if an internal of an installed package is not as expected."""
    if not holds:
        refuse(
            f"{package} {version(package)}: {what} is not what this workflow knows: install the version of"
            " constraints.txt",
            3,
        )


def asks(caller: Any, name: str) -> bool:
    """Return whether a function's code uses a name."""
    return name in getattr(getattr(caller, "__code__", None), "co_names", ())


def limit_attempts(workflow: Any, attempts_left: Callable[[Any], int]) -> None:
    """Let ``attempts_left(job)`` decide how often Snakemake restarts a failed job.

    `retries` and --retries are one number per rule, known before anything has failed. An executor reports success or
    failure; it can neither end the attempts of one job nor restart it with other resources.
    """
    asked = asks(getattr(workflow.scheduler, "_handle_error", None), "restart_times")
    need(asked and isinstance(vars(Job).get("restart_times"), property), "snakemake", "Job.restart_times")
    Job.restart_times = property(attempts_left)


def plugin() -> Any:
    """Return the Slurm plugin's module."""
    return import_module(PLUGIN.replace("-", "_"))


def change_states(changed: Callable[[Any], Any]) -> None:
    """Replace the plugin's query of job states by ``changed(query)``.

    The plugin turns the answer into ends of jobs inside check_active_jobs, and has no setting for words that it does
    not know or for a Slurm that does not answer. A subclass would have to repeat that method, and an executor of
    another name would leave profiles that say `executor: slurm` without it.
    """
    query = getattr(plugin(), "query_job_status", None)
    asked = asks(plugin().Executor.check_active_jobs, "query_job_status")
    need(asked and inspect.iscoroutinefunction(query), PLUGIN, "query_job_status")
    plugin().query_job_status = changed(query)


def never_ask_sacct() -> None:
    """Keep the plugin from sacct, which its setting status_command allows once scontrol is slow to answer."""
    asked = asks(plugin().Executor.check_active_jobs, "is_query_tool_available")
    need(asked and callable(getattr(plugin(), "is_query_tool_available", None)), PLUGIN, "is_query_tool_available")
    plugin().is_query_tool_available = lambda name: name != "sacct"


def min_job_age() -> int | None:
    """Return Slurm's MinJobAge as the plugin reads it for its own decision, None if Slurm does not say."""
    need(callable(getattr(plugin(), "get_min_job_age", None)), PLUGIN, "get_min_job_age")
    age: int | None = plugin().get_min_job_age()
    return age


def local_executor(workflow: Any) -> Any:
    """Return the executor of the local jobs of a cluster run; None if there is no other. Snakemake cancels only one."""
    return getattr(workflow.scheduler, "_local_executor", None)


def local_rules(workflow: Any) -> set[str]:
    """Return the rules of `localrules:`; Workflow.is_local is true for every rule of a run without a cluster."""
    rules: set[str] = workflow._localrules
    return rules


def forget_metadata(workflow: Any) -> None:
    """Drop Snakemake's cache of its last job's metadata, which may be the previous run's; old versions have none."""
    getattr(workflow.persistence, "_clear_cache", lambda: None)()
