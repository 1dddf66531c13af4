# Messages before a run's first job: jobs that run although results from another place exist, and the disk space needed. Also
# the note for `mgg clean` on the outputs that the config names.
import atexit
import logging
import shutil

from mgg.files import write_text
from mgg.results import Note, keep
from snakemake_interface_logger_plugins.common import LogEvent

# Bytes of outputs on disk per arc, per node and per feature of a node. Shards and layouts were measured (docs/scaling.md).
ON_DISK = {
    "graph": (4, 8, 4),
    "generate": (4, 8, 4),
    "graph_scatter": (16, 8, 4),
    "graph_shard": (4, 8, 0),
    "graph_gather": (4, 8, 4),
    "order": (4, 8, 4),
    "partition": (0, 8, 0),
    "layout": (24, 24, 4),
}


class Foretelling(logging.Handler):
    """Prints these messages with Snakemake's table of jobs; a dry run prints it twice, so at its end, where people look."""

    def __init__(self):
        super().__init__()
        self.lines = None

    def emit(self, record):
        if getattr(record, "event", None) != LogEvent.RUN_INFO:
            return
        first = self.lines is None
        if first:
            jobs = list(workflow.dag.needrun_jobs())
            self.lines = [*about_places(jobs), *about_disk(jobs)]
        if not (first and workflow.dryrun):
            for line in self.lines:
                logger.info(line)


def about_places(jobs):
    """Report this config's results from other places if jobs of this place are to run."""
    elsewhere = {here: paths for here, paths in MEASURED if paths}
    for name in PLACES:
        made = [str(job.output[0]) for job in jobs if job.rule.name == name and not Path(job.output[0]).exists()]
        there = {Path(path).relative_to(RECORDS).parts[1] for out in made for path in elsewhere.get(out, ())}
        if there:
            here = ", ".join(sorted({Path(path).relative_to(RECORDS).parts[1] for path in made}))
            jobs_run = "1 job runs" if len(made) == 1 else f"{len(made)} jobs run"
            yield (
                f"{name}: {jobs_run} on {here}: the results so far are of {', '.join(sorted(there))}; both are kept,"
                " and the report shows them apart"
            )


def about_disk(jobs):
    """Report the disk space of jobs' outputs if it is a gigabyte or more."""
    expected = sum(map(bytes_of, jobs))
    if expected >= 1e9:
        free = shutil.disk_usage(next(path for path in Path(RESULTS, "x").absolute().parents if path.is_dir())).free
        yield f"{RESULTS}: this run will write about {expected / 1e9:.1f} GB; {free / 1e9:.1f} GB are free"


def bytes_of(job):
    """Return the approximate bytes on disk of a job's output."""
    if job.rule.name not in ON_DISK:
        return 0
    size, (arcs, nodes, features) = size_of(job.wildcards), ON_DISK[job.rule.name]
    share = SETTINGS.graph.shards if job.rule.name == "graph_shard" else 1
    return (arcs * size.arcs + nodes * size.nodes + features * size.nodes * size.features) / share


def named_outputs():
    """Return this config's outputs in this place, those of other places that its report shows, and its own sources."""
    natural = [f"graph_natural/{name}@{RECIPES[name]}" for name in ORDERED]
    graphs = [
        f"{kind}/{name}@{RECIPES[name]}" for kind in ("graph", "graph_scatter", "graph_shard") for name in DATASETS
    ]
    splits = [
        split_at(stage, name, pes) for stage in ("partition", "layout") for name in DATASETS for pes in PARTITIONED
    ]
    measured = [path for here, paths in [*TUNINGS, *MEASURED] for path in (here, *paths)]
    sources = [str(user_files.path_of(dataset.source)) for dataset in DATASETS.values() if dataset.source]
    sources += [os.path.expanduser(model) for model in OWN_MODELS.values()]
    samples = [f"{RESULTS}/lookup_samples/{SAMPLES}"] if SETTINGS.lookup.sides else []
    told = [*descriptions(), *predictions()]
    below = [os.path.relpath(path, RESULTS) for path in [*splits, *samples, *told, *measured, *sources]]
    return [*(f"retrieve/{name}" for name in DATASETS), *natural, *graphs, *below]


class Notes:
    """Writes a run's notes once: at its start, or at its end if it has nothing to do."""

    def __init__(self):
        places = {Path(here).relative_to(RECORDS).parts[1] for here, _ in MEASURED}
        # Resolve now, because Snakemake leaves the working folder before it ends.
        self.results = Path(RESULTS).absolute()
        self.note = Note(
            configs=[os.path.relpath(file, RESULTS) for file in workflow.overwrite_configfiles],
            given=[*(workflow.config_settings.config_args or ()), f"experiment={SETTINGS.experiment}"],
            where=sorted(places),
            config_hash=origin.settings_hash(SETTINGS.model_dump(mode="json")),
            outputs=sorted(set(named_outputs())),
        )
        self.done = False

    def keep(self):
        """Note the outputs that this run names and what it read of the user's own files, which its jobs need."""
        self.done = True
        for what, write in (
            ("the contents of own files", self.write_contents),
            ("what this config names", self.write_note),
        ):
            try:
                write()
            except (MggError, OSError) as error:
                logger.warning(f"{RESULTS}: {what} cannot be noted: {error}")

    def write_contents(self):
        if CONTENTS.known["files"]:
            write_text(OWN_FILES, json.dumps(CONTENTS.known))

    def write_note(self):
        keep(self.results, self.note)

    def keep_at_end(self):
        """Do the same after a run with nothing to do; not after dry runs, --lint and the like, or refused runs."""
        ran = workflow.executor_plugin is not None and not workflow.dryrun and not workflow.touch
        if ran and not self.done and self.results.is_dir() and not list(workflow.dag.needrun_jobs()):
            self.keep()


if workflow.is_main_process:
    NOTES = Notes()
    logger.addHandler(Foretelling())
    atexit.register(NOTES.keep_at_end)
