# What the rules take from mgg/workflow, and what happens before and after a run.
import atexit
import os
import sys
from pathlib import Path

from snakemake.utils import validate

from mgg import origin
from mgg.files import keep_others_out
from mgg.workflow import checks, internals, launch, lock, options
from mgg.workflow.failures import Failures
from mgg.workflow.interrupted import INTERRUPTED
from mgg.workflow.jobs import Jobs
from mgg.workflow.launch import JobLaunch
from mgg.workflow.outputs import Foretelling, Notes, Outputs
from mgg.workflow.plan import GRAPH, LINKED, WorkflowPlan, any_of, read_settings, untracked
from mgg.workflow.progress import show_progress
from mgg.workflow.resources import PROCESS_MB, RANK_MB, ResourceRequests, reordered
from mgg.workflow.slurm import Slurm

keep_others_out()
launch.prepare_environment(workflow)
SETTINGS = read_settings(workflow, config)
# Read back, because --config passes numbers as text.
validate(SETTINGS.model_dump(mode="json"), "../schemas/config.schema.yaml", set_default=False)
origin.share(SETTINGS.model_dump(mode="json"))
PLAN = WorkflowPlan(SETTINGS, trust=not workflow.is_main_process)
RESULTS, RECORDS, DATASETS = PLAN.results, PLAN.records, PLAN.datasets
LAUNCH = JobLaunch(workflow)
if workflow.is_main_process:
    LAUNCH.warn_of_mixed_devices(SETTINGS)
    checks.warn_of_untrained(PLAN)
    checks.warn_of_unused(SETTINGS)
SLURM = Slurm(workflow)
FAILURES = Failures(INTERRUPTION, SLURM)
JOBS = Jobs(workflow, f"{RECORDS}/jobs.jsonl", LAUNCH.said)
REQUESTS = ResourceRequests(workflow, PLAN, LAUNCH, FAILURES)
OUTPUTS = Outputs(PLAN, LAUNCH, workflow.is_main_process)
for handler in (SLURM, FAILURES, JOBS):
    logger.addHandler(handler)
show_progress(workflow, FAILURES, INTERRUPTION)
# Kept here because closing the file would release the lock.
HELD = []


wildcard_constraints:
    dataset=any_of(DATASETS),
    recipe=any_of(PLAN.recipes.values()),
    pes=any_of(SETTINGS.partition.pes),
    model=any_of(PLAN.models),
    technique=any_of(PLAN.learners),
    seed=any_of(SETTINGS.train.seeds),
    place="[^/]+",
    run=r"[0-9a-f]{8}(-n\d+)?",


# Not for dry runs, --lint, --report or the processes that snakemake starts for jobs.
onstart:
    SLURM.refuse_without()
    launch.refuse_broken_names(workflow, RESULTS)
    LAUNCH.refuse_uneven_ranks()
    SLURM.ask_who_answers()
    internals.limit_attempts(workflow, FAILURES.attempts_left)
    HELD.append(lock.claim(RESULTS, SLURM.run))
    NOTES.keep()


onsuccess:
    JOBS.write()
    if os.path.exists(page := f"{RECORDS}/report/index.html"):
        logger.info(f"Report: {os.path.abspath(page)}")


onerror:
    JOBS.write()
    if FAILURES.failed:
        logger.error(FAILURES.summary())
    if INTERRUPTION.at is not None:
        INTERRUPTION.tell(logger.error)
        workflow.logger_manager.logfile_hint()
        sys.exit(INTERRUPTED)  # Snakemake would go on to say that a job has failed
