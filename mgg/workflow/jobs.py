"""Job records for the report: times, requests and resource use.

They combine Snakemake's benchmark files and output metadata, when job report starts and again at the end of a run.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Container
from pathlib import Path
from typing import Any

from snakemake.benchmark import BENCHMARK_INTERVAL, BENCHMARK_INTERVAL_SHORT
from snakemake.logging import logger
from snakemake_interface_logger_plugins.common import LogEvent

from mgg import origin
from mgg.errors import InputError
from mgg.records import Origin, read_lines, write_lines
from mgg.records.job import JobRecord, read_used
from mgg.workflow import internals
from mgg.workflow.plan import shown_wildcards


class Jobs(logging.Handler):
    """Notes the Slurm id of each job of this run, which Snakemake does not keep; writes records when job report starts.

    ``path`` is not an input of the report, or a job without a benchmark would be run again. On a cluster, Slurm starts
    the ranks of the rules in ``with_ranks``.
    """

    def __init__(self, workflow: Any, path: str, with_ranks: Container[str]):
        super().__init__()
        self.workflow, self.path, self.with_ranks = workflow, path, with_ranks
        self.submitted: dict[int, tuple[str, float]] = {}

    def emit(self, record: Any) -> None:
        """Note a submission."""
        submission = re.match(r"Job (\d+) has been submitted with SLURM jobid (\S+) ", record.getMessage())
        if submission:
            self.submitted[int(submission[1])] = (submission[2], record.created)
        starts = getattr(record, "event", None) == LogEvent.JOB_INFO and record.rule_name == "report"
        if starts and self.workflow.is_main_process and not self.workflow.dryrun:
            self.write()

    def write(self) -> None:
        """Write the records of all jobs behind the results; a run never fails because of them."""
        try:
            internals.forget_metadata(self.workflow)
            before = {(record.rule, *record.wildcards.items()): record for record in self.earlier()}
            jobs = [job for job in self.workflow.dag.jobs if job.benchmark and job.rule.name != "report"]
            found = [self.record(job, before) for job in jobs]
            if found:
                found.sort(key=lambda record: (record.rule, *record.wildcards.values()))
                write_lines(self.path, found)
        except Exception as error:  # other versions of Snakemake may store these elsewhere
            logger.warning(
                f"{self.path}: not written ({error}): the report does not say when jobs ran and what they used"
            )

    def record(self, job: Any, before: dict[Any, JobRecord]) -> JobRecord:
        """Return a job's record, completed from an earlier record of the same execution."""
        bench = benchmark_of(job)
        if job.rule.name in internals.local_rules(self.workflow):  # requests no resources
            bench = {name: value for name, value in bench.items() if name not in ("resources", "threads")}
        slurm_job, submitted = self.submitted.get(job.jobid, (None, None))
        if slurm_job and "resources" in bench:
            # The Snakemake inside a Slurm job does not know attempts that lacked memory or time.
            bench["resources"] |= {name: job.resources.get(name) for name in ("mem_mb", "runtime")}
        fields = {
            "stage": Path(str(job.rule.snakefile)).stem,  # each stage has its own rule file
            "rule": job.rule.name,
            "wildcards": shown_wildcards(job.wildcards_dict),
            "attempts": job.attempt,
            "slurm_job": slurm_job,
            "submitted": submitted,
            "ended": self.end_of(job),
        }
        record = JobRecord(**fields, **self.used_by(job, bench), **asked_for(bench), **origin.origin())
        old = before.get((record.rule, *record.wildcards.items()))
        if old is None or any(
            getattr(old, name) != getattr(record, name) for name in ("seconds", "seen", "cpu_seconds")
        ):
            return record
        # Only the run that submitted a job knows this, and touching outputs changes their times.
        once = ("slurm_job", "submitted", "ended", "runtime_asked", "memory_asked", *Origin.model_fields)
        kept = {name: getattr(old, name) for name in once}
        kept = {name: value for name, value in kept.items() if value is not None}
        return record.model_copy(update=kept | {"attempts": max(old.attempts, record.attempts)})

    def earlier(self) -> list[JobRecord]:
        """Return the records in the file; empty, with a warning, if it cannot be read."""
        if not Path(self.path).is_file():
            return []
        try:
            return read_lines(self.path, JobRecord)
        except InputError as error:
            logger.warning(f"{error}: when jobs were submitted is lost")
            return []

    def end_of(self, job: Any) -> float | None:
        """Return when a job's outputs were complete, from Snakemake's notes; None if unknown."""
        notes = [self.workflow.persistence.metadata(path) for path in job.output]
        ends = [note.get("endtime") for note in notes if note]
        return max((end for end in ends if end is not None), default=None)

    def used_by(self, job: Any, bench: dict[str, Any]) -> dict[str, Any]:
        """Return the JobRecord fields on a job's resource use."""
        seconds = amount(bench, "s")
        # If Slurm starts the ranks, even a single one, Snakemake may not see them on other hosts.
        if job.rule.name in self.with_ranks and scheduled(bench):
            return {"seconds": seconds} | used_by_ranks(job, seconds)
        memory, cpu = amount(bench, "max_pss") or amount(bench, "max_rss"), amount(bench, "cpu_time")
        if seconds is None or memory is None:
            return {"seconds": seconds}
        return {"seconds": seconds, "memory": int(memory * 2**20), "cpu_seconds": cpu, "seen": last_look(seconds)}


def benchmark_of(job: Any) -> dict[str, Any]:
    """Return Snakemake's measurements of a job's last run, {} if there are none."""
    try:
        found = json.loads(Path(job.benchmark).read_text(encoding="utf-8").splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}
    return found if isinstance(found, dict) else {}


def used_by_ranks(job: Any, seconds: float | None) -> dict[str, Any]:
    """Return the use in the ranks' records, {} if these are missing, older, or from another execution of the job."""
    try:
        used = read_used(job.output)
    except InputError:
        return {}
    # Ranks that ran longer than the job belong to another command, started by hand.
    if used is None or seconds is None or used.seconds > seconds:
        return {}
    # A peak covers the whole job.
    return {"memory": used.memory, "cpu_seconds": used.cpu_seconds, "seen": seconds}


def scheduled(bench: dict[str, Any]) -> bool:
    """Return whether the job ran under Slurm, whose profiles set a job's number of nodes."""
    return "nodes" in bench.get("resources", {})


def last_look(seconds: float) -> float:
    """Return the time of Snakemake's last measurement of a job: frequent at first, then every half minute."""
    often = BENCHMARK_INTERVAL * BENCHMARK_INTERVAL_SHORT
    if seconds < often:
        return seconds // BENCHMARK_INTERVAL_SHORT * BENCHMARK_INTERVAL_SHORT
    return often + (seconds - often) // BENCHMARK_INTERVAL * BENCHMARK_INTERVAL


def asked_for(bench: dict[str, Any]) -> dict[str, Any]:
    """Return the JobRecord fields on a job's requests, which only extended benchmarks have."""
    resources = bench.get("resources", {})
    minutes, megabytes, threads = amount(resources, "runtime"), amount(resources, "mem_mb"), amount(bench, "threads")
    ranks: float = 1
    cores = threads
    if threads and scheduled(bench):
        ranks = amount(resources, "tasks") or 1
        cores = ranks * (amount(resources, "cpus_per_task") or threads)
    return {
        "runtime_asked": None if minutes is None else 60 * minutes,
        "memory_asked": None if megabytes is None else int(megabytes * 1e6),
        "ranks": ranks,
        "cores_asked": cores or None,
        "granted": scheduled(bench),
    }


def amount(values: dict[str, Any], name: str) -> int | float | None:
    """Return a number of a benchmark or of resources, None if there is none ("NA", "TBD")."""
    value = values.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 else None
