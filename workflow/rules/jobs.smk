# What the report says of jobs: when they ran, what they asked for, what they used. Snakemake's own records of them, its
# benchmark files and the metadata of outputs, are put together when job report starts, and again when a run ends.
import logging

from snakemake.benchmark import BENCHMARK_INTERVAL, BENCHMARK_INTERVAL_SHORT
from snakemake_interface_logger_plugins.common import LogEvent

from mgg.job_record import JobRecord, read_used
from mgg.record import Origin, read_lines, write_lines

# No input of the report: a job that left no benchmark would be run again for it.
JOBS = f"{RECORDS}/jobs.jsonl"


class Jobs(logging.Handler):
    """Learns Slurm's number of each job of this run, which Snakemake does not keep, and that job report starts."""

    def __init__(self):
        super().__init__()
        self.submitted = {}

    def emit(self, record):
        told = re.match(r"Job (\d+) has been submitted with SLURM jobid (\S+) ", record.getMessage())
        if told:
            self.submitted[int(told[1])] = (told[2], record.created)
        starts = getattr(record, "event", None) == LogEvent.JOB_INFO and record.rule_name == "report"
        if starts and workflow.is_main_process and not workflow.dryrun:
            self.write()

    def write(self):
        """Write the records of all jobs that the results come from; a run never fails for want of them."""
        try:
            # Of the job that ended last it remembers what stood there before; earlier versions remember nothing.
            getattr(workflow.persistence, "_clear_cache", lambda: None)()
            before = {(record.rule, *record.wildcards.items()): record for record in earlier_records()}
            found = [
                self.record(job, before) for job in workflow.dag.jobs if job.benchmark and job.rule.name != "report"
            ]
            if found:
                write_lines(JOBS, sorted(found, key=lambda record: (record.rule, *record.wildcards.values())))
        except Exception as error:  # whatever another version of Snakemake keeps elsewhere
            logger.warning(f"{JOBS}: not written ({error}): the report does not say when jobs ran and what they used")

    def record(self, job, before):
        """The record of one job, completed by an earlier one of the same run of it."""
        bench = benchmark_of(job)
        if job.rule.name in workflow._localrules:  # asks nobody for anything
            bench = {name: value for name, value in bench.items() if name not in ("resources", "threads")}
        slurm_job, submitted = self.submitted.get(job.jobid, (None, None))
        if slurm_job and "resources" in bench:
            # The Snakemake inside of a Slurm job knows nothing of attempts that lacked memory or time.
            bench["resources"] |= {name: job.resources.get(name) for name in ("mem_mb", "runtime")}
        fields = {
            "stage": Path(str(job.rule.snakefile)).stem,  # every stage has its file of rules
            "rule": job.rule.name,
            "wildcards": shown_wildcards(job.wildcards_dict),
            "attempts": job.attempt,
            "slurm_job": slurm_job,
            "submitted": submitted,
            "ended": end_of(job),
        }
        record = JobRecord(**fields, **used_by(job, bench), **asked_for(bench), **origin.origin())
        old = before.get((record.rule, *record.wildcards.items()))
        if old is None or any(
            getattr(old, name) != getattr(record, name) for name in ("seconds", "seen", "cpu_seconds")
        ):
            return record
        # Only the run that submitted a job knows this; and the times of outputs change where they are touched.
        told = ("slurm_job", "submitted", "ended", "runtime_asked", "memory_asked", *Origin.model_fields)
        kept = {name: getattr(old, name) for name in told}
        kept = {name: value for name, value in kept.items() if value is not None}
        return record.model_copy(update=kept | {"attempts": max(old.attempts, record.attempts)})


def earlier_records():
    """What the file held; nothing, with a warning, where it cannot be read."""
    if not Path(JOBS).is_file():
        return []
    try:
        return read_lines(JOBS, JobRecord)
    except InputError as error:
        logger.warning(f"{error}: when jobs were submitted is lost")
        return []


def benchmark_of(job):
    """What Snakemake measured of a job's last run, {} where it did not."""
    try:
        found = json.loads(Path(job.benchmark).read_text(encoding="utf-8").splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}
    return found if isinstance(found, dict) else {}


def end_of(job):
    """When a job's outputs were there, as Snakemake noted it then; None where it did not."""
    notes = [workflow.persistence.metadata(path) for path in job.output]
    ends = [note.get("endtime") for note in notes if note]
    return max((end for end in ends if end is not None), default=None)


def used_by(job, bench):
    """The fields of a JobRecord that say what a job used."""
    seconds = amount(bench, "s")
    if ranks_elsewhere(job, bench):
        return {"seconds": seconds} | told_by_ranks(job, seconds)
    memory, cpu = amount(bench, "max_pss") or amount(bench, "max_rss"), amount(bench, "cpu_time")
    if seconds is None or memory is None:
        return {"seconds": seconds}
    return {"seconds": seconds, "memory": int(memory * 2**20), "cpu_seconds": cpu, "seen": last_look(seconds)}


def ranks_elsewhere(job, bench):
    """Whether Slurm starts the ranks of a job, one alone too, maybe on other hosts, where Snakemake does not see them."""
    return job.rule.name in SITE and scheduled(bench)


def told_by_ranks(job, seconds):
    """What ranks say in the records that they wrote, {} where those are missing, older, or not of this run of the job."""
    try:
        used = read_used(job.output)
    except InputError:
        return {}
    # Ranks that ran for longer than the job were another's: of a command that somebody gave by hand.
    if used is None or seconds is None or used.seconds > seconds:
        return {}
    # A peak is one of the whole job.
    return {"memory": used.memory, "cpu_seconds": used.cpu_seconds, "seen": seconds}


def scheduled(bench):
    """Whether the job ran behind Slurm: the profiles for it say how many nodes a job takes."""
    return "nodes" in bench.get("resources", {})


def last_look(seconds):
    """When Snakemake measured a job of so many seconds for the last time: often at first, then every half minute."""
    often = BENCHMARK_INTERVAL * BENCHMARK_INTERVAL_SHORT
    if seconds < often:
        return seconds // BENCHMARK_INTERVAL_SHORT * BENCHMARK_INTERVAL_SHORT
    return often + (seconds - often) // BENCHMARK_INTERVAL * BENCHMARK_INTERVAL


def asked_for(bench):
    """The fields of a JobRecord that say what a job asked for, of which only the extended benchmarks tell."""
    resources = bench.get("resources", {})
    minutes, megabytes, threads = amount(resources, "runtime"), amount(resources, "mem_mb"), amount(bench, "threads")
    ranks, cores = 1, threads
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


def amount(values, name):
    """A number of a benchmark or of resources, None where there is none ("NA", "TBD")."""
    value = values.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 else None


JOB_RECORDS = Jobs()
logger.addHandler(JOB_RECORDS)


onsuccess:
    JOB_RECORDS.write()
    if os.path.exists(page := f"{RECORDS}/report/index.html"):
        logger.info(f"Report: {os.path.abspath(page)}")
