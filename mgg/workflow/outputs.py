"""This config's outputs, and where its timings and trainings run; other options or places give other outputs.

Also messages about them before a run's first job, and the note for `mgg clean`.
"""

from __future__ import annotations

import glob
import json
import logging
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from snakemake.iocontainers import Wildcards
from snakemake.logging import logger
from snakemake_interface_logger_plugins.common import LogEvent

from mgg import origin
from mgg.errors import MggError
from mgg.files import write_text
from mgg.graph import user_files
from mgg.naming import short_hash
from mgg.results import Note, keep
from mgg.workflow import options
from mgg.workflow.launch import JobLaunch
from mgg.workflow.plan import GRAPH, LINKED, WorkflowPlan
from mgg.workflow.resources import ResourceRequests

#: Bytes of outputs on disk per arc, per node and per feature of a node. Shards and layouts were measured
#: (docs/concepts/scaling.md).
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
#: The output of a job that runs on PEs, and the outputs of the same job in other places.
Measured = tuple[str, list[str]]


class Outputs:
    """The outputs of each stage; those that are measured only once all rules are settled, and for the main process."""

    def __init__(self, plan: WorkflowPlan, launch: JobLaunch, main: bool):
        self.plan, self.launch, self.main = plan, launch, main

    def split_at(self, stage: str, dataset: str, pes: int) -> str:
        """Return the folder of a partition or layout."""
        folder = f"{self.plan.results}/{stage}/{self.plan.split}"
        return folder.format(dataset=dataset, recipe=self.plan.recipes[dataset], pes=pes)

    def measured(self, rule: str, output: str, words: list[str], **values: Any) -> Measured:
        """Return a job's output, whose name depends on its options ``words``, and the outputs in other places."""
        wildcards = Wildcards(fromdict={name: str(value) for name, value in values.items()})
        run, nodes = short_hash({"options": words}), self.launch.nodes[rule](wildcards)
        named = {**values, "recipe": self.plan.recipes[values["dataset"]]} if "dataset" in values else values
        pattern = f"{self.plan.records}/{rule}/{output}"
        place = self.launch.places[rule](wildcards)
        here = pattern.format(**named, place=place, run=run if nodes == 1 else f"{run}-n{nodes}")
        # A training's checkpoints are next to it.
        before, between, after = pattern.format(**named, place="\0", run="\0").split("\0")
        name = rf"{re.escape(before)}[^/]+{re.escape(between)}{run}(-n\d+)?{re.escape(after)}"
        anywhere = glob.glob(f"{glob.escape(before)}*{glob.escape(between)}{run}*{glob.escape(after)}")  # noqa: PTH207
        return here, sorted(path for path in anywhere if path != here and re.fullmatch(name, path))

    @cached_property
    def timings(self) -> list[Measured]:
        """Of stage aggregate, and of the jobs that measure links, which have no data set."""
        aggregate, pes_of_all = self.plan.settings.aggregate, self.plan.settings.partition.pes
        if not self.main:
            return []
        words, output = options.latency_options(aggregate), f"{LINKED}.jsonl"
        links = [self.measured("links", output, words, pes=pes) for pes in pes_of_all if aggregate.latency and pes > 1]
        words, output = options.aggregate_options(aggregate), f"{self.plan.timed}.jsonl"
        return links + [
            self.measured(
                "aggregate", output, words + options.network_options(aggregate, pes), dataset=dataset, pes=pes
            )
            for dataset, pes in product(self.plan.datasets if aggregate.techniques else [], pes_of_all)
        ]

    @cached_property
    def trainings(self) -> list[Measured]:
        """Of stage train."""
        if not self.main:
            return []
        train, found = self.plan.settings.train, []
        for dataset, (name, model, pes, _), seed in product(self.plan.trained, options.learners(train), train.seeds):
            words = self.plan.train_options(model, dataset, name) + options.network_options(train, pes)
            values = {"dataset": dataset, "model": model, "technique": name, "pes": pes, "seed": seed}
            found.append(self.measured("train", self.plan.training, words, **values))
        return found

    @cached_property
    def tunings(self) -> list[Measured]:
        """Of stage tune; a training that uses its output runs in the same place."""
        settings = self.plan.settings
        if not (self.main and settings.tune.dims):
            return []
        words, output = options.tune_options(settings), f"{self.plan.timed}.json"
        cases = product(self.plan.datasets, settings.partition.pes)
        return [self.measured("tune", output, words, dataset=dataset, pes=pes) for dataset, pes in cases]

    @cached_property
    def lookups(self) -> list[Measured]:
        """Of stage lookup."""
        lookup = self.plan.settings.lookup
        if not (self.main and lookup.sides):
            return []
        words, output = options.lookup_options(lookup), f"{self.plan.looked_up}.jsonl"
        return [self.measured("lookup", output, words, pes=pes) for pes in lookup.pes]

    @property
    def reported(self) -> list[Measured]:
        """All that are measured and come into the report."""
        return [*self.timings, *self.trainings, *self.lookups]

    @property
    def descriptions(self) -> list[str]:
        """Outputs of stage describe."""
        return self.of_data_sets(f"describe/{GRAPH}.jsonl") if self.plan.settings.graph.describe else []

    @property
    def predictions(self) -> list[str]:
        """Outputs of stage predict."""
        return self.of_data_sets(f"predict/{self.plan.prediction}.jsonl") if self.plan.settings.predict.pes else []

    def of_data_sets(self, output: str) -> list[str]:
        """Return an output of each data set."""
        recipes = self.plan.recipes.items()
        return [f"{self.plan.records}/{output}".format(dataset=name, recipe=recipe) for name, recipe in recipes]

    def named(self) -> list[str]:
        """Return this config's outputs in this place, those of others that its report shows, and its own sources."""
        plan = self.plan
        graphs = {name: GRAPH.format(dataset=name, recipe=recipe) for name, recipe in plan.recipes.items()}
        kinds = [f"{kind}/{each}" for kind in ("graph", "graph_scatter", "graph_shard") for each in graphs.values()]
        splits = [
            self.split_at(stage, name, pes)
            for stage, name, pes in product(("partition", "layout"), graphs, plan.partitioned)
        ]
        measured = [path for here, paths in [*self.tunings, *self.reported] for path in (here, *paths)]
        sources = [str(user_files.path_of(dataset.source)) for dataset in plan.datasets.values() if dataset.source]
        sources += [plan.model_path(model) for model in plan.own_models]
        samples = [f"{plan.results}/lookup_samples/{plan.samples}"] if plan.settings.lookup.sides else []
        below = [*splits, *samples, *self.descriptions, *self.predictions, *measured, *sources]
        natural = [f"graph_natural/{graphs[name]}" for name in plan.ordered]
        retrieved = [f"retrieve/{name}" for name in graphs]
        return [*retrieved, *natural, *kinds, *(os.path.relpath(path, plan.results) for path in below)]


class Foretelling(logging.Handler):
    """Prints messages with Snakemake's table of jobs; a dry run prints it twice, so at its end, where people look.

    They are about jobs that run although results from another place exist, and about the disk space needed.
    """

    def __init__(self, workflow: Any, outputs: Outputs, requests: ResourceRequests):
        super().__init__()
        self.workflow, self.outputs, self.requests = workflow, outputs, requests
        self.lines: list[str] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Print them."""
        if getattr(record, "event", None) != LogEvent.RUN_INFO:
            return
        first = self.lines is None
        if self.lines is None:
            jobs = list(self.workflow.dag.needrun_jobs())
            self.lines = [*self.about_places(jobs), *self.about_disk(jobs)]
        if not (first and self.workflow.dryrun):
            for line in self.lines:
                logger.info(line)

    def about_places(self, jobs: list[Any]) -> Iterator[str]:
        """Report this config's results from other places if jobs of this place are to run."""
        elsewhere = {here: paths for here, paths in self.outputs.reported if paths}
        records = self.outputs.plan.records
        for name in self.outputs.launch.places:
            made = [str(job.output[0]) for job in jobs if job.rule.name == name and not Path(job.output[0]).exists()]
            there = places_of(records, (path for out in made for path in elsewhere.get(out, ())))
            if there:
                jobs_run = "1 job runs" if len(made) == 1 else f"{len(made)} jobs run"
                yield (
                    f"{name}: {jobs_run} on {', '.join(places_of(records, made))}: the results so far are of"
                    f" {', '.join(there)}; both are kept, and the report shows them apart"
                )

    def about_disk(self, jobs: list[Any]) -> Iterator[str]:
        """Report the disk space of jobs' outputs if it is a gigabyte or more."""
        results, expected = self.outputs.plan.results, sum(map(self.bytes_of, jobs))
        if expected >= 1e9:
            above = next(path for path in Path(results, "x").absolute().parents if path.is_dir())
            free = shutil.disk_usage(above).free
            yield f"{results}: this run will write about {expected / 1e9:.1f} GB; {free / 1e9:.1f} GB are free"

    def bytes_of(self, job: Any) -> float:
        """Return the approximate bytes on disk of a job's output."""
        if job.rule.name not in ON_DISK:
            return 0
        size, (arcs, nodes, features) = self.requests.size_of(job.wildcards), ON_DISK[job.rule.name]
        share = self.outputs.plan.settings.graph.shards if job.rule.name == "graph_shard" else 1
        return float(arcs * size.arcs + nodes * size.nodes + features * size.nodes * size.features) / share


def places_of(records: str, paths: Iterable[str]) -> list[str]:
    """Return the places in the names of measured outputs."""
    return sorted({Path(path).relative_to(records).parts[1] for path in paths})


class Notes:
    """Writes a run's notes once: at its start, or at its end if it has nothing to do."""

    def __init__(self, workflow: Any, outputs: Outputs):
        self.workflow, self.plan = workflow, outputs.plan
        settings, results = self.plan.settings, self.plan.results
        # Resolve now, because Snakemake leaves the working folder before it ends.
        self.results = Path(results).absolute()
        self.note = Note(
            configs=[os.path.relpath(file, results) for file in workflow.overwrite_configfiles],
            given=[*(workflow.config_settings.config_args or ()), f"experiment={settings.experiment}"],
            where=places_of(self.plan.records, (here for here, _ in outputs.reported)),
            config_hash=origin.settings_hash(settings.model_dump(mode="json")),
            outputs=sorted(set(outputs.named())),
        )
        self.done = False

    def keep(self) -> None:
        """Note the outputs that this run names and what it read of the user's own files, which its jobs need."""
        self.done = True
        for what, write in (
            ("the contents of own files", self.write_contents),
            ("what this config names", lambda: keep(self.results, self.note)),
        ):
            try:
                write()
            except (MggError, OSError) as error:
                logger.warning(f"{self.plan.results}: {what} cannot be noted: {error}")

    def write_contents(self) -> None:
        """Note what this run read of the user's own files."""
        if self.plan.contents.known["files"]:
            write_text(self.plan.own_files, json.dumps(self.plan.contents.known))

    def keep_at_end(self) -> None:
        """Do the same after a run with nothing to do; not after dry runs, --lint and the like, or refused runs."""
        workflow = self.workflow
        ran = workflow.executor_plugin is not None and not workflow.dryrun and not workflow.touch
        if ran and not self.done and self.results.is_dir() and not list(workflow.dag.needrun_jobs()):
            self.keep()
